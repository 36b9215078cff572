//! Programs of Python chares: their arrays, and the run.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use gridloom::Error;
use gridloom::chares::{self, ChareError, Elements, Ended, Index, Job, Packing, Pe, Placement, Shape, Value};
use gridloom::process::StackKind;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString, PyTuple};

use crate::chare::{
    Known, PyChare, RawTarget, act_at_start, actions, add_array, chare_target, drop_actions, index_of, made_array,
    methods_of, raise_later, reset, take_raised,
};
use crate::chare_value::{pickled, to_python};
use crate::errors::{OrRaise, error};
use crate::wait::interruptible;
use crate::{import, lock};

/// An array requested by the program.
struct Wanted {
    name: String,
    /// Makes the object for an index.
    make: Py<PyAny>,
    shape: Shape,
    placement: Placement,
    packing: Option<PyPacking>,
}

/// Packs an object; restores the object of an index from its state.
type PyPacking = (Py<PyAny>, Py<PyAny>);

/// One element of a program, while its arrays are declared.
#[pyclass(frozen, module = "gridloom._gridloom")]
pub(crate) struct RawJob {
    #[pyo3(get)]
    element: u32,
    #[pyo3(get)]
    elements: u32,
    /// The site of each element.
    #[pyo3(get)]
    sites: Vec<u32>,
    wanted: Mutex<Vec<Wanted>>,
    reducers: Mutex<Vec<Py<PyAny>>>,
    balancer: Mutex<Option<String>>,
    mailbox_bytes: Mutex<Option<u64>>,
}

#[pymethods]
impl RawJob {
    fn balance(&self, name: String) {
        *lock(&self.balancer) = Some(name);
    }

    fn mailbox_bytes(&self, bytes: u64) {
        *lock(&self.mailbox_bytes) = Some(bytes);
    }

    /// Registers a function of two values as a reducer; returns its number.
    fn reducer(&self, function: Py<PyAny>) -> usize {
        let mut reducers = lock(&self.reducers);
        reducers.push(function);
        reducers.len() - 1
    }

    #[allow(clippy::too_many_arguments, reason = "each is one of the caller's")]
    /// Adds an array; `make(proxy, index)` makes its objects, and `packing` packs and restores those that move.
    /// `shape` is a tuple of extents, or with `is_sparse` a list of indices.
    fn array(
        &self,
        py: Python<'_>,
        name: &str,
        methods: Vec<Py<PyString>>,
        shape: &Bound<'_, PyAny>,
        is_sparse: bool,
        placement: &Bound<'_, PyAny>,
        make: Py<PyAny>,
        packing: Option<PyPacking>,
    ) -> PyResult<RawTarget> {
        let shape = match is_sparse {
            true => Shape::sparse(shape.try_iter()?.map(|index| index_of(&index?)).collect::<PyResult<Vec<Index>>>()?),
            false => Shape::of(&shape.extract::<Vec<usize>>()?),
        };
        let placement = placement_of(py, placement)?;
        lock(&self.wanted).push(Wanted { name: name.into(), make, shape, placement, packing });
        chare_target(
            add_array(Known { methods: Arc::new(methods), proxy: None, at_border: BTreeSet::new() }),
            None,
            false,
        )
    }
}

fn placement_of(py: Python<'_>, given: &Bound<'_, PyAny>) -> PyResult<Placement> {
    if given.is_instance(&import(py, "gridloom.chares")?.getattr("ByCommunication")?)? {
        let edge = |edge: PyResult<Bound<'_, PyAny>>| {
            let (one, other, bytes) = edge?.extract::<(Bound<'_, PyAny>, Bound<'_, PyAny>, u64)>()?;
            Ok((index_of(&one)?, index_of(&other)?, bytes))
        };
        let edges = given.getattr("edges")?.try_iter()?.map(edge).collect::<PyResult<Vec<(Index, Index, u64)>>>()?;
        return Ok(Placement::by_communication(edges));
    }
    if given.is_callable() {
        let function = given.clone().unbind();
        let place = move |index: Index, elements: &Elements| {
            Python::attach(|py| {
                let at = PyTuple::new(py, index.as_slice()).and_then(|at| function.call1(py, (at, elements.count())));
                match at.and_then(|element| element.extract(py)) {
                    Ok(element) => Pe(element),
                    Err(error) => {
                        raise_later(error);
                        Pe(u32::MAX)
                    }
                }
            })
        };
        return Ok(Placement::custom(place));
    }
    match given.extract::<String>()?.as_str() {
        "blocks" => Ok(Placement::Blocks),
        "round-robin" => Ok(Placement::RoundRobin),
        "by-site" => Ok(Placement::BySite),
        other => {
            let why = format!(
                "placement '{other}' is not known; there are blocks, round-robin, by-site, ByCommunication(edges), or a function"
            );
            Err(error(py, "UsageError", &why))
        }
    }
}

/// Runs a program, which is called with a `RawJob` on each element. Returns the value with which it ended, whether this
/// is the first element, how many chares its load balancer moved, and whether the program continues without this
/// element.
#[pyfunction]
pub(crate) fn run_chares<'py>(py: Python<'py>, program: Py<PyAny>) -> PyResult<(Bound<'py, PyAny>, bool, u64, bool)> {
    let raised: Arc<Mutex<Option<PyErr>>> = Arc::default();
    let kept = raised.clone();
    let make = move |job: &mut Job<'_>| {
        let made = Python::attach(|py| make_arrays(py, &program, job));
        made.map_err(|error| {
            let text = error.to_string();
            raise_later(error);
            Error::Chares(ChareError::Failed(text))
        })
    };
    drop(take_raised());
    let body = move || -> Result<Ended, Error> {
        let outcome = chares::run_on(StackKind::Thread, attached, make);
        *lock(&kept) = take_raised();
        outcome
    };
    // Real elements run here, since Python delivers signals to this thread; simulated ones have threads of their own.
    let is_simulated = chares::is_simulated().or_raise(py)?;
    let outcome = if is_simulated { interruptible(py, body)? } else { py.detach(body) };
    if let (Err(_), Some(error)) = (&outcome, lock(&raised).take()) {
        return Err(error);
    }
    let Ended { value, is_first, moved, has_left } = outcome.or_raise(py)?;
    Ok((to_python(py, value)?, is_first, moved, has_left))
}

/// Keeps the thread's state in the interpreter from one entry method to the next, since it owns memory such as stacks.
fn attached(body: Box<dyn FnOnce() + Send + '_>) {
    Python::attach(|py| py.detach(body));
}

fn make_arrays(py: Python<'_>, program: &Py<PyAny>, job: &mut Job<'_>) -> PyResult<()> {
    reset();
    let (element, elements) = (job.element().0, job.elements().count());
    let sites = job.elements().all().map(|element| job.elements().site(element)).collect();
    let (wanted, reducers, balancer, mailbox_bytes) = Default::default();
    let raw = Py::new(py, RawJob { element, elements, sites, wanted, reducers, balancer, mailbox_bytes })?;
    program.call1(py, (raw.clone_ref(py),))?;
    if let Some(name) = &*lock(&raw.get().balancer) {
        job.balance(name).or_raise(py)?;
    }
    if let Some(bytes) = *lock(&raw.get().mailbox_bytes) {
        job.mailbox_bytes(bytes).or_raise(py)?;
    }
    for function in std::mem::take(&mut *lock(&raw.get().reducers)) {
        job.try_reducer(move |left, right| combined(&function, left, right));
    }
    let wanted = std::mem::take(&mut *lock(&raw.get().wanted));
    let asked = actions();
    for (number, wanted) in wanted.into_iter().enumerate() {
        make_array(py, number as u32, wanted, job)?;
    }
    if actions() > asked {
        return Err(error(
            py,
            "UsageError",
            "a chare's __init__ cannot send: its array does not exist yet; send in an entry method",
        ));
    }
    // Every element runs the program, and the first one sends.
    job.start(act_at_start);
    drop_actions();
    Ok(())
}

fn make_array(py: Python<'_>, number: u32, wanted: Wanted, job: &mut Job<'_>) -> PyResult<()> {
    let Wanted { name, make, shape, placement, packing } = wanted;
    let methods = methods_of(number);
    let may_have_border = matches!(placement, Placement::ByCommunication(_)).then(|| shape.clone());
    let proxy = Py::new(py, chare_target(number, None, false)?)?;
    let mut failed = None;
    let object = |index: Index| {
        let made = PyTuple::new(py, index.as_slice()).and_then(|at| make.call1(py, (proxy.clone_ref(py), at)));
        let object = made.unwrap_or_else(|error| {
            failed.get_or_insert(error);
            py.None()
        });
        PyChare { object, methods: methods.clone() }
    };
    let made = match packing {
        None => job.array_named(&name, shape, placement, object),
        Some(packing) => {
            let packing = packing_of(packing, proxy.clone_ref(py), methods.clone());
            job.packed_array(&name, shape, placement, object, packing)
        }
    };
    if let Some(error) = failed.or_else(take_raised) {
        return Err(error);
    }
    let made = made.or_raise(py)?;
    let indices = may_have_border.iter().flat_map(|shape| (0..shape.len() as u32).map(|number| shape.index(number)));
    let at_border = indices.filter(|index| job.is_at_border(&made, *index)).collect();
    made_array(number, made, at_border);
    Ok(())
}

/// Combines two values with a reducer of the program.
fn combined(function: &Py<PyAny>, left: Value, right: Value) -> Result<Value, String> {
    let combined = Python::attach(|py| {
        let made = function.bind(py).call1((to_python(py, left)?, to_python(py, right)?))?;
        Ok(Value::Bytes(pickled(py, &made)?.as_bytes().to_vec()))
    });
    combined.map_err(|error: PyErr| {
        let text = format!("a reducer failed: {error}");
        raise_later(error);
        text
    })
}

fn packing_of((pack, make): PyPacking, proxy: Py<RawTarget>, methods: Arc<Vec<Py<PyString>>>) -> Packing<PyChare> {
    Packing::new(
        move |chare: &PyChare| {
            let packed = Python::attach(|py| pack.call1(py, (&chare.object,))?.extract(py));
            packed.map_err(|error: PyErr| error.to_string())
        },
        move |index, state| {
            let object = Python::attach(|py| {
                let (at, state) = (PyTuple::new(py, index.as_slice())?, PyBytes::new(py, state));
                make.call1(py, (proxy.clone_ref(py), at, state))
            });
            let object = object.map_err(|error: PyErr| error.to_string())?;
            Ok(PyChare { object, methods: methods.clone() })
        },
    )
    .only_if(|chare| {
        // A chare with a waiting entry method cannot be packed.
        let waits = Python::attach(|py| chare.object.bind(py).getattr("_waits")?.extract::<u32>());
        waits.is_ok_and(|waits| waits == 0)
    })
}

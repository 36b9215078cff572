//! Python objects as chares, their messages, and the targets of messages.
//!
//! An entry method is a method of the object; its message is the method's name and the arguments. Within an element these are
//! passed as they are. For another element they are pickled.
//!
//! A method acts through functions of the module, which do not have the scheduler's context. They record actions, which are
//! performed when the method returns.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use gridloom::chares::{
    Callback, Chare, Codec, Context, Contribution, Index, Payload, Pe, Priority, Proxy, Target, Value,
};
use pyo3::exceptions::{PyAttributeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};

use crate::chare_value::{pickled, to_python, unpickled};
use crate::errors::error;
use crate::{import, lock};

/// An action requested by a method.
pub(crate) enum Action {
    Send { array: u32, to: Towards, priority: i32, message: PyMessage },
    Contribute { contribution: Contribution, callback: Asked },
    AwaitQuiet(Asked),
    Checkpoint(Asked),
    Resize(u32),
    Exit(Value),
    Compute(f64),
    Migrate(Pe),
}

/// The destination of a result: a method of chares, or the end of the program.
pub(crate) enum Asked {
    Method { array: u32, to: Towards, tag: u32 },
    Exit,
}

/// An array of this element.
pub(crate) struct Known {
    /// The names of the entry methods of its class, sorted: the tag of a result is the number of one.
    pub(crate) methods: Arc<Vec<Py<PyString>>>,
    /// Set once the array is made.
    pub(crate) proxy: Option<Proxy<PyChare>>,
    /// Its chares that exchange messages with other sites, if its placement knows them.
    pub(crate) at_border: BTreeSet<Index>,
}

thread_local! {
    /// Actions of the method that runs on this thread.
    static ACTIONS: RefCell<Vec<Action>> = const { RefCell::new(Vec::new()) };
    static ARRAYS: RefCell<Vec<Known>> = const { RefCell::new(Vec::new()) };
    static NOW: Cell<f64> = const { Cell::new(0.0) };
}

/// The exception that ended the program. It is not thread-local, since simulated elements have threads of their own.
static RAISED: Mutex<Option<PyErr>> = Mutex::new(None);

/// A Python object with entry methods.
pub(crate) struct PyChare {
    pub(crate) object: Py<PyAny>,
    pub(crate) methods: Arc<Vec<Py<PyString>>>,
}

/// A call of an entry method.
pub(crate) struct PyMessage {
    method: Py<PyString>,
    arguments: Py<PyTuple>,
    named: Option<Py<PyDict>>,
}

impl Clone for PyMessage {
    fn clone(&self) -> PyMessage {
        Python::attach(|py| PyMessage {
            method: self.method.clone_ref(py),
            arguments: self.arguments.clone_ref(py),
            named: self.named.as_ref().map(|named| named.clone_ref(py)),
        })
    }
}

impl Payload for PyMessage {
    type Codec = Pickle;

    fn entry_method(&self) -> Cow<'static, str> {
        Python::attach(|py| self.method.bind(py).to_string().into())
    }
}

/// Messages as pickles, which only elements of the same program open.
pub(crate) struct Pickle;

impl Codec<PyMessage> for Pickle {
    fn new() -> Result<Pickle, String> {
        Ok(Pickle)
    }

    fn encode(&mut self, message: &PyMessage, out: &mut Vec<u8>) -> Result<(), String> {
        Python::attach(|py| {
            let call = (&message.method, &message.arguments, &message.named);
            let bytes = pickled(py, call.into_pyobject(py)?.as_any())?;
            out.extend_from_slice(bytes.as_bytes());
            Ok(())
        })
        .map_err(|error: PyErr| error.to_string())
    }

    fn decode(&mut self, bytes: &[u8]) -> Result<PyMessage, String> {
        Python::attach(|py| {
            let (method, arguments, named) = unpickled(py, bytes)?.extract()?;
            Ok(PyMessage { method, arguments, named })
        })
        .map_err(|error: PyErr| error.to_string())
    }
}

impl Chare for PyChare {
    type Message = PyMessage;

    fn entry(&mut self, message: PyMessage, cx: &mut Context<'_, PyChare>) {
        NOW.set(cx.now());
        Python::attach(|py| {
            let (object, PyMessage { method, arguments, named }) = (self.object.bind(py), message);
            let outcome = match &named {
                None => object.call_method1(method.bind(py), arguments.bind(py)),
                Some(named) => object.call_method(method.bind(py), arguments.bind(py), Some(named.bind(py))),
            };
            match outcome {
                Ok(outcome) => self.go_on(py, method.bind(py), &outcome, cx),
                Err(error) => self.failed(py, method.bind(py), error, cx),
            }
            drop((method, arguments, named));
        });
    }

    fn on_result(&mut self, tag: u32, value: Value, cx: &mut Context<'_, PyChare>) {
        NOW.set(cx.now());
        Python::attach(|py| {
            let object = self.object.bind(py);
            let value = match value {
                Value::Nothing => Ok(PyTuple::empty(py)),
                value => to_python(py, value).and_then(|value| PyTuple::new(py, [value])),
            };
            let future = tag.checked_sub(self.methods.len() as u32);
            let method = self.method_of(py, tag);
            let called = value.and_then(|value| match future {
                None => object.call_method1(&method, value),
                Some(number) => {
                    let number = number.into_pyobject(py)?.into_any();
                    object.call_method1(
                        &method,
                        PyTuple::new(py, std::iter::once(number).chain(value).collect::<Vec<_>>())?,
                    )
                }
            });
            match called {
                Ok(outcome) => self.go_on(py, &method, &outcome, cx),
                Err(error) => self.failed(py, &method, error, cx),
            }
        });
    }

    fn name_of_outcome(&self, tag: u32) -> Cow<'static, str> {
        Python::attach(|py| self.method_of(py, tag).to_string().into())
    }
}

impl PyChare {
    /// Returns the method for a result's tag; tags beyond the methods are the chare's futures.
    fn method_of<'py>(&self, py: Python<'py>, tag: u32) -> Bound<'py, PyString> {
        match self.methods.get(tag as usize) {
            Some(method) => method.bind(py).clone(),
            None => PyString::intern(py, "_reply"),
        }
    }

    /// Continues after a method has returned: a coroutine is driven until it waits.
    fn go_on(
        &self,
        py: Python<'_>,
        method: &Bound<'_, PyString>,
        outcome: &Bound<'_, PyAny>,
        cx: &mut Context<'_, PyChare>,
    ) {
        if !outcome.is_none() {
            let begin = import(py, "gridloom.chares.waiting").and_then(|awaits| awaits.getattr("begin"));
            if let Err(error) = begin.and_then(|begin| begin.call1((self.object.bind(py), outcome))) {
                return self.failed(py, method, error, cx);
            }
        }
        act(cx);
    }

    fn failed(&self, py: Python<'_>, method: &Bound<'_, PyString>, error: PyErr, cx: &mut Context<'_, PyChare>) {
        let class = self.object.bind(py).get_type().name().map_or_else(|_| "?".into(), |name| name.to_string());
        cx.fail(format!("{class}{}.{method}: {error}", cx.index()));
        raise_later(error);
    }
}

/// Ends the program with that exception.
pub(crate) fn raise_later(error: PyErr) {
    lock(&RAISED).get_or_insert(error);
}

pub(crate) fn take_raised() -> Option<PyErr> {
    lock(&RAISED).take()
}

/// Clears the state that an earlier program left on this thread.
pub(crate) fn reset() {
    ACTIONS.take();
    ARRAYS.take();
}

/// Adds an array; returns its number.
pub(crate) fn add_array(known: Known) -> u32 {
    ARRAYS.with_borrow_mut(|arrays| {
        arrays.push(known);
        arrays.len() as u32 - 1
    })
}

pub(crate) fn made_array(number: u32, proxy: Proxy<PyChare>, at_border: BTreeSet<Index>) {
    ARRAYS.with_borrow_mut(|arrays| {
        let known = &mut arrays[number as usize];
        (known.proxy, known.at_border) = (Some(proxy), at_border);
    });
}

pub(crate) fn methods_of(number: u32) -> Arc<Vec<Py<PyString>>> {
    ARRAYS.with_borrow(|arrays| arrays[number as usize].methods.clone())
}

/// Number of recorded actions not yet performed.
pub(crate) fn actions() -> usize {
    ACTIONS.with_borrow(Vec::len)
}

pub(crate) fn drop_actions() {
    ACTIONS.take();
}

/// Performs actions of the program itself, which cannot contribute.
pub(crate) fn act_at_start<C>(cx: &mut Context<'_, C>) {
    for action in ACTIONS.take() {
        match action {
            Action::Contribute { .. } => cx.fail("only a chare contributes to a reduction"),
            Action::Migrate(_) => cx.fail("only a chare moves to another element"),
            action => act_on(cx, action),
        }
    }
}

fn act(cx: &mut Context<'_, PyChare>) {
    // The list keeps its memory.
    let mut actions = ACTIONS.take();
    for action in actions.drain(..) {
        match action {
            Action::Contribute { contribution, callback } => cx.contribute(contribution, callback.made()),
            Action::Migrate(element) => cx.migrate_to(element),
            action => act_on(cx, action),
        }
    }
    ACTIONS.set(actions);
}

fn act_on<C>(cx: &mut Context<'_, C>, action: Action) {
    match action {
        Action::Send { array, to, priority, message } => cx.send_with(Priority(priority), to.target(array), message),
        Action::AwaitQuiet(callback) => cx.when_quiet(callback.made()),
        Action::Checkpoint(callback) => cx.checkpoint(callback.made()),
        Action::Resize(elements) => cx.resize(elements),
        Action::Exit(value) => cx.exit(value),
        Action::Compute(flops) => cx.compute(flops),
        Action::Contribute { .. } | Action::Migrate(_) => unreachable!("the caller does it for its chare"),
    }
}

impl Asked {
    fn made(self) -> Callback {
        match self {
            Asked::Method { array, to, tag } => Callback::to(to.target(array)).tagged(tag),
            Asked::Exit => Callback::exit(),
        }
    }

    pub(crate) fn read(entry: Option<&Bound<'_, RawEntry>>) -> PyResult<Asked> {
        let Some(entry) = entry else { return Ok(Asked::Exit) };
        let (py, entry) = (entry.py(), entry.get());
        let methods = methods_of(entry.array);
        if let Some(number) = entry.future {
            let tag = methods.len() as u32 + number;
            return Ok(Asked::Method { array: entry.array, to: entry.to.clone(), tag });
        }
        let name = entry.name.to_str(py)?;
        let is_it = |method: &Py<PyString>| method.to_str(py).is_ok_and(|method| method == name);
        let Some(tag) = methods.iter().position(is_it) else {
            return Err(PyAttributeError::new_err(format!("the array's class has no entry method '{name}'")));
        };
        Ok(Asked::Method { array: entry.array, to: entry.to.clone(), tag: tag as u32 })
    }
}

/// Chares of an array.
#[derive(Clone)]
pub(crate) enum Towards {
    One(Index),
    All,
    Section(Arc<[Index]>),
}

impl Towards {
    fn target(&self, array: u32) -> Target<PyChare> {
        let proxy =
            ARRAYS.with_borrow(|arrays| arrays[array as usize].proxy).expect("no chare runs before all are made");
        match self {
            Towards::One(index) => proxy.at(*index),
            Towards::All => proxy.all(),
            Towards::Section(indices) => proxy.section(indices.iter().copied()),
        }
    }
}

/// Converts an integer or a tuple of integers to an index.
pub(crate) fn index_of(object: &Bound<'_, PyAny>) -> PyResult<Index> {
    if let Ok(one) = object.extract::<i32>() {
        return Ok(one.into());
    }
    let integers: Vec<i32> = object
        .extract()
        .map_err(|_| PyTypeError::new_err("an index is an integer, or a tuple of 1 to 6 integers below 2^31"))?;
    if integers.is_empty() || integers.len() > 6 {
        return Err(PyValueError::new_err(format!("an index has 1 to 6 integers, not {}", integers.len())));
    }
    Ok(Index::new(&integers))
}

fn index_to_python<'py>(py: Python<'py>, index: &Index) -> PyResult<Bound<'py, PyTuple>> {
    PyTuple::new(py, index.as_slice())
}

/// The arguments of [`chare_target`].
type Parts<'py> = (u32, Option<Bound<'py, PyAny>>, bool);

/// A target of messages: all chares of an array, one, or some.
#[pyclass(frozen, module = "gridloom._gridloom")]
pub(crate) struct RawTarget {
    array: u32,
    to: Towards,
}

#[pymethods]
impl RawTarget {
    fn __getitem__(&self, index: &Bound<'_, PyAny>) -> PyResult<RawTarget> {
        Ok(RawTarget { array: self.array, to: Towards::One(index_of(index)?) })
    }

    fn section(&self, indices: &Bound<'_, PyAny>) -> PyResult<RawTarget> {
        let indices = indices.try_iter()?.map(|index| index_of(&index?)).collect::<PyResult<Arc<[Index]>>>()?;
        Ok(RawTarget { array: self.array, to: Towards::Section(indices) })
    }

    #[getter]
    fn is_at_border(&self, py: Python<'_>) -> PyResult<bool> {
        let Towards::One(index) = &self.to else {
            return Err(error(py, "UsageError", "is_at_border is of one chare: array[index].is_at_border"));
        };
        Ok(ARRAYS.with_borrow(|arrays| arrays[self.array as usize].at_border.contains(index)))
    }

    fn __getattr__(&self, name: Bound<'_, PyString>) -> PyResult<RawEntry> {
        if name.to_str()?.starts_with('_') {
            return Err(PyAttributeError::new_err(format!("no entry method begins with '_': '{name}'")));
        }
        Ok(RawEntry { array: self.array, to: self.to.clone(), name: name.unbind(), priority: 0, future: None })
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, Parts<'py>)> {
        let make = import(py, "gridloom._gridloom")?.getattr("chare_target")?;
        let (indices, is_section) = match &self.to {
            Towards::All => (None, false),
            Towards::One(index) => (Some(index_to_python(py, index)?.into_any()), false),
            Towards::Section(indices) => {
                let all = indices.iter().map(|index| index_to_python(py, index)).collect::<PyResult<Vec<_>>>()?;
                (Some(all.into_pyobject(py)?.into_any()), true)
            }
        };
        Ok((make, (self.array, indices, is_section)))
    }
}

/// Restores a target from its parts, for pickles.
#[pyfunction]
pub(crate) fn chare_target(array: u32, indices: Option<&Bound<'_, PyAny>>, is_section: bool) -> PyResult<RawTarget> {
    let all = RawTarget { array, to: Towards::All };
    match indices {
        None => Ok(all),
        Some(indices) if is_section => all.section(indices),
        Some(index) => all.__getitem__(index),
    }
}

/// Returns an entry method, also one of the package with a name that begins with '_'. Restores entry methods from pickles.
#[pyfunction]
#[pyo3(signature = (target, name, future=None, priority=0))]
pub(crate) fn chare_entry(
    target: &Bound<'_, RawTarget>,
    name: Bound<'_, PyString>,
    future: Option<u32>,
    priority: i32,
) -> RawEntry {
    let RawTarget { array, to } = target.get();
    RawEntry { array: *array, to: to.clone(), name: name.unbind(), priority, future }
}

/// The arguments of [`chare_entry`].
type EntryParts = (Py<RawTarget>, Py<PyString>, Option<u32>, i32);

/// An entry method of chares: calling it sends its message.
#[pyclass(frozen, module = "gridloom._gridloom")]
pub(crate) struct RawEntry {
    array: u32,
    to: Towards,
    name: Py<PyString>,
    priority: i32,
    /// If set, then as a callback it sets that future of the chare.
    future: Option<u32>,
}

#[pymethods]
impl RawEntry {
    #[pyo3(signature = (*arguments, **named))]
    fn __call__(&self, py: Python<'_>, arguments: Py<PyTuple>, named: Option<Py<PyDict>>) {
        let message = PyMessage { method: self.name.clone_ref(py), arguments, named };
        let (array, to, priority) = (self.array, self.to.clone(), self.priority);
        ask(Action::Send { array, to, priority, message });
    }

    fn with_priority(&self, py: Python<'_>, priority: i32) -> RawEntry {
        let (to, name) = (self.to.clone(), self.name.clone_ref(py));
        RawEntry { array: self.array, to, name, priority, future: self.future }
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, EntryParts)> {
        let make = import(py, "gridloom._gridloom")?.getattr("chare_entry")?;
        let target = Py::new(py, RawTarget { array: self.array, to: self.to.clone() })?;
        Ok((make, (target, self.name.clone_ref(py), self.future, self.priority)))
    }
}

/// Start time of the method that runs, seconds.
pub(crate) fn now() -> f64 {
    NOW.get()
}

/// Records an action to perform when the method returns.
pub(crate) fn ask(action: Action) {
    ACTIONS.with_borrow_mut(|actions| actions.push(action));
}

//! Calibration, with arguments from Python functions and progress reported to them.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use gridloom::{Arg, CalibrateConfig, CalibrationCall, Error, Function, Grid, Sizes, Value};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::arguments::Target;
use crate::errors::{OrRaise, error};
use crate::lock;
use crate::plain::to_plain;
use crate::plan::Raised;
use crate::wait::interruptible;

/// The options of a calibration, as passed by Python.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct RawCalibration<'py> {
    sizes: BTreeMap<String, (i64, i64)>,
    values: Bound<'py, PyDict>,
    error: f64,
    budget: f64,
    servers: Vec<String>,
    /// Makes arguments by name, for given sizes.
    make: Option<Py<PyAny>>,
    /// Called with server, sizes, and seconds or `None`.
    progress: Option<Py<PyAny>>,
}

/// Measures a function.
pub(crate) fn calibrate<'py>(
    py: Python<'py>,
    grid: Grid,
    function: &str,
    asked: RawCalibration<'_>,
    describes_only: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let RawCalibration { sizes, values, error: bound, budget, servers, make, progress } = asked;
    let (found_in, name) = (grid.clone(), function.to_string());
    let function = interruptible(py, move || found_in.function(&name))?.or_raise(py)?;
    let Ok(budget) = Duration::try_from_secs_f64(budget) else {
        return Err(error(py, "UsageError", &format!("a budget of {budget} s; give seconds above 0")));
    };
    let named = ArgumentConverter { grid: grid.clone(), function: function.clone(), describes_only };
    let set = named.of(&values)?.into_iter().map(|(name, arg)| match arg {
        Arg::Value(value) => Ok((name, value)),
        Arg::Handle(_) => Err(error(py, "UsageError", &format!("argument '{name}' is a handle; pass its .get()"))),
    });
    let set: BTreeMap<String, Value> = set.collect::<PyResult<_>>()?;
    let config = CalibrateConfig { sizes, set, error: bound, budget, servers };
    let (raised, is_stopped) = (Raised::default(), Stop::default());
    let mut callbacks = Callbacks { named, make, progress, raised: raised.clone(), is_stopped: is_stopped.0.clone() };
    let outcome = interruptible(py, move || {
        let own = callbacks.make.is_some();
        let callbacks = std::cell::RefCell::new(&mut callbacks);
        let mut make = |sizes: &Sizes| callbacks.borrow_mut().make(sizes);
        let mut tell = |call: &CalibrationCall| callbacks.borrow_mut().tell(call);
        grid.calibrate(function.name(), &config, own.then_some(&mut make), &mut tell)
    })?;
    if let Some(error) = lock(&raised).take() {
        return Err(error);
    }
    to_plain(py, &outcome.or_raise(py)?)
}

/// Stops the calibration when dropped: nobody waits for the outcome any more, and no further call is made.
#[derive(Default)]
struct Stop(Arc<AtomicBool>);

impl Drop for Stop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Converts arguments by name to values of the function's parameters.
struct ArgumentConverter {
    grid: Grid,
    function: Function,
    describes_only: bool,
}

impl ArgumentConverter {
    fn of(&self, arguments: &Bound<'_, PyDict>) -> PyResult<Vec<(String, Arg)>> {
        let ArgumentConverter { grid, function, describes_only } = self;
        let signature = function.signature();
        let target = Target { grid, signature, describes_only: *describes_only, snapshots: None };
        Ok(target.arguments(&PyTuple::empty(arguments.py()), Some(arguments))?.1)
    }
}

/// The user's functions. An exception in one of them ends the calibration.
struct Callbacks {
    named: ArgumentConverter,
    make: Option<Py<PyAny>>,
    progress: Option<Py<PyAny>>,
    raised: Raised,
    is_stopped: Arc<AtomicBool>,
}

impl Callbacks {
    fn make(&mut self, sizes: &Sizes) -> Result<Vec<(String, Arg)>, Error> {
        let failed = || Error::Usage("the function that makes arguments raised an exception".into());
        if lock(&self.raised).is_some() {
            // Another server's function has raised already.
            return Err(failed());
        }
        let make = self.make.as_ref().expect("asked only if there is one");
        let made = Python::attach(|py| {
            let made = make.call1(py, (sizes.clone(),))?;
            self.named.of(made.bind(py).cast::<PyDict>()?)
        });
        made.map_err(|raised| {
            *lock(&self.raised) = Some(raised);
            failed()
        })
    }

    fn tell(&mut self, call: &CalibrationCall) -> ControlFlow<()> {
        if let Some(progress) = &self.progress {
            let told =
                Python::attach(|py| progress.call1(py, (call.server, call.sizes.clone(), call.seconds)).map(drop));
            if let Err(raised) = told {
                *lock(&self.raised) = Some(raised);
            }
        }
        let is_over = self.is_stopped.load(Ordering::Relaxed) || lock(&self.raised).is_some();
        if is_over { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

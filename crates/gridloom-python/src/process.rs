//! Processes that exchange messages. Callbacks, message types and timers are implemented in Python, in `gridloom/processes/`.
//!
//! **Invariant:** a process's calls release the GIL, so that in simulation another thread can take its turn.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gridloom::process::{
    Level, Measure, PeerId, Process, ProcessError, ProcessEvent, ProcessFunctions, ProcessSpec, TimerNumber,
    run_checked, setting,
};
use gridloom::{Error, process};
use pyo3::exceptions::PySystemExit;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::errors::{OrRaise, error};
use crate::import;
use crate::lock;
use crate::message::RawMessageType;
use crate::wait::interruptible;

/// Maximum delay until Ctrl-C is noticed in a real process that waits, seconds.
const PATIENCE_S: f64 = 0.1;

/// An event to handle: its kind (`letter`, `wrong`, `timer`, `closed`), peer or timer, type or reason, and the content of a
/// message: bytes, an object of the message class given for its type, or the error in it.
type Attended = (&'static str, u64, String, Py<PyAny>);

/// A process, while its function runs.
#[pyclass(frozen, module = "gridloom._gridloom")]
pub(crate) struct RawProcess(Mutex<Option<Process>>);

impl RawProcess {
    fn with<R: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&mut Process) -> Result<R, ProcessError> + Send,
    ) -> PyResult<R> {
        let outcome = py.detach(|| lock(&self.0).as_mut().map(call));
        outcome.ok_or_else(|| error(py, "UsageError", "the process has ended"))?.or_raise(py)
    }

    /// Waits in slices, so that signals are noticed.
    fn patiently<R: Send>(
        &self,
        py: Python<'_>,
        seconds: Option<f64>,
        mut call: impl FnMut(&mut Process, Option<f64>) -> Result<Option<R>, ProcessError> + Send,
    ) -> PyResult<Option<R>> {
        let (simulated, begin) = self.with(py, |process| Ok((process.is_simulated(), process.now())))?;
        // An invalid number of seconds is an immediate error.
        if simulated || seconds.is_some_and(f64::is_nan) {
            return self.with(py, |process| call(process, seconds));
        }
        loop {
            let left = match seconds {
                None => f64::INFINITY,
                Some(seconds) => begin + seconds - self.with(py, |process| Ok(process.now()))?,
            };
            let part = left.clamp(0.0, PATIENCE_S);
            if let Some(outcome) = self.with(py, |process| call(process, Some(part)))? {
                return Ok(Some(outcome));
            }
            py.check_signals()?;
            if left <= PATIENCE_S {
                return Ok(None);
            }
        }
    }
}

impl RawProcess {
    fn wait(&self, py: Python<'_>, kind: &str, peer: Option<u64>, seconds: Option<f64>) -> PyResult<(u64, Vec<u8>)> {
        let got =
            self.patiently(py, seconds, |process, part| match process.wait_for(kind, peer.map(PeerId), part) {
                Err(ProcessError::TimedOut { .. }) => Ok(None),
                outcome => outcome.map(Some),
            })?;
        match got {
            Some((from, payload)) => Ok((from.0, payload)),
            None => {
                let seconds = seconds.unwrap_or_default();
                self.with(py, |process| Err(process.timed_out(kind, peer.map(PeerId), seconds)))
            }
        }
    }
}

#[pymethods]
impl RawProcess {
    fn spec(&self, py: Python<'_>) -> PyResult<(String, String, Vec<String>)> {
        self.with(py, |process| {
            let spec = process.spec();
            Ok((spec.function.clone(), spec.host.clone(), spec.arguments.clone()))
        })
    }

    fn now(&self, py: Python<'_>) -> PyResult<f64> {
        self.with(py, |process| Ok(process.now()))
    }

    fn simulated(&self, py: Python<'_>) -> PyResult<bool> {
        self.with(py, |process| Ok(process.is_simulated()))
    }

    fn sleep(&self, py: Python<'_>, seconds: f64) -> PyResult<()> {
        Process::check_sleep(seconds).or_raise(py)?;
        let until = self.now(py)? + seconds;
        self.patiently(py, Some(seconds), |process, part| {
            let simulated = process.is_simulated();
            let part = part.unwrap_or(seconds);
            process.sleep(if simulated { part } else { part.min(until - process.now()) })?;
            Ok((simulated || process.now() >= until).then_some(()))
        })?;
        Ok(())
    }

    fn compute(&self, py: Python<'_>, flops: f64) -> PyResult<()> {
        self.with(py, |process| process.compute(flops))
    }

    /// Begins a measured block; returns the value to pass to `end_block`, nanoseconds.
    fn begin_block(&self, py: Python<'_>) -> PyResult<u64> {
        self.with(py, |process| Ok(process.begin_block().as_nanos() as u64))
    }

    /// Abandons a measured block; nothing is charged.
    fn drop_block(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, |process| {
            process.drop_block();
            Ok(())
        })
    }

    /// Charges the time of a measured block.
    fn end_block(&self, py: Python<'_>, name: &str, once: bool, began_ns: u64) -> PyResult<()> {
        let how = if once { Measure::Once } else { Measure::Always };
        self.with(py, |process| process.end_block(name, how, Duration::from_nanos(began_ns)))
    }

    fn listen(&self, py: Python<'_>, port: u16) -> PyResult<u16> {
        self.with(py, |process| process.listen(port))
    }

    fn connect(&self, py: Python<'_>, host: &str, port: u16, patience: f64) -> PyResult<u64> {
        self.with(py, |process| process.connect(host, port, patience)).map(|peer| peer.0)
    }

    fn close(&self, py: Python<'_>, peer: u64) -> PyResult<()> {
        self.with(py, |process| {
            process.close(PeerId(peer));
            Ok(())
        })
    }

    fn describe(&self, py: Python<'_>, peer: u64) -> PyResult<String> {
        self.with(py, |process| Ok(process.describe(PeerId(peer))))
    }

    fn send(&self, py: Python<'_>, peer: u64, kind: &str, payload: Vec<u8>) -> PyResult<()> {
        self.with(py, |process| process.send_bytes(PeerId(peer), kind, payload))
    }

    /// Sends an object of a message class.
    fn send_message(
        &self,
        py: Python<'_>,
        peer: u64,
        ty: &Bound<'_, RawMessageType>,
        object: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let ty = ty.get();
        let peer = PeerId(peer);
        let is_known = self.with(py, |process| Ok(process.knows_declaration(peer, ty.hash())))?;
        let payload = ty.message(object, !is_known)?;
        self.with(py, |process| {
            process.send_bytes(peer, ty.kind(), payload)?;
            process.note_declared(peer, ty.hash());
            Ok(())
        })
    }

    /// Returns the next timer, closed connection, or message of one of these types.
    fn next(
        &self,
        py: Python<'_>,
        kinds: BTreeMap<String, Option<Py<RawMessageType>>>,
        seconds: Option<f64>,
    ) -> PyResult<Option<Attended>> {
        let next = self.patiently(py, seconds, |process, part| process.next(|kind| kinds.contains_key(kind), part))?;
        let none = || py.None();
        Ok(match next {
            None => None,
            Some(ProcessEvent::Message { from, letter }) => {
                let kind = letter.kind.to_string();
                Some(match kinds.get(&kind).and_then(Option::as_ref) {
                    None => ("letter", from.0, kind, PyBytes::new(py, &letter.payload).into_any().unbind()),
                    Some(ty) => match ty.get().object(py, letter.payload) {
                        Ok(object) => ("letter", from.0, kind, object.unbind()),
                        Err(error)
                            if error.is_instance(py, &import(py, "gridloom.errors")?.getattr("ArgumentError")?) =>
                        {
                            ("wrong", from.0, kind, error.value(py).str()?.into_any().unbind())
                        }
                        Err(error) => return Err(error),
                    },
                })
            }
            Some(ProcessEvent::Timer(number)) => Some(("timer", number.0, String::new(), none())),
            Some(ProcessEvent::Closed { peer, why }) => Some(("closed", peer.0, why, none())),
        })
    }

    /// Returns an object of a message class, and its sender.
    fn wait_message<'py>(
        &self,
        py: Python<'py>,
        ty: &Bound<'py, RawMessageType>,
        peer: Option<u64>,
        seconds: Option<f64>,
    ) -> PyResult<(u64, Bound<'py, PyAny>)> {
        let (from, payload) = self.wait(py, ty.get().kind(), peer, seconds)?;
        Ok((from, ty.get().object(py, payload)?))
    }

    fn wait_for(
        &self,
        py: Python<'_>,
        kind: &str,
        peer: Option<u64>,
        seconds: Option<f64>,
    ) -> PyResult<(u64, Py<PyBytes>)> {
        let (from, payload) = self.wait(py, kind, peer, seconds)?;
        Ok((from, PyBytes::new(py, &payload).unbind()))
    }

    fn answer_with_error(&self, py: Python<'_>, peer: u64, kind: &str, why: &str) -> PyResult<()> {
        self.with(py, |process| {
            process.report_failure(PeerId(peer), kind, why);
            Ok(())
        })
    }

    fn set_timer(&self, py: Python<'_>, seconds: f64, repeat: bool) -> PyResult<u64> {
        self.with(py, |process| process.set_bare_timer(seconds, repeat)).map(|number| number.0)
    }

    fn cancel_timer(&self, py: Python<'_>, number: u64) -> PyResult<bool> {
        self.with(py, |process| Ok(process.cancel_timer(TimerNumber(number))))
    }

    fn log(&self, py: Python<'_>, level: &str, category: &str, text: &str) -> PyResult<()> {
        let level = match level {
            "debug" => Level::Debug,
            "warning" => Level::Warning,
            "error" => Level::Error,
            _ => Level::Info,
        };
        self.with(py, |process| {
            process.log(level, category, text);
            Ok(())
        })
    }

    /// Lists received messages that nobody has taken, as text.
    fn unread(&self, py: Python<'_>) -> PyResult<String> {
        self.with(py, |process| Ok(process.unread()))
    }

    /// The configured value of that name.
    fn setting(&self, name: &str) -> Option<String> {
        setting(name)
    }

    fn waiting(&self, py: Python<'_>) -> PyResult<Vec<(String, usize)>> {
        self.with(py, |process| Ok(process.waiting().into_iter().map(|(kind, n)| (kind.to_string(), n)).collect()))
    }
}

/// Reads the configuration from the options in these words, the environment, and the file that either names; returns
/// the other words.
#[pyfunction]
pub(crate) fn read_settings(py: Python<'_>, words: Vec<OsString>) -> PyResult<Vec<OsString>> {
    process::read_settings(&words).or_raise(py)
}

/// Runs the processes of a program: `mains` has their functions by name, each called with a `RawProcess`. `fits`
/// returns the error in the arguments of a process, given its function and the arguments. Returns virtual seconds and
/// the trace's hash, for a simulated run.
#[pyfunction]
pub(crate) fn run_processes(
    py: Python<'_>,
    mains: &Bound<'_, PyDict>,
    fits: Py<PyAny>,
) -> PyResult<(f64, Option<String>)> {
    let mut all = ProcessFunctions::new();
    let exit = Arc::new(Mutex::new(None));
    for (name, function) in mains {
        let (function, exit) = (function.unbind(), exit.clone());
        all.insert(name.extract()?, Arc::new(move |process| call(&function, process, &exit)));
    }
    let is_real = std::env::var_os(process::DEPLOY_VARIABLE).is_some();
    let fit = move |spec: &ProcessSpec| ask(&fits, spec);
    let body = move || run_checked(&all, process::StackKind::Thread, &fit);
    // A real process runs here, since Python delivers signals to this thread; simulated ones have threads of their own.
    let outcome = if is_real { py.detach(body) } else { interruptible(py, body)? };
    if let (Err(_), Some(code)) = (&outcome, lock(&exit).take().flatten()) {
        return Err(PySystemExit::new_err(code));
    }
    let report = outcome.or_raise(py)?;
    Ok((report.seconds, report.trace_hash))
}

/// Checks the arguments of a process against its function's signature.
fn ask(fits: &Py<PyAny>, spec: &ProcessSpec) -> Result<(), String> {
    Python::attach(|py| {
        let why = fits.call1(py, (&spec.function, &spec.arguments)).and_then(|why| why.extract(py));
        match why.map_err(|error: PyErr| error.to_string())? {
            None => Ok(()),
            Some(why) => Err(why),
        }
    })
}

/// How the first simulated process failed: the code of its `sys.exit`, if it called that.
type FirstExit = Mutex<Option<Option<Py<PyAny>>>>;

fn call(function: &Py<PyAny>, process: Process, exit: &FirstExit) -> Result<(), Error> {
    Python::attach(|py| {
        let failed = |error: PyErr| Error::Process(ProcessError::Failed(error.to_string()));
        let raw = Py::new(py, RawProcess(Mutex::new(Some(process)))).map_err(failed)?;
        let outcome = function.call1(py, (raw.clone_ref(py),));
        // It ends here: its messages are delivered before an error ends the program.
        let ended = lock(&raw.get().0).take();
        let simulated = ended.as_ref().filter(|process| process.is_simulated());
        let simulated = simulated.map(|process| (process.spec().clone(), process.now()));
        drop(ended);
        outcome.map(drop).or_else(|error| {
            let class = error.get_type(py).name().map_or(String::new(), |name| name.to_string());
            if class == "ProcessEnded" {
                return Err(Error::Process(ProcessError::Ended { why: error.value(py).to_string() }));
            }
            let is_exit = error.is_instance_of::<PySystemExit>(py);
            if let Some((spec, now_s)) = simulated {
                // Printing the exception would end the program. That is right for a real process, but not in the middle of a
                // simulation.
                if is_exit {
                    return exited(py, &error, exit);
                }
                lock(exit).get_or_insert(None);
                gridloom_base::stderr_line!("gridloom: {}@{}, at {now_s:.6} s:", spec.function, spec.host);
            }
            error.print(py);
            Err(failed(error))
        })
    })
}

/// Returns the result of a simulated process that called `sys.exit`, like the exit status of a real program.
fn exited(py: Python<'_>, error: &PyErr, exit: &FirstExit) -> Result<(), Error> {
    let code = error.value(py).getattr("code").ok().filter(|code| !code.is_none());
    match code {
        None => Ok(()),
        Some(code) if code.extract::<i64>().is_ok_and(|code| code == 0) => Ok(()),
        Some(code) => {
            lock(exit).get_or_insert_with(|| Some(code.clone().unbind()));
            let code = code.repr().map_or_else(|_| "?".to_string(), |text| text.to_string());
            Err(Error::Process(ProcessError::Failed(format!("it called sys.exit({code})"))))
        }
    }
}

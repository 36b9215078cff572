//! Waits that let other Python threads run, and that Ctrl-C interrupts.
//!
//! Python runs signal handlers only in the main thread, which therefore checks for signals every [`SIGNALS_EVERY`]. The
//! calling thread waits for a plain call of a real grid in slices of that length. So no null call changes threads
//! ([`wait_for`]). Other waits of the main thread cannot be split; a helper thread performs them ([`interruptible`]).
//! Other threads wait themselves. Helpers are kept for the next wait.
//!
//! The body of a helper's wait owns its session and borrows nothing, least of all from Python; the bound `'static` ensures this.

use std::sync::Mutex;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use gridloom::{Error, Interrupt};
use gridloom_net::worker::nested;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::{import, lock};

/// Maximum delay until Ctrl-C is noticed.
const SIGNALS_EVERY: Duration = Duration::from_millis(100);

/// The work of a helper; returns a closure that delivers the outcome.
type HelperJob = Box<dyn FnOnce() -> Told + Send>;
type Told = Box<dyn FnOnce()>;

/// Idle helpers.
static IDLE: Mutex<Vec<Sender<HelperJob>>> = Mutex::new(Vec::new());

/// Runs `body` without holding the GIL.
pub(crate) fn detached<T: Send + 'static>(py: Python<'_>, body: impl FnOnce() -> T + Send + 'static) -> T {
    py.detach(body)
}

/// Waits for something on a real grid, in this thread and without holding the GIL. `watch` is called for each
/// slice, and returns the wait: so a session that is closed meanwhile is not kept alive.
pub(crate) fn wait_for<T: Send, W: FnOnce(Option<Duration>) -> Result<T, Error> + Send>(
    py: Python<'_>,
    limit: Option<Duration>,
    watch: impl Fn() -> PyResult<W>,
) -> PyResult<Result<T, Error>> {
    let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
    // In a worker, the call stays paused between two slices of the wait.
    let mut waiting = None;
    loop {
        let left = deadline.map_or(Duration::MAX, |deadline| deadline.saturating_duration_since(Instant::now()));
        let watch = watch()?;
        match (py.detach(move || watch(Some(left.min(SIGNALS_EVERY)))), limit) {
            (Err(Error::TimedOut { .. }), Some(limit)) if left <= SIGNALS_EVERY => {
                return Ok(Err(Error::TimedOut { limit_seconds: limit.as_secs_f64() }));
            }
            (Err(Error::TimedOut { .. }), _) => {
                waiting = waiting.or_else(nested::wait);
                py.check_signals()?;
            }
            (outcome, _) => return Ok(outcome),
        }
    }
}

/// Marks the call of this worker as waiting for calls of its own, in a way that Rust does not see: it releases its slot until
/// `end`. `None` in a process that runs no call.
#[pyfunction]
pub(crate) fn begin_wait(py: Python<'_>) -> Option<RawWaiting> {
    py.detach(nested::wait).map(|waiting| RawWaiting(Mutex::new(Some(waiting))))
}

/// A wait of a call.
#[pyclass(frozen, module = "gridloom._gridloom")]
pub(crate) struct RawWaiting(Mutex<Option<nested::WaitGuard>>);

#[pymethods]
impl RawWaiting {
    fn end(&self, py: Python<'_>) {
        py.detach(|| drop(lock(&self.0).take()));
    }
}

/// A wait in a helper.
struct Wait<T> {
    outcome: Mutex<Receiver<T>>,
    interrupt: Interrupt,
}

impl<T: Send + 'static> Wait<T> {
    fn begin(body: impl FnOnce() -> T + Send + 'static) -> Wait<T> {
        let (send, receive) = channel();
        let interrupt = Interrupt::default();
        let during = interrupt.clone();
        // If the waiting thread was interrupted, the outcome is dropped.
        hand_over(Box::new(move || {
            let outcome = during.during(body);
            Box::new(move || drop(send.send(outcome)))
        }));
        Wait { outcome: Mutex::new(receive), interrupt }
    }

    fn outcome(&self, py: Python<'_>) -> PyResult<T> {
        loop {
            let received = py.detach(|| lock(&self.outcome).recv_timeout(SIGNALS_EVERY));
            match received {
                Ok(outcome) => return Ok(outcome),
                Err(RecvTimeoutError::Timeout) => py.check_signals().inspect_err(|_| self.end(py))?,
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(PyRuntimeError::new_err("gridloom: a wait ended in a panic; see the message above"));
                }
            }
        }
    }

    /// Called when the program was interrupted. It may close its session now: interruptible waits are over when this returns.
    fn end(&self, py: Python<'_>) {
        py.detach(|| {
            self.interrupt.set();
            drop(lock(&self.outcome).recv_timeout(SIGNALS_EVERY));
        });
    }
}

/// Waits for `body` without holding the GIL. An interrupt ends the wait, and those waits of the body that [`Interrupt`] ends;
/// anything else that the body does continues.
pub(crate) fn interruptible<T: Send + 'static>(
    py: Python<'_>,
    body: impl FnOnce() -> T + Send + 'static,
) -> PyResult<T> {
    if is_main_thread(py)? { Wait::begin(body).outcome(py) } else { Ok(detached(py, body)) }
}

/// Forgets the helper threads in a forked child, which does not have them.
pub(crate) fn forget_helpers() {
    if let Ok(mut idle) = IDLE.try_lock() {
        idle.drain(..).for_each(std::mem::forget);
    }
}

fn is_main_thread(py: Python<'_>) -> PyResult<bool> {
    thread_local! {
        static IS_MAIN: std::cell::OnceCell<bool> = const { std::cell::OnceCell::new() };
    }
    if let Some(known) = IS_MAIN.with(|cell| cell.get().copied()) {
        return Ok(known);
    }
    let threading = import(py, "threading")?;
    let main = threading.call_method0("main_thread")?.getattr("ident")?;
    let is_main = threading.call_method0("get_ident")?.eq(main)?;
    IS_MAIN.with(|cell| cell.set(is_main).ok());
    Ok(is_main)
}

fn hand_over(mut task: HelperJob) {
    while let Some(helper) = { lock(&IDLE).pop() } {
        match helper.send(task) {
            Ok(()) => return,
            Err(gone) => task = gone.0,
        }
    }
    let (send, receive) = channel::<HelperJob>();
    let again = send.clone();
    send.send(task).expect("the receiver is below");
    let body = move || {
        while let Ok(task) = receive.recv() {
            let told = task();
            // Before the outcome is delivered, so that the next wait finds this helper idle.
            lock(&IDLE).push(again.clone());
            told();
        }
    };
    thread::Builder::new().name("gridloom-wait".into()).spawn(body).expect("the system gives a thread");
}

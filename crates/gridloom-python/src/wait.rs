//! Waits that let other Python threads run, and that Ctrl-C ends.
//!
//! Python runs signal handlers in the main thread only, which therefore looks every [`SIGNALS_EVERY`] whether a signal came. A
//! plain call of a real grid is waited for in slices of that length, by the thread that asks. So no null call changes threads
//! ([`wait_for`]). Other waits of the main thread cannot be cut, and are done by a helper thread ([`interruptible`]); other
//! threads wait by themselves. Helpers are kept for the next wait.
//!
//! The body of a helper's wait owns its session and borrows nothing, least of all from Python: `'static` sees to it.

use std::sync::Mutex;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use gridloom::{Error, Interrupt};
use gridloom_net::worker::nested;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::{import, lock};

/// How long Ctrl-C may take to be noticed.
const SIGNALS_EVERY: Duration = Duration::from_millis(100);

/// What a helper does, which gives how its outcome is told.
type Task = Box<dyn FnOnce() -> Told + Send>;
type Told = Box<dyn FnOnce()>;

/// Helpers without work.
static IDLE: Mutex<Vec<Sender<Task>>> = Mutex::new(Vec::new());

/// Runs `body` without holding the GIL.
pub(crate) fn detached<T: Send + 'static>(py: Python<'_>, body: impl FnOnce() -> T + Send + 'static) -> T {
    py.detach(body)
}

/// Waits for the end of something on a real grid, in this thread and without holding the GIL. `watch` is asked again for each
/// slice, and gives the wait: a session that is closed meanwhile is not kept alive.
pub(crate) fn wait_for<T: Send, W: FnOnce(Option<Duration>) -> Result<T, Error> + Send>(
    py: Python<'_>,
    limit: Option<Duration>,
    watch: impl Fn() -> PyResult<W>,
) -> PyResult<Result<T, Error>> {
    let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
    // In a worker: its call waits on between two slices.
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

/// The call that this worker runs waits for calls of its own, in some way that Rust does not see: it gives up its slot until
/// `end`. `None` in a process that runs no call.
#[pyfunction]
pub(crate) fn begin_wait(py: Python<'_>) -> Option<RawWaiting> {
    py.detach(nested::wait).map(|waiting| RawWaiting(Mutex::new(Some(waiting))))
}

/// A wait of a call.
#[pyclass(frozen, module = "gridloom._gridloom")]
pub(crate) struct RawWaiting(Mutex<Option<nested::Waiting>>);

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
        // The thread that waited may have been interrupted: the outcome is dropped then.
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

    /// The program was interrupted. It may close its session now: what can be cut short is over then.
    fn end(&self, py: Python<'_>) {
        py.detach(|| {
            self.interrupt.set();
            drop(lock(&self.outcome).recv_timeout(SIGNALS_EVERY));
        });
    }
}

/// Waits for `body` without holding the GIL. An interrupt ends the wait, and what the body waits for that [`Interrupt`] cuts short;
/// what else it does goes on.
pub(crate) fn interruptible<T: Send + 'static>(
    py: Python<'_>,
    body: impl FnOnce() -> T + Send + 'static,
) -> PyResult<T> {
    if is_main_thread(py)? { Wait::begin(body).outcome(py) } else { Ok(detached(py, body)) }
}

/// A forked child has none of the threads.
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

fn hand_over(mut task: Task) {
    while let Some(helper) = { lock(&IDLE).pop() } {
        match helper.send(task) {
            Ok(()) => return,
            Err(gone) => task = gone.0,
        }
    }
    let (send, receive) = channel::<Task>();
    let again = send.clone();
    send.send(task).expect("the receiver is below");
    let body = move || {
        while let Ok(task) = receive.recv() {
            let told = task();
            // Before it tells: the next wait finds it idle.
            lock(&IDLE).push(again.clone());
            told();
        }
    };
    thread::Builder::new().name("gridloom-wait".into()).spawn(body).expect("the system gives a thread");
}

//! Runs several processes of a deployment as threads of this process.
//!
//! **Promise:** the first failure ends the run with its error or panic. Threads that do not end by themselves soon
//! after it run on until this process exits: a thread that computes cannot be stopped.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use gridloom_chare::ChareError;
use gridloom_process::ProcessError;

use crate::Error;

/// The body of a thread.
pub(super) type ThreadBody = Box<dyn FnOnce() -> Result<(), Error> + Send>;

/// The result of a thread; the outer error is a panic.
type ThreadResult = Result<Result<(), Error>, Box<dyn Any + Send>>;

/// Time that the other threads have after the first failure to notice it and end by themselves.
const GRACE: Duration = Duration::from_secs(1);
/// The stack size that the system gives the first thread of a process.
const STACK_BYTES: usize = 8 << 20;

/// Runs each part on a thread until all have ended, or one has failed.
///
/// # Errors
/// The first failure.
///
/// # Panics
/// If the first failure is a panic.
pub(super) fn run_threads(parts: Vec<ThreadBody>) -> Result<(), Error> {
    let count = parts.len();
    let (ended, ends) = channel();
    for (number, part) in parts.into_iter().enumerate() {
        let ended = ended.clone();
        let run = move || {
            // After the grace time nobody receives this.
            let _ = ended.send(catch_unwind(AssertUnwindSafe(part)));
        };
        let thread = thread::Builder::new().name(format!("process-{number}")).stack_size(STACK_BYTES).spawn(run);
        thread.map_err(|error| Error::Connect(format!("cannot start a thread: {error}")))?;
    }
    let (mut failures, mut until): (Vec<ThreadResult>, Option<Instant>) = Default::default();
    for _ in 0..count {
        let came = match until {
            None => ends.recv().ok(),
            Some(until) => ends.recv_timeout(until.saturating_duration_since(Instant::now())).ok(),
        };
        match came {
            None => break,
            Some(Ok(Ok(()))) => {}
            Some(failure) => {
                until.get_or_insert(Instant::now() + GRACE);
                failures.push(failure);
            }
        }
    }
    let first = failures.iter().position(|failure| !is_consequence(failure)).unwrap_or(0);
    match failures.into_iter().nth(first) {
        None => Ok(()),
        Some(failure) => failure.unwrap_or_else(|panic| resume_unwind(panic)),
    }
}

/// True if the failure is a consequence of another one. It may arrive before the original failure, which closes its
/// connections first.
fn is_consequence(failure: &ThreadResult) -> bool {
    matches!(
        failure,
        Ok(Err(Error::Chares(ChareError::RemoteFailure { .. } | ChareError::Lost { .. })
            | Error::Process(ProcessError::Closed { .. })))
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use gridloom_chare::Pe;

    fn fails(error: Error) -> ThreadBody {
        Box::new(move || Err(error))
    }

    fn computes() -> ThreadBody {
        Box::new(|| {
            loop {
                thread::park();
            }
        })
    }

    #[test]
    fn the_first_failure_is_reported_though_another_thread_computes() {
        let elsewhere = Error::Chares(ChareError::RemoteFailure { element: Pe(1), why: "why".into() });
        let closed = Error::Process(ProcessError::Closed { peer: "b@x".into(), why: "why".into() });
        let own = || Error::Chares(ChareError::Failed("its own".into()));
        let told = |parts| run_threads(parts).unwrap_err().to_string();
        assert_eq!(told(vec![computes(), fails(own())]), "its own");
        // Threads that were notified of it, or whose connection it has closed, have ended before.
        for error in [elsewhere, closed] {
            let (told_first, was_told) = channel::<()>();
            let after: ThreadBody = Box::new(move || {
                drop(told_first);
                Err(error)
            });
            let later: ThreadBody = Box::new(move || {
                _ = was_told.recv();
                Err(own())
            });
            assert_eq!(told(vec![after, later, computes()]), "its own");
        }
        assert!(run_threads(vec![Box::new(|| Ok(())), Box::new(|| Ok(()))]).is_ok());
    }

    #[test]
    fn a_panic_is_the_program_s() {
        let panics: ThreadBody = Box::new(|| panic!("a bug"));
        let came = catch_unwind(AssertUnwindSafe(|| run_threads(vec![computes(), panics]))).unwrap_err();
        assert_eq!(came.downcast_ref(), Some(&"a bug"));
    }
}

//! Decides what happens to the tasks of a worker that has ended.
//!
//! | the worker | the task that ran | tasks that had ended without a reply | tasks queued behind |
//! |---|---|---|---|
//! | ended by itself: its own signal or exit | crashed | run again | run again |
//! | was killed: SIGKILL, SIGTERM, SIGHUP | runs again, up to [`WORKERS_KILLED_MAX`] workers | run again | run again |
//!
//! If no task was running, the last task that had ended is treated as the one that ran: it may have closed the
//! connection. A task that may run only once is not run again after it has begun.

use gridloom_base::limits::{TASK_ATTEMPTS_MAX, WORKERS_KILLED_MAX};

use super::link::{Death, Sent};
use crate::worker::protocol::Progress;

/// Treatment of a task whose worker has died.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum TaskDisposition {
    /// It is sent to another worker.
    Retry,
    /// It caused the worker's end, or cannot be tried again.
    Crashed(String),
}

/// Returns the task that is considered to have run, among tasks in the order in which they were sent.
pub(super) fn culprit(progress: &[Progress], has_fault: bool, death: &Death) -> Option<usize> {
    let running = progress.iter().position(|progress| *progress == Progress::Running);
    let first = || has_fault.then_some(0).filter(|_| !progress.is_empty());
    let done = || progress.iter().rposition(|progress| *progress == Progress::Done).filter(|_| !death.was_killed);
    running.or_else(first).or_else(done)
}

/// Decides what happens to a task, given its progress.
pub(super) fn disposition(
    sent: &mut Sent,
    progress: Progress,
    is_culprit: bool,
    has_culprit: bool,
    death: &Death,
) -> TaskDisposition {
    let Sent { pending, .. } = sent;
    let Death { how, was_killed } = death;
    let is_once = pending.task.options.is_once || pending.task.object().is_some();
    if is_once && (is_culprit || progress != Progress::Queued) || (is_culprit && !was_killed) {
        return TaskDisposition::Crashed(how.clone());
    }
    if is_culprit {
        pending.killed += 1;
        if pending.killed >= WORKERS_KILLED_MAX {
            return TaskDisposition::Crashed(format!(
                "{WORKERS_KILLED_MAX} workers were killed while they ran it, the last by {how}"
            ));
        }
    } else if !has_culprit {
        pending.attempts += 1;
        if pending.attempts >= TASK_ATTEMPTS_MAX {
            return TaskDisposition::Crashed(format!(
                "{TASK_ATTEMPTS_MAX} workers ended before it started, the last by {how}"
            ));
        }
    }
    TaskDisposition::Retry
}

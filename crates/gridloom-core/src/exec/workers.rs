//! Which worker runs a call, so that users stay apart.
//!
//! A worker may keep data of the calls that it has run, and code that a call leaves behind can read the data of later
//! ones. A function is *separate* if its workers serve one user: always a function that a program sends, since its code
//! comes from that user, and on request every function.
//!
//! | the worker has run | it may run a separate call | another call |
//! |---|---|---|
//! | nothing | yes | yes |
//! | calls of the same user only | yes | yes |
//! | calls of another user, none separate | no | yes |
//! | a separate call of another user | no | no |
//!
//! **Invariant:** a worker that has run a separate call serves exactly one user.
//!
//! A world calls [`choose`] for each task that it starts, and [`WorkerUse::record`] for the worker that gets it.

use gridloom_base::is_sent_code;

use crate::graph::Task;

/// The functions whose workers serve one user each.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Separation {
    /// Functions that programs send.
    #[default]
    SentCode,
    /// All.
    AllFunctions,
}

impl Separation {
    /// True if the workers of a function serve one user each.
    pub fn separates(self, function: &str) -> bool {
        match self {
            Separation::SentCode => is_sent_code(function),
            Separation::AllFunctions => true,
        }
    }

    /// Returns what the choice of a worker for a task depends on.
    pub fn call_of(self, task: &Task) -> UserCall<'_> {
        UserCall { user: task.options.user.as_deref().unwrap_or_default(), is_separate: self.separates(task.name()) }
    }
}

/// A call, as far as the choice of its worker depends on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UserCall<'a> {
    /// The user to whom the call belongs.
    pub user: &'a str,
    /// True if the function is separate.
    pub is_separate: bool,
}

/// The calls that a worker has run or has queued.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum WorkerUse {
    /// None.
    #[default]
    Unused,
    /// Calls of one user.
    OfUser { user: Box<str>, has_run_separate: bool },
    /// Calls of several users, none of which was separate.
    Shared,
}

impl WorkerUse {
    /// True if the worker may run the call.
    pub fn admits(&self, call: UserCall<'_>) -> bool {
        match self {
            WorkerUse::Unused => true,
            WorkerUse::OfUser { user, .. } if **user == *call.user => true,
            WorkerUse::OfUser { has_run_separate, .. } => !has_run_separate && !call.is_separate,
            WorkerUse::Shared => !call.is_separate,
        }
    }

    /// True if it has run calls of a user other than this one.
    pub(super) fn has_others(&self, own: &str) -> bool {
        match self {
            WorkerUse::Unused => false,
            WorkerUse::OfUser { user, .. } => **user != *own,
            WorkerUse::Shared => true,
        }
    }

    /// Records a call of a user, for several workers together.
    pub(super) fn record_any(&mut self, of: &str) {
        match self {
            WorkerUse::Unused => *self = WorkerUse::OfUser { user: of.into(), has_run_separate: true },
            WorkerUse::OfUser { user, .. } if **user == *of => {}
            WorkerUse::OfUser { .. } | WorkerUse::Shared => *self = WorkerUse::Shared,
        }
    }

    /// Records that the worker gets the call.
    ///
    /// # Panics
    /// If it may not run the call.
    pub fn record(&mut self, call: UserCall<'_>) {
        assert!(self.admits(call), "a worker with {self:?} gets {call:?}");
        match self {
            WorkerUse::Unused => {
                *self = WorkerUse::OfUser { user: call.user.into(), has_run_separate: call.is_separate };
            }
            WorkerUse::OfUser { user, has_run_separate } if **user == *call.user => {
                *has_run_separate |= call.is_separate;
            }
            WorkerUse::OfUser { .. } | WorkerUse::Shared => *self = WorkerUse::Shared,
        }
    }
}

/// A place that can take one more task: one slot, as far as one kind of worker is concerned.
#[derive(Clone, Copy, Debug)]
pub struct WorkerPlace<'a> {
    /// Number of tasks that its worker has.
    pub tasks: usize,
    /// The calls of its worker; `None` if it has no worker.
    pub worker: Option<&'a WorkerUse>,
}

/// The steps that prepare a place for a task, in the order of preference.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum WorkerStep {
    /// Nothing.
    Reuse,
    /// A worker starts.
    Start,
    /// The idle worker of another user ends, and another one starts.
    Replace,
}

/// Returns the number of the place that runs a call: one with the fewest tasks; of these, the one with the cheapest step;
/// of these, the first. `None` if each place has tasks of other users.
pub fn choose<'a>(
    places: impl IntoIterator<Item = (usize, WorkerPlace<'a>)>,
    call: UserCall<'_>,
) -> Option<(usize, WorkerStep)> {
    let step = |place: &WorkerPlace<'_>| match place.worker {
        None => Some(WorkerStep::Start),
        Some(worker) if worker.admits(call) => Some(WorkerStep::Reuse),
        Some(_) => (place.tasks == 0).then_some(WorkerStep::Replace),
    };
    let possible = places.into_iter().filter_map(|(number, place)| Some((place.tasks, step(&place)?, number)));
    possible.min().map(|(_, step, number)| (number, step))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SENT: &str = "python/run";

    fn call(user: &str, function: &str) -> (String, bool) {
        (user.to_string(), Separation::default().separates(function))
    }

    fn used(calls: &[(&str, &str)]) -> WorkerUse {
        let mut worker = WorkerUse::default();
        for (user, function) in calls {
            let (user, is_separate) = call(user, function);
            worker.record(UserCall { user: &user, is_separate });
        }
        worker
    }

    fn admits(worker: &WorkerUse, user: &str, function: &str) -> bool {
        let (user, is_separate) = call(user, function);
        worker.admits(UserCall { user: &user, is_separate })
    }

    #[test]
    fn a_worker_that_has_run_code_of_a_user_runs_nothing_of_another() {
        for calls in [&[("anna", SENT)][..], &[("anna", "m/f"), ("anna", SENT), ("anna", "m/f")]] {
            let worker = used(calls);
            assert!(admits(&worker, "anna", SENT) && admits(&worker, "anna", "m/f"));
            assert!(!admits(&worker, "bert", SENT) && !admits(&worker, "bert", "m/f"), "{worker:?}");
        }
        let worker = used(&[("anna", "m/f")]);
        assert!(admits(&worker, "anna", SENT) && admits(&worker, "bert", "m/f") && !admits(&worker, "bert", SENT));
        let worker = used(&[("anna", "m/f"), ("bert", "m/f"), ("anna", "m/f")]);
        assert!(admits(&worker, "carol", "m/f") && !admits(&worker, "anna", SENT), "it may have data of bert");
        assert!(Separation::AllFunctions.separates("m/f") && !Separation::SentCode.separates("pythonic/f"));
    }

    #[test]
    #[should_panic(expected = "gets UserCall")]
    fn a_call_in_the_worker_of_another_user_is_a_defect() {
        used(&[("anna", SENT), ("bert", "m/f")]);
    }

    #[test]
    fn an_idle_worker_of_another_user_is_replaced_only_without_a_free_place() {
        let (anna, bert, fresh) = (used(&[("anna", SENT)]), used(&[("bert", SENT)]), WorkerUse::default());
        let anna_calls = UserCall { user: "anna", is_separate: true };
        let choice = |places: &[(usize, Option<&WorkerUse>)]| {
            let place = |(tasks, worker): &(usize, _)| WorkerPlace { tasks: *tasks, worker: *worker };
            choose(places.iter().map(place).enumerate(), anna_calls)
        };
        assert_eq!(choice(&[(0, Some(&bert)), (0, None), (0, Some(&anna))]), Some((2, WorkerStep::Reuse)));
        assert_eq!(choice(&[(0, Some(&bert)), (0, None), (1, Some(&anna))]), Some((1, WorkerStep::Start)));
        assert_eq!(choice(&[(0, Some(&bert)), (0, Some(&fresh))]), Some((1, WorkerStep::Reuse)));
        assert_eq!(choice(&[(1, Some(&bert)), (0, Some(&bert))]), Some((1, WorkerStep::Replace)));
        assert_eq!(choice(&[(1, Some(&anna)), (0, Some(&bert))]), Some((1, WorkerStep::Replace)), "a free slot");
        assert_eq!(choice(&[(2, Some(&anna)), (1, Some(&bert))]), Some((0, WorkerStep::Reuse)));
        assert_eq!(choice(&[(1, Some(&bert))]), None);
    }
}

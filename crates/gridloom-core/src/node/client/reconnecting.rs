//! Recently lost nodes are expected to return: an agent that restarts, a server behind a broken link, or all nodes for
//! a client whose host slept. Operations that need them wait for them, for at most [`RECONNECT_NS_MAX`] after the last
//! loss.
//!
//! Groups wait as before the first directory, with an unsent mapping request. Calls wait in a list. Each directory and
//! each heartbeat retries them.
//!
//! [`RECONNECT_NS_MAX`]: gridloom_base::limits::RECONNECT_NS_MAX

use std::collections::BTreeMap;

use crate::call::{Deadlines, Request};
use gridloom_base::{TaskId, Time};

/// Calls that wait for a server.
#[derive(Debug, Default)]
pub(super) struct WaitingCalls {
    /// Calls by identifier, which is the order in which they were made.
    calls: BTreeMap<TaskId, Request>,
    deadlines: Deadlines,
}

impl WaitingCalls {
    pub(super) fn len(&self) -> usize {
        self.calls.len()
    }

    pub(super) fn next_deadline(&self) -> Option<Time> {
        self.deadlines.next()
    }

    pub(super) fn add(&mut self, request: Request) {
        self.deadlines.add(request.deadline, request.task.id);
        self.calls.insert(request.task.id, request);
    }

    /// Removes and returns all of them.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = Request> + use<> {
        std::mem::take(self).calls.into_values()
    }

    pub(super) fn take(&mut self, id: TaskId) -> Option<Request> {
        let request = self.calls.remove(&id)?;
        self.deadlines.remove(request.deadline, id);
        Some(request)
    }

    pub(super) fn take_expired(&mut self, now: Time) -> Vec<Request> {
        self.deadlines.past(now).into_iter().filter_map(|id| self.take(id)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{Task, TaskKind};
    use gridloom_base::NodeId;

    #[test]
    fn calls_that_wait_keep_their_limits_and_can_be_taken_out() {
        let id = |serial| TaskId { client: NodeId(1), serial };
        let mut waiting = WaitingCalls::default();
        for (serial, limit_ns) in [(3, Some(10)), (1, None), (2, Some(5))] {
            let kind = TaskKind::call("m/f", 0);
            let (args, outputs) = (Vec::new(), Vec::new());
            let task = Task { id: id(serial), kind, args, outputs, work_flops: None, options: Default::default() };
            waiting.add(Request::new(Time(0), task, Vec::new(), limit_ns.into()));
        }
        assert_eq!((waiting.len(), waiting.next_deadline()), (3, Some(Time(5))));
        assert!(waiting.take(id(2)).is_some() && waiting.take(id(2)).is_none());
        assert_eq!(waiting.next_deadline(), Some(Time(10)));
        assert!(waiting.take_expired(Time(9)).is_empty());
        assert_eq!(waiting.take_expired(Time(10)).len(), 1);
        assert_eq!((waiting.len(), waiting.next_deadline()), (1, None));
    }
}

//! Recently lost nodes are expected to return: an agent that restarts, a server behind a broken link, or all nodes for
//! a client whose host slept. Operations that need them wait for them, for at most [`RETURN_NS_MAX`] after the last
//! loss.
//!
//! Groups wait as before the first directory, with an unsent mapping request. Calls wait in a list. Each directory and
//! each heartbeat retries them.
//!
//! [`RETURN_NS_MAX`]: gridloom_base::limits::RETURN_NS_MAX

use std::collections::{BTreeMap, BTreeSet};

use super::vain::VainLosses;
use super::{Client, GroupRun, Question};
use crate::call::{LimitKind, Request};
use crate::node::protocol::Effect;
use gridloom_base::{GroupId, TaskError, TaskId, Time};

/// Calls that wait for a server.
#[derive(Debug, Default)]
pub(super) struct WaitingCalls {
    /// By identifier, which is the order in which they were made.
    calls: BTreeMap<TaskId, Request>,
    deadlines: BTreeSet<(Time, TaskId)>,
}

impl WaitingCalls {
    pub(super) fn len(&self) -> usize {
        self.calls.len()
    }

    pub(super) fn next_deadline(&self) -> Option<Time> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    fn add(&mut self, request: Request) {
        self.deadlines.extend(request.deadline.map(|deadline| (deadline, request.task.id)));
        self.calls.insert(request.task.id, request);
    }

    pub(super) fn take(&mut self, id: TaskId) -> Option<Request> {
        let request = self.calls.remove(&id)?;
        if let Some(deadline) = request.deadline {
            self.deadlines.remove(&(deadline, id));
        }
        Some(request)
    }

    fn take_expired(&mut self, now: Time) -> Vec<Request> {
        let late = self.deadlines.iter().take_while(|(deadline, _)| *deadline <= now);
        let late: Vec<TaskId> = late.map(|(_, id)| *id).collect();
        late.into_iter().filter_map(|id| self.take(id)).collect()
    }
}

impl Client {
    /// Returns the error for operations that fail without an agent.
    pub(super) fn agent_lost(&self) -> TaskError {
        TaskError::AgentLost { address: self.config.agent.clone(), why: self.contacts.agent_fault().into() }
    }

    /// True if a call that no server can run now may be run by a server that returns.
    pub(super) fn may_wait(&self, now: Time, request: &Request) -> bool {
        match request.task.options.bound_to {
            Some(server) => request.task.object().is_none() && self.contacts.may_return(now, server),
            None => self.contacts.awaits_nodes(now),
        }
    }

    pub(super) fn wait(&mut self, request: Request, out: &mut Vec<Effect>) {
        self.waiting_calls.add(request);
        self.set_deadline(out);
    }

    /// Sends the waiting calls, or fails them.
    pub(super) fn send_waiting(&mut self, now: Time, out: &mut Vec<Effect>) {
        for request in std::mem::take(&mut self.waiting_calls).calls.into_values() {
            self.send_call(now, request, out);
        }
    }

    /// Fails the calls whose limits expired while they waited.
    pub(super) fn waiting_expired(&mut self, now: Time, out: &mut Vec<Effect>) {
        for request in self.waiting_calls.take_expired(now) {
            self.call_expired(now, &request, None, LimitKind::Whole, out);
        }
    }

    /// Prepares to repeat the mapping requests that a lost agent will not answer.
    ///
    /// An agent that is lost repeatedly with the same request may be lost because of it: finally the group fails.
    pub(super) fn ask_anew(&mut self, now: Time, out: &mut Vec<Effect>) {
        let is_asked = |run: &GroupRun| run.mapping.as_ref().is_some_and(|mapping| mapping.asked.is_some());
        let asked = self.groups.iter().filter(|(_, run)| is_asked(run)).map(|(id, _)| *id);
        let mut given_up = Vec::new();
        for id in asked.collect::<Vec<_>>() {
            let run = self.groups.get_mut(&id).expect("found above");
            let mapping = run.mapping.as_mut().expect("it is asked for");
            mapping.asked = None;
            let is_given_up = mapping.vain.lose();
            let vain = mapping.vain;
            if is_given_up {
                given_up.push(id);
            } else if let Some(question) = run.question.take() {
                self.groups.remove(&id);
                self.early_plans.push(Question { vain, ..*question });
            }
        }
        for id in given_up {
            self.mapping_failed(now, id, self.agent_lost(), out);
        }
    }

    /// Handles the agent's answer that it cannot map a group on the available servers.
    pub(super) fn not_mapped(&mut self, now: Time, group: GroupId, why: String, out: &mut Vec<Effect>) {
        match self.groups.get_mut(&group).filter(|run| run.question.is_none()).and_then(|run| run.mapping.as_mut()) {
            Some(mapping) if self.contacts.awaits_nodes(now) => {
                mapping.asked = None;
                mapping.vain = VainLosses::default();
            }
            _ => self.mapping_failed(now, group, TaskError::NotMapped { why }, out),
        }
    }

    /// Retries operations for the last time when the wait has ended, and fails those that still cannot proceed.
    pub(super) fn end_vain_waiting(&mut self, now: Time, out: &mut Vec<Effect>) {
        if self.contacts.stops_waiting(now) {
            self.end_waiting(now, out);
        }
    }

    pub(super) fn end_waiting(&mut self, now: Time, out: &mut Vec<Effect>) {
        if self.directory.is_known || self.contacts.agent_was_lost() {
            self.send_waiting(now, out);
        }
        self.map_waiting(now, out);
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

//! Nodes that were lost a moment ago are expected back: an agent that begins anew, a server behind a link that was cut, all of them
//! for a client that slept. What cannot go on without them waits for them, for at most [`RETURN_NS_MAX`] after the last loss.
//!
//! Groups wait as they do for the first directory, with a request for a plan that is not asked yet; calls wait in a list. Each
//! directory and each heartbeat tries again.
//!
//! [`RETURN_NS_MAX`]: gridloom_base::limits::RETURN_NS_MAX

use std::collections::{BTreeMap, BTreeSet};

use super::vain::VainLosses;
use super::{Client, GroupRun, Question};
use crate::call::{Limit, Request};
use crate::node::protocol::Effect;
use gridloom_base::{GroupId, TaskError, TaskId, Time};

/// Calls that wait for a server.
#[derive(Debug, Default)]
pub(super) struct WaitingCalls {
    /// By name, so in the order in which they were made.
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
    /// What fails for want of an agent.
    pub(super) fn agent_lost(&self) -> TaskError {
        TaskError::AgentLost { address: self.config.agent.clone(), why: self.contacts.agent_fault().into() }
    }

    /// Whether a call that no server can run now may be run by one that comes back.
    pub(super) fn may_wait(&self, now: Time, request: &Request) -> bool {
        match request.task.terms.only {
            Some(server) => request.task.object().is_none() && self.contacts.may_return(now, server),
            None => self.contacts.awaits_nodes(now),
        }
    }

    pub(super) fn wait(&mut self, request: Request, out: &mut Vec<Effect>) {
        self.waiting_calls.add(request);
        self.set_deadline(out);
    }

    /// Sends the calls that wait, or has them fail.
    pub(super) fn send_waiting(&mut self, now: Time, out: &mut Vec<Effect>) {
        for request in std::mem::take(&mut self.waiting_calls).calls.into_values() {
            self.send_call(now, request, out);
        }
    }

    /// Calls whose limits ran out while they waited.
    pub(super) fn waiting_expired(&mut self, now: Time, out: &mut Vec<Effect>) {
        for request in self.waiting_calls.take_expired(now) {
            self.call_expired(now, &request, None, Limit::Whole, out);
        }
    }

    /// Requests for plans that the agent will not answer, as it is gone, are to be made again.
    ///
    /// An agent that is lost again and again with the same request may be lost because of it: in the end the group fails.
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

    /// The agent cannot map a group on the servers that are there.
    pub(super) fn not_mapped(&mut self, now: Time, group: GroupId, why: String, out: &mut Vec<Effect>) {
        match self.groups.get_mut(&group).filter(|run| run.question.is_none()).and_then(|run| run.mapping.as_mut()) {
            Some(mapping) if self.contacts.awaits_nodes(now) => {
                mapping.asked = None;
                mapping.vain = VainLosses::default();
            }
            _ => self.mapping_failed(now, group, TaskError::NotMapped { why }, out),
        }
    }

    /// What waited long enough tries a last time, and fails if that is in vain.
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
            let task = Task { id: id(serial), kind, args, outputs, work_flops: None, terms: Default::default() };
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

//! Nodes that were lost a moment ago are expected back: an agent that begins anew, a server behind a link that was cut, all of them
//! for a client that slept. What cannot go on without them waits for them, for at most [`RETURN_NS_MAX`] after the last loss.
//!
//! Groups wait as they do for the first directory, with a request for a plan that is not asked yet; calls wait in a list. Each
//! directory and each heartbeat tries again.
//!
//! [`RETURN_NS_MAX`]: gridloom_base::limits::RETURN_NS_MAX

use super::Client;
use crate::call::Request;
use crate::node::protocol::Effect;
use gridloom_base::{GroupId, TaskError, TaskId, Time};

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
        self.waiting_calls.push(request);
        self.set_deadline(out);
    }

    /// Sends the calls that wait, or has them fail.
    pub(super) fn send_waiting(&mut self, now: Time, out: &mut Vec<Effect>) {
        for request in std::mem::take(&mut self.waiting_calls) {
            self.send_call(now, request, out);
        }
    }

    pub(super) fn take_waiting(&mut self, id: TaskId) -> Option<Request> {
        let at = self.waiting_calls.iter().position(|request| request.task.id == id)?;
        Some(self.waiting_calls.remove(at))
    }

    /// Calls whose limits ran out while they waited.
    pub(super) fn waiting_expired(&mut self, now: Time, out: &mut Vec<Effect>) {
        let is_late = |request: &Request| request.deadline.is_some_and(|deadline| deadline <= now);
        let (late, waiting) = std::mem::take(&mut self.waiting_calls).into_iter().partition(is_late);
        self.waiting_calls = waiting;
        let late: Vec<Request> = late;
        late.iter().for_each(|request| self.call_expired(now, request, None, out));
    }

    /// Requests for plans that the agent will not answer, as it is gone, are to be made again.
    pub(super) fn ask_anew(&mut self) {
        let questions: Vec<GroupId> =
            self.groups.iter().filter(|(_, run)| run.question.is_some()).map(|(id, _)| *id).collect();
        for id in questions {
            let run = self.groups.remove(&id).expect("found above");
            self.early_plans.extend(run.question.map(|question| *question));
        }
        for mapping in self.groups.values_mut().filter_map(|run| run.mapping.as_mut()) {
            mapping.asked = None;
        }
    }

    /// The agent cannot map a group on the servers that are there.
    pub(super) fn not_mapped(&mut self, now: Time, group: GroupId, why: String, out: &mut Vec<Effect>) {
        match self.groups.get_mut(&group).filter(|run| run.question.is_none()).and_then(|run| run.mapping.as_mut()) {
            Some(mapping) if self.contacts.awaits_nodes(now) => mapping.asked = None,
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
        if self.has_directory || self.contacts.agent_was_lost() {
            self.send_waiting(now, out);
        }
        self.map_waiting(now, out);
    }
}

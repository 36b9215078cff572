//! Poison requests: those that may have broken the connection to the agent. An agent that cannot parse a message
//! closes the connection, and would do so at each retry.
//!
//! A request that was pending when the connection was lost is a suspect. It is resent, followed by a ping. The
//! answer to that ping shows that the agent has read the request. A request that was lost [`TASK_ATTEMPTS_MAX`] times
//! in a row before that is given up.
//!
//! **Invariants.** A loss counts only for requests that were sent on the lost connection. Suspects are sent one at a
//! time, those with the fewest losses first, so that none is lost twice because of another one. An agent may crash
//! because of a plan that it has read: then the next suspect waits for the plan.

use std::collections::BTreeMap;

use gridloom_base::limits::TASK_ATTEMPTS_MAX;
use gridloom_base::{DatumId, NodeId};

/// How often the agent was lost with a request in a row.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LossCounter {
    count: u32,
    /// The agent that has it or had it last.
    agent: Option<NodeId>,
    /// Token of the ping that was sent after the request.
    ping: Option<u64>,
    is_read: bool,
    /// True if an agent read it and another agent replaced that one.
    may_kill: bool,
}

impl LossCounter {
    /// Records that it is sent to that agent. Returns false if it must not be sent, because it was lost too often.
    ///
    /// If an agent that had read it reconnects, only the connection was lost. If another one has replaced it, the
    /// agent may have crashed because of the request.
    #[must_use]
    pub(super) fn record_sent(&mut self, agent: NodeId) -> bool {
        if std::mem::take(&mut self.is_read) {
            self.may_kill = self.agent != Some(agent);
            if !self.may_kill {
                self.count = 0;
            }
        }
        (self.agent, self.ping) = (Some(agent), None);
        self.count < TASK_ATTEMPTS_MAX
    }

    /// Records that the agent was lost with it. Returns true if it was lost too often.
    pub(super) fn lose(&mut self) -> bool {
        self.count += 1;
        self.ping = None;
        self.count >= TASK_ATTEMPTS_MAX && !self.is_read
    }

    /// Records the answer to a ping, which also covers earlier pings.
    pub(super) fn answer(&mut self, token: u64) {
        self.is_read |= self.ping.is_some_and(|ping| ping <= token);
    }

    /// Records that a ping was sent after the request.
    pub(super) fn pinged(&mut self, token: Option<u64>) {
        self.ping = token;
    }

    pub(super) fn count(&self) -> u32 {
        self.count
    }

    pub(super) fn is_suspect(&self) -> bool {
        self.count > 0
    }

    /// True if it was sent as a suspect and the next one has to wait.
    pub(super) fn is_awaited(&self) -> bool {
        self.ping.is_some() && (!self.is_read || self.may_kill)
    }
}

/// A request to the catalog.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum CatalogRequest {
    Request(u64),
    Location(DatumId),
}

#[derive(Debug, Default)]
struct PendingRequest {
    vain: LossCounter,
    /// True if it was sent on the current connection.
    is_sent: bool,
}

/// Requests to the catalog that it has not read or answered, as far as is known.
#[derive(Debug, Default)]
pub(super) struct PendingRequests(BTreeMap<CatalogRequest, PendingRequest>);

impl PendingRequests {
    pub(super) fn remove(&mut self, asked: CatalogRequest) {
        self.0.remove(&asked);
    }

    pub(super) fn sent(&mut self, asked: CatalogRequest) {
        self.0.entry(asked).or_default().is_sent = true;
    }

    pub(super) fn is_suspect(&self, asked: CatalogRequest) -> bool {
        self.0.get(&asked).is_some_and(|request| request.vain.is_suspect())
    }

    /// Records that a ping was sent after the request.
    pub(super) fn pinged(&mut self, asked: CatalogRequest, token: u64) {
        if let Some(request) = self.0.get_mut(&asked).filter(|request| request.is_sent) {
            request.vain.ping = Some(token);
        }
    }

    /// Handles the loss of the agent. Returns the requests that were lost too often.
    pub(super) fn lose(&mut self) -> Vec<CatalogRequest> {
        let mut given_up = Vec::new();
        for (asked, request) in &mut self.0 {
            if std::mem::take(&mut request.is_sent) && request.vain.lose() {
                given_up.push(*asked);
            }
        }
        given_up
    }

    /// Returns the suspects that are not sent, those with the fewest losses first.
    pub(super) fn waiting_suspects(&self) -> Vec<CatalogRequest> {
        let waiting = self.0.iter().filter(|(_, request)| request.vain.is_suspect() && !request.is_sent);
        let mut waiting: Vec<(u32, CatalogRequest)> =
            waiting.map(|(asked, request)| (request.vain.count, *asked)).collect();
        waiting.sort_unstable();
        waiting.into_iter().map(|(_, asked)| asked).collect()
    }

    /// Removes the requests that a ping's answer covers. The catalog handles a request as soon as it is read, so a
    /// later loss of the agent is not the request's fault.
    pub(super) fn answer(&mut self, token: u64) {
        self.0.retain(|_, request| {
            request.vain.answer(token);
            !request.vain.is_read
        });
    }

    pub(super) fn awaits_suspect(&self) -> bool {
        self.0.values().any(|request| request.vain.is_awaited())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AGENT: NodeId = NodeId(1);

    fn lost(vain: &mut LossCounter, agent: NodeId, is_read: bool) -> bool {
        assert!(vain.record_sent(agent));
        vain.ping = Some(7);
        if is_read {
            vain.answer(6);
            assert!(!vain.is_read);
            vain.answer(8);
        }
        vain.lose()
    }

    #[test]
    fn losses_before_it_is_read_are_counted() {
        let mut vain = LossCounter::default();
        let ends = [(); TASK_ATTEMPTS_MAX as usize].map(|()| lost(&mut vain, AGENT, false));
        assert_eq!(ends.iter().position(|is_end| *is_end), Some(TASK_ATTEMPTS_MAX as usize - 1));
    }

    #[test]
    fn losses_of_the_connection_alone_are_not() {
        let mut vain = LossCounter::default();
        assert!((0..3 * TASK_ATTEMPTS_MAX).all(|_| !lost(&mut vain, AGENT, true)));
        assert!(vain.record_sent(AGENT));
    }

    #[test]
    fn an_agent_that_dies_of_it_is_counted() {
        let mut vain = LossCounter::default();
        for agent in 1..=u64::from(TASK_ATTEMPTS_MAX) {
            assert!(!lost(&mut vain, NodeId(agent), true), "it may be there again");
        }
        assert!(!vain.record_sent(NodeId(99)));
    }

    /// Two requests are suspects. The first is read each time before the second is sent.
    #[test]
    fn a_ping_of_a_lost_connection_sends_nothing() {
        let [read, other] = [1, 2].map(CatalogRequest::Request);
        let mut requests = PendingRequests::default();
        [read, other].into_iter().for_each(|asked| requests.sent(asked));
        assert!(requests.lose().is_empty());
        let mut given_up = Vec::new();
        for token in 1..u64::from(TASK_ATTEMPTS_MAX) {
            requests.sent(read);
            requests.pinged(read, 10 * token);
            requests.answer(10 * token);
            requests.sent(other);
            requests.pinged(other, 10 * token + 1);
            given_up = requests.lose();
        }
        assert_eq!(given_up, [other]);
        let mut vain = LossCounter::default();
        assert!(!lost(&mut vain, AGENT, false));
        // An answer before it is sent again does not count. The agent has not sent its directory yet.
        vain.answer(9);
        assert!(!vain.is_read);
    }

    #[test]
    fn losses_count_for_what_was_sent_alone() {
        let (place, question) =
            (CatalogRequest::Location(DatumId { client: AGENT, serial: 1 }), CatalogRequest::Request(1));
        let mut requests = PendingRequests::default();
        requests.sent(place);
        for attempt in 1..=TASK_ATTEMPTS_MAX {
            requests.sent(question);
            let given_up = requests.lose();
            assert_eq!(given_up.contains(&question), attempt == TASK_ATTEMPTS_MAX);
            assert!(!given_up.contains(&place));
        }
        assert_eq!(requests.waiting_suspects(), [place, question], "the one with fewer losses first");
    }

    #[test]
    fn the_next_suspect_waits_for_a_plan_that_may_kill_agents() {
        let mut vain = LossCounter::default();
        assert!(!lost(&mut vain, NodeId(1), true));
        for (agent, is_awaited) in [(2, true), (2, false), (3, true)] {
            assert!(vain.record_sent(NodeId(agent)));
            vain.ping = Some(9);
            vain.answer(9);
            assert_eq!(vain.is_awaited(), is_awaited, "{agent}");
            assert!(!vain.lose());
        }
    }
}

//! Requests about shared names that wait until the agent has settled. After the agent has restarted or its host has slept,
//! servers register again one after the other, and an earlier answer could be wrong.
//!
//! The agent is *unsettled* for [`RECONNECT_NS_MAX`] after it has started, has slept or has lost its last server, if
//! no server is registered, or if a server has registered that was registered before. An agent of a new grid is settled as soon
//! as its first server registers. A put for which too few servers have room also waits for a server that was lost
//! within that time.

use std::collections::{BTreeSet, VecDeque};

use crate::node::message::ClientToCatalog;
use gridloom_base::limits::{HEARTBEAT_NS, NAME_WAITS_MAX, RECONNECT_NS_MAX};
use gridloom_base::{DatumId, NameError, NodeId, Time};

/// Time without a heartbeat after which the agent is assumed to have slept.
const ASLEEP_NS: u64 = 3 * HEARTBEAT_NS;

#[derive(Debug, Default)]
pub(super) struct Settling {
    /// Time when the agent started, awoke, or lost its last server.
    since: Time,
    last_beat: Time,
    /// Time when the agent last lost a server.
    lost_at: Option<Time>,
    /// True if a server that was registered before has registered since `since`.
    has_returned: bool,
    /// Requests that wait, in the order of arrival.
    waiting: VecDeque<(NodeId, ClientToCatalog)>,
    /// Versions that are being put and wait for servers that keep them.
    short_puts: BTreeSet<DatumId>,
}

impl Settling {
    pub(super) fn begin(&mut self, now: Time) {
        (self.since, self.last_beat, self.has_returned) = (now, now, false);
    }

    /// Records the time of an event. If it is the first event after a long pause, the agent has slept.
    pub(super) fn observe(&mut self, now: Time) {
        if now.since(self.last_beat) > ASLEEP_NS {
            self.begin(now);
        }
    }

    pub(super) fn heartbeat(&mut self, now: Time) {
        self.observe(now);
        self.last_beat = now;
    }

    /// Records that a server has registered. `was_registered` is true if it was registered with any agent before.
    pub(super) fn server_registered(&mut self, was_registered: bool) {
        self.has_returned |= was_registered;
    }

    /// Records the loss of a server. `others` is the number of remaining servers.
    pub(super) fn server_lost(&mut self, now: Time, others: usize) {
        self.lost_at = Some(now);
        if others == 0 {
            self.begin(now);
        }
    }

    /// True if servers are expected to register again. `servers` is the number of registered servers.
    pub(super) fn is_unsettled(&self, now: Time, servers: usize) -> bool {
        now.since(self.since) < RECONNECT_NS_MAX && (servers == 0 || self.has_returned)
    }

    /// True if at least one lost server may return.
    pub(super) fn may_return(&self, now: Time, servers: usize) -> bool {
        let was_lost = self.lost_at.is_some_and(|at| now.since(at) < RECONNECT_NS_MAX);
        was_lost || self.is_unsettled(now, servers)
    }

    /// True if the answer may change when lost servers return. A request that waits for its name also waits for a single
    /// lost server.
    pub(super) fn is_premature(&self, now: Time, servers: usize, message: &ClientToCatalog, error: &NameError) -> bool {
        let waits = matches!(message, ClientToCatalog::Find { waits: true, .. });
        match error {
            NameError::NoRoom { .. } => self.may_return(now, servers),
            NameError::Lost { .. } if waits => self.may_return(now, servers),
            NameError::Unknown { .. } | NameError::Lost { .. } => self.is_unsettled(now, servers),
            _ => false,
        }
    }

    /// Adds a request that waits. Returns false if too many wait already.
    pub(super) fn add(&mut self, client: NodeId, message: ClientToCatalog) -> bool {
        let has_room = self.waiting.len() < NAME_WAITS_MAX;
        if has_room {
            self.waiting.push_back((client, message));
        }
        has_room
    }

    /// Removes and returns the requests that wait, to try them again.
    pub(super) fn take_all(&mut self) -> VecDeque<(NodeId, ClientToCatalog)> {
        std::mem::take(&mut self.waiting)
    }

    /// Removes a request that its client no longer makes. Returns true if it waited.
    pub(super) fn cancel(&mut self, client: NodeId, request: u64) -> bool {
        let before = self.waiting.len();
        self.waiting.retain(|(from, message)| *from != client || message.request() != Some(request));
        self.waiting.len() < before
    }

    pub(super) fn client_lost(&mut self, client: NodeId) {
        self.waiting.retain(|(from, _)| *from != client);
    }

    pub(super) fn add_short_put(&mut self, datum: DatumId) {
        self.short_puts.insert(datum);
    }

    /// Removes and returns the versions that wait for servers that keep them.
    pub(super) fn take_short_puts(&mut self) -> BTreeSet<DatumId> {
        std::mem::take(&mut self.short_puts)
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gridloom_base::time::SECOND_NS;

    #[test]
    fn an_agent_is_unsettled_while_its_servers_may_return() {
        let mut settling = Settling::default();
        let at = |seconds: u64| Time(seconds * SECOND_NS);
        settling.begin(at(100));
        let beats = |settling: &mut Settling, from: u64, to: u64| (from..=to).for_each(|s| settling.heartbeat(at(s)));
        assert!(settling.is_unsettled(at(101), 0), "no server has registered");
        settling.server_registered(false);
        assert!(!settling.is_unsettled(at(101), 1), "a new grid");
        settling.server_registered(true);
        assert!(settling.is_unsettled(at(109), 1) && !settling.is_unsettled(at(110), 1));
        // A server is lost. The agent still knows its names, but the server may return and have room.
        beats(&mut settling, 101, 120);
        settling.server_lost(at(120), 1);
        assert!(!settling.is_unsettled(at(121), 1) && settling.may_return(at(121), 1));
        assert!(!settling.may_return(at(130), 1));
        // All are lost, and return.
        settling.server_lost(at(130), 0);
        settling.server_registered(true);
        assert!(settling.is_unsettled(at(139), 1) && !settling.is_unsettled(at(140), 1));
        // The agent's host sleeps.
        beats(&mut settling, 130, 150);
        settling.observe(at(500));
        settling.server_registered(true);
        assert!(settling.is_unsettled(at(509), 3) && !settling.is_unsettled(at(510), 3));
    }
}

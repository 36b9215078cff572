//! Requests about shared names that wait until the agent has settled. After the agent has restarted or its host has slept,
//! servers register again one after the other, and an earlier answer could be wrong.
//!
//! The agent is *unsettled* for [`RECONNECT_NS_MAX`] after it has started, has slept or has lost its last server, if
//! no server is registered, or if a server has registered that was registered before. An agent of a new grid is settled as soon
//! as its first server registers. A put for which too few servers have room also waits for a server that was lost
//! within that time.
//!
//! A waiting request is tried again only after an event that can change its answer: a report about its name, a server that
//! registers (for puts), or the end of its waiting time. The agent is not notified when a store has free room again, so puts
//! are also tried again at each heartbeat.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};

use crate::data::check_waits;
use crate::node::message::ClientToCatalog;
use gridloom_base::limits::{HEARTBEAT_NS, RECONNECT_NS_MAX};
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
    /// Waiting requests by arrival number.
    waiting: BTreeMap<u64, (NodeId, ClientToCatalog)>,
    /// Arrival number of the last request.
    arrived: u64,
    /// Arrival numbers of the waiting requests that concern a single name, except puts.
    by_name: BTreeMap<String, BTreeSet<u64>>,
    by_client: BTreeMap<NodeId, BTreeSet<u64>>,
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
        match error {
            NameError::NoRoom { .. } => self.may_return(now, servers),
            NameError::Unknown { .. } | NameError::NotShared { .. } | NameError::Lost { .. } => {
                let is_lost = matches!(error, NameError::Lost { .. });
                self.is_unsettled(now, servers) || is_lost && waits(message) && self.may_return(now, servers)
            }
            _ => false,
        }
    }

    /// Adds a request that waits.
    ///
    /// # Errors
    /// If too many requests of this client, or of all clients, are waiting already.
    pub(super) fn add(&mut self, client: NodeId, message: ClientToCatalog) -> Result<(), NameError> {
        let of_client = self.by_client.get(&client).map_or(0, BTreeSet::len);
        check_waits(self.waiting.len(), of_client)?;
        self.arrived += 1;
        if let Some(name) = single_name(&message) {
            self.by_name.entry(name.into()).or_default().insert(self.arrived);
        }
        self.by_client.entry(client).or_default().insert(self.arrived);
        self.waiting.insert(self.arrived, (client, message));
        Ok(())
    }

    /// Removes and returns the requests whose answers may have changed because time has passed or a server has registered.
    pub(super) fn take_due(&mut self, now: Time, servers: usize) -> Vec<(NodeId, ClientToCatalog)> {
        let (is_unsettled, may_return) = (self.is_unsettled(now, servers), self.may_return(now, servers));
        let is_due = |message: &ClientToCatalog| match message {
            ClientToCatalog::Put { .. } => true,
            _ if waits(message) => !may_return,
            _ => !is_unsettled,
        };
        let due = self.waiting.iter().filter(|(_, (_, message))| is_due(message)).map(|(arrival, _)| *arrival);
        self.take(due.collect())
    }

    /// Removes and returns the requests that wait for this name.
    pub(super) fn take_of_name(&mut self, name: &str) -> Vec<(NodeId, ClientToCatalog)> {
        let arrivals = self.by_name.get(name).cloned().unwrap_or_default();
        self.take(arrivals)
    }

    /// Removes a request that its client no longer makes. Returns true if it waited.
    pub(super) fn cancel(&mut self, client: NodeId, request: u64) -> bool {
        let is_it = |arrival: &&u64| self.waiting[arrival].1.request() == Some(request);
        let arrivals = self.by_client.get(&client).into_iter().flatten().filter(is_it).copied().collect();
        !self.take(arrivals).is_empty()
    }

    pub(super) fn client_lost(&mut self, client: NodeId) {
        let arrivals = self.by_client.get(&client).cloned().unwrap_or_default();
        self.take(arrivals);
    }

    fn take(&mut self, arrivals: BTreeSet<u64>) -> Vec<(NodeId, ClientToCatalog)> {
        let mut taken = Vec::with_capacity(arrivals.len());
        for arrival in arrivals {
            let (client, message) = self.waiting.remove(&arrival).expect("the request waits");
            if let Some(name) = single_name(&message) {
                remove_arrival(&mut self.by_name, name, arrival);
            }
            remove_arrival(&mut self.by_client, &client, arrival);
            taken.push((client, message));
        }
        taken
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

/// True if the request also waits for a name that does not exist yet.
fn waits(message: &ClientToCatalog) -> bool {
    matches!(message, ClientToCatalog::Find { waits: true, .. })
}

/// Returns the name on which the answer depends. `None` for a put, which depends on the free room in stores, and for a
/// list, which depends on many names.
fn single_name(message: &ClientToCatalog) -> Option<&str> {
    match message {
        ClientToCatalog::Find { name, .. }
        | ClientToCatalog::Delete { name, .. }
        | ClientToCatalog::Share { name, .. }
        | ClientToCatalog::Explain { name, .. } => Some(name),
        _ => None,
    }
}

fn remove_arrival<K: Ord + Borrow<Q>, Q: Ord + ?Sized>(
    arrivals: &mut BTreeMap<K, BTreeSet<u64>>,
    key: &Q,
    arrival: u64,
) {
    let Some(of_key) = arrivals.get_mut(key) else { return };
    of_key.remove(&arrival);
    if of_key.is_empty() {
        arrivals.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gridloom_base::limits::NAME_WAITS_PER_CLIENT_MAX;
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

    const CLIENT: NodeId = NodeId(9);

    fn find(request: u64, name: &str) -> ClientToCatalog {
        ClientToCatalog::Find { request, name: name.into(), waits: false }
    }

    fn list(request: u64) -> ClientToCatalog {
        ClientToCatalog::List { request, prefix: String::new(), after: String::new() }
    }

    #[test]
    fn a_waiting_request_is_tried_again_only_after_an_event_that_can_change_its_answer() {
        let mut settling = Settling::default();
        let at = |seconds: u64| Time(seconds * SECOND_NS);
        settling.begin(at(100));
        settling.server_registered(true);
        for message in [find(1, "mesh"), find(2, "field"), list(3)] {
            settling.add(CLIENT, message).unwrap();
        }
        assert!(settling.take_due(at(101), 1).is_empty(), "the agent is unsettled");
        assert!(settling.take_of_name("other").is_empty());
        assert_eq!(settling.take_of_name("mesh"), [(CLIENT, find(1, "mesh"))]);
        assert!(settling.take_of_name("mesh").is_empty());
        assert_eq!(settling.take_due(at(110), 1), [(CLIENT, find(2, "field")), (CLIENT, list(3))]);
        assert!(settling.waiting.is_empty() && settling.by_name.is_empty() && settling.by_client.is_empty());
    }

    #[test]
    fn the_requests_of_one_client_are_limited() {
        let mut settling = Settling::default();
        (0..NAME_WAITS_PER_CLIENT_MAX as u64).for_each(|request| settling.add(CLIENT, find(request, "mesh")).unwrap());
        let error = settling.add(CLIENT, list(0)).unwrap_err().to_string();
        assert!(error.contains(&format!("{NAME_WAITS_PER_CLIENT_MAX} waiting requests of this program")), "{error}");
        assert_eq!(settling.add(NodeId(10), list(0)), Ok(()));
        assert!(settling.cancel(CLIENT, 7) && !settling.cancel(CLIENT, 7));
        assert_eq!(settling.add(CLIENT, list(0)), Ok(()));
        settling.client_lost(CLIENT);
        assert_eq!(settling.len(), 1);
    }
}

//! Batches: servers that request the same large datum at about the same time are assigned their sources together.
//!
//! The first server that requests a datum waits for further requests, for a small part of the time that the transfer
//! takes ([`PART_OF_TIME`]), provided that this is about as long as messages take. Each further request extends the
//! wait of all a little, up to a limit. At the end, [`crate::data::Batch::in_slices`] decides: the servers get the datum in slices,
//! or each of them gets the complete datum, one after the other. Shorter transfers do not wait, as most data have one
//! reader at a time.
//!
//! A server that requests the datum while others are receiving it in slices does not wait: it gets each slice, or the
//! complete datum, also from these servers.
//!
//! **Invariant:** a server is in at most one batch of a datum, and is assigned a source when the batch ends.

use std::collections::BTreeMap;

use crate::node::AgentTimer;
use crate::node::protocol::Effect;
use gridloom_base::time::seconds_to_ns;
use gridloom_base::{DatumId, Method, NodeId, Time};

/// The part of the duration of one transfer for which the first server waits.
const PART_OF_TIME: f64 = 0.05;
/// Limits of the wait after the last request, in seconds. If the wait would be shorter than the minimum, there is
/// none, unless the method is `swarm`.
const WAITS_S_MIN: f64 = 0.000_1;
const WAITS_S_MAX: f64 = 0.01;
/// Limits of the total wait when further requests arrive: the part of the duration of one transfer, and seconds after
/// the first request.
const PART_IN_ALL: f64 = 0.25;
const WAITS_IN_ALL_S_MAX: f64 = 0.1;
/// Maximum number of servers in one batch. Further servers are answered at once.
const SERVERS_MAX: usize = 4096;

/// The servers that wait, by datum.
#[derive(Debug, Default)]
pub(super) struct Batches(BTreeMap<DatumId, PendingBatch>);

#[derive(Debug)]
struct PendingBatch {
    until: Time,
    /// Latest end of the wait.
    latest: Time,
    gap_ns: u64,
    servers: Vec<NodeId>,
}

impl Batches {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the seconds for which the first server that requests a datum waits if a transfer takes `transfer_s`; `None`
    /// if it does not wait.
    pub(super) fn wait_s(transfer_s: f64, method: Method) -> Option<f64> {
        let part_s = transfer_s * PART_OF_TIME;
        (part_s >= WAITS_S_MIN || method == Method::Swarm).then(|| part_s.max(WAITS_S_MIN))
    }

    /// Starts a batch with one server, which waits for these seconds.
    pub(super) fn begin(&mut self, now: Time, datum: DatumId, server: NodeId, wait_s: f64, out: &mut Vec<Effect>) {
        let gap_ns = seconds_to_ns(wait_s.min(WAITS_S_MAX));
        let latest = now + seconds_to_ns((wait_s * PART_IN_ALL / PART_OF_TIME).min(WAITS_IN_ALL_S_MAX));
        let waiting = PendingBatch { until: now + gap_ns, latest, gap_ns, servers: vec![server] };
        self.0.insert(datum, waiting);
        self.set_timer(out);
    }

    /// Adds a server to the batch of a datum. Returns true if the server waits for others, and `None` if there is no batch.
    pub(super) fn join(&mut self, now: Time, datum: DatumId, server: NodeId) -> Option<bool> {
        let waiting = self.0.get_mut(&datum)?;
        if waiting.servers.contains(&server) {
            return Some(true);
        }
        let has_room = waiting.servers.len() < SERVERS_MAX;
        if has_room {
            waiting.servers.push(server);
            waiting.until = waiting.latest.min(now + waiting.gap_ns);
        }
        Some(has_room)
    }

    /// Removes a server that no longer waits.
    pub(super) fn forget(&mut self, datum: DatumId, server: NodeId) {
        if let Some(waiting) = self.0.get_mut(&datum) {
            waiting.servers.retain(|one| *one != server);
        }
    }

    pub(super) fn server_lost(&mut self, node: NodeId) {
        self.0.values_mut().for_each(|waiting| waiting.servers.retain(|one| *one != node));
    }

    pub(super) fn forget_datum(&mut self, datum: DatumId) {
        self.0.remove(&datum);
    }

    /// Sets the timer for the batch that ends first. All batches share one timer.
    pub(super) fn set_timer(&self, out: &mut Vec<Effect>) {
        let next = self.0.values().map(|waiting| waiting.until).min();
        out.extend(next.map(|at| Effect::SetTimer { timer: AgentTimer::Batches.into(), at }));
    }

    /// Removes the batches that are due. Returns each datum with the servers that wait for it.
    pub(super) fn take_due(&mut self, now: Time) -> Vec<(DatumId, Vec<NodeId>)> {
        let is_due = |(_, waiting): &(&DatumId, &PendingBatch)| waiting.until <= now;
        let due: Vec<DatumId> = self.0.iter().filter(is_due).map(|(datum, _)| *datum).collect();
        due.into_iter().filter_map(|datum| Some((datum, self.0.remove(&datum)?.servers))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::Agent;
    use super::super::models::tests::{agent, register};
    use super::*;
    use crate::node::message::{
        Message, ServerToCatalog, StoredVersion, SupplyFault, TaskMessage, TaskToClient, TaskToServer,
    };
    use crate::node::protocol::Input;
    use crate::node::{AgentTimer, Timer};
    use gridloom_base::time::SECOND_NS;
    use gridloom_base::{Machine, Meta, NamedDatum};

    const DATUM: DatumId = DatumId { client: NodeId::CATALOG, serial: 1 };
    const HOLDER: NodeId = NodeId(2);
    const WAITS_NS_MAX: u64 = 10_000_000;

    /// Returns an agent with this many servers, one of which has the datum.
    fn with_holder(servers: u64, method: Method) -> Agent {
        with_holder_of(64 << 20, servers, method)
    }

    fn with_holder_of(size_bytes: u64, servers: u64, method: Method) -> Agent {
        let mut agent = agent();
        (2..servers + 2).for_each(|node| register(&mut agent, node, &format!("host-{node}:1"), 1.0, 1.0));
        hold(&mut agent, DATUM, size_bytes, method);
        agent
    }

    fn hold(agent: &mut Agent, datum: DatumId, size_bytes: u64, method: Method) {
        let named = NamedDatum {
            datum,
            name: format!("mesh {}", datum.serial),
            version: 1,
            meta: Meta::Bytes { size_bytes },
            replicas: 1,
            is_durable: false,
            method,
            put_by: None,
            readers: Default::default(),
        };
        let message = ServerToCatalog::StoredVersions { data: vec![StoredVersion { named, is_current: true }] }.into();
        agent.handle(Time(10), Input::Received { from: HOLDER, message }, &mut Vec::new());
    }

    /// Returns the assignments that servers receive in response to an input: the datum or slice, and its source.
    fn named(agent: &mut Agent, at: u64, input: Input) -> BTreeMap<NodeId, Vec<(DatumId, NodeId)>> {
        let mut out = Vec::new();
        agent.handle(Time(SECOND_NS + at), input, &mut out);
        let of = |effect| match effect {
            Effect::Send { to, message: Message::Task(TaskMessage::ToServer(TaskToServer::Resupply { supplies })) } => {
                Some((to, supplies.iter().map(|supply| (supply.datum, supply.from)).collect()))
            }
            _ => None,
        };
        out.into_iter().filter_map(of).collect()
    }

    fn asks(datum: DatumId, server: u64, from: NodeId) -> Input {
        let fault = SupplyFault::Unreachable;
        let message = TaskToClient::SupplyFailed { datum, from, fault, why: String::new() }.into();
        Input::Received { from: NodeId(server), message }
    }

    fn fire() -> Input {
        Input::Timer(Timer::Agent(AgentTimer::Batches))
    }

    #[test]
    fn simultaneous_requests_get_slices_from_one_another() {
        let mut agent = with_holder(4, Method::Swarm);
        for server in 3..=5 {
            assert!(named(&mut agent, 0, asks(DATUM, server, NodeId(server))).is_empty());
        }
        let told = named(&mut agent, WAITS_NS_MAX, fire());
        let [first, second] = DATUM.slices();
        assert!(told.len() == 3 && told.values().all(|of| of.len() == 2), "{told:?}");
        assert_eq!(told[&NodeId(3)], [(first, HOLDER), (second, NodeId(4))]);
        assert_eq!(told[&NodeId(4)], [(first, NodeId(3)), (second, HOLDER)]);
        // A server whose source has failed gets the complete datum, from a server that has it or is receiving it.
        assert!(named(&mut agent, 2 * WAITS_NS_MAX, asks(DATUM, 5, NodeId(3))).values().all(|of| of[0].0 == DATUM));
    }

    #[test]
    fn a_later_request_gets_slices_from_current_receivers() {
        let mut agent = with_holder(6, Method::Swarm);
        (3..=5).for_each(|server| _ = named(&mut agent, 0, asks(DATUM, server, NodeId(server))));
        named(&mut agent, WAITS_NS_MAX, fire());
        let [first, second] = DATUM.slices();
        for server in [6, 7] {
            let told = named(&mut agent, 2 * WAITS_NS_MAX, asks(DATUM, server, NodeId(server)));
            let of = &told[&NodeId(server)];
            assert_eq!(of.iter().map(|(slice, _)| *slice).collect::<Vec<_>>(), [first, second]);
            // The holder is already sending both slices.
            assert!(of.iter().all(|(_, from)| *from != HOLDER), "{told:?}");
        }
        // All servers have the complete datum, so no transfer is in progress.
        for server in 3..=7 {
            let named = NamedDatum {
                datum: DATUM,
                name: "mesh 1".into(),
                version: 1,
                meta: Meta::Bytes { size_bytes: 64 << 20 },
                replicas: 1,
                is_durable: false,
                method: Method::Swarm,
                put_by: None,
                readers: Default::default(),
            };
            let message =
                ServerToCatalog::StoredVersions { data: vec![StoredVersion { named, is_current: true }] }.into();
            agent.handle(Time(2 * SECOND_NS), Input::Received { from: NodeId(server), message }, &mut Vec::new());
        }
        assert_eq!(agent.names.counts()[2], 0);
    }

    #[test]
    fn each_request_extends_the_wait() {
        let mut agent = with_holder_of(64 << 30, 20, Method::Swarm);
        for number in 0..10 {
            let at = number * WAITS_NS_MAX / 2;
            assert!(named(&mut agent, at, asks(DATUM, 3 + number, NodeId(3 + number))).is_empty());
            assert!(named(&mut agent, at, fire()).is_empty(), "it has just made its request");
        }
        assert_eq!(named(&mut agent, 10 * WAITS_NS_MAX, fire()).len(), 10);
    }

    #[test]
    fn the_wait_of_the_first_request_is_limited() {
        let mut agent = with_holder_of(64 << 30, 30, Method::Swarm);
        let mut at = 0;
        for server in 3..=30 {
            named(&mut agent, at, asks(DATUM, server, NodeId(server)));
            at += WAITS_NS_MAX / 2;
            if !named(&mut agent, at, fire()).is_empty() {
                break;
            }
        }
        assert_eq!(at, (WAITS_IN_ALL_S_MAX * 1e9) as u64);
    }

    #[test]
    fn single_requests_and_other_methods_get_the_complete_datum() {
        let mut agent = with_holder(4, Method::Swarm);
        assert!(named(&mut agent, 0, asks(DATUM, 3, NodeId(3))).is_empty());
        assert_eq!(named(&mut agent, WAITS_NS_MAX, fire())[&NodeId(3)], [(DATUM, HOLDER)]);
        assert_eq!(agent.names.counts()[2], 2, "a search and a transfer, but no batch");
        let mut agent = with_holder(4, Method::Tree);
        assert_eq!(named(&mut agent, 0, asks(DATUM, 3, NodeId(3)))[&NodeId(3)], [(DATUM, HOLDER)]);
    }

    #[test]
    fn short_transfers_do_not_wait() {
        let mut agent = with_holder_of(100 << 10, 4, Method::Auto);
        assert_eq!(named(&mut agent, 0, asks(DATUM, 3, NodeId(3)))[&NodeId(3)], [(DATUM, HOLDER)]);
        let mut agent = with_holder(4, Method::Auto);
        assert!(named(&mut agent, 0, asks(DATUM, 3, NodeId(3))).is_empty());
    }

    #[test]
    fn a_later_batch_does_not_delay_an_earlier_one() {
        // 6 MiB: 5 % of the transfer time is less than 10 ms.
        let mut agent = with_holder_of(6 << 20, 4, Method::Auto);
        let other = DatumId { serial: 2, ..DATUM };
        hold(&mut agent, other, 256 << 20, Method::Auto);
        let timers = |agent: &mut Agent, datum| {
            let mut out = Vec::new();
            agent.handle(Time(SECOND_NS), asks(datum, 3, NodeId(3)), &mut out);
            let at = |effect| match effect {
                Effect::SetTimer { timer, at } if timer == AgentTimer::Batches.into() => Some(at.0 - SECOND_NS),
                _ => None,
            };
            out.into_iter().filter_map(at).collect::<Vec<u64>>()
        };
        let first = timers(&mut agent, DATUM);
        assert!(first.len() == 1 && first[0] < WAITS_NS_MAX, "{first:?}");
        assert_eq!(timers(&mut agent, other), first, "the first one is due first");
        assert_eq!(named(&mut agent, first[0], fire())[&NodeId(3)], [(DATUM, HOLDER)]);
        assert_eq!(named(&mut agent, WAITS_NS_MAX, fire())[&NodeId(3)], [(other, HOLDER)]);
    }

    /// Found by the soak test (seed 3107): a server that could not reach the holder of a slice had been assigned to forward the
    /// slice to all others.
    #[test]
    fn a_server_that_reaches_no_source_gets_the_datum_from_its_dependents() {
        let mut agent = with_holder(4, Method::Swarm);
        (3..=5).for_each(|server| _ = named(&mut agent, 0, asks(DATUM, server, NodeId(server))));
        named(&mut agent, WAITS_NS_MAX, fire());
        let [first, _] = DATUM.slices();
        // Server 3 gets the first slice from the holder, and server 4 gets it from server 3.
        let told = named(&mut agent, 2 * WAITS_NS_MAX, asks(first, 3, HOLDER));
        assert!(matches!(told[&NodeId(4)][..], [(datum, from)] if datum == first && from != NodeId(3)), "{told:?}");
        let beat = Input::Timer(Timer::Agent(AgentTimer::Heartbeat));
        let told = named(&mut agent, 3 * WAITS_NS_MAX, beat);
        assert!(told[&NodeId(3)].iter().all(|(datum, from)| *datum == first && *from != HOLDER), "{told:?}");
    }
}

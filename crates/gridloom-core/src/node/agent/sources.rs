//! Sources of shared data: a server that cannot get a copy is assigned another source.
//!
//! Servers that request the same large datum at about the same time may receive it in slices: see [`super::batches`].
//! Here a slice is handled like a datum, and has the holders of the complete datum.
//!
//! **Invariant:** a server that asks for a datum gets an answer within [`SEARCH_NS_MAX`] and a heartbeat, and within
//! [`RECONNECT_NS_MAX`] and a heartbeat if no server has it. Until then, a lost server may return.

use std::collections::BTreeMap;

use super::batches::Batches;
use super::registry::{Reach, Registry};
use super::{PeerInfo, send};
use crate::data::{Batch, Candidate, Catalog, DatumTransfers, Reader, SLICED_BYTES_MIN, Source};
use crate::member::Members;
use crate::node::message::{CatalogToServer, LinkBasis, Supply, TaskToServer};
use crate::node::protocol::Effect;
use gridloom_base::limits::{HEARTBEAT_NS, RECONNECT_NS_MAX};
use gridloom_base::{DatumId, Meta, Method, NodeId, Origin, Rules, Time, plain_name, slice_bytes};
use gridloom_perf::{LinkEstimate, Links, NetworkTree};

/// The estimate for servers that could not reach each other. It is so bad that such a pair is used only if there is no other.
const BROKEN_LINK: LinkEstimate = LinkEstimate { bandwidth: 1.0, latency_s: 10.0 };
/// Nanoseconds for which a server is assigned other sources of a datum before the tasks that read it fail.
const SEARCH_NS_MAX: u64 = 6 * RECONNECT_NS_MAX;

/// Facts about servers, links and users.
#[derive(Clone, Copy)]
pub(super) struct GridFacts<'a> {
    pub(super) now: Time,
    pub(super) servers: &'a Registry,
    pub(super) links: &'a Links<String>,
    pub(super) members: &'a Members<PeerInfo>,
    pub(super) rules: &'a Rules,
}

impl<'a> GridFacts<'a> {
    /// Returns the user of a connected client, with their rights.
    pub(super) fn origin(self, client: NodeId) -> Option<&'a Origin> {
        self.members.get(client).map(|peer| &peer.data.origin)
    }

    pub(super) fn with(self, catalog: &'a Catalog) -> DatumFacts<'a> {
        DatumFacts { grid: self, catalog }
    }
}

/// Facts about shared data, servers and links.
#[derive(Clone, Copy)]
pub(super) struct DatumFacts<'a> {
    pub(super) grid: GridFacts<'a>,
    pub(super) catalog: &'a Catalog,
}

impl DatumFacts<'_> {
    /// Returns the registered servers with copies.
    pub(super) fn holders(&self, datum: DatumId) -> Vec<NodeId> {
        self.catalog.holders(datum.whole()).filter(|node| self.grid.servers.has(*node)).collect()
    }

    /// Returns the servers with copies, and their addresses.
    pub(super) fn holders_with_addresses(&self, datum: DatumId) -> Vec<(NodeId, String)> {
        self.holders(datum).into_iter().map(|node| (node, self.grid.servers.address(node))).collect()
    }

    pub(super) fn why_lost(&self, datum: DatumId) -> String {
        let Some(named) = self.catalog.named(datum.whole()) else { return "it was deleted or replaced".into() };
        let cause = self.catalog.why_lost(datum.whole()).map_or(String::new(), |why| format!(": {why}"));
        format!("no server has '{}' any more{cause}", plain_name(&named.name))
    }
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct SourceSearches {
    /// Servers that wait for a source of a datum.
    searches: BTreeMap<(DatumId, NodeId), SourceSearch>,
    /// Data that are being transferred to servers.
    transfers: BTreeMap<DatumId, DatumTransfers>,
    /// Estimates of the links between hosts, and the time at which they were computed.
    links: Option<(Time, NetworkTree<String>)>,
    batches: Batches,
}

/// A server's search for a source.
#[derive(Clone, Debug)]
struct SourceSearch {
    since: Time,
    /// Sources that failed, with the time of the last failure of each.
    failed: BTreeMap<NodeId, Time>,
    /// Time at which the server was assigned a source; `None` while it needs one.
    answered: Option<Time>,
    /// Servers whose source was this one were assigned other sources, so that this one may get the datum from them.
    has_reassigned: bool,
}

impl SourceSearches {
    pub(super) fn len(&self) -> usize {
        self.searches.len() + self.transfers.len() + self.batches.len()
    }

    /// Ends the search and the transfer of a datum that has arrived at a server, or will not be sent there.
    pub(super) fn transfer_ended(&mut self, datum: DatumId, server: NodeId) {
        let slices = datum.slices().into_iter().filter(|_| datum.slice().is_none() && datum.is_shared());
        for datum in [datum].into_iter().chain(slices) {
            self.searches.remove(&(datum, server));
            self.transfer_not_started(datum, server);
        }
        self.batches.forget(datum, server);
    }

    /// True if a server waits for a source of a slice of the datum.
    fn searches_slice(&self, datum: DatumId, server: NodeId) -> bool {
        datum.slice().is_none() && datum.slices().iter().any(|slice| self.searches.contains_key(&(*slice, server)))
    }

    /// Records the source of a slice for a server, which the server was sent.
    pub(super) fn begin(&mut self, slice: DatumId, server: NodeId, source: Source) {
        self.transfers.entry(slice).or_default().begin(server, source);
    }

    /// Records that a datum or a slice is not being transferred to a server.
    fn transfer_not_started(&mut self, datum: DatumId, server: NodeId) {
        if let Some(spread) = self.transfers.get_mut(&datum) {
            spread.ended(server);
            if spread.is_empty() {
                self.transfers.remove(&datum);
            }
        }
    }

    /// Records that a server was assigned sources of a datum. Returns false if it does not wait for any.
    fn answered(&mut self, now: Time, datum: DatumId, server: NodeId) -> bool {
        let search = self.searches.get_mut(&(datum, server)).filter(|search| search.answered.is_none());
        search.map(|search| search.answered = Some(now)).is_some()
    }

    /// Removes a lost server.
    pub(super) fn server_lost(&mut self, node: NodeId) {
        self.searches.retain(|(_, at), _| *at != node);
        self.transfers.retain(|_, spread| {
            spread.ended(node);
            !spread.is_empty()
        });
        self.batches.server_lost(node);
    }

    /// Returns the senders and receivers of all transfers in progress.
    pub(super) fn transfer_pairs(&self) -> impl Iterator<Item = (NodeId, NodeId)> {
        self.transfers.values().flat_map(DatumTransfers::pairs)
    }

    pub(super) fn forget_datum(&mut self, datum: DatumId) {
        self.transfers.remove(&datum);
        datum.slices().iter().for_each(|slice| _ = self.transfers.remove(slice));
        self.batches.forget_datum(datum);
    }

    fn of(&self, datum: DatumId) -> Vec<(DatumId, NodeId)> {
        let of_one = |datum: DatumId| self.searches.range((datum, NodeId(u64::MIN))..=(datum, NodeId(u64::MAX)));
        let slices = datum.slices().into_iter().filter(|_| datum.is_shared());
        [datum].into_iter().chain(slices).flat_map(of_one).map(|(search, _)| *search).collect()
    }

    // ---- searches

    /// Handles the report of a server that it could not get a datum from another server.
    pub(super) fn supply_failed(
        &mut self,
        facts: DatumFacts<'_>,
        (datum, server, from): (DatumId, NodeId, NodeId),
        out: &mut Vec<Effect>,
    ) {
        let now = facts.grid.now;
        let search = SourceSearch { since: now, failed: BTreeMap::new(), answered: None, has_reassigned: false };
        let search = self.searches.entry((datum, server)).or_insert(search);
        search.answered = None;
        // A server without any source reports itself as the source.
        if from != server && facts.grid.servers.has(from) {
            search.failed.insert(from, now);
        }
        self.answer_search(facts, datum, server, out);
    }

    /// Assigns a source to a server that waits for a datum, reports that there is none, or waits for further servers
    /// that want the datum.
    fn answer_search(&mut self, facts: DatumFacts<'_>, datum: DatumId, server: NodeId, out: &mut Vec<Effect>) {
        let is_first = |search: &SourceSearch| search.answered.is_none() && search.failed.is_empty();
        let is_first = self.searches.get(&(datum, server)).is_some_and(is_first);
        let is_answered =
            is_first && (self.joins_slices(facts, datum, server, out) || self.join_batch(facts, datum, server, out));
        if !is_answered {
            self.assign_source(facts, datum, server, out);
        }
    }

    fn assign_source(&mut self, facts: DatumFacts<'_>, datum: DatumId, server: NodeId, out: &mut Vec<Effect>) {
        let now = facts.grid.now;
        let Some(search) = self.searches.get(&(datum, server)) else { return };
        let waited_ns = now.since(search.since);
        if let Some(answered) = search.answered {
            // The datum is being transferred, or its task is gone, or the search for one of its slices continues.
            if now.since(answered) >= SEARCH_NS_MAX && !self.searches_slice(datum, server) {
                self.transfer_ended(datum, server);
            }
            return;
        }
        let failed = search.failed.clone();
        let source = self.source_other_than(facts, datum, server, &failed);
        let has_holders = !facts.holders(datum).is_empty();
        let limit_ns = if has_holders { SEARCH_NS_MAX } else { RECONNECT_NS_MAX };
        match (facts.catalog.named(datum.whole()), source) {
            (Some(named), Some(source)) if waited_ns < SEARCH_NS_MAX => {
                let (from, hops) = (source.node, source.hops);
                let address = facts.grid.servers.address(from);
                let by_storage =
                    named.method == Method::Storage && shares_storage(facts.grid.servers, server, from, &failed);
                let supplies = vec![Supply { datum, meta: named.meta.clone(), from, address, hops, by_storage }];
                send(out, server, TaskToServer::Resupply { supplies });
                let search = self.searches.get_mut(&(datum, server)).expect("found above");
                search.answered = Some(now);
            }
            (Some(_), None) if waited_ns < limit_ns => self.reassign_dependents(facts, datum, server, out),
            _ => {
                self.transfer_ended(datum.whole(), server);
                let why = match has_holders {
                    true => "it cannot reach any server that has the datum".into(),
                    false => facts.why_lost(datum),
                };
                send(out, server, CatalogToServer::Lost { datum, why });
            }
        }
    }

    /// Handles a server that can reach no holder of a datum. Servers whose source is this server are assigned other
    /// sources, because one of them may forward the datum to it.
    fn reassign_dependents(&mut self, facts: DatumFacts<'_>, datum: DatumId, server: NodeId, out: &mut Vec<Effect>) {
        let search = self.searches.get_mut(&(datum, server));
        if search.is_none_or(|search| search.failed.is_empty() || std::mem::replace(&mut search.has_reassigned, true)) {
            return;
        }
        let behind: Vec<NodeId> = self.spread_of(datum).map_or(Vec::new(), |spread| {
            spread.pairs().filter(|(from, _)| *from == server).map(|(_, to)| to).collect()
        });
        behind.into_iter().for_each(|one| self.supply_failed(facts, (datum, one, server), out));
    }

    /// Chooses the source from which a server gets a datum: a holder, or another server that is receiving it.
    pub(super) fn source_for(&mut self, facts: DatumFacts<'_>, datum: DatumId, server: NodeId) -> Option<Source> {
        self.source_other_than(facts, datum, server, &BTreeMap::new())
    }

    fn source_other_than(
        &mut self,
        facts: DatumFacts<'_>,
        datum: DatumId,
        server: NodeId,
        failed: &BTreeMap<NodeId, Time>,
    ) -> Option<Source> {
        self.refresh_links(facts.grid);
        let mut spread = self.transfers.remove(&datum).unwrap_or_default();
        spread.ended(server);
        let source = self.candidates(facts, datum, server, (&spread, failed)).first().map(|best| best.source);
        source.into_iter().for_each(|source| spread.begin(server, source));
        if !spread.is_empty() {
            self.transfers.insert(datum, spread);
        }
        source
    }

    /// Returns possible sources of a datum that is not being transferred to the server, best first. A source that
    /// failed is used again only if there is no other, and after a pause.
    pub(super) fn candidates(
        &self,
        facts: DatumFacts<'_>,
        datum: DatumId,
        server: NodeId,
        (spread, failed): (&DatumTransfers, &BTreeMap<NodeId, Time>),
    ) -> Vec<Candidate> {
        let (now, servers) = (facts.grid.now, facts.grid.servers);
        let Some(named) = facts.catalog.named(datum.whole()) else { return Vec::new() };
        let whole_bytes = named.meta.size_bytes();
        let bytes = datum.slice().map_or(0..whole_bytes, |number| slice_bytes(whole_bytes, number));
        let holders = facts.holders(datum);
        let others = datum.whole().slices().into_iter().filter(|slice| datum.slice().is_some() && *slice != datum);
        let beside: Vec<&DatumTransfers> = others.filter_map(|slice| self.spread_of(slice)).collect();
        let mut of_others: BTreeMap<NodeId, u32> = BTreeMap::new();
        let other = self.transfers.iter().filter(|(one, _)| one.whole() != datum.whole());
        other.flat_map(|(_, spread)| spread.pairs()).for_each(|(from, _)| *of_others.entry(from).or_default() += 1);
        let sends_others = &|node| of_others.get(&node).copied().unwrap_or(0);
        let candidates = |is_usable: &dyn Fn(NodeId) -> bool| {
            let way = &|a, b| self.link_between(facts.grid, a, b).0;
            let (now_s, size_bytes) = (now.seconds(), bytes.end - bytes.start);
            let shares_storage = &|node| shares_storage(servers, server, node, failed);
            let beside = &beside[..];
            let holders = &holders;
            let reader = Reader {
                now_s,
                server,
                size_bytes,
                holders,
                other_slices: beside,
                sends_others,
                is_usable,
                shares_storage,
                way,
            };
            spread.candidates(named.method, &reader)
        };
        let has_rested = |node: NodeId| failed.get(&node).is_none_or(|at| now.since(*at) >= HEARTBEAT_NS);
        match candidates(&|node| !failed.contains_key(&node)) {
            none if none.is_empty() => candidates(&has_rested),
            some => some,
        }
    }

    /// Returns the transfers of a datum that are in progress.
    pub(super) fn spread_of(&self, datum: DatumId) -> Option<&DatumTransfers> {
        self.transfers.get(&datum)
    }

    /// Returns the sources of a datum that have failed for a server.
    pub(super) fn failed_for(&self, datum: DatumId, server: NodeId) -> Option<&BTreeMap<NodeId, Time>> {
        self.searches.get(&(datum, server)).map(|search| &search.failed)
    }

    /// True if there is a holder other than `from` whose transfer of the datum to `server` has not failed.
    pub(super) fn has_other_source(&self, facts: DatumFacts<'_>, datum: DatumId, server: NodeId, from: NodeId) -> bool {
        let has_failed = |node: &NodeId| self.failed_for(datum, server).is_some_and(|failed| failed.contains_key(node));
        facts.holders(datum).iter().any(|node| *node != from && *node != server && !has_failed(node))
    }

    /// Updates the link estimates if they are older than a heartbeat.
    pub(super) fn refresh_links(&mut self, grid: GridFacts<'_>) {
        if self.links.as_ref().is_none_or(|(at, _)| grid.now.since(*at) >= HEARTBEAT_NS) {
            let known = grid.links.estimates().map(|(pair, link)| (pair.clone(), link));
            self.links = Some((grid.now, NetworkTree::new(known, [])));
        }
    }

    /// Returns the estimate for the link between two servers, and its basis.
    pub(super) fn link_between(&self, grid: GridFacts<'_>, from: NodeId, to: NodeId) -> (LinkEstimate, LinkBasis) {
        let (a, b) = (grid.servers.location(from), grid.servers.location(to));
        if a == b {
            return (LinkEstimate { bandwidth: f64::INFINITY, latency_s: 0.0 }, LinkBasis::SameHost);
        }
        let is_broken = |from, to| grid.servers.get(from).is_some_and(|server| server.reach(to) == Reach::Broken);
        if is_broken(from, to) || is_broken(to, from) {
            return (BROKEN_LINK, LinkBasis::Broken);
        }
        let Some((_, tree)) = &self.links else { return (LinkEstimate::UNMEASURED, LinkBasis::Unknown) };
        let (a, b) = (tree.number(&a), tree.number(&b));
        let link = tree.link(a, b);
        match tree.measured(a, b) {
            Some(_) => (link, LinkBasis::Measured),
            // Do not assume a fast link: all other servers would then get their copies over it.
            None if link == LinkEstimate::UNMEASURED => (tree.usual().unwrap_or(link), LinkBasis::Unknown),
            None => (link, LinkBasis::Others),
        }
    }

    /// Retries the searches for a datum that has new copies, or whose copies are all gone.
    pub(super) fn retry_of(&mut self, facts: DatumFacts<'_>, datum: DatumId, out: &mut Vec<Effect>) {
        let waiting = self.of(datum);
        waiting.into_iter().for_each(|(datum, server)| self.answer_search(facts, datum, server, out));
    }

    /// Retries all searches. Called at each heartbeat.
    pub(super) fn retry_all(&mut self, facts: DatumFacts<'_>, out: &mut Vec<Effect>) {
        for (datum, server) in self.searches.keys().copied().collect::<Vec<_>>() {
            self.answer_search(facts, datum, server, out);
        }
    }

    // ---- batches and slices

    /// Adds a server to the batch of a datum, or starts a batch. Returns true if the server waits for others.
    fn join_batch(&mut self, facts: DatumFacts<'_>, datum: DatumId, server: NodeId, out: &mut Vec<Effect>) -> bool {
        let now = facts.grid.now;
        if let Some(waits) = self.batches.join(now, datum, server) {
            return waits;
        }
        let Some(wait_s) = self.batch_wait_s(facts, datum, server) else { return false };
        self.batches.begin(now, datum, server, wait_s, out);
        true
    }

    /// Returns the seconds for which the first server that requests a datum may wait; `None` if it does not wait.
    fn batch_wait_s(&mut self, facts: DatumFacts<'_>, datum: DatumId, server: NodeId) -> Option<f64> {
        let named = facts.catalog.named(datum).filter(|_| datum.slice().is_none())?;
        let (size_bytes, method) = (named.meta.size_bytes(), named.method);
        let is_alone = facts.grid.servers.len() < 3;
        let is_coming = self.spread_of(datum).is_some();
        if is_alone || is_coming || size_bytes < SLICED_BYTES_MIN || !matches!(method, Method::Auto | Method::Swarm) {
            return None;
        }
        self.refresh_links(facts.grid);
        let takes_s = |node| self.link_between(facts.grid, node, server).0.seconds(size_bytes);
        let earliest_s = facts.holders(datum).into_iter().map(takes_s).min_by(f64::total_cmp)?;
        Batches::wait_s(earliest_s, method)
    }

    /// Assigns sources to the servers of batches that are due.
    pub(super) fn answer_batches(&mut self, facts: DatumFacts<'_>, out: &mut Vec<Effect>) {
        for (datum, servers) in self.batches.take_due(facts.grid.now) {
            if !self.answer_in_slices(facts, datum, &servers, out) {
                servers.into_iter().for_each(|server| self.assign_source(facts, datum, server, out));
            }
        }
        self.batches.set_timer(out);
    }

    /// Assigns sources of slices to the servers of a batch. Returns false if they must get the complete datum instead.
    fn answer_in_slices(
        &mut self,
        facts: DatumFacts<'_>,
        datum: DatumId,
        servers: &[NodeId],
        out: &mut Vec<Effect>,
    ) -> bool {
        let Some(named) = facts.catalog.named(datum) else { return false };
        let now = facts.grid.now;
        self.refresh_links(facts.grid);
        let holders = facts.holders(datum);
        let (size_bytes, way) = (named.meta.size_bytes(), &|a, b| self.link_between(facts.grid, a, b).0);
        let batch = Batch { now_s: now.seconds(), size_bytes, holders: &holders, readers: servers, way };
        let Some(slices) = batch.in_slices(named.method) else { return false };
        for server in servers {
            let sources: Vec<(DatumId, Source)> = datum
                .slices()
                .into_iter()
                .zip(&slices)
                .filter_map(|(slice, spread)| Some((slice, spread.source_of(*server)?)))
                .collect();
            if sources.len() < slices.len() || !self.answered(now, datum, *server) {
                self.assign_source(facts, datum, *server, out);
                continue;
            }
            supply_slices(facts.grid.servers, *server, &named.meta, &sources, out);
            sources.into_iter().for_each(|(slice, source)| self.begin(slice, *server, source));
        }
        true
    }

    /// Assigns sources of slices to a server, if other servers are receiving the datum in slices. Returns false if it
    /// does not get slices.
    fn joins_slices(&mut self, facts: DatumFacts<'_>, datum: DatumId, server: NodeId, out: &mut Vec<Effect>) -> bool {
        let slices = datum.slices();
        if datum.slice().is_some() || slices.iter().all(|slice| self.spread_of(*slice).is_none()) {
            return false;
        }
        let Some(named) = facts.catalog.named(datum) else { return false };
        let source = |slice: DatumId| Some((slice, self.source_for(facts, slice, server)?));
        let sources: Vec<(DatumId, Source)> = slices.into_iter().filter_map(source).collect();
        if sources.len() < slices.len() || !self.answered(facts.grid.now, datum, server) {
            sources.iter().for_each(|(slice, _)| self.transfer_not_started(*slice, server));
            return false;
        }
        supply_slices(facts.grid.servers, server, &named.meta, &sources, out);
        true
    }
}

/// Sends a server the sources of all slices of a datum.
fn supply_slices(
    servers: &Registry,
    server: NodeId,
    meta: &Meta,
    sources: &[(DatumId, Source)],
    out: &mut Vec<Effect>,
) {
    let supply = |(slice, source): &(DatumId, Source)| {
        Supply::direct(*slice, meta.clone(), source.node, servers.address(source.node), source.hops)
    };
    send(out, server, TaskToServer::Resupply { supplies: sources.iter().map(supply).collect() });
}

/// True if two servers share a storage, and no source of the datum has failed for the first server.
fn shares_storage(servers: &Registry, server: NodeId, other: NodeId, failed: &BTreeMap<NodeId, Time>) -> bool {
    let storage = |node| servers.get(node).and_then(|server| server.registration.storage);
    failed.is_empty() && storage(server).is_some() && storage(server) == storage(other)
}

#[cfg(test)]
mod tests {
    use super::super::Agent;
    use super::super::models::tests::{agent, register};
    use super::*;
    use crate::node::message::{Message, ServerToCatalog, StoredVersion, SupplyFault, TaskMessage, TaskToClient};
    use crate::node::protocol::Input;
    use crate::node::{AgentTimer, Timer};
    use gridloom_base::time::SECOND_NS;
    use gridloom_base::{Dtype, Machine, Meta, NamedDatum};

    const SEEKER: NodeId = NodeId(4);
    const DATUM: DatumId = DatumId { client: NodeId::CATALOG, serial: 1 };

    /// Returns the sources that the agent assigns in response to an input.
    fn sources(agent: &mut Agent, at: Time, input: Input) -> Vec<NodeId> {
        let mut out = Vec::new();
        agent.handle(at, input, &mut out);
        let of = |effect| match effect {
            Effect::Send {
                to: SEEKER,
                message: Message::Task(TaskMessage::ToServer(TaskToServer::Resupply { supplies })),
            } => Some(supplies[0].from),
            _ => None,
        };
        out.into_iter().filter_map(of).collect()
    }

    fn failed(from: NodeId) -> Input {
        let (datum, fault) = (DATUM, SupplyFault::Unreachable);
        let message = TaskToClient::SupplyFailed { datum, from, fault, why: "no route".into() }.into();
        Input::Received { from: SEEKER, message }
    }

    #[test]
    fn a_failed_source_is_used_again_after_a_pause() {
        let mut agent = agent();
        (2..=4).for_each(|node| register(&mut agent, node, &format!("host-{node}:1"), 1.0, 1.0));
        let meta = Meta::array(Dtype::Uint8, &[5]);
        for from in [NodeId(2), NodeId(3)] {
            let named = NamedDatum {
                datum: DATUM,
                name: "mesh".into(),
                version: 1,
                meta: meta.clone(),
                replicas: 2,
                is_durable: false,
                method: Method::Auto,
                put_by: None,
                readers: Default::default(),
            };
            let message =
                ServerToCatalog::StoredVersions { data: vec![StoredVersion { named, is_current: true }] }.into();
            agent.handle(Time(10), Input::Received { from, message }, &mut Vec::new());
        }
        let at = |ns: u64| Time(SECOND_NS + ns);
        assert_eq!(sources(&mut agent, at(0), failed(NodeId(2))), [NodeId(3)]);
        assert_eq!(sources(&mut agent, at(1), failed(NodeId(3))), [], "both have just failed");
        let beat = || Input::Timer(Timer::Agent(AgentTimer::Heartbeat));
        assert_eq!(sources(&mut agent, at(HEARTBEAT_NS - 1), beat()), []);
        let again = sources(&mut agent, at(HEARTBEAT_NS + 1), beat());
        assert_eq!(again.len(), 1);
        assert_eq!(
            sources(&mut agent, at(HEARTBEAT_NS + 2), failed(again[0])).len(),
            1,
            "the pause of the other source is over, too"
        );
    }
}

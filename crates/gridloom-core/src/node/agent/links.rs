//! Links between hosts: learned from transfers that servers report, probed where there are no transfers, and sent to
//! clients when they affect the clients' plans.
//!
//! Servers report the transfers that they received, and the agent learns from them, because only the agent knows which
//! other transfers shared the sender's network interface. Servers of one host share a network interface, so a link
//! measured by one of them applies to all.

use std::ops::Bound::{Excluded, Unbounded};

use super::{Agent, Registered, send};
use crate::node::AgentTimer;
use crate::node::message::ReceivedTransfer;
use crate::node::message::{DirectoryToServer, MapToClient};
use crate::node::protocol::Effect;
use gridloom_base::limits::{
    HEARTBEAT_NS, LEARN_BYTES_MIN, REMAP_PART_MAX, SHARED_NIC_SERVERS_MAX, TRANSFERS_PER_REPORT,
};
use gridloom_base::{GroupId, NodeId, Time};
use gridloom_map::Plan;
use gridloom_perf::{Bottleneck, CompletedTransfer, GridView, LinkReport};
use gridloom_perf::{LinkEstimate, host_of};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// An ordered pair of hosts.
pub(super) type Pair = (String, String);

/// The assumptions behind the plan of a group.
#[derive(Debug)]
pub(super) struct PlanAssumptions {
    makespan_s: f64,
    /// Bytes that the plan transfers between hosts, by pair. The client handles transfers to and from itself.
    transfers: BTreeMap<Pair, u64>,
    /// Bandwidths that were known when the plan was made. Plans made from the same bandwidths share one map.
    known: Arc<BTreeMap<Pair, f64>>,
    /// Bandwidths that the plan assumed without a measurement, or of which the client was notified since.
    notified: BTreeMap<Pair, f64>,
}

impl Agent {
    /// Returns the location of a node for the link models: the host of a server, and a location of its own for any other node.
    pub(super) fn location(&self, node: NodeId) -> String {
        let server = self.servers.get(&node);
        server.map_or_else(|| node.to_string(), |server| host_of(&server.registration.address).to_string())
    }

    pub(super) fn on_link_measured(
        &mut self,
        now: Time,
        from: NodeId,
        to: NodeId,
        link: LinkEstimate,
        out: &mut Vec<Effect>,
    ) {
        let pair = (self.location(from), self.location(to));
        let Some(server) = self.servers.get_mut(&from).filter(|_| link.is_sane()) else { return };
        let was_measured = matches!(server.links.insert(to, Some(link)), Some(Some(_)));
        // On hosts with several servers, another pair of servers may have sent the first probe.
        let is_first = !was_measured && !self.links.is_awaited(&pair);
        self.turn_measured(from, to);
        let moving = self.pairs_in_transfer();
        if is_first {
            self.links.add_concurrent_first_probe(now, pair.clone(), link, &moving);
        } else {
            self.links.add_probe(now, pair.clone(), link, &moving);
            self.link_changed(&pair, out);
        }
        self.update_paths(now, &pair, out);
    }

    /// Returns the pairs of hosts between which transfers may be in progress: those of current plans, and of shared data.
    fn pairs_in_transfer(&self) -> BTreeSet<Pair> {
        let planned = self.plans.values().flat_map(|plan| plan.transfers.keys().cloned());
        let shared = self.names.searches.transfer_pairs().map(|(from, to)| (self.location(from), self.location(to)));
        planned.chain(shared).collect()
    }

    pub(super) fn on_transfers_seen(
        &mut self,
        now: Time,
        to: NodeId,
        transfers: &[ReceivedTransfer],
        out: &mut Vec<Effect>,
    ) {
        let is_known = |node: NodeId| self.servers.contains_key(&node) || self.directory.is_subscribed(node);
        if !is_known(to) {
            return;
        }
        let at = self.location(to);
        // Transfers from nodes that are gone are not stored.
        let transfers = transfers.iter().take(TRANSFERS_PER_REPORT).filter(|one| is_known(one.from));
        for one in transfers.copied().collect::<Vec<_>>() {
            let from = self.location(one.from);
            if one.duration_ns == 0 || one.size_bytes < LEARN_BYTES_MIN || from == at {
                continue;
            }
            let end = now - one.age_ns;
            let seen = CompletedTransfer {
                from,
                to: at.clone(),
                size_bytes: one.size_bytes,
                start: end - one.duration_ns,
                end,
            };
            let settles = self.links.add_transfer(now, seen);
            if !std::mem::replace(&mut self.settle_timer_is_set, true) {
                out.push(Effect::SetTimer { timer: AgentTimer::TransfersSettled.into(), at: settles });
            }
        }
    }

    pub(super) fn on_settled(&mut self, now: Time, out: &mut Vec<Effect>) {
        let (changed, again) = self.links.learn_waiting(now);
        self.settle_timer_is_set = again.is_some();
        if let Some(at) = again {
            out.push(Effect::SetTimer { timer: AgentTimer::TransfersSettled.into(), at });
        }
        for pair in changed {
            self.link_changed(&pair, out);
        }
    }

    /// Records a client's estimates of its links. The path to and from the client is learned from the client's
    /// transfers.
    pub(super) fn record_client_links<'a>(
        &mut self,
        now: Time,
        client: NodeId,
        links: impl Iterator<Item = &'a (NodeId, LinkEstimate)>,
    ) {
        for (server, link) in links.filter(|(server, _)| self.servers.contains_key(server)).collect::<Vec<_>>() {
            let (here, there) = (self.location(client), self.location(*server));
            self.links.add_first_probe(now, here.clone(), there.clone(), *link);
            self.links.add_first_probe(now, there, here, *link);
        }
    }

    /// Returns the bottlenecks that links between these servers and to and from the client share, by index. The
    /// client's index is one past the last server.
    pub(super) fn bottlenecks(&self, servers: &[NodeId], client: NodeId) -> Vec<Bottleneck<usize>> {
        let mut at: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (index, node) in servers.iter().chain([&client]).enumerate() {
            at.entry(self.location(*node)).or_default().push(index);
        }
        let mut found = self.links.bottlenecks();
        found.extend(self.links.inter_site_paths(|place| at.contains_key(place)));
        found.extend(self.shared_nics(&at));
        let numbered = found.into_iter().map(|one| {
            let indices = |place: &String| at.get(place).into_iter().flatten().copied();
            let of_pair = |(from, to): &(String, String)| {
                let to: Vec<usize> = indices(to).collect();
                indices(from).flat_map(move |from| to.clone().into_iter().map(move |to| (from, to))).collect::<Vec<_>>()
            };
            Bottleneck { pairs: one.pairs.iter().flat_map(of_pair).collect(), bandwidth: one.bandwidth }
        });
        numbered.filter(|one| one.pairs.len() > 1).collect()
    }

    /// Returns the network interfaces of hosts with several servers, outgoing and incoming. Each is assumed to be as
    /// fast as its fastest link.
    fn shared_nics(&self, at: &BTreeMap<String, Vec<usize>>) -> Vec<Bottleneck<String>> {
        let several = at.iter().filter(|(_, servers)| (2..=SHARED_NIC_SERVERS_MAX).contains(&servers.len()));
        let cards = several.flat_map(|(host, _)| {
            let others = || at.keys().filter(move |other| *other != host);
            let out = others().map(|other| (host.clone(), other.clone())).collect::<Vec<_>>();
            let into = others().map(|other| (other.clone(), host.clone())).collect();
            [out, into]
        });
        let cards = cards.filter_map(|pairs: Vec<Pair>| {
            let known = pairs.iter().filter_map(|(from, to)| Some(self.links.of(from, to)?.estimate()?.bandwidth));
            let bandwidth = known.max_by(f64::total_cmp)?;
            Some(Bottleneck { pairs, bandwidth })
        });
        cards.collect()
    }

    /// Records a plan made for this grid. Its client is notified when the plan's assumptions no longer hold.
    pub(super) fn record_plan(&mut self, group: GroupId, plan: &Plan, grid: &GridView) {
        let mut moves: BTreeMap<Pair, u64> = BTreeMap::new();
        let mut supposed: BTreeMap<Pair, f64> = BTreeMap::new();
        for transfer in &plan.transfers {
            let (Some(from), Some(to)) = (grid.server(transfer.from), grid.server(transfer.to)) else { continue };
            let pair = (self.location(transfer.from), self.location(transfer.to));
            let bytes = moves.entry(pair.clone()).or_default();
            *bytes = bytes.saturating_add(transfer.size_bytes);
            if let Some(link) = grid.links[from][to].filter(|_| self.links.of(&pair.0, &pair.1).is_none()) {
                supposed.insert(pair, link.bandwidth);
            }
        }
        let known: BTreeMap<Pair, f64> =
            self.links.estimates().map(|(pair, link)| (pair.clone(), link.bandwidth)).collect();
        let last = self.plans.values().next_back().map(|plan| plan.known.clone());
        let known = last.filter(|last| **last == known).unwrap_or_else(|| Arc::new(known));
        self.plans.insert(
            group,
            PlanAssumptions { makespan_s: plan.makespan_s, transfers: moves, known, notified: supposed },
        );
    }

    /// Notifies the clients of plans that use a link that has become much slower, or of plans that could now use a
    /// link that has become much faster, if mapping again may pay off.
    fn link_changed(&mut self, pair: &Pair, out: &mut Vec<Effect>) {
        let is_host = |place: &str| self.servers.values().any(|s| host_of(&s.registration.address) == place);
        let Some(model) = self.links.of(&pair.0, &pair.1) else { return };
        // Clients measure the links to and from themselves.
        if !is_host(&pair.0) || !is_host(&pair.1) {
            return;
        }
        let back = (pair.1.clone(), pair.0.clone());
        for (group, plan) in &mut self.plans {
            // As in the mapping, a pair that was measured in one direction only is assumed to be symmetric.
            let known = plan.known.get(pair).or_else(|| plan.known.get(&back));
            let before = plan.notified.get(pair).or(known).copied().unwrap_or(LinkEstimate::UNMEASURED.bandwidth);
            let Some(change) = model.change_from(before) else { continue };
            let over_it = plan.transfers.get(pair).copied().unwrap_or(0);
            let bytes =
                if change < 1.0 { over_it } else { plan.transfers.values().copied().fold(0, u64::saturating_add) };
            let difference_s = bytes as f64 * (1.0 / (before * change) - 1.0 / before).abs();
            if difference_s < REMAP_PART_MAX * plan.makespan_s {
                continue;
            }
            plan.notified.insert(pair.clone(), before * change);
            let (from, to) = (&pair.0, &pair.1);
            let why =
                format!("the link from '{from}' to '{to}' is {change:.2} times as fast as when the group was mapped");
            send(out, group.client, MapToClient::Stale { group: *group, why });
        }
    }

    /// Requests a measurement of one link that has not been measured for a long time; doubtful links come first. Only
    /// one link is measured at a time, so that probes do not disturb one another, and servers take turns.
    pub(super) fn request_probe(&mut self, now: Time, out: &mut Vec<Effect>) {
        let on = |host: &str| self.servers.iter().find(|(_, server)| host_of(&server.registration.address) == host);
        let suspects = self.links.suspects().filter(|pair| self.links.is_due(now, pair)).cloned();
        let narrow =
            self.links.narrow_pairs().into_iter().filter(|pair| now.since(self.links.last(pair)) >= HEARTBEAT_NS);
        let mut suspects: Vec<Pair> = suspects.chain(narrow).collect();
        suspects.sort_by_key(|pair| self.links.last(pair));
        // Clients probe the links to and from themselves.
        let suspect = suspects.into_iter().find_map(|(from, to)| Some((*on(&from)?.0, *on(&to)?.0)));
        let Some((from, to)) = suspect.or_else(|| self.next_due_link(now)) else { return };
        self.links.request_probe(now, (self.location(from), self.location(to)));
        self.forget_measurements(from, to);
        let address = self.servers[&to].registration.address.clone();
        send(out, from, DirectoryToServer::MeasureLink { to, address });
    }

    /// Returns the server whose turn it is, and the server at the other end of its link that is due for a probe and was
    /// measured longest ago.
    fn next_due_link(&mut self, now: Time) -> Option<(NodeId, NodeId)> {
        let usable = |server: &Registered| !server.registration.is_stateless && server.links_done;
        let after = self.servers.range((Excluded(self.probe_turn), Unbounded)).chain(&self.servers);
        let (from, sender) = after.into_iter().find(|(_, server)| usable(server))?;
        let (from, here) = (*from, self.location(*from));
        let due = self.servers.iter().filter(|(_, server)| usable(server)).filter_map(|(to, receiver)| {
            let pair = (here.clone(), self.location(*to));
            let is_broken = [sender.links.get(to), receiver.links.get(&from)].contains(&Some(&None));
            let is_due = pair.0 != pair.1 && !is_broken && self.links.is_due(now, &pair);
            is_due.then(|| (self.links.last(&pair), *to))
        });
        let oldest = due.min();
        self.probe_turn = from;
        oldest.map(|(_, to)| (from, to))
    }

    /// Forgets the links of a node that is gone. A host is forgotten with its last server.
    pub(super) fn forget_links(&mut self, place: &str) {
        if !self.servers.values().any(|server| host_of(&server.registration.address) == place) {
            self.links.forget(&place.to_string());
            self.forget_paths(place);
        }
    }

    pub(super) fn link_reports(&self, now: Time) -> Vec<LinkReport> {
        self.links.report(now, |place| place.clone())
    }
}

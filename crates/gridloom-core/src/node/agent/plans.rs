//! Plans of groups that have not ended: the capacity that they reserve, and their assumptions. If an assumption no longer
//! holds, the client is notified, and may have the remaining tasks mapped again.
//!
//! **Invariant:** reservations are of registered servers and of groups that have not ended.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::paths::Pair;
use super::send;
use crate::node::message::MapToClient;
use crate::node::protocol::Effect;
use gridloom_base::limits::{REMAP_PART_MAX, STALE_FACTOR};
use gridloom_base::{GroupId, NodeId, Time};
use gridloom_map::Plan;
use gridloom_perf::{GridView, LinkEstimate, LinkModel, Links};

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Plans {
    assumptions: BTreeMap<GroupId, PlanAssumptions>,
    reservations: BTreeMap<NodeId, BTreeMap<GroupId, Reservation>>,
}

/// The assumptions about links behind the plan of a group.
#[derive(Debug)]
struct PlanAssumptions {
    makespan_s: f64,
    /// Bytes that the plan transfers between hosts, by pair. The client handles transfers to and from itself.
    transfers: BTreeMap<Pair, u64>,
    /// Bandwidths that were known when the plan was made. Plans made from the same bandwidths share one map.
    known: Arc<BTreeMap<Pair, f64>>,
    /// The hosts whose links the plan could use, if these are not all.
    hosts: Option<BTreeSet<String>>,
    /// Bandwidths that the plan assumed without a measurement, or of which the client was notified since.
    notified: BTreeMap<Pair, f64>,
}

/// A group's reservation of a server, with the assumption about the server's pace.
#[derive(Clone, Copy, Debug)]
struct Reservation {
    /// Predicted end of the group's tasks on this server.
    end: Time,
    /// The server's pace at the time of the plan, or when its client was last notified.
    pace: f64,
}

impl Plans {
    // ---- queries

    /// Returns the numbers of plans and of reservations.
    pub(super) fn counts(&self) -> (usize, usize) {
        (self.assumptions.len(), self.reservations.values().map(BTreeMap::len).sum())
    }

    /// Returns the nanoseconds for which groups other than this one have reserved a server.
    pub(super) fn busy_ns(&self, now: Time, server: NodeId, except: GroupId) -> u64 {
        let groups = self.reservations.get(&server).into_iter().flatten();
        let others = groups.filter(|(group, _)| **group != except);
        others.map(|(_, reservation)| reservation.end.since(now)).max().unwrap_or(0)
    }

    /// Returns the pairs of hosts between which plans transfer data.
    pub(super) fn transfers(&self) -> impl Iterator<Item = &Pair> {
        self.assumptions.values().flat_map(|plan| plan.transfers.keys())
    }

    // ---- plans

    /// Reserves a server, which now has this pace, for a group.
    pub(super) fn reserve(&mut self, server: NodeId, group: GroupId, end: Time, pace: f64) {
        self.reservations.entry(server).or_default().insert(group, Reservation { end, pace });
    }

    /// Records the assumptions of a plan made for this grid, which is part of a large one if `is_large`.
    pub(super) fn add(
        &mut self,
        group: GroupId,
        plan: &Plan,
        (grid, is_large): (&GridView, bool),
        links: &Links<String>,
        location: impl Fn(NodeId) -> String,
    ) {
        let mut transfers: BTreeMap<Pair, u64> = BTreeMap::new();
        let mut assumed: BTreeMap<Pair, f64> = BTreeMap::new();
        for transfer in &plan.transfers {
            let (Some(from), Some(to)) = (grid.server(transfer.from), grid.server(transfer.to)) else { continue };
            let pair = (location(transfer.from), location(transfer.to));
            let bytes = transfers.entry(pair.clone()).or_default();
            *bytes = bytes.saturating_add(transfer.size_bytes);
            if let Some(link) = grid.links[from][to].filter(|_| links.of(&pair.0, &pair.1).is_none()) {
                assumed.insert(pair, link.bandwidth);
            }
        }
        let hosts = is_large.then(|| grid.servers.iter().map(|server| location(server.node)).collect::<BTreeSet<_>>());
        let bandwidth = |(pair, link): (&Pair, LinkEstimate)| (pair.clone(), link.bandwidth);
        let known: BTreeMap<Pair, f64> = match &hosts {
            Some(hosts) => links.estimates_between(hosts).map(bandwidth).collect(),
            None => links.estimates().map(bandwidth).collect(),
        };
        let last = self.assumptions.values().next_back().map(|plan| plan.known.clone());
        let known = last.filter(|last| **last == known).unwrap_or_else(|| Arc::new(known));
        let plan = PlanAssumptions { makespan_s: plan.makespan_s, transfers, known, hosts, notified: assumed };
        self.assumptions.insert(group, plan);
    }

    pub(super) fn group_ended(&mut self, group: GroupId) {
        self.assumptions.remove(&group);
        self.reservations.retain(|_, groups| {
            groups.remove(&group);
            !groups.is_empty()
        });
    }

    pub(super) fn client_lost(&mut self, client: NodeId) {
        self.assumptions.retain(|group, _| group.client != client);
        self.reservations.retain(|_, groups| {
            groups.retain(|group, _| group.client != client);
            !groups.is_empty()
        });
    }

    /// Drops the reservations of a server that is gone, or registers again.
    pub(super) fn server_lost(&mut self, server: NodeId) {
        self.reservations.remove(&server);
    }

    // ---- changes of assumptions

    /// Notifies the clients of plans that use a link between servers that has become much slower, or of plans that could
    /// now use a link that has become much faster, if mapping again may pay off.
    pub(super) fn link_changed(&mut self, pair: &Pair, model: &LinkModel, out: &mut Vec<Effect>) {
        let back = (pair.1.clone(), pair.0.clone());
        for (group, plan) in &mut self.assumptions {
            if plan.hosts.as_ref().is_some_and(|hosts| !(hosts.contains(&pair.0) && hosts.contains(&pair.1))) {
                continue;
            }
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

    /// Notifies the clients of plans that assumed another pace of a server.
    pub(super) fn pace_changed(&mut self, server: NodeId, name: &str, pace: f64, out: &mut Vec<Effect>) {
        for (group, reservation) in self.reservations.get_mut(&server).into_iter().flatten() {
            let change = pace / reservation.pace;
            if !(1.0 / STALE_FACTOR..STALE_FACTOR).contains(&change) {
                reservation.pace = pace;
                let why =
                    format!("calls on server '{name}' take {change:.1} times as long as when the group was mapped");
                send(out, group.client, MapToClient::Stale { group: *group, why });
            }
        }
    }

    /// Notifies the clients of all groups that have reserved one of these servers.
    pub(super) fn servers_changed(&self, servers: impl Iterator<Item = NodeId>, why: &str, out: &mut Vec<Effect>) {
        let groups: BTreeSet<GroupId> =
            servers.filter_map(|server| self.reservations.get(&server)).flat_map(BTreeMap::keys).copied().collect();
        for group in groups {
            send(out, group.client, MapToClient::Stale { group, why: why.to_string() });
        }
    }

    /// Notifies the clients of all groups that have reserved other servers but not this one, which can be used now.
    pub(super) fn server_joined(&self, server: NodeId, name: &str, out: &mut Vec<Effect>) {
        let groups: BTreeSet<GroupId> = self.reservations.values().flat_map(BTreeMap::keys).copied().collect();
        let uses = |group: &GroupId| self.reservations.get(&server).is_some_and(|groups| groups.contains_key(group));
        for group in groups.into_iter().filter(|group| !uses(group)) {
            send(out, group.client, MapToClient::Stale { group, why: format!("server '{name}' has joined") });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::message::{MapMessage, Message};

    const SERVERS: [NodeId; 2] = [NodeId(2), NodeId(3)];

    fn group(client: u64, serial: u64) -> GroupId {
        GroupId { client: NodeId(client), serial }
    }

    /// Two groups reserve the first server, the first group also the second one.
    fn plans() -> Plans {
        let mut plans = Plans::default();
        plans.reserve(SERVERS[0], group(9, 1), Time(100), 1.0);
        plans.reserve(SERVERS[1], group(9, 1), Time(300), 1.0);
        plans.reserve(SERVERS[0], group(8, 1), Time(200), 2.0 * STALE_FACTOR);
        plans
    }

    /// Returns the groups whose clients are notified, in order.
    fn stale(notify: impl FnOnce(&mut Vec<Effect>)) -> Vec<GroupId> {
        let mut out = Vec::new();
        notify(&mut out);
        let group = |effect| match effect {
            Effect::Send { to, message: Message::Map(MapMessage::ToClient(MapToClient::Stale { group, .. })) } => {
                assert_eq!(to, group.client);
                group
            }
            other => panic!("{other:?}"),
        };
        out.into_iter().map(group).collect()
    }

    #[test]
    fn reservations_of_other_groups_count_until_they_end() {
        let mut plans = plans();
        let busy = |plans: &Plans, except| SERVERS.map(|server| plans.busy_ns(Time(50), server, except));
        assert_eq!(busy(&plans, group(9, 1)), [150, 0]);
        assert_eq!(busy(&plans, group(8, 1)), [50, 250]);
        plans.group_ended(group(9, 1));
        assert_eq!((busy(&plans, group(7, 1)), plans.counts()), ([150, 0], (0, 1)));
        plans.client_lost(NodeId(8));
        assert_eq!(plans.counts(), (0, 0));
    }

    #[test]
    fn clients_are_notified_once_of_a_pace_that_has_changed_much() {
        let mut plans = plans();
        let pace = 2.0 * STALE_FACTOR;
        assert_eq!(stale(|out| plans.pace_changed(SERVERS[0], "one", pace, out)), [group(9, 1)]);
        assert_eq!(stale(|out| plans.pace_changed(SERVERS[0], "one", pace, out)), []);
        assert_eq!(stale(|out| plans.pace_changed(NodeId(4), "unused", pace, out)), []);
    }

    #[test]
    fn a_group_is_notified_once_of_changed_servers_and_of_a_new_one() {
        let mut plans = plans();
        assert_eq!(stale(|out| plans.servers_changed(SERVERS.into_iter(), "", out)), [group(8, 1), group(9, 1)]);
        assert_eq!(stale(|out| plans.servers_changed([SERVERS[1]].into_iter(), "", out)), [group(9, 1)]);
        assert_eq!(stale(|out| plans.server_joined(SERVERS[1], "two", out)), [group(8, 1)]);
        plans.server_lost(SERVERS[1]);
        assert_eq!(stale(|out| plans.server_joined(SERVERS[1], "two", out)), [group(8, 1), group(9, 1)]);
    }
}

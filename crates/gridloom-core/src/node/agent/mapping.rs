//! Mapping: the grid as a client sees it, and the plans that are asked for.

use super::{Agent, Promise, Registered, send};
use crate::node::AgentTimer;
use crate::node::message::MapRequest;
use crate::node::message::MapToClient;
use crate::node::message::Purpose;
use crate::node::protocol::Effect;
use gridloom_base::limits::MEASURE_WAIT_NS_MAX;
use gridloom_base::time::ns_to_seconds;
use gridloom_base::time::seconds_to_ns;
use gridloom_base::{GroupId, NodeId, Time};
use gridloom_map::Seen;
use gridloom_perf::{GridView, host_of};
use gridloom_perf::{LinkEstimate, ServerView};
use std::collections::BTreeMap;

/// Bytes per second within a host, at the least, whatever a probe says that was disturbed: memory, shared or through the
/// loopback device.
const SAME_HOST_BANDWIDTH_MIN: f64 = 1e9;

impl Agent {
    /// The grid as known, for a client with those links, leaving out what `group` itself was promised. Without a group,
    /// without the links between servers.
    pub(super) fn grid_view(
        &self,
        now: Time,
        client_links: &[(NodeId, LinkEstimate)],
        without: &[NodeId],
        group: Option<GroupId>,
    ) -> GridView {
        let mut servers: Vec<(&NodeId, &Registered)> =
            self.servers.iter().filter(|(node, _)| !without.contains(node)).collect();
        servers.sort_by(|a, b| a.1.registration.name.cmp(&b.1.registration.name));
        let speeds = self.speeds();
        let hosts: Vec<&str> = servers.iter().map(|(_, server)| host_of(&server.registration.address)).collect();
        let links: BTreeMap<(&str, &str), LinkEstimate> = match group {
            Some(_) => self.links.estimates().map(|((a, b), link)| ((a.as_str(), b.as_str()), link)).collect(),
            None => BTreeMap::new(),
        };
        let mapped = if group.is_some() { servers.len() } else { 0 };
        let host = |node: &NodeId| self.servers.get(node).map(|s| host_of(&s.registration.address));
        let mut by_host: BTreeMap<&str, Vec<LinkEstimate>> = BTreeMap::new();
        for (node, link) in client_links {
            if let Some(host) = host(node) {
                by_host.entry(host).or_default().push(*link);
            }
        }
        let better_elsewhere = self.better_elsewhere();
        let views = servers.iter().map(|(node, server)| {
            let r = &server.registration;
            let busy =
                server.promised.iter().filter(|(id, _)| Some(**id) != group).map(|(_, promise)| promise.end.since(now));
            let busy_s = ns_to_seconds(busy.max().unwrap_or(0));
            let processors = server.processors.as_str();
            let speed_flops = speeds.get(processors).copied();
            ServerView {
                node: **node,
                name: r.name.clone(),
                address: r.address.clone(),
                slots: r.slots,
                plain: r.plain,
                memory_bytes: r.memory_bytes,
                speed_flops,
                pace: server.pace,
                functions: r
                    .functions
                    .iter()
                    .filter(|s| !(server.unable.contains(&s.name) && better_elsewhere.contains(s.name.as_str())))
                    .map(|s| (s.name.clone(), self.models.of(processors, &s.name, &speeds)))
                    .collect(),
                busy_s: vec![busy_s; r.slots as usize],
            }
        });
        let link = |from: usize, to: usize| {
            let (a, b) = (servers[from], servers[to]);
            if from == to || a.1.registration.plain || b.1.registration.plain {
                return None;
            }
            // A pair that was measured one way only is taken to be alike both ways.
            match (a.1.links.get(b.0), b.1.links.get(a.0)) {
                (Some(None), _) | (None, Some(None)) => None,
                (Some(Some(_)) | None, Some(Some(_)) | None) | (Some(Some(_)), Some(None)) => {
                    let (here, there) = (hosts[from], hosts[to]);
                    let link = links.get(&(here, there)).or_else(|| links.get(&(there, here)));
                    let mut link = link.copied().unwrap_or(LinkEstimate::UNMEASURED);
                    if here == there {
                        link.bandwidth = link.bandwidth.max(SAME_HOST_BANDWIDTH_MIN);
                    }
                    Some(link)
                }
            }
        };
        let nodes: Vec<NodeId> = servers.iter().map(|(node, _)| **node).collect();
        let bottlenecks = group.map(|group| self.bottlenecks(&nodes, group.client));
        GridView {
            client_links: servers
                .iter()
                .map(|(_, server)| by_host.get(host_of(&server.registration.address)))
                .map(|links| links.map_or(LinkEstimate::UNMEASURED, |links| best_link(links)))
                .collect(),
            links: (0..mapped).map(|i| (0..mapped).map(|j| link(i, j)).collect()).collect(),
            bottlenecks: bottlenecks.unwrap_or_default(),
            servers: views.collect(),
        }
    }

    /// Mean speed of the servers with the same processors.
    pub(super) fn speeds(&self) -> BTreeMap<&str, f64> {
        let known = self.servers.values().filter_map(|s| Some((s.processors.as_str(), s.speed_flops?)));
        means(known)
    }

    /// Maps the groups that wait, unless servers that came a moment ago are still being measured.
    pub(super) fn map_waiting(&mut self, now: Time, out: &mut Vec<Effect>) {
        if self.waiting.is_empty() {
            return;
        }
        let unmeasured = self
            .servers
            .values()
            .filter(|s| !s.links_done || s.speed_flops.is_none())
            .map(|s| s.since + MEASURE_WAIT_NS_MAX)
            .filter(|until| *until > now)
            .max();
        if let Some(until) = unmeasured {
            out.push(Effect::SetTimer { timer: AgentTimer::Measured.into(), at: until });
            return;
        }
        for request in std::mem::take(&mut self.waiting) {
            self.map_group(now, request, out);
        }
    }

    fn map_group(&mut self, now: Time, request: MapRequest, out: &mut Vec<Effect>) {
        let MapRequest { group, round, mut outline, heuristic, purpose, client_links, without, busy } = request;
        let client = group.client;
        self.client_links_told(now, client, &client_links);
        let mut grid = self.grid_view(now, &client_links, &without, Some(group));
        occupy(&mut grid, &busy);
        // Holders that are not known here, or no longer: the client gets at what they hold, or has it made again.
        for datum in outline.data.iter_mut().filter(|datum| datum.producer.is_none()) {
            datum.at.retain(|node| *node == client || grid.server(*node).is_some());
            if datum.at.is_empty() {
                datum.at.push(client);
            }
        }
        match heuristic.map(&outline, &grid, client) {
            Ok(plan) => {
                let mut ends: BTreeMap<NodeId, f64> = BTreeMap::new();
                for task in &plan.tasks {
                    let end = ends.entry(task.server).or_default();
                    *end = end.max(task.end_s);
                }
                for (node, end_s) in ends.iter().filter(|_| purpose != Purpose::Look) {
                    let end = now + seconds_to_ns(*end_s);
                    let server = self.servers.get_mut(node).expect("mapped onto a known server");
                    server.promised.insert(group, Promise { end, pace: server.pace });
                }
                if purpose == Purpose::Run {
                    self.planned(group, &plan);
                }
                let addresses =
                    grid.servers.iter().filter(|s| ends.contains_key(&s.node)).map(|s| (s.node, s.address.clone()));
                let addresses = addresses.collect();
                let seen = (purpose != Purpose::Run).then(|| Box::new(Seen::new(client, outline, grid)));
                send(out, client, MapToClient::GroupMapped { group, round, plan, addresses, seen });
            }
            Err(why) => send(out, client, MapToClient::GroupNotMapped { group, round, why: why.to_string() }),
        }
    }
}

/// Puts tasks that are under way on the slots that are free first.
fn occupy(grid: &mut GridView, busy: &[(NodeId, f64)]) {
    for (node, seconds) in busy.iter().filter(|(_, seconds)| seconds.is_finite() && *seconds > 0.0) {
        if let Some(at) = grid.server(*node) {
            let slots = &mut grid.servers[at].busy_s;
            if let Some(first) = slots.first_mut() {
                *first += seconds;
            }
            slots.sort_by(f64::total_cmp);
        }
    }
}

fn means<'a>(values: impl Iterator<Item = (&'a str, f64)>) -> BTreeMap<&'a str, f64> {
    let mut sums: BTreeMap<&str, (f64, u32)> = BTreeMap::new();
    for (key, value) in values {
        let sum = sums.entry(key).or_default();
        *sum = (sum.0 + value, sum.1 + 1);
    }
    sums.into_iter().map(|(key, (sum, count))| (key, sum / f64::from(count))).collect()
}

/// The best latency and bandwidth seen between two hosts: whatever else goes on while a link is measured makes it look
/// worse, never better.
fn best_link(links: &[LinkEstimate]) -> LinkEstimate {
    LinkEstimate {
        latency_s: links.iter().map(|link| link.latency_s).fold(f64::INFINITY, f64::min),
        bandwidth: links.iter().map(|link| link.bandwidth).fold(0.0, f64::max),
    }
}

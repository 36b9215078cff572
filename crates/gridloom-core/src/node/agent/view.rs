//! The agent's view of the grid for a mapping: servers, models, links and reserved capacity, as far as they are known.

use std::collections::{BTreeMap, BTreeSet};

use super::links::HostLinks;
use super::models::{HostModels, Models};
use super::plans::Plans;
use super::registry::{Reach, Registered, Registry};
use crate::node::message::MapRequest;
use gridloom_base::NodeId;
use gridloom_base::Time;
use gridloom_base::time::ns_to_seconds;
use gridloom_map::{Plan, UnmeasuredEstimate};
use gridloom_perf::{GridView, LinkEstimate, NetworkTree, ServerView};

/// Minimum bandwidth within a host, in bytes per second: memory, shared or through the loopback device. It applies
/// whatever a disturbed probe measured.
const SAME_HOST_BANDWIDTH_MIN: f64 = 1e9;

/// The knowledge from which views are made.
#[derive(Clone, Copy)]
pub(super) struct GridKnowledge<'a> {
    pub(super) servers: &'a Registry,
    pub(super) models: &'a Models,
    pub(super) links: &'a HostLinks,
    pub(super) plans: &'a Plans,
}

impl<'a> GridKnowledge<'a> {
    /// Returns the agent's view of the grid for a request, using `tree` for links. Reservations of the request's own
    /// group are ignored. Without a request, the view has no links and no reservations, and remains valid until
    /// something changes.
    pub(super) fn view(&self, now: Time, request: Option<(&MapRequest, &NetworkTree<&str>)>) -> GridView {
        let without = request.map_or(&[][..], |(request, _)| &request.excluded_servers);
        let mut servers: Vec<(NodeId, &Registered)> =
            self.servers.iter().filter(|(node, _)| !without.contains(node)).collect();
        if let Some((request, _)) = request {
            servers = self.candidates(now, request, servers);
        }
        servers.sort_by(|a, b| a.1.name().cmp(b.1.name()));
        let mut views = self.views(servers.iter().map(|(node, server)| (*node, *server)));
        for (view, (node, _)) in views.iter_mut().zip(&servers) {
            let busy_ns = request.map_or(0, |(request, _)| self.plans.busy_ns(now, *node, request.group));
            view.busy_s.fill(ns_to_seconds(busy_ns));
        }
        let mut grid = GridView {
            client_links: vec![LinkEstimate::UNMEASURED; servers.len()],
            servers: views,
            ..GridView::default()
        };
        if let Some((request, tree)) = request {
            self.add_links(&mut grid, &servers, request, tree);
        }
        grid
    }

    /// Returns what is known of these servers, without reservations.
    pub(super) fn views<'b>(&self, servers: impl Iterator<Item = (NodeId, &'b Registered)>) -> Vec<ServerView> {
        let mut models = self.host_models();
        let better_elsewhere = self.servers.runnable_elsewhere();
        let view = |(node, server): (NodeId, &Registered)| {
            let r = &server.registration;
            let processors = server.processors.as_str();
            ServerView {
                node,
                name: r.name.clone(),
                address: r.address.clone(),
                slots: r.slots,
                stateless: r.is_stateless,
                memory_bytes: r.memory_bytes,
                speed_flops: self.servers.speeds().get(processors).copied(),
                pace: server.pace,
                functions: r
                    .functions
                    .iter()
                    .filter(|s| !(server.cannot_run.contains(&s.name) && better_elsewhere.contains(s.name.as_str())))
                    .map(|s| (s.name.clone(), models.of(processors, &s.name)))
                    .collect(),
                busy_s: vec![0.0; r.slots as usize],
                release: r.release.clone(),
                protocol: server.protocol,
            }
        };
        servers.map(view).collect()
    }

    /// Returns the models of functions on hosts. In a large grid, guesses for hosts are scaled from one model.
    pub(super) fn host_models(&self) -> HostModels<'a> {
        self.models.by_host(self.servers.speeds(), self.servers.is_large())
    }

    fn add_links(
        &self,
        grid: &mut GridView,
        servers: &[(NodeId, &Registered)],
        request: &MapRequest,
        tree: &NetworkTree<&str>,
    ) {
        let hosts: Vec<&str> = servers.iter().map(|(_, server)| server.host()).collect();
        let numbers: Vec<Option<usize>> = hosts.iter().map(|host| tree.number(host)).collect();
        let link = |from: usize, to: usize| {
            let (a, b) = (servers[from], servers[to]);
            if from == to || a.1.is_stateless() || b.1.is_stateless() {
                return None;
            }
            // A pair that was measured in one direction only is assumed to be symmetric.
            match (a.1.reach(b.0), b.1.reach(a.0)) {
                (Reach::Broken, _) | (Reach::Unknown, Reach::Broken) => None,
                (Reach::Measured, _) | (Reach::Unknown, Reach::Measured | Reach::Unknown) => {
                    if hosts[from] != hosts[to] {
                        return Some(tree.link(numbers[from], numbers[to]));
                    }
                    let link = tree.measured(numbers[from], numbers[to]).unwrap_or(LinkEstimate::UNMEASURED);
                    Some(LinkEstimate { bandwidth: link.bandwidth.max(SAME_HOST_BANDWIDTH_MIN), ..link })
                }
            }
        };
        grid.links = (0..servers.len()).map(|i| (0..servers.len()).map(|j| link(i, j)).collect()).collect();
        let mut told: BTreeMap<&str, Vec<LinkEstimate>> = BTreeMap::new();
        for (node, link) in &request.client_links {
            if let Some(server) = self.servers.get(*node) {
                told.entry(server.host()).or_default().push(*link);
            }
        }
        let client = tree.number(&request.group.client.to_string().as_str());
        let of_client = |(host, number): (&&str, &Option<usize>)| {
            told.get(host).map_or_else(|| tree.link(client, *number), |links| best_link(links))
        };
        grid.client_links = hosts.iter().zip(&numbers).map(of_client).collect();
        let nodes = servers.iter().map(|(node, _)| *node).chain([request.group.client]);
        grid.bottlenecks = self.links.bottlenecks(nodes.map(|node| self.servers.location(node)), self.servers);
    }

    /// Returns the estimates of all links for a request. `client` is the client's location.
    pub(super) fn tree<'b>(self, client: &'b str, request: &MapRequest) -> NetworkTree<&'b str>
    where
        'a: 'b,
    {
        let known = self.links.models().estimates().map(|((from, to), link)| ((from.as_str(), to.as_str()), link));
        let guessed = request.client_links.iter().filter_map(|(node, link)| {
            let server = self.servers.get(*node).filter(|_| request.unmeasured.contains(node))?;
            Some(((client, server.host()), *link))
        });
        NetworkTree::new(known, guessed)
    }

    /// Returns the links and functions that a plan uses without a measurement.
    pub(super) fn guesses(&self, plan: &Plan, grid: &GridView, request: &MapRequest) -> Vec<UnmeasuredEstimate> {
        let client = request.group.client;
        let models = self.links.models();
        let is_measured =
            |from: &String, to: &String| models.of(from, to).is_some_and(|link| link.estimate().is_some());
        let is_known = |from: NodeId, to: NodeId| {
            let (here, there) = (self.servers.location(from), self.servers.location(to));
            let is_near = from != client && to != client && here == there;
            is_near || is_measured(&here, &there) || is_measured(&there, &here)
        };
        let pairs: BTreeSet<(NodeId, NodeId)> = plan.transfers.iter().map(|moved| (moved.from, moved.to)).collect();
        let links = pairs.into_iter().filter(|(from, to)| !is_known(*from, *to));
        let mut guesses: Vec<UnmeasuredEstimate> =
            links.map(|(from, to)| UnmeasuredEstimate::Link { from, to }).collect();
        let mut functions: BTreeSet<(&str, NodeId)> = BTreeSet::new();
        for (task, placed) in request.outline.tasks.iter().zip(&plan.tasks) {
            let Some(view) = grid.server(placed.server).map(|at| &grid.servers[at]) else { continue };
            let (function, size) = (&request.outline.functions[task.function as usize], request.outline.size_of(task));
            let predicted = view.functions.get(function).and_then(|model| model.predict(size, view.speed_flops));
            if predicted.is_none_or(|predicted| predicted.is_extrapolated) {
                functions.insert((function, placed.server));
            }
        }
        let functions = functions.into_iter();
        guesses.extend(
            functions.map(|(function, server)| UnmeasuredEstimate::Function { function: function.to_string(), server }),
        );
        guesses
    }
}

/// Returns the best latency and bandwidth measured between two hosts. Other activity during a measurement makes a link
/// look worse, never better.
fn best_link(links: &[LinkEstimate]) -> LinkEstimate {
    LinkEstimate {
        latency_s: links.iter().map(|link| link.latency_s).fold(f64::INFINITY, f64::min),
        bandwidth: links.iter().map(|link| link.bandwidth).fold(0.0, f64::max),
    }
}

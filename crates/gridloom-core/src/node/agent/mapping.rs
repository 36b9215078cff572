//! Mapping: views of the grid, and the plans that clients request.

use super::requests::{RunningMapping, Stopped};
use super::{Agent, Registered, Reservation, send};
use crate::node::AgentTimer;
use crate::node::message::MapRequest;
use crate::node::message::MapToClient;
use crate::node::message::Purpose;
use crate::node::protocol::{Effect, MapJob};
use gridloom_base::limits::{MAP_NS_MAX, MAP_REQUESTS_MAX, MEASURE_WAIT_NS_MAX};
use gridloom_base::time::ns_to_seconds;
use gridloom_base::time::seconds_to_ns;
use gridloom_base::{Method, NodeId, Time};
use gridloom_map::{MapError, MapperInput, Outline, Plan, UnmeasuredEstimate};
use gridloom_perf::{GridView, host_of};
use gridloom_perf::{LinkEstimate, NetworkTree, ServerView};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Minimum bandwidth within a host, in bytes per second: memory, shared or through the loopback device. It applies
/// whatever a disturbed probe measured.
const SAME_HOST_BANDWIDTH_MIN: f64 = 1e9;

impl Agent {
    /// Returns the agent's view of the grid for a request, using `tree` for links. Reservations of the request's own
    /// group are ignored. Without a request, the view has no links and no reservations, and remains valid until
    /// something changes.
    pub(super) fn grid_view(&self, now: Time, request: Option<(&MapRequest, &NetworkTree<&str>)>) -> GridView {
        let group = request.map(|(request, _)| request.group);
        let without = request.map_or(&[][..], |(request, _)| &request.excluded_servers);
        let mut servers: Vec<(&NodeId, &Registered)> =
            self.servers.iter().filter(|(node, _)| !without.contains(node)).collect();
        servers.sort_by(|a, b| a.1.registration.name.cmp(&b.1.registration.name));
        let speeds = self.speeds();
        let better_elsewhere = self.runnable_elsewhere();
        let views = servers.iter().map(|(node, server)| {
            let r = &server.registration;
            let busy = server
                .reservations
                .iter()
                .filter(|(id, _)| Some(**id) != group)
                .map(|(_, promise)| promise.end.since(now));
            let busy_s = request.map_or(0.0, |_| ns_to_seconds(busy.max().unwrap_or(0)));
            let processors = server.processors.as_str();
            let speed_flops = speeds.get(processors).copied();
            ServerView {
                node: **node,
                name: r.name.clone(),
                address: r.address.clone(),
                slots: r.slots,
                stateless: r.is_stateless,
                memory_bytes: r.memory_bytes,
                speed_flops,
                pace: server.pace,
                functions: r
                    .functions
                    .iter()
                    .filter(|s| !(server.cannot_run.contains(&s.name) && better_elsewhere.contains(s.name.as_str())))
                    .map(|s| (s.name.clone(), self.models.model_of(processors, &s.name, &speeds)))
                    .collect(),
                busy_s: vec![busy_s; r.slots as usize],
                release: r.release.clone(),
                protocol: server.protocol,
            }
        });
        let mut grid = GridView {
            client_links: vec![LinkEstimate::UNMEASURED; servers.len()],
            servers: views.collect(),
            ..GridView::default()
        };
        if let Some((request, tree)) = request {
            self.add_links(&mut grid, &servers, request, tree);
        }
        grid
    }

    fn add_links(
        &self,
        grid: &mut GridView,
        servers: &[(&NodeId, &Registered)],
        request: &MapRequest,
        tree: &NetworkTree<&str>,
    ) {
        let hosts: Vec<&str> = servers.iter().map(|(_, server)| host_of(&server.registration.address)).collect();
        let numbers: Vec<Option<usize>> = hosts.iter().map(|host| tree.number(host)).collect();
        let link = |from: usize, to: usize| {
            let (a, b) = (servers[from], servers[to]);
            if from == to || a.1.registration.is_stateless || b.1.registration.is_stateless {
                return None;
            }
            // A pair that was measured in one direction only is assumed to be symmetric.
            match (a.1.links.get(b.0), b.1.links.get(a.0)) {
                (Some(None), _) | (None, Some(None)) => None,
                (Some(Some(_)) | None, Some(Some(_)) | None) | (Some(Some(_)), Some(None)) => {
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
            if let Some(server) = self.servers.get(node) {
                told.entry(host_of(&server.registration.address)).or_default().push(*link);
            }
        }
        let client = tree.number(&request.group.client.to_string().as_str());
        let of_client = |(host, number): (&&str, &Option<usize>)| {
            told.get(host).map_or_else(|| tree.link(client, *number), |links| best_link(links))
        };
        grid.client_links = hosts.iter().zip(&numbers).map(of_client).collect();
        let nodes: Vec<NodeId> = servers.iter().map(|(node, _)| **node).collect();
        grid.bottlenecks = self.bottlenecks(&nodes, request.group.client);
    }

    /// Returns the estimates of all links for a request. `client` is the client's location.
    fn tree<'a>(&'a self, client: &'a str, request: &MapRequest) -> NetworkTree<&'a str> {
        let known = self.links.estimates().map(|((from, to), link)| ((from.as_str(), to.as_str()), link));
        let guessed = request.client_links.iter().filter_map(|(node, link)| {
            let server = self.servers.get(node).filter(|_| request.unmeasured.contains(node))?;
            Some(((client, host_of(&server.registration.address)), *link))
        });
        NetworkTree::new(known, guessed)
    }

    /// Returns the links and functions that a plan uses without a measurement.
    fn guesses(
        &self,
        plan: &Plan,
        grid: &GridView,
        request: &MapRequest,
        tree: &NetworkTree<&str>,
    ) -> Vec<UnmeasuredEstimate> {
        let client = request.group.client;
        let number = |node: NodeId| tree.number(&self.location(node).as_str());
        let is_known = |from: NodeId, to: NodeId| {
            let is_near = from != client && to != client && self.location(from) == self.location(to);
            is_near || tree.measured(number(from), number(to)).is_some()
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

    /// Returns the mean speed of the servers with the same processors, by processors.
    pub(super) fn speeds(&self) -> BTreeMap<&str, f64> {
        let known = self.servers.values().filter_map(|s| Some((s.processors.as_str(), s.speed_flops?)));
        means(known)
    }

    /// Maps the waiting groups, unless new servers, or paths between servers, are still being measured.
    pub(super) fn map_waiting(&mut self, now: Time, out: &mut Vec<Effect>) {
        if !self.requests.has_waiting() {
            return;
        }
        let unmeasured = self
            .servers
            .values()
            .filter(|s| !s.links_done || s.speed_flops.is_none())
            .map(|s| s.since + MEASURE_WAIT_NS_MAX)
            .filter(|until| *until > now)
            .chain(self.paths.awaited(now))
            .max();
        if let Some(until) = unmeasured {
            out.push(Effect::SetTimer { timer: AgentTimer::MeasureTimeout.into(), at: until });
            return;
        }
        while let Some(request) = self.requests.next(now) {
            self.begin_mapping(now, request, out);
        }
        if let Some(at) = self.requests.next_check(now) {
            out.push(Effect::SetTimer { timer: AgentTimer::Mapping.into(), at });
        }
    }

    pub(super) fn on_request(&mut self, now: Time, request: MapRequest, out: &mut Vec<Effect>) {
        if let Err(MapRequest { group, round, .. }) = self.requests.add(request, out) {
            let why = format!("{MAP_REQUESTS_MAX} groups of this client already wait for plans; start fewer at a time");
            send(out, group.client, MapToClient::GroupNotMapped { group, round, why });
        }
        self.map_waiting(now, out);
    }

    fn begin_mapping(&mut self, now: Time, mut request: MapRequest, out: &mut Vec<Effect>) {
        let client = request.group.client;
        let measured = request.client_links.iter().filter(|(server, _)| !request.unmeasured.contains(server));
        self.record_client_links(now, client, measured);
        let name = client.to_string();
        let mut grid = self.grid_view(now, Some((&request, &self.tree(&name, &request))));
        occupy(&mut grid, &request.busy);
        self.set_shared_locations(&mut request.outline);
        // Holders that are unknown here are removed: the client can obtain their data, or has them made again.
        for datum in request.outline.data.iter_mut().filter(|datum| datum.producer.is_none()) {
            datum.at.retain(|node| *node == client || grid.server(*node).is_some());
            if datum.at.is_empty() {
                datum.at.push(client);
            }
        }
        self.check_storages(&mut request.outline);
        let job = Arc::new(MapJob { request, grid });
        let number = self.requests.begin(now, job.clone());
        out.push(Effect::Map { number, job });
    }

    /// Sets the locations and sizes of shared data that functions read. Names that do not exist yet are left out,
    /// because no plan predicts how long a call waits for one.
    fn set_shared_locations(&self, outline: &mut Outline) {
        let mut unknown = BTreeSet::new();
        for (index, datum) in outline.data.iter_mut().enumerate().filter(|(_, datum)| datum.producer.is_none()) {
            let Some(name) = &datum.name else { continue };
            match self.names.catalog.current(name) {
                Some(named) => {
                    datum.size_bytes = named.meta.size_bytes();
                    datum.at = self.names.catalog.holders(named.datum).collect();
                    datum.method = named.method;
                }
                None => _ = unknown.insert(index as u32),
            }
        }
        if !unknown.is_empty() {
            outline.tasks.iter_mut().for_each(|task| task.inputs.retain(|input| !unknown.contains(input)));
        }
    }

    /// Replaces the method `storage` by `tree` unless all servers share one storage.
    fn check_storages(&self, outline: &mut Outline) {
        let storages: BTreeSet<_> = self.servers.values().map(|server| server.registration.storage).collect();
        let is_shared = storages.len() == 1 && storages.iter().all(Option::is_some);
        for datum in outline.data.iter_mut().filter(|datum| datum.method == Method::Storage && !is_shared) {
            datum.method = Method::Tree;
        }
    }

    pub(super) fn on_mapped(&mut self, now: Time, number: u64, outcome: Result<Plan, MapError>, out: &mut Vec<Effect>) {
        let Some(RunningMapping { job, stopped, .. }) = self.requests.end(number) else { return };
        let is_known = |plan: &Plan| plan.tasks.iter().all(|task| self.servers.contains_key(&task.server));
        match (outcome, stopped) {
            (_, Some(Stopped::Unwanted)) => {}
            // A server was lost meanwhile.
            (Ok(plan), _) if !is_known(&plan) => self.on_request(now, job.request.clone(), out),
            (Ok(plan), _) => self.send_plan(now, plan, &job, out),
            (Err(error), _) => {
                let MapRequest { group, round, .. } = job.request;
                let why = if error == MapError::Stopped { took_too_long(&job.request) } else { error.to_string() };
                send(out, group.client, MapToClient::GroupNotMapped { group, round, why });
            }
        }
        self.map_waiting(now, out);
    }

    /// Sends a client its plan, and records the reservations.
    fn send_plan(&mut self, now: Time, plan: Plan, job: &MapJob, out: &mut Vec<Effect>) {
        let MapJob { request, grid } = job;
        let MapRequest { group, round, purpose, .. } = *request;
        let client = group.client;
        let name = client.to_string();
        let guesses = self.guesses(&plan, grid, request, &self.tree(&name, request));
        let plan = Plan { guesses, ..plan };
        let mut ends: BTreeMap<NodeId, f64> = BTreeMap::new();
        for task in &plan.tasks {
            let end = ends.entry(task.server).or_default();
            *end = end.max(task.end_s);
        }
        for (node, end_s) in ends.iter().filter(|_| purpose != Purpose::PlanOnly) {
            let end = now + seconds_to_ns(*end_s);
            let server = self.servers.get_mut(node).expect("checked by the caller");
            server.reservations.insert(group, Reservation { end, pace: server.pace });
        }
        if purpose != Purpose::PlanOnly {
            self.record_plan(group, &plan, grid);
        }
        let addresses = grid.servers.iter().filter(|s| ends.contains_key(&s.node)).map(|s| (s.node, s.address.clone()));
        let addresses = addresses.collect();
        let seen = (purpose != Purpose::Run)
            .then(|| Box::new(MapperInput::new(client, request.outline.clone(), grid.clone())));
        // The client must know every server of its plan, and whether it is stateless.
        if self.directory.has_pending() {
            self.push_directory(now, out);
        }
        send(out, client, MapToClient::GroupMapped { group, round, plan, addresses, seen });
    }
}

/// Returns the error text for a mapping that was stopped.
fn took_too_long(request: &MapRequest) -> String {
    format!(
        "'{}' found no plan for {} tasks within {:.0} s, the limit of an agent; use 'heft' or 'mct', or map the group on \
         your own machine ('gridloom map') and pass its plan",
        request.heuristic,
        request.outline.tasks.len(),
        ns_to_seconds(MAP_NS_MAX)
    )
}

/// Assigns the times of running tasks to the slots that become free first.
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

/// Returns the best latency and bandwidth measured between two hosts. Other activity during a measurement makes a link
/// look worse, never better.
fn best_link(links: &[LinkEstimate]) -> LinkEstimate {
    LinkEstimate {
        latency_s: links.iter().map(|link| link.latency_s).fold(f64::INFINITY, f64::min),
        bandwidth: links.iter().map(|link| link.bandwidth).fold(0.0, f64::max),
    }
}

#[cfg(test)]
mod tests {
    use super::super::models::tests::{agent, register};
    use super::*;
    use crate::node::Message;
    use crate::node::message::MapMessage;
    use gridloom_base::GroupId;
    use gridloom_map::{MappingMethod, OutlineDatum, OutlineTask, Stop};

    #[test]
    fn a_plan_does_not_assume_fast_links_and_lists_guesses() {
        let (mut agent, client) = (agent(), NodeId(9));
        register(&mut agent, 2, "near:1", 1.0, 1.0);
        register(&mut agent, 3, "far:1", 1.0, 1.0);
        let method = Method::Auto;
        let datum = |at| OutlineDatum { size_bytes: 1_000_000, producer: None, at, wanted: false, name: None, method };
        let task = |inputs| OutlineTask { function: 0, work_flops: Some(1e9), bound_to: None, inputs, outputs: vec![] };
        let request = MapRequest {
            group: GroupId { client, serial: 1 },
            round: 1,
            outline: Outline {
                functions: vec!["m/f".into()],
                tasks: vec![task(vec![0]), task(vec![1])],
                data: vec![datum(vec![NodeId(2)]), datum(vec![NodeId(2)])],
            },
            heuristic: MappingMethod::from("heft"),
            purpose: Purpose::Run,
            client_links: vec![
                (NodeId(2), LinkEstimate { latency_s: 1e-4, bandwidth: 1e8 }),
                (NodeId(3), LinkEstimate { latency_s: 0.15, bandwidth: 2e5 }),
            ],
            unmeasured: BTreeSet::from([NodeId(3)]),
            excluded_servers: Vec::new(),
            busy: Vec::new(),
        };
        let later = Time(0) + 2 * MEASURE_WAIT_NS_MAX;
        let mut planned = |request: &MapRequest| {
            let mut out = Vec::new();
            agent.on_request(later, request.clone(), &mut out);
            let map = out.iter().find_map(|effect| match effect {
                Effect::Map { number, job } => Some((*number, job.clone())),
                _ => None,
            });
            let (number, job) = map.expect("no other mapping runs");
            agent.on_mapped(later, number, job.map(Stop::NEVER), &mut out);
            let Some(Effect::Send { message: Message::Map(MapMessage::ToClient(told)), .. }) = out.pop() else {
                panic!("{out:?}")
            };
            let MapToClient::GroupMapped { plan, .. } = told else { panic!("{told:?}") };
            plan
        };
        let plan = planned(&request);
        assert!(plan.tasks.iter().all(|task| task.server == NodeId(2)) && plan.guesses.is_empty(), "{plan:?}");
        let known = MapRequest { client_links: Vec::new(), unmeasured: BTreeSet::new(), ..request };
        let plan = planned(&MapRequest { group: GroupId { client: NodeId(10), serial: 1 }, ..known });
        assert_eq!(plan.guesses, [UnmeasuredEstimate::Link { from: NodeId(2), to: NodeId(3) }], "{plan:?}");
    }
}

//! Mapping: how a client's request becomes a job for the world, and the job's outcome a plan.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::requests::{RunningMapping, Stopped};
use super::{Agent, send};
use crate::node::AgentTimer;
use crate::node::message::{MapRequest, MapToClient, Purpose};
use crate::node::protocol::{Effect, MapJob};
use gridloom_base::limits::{MAP_NS_MAX, MAP_REQUESTS_MAX};
use gridloom_base::time::{ns_to_seconds, seconds_to_ns};
use gridloom_base::{Method, NodeId, Origin, Time};
use gridloom_map::{MapError, MapperInput, Outline, Plan};
use gridloom_perf::GridView;

impl Agent {
    /// Maps the waiting groups, unless new servers, or paths between servers, are still being measured.
    pub(super) fn map_waiting(&mut self, now: Time, out: &mut Vec<Effect>) {
        if !self.requests.has_waiting() {
            return;
        }
        if let Some(until) = self.registry.measured_until(now).max(self.links.awaited(now)) {
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
        let is_measured = |server: NodeId| !request.unmeasured.contains(&server) && self.registry.has(server);
        for (server, link) in request.client_links.iter().filter(|(server, _)| is_measured(*server)) {
            let (here, there) = (self.registry.location(client), self.registry.location(*server));
            self.links.client_measured(now, here, there, *link);
        }
        let name = client.to_string();
        let tree = self.knowledge().tree(&name, &request);
        let mut grid = self.knowledge().view(now, Some((&request, &tree)));
        occupy(&mut grid, &request.busy);
        let user = self.members.get(client).map(|peer| &peer.data.origin);
        self.names.set_locations(user.unwrap_or(&Origin::default()), &self.rules, &mut request.outline);
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

    /// Replaces the method `storage` by `tree` unless all servers share one storage.
    fn check_storages(&self, outline: &mut Outline) {
        let is_shared = self.registry.share_one_storage();
        for datum in outline.data.iter_mut().filter(|datum| datum.method == Method::Storage && !is_shared) {
            datum.method = Method::Tree;
        }
    }

    pub(super) fn on_mapped(&mut self, now: Time, number: u64, outcome: Result<Plan, MapError>, out: &mut Vec<Effect>) {
        let Some(RunningMapping { job, stopped, .. }) = self.requests.end(number) else { return };
        let is_known = |plan: &Plan| plan.tasks.iter().all(|task| self.registry.has(task.server));
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
        let guesses = self.knowledge().guesses(&plan, grid, request);
        let plan = Plan { guesses, ..plan };
        let mut ends: BTreeMap<NodeId, f64> = BTreeMap::new();
        for task in &plan.tasks {
            let end = ends.entry(task.server).or_default();
            *end = end.max(task.end_s);
        }
        for (node, end_s) in ends.iter().filter(|_| purpose != Purpose::PlanOnly) {
            let end = now + seconds_to_ns(*end_s);
            let pace = self.registry.get(*node).expect("checked by the caller").pace;
            self.plans.reserve(*node, group, end, pace);
        }
        if purpose != Purpose::PlanOnly {
            let location = |node| self.registry.location(node);
            self.plans.add(group, &plan, (grid, self.registry.is_large()), self.links.models(), location);
        }
        let addresses = grid.servers.iter().filter(|s| ends.contains_key(&s.node)).map(|s| (s.node, s.address.clone()));
        let addresses = addresses.collect();
        let seen = (purpose != Purpose::Run)
            .then(|| Box::new(MapperInput::new(client, request.outline.clone(), grid.clone())));
        // The client must know every server of its plan, and whether it is stateless.
        if self.directory.has_pending() {
            self.push_directory(out);
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

#[cfg(test)]
mod tests {
    use super::super::models::tests::{agent, register};
    use super::*;
    use crate::node::Message;
    use crate::node::message::MapMessage;
    use gridloom_base::GroupId;
    use gridloom_base::limits::MEASURE_WAIT_NS_MAX;
    use gridloom_map::{MappingMethod, OutlineDatum, OutlineTask, Stop, UnmeasuredEstimate};
    use gridloom_perf::LinkEstimate;
    use std::collections::BTreeSet;

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

    /// Maps a group of that many independent tasks of the function 0, with these inputs each. Returns the job.
    fn mapped_job(agent: &mut Agent, tasks: usize, function: u32, inputs: Vec<u32>) -> Arc<MapJob> {
        let client = NodeId(1);
        let task = OutlineTask { function, work_flops: Some(1e9), bound_to: None, inputs, outputs: vec![] };
        let request = MapRequest {
            group: GroupId { client, serial: tasks as u64 },
            round: 1,
            outline: Outline { functions: vec!["m/f".into()], tasks: vec![task; tasks], data: vec![] },
            heuristic: MappingMethod::from("heft"),
            purpose: Purpose::Run,
            client_links: Vec::new(),
            unmeasured: BTreeSet::new(),
            excluded_servers: Vec::new(),
            busy: Vec::new(),
        };
        let mut out = Vec::new();
        agent.on_request(Time(0) + 2 * MEASURE_WAIT_NS_MAX, request, &mut out);
        let map = out.into_iter().find_map(|effect| match effect {
            Effect::Map { job, .. } => Some(job),
            _ => None,
        });
        map.expect("no other mapping runs")
    }

    #[test]
    fn a_large_grid_is_mapped_onto_servers_that_are_fast_enough() {
        let fast = 20;
        let large = || {
            let mut agent = agent();
            (0..200).for_each(|n| {
                let seconds = if n < fast { 0.05 } else { 1.0 };
                register(&mut agent, 2 + n, &format!("s{n}:1"), seconds, seconds);
            });
            agent
        };
        let servers = |job: &MapJob| job.grid.servers.len();
        // The fast servers run 100 tasks in the time that a slow one needs for a quarter of one.
        assert_eq!(servers(&mapped_job(&mut large(), 100, 0, vec![])), fast as usize);
        assert_eq!(servers(&mapped_job(&mut large(), 1000, 0, vec![])), 200);
        // What is wrong with an outline is reported by the mapping.
        for (function, inputs) in [(9, vec![]), (0, vec![9])] {
            let job = mapped_job(&mut large(), 1, function, inputs);
            assert!(job.map(Stop::NEVER).is_err());
        }
    }
}

//! The input of a heuristic: the outline and the grid, checked once and stored for fast access.
//!
//! A **place** is where a datum can be stored: a server (its index in order of name) or the client (index [`Problem::client`],
//! one past the last server).
//!
//! **Invariants** of a [`Problem`]:
//! - every task comes after those it depends on;
//! - at least one server can run each task: it offers the function, has a store at least as large as the task's arguments and
//!   results together, and is the task's bound server if there is one;
//! - every datum is made by a task or held at a place;
//! - all times computed from it are finite and not negative;
//! - the client has a link to and from every server. A stateless server has no other link, not even to itself: the results of a
//!   task there are sent to the client, and other tasks get them from the client.
//!
//! It does not track other contents of the stores: a server whose store fills up over the whole plan spills or evicts by
//! itself. Times per task and server are computed on demand from the cost model of (function, server), since a table of
//! tasks × servers would be the largest thing in memory (1.6 GB at the limits).

mod in_pairs;
mod read;

use std::collections::BTreeMap;
use std::ops::Range;

use super::error::MapError;
use crate::outline::Outline;
use crate::stop::Stop;
use gridloom_base::limits::PARTS;
use gridloom_base::{Method, NodeId};
use gridloom_perf::{Bottleneck, FunctionModel, GridView, LinkEstimate, Size, first_guess_s};

/// A server as heuristics see it.
#[derive(Clone, Debug)]
pub struct Server {
    pub node: NodeId,
    pub name: String,
    /// Number of the group's tasks that it runs at a time: at least 1, and at most the number of tasks in the group.
    pub slots: u32,
    /// Seconds until each slot is free, ascending, `slots` long.
    pub busy_s: Vec<f64>,
    /// Seconds until each other slot that is busy now is free, ascending. The group has too few tasks to need these slots, but the
    /// work on them slows down the group's tasks.
    pub other_busy_s: Vec<f64>,
    /// Capacity of its store.
    pub memory_bytes: u64,
    /// True if it is stateless: it gets the inputs of each task from the client and sends the results there.
    pub is_stateless: bool,
}

impl Server {
    /// Maximum number of tasks that may run there at a time, including those of others.
    pub(super) fn tasks_max(&self) -> u32 {
        self.slots.saturating_add(self.other_busy_s.len() as u32)
    }
}

/// A datum as heuristics see it.
#[derive(Clone, Debug)]
pub struct Datum {
    pub size_bytes: u64,
    /// The task that makes it, or `None` if it exists before the group runs.
    pub producer: Option<u32>,
    /// Number of tasks that read it.
    pub readers: u32,
    /// True if it must be sent to the client.
    pub wanted: bool,
    /// The name by which functions get and put it, if it is shared.
    pub name: Option<Box<str>>,
    /// Transfer method to the servers that read it, if it is shared.
    pub method: Method,
    holders: Range<u32>,
}

impl Datum {
    /// Bytes that it adds to the size of a task that reads or makes it.
    fn argument_bytes(&self) -> u64 {
        if self.name.is_some() { 0 } else { self.size_bytes }
    }
}

#[derive(Clone, Debug)]
struct Task {
    function: u32,
    work_flops: Option<f64>,
    /// The place of the only server that may run it, if it is bound.
    bound_server: Option<u32>,
    size_bytes: u64,
    inputs: Range<u32>,
    outputs: Range<u32>,
}

impl Task {
    fn size(&self) -> Size {
        Size::new(self.work_flops, self.size_bytes)
    }

    /// True if that server may run it and has enough memory.
    fn fits(&self, place: usize, server: &Server) -> bool {
        self.size_bytes <= server.memory_bytes && self.bound_server.is_none_or(|only| only as usize == place)
    }
}

/// The cost model of a function on a server.
#[derive(Clone, Debug)]
pub(super) struct Cost {
    model: FunctionModel,
    speed_flops: Option<f64>,
    pace: f64,
    /// Number of tasks that are expected to run there at a time.
    tasks: f64,
}

impl Cost {
    /// Seconds per floating-point operation, if only the server's speed is known.
    pub(super) fn per_flop_s(&self) -> Option<f64> {
        let is_proportional = self.model.is_empty() && !self.model.perturbation.is_significant();
        is_proportional.then(|| first_guess_s(Size::Work(1.0), self.speed_flops) * self.pace)
    }

    /// Predicted seconds of a call of that size while the expected number of others run.
    pub(super) fn seconds(&self, size: Size) -> f64 {
        self.alone_s(size) * self.model.perturbation.factor(self.tasks)
    }

    fn alone_s(&self, size: Size) -> f64 {
        self.model.seconds(size, self.speed_flops) * self.pace
    }
}

/// A checked group and grid: the input of a heuristic.
#[derive(Clone, Debug)]
pub struct Problem {
    client: NodeId,
    places: BTreeMap<NodeId, usize>,
    servers: Vec<Server>,
    functions: Vec<String>,
    /// Cost models, indexed by function × server.
    costs: Vec<Option<Cost>>,
    tasks: Vec<Task>,
    data: Vec<Datum>,
    /// Inputs and outputs of all tasks.
    arguments: Vec<u32>,
    /// Places that hold the sources.
    holders: Vec<u32>,
    /// Links, indexed by place × place; latency is infinite if there is no link.
    links: Vec<LinkEstimate>,
    bottlenecks: Vec<Bottleneck<usize>>,
    complete: bool,
    has_contention: bool,
    has_exact_figures: bool,
    stop: Stop,
}

/// A datum is at its own place without delay.
const SELF_LINK: LinkEstimate = LinkEstimate { latency_s: 0.0, bandwidth: f64::INFINITY };
const NO_LINK: LinkEstimate = LinkEstimate { latency_s: f64::INFINITY, bandwidth: f64::INFINITY };
/// Maximum predicted seconds of one call or transfer, longer than the age of the universe. Sums over whole plans stay finite,
/// whatever a server or client states.
const SECONDS_MAX: f64 = 1e18;

impl Problem {
    /// Checks the outline and builds the problem on the grid as `client` sees it.
    ///
    /// # Errors
    /// [`MapError`] if the outline or the grid breaks one of the invariants above.
    pub fn new(outline: &Outline, grid: &GridView, client: NodeId) -> Result<Problem, MapError> {
        if grid.servers.is_empty() {
            return Err(MapError::EmptyGrid);
        }
        let mut problem = Problem {
            client,
            places: BTreeMap::new(),
            servers: Vec::with_capacity(grid.servers.len()),
            functions: outline.functions.clone(),
            costs: Vec::with_capacity(outline.functions.len() * grid.servers.len()),
            tasks: Vec::with_capacity(outline.tasks.len()),
            data: Vec::with_capacity(outline.data.len()),
            arguments: Vec::new(),
            holders: Vec::new(),
            links: Vec::new(),
            bottlenecks: grid.bottlenecks.clone(),
            complete: true,
            has_contention: true,
            has_exact_figures: false,
            stop: Stop::NEVER,
        };
        problem.read_servers(grid, outline.tasks.len().min(u32::MAX as usize))?;
        let bytes = outline.data.iter().map(|datum| datum.size_bytes as f64).sum();
        problem.read_links(grid, bytes)?;
        problem.read_costs(grid)?;
        for (number, datum) in outline.data.iter().enumerate() {
            problem.read_datum(number, datum)?;
        }
        for (number, task) in outline.tasks.iter().enumerate() {
            problem.read_task(number, task)?;
        }
        problem.check_makers(outline)?;
        problem.expect_loads();
        problem.check_runnable()?;
        Ok(problem)
    }

    /// Returns the same problem with a stop condition for mapping.
    pub fn with_stop(self, stop: Stop) -> Problem {
        Problem { stop, ..self }
    }

    /// True if mapping must end with the best plan found so far.
    pub(super) fn is_stopped(&self) -> bool {
        self.stop.is_set()
    }

    /// Fails if mapping is stopped. For heuristics that have no plan before the last task is placed.
    pub(super) fn check_stopped(&self) -> Result<(), MapError> {
        if self.is_stopped() { Err(MapError::Stopped) } else { Ok(()) }
    }

    pub fn task_count(&self) -> usize {
        self.tasks.len()
    }

    /// The servers, in order of name; the index of a server is its place.
    pub fn servers(&self) -> &[Server] {
        &self.servers
    }

    /// The place of the client.
    pub fn client(&self) -> usize {
        self.servers.len()
    }

    pub fn node(&self, place: usize) -> NodeId {
        self.servers.get(place).map_or(self.client, |server| server.node)
    }

    /// Returns the place of a node.
    pub fn place(&self, node: NodeId) -> Option<usize> {
        self.places.get(&node).copied()
    }

    pub fn name(&self, place: usize) -> &str {
        self.servers.get(place).map_or("client", |server| &server.name)
    }

    /// True if that place is a stateless server: each task gets its own copy of each input from the client, and all
    /// results are sent to the client.
    pub fn is_stateless(&self, place: usize) -> bool {
        self.servers.get(place).is_some_and(|server| server.is_stateless)
    }

    /// Name of the function that a task calls.
    pub fn function(&self, task: usize) -> &str {
        &self.functions[self.tasks[task].function as usize]
    }

    /// Work of a task in floating-point operations, `None` if its signature does not state it.
    pub fn work_flops(&self, task: usize) -> Option<f64> {
        self.tasks[task].work_flops
    }

    /// The data, by index.
    pub fn data(&self) -> &[Datum] {
        &self.data
    }

    /// Data that a task reads.
    pub fn inputs(&self, task: usize) -> &[u32] {
        let range = &self.tasks[task].inputs;
        &self.arguments[range.start as usize..range.end as usize]
    }

    /// Data that a task makes.
    pub fn outputs(&self, task: usize) -> &[u32] {
        let range = &self.tasks[task].outputs;
        &self.arguments[range.start as usize..range.end as usize]
    }

    /// Places that hold a datum before the group runs; empty if a task makes it.
    pub fn holders(&self, datum: usize) -> &[u32] {
        let range = &self.data[datum].holders;
        &self.holders[range.start as usize..range.end as usize]
    }

    /// Predicted seconds of a task on a server, `None` if it cannot run there.
    pub fn seconds(&self, task: usize, server: usize) -> Option<f64> {
        let row = &self.tasks[task];
        let cost = self.costs[row.function as usize * self.servers.len() + server].as_ref()?;
        row.fits(server, &self.servers[server]).then(|| cost.seconds(row.size()))
    }

    /// Computes the predicted seconds of a task on all servers, infinite on those that cannot run it.
    pub(super) fn seconds_by_server(&self, task: usize, seconds: &mut [f64]) {
        let row = &self.tasks[task];
        let costs = self.costs_of(row.function as usize);
        for (place, ((seconds, cost), server)) in seconds.iter_mut().zip(costs).zip(&self.servers).enumerate() {
            *seconds = match cost {
                Some(cost) if row.fits(place, server) => cost.seconds(row.size()),
                _ => f64::INFINITY,
            };
        }
    }

    /// Computes the predicted seconds of a task that runs alone, by server; infinite on those that cannot run it.
    pub(super) fn alone_seconds_by_server(&self, task: usize, seconds: &mut [f64]) {
        for (server, seconds) in seconds.iter_mut().enumerate() {
            *seconds = self.alone_seconds(task, server).unwrap_or(f64::INFINITY);
        }
    }

    /// Predicted seconds of a task that runs alone; `None` if the server cannot run it.
    pub(super) fn alone_seconds(&self, task: usize, server: usize) -> Option<f64> {
        let row = &self.tasks[task];
        let cost = self.costs_of(row.function as usize)[server].as_ref()?;
        row.fits(server, &self.servers[server]).then(|| cost.alone_s(row.size()))
    }

    /// Slowdown of a task on a server that runs `tasks` tasks, itself included, relative to running alone.
    pub(super) fn perturbation(&self, task: usize, server: usize, tasks: u32) -> f64 {
        let cost = &self.costs_of(self.tasks[task].function as usize)[server];
        cost.as_ref().map_or(1.0, |cost| cost.model.perturbation.factor(f64::from(tasks)))
    }

    /// True if tasks on that server are known to take longer side by side.
    pub(super) fn is_perturbed(&self, server: usize) -> bool {
        let mut costs = self.costs.iter().skip(server).step_by(self.servers.len());
        self.servers[server].tasks_max() > 1
            && costs.any(|cost| cost.as_ref().is_some_and(|c| c.model.perturbation.is_significant()))
    }

    /// The place of the only server that may run a task, if it is bound.
    pub fn bound_server(&self, task: usize) -> Option<usize> {
        self.tasks[task].bound_server.map(|place| place as usize)
    }

    /// Returns the reason why a task cannot run on a server.
    pub(super) fn cannot_run(&self, task: usize, place: usize) -> String {
        let (function, server) = (self.function(task), &self.servers[place]);
        let (index, _, needed) = self.call(task);
        if let Some(only) = self.bound_server(task).filter(|only| *only != place) {
            let bound = self.name(only);
            return format!("task {task} ('{function}') is on server '{}', and is bound to '{bound}'", server.name);
        }
        match &self.costs_of(index)[place] {
            None => format!("task {task} is on server '{}', which does not offer '{function}'", server.name),
            Some(_) => format!(
                "task {task} ('{function}') is on server '{}', whose store has {} bytes; its arguments and results need {needed}",
                server.name, server.memory_bytes
            ),
        }
    }

    /// Number of functions that tasks call.
    pub(super) fn function_count(&self) -> usize {
        self.functions.len()
    }

    /// Name of a function that tasks call.
    pub(super) fn function_name(&self, function: usize) -> &str {
        &self.functions[function]
    }

    /// The call of a task: function, problem size, and bytes of arguments and results together.
    pub(super) fn call(&self, task: usize) -> (usize, Size, u64) {
        let row = &self.tasks[task];
        (row.function as usize, row.size(), row.size_bytes)
    }

    /// Cost models of a function by server.
    pub(super) fn costs_of(&self, function: usize) -> &[Option<Cost>] {
        &self.costs[function * self.servers.len()..][..self.servers.len()]
    }

    /// Seconds to move `size_bytes` directly from one place to another: latency + size / bandwidth; 0 to itself,
    /// infinite if the two cannot talk, and infinite from a stateless server to itself.
    pub fn link_seconds(&self, from: usize, to: usize, size_bytes: u64) -> f64 {
        self.links[from * (self.servers.len() + 1) + to].seconds(size_bytes)
    }

    /// Seconds to move `size_bytes` from one server to another: directly, or through the client if the two cannot talk.
    pub(super) fn route_seconds(&self, from: usize, to: usize, size_bytes: u64) -> f64 {
        let direct_s = self.link_seconds(from, to, size_bytes);
        if direct_s.is_finite() {
            return direct_s;
        }
        let client = self.client();
        self.link_seconds(from, client, size_bytes) + self.link_seconds(client, to, size_bytes)
    }

    /// True if all servers can talk directly to one another.
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// True if copies share NICs and links, for heuristics that model it.
    pub fn has_contention(&self) -> bool {
        self.has_contention
    }

    /// Returns the same problem with the full bandwidth of its link for each copy.
    pub fn without_contention(self) -> Problem {
        Problem { has_contention: false, ..self }
    }

    /// True if a place forwards a datum while it receives it: a large one that [may be forwarded](Self::may_forward).
    pub fn forwards_while_receiving(&self, datum: usize, place: usize) -> bool {
        PARTS.is_forwarded_early(self.data()[datum].size_bytes) && self.may_forward(datum, place)
    }

    /// True if other places may receive a datum from a place to which it was copied, in plans of real groups. Neither
    /// the client nor stateless servers are such places.
    pub fn may_forward(&self, datum: usize, place: usize) -> bool {
        let may_pass = place != self.client() && !self.is_stateless(place);
        may_pass && !self.is_sent_by_first_holders(datum) && self.has_contention && !self.has_exact_figures
    }

    /// True if a datum is sent only by the places that have it first.
    fn is_sent_by_first_holders(&self, datum: usize) -> bool {
        matches!(self.data[datum].method, Method::Direct | Method::Storage)
    }

    /// Maximum number of places that have a datum from which others may receive it; the first holders come first.
    pub(super) fn sources_max(&self, datum: usize) -> usize {
        match self.data[datum].method {
            Method::Direct => self.holders(datum).len().max(1),
            Method::Storage => 1,
            Method::Auto | Method::Tree | Method::Swarm => usize::MAX,
        }
    }

    /// Seconds that a place takes to write a datum to a storage, from which others then read it; 0 for other methods. The speed of
    /// the storage is unknown. It is assumed to have the bandwidth of the widest link of that place, shared by all readers.
    pub(super) fn write_s(&self, datum: usize, place: usize) -> f64 {
        let Datum { method: Method::Storage, size_bytes, .. } = self.data[datum] else { return 0.0 };
        let others = self.links_from(place).iter().enumerate().filter(|(to, link)| *to != place && **link != NO_LINK);
        let seconds = others.map(|(_, link)| size_bytes as f64 / link.bandwidth).min_by(f64::total_cmp);
        seconds.unwrap_or(0.0)
    }

    /// The part of a datum by which a server that forwards it lags behind its own source.
    ///
    /// A chain of `n` servers is `n (l + p / b)` behind one transfer, with parts of `p` bytes. The two trees of `swarm`
    /// are `d (l + 2 p / b)` behind, with `d` the logarithm of `n` to the base 2. NICs carry the same load in both. So
    /// a plan models a chain with parts of `2 p d / n` bytes. `auto` takes the better of the two if functions get the
    /// datum by its name. Data whose sources are named in a plan are sent in a chain.
    pub(super) fn part_bytes(&self, datum: usize) -> u64 {
        let Datum { method, size_bytes, readers, ref name, .. } = self.data[datum];
        let chain_bytes = PARTS.part_bytes(size_bytes);
        let swarm_bytes = || {
            let servers = self.servers.len().saturating_sub(self.holders(datum).len()) as u32;
            let readers = readers.min(servers).max(1);
            let depth = u32::BITS - readers.leading_zeros();
            (2 * chain_bytes * u64::from(depth) / u64::from(readers)).min(size_bytes)
        };
        match method {
            Method::Swarm => swarm_bytes(),
            Method::Auto if name.is_some() => chain_bytes.min(swarm_bytes()),
            Method::Auto | Method::Tree | Method::Direct | Method::Storage => chain_bytes,
        }
    }

    /// True if sizes, speeds and links are exact, not estimated. Then a plan that ends later is never as good.
    pub fn has_exact_figures(&self) -> bool {
        self.has_exact_figures
    }

    /// Returns the same problem with figures marked as exact.
    pub fn with_exact_figures(self) -> Problem {
        Problem { has_exact_figures: true, ..self }
    }

    /// Links from a place to all places. The link to itself has no latency, except for stateless servers. Latency is
    /// infinite if the two cannot talk.
    pub fn links_from(&self, place: usize) -> &[LinkEstimate] {
        let places = self.servers.len() + 1;
        &self.links[place * places..(place + 1) * places]
    }

    /// Bottlenecks that several links share besides NICs, by places.
    pub fn bottlenecks(&self) -> &[Bottleneck<usize>] {
        &self.bottlenecks
    }
}

//! The conformance suite: what every world must make of the same grid and the same commands.
//!
//! Written against [`World`], run on the simulated world by `gridloom-sim` and on real processes by `gridloom-cli`. The
//! functions are described by [`IDL`]; [`C_SOURCE`] has their bodies for the world that runs them.

mod names;

use std::collections::{BTreeMap, BTreeSet};

use gridloom_base::limits::{CUT_THROUGH_BYTES_MIN, SILENCE_NS_MAX, STORE_BYTES_DEFAULT};
use gridloom_base::time::SECOND_NS;
use gridloom_base::{DatumId, Dtype, GroupId, Meta, NodeId, TaskError, TaskId};
use gridloom_core::call::CallLimits;
use gridloom_core::graph::{Argument, Copies, Group, Output, Source, Task, TaskKind};
use gridloom_core::node::message::{self, OutputQuery, TaskReport};
use gridloom_core::node::protocol::{Command, Event};
use gridloom_core::node::world::{ServerSpec, World};
use gridloom_idl::Definition;

/// The functions of the suite.
pub const IDL: &str = "
Module suite;
Define null() \"nothing\" CalcOrder 1 Calls \"C\" suite_null();
Define double_all(IN int n, IN double x[n], OUT double y[n]) \"y := 2 x\" CalcOrder n Calls \"C\" suite_double(n, x, y);
Define sum(IN int n, IN double x[n], IN double y[n], OUT double z[n]) \"z := x + y\" CalcOrder n
Calls \"C\" suite_sum(n, x, y, z);
Define wait_ms(IN int ms, IN int n, IN double x[n], OUT double y[n]) \"y := x, after a while\" CalcOrder 1e7*ms
Calls \"C\" suite_wait(ms, n, x, y);
Define increment(IN int n, INOUT double x[n]) \"x := x + 1\" CalcOrder n Calls \"C\" suite_increment(n, x);
";

/// Their bodies.
pub const C_SOURCE: &str = "
#include <time.h>
void suite_null(void) {}
void suite_double(int n, const double *x, double *y) { for (int i = 0; i < n; i++) y[i] = 2 * x[i]; }
void suite_sum(int n, const double *x, const double *y, double *z) { for (int i = 0; i < n; i++) z[i] = x[i] + y[i]; }
void suite_wait(int ms, int n, const double *x, double *y) {
  struct timespec t = { ms / 1000, (ms % 1000) * 1000000L };
  nanosleep(&t, 0);
  for (int i = 0; i < n; i++) y[i] = x[i];
}
void suite_increment(int n, double *x) { for (int i = 0; i < n; i++) x[i] += 1; }
";

/// One case: its name and what it does with a fresh world.
pub type Case = (&'static str, fn(&mut dyn World));

/// All cases.
pub fn cases() -> impl Iterator<Item = &'static Case> {
    CALLS.iter().chain(names::CASES)
}

const CALLS: &[Case] = &[
    ("a plain call brings its result back", plain_call),
    ("a group's results stay until asked for", group_keeps_results),
    ("an in-place argument keeps its old version", in_place_keeps_old_version),
    ("a killed server's part runs elsewhere", killed_server),
    ("a hung server is noticed and its part runs elsewhere", hung_server),
    ("results that only a lost server held are computed again", lost_results_come_again),
    ("no server left is an error, not a wait", no_server_left),
    ("a group without its agent is an error", agent_gone),
    ("an unknown function is an error", unknown_function),
    ("a full store is an error", full_store),
    ("a time limit ends a call", time_limit),
    ("a time limit of the transfer of arguments ends a call, but none that computes", time_limits_of_arguments),
    ("a cancelled call ends", cancelled_call),
    ("a cancelled group ends", cancelled_group),
    ("two clients do not see each other", two_clients),
    ("a server tells what its functions have printed", output_told),
    ("servers pass on what comes to them", passed_on),
    ("what a killed server was to pass on comes from elsewhere", passed_on_by_a_killed_server),
];

/// Longest that any wait of the suite may take: the time in which silence is noticed, and as much again.
const PATIENCE_NS: u64 = 2 * SILENCE_NS_MAX + 10 * SECOND_NS;
const ELEMENTS: u64 = 10_000;
/// Of an array that is passed on while it comes.
const LARGE_ELEMENTS: u64 = 4 * CUT_THROUGH_BYTES_MIN / 8;

/// The suite's functions.
pub fn definitions() -> Vec<Definition> {
    gridloom_idl::parse(IDL, "suite.idl").expect("the suite's functions parse")
}

fn spec(number: u32, memory_bytes: u64) -> ServerSpec {
    let name = format!("server-{number}");
    ServerSpec { name, slots: 1, plain: false, memory_bytes, functions: definitions() }
}

/// A grid with a client that has seen its servers.
struct Stage<'w> {
    world: &'w mut dyn World,
    agent: NodeId,
    servers: Vec<NodeId>,
    client: NodeId,
    serial: u64,
    hashes: BTreeMap<String, u64>,
    /// The client's own identifier, which names its data: worlds may number nodes as they like.
    name: NodeId,
    ended: BTreeMap<TaskId, TaskReport>,
    answers: BTreeMap<u64, names::Answer>,
    lost: Vec<TaskId>,
    groups_ended: BTreeSet<GroupId>,
    /// Names of servers, from the directory.
    names: BTreeMap<NodeId, String>,
}

impl<'w> Stage<'w> {
    fn new(world: &'w mut dyn World, servers: u32) -> Stage<'w> {
        Stage::with_memory(world, servers, STORE_BYTES_DEFAULT)
    }

    fn with_memory(world: &'w mut dyn World, servers: u32, memory_bytes: u64) -> Stage<'w> {
        let agent = world.start_agent();
        let nodes = (1..=servers).map(|number| world.start_server(spec(number, memory_bytes))).collect();
        let client = world.start_client("client");
        let name = client;
        let hashes = definitions().iter().map(|d| (d.signature.name.clone(), d.signature.hash())).collect();
        let (ended, answers, lost, groups_ended, names) = Default::default();
        let (count, servers) = (servers as usize, nodes);
        let mut stage =
            Stage { world, agent, servers, client, serial: 1, hashes, name, ended, answers, lost, groups_ended, names };
        stage.until("all servers in the directory", |event| match event {
            Event::Directory { grid, .. } => (grid.servers.len() == count).then_some(()),
            _ => None,
        });
        stage
    }

    fn serial(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }

    /// Waits for an event; remembers the ends of tasks, and answers about names, on the way.
    fn until<R>(&mut self, what: &str, mut found: impl FnMut(&Event) -> Option<R>) -> R {
        loop {
            let event = self.world.next_event(self.client, PATIENCE_NS);
            let event = event.unwrap_or_else(|| panic!("{what}: not within {PATIENCE_NS} ns"));
            match &event {
                Event::TaskEnded { report, .. } => {
                    self.ended.insert(report.task, report.clone());
                }
                Event::Named { ask, answer } => _ = self.answers.insert(*ask, answer.clone()),
                Event::ServerLost { again, .. } => self.lost.extend(again),
                Event::GroupEnded { group, .. } => _ = self.groups_ended.insert(*group),
                Event::Directory { grid, .. } => {
                    self.names.extend(grid.servers.iter().map(|server| (server.node, server.name.clone())));
                }
                _ => {}
            }
            if let Some(result) = found(&event) {
                return result;
            }
        }
    }

    fn array(&mut self) -> (DatumId, Meta) {
        self.array_of(ELEMENTS)
    }

    fn array_of(&mut self, elements: u64) -> (DatumId, Meta) {
        let datum = DatumId { client: self.name, serial: self.serial() };
        let meta = Meta::array(Dtype::Float64, &[elements]);
        let bytes: Vec<u8> = (0..elements).flat_map(|i| (i as f64).to_ne_bytes()).collect();
        self.world.put(self.client, datum, meta.clone(), Some(bytes));
        (datum, meta)
    }

    fn task(&mut self, function: &str, scalars: &[i32], inputs: &[DatumId], outputs: usize) -> Task {
        let function = format!("suite/{function}");
        let meta = Meta::scalar(Dtype::Int32);
        let scalar = |value: &i32| Argument::Inline { meta: meta.clone(), bytes: value.to_ne_bytes().to_vec() };
        let args = scalars.iter().map(scalar).chain(inputs.iter().map(|datum| Argument::Datum(*datum))).collect();
        let client = self.name;
        let outputs = (0..outputs)
            .map(|_| Output {
                datum: DatumId { client, serial: self.serial() },
                meta: Meta::array(Dtype::Float64, &[ELEMENTS]),
            })
            .collect();
        let work_flops = Some(if function.ends_with("wait_ms") { 1e7 * f64::from(scalars[0]) } else { 1e4 });
        let signature_hash = self.hashes.get(&function).copied().unwrap_or(0);
        Task {
            id: TaskId { client, serial: self.serial() },
            kind: TaskKind::call(function, signature_hash),
            args,
            outputs,
            work_flops,
            terms: Default::default(),
        }
    }

    fn call(&mut self, task: Task, sources: &[(DatumId, Meta)], limits: impl Into<CallLimits>) -> TaskId {
        let (id, limits) = (task.id, limits.into());
        self.world.command(self.client, Command::Call { task, sources: sources.to_vec(), limits });
        id
    }

    fn run(&mut self, tasks: Vec<Task>, sources: &[(DatumId, Meta)]) -> GroupId {
        let id = GroupId { client: self.name, serial: self.serial() };
        let at = vec![self.name];
        let sources =
            sources.iter().map(|(datum, meta)| (*datum, Source { meta: meta.clone(), at: at.clone() })).collect();
        let group = Group { id, tasks, sources, wanted: Vec::new() };
        self.world.command(self.client, Command::Run { group, heuristic: "heft".into() });
        id
    }

    /// The directory's name of the server at that place in `servers`.
    fn node_of(&self, place: usize) -> NodeId {
        let name = format!("server-{}", place + 1);
        let (node, _) = self.names.iter().find(|(_, known)| **known == name).expect("all servers are in the directory");
        *node
    }

    /// Has a task run on the server at that place, which takes a datum from the server at another.
    fn follow(&mut self, task: Task, place: usize, (datum, meta): (DatumId, Meta), from: Option<usize>) -> GroupId {
        let id = GroupId { client: self.name, serial: self.serial() };
        let sources = BTreeMap::from([(datum, Source { meta, at: vec![self.name] })]);
        let group = Group { id, tasks: vec![task], sources, wanted: Vec::new() };
        let from = from.into_iter().map(|source| (datum, self.node_of(source))).collect();
        let server = self.node_of(place);
        let command = Command::Follow { group, server, from, heuristic: "heft".into(), plan: None };
        self.world.command(self.client, command);
        id
    }

    /// The place in `servers` of the server that the group's plan gives a task to.
    fn server_of(&mut self, task: TaskId) -> usize {
        let server = self.until("the plan", |event| match event {
            Event::GroupPlanned { plan, tasks, .. } => {
                tasks.iter().position(|known| *known == task).map(|index| plan.tasks[index].server)
            }
            _ => None,
        });
        let name = self.names.get(&server).expect("the plan names a server of the directory");
        name.trim_start_matches("server-").parse::<usize>().expect("the suite numbers its servers") - 1
    }

    fn end_of(&mut self, task: TaskId) -> Result<Vec<(DatumId, Meta)>, TaskError> {
        if let Some(report) = self.ended.get(&task) {
            return report.outcome.clone();
        }
        self.until("the end of a task", |event| match event {
            Event::TaskEnded { report, .. } if report.task == task => Some(report.outcome.clone()),
            _ => None,
        })
    }

    fn group_end(&mut self, group: GroupId) {
        if self.groups_ended.contains(&group) {
            return;
        }
        self.until("the end of a group", |event| match event {
            Event::GroupEnded { group: ended, .. } => (*ended == group).then_some(()),
            _ => None,
        });
    }

    /// Brings a datum here and checks its elements, where the world has them.
    fn expect(&mut self, datum: DatumId, element: impl Fn(f64) -> f64) {
        self.world.command(self.client, Command::Get { datum });
        let outcome = self.until("a datum", |event| match event {
            Event::DatumHere { datum: here, .. } => (*here == datum).then_some(Ok(())),
            Event::DatumLost { datum: lost, error } => (*lost == datum).then(|| Err(error.clone())),
            _ => None,
        });
        outcome.unwrap_or_else(|error| panic!("{datum}: {error}"));
        self.check(datum, element);
    }

    fn check(&mut self, datum: DatumId, element: impl Fn(f64) -> f64) {
        let (meta, bytes) = self.world.value(self.client, datum).expect("the datum is in the client's store");
        let elements = meta.size_bytes() / 8;
        assert!([ELEMENTS, LARGE_ELEMENTS].contains(&elements), "{meta}");
        assert_eq!(meta, Meta::array(Dtype::Float64, &[elements]));
        let Some(bytes) = bytes else { return };
        for (i, chunk) in bytes.as_chunks::<8>().0.iter().enumerate() {
            assert_eq!(f64::from_ne_bytes(*chunk), element(i as f64), "element {i} of {datum}");
        }
    }
}

fn plain_call(world: &mut dyn World) {
    let mut stage = Stage::new(world, 2);
    let null = stage.task("null", &[], &[], 0);
    let null = stage.call(null, &[], None);
    assert_eq!(stage.end_of(null), Ok(vec![]));
    let (x, meta) = stage.array();
    let task = stage.task("double_all", &[ELEMENTS as i32], &[x], 1);
    let y = task.outputs[0].datum;
    let id = stage.call(task, &[(x, meta.clone())], None);
    assert_eq!(stage.end_of(id), Ok(vec![(y, meta)]));
    stage.check(y, |i| 2.0 * i);
}

fn group_keeps_results(world: &mut dyn World) {
    let mut stage = Stage::new(world, 2);
    let n = ELEMENTS as i32;
    let (x, meta) = stage.array();
    let a = stage.task("double_all", &[n], &[x], 1);
    let b = stage.task("double_all", &[n], &[x], 1);
    let c = stage.task("sum", &[n], &[a.outputs[0].datum, b.outputs[0].datum], 1);
    let (first, last) = (a.outputs[0].datum, c.outputs[0].datum);
    let group = stage.run(vec![a, b, c], &[(x, meta)]);
    stage.group_end(group);
    assert!(stage.world.value(stage.client, last).is_none(), "a result came that nobody asked for");
    stage.expect(last, |i| 4.0 * i);
    stage.expect(first, |i| 2.0 * i);
}

fn in_place_keeps_old_version(world: &mut dyn World) {
    let mut stage = Stage::new(world, 1);
    let n = ELEMENTS as i32;
    let (x, meta) = stage.array();
    let a = stage.task("double_all", &[n], &[x], 1);
    let old = a.outputs[0].datum;
    let b = stage.task("increment", &[n], &[old], 1);
    let c = stage.task("increment", &[n], &[old], 1);
    let (new, other) = (b.outputs[0].datum, c.outputs[0].datum);
    let group = stage.run(vec![a, b, c], &[(x, meta)]);
    stage.group_end(group);
    stage.expect(new, |i| 2.0 * i + 1.0);
    stage.expect(other, |i| 2.0 * i + 1.0);
    stage.expect(old, |i| 2.0 * i);
}

/// Four chains of three tasks, each task taking some time; the first of the first chain is returned with the results.
fn chains(stage: &mut Stage<'_>) -> (GroupId, TaskId, Vec<DatumId>) {
    let n = ELEMENTS as i32;
    let (mut tasks, mut last) = (Vec::new(), Vec::new());
    let (x, meta) = stage.array();
    for _ in 0..4 {
        let mut input = x;
        for _ in 0..3 {
            let task = stage.task("wait_ms", &[100, n], &[input], 1);
            input = task.outputs[0].datum;
            tasks.push(task);
        }
        last.push(input);
    }
    let first = tasks[0].id;
    (stage.run(tasks, &[(x, meta)]), first, last)
}

fn killed_server(world: &mut dyn World) {
    let mut stage = Stage::new(world, 3);
    let (group, first, last) = chains(&mut stage);
    let server = stage.server_of(first);
    assert!(stage.end_of(first).is_ok());
    stage.world.kill(stage.servers[server]);
    stage.group_end(group);
    assert!(!stage.lost.is_empty(), "the loss was not told");
    for datum in last {
        stage.expect(datum, |i| i);
    }
}

fn hung_server(world: &mut dyn World) {
    let mut stage = Stage::new(world, 3);
    let (group, first, last) = chains(&mut stage);
    let server = stage.server_of(first);
    assert!(stage.end_of(first).is_ok());
    let hung_at = stage.world.now();
    stage.world.hang(stage.servers[server]);
    stage.group_end(group);
    let noticed_ns = stage.world.now().since(hung_at);
    assert!(noticed_ns < SILENCE_NS_MAX + 5 * SECOND_NS, "noticed after {noticed_ns} ns");
    for datum in last {
        stage.expect(datum, |i| i);
    }
}

fn lost_results_come_again(world: &mut dyn World) {
    let mut stage = Stage::new(world, 2);
    let n = ELEMENTS as i32;
    let (x, meta) = stage.array();
    let a = stage.task("double_all", &[n], &[x], 1);
    let b = stage.task("double_all", &[n], &[a.outputs[0].datum], 1);
    let (first, last) = (a.id, b.outputs[0].datum);
    let group = stage.run(vec![a, b], &[(x, meta)]);
    let server = stage.server_of(first);
    stage.group_end(group);
    stage.world.kill(stage.servers[server]);
    stage.expect(last, |i| 4.0 * i);
}

fn no_server_left(world: &mut dyn World) {
    let mut stage = Stage::new(world, 1);
    let (group, first, _) = chains(&mut stage);
    assert!(stage.end_of(first).is_ok());
    stage.world.kill(stage.servers[0]);
    stage.group_end(group);
    let errors = stage.ended.values().filter_map(|report| report.outcome.as_ref().err());
    assert!(
        errors.clone().any(|error| matches!(error, TaskError::ServerLost { .. })),
        "{:?}",
        errors.collect::<Vec<_>>()
    );
}

fn agent_gone(world: &mut dyn World) {
    let mut stage = Stage::new(world, 1);
    stage.world.kill(stage.agent);
    stage.until("the loss of the agent", |event| matches!(event, Event::AgentLost { .. }).then_some(()));
    let (group, first, _) = chains(&mut stage);
    stage.group_end(group);
    assert!(matches!(stage.end_of(first), Err(TaskError::AgentLost { .. })));
}

fn unknown_function(world: &mut dyn World) {
    let mut stage = Stage::new(world, 1);
    let task = stage.task("nothing_of_the_kind", &[], &[], 0);
    let id = stage.call(task, &[], None);
    assert!(matches!(stage.end_of(id), Err(TaskError::NoSuchFunction { .. })));
}

fn full_store(world: &mut dyn World) {
    let mut stage = Stage::with_memory(world, 1, 8 * ELEMENTS * 3 / 2);
    let (x, meta) = stage.array();
    let task = stage.task("double_all", &[ELEMENTS as i32], &[x], 1);
    let id = stage.call(task, &[(x, meta)], None);
    let needed = 2 * 8 * ELEMENTS;
    match stage.end_of(id) {
        Err(TaskError::StoreFull { needed: told, .. }) => assert_eq!(told, needed),
        other => panic!("expected a full store, got {other:?}"),
    }
}

fn time_limit(world: &mut dyn World) {
    let mut stage = Stage::new(world, 1);
    let (x, meta) = stage.array();
    let task = stage.task("wait_ms", &[60_000, ELEMENTS as i32], &[x], 1);
    let id = stage.call(task, &[(x, meta)], Some(SECOND_NS / 2));
    assert_eq!(stage.end_of(id), Err(TaskError::DeadlineExceeded { limit_seconds: 0.5 }));
    // The slot is free again.
    let null = stage.task("null", &[], &[], 0);
    let null = stage.call(null, &[], None);
    assert_eq!(stage.end_of(null), Ok(vec![]));
}

/// The arguments of a call that computes are there in time. Those of another wait for room behind it.
fn time_limits_of_arguments(world: &mut dyn World) {
    let mut stage = Stage::with_memory(world, 1, 8 * ELEMENTS * 5 / 2);
    let limits = |seconds| CallLimits { arguments_ns: Some(seconds * SECOND_NS), ..CallLimits::default() };
    let [first, second] = [2_000, 60_000].map(|milliseconds| {
        let (x, meta) = stage.array();
        let task = stage.task("wait_ms", &[milliseconds, ELEMENTS as i32], &[x], 1);
        stage.call(task, &[(x, meta)], limits(1))
    });
    assert_eq!(stage.end_of(second), Err(TaskError::TransferLate { what: "arguments".into(), limit_seconds: 1.0 }));
    assert!(stage.end_of(first).is_ok());
}

fn cancelled_call(world: &mut dyn World) {
    let mut stage = Stage::new(world, 1);
    let (x, meta) = stage.array();
    let task = stage.task("wait_ms", &[60_000, ELEMENTS as i32], &[x], 1);
    let id = stage.call(task, &[(x, meta)], None);
    stage.world.command(stage.client, Command::Cancel { tasks: vec![id] });
    assert_eq!(stage.end_of(id), Err(TaskError::Cancelled));
    let null = stage.task("null", &[], &[], 0);
    let null = stage.call(null, &[], None);
    assert_eq!(stage.end_of(null), Ok(vec![]));
}

fn cancelled_group(world: &mut dyn World) {
    let mut stage = Stage::new(world, 2);
    let (group, first, _) = chains(&mut stage);
    assert!(stage.end_of(first).is_ok());
    let tasks = (0..stage.serial + 1).map(|serial| TaskId { client: stage.name, serial }).collect();
    stage.world.command(stage.client, Command::Cancel { tasks });
    stage.group_end(group);
    let cancelled = stage.ended.values().filter(|report| report.outcome == Err(TaskError::Cancelled)).count();
    assert!(cancelled > 0, "nothing was left to cancel");
}

fn two_clients(world: &mut dyn World) {
    let mut stage = Stage::new(world, 1);
    let other = stage.world.start_client("other");
    let (group, _, last) = chains(&mut stage);
    stage.group_end(group);
    for datum in last {
        stage.expect(datum, |i| i);
    }
    while let Some(event) = stage.world.next_event(other, SECOND_NS / 10) {
        assert!(matches!(event, Event::Directory { .. } | Event::Log(_)), "{event:?}");
    }
}

/// Functions of the suite print nothing; the answer says so, and one that is to wait comes no sooner.
fn output_told(world: &mut dyn World) {
    let mut stage = Stage::new(world, 1);
    let server = *stage.names.keys().next().expect("the directory has the server");
    let null = stage.task("null", &[], &[], 0);
    let null = stage.call(null, &[], None);
    assert_eq!(stage.end_of(null), Ok(vec![]));
    let query = OutputQuery { last: u64::MAX, ..OutputQuery::default() };
    for waits in [true, false] {
        stage.world.command(stage.client, Command::Output { server, query: OutputQuery { waits, ..query.clone() } });
    }
    let answer = stage.until("what was printed", |event| match event {
        Event::Output { server: from, output } => Some((*from, output.clone())),
        _ => None,
    });
    assert_eq!(answer, (server, message::Output::default()));
    while let Some(event) = stage.world.next_event(stage.client, SECOND_NS / 10) {
        assert!(!matches!(event, Event::Output { .. }), "{event:?}");
    }
}

/// Takes an array to three servers, each from the one before it, and gives its groups.
fn along_a_chain(stage: &mut Stage<'_>) -> (DatumId, Meta, [GroupId; 3]) {
    let (x, meta) = stage.array_of(LARGE_ELEMENTS);
    let groups = [0, 1, 2].map(|place: usize| {
        let task = Task {
            id: TaskId { client: stage.name, serial: stage.serial() },
            kind: TaskKind::Replicate(Copies::Kept),
            args: vec![Argument::Datum(x)],
            outputs: Vec::new(),
            work_flops: None,
            terms: Default::default(),
        };
        stage.follow(task, place, (x, meta.clone()), place.checked_sub(1))
    });
    (x, meta, groups)
}

/// The server at the end of the chain doubles what came.
fn double_at_the_end(stage: &mut Stage<'_>, x: DatumId, meta: Meta) {
    let mut task = stage.task("double_all", &[LARGE_ELEMENTS as i32], &[x], 1);
    task.outputs[0].meta = meta.clone();
    let y = task.outputs[0].datum;
    let group = stage.follow(task, 2, (x, meta), None);
    stage.group_end(group);
    stage.expect(y, |i| 2.0 * i);
}

fn passed_on(world: &mut dyn World) {
    let mut stage = Stage::new(world, 3);
    let (x, meta, groups) = along_a_chain(&mut stage);
    groups.into_iter().for_each(|group| stage.group_end(group));
    assert!(stage.ended.values().all(|report| report.outcome.is_ok()), "{:?}", stage.ended);
    double_at_the_end(&mut stage, x, meta);
}

fn passed_on_by_a_killed_server(world: &mut dyn World) {
    let mut stage = Stage::new(world, 3);
    let (x, meta, [_, _, last]) = along_a_chain(&mut stage);
    stage.world.kill(stage.servers[1]);
    stage.group_end(last);
    double_at_the_end(&mut stage, x, meta);
}

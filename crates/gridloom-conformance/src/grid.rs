//! The conformance suite of grids: the same grid and the same commands must have the same outcome in every world.
//!
//! The cases use [`World`]. `gridloom-sim` runs them in the simulated world and `gridloom-cli` on real processes.
//! [`IDL`] describes the functions; [`C_SOURCE`] has their bodies for the world that runs them.

mod methods;
mod names;
mod stateless;
mod test_grid;

use gridloom_base::limits::{PARTS, SILENCE_NS_MAX};
use gridloom_base::time::SECOND_NS;
use gridloom_base::{DatumId, GroupId, Meta, TaskError, TaskId};
use gridloom_core::call::CallTimeouts;
use gridloom_core::node::message::{self, OutputQuery};
use gridloom_core::node::protocol::{Command, Event};
use gridloom_core::node::world::{ServerSpec, World};
use gridloom_idl::Definition;
use test_grid::TestGrid;

/// Descriptions of the suite's functions.
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

/// Bodies of the suite's functions.
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

/// A case: its name and its code, which gets a new world.
pub type Case = (&'static str, fn(&mut dyn World));

/// Returns all cases.
pub fn cases() -> impl Iterator<Item = &'static Case> {
    CALLS.iter().chain(names::CASES).chain(methods::CASES).chain(stateless::CASES)
}

const CALLS: &[Case] = &[
    ("a plain call returns its result", plain_call),
    ("a group's results are kept until they are requested", group_keeps_results),
    ("an in-place argument keeps its old version", in_place_keeps_old_version),
    ("a killed server's part runs elsewhere", killed_server),
    ("a hung server is detected and its part runs elsewhere", hung_server),
    ("results that only a lost server held are recomputed", lost_results_are_recomputed),
    ("no server left is an error, not a wait", no_server_left),
    ("a group without its agent is an error", agent_gone),
    ("an unknown function is an error", unknown_function),
    ("a full store is an error", full_store),
    ("a time limit ends a call", time_limit),
    ("a time limit for the transfer of arguments ends a call, but not a running one", time_limits_of_arguments),
    ("a cancelled call ends", cancelled_call),
    ("a cancelled group ends", cancelled_group),
    ("two clients do not see each other", two_clients),
    ("a server reports what its functions have printed", output_reported),
    ("servers forward data while they receive them", forwarded),
    ("data that a killed server should forward are fetched from elsewhere", forwarded_by_a_killed_server),
];

/// Time limit of any wait of the suite: twice the time after which a silent peer counts as lost, and some more.
const WAIT_NS_MAX: u64 = 2 * SILENCE_NS_MAX + 10 * SECOND_NS;
const ELEMENTS: u64 = 10_000;
/// Elements of an array that is large enough to be forwarded while it is received.
const LARGE_ELEMENTS: u64 = 4 * PARTS.forwarded_bytes_min() / 8;

/// Returns the suite's functions.
pub fn definitions() -> Vec<Definition> {
    gridloom_idl::parse(IDL, "suite.idl").expect("the suite's functions parse")
}

fn spec(number: u32, memory_bytes: u64) -> ServerSpec {
    let name = format!("server-{number}");
    ServerSpec { name, slots: 1, is_stateless: false, memory_bytes, disk_bytes: 0, functions: definitions() }
}

fn plain_call(world: &mut dyn World) {
    let mut stage = TestGrid::new(world, 2);
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
    let mut stage = TestGrid::new(world, 2);
    let n = ELEMENTS as i32;
    let (x, meta) = stage.array();
    let a = stage.task("double_all", &[n], &[x], 1);
    let b = stage.task("double_all", &[n], &[x], 1);
    let c = stage.task("sum", &[n], &[a.outputs[0].datum, b.outputs[0].datum], 1);
    let (first, last) = (a.outputs[0].datum, c.outputs[0].datum);
    let group = stage.run(vec![a, b, c], &[(x, meta)]);
    stage.group_end(group);
    assert!(stage.world.value(stage.client, last).is_none(), "a result arrived that nobody requested");
    stage.expect(last, |i| 4.0 * i);
    stage.expect(first, |i| 2.0 * i);
}

fn in_place_keeps_old_version(world: &mut dyn World) {
    let mut stage = TestGrid::new(world, 1);
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

/// Submits four chains of three tasks, each of which takes some time. Returns the group, the first task of the first
/// chain, and the results.
fn chains(stage: &mut TestGrid<'_>) -> (GroupId, TaskId, Vec<DatumId>) {
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
    let mut stage = TestGrid::new(world, 3);
    let (group, first, last) = chains(&mut stage);
    let server = stage.server_of(first);
    assert!(stage.end_of(first).is_ok());
    stage.world.kill(stage.servers[server]);
    stage.group_end(group);
    assert!(!stage.lost.is_empty(), "the loss was not reported");
    for datum in last {
        stage.expect(datum, |i| i);
    }
}

fn hung_server(world: &mut dyn World) {
    let mut stage = TestGrid::new(world, 3);
    let (group, first, last) = chains(&mut stage);
    let server = stage.server_of(first);
    assert!(stage.end_of(first).is_ok());
    let hung_at = stage.world.now();
    stage.world.hang(stage.servers[server]);
    stage.group_end(group);
    let noticed_ns = stage.world.now().since(hung_at);
    assert!(noticed_ns < SILENCE_NS_MAX + 5 * SECOND_NS, "detected after {noticed_ns} ns");
    for datum in last {
        stage.expect(datum, |i| i);
    }
}

fn lost_results_are_recomputed(world: &mut dyn World) {
    let mut stage = TestGrid::new(world, 2);
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
    let mut stage = TestGrid::new(world, 1);
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
    let mut stage = TestGrid::new(world, 1);
    stage.world.kill(stage.agent);
    stage.until("the loss of the agent", |event| matches!(event, Event::AgentLost { .. }).then_some(()));
    let (group, first, _) = chains(&mut stage);
    stage.group_end(group);
    assert!(matches!(stage.end_of(first), Err(TaskError::AgentLost { .. })));
}

fn unknown_function(world: &mut dyn World) {
    let mut stage = TestGrid::new(world, 1);
    let task = stage.task("nothing_of_the_kind", &[], &[], 0);
    let id = stage.call(task, &[], None);
    assert!(matches!(stage.end_of(id), Err(TaskError::NoSuchFunction { .. })));
}

fn full_store(world: &mut dyn World) {
    let mut stage = TestGrid::with_memory(world, 1, 8 * ELEMENTS * 3 / 2);
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
    let mut stage = TestGrid::new(world, 1);
    let (x, meta) = stage.array();
    let task = stage.task("wait_ms", &[60_000, ELEMENTS as i32], &[x], 1);
    let id = stage.call(task, &[(x, meta)], Some(SECOND_NS / 2));
    assert_eq!(stage.end_of(id), Err(TaskError::DeadlineExceeded { limit_seconds: 0.5 }));
    // The slot is free again.
    let null = stage.task("null", &[], &[], 0);
    let null = stage.call(null, &[], None);
    assert_eq!(stage.end_of(null), Ok(vec![]));
}

/// The arguments of a running call arrive in time. The arguments of a second call wait until the first one releases
/// room.
fn time_limits_of_arguments(world: &mut dyn World) {
    let mut stage = TestGrid::with_memory(world, 1, 8 * ELEMENTS * 5 / 2);
    let limits = |seconds| CallTimeouts { arguments_ns: Some(seconds * SECOND_NS), ..CallTimeouts::default() };
    let [first, second] = [2_000, 60_000].map(|milliseconds| {
        let (x, meta) = stage.array();
        let task = stage.task("wait_ms", &[milliseconds, ELEMENTS as i32], &[x], 1);
        stage.call(task, &[(x, meta)], limits(1))
    });
    assert_eq!(stage.end_of(second), Err(TaskError::TransferTimedOut { what: "arguments".into(), limit_seconds: 1.0 }));
    assert!(stage.end_of(first).is_ok());
}

fn cancelled_call(world: &mut dyn World) {
    let mut stage = TestGrid::new(world, 1);
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
    let mut stage = TestGrid::new(world, 2);
    let (group, first, _) = chains(&mut stage);
    assert!(stage.end_of(first).is_ok());
    let tasks = (0..stage.serial + 1).map(|serial| TaskId { client: stage.name, serial }).collect();
    stage.world.command(stage.client, Command::Cancel { tasks });
    stage.group_end(group);
    let cancelled = stage.ended.values().filter(|report| report.outcome == Err(TaskError::Cancelled)).count();
    assert!(cancelled > 0, "nothing was left to cancel");
}

fn two_clients(world: &mut dyn World) {
    let mut stage = TestGrid::new(world, 1);
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

/// The suite's functions print nothing: the answer reports no output, and an answer that has to wait is not early.
fn output_reported(world: &mut dyn World) {
    let mut stage = TestGrid::new(world, 1);
    let server = *stage.names.keys().next().expect("the directory has the server");
    let null = stage.task("null", &[], &[], 0);
    let null = stage.call(null, &[], None);
    assert_eq!(stage.end_of(null), Ok(vec![]));
    let query = OutputQuery { last: u64::MAX, ..OutputQuery::default() };
    for waits in [true, false] {
        stage
            .world
            .command(stage.client, Command::Output { server, query: OutputQuery { wait: waits, ..query.clone() } });
    }
    let answer = stage.until("what was printed", |event| match event {
        Event::Output { server: from, output } => Some((*from, output.clone())),
        _ => None,
    });
    assert_eq!(answer, (server, message::OutputPage::default()));
    while let Some(event) = stage.world.next_event(stage.client, SECOND_NS / 10) {
        assert!(!matches!(event, Event::Output { .. }), "{event:?}");
    }
}

/// Sends an array along a chain of three servers. Returns the array and the groups.
fn along_a_chain(stage: &mut TestGrid<'_>) -> (DatumId, Meta, [GroupId; 3]) {
    let (x, meta) = stage.array_of(LARGE_ELEMENTS);
    let groups = [0, 1, 2].map(|place: usize| {
        let task = stage.copying(x);
        stage.follow(task, place, (x, meta.clone()), place.checked_sub(1))
    });
    (x, meta, groups)
}

/// The server at the end of the chain doubles the array it received.
fn double_at_the_end(stage: &mut TestGrid<'_>, x: DatumId, meta: Meta) {
    let mut task = stage.task("double_all", &[LARGE_ELEMENTS as i32], &[x], 1);
    task.outputs[0].meta = meta.clone();
    let y = task.outputs[0].datum;
    let group = stage.follow(task, 2, (x, meta), None);
    stage.group_end(group);
    stage.expect(y, |i| 2.0 * i);
}

fn forwarded(world: &mut dyn World) {
    let mut stage = TestGrid::new(world, 3);
    let (x, meta, groups) = along_a_chain(&mut stage);
    groups.into_iter().for_each(|group| stage.group_end(group));
    assert!(stage.ended.values().all(|report| report.outcome.is_ok()), "{:?}", stage.ended);
    double_at_the_end(&mut stage, x, meta);
}

fn forwarded_by_a_killed_server(world: &mut dyn World) {
    let mut stage = TestGrid::new(world, 3);
    let (x, meta, [_, _, last]) = along_a_chain(&mut stage);
    stage.world.kill(stage.servers[1]);
    stage.group_end(last);
    double_at_the_end(&mut stage, x, meta);
}

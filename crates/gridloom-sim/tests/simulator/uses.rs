//! Tests of functions that declare which shared data they get and put: calls of them take the time of these transfers.

use crate::lan;
use gridloom_base::limits::RECONNECT_NS_MAX;
use gridloom_base::time::{MILLISECOND_NS, SECOND_NS};
use gridloom_base::{Dtype, GroupId, Meta, NameError, NodeId, TaskError, TaskId};
use gridloom_core::graph::{Argument, CallOptions, Group, Task, TaskKind};
use gridloom_core::node::message::CatalogAnswer;
use gridloom_core::node::{Command, Event, NameCommand};
use gridloom_idl::{ActualArgument, Definition};
use gridloom_platform::HostId;
use gridloom_sim::Simulation;

const IDL: &str = "Module t;\n\
    Define puts(IN int i, IN int bytes) CalcOrder 1e9 Puts(\"part/{i}\", bytes) Calls \"C\" p(i, bytes);\n\
    Define replaces(IN int i, IN int bytes) CalcOrder 1e9 Replaces(\"part/{i}\", bytes) Calls \"C\" p(i, bytes);\n\
    Define gets(IN int i, IN int j) CalcOrder 1e9 Gets(\"part/{i}\", 0) Gets(\"part/{j}\", 0) Calls \"C\" p(i, j);\n\
    Define both(IN int i, IN int bytes) CalcOrder 1e9 Gets(\"part/{i}\", bytes) Puts(\"part/{i+1}\", bytes) Calls \"C\" p(i, bytes);\n\
    Define keeps(IN int i, IN int bytes) CalcOrder 1e9 Puts(\"part/{i}\", bytes, replicas 2, durable) Calls \"C\" p(i, bytes);\n";
/// 1 s over a link of the network.
const LARGE: i32 = 100_000_000;
const SMALL: i32 = 800;

struct Stage {
    sim: Simulation,
    client: NodeId,
    servers: Vec<NodeId>,
    functions: Vec<Definition>,
    next: u64,
}

impl Stage {
    fn new() -> Stage {
        let functions = gridloom_idl::parse(IDL, "t.idl").unwrap();
        let (sim, client, servers) = lan::grid(&functions, 1 << 30);
        Stage { sim, client, servers, functions, next: 0 }
    }

    fn task(&mut self, function: &str, only: Option<NodeId>, args: [i32; 2]) -> Task {
        self.next += 1;
        let (client, serial) = (self.client, self.next);
        let name = format!("t/{function}");
        let found = self.functions.iter().find(|definition| definition.signature.name == name).unwrap();
        let (meta, bytes) = (Meta::scalar(Dtype::Int32), |value: i32| value.to_ne_bytes().to_vec());
        let actual = args.map(|value| ActualArgument { meta: meta.clone(), inline: Some(bytes(value)) });
        let uses = found.signature.bind(&actual, &[]).unwrap().uses;
        let inline = |value: i32| Argument::Inline { meta: meta.clone(), bytes: bytes(value) };
        Task {
            id: TaskId { client, serial },
            kind: TaskKind::call(&name, found.signature.hash()),
            args: args.map(inline).to_vec(),
            outputs: Vec::new(),
            work_flops: Some(1e9),
            options: CallOptions { bound_to: only, uses: uses.into(), ..CallOptions::default() },
        }
    }

    fn run(&mut self, tasks: Vec<Task>) {
        let id = GroupId { client: self.client, serial: tasks[0].id.serial };
        let group = Group { id, tasks, sources: Default::default(), wanted: Vec::new() };
        self.sim.command(self.client, Command::Run { group, heuristic: "heft".into() });
    }

    fn begin(&mut self, function: &str, server: usize, args: [i32; 2]) -> TaskId {
        let task = self.task(function, Some(self.servers[server]), args);
        let id = task.id;
        self.run(vec![task]);
        id
    }

    /// Runs tasks as a mapped group. Returns their servers, the planned time, and the actual time.
    fn planned(&mut self, tasks: Vec<Task>) -> (Vec<NodeId>, f64, f64) {
        let ids: Vec<TaskId> = tasks.iter().map(|task| task.id).collect();
        self.run(tasks);
        let planned = lan::wait_for(&mut self.sim, self.client, |event| matches!(event, Event::GroupPlanned { .. }));
        let Event::GroupPlanned { plan, .. } = planned else { unreachable!("looked for above") };
        let began = self.sim.now();
        let is_over = |event: &Event| matches!(event, Event::GroupEnded { .. });
        lan::wait_for(&mut self.sim, self.client, is_over);
        let servers = plan.tasks.iter().map(|task| task.server).collect();
        assert_eq!(plan.tasks.len(), ids.len());
        (servers, plan.makespan_s, self.sim.now().since(began) as f64 / SECOND_NS as f64)
    }

    fn end(&mut self, task: TaskId) -> Result<(), TaskError> {
        let is_it = |event: &Event| matches!(event, Event::TaskEnded { report, .. } if report.task == task);
        match lan::wait_for(&mut self.sim, self.client, is_it) {
            Event::TaskEnded { report, .. } => report.outcome.map(drop),
            _ => unreachable!("looked for above"),
        }
    }

    /// Runs a call. Returns how long it takes.
    fn call(&mut self, function: &str, server: usize, args: [i32; 2]) -> f64 {
        let began = self.sim.now();
        let task = self.begin(function, server, args);
        assert_eq!(self.end(task), Ok(()));
        self.sim.now().since(began) as f64 / SECOND_NS as f64
    }

    fn ask(&mut self, command: NameCommand) -> Result<CatalogAnswer, NameError> {
        self.next += 1;
        let number = self.next;
        self.sim.command(self.client, Command::Name { request: number, command });
        let is_it = |event: &Event| matches!(event, Event::NameResult { request, .. } if *request == number);
        match lan::wait_for(&mut self.sim, self.client, is_it) {
            Event::NameResult { answer, .. } => answer,
            _ => unreachable!("looked for above"),
        }
    }

    /// Returns size, version and servers of a name.
    fn named(&mut self, name: &str) -> (u64, u64, Vec<NodeId>) {
        let list = NameCommand::List { prefix: name.into(), after: String::new() };
        let Ok(CatalogAnswer::Listed { names, .. }) = self.ask(list) else { panic!("no list") };
        let listed = names.iter().find(|listed| listed.named.name == name).expect("it was put");
        (listed.named.meta.size_bytes(), listed.named.version, listed.holders.clone())
    }

    fn nothing_is_left(&mut self, names: &[&str]) {
        for name in names {
            assert_eq!(self.ask(NameCommand::Delete { name: (*name).into() }), Ok(CatalogAnswer::Deleted));
        }
        self.sim.advance(2 * SECOND_NS);
        for server in self.servers.clone().into_iter().filter(|server| !self.sim.is_dead(*server)) {
            let left = self.sim.server(server).unwrap().leak_counts();
            assert!(left.iter().all(|(_, count)| *count == 0), "{server}: {left:?}");
        }
    }
}

fn is_near(seconds: f64, expected: f64) -> bool {
    (seconds - expected).abs() < 0.1 * expected
}

#[test]
fn what_a_function_puts_is_there_when_the_call_has_ended() {
    for bytes in [SMALL, LARGE] {
        let mut stage = Stage::new();
        // The first plan waits until links are measured.
        stage.call("puts", 1, [1, SMALL]);
        let seconds = stage.call("puts", 0, [3, bytes]);
        assert!(is_near(seconds, 1.0), "1 s to compute, and it stays at its server: {seconds}");
        let holder = stage.servers[0];
        assert_eq!(stage.named("part/3"), (bytes as u64, 1, vec![holder]));
        stage.call("replaces", 0, [3, bytes / 2]);
        let (size, version, _) = stage.named("part/3");
        assert!(size == bytes as u64 / 2 && version > 1, "{size}, {version}");
        stage.nothing_is_left(&["part/1", "part/3"]);
    }
}

#[test]
fn what_a_function_gets_arrives_at_its_server_once() {
    let mut stage = Stage::new();
    stage.call("puts", 0, [1, LARGE]);
    stage.call("puts", 0, [2, SMALL]);
    let seconds = stage.call("gets", 0, [1, 2]);
    assert!(is_near(seconds, 1.0), "all is here: {seconds}");
    let seconds = stage.call("gets", 1, [1, 2]);
    assert!(is_near(seconds, 2.0), "1 s to come, 1 s to compute: {seconds}");
    let seconds = stage.call("gets", 1, [1, 2]);
    assert!(is_near(seconds, 1.0), "it is there from the call before: {seconds}");
    assert_eq!(stage.named("part/1").2.len(), 2);
    stage.nothing_is_left(&["part/1", "part/2"]);
}

#[test]
fn a_call_that_waits_for_a_name_keeps_no_slot() {
    let mut stage = Stage::new();
    // Each call waits for the next, on servers of one slot.
    let chain: Vec<TaskId> = (1..=6).rev().map(|i| stage.begin("both", i as usize % 2, [i, SMALL])).collect();
    stage.sim.advance(10 * SECOND_NS);
    let began = stage.sim.now();
    let first = stage.begin("puts", 0, [1, SMALL]);
    assert_eq!(stage.end(first), Ok(()));
    for task in chain.into_iter().rev() {
        assert_eq!(stage.end(task), Ok(()));
    }
    assert!(is_near(stage.sim.now().since(began) as f64 / SECOND_NS as f64, 7.0));
    let names: Vec<String> = (1..=7).map(|i| format!("part/{i}")).collect();
    stage.nothing_is_left(&names.iter().map(String::as_str).collect::<Vec<_>>());
}

#[test]
fn a_call_that_is_cancelled_while_it_waits_leaves_nothing() {
    let mut stage = Stage::new();
    let waits = stage.begin("gets", 0, [1, 2]);
    stage.sim.advance(SECOND_NS);
    stage.call("puts", 1, [1, LARGE]);
    stage.sim.advance(100 * MILLISECOND_NS);
    stage.sim.command(stage.client, Command::Cancel { tasks: vec![waits] });
    assert_eq!(stage.end(waits), Err(TaskError::Cancelled));
    stage.nothing_is_left(&["part/1"]);
}

#[test]
fn a_name_that_exists_fails_the_call() {
    let mut stage = Stage::new();
    stage.call("puts", 0, [1, SMALL]);
    let again = stage.begin("puts", 1, [1, SMALL]);
    match stage.end(again) {
        Err(TaskError::Raised { kind, message, server, .. }) => {
            assert_eq!((kind.as_str(), server.as_str()), ("NameExists", "server-2"));
            assert!(message.contains("'part/1'"), "{message}");
        }
        other => panic!("{other:?}"),
    }
    stage.nothing_is_left(&["part/1"]);
}

#[test]
fn a_call_that_its_program_makes_again_may_put_the_same() {
    let mut stage = Stage::new();
    let first = stage.begin("puts", 0, [1, SMALL]);
    assert_eq!(stage.end(first), Ok(()));
    let mut again = |bytes| {
        let mut task = stage.task("puts", Some(stage.servers[1]), [1, bytes]);
        task.options.retry_of = std::num::NonZeroU64::new(first.serial);
        let id = task.id;
        stage.run(vec![task]);
        stage.end(id)
    };
    assert_eq!(again(SMALL), Ok(()));
    match again(2 * SMALL) {
        Err(TaskError::Raised { kind, message, .. }) => {
            assert_eq!(kind, "NameExists");
            assert!(message.contains("was restarted and puts other data"), "{message}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(stage.named("part/1"), (SMALL as u64, 1, vec![stage.servers[0]]));
    stage.nothing_is_left(&["part/1"]);
}

#[test]
fn a_call_whose_server_is_lost_gets_and_puts_elsewhere() {
    let mut stage = Stage::new();
    stage.call("puts", 1, [1, LARGE]);
    let task = stage.begin("both", 0, [1, LARGE]);
    stage.sim.advance(500 * MILLISECOND_NS);
    let lost = stage.servers[0];
    stage.sim.kill(lost);
    assert!(matches!(stage.end(task), Err(TaskError::ServerLost { .. })));
    let seconds = stage.call("both", 1, [1, LARGE]);
    assert!(is_near(seconds, 1.0), "{seconds}");
    assert_eq!(stage.named("part/2").2, [stage.servers[1]]);
    // The session of the lost server might return.
    stage.sim.advance(RECONNECT_NS_MAX);
    stage.nothing_is_left(&["part/1", "part/2"]);
}

/// Regression test for soak seed 40870: the session of a server that had lost the agent waited for it forever.
#[test]
fn a_call_whose_server_cannot_reach_the_agent_fails() {
    let mut stage = Stage::new();
    // The first plan waits until links are measured.
    stage.call("puts", 1, [1, SMALL]);
    stage.sim.cut(HostId(0), HostId(1));
    let puts = stage.begin("puts", 0, [2, SMALL]);
    match stage.end(puts) {
        Err(TaskError::Raised { kind, .. }) => assert_eq!(kind, "SharedDataError"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn calls_are_planned_with_what_they_get_and_put() {
    let mut stage = Stage::new();
    for server in [0, 1] {
        // By then links and times are known.
        stage.call("puts", server, [10 + server as i32, LARGE]);
        stage.call("gets", 1 - server, [10 + server as i32, 10 + server as i32]);
    }
    stage.call("puts", 1, [1, LARGE]);
    // Two calls get the datum: one runs where it is, the other waits for the datum or for the first call.
    let tasks = vec![stage.task("gets", None, [1, 1]), stage.task("gets", None, [1, 1])];
    let (servers, predicted, seconds) = stage.planned(tasks);
    assert_eq!(servers[0], stage.servers[1]);
    assert!(is_near(seconds, predicted) && is_near(seconds, 2.0), "predicted {predicted}, took {seconds}");
    // A chain by names: each call runs where the previous one has put its data.
    let tasks: Vec<Task> = (1..=3).map(|i| stage.task("both", None, [i, LARGE])).collect();
    let (servers, predicted, seconds) = stage.planned(tasks);
    assert!(servers[0] == servers[1] && servers[1] == servers[2], "{servers:?}");
    assert!(is_near(seconds, predicted) && is_near(seconds, 3.0), "predicted {predicted}, took {seconds}");
    // Nobody has put this name yet, so the plan does not know it.
    let waits = vec![stage.task("gets", None, [9, 9])];
    stage.run(waits);
    stage.call("puts", 0, [9, SMALL]);
    lan::wait_for(&mut stage.sim, stage.client, |event| matches!(event, Event::GroupEnded { .. }));
    stage.nothing_is_left(&["part/1", "part/2", "part/3", "part/4", "part/9", "part/10", "part/11"]);
}

#[test]
fn what_is_put_is_kept_as_declared() {
    let mut stage = Stage::new();
    stage.call("keeps", 0, [1, SMALL]);
    let list = NameCommand::List { prefix: String::new(), after: String::new() };
    let Ok(CatalogAnswer::Listed { names, .. }) = stage.ask(list) else { panic!("no list") };
    let [one] = &names[..] else { panic!("{names:?}") };
    assert_eq!((one.named.replicas, one.named.is_durable, one.holders.len()), (2, true, 2));
    stage.nothing_is_left(&["part/1"]);
}

//! Tests of the server as a whole: which tasks it refuses, where readers of a lost result request it, and calibration calls.

use super::*;
use crate::graph::{Argument, CallOptions, Output as Made, Task, TaskKind};
use crate::node::message::{CatalogToServer, DataMessage, Supply};
use crate::node::version::VERSIONS;
use gridloom_base::{DatumId, Dtype, Meta, NamedDatum, Origin, Rules, RulesSection, TaskError, TaskId};
use gridloom_idl::parse;

/// Returns the configuration of a server 's' with a store of 1 MiB, which offers one function and has no agent.
fn offering(function: Signature, slots: u32) -> ServerConfig {
    ServerConfig { slots, functions: vec![function], ..offering_nothing() }
}

/// Returns the same with one slot and no function, as a base for tests of the server's parts.
pub(super) fn offering_nothing() -> ServerConfig {
    ServerConfig {
        id: NodeId(1),
        name: "s".into(),
        address: String::new(),
        agent: String::new(),
        slots: 1,
        cores: 0,
        queue_depth: 1,
        is_stateless: false,
        memory_bytes: 1 << 20,
        disk_bytes: 0,
        data_max: u64::MAX,
        slowdown: 1.0,
        separation: Default::default(),
        functions: Vec::new(),
        code_hashes: BTreeMap::new(),
        models: BTreeMap::new(),
        durable: None,
        damaged: Vec::new(),
        storage: None,
    }
}

pub(super) const CLIENT: NodeId = NodeId(7);

/// Returns a server that offers the described function and has a client, and the function's hash.
pub(super) fn with_client(description: &str) -> (Server, u64) {
    let signature = parse(description, "t.idl").unwrap().remove(0).signature;
    let hash = signature.hash();
    let mut server = Server::new(offering(signature, 2));
    server.handle(Time(0), is_up(CLIENT, Role::Client, ""), &mut Vec::new());
    (server, hash)
}

/// Returns the input for a peer that connects.
pub(super) fn is_up(peer: NodeId, role: Role, address: &str) -> Input {
    Input::PeerUp {
        peer,
        role,
        name: "peer".into(),
        origin: Origin::default(),
        address: address.into(),
        version: VERSIONS.1,
    }
}

#[test]
fn a_task_whose_arrays_do_not_fit_its_sizes_is_refused_and_the_next_one_runs() {
    let text = "Module m; Define f(IN int n, IN int k, IN double a[n*k], OUT double c[n]) Calls f(n, k, a, c);";
    let (mut server, hash) = with_client(text);
    let mut outcome = |serial, array: u64, result: u64| {
        let int =
            |value: i32| Argument::Inline { meta: Meta::scalar(Dtype::Int32), bytes: value.to_ne_bytes().to_vec() };
        let float64 = |extent| Meta::array(Dtype::Float64, &[extent]);
        let bytes = vec![0; 8 * array as usize];
        let task = Task {
            id: TaskId { client: CLIENT, serial },
            kind: TaskKind::call("m/f", hash),
            args: vec![int(3), int(4), Argument::Inline { meta: float64(array), bytes }],
            outputs: vec![Made { datum: DatumId { client: CLIENT, serial }, meta: float64(result) }],
            work_flops: None,
            options: Default::default(),
        };
        let mut out = Vec::new();
        let message = TaskToServer::RunTasks { tasks: vec![task], supplies: Vec::new() }.into();
        server.handle(Time(serial), Input::Received { from: CLIENT, message }, &mut out);
        let refusal = out.iter().find_map(|effect| match effect {
            Effect::Send {
                message: Message::Task(TaskMessage::ToClient(TaskToClient::TasksEnded { reports, .. })),
                ..
            } => Some(reports[0].outcome.clone()),
            _ => None,
        });
        (refusal, out.iter().any(|effect| matches!(effect, Effect::StartTask { .. })))
    };
    for (array, result, why) in [
        (11, 3, "argument 'a' has shape [11], expected [n*k] = [12] (n = 3 as given, k = 4 as given)"),
        (12, 2, "argument 'c' has shape [2], expected [n] = [3] (n = 3 as given)"),
    ] {
        let (function, server) = ("m/f".to_string(), "s".to_string());
        let refused = TaskError::Refused { function, server, why: why.into() };
        assert_eq!(outcome(array, array, result), (Some(Err(refused)), false));
    }
    assert_eq!(outcome(20, 12, 3), (None, true));
}

/// A task runs again for one of its results. Another node has a copy of the other result. When the task is cancelled,
/// the reader here requests that copy.
#[test]
fn a_reader_of_a_cancelled_tasks_result_requests_another_source() {
    let text = "Module m; Define f(IN double x[n], IN int n, OUT double y[n]) Calls f(x, n, y);";
    let (mut server, hash) = with_client(text);
    let mut out = Vec::new();
    let datum = |serial| DatumId { client: CLIENT, serial };
    let id = |serial| TaskId { client: CLIENT, serial };
    let meta = || Meta::array(Dtype::Float64, &[3]);
    let task = |serial, x: Argument| Task {
        id: id(serial),
        kind: TaskKind::call("m/f", hash),
        args: vec![x, Argument::Inline { meta: Meta::scalar(Dtype::Int32), bytes: 3i32.to_ne_bytes().to_vec() }],
        outputs: vec![Made { datum: datum(serial), meta: meta() }],
        work_flops: None,
        options: Default::default(),
    };
    let maker = task(1, Argument::Inline { meta: meta(), bytes: vec![0; 24] });
    let reader = task(2, Argument::Datum(datum(1)));
    let supply = Supply::direct(datum(1), meta(), CLIENT, String::new(), 1);
    let inputs = [
        Input::Received {
            from: CLIENT,
            message: TaskToServer::RunTasks { tasks: vec![maker], supplies: Vec::new() }.into(),
        },
        Input::Received {
            from: CLIENT,
            message: TaskToServer::RunTasks { tasks: vec![reader], supplies: vec![supply] }.into(),
        },
        Input::Received { from: CLIENT, message: TaskToServer::Cancel { tasks: vec![id(1)] }.into() },
    ];
    for input in inputs {
        server.handle(Time(1), input, &mut out);
    }
    // The owner names the source.
    let asks = |effect: &Effect| match effect {
        Effect::Send {
            to: CLIENT,
            message: Message::Task(TaskMessage::ToClient(TaskToClient::SupplyFailed { datum, .. })),
        } => datum.serial == 1,
        _ => false,
    };
    assert!(out.iter().any(|effect| matches!(effect, Effect::StopTask { .. })) && !out.iter().any(asks));
    out.clear();
    let ended = Input::TaskEnded { task: id(1), outcome: Err(TaskError::Cancelled), run_ns: 1 };
    server.handle(Time(2), ended, &mut out);
    assert!(out.iter().any(asks), "{out:?}");
}

/// A worker that is about to end returns no tasks. Its queued tasks are moved to the next worker, and may be recalled again.
#[test]
fn a_repeated_recall_withdraws_the_task_again() {
    let (mut server, hash) = with_client("Module m; Define f() Calls f();");
    let id = TaskId { client: CLIENT, serial: 1 };
    let run = TaskToServer::RunTasks { tasks: vec![task(CLIENT, 1, hash)], supplies: Vec::new() };
    server.handle(Time(1), Input::Received { from: CLIENT, message: run.into() }, &mut Vec::new());
    for time in 2..4 {
        let recall = TaskToServer::Recall { group: None, tasks: vec![id] };
        let mut out = Vec::new();
        server.handle(Time(time), Input::Received { from: CLIENT, message: recall.into() }, &mut out);
        assert!(out.contains(&Effect::WithdrawTask { task: id }), "{out:?}");
    }
}

/// The client recalled the task without effect, as it had begun. Once anybody has cancelled it, it runs nowhere.
#[test]
fn a_cancelled_task_is_not_returned() {
    for recalls in [[true, false], [false, true], [true, true]] {
        let (mut server, hash) = with_client("Module m; Define f() Calls f();");
        let id = TaskId { client: CLIENT, serial: 1 };
        let run = TaskToServer::RunTasks { tasks: vec![task(CLIENT, 1, hash)], supplies: Vec::new() };
        let recall = || TaskToServer::Recall { group: None, tasks: vec![id] };
        let end = DirectoryToServer::EndTask { task: id };
        let before = recalls[0].then(recall).map(Message::from);
        let after = recalls[1].then(recall).map(Message::from);
        let messages = [Some(run.into()), before, Some(end.into()), after];
        for message in messages.into_iter().flatten() {
            server.handle(Time(1), Input::Received { from: CLIENT, message }, &mut Vec::new());
        }
        let mut out = Vec::new();
        let ended = Input::TaskEnded { task: id, outcome: Err(TaskError::Cancelled), run_ns: 1 };
        server.handle(Time(2), ended, &mut out);
        let told = |effect: &Effect| match effect {
            Effect::Send {
                message: Message::Task(TaskMessage::ToClient(TaskToClient::TasksEnded { reports, .. })),
                ..
            } => reports.iter().any(|report| report.outcome == Err(TaskError::Cancelled)),
            _ => false,
        };
        assert!(out.iter().any(told), "{out:?}");
        assert_eq!(server.leak_counts().iter().filter(|(_, count)| *count > 0).count(), 0);
    }
}

/// A client that knows the identifiers of another client's tasks and data cannot use them.
#[test]
fn tasks_with_another_clients_identifiers_or_data_are_refused() {
    let (mut server, hash) = with_client("Module m; Define f() Calls f();");
    let other = NodeId(9);
    let named = task(other, 1, hash);
    let reads = Task { args: vec![Argument::Datum(DatumId { client: other, serial: 1 })], ..task(CLIENT, 2, hash) };
    let meta = Meta::scalar(Dtype::Float64);
    let makes =
        Task { outputs: vec![Made { datum: DatumId { client: other, serial: 2 }, meta }], ..task(CLIENT, 3, hash) };
    for task in [named, reads, makes] {
        let mut out = Vec::new();
        let message = TaskToServer::RunTasks { tasks: vec![task], supplies: Vec::new() }.into();
        server.handle(Time(1), Input::Received { from: CLIENT, message }, &mut out);
        let told = format!("{out:?}");
        assert!(told.contains("its identifier or its data belong to another client"), "{told}");
        assert_eq!(server.load().0, 0);
    }
}

/// Earlier, labels were not checked: clients could send labels of any length and with any characters, which are logged and shown.
#[test]
fn tasks_with_invalid_labels_are_refused() {
    let mut test = Test::new();
    let mut refusal = |serial: u64, options: CallOptions| {
        let task = Task { options, ..task(USER, serial, test.hash) };
        let message = TaskToServer::Call { task, supplies: Vec::new() }.into();
        match reported(&test.handle(Input::Received { from: USER, message })) {
            Some(Err(TaskError::Refused { why, .. })) => Some(why),
            Some(Ok(())) | None => None,
            Some(Err(other)) => panic!("{other}"),
        }
    };
    let labelled = |label: &str| CallOptions { label: Some(label.into()), ..CallOptions::default() };
    assert_eq!(refusal(1, labelled("main.<locals>.<lambda>")), None);
    for (serial, label) in [(2, "\u{1b}[2J"), (3, "a\nb"), (4, ""), (5, &"x".repeat(1 << 20))] {
        let why = refusal(serial, labelled(label)).expect("the label is invalid");
        assert!(why.contains("cannot be the display name of a function") && why.len() < 300, "{why}");
    }
}

/// A client that knows the identifier of a shared datum tries to give it another value, but the agent has announced
/// which client puts it.
#[test]
fn only_the_announced_client_puts_a_shared_datum() {
    let mut server = Server::new(ServerConfig { agent: "agent".into(), ..offering_nothing() });
    server.handle(Time(0), is_up(CLIENT, Role::Client, ""), &mut Vec::new());
    let agent = NodeId(2);
    server.handle(Time(1), is_up(agent, Role::Agent, "agent"), &mut Vec::new());
    let meta = Meta::array(Dtype::Uint8, &[5]);
    let (own, datum) = (DatumId { client: CLIENT, serial: 1 }, DatumId { client: NodeId::CATALOG, serial: 1 });
    let named = NamedDatum {
        datum,
        name: "mesh".into(),
        version: 1,
        meta: meta.clone(),
        replicas: 1,
        is_durable: false,
        method: gridloom_base::Method::Auto,
        put_by: None,
        readers: Default::default(),
    };
    let arrived = Input::DatumArrived { from: CLIENT, datum: own, meta: meta.clone(), duration_ns: 1 };
    let mut publish = |serial: u64, client: Option<NodeId>| {
        let mut out = Vec::new();
        if let Some(client) = client {
            let message = CatalogToServer::Expect { named: named.clone(), client }.into();
            server.handle(Time(2), Input::Received { from: agent, message }, &mut out);
        }
        let kind = TaskKind::Publish(Box::new(named.clone()));
        let task = Task { kind, args: vec![Argument::Datum(own)], ..task(CLIENT, serial, 0) };
        let supply = Supply::direct(own, meta.clone(), CLIENT, String::new(), 1);
        let message = TaskToServer::RunTasks { tasks: vec![task], supplies: vec![supply] }.into();
        server.handle(Time(2), Input::Received { from: CLIENT, message }, &mut out);
        server.handle(Time(3), arrived.clone(), &mut out);
        out.iter().any(|effect| matches!(effect, Effect::AliasDatum { .. }))
    };
    assert!(!publish(1, None), "no put was announced");
    assert!(!publish(2, Some(NodeId(9))), "a put by another client was announced");
    assert!(publish(3, Some(CLIENT)));
}

/// A client names itself as the source of data that it does not hold. Earlier, a server waited for a small shared argument of its
/// call until the client was lost, and so did the tasks of others that read the same datum.
#[test]
fn a_client_is_no_source_of_data_that_are_not_its_own() {
    let text = "Module m; Define f(IN int n, IN double x[n]) Calls f(n, x);";
    let signature = parse(text, "t.idl").unwrap().remove(0).signature;
    let hash = signature.hash();
    let [agent, holder, victim] = [2, 3, 9].map(NodeId);
    let received = |from, message: TaskToServer| Input::Received { from, message: message.into() };
    for (is_call, length, of_victim) in
        [(true, 3, false), (false, 3, false), (true, 50_000, false), (false, 50_000, false), (false, 50_000, true)]
    {
        let mut server = Server::new(ServerConfig { agent: "agent".into(), ..offering(signature.clone(), 2) });
        for (peer, role, name) in [
            (CLIENT, Role::Client, ""),
            (victim, Role::Client, ""),
            (agent, Role::Agent, "agent"),
            (holder, Role::Server, "holder"),
        ] {
            server.handle(Time(0), is_up(peer, role, name), &mut Vec::new());
        }
        let meta = Meta::array(Dtype::Float64, &[length as u64]);
        let datum = DatumId { client: if of_victim { victim } else { NodeId::CATALOG }, serial: 1 };
        let reader = |client, serial| {
            let bytes = i32::to_ne_bytes(length).to_vec();
            let args = vec![Argument::Inline { meta: Meta::scalar(Dtype::Int32), bytes }, Argument::Datum(datum)];
            Task { args, ..task(client, serial, hash) }
        };
        let supplies = |from| vec![Supply::direct(datum, meta.clone(), from, String::new(), 1)];
        let forged = match (of_victim, is_call) {
            (true, _) => TaskToServer::Resupply { supplies: supplies(CLIENT) },
            (false, true) => TaskToServer::Call { task: reader(CLIENT, 1), supplies: vec![(datum, meta.clone())] },
            (false, false) => TaskToServer::RunTasks { tasks: vec![reader(CLIENT, 1)], supplies: supplies(CLIENT) },
        };
        let read = TaskToServer::RunTasks { tasks: vec![reader(victim, 1)], supplies: supplies(holder) };
        let inputs = match of_victim {
            true => [received(victim, read), received(CLIENT, forged)],
            false => [received(CLIENT, forged), received(victim, read)],
        };
        let mut out = Vec::new();
        inputs.into_iter().for_each(|input| server.handle(Time(1), input, &mut out));
        let is_asked = |out: &[Effect], node| {
            let is_fetch = |message: &Message| matches!(message, Message::Data(DataMessage::Fetch { .. }));
            out.iter().any(|effect| matches!(effect, Effect::Send { to, message } if *to == node && is_fetch(message)))
        };
        assert!(!is_asked(&out, CLIENT), "{out:?}");
        if !of_victim {
            let told = format!("{out:?}");
            assert!(told.contains("SupplyFailed") && told.contains("only servers have shared data"), "{told}");
            let resupply = TaskToServer::Resupply { supplies: supplies(holder) };
            server.handle(Time(2), received(agent, resupply), &mut out);
        }
        assert!(is_asked(&out, holder), "{out:?}");
        let arrived = Input::DatumArrived { from: holder, datum, meta: meta.clone(), duration_ns: 1 };
        server.handle(Time(3), arrived, &mut out);
        let started =
            |task| out.iter().any(|effect| matches!(effect, Effect::StartTask { task: of, .. } if of.id == task));
        assert!(started(TaskId { client: victim, serial: 1 }), "{out:?}");
    }
}

const USER: NodeId = NodeId(7);
const CALIBRATOR: NodeId = NodeId(8);

pub(super) fn task(client: NodeId, serial: u64, hash: u64) -> Task {
    let id = TaskId { client, serial };
    let (args, outputs) = (Vec::new(), Vec::new());
    Task { id, kind: TaskKind::call("m/f", hash), args, outputs, work_flops: Some(1e9), options: Default::default() }
}

/// A server with one slot and both clients.
struct Test {
    server: Server,
    hash: u64,
    now: u64,
}

impl Test {
    fn new() -> Test {
        let signature = parse("Module m; Define f() Calls f();", "t.idl").unwrap().remove(0).signature;
        let hash = signature.hash();
        let mut server = Server::new(offering(signature, 1));
        for peer in [USER, CALIBRATOR] {
            server.handle(Time(0), is_up(peer, Role::Client, ""), &mut Vec::new());
        }
        Test { server, hash, now: 0 }
    }

    fn handle(&mut self, input: Input) -> Vec<Effect> {
        self.now += 1;
        let mut out = Vec::new();
        self.server.handle(Time(self.now), input, &mut out);
        out
    }

    fn call(&mut self, client: NodeId, serial: u64) -> Vec<Effect> {
        let terms = CallOptions { is_measuring: client == CALIBRATOR, ..CallOptions::default() };
        let task = Task { options: terms, ..task(client, serial, self.hash) };
        let message = TaskToServer::Call { task, supplies: Vec::new() }.into();
        self.handle(Input::Received { from: client, message })
    }

    fn ended(&mut self, client: NodeId, serial: u64, outcome: Result<(), TaskError>) -> Vec<Effect> {
        let outcome = outcome.map(|()| Vec::new());
        self.handle(Input::TaskEnded { task: TaskId { client, serial }, outcome, run_ns: 1_000_000 })
    }

    fn calls_learned(&self) -> u64 {
        self.server.learning.calls("m/f")
    }
}

fn reported(out: &[Effect]) -> Option<Result<(), TaskError>> {
    out.iter().find_map(|effect| match effect {
        Effect::Send {
            message: Message::Task(TaskMessage::ToClient(TaskToClient::TasksEnded { reports, .. })),
            ..
        } if !reports.is_empty() => Some(reports[0].outcome.clone().map(drop)),
        _ => None,
    })
}

fn preempted() -> Option<Result<(), TaskError>> {
    Some(Err(TaskError::Preempted { function: "m/f".into(), server: "s".into() }))
}

#[test]
fn an_idle_server_measures_and_a_busy_one_does_not() {
    let mut test = Test::new();
    assert_eq!(reported(&test.call(CALIBRATOR, 1)), None);
    // The server does not measure while another call is measured, either.
    assert_eq!(reported(&test.call(CALIBRATOR, 2)), preempted());
    assert_eq!(reported(&test.ended(CALIBRATOR, 1, Ok(()))), Some(Ok(())));
    assert_eq!(test.calls_learned(), 1);
    test.call(USER, 1);
    assert_eq!(reported(&test.call(CALIBRATOR, 3)), preempted());
    test.ended(USER, 1, Ok(()));
    assert_eq!((reported(&test.call(CALIBRATOR, 4)), test.calls_learned()), (None, 2));
}

#[test]
fn a_call_that_was_disturbed_is_not_learned_and_stopped_at_the_heartbeat() {
    let mut test = Test::new();
    test.call(CALIBRATOR, 1);
    test.call(USER, 1);
    let out = test.ended(CALIBRATOR, 1, Ok(()));
    assert_eq!((reported(&out), test.calls_learned()), (preempted(), 0));
    assert!(out.iter().any(|effect| matches!(effect, Effect::StartTask { task } if task.id.client == USER)));
    test.ended(USER, 1, Ok(()));

    test.call(CALIBRATOR, 2);
    let stopped = TaskId { client: CALIBRATOR, serial: 2 };
    let stops = |out: &[Effect]| out.contains(&Effect::StopTask { task: stopped });
    assert!(!stops(&test.handle(Input::Timer(ServerTimer::Heartbeat.into()))), "the server has no other work");
    assert!(!stops(&test.call(USER, 2)), "it may be about to end");
    assert!(stops(&test.handle(Input::Timer(ServerTimer::Heartbeat.into()))));
    assert_eq!(reported(&test.ended(CALIBRATOR, 2, Err(TaskError::Cancelled))), preempted());
    assert_eq!(test.calls_learned(), 1, "the user's");
}

#[test]
fn errors_of_the_function_are_not_changed() {
    let mut test = Test::new();
    test.call(CALIBRATOR, 1);
    test.call(USER, 1);
    let error = TaskError::Crashed { function: "m/f".into(), server: "s".into(), how: "SIGSEGV".into() };
    assert_eq!(reported(&test.ended(CALIBRATOR, 1, Err(error.clone()))), Some(Err(error)));
}

#[test]
fn a_server_accepts_rules_only_from_its_agent() {
    let mut server = Server::new(ServerConfig { agent: "agent".into(), ..offering_nothing() });
    let agent = NodeId(2);
    server.handle(Time(0), is_up(CLIENT, Role::Client, ""), &mut Vec::new());
    server.handle(Time(0), is_up(agent, Role::Agent, "agent"), &mut Vec::new());
    let strict = || {
        let everybody = RulesSection { weight: Some(7), ..Default::default() };
        Box::new(Rules { everybody, ..Rules::default() })
    };
    let mut weight_after = |from, message: DirectoryToServer| {
        server.handle(Time(1), Input::Received { from, message: message.into() }, &mut Vec::new());
        server.rules.of("anna").weight
    };
    let registered = |rules| DirectoryToServer::Registered { peers: Vec::new(), differences: Vec::new(), rules };
    assert_eq!(weight_after(CLIENT, DirectoryToServer::RulesChanged { rules: strict() }), 1);
    // A client that maps by itself accepts registrations.
    assert_eq!(weight_after(CLIENT, registered(strict())), 1);
    assert_eq!(weight_after(agent, registered(strict())), 7);
    assert_eq!(weight_after(CLIENT, registered(Box::default())), 7);
    assert_eq!(weight_after(agent, DirectoryToServer::RulesChanged { rules: Box::default() }), 1);
}

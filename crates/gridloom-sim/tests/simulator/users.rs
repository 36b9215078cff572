//! Tests of grids that several users share.

use crate::lan;
use crate::lan::wait_for;
use gridloom_base::time::SECOND_NS;
use gridloom_base::{DatumId, Dtype, GroupId, Meta, Method, NameError, NodeId, Origin, SplitMix64, TaskError, TaskId};
use gridloom_core::graph::{Argument, CallOptions, Group, Output, Task, TaskKind};
use gridloom_core::node::message::{CatalogAnswer, ServerStatus};
use gridloom_core::node::world::ServerSpec;
use gridloom_core::node::{Command, Event, NameCommand, Role};
use gridloom_idl::Definition;
use gridloom_platform::HostId;
use gridloom_sim::Simulation;
use gridloom_sim::faults::Scenario;

const IDL: &str = "Module t;
Define work() CalcOrder 1e9 Calls \"C\" work();
Define other() CalcOrder 1e9 Calls \"C\" other();
Define make(IN int n, OUT double y[n]) CalcOrder 1e9 Calls \"C\" make(n, y);
Define gets() CalcOrder 1e9 Gets(\"part\", 8) Calls \"C\" gets();
Define puts() CalcOrder 1e9 Puts(\"part\", 8) Calls \"C\" puts();
Module python;
Define run() CalcOrder 1e9 Calls \"C\" run();
Module data;
Define reads(IN int n, IN double x[n]) CalcOrder 1e9 Calls \"C\" reads(n, x);";

/// Index of the function that reads an array.
const READS: usize = 6;

/// One server, and programs of several users. A call takes one second on an idle server.
pub(crate) struct Stage {
    pub(crate) sim: Simulation,
    pub(crate) agent: NodeId,
    pub(crate) server: NodeId,
    definitions: Vec<Definition>,
    next: u64,
}

impl Stage {
    pub(crate) fn new() -> Stage {
        Stage::with_slots(1)
    }

    pub(crate) fn with_slots(slots: u32) -> Stage {
        Stage::with_store(slots, 1 << 30, 0)
    }

    /// Makes a stage whose server stores that many bytes in memory, and that many on disk.
    pub(crate) fn with_store(slots: u32, memory_bytes: u64, disk_bytes: u64) -> Stage {
        let mut sim = lan::hosts(1);
        let definitions = gridloom_idl::parse(IDL, "t.idl").unwrap();
        let agent = sim.add_agent(HostId(0), "agent");
        let (name, functions) = ("server".to_string(), definitions.clone());
        let memory_bytes = memory_bytes + disk_bytes;
        let spec = ServerSpec { name, slots, is_stateless: false, memory_bytes, disk_bytes, functions };
        let server = sim.add_server(HostId(1), spec);
        Stage { sim, agent, server, definitions, next: 0 }
    }

    /// Starts a program of this user.
    pub(crate) fn program(&mut self, name: &str, origin: Origin) -> NodeId {
        let client = self.sim.add_client(HostId(2), name);
        self.sim.set_origin(client, origin);
        wait_for(
            &mut self.sim,
            client,
            |event| matches!(event, Event::Directory { grid, .. } if grid.servers.len() == 1),
        );
        self.sim.advance(5 * SECOND_NS);
        client
    }

    /// Finds the server that was started again.
    pub(crate) fn find_server(&mut self) {
        let servers = self.sim.nodes().filter(|(_, role)| *role == Role::Server);
        self.server = servers.map(|(node, _)| node).max().expect("there is a server");
    }

    pub(crate) fn fault(&mut self, faults: &str) {
        let scenario = Scenario::parse(faults, "faults").unwrap();
        let strikes = scenario.strikes(&Default::default(), &mut SplitMix64::new(0), self.sim.now());
        self.sim.schedule(strikes);
    }

    pub(crate) fn serial(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    pub(crate) fn call(&mut self, client: NodeId, function: usize) -> TaskId {
        self.call_with(client, function, CallOptions::default())
    }

    pub(crate) fn call_with(&mut self, client: NodeId, function: usize, options: CallOptions) -> TaskId {
        let mut task = self.task(client, function);
        task.options = CallOptions { uses: task.options.uses, ..options };
        let id = task.id;
        self.sim.command(client, Command::Call { task, sources: vec![], limits: Default::default(), deferral: None });
        id
    }

    /// Makes a call that waits in the client until a server has a free slot.
    pub(crate) fn deferred_call(&mut self, client: NodeId) -> TaskId {
        self.deferred_call_with(client, CallOptions::default())
    }

    pub(crate) fn deferred_call_with(&mut self, client: NodeId, options: CallOptions) -> TaskId {
        let (task, deferral) = (Task { options, ..self.task(client, 0) }, Some(Default::default()));
        let id = task.id;
        self.sim.command(client, Command::Call { task, sources: vec![], limits: Default::default(), deferral });
        id
    }

    /// Makes a call whose result of that many numbers stays on the server. Returns its task and its result.
    pub(crate) fn call_keeping(&mut self, client: NodeId, count: i32) -> (TaskId, DatumId) {
        let task = self.task_making(client, count);
        let (id, datum) = (task.id, task.outputs[0].datum);
        let group = GroupId { client, serial: self.serial() };
        let group = Group { id: group, tasks: vec![task], sources: Default::default(), wanted: Vec::new() };
        self.sim.command(client, Command::Run { group, heuristic: "heft".into() });
        (id, datum)
    }

    /// Makes a call with a result of that many numbers.
    pub(crate) fn call_making(&mut self, client: NodeId, count: i32) -> TaskId {
        let task = self.task_making(client, count);
        let id = task.id;
        self.sim.command(client, Command::Call { task, sources: vec![], limits: Default::default(), deferral: None });
        id
    }

    /// Makes a call that reads an array of that many numbers, which the program has.
    pub(crate) fn call_reading(&mut self, client: NodeId, count: i32) -> TaskId {
        let datum = DatumId { client, serial: self.serial() };
        let meta = Meta::array(Dtype::Float64, &[count as u64]);
        self.sim.put(client, datum, meta.clone(), None);
        let n = Argument::Inline { meta: Meta::scalar(Dtype::Int32), bytes: count.to_ne_bytes().to_vec() };
        let task = Task { args: vec![n, Argument::Datum(datum)], ..self.task(client, READS) };
        let (id, sources) = (task.id, vec![(datum, meta)]);
        self.sim.command(client, Command::Call { task, sources, limits: Default::default(), deferral: None });
        id
    }

    fn task_making(&mut self, client: NodeId, count: i32) -> Task {
        let n = Argument::Inline { meta: Meta::scalar(Dtype::Int32), bytes: count.to_ne_bytes().to_vec() };
        let datum = DatumId { client, serial: self.serial() };
        let outputs = vec![Output { datum, meta: Meta::array(Dtype::Float64, &[count as u64]) }];
        Task { args: vec![n], outputs, ..self.task(client, 2) }
    }

    fn task(&mut self, client: NodeId, function: usize) -> Task {
        let id = TaskId { client, serial: self.serial() };
        let signature = &self.definitions[function].signature;
        let kind = TaskKind::call(&signature.name, signature.hash());
        let uses = signature.bind(&[], &[]).map(|bound| bound.uses).unwrap_or_default();
        let options = CallOptions { uses: uses.into(), ..CallOptions::default() };
        let (args, outputs) = Default::default();
        Task { id, kind, args, outputs, work_flops: Some(1e9), options }
    }

    pub(crate) fn end_of(&mut self, task: TaskId) -> Result<(), TaskError> {
        let is_it = |event: &Event| matches!(event, Event::TaskEnded { report, .. } if report.task == task);
        match wait_for(&mut self.sim, task.client, is_it) {
            Event::TaskEnded { report, .. } => report.outcome.map(drop),
            _ => unreachable!("waited for"),
        }
    }

    pub(crate) fn status(&mut self, client: NodeId) -> ServerStatus {
        self.sim.command(client, Command::Status { server: self.server });
        match wait_for(&mut self.sim, client, |event| matches!(event, Event::Status { .. })) {
            Event::Status { status, .. } => status,
            _ => unreachable!("waited for"),
        }
    }

    pub(crate) fn end_task(&mut self, client: NodeId, task: TaskId) -> Result<(), String> {
        self.sim.command(client, Command::EndTask { server: self.server, task });
        match wait_for(&mut self.sim, client, |event| matches!(event, Event::EndTaskAnswered { .. })) {
            Event::EndTaskAnswered { answer, .. } => answer,
            _ => unreachable!("waited for"),
        }
    }

    pub(crate) fn name(&mut self, client: NodeId, command: NameCommand) -> Result<CatalogAnswer, NameError> {
        let request = self.serial();
        self.sim.command(client, Command::Name { request, command });
        let is_it =
            |event: &Event| matches!(event, Event::NameResult { request: answered, .. } if *answered == request);
        match wait_for(&mut self.sim, client, is_it) {
            Event::NameResult { answer, .. } => answer,
            _ => unreachable!("waited for"),
        }
    }

    pub(crate) fn put(&mut self, client: NodeId, name: &str) -> Result<CatalogAnswer, NameError> {
        self.put_as(client, name, false)
    }

    pub(crate) fn put_as(&mut self, client: NodeId, name: &str, is_durable: bool) -> Result<CatalogAnswer, NameError> {
        let serial = self.serial();
        let (datum, task, group) = (DatumId { client, serial }, TaskId { client, serial }, GroupId { client, serial });
        let (name, meta, made_by) = (name.to_string(), Meta::array(Dtype::Uint8, &[1000]), None);
        self.sim.put(client, datum, meta.clone(), None);
        let (replaces, replicas, method) = (true, 1, Method::Auto);
        let command =
            NameCommand::Put { name, datum, meta, replaces, replicas, is_durable, method, made_by, task, group };
        self.name(client, command)
    }

    /// Returns the version that a program finds under a name, and the name that it gets.
    pub(crate) fn find(&mut self, client: NodeId, name: &str) -> Result<(u64, String), NameError> {
        match self.name(client, NameCommand::Find { name: name.into(), waits: false })? {
            CatalogAnswer::Found { named, .. } => Ok((named.version, named.name)),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn share(&mut self, client: NodeId, name: &str, users: &[&str]) -> Result<CatalogAnswer, NameError> {
        let users = users.iter().map(|user| user.to_string()).collect();
        self.name(client, NameCommand::Share { name: name.into(), users })
    }

    pub(crate) fn delete(&mut self, client: NodeId, name: &str) -> Result<CatalogAnswer, NameError> {
        self.name(client, NameCommand::Delete { name: name.into() })
    }

    pub(crate) fn list(&mut self, client: NodeId, prefix: &str) -> Vec<String> {
        match self.name(client, NameCommand::List { prefix: prefix.into(), after: String::new() }) {
            Ok(CatalogAnswer::Listed { names, .. }) => names.into_iter().map(|one| one.named.name).collect(),
            other => panic!("{other:?}"),
        }
    }
}

pub(crate) fn user(name: &str) -> Origin {
    Origin { user: name.into(), ..Origin::default() }
}

#[test]
fn operators_see_whose_calls_a_server_runs() {
    let mut stage = Stage::new();
    let (anna, bert) = (stage.program("train.py", user("anna")), stage.program("sweep", user("bert")));
    let calls = [stage.call(anna, 0), stage.call(bert, 0)];
    stage.sim.advance(SECOND_NS / 2);
    let status = stage.status(bert);
    let shown = |call| {
        let task = status.tasks.iter().find(|task| task.task == call).unwrap();
        status.program_of(task).unwrap().to_string()
    };
    assert_eq!(calls.map(shown), ["anna: train.py on host-2", "bert: sweep on host-2"]);
}

#[test]
fn only_administrators_cancel_the_calls_of_other_users() {
    let mut stage = Stage::new();
    let (anna, bert) = (stage.program("train.py", user("anna")), stage.program("sweep", user("bert")));
    let again = stage.program("cancel", user("anna"));
    let carol = stage.program("cancel", Origin { is_administrator: true, ..user("carol") });
    let calls = [stage.call(anna, 0), stage.call(anna, 0), stage.call(anna, 0)];
    stage.sim.advance(SECOND_NS / 10);
    let why = stage.end_task(bert, calls[0]).unwrap_err();
    assert_eq!(why, "the call belongs to 'anna', and 'bert' is not an administrator of the grid");
    assert_eq!(stage.end_task(carol, calls[1]), Ok(()));
    assert_eq!(stage.end_task(again, calls[2]), Ok(()), "another program of the same user");
    assert_eq!(stage.end_of(calls[1]), Err(TaskError::Cancelled));
    assert_eq!(stage.end_of(calls[2]), Err(TaskError::Cancelled));
    assert_eq!(stage.end_of(calls[0]), Ok(()));
    let why = stage.end_task(carol, calls[0]).unwrap_err();
    assert_eq!(why, "the call is not on this server; it may have ended");
}

#[test]
fn a_user_calls_only_the_functions_of_the_certificate() {
    let mut stage = Stage::new();
    let bert = stage.program("sweep", Origin { functions: vec!["t/work".parse().unwrap()], ..user("bert") });
    let nobody = stage.program("sweep", Origin { functions: Vec::new(), ..user("nobody") });
    let (permitted, refused, none) = (stage.call(bert, 0), stage.call(bert, 1), stage.call(nobody, 0));
    for (call, patterns) in [(refused, "'bert' permits t/work;"), (none, "'nobody' permits no functions;")] {
        let Err(TaskError::NotPermitted { why, .. }) = stage.end_of(call) else { panic!("it ran") };
        assert!(why.contains(patterns) && why.contains("gridloom keys request"), "{why}");
    }
    assert_eq!(stage.end_of(permitted), Ok(()));
}

#[test]
fn each_user_has_names_of_their_own() {
    let mut stage = Stage::new();
    let (anna, bert) = (stage.program("train.py", user("anna")), stage.program("sweep", user("bert")));
    let carol = stage.program("tidy", Origin { is_administrator: true, ..user("carol") });
    let put = Ok(CatalogAnswer::Put);
    for (program, name) in [(anna, "mesh"), (anna, "mesh"), (anna, "field"), (bert, "mesh")] {
        assert_eq!(stage.put(program, name), put);
    }
    assert_eq!(stage.find(anna, "mesh"), Ok((2, "mesh".into())));
    assert_eq!(stage.find(anna, "~anna/mesh"), Ok((2, "mesh".into())));
    assert_eq!(stage.find(bert, "mesh"), Ok((1, "mesh".into())), "it is another name");
    assert_eq!(stage.list(anna, ""), ["field", "mesh"]);
    assert_eq!(stage.list(bert, ""), ["mesh"]);
    assert_eq!(stage.list(carol, ""), ["~anna/field", "~anna/mesh", "~bert/mesh"]);
    assert_eq!(stage.list(carol, "~bert/"), ["~bert/mesh"]);
    // Whether the name exists cannot be seen.
    for name in ["~anna/mesh", "~anna/other"] {
        let error = stage.find(bert, name).unwrap_err();
        let why = format!("'anna' shares no data named '{name}' with 'bert'; ");
        assert!(error.to_string().starts_with(&why), "{error}");
    }
    for refused in [stage.put(bert, "~anna/mesh"), stage.put(bert, "~anna/new"), stage.delete(bert, "~anna/mesh")] {
        let Err(error @ NameError::NotOwner { .. }) = refused else { panic!("{refused:?}") };
        assert!(error.to_string().contains("belongs to 'anna', and 'bert' can neither"), "{error}");
    }
    // A restarted agent learns the names from the servers. Until then, nothing changes hands.
    stage.fault("at 0s restart agent");
    assert_eq!(stage.put(bert, "field"), put);
    stage.sim.advance(20 * SECOND_NS);
    assert_eq!(
        (stage.find(anna, "field"), stage.find(anna, "mesh")),
        (Ok((1, "field".into())), Ok((2, "mesh".into())))
    );
    assert_eq!(stage.put(carol, "~anna/mesh"), put);
    assert_eq!(stage.delete(carol, "~bert/mesh"), Ok(CatalogAnswer::Deleted));
    assert_eq!(stage.find(anna, "mesh"), Ok((3, "mesh".into())));
}

#[test]
fn a_user_shares_names_with_others() {
    let mut stage = Stage::new();
    let (anna, bert) = (stage.program("train.py", user("anna")), stage.program("sweep", user("bert")));
    let dora = stage.program("plot", user("dora"));
    assert!(matches!(stage.share(anna, "mesh", &["bert"]), Err(NameError::Unknown { .. })));
    assert_eq!(stage.put(anna, "mesh"), Ok(CatalogAnswer::Put));
    assert!(matches!(stage.share(bert, "~anna/mesh", &["bert"]), Err(NameError::NotOwner { .. })));
    assert_eq!(stage.share(anna, "mesh", &["bert"]), Ok(CatalogAnswer::Shared));
    let found = |version| Ok((version, "~anna/mesh".to_string()));
    assert_eq!((stage.find(bert, "~anna/mesh"), stage.list(bert, "")), (found(1), vec!["~anna/mesh".to_string()]));
    assert!(matches!(stage.find(dora, "~anna/mesh"), Err(NameError::NotShared { .. })));
    assert!(stage.list(dora, "").is_empty() && stage.list(dora, "~anna/").is_empty());
    // Later versions are shared, too.
    assert_eq!(stage.put(anna, "mesh"), Ok(CatalogAnswer::Put));
    assert_eq!(stage.find(bert, "~anna/mesh"), found(2));
    assert!(matches!(stage.put(bert, "~anna/mesh"), Err(NameError::NotOwner { .. })), "reading is all");
    // A restarted agent learns it from the servers.
    assert_eq!(stage.share(anna, "mesh", &["*"]), Ok(CatalogAnswer::Shared));
    stage.fault("at 0s restart agent");
    stage.sim.advance(20 * SECOND_NS);
    assert_eq!(stage.find(dora, "~anna/mesh"), found(2));
    assert_eq!(stage.share(anna, "mesh", &[]), Ok(CatalogAnswer::Shared));
    assert!(matches!(stage.find(bert, "~anna/mesh"), Err(NameError::NotShared { .. })));
    let many: Vec<String> = (0..65).map(|number| format!("user {number}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let error = stage.share(anna, "mesh", &many).unwrap_err().to_string();
    assert!(error.contains("65 users one by one, and the limit is 64"), "{error}");
    assert!(matches!(stage.share(anna, "mesh", &["a\0b"]), Err(NameError::InvalidReader { .. })));
}

pub(crate) fn next_answer(sim: &mut Simulation, client: NodeId) -> (u64, bool) {
    match wait_for(sim, client, |event| matches!(event, Event::NameResult { .. })) {
        Event::NameResult { request, answer } => (request, answer.is_ok()),
        _ => unreachable!("waited for"),
    }
}

#[test]
fn a_program_waits_until_a_name_is_shared_with_its_user() {
    let mut stage = Stage::new();
    let (anna, bert) = (stage.program("train.py", user("anna")), stage.program("sweep", user("bert")));
    let request = stage.serial();
    let command = NameCommand::Find { name: "~anna/mesh".into(), waits: true };
    stage.sim.command(bert, Command::Name { request, command });
    assert_eq!(stage.put(anna, "mesh"), Ok(CatalogAnswer::Put));
    stage.sim.advance(SECOND_NS);
    let later = stage.serial();
    stage.sim.command(bert, Command::Name { request: later, command: NameCommand::Delete { name: "none".into() } });
    assert_eq!(next_answer(&mut stage.sim, bert), (later, false), "it is not shared yet");
    assert_eq!(stage.share(anna, "mesh", &["bert"]), Ok(CatalogAnswer::Shared));
    assert_eq!(next_answer(&mut stage.sim, bert), (request, true));
}

#[test]
fn data_that_a_function_puts_belong_to_the_user_who_called_it() {
    let mut stage = Stage::new();
    let (anna, bert) = (stage.program("train.py", user("anna")), stage.program("sweep", user("bert")));
    let functions = Origin { is_functions: true, ..user("functions of server") };
    let function = stage.program("worker", functions);
    assert_eq!(stage.put(function, "~anna/mesh"), Ok(CatalogAnswer::Put));
    assert_eq!(stage.find(anna, "mesh"), Ok((1, "mesh".into())));
    assert!(matches!(stage.find(bert, "~anna/mesh"), Err(NameError::NotShared { .. })));
    assert_eq!(stage.delete(function, "~anna/mesh"), Ok(CatalogAnswer::Deleted));
}

#[test]
fn a_user_gets_no_more_of_a_server_by_starting_more_programs() {
    let mut stage = Stage::new();
    let annas: Vec<NodeId> = (0..5).map(|number| stage.program(&format!("train-{number}"), user("anna"))).collect();
    let bert = stage.program("sweep", user("bert"));
    let begin = stage.sim.now();
    for _ in 0..10 {
        annas.iter().for_each(|anna| _ = stage.call(*anna, 0));
    }
    let berts: Vec<TaskId> = (0..10).map(|_| stage.call(bert, 0)).collect();
    for call in berts {
        assert_eq!(stage.end_of(call), Ok(()));
    }
    // The slot runs 60 calls of one second; the users take turns.
    let seconds = (stage.sim.now().0 - begin.0) as f64 / SECOND_NS as f64;
    assert!((19.0..23.0).contains(&seconds), "{seconds}");
}

/// Makes a call for each of these users, one after the other. Returns the time from the first call to the last result.
fn seconds_of(slots: u32, function: usize, users: &[usize]) -> f64 {
    let mut stage = Stage::with_slots(slots);
    let clients = ["anna", "bert"].map(|name| {
        let origin = Origin { user: name.into(), ..Origin::default() };
        stage.program(name, origin)
    });
    // Both users have been served, as far as there are slots.
    for client in clients {
        let call = stage.call(client, function);
        stage.end_of(call).unwrap();
    }
    let begin = stage.sim.now();
    for user in users {
        let call = stage.call(clients[*user], function);
        stage.end_of(call).unwrap();
    }
    stage.sim.now().since(begin) as f64 / SECOND_NS as f64
}

#[test]
fn code_of_users_who_alternate_on_one_slot_takes_a_start_of_a_worker_each_time() {
    // The start of a process takes 2 ms.
    const STARTS: f64 = 10.0 * 0.002;
    let alternating: Vec<usize> = (0..10).map(|call| call % 2).collect();
    let (work, run) = (0, 5);
    let usual = seconds_of(1, work, &alternating);
    let separate = seconds_of(1, run, &alternating);
    assert!((separate - usual - STARTS).abs() < 1e-4, "{separate} {usual}");
    // A second slot has the worker of the other user, and one user needs no other worker after the first call.
    assert!((seconds_of(2, run, &alternating) - usual).abs() < 1e-4);
    assert!((seconds_of(1, run, &[1; 10]) - usual).abs() < 1e-4);
}

#[test]
fn functions_of_one_user_act_for_this_user_only() {
    let mut stage = Stage::new();
    let user = |name: &str| Origin { user: name.into(), ..Origin::default() };
    let [anna, bert] = ["anna", "bert"].map(|name| stage.program(name, user(name)));
    let for_anna = Origin { is_functions: true, is_for_user: true, ..user("anna") };
    let function = stage.program("function", for_anna);
    let options = |user: &str| CallOptions { user: Some(user.into()), ..CallOptions::default() };
    let of_bert = stage.call(bert, 0);
    let as_bert = stage.call_with(function, 0, options("bert"));
    let error = stage.end_task(function, of_bert).unwrap_err();
    assert!(error.contains("the call belongs to 'bert', and 'anna' is not an administrator"), "{error}");
    // It counts as a call of Anna, whatever it states.
    assert_eq!(stage.end_task(anna, as_bert), Ok(()));
    assert_eq!(stage.end_of(as_bert), Err(TaskError::Cancelled));
    stage.end_of(of_bert).unwrap();
}

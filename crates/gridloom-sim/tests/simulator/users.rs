//! Tests of grids that several users share.

use crate::lan;
use crate::lan::wait_for;
use gridloom_base::time::SECOND_NS;
use gridloom_base::{
    DatumId, Dtype, GroupId, Meta, Method, NameError, NodeId, Origin, PutOrigin, SplitMix64, TaskError, TaskId,
};
use gridloom_core::graph::{Argument, CallOptions, Output, Task, TaskKind};
use gridloom_core::node::message::{CatalogAnswer, ServerStatus};
use gridloom_core::node::world::ServerSpec;
use gridloom_core::node::{Command, Event, NameCommand};
use gridloom_idl::Definition;
use gridloom_platform::HostId;
use gridloom_sim::Simulation;
use gridloom_sim::faults::Scenario;

const IDL: &str = "Module t;
Define work() CalcOrder 1e9 Calls \"C\" work();
Define other() CalcOrder 1e9 Calls \"C\" other();
Define make(IN int n, OUT double y[n]) CalcOrder 1e9 Calls \"C\" make(n, y);";

/// One server, and programs of several users. A call takes one second on an idle server.
pub(crate) struct Stage {
    pub(crate) sim: Simulation,
    pub(crate) agent: NodeId,
    pub(crate) server: NodeId,
    definitions: Vec<Definition>,
    next: u64,
}

impl Stage {
    fn new() -> Stage {
        Stage::with_slots(1)
    }

    pub(crate) fn with_slots(slots: u32) -> Stage {
        let mut sim = lan::hosts(1);
        let definitions = gridloom_idl::parse(IDL, "t.idl").unwrap();
        let agent = sim.add_agent(HostId(0), "agent");
        let (name, functions) = ("server".to_string(), definitions.clone());
        let spec = ServerSpec { name, slots, is_stateless: false, memory_bytes: 1 << 30, functions };
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

    pub(crate) fn fault(&mut self, faults: &str) {
        let scenario = Scenario::parse(faults, "faults").unwrap();
        let strikes = scenario.strikes(&Default::default(), &mut SplitMix64::new(0), self.sim.now());
        self.sim.schedule(strikes);
    }

    fn serial(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    pub(crate) fn call(&mut self, client: NodeId, function: usize) -> TaskId {
        self.call_with(client, function, CallOptions::default())
    }

    pub(crate) fn call_with(&mut self, client: NodeId, function: usize, options: CallOptions) -> TaskId {
        let task = Task { options, ..self.task(client, function) };
        let id = task.id;
        self.sim.command(client, Command::Call { task, sources: vec![], limits: Default::default(), deferral: None });
        id
    }

    /// Makes a call that waits in the client until a server has a free slot.
    pub(crate) fn deferred_call(&mut self, client: NodeId) -> TaskId {
        let (task, deferral) = (self.task(client, 0), Some(Default::default()));
        let id = task.id;
        self.sim.command(client, Command::Call { task, sources: vec![], limits: Default::default(), deferral });
        id
    }

    /// Makes a call with a result of that many numbers.
    pub(crate) fn call_making(&mut self, client: NodeId, count: i32) -> TaskId {
        let n = Argument::Inline { meta: Meta::scalar(Dtype::Int32), bytes: count.to_ne_bytes().to_vec() };
        let datum = DatumId { client, serial: self.serial() };
        let outputs = vec![Output { datum, meta: Meta::array(Dtype::Float64, &[count as u64]) }];
        let task = Task { args: vec![n], outputs, ..self.task(client, 2) };
        let id = task.id;
        self.sim.command(client, Command::Call { task, sources: vec![], limits: Default::default(), deferral: None });
        id
    }

    fn task(&mut self, client: NodeId, function: usize) -> Task {
        let id = TaskId { client, serial: self.serial() };
        let signature = &self.definitions[function].signature;
        let kind = TaskKind::call(&signature.name, signature.hash());
        let (args, outputs, options) = Default::default();
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

    fn name(&mut self, client: NodeId, command: NameCommand) -> Result<CatalogAnswer, NameError> {
        let request = self.serial();
        self.sim.command(client, Command::Name { request, command });
        let is_it =
            |event: &Event| matches!(event, Event::NameResult { request: answered, .. } if *answered == request);
        match wait_for(&mut self.sim, client, is_it) {
            Event::NameResult { answer, .. } => answer,
            _ => unreachable!("waited for"),
        }
    }

    fn put(&mut self, client: NodeId, made_by: Option<PutOrigin>) -> Result<CatalogAnswer, NameError> {
        let serial = self.serial();
        let (datum, task, group) = (DatumId { client, serial }, TaskId { client, serial }, GroupId { client, serial });
        let (name, meta) = ("mesh".to_string(), Meta::array(Dtype::Uint8, &[1000]));
        self.sim.put(client, datum, meta.clone(), None);
        let (replaces, replicas, is_durable, method) = (true, 1, false, Method::Auto);
        let command =
            NameCommand::Put { name, datum, meta, replaces, replicas, is_durable, method, made_by, task, group };
        self.name(client, command)
    }

    fn owner(&mut self, client: NodeId) -> String {
        match self.name(client, NameCommand::Find { name: "mesh".into(), waits: false }) {
            Ok(CatalogAnswer::Found { named, .. }) => named.owner,
            other => panic!("{other:?}"),
        }
    }

    fn delete(&mut self, client: NodeId) -> Result<CatalogAnswer, NameError> {
        self.name(client, NameCommand::Delete { name: "mesh".into() })
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
fn shared_data_are_replaced_and_deleted_only_by_their_owner_and_by_administrators() {
    let mut stage = Stage::new();
    let (anna, bert) = (stage.program("train.py", user("anna")), stage.program("sweep", user("bert")));
    let carol = stage.program("tidy", Origin { is_administrator: true, ..user("carol") });
    assert_eq!(stage.put(anna, None), Ok(CatalogAnswer::Put));
    assert_eq!(stage.owner(bert), "anna", "others may read it");
    for refused in [stage.put(bert, None), stage.delete(bert)] {
        let Err(error @ NameError::NotOwner { .. }) = refused else { panic!("{refused:?}") };
        assert!(error.to_string().starts_with("'mesh' belongs to 'anna', and 'bert' can neither"), "{error}");
    }
    // A restarted agent learns the owner from the servers.
    stage.fault("at 0s restart agent");
    stage.sim.advance(20 * SECOND_NS);
    assert!(matches!(stage.delete(bert), Err(NameError::NotOwner { .. })));
    // While no server has the data, they still belong to somebody.
    stage.sim.kill(stage.server);
    stage.sim.advance(SECOND_NS);
    for refused in [stage.delete(bert), stage.put(bert, None)] {
        assert!(matches!(refused, Err(NameError::NotOwner { .. })), "{refused:?}");
    }
    stage.fault("at 0s restart server");
    stage.sim.advance(20 * SECOND_NS);
    assert_eq!(stage.put(carol, None), Ok(CatalogAnswer::Put));
    assert_eq!(stage.owner(bert), "carol");
    assert!(matches!(stage.delete(anna), Err(NameError::NotOwner { .. })));
    assert_eq!(stage.delete(carol), Ok(CatalogAnswer::Deleted));
    assert_eq!(stage.put(bert, None), Ok(CatalogAnswer::Put));
}

#[test]
fn data_that_a_function_puts_belong_to_the_user_who_called_it() {
    let mut stage = Stage::new();
    let (anna, bert) = (stage.program("train.py", user("anna")), stage.program("sweep", user("bert")));
    let functions = Origin { is_functions: true, ..user("functions of server") };
    let function = stage.program("worker", functions);
    let made_by = Some(PutOrigin { task: TaskId { client: anna, serial: 1 }, digest: [0; 32] });
    assert_eq!(stage.put(function, made_by), Ok(CatalogAnswer::Put));
    assert_eq!(stage.owner(bert), "anna");
    assert_eq!(stage.delete(anna), Ok(CatalogAnswer::Deleted));
    // The connection of the program may be lost meanwhile.
    stage.sim.kill(anna);
    stage.sim.advance(SECOND_NS);
    assert_eq!(stage.put(function, made_by), Ok(CatalogAnswer::Put));
    assert_eq!(stage.owner(bert), "anna");
    assert_eq!(stage.delete(function), Ok(CatalogAnswer::Deleted), "functions act for the programs that call them");
    // Other programs cannot put data in the name of somebody else.
    assert_eq!(stage.put(bert, made_by), Ok(CatalogAnswer::Put));
    assert_eq!(stage.owner(bert), "bert");
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

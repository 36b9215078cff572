//! Shared names: put, find, read by others, replace, delete, and loss.

use gridloom_base::limits::STORE_BYTES_DEFAULT;
use gridloom_base::time::SECOND_NS;
use gridloom_base::{DatumId, Dtype, GroupId, Meta, Method, NameError, NodeId, TaskError, TaskId};
use gridloom_core::graph::{Argument, Output, Task, TaskKind};
use gridloom_core::node::message::CatalogAnswer;
use gridloom_core::node::{Command, Event, NameCommand, World};

use super::test_grid::{CatalogResult, TestGrid};
use super::{Case, ELEMENTS, spec};

pub(super) const CASES: &[Case] = &[
    ("data put by one client are found and read by another, even after the first is gone", outlives_its_client),
    ("a name has one version at a time, and readers of an old version keep it", versions),
    ("a find waits for a put, and the error for an unknown name suggests similar ones", waits),
    ("awaited data arrive without a request, or the wait ends at its limit; a cancelled put leaves nothing", awaits),
    ("calls read shared data on any server", calls_read),
    ("a part of a shared array can be fetched from any server, and the whole is kept meanwhile", parts),
    ("a lost server's data are a named error, and can be put again", lost_with_its_server),
    ("data kept by two servers survive the loss of each, and get another keeper", kept_by_two),
    ("durable data exist after a restart of their server, and deleted ones do not", durable),
    ("a deleted name leaves no bytes", leaves_nothing),
    ("data without room are an error", no_room),
];

impl TestGrid<'_> {
    fn ask(&mut self, command: NameCommand) -> u64 {
        let ask = self.serial();
        self.world.command(self.client, Command::Name { request: ask, command });
        ask
    }

    fn answer(&mut self, ask: u64) -> CatalogResult {
        if let Some(answer) = self.answers.remove(&ask) {
            return answer;
        }
        self.until("an answer about a name", |event| match event {
            Event::NameResult { request: answered, answer } if *answered == ask => Some(answer.clone()),
            _ => None,
        })
    }

    pub(super) fn named(&mut self, command: NameCommand) -> CatalogResult {
        let ask = self.ask(command);
        self.answer(ask)
    }

    fn put_command(&mut self, name: &str, replaces: bool, replicas: u16) -> NameCommand {
        let array = self.array();
        self.put_command_of(array, name, (replaces, replicas, Method::Auto))
    }

    pub(super) fn put_command_of(
        &mut self,
        (datum, meta): (DatumId, Meta),
        name: &str,
        (replaces, replicas, method): (bool, u16, Method),
    ) -> NameCommand {
        let client = self.name;
        let task = TaskId { client, serial: self.serial() };
        let group = GroupId { client, serial: self.serial() };
        NameCommand::Put {
            name: name.into(),
            datum,
            meta,
            replaces,
            replicas,
            is_durable: false,
            method,
            made_by: None,
            task,
            group,
        }
    }

    fn put(&mut self, name: &str, replaces: bool) -> CatalogResult {
        let command = self.put_command(name, replaces, 1);
        self.named(command)
    }

    pub(super) fn find(&mut self, name: &str) -> Result<DatumId, NameError> {
        match self.named(NameCommand::Find { name: name.into(), waits: false })? {
            CatalogAnswer::Found { named, .. } => Ok(named.datum),
            other => panic!("a find gives {other:?}"),
        }
    }

    fn take_part(&mut self, datum: DatumId, from_byte: u64, output: Output) -> Task {
        Task {
            id: TaskId { client: self.name, serial: self.serial() },
            kind: TaskKind::View { from_byte },
            args: vec![Argument::Datum(datum)],
            outputs: vec![output],
            work_flops: None,
            options: Default::default(),
        }
    }

    fn release(&mut self, datum: DatumId) {
        self.world.command(self.client, Command::Release { data: vec![datum] });
    }

    /// Continues as another client.
    fn become_client(&mut self, name: &str) -> NodeId {
        let servers = self.servers.len();
        let former = std::mem::replace(&mut self.client, self.world.start_client(name));
        self.name = self.client;
        self.until("all servers in the directory", |event| match event {
            Event::Directory { grid, .. } => (grid.servers.len() == servers).then_some(()),
            _ => None,
        });
        former
    }

    /// Returns the total number of bytes in the stores of all servers.
    fn store_bytes(&mut self) -> u64 {
        let mut bytes = 0;
        for server in self.names.keys().copied().collect::<Vec<_>>() {
            self.world.command(self.client, Command::Status { server });
            bytes += self.until("a server's status", |event| match event {
                Event::Status { server: from, status } if *from == server => Some(status.store_bytes),
                _ => None,
            });
        }
        bytes
    }

    /// Returns the bytes that a shared datum counts as: more than its size in worlds where data also take descriptors.
    fn counted(&mut self) -> u64 {
        assert_eq!(self.put("unit", false), Ok(CatalogAnswer::Put));
        let counted = self.store_bytes();
        assert_eq!(self.named(NameCommand::Delete { name: "unit".into() }), Ok(CatalogAnswer::Deleted));
        self.until_store_has(0);
        counted
    }

    /// Waits until the agent knows this number of servers with a copy. A server that is still receiving a copy counts
    /// its bytes already, and the agent learns of a complete copy by a message.
    fn until_kept_by(&mut self, name: &str, servers: usize) {
        for _ in 0..200 {
            match self.named(NameCommand::Find { name: name.into(), waits: false }) {
                Ok(CatalogAnswer::Found { named, holders }) => {
                    self.release(named.datum);
                    if holders.len() == servers {
                        return;
                    }
                }
                other => panic!("a find gives {other:?}"),
            }
            self.world.next_event(self.client, SECOND_NS / 20);
        }
        panic!("the agent does not know {servers} servers with '{name}'");
    }

    fn until_store_has(&mut self, bytes: u64) {
        for _ in 0..200 {
            if self.store_bytes() == bytes {
                return;
            }
            self.world.next_event(self.client, SECOND_NS / 20);
        }
        panic!("the stores hold {} bytes and not {bytes}", self.store_bytes());
    }
}

const BYTES: u64 = 8 * ELEMENTS;

fn outlives_its_client(world: &mut dyn World) {
    let mut stage = TestGrid::new(world, 2);
    assert_eq!(stage.put("mesh", false), Ok(CatalogAnswer::Put));
    let first = stage.become_client("second");
    assert_eq!(stage.find("mesh").map(|datum| datum.is_shared()), Ok(true));
    stage.world.kill(first);
    let mesh = stage.find("mesh").unwrap();
    stage.expect(mesh, |i| i);
    stage.become_client("third");
    let mesh = stage.find("mesh").unwrap();
    stage.expect(mesh, |i| i);
}

fn versions(world: &mut dyn World) {
    let mut stage = TestGrid::new(world, 2);
    let counted = stage.counted();
    assert_eq!(stage.put("mesh", false), Ok(CatalogAnswer::Put));
    assert_eq!(stage.put("mesh", false), Err(NameError::Exists { name: "mesh".into() }));
    let old = stage.find("mesh").unwrap();
    assert_eq!(stage.find("mesh"), Ok(old));
    assert_eq!(stage.put("mesh", true), Ok(CatalogAnswer::Put));
    let new = stage.find("mesh").unwrap();
    assert_ne!(old, new);
    stage.expect(old, |i| i);
    stage.expect(new, |i| i);
    stage.release(old);
    stage.world.command(stage.client, Command::Get { datum: old });
    stage.expect(old, |i| i);
    stage.release(old);
    stage.until_store_has(counted);
}

fn waits(world: &mut dyn World) {
    let mut stage = TestGrid::new(world, 1);
    let find = stage.ask(NameCommand::Find { name: "mesh".into(), waits: true });
    let other = stage.ask(NameCommand::Find { name: "mehs".into(), waits: true });
    assert_eq!(stage.put("mesh", false), Ok(CatalogAnswer::Put));
    let Ok(CatalogAnswer::Found { named, .. }) = stage.answer(find) else { panic!("the find waited for the put") };
    stage.expect(named.datum, |i| i);
    stage.world.command(stage.client, Command::Name { request: other, command: NameCommand::CancelWait });
    let unknown = NameError::Unknown { name: "mehs".into(), near: vec!["mesh".into()] };
    assert_eq!(stage.answer(other), Err(unknown.clone()));
    assert_eq!(stage.find("mehs"), Err(unknown));
    // A datum that was found while the program cancelled the request is not reported as unknown. Found by the soak
    // (seeds 22080, 30516).
    let late = stage.ask(NameCommand::Find { name: "mesh".into(), waits: true });
    stage.world.command(stage.client, Command::Name { request: late, command: NameCommand::CancelWait });
    let found = stage.answer(late);
    assert!(matches!(found, Ok(CatalogAnswer::Found { .. })), "{found:?}");
    stage.release(named.datum);
    assert!(matches!(stage.put("", false), Err(NameError::InvalidName { .. })));
    let listed = stage.named(NameCommand::List { prefix: "me".into(), after: String::new() });
    let Ok(CatalogAnswer::Listed { names, has_more: false }) = listed else { panic!("{listed:?}") };
    assert_eq!(names.iter().map(|listed| listed.named.name.as_str()).collect::<Vec<_>>(), ["mesh"]);
}

fn awaits(world: &mut dyn World) {
    let mut stage = TestGrid::new(world, 2);
    let counted = stage.counted();
    assert_eq!(stage.put("mesh", false), Ok(CatalogAnswer::Put));
    stage.become_client("second");
    let awaits = |name: &str, limit_ns, brings| NameCommand::Await { name: name.into(), limit_ns, gets_data: brings };
    let found = stage.named(awaits("mesh", None, true));
    let Ok(CatalogAnswer::Found { named, .. }) = found else { panic!("{found:?}") };
    stage.until("a datum that was awaited", |event| match event {
        Event::DatumAvailable { datum, .. } => (*datum == named.datum).then_some(()),
        _ => None,
    });
    let unknown = NameError::Unknown { name: "mehs".into(), near: vec!["mesh".into()] };
    assert_eq!(stage.named(awaits("mehs", Some(SECOND_NS / 10), false)), Err(unknown.clone()));
    assert_eq!(stage.named(awaits("mehs", Some(0), true)), Err(unknown));
    let command = stage.put_command("gone", false, 1);
    let ask = stage.ask(command);
    stage.world.command(stage.client, Command::Name { request: ask, command: NameCommand::CancelWait });
    assert!(matches!(stage.find("gone"), Err(NameError::Unknown { .. })));
    stage.until_store_has(counted);
    stage.expect(named.datum, |i| i);
}

fn calls_read(world: &mut dyn World) {
    let mut stage = TestGrid::new(world, 2);
    assert_eq!(stage.put("mesh", false), Ok(CatalogAnswer::Put));
    stage.become_client("second");
    let mesh = stage.find("mesh").unwrap();
    // From then on the client has its own copy, which it must not send to others.
    stage.expect(mesh, |i| i);
    let n = ELEMENTS as i32;
    // More work than one server can do in the time.
    let tasks: Vec<Task> = (0..4).map(|_| stage.task("wait_ms", &[100, n], &[mesh], 1)).collect();
    let results: Vec<DatumId> = tasks.iter().map(|task| task.outputs[0].datum).collect();
    let group = stage.run(tasks, &[(mesh, Meta::array(Dtype::Float64, &[ELEMENTS]))]);
    stage.group_end(group);
    results.into_iter().for_each(|result| stage.expect(result, |i| i));
}

fn parts(world: &mut dyn World) {
    let mut stage = TestGrid::new(world, 2);
    let counted = stage.counted();
    assert_eq!(stage.put("mesh", false), Ok(CatalogAnswer::Put));
    stage.until_store_has(counted);
    let mesh = stage.find("mesh").unwrap();
    // One server stores the datum, and the other fetches it.
    for place in 0..2 {
        let (from, elements) = (3, ELEMENTS - 5);
        let part = DatumId { client: stage.name, serial: stage.serial() };
        let output = Output { datum: part, meta: Meta::array(Dtype::Float64, &[elements]) };
        let task = stage.take_part(mesh, 8 * from, output.clone());
        let id = task.id;
        stage.follow(task, place, (mesh, Meta::array(Dtype::Float64, &[ELEMENTS])), None);
        assert_eq!(stage.end_of(id), Ok(vec![(part, output.meta)]));
        stage.expect_elements(part, elements, |i| i + from as f64);
        stage.release(part);
    }
    let output =
        Output { datum: DatumId { client: stage.name, serial: stage.serial() }, meta: Meta::scalar(Dtype::Float64) };
    let beyond = stage.take_part(mesh, u64::MAX - 3, output);
    let id = beyond.id;
    stage.follow(beyond, 0, (mesh, Meta::array(Dtype::Float64, &[ELEMENTS])), None);
    assert!(matches!(stage.end_of(id), Err(TaskError::Refused { .. })));
    let part = DatumId { client: stage.name, serial: stage.serial() };
    let task = stage.take_part(mesh, 0, Output { datum: part, meta: Meta::array(Dtype::Float64, &[ELEMENTS - 1]) });
    let id = task.id;
    stage.follow(task, 0, (mesh, Meta::array(Dtype::Float64, &[ELEMENTS])), None);
    stage.end_of(id).unwrap();
    assert_eq!(stage.named(NameCommand::Delete { name: "mesh".into() }), Ok(CatalogAnswer::Deleted));
    stage.release(mesh);
    stage.expect_elements(part, ELEMENTS - 1, |i| i);
    stage.release(part);
    stage.until_store_has(0);
}

fn lost_with_its_server(world: &mut dyn World) {
    let mut stage = TestGrid::new(world, 1);
    assert_eq!(stage.put("mesh", false), Ok(CatalogAnswer::Put));
    let mesh = stage.find("mesh").unwrap();
    let server = stage.servers[0];
    stage.world.kill(server);
    stage.world.command(stage.client, Command::Get { datum: mesh });
    let error = stage.until("the loss of a datum", |event| match event {
        Event::DatumLost { datum, error } if *datum == mesh => Some(error.to_string()),
        _ => None,
    });
    assert!(error.contains("no server has 'mesh' any more"), "{error}");
    assert!(matches!(stage.find("mesh"), Err(NameError::Lost { .. })));
    stage.world.start_server(spec(2, STORE_BYTES_DEFAULT));
    stage.until("the new server in the directory", |event| match event {
        Event::Directory { grid, .. } => grid.servers.iter().any(|server| server.name == "server-2").then_some(()),
        _ => None,
    });
    assert_eq!(stage.put("mesh", false), Ok(CatalogAnswer::Put));
    let mesh = stage.find("mesh").unwrap();
    stage.expect(mesh, |i| i);
}

fn kept_by_two(world: &mut dyn World) {
    let mut stage = TestGrid::new(world, 2);
    let counted = stage.counted();
    let too_many = stage.put_command("mesh", false, 3);
    let Err(NameError::NoRoom { why, .. }) = stage.named(too_many) else { panic!("there are two servers") };
    assert!(why.contains("3 replicas were requested, but only 2 servers have room"), "{why}");
    let command = stage.put_command("mesh", false, 2);
    assert_eq!(stage.named(command), Ok(CatalogAnswer::Put));
    stage.until_kept_by("mesh", 2);
    for (number, lost, next) in [(3, "server-1", "server-3"), (4, "server-2", "server-4")] {
        stage.world.kill(stage.servers[number - 3]);
        let mesh = stage.find("mesh").unwrap();
        stage.expect(mesh, |i| i);
        stage.release(mesh);
        stage.world.start_server(spec(number as u32, STORE_BYTES_DEFAULT));
        let node = stage.until("the new server in the directory, without the lost one", |event| match event {
            Event::Directory { grid, .. } if grid.servers.iter().any(|known| known.name == lost) => None,
            Event::Directory { grid, .. } => {
                grid.servers.iter().find(|known| known.name == next).map(|known| known.node)
            }
            _ => None,
        });
        stage.names.retain(|_, known| known != lost);
        stage.names.insert(node, next.into());
        stage.until_kept_by("mesh", 2);
        stage.until_store_has(2 * counted);
    }
    assert_eq!(stage.named(NameCommand::Delete { name: "mesh".into() }), Ok(CatalogAnswer::Deleted));
    stage.until_store_has(0);
}

fn durable(world: &mut dyn World) {
    let mut stage = TestGrid::new(world, 1);
    let counted = stage.counted();
    for (name, is_durable) in [("mesh", true), ("other", false), ("deleted", true), ("mesh", true)] {
        let replaces = name == "mesh";
        let NameCommand::Put { name, datum, meta, replicas, task, group, .. } = stage.put_command(name, replaces, 1)
        else {
            unreachable!("it is a put")
        };
        let command = NameCommand::Put {
            name,
            datum,
            meta,
            replaces,
            replicas,
            is_durable,
            method: Method::Auto,
            made_by: None,
            task,
            group,
        };
        assert_eq!(stage.named(command), Ok(CatalogAnswer::Put));
    }
    assert_eq!(stage.named(NameCommand::Delete { name: "deleted".into() }), Ok(CatalogAnswer::Deleted));
    stage.until_store_has(2 * counted);
    let server = stage.servers[0];
    stage.world.kill(server);
    stage.world.start_server(spec(1, STORE_BYTES_DEFAULT));
    let waits = stage.ask(NameCommand::Find { name: "mesh".into(), waits: true });
    let Ok(CatalogAnswer::Found { named, .. }) = stage.answer(waits) else { panic!("its server is back") };
    assert_eq!(named.version, 2);
    stage.expect(named.datum, |i| i);
    for name in ["other", "deleted"] {
        assert!(matches!(stage.find(name), Err(NameError::Unknown { .. } | NameError::Lost { .. })), "{name}");
    }
}

fn leaves_nothing(world: &mut dyn World) {
    let mut stage = TestGrid::new(world, 2);
    let counted = stage.counted();
    let puts: Vec<u64> = ["a", "b", "c"]
        .into_iter()
        .map(|name| {
            let command = stage.put_command(name, false, 1);
            stage.ask(command)
        })
        .collect();
    puts.into_iter().for_each(|ask| assert_eq!(stage.answer(ask), Ok(CatalogAnswer::Put)));
    stage.until_store_has(3 * counted);
    let c = stage.find("c").unwrap();
    for name in ["a", "b", "c"] {
        assert_eq!(stage.named(NameCommand::Delete { name: name.into() }), Ok(CatalogAnswer::Deleted));
        assert!(matches!(stage.find(name), Err(NameError::Unknown { .. })));
    }
    stage.until_store_has(counted);
    stage.expect(c, |i| i);
    stage.release(c);
    stage.until_store_has(0);
}

fn no_room(world: &mut dyn World) {
    let mut stage = TestGrid::with_memory(world, 1, 4 * BYTES);
    for name in ["a", "b"] {
        assert_eq!(stage.put(name, false), Ok(CatalogAnswer::Put));
    }
    let Err(NameError::NoRoom { size_bytes: BYTES, why, .. }) = stage.put("c", false) else { panic!("it has no room") };
    assert!(why.contains("0 bytes"), "{why}");
    assert_eq!(stage.named(NameCommand::Delete { name: "a".into() }), Ok(CatalogAnswer::Deleted));
    assert_eq!(stage.put("c", false), Ok(CatalogAnswer::Put));
}

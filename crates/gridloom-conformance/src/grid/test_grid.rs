//! A grid that the cases run on, with one client at a time.

use std::collections::{BTreeMap, BTreeSet};

use gridloom_base::limits::STORE_BYTES_DEFAULT;
use gridloom_base::{DatumId, Dtype, GroupId, Meta, NameError, NodeId, TaskError, TaskId};
use gridloom_core::call::CallTimeouts;
use gridloom_core::graph::{Argument, CopyLifetime, Group, Output, Source, Task, TaskKind};
use gridloom_core::node::message::{CatalogAnswer, TaskReport, TransferReport};
use gridloom_core::node::protocol::{Command, Event};
use gridloom_core::node::world::{ServerSpec, World};

use super::{ELEMENTS, LARGE_ELEMENTS, WAIT_NS_MAX, definitions, spec};

/// The answer to a request about a name.
pub(super) type CatalogResult = Result<CatalogAnswer, NameError>;

/// A grid with a client that has received the directory of its servers.
pub(super) struct TestGrid<'w> {
    pub(super) world: &'w mut dyn World,
    pub(super) agent: NodeId,
    pub(super) servers: Vec<NodeId>,
    pub(super) client: NodeId,
    pub(super) serial: u64,
    pub(super) hashes: BTreeMap<String, u64>,
    /// The identifier that the client uses in the names of its data. Worlds may number nodes in other ways.
    pub(super) name: NodeId,
    pub(super) ended: BTreeMap<TaskId, TaskReport>,
    pub(super) answers: BTreeMap<u64, CatalogResult>,
    pub(super) lost: Vec<TaskId>,
    pub(super) groups_ended: BTreeSet<GroupId>,
    /// Names of the servers, from the directory.
    pub(super) names: BTreeMap<NodeId, String>,
    /// Transfers that were reported to the client.
    pub(super) moved: Vec<TransferReport>,
}

impl<'w> TestGrid<'w> {
    pub(super) fn new(world: &'w mut dyn World, servers: u32) -> TestGrid<'w> {
        TestGrid::with_memory(world, servers, STORE_BYTES_DEFAULT)
    }

    pub(super) fn with_memory(world: &'w mut dyn World, servers: u32, memory_bytes: u64) -> TestGrid<'w> {
        TestGrid::with_specs(world, (1..=servers).map(|number| spec(number, memory_bytes)).collect())
    }

    /// Starts a grid with these servers.
    pub(super) fn with_specs(world: &'w mut dyn World, specs: Vec<ServerSpec>) -> TestGrid<'w> {
        let agent = world.start_agent();
        let servers = specs.len();
        let nodes = specs.into_iter().map(|spec| world.start_server(spec)).collect();
        let client = world.start_client("client");
        let name = client;
        let hashes = definitions().iter().map(|d| (d.signature.name.clone(), d.signature.hash())).collect();
        let (ended, answers, lost, groups_ended, names, moved) = Default::default();
        let (count, servers) = (servers, nodes);
        let mut stage = TestGrid {
            world,
            agent,
            servers,
            client,
            serial: 1,
            hashes,
            name,
            ended,
            answers,
            lost,
            groups_ended,
            names,
            moved,
        };
        stage.until("all servers in the directory", |event| match event {
            Event::Directory { grid, .. } => (grid.servers.len() == count).then_some(()),
            _ => None,
        });
        stage
    }

    pub(super) fn serial(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }

    /// Waits for an event. Records the ends of tasks and answers about names that arrive meanwhile.
    pub(super) fn until<R>(&mut self, what: &str, mut found: impl FnMut(&Event) -> Option<R>) -> R {
        loop {
            let event = self.world.next_event(self.client, WAIT_NS_MAX);
            let event = event.unwrap_or_else(|| panic!("{what}: not within {WAIT_NS_MAX} ns"));
            match &event {
                Event::TaskEnded { report, .. } => {
                    self.ended.insert(report.task, report.clone());
                }
                Event::NameResult { request: ask, answer } => _ = self.answers.insert(*ask, answer.clone()),
                Event::ServerLost { rerun: again, .. } => self.lost.extend(again),
                Event::Transferred { report, .. } => self.moved.push(*report),
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

    pub(super) fn array(&mut self) -> (DatumId, Meta) {
        self.array_of(ELEMENTS)
    }

    pub(super) fn array_of(&mut self, elements: u64) -> (DatumId, Meta) {
        let datum = DatumId { client: self.name, serial: self.serial() };
        let meta = Meta::array(Dtype::Float64, &[elements]);
        let bytes: Vec<u8> = (0..elements).flat_map(|i| (i as f64).to_ne_bytes()).collect();
        self.world.put(self.client, datum, meta.clone(), Some(bytes));
        (datum, meta)
    }

    pub(super) fn task(&mut self, function: &str, scalars: &[i32], inputs: &[DatumId], outputs: usize) -> Task {
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
            options: Default::default(),
        }
    }

    pub(super) fn call(&mut self, task: Task, sources: &[(DatumId, Meta)], limits: impl Into<CallTimeouts>) -> TaskId {
        let (id, limits) = (task.id, limits.into());
        self.world.command(self.client, Command::Call { task, sources: sources.to_vec(), limits, deferral: None });
        id
    }

    pub(super) fn run(&mut self, tasks: Vec<Task>, sources: &[(DatumId, Meta)]) -> GroupId {
        let id = GroupId { client: self.name, serial: self.serial() };
        let at = vec![self.name];
        let sources =
            sources.iter().map(|(datum, meta)| (*datum, Source { meta: meta.clone(), at: at.clone() })).collect();
        let group = Group { id, tasks, sources, wanted: Vec::new() };
        self.world.command(self.client, Command::Run { group, heuristic: "heft".into() });
        id
    }

    /// Returns the node of the server at that place in `servers`.
    pub(super) fn node_of(&self, place: usize) -> NodeId {
        let name = format!("server-{}", place + 1);
        let (node, _) = self.names.iter().find(|(_, known)| **known == name).expect("all servers are in the directory");
        *node
    }

    /// Returns a task that copies a datum to its server, where it is kept.
    pub(super) fn copying(&mut self, datum: DatumId) -> Task {
        Task {
            id: TaskId { client: self.name, serial: self.serial() },
            kind: TaskKind::Replicate(CopyLifetime::Kept),
            args: vec![Argument::Datum(datum)],
            outputs: Vec::new(),
            work_flops: None,
            options: Default::default(),
        }
    }

    /// Runs a task on the server at `place`, which fetches a datum from the server at `from`.
    pub(super) fn follow(
        &mut self,
        task: Task,
        place: usize,
        (datum, meta): (DatumId, Meta),
        from: Option<usize>,
    ) -> GroupId {
        let id = GroupId { client: self.name, serial: self.serial() };
        let sources = BTreeMap::from([(datum, Source { meta, at: vec![self.name] })]);
        let group = Group { id, tasks: vec![task], sources, wanted: Vec::new() };
        let from = from.into_iter().map(|source| (datum, self.node_of(source))).collect();
        let server = self.node_of(place);
        let command = Command::RunPlanned { group, server, from, heuristic: "heft".into(), plan: None };
        self.world.command(self.client, command);
        id
    }

    /// Returns the place in `servers` of the server that the group's plan assigns a task to.
    pub(super) fn server_of(&mut self, task: TaskId) -> usize {
        let server = self.until("the plan", |event| match event {
            Event::GroupPlanned { plan, tasks, .. } => {
                tasks.iter().position(|known| *known == task).map(|index| plan.tasks[index].server)
            }
            _ => None,
        });
        let name = self.names.get(&server).expect("the plan names a server of the directory");
        name.trim_start_matches("server-").parse::<usize>().expect("the suite numbers its servers") - 1
    }

    pub(super) fn end_of(&mut self, task: TaskId) -> Result<Vec<(DatumId, Meta)>, TaskError> {
        if let Some(report) = self.ended.get(&task) {
            return report.outcome.clone();
        }
        self.until("the end of a task", |event| match event {
            Event::TaskEnded { report, .. } if report.task == task => Some(report.outcome.clone()),
            _ => None,
        })
    }

    pub(super) fn group_end(&mut self, group: GroupId) {
        if self.groups_ended.contains(&group) {
            return;
        }
        self.until("the end of a group", |event| match event {
            Event::GroupEnded { group: ended, .. } => (*ended == group).then_some(()),
            _ => None,
        });
    }

    /// Fetches a datum and checks its elements, if the world has them.
    pub(super) fn expect(&mut self, datum: DatumId, element: impl Fn(f64) -> f64) {
        self.fetch(datum);
        self.check(datum, element);
    }

    /// Fetches a datum of `elements` elements and checks them.
    pub(super) fn expect_elements(&mut self, datum: DatumId, elements: u64, element: impl Fn(f64) -> f64) {
        self.fetch(datum);
        self.check_elements(datum, &[elements], element);
    }

    fn fetch(&mut self, datum: DatumId) {
        self.world.command(self.client, Command::Get { datum });
        let outcome = self.until("a datum", |event| match event {
            Event::DatumAvailable { datum: here, .. } => (*here == datum).then_some(Ok(())),
            Event::DatumLost { datum: lost, error } => (*lost == datum).then(|| Err(error.clone())),
            _ => None,
        });
        outcome.unwrap_or_else(|error| panic!("{datum}: {error}"));
    }

    pub(super) fn check(&mut self, datum: DatumId, element: impl Fn(f64) -> f64) {
        self.check_elements(datum, &[ELEMENTS, LARGE_ELEMENTS], element);
    }

    fn check_elements(&mut self, datum: DatumId, counts: &[u64], element: impl Fn(f64) -> f64) {
        let (meta, bytes) = self.world.value(self.client, datum).expect("the datum is in the client's store");
        let elements = meta.size_bytes() / 8;
        assert!(counts.contains(&elements), "{meta}");
        assert_eq!(meta, Meta::array(Dtype::Float64, &[elements]));
        let Some(bytes) = bytes else { return };
        for (i, chunk) in bytes.as_chunks::<8>().0.iter().enumerate() {
            assert_eq!(f64::from_ne_bytes(*chunk), element(i as f64), "element {i} of {datum}");
        }
    }
}

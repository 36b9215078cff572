//! The workload driver of one client: its actions, their times, and what it waits for.
//!
//! It starts a group and calls, requests results, and sometimes cancels. It may start a second group that reads
//! results of the first. It releases everything when all has ended. Times are drawn in advance, so that its actions
//! depend on the seed and on the events it receives, not on how often it is polled.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use gridloom_base::time::SECOND_NS;
use gridloom_base::{DatumId, Dtype, GroupId, Meta, NodeId, ObjectId, SplitMix64, TaskId, Time};
use gridloom_core::call::Deferral;
use gridloom_core::graph::{Argument, CopyLifetime, Group, Output, Source, Task, TaskKind};
use gridloom_core::node::{Command, Event};

use super::ledger::Ledger;
use super::shared_calls::DueAction;
use super::shared_names::{Action, SharedNameDriver};
use super::workload::{Hashes, PlainCall, Work, WorkGenerator, array};
use gridloom_sim::Simulation;

/// Time within which all spontaneous actions of a program happen.
const ACTIVE_NS: u64 = 2 * SECOND_NS;
const CALLS_MAX: u64 = 60;
const OBJECTS_MAX: u64 = 4;
/// Time for which a client that maps its calls itself waits for servers to answer.
const SERVERS_WITHIN_NS: u64 = 60 * SECOND_NS;

/// First number of placements. No other work uses this range.
const PLACEMENTS_FROM: u64 = 1 << 40;
/// Salts of their random streams.
const PLACING: u64 = 0x706c_6163_696e_6721;
const NAMING: u64 = 0x6e61_6d69_6e67_2121;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum ActionKind {
    Group,
    Call,
    CancelCall,
    /// Creates an object.
    Object,
    /// Calls the methods of created objects.
    Methods,
    CancelGroup,
    /// Requests all its results.
    Get,
    /// Releases one result, requested or not.
    ReleaseOne,
    /// Sends a copy of one of its results to a server, or evicts it there.
    Place,
    /// Erases one of its results.
    Erase,
}

/// A program and its client.
#[derive(Debug)]
pub(crate) struct WorkloadDriver {
    pub(crate) node: NodeId,
    draw: WorkGenerator,
    agenda: VecDeque<(Time, ActionKind)>,
    calls: BTreeMap<TaskId, PlainCall>,
    groups: BTreeMap<GroupId, Vec<TaskId>>,
    open: BTreeSet<GroupId>,
    /// Created objects whose methods were not called yet.
    objects: Vec<(ObjectId, NodeId)>,
    /// Results on which it has a handle.
    held: BTreeMap<DatumId, f64>,
    /// Requested results that have not arrived yet.
    asked: BTreeSet<DatumId>,
    /// Random stream of placements, so that other work does not depend on them.
    placing: SplitMix64,
    placements: u64,
    naming: SharedNameDriver,
    /// Known servers.
    servers: Vec<NodeId>,
    /// If set, it begins when its client knows servers, and gives up at this time.
    gives_up_at: Option<Time>,
    pub(crate) is_over: bool,
    pub(crate) was_killed: bool,
}

impl WorkloadDriver {
    /// Creates a driver that begins now.
    pub(crate) fn new(
        now: Time,
        node: NodeId,
        mut random: SplitMix64,
        elements: u64,
        hashes: Hashes,
    ) -> WorkloadDriver {
        let mut agenda = vec![(now, ActionKind::Group)];
        let mut later = |random: &mut SplitMix64, act| agenda.push((now + random.below(ACTIVE_NS), act));
        if random.below(3) == 0 {
            later(&mut random, ActionKind::Group);
        }
        if random.below(6) == 0 {
            later(&mut random, ActionKind::CancelGroup);
        }
        for _ in 0..random.below(3) {
            later(&mut random, ActionKind::Get);
        }
        for _ in 0..random.below(3) {
            later(&mut random, ActionKind::CancelCall);
        }
        if random.below(4) == 0 {
            later(&mut random, ActionKind::ReleaseOne);
        }
        if random.below(2) == 0 {
            (0..=random.below(OBJECTS_MAX)).for_each(|_| later(&mut random, ActionKind::Object));
        }
        let calls = if random.below(2) == 0 { random.below(CALLS_MAX) } else { 0 };
        let is_burst = random.below(2) == 0;
        for _ in 0..calls {
            if is_burst {
                agenda.push((now, ActionKind::Call))
            } else {
                agenda.push((now + random.below(ACTIVE_NS), ActionKind::Call))
            }
        }
        let mut placing = SplitMix64::new(random.clone().below(u64::MAX) ^ PLACING);
        if placing.below(3) == 0 {
            for _ in 0..1 + placing.below(12) {
                agenda.push((now + placing.below(ACTIVE_NS), ActionKind::Place));
            }
            if placing.below(4) == 0 {
                agenda.push((now + placing.below(ACTIVE_NS), ActionKind::Erase));
            }
        }
        // Requests everything that it has not requested by then.
        agenda.push((now + ACTIVE_NS, ActionKind::Get));
        agenda.sort();
        let apart = SplitMix64::new(random.clone().below(u64::MAX) ^ NAMING);
        let draw = WorkGenerator { random, client: node, elements, hashes, next_group: 0, next_call: 0 };
        let naming = SharedNameDriver::new(now, node, apart, draw.clone());
        WorkloadDriver {
            node,
            draw,
            agenda: agenda.into(),
            calls: BTreeMap::new(),
            groups: BTreeMap::new(),
            open: BTreeSet::new(),
            objects: Vec::new(),
            held: BTreeMap::new(),
            asked: BTreeSet::new(),
            placing,
            placements: 0,
            naming,
            servers: Vec::new(),
            gives_up_at: None,
            is_over: false,
            was_killed: false,
        }
    }

    /// Makes it begin when its client, which maps its calls itself, knows a server.
    pub(crate) fn waiting_for_servers(self, now: Time) -> WorkloadDriver {
        WorkloadDriver { gives_up_at: Some(now + SERVERS_WITHIN_NS), ..self }
    }

    /// Returns the time of its next spontaneous action.
    pub(crate) fn next_at(&self) -> Option<Time> {
        if let Some(at) = self.gives_up_at.filter(|_| !self.is_over) {
            return Some(at);
        }
        let own = self.agenda.front().map(|(at, _)| *at);
        own.into_iter().chain(self.naming.next_at()).min().filter(|_| !self.is_over)
    }

    /// Describes what it still waits for.
    pub(crate) fn waits_for(&self) -> String {
        let calls: Vec<String> = self.calls.keys().map(ToString::to_string).collect();
        let groups: Vec<String> = self.open.iter().map(|group| group.serial.to_string()).collect();
        let asked: Vec<String> = self.asked.iter().map(ToString::to_string).collect();
        format!(
            "client {} waits for calls [{}], groups [{}], data [{}], answers about names {:?}",
            self.node,
            calls.join(", "),
            groups.join(", "),
            asked.join(", "),
            self.naming.waits_for()
        )
    }

    /// Stops the driver, because its client was killed.
    pub(crate) fn kill(&mut self) {
        (self.is_over, self.was_killed) = (true, true);
    }

    /// Performs the actions that are due.
    pub(crate) fn act(&mut self, sim: &mut Simulation, ledger: &mut Ledger) {
        if let Some(at) = self.gives_up_at {
            // It has found no server in time.
            self.is_over = at <= sim.now();
            return;
        }
        while self.agenda.front().is_some_and(|(at, _)| *at <= sim.now()) {
            let (_, act) = self.agenda.pop_front().expect("there is a first");
            match act {
                ActionKind::Group => self.run_group(sim, ledger),
                ActionKind::Call => {
                    let call = self.draw.call();
                    self.call(sim, ledger, call);
                }
                ActionKind::Object => {
                    let call = self.draw.object();
                    self.call(sim, ledger, call);
                }
                ActionKind::Methods => {
                    for (object, server) in std::mem::take(&mut self.objects) {
                        for call in self.draw.methods(object, server) {
                            self.call(sim, ledger, call);
                        }
                    }
                }
                ActionKind::CancelCall => {
                    if let Some(task) = self.calls.keys().next().copied() {
                        ledger.cancelled.insert(task);
                        sim.command(self.node, Command::Cancel { tasks: vec![task] });
                    }
                }
                ActionKind::CancelGroup => {
                    if let Some(group) = self.open.first().copied() {
                        self.cancel(sim, ledger, group);
                    }
                }
                ActionKind::Get => {
                    for datum in self.held.keys() {
                        self.asked.insert(*datum);
                        sim.command(self.node, Command::Get { datum: *datum });
                    }
                }
                ActionKind::ReleaseOne => {
                    // A program that waits for a result has a handle on it, so only others can be released.
                    let one = self.held.keys().find(|datum| self.is_free(**datum)).copied();
                    if let Some(datum) = one {
                        self.held.remove(&datum);
                        sim.command(self.node, Command::Release { data: vec![datum] });
                    }
                }
                ActionKind::Place => self.place(sim, ledger),
                ActionKind::Erase => {
                    if let Some(datum) = self.held.keys().find(|datum| self.is_free(**datum)).copied() {
                        ledger.has_erased = true;
                        self.held.remove(&datum);
                        sim.command(self.node, Command::Erase { datum });
                    }
                }
            }
        }
        while let Some(deed) = self.naming.act(sim, ledger, &self.held) {
            match deed {
                Action::None => {}
                Action::Run(work) => self.hand_over(sim, ledger, *work),
                Action::Await(datum) => _ = self.asked.insert(datum),
                Action::TakePart(datum, part) => self.take_slice(sim, ledger, datum, part),
                Action::Spread(datum) => {
                    self.asked.insert(datum);
                    let servers = self.servers.clone();
                    servers.into_iter().for_each(|server| self.place_at(sim, ledger, (datum, server), true, None));
                }
                Action::SharedCall(DueAction::Call(call)) => self.call(sim, ledger, *call),
                Action::SharedCall(DueAction::Run(work)) => self.hand_over(sim, ledger, *work),
                Action::SharedCall(DueAction::GiveUp(group)) => self.cancel(sim, ledger, group),
            }
        }
        self.end_if_done(sim);
    }

    fn cancel(&self, sim: &mut Simulation, ledger: &mut Ledger, group: GroupId) {
        if let Some(tasks) = self.groups.get(&group).filter(|_| self.open.contains(&group)).cloned() {
            ledger.cancelled.extend(&tasks);
            sim.command(self.node, Command::Cancel { tasks });
        }
    }

    fn run_group(&mut self, sim: &mut Simulation, ledger: &mut Ledger) {
        let has: Vec<(DatumId, f64)> = self.held.iter().map(|(datum, value)| (*datum, *value)).collect();
        let work = self.draw.group(&has);
        self.hand_over(sim, ledger, work);
    }

    fn hand_over(&mut self, sim: &mut Simulation, ledger: &mut Ledger, work: Work) {
        for (datum, value) in &work.sources {
            self.put(sim, ledger, *datum, *value);
        }
        ledger.expected.extend(work.results.iter().copied());
        let tasks: Vec<TaskId> = work.group.tasks.iter().map(|task| task.id).collect();
        // Unused results are released immediately, as by a program that drops its handles.
        let unwanted = work.results.iter().map(|(datum, _)| *datum).filter(|datum| !work.wanted.contains_key(datum));
        let release: Vec<DatumId> = unwanted.chain(work.sources.iter().map(|(datum, _)| *datum)).collect();
        self.held.extend(work.wanted);
        self.groups.insert(work.group.id, tasks);
        self.open.insert(work.group.id);
        let heuristic = ["heft", "greedy", "random", "auto[steps=3000]"][self.draw.random.below(4) as usize].into();
        sim.command(self.node, Command::Run { group: work.group, heuristic });
        sim.command(self.node, Command::Release { data: release });
    }

    /// Reports whether no request of the program needs a result.
    fn is_free(&self, datum: DatumId) -> bool {
        !self.asked.contains(&datum) && !self.naming.is_lent(datum)
    }

    fn place(&mut self, sim: &mut Simulation, ledger: &mut Ledger) {
        if self.held.is_empty() || self.servers.is_empty() {
            return;
        }
        let mut pick = |count: usize| pick_of(&mut self.placing, count);
        let (server, what) = (self.servers[pick(self.servers.len())], pick(4));
        let datum = *self.held.keys().nth(pick(self.held.len())).expect("it is one of them");
        if what == 0 {
            sim.command(self.node, Command::DropCopy { datum, at: server });
            return;
        }
        self.place_at(sim, ledger, (datum, server), what == 1, None);
        // A chain: the next server gets the datum from this one.
        let next = self.servers[pick_of(&mut self.placing, self.servers.len())];
        if next != server && self.placing.below(2) == 0 {
            self.place_at(sim, ledger, (datum, next), what == 1, Some(server));
        }
    }

    fn place_at(
        &mut self,
        sim: &mut Simulation,
        ledger: &mut Ledger,
        (datum, server): (DatumId, NodeId),
        is_cached: bool,
        from: Option<NodeId>,
    ) {
        let kind = TaskKind::Replicate(if is_cached { CopyLifetime::Cached } else { CopyLifetime::Kept });
        let from = from.into_iter().map(|from| (datum, from)).collect();
        self.run_at(sim, ledger, (kind, Vec::new()), (datum, server), from);
    }

    /// Creates a datum from some elements of a shared datum on any server, and requests it.
    fn take_slice(&mut self, sim: &mut Simulation, ledger: &mut Ledger, datum: DatumId, part: DatumId) {
        let Some(server) = self.servers.get(pick_of(&mut self.placing, self.servers.len().max(1))).copied() else {
            return self.naming.arrived(sim, part);
        };
        let elements = self.draw.meta().size_bytes() / 8;
        let from = self.placing.below(elements);
        let meta = Meta::array(Dtype::Float64, &[1 + self.placing.below(elements - from)]);
        let kind = TaskKind::View { from_byte: 8 * from };
        self.run_at(sim, ledger, (kind, vec![Output { datum: part, meta }]), (datum, server), BTreeMap::new());
        ledger.shared.parts.insert(part, TaskId { client: self.node, serial: PLACEMENTS_FROM + self.placements });
        self.asked.insert(part);
        sim.command(self.node, Command::Get { datum: part });
    }

    /// Runs, on a given server, a task that calls no function.
    fn run_at(
        &mut self,
        sim: &mut Simulation,
        ledger: &mut Ledger,
        (kind, outputs): (TaskKind, Vec<Output>),
        (datum, server): (DatumId, NodeId),
        from: BTreeMap<DatumId, NodeId>,
    ) {
        self.placements += 1;
        let id = GroupId { client: self.node, serial: PLACEMENTS_FROM + self.placements };
        let task = Task {
            id: TaskId { client: self.node, serial: id.serial },
            kind,
            args: vec![Argument::Datum(datum)],
            outputs,
            work_flops: None,
            options: Default::default(),
        };
        ledger.placements.insert(task.id);
        self.groups.insert(id, vec![task.id]);
        self.open.insert(id);
        let sources = BTreeMap::from([(datum, Source { meta: self.draw.meta(), at: Vec::new() })]);
        let group = Group { id, tasks: vec![task], sources, wanted: Vec::new() };
        sim.command(self.node, Command::RunPlanned { group, server, from, heuristic: "heft".into(), plan: None });
    }

    fn call(&mut self, sim: &mut Simulation, ledger: &mut Ledger, call: PlainCall) {
        for (datum, value) in &call.sources {
            self.put(sim, ledger, *datum, *value);
        }
        if call.task.object().is_some() {
            ledger.methods.insert(call.task.id);
        }
        ledger.expected.extend(call.results.iter().copied());
        ledger.call_results.extend(call.results.iter().map(|(datum, _)| *datum));
        ledger.calls.insert(call.task.id, call.results.iter().map(|(datum, _)| *datum).collect());
        if call.limit_ns.is_some() {
            ledger.limited.insert(call.task.id);
        }
        let sources = call.sources.iter().map(|(datum, _)| (*datum, self.draw.meta())).collect();
        let (task, limits) = (call.task.clone(), call.limit_ns.into());
        // Every other call of a function waits in the client until a server has a free slot.
        let is_deferred = task.object().is_none() && task.id.serial % 2 == 0;
        let deferral = is_deferred.then(Box::<Deferral>::default);
        self.calls.insert(task.id, call);
        sim.command(self.node, Command::Call { task, sources, limits, deferral });
    }

    fn put(&self, sim: &mut Simulation, ledger: &mut Ledger, datum: DatumId, value: f64) {
        let meta = self.draw.meta();
        let bytes = array(value, &meta);
        ledger.expected.insert(datum, value);
        sim.put(self.node, datum, meta, Some(bytes.into()));
    }

    /// Handles the events of its client.
    pub(crate) fn handle_events(&mut self, sim: &mut Simulation, ledger: &Ledger) {
        while let Some(event) = sim.take_event(self.node) {
            match event {
                Event::DatumAvailable { datum, .. } | Event::DatumLost { datum, .. } => {
                    self.asked.remove(&datum);
                    self.naming.arrived(sim, datum);
                }
                Event::Directory { grid, .. } => {
                    self.servers = grid.servers.iter().map(|server| server.node).collect();
                    if self.gives_up_at.is_none() || self.servers.is_empty() {
                        continue;
                    }
                    self.gives_up_at = None;
                    let late_ns = self.agenda.front().map_or(0, |(at, _)| sim.now().since(*at));
                    self.agenda.iter_mut().for_each(|(at, _)| *at = *at + late_ns);
                    self.naming.delay(late_ns);
                }
                Event::TaskEnded { report, server, .. } => {
                    if let Some(call) = self.calls.remove(&report.task)
                        && report.outcome.is_ok()
                    {
                        if let (Some(object), Some(server), None) =
                            (call.task.object(), server, call.task.options.bound_to)
                        {
                            self.objects.push((object, server));
                            self.agenda.push_front((sim.now(), ActionKind::Methods));
                        }
                        for (datum, _) in call.results {
                            sim.remove(self.node, datum);
                        }
                    }
                }
                Event::NameResult { request: ask, answer } => self.naming.on_answer(sim, ledger, ask, answer.ok()),
                Event::GroupEnded { group, .. } => {
                    self.open.remove(&group);
                }
                _ => {}
            }
        }
        self.end_if_done(sim);
    }

    /// Releases everything when all has ended.
    fn end_if_done(&mut self, sim: &mut Simulation) {
        let waits = !self.calls.is_empty() || !self.asked.is_empty() || !self.open.is_empty();
        if !self.is_over && self.gives_up_at.is_none() && !waits && self.agenda.is_empty() && self.naming.is_over() {
            self.is_over = true;
            let data = self.held.keys().copied().collect();
            sim.command(self.node, Command::Release { data });
        }
    }
}

/// Returns a random index below `count`.
fn pick_of(random: &mut SplitMix64, count: usize) -> usize {
    random.below(count as u64) as usize
}

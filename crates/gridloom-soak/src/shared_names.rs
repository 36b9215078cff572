//! The actions of one client's program on shared names: it puts, finds, reads, lists and deletes a few names that all
//! programs use.
//!
//! It has a random stream of its own, so that other work does not depend on it. It releases each found datum as often
//! as it was found, and finally cancels the finds that still wait.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use gridloom_base::time::SECOND_NS;
use gridloom_base::{DatumId, GroupId, Method, NodeId, SplitMix64, TaskId, Time};
use gridloom_core::node::message::CatalogAnswer;
use gridloom_core::node::{Command, NameCommand};

use super::agenda::{self, ActionRates};
use super::ledger::Ledger;
use super::shared::NameRequest;
use super::shared_calls::{DueAction, SharedCalls};
use super::workload::{Work, WorkGenerator, array};
use gridloom_sim::Simulation;

const NAMES: [&str; 4] = ["mesh", "run/1", "run/2", "ab"];
const HABITS: ActionRates =
    ActionRates { one_without_of: 3, actions_max: 24, soon_ns: 3 * SECOND_NS, late_ns: 40 * SECOND_NS };
/// Time for which it waits, after its last action, for names that nobody has put.
const PATIENCE_NS: u64 = 2 * SECOND_NS;

/// Salt of this random stream.
const DECLARING: u64 = 0x6465_636c_6172_6521;
/// First numbers of groups, tasks and data for names. No other work uses this range.
const GROUPS_FROM: u64 = 1 << 31;
const SERIALS_FROM: u64 = 1 << 42;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum NameActionKind {
    Put,
    Replace,
    /// Puts a result of a group.
    PutResult,
    Find,
    FindWaiting,
    Forget,
    Delete,
    List,
    /// Requests a datum that it has found.
    Get,
    /// Requests some elements of a datum that it has found, from any server.
    GetRows,
    /// Makes all servers take copies of a datum that it has found.
    Spread,
    /// Makes a group read a datum that it has found.
    Read,
    Release,
    /// Cancels all waiting finds, and releases all found data.
    End,
}

const DRAWN: [NameActionKind; 16] = [
    NameActionKind::Put,
    NameActionKind::Put,
    NameActionKind::Replace,
    NameActionKind::Replace,
    NameActionKind::PutResult,
    NameActionKind::Find,
    NameActionKind::Find,
    NameActionKind::FindWaiting,
    NameActionKind::Forget,
    NameActionKind::Delete,
    NameActionKind::List,
    NameActionKind::Get,
    NameActionKind::GetRows,
    NameActionKind::Spread,
    NameActionKind::Read,
    NameActionKind::Release,
];

/// An action for the workload driver.
pub(crate) enum Action {
    None,
    /// Run a group.
    Run(Box<Work>),
    /// Wait for a datum.
    Await(DatumId),
    /// Create the second datum from a part of the first, and wait for it.
    TakePart(DatumId, DatumId),
    /// Make all servers take copies, and wait for the datum.
    Spread(DatumId),
    /// Call a function that shares data, run a group of such calls, or cancel that group.
    SharedCall(DueAction),
}

/// The part of a program that uses shared names.
#[derive(Debug)]
pub(crate) struct SharedNameDriver {
    node: NodeId,
    random: SplitMix64,
    /// The workload from which groups that read names are drawn.
    draw: WorkGenerator,
    agenda: VecDeque<(Time, NameActionKind)>,
    /// Unanswered requests.
    pending_requests: BTreeSet<u64>,
    next: u64,
    /// Data that it has found, and how often.
    found: BTreeMap<DatumId, u64>,
    /// Data that it waits for and must not release yet.
    awaited: BTreeSet<DatumId>,
    /// Parts of found data that it waits for.
    parts: BTreeSet<DatumId>,
    /// Results that it is putting, by request.
    results_being_put: BTreeMap<u64, DatumId>,
    /// Values of its own that it is putting, by request.
    values_being_put: BTreeMap<u64, DatumId>,
    declaring: SharedCalls,
}

impl SharedNameDriver {
    pub(crate) fn new(now: Time, node: NodeId, mut random: SplitMix64, draw: WorkGenerator) -> SharedNameDriver {
        let agenda = agenda::draw(now, &mut random, &DRAWN, &HABITS).map(|mut agenda| {
            let last = agenda.last().map_or(now, |(at, _)| *at);
            agenda.push((last + PATIENCE_NS, NameActionKind::End));
            agenda
        });
        let agenda = agenda.unwrap_or_default().into();
        let draw = WorkGenerator { random: SplitMix64::new(random.next_u64()), next_group: GROUPS_FROM, ..draw };
        let apart = SplitMix64::new(random.clone().next_u64() ^ DECLARING);
        let declaring = SharedCalls::new(now, node, apart, draw.elements);
        let (pending_requests, found, awaited, parts, results_being_put, values_being_put) = Default::default();
        SharedNameDriver {
            node,
            random,
            draw,
            agenda,
            pending_requests,
            next: 0,
            found,
            awaited,
            parts,
            results_being_put,
            values_being_put,
            declaring,
        }
    }

    pub(crate) fn next_at(&self) -> Option<Time> {
        self.own_next_at().into_iter().chain(self.declaring.next_at()).min()
    }

    fn own_next_at(&self) -> Option<Time> {
        self.agenda.front().map(|(at, _)| *at)
    }

    pub(crate) fn is_over(&self) -> bool {
        let waits = !self.pending_requests.is_empty() || !self.awaited.is_empty() || !self.parts.is_empty();
        self.agenda.is_empty() && self.declaring.is_over() && !waits
    }

    /// Reports whether it is currently putting a datum.
    pub(crate) fn is_lent(&self, datum: DatumId) -> bool {
        self.results_being_put.values().any(|lent| *lent == datum)
    }

    pub(crate) fn waits_for(&self) -> Vec<u64> {
        self.pending_requests.iter().copied().collect()
    }

    /// Delays the first action by `late_ns`.
    pub(crate) fn delay(&mut self, late_ns: u64) {
        self.agenda.iter_mut().for_each(|(at, _)| *at = *at + late_ns);
        self.declaring.delay(late_ns);
    }

    /// Performs one action that is due, if any. `held` are results of groups.
    pub(crate) fn act(
        &mut self,
        sim: &mut Simulation,
        ledger: &mut Ledger,
        held: &BTreeMap<DatumId, f64>,
    ) -> Option<Action> {
        if let Some(due) = self.declaring.act(sim.now(), ledger) {
            return Some(Action::SharedCall(due));
        }
        if self.own_next_at().is_none_or(|at| at > sim.now()) {
            return None;
        }
        let (_, act) = self.agenda.pop_front().expect("there is a first");
        let name = NAMES[self.random.below(NAMES.len() as u64) as usize].to_string();
        match act {
            NameActionKind::Put | NameActionKind::Replace => {
                self.put(sim, ledger, name, act == NameActionKind::Replace)
            }
            NameActionKind::PutResult => self.put_result(sim, ledger, name, held),
            NameActionKind::Find | NameActionKind::FindWaiting => {
                let waits = act == NameActionKind::FindWaiting;
                let command = match waits && self.next.is_multiple_of(2) {
                    true => NameCommand::Await {
                        name: name.clone(),
                        limit_ns: None,
                        gets_data: self.next.is_multiple_of(4),
                    },
                    false => NameCommand::Find { name: name.clone(), waits },
                };
                self.ask(sim, ledger, NameRequest::Find { name, waits }, command);
            }
            NameActionKind::Forget => {
                if let Some(ask) = self.one_that_waits(ledger) {
                    self.forget(sim, ledger, ask);
                }
            }
            NameActionKind::Delete => {
                self.ask(sim, ledger, NameRequest::Delete { name: name.clone() }, NameCommand::Delete { name });
            }
            NameActionKind::List => {
                let command = NameCommand::List { prefix: "run/".into(), after: String::new() };
                self.ask(sim, ledger, NameRequest::List, command);
            }
            NameActionKind::Get => {
                if let Some(datum) = self.one_found() {
                    self.awaited.insert(datum);
                    sim.command(self.node, Command::Get { datum });
                    return Some(Action::Await(datum));
                }
            }
            NameActionKind::Spread => {
                if let Some(datum) = self.one_found() {
                    self.awaited.insert(datum);
                    sim.command(self.node, Command::Get { datum });
                    return Some(Action::Spread(datum));
                }
            }
            NameActionKind::GetRows => {
                let known = self.one_found().and_then(|datum| Some((datum, ledger.shared.versions.get(&datum)?.value)));
                if let Some((datum, value)) = known {
                    self.next += 1;
                    let part = DatumId { client: self.node, serial: SERIALS_FROM + self.next };
                    ledger.expected.insert(part, value);
                    self.parts.insert(part);
                    return Some(Action::TakePart(datum, part));
                }
            }
            NameActionKind::Read => {
                let known = |datum: &DatumId| Some((*datum, ledger.shared.versions.get(datum)?.value));
                let has: Vec<(DatumId, f64)> = self.found.keys().filter_map(known).collect();
                if !has.is_empty() {
                    return Some(Action::Run(Box::new(self.draw.group(&has))));
                }
            }
            NameActionKind::Release => {
                if let Some(datum) = self.one_found().filter(|datum| !self.awaited.contains(datum)) {
                    self.release(sim, datum);
                }
            }
            NameActionKind::End => self.end(sim, ledger),
        }
        Some(Action::None)
    }

    fn one_found(&mut self) -> Option<DatumId> {
        let at = self.random.below(self.found.len().max(1) as u64) as usize;
        self.found.keys().nth(at).copied()
    }

    fn one_that_waits(&self, ledger: &Ledger) -> Option<u64> {
        self.pending_requests.iter().copied().find(|ask| self.is_waiting(ledger, *ask))
    }

    fn is_waiting(&self, ledger: &Ledger, ask: u64) -> bool {
        matches!(ledger.shared.requests.get(&(self.node, ask)), Some((_, NameRequest::Find { waits: true, .. })))
    }

    fn ask(&mut self, sim: &mut Simulation, ledger: &mut Ledger, asked: NameRequest, command: NameCommand) -> u64 {
        self.next += 1;
        let ask = self.next;
        self.pending_requests.insert(ask);
        ledger.shared.requests.insert((self.node, ask), (sim.now(), asked));
        sim.command(self.node, Command::Name { request: ask, command });
        ask
    }

    fn put(&mut self, sim: &mut Simulation, ledger: &mut Ledger, name: String, replaces: bool) {
        let (meta, value) = (self.draw.meta(), ledger.shared.new_value());
        let datum = DatumId { client: self.node, serial: SERIALS_FROM + self.next + 1 };
        ledger.expected.insert(datum, value);
        sim.put(self.node, datum, meta.clone(), Some(array(value, &meta).into()));
        let ask = self.put_datum(sim, ledger, name, (datum, value), replaces);
        self.values_being_put.insert(ask, datum);
    }

    fn put_result(&mut self, sim: &mut Simulation, ledger: &mut Ledger, name: String, held: &BTreeMap<DatumId, f64>) {
        let at = self.random.below(held.len().max(1) as u64) as usize;
        let Some((datum, value)) = held.iter().nth(at) else { return };
        let ask = self.put_datum(sim, ledger, name, (*datum, *value), true);
        self.results_being_put.insert(ask, *datum);
    }

    fn put_datum(
        &mut self,
        sim: &mut Simulation,
        ledger: &mut Ledger,
        name: String,
        (datum, value): (DatumId, f64),
        replaces: bool,
    ) -> u64 {
        let serial = SERIALS_FROM + self.next + 1;
        let (client, meta) = (self.node, self.draw.meta());
        let (task, group) = (TaskId { client, serial }, GroupId { client, serial });
        ledger.placements.insert(task);
        let asked = NameRequest::Put { name: name.clone(), value, replaces };
        let replicas = if self.random.below(3) == 0 { 2 } else { 1 };
        let is_durable = self.random.below(3) == 0;
        let method = [Method::Auto, Method::Direct, Method::Tree, Method::Storage, Method::Swarm, Method::Swarm]
            [self.random.below(6) as usize];
        let command =
            NameCommand::Put { name, datum, meta, replaces, replicas, is_durable, method, made_by: None, task, group };
        self.ask(sim, ledger, asked, command)
    }

    fn release(&mut self, sim: &mut Simulation, datum: DatumId) {
        let times = self.found.get_mut(&datum).expect("it was found");
        *times -= 1;
        if *times == 0 {
            self.found.remove(&datum);
        }
        sim.command(self.node, Command::Release { data: vec![datum] });
    }

    fn end(&mut self, sim: &mut Simulation, ledger: &mut Ledger) {
        for ask in self.waits_for() {
            if self.is_waiting(ledger, ask) {
                self.forget(sim, ledger, ask);
            }
        }
        self.release_all(sim);
    }

    fn forget(&self, sim: &mut Simulation, ledger: &mut Ledger, ask: u64) {
        ledger.shared.forgotten.insert((self.node, ask));
        sim.command(self.node, Command::Name { request: ask, command: NameCommand::CancelWait });
    }

    /// Releases all data except those that it waits for.
    fn release_all(&mut self, sim: &mut Simulation) {
        while let Some(datum) = self.found.keys().find(|datum| !self.awaited.contains(datum)).copied() {
            self.release(sim, datum);
        }
    }

    /// Handles a datum that has arrived or was lost.
    pub(crate) fn arrived(&mut self, sim: &mut Simulation, datum: DatumId) {
        if self.parts.remove(&datum) {
            sim.command(self.node, Command::Release { data: vec![datum] });
        }
        if self.awaited.remove(&datum) && self.agenda.is_empty() {
            self.release_all(sim);
        }
    }

    /// Handles the answer to a request.
    pub(crate) fn on_answer(&mut self, sim: &mut Simulation, ledger: &Ledger, ask: u64, found: Option<CatalogAnswer>) {
        self.pending_requests.remove(&ask);
        self.results_being_put.remove(&ask);
        if let Some(datum) = self.values_being_put.remove(&ask) {
            sim.command(self.node, Command::Release { data: vec![datum] });
            // If the put was refused immediately, its client does not know the datum.
            if !ledger.shared.is_placed((self.node, ask)) {
                sim.remove(self.node, datum);
            }
        }
        if let Some(CatalogAnswer::Found { named, .. }) = found {
            *self.found.entry(named.datum).or_default() += 1;
            if self.agenda.is_empty() {
                self.release_all(sim);
            }
        }
    }
}

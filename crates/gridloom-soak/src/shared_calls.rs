//! Calls of functions that declare which shared data they get and put: name and size are expressions of their arguments.
//!
//! A few names are replaced by all programs. Every other name is put by a single call, so it does not exist before. A
//! call waits for the names that it gets. It has a time limit, or is cancelled with its group, because the put of the
//! name may fail. All of this uses a random stream of its own.

use std::collections::VecDeque;
use std::ops::Range;

use gridloom_base::time::SECOND_NS;
use gridloom_base::{Dtype, GroupId, Meta, NodeId, SplitMix64, TaskId, Time};
use gridloom_core::graph::{Argument, CallOptions, Group, Task, TaskKind};
use gridloom_idl::Definition;

use super::agenda::{self, ActionRates};
use super::ledger::Ledger;
use super::shared_functions::{OWN, offered};
use super::workload::{PlainCall, Work};

const HABITS: ActionRates =
    ActionRates { one_without_of: 2, actions_max: 12, soon_ns: 3 * SECOND_NS, late_ns: 20 * SECOND_NS };
/// Time limits of calls that wait for a name. A group has the upper limit.
const WAITS_NS: Range<u64> = 5 * SECOND_NS..40 * SECOND_NS;
/// Numbers of the names that all programs replace.
const COMMON: Range<u64> = 0..4;
/// First number of tasks and groups of this kind. No other work uses this range.
const SERIALS_FROM: u64 = 1 << 43;
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum SharedCallAction {
    Put,
    Replace,
    Get,
    Pass,
    /// A chain of calls, each of which gets what the one before has put.
    Group,
    /// Cancels a group that has not completely ended.
    GiveUp(GroupId),
}

const DRAWN: [SharedCallAction; 8] = [
    SharedCallAction::Put,
    SharedCallAction::Put,
    SharedCallAction::Replace,
    SharedCallAction::Get,
    SharedCallAction::Get,
    SharedCallAction::Get,
    SharedCallAction::Pass,
    SharedCallAction::Group,
];

/// An action for the workload driver.
pub(crate) enum DueAction {
    Call(Box<PlainCall>),
    Run(Box<Work>),
    GiveUp(GroupId),
}

/// The part of a program that makes such calls.
#[derive(Debug)]
pub(crate) struct SharedCalls {
    client: NodeId,
    random: SplitMix64,
    functions: Vec<Definition>,
    /// Number of elements of the largest datum that it shares.
    elements: u64,
    agenda: VecDeque<(Time, SharedCallAction)>,
    /// Numbers of tasks and groups, and of its own names, so far.
    made: u64,
    names: u64,
}

impl SharedCalls {
    pub(crate) fn new(now: Time, client: NodeId, mut random: SplitMix64, elements: u64) -> SharedCalls {
        let agenda = agenda::draw(now, &mut random, &DRAWN, &HABITS).unwrap_or_default().into();
        SharedCalls { client, random, functions: offered(), elements, agenda, made: 0, names: 0 }
    }

    pub(crate) fn next_at(&self) -> Option<Time> {
        self.agenda.front().map(|(at, _)| *at)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.agenda.is_empty()
    }

    /// Delays the first action by `late_ns`.
    pub(crate) fn delay(&mut self, late_ns: u64) {
        self.agenda.iter_mut().for_each(|(at, _)| *at = *at + late_ns);
    }

    /// Returns an action that is due, if any.
    pub(crate) fn act(&mut self, now: Time, ledger: &mut Ledger) -> Option<DueAction> {
        if self.next_at().is_none_or(|at| at > now) {
            return None;
        }
        let (_, act) = self.agenda.pop_front().expect("there is a first");
        let (function, number) = match act {
            SharedCallAction::Put => (self.one_that_puts(), self.new_name()),
            SharedCallAction::Replace => ("replaces", self.below(COMMON)),
            SharedCallAction::Get => ("gets", self.some_name()),
            SharedCallAction::Pass => ("passes", self.name_to_pass_on()),
            SharedCallAction::Group => return Some(DueAction::Run(Box::new(self.group(now, ledger)))),
            SharedCallAction::GiveUp(group) => return Some(DueAction::GiveUp(group)),
        };
        let task = self.task(ledger, function, number);
        let waits = matches!(act, SharedCallAction::Get | SharedCallAction::Pass);
        let limit_ns = waits.then(|| self.below(WAITS_NS));
        Some(DueAction::Call(Box::new(PlainCall { task, sources: Vec::new(), results: Vec::new(), limit_ns })))
    }

    fn below(&mut self, range: Range<u64>) -> u64 {
        range.start + self.random.below(range.end - range.start)
    }

    fn one_that_puts(&mut self) -> &'static str {
        if self.random.below(3) == 0 { "keeps" } else { "puts" }
    }

    /// Returns a name that nothing has put.
    fn new_name(&mut self) -> u64 {
        self.names += 1;
        OWN * self.client.0 + self.names
    }

    /// Returns a name that was put, or may be put later.
    fn some_name(&mut self) -> u64 {
        let own = OWN * self.client.0 + 1 + self.random.below(self.names + 1);
        if self.random.below(3) == 0 { self.below(COMMON) } else { own }
    }

    /// Returns the number before a new name.
    fn name_to_pass_on(&mut self) -> u64 {
        self.new_name() - 1
    }

    fn group(&mut self, now: Time, ledger: &mut Ledger) -> Work {
        let (puts, first) = (self.one_that_puts(), self.new_name());
        let mut tasks = vec![self.task(ledger, puts, first)];
        for _ in 0..self.random.below(4) {
            let last = self.name_to_pass_on();
            tasks.push(self.task(ledger, "passes", last));
        }
        for _ in 0..self.random.below(4) {
            let number = self.below(first..OWN * self.client.0 + self.names + 1);
            tasks.push(self.task(ledger, "gets", number));
        }
        let id = GroupId { client: self.client, serial: self.serial() };
        self.agenda.push_back((now + WAITS_NS.end, SharedCallAction::GiveUp(id)));
        self.agenda.make_contiguous().sort();
        let group = Group { id, tasks, sources: Default::default(), wanted: Vec::new() };
        Work { group, sources: Vec::new(), results: Vec::new(), wanted: Default::default() }
    }

    fn serial(&mut self) -> u64 {
        self.made += 1;
        SERIALS_FROM + self.made
    }

    fn task(&mut self, ledger: &mut Ledger, function: &str, number: u64) -> Task {
        let id = TaskId { client: self.client, serial: self.serial() };
        let name = format!("part/{function}");
        let is_it = |definition: &&Definition| definition.signature.name == name;
        let signature = &self.functions.iter().find(is_it).expect("it is one of them").signature;
        let (meta, bytes) = (Meta::scalar(Dtype::Int32), |value: u64| (value as i32).to_ne_bytes().to_vec());
        let values = [number, self.elements];
        let actual =
            values.map(|value| gridloom_idl::ActualArgument { meta: meta.clone(), inline: Some(bytes(value)) });
        let bound = signature.bind(&actual, &[]).expect("the functions of the soak take two numbers");
        ledger.shared.declared.insert(id, bound.uses.clone());
        Task {
            id,
            kind: TaskKind::call(&name, signature.hash()),
            args: values.map(|value| Argument::Inline { meta: meta.clone(), bytes: bytes(value) }).to_vec(),
            outputs: Vec::new(),
            work_flops: Some(1e6 + self.random.below(200) as f64 * 1e6),
            options: CallOptions { uses: bound.uses.into(), ..CallOptions::default() },
        }
    }
}

//! Evaluates plans with contention: concurrent copies share network interfaces (NICs) and links, and copies stay where they
//! arrive.
//!
//! ```text
//! Choice: server of each task, order, sources ──Judge::run──▶ Outcome: when each task and copy starts and ends
//!                                                   │
//!                            rates of copies: max-min fair over NICs and links (sharing)
//! ```
//!
//! **Network.** Every place (a server or the client) has a NIC with a separate bandwidth for each direction. The bandwidth of a
//! NIC is that of its widest link in that direction. A link belongs to one ordered pair of places. After the link's latency, a
//! copy crosses three resources: the source's NIC, the link, and the destination's NIC. Concurrent copies share these
//! max-min fairly. A copy between servers that cannot talk goes through the client, which then has the datum too.
//!
//! **Copies.** A datum is copied to a place at most once, for one of three reasons: a task there reads it, a copy from there
//! is made, or the place is the client and the datum is wanted. The copy starts as soon as its source has the datum. In real
//! groups it waits for earlier copies between the same two places ([`sharing`]). Only a complete copy can be read. To a
//! stateless server ([`Problem::is_stateless`]) the client sends each input for each task as soon as it has it, and it receives
//! each output; the server keeps nothing.
//!
//! **Forwarding.** A server forwards a complete copy. In real groups it forwards a large one while it receives it: the next
//! copy starts when the first part is there, and ends no earlier than one part after the incoming copy has. Such a copy,
//! behind a slower one, first takes its full share of the resources that it crosses and then waits, as in the simulator.
//!
//! **Tasks.** A server starts its tasks in their order, each as soon as a slot is free and its inputs are there. If tasks
//! are known to disturb one another, each is slowed down by the tasks that run concurrently ([`concurrent_tasks`]).
//!
//! **Invariants:** a run is a pure function of problem and choice. No task starts before its inputs are there. A place
//! that has a datum is sent no copy of it.

mod choice;
pub(crate) mod concurrent_tasks;
mod copies;
mod list;
mod rings;
mod search;
mod sharing;
mod times;

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BinaryHeap};

use super::problem::Problem;
pub use choice::{Choice, ChoiceError, CopyRecord, Outcome};
use concurrent_tasks::ConcurrentTasks;
pub use list::ListScheduler;
pub use rings::in_rings;
pub use search::search;
use sharing::Sharing;
pub use times::{PlanTimes, can_evaluate};

/// Runs choices for one problem. Buffers are reused from run to run.
#[derive(Debug)]
pub struct ContentionEvaluator<'p> {
    problem: &'p Problem,
    places: usize,
    sharing: Sharing,
    /// State of each datum at each place, indexed by datum × place.
    presence: Vec<Presence>,
    /// Entries of `presence` in use.
    touched: Vec<u32>,
    /// The waiters of each presence, as lists linked through this one.
    waiters: Vec<(Waiter, u32)>,
    missing: Vec<u32>,
    queues: Vec<Vec<u32>>,
    heads: Vec<usize>,
    free_slots: Vec<u32>,
    /// Running tasks of each server; `None` if tasks take as long side by side as alone.
    concurrent: Vec<Option<ConcurrentTasks>>,
    /// Number of other programs' tasks on slots that the group does not need, for each server.
    foreign_tasks: Vec<u32>,
    servers: Vec<u32>,
    timed: BinaryHeap<Reverse<Timed>>,
    copies: Vec<CopyRecord>,
    /// The only task that each copy is for, on a server that keeps nothing.
    copied_for: Vec<u32>,
    /// Copies that are forwarded while their source still receives the datum, with the copy that it receives.
    forwarded: BTreeMap<u32, u32>,
    /// Those of `passed_on` that wait for the end of the incoming copy.
    waiting_for_source: Vec<u32>,
    is_plain: bool,
    now_s: f64,
    steps: u64,
    outcome: Outcome,
}

#[derive(Clone, Copy, Debug)]
struct Presence {
    state: State,
    /// Head of the list of waiters.
    waiters: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Nothing requested it.
    Unknown,
    /// It was requested and will arrive.
    Requested,
    /// It is being copied.
    InFlight,
    /// It is there.
    Present,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Waiter {
    Task(u32),
    /// A copy from here to that place.
    CopyTo(u32),
    /// A copy from here to that task's server, for that task alone.
    CopyFor(u32),
}

#[derive(Clone, Copy, PartialEq, Debug)]
struct Timed {
    at_s: f64,
    what: Event,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Event {
    TaskEnds(u32),
    /// End of the next task on a server where tasks disturb one another, valid in that turn.
    NextEnds(u32, u32),
    SlotFree(u32),
    /// End of another program's task, on a slot that the group does not need.
    OtherEnds(u32),
    CopyFlows(u32),
    /// End of a copy whose source was still receiving the datum.
    CopyEnds(u32),
}

const NOBODY: u32 = u32::MAX;
const ABSENT: Presence = Presence { state: State::Unknown, waiters: NOBODY };

impl<'p> ContentionEvaluator<'p> {
    pub fn new(problem: &'p Problem) -> ContentionEvaluator<'p> {
        let (servers, places) = (problem.servers().len(), problem.client() + 1);
        ContentionEvaluator {
            problem,
            places,
            sharing: Sharing::new(problem),
            presence: vec![ABSENT; problem.data().len() * places],
            touched: Vec::new(),
            waiters: Vec::new(),
            missing: vec![0; problem.task_count()],
            queues: vec![Vec::new(); servers],
            heads: vec![0; servers],
            free_slots: vec![0; servers],
            concurrent: (0..servers)
                .map(|server| problem.is_perturbed(server).then(ConcurrentTasks::default))
                .collect(),
            foreign_tasks: vec![0; servers],
            servers: Vec::new(),
            timed: BinaryHeap::new(),
            copies: Vec::new(),
            copied_for: Vec::new(),
            forwarded: BTreeMap::new(),
            waiting_for_source: Vec::new(),
            is_plain: false,
            now_s: 0.0,
            steps: 0,
            outcome: Outcome::default(),
        }
    }

    /// Work done so far, in steps of about equal duration. Budgets count these.
    pub fn steps(&self) -> u64 {
        self.steps + self.sharing.steps()
    }

    /// Runs a choice as plain GridRPC does: the client sends each input for each task as soon as it has it, and receives
    /// each output; servers keep nothing. Sources do not count.
    ///
    /// # Errors
    /// [`ChoiceError`] if a task or copy can never complete.
    pub fn run_plain(&mut self, choice: &Choice) -> Result<Option<&Outcome>, ChoiceError> {
        self.is_plain = true;
        let ran = self.run(choice, f64::INFINITY).map(|_| ());
        self.is_plain = false;
        ran.map(|()| Some(&self.outcome))
    }

    /// Runs a choice. Returns `None` if it ends after `limit_s`, for searches that know a better one.
    ///
    /// # Errors
    /// [`ChoiceError`] if a task or copy can never complete.
    pub fn run(&mut self, choice: &Choice, limit_s: f64) -> Result<Option<&Outcome>, ChoiceError> {
        self.reset(choice)?;
        self.request_inputs(choice);
        (0..self.queues.len()).for_each(|server| self.start_tasks(server));
        while let Some(at_s) = self.next_s() {
            if at_s > limit_s {
                if self.waits_for_slots_only() && self.check_complete().is_ok() {
                    break;
                }
                return Ok(None);
            }
            self.now_s = at_s;
            self.steps += 1;
            self.end_copies();
            self.end_timed();
        }
        self.check_complete()?;
        let tasks = self.outcome.end_s.iter().copied().fold(0.0, f64::max);
        self.outcome.makespan_s = self.copies.iter().map(|copy| copy.end_s).fold(tasks, f64::max);
        self.outcome.copies.clone_from(&self.copies);
        self.outcome.copies.sort_by(|a, b| a.end_s.total_cmp(&b.end_s).then(a.start_s.total_cmp(&b.start_s)));
        Ok(Some(&self.outcome))
    }

    fn reset(&mut self, choice: &Choice) -> Result<(), ChoiceError> {
        let problem = self.problem;
        self.touched.drain(..).for_each(|at| self.presence[at as usize] = ABSENT);
        self.waiters.clear();
        self.timed.clear();
        self.copies.clear();
        self.copied_for.clear();
        self.forwarded.clear();
        self.waiting_for_source.clear();
        self.sharing.clear();
        self.now_s = 0.0;
        self.queues.iter_mut().for_each(Vec::clear);
        self.heads.fill(0);
        self.concurrent.iter_mut().flatten().for_each(ConcurrentTasks::clear);
        self.servers.clone_from(&choice.servers);
        let Outcome { start_s, end_s, .. } = &mut self.outcome;
        start_s.clear();
        start_s.resize(problem.task_count(), f64::NAN);
        end_s.clear();
        end_s.resize(problem.task_count(), f64::NAN);
        for task in &choice.order {
            let server = choice.servers[*task as usize];
            if problem.seconds(*task as usize, server as usize).is_none() {
                return Err(ChoiceError::CannotRun { task: *task, server });
            }
            self.queues[server as usize].push(*task);
        }
        for (number, server) in problem.servers().iter().enumerate() {
            self.free_slots[number] = 0;
            for busy_s in &server.busy_s {
                if *busy_s > 0.0 {
                    self.timed.push(Reverse(Timed { at_s: *busy_s, what: Event::SlotFree(number as u32) }));
                } else {
                    self.free_slots[number] += 1;
                }
            }
            self.foreign_tasks[number] = 0;
            if self.concurrent[number].is_some() {
                let ends =
                    server.other_busy_s.iter().map(|at_s| Timed { at_s: *at_s, what: Event::OtherEnds(number as u32) });
                self.timed.extend(ends.map(Reverse));
                self.foreign_tasks[number] = server.other_busy_s.len() as u32;
            }
        }
        Ok(())
    }

    /// Registers every task as a waiter for its inputs, and serves the tasks whose inputs are there.
    fn request_inputs(&mut self, choice: &Choice) {
        let problem = self.problem;
        self.steps += (problem.data().len() + problem.task_count()) as u64 / 2;
        for datum in 0..problem.data().len() {
            for place in problem.holders(datum) {
                self.presence_mut(datum as u32, *place).state = State::Present;
            }
        }
        // In task order, as servers request the data that they read.
        for task in &choice.order {
            let server = choice.servers[*task as usize];
            self.missing[*task as usize] = problem.inputs(*task as usize).len() as u32;
            for datum in problem.inputs(*task as usize) {
                if self.is_plain || problem.is_stateless(server as usize) {
                    self.request(choice, *datum, problem.client() as u32, Waiter::CopyFor(*task));
                } else {
                    self.request(choice, *datum, server, Waiter::Task(*task));
                }
            }
        }
        for (datum, facts) in problem.data().iter().enumerate() {
            let goes_back = |maker: u32| self.is_plain || problem.is_stateless(choice.servers[maker as usize] as usize);
            if facts.wanted || facts.producer.is_some_and(goes_back) {
                self.arrange_arrival(choice, datum as u32, problem.client() as u32);
            }
        }
    }

    fn presence_mut(&mut self, datum: u32, place: u32) -> &mut Presence {
        let at = datum as usize * self.places + place as usize;
        let presence = &mut self.presence[at];
        if presence.state == State::Unknown {
            self.touched.push(at as u32);
        }
        presence
    }

    /// Has a task or copy at a place request a datum.
    fn request(&mut self, choice: &Choice, datum: u32, place: u32, waiter: Waiter) {
        self.arrange_arrival(choice, datum, place);
        let number = self.waiters.len() as u32;
        let presence = self.presence_mut(datum, place);
        if presence.state == State::Present {
            return self.serve(datum, place, waiter);
        }
        let next = std::mem::replace(&mut presence.waiters, number);
        self.waiters.push((waiter, next));
    }

    /// Arranges for a place to receive a datum.
    fn arrange_arrival(&mut self, choice: &Choice, datum: u32, place: u32) {
        let problem = self.problem;
        let presence = self.presence_mut(datum, place);
        if presence.state != State::Unknown {
            return;
        }
        presence.state = State::Requested;
        let maker = problem.data()[datum as usize].producer.map(|task| choice.servers[task as usize]);
        if maker == Some(place) {
            return;
        }
        let client = problem.client() as u32;
        let usual = || maker.unwrap_or_else(|| problem.holders(datum as usize)[0]);
        let source = choice.sources.get(&(datum, place)).copied().unwrap_or_else(usual);
        if problem.link_seconds(source as usize, place as usize, 0).is_finite() {
            return self.request(choice, datum, source, Waiter::CopyTo(place));
        }
        // Through the client, which receives it for the first copy forwarded this way, unless its own source is chosen.
        if choice.sources.contains_key(&(datum, client)) {
            self.arrange_arrival(choice, datum, client);
        } else if self.presence_mut(datum, client).state != State::Present {
            self.presence_mut(datum, client).state = State::Requested;
            self.request(choice, datum, source, Waiter::CopyTo(client));
        }
        self.request(choice, datum, client, Waiter::CopyTo(place));
    }

    fn fill_slots(&mut self, server: usize) {
        while self.free_slots[server] > 0 {
            let Some(task) = self.queues[server].get(self.heads[server]).copied() else { return };
            if self.missing[task as usize] > 0 {
                return;
            }
            self.heads[server] += 1;
            self.free_slots[server] -= 1;
            let seconds = self.problem.alone_seconds(task as usize, server).expect("checked before the run");
            self.outcome.start_s[task as usize] = self.now_s;
            self.outcome.end_s[task as usize] = self.now_s + seconds;
            match &mut self.concurrent[server] {
                Some(beside) => beside.start(self.now_s, task, seconds),
                None => self.timed.push(Reverse(Timed { at_s: self.now_s + seconds, what: Event::TaskEnds(task) })),
            }
        }
    }

    /// Starts all tasks that can start on a server, and schedules the next task end there.
    fn start_tasks(&mut self, server: usize) {
        self.fill_slots(server);
        let Some(beside) = &mut self.concurrent[server] else { return };
        let busy = self.problem.servers()[server].slots - self.free_slots[server] + self.foreign_tasks[server];
        let factor = |task: u32, tasks: u32| self.problem.perturbation(task as usize, server, tasks);
        if let Some((at_s, turn)) = beside.next(self.now_s, busy, factor) {
            self.timed.push(Reverse(Timed { at_s, what: Event::NextEnds(server as u32, turn) }));
        }
    }

    fn next_s(&mut self) -> Option<f64> {
        let copy_s = self.sharing.next_s();
        let timed_s = self.timed.peek().map(|Reverse(timed)| timed.at_s);
        match (copy_s, timed_s) {
            (Some(copy_s), Some(timed_s)) => Some(copy_s.min(timed_s)),
            (one, other) => one.or(other),
        }
    }

    /// True if only the work that occupied slots before the group is still running.
    fn waits_for_slots_only(&mut self) -> bool {
        let is_slot = |Reverse(timed): &Reverse<Timed>| match timed.what {
            Event::SlotFree(_) | Event::OtherEnds(_) => true,
            Event::NextEnds(server, turn) => !self.is_now(server, turn),
            Event::TaskEnds(_) | Event::CopyFlows(_) | Event::CopyEnds(_) => false,
        };
        self.timed.iter().all(is_slot) && self.sharing.next_s().is_none()
    }

    fn end_timed(&mut self) {
        while self.timed.peek().is_some_and(|Reverse(timed)| timed.at_s <= self.now_s) {
            let Reverse(Timed { what, .. }) = self.timed.pop().expect("one is there");
            match what {
                Event::SlotFree(server) => {
                    self.free_slots[server as usize] += 1;
                    self.start_tasks(server as usize);
                }
                Event::OtherEnds(server) => {
                    self.foreign_tasks[server as usize] -= 1;
                    self.start_tasks(server as usize);
                }
                Event::CopyFlows(number) => {
                    let CopyRecord { datum, from, to, .. } = self.copies[number as usize];
                    let size_bytes = self.problem.data()[datum as usize].size_bytes;
                    if size_bytes == 0 {
                        self.end_copy(number);
                    } else {
                        let first_bytes = self.first_bytes(datum, to);
                        self.sharing.start(number, (from as usize, to as usize), size_bytes as f64, first_bytes);
                    }
                }
                Event::CopyEnds(number) => self.end_copy(number),
                Event::TaskEnds(task) => self.end_task(task),
                Event::NextEnds(server, turn) if self.is_now(server, turn) => {
                    let beside = self.concurrent[server as usize].as_mut().expect("it has turns");
                    let task = beside.end_first();
                    self.outcome.end_s[task as usize] = self.now_s;
                    self.end_task(task);
                }
                Event::NextEnds(..) => {}
            }
        }
    }

    fn is_now(&self, server: u32, turn: u32) -> bool {
        self.concurrent[server as usize].as_ref().is_some_and(|beside| beside.generation() == turn)
    }

    fn end_task(&mut self, task: u32) {
        let problem = self.problem;
        let server = self.servers[task as usize] as usize;
        self.free_slots[server] += 1;
        for datum in problem.outputs(task as usize) {
            self.arrive(*datum, server as u32);
        }
        self.start_tasks(server);
    }

    fn check_complete(&self) -> Result<(), ChoiceError> {
        let waiting = self.touched.iter().find(|at| {
            let presence = self.presence[**at as usize];
            presence.state != State::Present && !self.is_made_here(**at as usize)
        });
        if let Some(at) = waiting {
            let (datum, place) = (*at as usize / self.places, *at as usize % self.places);
            return Err(ChoiceError::NeverArrives { datum: datum as u32, place: place as u32 });
        }
        match self.outcome.end_s.iter().position(|end_s| end_s.is_nan()) {
            Some(task) => Err(ChoiceError::NeverRun { task: task as u32 }),
            None => Ok(()),
        }
    }

    /// True if the datum is missing there because the task that makes it there did not run.
    fn is_made_here(&self, at: usize) -> bool {
        let (datum, place) = (at / self.places, at % self.places);
        let maker = self.problem.data()[datum].producer;
        maker.is_some_and(|task| {
            self.servers[task as usize] as usize == place && self.outcome.end_s[task as usize].is_nan()
        })
    }
}

impl Eq for Timed {}

impl PartialOrd for Timed {
    fn partial_cmp(&self, other: &Timed) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Timed {
    fn cmp(&self, other: &Timed) -> Ordering {
        self.at_s.total_cmp(&other.at_s).then(self.what.cmp(&other.what))
    }
}

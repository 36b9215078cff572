//! The schedule under construction: the only way to make a [`Plan`].
//!
//! **Transfers.** A datum can leave a place as soon as it is there. Transfers start when the datum is made or arrives, not
//! when the receiver is free. A transfer takes the direct link from the place from which the datum arrives first. It goes
//! through the client, store and forward, only if no holder has a link to the receiver, so that the client carries no
//! unnecessary bytes. A copy stays where it arrives. A second reader there pays nothing, and other places may be served from it.
//!
//! **Tasks.** A task starts when all its inputs are there and a slot is free for the task's whole duration.
//!
//! **Links** have no contention: each transfer has its link's whole bandwidth.
//!
//! **Invariants:** the tasks placed so far, with their transfers, satisfy the invariants of [`Plan`]. This holds for every
//! order of placing in which a task comes after those it depends on.
//!
//! Not modelled: sharing of links ([`super::contention`] evaluates that), and stores that fill up over a plan.
//!
//! A stateless server ([`Problem::is_stateless`]) has neither copies that stay nor links to servers. Every call there gets all its
//! inputs from the client and sends all its outputs back. A schedule of plain GridRPC ([`Schedule::plain`]) treats all servers
//! as stateless.

use super::bounds;
use super::plan::{Assignment, Plan, Transfer};
use super::problem::Problem;
use super::slots::Slots;

/// Number of copies of a datum above which its arrival at every place is stored instead of computed on each query.
/// Most data have one or two copies and one reader; a database that every task reads has one copy on each server.
const COPIES_WITHOUT_ROW: usize = 3;
const NO_ROW: u32 = u32::MAX;

/// A plan under construction.
#[derive(Clone, Debug)]
pub struct Schedule<'p> {
    problem: &'p Problem,
    plain: bool,
    insertion: bool,
    slots: Vec<Slots>,
    /// The places that hold each datum, with the time since which each holds it.
    copies: Vec<Vec<(u32, f64)>>,
    /// Row of each datum in `rows`, or `NO_ROW`.
    row_of: Vec<u32>,
    /// Rows of arrival times by place over direct links; at a place with a copy, the time of the copy.
    rows: Vec<f64>,
    tasks: Vec<Option<Placed>>,
    transfers: Vec<TransferRecord>,
    scratch: Scratch,
}

/// Server and times of a placed task.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Placed {
    /// Place of its server.
    pub server: usize,
    pub start_s: f64,
    pub end_s: f64,
}

#[derive(Clone, Copy, Debug)]
struct TransferRecord {
    datum: u32,
    from: u32,
    to: u32,
    start_s: f64,
    end_s: f64,
}

/// The best and second best server of a task.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct TwoBest {
    /// Place of the best server.
    pub(super) server: usize,
    /// Completion there: the task's end, or the arrival at the client of results that only the client awaits.
    pub(super) score_s: f64,
    /// Completion on the best of the other servers; infinite if there is none.
    pub(super) second_s: f64,
}

/// The offer of a server to a task, independent of the server's other tasks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Offer {
    /// Arrival of the inputs.
    ready_s: f64,
    /// Run time.
    seconds: f64,
    /// Transfer time of its results to the client, if only the client awaits them.
    to_client_s: f64,
}

/// Scratch buffers for the candidates of one task, so that queries do not allocate.
#[derive(Clone, Debug)]
struct Scratch {
    arrival_s: Vec<f64>,
    ready_s: Vec<f64>,
    seconds: Vec<f64>,
    score_s: Vec<f64>,
}

impl<'p> Schedule<'p> {
    pub fn new(problem: &'p Problem) -> Schedule<'p> {
        let servers = problem.servers().len();
        let data = problem.data().len();
        let held = |datum| problem.holders(datum).iter().map(|place| (*place, 0.0)).collect();
        Schedule {
            problem,
            plain: false,
            insertion: true,
            slots: problem.servers().iter().map(|server| Slots::new(&server.busy_s)).collect(),
            copies: (0..data).map(held).collect(),
            row_of: vec![NO_ROW; data],
            rows: Vec::new(),
            tasks: vec![None; problem.task_count()],
            transfers: Vec::with_capacity(problem.task_count()),
            scratch: Scratch {
                arrival_s: vec![0.0; servers + 1],
                ready_s: vec![0.0; servers + 1],
                seconds: vec![0.0; servers],
                score_s: vec![0.0; servers],
            },
        }
    }

    /// Copies another schedule of the same problem, reusing this schedule's memory.
    pub(super) fn copy_from(&mut self, other: &Schedule<'p>) {
        (self.plain, self.insertion) = (other.plain, other.insertion);
        self.slots.clone_from(&other.slots);
        self.copies.clone_from(&other.copies);
        self.row_of.clone_from(&other.row_of);
        self.rows.clone_from(&other.rows);
        self.tasks.clone_from(&other.tasks);
        self.transfers.clone_from(&other.transfers);
    }

    /// Returns an empty schedule of plain GridRPC: all data go through the client for every call.
    pub fn plain(problem: &'p Problem) -> Schedule<'p> {
        Schedule { plain: true, ..Schedule::new(problem) }
    }

    /// Sets whether a task may use a gap between tasks already placed (the default) or only start after them.
    pub fn with_insertion(self, insertion: bool) -> Schedule<'p> {
        Schedule { insertion, ..self }
    }

    pub fn problem(&self) -> &'p Problem {
        self.problem
    }

    /// Server and times of a task, `None` if it has not been placed.
    pub fn placed(&self, task: usize) -> Option<Placed> {
        self.tasks[task]
    }

    /// Returns start and end of a task if it were placed on that server now, `None` if it cannot run there.
    ///
    /// # Panics
    /// If a task that it depends on has not been placed.
    pub fn earliest(&mut self, task: usize, server: usize) -> Option<(f64, f64)> {
        let seconds = self.problem.seconds(task, server)?;
        self.ready(task);
        let start_s = self.slots[server].fit(self.scratch.ready_s[server], seconds, self.insertion);
        Some((start_s, start_s + seconds))
    }

    /// Returns the time at which a datum that a task reads could be at a server, if the task were placed there now.
    ///
    /// # Panics
    /// If it is nowhere: the task that makes it has not been placed.
    pub fn arrival_s(&mut self, datum: u32, server: usize) -> f64 {
        match self.held(datum as usize, server) {
            Some(since_s) => since_s,
            None => {
                self.ready_of(&[datum]);
                self.scratch.ready_s[server]
            }
        }
    }

    /// Returns the server on which a task ends earliest, the first of several. The transfer to the client counts too,
    /// for results that only the client awaits. With `slack`, servers that are later by no more than `slack` times the
    /// task's shortest duration count as equal. Among those, the server with the fewest bytes to move is chosen, then
    /// the earliest, then the first.
    ///
    /// # Panics
    /// If a task that it depends on has not been placed.
    pub fn best(&mut self, task: usize, slack: f64) -> usize {
        self.ready(task);
        let (problem, client) = (self.problem, self.problem.client());
        let Scratch { ready_s, seconds, score_s, .. } = &mut self.scratch;
        problem.seconds_by_server(task, seconds);
        let back = ClientResults::of(problem, task);
        let tolerance_s = slack * seconds.iter().copied().fold(f64::INFINITY, f64::min);
        let (mut best, mut best_s) = (client, f64::INFINITY);
        for server in 0..client {
            score_s[server] = f64::INFINITY;
            let floor_s = ready_s[server] + seconds[server];
            // Most servers are ruled out here, before their timelines are searched.
            if floor_s == f64::INFINITY || floor_s > best_s + tolerance_s {
                continue;
            }
            let start_s = self.slots[server].fit(ready_s[server], seconds[server], self.insertion);
            let back_s = back.seconds(problem, server, self.plain);
            score_s[server] = start_s + seconds[server] + back_s;
            if score_s[server] < best_s {
                (best, best_s) = (server, score_s[server]);
            }
        }
        assert!(best < client, "some server can run each task of a problem");
        if slack == 0.0 {
            return best;
        }
        let good = (0..client).filter(|server| self.scratch.score_s[*server] <= best_s + tolerance_s);
        good.map(|server| (self.moved_bytes(task, server), self.scratch.score_s[server], server))
            .min_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)).then(a.2.cmp(&b.2)))
            .expect("some server can run each task of a problem")
            .2
    }

    /// Returns the server with the least sum of a task's end there and `after_s` of the server, the first of several.
    ///
    /// # Panics
    /// If a task that it depends on has not been placed.
    pub(super) fn best_with(&mut self, task: usize, after_s: &[f64]) -> usize {
        self.ready(task);
        let Scratch { ready_s, seconds, .. } = &mut self.scratch;
        self.problem.seconds_by_server(task, seconds);
        let mut best = (f64::INFINITY, 0);
        for server in (0..self.problem.client()).filter(|server| seconds[*server].is_finite()) {
            if ready_s[server] + seconds[server] + after_s[server] >= best.0 {
                continue;
            }
            let start_s = self.slots[server].fit(ready_s[server], seconds[server], self.insertion);
            let sum_s = start_s + seconds[server] + after_s[server];
            if sum_s < best.0 {
                best = (sum_s, server);
            }
        }
        assert!(best.0 < f64::INFINITY, "some server can run each task of a problem");
        best.1
    }

    /// Returns, for each server, the arrival of the task's inputs, counting only those that some place already has.
    pub(super) fn ready_so_far(&mut self, task: usize) -> &[f64] {
        let problem = self.problem;
        let known = problem.inputs(task).iter().filter(|datum| !self.copies[**datum as usize].is_empty());
        let known: Vec<u32> = known.copied().collect();
        self.ready_of(&known);
        &self.scratch.ready_s[..problem.client()]
    }

    /// Returns the earliest start on a server of a task that is ready at `ready_s` and takes `seconds`.
    pub(super) fn fit(&self, server: usize, ready_s: f64, seconds: f64) -> f64 {
        self.slots[server].fit(ready_s, seconds, self.insertion)
    }

    /// Returns the offer of each server to a task; infinite seconds on those that cannot run it.
    ///
    /// # Panics
    /// If a task that it depends on has not been placed.
    pub(super) fn offers(&mut self, task: usize) -> Vec<Offer> {
        self.ready(task);
        let (problem, client) = (self.problem, self.problem.client());
        let Scratch { ready_s, seconds, .. } = &mut self.scratch;
        problem.seconds_by_server(task, seconds);
        let (back, plain) = (ClientResults::of(problem, task), self.plain);
        let offer = |server: usize| Offer {
            ready_s: ready_s[server],
            seconds: seconds[server],
            to_client_s: back.seconds(problem, server, plain),
        };
        (0..client).map(offer).collect()
    }

    /// Returns the completion of a task with that offer of a server, if it were placed there now, after all others.
    pub(super) fn score_of_offer(&self, server: usize, offer: &Offer) -> f64 {
        self.slots[server].fit(offer.ready_s, offer.seconds, false) + offer.seconds + offer.to_client_s
    }

    /// Returns the best of a task's offers now, the first of several, and the second best.
    pub(super) fn best_offer(&self, offers: &[Offer]) -> TwoBest {
        let mut best = TwoBest { server: offers.len(), score_s: f64::INFINITY, second_s: f64::INFINITY };
        for (server, offer) in offers.iter().enumerate() {
            let score_s = self.score_of_offer(server, offer);
            if score_s < best.score_s {
                best = TwoBest { server, score_s, second_s: best.score_s };
            } else {
                best.second_s = best.second_s.min(score_s);
            }
        }
        assert!(best.server < offers.len(), "some server can run each task of a problem");
        best
    }

    /// True if a place holds a datum, or will hold it after the tasks placed so far.
    pub(super) fn is_at(&self, datum: u32, place: usize) -> bool {
        self.held(datum as usize, place).is_some()
    }

    /// Places a task on a server at its earliest start, with the transfers that bring its inputs there.
    ///
    /// # Panics
    /// If the server cannot run it, if it was placed before, or if a task that it depends on has not been placed.
    pub fn place(&mut self, task: usize, server: usize) {
        let problem = self.problem;
        assert!(self.tasks[task].is_none(), "a task is placed once");
        let seconds = problem.seconds(task, server).expect("a task is placed on a server that can run it");
        let mut ready_s = 0.0f64;
        for input in problem.inputs(task) {
            ready_s = ready_s.max(self.ensure_copy(*input, server));
        }
        let start_s = self.slots[server].fit(ready_s, seconds, self.insertion);
        let end_s = start_s + seconds;
        self.slots[server].take(start_s, end_s);
        self.tasks[task] = Some(Placed { server, start_s, end_s });
        for output in problem.outputs(task) {
            self.add_copy(*output, server, end_s);
            if self.is_stateless(server) {
                self.ensure_copy(*output, problem.client());
            }
        }
    }

    /// Adds the transfers of wanted data to the client and returns the plan.
    ///
    /// # Panics
    /// If a task has not been placed.
    pub fn finish(mut self) -> Plan {
        let problem = self.problem;
        self.transfer_wanted_to_client();
        let placed = self.tasks.iter().map(|placed| placed.expect("every task was placed"));
        let tasks: Vec<Assignment> = placed
            .map(|Placed { server, start_s, end_s }| Assignment { server: problem.node(server), start_s, end_s })
            .collect();
        // The sort is stable: hops of a chain that take no time stay in order.
        self.transfers.sort_by(|a, b| a.start_s.total_cmp(&b.start_s).then(a.end_s.total_cmp(&b.end_s)));
        let transfer = |moved: &TransferRecord| Transfer {
            datum: moved.datum,
            from: problem.node(moved.from as usize),
            to: problem.node(moved.to as usize),
            size_bytes: problem.data()[moved.datum as usize].size_bytes,
            start_s: moved.start_s,
            end_s: moved.end_s,
            method: problem.data()[moved.datum as usize].method,
        };
        let transfers: Vec<Transfer> = self.transfers.iter().map(transfer).collect();
        let ends = tasks.iter().map(|task| task.end_s).chain(transfers.iter().map(|transfer| transfer.end_s));
        let makespan_s = ends.fold(0.0, f64::max);
        let lower_bound_s = bounds::lower_bound(problem);
        Plan { heuristic: String::new(), tasks, transfers, makespan_s, lower_bound_s, guesses: Vec::new() }
    }

    /// Returns the makespan that [`Schedule::finish`] would compute, and the bytes that all transfers move.
    pub(super) fn outcome(mut self) -> (f64, u64) {
        self.transfer_wanted_to_client();
        let ends = self.tasks.iter().flatten().map(|task| task.end_s);
        let end_s = ends.chain(self.transfers.iter().map(|moved| moved.end_s)).fold(0.0, f64::max);
        let sizes = self.transfers.iter().map(|moved| self.problem.data()[moved.datum as usize].size_bytes);
        (end_s, sizes.fold(0, u64::saturating_add))
    }

    /// Adds the transfers of wanted data to the client.
    fn transfer_wanted_to_client(&mut self) {
        let problem = self.problem;
        for (datum, facts) in problem.data().iter().enumerate() {
            if facts.wanted {
                self.ensure_copy(datum as u32, problem.client());
            }
        }
    }

    /// Computes, for every server, when all inputs of a task could be there.
    fn ready(&mut self, task: usize) {
        self.ready_of(self.problem.inputs(task));
    }

    fn ready_of(&mut self, data: &[u32]) {
        self.scratch.ready_s.fill(0.0);
        let client = self.problem.client();
        for input in data {
            let datum = *input as usize;
            let size_bytes = self.problem.data()[datum].size_bytes;
            let Scratch { arrival_s, ready_s, .. } = &mut self.scratch;
            match self.row_of[datum] {
                NO_ROW => direct_arrivals(self.problem, size_bytes, &self.copies[datum], arrival_s),
                row => arrival_s.copy_from_slice(&self.rows[row as usize * (client + 1)..][..client + 1]),
            }
            if self.plain || !self.problem.is_complete() {
                let at_client_s = arrival_s[client];
                let links = self.problem.links_from(client).iter();
                for (place, (arrival_s, link)) in arrival_s.iter_mut().zip(links).enumerate() {
                    if self.plain || self.problem.is_stateless(place) || *arrival_s == f64::INFINITY {
                        *arrival_s = at_client_s + link.seconds(size_bytes);
                    }
                }
            }
            for (ready_s, arrival_s) in ready_s.iter_mut().zip(arrival_s) {
                *ready_s = ready_s.max(*arrival_s);
            }
        }
    }

    /// Bytes that have to move so that a task can run on a server.
    fn moved_bytes(&self, task: usize, server: usize) -> u64 {
        let missing = self.problem.inputs(task).iter().filter(|input| self.held(**input as usize, server).is_none());
        missing.map(|input| self.problem.data()[*input as usize].size_bytes).fold(0, u64::saturating_add)
    }

    /// Time since which a place holds a datum, if it may use the datum there.
    fn held(&self, datum: usize, place: usize) -> Option<f64> {
        if self.is_stateless(place) {
            return None;
        }
        self.copies[datum].iter().find(|(holder, _)| *holder as usize == place).map(|(_, since_s)| *since_s)
    }

    /// Ensures that a place has a datum; returns the time from which it does.
    fn ensure_copy(&mut self, datum: u32, to: usize) -> f64 {
        let problem = self.problem;
        if let Some(since_s) = self.held(datum as usize, to) {
            return since_s;
        }
        let client = problem.client();
        let size_bytes = problem.data()[datum as usize].size_bytes;
        assert!(!self.copies[datum as usize].is_empty(), "a task is placed after those it depends on");
        let arrival = |(from, since_s): &(u32, f64)| {
            (*since_s + problem.link_seconds(*from as usize, to, size_bytes), *from, *since_s)
        };
        let sources = self.copies[datum as usize].iter().take(problem.sources_max(datum as usize));
        let direct = sources.map(arrival).filter(|arrival| arrival.0 < f64::INFINITY);
        let nearest = direct.min_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let (end_s, from, start_s) = match nearest {
            Some(nearest) if !self.plain || to == client => nearest,
            Some(_) | None => {
                let start_s = self.ensure_copy(datum, client);
                (start_s + problem.link_seconds(client, to, size_bytes), client as u32, start_s)
            }
        };
        self.transfers.push(TransferRecord { datum, from, to: to as u32, start_s, end_s });
        if !self.is_stateless(to) {
            self.add_copy(datum, to, end_s);
        }
        end_s
    }

    /// True if the place is a server that keeps no copies.
    fn is_stateless(&self, place: usize) -> bool {
        place != self.problem.client() && (self.plain || self.problem.is_stateless(place))
    }

    fn add_copy(&mut self, datum: u32, place: usize, since_s: f64) {
        let datum = datum as usize;
        let facts = &self.problem.data()[datum];
        let copies = &mut self.copies[datum];
        copies.push((place as u32, since_s));
        if copies.len() <= COPIES_WITHOUT_ROW || self.plain {
            return;
        }
        let places = self.problem.client() + 1;
        if self.row_of[datum] == NO_ROW {
            self.row_of[datum] = (self.rows.len() / places) as u32;
            let first = self.rows.len();
            self.rows.resize(first + places, 0.0);
            return direct_arrivals(self.problem, facts.size_bytes, copies, &mut self.rows[first..]);
        }
        let row = &mut self.rows[self.row_of[datum] as usize * places..][..places];
        for (arrival_s, link) in row.iter_mut().zip(self.problem.links_from(place)) {
            *arrival_s = arrival_s.min(since_s + link.seconds(facts.size_bytes));
        }
        copies.iter().for_each(|(place, since_s)| row[*place as usize] = *since_s);
    }
}

/// Computes the arrival of a datum at each place directly from its copies; infinite if no holder has a link there.
fn direct_arrivals(problem: &Problem, size_bytes: u64, copies: &[(u32, f64)], arrival_s: &mut [f64]) {
    assert!(!copies.is_empty(), "a task is asked for after those it depends on were placed");
    arrival_s.fill(f64::INFINITY);
    for (place, since_s) in copies {
        for (arrival_s, link) in arrival_s.iter_mut().zip(problem.links_from(*place as usize)) {
            *arrival_s = arrival_s.min(since_s + link.seconds(size_bytes));
        }
    }
    copies.iter().for_each(|(place, since_s)| arrival_s[*place as usize] = *since_s);
}

/// Sizes of the largest result that the client awaits before a task counts as done: the largest of all results on a server that
/// keeps nothing, else the largest wanted one that no task reads.
#[derive(Clone, Copy)]
struct ClientResults {
    all_bytes: Option<u64>,
    wanted_bytes: Option<u64>,
}

impl ClientResults {
    fn of(problem: &Problem, task: usize) -> ClientResults {
        let outputs = || problem.outputs(task).iter().map(|output| &problem.data()[*output as usize]);
        let wanted = outputs().filter(|datum| datum.wanted && datum.readers == 0);
        ClientResults {
            all_bytes: outputs().map(|datum| datum.size_bytes).max(),
            wanted_bytes: wanted.map(|datum| datum.size_bytes).max(),
        }
    }

    /// Seconds from a server to the client; `plain` means that no server keeps anything.
    fn seconds(self, problem: &Problem, server: usize, plain: bool) -> f64 {
        let bytes = if plain || problem.is_stateless(server) { self.all_bytes } else { self.wanted_bytes };
        bytes.map_or(0.0, |bytes| problem.link_seconds(server, problem.client(), bytes))
    }
}

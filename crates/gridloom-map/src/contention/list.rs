//! List scheduling with an estimate of contention: places tasks one by one, each where the estimate has it end earliest.
//!
//! The estimate treats a NIC, a link, or a bottleneck that several links share as a queue that serves one copy after another
//! at full rate. A copy ends when the slowest of the resources that it crosses has served it. Real copies share bandwidth, as
//! [`super::ContentionEvaluator`] models. The estimate still shows the effects that decide the choice of a server or source: a busy NIC, a
//! datum that is already elsewhere, a narrow link, a server that forwards data while it is still receiving them.

use std::collections::BTreeMap;

use super::Choice;
use crate::problem::Problem;
use gridloom_base::limits::EAGER_BYTES_MAX;

/// Makes choices for one problem. Buffers are reused.
#[derive(Debug)]
pub struct ListScheduler<'p> {
    problem: &'p Problem,
    places: usize,
    /// Time since which a place has a datum, indexed by datum × place; infinite if it does not have it.
    held_since_s: Vec<f64>,
    /// The places that have each datum, with the time since which each can forward it.
    holders: Vec<Vec<(u32, f64)>>,
    cards: BusyTimes,
    /// Bandwidth of each place, bytes per second: outgoing for all places, then incoming.
    widths: Vec<f64>,
    /// Bottlenecks that a link crosses. Links without any have no entry.
    crossed: BTreeMap<usize, Vec<usize>>,
    slots: Vec<Vec<f64>>,
    /// True for each datum that the client sends to only one place, which forwards it.
    is_sent_once: Vec<bool>,
    steps: u64,
}

/// Times until which NICs and links are busy.
#[derive(Clone, Debug)]
struct BusyTimes {
    /// Outgoing NIC of each place, then incoming NIC of each place.
    nics_s: Vec<f64>,
    links_s: Vec<f64>,
    /// Links with an entry other than 0. They are few: a thousand places have a million links.
    used_links: Vec<usize>,
    /// Bottlenecks that several links share.
    bottlenecks_s: Vec<f64>,
}

/// The arrival of a datum at a place.
#[derive(Clone, Copy, Debug)]
struct Arrival {
    end_s: f64,
    from: u32,
    /// True if it passes through the client, which receives it from `from`.
    is_relayed: bool,
}

impl<'p> ListScheduler<'p> {
    pub fn new(problem: &'p Problem) -> ListScheduler<'p> {
        let places = problem.client() + 1;
        let mut widths = vec![0.0f64; 2 * places];
        for from in 0..places {
            for (to, link) in problem.links_from(from).iter().enumerate() {
                if from != to && link.latency_s.is_finite() {
                    widths[from] = widths[from].max(link.bandwidth);
                    widths[places + to] = widths[places + to].max(link.bandwidth);
                }
            }
        }
        let mut crossed: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (number, one) in problem.bottlenecks().iter().enumerate() {
            one.pairs.iter().for_each(|(from, to)| crossed.entry(from * places + to).or_default().push(number));
        }
        ListScheduler {
            problem,
            places,
            held_since_s: vec![f64::INFINITY; problem.data().len() * places],
            holders: vec![Vec::new(); problem.data().len()],
            cards: BusyTimes {
                nics_s: vec![0.0; 2 * places],
                links_s: vec![0.0; places * places],
                used_links: Vec::new(),
                bottlenecks_s: vec![0.0; problem.bottlenecks().len()],
            },
            widths,
            crossed,
            slots: problem.servers().iter().map(|server| server.busy_s.clone()).collect(),
            is_sent_once: vec![false; problem.data().len()],
            steps: 0,
        }
    }

    /// Sets the data that the client sends to only one place, which forwards them to the places that it can talk to.
    pub fn set_sent_once(&mut self, is_sent_once: &[bool]) {
        self.is_sent_once.copy_from_slice(is_sent_once);
    }

    /// Work done so far, in steps of about equal duration.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Places tasks in that order, each on the best of the servers that `allowed` permits.
    ///
    /// # Panics
    /// If the order has a task before one that it depends on, or a task has no server.
    pub fn choose(&mut self, order: &[u32], allowed: impl Fn(u32, u32) -> bool) -> Choice {
        self.reset();
        let problem = self.problem;
        let mut choice = Choice { servers: vec![0; order.len()], order: order.to_vec(), sources: BTreeMap::new() };
        for task in order {
            let able = (0..problem.client() as u32).filter(|server| allowed(*task, *server));
            let mut best: Option<(f64, u32)> = None;
            for server in able {
                let Some(score_s) = self.score(*task, server) else { continue };
                if best.is_none_or(|(best_s, _)| score_s < best_s) {
                    best = Some((score_s, server));
                }
            }
            let (_, server) = best.expect("some server is allowed and able");
            choice.servers[*task as usize] = server;
            self.place(*task, server, &mut choice.sources);
        }
        choice
    }

    /// Chooses the sources for tasks in that order on those servers.
    ///
    /// # Panics
    /// If the order has a task before one that it depends on, or a server cannot run its task.
    pub fn complete(&mut self, order: &[u32], servers: &[u32]) -> Choice {
        self.reset();
        let mut choice = Choice { servers: servers.to_vec(), order: order.to_vec(), sources: BTreeMap::new() };
        for task in order {
            self.place(*task, servers[*task as usize], &mut choice.sources);
        }
        choice
    }

    fn reset(&mut self) {
        let problem = self.problem;
        for datum in 0..self.holders.len() {
            for (place, _) in self.holders[datum].drain(..) {
                self.held_since_s[datum * self.places + place as usize] = f64::INFINITY;
            }
            for place in problem.holders(datum) {
                self.held_since_s[datum * self.places + *place as usize] = 0.0;
                self.holders[datum].push((*place, problem.write_s(datum, *place as usize)));
            }
        }
        self.cards.nics_s.fill(0.0);
        self.cards.bottlenecks_s.fill(0.0);
        for link in self.cards.used_links.drain(..) {
            self.cards.links_s[link] = 0.0;
        }
        for (slots, server) in self.slots.iter_mut().zip(problem.servers()) {
            slots.clone_from(&server.busy_s);
        }
    }

    /// Returns the end of a task on a server, including the transfer of results that only the client awaits.
    fn score(&mut self, task: u32, server: u32) -> Option<f64> {
        let problem = self.problem;
        let seconds = problem.seconds(task as usize, server as usize)?;
        let mut ready_s = 0.0f64;
        // Inputs share the server's NIC: each input sees the load that the ones before it add.
        let card = self.places + server as usize;
        let before_s = self.cards.nics_s[card];
        for datum in problem.inputs(task as usize) {
            let way = self.route(*datum, server);
            ready_s = ready_s.max(way.end_s);
            if way.from != server {
                let bytes = problem.data()[*datum as usize].size_bytes as f64;
                self.cards.nics_s[card] = self.cards.nics_s[card].max(0.0) + bytes / self.widths[card];
            }
        }
        ready_s = ready_s.max(if self.cards.nics_s[card] > before_s { self.cards.nics_s[card] } else { 0.0 });
        self.cards.nics_s[card] = before_s;
        let slot_s = self.slots[server as usize].iter().copied().fold(f64::INFINITY, f64::min);
        let end_s = slot_s.max(ready_s) + seconds;
        let client = problem.client();
        let is_plain = problem.is_stateless(server as usize);
        let outputs = problem.outputs(task as usize).iter();
        let home = outputs.filter(|datum| is_plain || problem.data()[**datum as usize].wanted);
        let bytes: u64 = home.map(|datum| problem.data()[*datum as usize].size_bytes).sum();
        let home_s = if bytes > 0 { problem.link_seconds(server as usize, client, bytes) } else { 0.0 };
        Some(end_s + home_s)
    }

    fn place(&mut self, task: u32, server: u32, sources: &mut BTreeMap<(u32, u32), u32>) {
        let problem = self.problem;
        let seconds = problem.seconds(task as usize, server as usize).expect("it can run there");
        let mut ready_s = 0.0f64;
        for datum in problem.inputs(task as usize) {
            ready_s = ready_s.max(self.transfer_to(*datum, server, sources));
        }
        let slots = &mut self.slots[server as usize];
        let slot = (0..slots.len()).min_by(|a, b| slots[*a].total_cmp(&slots[*b])).expect("a server has slots");
        let end_s = slots[slot].max(ready_s) + seconds;
        slots[slot] = end_s;
        let is_plain = problem.is_stateless(server as usize);
        for datum in problem.outputs(task as usize) {
            self.add(*datum, server, (end_s, end_s + problem.write_s(*datum as usize, server as usize)));
            if is_plain || problem.data()[*datum as usize].wanted {
                self.transfer_to(*datum, problem.client() as u32, sources);
            }
            if is_plain {
                self.remove(*datum, server);
            }
        }
    }

    /// Records the times from which a datum is at a place and can be forwarded from there.
    fn add(&mut self, datum: u32, place: u32, (since_s, passed_s): (f64, f64)) {
        self.held_since_s[datum as usize * self.places + place as usize] = since_s;
        self.holders[datum as usize].push((place, passed_s));
    }

    /// Removes a datum from a place that does not keep it.
    fn remove(&mut self, datum: u32, place: u32) {
        self.held_since_s[datum as usize * self.places + place as usize] = f64::INFINITY;
        self.holders[datum as usize].retain(|(holder, _)| *holder != place);
    }

    /// Has a datum brought to a place; returns the time from which it is there.
    fn transfer_to(&mut self, datum: u32, to: u32, sources: &mut BTreeMap<(u32, u32), u32>) -> f64 {
        let there_s = self.held_since_s[datum as usize * self.places + to as usize];
        if there_s < f64::INFINITY {
            return there_s;
        }
        let way = self.route(datum, to);
        let client = self.problem.client() as u32;
        let from = if way.is_relayed {
            self.transfer_to(datum, client, sources);
            client
        } else {
            way.from
        };
        let bytes = self.problem.data()[datum as usize].size_bytes as f64;
        let since_s = self.held_since_s[datum as usize * self.places + from as usize];
        let passed = self.holders[datum as usize].iter().find(|(place, _)| *place == from);
        let start_s = passed.map_or(since_s, |(_, passed_s)| *passed_s);
        let end_s = self.end_of((since_s, start_s), datum, (from, to));
        let (out, into) = (from as usize, self.places + to as usize);
        let bandwidth = self.problem.links_from(from as usize)[to as usize].bandwidth;
        // Small data of real groups travel beside large ones: a result that goes to the client later keeps no NIC busy until then.
        if self.problem.has_exact_figures() || bytes > EAGER_BYTES_MAX as f64 {
            for card in [out, into] {
                self.cards.nics_s[card] = self.cards.nics_s[card].max(start_s) + bytes / self.widths[card];
            }
            let link = from as usize * self.places + to as usize;
            self.cards.used_links.push(link);
            self.cards.links_s[link] = self.cards.links_s[link].max(start_s) + bytes / bandwidth;
            for one in self.crossed.get(&link).into_iter().flatten() {
                let busy_s = &mut self.cards.bottlenecks_s[*one];
                *busy_s = busy_s.max(start_s) + bytes / self.problem.bottlenecks()[*one].bandwidth;
            }
        }
        if self.problem.is_stateless(to as usize) {
            return end_s;
        }
        sources.insert((datum, to), from);
        // The copy runs at full rate up to its end, so its first part may have arrived earlier.
        let part_bytes = self.problem.part_bytes(datum as usize) as f64;
        let behind_s = (bytes - part_bytes) / bandwidth;
        let passes_on = self.problem.forwards_while_receiving(datum as usize, to as usize);
        self.add(datum, to, (end_s, if passes_on { end_s - behind_s } else { end_s }));
        end_s
    }

    /// Returns the route by which a datum would be at a place first.
    fn route(&mut self, datum: u32, to: u32) -> Arrival {
        let row = datum as usize * self.places;
        let there_s = self.held_since_s[row + to as usize];
        if there_s < f64::INFINITY {
            return Arrival { end_s: there_s, from: to, is_relayed: false };
        }
        let client = self.problem.client() as u32;
        let mut best = Arrival { end_s: f64::INFINITY, from: to, is_relayed: false };
        self.steps += self.holders[datum as usize].len() as u64;
        let is_passed_on = self.is_sent_once[datum as usize] && self.holders[datum as usize].len() > 1;
        // Recorded plans do not name the sender of data that go to the client: it is the maker, the first place to have them.
        let is_makers = to == client && self.problem.has_exact_figures();
        let sources = if is_makers { 1 } else { self.problem.sources_max(datum as usize) };
        for (from, start_s) in self.holders[datum as usize].iter().take(sources) {
            if is_passed_on && *from == client {
                continue;
            }
            let since_s = self.held_since_s[row + *from as usize];
            let end_s = self.end_of((since_s, *start_s), datum, (*from, to));
            if end_s < best.end_s {
                best = Arrival { end_s, from: *from, is_relayed: false };
            }
        }
        if best.end_s == f64::INFINITY {
            let up = self.route(datum, client);
            let end_s = self.end_of((up.end_s, up.end_s), datum, (client, to));
            best = Arrival { end_s, from: up.from, is_relayed: true };
        }
        best
    }

    /// Returns the end of a copy whose source has the datum from the first of these times and can forward it from the second.
    fn end_of(&self, (since_s, passed_s): (f64, f64), datum: u32, (from, to): (u32, u32)) -> f64 {
        let bytes = self.problem.data()[datum as usize].size_bytes as f64;
        let link = self.problem.links_from(from as usize)[to as usize];
        let start_s = passed_s + link.latency_s;
        if start_s == f64::INFINITY {
            return f64::INFINITY;
        }
        let (out, into) = (from as usize, self.places + to as usize);
        let busy_s = self.cards.links_s[from as usize * self.places + to as usize];
        let mut end_s = busy_s.max(start_s) + bytes / link.bandwidth;
        if passed_s < since_s {
            end_s =
                end_s.max(since_s + link.latency_s + self.problem.part_bytes(datum as usize) as f64 / link.bandwidth);
        }
        for card in [out, into] {
            end_s = end_s.max(self.cards.nics_s[card].max(start_s) + bytes / self.widths[card]);
        }
        for one in self.crossed.get(&(from as usize * self.places + to as usize)).into_iter().flatten() {
            let busy_s = self.cards.bottlenecks_s[*one].max(start_s);
            end_s = end_s.max(busy_s + bytes / self.problem.bottlenecks()[*one].bandwidth);
        }
        end_s
    }
}

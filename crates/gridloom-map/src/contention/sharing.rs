//! Rates of copies in flight: max-min fair over NICs, links and shared bottlenecks.
//!
//! Copies between the same two places get the same rate, so they are kept together as a **class**. It counts the bytes that
//! it has served of each of its copies; the copy that needs the fewest ends next. Rates are computed by progressive filling
//! (Bertsekas, Gallager, *Data Networks*, 6.5.2) over classes, not copies.
//!
//! A node sends each peer one large datum after another. So in the plans of real groups the copies of a class go **in turn**:
//! the class is one user of the resources that it crosses, and each copy ends when it and those before it are served. Small
//! data travel between the messages, beside them. In recorded workflows ([`Problem::has_exact_figures`]) all copies share.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use crate::problem::Problem;
use gridloom_base::limits::EAGER_BYTES_MAX;

/// A copy with fewer missing bytes than this has ended. The value is above the rounding error.
const BYTES_OVER: f64 = 1e-6;
/// The same tolerance relative to the bytes served and to the time passed.
pub(super) const PART_OVER: f64 = 1e-12;
const NO_CLASS: u32 = u32::MAX;
/// Maximum bandwidth, bytes per second; wider links are treated as this one, so that the bandwidth left on a NIC stays finite.
const BANDWIDTH_MAX: f64 = 1e18;

#[derive(Debug)]
pub(super) struct Sharing {
    places: usize,
    /// True if copies of a class are sent one after another.
    in_turn: bool,
    /// Bandwidth of the link of each ordered pair of places.
    links: Vec<f64>,
    /// Bandwidths of the shared resources: outgoing NIC of each place, then incoming NIC of each place, then bottlenecks.
    shared: Vec<f64>,
    /// Bottlenecks that an ordered pair crosses, as indices into `shared`.
    bottlenecks: BTreeMap<usize, Vec<u32>>,
    /// Class of each ordered pair, if any.
    class_of: Vec<u32>,
    classes: Vec<Class>,
    /// Classes with copies in flight.
    active: Vec<u32>,
    at_s: f64,
    is_stale: bool,
    ended: Vec<(u32, Milestone)>,
    steps: u64,
    /// Scratch buffers of progressive filling.
    left: Vec<f64>,
    users: Vec<f64>,
    open: Vec<u32>,
}

#[derive(Debug)]
struct Class {
    /// Resources that it crosses, as indices into `shared`.
    crosses: Vec<u32>,
    link: f64,
    rate: f64,
    served: f64,
    /// If in turn: bytes that have to be served until the last large copy ends.
    last: f64,
    /// Bytes that have to be served until a copy reaches the mark, with the copy and the mark.
    copies: BinaryHeap<Reverse<(u64, u32, Milestone)>>,
}

/// The progress of a copy.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Milestone {
    /// Its first part has arrived.
    FirstPart,
    /// Its last byte has arrived.
    Complete,
}

impl Sharing {
    pub(super) fn new(problem: &Problem) -> Sharing {
        let places = problem.client() + 1;
        let mut links = vec![0.0; places * places];
        let mut shared = vec![0.0f64; 2 * places];
        for from in 0..places {
            for (to, link) in problem.links_from(from).iter().enumerate() {
                if from != to && link.latency_s.is_finite() {
                    let bandwidth = link.bandwidth.min(BANDWIDTH_MAX);
                    links[from * places + to] = bandwidth;
                    shared[from] = shared[from].max(bandwidth);
                    shared[places + to] = shared[places + to].max(bandwidth);
                }
            }
        }
        let mut bottlenecks: BTreeMap<usize, Vec<u32>> = BTreeMap::new();
        for one in problem.bottlenecks() {
            for (from, to) in &one.pairs {
                bottlenecks.entry(from * places + to).or_default().push(shared.len() as u32);
            }
            shared.push(one.bandwidth);
        }
        Sharing {
            places,
            in_turn: !problem.has_exact_figures(),
            links,
            left: vec![0.0; shared.len()],
            users: vec![0.0; shared.len()],
            shared,
            bottlenecks,
            class_of: vec![NO_CLASS; places * places],
            classes: Vec::new(),
            active: Vec::new(),
            at_s: 0.0,
            is_stale: false,
            ended: Vec::new(),
            steps: 0,
            open: Vec::new(),
        }
    }

    pub(super) fn steps(&self) -> u64 {
        self.steps
    }

    /// Forgets all copies and resets the time.
    pub(super) fn clear(&mut self) {
        for class in &mut self.classes {
            class.copies.clear();
            class.served = 0.0;
            class.last = 0.0;
        }
        self.active.clear();
        self.ended.clear();
        self.at_s = 0.0;
        self.is_stale = false;
    }

    /// Starts a copy now. With `first_bytes`, the arrival of the first part is reported too.
    pub(super) fn start(&mut self, copy: u32, (from, to): (usize, usize), bytes: f64, first_bytes: Option<f64>) {
        let pair = from * self.places + to;
        if self.class_of[pair] == NO_CLASS {
            self.class_of[pair] = self.classes.len() as u32;
            let link = self.links[pair];
            let mut crosses = vec![from as u32, (self.places + to) as u32];
            crosses.extend(self.bottlenecks.get(&pair).into_iter().flatten());
            self.classes.push(Class { crosses, link, rate: 0.0, served: 0.0, last: 0.0, copies: BinaryHeap::new() });
        }
        let number = self.class_of[pair];
        let class = &mut self.classes[number as usize];
        if class.copies.is_empty() {
            class.served = 0.0;
            class.last = 0.0;
            self.active.push(number);
        }
        let is_behind = self.in_turn && bytes > EAGER_BYTES_MAX as f64;
        let end = if is_behind { class.served.max(class.last) + bytes } else { class.served + bytes };
        if is_behind {
            class.last = end;
        }
        // Bits of positive floats are ordered like their values.
        class.copies.push(Reverse((end.to_bits(), copy, Milestone::Complete)));
        if let Some(first_bytes) = first_bytes {
            class.copies.push(Reverse(((end - bytes + first_bytes).to_bits(), copy, Milestone::FirstPart)));
        }
        self.is_stale = true;
    }

    /// Returns the time at which the next copy reaches a mark.
    pub(super) fn next_s(&mut self) -> Option<f64> {
        if self.is_stale {
            self.fill();
        }
        let left_s = |number: &u32| {
            let class = &self.classes[*number as usize];
            let Reverse((end, ..)) = class.copies.peek().expect("an active class has copies");
            (f64::from_bits(*end) - class.served).max(0.0) / class.rate
        };
        self.active.iter().map(left_s).min_by(f64::total_cmp).map(|left_s| self.at_s + left_s)
    }

    /// Advances the time. Copies that have reached a mark are then available from `take_ended`.
    pub(super) fn advance(&mut self, now_s: f64) {
        let passed_s = now_s - self.at_s;
        self.at_s = now_s;
        self.steps += self.active.len() as u64;
        let mut at = 0;
        while at < self.active.len() {
            let class = &mut self.classes[self.active[at] as usize];
            class.served += class.rate * passed_s;
            let reached = class.served + BYTES_OVER + PART_OVER * (class.served + class.rate * now_s);
            while let Some(Reverse((end, copy, mark))) = class.copies.peek().copied()
                && f64::from_bits(end) <= reached
            {
                class.copies.pop();
                self.ended.push((copy, mark));
                self.is_stale = true;
            }
            if class.copies.is_empty() {
                self.active.swap_remove(at);
            } else {
                at += 1;
            }
        }
        // In the order in which the copies started, whatever the order of classes.
        self.ended.sort_unstable_by(|a, b| b.cmp(a));
    }

    /// Takes a copy that has reached a mark.
    pub(super) fn take_ended(&mut self) -> Option<(u32, Milestone)> {
        self.ended.pop()
    }

    fn fill(&mut self) {
        self.is_stale = false;
        self.left.copy_from_slice(&self.shared);
        self.users.fill(0.0);
        self.active.sort_unstable();
        self.open.clone_from(&self.active);
        for number in &self.active {
            let class = &self.classes[*number as usize];
            let count = self.sharers(class);
            for at in &class.crosses {
                self.users[*at as usize] += count;
            }
        }
        let mut last_level = 0.0f64;
        while !self.open.is_empty() {
            self.steps += self.open.len() as u64;
            // The level at which a link or shared resource is full. All classes limited there have their final rate.
            let mut level = f64::INFINITY;
            for number in &self.open {
                let class = &self.classes[*number as usize];
                level = level.min(self.bound(class));
            }
            // Levels rise. If rounding leaves no bandwidth, a copy must still progress.
            level = level.max(last_level);
            last_level = level;
            let limit = level * (1.0 + PART_OVER);
            let mut open = std::mem::take(&mut self.open);
            // First find the limited classes, then subtract their use: bounds must not move in between.
            let mut fixed = 0;
            for at in 0..open.len() {
                if self.bound(&self.classes[open[at] as usize]) <= limit {
                    open.swap(at, fixed);
                    fixed += 1;
                }
            }
            for number in open.drain(..fixed) {
                self.classes[number as usize].rate = level;
                let class = &self.classes[number as usize];
                let count = self.sharers(class);
                for at in class.crosses.iter().map(|at| *at as usize) {
                    self.left[at] = (self.left[at] - level * count).max(0.0);
                    self.users[at] -= count;
                }
            }
            self.open = open;
        }
    }

    /// Returns the rate at which a copy of the class is first limited.
    fn bound(&self, class: &Class) -> f64 {
        let part = |at: &u32| self.left[*at as usize] / self.users[*at as usize];
        class.crosses.iter().map(part).fold(class.link / self.sharers(class), f64::min)
    }

    /// Number of users that a class counts as.
    fn sharers(&self, class: &Class) -> f64 {
        if self.in_turn { 1.0 } else { class.copies.len() as f64 }
    }
}

//! `random`: each task, in order of call, on a server drawn evenly from those that can run it. A yardstick: a heuristic
//! that is not better has not understood the grid.

use super::error::MapError;
use super::plan::Plan;
use super::problem::Problem;
use super::schedule::Schedule;
use super::spec::Parameter;
use super::{Entry, Heuristic};

/// Its line in the table.
pub(super) const ENTRY: Entry = Entry {
    name: "random",
    about: "each task on a server drawn at random",
    source: "yardstick",
    parameters: &[Parameter { name: "seed", about: "whole number that starts the drawing", default: "0" }],
    make: |values| Ok(Box::new(Random { seed: values.whole("seed")? })),
};

/// The heuristic.
#[derive(Clone, Copy, Debug)]
pub struct Random {
    /// Starts the drawing: same seed, same plan.
    pub seed: u64,
}

impl Heuristic for Random {
    fn map(&self, problem: &Problem) -> Result<Plan, MapError> {
        let mut rng = SplitMix64::new(self.seed);
        let mut schedule = Schedule::new(problem);
        let mut capable = Vec::new();
        for task in 0..problem.task_count() {
            capable.clear();
            capable.extend((0..problem.servers().len()).filter(|server| problem.seconds(task, *server).is_some()));
            schedule.place(task, capable[rng.below(capable.len() as u64) as usize]);
        }
        Ok(schedule.finish())
    }
}

/// A small generator of random numbers: Steele, Lea, Flood, *Fast splittable pseudorandom number generators*, OOPSLA 2014.
#[derive(Clone, Debug)]
pub struct SplitMix64 {
    state: u64,
}

impl SplitMix64 {
    /// Starts it.
    pub fn new(seed: u64) -> SplitMix64 {
        SplitMix64 { state: seed }
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which is not 0, by multiplication (Lemire): the bias is below `bound` / 2⁶⁴.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// A number from 0 to below 1.
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }
}

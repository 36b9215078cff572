//! Measures the load of an element's chares for a balancer: time in entry methods, and messages to other sites.

use serde::{Deserialize, Serialize};

use super::id::ArrayId;
use super::location_table::{Location, LocationTable};

/// The load of a chare since the last report.
#[derive(Clone, Copy, Default)]
struct ChareLoad {
    busy_ns: u64,
    far: u64,
}

/// An element's report on the chares that ran since the previous report.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct LoadReport {
    /// Chares that can move: array, number, time in entry methods, messages to other sites.
    pub(crate) chares: Vec<(ArrayId, u32, u64, u64)>,
    /// Time in entry methods of all other chares.
    pub(crate) fixed_ns: u64,
    /// Number of entry methods that ran.
    pub(crate) runs: u64,
    /// Total time spent packing and unpacking chares since the start, and the number of chares that left.
    pub(crate) migration_ns: u64,
    pub(crate) left: u64,
    /// Floating-point operations per second of entry methods; 0 if unknown.
    pub(crate) speed_flops: f64,
}

#[derive(Default)]
pub(crate) struct Meter {
    /// The chare that ran last.
    last_run: Option<(ArrayId, u32)>,
    /// Number of messages that it sent to other sites.
    pub(crate) remote_messages: u64,
    /// Steps since the last settlement.
    steps: Vec<(ArrayId, u32, ChareLoad)>,
    /// Load by array and slot.
    done: Vec<Vec<ChareLoad>>,
    runs: u64,
    pub(crate) moving_ns: u64,
    pub(crate) left: u64,
    /// Steps with a known amount of work: nanoseconds and floating-point operations.
    record_work: (u64, f64),
}

impl Meter {
    pub(crate) fn ran(&mut self, array: ArrayId, slot: u32) {
        self.last_run = Some((array, slot));
    }

    /// Charges time to the entry method that ran last.
    pub(crate) fn charge(&mut self, busy_ns: u64) {
        let far = std::mem::take(&mut self.remote_messages);
        if let Some((array, slot)) = self.last_run.take() {
            self.steps.push((array, slot, ChareLoad { busy_ns, far }));
        }
    }

    /// Records the time of a known number of floating-point operations.
    pub(crate) fn worked(&mut self, ns: u64, flops: f64) {
        self.record_work = (self.record_work.0 + ns, self.record_work.1 + flops);
    }

    /// Scales the time charged since the last call by `part`, the fraction that the chares really used.
    pub(crate) fn settle(&mut self, part: f64) {
        self.runs += self.steps.len() as u64;
        for (ArrayId(array), slot, ChareLoad { busy_ns, far }) in self.steps.drain(..) {
            let (array, slot) = (array as usize, slot as usize);
            if self.done.len() <= array {
                self.done.resize(array + 1, Vec::new());
            }
            let done = &mut self.done[array];
            if done.len() <= slot {
                done.resize(slot + 1, ChareLoad::default());
            }
            done[slot].busy_ns += (busy_ns as f64 * part) as u64;
            done[slot].far += far;
        }
    }

    /// Returns and resets the measurements since the last call.
    pub(crate) fn take(&mut self, rosters: &[LocationTable]) -> LoadReport {
        let (moving_ns, left, (ns, flops)) = (self.moving_ns, self.left, std::mem::take(&mut self.record_work));
        let speed_flops = if ns > 0 { flops / ns as f64 * 1e9 } else { 0.0 };
        let (chares, fixed_ns, runs) = (Vec::new(), 0, std::mem::take(&mut self.runs));
        let mut measured = LoadReport { chares, fixed_ns, runs, migration_ns: moving_ns, left, speed_flops };
        for ((array, roster), done) in (0..).map(ArrayId).zip(rosters).zip(&mut self.done) {
            for (slot, done) in (0..).zip(done) {
                let ChareLoad { busy_ns, far } = std::mem::take(done);
                let number = roster.number(slot);
                // The load of a chare that has left is not reported, because it may do as much work where it is now.
                let is_here = roster.location(number) == Some(Location::Here { slot });
                match roster.is_migratable {
                    true if is_here && busy_ns > 0 => measured.chares.push((array, number, busy_ns, far)),
                    true => {}
                    false => measured.fixed_ns += busy_ns,
                }
            }
        }
        measured
    }
}

//! Time as machines and worlds exchange it: unsigned nanoseconds.

use std::fmt;
use std::ops::{Add, Sub};

use serde::{Deserialize, Serialize};

/// Nanoseconds since the world's epoch (the Unix epoch in the real world, 0 in simulation).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
pub struct Time(pub u64);

pub const SECOND_NS: u64 = 1_000_000_000;
/// Nanoseconds per day.
pub const DAY_NS: u64 = 24 * 3600 * SECOND_NS;
pub const MILLISECOND_NS: u64 = 1_000_000;

impl Time {
    pub const ZERO: Time = Time(0);
    /// Later than any event.
    pub const NEVER: Time = Time(u64::MAX);

    /// Seconds since the epoch.
    pub fn seconds(self) -> f64 {
        self.0 as f64 / SECOND_NS as f64
    }

    /// Returns the nanoseconds from `earlier` to `self`, or 0 if `earlier` is later.
    pub fn since(self, earlier: Time) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// Converts seconds to whole nanoseconds, rounded. Negative values and NaN become 0; too large values saturate.
pub fn seconds_to_ns(seconds: f64) -> u64 {
    (seconds * SECOND_NS as f64).round() as u64
}

pub fn ns_to_seconds(ns: u64) -> f64 {
    ns as f64 / SECOND_NS as f64
}

impl Add<u64> for Time {
    type Output = Time;
    fn add(self, ns: u64) -> Time {
        Time(self.0.saturating_add(ns))
    }
}

impl Sub<u64> for Time {
    type Output = Time;
    fn sub(self, ns: u64) -> Time {
        Time(self.0.saturating_sub(ns))
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.9} s", self.seconds())
    }
}

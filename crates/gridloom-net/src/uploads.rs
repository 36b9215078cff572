//! The limit on bulk data that a node sends to other hosts: all its streams together stay below a rate, so that other
//! users of the same network path have room.
//!
//! Each part waits as long as a link of that rate would take to send it, after the parts of all other streams. Probes
//! therefore measure that rate, and plans take it into account. Messages, data sent along with them, and shared memory
//! on one host are not limited.

use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Time that a thread which wakes late may catch up: it is asleep when its part becomes due.
const CATCH_UP_MAX: Duration = Duration::from_millis(5);

/// The upload limit of a node. See the module documentation.
#[derive(Debug, Default)]
pub struct Uploads(Option<Limit>);

#[derive(Debug)]
struct Limit {
    bytes_per_second: f64,
    /// Time at which the last admitted part has left.
    left: Mutex<Option<Instant>>,
}

impl Uploads {
    /// Limits uploads to this many bytes per second; `None` for no limit.
    pub fn new(bytes_per_second: Option<f64>) -> Uploads {
        Uploads(bytes_per_second.map(|bytes_per_second| Limit { bytes_per_second, left: Mutex::default() }))
    }

    /// Waits until this many bytes may leave.
    pub fn wait(&self, bytes: usize) {
        let Some(limit) = &self.0 else { return };
        let now = Instant::now();
        let wait = limit.until(now, bytes).saturating_duration_since(now);
        if !wait.is_zero() {
            thread::sleep(wait);
        }
    }
}

impl Limit {
    /// Returns the time at which this many bytes, handed over now, have left a link of the configured rate.
    fn until(&self, now: Instant, bytes: usize) -> Instant {
        let takes = Duration::from_secs_f64(bytes as f64 / self.bytes_per_second);
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        let earliest = now.checked_sub(CATCH_UP_MAX).unwrap_or(now);
        let begins = left.map_or(now, |left| if left < earliest { now } else { left });
        let until = begins + takes;
        *left = Some(until);
        until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_leave_one_behind_the_other_at_the_rate() {
        let limit = Limit { bytes_per_second: 1e6, left: Mutex::default() };
        let (start, ms) = (Instant::now(), Duration::from_millis);
        assert_eq!(limit.until(start, 1000) - start, ms(1));
        assert_eq!(limit.until(start, 10_000) - start, ms(11), "it is another stream's");
        // A thread that wakes late catches up.
        assert_eq!(limit.until(start + ms(14), 1000) - start, ms(12));
        // After a pause the schedule restarts.
        assert_eq!(limit.until(start + ms(100), 1000) - start, ms(101));
        assert!(Uploads::new(None).0.is_none());
    }
}

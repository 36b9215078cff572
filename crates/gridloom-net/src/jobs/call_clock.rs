//! Measures how long the running call of a worker has computed, to enforce the limit of this time (`--worker-time`).

use std::time::{Duration, Instant};

/// Interval of the readings.
pub(super) const INTERVAL: Duration = Duration::from_millis(100);

/// The clock of one worker's running call, which is read regularly. The time between two readings counts if the same call is running at both,
/// and is not waiting at the second.
#[derive(Debug, Default)]
pub(super) struct CallClock {
    /// The call that was running at the last reading, and the time of that reading.
    last: Option<(u64, Instant)>,
    computed: Duration,
}

impl CallClock {
    /// Reads the clock. `running` is the serial number of the running call, if there is one. Returns how long it has computed.
    pub(super) fn read(&mut self, now: Instant, running: Option<u64>, waits: bool) -> Duration {
        match (self.last, running) {
            (Some((last, at)), Some(serial)) if last == serial => {
                if !waits {
                    self.computed += now.saturating_duration_since(at);
                }
            }
            _ => self.computed = Duration::ZERO,
        }
        self.last = running.map(|serial| (serial, now));
        self.computed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_do_not_count_and_each_call_begins_at_zero() {
        let (begin, mut clock) = (Instant::now(), CallClock::default());
        let mut read =
            |second: u64, running, waits| clock.read(begin + Duration::from_secs(second), running, waits).as_secs();
        assert_eq!([read(0, Some(1), false), read(2, Some(1), false), read(5, Some(1), true)], [0, 2, 2]);
        assert_eq!([read(6, Some(1), false), read(7, None, false), read(8, Some(1), false)], [3, 0, 0]);
        assert_eq!([read(9, Some(2), false), read(10, Some(2), false)], [0, 1]);
    }
}

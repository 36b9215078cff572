//! Measures how long the call of a worker has computed, to enforce the limit of this time (`--worker-time`).
//!
//! A worker may run hostile code, so little depends on what it reports. Once it has reported that a call has begun, the call counts until
//! its result arrives. While the worker waits for its program or for calls of its own, as it reports, its processor time counts
//! instead. A call that does not begin counts after [`START_MAX`].

use std::time::{Duration, Instant};

/// Interval of the readings.
pub(super) const INTERVAL: Duration = Duration::from_millis(100);
/// Longest time that a worker may take to begin the first call in its queue, which includes imports of modules.
const START_MAX: Duration = Duration::from_secs(60);

/// The first call in the queue of a worker.
#[derive(Clone, Copy, Debug)]
pub(super) struct FirstCall {
    /// Serial number of the call.
    pub(super) serial: u64,
    /// True if the worker reports that the call has begun.
    pub(super) has_begun: bool,
    /// If the call waits, as the worker reports: the processor time that the worker has used so far.
    pub(super) waits: Option<Duration>,
}

/// The clock of one worker's first call, which is read regularly. The time between two readings counts if the same call is the first at both.
#[derive(Debug, Default)]
pub(super) struct CallClock {
    /// The call and the time of the last reading.
    last: Option<(FirstCall, Instant)>,
    computed: Duration,
    /// Time in which the call had not begun.
    delay: Duration,
}

impl CallClock {
    /// Reads the clock. Returns how long the first call has computed.
    pub(super) fn read(&mut self, now: Instant, first: Option<FirstCall>) -> Duration {
        let before = self.last.take();
        let Some(mut call) = first else {
            *self = CallClock::default();
            return Duration::ZERO;
        };
        match before {
            Some((last, at)) if last.serial == call.serial => {
                let passed = match (call.waits, last.waits) {
                    (None, _) => now.saturating_duration_since(at),
                    (Some(used), Some(used_before)) => used.saturating_sub(used_before),
                    (Some(_), None) => Duration::ZERO,
                };
                if last.has_begun {
                    self.computed += passed;
                } else if !call.has_begun {
                    self.delay += passed;
                }
                call.has_begun |= last.has_begun;
            }
            _ => (self.computed, self.delay) = Default::default(),
        }
        self.last = Some((call, now));
        self.computed.max(self.delay.saturating_sub(START_MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Serial number, whether it has begun, and the processor time in seconds if it waits.
    type Call = (u64, bool, Option<u64>);

    /// Reads clocks of calls at these seconds. Returns the computed seconds.
    fn read<const N: usize>(readings: [(u64, Option<Call>); N]) -> [u64; N] {
        let (begin, mut clock) = (Instant::now(), CallClock::default());
        readings.map(|(second, first)| {
            let first = first.map(|(serial, has_begun, waits)| FirstCall {
                serial,
                has_begun,
                waits: waits.map(Duration::from_secs),
            });
            clock.read(begin + Duration::from_secs(second), first).as_secs()
        })
    }

    #[test]
    fn waits_do_not_count_and_each_call_begins_at_zero() {
        let one = |waits| Some((1, true, waits));
        let readings = [(0, one(None)), (2, one(None)), (5, one(Some(7))), (6, one(None)), (7, None), (8, one(None))];
        assert_eq!(read(readings), [0, 2, 2, 3, 0, 0]);
        assert_eq!(read([(8, one(None)), (9, Some((2, true, None))), (10, Some((2, true, None)))]), [0, 0, 1]);
    }

    #[test]
    fn the_processor_time_of_a_call_that_pretends_to_wait_counts() {
        let waits = |used| Some((1, true, Some(used)));
        assert_eq!(read([(0, waits(3)), (10, waits(3)), (20, waits(12)), (30, waits(12))]), [0, 0, 9, 9]);
    }

    #[test]
    fn a_call_that_pretends_to_have_ended_or_not_to_have_begun_counts() {
        let begun = |has_begun| Some((1, has_begun, None));
        assert_eq!(read([(0, begun(true)), (1, begun(false)), (9, begun(false))]), [0, 1, 9]);
        let start_s = START_MAX.as_secs();
        assert_eq!(read([(0, begun(false)), (start_s, begun(false)), (start_s + 4, begun(false))]), [0, 0, 4]);
        assert_eq!(read([(0, begun(false)), (start_s - 1, begun(false)), (start_s, begun(true))]), [0, 0, 0]);
    }
}

//! The world's clock, and the timers of its state machine.

use std::collections::{BTreeSet, HashMap};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use gridloom_base::Time;
use gridloom_core::node::Timer;

/// Monotonic time, anchored to the Unix epoch when the node started: changes of the system clock do not affect it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start: Instant,
    start_ns: u64,
}

impl Clock {
    pub(crate) fn new() -> Clock {
        // A system clock before 1970 is wrong but harmless here: only differences matter.
        let start_ns = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
        Clock { start: Instant::now(), start_ns }
    }

    pub(crate) fn now(&self) -> Time {
        Time(self.start_ns + self.start.elapsed().as_nanos() as u64)
    }

    pub(crate) fn at(&self, instant: Instant) -> Time {
        Time(self.start_ns + instant.saturating_duration_since(self.start).as_nanos() as u64)
    }
}

/// Timers by time and by name. **Guarantee:** each fires once, not before its time; a cancelled one never fires.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    at: HashMap<Timer, Time>,
    queue: BTreeSet<(Time, Timer)>,
}

impl Timers {
    pub(crate) fn set(&mut self, timer: Timer, at: Time) {
        self.cancel(timer);
        self.at.insert(timer, at);
        self.queue.insert((at, timer));
    }

    pub(crate) fn cancel(&mut self, timer: Timer) {
        if let Some(at) = self.at.remove(&timer) {
            self.queue.remove(&(at, timer));
        }
    }

    pub(crate) fn next(&self) -> Time {
        self.queue.first().map_or(Time::NEVER, |(at, _)| *at)
    }

    pub(crate) fn pop_due(&mut self, now: Time) -> Option<Timer> {
        let (at, timer) = *self.queue.first().filter(|(at, _)| *at <= now)?;
        self.queue.remove(&(at, timer));
        self.at.remove(&timer);
        Some(timer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_fire_once_in_order_and_not_when_cancelled() {
        let mut timers = Timers::default();
        timers.set(Timer::Numbered(1), Time(10));
        timers.set(Timer::Numbered(2), Time(5));
        timers.set(Timer::Numbered(3), Time(7));
        timers.set(Timer::Numbered(1), Time(6));
        timers.cancel(Timer::Numbered(3));
        assert_eq!((timers.next(), timers.pop_due(Time(4))), (Time(5), None));
        assert_eq!(timers.pop_due(Time(20)), Some(Timer::Numbered(2)));
        assert_eq!(timers.pop_due(Time(20)), Some(Timer::Numbered(1)));
        assert_eq!((timers.next(), timers.pop_due(Time(20))), (Time::NEVER, None));
    }
}

//! A virtual clock for each constraint. It times the actions that the constraint limits, so a change of its level
//! touches none of them.
//!
//! An action limited by a constraint has the rate f l / p: f is the work per unit of value, l the level of its
//! constraint, p its penalty. So the clock time that it needs does not depend on how the level changes:
//!
//! ```text
//! V(t) = integral of l over time          the constraint's clock
//! R p / f                                 growth of V until an action with the remaining work R ends
//! date = now + (V_end - V(now)) / l       date of the constraint's first action, in a heap of constraints
//! ```
//!
//! **Invariants.** A clock's `passed` is V at `since_s`; from then it grows at `level`. Its actions are in order of
//! V_end. A clock has a date exactly if it has actions and its level is positive. V is reset to 0 when no action is
//! left, and after as many ends as there are actions. So it stays of the magnitude of the remaining values and loses
//! no precision.
//!
//! Source: the virtual time of fair queueing (Parekh and Gallager, IEEE/ACM ToN 1(3), 1993), for each constraint.

use super::heap::{Heap, Positions};

/// Minimum number of ends before a clock is reset.
const ENDS_MIN: usize = 16;

/// A clock for each constraint.
#[derive(Clone, Debug, Default)]
pub(super) struct Clocks {
    clocks: Vec<ConstraintClock>,
    /// Positions of the actions in their clocks.
    places: Positions,
    /// The end date of each clock's first action.
    dates: Heap,
    dates_places: Positions,
}

#[derive(Clone, Debug, Default)]
struct ConstraintClock {
    value: f64,
    level: f64,
    since_s: f64,
    /// Actions that left since the clock was last reset.
    ends_since_reset: usize,
    ends: Heap,
}

/// The action that ends first.
#[derive(Clone, Copy, Debug)]
pub(super) struct First {
    pub(super) date_s: f64,
    pub(super) serial: u64,
    pub(super) slot: u32,
    pub(super) constraint: u32,
}

impl Clocks {
    /// Returns the action that ends first.
    pub(super) fn first(&self) -> Option<First> {
        let date = self.dates.first()?;
        let first = self.clocks[date.slot as usize].ends.first().expect("a clock with a date has actions");
        Some(First { date_s: date.key, serial: first.serial, slot: first.slot, constraint: date.slot })
    }

    /// Changes a clock's speed from now on; infinite if the constraint no longer limits any action.
    pub(super) fn set_level(&mut self, constraint: u32, level: f64, now_s: f64) {
        if constraint as usize >= self.clocks.len() {
            self.clocks.resize(constraint as usize + 1, ConstraintClock::default());
        }
        let clock = &mut self.clocks[constraint as usize];
        clock.run_to(now_s);
        clock.level = if level.is_finite() { level } else { 0.0 };
        self.set_date(constraint);
    }

    /// Adds an action that ends when its constraint's clock has grown by `span`.
    pub(super) fn join(&mut self, constraint: u32, slot: u32, serial: u64, span: f64, now_s: f64) {
        let clock = &mut self.clocks[constraint as usize];
        clock.run_to(now_s);
        clock.ends.set(&mut self.places, slot, serial, clock.value + span);
        self.set_date(constraint);
    }

    /// Removes an action and returns the growth that its clock still needed.
    pub(super) fn leave(&mut self, constraint: u32, slot: u32, now_s: f64) -> f64 {
        let clock = &mut self.clocks[constraint as usize];
        clock.run_to(now_s);
        let end = clock.ends.remove(&mut self.places, slot).expect("an action leaves the clock that it joined");
        let span = end - clock.value;
        clock.ends_since_reset += 1;
        if clock.ends_since_reset > ENDS_MIN.max(clock.ends.len()) {
            clock.ends.subtract(&mut self.places, clock.value);
            (clock.value, clock.ends_since_reset) = (0.0, 0);
        }
        self.set_date(constraint);
        span
    }

    fn set_date(&mut self, constraint: u32) {
        let clock = &self.clocks[constraint as usize];
        match clock.ends.first().filter(|_| clock.level > 0.0) {
            Some(first) => {
                let date_s = clock.since_s + (first.key - clock.value) / clock.level;
                self.dates.set(&mut self.dates_places, constraint, u64::from(constraint), date_s);
            }
            None => {
                self.dates.remove(&mut self.dates_places, constraint);
            }
        }
    }
}

impl ConstraintClock {
    /// Advances the clock to `now_s`.
    fn run_to(&mut self, now_s: f64) {
        if self.ends.len() == 0 {
            (self.value, self.ends_since_reset) = (0.0, 0);
        } else {
            self.value += self.level * (now_s - self.since_s);
        }
        self.since_s = now_s;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns slots and dates in order of end.
    fn ends(clocks: &mut Clocks) -> Vec<(u32, f64)> {
        let mut found = Vec::new();
        while let Some(First { date_s, slot, constraint, .. }) = clocks.first() {
            clocks.leave(constraint, slot, date_s);
            found.push((slot, date_s));
        }
        found
    }

    #[test]
    fn a_level_moves_all_ends() {
        let mut clocks = Clocks::default();
        clocks.set_level(1, 2.0, 0.0);
        clocks.join(1, 7, 1, 4.0, 0.0);
        clocks.join(1, 8, 2, 6.0, 0.0);
        clocks.set_level(1, 1.0, 1.0);
        assert_eq!(ends(&mut clocks), [(7, 3.0), (8, 5.0)]);
    }

    #[test]
    fn a_clock_that_stands_has_no_date() {
        let mut clocks = Clocks::default();
        clocks.set_level(0, 1.0, 0.0);
        clocks.join(0, 0, 0, 4.0, 0.0);
        clocks.set_level(0, 0.0, 1.0);
        assert!(clocks.first().is_none());
        clocks.set_level(0, 3.0, 2.0);
        assert_eq!(ends(&mut clocks), [(0, 3.0)]);
    }

    #[test]
    fn a_clock_that_is_set_back_keeps_the_dates() {
        let mut clocks = Clocks::default();
        clocks.set_level(0, 0.5, 0.0);
        for slot in 0..100 {
            clocks.join(0, slot, 200 - u64::from(slot), f64::from(slot / 2), 0.0);
        }
        let expected: Vec<_> = (0..100).map(|at| (at ^ 1, f64::from(at / 2 * 2))).collect();
        assert_eq!(ends(&mut clocks), expected);
    }

    #[test]
    fn a_leaving_user_updates_the_remaining_capacity() {
        let mut clocks = Clocks::default();
        clocks.set_level(0, 2.0, 0.0);
        clocks.join(0, 3, 0, 5.0, 1.0);
        assert_eq!(clocks.leave(0, 3, 2.0), 3.0);
        assert!(clocks.first().is_none());
    }
}

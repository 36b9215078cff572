//! The sums that determine a constraint's level, kept up to date while levels change.
//!
//! ```text
//! taken    sum of w x over users limited elsewhere or by their bounds         C capacity
//! usage    sum of w/p over users that the constraint itself limits             level = (C - taken) / usage
//! ```
//!
//! If a user's level changes elsewhere, `taken` changes by one addition. So a level that depends on hundreds of users
//! is found without visiting any. A change that moves hundreds of levels sends tens of thousands of notifications. So
//! a notification costs two additions and one comparison. The alarm alone encodes whether the level must be
//! recomputed, is already queued for that, or has enough spare capacity.
//!
//! **Invariants.** A share that `is_known` equals the result of summing over all users, apart from the rounding of
//! additions. Its `highest` may be greater. A user that joins, leaves, or changes between the two kinds makes the
//! share unknown. An alarm is [`NEVER`] while its constraint is queued, and otherwise [`ALWAYS`] if the share is
//! unknown or the constraint is full.

use super::levels::FullLevels;
use super::users::Users;

/// Number of notifications per user after which a share is summed again, so that rounding errors do not build up. The
/// cost is a few more additions per notification.
const NOTIFICATIONS_PER_USER: u32 = 16;
/// Additional notifications that any share accepts before it is summed again.
const NOTIFICATIONS_MIN: u32 = 64;

const ALWAYS: f64 = f64::NEG_INFINITY;
const NEVER: f64 = f64::INFINITY;

/// The part of a constraint that users limited elsewhere take; half a cache line.
#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
pub(super) struct Share {
    pub(super) used_elsewhere: f64,
    /// The highest level of a user that this constraint does not limit.
    pub(super) highest: f64,
    /// The constraint's level must be recomputed if `taken` reaches this.
    alarm: f64,
    /// Notifications left before the share is summed again.
    notifications_left: u32,
    pub(super) is_known: bool,
    /// True if its constraint is queued to have its level recomputed.
    is_queued: bool,
}

/// Sums over the users that a constraint limits.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LimitedUsers {
    pub(super) usage: f64,
    /// The lowest level at which one of them reaches its bound.
    pub(super) ceiling: f64,
    /// Maximum number of notifications between two summations over all users.
    notifications_max: u32,
    /// Number of further user changes, plus one, for which the constraint's bundle is kept up to date.
    pub(super) bundle_changes_left: u32,
    /// The constraint's position in the bundle that was built last.
    pub(super) place_in_bundle: u32,
}

impl Default for Share {
    fn default() -> Share {
        Share {
            used_elsewhere: 0.0,
            highest: 0.0,
            alarm: ALWAYS,
            notifications_left: 0,
            is_known: false,
            is_queued: false,
        }
    }
}

impl Share {
    /// Marks the share as unknown, because its users have changed.
    pub(super) fn invalidate(&mut self) {
        self.is_known = false;
        if !self.is_queued {
            self.alarm = ALWAYS;
        }
    }

    /// Marks the constraint as queued. Returns false if it already was.
    pub(super) fn enqueue(&mut self) -> bool {
        self.alarm = NEVER;
        !std::mem::replace(&mut self.is_queued, true)
    }

    /// Marks the constraint as no longer queued.
    pub(super) fn dequeue(&mut self) {
        (self.is_queued, self.alarm) = (false, ALWAYS);
    }

    /// Sets the alarm to `taken` if the share is known. The constraint must not be full.
    pub(super) fn set_alarm(&mut self, taken: f64) {
        if self.is_known {
            self.alarm = taken;
        }
    }

    /// Updates the sums after a user that this constraint does not limit changed to `level` and takes `more`. Reports
    /// whether the constraint's level may have to be recomputed.
    pub(super) fn notify(&mut self, level: f64, more: f64) -> bool {
        self.used_elsewhere += more;
        self.highest = if level > self.highest { level } else { self.highest };
        self.notifications_left = self.notifications_left.wrapping_sub(1);
        // A NaN also triggers the alarm.
        let is_quiet = self.used_elsewhere < self.alarm;
        !is_quiet || self.notifications_left == 0
    }

    /// Reports whether the constraint must be queued after a notification.
    pub(super) fn must_enqueue(&mut self) -> bool {
        if self.notifications_left == 0 {
            self.invalidate();
        }
        !self.is_queued
    }
}

impl LimitedUsers {
    /// Counts a user that is added or removed. Reports whether the bundle must be updated for it.
    pub(super) fn counts_bundle_change(&mut self) -> bool {
        self.bundle_changes_left = self.bundle_changes_left.saturating_sub(1);
        self.bundle_changes_left > 0
    }

    /// Reports whether the share has had no notifications, and so no rounding errors, since the last summation.
    pub(super) fn is_fresh(&self, share: &Share) -> bool {
        share.is_known && share.notifications_left == self.notifications_max
    }

    /// Sums over all users of constraint `this`, both those that it limits and the others.
    pub(super) fn recompute(&mut self, share: &mut Share, this: u32, users: &Users, full_at: &FullLevels) {
        let (mut taken, mut highest, mut usage, mut ceiling) = (0.0, 0.0, 0.0, f64::INFINITY);
        for terms in users.terms() {
            // Branch prediction cannot learn the pattern of the limiting constraints, so both sums avoid branches.
            let (own, level) = (terms.holder == this, full_at.elsewhere(terms));
            usage += only_if(own, terms.quota);
            taken += only_if(!own, terms.quota * level);
            highest = f64::max(highest, only_if(!own, level));
            ceiling = f64::min(ceiling, if own { terms.ceiling } else { f64::INFINITY });
        }
        (share.used_elsewhere, share.highest, self.usage, self.ceiling) = (taken, highest, usage, ceiling);
        self.notifications_max = NOTIFICATIONS_MIN + NOTIFICATIONS_PER_USER * users.len() as u32;
        (share.notifications_left, share.is_known) = (self.notifications_max, true);
    }
}

/// Returns the number if `yes`, otherwise 0, without a branch.
fn only_if(yes: bool, number: f64) -> f64 {
    f64::from_bits(number.to_bits() & u64::from(yes).wrapping_neg())
}

#[cfg(test)]
mod tests {
    use super::super::users::{Demand, User};
    use super::super::{Variable, VariableIndex};
    use super::*;

    /// Returns the share of constraint 1. Both it and constraint 0, which is full at 3, limit a user of it.
    fn shared() -> (Share, LimitedUsers) {
        let (mut users, mut full_at) = (Users::default(), FullLevels::default());
        (0..2).for_each(|_| full_at.add());
        full_at.set(0, 3.0);
        for holder in 0..2 {
            let variable = Variable { penalty: 2.0, bound: 5.0, bottleneck: holder, ..Variable::default() };
            users.push(User::new(&variable, VariableIndex(holder), 0), Demand::new(&variable, 1.0));
        }
        let (mut share, mut held) = (Share::default(), LimitedUsers::default());
        held.recompute(&mut share, 1, &users, &full_at);
        (share, held)
    }

    #[test]
    fn all_users_are_added_up_by_who_holds_them_back() {
        let (share, held) = shared();
        assert_eq!((share.used_elsewhere, share.highest), (1.5, 3.0));
        assert_eq!((held.usage, held.ceiling), (0.5, 10.0));
        assert!(held.is_fresh(&share));
    }

    #[test]
    fn what_has_enough_to_spare_is_roused_at_its_alarm() {
        let (mut share, held) = shared();
        share.set_alarm(2.0);
        assert!(!share.notify(3.5, 0.25) && !held.is_fresh(&share));
        assert!(share.notify(4.0, 0.25) && share.must_enqueue());
        assert_eq!((share.used_elsewhere, share.highest), (2.0, 4.0));
    }

    #[test]
    fn what_is_full_or_unknown_is_always_roused_until_it_waits() {
        let (mut share, _) = shared();
        share.dequeue();
        assert!(share.notify(3.0, 0.0) && share.must_enqueue());
        share.set_alarm(9.0);
        share.invalidate();
        assert!(share.notify(3.0, f64::NAN) && share.must_enqueue());
        assert!(share.enqueue() && !share.enqueue());
        share.invalidate();
        assert!(!share.notify(3.0, 1e300) || !share.must_enqueue());
    }

    #[test]
    fn after_a_number_of_updates_all_users_are_summed_again() {
        let (mut share, held) = shared();
        share.set_alarm(2.0);
        let quiet = (1..).take_while(|_| !share.notify(3.0, 0.0)).count() as u32;
        assert_eq!(quiet + 1, held.notifications_max);
        assert!(share.must_enqueue() && !share.is_known);
    }
}

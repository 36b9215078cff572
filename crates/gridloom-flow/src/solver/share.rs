//! The sums from which a constraint's level follows, kept up to date while levels change.
//!
//! ```text
//! taken    sum of w x over users that others hold back, or their bounds       C capacity
//! usage    sum of w/p over users that it holds back itself                     level = (C - taken) / usage
//! ```
//!
//! A user's level that changes elsewhere changes `taken` by one addition. So a level that depends on hundreds of users is
//! found without going to any. A change that moves hundreds of levels tells of them tens of thousands of times. So a tell
//! is two additions and one comparison. The alarm alone says whether the constraint has to be found anew, waits for that
//! already, or has enough to spare.
//!
//! **Invariants.** A share that `is_known` is what going through all users would give, but for the rounding of additions.
//! Its `highest` may be more. A user that joins, leaves, or changes between the two kinds makes it unknown. An alarm is
//! [`NEVER`] while its constraint waits, and otherwise [`ALWAYS`] if the share is unknown or the constraint is full.

use super::levels::FullAt;
use super::users::Users;

/// A share is added up anew after so many tells for each of its users, so that rounding does not build up. The cost is
/// that of some additions more.
const TELLS_PER_USER: u32 = 16;
/// Any share takes so many tells more.
const TELLS_MIN: u32 = 64;

const ALWAYS: f64 = f64::NEG_INFINITY;
const NEVER: f64 = f64::INFINITY;

/// What users that it does not hold back leave of a constraint; half a cache line.
#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
pub(super) struct Share {
    pub(super) taken: f64,
    /// The highest level of a user that it does not hold back.
    pub(super) highest: f64,
    /// If so much is taken, its level is to be found anew.
    alarm: f64,
    /// How often it is told before it is added up anew.
    tells_left: u32,
    pub(super) is_known: bool,
    /// Its constraint waits for its level to be found anew.
    waits: bool,
}

/// Those that a constraint holds back.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Held {
    pub(super) usage: f64,
    /// The least level at which one of them meets its bound.
    pub(super) ceiling: f64,
    /// How often it can be told between times that all users are added up.
    tells_max: u32,
    /// For how many more users that come or go, plus one, the constraint's bundle is kept up to date.
    pub(super) bundled: u32,
    /// Of the constraint, in the bundle that was made last.
    pub(super) place_in_bundle: u32,
}

impl Default for Share {
    fn default() -> Share {
        Share { taken: 0.0, highest: 0.0, alarm: ALWAYS, tells_left: 0, is_known: false, waits: false }
    }
}

impl Share {
    /// Other users take from it than before.
    pub(super) fn forget(&mut self) {
        self.is_known = false;
        if !self.waits {
            self.alarm = ALWAYS;
        }
    }

    /// Begins to wait, unless it does already: then false.
    pub(super) fn wait(&mut self) -> bool {
        self.alarm = NEVER;
        !std::mem::replace(&mut self.waits, true)
    }

    /// Waits no more.
    pub(super) fn take_turn(&mut self) {
        (self.waits, self.alarm) = (false, ALWAYS);
    }

    /// Rests until so much is taken, as what is taken now is known and its constraint is not full.
    pub(super) fn rest_until(&mut self, taken: f64) {
        if self.is_known {
            self.alarm = taken;
        }
    }

    /// A user that the constraint does not hold back has another level than before, and takes so much more. Says whether the
    /// constraint's level may have to be found anew.
    pub(super) fn tell(&mut self, level: f64, more: f64) -> bool {
        self.taken += more;
        self.highest = if level > self.highest { level } else { self.highest };
        self.tells_left = self.tells_left.wrapping_sub(1);
        // What is no number rings, too.
        let is_quiet = self.taken < self.alarm;
        !is_quiet || self.tells_left == 0
    }

    /// Whether it is to begin to wait, now that it was told of something.
    pub(super) fn is_roused(&mut self) -> bool {
        if self.tells_left == 0 {
            self.forget();
        }
        !self.waits
    }
}

impl Held {
    /// Notes that a user comes or goes; whether that is to be entered in the bundle.
    pub(super) fn keeps_bundle(&mut self) -> bool {
        self.bundled = self.bundled.saturating_sub(1);
        self.bundled > 0
    }

    /// Whether no rounding of what was told is in that share.
    pub(super) fn is_fresh(&self, share: &Share) -> bool {
        share.is_known && share.tells_left == self.tells_max
    }

    /// Adds up all users of constraint `this`, those and others.
    pub(super) fn add_up(&mut self, share: &mut Share, this: u32, users: &Users, full_at: &FullAt) {
        let (mut taken, mut highest, mut usage, mut ceiling) = (0.0, 0.0, 0.0, f64::INFINITY);
        for terms in users.terms() {
            // The holders follow no pattern that a processor could foresee: both sums go on without a branch.
            let (own, level) = (terms.holder == this, full_at.elsewhere(terms));
            usage += only_if(own, terms.quota);
            taken += only_if(!own, terms.quota * level);
            highest = f64::max(highest, only_if(!own, level));
            ceiling = f64::min(ceiling, if own { terms.ceiling } else { f64::INFINITY });
        }
        (share.taken, share.highest, self.usage, self.ceiling) = (taken, highest, usage, ceiling);
        self.tells_max = TELLS_MIN + TELLS_PER_USER * users.len() as u32;
        (share.tells_left, share.is_known) = (self.tells_max, true);
    }
}

/// That number, or 0, without a branch.
fn only_if(yes: bool, number: f64) -> f64 {
    f64::from_bits(number.to_bits() & u64::from(yes).wrapping_neg())
}

#[cfg(test)]
mod tests {
    use super::super::users::{Terms, User};
    use super::super::{Variable, VariableIndex};
    use super::*;

    /// The share of constraint 1, on which constraint 0, full at 3, holds back a user, and so does it itself.
    fn shared() -> (Share, Held) {
        let (mut users, mut full_at) = (Users::default(), FullAt::default());
        (0..2).for_each(|_| full_at.add());
        full_at.set(0, 3.0);
        for holder in 0..2 {
            let variable = Variable { penalty: 2.0, bound: 5.0, held_by: holder, ..Variable::default() };
            users.push(User::new(&variable, VariableIndex(holder), 0), Terms::new(&variable, 1.0));
        }
        let (mut share, mut held) = (Share::default(), Held::default());
        held.add_up(&mut share, 1, &users, &full_at);
        (share, held)
    }

    #[test]
    fn all_users_are_added_up_by_who_holds_them_back() {
        let (share, held) = shared();
        assert_eq!((share.taken, share.highest), (1.5, 3.0));
        assert_eq!((held.usage, held.ceiling), (0.5, 10.0));
        assert!(held.is_fresh(&share));
    }

    #[test]
    fn what_has_enough_to_spare_is_roused_at_its_alarm() {
        let (mut share, held) = shared();
        share.rest_until(2.0);
        assert!(!share.tell(3.5, 0.25) && !held.is_fresh(&share));
        assert!(share.tell(4.0, 0.25) && share.is_roused());
        assert_eq!((share.taken, share.highest), (2.0, 4.0));
    }

    #[test]
    fn what_is_full_or_unknown_is_always_roused_until_it_waits() {
        let (mut share, _) = shared();
        share.take_turn();
        assert!(share.tell(3.0, 0.0) && share.is_roused());
        share.rest_until(9.0);
        share.forget();
        assert!(share.tell(3.0, f64::NAN) && share.is_roused());
        assert!(share.wait() && !share.wait());
        share.forget();
        assert!(!share.tell(3.0, 1e300) || !share.is_roused());
    }

    #[test]
    fn after_so_many_tells_all_users_are_added_up_anew() {
        let (mut share, held) = shared();
        share.rest_until(2.0);
        let quiet = (1..).take_while(|_| !share.tell(3.0, 0.0)).count() as u32;
        assert_eq!(quiet + 1, held.tells_max);
        assert!(share.is_roused() && !share.is_known);
    }
}

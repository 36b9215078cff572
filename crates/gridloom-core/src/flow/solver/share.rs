//! What of a constraint the level at which it is full follows from, kept up to date while levels change.
//!
//! ```text
//! taken    sum of w x over users that others hold back, or their bounds       C capacity
//! usage    sum of w/p over users that it holds back itself                     level = (C - taken) / usage
//! ```
//!
//! A user's level that changes elsewhere changes `taken` by one addition, so that a level that depends on hundreds of
//! users is found without going to any.
//!
//! **Invariants.** A share that `is_known` is what going through all users would give, but for the rounding of `told`
//! additions, and `highest` may be more. Who joins, leaves, or changes between the two kinds of users makes it unknown.

use super::Policy;
use super::levels::FullAt;
use super::users::Users;

/// A share of so many users is told of changes so many times for each before it is added up anew: rounding does not
/// build up, and the cost is that of some additions more.
const TOLD_PER_USER: u32 = 4;

/// Of one constraint.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Share {
    pub(super) taken: f64,
    /// The highest level of a user that it does not hold back.
    pub(super) highest: f64,
    pub(super) usage: f64,
    /// The least level at which one that it holds back meets its bound.
    pub(super) ceiling: f64,
    told: u32,
    told_max: u32,
    pub(super) policy: Policy,
    pub(super) is_known: bool,
    /// Whether the constraint's bundle is that of those whom it holds back.
    pub(super) is_bundled: bool,
    /// Of its constraint, in the bundle that was made last.
    pub(super) place_in_bundle: u32,
    /// Its constraint waits for its level to be found anew.
    pub(super) waits: bool,
}

impl Share {
    /// Of a constraint without users.
    pub(super) fn new(policy: Policy) -> Share {
        Share { policy, ..Share::default() }
    }

    /// It holds back others than before.
    pub(super) fn forget(&mut self) {
        (self.is_known, self.is_bundled) = (false, false);
    }

    /// Whether no rounding of earlier changes is in it.
    pub(super) fn is_fresh(&self) -> bool {
        self.is_known && self.told == 0
    }

    /// A user that does not take from what it holds back has another level than before, which takes so much more.
    pub(super) fn tell(&mut self, level: f64, more: f64) {
        self.taken += more;
        self.highest = if level > self.highest { level } else { self.highest };
        self.told += 1;
        self.is_known &= self.told < self.told_max;
    }

    /// Adds up all users; `this` is the constraint.
    pub(super) fn add_up(&mut self, this: u32, users: &Users, full_at: &FullAt) {
        (self.taken, self.highest, self.usage, self.ceiling) = (0.0, 0.0, 0.0, f64::INFINITY);
        for (user, quota, holder) in users.with_terms() {
            if holder == this {
                self.usage += quota;
                self.ceiling = self.ceiling.min(user.ceiling);
            } else {
                let level = full_at.elsewhere(user, holder);
                self.taken += quota * level;
                self.highest = self.highest.max(level);
            }
        }
        (self.told, self.told_max) = (0, 64 + TOLD_PER_USER * users.len() as u32);
        self.is_known = true;
    }
}

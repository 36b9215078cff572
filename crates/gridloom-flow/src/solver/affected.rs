//! The other constraints used by the variables that a constraint limits. They must be notified when its level changes.
//!
//! They are kept in one contiguous array, because hundreds of users have their elements in as many places. Users that
//! are added or removed are updated in place. The bundle is rebuilt after enough changes that rounding and searching
//! could matter.

use super::pool::Element;

/// Number of additions and removals after which a bundle is rebuilt.
const CHANGES_MAX: u32 = 32;
/// A bundle with fewer constraints than this is rebuilt at every change: that is as fast as updating it.
const OTHERS_MIN: usize = 32;

/// The bundle of one constraint: the other constraints, the capacity of each that one more unit of level uses, and the
/// number of users on each.
#[derive(Clone, Debug, Default)]
pub(super) struct AffectedConstraints {
    others: Vec<u32>,
    quotas: Vec<f64>,
    users: Vec<u32>,
}

impl AffectedConstraints {
    /// Empties the bundle before it is rebuilt.
    pub(super) fn clear(&mut self) {
        self.others.clear();
        self.quotas.clear();
        self.users.clear();
    }

    /// Returns the number of changes after which the bundle must be rebuilt.
    pub(super) fn good_for(&self) -> u32 {
        if self.others.len() < OTHERS_MIN { 1 } else { 1 + CHANGES_MAX }
    }

    /// Adds an element of a limited user. `place` is the position of `other` if it was added before, and is updated.
    #[inline]
    pub(super) fn push(&mut self, other: u32, quota: f64, place: &mut u32) {
        let at = *place as usize;
        if self.others.get(at) == Some(&other) {
            self.quotas[at] += quota;
            self.users[at] += 1;
        } else {
            *place = self.others.len() as u32;
            self.append(other, quota);
        }
    }

    /// Adds a user with these elements that constraint `this` now limits. `share` is the user's 1 / penalty.
    pub(super) fn add_user(&mut self, this: u32, elements: &[Element], share: f64) {
        for element in elements.iter().filter(|element| element.constraint != this) {
            let (other, quota) = (element.constraint, element.weight * share);
            match self.find(other) {
                Some(at) => {
                    self.quotas[at] += quota;
                    self.users[at] += 1;
                }
                None => self.append(other, quota),
            }
        }
    }

    /// Removes a user added by [`AffectedConstraints::add_user`].
    pub(super) fn remove_user(&mut self, this: u32, elements: &[Element], share: f64) {
        for element in elements.iter().filter(|element| element.constraint != this) {
            let at = self.find(element.constraint).expect("a limited user is in the bundle");
            self.quotas[at] -= element.weight * share;
            self.users[at] -= 1;
            if self.users[at] == 0 {
                self.others.swap_remove(at);
                self.quotas.swap_remove(at);
                self.users.swap_remove(at);
            }
        }
    }

    /// Iterates over the other constraints, each once.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, f64)> {
        self.others.iter().copied().zip(self.quotas.iter().copied())
    }

    fn find(&self, other: u32) -> Option<usize> {
        self.others.iter().position(|known| *known == other)
    }

    #[inline]
    fn append(&mut self, other: u32, quota: f64) {
        self.others.push(other);
        self.quotas.push(quota);
        self.users.push(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// After additions and removals, a bundle equals one built from the remaining users, with each other constraint once.
        #[test]
        fn adding_and_removing_users_equals_building_from_scratch(
            users in prop::collection::vec((prop::collection::btree_map(0u32..12, 1u32..40, 1..6), 1u32..9, any::<bool>()), 1..40),
        ) {
            const THIS: u32 = 3;
            let users: Vec<_> = (users.into_iter())
                .map(|(over, penalty, goes)| {
                    let element = |(constraint, weight)| Element { weight: f64::from(weight) / 20.0, constraint, place: 0 };
                    (over.into_iter().map(element).collect::<Vec<_>>(), 1.0 / f64::from(penalty), goes)
                })
                .collect();
            let mut bundle = AffectedConstraints::default();
            users.iter().for_each(|(elements, share, _)| bundle.add_user(THIS, elements, *share));
            let gone = users.iter().filter(|(.., goes)| *goes);
            gone.for_each(|(elements, share, _)| bundle.remove_user(THIS, elements, *share));
            let (mut anew, mut places) = (AffectedConstraints::default(), [u32::MAX; 12]);
            for (elements, share, _) in users.iter().filter(|(.., goes)| !goes) {
                for element in elements.iter().filter(|element| element.constraint != THIS) {
                    let place = &mut places[element.constraint as usize];
                    anew.push(element.constraint, element.weight * share, place);
                }
            }
            let sorted = |bundle: &AffectedConstraints| {
                let mut all: Vec<_> = bundle.iter().collect();
                all.sort_by_key(|(other, _)| *other);
                all
            };
            let (kept, anew) = (sorted(&bundle), sorted(&anew));
            prop_assert_eq!(kept.len(), anew.len());
            for ((other, quota), (same, expected)) in kept.into_iter().zip(anew) {
                prop_assert!(other == same && (quota - expected).abs() < 1e-12, "{other} {quota} {same} {expected}");
            }
        }
    }
}

//! An array of ids, for one of which a thread waits: the ended ids are known without checking the others.
//!
//! A program that repeatedly waits for one of very many passes nearly the same array each time. The library keeps the array and
//! checks only places where the next one differs, and sessions that meanwhile end or are collected.

use std::collections::BTreeSet;
use std::ffi::c_int;

use rustc_hash::FxHashMap;

/// Number of ids that are compared at once with the previous array.
const STRIDE: usize = 256;

/// The state of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SessionState {
    Running,
    Ended,
    /// The session is not outstanding.
    Gone,
}

/// The array, and its sessions that have ended.
#[derive(Default)]
pub(crate) struct IdArray {
    ids: Vec<c_int>,
    /// The first place of each id.
    places: FxHashMap<c_int, usize>,
    ended: BTreeSet<usize>,
    gone: BTreeSet<usize>,
    /// True if an id occurs twice: then all of the next array is checked.
    has_duplicates: bool,
    #[cfg(test)]
    looks: usize,
}

impl IdArray {
    /// Replaces the array by the next one.
    pub(crate) fn replace(&mut self, ids: Vec<c_int>, standing: impl Fn(c_int) -> SessionState) {
        let old = std::mem::take(&mut self.ids);
        let is_anew = std::mem::take(&mut self.has_duplicates);
        if is_anew {
            (self.places, self.ended, self.gone) = Default::default();
        }
        // Ids without a session are checked again: they may have been reused.
        let mut changed = std::mem::take(&mut self.gone);
        changed.extend(if is_anew { (0..ids.len()).collect() } else { differing(&old, &ids) });
        changed.retain(|place| *place < ids.len());
        if !is_anew {
            changed.iter().copied().chain(ids.len()..old.len()).for_each(|place| self.forget(&old, place));
        }
        changed.into_iter().for_each(|place| self.put(ids[place], place, standing(ids[place])));
        self.ids = ids;
    }

    /// Returns the first session that has ended.
    ///
    /// # Errors
    /// The first id, if one precedes it, that has no session.
    pub(crate) fn first(&self) -> Result<Option<c_int>, c_int> {
        match (self.ended.first(), self.gone.first()) {
            (Some(ended), gone) if gone.is_none_or(|gone| ended < gone) => Ok(Some(self.ids[*ended])),
            (_, Some(gone)) => Err(self.ids[*gone]),
            (_, None) => Ok(None),
        }
    }

    /// Returns an id that has no session.
    pub(crate) fn invalid_id(&self) -> Option<c_int> {
        self.gone.first().map(|place| self.ids[*place])
    }

    /// Records that a session has ended, or that it no longer exists.
    pub(crate) fn update(&mut self, id: c_int, standing: SessionState) {
        self.look();
        if let Some(place) = self.places.get(&id).copied() {
            self.state(place, standing);
        }
    }

    fn state(&mut self, place: usize, standing: SessionState) {
        self.ended.remove(&place);
        self.gone.remove(&place);
        match standing {
            SessionState::Running => {}
            SessionState::Ended => drop(self.ended.insert(place)),
            SessionState::Gone => drop(self.gone.insert(place)),
        }
    }

    fn forget(&mut self, ids: &[c_int], place: usize) {
        self.look();
        let Some(id) = ids.get(place) else { return };
        if self.places.get(id) == Some(&place) {
            self.places.remove(id);
        }
        self.state(place, SessionState::Running);
    }

    fn put(&mut self, id: c_int, place: usize, standing: SessionState) {
        self.look();
        if let Some(other) = self.places.insert(id, place) {
            self.has_duplicates = true;
            self.state(other, SessionState::Running);
            let first = other.min(place);
            self.places.insert(id, first);
            return self.state(first, standing);
        }
        self.state(place, standing);
    }

    /// Counts the checked places, for the test.
    fn look(&mut self) {
        #[cfg(test)]
        {
            self.looks += 1;
        }
    }
}

/// Returns the places at which the second array has another id than the first, or the first has none.
fn differing(old: &[c_int], new: &[c_int]) -> Vec<usize> {
    let common = old.len().min(new.len());
    let mut places = Vec::new();
    for start in (0..common).step_by(STRIDE) {
        let stride = start..common.min(start + STRIDE);
        if old[stride.clone()] != new[stride.clone()] {
            places.extend(stride.filter(|place| old[*place] != new[*place]));
        }
    }
    places.extend(common..new.len());
    places
}

#[cfg(test)]
mod tests {
    use super::*;
    use gridloom_base::SplitMix64;

    fn choice(ids: &[c_int], standing: impl Fn(c_int) -> SessionState) -> IdArray {
        let mut choice = IdArray::default();
        choice.replace(ids.to_vec(), standing);
        choice
    }

    #[test]
    fn the_first_in_the_array_counts() {
        let mut choice = choice(&[7, 8, 9], |id| if id == 9 { SessionState::Ended } else { SessionState::Running });
        assert_eq!(choice.first(), Ok(Some(9)));
        choice.update(8, SessionState::Ended);
        assert_eq!(choice.first(), Ok(Some(8)));
        choice.update(7, SessionState::Gone);
        assert_eq!((choice.first(), choice.invalid_id()), (Err(7), Some(7)));
        // The 8 stays in its place.
        choice.replace(
            vec![9, 8],
            |id| if id == 9 { SessionState::Running } else { unreachable!("{id} is not looked at") },
        );
        assert_eq!((choice.first(), choice.invalid_id()), (Ok(Some(8)), None));
    }

    /// Like a program that removes ids from its array one by one, in unknown order.
    #[test]
    fn very_many_are_drained_with_a_few_looks_at_each() {
        for count in [2_000, 20_000] {
            let mut ids: Vec<c_int> = (1..=count).collect();
            let mut choice = choice(&ids, |_| SessionState::Running);
            let mut random = SplitMix64::new(5);
            while !ids.is_empty() {
                let at = random.below(ids.len() as u64) as usize;
                choice.update(ids[at], SessionState::Ended);
                assert_eq!(choice.first(), Ok(Some(ids[at])));
                choice.update(ids[at], SessionState::Gone);
                ids.swap_remove(at);
                choice.replace(ids.clone(), |_| SessionState::Running);
            }
            assert!(choice.looks <= 8 * count as usize, "{} looks at {count}", choice.looks);
        }
    }

    #[test]
    fn it_is_what_an_array_looked_at_as_a_whole_is() {
        let mut random = SplitMix64::new(1);
        let mut below = |limit: u64| random.below(limit);
        let mut kept = IdArray::default();
        let mut standings = [SessionState::Running; 8];
        for _ in 0..20_000 {
            let standing = [SessionState::Running, SessionState::Ended, SessionState::Gone][below(3) as usize];
            let id = below(8) as usize;
            // If an id without a session is reused, the next array must detect it.
            if standing != SessionState::Running {
                standings[id] = standing;
                kept.update(id as c_int, standing);
            }
            let ids: Vec<c_int> = (0..below(6)).map(|_| below(8) as c_int).collect();
            let stands = |id: c_int| standings[id as usize];
            kept.replace(ids.clone(), stands);
            let whole = choice(&ids, stands);
            assert_eq!((kept.first(), kept.invalid_id()), (whole.first(), whole.invalid_id()), "{ids:?} {standings:?}");
            if below(50) == 0 {
                standings = [SessionState::Running; 8];
                kept = IdArray::default();
            }
        }
    }
}

//! Launches in progress. Groups are launched one by one or together; a launch that needs a group which an earlier one
//! launches waits for that one.
//!
//! **Invariant:** a launch waits only for launches that began before it, so there are no cycles of waits.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard};

/// The launches of a session.
#[derive(Default)]
pub(crate) struct Launches {
    groups: AtomicU64,
    under_way: Mutex<InProgress>,
    ended: Condvar,
}

#[derive(Default)]
struct InProgress {
    begun: u64,
    /// The groups of each launch, by its number.
    groups: BTreeMap<u64, Vec<u64>>,
}

/// The groups of a launch, by their numbers.
pub(crate) struct LaunchGroups {
    pub(crate) launched: Vec<u64>,
    /// Groups that have to be launched when this launch ends, or whose results it reads.
    pub(crate) needed: Vec<u64>,
}

/// A launch in progress, which ends when this is dropped.
pub(crate) struct LaunchGuard<'a> {
    launches: &'a Launches,
    number: u64,
}

impl Drop for LaunchGuard<'_> {
    fn drop(&mut self) {
        self.launches.under_way().groups.remove(&self.number);
        self.launches.ended.notify_all();
    }
}

impl Launches {
    /// Returns a number for a new group.
    pub(crate) fn number_group(&self) -> u64 {
        self.groups.fetch_add(1, Ordering::Relaxed)
    }

    /// Begins a launch. `take` takes its calls, under the lock; it returns `None` to refuse the launch. Then waits for
    /// the earlier launches that it needs; without `may_wait` it is refused instead.
    pub(crate) fn begin<T>(
        &self,
        may_wait: bool,
        take: impl FnOnce() -> Option<(T, LaunchGroups)>,
    ) -> Option<(T, LaunchGuard<'_>)> {
        let mut under_way = self.under_way();
        let (taken, LaunchGroups { launched, needed }) = take()?;
        let number = under_way.begun + 1;
        if !may_wait && under_way.has_before(number, &needed) {
            return None;
        }
        under_way.begun = number;
        under_way.groups.insert(number, launched);
        while under_way.has_before(number, &needed) {
            under_way = self.ended.wait(under_way).expect("no panic while held");
        }
        drop(under_way);
        Some((taken, LaunchGuard { launches: self, number }))
    }

    fn under_way(&self) -> MutexGuard<'_, InProgress> {
        self.under_way.lock().expect("no panic while held")
    }
}

impl InProgress {
    /// True if a launch before that number contains one of the groups.
    fn has_before(&self, number: u64, needed: &[u64]) -> bool {
        self.groups.range(..number).any(|(_, groups)| groups.iter().any(|group| needed.contains(group)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_launch_that_may_not_wait_is_refused_while_a_group_that_it_needs_is_launched() {
        let launches = Launches::default();
        let (one, two) = (launches.number_group(), launches.number_group());
        let of = |launched: &[u64], needed: &[u64]| LaunchGroups { launched: launched.into(), needed: needed.into() };
        let (_, turn) = launches.begin(true, || Some(((), of(&[one], &[one])))).expect("nothing is under way");
        assert!(launches.begin(false, || Some(((), of(&[two], &[one, two])))).is_none());
        assert!(launches.begin(false, || Some(((), of(&[two], &[two])))).is_some());
        drop(turn);
        assert!(launches.begin(false, || Some(((), of(&[two], &[one, two])))).is_some());
    }
}

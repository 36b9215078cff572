//! Fetches results to the program's memory, and keeps those that stay remote after their block.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gridloom::Arg;

use super::super::arguments::Item;
use super::super::code::Outcome;
use super::guard;
use super::mapped_result::MappedResult;
use super::regions::{Part, Regions, Writers};

/// Writes all parts of these results that have not been fetched.
///
/// # Safety
/// They are in memory that was passed to calls for these results.
pub(crate) unsafe fn fetch_parts(
    regions: &Regions<Arc<MappedResult>>,
    parts: &[Part<Arc<MappedResult>>],
) -> Outcome<()> {
    let mut by_writer: BTreeMap<*const MappedResult, Vec<&Part<Arc<MappedResult>>>> = BTreeMap::new();
    let needed: BTreeSet<*const MappedResult> = parts.iter().map(|part| Arc::as_ptr(&part.writer)).collect();
    for part in regions.iter().filter(|part| needed.contains(&Arc::as_ptr(&part.writer)) && !part.writer.is_here()) {
        // Includes all other parts of the result, since it is fetched once.
        by_writer.entry(Arc::as_ptr(&part.writer)).or_default().push(part);
    }
    let mut outcome = Ok(());
    for parts in by_writer.values() {
        let made = &parts[0].writer;
        let brought = made.value().map(|value| {
            // SAFETY: promised by the caller.
            unsafe { guard::write(made, &value, parts) };
        });
        if brought.is_err() {
            parts.iter().for_each(|part| guard::show(part.start, part.end - part.start));
        }
        outcome = outcome.and(brought);
    }
    outcome
}

/// Records that a result belongs to memory again, after a call failed that should have overwritten it.
///
/// # Safety
/// As for [`fetch_parts`].
pub(crate) unsafe fn restore(regions: &mut Regions<Arc<MappedResult>>, part: Part<Arc<MappedResult>>) {
    // SAFETY: promised by the caller.
    unsafe { write_if_here(&part) };
    regions.restore(part);
}

/// Writes this part of a result that was fetched without it, while another call was expected to overwrite the part.
///
/// # Safety
/// As for [`fetch_parts`].
pub(crate) unsafe fn write_if_here(part: &Part<Arc<MappedResult>>) {
    let here = part.writer.here().clone();
    if let Some(value) = here {
        // SAFETY: promised by the caller.
        unsafe { guard::write(&part.writer, &value, &[part]) };
    }
}

/// Results that stay on servers, by the memory to which they belong.
#[derive(Default)]
pub(crate) struct RemainingResults(Mutex<Regions<Arc<MappedResult>>>);

impl RemainingResults {
    fn lock(&self) -> MutexGuard<'_, Regions<Arc<MappedResult>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn all(&self) -> Regions<Arc<MappedResult>> {
        self.lock().clone()
    }

    /// True if the result that belongs there stays remote.
    pub(crate) fn is_there(&self, address: usize) -> bool {
        self.lock().at(address).is_some()
    }

    /// Returns the result that a call gets in place of the memory that it reads, if it reads a whole one. Parts of
    /// results are fetched.
    pub(crate) fn known(&self, item: &Item<'_>) -> Outcome<Option<Arg>> {
        let (start, bytes) = item.range();
        // A copy, because fetched results are removed under the lock.
        let regions = self.all();
        if regions.is_empty() {
            return Ok(None);
        }
        let result = match regions.read(start, bytes) {
            Writers::Nothing => return Ok(None),
            Writers::Whole(made) => made.read_as(item),
            Writers::Parts(_) => None,
        };
        if result.is_none() {
            // SAFETY: memory that belongs to the program until it is fetched, as the header requires.
            unsafe { self.bring(&regions, start, bytes) }?;
        }
        Ok(result.map(Arg::Handle))
    }

    /// Drops the results that stayed remote for this memory, which has another value now.
    pub(crate) fn forget(&self, start: usize, bytes: usize) {
        let mut regions = self.lock();
        if regions.is_empty() {
            return;
        }
        let former = regions.parts(start, bytes);
        regions.forget(start, bytes);
        drop(regions);
        // Handles are dropped outside of the lock.
        drop(former);
    }

    pub(crate) fn forget_at(&self, address: usize) {
        let found = self.lock().whole_at(address);
        if let Some((start, bytes)) = found {
            self.forget(start, bytes);
        }
    }

    pub(crate) fn clear(&self) {
        let former = std::mem::take(&mut *self.lock());
        drop(former);
    }

    /// Fetches the results at an address, and removes them here.
    ///
    /// # Safety
    /// The memory of these results still belongs to the program.
    pub(crate) unsafe fn fetch(&self, address: usize) -> Outcome<()> {
        let regions = self.all();
        match regions.whole_at(address) {
            // SAFETY: promised by the caller.
            Some((start, bytes)) => unsafe { self.bring(&regions, start, bytes) },
            None => Ok(()),
        }
    }

    unsafe fn bring(&self, regions: &Regions<Arc<MappedResult>>, start: usize, bytes: usize) -> Outcome<()> {
        let parts = regions.parts(start, bytes);
        // SAFETY: promised by the caller.
        let outcome = unsafe { fetch_parts(regions, &parts) };
        self.forget_brought();
        outcome
    }

    /// Removes results that were fetched: their memory belongs to the program.
    pub(crate) fn forget_brought(&self) {
        let all = self.all();
        let mut regions = self.lock();
        // Only memory that still belongs to the same result: another thread may have written there.
        for part in all.iter().filter(|part| part.writer.is_here()) {
            let now = regions.at(part.start).filter(|now| Arc::ptr_eq(&now.writer, &part.writer)).cloned();
            if let Some(now) = now {
                regions.forget(now.start, now.end - now.start);
            }
        }
        drop(regions);
        // Handles are dropped outside of the lock.
        drop(all);
    }

    /// Fetches the results in the memory of an array of which a part will be written.
    ///
    /// # Safety
    /// The memory of these results still belongs to the program.
    pub(crate) unsafe fn fetch_range(&self, start: usize, bytes: usize) -> Outcome<()> {
        let regions = self.all();
        match regions.parts(start, bytes).is_empty() {
            true => Ok(()),
            // SAFETY: promised by the caller.
            false => unsafe { self.bring(&regions, start, bytes) },
        }
    }

    /// Keeps results that stay on servers after a block that wrote their memory last.
    pub(crate) fn keep(&self, parts: Vec<Part<Arc<MappedResult>>>) {
        let mut regions = self.lock();
        parts.into_iter().for_each(|part| regions.restore(part));
    }
}

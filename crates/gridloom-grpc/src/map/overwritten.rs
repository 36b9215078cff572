//! The previous content of memory that calls of a block write. If a call fails, the content is restored at the end of
//! the block, as with a plain call. Calls of the block that read the memory meanwhile fail too.

use std::collections::VecDeque;
use std::sync::Arc;

use gridloom::Grid;

use super::super::memory;
use super::super::remote_results::{MappedResult, Part, Regions, restore};
use super::super::session::GroupCall;

/// The memory of calls that have not ended, or that have failed.
#[derive(Default)]
pub(super) struct Overwritten {
    failed: Vec<Call>,
    /// Calls in the order in which they were made.
    open: VecDeque<Call>,
}

struct Call {
    limited: Arc<GroupCall>,
    results: Vec<PreviousContent>,
}

/// The previous content of one result's memory.
pub(super) struct PreviousContent {
    made: Arc<MappedResult>,
    /// Results that were elsewhere. All other memory still has its previous content.
    regions: Regions<Arc<MappedResult>>,
    /// Copies of memory by first address, if the memory is filled meanwhile.
    copies: Vec<(usize, Vec<u8>)>,
}

impl PreviousContent {
    /// Records the regions in `known` that `made` will overwrite, and copies the rest if the debug mode fills it.
    ///
    /// # Safety
    /// There is memory of this size.
    pub(super) unsafe fn new(
        known: &Regions<Arc<MappedResult>>,
        start: usize,
        bytes: usize,
        made: &Arc<MappedResult>,
        is_filled: bool,
    ) -> PreviousContent {
        let mut regions = Regions::default();
        let there = known.parts(start, bytes).into_iter().filter(|part| !part.writer.is_here());
        there.for_each(|part| regions.restore(part.within(start, start + bytes)));
        // SAFETY: promised by the caller.
        let copy = |(from, to): (usize, usize)| (from, unsafe { memory::bytes_at(from, to - from) });
        let copies =
            if is_filled { regions.gaps(start, start + bytes).into_iter().map(copy).collect() } else { Vec::new() };
        PreviousContent { made: made.clone(), regions, copies }
    }
}

impl Overwritten {
    /// Records a call that was made, with these results.
    pub(super) fn note(&mut self, limited: &Arc<GroupCall>, results: Vec<PreviousContent>) {
        self.open.push_back(Call { limited: limited.clone(), results });
    }

    /// Removes calls that have ended successfully, in the order of the calls.
    pub(super) fn forget_ended(&mut self) {
        while let Some(end) = self.open.front().and_then(|call| call.limited.call.end()) {
            let call = self.open.pop_front().expect("it was there just now");
            if end.error.is_some() || call.limited.expired().is_some() {
                self.failed.push(call);
            }
        }
    }

    /// Restores what failed calls should have overwritten, unless later calls wrote there. All calls have ended.
    ///
    /// # Safety
    /// The memory of the block's calls is valid.
    pub(super) unsafe fn restore(mut self, regions: &mut Regions<Arc<MappedResult>>, grid: &Grid) {
        self.failed.extend(self.open.drain(..).filter(|call| call.limited.await_end(grid).is_err()));
        // In reverse order: the previous content of one may be the missing result of another failed call.
        for former in self.failed.iter().rev().flat_map(|call| &call.results) {
            let own = regions.iter().filter(|part| Arc::ptr_eq(&part.writer, &former.made)).cloned();
            for Part { start, end, .. } in own.collect::<Vec<_>>() {
                regions.forget(start, end - start);
                for part in former.regions.parts(start, end - start) {
                    // SAFETY: promised by the caller.
                    unsafe { restore(regions, part.within(start, end)) };
                }
                for (first, bytes) in &former.copies {
                    let (from, to) = ((*first).max(start), (first + bytes.len()).min(end));
                    if from < to {
                        let place = std::ptr::with_exposed_provenance_mut(from);
                        // SAFETY: promised by the caller.
                        unsafe { memory::write(place, &bytes[from - first..to - first]) };
                    }
                }
            }
        }
    }
}

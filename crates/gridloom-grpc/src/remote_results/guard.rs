//! The debug mode of blocks. Memory whose value is elsewhere is filled with a conspicuous byte. Its whole pages are
//! closed, so that reads of them are detected.
//!
//! A read of a closed page is reported: which result belongs there, which call made it, and what the program should
//! have declared. The value is fetched and written, then the pages are opened, and the program continues with it. So
//! the program runs correctly, though not as planned. This also holds for other threads, since no page is open before
//! it has its value. Shared memory is an exception: it is opened first.
//!
//! **Invariants**
//! - Watched memory was passed to a call of a block for a result. It is watched as long as the result is in the
//!   block's regions and has not been fetched. The block opens it before anything else is written there, and opens all
//!   of it when it ends. If that fails it is watched again: a result that was fetched has all its parts.
//! - Pages that contain a byte of anything else are not closed.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use gridloom::Value;

use super::super::memory;
use super::faults::{Fault, Pages};
use super::mapped_result::MappedResult;
use super::regions::{Part, Regions};

/// The part of a block in the debug mode.
pub(crate) struct Guard {
    /// Detected reads; `None` if the block is not debugged.
    reads: Option<Arc<DetectedReads>>,
}

/// Descriptions of detected reads.
#[derive(Default)]
struct DetectedReads(Mutex<Vec<String>>);

/// A result that is elsewhere.
#[derive(Clone)]
struct WatchedResult {
    made: Arc<MappedResult>,
    reads: Arc<DetectedReads>,
}

/// Watched memory of all blocks.
struct WatchedMemory {
    regions: Regions<WatchedResult>,
    pages: Pages,
    /// The process that owns them.
    process: u32,
}

static ALL: LazyLock<Mutex<WatchedMemory>> = LazyLock::new(|| {
    Mutex::new(WatchedMemory { regions: Regions::default(), pages: Pages::new(), process: std::process::id() })
});
/// Number of debugged blocks: while it is 0, nothing is looked up.
static COUNT: AtomicUsize = AtomicUsize::new(0);

fn all() -> MutexGuard<'static, WatchedMemory> {
    let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
    all.reset_in_child();
    all
}

impl Guard {
    pub(crate) fn new(is_debugged: bool) -> Guard {
        if is_debugged {
            COUNT.fetch_add(1, Ordering::AcqRel);
        }
        Guard { reads: is_debugged.then(Arc::default) }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.reads.is_some()
    }

    /// Watches memory whose part of a result is elsewhere.
    pub(crate) fn watch(&self, part: &Part<Arc<MappedResult>>) {
        let Some(reads) = &self.reads else { return };
        let mut all = all();
        let bytes = part.end - part.start;
        let former = all.show(part.start, bytes);
        fill(part.start, bytes);
        if all.pages.watch(fetch_for_fault) {
            let watched = WatchedResult { made: part.writer.clone(), reads: reads.clone() };
            all.regions.restore(part.clone().of(watched));
            all.pages.close(part.start, part.end);
        }
        drop(all);
        // Results are dropped outside of the lock, here and below.
        drop(former);
    }

    /// Returns the detected reads.
    pub(crate) fn reads(&self) -> Vec<String> {
        let reads = self.reads.as_ref();
        reads.map(|reads| reads.0.lock().unwrap_or_else(PoisonError::into_inner).clone()).unwrap_or_default()
    }

    /// Stops watching memory of the block.
    pub(crate) fn unwatch_all(&self) {
        let Some(reads) = &self.reads else { return };
        let mut all = all();
        let own: Vec<Part<WatchedResult>> =
            all.regions.iter().filter(|part| Arc::ptr_eq(&part.writer.reads, reads)).cloned().collect();
        own.iter().for_each(|part| drop(all.show(part.start, part.end - part.start)));
        drop(all);
        drop(own);
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.unwatch_all();
        if self.is_on() {
            COUNT.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

/// Opens that memory for reading and writing.
pub(crate) fn show(start: usize, bytes: usize) {
    if COUNT.load(Ordering::Acquire) > 0 {
        let former = all().show(start, bytes);
        drop(former);
    }
}

/// Writes those parts of a result's value. The watched ones are closed until all are written, if that is possible.
/// Returns whether it was.
///
/// # Safety
/// They are in memory that was passed to a call for this result.
pub(crate) unsafe fn write(made: &MappedResult, value: &Value, parts: &[&Part<Arc<MappedResult>>]) -> bool {
    if COUNT.load(Ordering::Acquire) == 0 {
        // SAFETY: promised by the caller.
        return made.deliver_parts(value, parts, |start, bytes| unsafe { write_open(start, bytes) });
    }
    let mut all = all();
    // SAFETY: promised by the caller.
    let (is_in_time, former) = unsafe { all.write(made, value, parts) };
    drop(all);
    drop(former);
    is_in_time
}

unsafe fn write_open(start: usize, bytes: &[u8]) -> bool {
    // SAFETY: promised by the caller.
    unsafe { memory::write(std::ptr::with_exposed_provenance_mut(start), bytes) };
    true
}

impl WatchedMemory {
    /// In a child made by `fork`, opens the memory that the parent watched; the parent's results can be neither used
    /// nor dropped there.
    fn reset_in_child(&mut self) {
        let process = std::process::id();
        if std::mem::replace(&mut self.process, process) != process {
            self.pages.reset_in_child();
            std::mem::forget(std::mem::take(&mut self.regions));
        }
    }

    /// See the function of this name. Also returns what was watched there.
    unsafe fn write(
        &mut self,
        made: &MappedResult,
        value: &Value,
        parts: &[&Part<Arc<MappedResult>>],
    ) -> (bool, Vec<Part<WatchedResult>>) {
        let is_watched = parts.iter().any(|part| !self.regions.parts(part.start, part.end - part.start).is_empty());
        let is_in_time = is_watched && made.deliver_parts(value, parts, |start, bytes| self.pages.write(start, bytes));
        let former = parts.iter().flat_map(|part| self.show(part.start, part.end - part.start)).collect();
        if !is_in_time {
            // SAFETY: promised by the caller.
            made.deliver_parts(value, parts, |start, bytes| unsafe { write_open(start, bytes) });
        }
        (is_in_time || !is_watched, former)
    }

    /// Returns the watched parts of a result.
    fn parts_of(&self, made: &Arc<MappedResult>) -> Vec<Part<Arc<MappedResult>>> {
        let own = self.regions.iter().filter(|part| Arc::ptr_eq(&part.writer.made, made));
        own.map(|part| part.clone().of(made.clone())).collect()
    }

    /// Opens memory, and returns what was watched there.
    fn show(&mut self, start: usize, bytes: usize) -> Vec<Part<WatchedResult>> {
        let former = self.regions.parts(start, bytes);
        if !former.is_empty() {
            self.regions.forget(start, bytes);
            self.pages.open(start, start + bytes);
        }
        former
    }
}

/// Fetches the result of the faulting address, and reports that this was necessary.
fn fetch_for_fault(fault: &Fault) {
    let found = all().regions.at(fault.address).cloned();
    let Some(Part { start, offset, whole, writer: WatchedResult { made, reads }, .. }) = found else {
        // It was opened meanwhile.
        return;
    };
    let at = fault.address - start + offset;
    let (does, say) = match fault.is_write {
        false => ("reads", "announce it before with grpc_fetch or grpc_local_reads"),
        true => ("writes into", "announce it before with grpc_local_writes, and reads with grpc_local_reads"),
    };
    let mut text = format!(
        "the program {does} {}, byte {at} of {whole} at {:#x}, which is not in its memory; it was fetched now, \
         outside of the plan: {say}",
        made.name, fault.address
    );
    match made.value() {
        Ok(value) if !write_value(&made, &value) => text += BROUGHT_LATE,
        Ok(_) => {}
        Err(failed) => {
            text = format!("{text} (there is no value to fetch: {})", failed.text);
            let parts = all().parts_of(&made);
            parts.iter().for_each(|part| show(part.start, part.end - part.start));
        }
    }
    // If standard error is closed, there is no place to report it.
    let _ = std::io::Write::write_all(&mut std::io::stderr(), format!("gridloom: grpc_map: {text}\n").as_bytes());
    reads.0.lock().unwrap_or_else(PoisonError::into_inner).push(text);
}

const BROUGHT_LATE: &str = " (it was opened before it was written, because it is shared memory: other threads may \
                            have read the fill pattern meanwhile)";

/// Writes all watched parts of a result. Returns whether they were closed until then.
fn write_value(made: &Arc<MappedResult>, value: &Value) -> bool {
    let mut all = all();
    let parts = all.parts_of(made);
    if parts.is_empty() {
        // It was opened meanwhile.
        return true;
    }
    // SAFETY: memory that was passed to a block's call for this result. The block holds no other lock of it, and has
    // not passed it to anything else.
    let (is_in_time, former) = unsafe { all.write(made, value, &parts.iter().collect::<Vec<_>>()) };
    drop(all);
    drop(former);
    is_in_time
}

/// The byte that fills memory whose result is not fetched automatically.
const PATTERN: u8 = 0xFB;

fn fill(start: usize, bytes: usize) {
    let pattern = vec![PATTERN; bytes.min(1 << 16)];
    let mut at = 0;
    while at < bytes {
        let piece = &pattern[..pattern.len().min(bytes - at)];
        // SAFETY: memory that the program passed for a result of this size.
        unsafe { memory::write(std::ptr::with_exposed_provenance_mut(start + at), piece) };
        at += piece.len();
    }
}

//! Memory whose value is elsewhere: the program's reads of it are detected by closing its pages.
//!
//! When the program reads a closed page, the value is fetched and written, then the pages are opened, and the program
//! continues with it. This also holds for other threads, since no page is open before it has its value. Shared memory
//! is an exception: it is opened first.
//!
//! Before the program's own work in a block, large results that are elsewhere are watched in this way. Pages that they
//! share with other data of the program are closed too: whoever uses these data causes the fetch as well.
//!
//! In the debug mode, all results are watched from the call on. Their memory is filled with a conspicuous byte, and
//! reads are reported: which result belongs there, which call made it, and what the program should have declared. Pages
//! that contain a byte of anything else are not closed then.
//!
//! **Invariants**
//! - Watched memory was passed to a call of a block for a result. It is watched as long as the result is in the
//!   block's regions and has not been fetched. The block opens it before anything else is written there, and opens all
//!   of it when it ends. If that fails it is watched again: a result that was fetched has all its parts.
//! - A page that contains a byte of watched memory is opened only when the results of all that memory are there.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, Once, PoisonError};

use gridloom::Value;

use super::super::code::{Outcome, inside, is_inside};
use super::super::memory;
use super::faults::{Fault, Pages, page_bytes};
use super::mapped_result::MappedResult;
use super::own_pages::has_own_pages;
use super::regions::{Part, Regions};

/// Smallest result that is watched outside of the debug mode; smaller ones are fetched.
const WATCHED_BYTES_MIN: usize = 64 << 10;

/// The watched memory of a block.
pub(crate) struct Guard {
    reads: Arc<DetectedReads>,
    /// True if the block has watched memory.
    is_counted: bool,
}

/// Descriptions of detected reads.
struct DetectedReads {
    is_debugged: bool,
    texts: Mutex<Vec<String>>,
}

impl DetectedReads {
    fn lock(&self) -> MutexGuard<'_, Vec<String>> {
        self.texts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// True if reads of this memory can be detected without effects on anything but the program.
fn can_watch(start: usize, bytes: usize) -> bool {
    bytes >= WATCHED_BYTES_MIN && all().pages.watch(fetch_for_fault) && has_own_pages(start, start + bytes)
}

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
/// Number of blocks that have watched memory: while it is 0, nothing is looked up.
static COUNT: AtomicUsize = AtomicUsize::new(0);

fn all() -> MutexGuard<'static, WatchedMemory> {
    let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
    all.reset_in_child();
    all
}

impl Guard {
    pub(crate) fn new(is_debugged: bool) -> Guard {
        let mut guard =
            Guard { reads: Arc::new(DetectedReads { is_debugged, texts: Mutex::default() }), is_counted: false };
        if is_debugged {
            guard.count();
        }
        guard
    }

    fn count(&mut self) {
        if !std::mem::replace(&mut self.is_counted, true) {
            COUNT.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// True in the debug mode.
    pub(crate) fn is_debugged(&self) -> bool {
        self.reads.is_debugged
    }

    /// In the debug mode, fills and watches memory whose part of a result is elsewhere.
    pub(crate) fn watch(&self, part: &Part<Arc<MappedResult>>) {
        if !self.reads.is_debugged {
            return;
        }
        let mut all = all();
        let bytes = part.end - part.start;
        let former = all.show(part.start, bytes);
        fill(part.start, bytes);
        if all.pages.watch(fetch_for_fault) {
            let watched = WatchedResult { made: part.writer.clone(), reads: self.reads.clone() };
            all.regions.restore(part.clone().of(watched));
            all.pages.close(part.start, part.end);
        }
        drop(all);
        // Results are dropped outside of the lock, here and below.
        drop(former);
    }

    /// Watches a part of a result before the program's own work. Returns whether each read of it will be detected.
    pub(crate) fn watch_own_work(&mut self, part: &Part<Arc<MappedResult>>) -> bool {
        if !can_watch(part.start, part.end - part.start) {
            return false;
        }
        open_before_fork();
        self.count();
        let mut all = all();
        let is_watched = |known: &Part<WatchedResult>| Arc::ptr_eq(&known.writer.made, &part.writer);
        let known = all.regions.parts(part.start, part.end - part.start);
        if known.len() == 1 && known.iter().all(is_watched) && known[0].end >= part.end && known[0].start <= part.start
        {
            return true;
        }
        let former = all.show(part.start, part.end - part.start);
        let is_closed = all.pages.close_all(part.start, part.end);
        if is_closed {
            let watched = WatchedResult { made: part.writer.clone(), reads: self.reads.clone() };
            all.regions.restore(part.clone().of(watched));
        }
        drop(all);
        drop(former);
        is_closed
    }

    /// Adds a finding of the debug mode.
    pub(crate) fn add(&self, text: String) {
        // If standard error is closed, there is no place to report it.
        let _ = std::io::Write::write_all(&mut std::io::stderr(), format!("gridloom: grpc_map: {text}\n").as_bytes());
        self.reads.lock().push(text);
    }

    /// Returns the detected reads, and other findings.
    pub(crate) fn reads(&self) -> Vec<String> {
        self.reads.lock().clone()
    }

    /// Stops watching memory of the block.
    pub(crate) fn unwatch_all(&self) {
        if !self.is_counted {
            return;
        }
        let mut all = all();
        let own: Vec<Part<WatchedResult>> =
            all.regions.iter().filter(|part| Arc::ptr_eq(&part.writer.reads, &self.reads)).cloned().collect();
        own.iter().for_each(|part| drop(all.show(part.start, part.end - part.start)));
        drop(all);
        drop(own);
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.unwatch_all();
        if self.is_counted {
            COUNT.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

/// Makes `fork` fetch and open all watched memory first: a child has the results neither in its memory nor elsewhere.
fn open_before_fork() {
    static ONCE: Once = Once::new();
    extern "C" fn open_all() {
        // The library itself starts processes, also while it waits for results. These run other programs.
        if COUNT.load(Ordering::Acquire) == 0 || is_inside() {
            return;
        }
        let watched: Vec<WatchedResult> = all().regions.iter().map(|part| part.writer.clone()).collect();
        for WatchedResult { made, .. } in watched {
            let _ = bring(&made);
        }
    }
    ONCE.call_once(|| {
        // SAFETY: a function that lives as long as the process. If this fails, children see the memory before the call.
        _ = unsafe { libc::pthread_atfork(Some(open_all), None, None) };
    });
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
        let is_closed = parts.iter().any(|part| self.pages.has_closed(part.start, part.end));
        let is_in_time = is_closed && made.deliver_parts(value, parts, |start, bytes| self.pages.write(start, bytes));
        let former = parts.iter().flat_map(|part| self.show(part.start, part.end - part.start)).collect();
        if !is_in_time {
            // Also pages that other watched memory has kept closed: this thread must not wait for itself.
            parts.iter().for_each(|part| self.pages.open(part.start, part.end));
            // SAFETY: promised by the caller.
            made.deliver_parts(value, parts, |start, bytes| unsafe { write_open(start, bytes) });
        }
        (is_in_time || !is_closed, former)
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
            let (first, end) = self.pages_without_others(start, start + bytes);
            if first < end {
                self.pages.open(first, end);
            }
        }
        former
    }

    /// Returns the pages of this memory, without a first or last page that contains other watched memory.
    fn pages_without_others(&self, start: usize, end: usize) -> (usize, usize) {
        let page = page_bytes();
        let (mut first, mut last) = (start / page * page, end.next_multiple_of(page));
        let is_watched = |from: usize| self.regions.parts(from, page).iter().any(|part| !part.writer.reads.is_debugged);
        if is_watched(first) {
            first += page;
        }
        if first < last && is_watched(last - page) {
            last -= page;
        }
        (first, last)
    }
}

/// Fetches the results in the faulting page, on the thread that opens pages.
fn fetch_for_fault(fault: &Fault) {
    inside(|| fetch_page_of(fault));
}

/// Fetches the results in the faulting page. If the debug mode watches them, reports that this was necessary.
fn fetch_page_of(fault: &Fault) {
    let page = fault.address / page_bytes() * page_bytes();
    let found = all().regions.parts(page, page_bytes());
    for part in found {
        let is_read = part.start <= fault.address && fault.address < part.end;
        let (made, reads) = (&part.writer.made, &part.writer.reads);
        let brought = bring(made);
        if !is_read {
            continue;
        }
        match reads.is_debugged {
            true => report(fault, &part, brought),
            false if brought.is_ok() => reads.lock().push(format!(
                "{} was fetched when the program used its memory; grpc_local_reads would make this part of the plan",
                made.name
            )),
            false => {}
        }
    }
}

/// Fetches a result for memory that is watched, and opens the memory. Returns whether it was closed until then.
fn bring(made: &Arc<MappedResult>) -> Outcome<bool> {
    let value = made.value().inspect_err(|_| {
        let parts = all().parts_of(made);
        parts.iter().for_each(|part| show(part.start, part.end - part.start));
    })?;
    Ok(write_value(made, &value))
}

/// Reports a read or write that the program should have announced.
fn report(fault: &Fault, part: &Part<WatchedResult>, brought: Outcome<bool>) {
    let Part { start, offset, whole, writer: WatchedResult { made, reads }, .. } = part;
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
    match brought {
        Ok(true) => {}
        Ok(false) => text += BROUGHT_LATE,
        Err(failed) => text = format!("{text} (there is no value to fetch: {})", failed.text),
    }
    // If standard error is closed, there is no place to report it.
    let _ = std::io::Write::write_all(&mut std::io::stderr(), format!("gridloom: grpc_map: {text}\n").as_bytes());
    reads.lock().push(text);
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

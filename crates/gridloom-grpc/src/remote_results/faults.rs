//! Faults on guarded pages: a thread that touches one waits until another thread has opened it, and then continues.
//!
//! The handler does only what a signal handler may do. It looks up the address in numbers that are only ever changed
//! one by one. It notifies the thread that opens pages through a pipe, and waits. Every other fault is passed to the
//! handler that was installed before.
//!
//! **Invariants:** each closed page is in a slot. Slots and the protection of pages are changed under one lock, which
//! is not this module's (it owns `Pages`). A thread that finds no slot for a fault on a closed page finds that pages
//! were opened meanwhile.
//!
//! A child made by `fork` has the slots and the handler, but not the thread. Its pages are only opened, until it
//! watches for faults itself.
//!
//! **Limits:** this is for Linux, and does not work under valgrind, which does not continue precisely at the faulting
//! instruction. A system call that gets closed memory fails with `EFAULT`; `system_calls` opens it before the usual
//! ones. Shared memory cannot be written while it is closed. A handler that the program installs later must pass on
//! faults that are not its own.

use std::ffi::{c_int, c_void};
use std::io::{PipeReader, Read};
use std::os::fd::IntoRawFd;
use std::os::unix::fs::FileExt;
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicUsize, Ordering};

/// A fault for which a thread waits.
pub(super) struct Fault {
    pub(super) address: usize,
    /// True if the program was about to write there; if this is unknown, it is false.
    pub(super) is_write: bool,
}

/// The closed pages. Only its owner changes them.
pub(super) struct Pages {
    /// Whether faults are handled; `None` before this was first requested.
    is_watched: Option<bool>,
}

/// Runs of closed pages, each from its first address up to its end; no such run begins at 0.
static SLOTS: [Slot; SLOTS_MAX] = [const { Slot { start: AtomicUsize::new(0), end: AtomicUsize::new(0) } }; SLOTS_MAX];
/// Maximum number of guarded runs; more are not guarded, because the handler searches all of them.
const SLOTS_MAX: usize = 4096;

struct Slot {
    start: AtomicUsize,
    end: AtomicUsize,
}

/// Number of slots with closed pages.
static CLOSED: AtomicUsize = AtomicUsize::new(0);

/// True if some page is closed.
pub(super) fn has_closed() -> bool {
    CLOSED.load(Ordering::Relaxed) > 0
}

/// Reads a byte of each run of closed pages in this memory, so that they are opened.
pub(super) fn touch(start: usize, bytes: usize) {
    let end = start.saturating_add(bytes);
    for slot in &SLOTS {
        loop {
            let (first, last) = slot.range();
            let at = first.max(start);
            if first == 0 || at >= last.min(end) {
                break;
            }
            // SAFETY: a byte of memory that the caller's program passes to a function that reads or writes it.
            unsafe { std::ptr::with_exposed_provenance::<u8>(at).read_volatile() };
            if slot.range() == (first, last) {
                // It could be read: it was opened meanwhile.
                break;
            }
        }
    }
}

impl Slot {
    const fn has(first: usize, end: usize, address: usize) -> bool {
        first != 0 && first <= address && address < end
    }

    fn range(&self) -> (usize, usize) {
        let start = self.start.load(Ordering::Acquire);
        (start, self.end.load(Ordering::Acquire))
    }

    fn set(&self, start: usize, end: usize) {
        let before = self.start.swap(0, Ordering::AcqRel);
        self.end.store(end, Ordering::Release);
        self.start.store(start, Ordering::Release);
        match (before == 0, start == 0) {
            (true, false) => _ = CLOSED.fetch_add(1, Ordering::AcqRel),
            (false, true) => _ = CLOSED.fetch_sub(1, Ordering::AcqRel),
            (true, true) | (false, false) => {}
        }
    }
}

impl Pages {
    pub(super) const fn new() -> Pages {
        Pages { is_watched: None }
    }

    /// Starts handling faults, by calling `open` on a thread of its own; this lasts as long as the process. Returns
    /// whether it is possible.
    pub(super) fn watch(&mut self, open: fn(&Fault)) -> bool {
        *self.is_watched.get_or_insert_with(|| !is_in_valgrind() && start(open).is_some())
    }

    /// Called in a child made by `fork`: opens the pages that the parent had closed. Nobody watches for faults then.
    pub(super) fn reset_in_child(&mut self) {
        self.open(0, usize::MAX / page_bytes() * page_bytes());
        self.is_watched = None;
    }

    /// True if a page with a byte from `start` up to `end` is closed.
    pub(super) fn has_closed(&self, start: usize, end: usize) -> bool {
        let overlaps = |(first, last): (usize, usize)| first != 0 && first < end && start < last;
        has_closed() && SLOTS.iter().map(Slot::range).any(overlaps)
    }

    /// Writes to memory, closed or not, if that is possible; if it fails, part of the bytes may be written.
    pub(super) fn write(&mut self, start: usize, bytes: &[u8]) -> bool {
        // The file is of this process: an open one would still be the parent's after a fork. The system writes to
        // private memory, however it is protected.
        let memory = std::fs::OpenOptions::new().write(true).open("/proc/self/mem");
        memory.and_then(|memory| memory.write_all_at(bytes, start as u64)).is_ok()
    }

    /// Closes the whole pages from `start` up to `end`, if there are any and if that is possible.
    pub(super) fn close(&mut self, start: usize, end: usize) {
        let page = page_bytes();
        self.close_pages(start.next_multiple_of(page), end / page * page);
    }

    /// Closes all pages that have a byte from `start` up to `end`. Returns whether that was possible.
    pub(super) fn close_all(&mut self, start: usize, end: usize) -> bool {
        let page = page_bytes();
        self.close_pages(start / page * page, end.next_multiple_of(page))
    }

    fn close_pages(&mut self, first: usize, end: usize) -> bool {
        if first >= end {
            return false;
        }
        let Some(slot) = SLOTS.iter().find(|slot| slot.start.load(Ordering::Relaxed) == 0) else { return false };
        slot.set(first, end);
        let is_closed = protect(first, end, libc::PROT_NONE);
        if !is_closed {
            slot.set(0, 0);
        }
        is_closed
    }

    /// Opens all pages that have a byte from `start` up to `end`.
    pub(super) fn open(&mut self, start: usize, end: usize) {
        let page = page_bytes();
        let (start, end) = (start / page * page, end.next_multiple_of(page));
        for slot in &SLOTS {
            let (first, last) = slot.range();
            if first == 0 || last <= start || end <= first {
                continue;
            }
            open_run(first.max(start), last.min(end));
            OPENINGS.fetch_add(1, Ordering::AcqRel);
            // A part that stays closed is in a slot all the time.
            if end < last {
                self.keep(end, last);
            }
            match first < start {
                true => slot.end.store(start, Ordering::Release),
                false => slot.set(0, 0),
            }
        }
    }

    /// Keeps the rest of a run closed, if there is a slot for it.
    fn keep(&mut self, start: usize, end: usize) {
        match SLOTS.iter().find(|slot| slot.start.load(Ordering::Relaxed) == 0) {
            Some(slot) => slot.set(start, end),
            None => open_run(start, end),
        }
    }
}

pub(super) fn page_bytes() -> usize {
    // SAFETY: only queries a number.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

/// Opens memory that was closed, so it can be read and written.
fn open_run(start: usize, end: usize) {
    protect(start, end, libc::PROT_READ | libc::PROT_WRITE);
}

fn protect(start: usize, end: usize, protection: c_int) -> bool {
    let pointer = std::ptr::with_exposed_provenance_mut::<c_void>(start);
    // SAFETY: whole pages of memory that the program passed to a call.
    unsafe { libc::mprotect(pointer, end - start, protection) == 0 }
}

/// Data of the handler, set before the handler is installed.
static PIPE: AtomicI32 = AtomicI32::new(-1);
static PROCESS: AtomicI32 = AtomicI32::new(0);
static OPENER: AtomicI32 = AtomicI32::new(0);
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();
/// True if the previous handler was for one fault only, and has handled it.
static IS_BEFORE_OVER: AtomicBool = AtomicBool::new(false);

/// True under valgrind, which loads a library of its own into every program.
fn is_in_valgrind() -> bool {
    std::env::var("LD_PRELOAD").is_ok_and(|libraries| libraries.contains("/vgpreload_"))
}

fn start(open: fn(&Fault)) -> Option<()> {
    let (asked, asks) = std::io::pipe().ok()?;
    spawn(move || serve_requests(asked, open))?;
    PIPE.store(asks.into_raw_fd(), Ordering::Release);
    PROCESS.store(std::process::id().cast_signed(), Ordering::Release);
    // A child has its parent's handler.
    if BEFORE.get().is_some() { Some(()) } else { set_handler() }
}

/// Starts a thread that accepts no signals except its own faults: the program's handlers run on the program's threads.
fn spawn(run: impl FnOnce() + Send + 'static) -> Option<()> {
    let mut taken = std::mem::MaybeUninit::<libc::sigset_t>::zeroed();
    let mut before = std::mem::MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: a set that is filled before it is used; a thread inherits the signal mask of the thread that starts it.
    unsafe {
        libc::sigfillset(taken.as_mut_ptr());
        libc::sigdelset(taken.as_mut_ptr(), libc::SIGSEGV);
        libc::sigdelset(taken.as_mut_ptr(), libc::SIGBUS);
        if libc::pthread_sigmask(libc::SIG_SETMASK, taken.as_ptr(), before.as_mut_ptr()) != 0 {
            return None;
        }
    }
    let spawned = std::thread::Builder::new().name("gridloom-guard".into()).spawn(run);
    // SAFETY: restores the previous mask.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), null_mut()) };
    spawned.is_ok().then_some(())
}

fn serve_requests(mut asked: PipeReader, open: fn(&Fault)) {
    OPENER.store(thread_id(), Ordering::Release);
    let mut address = [0; size_of::<usize>()];
    while asked.read_exact(&mut address).is_ok() {
        let asked = std::ptr::with_exposed_provenance::<FaultRequest>(usize::from_ne_bytes(address));
        // SAFETY: it is on the stack of a thread that waits until it is done.
        let asked = unsafe { &*asked };
        // Whatever fails, the waiting thread continues.
        let _ = std::panic::catch_unwind(|| open(&asked.fault));
        open_still_closed(asked.fault.address);
        asked.is_done.store(1, Ordering::Release);
        // SAFETY: wakes the thread that waits for that number. If that thread has seen the number already, the thread
        // and the number may no longer exist: then nobody is woken.
        unsafe { libc::syscall(libc::SYS_futex, &raw const asked.is_done, libc::FUTEX_WAKE, 1) };
    }
}

fn set_handler() -> Option<()> {
    let mut action = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    let mut before = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: an action with all fields set or zero, which is an empty mask; the handler calls only async-signal-safe
    // functions. The previous handler is stored before the new one is installed, so that the new one never lacks it.
    unsafe {
        if libc::sigaction(libc::SIGSEGV, null_mut(), before.as_mut_ptr()) != 0 {
            return None;
        }
        BEFORE.set(before.assume_init()).ok()?;
        let wanted = action.assume_init_mut();
        wanted.sa_sigaction = on_fault as *const () as usize;
        wanted.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
        (libc::sigaction(libc::SIGSEGV, wanted, null_mut()) == 0).then_some(())
    }
}

fn open_still_closed(address: usize) {
    let runs = SLOTS.iter().map(Slot::range).filter(|(start, end)| Slot::has(*start, *end, address));
    runs.for_each(|(start, end)| open_run(start, end));
}

fn thread_id() -> c_int {
    // SAFETY: only queries a number.
    unsafe { libc::syscall(libc::SYS_gettid) as c_int }
}

/// A fault, and whether it was handled.
struct FaultRequest {
    fault: Fault,
    is_done: AtomicU32,
}

extern "C" fn on_fault(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the system's description of the fault.
    let (address, code) = unsafe { ((*info).si_addr().addr(), (*info).si_code) };
    if code == SEGV_ACCERR {
        let found = SLOTS.iter().map(Slot::range).find(|(start, end)| Slot::has(*start, *end, address));
        match found {
            Some(run) => return wait_until_open(address, run, context),
            // It may have been opened just now: then it does not occur again.
            None if is_first(address) => return,
            None => {}
        }
    }
    pass_on(signal, info, context);
}

/// The page exists, but this access is not permitted.
const SEGV_ACCERR: c_int = 2;

/// Number of times that pages were opened.
static OPENINGS: AtomicUsize = AtomicUsize::new(0);
/// Faults without a slot: the last one of each thread, or of threads that share an entry.
static LAST: [LastFault; 64] = [const { LastFault::new() }; 64];

struct LastFault {
    address: AtomicUsize,
    thread: AtomicI32,
    openings: AtomicUsize,
}

impl LastFault {
    const fn new() -> LastFault {
        LastFault { address: AtomicUsize::new(0), thread: AtomicI32::new(0), openings: AtomicUsize::new(0) }
    }
}

/// True if this is the thread's first fault without a slot at that address, or if pages were opened since.
fn is_first(address: usize) -> bool {
    let (thread, openings) = (thread_id(), OPENINGS.load(Ordering::Acquire));
    let last = &LAST[thread.unsigned_abs() as usize % LAST.len()];
    let was = (
        last.address.swap(address, Ordering::AcqRel),
        last.thread.swap(thread, Ordering::AcqRel),
        last.openings.swap(openings, Ordering::AcqRel),
    );
    was != (address, thread, openings)
}

/// Waits until the page is open.
fn wait_until_open(address: usize, (start, end): (usize, usize), context: *mut c_void) {
    // SAFETY: queries a number; and the thread's own error number, which is restored.
    let (process, errno) = unsafe { (libc::getpid(), libc::__errno_location()) };
    // SAFETY: as above.
    let error = unsafe { *errno };
    let asked = FaultRequest { fault: Fault { address, is_write: is_write(context) }, is_done: AtomicU32::new(0) };
    let pointer = (&raw const asked).expose_provenance();
    let is_own = process == PROCESS.load(Ordering::Acquire) && thread_id() != OPENER.load(Ordering::Acquire);
    // SAFETY: this many bytes of a number.
    let is_told = is_own
        && unsafe {
            libc::syscall(libc::SYS_write, PIPE.load(Ordering::Acquire), &raw const pointer, size_of::<usize>())
        } == size_of::<usize>() as i64;
    if is_told {
        while asked.is_done.load(Ordering::Acquire) == 0 {
            // SAFETY: waits while the number is 0.
            unsafe {
                libc::syscall(libc::SYS_futex, &raw const asked.is_done, libc::FUTEX_WAIT, 0, null_mut::<c_void>())
            };
        }
    } else {
        // A child of the process, in which no thread opens pages, or the thread that opens them itself.
        open_run(start, end);
    }
    // SAFETY: as above.
    unsafe { *errno = error };
}

/// True if the program was about to write.
#[cfg(target_arch = "x86_64")]
fn is_write(context: *mut c_void) -> bool {
    let context: *const libc::ucontext_t = context.cast();
    // SAFETY: the system's description of the program's state. The second bit of the fault's error code has the answer.
    unsafe { (*context).uc_mcontext.gregs[libc::REG_ERR as usize] & 2 != 0 }
}

#[cfg(not(target_arch = "x86_64"))]
fn is_write(_: *mut c_void) -> bool {
    false
}

/// Passes on a fault that is not of guarded pages.
fn pass_on(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let before = BEFORE.get().expect("it is set before the handler is");
    let is_handled = !matches!(before.sa_sigaction, libc::SIG_DFL | libc::SIG_IGN);
    let is_once = before.sa_flags & libc::SA_RESETHAND != 0;
    // SAFETY: the previous handler, called as the system would have called it. If there is none, the system's own
    // handling is restored: a fault then occurs again, and a signal that somebody has sent is sent again.
    unsafe {
        if is_handled && !(is_once && IS_BEFORE_OVER.swap(true, Ordering::AcqRel)) {
            if before.sa_flags & libc::SA_SIGINFO != 0 {
                let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) =
                    std::mem::transmute(before.sa_sigaction);
                handler(signal, info, context);
            } else {
                let handler: extern "C" fn(c_int) = std::mem::transmute(before.sa_sigaction);
                handler(signal);
            }
            return;
        }
        let mut default = std::mem::MaybeUninit::<libc::sigaction>::zeroed().assume_init();
        default.sa_sigaction = libc::SIG_DFL;
        libc::sigaction(signal, &raw const default, null_mut());
        if (*info).si_code <= 0 {
            libc::raise(signal);
        }
    }
}

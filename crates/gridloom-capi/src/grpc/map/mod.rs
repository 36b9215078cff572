//! `grpc_map`: blocks of calls that are discovered, mapped together, and then made. `include/grpc_map.h` says what they
//! promise, `GRIDRPC.md` how it is kept.
//!
//! | file | what it holds |
//! |---|---|
//! | here | a thread's block and its phases; what the header's macros ask for |
//! | `regions` | who wrote which memory last |
//! | `known` | what a run knows of memory: regions, buffers, what was passed |
//! | `discover` | the first run: calls to a described graph, sessions that have ended at once |
//! | `follow` | the second run: calls in their places in the plan |
//! | `made` | results that may be elsewhere, and those that stay there when a block has ended |
//! | `overwritten` | what memory held before a call wrote there, for when it fails |
//! | `guard` | the debug mode: memory whose value is elsewhere, and who reads it |
//! | `faults` | pages that may not be touched, and who waits for them |

mod discover;
mod faults;
mod follow;
mod guard;
mod known;
mod made;
mod overwritten;
mod regions;

use std::cell::RefCell;
use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;

use super::arguments::Survey;
use super::calls::Opened;
use super::code::{Failed, GRPC_NO_ERROR, Outcome, run};
use super::library::{Library, library};
use super::memory;
pub(super) use discover::Discovery;
use follow::{Ended, Run};
pub(super) use made::Staying;

/// `grpc_mapped_np`: its beginning, which is all that the library uses.
#[derive(Debug)]
#[repr(C)]
pub struct CMapped {
    number: u64,
    phase: c_int,
}

/// Phases of a block, as `grpc_mapped_np` has them.
const DISCOVERING: c_int = 1;
const MAPPED: c_int = 2;
const OVER: c_int = 3;

/// The outermost block that a thread is in.
struct Block {
    library: Arc<Library>,
    heuristic: String,
    stage: Stage,
}

enum Stage {
    Discovering(Discovery),
    Mapped(Run),
}

/// What is remembered of a thread's last block that has ended.
#[derive(Default)]
struct Last {
    failed: Option<Failed>,
    report: Option<String>,
}

thread_local! {
    static BLOCK: RefCell<Option<Block>> = const { RefCell::new(None) };
    static LAST: RefCell<Last> = RefCell::default();
}

/// What `look` finds in the block that this thread is in. A thread that ends is in none; nor is a callback that runs
/// meanwhile on this thread, whose calls are plain ones.
fn in_block<R>(look: impl FnOnce(&mut Block) -> R) -> Option<R> {
    let mut taken = Taken(set_block(None));
    taken.0.as_mut().map(look)
}

/// A block that is put back, whatever happens.
struct Taken(Option<Block>);

impl Drop for Taken {
    fn drop(&mut self) {
        if let Some(block) = self.0.take() {
            set_block(Some(block));
        }
    }
}

/// Whether this thread is in a block.
pub(super) fn is_open() -> bool {
    BLOCK.try_with(|block| block.borrow().is_some()).unwrap_or(false)
}

/// Whether memory has the value that the program means there: not before a block was run through, nor where a call of it has
/// put its result.
pub(super) fn has_value(address: usize) -> bool {
    in_block(|block| match &block.stage {
        Stage::Discovering(_) => false,
        Stage::Mapped(run) => !run.has_result(address),
    })
    .unwrap_or(true)
}

/// What `look` finds out, if this thread's calls are being discovered.
pub(super) fn discovering<R>(look: impl FnOnce(&mut Discovery, &Library) -> R) -> Option<R> {
    in_block(|block| match &mut block.stage {
        Stage::Discovering(discovery) => Some(look(discovery, &block.library)),
        Stage::Mapped(_) => None,
    })
    .flatten()
}

/// A blocking call in a block.
///
/// # Safety
/// What was passed is as the signature says (`memory`).
pub(super) unsafe fn call(opened: &Opened, survey: Survey<'_>) -> Outcome<()> {
    in_block(|block| match &mut block.stage {
        Stage::Discovering(discovery) => discovery.call(opened, &survey.items),
        // SAFETY: promised by the caller.
        Stage::Mapped(run) => unsafe { run.call(opened, survey) },
    })
    .unwrap_or_else(|| Err(no_block()))
}

/// Whether a handle is not to be destructed now, since the block's second run needs it: it is of before the block.
pub(super) fn keeps_handle(number: u64) -> bool {
    discovering(|discovery, _| discovery.keeps_handle(number)).unwrap_or(false)
}

/// A call that is begun in a block; the session's id.
///
/// # Safety
/// As for [`run`], until the block has ended.
pub(super) unsafe fn begin(opened: &Opened, survey: Survey<'_>) -> Outcome<c_int> {
    in_block(|block| match &mut block.stage {
        Stage::Discovering(discovery) => {
            discovery.call(opened, &survey.items)?;
            Ok(discovery.begin_session(opened))
        }
        // SAFETY: promised by the caller.
        Stage::Mapped(run) => unsafe { run.begin(opened, survey) },
    })
    .unwrap_or_else(|| Err(no_block()))
}

fn no_block() -> Failed {
    Failed::other("the thread's block of grpc_map has ended")
}

/// A block begins; 0 if the thread is in one already, which it joins.
fn begin_block(heuristic: Option<&str>) -> Outcome<u64> {
    let library = library();
    let is_own = |block: &mut Block| library.as_ref().is_ok_and(|library| Arc::ptr_eq(library, &block.library));
    match in_block(is_own) {
        Some(true) => return Ok(0),
        // Of a session that has ended: it was left by a jump.
        Some(false) => drop(set_block(None)),
        None => {}
    }
    let library = library?;
    let heuristic = heuristic.unwrap_or(&library.heuristic).to_string();
    let discovery = Discovery::new(&library);
    let number = LAST_NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1;
    set_block(Some(Block { library, heuristic, stage: Stage::Discovering(discovery) }));
    Ok(number)
}

static LAST_NUMBER: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);

/// The former block is dropped outside of the cell: what it ends may ask for this thread's.
fn set_block(block: Option<Block>) -> Option<Block> {
    BLOCK.try_with(|place| std::mem::replace(&mut *place.borrow_mut(), block)).ok().flatten()
}

fn remember(last: Last) {
    let _ = LAST.try_with(|place| *place.borrow_mut() = last);
}

/// What was discovered is mapped, and is made from now on.
fn begin_second_run() {
    let Some(Block { library, heuristic, stage: Stage::Discovering(discovery), .. }) = set_block(None) else { return };
    let run = Run::new(&library, &heuristic, discovery);
    set_block(Some(Block { library, heuristic, stage: Stage::Mapped(run) }));
}

/// The block's end: its calls have ended, and its results are written.
fn end_block() {
    let Some(Block { library, stage: Stage::Mapped(run), .. }) = set_block(None) else { return };
    // SAFETY: the memory of the block's calls is valid until it ends, as the header asks.
    let Ended { failed, report } = unsafe { run.end(&library) };
    remember(Last { failed, report });
}

/// See `grpc_map.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_map_begin_np(
    mapped: *mut CMapped,
    heuristic: *const c_char,
    _file: *const c_char,
    _line: c_int,
) {
    let mut number = 0;
    let began = run_quietly(|| {
        let heuristic = match heuristic.is_null() {
            true => None,
            // SAFETY: a text, as the header asks.
            false => Some(unsafe { memory::text(heuristic, "the heuristic") }?),
        };
        number = begin_block(heuristic)?;
        Ok(())
    });
    if let Err(failed) = began {
        remember(Last { failed: Some(failed), report: None });
    }
    // SAFETY: memory of the macro's own variable.
    unsafe {
        (&raw mut (*mapped).number).write(number);
        (&raw mut (*mapped).phase).write(0);
    }
}

/// Runs what goes on between phases; no panic leaves it, and the thread's last error stays as it is.
fn run_quietly(step: impl FnOnce() -> Outcome<()>) -> Outcome<()> {
    let mut outcome = Ok(());
    let code = run(|| {
        outcome = step();
        Ok(())
    });
    if code == GRPC_NO_ERROR { outcome } else { Err(Failed::other("an error of the library itself in grpc_map")) }
}

/// See `grpc_map.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_map_next_np(mapped: *mut CMapped) -> c_int {
    // SAFETY: memory of the macro's own variable, which only its thread uses.
    let (number, phase) = unsafe { ((*mapped).number, (*mapped).phase) };
    let next = match (number, phase) {
        // It joins another, or cannot be mapped: it runs once.
        (0, 0) => MAPPED,
        (0, _) => OVER,
        (_, 0) => DISCOVERING,
        (_, DISCOVERING) => MAPPED,
        (_, _) => OVER,
    };
    let step = run_quietly(|| {
        match (number, phase, next) {
            (0, ..) | (_, OVER, _) => {}
            (_, _, MAPPED) => begin_second_run(),
            (_, _, OVER) => end_block(),
            (..) => {}
        }
        Ok(())
    });
    if let Err(failed) = step {
        remember(Last { failed: Some(failed), report: None });
    }
    // SAFETY: as above.
    unsafe { (&raw mut (*mapped).phase).write(next) };
    c_int::from(next != OVER)
}

/// See `grpc_map.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_map_leave_np(mapped: *mut CMapped, is_for_good: c_int) -> c_int {
    // SAFETY: memory of the macro's own variable, which only its thread uses.
    let (number, phase) = unsafe { ((*mapped).number, (*mapped).phase) };
    if number == 0 || phase == OVER || phase == 0 {
        return 0;
    }
    if is_for_good != 0 {
        drop(set_block(None));
    } else if phase == DISCOVERING {
        return 1;
    } else if let Err(failed) = run_quietly(|| {
        end_block();
        Ok(())
    }) {
        remember(Last { failed: Some(failed), report: None });
    }
    // SAFETY: as above.
    unsafe { (&raw mut (*mapped).phase).write(OVER) };
    0
}

/// See `grpc_map.h`.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn grpc_local_np() -> c_int {
    let is_discovered = in_block(|block| match &mut block.stage {
        Stage::Discovering(discovery) => {
            discovery.program_writes();
            true
        }
        Stage::Mapped(run) => {
            run.program_writes();
            false
        }
    });
    c_int::from(is_discovered != Some(true))
}

/// See `grpc_map.h`.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn grpc_map_phase_np() -> c_int {
    let phase = in_block(|block| match block.stage {
        Stage::Discovering(_) => DISCOVERING,
        Stage::Mapped(_) => MAPPED,
    });
    phase.unwrap_or(0)
}

/// See `grpc_map.h`.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn grpc_map_error_np() -> c_int {
    run(|| {
        let failed = LAST.try_with(|last| last.borrow().failed.clone()).ok().flatten();
        failed.map_or(Ok(()), Err)
    })
}

/// See `grpc_map.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_map_report_np(file_name: *const c_char) -> c_int {
    run(|| {
        let report = LAST.try_with(|last| last.borrow().report.clone()).ok().flatten();
        let report = report.ok_or_else(|| Failed::other("no block of grpc_map with calls has ended in this thread"))?;
        if file_name.is_null() {
            // Nobody reads on: there is nowhere to say it.
            let _ = std::io::Write::write_all(&mut std::io::stderr(), report.as_bytes());
            return Ok(());
        }
        // SAFETY: a text, as the header asks.
        let name = unsafe { memory::text(file_name, "the name of the file") }?;
        std::fs::write(name, report).map_err(|error| Failed::other(format!("{name}: {error}")))
    })
}

/// See `grpc_map.h`.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn grpc_fetch(pointer: *const c_void) -> c_int {
    run(|| fetch(&*library()?, pointer.addr()))
}

fn fetch(library: &Library, address: usize) -> Outcome<()> {
    let in_block = in_block(|block| match &mut block.stage {
        Stage::Discovering(discovery) => {
            discovery.fetch(address);
            Ok(())
        }
        // SAFETY: the memory of the block's calls is valid until it ends, as the header asks.
        Stage::Mapped(run) => unsafe { run.fetch(address) },
    });
    // SAFETY: as above, of what stays remote until it is fetched.
    in_block.unwrap_or_else(|| unsafe { library.staying.fetch(address) })
}

/// See `grpc_map.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_fetch_all_np(pointers: *const *const c_void) -> c_int {
    run(|| {
        let library = library()?;
        // SAFETY: a list that ends with a null pointer, as the header has it.
        let addresses = unsafe { addresses(pointers) }?;
        // All are asked for before the first is waited for.
        in_block(|block| {
            if let Stage::Mapped(run) = &mut block.stage {
                run.prefetch(&addresses);
            }
        });
        let outcomes: Vec<Outcome<()>> = addresses.iter().map(|address| fetch(&library, *address)).collect();
        outcomes.into_iter().collect()
    })
}

/// See `grpc_map.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_written_np(pointers: *const *const c_void) -> c_int {
    run(|| {
        library()?;
        // SAFETY: a list that ends with a null pointer, as the header has it.
        let addresses = unsafe { addresses(pointers) }?;
        in_block(|block| match &mut block.stage {
            Stage::Discovering(discovery) => discovery.will_be_written(&addresses),
            Stage::Mapped(run) => run.will_be_written(&addresses),
        });
        Ok(())
    })
}

/// See `grpc_map.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_stays_remote_np(pointers: *const *const c_void) -> c_int {
    run(|| {
        library()?;
        // SAFETY: a list that ends with a null pointer, as the header has it.
        let addresses = unsafe { addresses(pointers) }?;
        let found = in_block(|block| match &mut block.stage {
            Stage::Discovering(discovery) => discovery.stays.extend(&addresses),
            Stage::Mapped(run) => run.stays.extend(&addresses),
        });
        found.ok_or_else(|| Failed::other("grpc_stays_remote stands outside of grpc_map; it says what stays after it"))
    })
}

/// See `grpc_map.h`.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn grpc_forget_np(pointer: *const c_void) -> c_int {
    run(|| {
        let library = library()?;
        let address = pointer.addr();
        let in_block = in_block(|block| match &mut block.stage {
            Stage::Discovering(discovery) if address != 0 => discovery.forget(address),
            Stage::Mapped(run) if address != 0 => run.forget(address),
            Stage::Discovering(_) | Stage::Mapped(_) => {}
        });
        match pointer.is_null() {
            _ if in_block.is_some() && address != 0 => {}
            true => library.staying.clear(),
            false => library.staying.forget_at(address),
        }
        Ok(())
    })
}

/// # Safety
/// Null, or a list of pointers that ends with a null pointer.
unsafe fn addresses(pointers: *const *const c_void) -> Outcome<Vec<usize>> {
    if pointers.is_null() {
        return Err(Failed::null("the list of buffers"));
    }
    // SAFETY: promised by the caller.
    let list = (0..).map(|index| unsafe { *pointers.add(index) });
    Ok(list.take_while(|pointer| !pointer.is_null()).map(<*const c_void>::addr).collect())
}

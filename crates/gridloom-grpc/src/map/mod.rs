//! `grpc_map`: blocks of calls that are discovered, mapped together, and then made. `include/grpc_map.h` documents
//! what blocks promise, `GRIDRPC.md` how they keep it.
//!
//! | file | content |
//! |---|---|
//! | here | a thread's block and its phases |
//! | `memory_state` | the state of memory in a run: regions, buffers, passed values |
//! | `frame` | the stack frame that contains a block |
//! | `discover` | the first run: calls become a declared graph, sessions end at once |
//! | `follow` | the second run: calls in their places in the plan |
//! | `overwritten` | previous content of memory that a call writes, for when the call fails |

mod discover;
mod follow;
mod frame;
mod memory_state;
mod overwritten;

use std::cell::RefCell;
use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use gridloom::PlanRecord;

use super::arguments::CallSurvey;
use super::call::Call;
use super::code::{Failed, Outcome};
use super::graphs::check_name;
use super::library::{Library, library};
use super::session::GroupCall;
use super::waits::on_settled;
use discover::{Discovery, FirstRunResult};
use follow::{BlockOutcome, SecondRun};
use frame::{Frame, own_pointer};

/// The runs of a block, with their numbers in C.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    Discovering = 1,
    Mapped = 2,
}

/// The outermost block of a thread.
struct Block {
    library: Arc<Library>,
    heuristic: String,
    kind: BlockKind,
    /// The block's file and line.
    place: String,
    frame: Option<Frame>,
    stage: Stage,
}

enum Stage {
    Discovering(Discovery),
    Mapped(SecondRun),
}

/// How the calls that are discovered in a block are used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum BlockKind {
    /// They are mapped and made.
    Called,
    /// They are only mapped.
    Planned,
    /// They are declared as a graph of that name.
    Described(String),
}

/// The outcome of a thread's last block.
#[derive(Clone, Default)]
pub(super) struct BlockReport {
    pub(super) failed: Option<Failed>,
    pub(super) report: Option<String>,
    pub(super) plan: Option<PlanRecord>,
}

impl BlockReport {
    /// Returns the outcome of a block without calls.
    pub(super) fn failed(failed: Failed) -> BlockReport {
        BlockReport { failed: Some(failed), ..BlockReport::default() }
    }
}

thread_local! {
    static BLOCK: RefCell<Option<Block>> = const { RefCell::new(None) };
    static LAST: RefCell<BlockReport> = RefCell::default();
}

/// Returns the result of `look` for the block of this thread. A thread that is ending is in no block. A callback that
/// runs on this thread meanwhile is in no block either: its calls are plain ones.
fn in_block<R>(look: impl FnOnce(&mut Block) -> R) -> Option<R> {
    leave_if_gone(own_pointer());
    let mut taken = BlockGuard(set_block(None));
    taken.0.as_mut().map(look)
}

/// Leaves the thread's block if the program has left it by `longjmp`, as far as this can be seen from a function whose
/// caller has that stack pointer.
pub(super) fn leave_if_gone(pointer: usize) {
    let is_gone = |block: &Option<Block>| {
        block.as_ref().and_then(|block| block.frame).is_some_and(|frame| frame.is_gone(pointer))
    };
    if !BLOCK.try_with(|block| block.try_borrow().is_ok_and(|block| is_gone(&block))).unwrap_or(false) {
        return;
    }
    let Some(block) = set_block(None) else { return };
    let text = format!(
        "the block of grpc_map at {} was left by longjmp, which it does not notice by itself; its running calls were given \
         up. Leave a block by break, return or goto",
        block.place
    );
    drop(block);
    remember(BlockReport::failed(Failed::other(text)));
}

/// Sets where the thread's block is on the stack: its variable, and the stack pointer of the function that contains it.
pub(super) fn set_frame(variable: usize, number: u64, pointer: usize) {
    let _ = BLOCK.try_with(|block| {
        let Ok(mut block) = block.try_borrow_mut() else { return };
        let Some(block) = block.as_mut() else { return };
        block.frame = Frame::new(variable, number, pointer);
        match &mut block.stage {
            Stage::Discovering(discovery) => discovery.frame = block.frame,
            Stage::Mapped(run) => run.set_frame(block.frame),
        }
    });
}

/// Writes those results of a call for which the program has waited that must not wait for the end of the block.
fn write_results_of(limited: &Arc<GroupCall>) {
    in_block(|block| {
        if let Stage::Mapped(run) = &mut block.stage {
            // SAFETY: the memory of the block's calls is valid until it ends, as the header requires.
            unsafe { run.write_results_of(limited) };
        }
    });
}

/// Puts a block back when dropped.
struct BlockGuard(Option<Block>);

impl Drop for BlockGuard {
    fn drop(&mut self) {
        if let Some(block) = self.0.take() {
            set_block(Some(block));
        }
    }
}

/// True if this thread is in a block.
pub(super) fn is_open() -> bool {
    leave_if_gone(own_pointer());
    BLOCK.try_with(|block| block.borrow().is_some()).unwrap_or(false)
}

/// True if memory has the value that the program expects there. It has not before a block was run, nor if a call of
/// the block has put its result there.
pub(super) fn has_value(address: usize) -> bool {
    in_block(|block| match &block.stage {
        Stage::Discovering(_) => false,
        Stage::Mapped(run) => !run.has_result(address),
    })
    .unwrap_or(true)
}

/// True if this thread's calls are being discovered.
pub(super) fn is_discovering() -> bool {
    phase() == Some(Phase::Discovering)
}

/// Returns the current run of this thread.
pub(super) fn phase() -> Option<Phase> {
    in_block(|block| match block.stage {
        Stage::Discovering(_) => Phase::Discovering,
        Stage::Mapped(_) => Phase::Mapped,
    })
}

/// Returns the result of `look`, if this thread's calls are being discovered.
pub(super) fn discovering<R>(look: impl FnOnce(&mut Discovery, &Library) -> R) -> Option<R> {
    in_block(|block| match &mut block.stage {
        Stage::Discovering(discovery) => Some(look(discovery, &block.library)),
        Stage::Mapped(_) => None,
    })
    .flatten()
}

/// Makes a blocking call in a block.
///
/// # Safety
/// The arguments match the signature (`memory`).
pub(super) unsafe fn call(opened: &Call, survey: CallSurvey<'_>) -> Outcome<()> {
    in_block(|block| match &mut block.stage {
        Stage::Discovering(discovery) => {
            discovery.call(opened, &survey.items)?;
            discovery.returned();
            Ok(())
        }
        // SAFETY: promised by the caller.
        Stage::Mapped(run) => unsafe { run.call(opened, survey) },
    })
    .unwrap_or_else(|| Err(no_block()))
}

/// True if a handle must not be destructed now, because it is older than the block and the block's second run needs it.
pub(super) fn keeps_handle(number: u64) -> bool {
    discovering(|discovery, _| discovery.keeps_handle(number)).unwrap_or(false)
}

/// Starts a call in a block, and returns the session's id.
///
/// # Safety
/// As for [`call`], until the block has ended.
pub(super) unsafe fn begin(opened: &Call, survey: CallSurvey<'_>) -> Outcome<c_int> {
    in_block(|block| match &mut block.stage {
        Stage::Discovering(discovery) => {
            discovery.call(opened, &survey.items)?;
            Ok(discovery.begin_session(opened, &block.library))
        }
        // SAFETY: promised by the caller.
        Stage::Mapped(run) => unsafe { run.begin(opened, survey) },
    })
    .unwrap_or_else(|| Err(no_block()))
}

fn no_block() -> Failed {
    Failed::other("the thread's block of grpc_map has ended")
}

/// Begins a block. Returns 0 if the thread is already in one, which this block joins.
pub(super) fn begin_block(heuristic: Option<&str>, kind: BlockKind, place: String) -> Outcome<u64> {
    if is_within()? {
        return match kind {
            BlockKind::Called => Ok(0),
            BlockKind::Planned => {
                Err(Failed::other("grpc_plan is inside another block, which it cannot join; move it outside"))
            }
            BlockKind::Described(name) => {
                let text =
                    format!("grpc_describe(\"{name}\") is inside another block, which it cannot join; move it outside");
                Err(Failed::other(text))
            }
        };
    }
    let library = library()?;
    if let BlockKind::Described(name) = &kind {
        check_name(name)?;
    }
    let heuristic = heuristic.unwrap_or(&library.heuristic).to_string();
    let stage = Stage::Discovering(Discovery::new(&library, place.clone()));
    Ok(open_block(Block { library, heuristic, kind, place, frame: None, stage }))
}

/// Begins a block that follows a declared graph. Returns 0 if the thread is already in a block, which this one joins.
pub(super) fn begin_following(name: &str, heuristic: Option<&str>, place: String) -> Outcome<u64> {
    if is_within()? {
        return Ok(0);
    }
    let library = library()?;
    let heuristic = heuristic.unwrap_or(&library.heuristic).to_string();
    let run = SecondRun::new(&library, &heuristic, library.graphs.find(name)?.into());
    let (kind, stage) = (BlockKind::Called, Stage::Mapped(run));
    Ok(open_block(Block { library, heuristic, kind, place, frame: None, stage }))
}

/// True if the thread is in a block of the session.
fn is_within() -> Outcome<bool> {
    let library = library();
    let is_own = |block: &mut Block| library.as_ref().is_ok_and(|library| Arc::ptr_eq(library, &block.library));
    let within = in_block(is_own);
    if within == Some(false) {
        // The block belongs to a session that has ended: the program left it by a jump.
        drop(set_block(None));
    }
    library.map(|_| within == Some(true))
}

/// Opens a block for the thread, and returns its number.
fn open_block(block: Block) -> u64 {
    on_settled(write_results_of);
    set_block(Some(block));
    LAST_NUMBER.fetch_add(1, Ordering::Relaxed) + 1
}

static LAST_NUMBER: AtomicU64 = AtomicU64::new(0);

/// The previous block is dropped outside of the cell, because what it drops may access this thread's block.
fn set_block(block: Option<Block>) -> Option<Block> {
    BLOCK.try_with(|place| std::mem::replace(&mut *place.borrow_mut(), block)).ok().flatten()
}

pub(super) fn remember(last: BlockReport) {
    let _ = LAST.try_with(|place| *place.borrow_mut() = last);
}

/// Maps the discovered calls, and begins the second run. Returns whether it has begun.
pub(super) fn begin_second_run() -> bool {
    let Some(Block { library, heuristic, kind, place, frame, stage: Stage::Discovering(discovery) }) = set_block(None)
    else {
        return false;
    };
    match kind {
        BlockKind::Called => {
            let run = SecondRun::new(&library, &heuristic, discovery.end());
            set_block(Some(Block { library, heuristic, kind, place, frame, stage: Stage::Mapped(run) }));
            true
        }
        BlockKind::Planned => {
            remember(planned(&library, &heuristic, &discovery.end()));
            false
        }
        BlockKind::Described(name) => {
            remember(described(&library, &name, discovery.end()));
            false
        }
    }
}

/// Defines the discovered calls as a graph of that name.
fn described(library: &Library, name: &str, discovered: FirstRunResult) -> BlockReport {
    let failed = discovered.failed.clone();
    let defined = failed.map_or(Ok(()), Err).and_then(|()| library.graphs.define(name, Some(discovered.into())));
    let text = |failed: Failed| Failed::other(format!("the graph '{name}' cannot be described: {}", failed.text));
    defined.map_or_else(|failed| BlockReport::failed(text(failed)), |()| BlockReport::default())
}

/// Makes calls that are described from now on optional, or not.
pub(super) fn describe_optional(is_optional: bool) -> Outcome<()> {
    let set = in_block(|block| match (&block.kind, &mut block.stage) {
        (BlockKind::Described(_), Stage::Discovering(discovery)) => {
            discovery.is_optional = is_optional;
            true
        }
        _ => false,
    });
    match set {
        Some(true) => Ok(()),
        _ => Err(Failed::other("calls can be optional only in a block of grpc_describe; this call is outside of one")),
    }
}

/// Returns the plan to which a block would be mapped.
fn planned(library: &Library, heuristic: &str, discovered: &FirstRunResult) -> BlockReport {
    match discovered.group(library, heuristic) {
        Ok(group) => {
            let plan = group.and_then(|group| group.declared_plan());
            BlockReport { failed: None, report: plan.as_ref().map(|plan| format!("{plan}\n")), plan }
        }
        Err(failed) => {
            BlockReport::failed(Failed::other(format!("the block cannot be mapped by '{heuristic}': {}", failed.text)))
        }
    }
}

/// Ends the block: afterwards its calls have ended, and its results are written.
pub(super) fn end_block() {
    let Some(Block { library, stage: Stage::Mapped(run), .. }) = set_block(None) else { return };
    // SAFETY: the memory of the block's calls is valid until it ends, as the header requires.
    let BlockOutcome { failed, report, plan } = unsafe { run.end(&library) };
    remember(BlockReport { failed, report, plan });
}

/// Leaves the block at once, whatever runs in it.
pub(super) fn drop_block() {
    drop(set_block(None));
}

/// Returns the outcome of this thread's last block.
pub(super) fn last() -> BlockReport {
    LAST.try_with(|last| last.borrow().clone()).unwrap_or_default()
}

/// Maps the rest of the block again.
pub(super) fn map_again() -> Outcome<()> {
    in_block(|block| match &mut block.stage {
        Stage::Discovering(_) => Ok(()),
        Stage::Mapped(run) => run.map_again(),
    })
    .unwrap_or_else(|| Err(Failed::other("this call is outside of grpc_map; it maps the rest of a block again")))
}

/// Begins the program's own work.
pub(super) fn begin_own_work() {
    in_block(|block| match &mut block.stage {
        Stage::Discovering(discovery) => discovery.begin_own_work(),
        // SAFETY: the memory of the block's calls is valid until it ends, as the header requires.
        Stage::Mapped(run) => unsafe { run.begin_own_work() },
    });
}

/// Fetches the results at an address; in the first run, records that the program reads them.
pub(super) fn fetch(library: &Library, address: usize) -> Outcome<()> {
    let in_block = in_block(|block| match &mut block.stage {
        Stage::Discovering(discovery) => {
            discovery.fetch(address);
            Ok(())
        }
        // SAFETY: the memory of the block's calls is valid until it ends, as the header requires.
        Stage::Mapped(run) => unsafe { run.fetch(address) },
    });
    // SAFETY: as above, of what stays remote until it is fetched.
    in_block.unwrap_or_else(|| unsafe { library.staying.fetch(address) })
}

/// Prefetches the results at these addresses as soon as they are made.
pub(super) fn prefetch(addresses: &[usize]) {
    in_block(|block| {
        if let Stage::Mapped(run) = &mut block.stage {
            run.prefetch(addresses);
        }
    });
}

/// Records that the program's next own work changes these buffers.
pub(super) fn will_be_written(addresses: &[usize]) {
    in_block(|block| match &mut block.stage {
        Stage::Discovering(discovery) => discovery.will_be_written(addresses),
        Stage::Mapped(run) => run.will_be_written(addresses),
    });
}

/// Keeps the results at these addresses on their servers; returns `None` outside of a block.
pub(super) fn keep_remote(addresses: &[usize]) -> Option<()> {
    in_block(|block| match &mut block.stage {
        Stage::Discovering(discovery) => discovery.stays.extend(addresses),
        Stage::Mapped(run) => run.stays.extend(addresses),
    })
}

/// Drops the results at an address; if it is 0, drops all that stay remote.
pub(super) fn forget(library: &Library, address: usize) {
    if address == 0 {
        return library.staying.clear();
    }
    let in_block = in_block(|block| match &mut block.stage {
        Stage::Discovering(discovery) => discovery.forget(address),
        Stage::Mapped(run) => run.forget(address),
    });
    if in_block.is_none() {
        library.staying.forget_at(address);
    }
}

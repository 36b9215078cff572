//! The second run of a block: each call is made in its place in the plan, or by itself if it has none.
//!
//! The memory that a call reads determines the source of the value. If the result of a mapped call belongs there, it
//! is sent from server to server. Anything else is sent by the client, with the current content of its memory. A
//! result is fetched when the program requests it, when a call reads only parts of it, or at the end.
//!
//! **Invariants**
//! - Memory that is not in `regions` has the value that the program would see without a block.
//! - Before a call reads or writes memory of a session that delivers its results by itself, that session has delivered.

use std::collections::BTreeSet;
use std::ffi::c_int;
use std::sync::Arc;

use gridloom::{Arg, Group, PlanRecord, Report, Value};

use super::super::arguments::{CallInputs, CallSurvey, Item, copy_of, gather};
use super::super::call::Call;
use super::super::code::{Failed, GRPC_MAP_DIFFERS_NP, GRPC_OTHER_ERROR_CODE, Outcome};
use super::super::library::Library;
use super::super::memory;
use super::super::remote_results::{Guard, MappedResult, Part, Writers, fetch_parts, restore, show, write_if_here};
use super::super::session::{GroupCall, Session, Work};

use super::discover::{FirstRunResult, Passed, check_results, is_unplanned, stays_remote};
use super::frame::Frame;
use super::memory_state::{MemoryState, Range};
use super::overwritten::{Overwritten, PreviousContent};

/// A block whose calls have been made.
pub(super) struct SecondRun {
    library: Arc<Library>,
    /// `None` if there was nothing to map, or if mapping failed.
    group: Option<Group>,
    /// Why mapping failed.
    not_mapped: Option<Failed>,
    known: MemoryState<Arc<MappedResult>, Value>,
    /// Memory with results that stayed remote before, which the block wrote or gave up.
    touched: Vec<Range>,
    /// Sessions of calls that are not part of the plan, and the memory that they will write.
    unplanned: Vec<CallOutsidePlan>,
    /// For each declared result, whether it is sent to the client; and how many have been made.
    wanted: Vec<bool>,
    results: usize,
    pub(super) stays: BTreeSet<usize>,
    calls: Vec<AwaitedCall>,
    overwritten: Overwritten,
    guard: Guard,
    /// Results that are written when the program has waited for their calls.
    at_once: Vec<AtOnce>,
    frame: Option<Frame>,
    /// The arguments of each call when the calls were discovered.
    discovered: Vec<Passed>,
    /// Arguments that were different then.
    different: Vec<String>,
}

/// A result that is written when the program has waited for its call: a scalar, because the program may pass it on by
/// value, or local variables, because their function may read them and return before the block ends.
struct AtOnce {
    limited: Arc<GroupCall>,
    made: Arc<MappedResult>,
    range: Range,
    is_deeper: bool,
}

/// A call that was made, with the object that knows how it ended.
enum AwaitedCall {
    Mapped(Arc<GroupCall>),
    Session(Arc<Session>),
    Ended(Outcome<()>),
}

/// How a block ended.
pub(super) struct BlockOutcome {
    pub(super) failed: Option<Failed>,
    pub(super) report: Option<String>,
    pub(super) plan: Option<PlanRecord>,
}

impl SecondRun {
    /// True if a call of the block has put a result there.
    pub(super) fn has_result(&self, address: usize) -> bool {
        self.known.regions.at(address).is_some()
    }

    pub(super) fn new(library: &Arc<Library>, heuristic: &str, discovered: FirstRunResult) -> SecondRun {
        let group = discovered.group(library, heuristic);
        let FirstRunResult { wanted, frame, passed, .. } = discovered;
        let not_mapped = group.as_ref().err().map(|failed| {
            let text = format!(
                "the block could not be mapped by '{heuristic}', and each call was mapped by itself: {}",
                failed.text
            );
            Failed::new(GRPC_OTHER_ERROR_CODE, text)
        });
        SecondRun {
            library: library.clone(),
            group: group.ok().flatten(),
            not_mapped,
            known: MemoryState::new(library.staying.all()),
            touched: Vec::new(),
            unplanned: Vec::new(),
            wanted,
            results: 0,
            stays: BTreeSet::new(),
            calls: Vec::new(),
            overwritten: Overwritten::default(),
            guard: Guard::new(library.is_debugged),
            at_once: Vec::new(),
            frame,
            discovered: passed,
            different: Vec::new(),
        }
    }

    pub(super) fn set_frame(&mut self, frame: Option<Frame>) {
        self.frame = frame;
    }

    fn is_deeper(&self, address: usize) -> bool {
        self.frame.is_some_and(|frame| frame.is_deeper(address))
    }

    /// Makes a blocking call.
    ///
    /// # Safety
    /// The arguments match the signature until the block has ended.
    pub(super) unsafe fn call(&mut self, opened: &Call, survey: CallSurvey<'_>) -> Outcome<()> {
        // SAFETY: promised by the caller, here and below.
        let made = unsafe { self.make(opened, survey) }.inspect_err(|failed| self.refused(failed))?;
        let outcome = match made {
            SubmittedCall::Mapped(limited) => {
                self.calls.push(AwaitedCall::Mapped(limited.clone()));
                let outcome = limited.await_end(&self.library.grid);
                // SAFETY: promised by the caller.
                unsafe { self.write_results_of(&limited) };
                return outcome;
            }
            SubmittedCall::Apart { work, written, former } => {
                let outcome = unsafe { work.collect(&self.library.places(), &self.library.staying) };
                match outcome.is_ok() {
                    true => written.iter().for_each(|(start, bytes)| self.drop_results(*start, *bytes)),
                    // The previous values are still there, and the regions must show it.
                    false => former.iter().for_each(|part| {
                        self.guard.watch(part);
                        unsafe { write_if_here(part) };
                    }),
                }
                outcome
            }
        };
        self.calls.push(AwaitedCall::Ended(outcome.clone()));
        outcome
    }

    /// Writes those results of a call for which the program has waited that must not wait for the end of the block.
    ///
    /// # Safety
    /// The memory of the block's calls is valid.
    pub(super) unsafe fn write_results_of(&mut self, limited: &Arc<GroupCall>) {
        for AtOnce { made, range: (start, bytes), is_deeper, .. } in
            self.at_once.extract_if(.., |one| Arc::ptr_eq(&one.limited, limited))
        {
            let mut parts = self.known.regions.parts(start, bytes);
            parts.retain(|part| Arc::ptr_eq(&part.writer, &made));
            // The call itself reports its failure.
            // SAFETY: promised by the caller.
            let _ = unsafe { fetch_parts(&self.known.regions, &parts) };
            if is_deeper {
                parts.iter().for_each(|part| self.known.regions.forget(part.start, part.end - part.start));
            }
        }
    }

    /// Starts a call, and returns the session's id.
    ///
    /// # Safety
    /// As for [`SecondRun::call`].
    pub(super) unsafe fn begin(&mut self, opened: &Call, survey: CallSurvey<'_>) -> Outcome<c_int> {
        let origin = opened.origin();
        // SAFETY: promised by the caller.
        let made = unsafe { self.make(opened, survey) }.inspect_err(|failed| self.refused(failed))?;
        let session = match made {
            SubmittedCall::Mapped(limited) => {
                self.calls.push(AwaitedCall::Mapped(limited.clone()));
                self.library.sessions.begin(Work::Grouped(limited, Vec::new()), origin)
            }
            SubmittedCall::Apart { work, written, former } => {
                let session = self.library.sessions.begin(work, origin);
                written.iter().for_each(|(start, bytes)| self.drop_results(*start, *bytes));
                self.unplanned.push(CallOutsidePlan { written, former, session: session.clone() });
                self.calls.push(AwaitedCall::Session(session.clone()));
                session
            }
        };
        Ok(session.id)
    }

    /// Maps the calls again that have not been made yet.
    pub(super) fn map_again(&self) -> Outcome<()> {
        let group = self.group.as_ref().ok_or_else(|| {
            let nothing = || Failed::other("the block has no calls that were mapped together");
            self.not_mapped.clone().unwrap_or_else(nothing)
        })?;
        group.map_again().map(drop).map_err(|error| Failed::other(error.to_string()))
    }

    /// Records that a call was not made, which is how it ended.
    fn refused(&mut self, failed: &Failed) {
        self.calls.push(AwaitedCall::Ended(Err(failed.clone())));
    }

    /// Removes results from memory whose last writer is the program, or a call that writes there by itself.
    fn drop_results(&mut self, start: usize, bytes: usize) {
        show(start, bytes);
        self.known.regions.forget(start, bytes);
        self.touched.push((start, bytes));
    }

    /// Drops the results at an address.
    pub(super) fn forget(&mut self, address: usize) {
        self.await_unplanned(address, 1);
        if let Some((start, bytes)) = self.known.buffer_at(address) {
            self.drop_results(start, bytes);
        }
    }

    /// Makes a call, in its place in the plan if it can have one.
    unsafe fn make(&mut self, opened: &Call, survey: CallSurvey<'_>) -> Outcome<SubmittedCall> {
        let items = &survey.items;
        check_results(opened, items)?;
        self.compare_arguments(opened, items);
        for item in items.iter().filter(|item| item.is_read() || item.is_written()) {
            let (start, bytes) = item.range();
            self.await_unplanned(start, bytes);
            if item.is_part() {
                // SAFETY: promised by the caller.
                unsafe { fetch_parts(&self.known.regions, &self.known.regions.parts(start, bytes)) }?;
            }
        }
        let written: Vec<Range> = items.iter().filter(|item| item.is_written()).map(Item::range).collect();
        let group = self.group.clone().filter(|_| !is_unplanned(opened, items));
        let Some(group) = group else {
            // SAFETY: promised by the caller.
            let work = unsafe { opened.send(survey, |item| self.input(opened, item).map(Some)) }?;
            let former = self.parts_there(&written);
            for (start, bytes) in &written {
                show(*start, *bytes);
                self.known.forget_passed(*start, *bytes);
            }
            return Ok(SubmittedCall::Apart { work, written, former });
        };
        let results: Vec<ResultPlace> = items
            .iter()
            .filter(|item| item.param.is_output())
            .map(|item| {
                let (start, bytes) = if item.is_written() { item.range() } else { (0, 0) };
                let is_deeper = self.is_deeper(start);
                let stays = stays_remote(&self.stays, item) && !is_deeper;
                let is_local = self.frame.is_some_and(|frame| frame.is_on_stack(start));
                let is_at_once = !stays && (is_local || !item.param.is_array);
                ResultPlace { name: item.param.name.clone(), start, bytes, stays, is_at_once, is_deeper }
            })
            .collect();
        let metas: Vec<_> = items.iter().filter(|i| i.param.is_output()).map(|i| i.meta.clone()).collect();
        let (library, function) = (self.library.clone(), opened.function());
        // SAFETY: promised by the caller.
        let gathered = unsafe {
            let known = |item: &Item<'_>| self.input(opened, item).map(Some);
            gather(&library.places(), function.signature(), survey.items, known)
        }?;
        let CallInputs { args, named, .. } = gathered;
        self.overwritten.forget_ended();
        let call = group.submit(function, args, &named)?;
        let limited = Arc::new(GroupCall::new(&library.grid, call, opened.limit()));
        // SAFETY: promised by the caller.
        unsafe { self.write_results(opened, &limited, results, metas) };
        Ok(SubmittedCall::Mapped(limited))
    }

    /// Records that the results of a call are elsewhere, and not in the program's memory.
    ///
    /// # Safety
    /// There is memory for them.
    unsafe fn write_results(
        &mut self,
        opened: &Call,
        limited: &Arc<GroupCall>,
        results: Vec<ResultPlace>,
        metas: Vec<gridloom_base::Meta>,
    ) {
        let (call, mut formers) = (self.calls.len() + 1, Vec::new());
        for ((handle, place), meta) in limited.call.results().iter().zip(results).zip(metas) {
            let ResultPlace { name, start, bytes, stays, is_at_once, is_deeper } = place;
            let is_wanted = self.wanted.get(self.results).copied().unwrap_or(false);
            self.results += 1;
            if bytes == 0 {
                continue;
            }
            if is_wanted || is_at_once {
                // An error of this is reported when the result is requested.
                let _ = handle.prefetch();
            }
            let name = format!("result '{name}' of '{}' (call {call} of the block)", opened.function().name());
            // Without the block that holds the call, it has ended.
            let call = Arc::downgrade(limited);
            let has_ended = move || call.upgrade().is_none_or(|limited| limited.call.end().is_some());
            let made = Arc::new(MappedResult::new(handle.clone(), name, meta, stays, has_ended));
            if is_at_once {
                let (limited, made) = (limited.clone(), made.clone());
                self.at_once.push(AtOnce { limited, made, range: (start, bytes), is_deeper });
            }
            let is_filled = self.guard.is_debugged();
            // SAFETY: promised by the caller.
            formers.push(unsafe { PreviousContent::new(&self.known.regions, start, bytes, &made, is_filled) });
            self.known.write(start, bytes, made.clone());
            self.touched.push((start, bytes));
            self.guard.watch(&Part { start, end: start + bytes, writer: made, offset: 0, whole: bytes });
        }
        self.overwritten.note(limited, formers);
    }

    /// Returns the value that a call reads.
    fn input(&mut self, opened: &Call, item: &Item<'_>) -> Outcome<Arg> {
        let (start, bytes) = item.range();
        let found = match self.known.regions.read(start, bytes) {
            Writers::Whole(made) => made.read_as(item).map(|result| (made, result)),
            Writers::Parts(_) | Writers::Nothing => None,
        };
        match found {
            // SAFETY: the item matches the signature, promised to `make`.
            Some((made, result)) => match unsafe { made.is_changed(item) } {
                false => return Ok(Arg::Handle(result)),
                true => self.drop_results(start, bytes),
            },
            None => {
                let parts = self.known.regions.parts(start, bytes);
                // SAFETY: memory of the block's calls, promised by the caller.
                unsafe { fetch_parts(&self.known.regions, &parts) }?;
            }
        }
        // SAFETY: as above.
        unsafe { self.value(opened, item) }.map(Arg::from)
    }

    /// Returns a value of the client's memory: the one that was passed before, if it is the same.
    unsafe fn value(&mut self, opened: &Call, item: &Item<'_>) -> Outcome<Value> {
        let range = item.range();
        if item.whole.is_some() {
            // SAFETY: promised by the caller.
            return unsafe { copy_of(&self.library.grid, opened.function().signature(), item) };
        }
        // SAFETY: promised by the caller, here and below.
        let holds = |bytes: &[u8]| unsafe { memory::holds(item.pointer, bytes) };
        let is_now = |value: &&Value| {
            *value.meta() == item.meta && value.payload().is_some_and(|payload| holds(payload.bytes()))
        };
        if let Some(value) = self.known.passed(range).iter().find(is_now) {
            return Ok(value.clone());
        }
        let value = unsafe { copy_of(&self.library.grid, opened.function().signature(), item) }?;
        let passed = self.known.passed_mut(range);
        passed.retain(|other| *other.meta() != item.meta);
        passed.push(value.clone());
        Ok(value)
    }

    /// Waits until sessions that deliver their results by themselves into that memory have done so.
    fn await_unplanned(&mut self, start: usize, bytes: usize) {
        let meets = |apart: &mut CallOutsidePlan| {
            apart.written.iter().any(|(first, size)| first + size > start && start + bytes > *first)
        };
        let met: Vec<CallOutsidePlan> = self.unplanned.extract_if(.., meets).collect();
        for CallOutsidePlan { former, session, .. } in met {
            // Its wait and the block's end report how it ended. If it failed, the previous values are still there.
            if self.library.await_ended(&session).is_err() {
                for part in former {
                    // It is watched before the check whether it was fetched meanwhile: from then on it is fetched with the rest.
                    self.guard.watch(&part);
                    // SAFETY: memory of the block's calls.
                    unsafe { restore(&mut self.known.regions, part) };
                }
            }
        }
    }

    /// Returns the parts of these ranges whose values are elsewhere.
    fn parts_there(&self, ranges: &[Range]) -> Vec<Part<Arc<MappedResult>>> {
        let within = |(start, bytes): &(usize, usize)| {
            let parts = self.known.regions.parts(*start, *bytes).into_iter().filter(|part| !part.writer.is_here());
            parts.map(|part| part.within(*start, start + bytes)).collect::<Vec<_>>()
        };
        ranges.iter().flat_map(within).collect()
    }

    /// Prefetches the results at these addresses as soon as they are made.
    pub(super) fn prefetch(&self, addresses: &[usize]) {
        for address in addresses {
            let Some((start, bytes)) = self.known.buffer_at(*address) else { continue };
            for part in self.known.regions.parts(start, bytes).iter().filter(|part| !part.writer.is_here()) {
                // An error of this is reported when the result is requested.
                let _ = part.writer.handle.prefetch();
            }
        }
    }

    /// Fetches the results at an address.
    ///
    /// # Safety
    /// The memory of the block's calls is valid.
    pub(super) unsafe fn fetch(&mut self, address: usize) -> Outcome<()> {
        self.await_unplanned(address, 1);
        let Some((start, bytes)) = self.known.buffer_at(address) else { return Ok(()) };
        let parts = self.known.regions.parts(start, bytes);
        // SAFETY: promised by the caller.
        unsafe { fetch_parts(&self.known.regions, &parts) }
    }

    /// Records that the program's next own work changes these buffers.
    pub(super) fn will_be_written(&mut self, addresses: &[usize]) {
        self.known.will_be_written(addresses);
    }

    /// Begins the program's own work: the announced buffers belong to the program from now on, and it may read the
    /// results of all calls that have ended. Large ones are fetched when it does, the others now.
    ///
    /// # Safety
    /// The memory of the block's calls is valid.
    pub(super) unsafe fn begin_own_work(&mut self) {
        for address in self.known.take_to_write() {
            self.forget(address);
        }
        if self.guard.is_debugged() {
            return;
        }
        let is_elsewhere = |part: &&Part<Arc<MappedResult>>| !part.writer.is_here() && !part.writer.stays_remote;
        let elsewhere: Vec<Part<Arc<MappedResult>>> = self.known.regions.iter().filter(is_elsewhere).cloned().collect();
        let fetched: Vec<_> = elsewhere.into_iter().filter(|part| !self.guard.watch_own_work(part)).collect();
        for part in &fetched {
            // An error of this is reported when the result is requested.
            let _ = part.writer.handle.prefetch();
        }
        let ended: Vec<_> = fetched.into_iter().filter(|part| part.writer.is_ended()).collect();
        // SAFETY: promised by the caller. The call and the end of the block report failures.
        let _ = unsafe { fetch_parts(&self.known.regions, &ended) };
    }

    /// Records scalars that have other values than when the calls were discovered; in the debug mode also reports memory
    /// that is at another address.
    fn compare_arguments(&mut self, opened: &Call, items: &[Item<'_>]) {
        let Some(before) = self.discovered.get(self.calls.len()) else { return };
        let call = format!("of '{}' (call {} of the block)", opened.function().name(), self.calls.len() + 1);
        let scalars = items.iter().filter_map(|item| Some((item, item.bytes.as_ref()?)));
        let differs = scalars.zip(&before.scalars).filter(|((_, now), before)| now != before);
        self.different.extend(differs.map(|((item, _), _)| {
            let name = &item.param.name;
            format!("argument '{name}' {call} has another value than when the calls were discovered and mapped")
        }));
        if !self.guard.is_debugged() {
            return;
        }
        let passed = items.iter().filter(|item| item.is_read() || item.is_written());
        for (item, before) in passed.zip(&before.addresses).filter(|(item, before)| item.range().0 != **before) {
            self.guard.add(format!(
                "argument '{}' {call} is at {:#x}, and was at {before:#x} when the calls were discovered: memory that a \
                 block passes to calls must be allocated before it, and freed after it",
                item.param.name,
                item.range().0
            ));
        }
    }

    /// Removes results whose memory has gone with a function that the block called. Returns the error, if there are any.
    fn drop_deeper(&mut self) -> Option<Failed> {
        let deeper: Vec<Part<Arc<MappedResult>>> =
            self.known.regions.iter().filter(|part| self.is_deeper(part.start)).cloned().collect();
        deeper.iter().for_each(|part| self.known.regions.forget(part.start, part.end - part.start));
        let lost = deeper.iter().find(|part| !part.writer.is_here())?;
        Some(Failed::other(format!(
            "{} was to be written to a local variable of a function that had returned before the call was waited for, at \
             {:#x}; nothing is written there. Wait for the call in that function, or pass the variable to grpc_forget_np",
            lost.writer.name, lost.start
        )))
    }

    /// Ends the block: afterwards all calls have ended, and results are in the program's memory except those that stay remote.
    ///
    /// # Safety
    /// The memory of the block's calls is valid.
    pub(super) unsafe fn end(mut self, library: &Library) -> BlockOutcome {
        self.await_unplanned(0, usize::MAX);
        self.guard.unwatch_all();
        let deeper = self.drop_deeper();
        self.prefetch_results();
        let mut failed: Option<Failed> = None;
        for call in &self.calls {
            let outcome = match call {
                AwaitedCall::Mapped(limited) => limited.await_end(&library.grid),
                AwaitedCall::Session(session) => library.await_ended(session),
                AwaitedCall::Ended(outcome) => outcome.clone(),
            };
            failed = failed.or(outcome.err());
        }
        // SAFETY: promised by the caller.
        unsafe { std::mem::take(&mut self.overwritten).restore(&mut self.known.regions, &library.grid) };
        // Fetched results belong to the program again.
        let is_there = |part: &&Part<Arc<MappedResult>>| !part.writer.is_here();
        let parts: Vec<Part<Arc<MappedResult>>> = self.known.regions.iter().filter(is_there).cloned().collect();
        let (staying, coming): (Vec<_>, Vec<_>) = parts.into_iter().partition(|part| part.writer.stays_remote);
        // SAFETY: promised by the caller.
        let brought = unsafe { fetch_parts(&self.known.regions, &coming) };
        failed = failed.or(brought.err());
        self.keep(staying);
        if let Some(group) = &self.group {
            failed = failed.or(group.finish().err().map(Failed::from));
        }
        failed = failed.or(deeper);
        let report = self.group.as_ref().and_then(|group| group.report().ok());
        let read = self.guard.reads().into_iter().map(|read| format!("{read}\n"));
        let again = report.as_ref().and_then(mapped_again);
        let report = report.map(|report| std::iter::once(report.to_string()).chain(again).chain(read).collect());
        let plan = self.group.as_ref().and_then(Group::declared_plan);
        BlockOutcome { failed: failed.or(self.not_mapped.take()).or(self.differs()), report, plan }
    }

    /// Returns the differences from the first run.
    fn differs(&self) -> Option<Failed> {
        let differences = self.group.as_ref().map(Group::differences).unwrap_or_default();
        let told: Vec<String> =
            differences.iter().map(ToString::to_string).chain(self.different.iter().cloned()).collect();
        let hint =
            "declare changes in grpc_local with grpc_local_writes; the rest of a block must do the same in both runs";
        let differs = (!told.is_empty()).then(|| format!("{} ({hint})", told.join("\n")));
        let reads = if self.guard.is_debugged() { self.guard.reads() } else { Vec::new() };
        let all: Vec<String> = differs.into_iter().chain(reads).collect();
        (!all.is_empty()).then(|| Failed::new(GRPC_MAP_DIFFERS_NP, all.join("\n")))
    }

    /// Starts to prefetch the results that are fetched at the block's end.
    fn prefetch_results(&self) {
        for part in self.known.regions.iter().filter(|part| !part.writer.is_here() && !part.writer.stays_remote) {
            // An error of this is reported when the result is requested.
            let _ = part.writer.handle.prefetch();
        }
    }

    /// Keeps results of the block that stay remote; results that were in memory that the block wrote are dropped.
    fn keep(&self, staying: Vec<Part<Arc<MappedResult>>>) {
        self.touched.iter().for_each(|(start, bytes)| self.library.staying.forget(*start, *bytes));
        self.library.staying.forget_brought();
        let is_own =
            |part: &Part<Arc<MappedResult>>| self.touched.iter().any(|(start, bytes)| meet(part, *start, *bytes));
        self.library.staying.keep(staying.into_iter().filter(is_own).collect());
    }
}

/// Describes how often the rest of the block was mapped again.
fn mapped_again(report: &Report) -> Option<String> {
    let times = report.plans.len().saturating_sub(1);
    (times > 0).then(|| format!("the rest was mapped again: {times} time{}\n", if times == 1 { "" } else { "s" }))
}

fn meet(part: &Part<Arc<MappedResult>>, start: usize, bytes: usize) -> bool {
    part.start < start + bytes && start < part.end
}

/// Where a result of a call belongs in the program's memory.
struct ResultPlace {
    name: String,
    start: usize,
    bytes: usize,
    stays: bool,
    /// True if it is written as soon as the program has waited for the call.
    is_at_once: bool,
    /// True if its memory belongs to a function that the block has called.
    is_deeper: bool,
}

/// A call that is not part of the plan and has not been waited for.
struct CallOutsidePlan {
    written: Vec<Range>,
    /// The parts that were elsewhere in the memory that it overwrites.
    former: Vec<Part<Arc<MappedResult>>>,
    session: Arc<Session>,
}

/// An outstanding call.
enum SubmittedCall {
    Mapped(Arc<GroupCall>),
    Apart { work: Work, written: Vec<Range>, former: Vec<Part<Arc<MappedResult>>> },
}

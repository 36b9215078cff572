//! Calls: what `calls.c` asks for, before and after it has read the arguments of a variadic function.
//!
//! What C defines is not exported from a shared library that Rust links, so each variadic function is a jump to the one in
//! `calls.c`, which leaves registers and stack as they are.

use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;
use std::time::Duration;

use gridloom::{Arg, Function};

use super::arguments::{Gathered, Given, Item, Survey, gather, survey};
use super::code::{Failed, Outcome, run};
use super::datum::Remote;
use super::handles::{Bound, CFunctionHandle};
use super::library::{Library, library};
use super::map;
use super::memory;
use super::objects::CObjectHandle;
use super::placing::Tied;
use super::sessions::Origin;
use super::slots::Slot;
use super::work::{Limited, Work};

/// `gridloom_open_call`.
#[derive(Debug)]
#[repr(C)]
pub struct OpenCall {
    reads: *const u8,
    count: usize,
    own: *mut c_void,
}

/// A call whose function is found.
pub(super) struct Opened {
    library: Arc<Library>,
    bound: Arc<Bound>,
    /// The handle's address in the program, and its number.
    handle: usize,
    number: u64,
}

impl Opened {
    /// # Safety
    /// Null, or memory for a handle.
    pub(super) unsafe fn new(handle: *mut CFunctionHandle) -> Outcome<Opened> {
        let library = library()?;
        // SAFETY: promised by the caller.
        let given = unsafe { memory::place(handle, "the handle")?.read() };
        let bound = library.handles.find(&given)?;
        Ok(Opened::of(library, bound, handle.expose_provenance(), given.number()))
    }

    /// Through the handle of that number, which is at that address.
    pub(super) fn of(library: Arc<Library>, bound: Arc<Bound>, handle: usize, number: u64) -> Opened {
        Opened { library, bound, handle, number }
    }

    /// Of the function of that name, through no handle of the program.
    fn named(function: &str) -> Outcome<Opened> {
        let library = library()?;
        // NetSolve's programs write it as a call.
        let bound = Arc::new(library.bind(None, function.strip_suffix("()").unwrap_or(function))?);
        Ok(Opened { library, bound, handle: 0, number: 0 })
    }

    /// Gives it to `calls.c`, with how its arguments are read.
    ///
    /// # Safety
    /// A place for it.
    unsafe fn hand_over(self, call: *mut OpenCall) {
        let opened = Box::new(self);
        let reads = &opened.bound.plan.reads;
        let (reads, count) = (reads.as_ptr(), reads.len());
        // SAFETY: promised by the caller. What `reads` leads to lives as long as `own`.
        unsafe { call.write(OpenCall { reads, count, own: Box::into_raw(opened).cast() }) };
    }

    pub(super) fn library(&self) -> &Arc<Library> {
        &self.library
    }

    pub(super) fn function(&self) -> &Function {
        &self.bound.function
    }

    /// The time that it may take.
    pub(super) fn limit(&self) -> Option<Duration> {
        self.bound.limit()
    }

    /// Name of the server that the program has chosen.
    pub(super) fn server(&self) -> Option<&str> {
        self.bound.server.as_deref()
    }

    /// A session through this handle that begins now.
    pub(super) fn origin(&self) -> Origin {
        Origin { handle: self.handle, number: self.number, begun_s: self.library.grid.now() }
    }

    /// What its arguments are.
    ///
    /// # Safety
    /// What was passed is as the signature says (`memory`).
    unsafe fn survey<'a>(&'a self, given: Given<'_>) -> Outcome<Survey<'a>> {
        let Bound { function, plan, .. } = &*self.bound;
        if given.len() != plan.reads.len() {
            let (name, needed) = (function.name(), plan.reads.len());
            return Err(Failed::other(format!("{name}: {} arguments given, expected {needed}", given.len())));
        }
        // SAFETY: promised by the caller.
        unsafe { survey(&self.library, function.signature(), plan, given) }
    }

    /// Sends the call by itself. `known` gives what stands for memory that need not be read.
    ///
    /// # Safety
    /// What was passed is as the signature says (`memory`).
    pub(super) unsafe fn send(
        &self,
        survey: Survey<'_>,
        known: impl FnMut(&Item<'_>) -> Outcome<Option<Arg>>,
    ) -> Outcome<Work> {
        let function = &self.bound.function;
        // SAFETY: promised by the caller.
        let tied = unsafe { Tied::of(&self.library, function, function.server(), &survey.items) }?;
        let function = &tied.server.map_or_else(|| function.clone(), |server| function.clone().bound_to(server));
        // SAFETY: as above.
        let Gathered { args, named, destinations, is_remote } =
            unsafe { gather(&self.library, function.signature(), survey.items, known) }?;
        // Those run at most once, and are no tasks of a group.
        let is_plain = survey.callee.is_some() || function.is_method();
        if is_plain && destinations.iter().any(|destination| destination.remote().is_some()) {
            let what = if function.is_method() { "a method" } else { "a function with callbacks" };
            return Err(Failed::other(format!("{}: the results of {what} cannot stay remote", function.name())));
        }
        if is_remote && !is_plain {
            let call = function.submit_kept(None, &args, &named)?;
            tied.sent();
            for (result, destination) in call.results().iter().zip(&destinations) {
                if let Some((remote, meta)) = destination.remote_as() {
                    remote.names(result, meta, &call);
                }
                if destination.is_wanted() || destination.remote().is_some_and(Remote::is_put_here) {
                    result.prefetch()?;
                }
            }
            let limited = Limited::new(&self.library.grid, call, self.limit());
            return Ok(Work::Grouped(Arc::new(limited), destinations));
        }
        let pending = match survey.callee {
            Some(callee) => function.submit_calling(None, &args, &named, self.limit(), callee),
            None => function.submit(&args, &named, self.limit()),
        };
        let pending = pending?;
        tied.sent();
        Ok(Work::Plain(pending, destinations))
    }

    /// Sends a call that is of no mapped block.
    unsafe fn send_plain(&self, survey: Survey<'_>) -> Outcome<Work> {
        for (start, bytes) in survey.items.iter().filter(|item| item.is_part()).map(Item::range) {
            // SAFETY: memory of the program, as the header asks.
            unsafe { self.library.staying.bring_there(start, bytes) }?;
        }
        // SAFETY: promised by the caller.
        unsafe { self.send(survey, |item| self.library.staying.known(item)) }
    }

    /// Calls, waits, and writes the results.
    ///
    /// # Safety
    /// What was passed is as the signature says (`memory`).
    pub(super) unsafe fn run(&self, given: Given<'_>) -> Outcome<()> {
        // SAFETY: promised by the caller, here and below.
        let survey = unsafe { self.survey(given) }?;
        if map::is_open() {
            return unsafe { map::call(self, survey) };
        }
        unsafe { self.send_plain(survey)?.collect(&self.library) }
    }

    /// Begins the call; the session's id.
    ///
    /// # Safety
    /// As for [`Opened::run`], until the session is waited for.
    pub(super) unsafe fn begin(&self, given: Given<'_>) -> Outcome<c_int> {
        let origin = self.origin();
        // SAFETY: promised by the caller, here and below.
        let survey = unsafe { self.survey(given) }?;
        if map::is_open() {
            return unsafe { map::begin(self, survey) };
        }
        let work = unsafe { self.send_plain(survey) }?;
        Ok(self.library.sessions.begin(work, origin).id)
    }
}

/// See `calls.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn gridloom_grpc_open(handle: *mut CFunctionHandle, call: *mut OpenCall) -> c_int {
    run(|| {
        // SAFETY: memory of the program, as the header asks; `calls.c` has a place for it.
        unsafe { Opened::new(handle)?.hand_over(call) };
        Ok(())
    })
}

/// See `calls.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn gridloom_grpc_open_named(function: *const c_char, call: *mut OpenCall) -> c_int {
    run(|| {
        // SAFETY: a text, as the header asks; `calls.c` has a place for it.
        unsafe { Opened::named(memory::text(function, "the function's name")?)?.hand_over(call) };
        Ok(())
    })
}

/// See `calls.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn gridloom_grpc_open_method(
    handle: *mut CObjectHandle,
    method: *const c_char,
    call: *mut OpenCall,
) -> c_int {
    run(|| {
        // SAFETY: as the header asks; `calls.c` has a place for it.
        unsafe { Opened::method(handle, method)?.hand_over(call) };
        Ok(())
    })
}

/// Takes back what [`gridloom_grpc_open`] gave, with the slots that were read.
///
/// # Safety
/// The call is open, and there are as many slots as it asked for.
unsafe fn taken<'a>(call: *mut OpenCall, slots: *const Slot) -> (Box<Opened>, Given<'a>) {
    // SAFETY: promised by the caller.
    unsafe {
        let OpenCall { count, own, .. } = call.read();
        (Box::from_raw(own.cast()), Given::Slots(std::slice::from_raw_parts(slots, count)))
    }
}

/// See `calls.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn gridloom_grpc_run(call: *mut OpenCall, slots: *const Slot) -> c_int {
    // SAFETY: `calls.c` opened it and read its slots; what they lead to is as the header asks.
    run(|| unsafe {
        let (opened, given) = taken(call, slots);
        opened.run(given)
    })
}

/// See `calls.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn gridloom_grpc_begin(
    call: *mut OpenCall,
    slots: *const Slot,
    session_id: *mut c_int,
) -> c_int {
    // SAFETY: as for `gridloom_grpc_run`.
    run(|| unsafe {
        let (opened, given) = taken(call, slots);
        let place = memory::place(session_id, "the place for the session's id")?;
        place.write(opened.begin(given)?);
        Ok(())
    })
}

unsafe extern "C-unwind" {
    fn gridloom_variadic_grpc_call();
    fn gridloom_variadic_grpc_call_async();
    fn gridloom_variadic_mynetsl();
    fn gridloom_variadic_mynetslnb();
    fn gridloom_variadic_grpc_invoke_np();
    fn gridloom_variadic_grpc_invoke_async_np();
}

/// The instruction of a jump.
#[cfg(target_arch = "x86_64")]
macro_rules! jump {
    () => {
        "jmp {}"
    };
}
#[cfg(target_arch = "aarch64")]
macro_rules! jump {
    () => {
        "b {}"
    };
}

/// See `grpc.h`: in C a variadic function (`calls.c`).
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub extern "C-unwind" fn grpc_call() {
    // SAFETY: a jump to a function of the same convention.
    core::arch::naked_asm!(jump!(), sym gridloom_variadic_grpc_call)
}

/// See `grpc.h`: in C a variadic function (`calls.c`).
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub extern "C-unwind" fn grpc_call_async() {
    // SAFETY: a jump to a function of the same convention.
    core::arch::naked_asm!(jump!(), sym gridloom_variadic_grpc_call_async)
}

/// See `grpc_remote.h`: in C a variadic function (`calls.c`).
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub extern "C-unwind" fn mynetsl() {
    // SAFETY: a jump to a function of the same convention.
    core::arch::naked_asm!(jump!(), sym gridloom_variadic_mynetsl)
}

/// See `grpc_remote.h`: in C a variadic function (`calls.c`).
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub extern "C-unwind" fn mynetslnb() {
    // SAFETY: a jump to a function of the same convention.
    core::arch::naked_asm!(jump!(), sym gridloom_variadic_mynetslnb)
}

/// See `grpc_objects.h`: in C a variadic function (`calls.c`).
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub extern "C-unwind" fn grpc_invoke_np() {
    // SAFETY: a jump to a function of the same convention.
    core::arch::naked_asm!(jump!(), sym gridloom_variadic_grpc_invoke_np)
}

/// See `grpc_objects.h`: in C a variadic function (`calls.c`).
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub extern "C-unwind" fn grpc_invoke_async_np() {
    // SAFETY: a jump to a function of the same convention.
    core::arch::naked_asm!(jump!(), sym gridloom_variadic_grpc_invoke_async_np)
}

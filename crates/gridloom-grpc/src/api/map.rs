//! Blocks of mapped calls (`grpc_map.h`): the functions that the header's macros call, each with a variable of the macro.

use std::ffi::{c_char, c_int, c_void};

use super::super::code::{Failed, GRPC_NO_ERROR, Outcome, inside, run};
use super::super::library::library;
use super::super::map::{self, BlockKind, BlockReport, Phase};
use super::super::memory;

/// `grpc_mapped_np`: its first fields, which are all that the library uses.
#[derive(Debug)]
#[repr(C)]
pub struct CMapped {
    number: u64,
    phase: c_int,
}

/// Phases of a block, as in `grpc_mapped_np`.
const DISCOVERING: c_int = Phase::Discovering as c_int;
const MAPPED: c_int = Phase::Mapped as c_int;
const OVER: c_int = 3;

/// Argument of `grpc_map_leave_np` if a program left its first run in a way that cannot return to it, such as `exit` in Fortran.
const CANNOT_GO_BACK: c_int = 2;

/// See `grpc_map.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_map_begin_np(
    mapped: *mut CMapped,
    heuristic: *const c_char,
    file: *const c_char,
    line: c_int,
) {
    // SAFETY: C strings or null, and memory of the macro's own variable, as the header requires.
    unsafe {
        begin(mapped, false, || {
            map::begin_block(optional(heuristic, "the heuristic")?, BlockKind::Called, place(file, line))
        });
    }
}

/// Returns file and line of a block.
///
/// # Safety
/// Null, or a C string.
pub(super) unsafe fn place(file: *const c_char, line: c_int) -> String {
    // SAFETY: promised by the caller.
    match unsafe { optional(file, "the file") } {
        Ok(Some(file)) => format!("{file}:{line}"),
        _ => format!("line {line}"),
    }
}

/// See `grpc_plan.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_plan_begin_np(
    mapped: *mut CMapped,
    heuristic: *const c_char,
    file: *const c_char,
    line: c_int,
) {
    // SAFETY: as above.
    unsafe {
        begin(mapped, true, || {
            map::begin_block(optional(heuristic, "the heuristic")?, BlockKind::Planned, place(file, line))
        });
    }
}

/// Returns a string that may be left out.
///
/// # Safety
/// Null, or a C string.
pub(super) unsafe fn optional<'a>(text: *const c_char, what: &str) -> Outcome<Option<&'a str>> {
    // SAFETY: promised by the caller.
    if text.is_null() { Ok(None) } else { unsafe { memory::text(text, what) }.map(Some) }
}

/// Begins a block, whose number `open` returns. If this fails, the block is run once without being mapped, or skipped
/// if `is_skipped`.
///
/// # Safety
/// Memory of the macro's own variable.
pub(super) unsafe fn begin(mapped: *mut CMapped, is_skipped: bool, open: impl FnOnce() -> Outcome<u64>) {
    let mut number = 0;
    let began = run_between_phases(|| {
        number = open()?;
        Ok(())
    });
    let phase = if began.is_err() && is_skipped { OVER } else { 0 };
    if let Err(failed) = began {
        map::remember(BlockReport::failed(failed));
    }
    // SAFETY: promised by the caller.
    unsafe {
        (&raw mut (*mapped).number).write(number);
        (&raw mut (*mapped).phase).write(phase);
    }
}

/// Runs a step between phases. No panic leaves it, and the thread's last error is not changed.
fn run_between_phases(step: impl FnOnce() -> Outcome<()>) -> Outcome<()> {
    let mut outcome = Ok(());
    let code = run(|| {
        outcome = step();
        Ok(())
    });
    if code == GRPC_NO_ERROR { outcome } else { Err(Failed::other("an error of the library itself in grpc_map")) }
}

/// See `calls.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn gridloom_grpc_map_next(mapped: *mut CMapped, pointer: *const c_void) -> c_int {
    // SAFETY: memory of the macro's own variable, which only its thread uses.
    let (number, phase) = unsafe { ((*mapped).number, (*mapped).phase) };
    if number != 0 && phase == 0 {
        map::set_frame(mapped.expose_provenance(), number, pointer.addr());
    }
    let mut next = match (number, phase) {
        // The block joins another one, or cannot be mapped: it runs once.
        (0, 0) => MAPPED,
        (0, _) => OVER,
        // A block that follows a declared graph runs once.
        (_, 0) if !map::is_discovering() => MAPPED,
        (_, 0) => DISCOVERING,
        (_, DISCOVERING) => MAPPED,
        (_, _) => OVER,
    };
    let step = run_between_phases(|| {
        match (number, phase, next) {
            (0, ..) | (_, OVER, _) => {}
            (_, DISCOVERING, MAPPED) if !map::begin_second_run() => next = OVER,
            (_, _, OVER) => map::end_block(),
            (..) => {}
        }
        Ok(())
    });
    if let Err(failed) = step {
        map::remember(BlockReport::failed(failed));
    }
    // SAFETY: as above.
    unsafe { (&raw mut (*mapped).phase).write(next) };
    c_int::from(next != OVER)
}

/// See `grpc_map.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_map_leave_np(mapped: *mut CMapped, how: c_int) -> c_int {
    // SAFETY: memory of the macro's own variable, which only its thread uses.
    let (number, phase) = unsafe { ((*mapped).number, (*mapped).phase) };
    if number == 0 || phase == OVER || phase == 0 {
        return 0;
    }
    if how == CANNOT_GO_BACK && phase == DISCOVERING {
        map::drop_block();
        let text = "the block of grpc_map was left while its calls were discovered, and none was made; leave its \
                    loop only by its end, with cycle";
        map::remember(BlockReport::failed(Failed::other(text)));
    } else if how != 0 {
        map::drop_block();
    } else if phase == DISCOVERING {
        return 1;
    } else if let Err(failed) = run_between_phases(|| {
        map::end_block();
        Ok(())
    }) {
        map::remember(BlockReport::failed(failed));
    }
    // SAFETY: as above.
    unsafe { (&raw mut (*mapped).phase).write(OVER) };
    0
}

/// See `grpc_map.h`.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn grpc_local_np() -> c_int {
    inside(map::begin_own_work);
    c_int::from(!map::is_discovering())
}

/// See `grpc_map.h`.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn grpc_map_again_np() -> c_int {
    run(|| {
        library()?;
        map::map_again()
    })
}

/// See `grpc_map.h`.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn grpc_map_phase_np() -> c_int {
    map::phase().map_or(0, |phase| phase as c_int)
}

/// See `grpc_map.h`.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn grpc_map_error_np() -> c_int {
    run(|| map::last().failed.map_or(Ok(()), Err))
}

/// See `grpc_map.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_map_report_np(file_name: *const c_char) -> c_int {
    run(|| {
        let report = map::last().report;
        let report = report.ok_or_else(|| Failed::other("no block of grpc_map with calls has ended in this thread"))?;
        if file_name.is_null() {
            // If standard error is closed, there is no place to report it.
            let _ = std::io::Write::write_all(&mut std::io::stderr(), report.as_bytes());
            return Ok(());
        }
        // SAFETY: a C string, as the header requires.
        let name = unsafe { memory::text(file_name, "the name of the file") }?;
        std::fs::write(name, report).map_err(|error| Failed::other(format!("{name}: {error}")))
    })
}

/// See `grpc_map.h`.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn grpc_fetch(pointer: *const c_void) -> c_int {
    run(|| map::fetch(&*library()?, pointer.addr()))
}

/// See `grpc_map.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_fetch_all_np(pointers: *const *const c_void) -> c_int {
    run(|| {
        let library = library()?;
        // SAFETY: a list that ends with a null pointer, as the header requires.
        let addresses = unsafe { addresses(pointers) }?;
        // All are requested before the first is waited for.
        map::prefetch(&addresses);
        let outcomes: Vec<Outcome<()>> = addresses.iter().map(|address| map::fetch(&library, *address)).collect();
        outcomes.into_iter().collect()
    })
}

/// See `grpc_map.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_written_np(pointers: *const *const c_void) -> c_int {
    run(|| {
        library()?;
        // SAFETY: a list that ends with a null pointer, as the header requires.
        let addresses = unsafe { addresses(pointers) }?;
        map::will_be_written(&addresses);
        Ok(())
    })
}

/// See `grpc_map.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_stays_remote_np(pointers: *const *const c_void) -> c_int {
    run(|| {
        library()?;
        // SAFETY: a list that ends with a null pointer, as the header requires.
        let addresses = unsafe { addresses(pointers) }?;
        let found = map::keep_remote(&addresses);
        found.ok_or_else(|| {
            Failed::other(
                "grpc_stays_remote was used outside of grpc_map; it selects results that stay remote after the block",
            )
        })
    })
}

/// See `grpc_map.h`.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn grpc_forget_np(pointer: *const c_void) -> c_int {
    run(|| {
        map::forget(&*library()?, pointer.addr());
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

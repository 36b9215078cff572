//! Plans of blocks (`grpc_plan.h`): of a thread's last block, and as texts.

use std::ffi::{c_char, c_int};

use gridloom::{Mapping, PlanRecord};

use super::super::code::{Failed, Outcome, run};
use super::super::library::library;
use super::super::map;
use super::super::memory;

/// Returns the plan of this thread's last block.
fn last_plan() -> Outcome<PlanRecord> {
    let text =
        "the last block of grpc_map or grpc_plan in this thread had no calls that could be mapped, or none has ended";
    map::last().plan.ok_or_else(|| Failed::other(text))
}

/// # Safety
/// Null, or a C string.
unsafe fn plan_of(plan: *const c_char) -> Outcome<PlanRecord> {
    // SAFETY: promised by the caller.
    let text = unsafe { memory::text(plan, "the plan") }?;
    Ok(PlanRecord::parse("the plan", text)?)
}

/// Returns a text to the program.
///
/// # Safety
/// `place` points to memory for its address.
pub(super) unsafe fn return_text(text: &str, place: *mut *mut c_char) -> Outcome<()> {
    memory::program_memory(place, "the pointer for the plan")?;
    // SAFETY: promised by the caller.
    unsafe { memory::allocated(text.as_bytes(), "the plan")?.store(place.cast()) };
    Ok(())
}

/// See `grpc_plan.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_plan_get_np(plan: *mut *mut c_char) -> c_int {
    run(|| {
        library()?;
        // SAFETY: required by the header.
        unsafe { return_text(&last_plan()?.to_json(), plan) }
    })
}

/// See `grpc_plan.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_plan_save_np(file_name: *const c_char) -> c_int {
    run(|| {
        library()?;
        // SAFETY: a C string, as the header requires.
        let name = unsafe { memory::text(file_name, "the name of the file") }?;
        Ok(last_plan()?.save(name)?)
    })
}

/// See `grpc_plan.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_plan_define_np(name: *const c_char, plan: *const c_char) -> c_int {
    run(|| {
        let library = library()?;
        // SAFETY: C strings, as the header requires.
        let (name, plan) = unsafe {
            let plan = if plan.is_null() { None } else { Some(Mapping::from(plan_of(plan)?)) };
            (memory::text(name, "the name of the plan")?, plan)
        };
        library.mappings.define(name, plan)
    })
}

/// See `grpc_plan.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_plan_move_np(
    plan: *const c_char,
    call: usize,
    server_name: *const c_char,
    moved: *mut *mut c_char,
) -> c_int {
    run(|| {
        library()?;
        // SAFETY: C strings, and memory for a pointer, as the header requires.
        unsafe {
            let server = memory::text(server_name, "the server")?;
            return_text(&plan_of(plan)?.moved(call, server)?.to_json(), moved)
        }
    })
}

/// See `grpc_plan.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_plan_server_np(
    plan: *const c_char,
    call: usize,
    text: *mut c_char,
    size: usize,
) -> c_int {
    let mut length = -1;
    run(|| {
        library()?;
        // SAFETY: a C string, as the header requires.
        let plan = unsafe { plan_of(plan) }?;
        let count = plan.tasks.len();
        let found = plan.tasks.get(call).map(|task| task.server.as_str());
        let server = found.ok_or_else(|| {
            Failed::other(format!("the plan has no call {call}; it has {count}, and they are counted from 0"))
        })?;
        // SAFETY: memory of that size, as the header requires.
        length = unsafe { memory::write_text(server, text, size) };
        Ok(())
    });
    length
}

/// See `grpc_plan.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_plan_client_memory_np(
    plan: *const c_char,
    needed_bytes: *mut f64,
    call_by_call_bytes: *mut f64,
    available_bytes: *mut f64,
) -> c_int {
    run(|| {
        library()?;
        // SAFETY: a C string, as the header requires.
        let plan = unsafe { plan_of(plan) }?;
        let unknown = || Failed::other("the memory of the client is not known: the plan does not include its problem");
        let memory = plan.client_memory().ok_or_else(unknown)?;
        let available = memory.available_bytes.map_or(f64::NAN, |bytes| bytes as f64);
        let values = [memory.needed_bytes as f64, memory.call_by_call_bytes as f64, available];
        for (value, to) in values.into_iter().zip([needed_bytes, call_by_call_bytes, available_bytes]) {
            if !to.is_null() {
                // SAFETY: memory, as the header requires.
                unsafe { to.write(value) };
            }
        }
        Ok(())
    })
}

/// See `grpc_plan.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_plan_predicted_np(
    plan: *const c_char,
    seconds: *mut f64,
    calls: *mut usize,
) -> c_int {
    run(|| {
        library()?;
        // SAFETY: a C string, and memory or null, as the header requires.
        unsafe {
            let plan = plan_of(plan)?;
            if !seconds.is_null() {
                seconds.write(plan.makespan_seconds);
            }
            if !calls.is_null() {
                calls.write(plan.tasks.len());
            }
        }
        Ok(())
    })
}

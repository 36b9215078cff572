//! Declared graphs (`grpc_graph.h`).

use std::ffi::{c_char, c_int};

use gridloom::Graph;

use super::super::code::{Failed, Outcome, run};
use super::super::library::{Library, library};
use super::super::map::{self, BlockKind};
use super::super::memory;
use super::map::{CMapped, begin, optional, place};
use super::plan::return_text;

/// See `grpc_graph.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_describe_begin_np(
    mapped: *mut CMapped,
    name: *const c_char,
    file: *const c_char,
    line: c_int,
) {
    // SAFETY: C strings, and memory of the macro's own variable, as the header requires.
    unsafe {
        begin(mapped, true, || {
            let name = memory::text(name, "the name of the graph")?;
            map::begin_block(None, BlockKind::Described(name.to_string()), place(file, line))
        });
    }
}

/// See `grpc_graph.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_follow_begin_np(
    mapped: *mut CMapped,
    name: *const c_char,
    heuristic: *const c_char,
    file: *const c_char,
    line: c_int,
) {
    // SAFETY: as above.
    unsafe {
        begin(mapped, false, || {
            let name = memory::text(name, "the name of the graph")?;
            map::begin_following(name, optional(heuristic, "the heuristic")?, place(file, line))
        });
    }
}

/// See `grpc_graph.h`.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn grpc_describe_optional_np(is_optional: c_int) -> c_int {
    run(|| {
        library()?;
        map::describe_optional(is_optional != 0)
    })
}

/// Passes a declared graph to `take`.
///
/// # Safety
/// Null, or a C string.
unsafe fn described<T>(name: *const c_char, take: impl FnOnce(&Library, &Graph) -> Outcome<T>) -> Outcome<T> {
    let library = library()?;
    // SAFETY: promised by the caller.
    let name = unsafe { memory::text(name, "the name of the graph") }?;
    take(&library, &library.graphs.find(name)?.graph)
}

/// See `grpc_graph.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_graph_get_np(name: *const c_char, graph: *mut *mut c_char) -> c_int {
    // SAFETY: a C string, and memory for a pointer, as the header requires.
    run(|| unsafe { described(name, |_, found| return_text(&found.to_json(), graph)) })
}

/// See `grpc_graph.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_graph_save_np(name: *const c_char, file_name: *const c_char) -> c_int {
    // SAFETY: C strings, as the header requires.
    run(|| unsafe { described(name, |_, found| Ok(found.save(memory::text(file_name, "the name of the file")?)?)) })
}

/// See `grpc_graph.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_graph_define_np(name: *const c_char, graph: *const c_char) -> c_int {
    run(|| {
        let library = library()?;
        // SAFETY: C strings, as the header requires.
        let (name, text) = unsafe { (memory::text(name, "the name of the graph")?, optional(graph, "the graph")?) };
        let graph = text.map(|text| Graph::parse("the graph", text)).transpose()?;
        library.graphs.define(name, graph.map(Into::into))
    })
}

/// See `grpc_graph.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_graph_plan_np(
    name: *const c_char,
    heuristic: *const c_char,
    plan: *mut *mut c_char,
) -> c_int {
    // SAFETY: C strings, and memory for a pointer, as the header requires.
    run(|| unsafe {
        described(name, |library, graph| {
            let heuristic = optional(heuristic, "the heuristic")?.unwrap_or(&library.heuristic);
            let mapping = library.mappings.find(heuristic)?;
            let made = library.grid.plan_of(graph, mapping).map_err(|error| Failed::other(error.to_string()))?;
            return_text(&made.to_json(), plan)
        })
    })
}

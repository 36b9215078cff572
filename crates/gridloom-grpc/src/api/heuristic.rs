//! Heuristics defined by the program (`grpc_heuristic.h`).

use std::ffi::{c_char, c_int, c_void};
use std::time::Duration;

use gridloom::Mapping;
use gridloom::map::Problem;

use super::super::code::{Failed, run};
use super::super::library::library;
use super::super::memory;
use super::super::problem::{CHeuristic, CProblem, ProgramHeuristic};

/// See `grpc_heuristic.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_heuristic_define_np(
    name: *const c_char,
    heuristic: CHeuristic,
    context: *mut c_void,
    limit_s: f64,
) -> c_int {
    run(|| {
        let library = library()?;
        // SAFETY: a C string, as the header requires.
        let name = unsafe { memory::text(name, "the name of the heuristic") }?;
        let limit = Duration::try_from_secs_f64(limit_s).map_err(|_| {
            Failed::other(format!(
                "the limit of heuristic '{name}' is {limit_s} s; give a number from 0, which is 30 s"
            ))
        })?;
        let mapping = heuristic.map(|function| {
            let own = Mapping::custom(name, ProgramHeuristic::new(function, context));
            if limit.is_zero() { own } else { own.map_timeout(Some(limit)) }
        });
        library.mappings.define(name, mapping)
    })
}

/// See `grpc_heuristic.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_problem_link_seconds_np(
    problem: *const CProblem,
    from: c_int,
    to: c_int,
    size_bytes: u64,
) -> f64 {
    // SAFETY: the problem that a running heuristic was given, as the header requires.
    let problem: &Problem = unsafe { (*problem).problem() };
    let place = |place: c_int| usize::try_from(place).ok().filter(|place| *place <= problem.client());
    match (place(from), place(to)) {
        (Some(from), Some(to)) => problem.link_seconds(from, to, size_bytes),
        _ => f64::INFINITY,
    }
}

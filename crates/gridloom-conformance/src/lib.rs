//! The conformance suites: what every world must make of the same commands (`grid`), of the same processes
//! (`process`), and of the same two ends of a channel (`channel`, with a stream that has `faults`).
//!
//! Tests of the worlds depend on this crate. No program does.

#![forbid(unsafe_code)]

pub mod channel;
pub mod faults;
pub mod grid;
pub mod process;

//! The conformance suites: the same commands (`grid`), the same processes (`process`) and the same two ends of a
//! channel (`channel`, with a stream that has `faults`) must behave the same in every world.
//!
//! Only tests of the worlds depend on this crate, no program does.

#![forbid(unsafe_code)]

pub mod channel;
pub mod faults;
pub mod grid;
pub mod process;

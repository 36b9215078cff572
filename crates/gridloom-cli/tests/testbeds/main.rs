//! Tests of testbeds, separate from the other tests because they measure what this machine can carry while they run.

mod ends;
#[allow(dead_code, reason = "the other tests use the rest of it")]
#[path = "../support/mod.rs"]
mod support;
mod testbed;

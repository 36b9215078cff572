//! The tests of the crate: one program that links the library, so that a change compiles the library once.

mod baseline;
mod oracle;
mod servers;
mod workflow;

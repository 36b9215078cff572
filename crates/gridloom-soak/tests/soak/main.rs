//! Tests of the soak.

mod command;
mod seeds;

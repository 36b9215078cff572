//! The tests of the crate: one program that links the library, so that a change compiles the library once.

mod auto;
mod bounds;
mod branch;
mod contention;
mod contract;
mod explain;
mod hostile;
mod imposed;
mod noise;
mod order;
mod pairs;
mod plan;
mod rings;
mod side_by_side;
mod slots;
mod spec;
mod testing;

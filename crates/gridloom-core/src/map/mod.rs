//! Mapping a group onto servers and links: heuristics, plans, bounds and their evaluation.

pub mod plan;

pub use plan::{Assignment, Plan, Transfer};

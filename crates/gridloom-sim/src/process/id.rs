//! Identifiers of simulated processes.

/// A process of a simulation, numbered in creation order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ProcessId(pub u32);

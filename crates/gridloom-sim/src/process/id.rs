//! How a simulation names its processes.

/// A process of a simulation, in order of their making.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ProcessId(pub u32);

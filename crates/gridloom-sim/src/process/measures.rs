//! What the time of a measured block is charged as. An owner of [`Measures`] decides: it writes the time down, or takes it
//! from an earlier run.
//!
//! What was measured on the real machine is the one thing in a simulation that differs between runs; here it can be
//! replaced.

use gridloom_process::ProcessSpec;

use super::id::ProcessId;

/// A run of a measured block.
#[derive(Clone, Copy, Debug)]
pub struct MeasuredBlock<'a> {
    pub process: ProcessId,
    /// The same in words.
    pub spec: &'a ProcessSpec,
    pub block: &'a str,
    /// How long it took on the real machine, or the first of its name did.
    pub real_ns: u64,
    /// What that is by the machine's speed, floating-point operations.
    pub flops: f64,
}

/// What the runs of measured blocks are charged as.
pub trait Measures: Send {
    /// The floating-point operations that are charged for a run.
    ///
    /// # Errors
    /// In words, if they are not known or cannot be written down. The simulation ends.
    fn charge(&mut self, measured: &MeasuredBlock<'_>) -> Result<f64, String>;

    /// There will be no more.
    ///
    /// # Errors
    /// In words, if what was written down cannot be kept.
    fn finish(&mut self) -> Result<(), String>;
}

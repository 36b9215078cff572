//! The charge for the time of a measured block. An implementation of [`BlockCharges`] decides: it records the time, or
//! takes it from an earlier run.
//!
//! Measured times of the real machine are the only thing in a simulation that differs between runs; this trait allows
//! replacing them.

use gridloom_process::ProcessSpec;

use super::id::ProcessId;

/// A run of a measured block.
#[derive(Clone, Copy, Debug)]
pub struct MeasuredBlock<'a> {
    pub process: ProcessId,
    /// Its function, host and arguments.
    pub spec: &'a ProcessSpec,
    pub block: &'a str,
    /// Time on the real machine, of this run or of the first run of a block with its name.
    pub real_ns: u64,
    /// That time in floating-point operations, at the speed of the machine.
    pub flops: f64,
}

/// Decides the charge for runs of measured blocks.
pub trait BlockCharges: Send {
    /// Returns the floating-point operations charged for a run.
    ///
    /// # Errors
    /// A message if they are unknown or cannot be recorded. The simulation then ends.
    fn charge(&mut self, measured: &MeasuredBlock<'_>) -> Result<f64, String>;

    /// Called once after the last block.
    ///
    /// # Errors
    /// A message if the recorded data cannot be saved.
    fn finish(&mut self) -> Result<(), String>;
}

//! Processes that talk by typed messages: the same code on real machines and in simulation.
//!
//! A message is a Rust type with `#[derive(gridloom::Message)]`, and a C struct or a Python dataclass elsewhere. A program
//! names its processes' functions and calls [`run`]. `gridloom simulate -p PLATFORM -d DEPLOYMENT -- PROGRAM`
//! runs all processes of the deployment in one operating-system process, in virtual time; `gridloom deploy -d DEPLOYMENT
//! -- PROGRAM` starts the same program once for each of them, for real.

mod run;
mod talk;
mod typed;

pub use gridloom_core::process::{Happening, Letter, Level, PeerId, ProcessError, ProcessSpec, TimerNumber};
pub use gridloom_sim::process::{STACK_BYTES, StackKind};
pub use run::{DEPLOY_VARIABLE, Main, RunReport, run, simulate};
pub use talk::{Measure, Process};

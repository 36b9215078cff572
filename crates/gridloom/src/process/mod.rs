//! Processes that exchange typed messages: the same code on real machines and in simulation.
//!
//! A message is a Rust type with `#[derive(gridloom::Message)]`, and a C struct or a Python dataclass in those
//! languages. A program names the functions of its processes and calls [`fn@run`]. `gridloom simulate -p PLATFORM -d
//! DEPLOYMENT -- PROGRAM` runs all processes of the deployment in one operating-system process, in virtual time;
//! `gridloom deploy -d DEPLOYMENT -- PROGRAM` starts the program once for each of them, for real.
//!
//! ```no_run
//! use std::collections::BTreeMap;
//! use std::sync::Arc;
//!
//! use gridloom::process::{Main, Process, StackKind, run};
//! use gridloom::{Error, Message};
//!
//! #[derive(Message)]
//! struct Scale {
//!     m: usize,
//!     n: usize,
//!     factor: f64,
//!     #[message(length = "m * n")]
//!     data: Vec<f64>,
//! }
//!
//! fn server(mut me: Process) -> Result<(), Error> {
//!     me.listen(4000)?;
//!     let (client, mut scale) = me.wait::<Scale>(None, None)?;
//!     scale.data.iter_mut().for_each(|value| *value *= scale.factor);
//!     me.send(client, &scale)?;
//!     Ok(())
//! }
//!
//! fn client(mut me: Process) -> Result<(), Error> {
//!     let server = me.connect("desk", 4000, 10.0)?;
//!     me.send(server, &Scale { m: 3, n: 4, factor: 2.0, data: vec![1.0; 12] })?;
//!     let (_, scaled) = me.wait::<Scale>(Some(server), Some(10.0))?;
//!     println!("{}", scaled.data.iter().sum::<f64>());
//!     Ok(())
//! }
//!
//! fn main() -> Result<(), Error> {
//!     let mains = BTreeMap::from([
//!         ("server".to_string(), Arc::new(server) as Main),
//!         ("client".to_string(), Arc::new(client) as Main),
//!     ]);
//!     run(&mains, StackKind::Coroutine).map(drop)
//! }
//! ```

mod calls;
mod measures;
mod run;
mod settings;
mod threads;
mod typed;
mod types;

pub use crate::simulate::{ArgumentCheck, Deployment};
pub use calls::{Main, Measure, Process, ProcessFunctions};
pub use gridloom_base::LogLevels;
pub use gridloom_process::{Level, PeerId, ProcessError, ProcessEvent, ProcessMessage, ProcessSpec, TimerNumber};
pub use gridloom_sim::process::{STACK_BYTES, StackKind};
pub(crate) use run::config_from_environment;
pub use run::{
    CHECK_VARIABLE, DEPLOY_VARIABLE, PROCESSOR_VARIABLE, READY_FILE_VARIABLE, RunReport, run, run_checked, simulate,
};
pub use settings::{log_accepts, read_settings, setting};

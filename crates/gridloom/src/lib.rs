//! Gridloom: remote procedure calls for scientific computing, in groups that are mapped together.
//!
//! A [`Grid`] is a client's session with a grid: real ([`Grid::connect`], [`Grid::local`]) or simulated
//! ([`Grid::simulate`]). A [`Function`] called outside a group is a plain call: it is mapped by itself, and its results return to
//! the client. Calls recorded in a [`Group`] are mapped together; their results stay where they were made until
//! [`Handle::get`] fetches them.
//!
//! ```no_run
//! use gridloom::{Grid, LocalConfig, Value};
//!
//! # fn main() -> Result<(), gridloom::Error> {
//! let grid = Grid::local(LocalConfig::default())?;
//! let dgemm = grid.function("linalg/dgemm")?;
//! let eye = Value::from_f64(&[2, 2], &[1.0, 0.0, 0.0, 1.0]);
//! let group = grid.group("auto");
//! let ab = group.call(&dgemm, (&eye, &eye))?.one()?;
//! let abc = group.call(&dgemm, (&ab, &eye))?.one()?;
//! group.launch()?;
//! println!("{:?}", abc.get()?.to_f64()?);
//! println!("{}", group.report()?);
//! # Ok(())
//! # }
//! ```

mod backend;
mod calibrate;
mod call;
pub mod chares;
pub mod chart;
pub mod data;
mod declared;
mod difference;
mod error;
mod grid;
mod group;
mod launch;
mod local;
mod log;
mod modules;
mod object;
mod offer;
mod plan;
pub mod process;
mod program_name;
mod report;
mod session;
mod shared_data;
mod simulate;
mod testbed_grid;
mod text_file;
mod trace;
mod value;

pub use backend::check_address;
pub use calibrate::{
    CalibrateConfig, Calibrated, CalibratedPoint, CalibrationCall, CallObserver, Make, Sizes, UnpredictableSection,
};
pub use call::{Arg, Function, Handle, IntoArgs, PendingCall, Results, Submitted, TransferLimits, Watch};
pub use declared::{Graph, GraphArg, GraphRef};
pub use difference::Difference;
pub use error::Error;
pub use grid::Grid;
pub use group::{GraphOptions, Group, Loop};
pub use launch::{MAP_TIMEOUT, Mapping, MappingScope, Regroup, timed_out};
pub use local::{LocalConfig, default_python, program_path};
pub use object::Object;
pub use offer::{
    BUILTIN_LINALG, BUILTIN_RUN_CODE, BUILTIN_WORD, InlineBodies, Offer, builtin_definitions, builtin_names,
    compile_interface, load_offer, parse_description, why_no_linalg,
};
pub use plan::{
    AlternativeRecord, ClientMemory, Explained, PlanRecord, StepRecord, TaskRecord, TransferRecord, check_svg_name,
    gantt_svg,
};
pub use program_name::set_program_name;
pub use report::{GroupProgress, Report, timeline_html};
pub use session::{
    CallEnd, CallOutput, CallbackHandler, EndTaskAnswers, GangCallback, Interrupt, Traffic, UnreadErrors, UsageReport,
};
pub use shared_data::{BegunGet, BegunPut, BegunWait, PutOptions, SharedData, SharedDataEntry, SharedDataReport};
pub use simulate::{GRID_ROLES, Roles, ServerRole, SimulateConfig, SimulationReport, ignored_text};
pub use testbed_grid::TestbedGridConfig;
pub use text_file::read_text;
pub use value::Value;

pub use gridloom_base as base;
pub use gridloom_base::Priority;
pub use gridloom_core as core;
pub use gridloom_core::call::Deferral;
pub use gridloom_core::graph::{Failures, Retry};
pub use gridloom_derive::Message;
pub use gridloom_layout as layout;
/// A Rust type as a message that C and Python programs declare too. See [`layout::rust`] for the corresponding
/// types, and [`process`] for processes that send messages.
pub use gridloom_layout::Message;
pub use gridloom_map as map;
pub use gridloom_perf as perf;

//! Simulated grids.
//!
//! | file | content |
//! |---|---|
//! | [`config`] | the configuration, and the files that it names |
//! | [`roles`] | which host of a platform is the agent, the client, a server |
//! | [`start`] | starting a simulation with its grid |
//! | [`bodies`] | bodies of tasks in real worker processes |
//! | [`report`] | the report of a run |

mod bodies;
mod config;
mod report;
mod roles;
mod start;

pub use config::SimulateConfig;
pub use report::SimulationReport;
pub(crate) use roles::check_route;
pub use roles::{GRID_ROLES, Roles, ServerRole};
pub(crate) use start::{check_functions, populate, simulation_of, strike};

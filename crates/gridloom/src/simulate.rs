//! Simulated grids.
//!
//! | file | content |
//! |---|---|
//! | [`config`] | the configuration, and the files that it names |
//! | [`deployment`] | the processes of a program on hosts of the platform |
//! | [`roles`] | which host of a platform is the agent, the client, a server |
//! | [`shared`] | the grid that all processes of a run share |
//! | [`start`] | starting a simulation with its grid |
//! | [`bodies`] | bodies of tasks in real worker processes |
//! | [`report`] | the report of a run |

mod bodies;
mod config;
mod deployment;
mod report;
mod roles;
mod shared;
mod start;

pub use config::SimulateConfig;
pub(crate) use config::host_memory_bytes;
pub use deployment::{ArgumentCheck, Deployment};
pub(crate) use deployment::{spec, unknown_function};
pub use report::SimulationReport;
pub(crate) use roles::check_route;
pub use roles::{GRID_ROLES, Roles, ServerRole, ignored_text};
pub(crate) use shared::SharedSimGrid;
pub(crate) use start::{check_functions, schedule_faults, start_grid, start_simulation};

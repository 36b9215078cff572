//! Programs on simulated grids. They are one binary, since each separate test binary would link the whole library again.

mod attending;
mod bottlenecks;
mod bound;
mod calibrate;
mod data;
mod first_plans;
mod graphs;
mod graphs_again;
mod links;
mod measured;
mod own_heuristics;
mod passing_on;
mod plain_calls;
mod plans;
mod prefetch;
mod process_grids;
mod profiles;
mod regroup;
mod shared_data;
mod side_by_side;
mod simulated;
#[path = "../support/mod.rs"]
mod support;
mod traced;
mod typed_messages;
mod views;

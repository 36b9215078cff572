//! Programs on simulated grids. They are one binary, since each separate test binary would link the whole library again.

mod bottlenecks;
mod bound;
mod calibrate;
mod data;
mod first_plans;
mod formats;
mod forwarding;
mod graphs;
mod graphs_remapped;
mod interference;
#[path = "../support/key_paths.rs"]
mod key_paths;
mod links;
mod measured;
mod own_heuristics;
mod plain_calls;
mod plans;
mod prefetch;
mod process_grids;
mod process_guarantees;
mod profiles;
mod regroup;
mod shared_data;
mod simulated;
#[path = "../support/mod.rs"]
mod support;
mod traced;
mod typed_messages;
mod views;

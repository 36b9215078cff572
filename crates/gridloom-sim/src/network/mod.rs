//! The modelled network: routes between hosts, connections between nodes, sockets of processes.
//!
//! ```text
//! paths   hosts to links, latency and bandwidth     routes   paths, lost routes, held arrivals
//! links   connections between nodes                 sockets  connections between processes
//! changes routes that corrupt data                  partials received parts of interrupted transfers
//! ```
//!
//! Links and sockets do not depend on each other. Both use the routes, and their flows run in the kernel.

mod cargo;
mod corruption;
mod forwarding;
mod forwarding_chains;
mod links;
mod partials;
mod paths;
mod routes;
mod sockets;

#[cfg(test)]
mod two_hosts;

pub(crate) use cargo::{Cargo, MessageFlow, Parcel, variant_name};
pub(crate) use corruption::Corruption;
pub(crate) use links::{Landed, Links, Progress, is_crossed};
pub(crate) use paths::Path;
pub(crate) use routes::{Route, Routes};
pub(crate) use sockets::{Sockets, Wake};

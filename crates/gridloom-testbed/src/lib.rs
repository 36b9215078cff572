//! The third world: real processes on an emulated network.
//!
//! ```text
//!  gridloom testbed ──▶ box: user, process, network, mount namespaces
//!                        ├─ forwarder: reads every packet, carries it over the links of its route
//!                        ├─ host a ── veth ┐
//!                        ├─ host b ── veth ┼─ packet sockets of the forwarder
//!                        └─ host c ── veth ┘
//! ```

pub mod check;
pub mod control;
pub mod enclosure;
pub mod error;
pub mod folder;
pub mod forwarder;
pub mod init;
pub mod kernel;
pub mod model;
pub mod packet;
pub mod probe;
pub mod report;
pub mod spec;
pub mod tool;

pub use error::Error;

//! The third world: real processes on an emulated network.
//!
//! ```text
//!  gridloom testbed ──▶ box: user, process, network, mount namespaces
//!                        ├─ forwarder: reads every packet, carries it over the links of its route
//!                        ├─ host a ── veth ┐
//!                        ├─ host b ── veth ┼─ packet sockets of the forwarder
//!                        └─ host c ── veth ┘
//! ```

pub mod error;
pub mod kernel;
pub mod model;

pub use error::Error;

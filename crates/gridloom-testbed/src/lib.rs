//! The third world: real processes on an emulated network, from the platform file of the simulator.
//!
//! ```text
//!  tool ──▶ box: user, process, network, mount namespaces; no root needed
//!            ├─ forwarder: reads every packet, carries it over the links of its route
//!            ├─ host a ── veth cable ┐
//!            ├─ host b ── veth cable ┼─ packet rings of the forwarder
//!            └─ host c ── veth cable ┘
//! ```
//!
//! | where | what |
//! |---|---|
//! | [`model`] | links, queues, routes in virtual time: pure, tested exactly |
//! | [`kernel`] | interfaces, packet rings, namespaces, control groups; the only `unsafe` is `kernel/sys.rs` |
//! | [`forwarder`] | one thread between the two |
//! | [`enclosure`], [`init`] | the box's processes; nothing outlives the tool |
//! | [`profiles`], [`processors`] | changes by the platform's profiles; whether the machine's processors were the limit |
//! | [`ending`], [`signals`] | interrupts and requests to end |
//! | [`fleet`], [`telling`] | the processes of a deployment: starts, kill times, ends, signals; also those of `gridloom deploy` |
//! | [`tool`], [`control`], [`folder`] | start it, steer it, find it |
//! | [`check`], [`probe`], [`capacity`] | how exact it is, and the capacity of this machine |
//!
//! **Why a forwarder of its own** and not `tc`: kernels of containers and small machines often lack `netem`, a shared
//! link of several routes has no counterpart in per-interface queues, and no `ip` or `tc` program need be installed. A
//! packet socket on a veth end needs no device file, unlike TUN: the file of TUN may be for root only.

pub mod capacity;
pub mod check;
pub mod control;
pub mod enclosure;
pub mod ending;
pub mod error;
pub mod fleet;
pub mod folder;
pub mod forwarder;
pub mod init;
pub mod kernel;
pub mod model;
pub mod packet;
pub mod probe;
pub mod processors;
pub mod profiles;
pub mod report;
pub mod signals;
pub mod spec;
pub mod telling;
pub mod tool;

pub use error::Error;

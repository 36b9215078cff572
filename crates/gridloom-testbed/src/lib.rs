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
//! | module | content |
//! |---|---|
//! | [`model`] | links, queues, routes in virtual time: pure, tested exactly |
//! | [`kernel`] | interfaces, packet rings, namespaces, control groups; the only `unsafe` is in `kernel/sys.rs` |
//! | [`forwarder`] | the thread that connects the two |
//! | [`enclosure`], [`init`] | the box's processes; nothing outlives the tool |
//! | [`profiles`], [`processors`] | changes by the platform's profiles; whether the machine's processors were the limit |
//! | [`shutdown`], [`signals`] | interrupts and requests to end |
//! | [`fleet`], [`run_output`] | the processes of a deployment: starts, kill times, ends, signals; also those of `gridloom deploy` |
//! | [`tool`], [`control`], [`folder`] | start, control and find a testbed |
//! | [`check`], [`probe`], [`capacity`] | how accurate it is, and the capacity of this machine |
//!
//! **Why a separate forwarder** instead of `tc`: kernels of containers and small machines often lack `netem`, a link
//! shared by several routes has no counterpart in per-interface queues, and no `ip` or `tc` program needs to be
//! installed. Unlike TUN, a packet socket on a veth end needs no device file, which may be accessible to root only.

pub mod capacity;
pub mod check;
pub mod control;
pub mod enclosure;
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
pub mod run_output;
pub mod shutdown;
pub mod signals;
pub mod spec;
pub mod tool;

pub use error::Error;

//! The decision logic of Gridloom, without any I/O.
//!
//! The folders form layers, and each imports only the layers before it: `graph`; then `member`, `call`, `data` and
//! `exec`, which do not import one another; then `node`, which composes them into the agent, server and client
//! machines. Cost models are in `gridloom-perf`, heuristics in `gridloom-map`.
//!
//! **Invariant:** no clock, socket, thread, file, environment, entropy or hash-order iteration in this crate.

#![forbid(unsafe_code)]

pub mod call;
pub mod data;
pub mod exec;
pub mod graph;
pub mod member;
pub mod node;

//! Gridloom's logic: everything that decides, and nothing that touches the outside.
//!
//! The folders stand in layers, each importing only those above it:
//! `base`, `process`, `idl`, `graph`, `platform`, `flow`, `wire`, `perf`, `map`, then `member`, `call`, `data` and `exec`
//! (which do not know one another), and `node`, which composes them into the agent, server and client machines.
//!
//! **Invariant:** no clock, socket, thread, file, environment, entropy or hash-order iteration in this crate.

#![forbid(unsafe_code)]

pub mod base;
pub mod call;
pub mod data;
pub mod exec;
pub mod flow;
pub mod graph;
pub mod idl;
pub mod map;
pub mod member;
pub mod node;
pub mod perf;
pub mod platform;
pub mod process;
pub mod wire;

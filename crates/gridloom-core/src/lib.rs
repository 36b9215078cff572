//! Everything that decides, and nothing that touches the outside.
//!
//! The folders stand in layers, each importing only those above it:
//! `graph`, `perf`, `map`, then `member`, `call`, `data` and `exec` (which do not import one another), and
//! `node`, which composes them into the agent, server and client machines. What no decision needs stands in crates below:
//! `gridloom-base`, `gridloom-idl`, `gridloom-platform`, `gridloom-flow`, `gridloom-layout`, `gridloom-channel`, `gridloom-process`.
//!
//! **Invariant:** no clock, socket, thread, file, environment, entropy or hash-order iteration in this crate.

#![forbid(unsafe_code)]

pub mod call;
pub mod data;
pub mod exec;
pub mod graph;
pub mod map;
pub mod member;
pub mod node;
pub mod perf;

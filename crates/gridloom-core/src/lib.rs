//! Everything that decides, and nothing that touches the outside.
//!
//! The folders stand in layers, each importing only those above it:
//! `graph`, then `member`, `call`, `data` and `exec` (which do not import one another), and `node`, which composes them
//! into the agent, server and client machines. Cost models are in `gridloom-perf`, heuristics in `gridloom-map`.
//!
//! **Invariant:** no clock, socket, thread, file, environment, entropy or hash-order iteration in this crate.

#![forbid(unsafe_code)]

pub mod call;
pub mod data;
pub mod exec;
pub mod graph;
pub mod member;
pub mod node;

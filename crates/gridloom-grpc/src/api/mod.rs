//! The functions of the headers, with a file for each part. Pointers, numbers and strings of C are converted to Rust
//! types here, and errors to codes ([`run`](super::code::run)). The headers document each function.

mod calls;
mod data;
mod extensions;
mod graph;
mod handles;
mod heuristic;
mod library;
mod map;
mod objects;
mod omst;
mod plan;
mod remote;
mod shared;
mod shared_requests;
mod stacks;
mod waits;
mod worker;

pub use calls::*;
pub use data::*;
pub use extensions::*;
pub use graph::*;
pub use handles::*;
pub use heuristic::*;
pub use library::*;
pub use map::*;
pub use objects::*;
pub use omst::*;
pub use plan::*;
pub use remote::*;
pub use shared::*;
pub use stacks::*;
pub use waits::*;
pub use worker::*;

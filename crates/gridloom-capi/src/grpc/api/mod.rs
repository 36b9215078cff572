//! The functions of the headers, with a file for each part. Pointers, numbers and strings of C are converted to Rust
//! types here, and errors to codes ([`run`](super::code::run)). The headers document each function.

mod attributes;
mod calls;
mod data;
mod extensions;
mod graph;
mod handle_attributes;
mod handles;
mod heuristic;
mod library;
mod map;
mod ninfg;
mod objects;
mod omnirpc;
mod omst;
mod plan;
mod remote;
mod session_attributes;
mod session_info;
mod shared;
mod shared_requests;
mod stacks;
mod waits;
mod worker;

pub use calls::*;
pub use data::*;
pub use extensions::*;
pub use graph::*;
pub use handle_attributes::*;
pub use handles::*;
pub use heuristic::*;
pub use library::*;
pub use map::*;
pub use ninfg::*;
pub use objects::*;
pub use omnirpc::*;
pub use omst::*;
pub use plan::*;
pub use remote::*;
pub use session_attributes::*;
pub use session_info::*;
pub use shared::*;
pub use stacks::*;
pub use waits::*;
pub use worker::*;

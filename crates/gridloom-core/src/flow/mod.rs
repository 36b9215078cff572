//! How long transfers and computations take when they share links and processors: a fluid model in `f64` seconds.
//!
//! [`solver`] shares capacities, [`network`] and [`cpu`] say how a transfer or an execution enters the sharing, and
//! [`engine`] moves time from one completion to the next. Used by the simulator and by the mapper's contention-aware
//! evaluation; knows links and hosts by dense index only, and nothing of names, routes or topologies.
//!
//! Source: SimGrid's flow-level models, as described by Velho et al., "On the validity of flow-level TCP network models
//! for grid and cloud simulations" (ACM TOMACS 23(4), 2013), and Casanova et al. (JPDC 74(10), 2014).

pub mod cpu;
pub mod engine;
mod heap;
pub mod network;
pub mod solver;

pub use engine::{ActionId, Completion, FlowEngine, HostIndex, LinkIndex, Resources};
pub use network::NetworkModel;
pub use solver::Policy;

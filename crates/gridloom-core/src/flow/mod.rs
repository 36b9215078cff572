//! How long transfers and computations take when they share links and processors: a fluid model in `f64` seconds.
//!
//! [`solver`] shares capacities, [`network`] and [`cpu`] say how a transfer or an execution enters the sharing, and
//! [`engine`] moves time from one completion to the next. Used by the simulator and by the mapper's contention-aware
//! evaluation; knows links and hosts by dense index only, and nothing of names, routes or topologies.
//!
//! **Held to** SimGrid 4.1: of the public oracle scenarios, the 41 without profiles, rates, priorities and threads (15 997
//! activities) agree to 5e-14 relative, but for 10 transfers of public-050 (up to 3.9e-4 s, as in other independent
//! implementations of the same rules; cause not found).
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

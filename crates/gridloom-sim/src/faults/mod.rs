//! Faults and repairs of nodes, routes between hosts, connections, processors and stores.
//!
//! | of | faults |
//! |---|---|
//! | nodes that end | *kill*: the node is gone; data that it had sent still arrives, then its peers lose it. *restart*: the same program runs again at the same address, with a new identifier and empty memory, like a restarted process |
//! | nodes that do not react | *hang*: the node handles nothing more; its connections stay up and its tasks continue, but nothing is reported. *pause*: as hung, but inputs wait and are handled after *resume* |
//! | routes | *cut*, *lose*: nothing passes between two hosts, or from one to the other; connections look up until a peer gives up. *heal*: data still wanted arrives after all, as TCP retransmits lost segments |
//! | connections | *reset*: both ends lose a connection. *half-open*: one end forgets it; the other notices when it sends, or gives up |
//! | hosts | *slow*: a host computes at a fraction of its speed from now on. *slow-disk*: the same for its disk. *off*: everything on a host ends. *on*: agent and servers restart |
//! | stores | *full*: a node accepts no data for a while; each one that arrives is reported as broken. *full-disk*: a server writes no durable data |
//!
//! A [`Fault`] names nodes and hosts and can be scheduled; `apply` applies it to a simulation, `scenario` reads faults
//! from a file, and `random` draws them.
//!
//! **Not supported.** Loss of individual frames: over TCP, machines see only a slower link.

mod apply;
mod fault;
mod random;
mod scenario;

pub use fault::{Fault, Kind, ScheduledFault};
pub use random::FaultTargets;
pub use scenario::{Scenario, ScenarioError};

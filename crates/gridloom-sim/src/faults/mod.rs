//! What is broken, and how it is mended: nodes, the ways between hosts, connections, processors, stores.
//!
//! | file | faults |
//! |---|---|
//! | `ends` | *kill*: the node is gone; what it had sent still arrives, then its peers lose it. *restart*: the same program again at the same address, under a new identifier and with nothing in its memory, as a process that is started again |
//! | `stops` | *hang*: it handles nothing more, its connections stay up and its tasks run on, unheard. *pause*: as hung, but what comes waits and is handled when it is *resume*d |
//! | `ways` | *cut*, *lose*: nothing passes between two hosts, or from one to the other; connections look up until a peer gives up. *heal*: what is still wanted arrives after all, as TCP sends again what was lost |
//! | `connections` | *reset*: both ends lose a connection. *half-open*: one end forgets it, the other learns of it when it sends, or gives up |
//! | `hosts` | *slow*: a host computes at a fraction of its speed from now on. *slow-disk*: so does its disk. (*off* and *on* are in `profiles`) |
//! | `stores` | *full*: a node takes no datum in for a while; each that comes is reported as broken. *full-disk*: a server writes nothing durable |
//!
//! A [`Fault`] names nodes and hosts and can be scheduled; `scenario` reads them from a file, `random` draws them.
//!
//! **Not done.** Loss of some frames but not of others: to machines, TCP makes it a slower link.

mod connections;
mod ends;
mod fault;
mod hosts;
mod random;
mod scenario;
mod stops;
mod stores;
mod strike;
mod ways;

pub use fault::{Fault, Kind, Strike};
pub use random::Field;
pub use scenario::{Scenario, ScenarioError};

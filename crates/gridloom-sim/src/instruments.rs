//! The instruments of a simulation: the trace, the observer, and the log of agents and servers.
//!
//! **Invariant:** nothing here changes what happens.

use gridloom_base::{NodeId, Time};
use gridloom_core::node::Event;
use gridloom_flow::LinkIndex;

use crate::observe::{Moved, Seen, Watch};
use crate::trace::Trace;

/// What is written down.
#[derive(Debug)]
pub(crate) struct Instruments {
    pub(crate) trace: Trace,
    pub(crate) watch: Watch,
    pub(crate) log: Vec<(Time, NodeId, Event)>,
    /// Transfers that have begun.
    transfers: u64,
}

impl Instruments {
    pub(crate) fn new(seed: u64, links: usize) -> Instruments {
        Instruments { trace: Trace::new(seed, links), watch: Watch::default(), log: Vec::new(), transfers: 0 }
    }

    /// Something begins to move; its number.
    pub(crate) fn begins(&mut self, at: Time, moved: Moved<'_>, size_bytes: u64, links: &[LinkIndex]) -> u64 {
        self.transfers += 1;
        let transfer = self.transfers;
        self.watch.see(at, || Seen::TransferBegins { transfer, moved, size_bytes, links });
        transfer
    }
}

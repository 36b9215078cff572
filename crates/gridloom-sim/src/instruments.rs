//! The instruments of a simulation: the trace, the observer, and the log of agents and servers.
//!
//! **Invariant:** instruments never change the simulation.

use gridloom_base::{NodeId, Time};
use gridloom_core::node::Event;
use gridloom_flow::LinkIndex;

use crate::observe::{Observation, ObserverSlot, TransferContents};
use crate::trace::Trace;

/// The recording state of a simulation.
#[derive(Debug)]
pub(crate) struct Instruments {
    pub(crate) trace: Trace,
    pub(crate) watch: ObserverSlot,
    pub(crate) log: Vec<(Time, NodeId, Event)>,
    /// Number of transfers that have begun.
    transfers: u64,
}

impl Instruments {
    pub(crate) fn new(seed: u64, links: usize) -> Instruments {
        Instruments { trace: Trace::new(seed, links), watch: ObserverSlot::default(), log: Vec::new(), transfers: 0 }
    }

    /// Records that a transfer begins. Returns its number.
    pub(crate) fn begins(
        &mut self,
        at: Time,
        moved: TransferContents<'_>,
        size_bytes: u64,
        links: &[LinkIndex],
    ) -> u64 {
        self.transfers += 1;
        let transfer = self.transfers;
        self.watch.see(at, || Observation::TransferBegins { transfer, moved, size_bytes, links });
        transfer
    }
}

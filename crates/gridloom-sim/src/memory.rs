//! The memory of hosts that page: the bytes that they hold, and the time that it costs if these do not fit.
//!
//! ```text
//! M  memory of the host, bytes          H  bytes that the host holds
//! S  rate of its swap, bytes per second
//!
//! outside      f = 1 - M / H if H > M, else 0
//! transfer     B bytes to or from the host: f B bytes pass the swap, at the same time. It takes at least f B / S
//! computation  that accesses W bytes once: f W bytes pass the swap before it computes. It takes f W / S longer
//! ```
//!
//! **Held bytes.** The values in the stores of the host's nodes, the results of the tasks that compute there (at their predicted
//! sizes), the datum that arrives, and the bytes that the program states ([`Simulation::hold`]). `f` is computed when
//! the transfer or the computation begins.
//!
//! **Swap.** Each host has one, which its transfers and computations share evenly. S is the rate of pages that are
//! exchanged: a page that is read, and the page that is written to make room for it, count once together.
//!
//! **Why f.** Each held byte is accessed as often as any other. Then the share of accesses that miss is the share that is
//! not in memory, whichever page is replaced (King, "Analysis of demand paging algorithms", IFIP Congress 1971). The
//! speed of the host falls as the size of the problem grows beyond its memory, as in the functional performance model
//! (Lastovetsky and Reddy, IJHPCA 21(1), 2007).
//!
//! **Known to be wrong.** Repeated passes over the same arrays in the same order miss more often with LRU replacement.
//! Arrays that are not accessed for a long time are swapped out once, and then cost nothing.
//!
//! **Not modelled.** Control frames and data up to 32 KiB, which are never swapped; files on the same disk; user processes.
//!
//! [`Simulation::hold`]: crate::Simulation::hold

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use gridloom_flow::{LinkIndex, Policy, Resources};
use gridloom_platform::HostId;

/// The memory of a host that pages.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct HostMemory {
    pub size_bytes: u64,
    /// Rate of its swap, bytes per second.
    pub swap_rate: f64,
}

/// The number of bytes that a host holds. Clones share one counter.
#[derive(Clone, Debug, Default)]
pub(crate) struct HeldBytes(Arc<AtomicU64>);

impl HeldBytes {
    pub(crate) fn add(&self, bytes: u64) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn remove(&self, bytes: u64) {
        let before = self.0.fetch_sub(bytes, Ordering::Relaxed);
        assert!(before >= bytes, "a host releases {bytes} of {before} bytes");
    }

    /// Adds bytes, and removes them when the result is dropped.
    pub(crate) fn hold(&self, bytes: u64) -> Hold {
        self.add(bytes);
        Hold { held: self.clone(), bytes }
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Removes its bytes from the held ones when it is dropped.
#[derive(Debug)]
pub(crate) struct Hold {
    held: HeldBytes,
    bytes: u64,
}

impl Hold {
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.held.remove(self.bytes);
    }
}

/// The memory of one host that pages, with its swap.
#[derive(Debug)]
pub(crate) struct PagedMemory {
    memory: HostMemory,
    /// The engine's link that represents the swap.
    pub(crate) swap: LinkIndex,
    pub(crate) held: HeldBytes,
}

impl PagedMemory {
    /// Returns the share of the held bytes that is not in memory, if the host holds `more` bytes besides.
    pub(crate) fn outside(&self, more: u64) -> f64 {
        let held = self.held.get().saturating_add(more);
        match self.memory.size_bytes {
            size if held > size => 1.0 - size as f64 / held as f64,
            _ => 0.0,
        }
    }

    /// Returns the seconds that one access to these bytes adds, if nothing else uses the swap. The host holds `more` bytes besides.
    pub(crate) fn paging_s(&self, accessed_bytes: u64, more: u64) -> f64 {
        self.outside(more) * accessed_bytes as f64 / self.memory.swap_rate
    }
}

/// The memories of the hosts that page.
#[derive(Debug, Default)]
pub(crate) struct Memories(BTreeMap<HostId, PagedMemory>);

impl Memories {
    /// Creates the engine's links for the swaps. `link_bandwidth` returns the bandwidth that a link needs so that its
    /// flows have the given rate.
    pub(crate) fn new(
        memories: &BTreeMap<HostId, HostMemory>,
        resources: &mut Resources,
        link_bandwidth: impl Fn(f64) -> f64,
    ) -> Memories {
        let paged = |(host, memory): (&HostId, &HostMemory)| {
            let swap = resources.add_link(link_bandwidth(memory.swap_rate), 0.0, Policy::Shared);
            (*host, PagedMemory { memory: *memory, swap, held: HeldBytes::default() })
        };
        Memories(memories.iter().map(paged).collect())
    }

    /// Returns the memory of a host, if it pages.
    pub(crate) fn of(&self, host: HostId) -> Option<&PagedMemory> {
        self.0.get(&host)
    }

    /// Returns the swaps that a transfer on a route uses, each with the bytes that pass it per byte of the transfer.
    /// The receiver holds the whole datum from the beginning.
    pub(crate) fn swaps(&self, (from, to): (HostId, HostId), size_bytes: u64) -> Vec<(LinkIndex, f64)> {
        let ends = [(from, 0), (to, size_bytes)];
        let swaps = ends.into_iter().filter_map(|(host, more)| {
            let memory = self.of(host)?;
            Some((memory.swap, memory.outside(more)))
        });
        swaps.filter(|(_, outside)| *outside > 0.0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_outside_grows_with_the_held_bytes() {
        let memory = HostMemory { size_bytes: 1000, swap_rate: 100.0 };
        let (one, other) = (HostId(1), HostId(2));
        let memories = Memories::new(&[(one, memory)].into(), &mut Resources::new(), |rate| rate);
        let paged = memories.of(one).unwrap();
        let hold = paged.held.hold(1000);
        assert_eq!((paged.outside(0), paged.outside(1000)), (0.0, 0.5));
        // Half of 600 bytes, at 100 bytes per second.
        assert_eq!((paged.paging_s(600, 0), paged.paging_s(600, 1000)), (0.0, 3.0));
        assert_eq!(memories.swaps((one, other), 1000), []);
        assert_eq!(memories.swaps((other, one), 1000), [(paged.swap, 0.5)]);
        drop(hold);
        assert_eq!((paged.outside(1000), memories.of(other).is_none()), (0.0, true));
    }
}

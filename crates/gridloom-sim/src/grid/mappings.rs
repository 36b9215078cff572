//! Mappings that take virtual time, like those of hard groups on a real agent.
//!
//! A plan is computed immediately. Its agent is notified when the mapping's time has passed, or when it stops the
//! mapping. The seed determines which mappings are slow, and how slow: [`crate::SimConfig::slow_mappings_of`].

use std::collections::BTreeMap;

use gridloom_base::time::SECOND_NS;
use gridloom_base::{NodeId, SplitMix64};
use gridloom_core::node::Input;

/// Durations of slow mappings: short, long enough to delay others, and longer than an agent allows.
const SLOW_NS: [u64; 3] = [300_000_000, 5 * SECOND_NS, 45 * SECOND_NS];

#[derive(Debug)]
pub(crate) struct Mappings {
    seed: u64,
    /// One in this many mappings is slow; none if 0.
    slow_of: u64,
    under_way: BTreeMap<(NodeId, u64), Input>,
    /// Number of slow mappings so far.
    slow: u64,
}

impl Mappings {
    pub(crate) fn new(seed: u64, slow_of: u64) -> Mappings {
        Mappings { seed, slow_of, under_way: BTreeMap::new(), slow: 0 }
    }

    /// Begins a mapping of a node. Returns the result if it is available immediately, or the mapping's duration in nanoseconds.
    pub(crate) fn begin(&mut self, node: NodeId, number: u64, mapped: Input) -> Result<Input, u64> {
        if self.slow_of == 0 {
            return Ok(mapped);
        }
        let mut random = SplitMix64::new(self.seed ^ node.0.rotate_left(32) ^ number);
        if random.below(self.slow_of) != 0 {
            return Ok(mapped);
        }
        self.under_way.insert((node, number), mapped);
        self.slow += 1;
        Err(SLOW_NS[random.below(SLOW_NS.len() as u64) as usize])
    }

    /// Returns the number of slow mappings so far.
    pub(crate) fn slow(&self) -> u64 {
        self.slow
    }

    /// Ends a mapping whose time has passed or that was stopped. Returns `None` if it had ended before.
    pub(crate) fn end(&mut self, node: NodeId, number: u64) -> Option<Input> {
        self.under_way.remove(&(node, number))
    }
}

#[cfg(test)]
mod tests {
    use gridloom_map::MapError;

    use super::*;

    fn mapped(number: u64) -> Input {
        Input::Mapped { number, outcome: Err(MapError::EmptyGrid) }
    }

    #[test]
    fn what_is_stopped_ends_once() {
        let mut mappings = Mappings::new(1, 1);
        let slow_ns = mappings.begin(NodeId(1), 7, mapped(7)).unwrap_err();
        assert!(SLOW_NS.contains(&slow_ns));
        assert_eq!((mappings.end(NodeId(1), 7), mappings.end(NodeId(1), 7)), (Some(mapped(7)), None));
        assert_eq!(Mappings::new(1, 0).begin(NodeId(1), 7, mapped(7)), Ok(mapped(7)));
    }
}

//! Order of flows on a link that they share: self-clocked fair queueing (Golestani, INFOCOM 1994).
//!
//! Each train gets a tag: the bytes of its flow that will have been served by its end if all flows get equal shares.
//! The smallest tag is served next. Flows that always have waiting trains get equal shares of the link; a flow that
//! sends little does not wait behind the queues of the others.
//!
//! **Invariant:** trains of one flow leave in the order in which they arrived.

use std::collections::BTreeMap;

/// Waiting trains, by flow.
#[derive(Clone, Debug)]
pub struct FairQueue<T> {
    /// Trains by tag, then in order of arrival.
    waiting: BTreeMap<(u64, u64), Waiting<T>>,
    /// Flows that have a waiting train.
    flows: BTreeMap<u64, Flow>,
    /// Tag of the train that was served last.
    clock: u64,
    serial: u64,
}

#[derive(Clone, Debug)]
struct Waiting<T> {
    flow: u64,
    bytes: u64,
    item: T,
}

#[derive(Clone, Copy, Debug, Default)]
struct Flow {
    bytes: u64,
    last_tag: u64,
}

impl<T> Default for FairQueue<T> {
    fn default() -> FairQueue<T> {
        FairQueue { waiting: BTreeMap::new(), flows: BTreeMap::new(), clock: 0, serial: 0 }
    }
}

impl<T> FairQueue<T> {
    /// Returns the number of waiting trains.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Reports whether no train waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Returns the waiting bytes of this flow.
    pub fn bytes_of(&self, flow: u64) -> f64 {
        self.flows.get(&flow).map_or(0.0, |flow| flow.bytes as f64)
    }

    /// Adds a train of this flow.
    pub fn push(&mut self, flow: u64, bytes: f64, item: T) {
        let bytes = bytes as u64;
        let state = self.flows.entry(flow).or_default();
        state.last_tag = state.last_tag.max(self.clock) + bytes;
        state.bytes += bytes;
        self.serial += 1;
        self.waiting.insert((state.last_tag, self.serial), Waiting { flow, bytes, item });
    }

    /// Takes the train to serve next.
    pub fn pop(&mut self) -> Option<T> {
        let ((tag, _), Waiting { flow, bytes, item }) = self.waiting.pop_first()?;
        self.clock = tag;
        let state = self.flows.get_mut(&flow).expect("it has something waiting");
        state.bytes -= bytes;
        // Its last tag now equals the clock, which is what a new flow starts from.
        if state.last_tag == tag {
            self.flows.remove(&flow);
        }
        Some(item)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(queue: &mut FairQueue<u64>, count: usize) -> Vec<u64> {
        (0..count).filter_map(|_| queue.pop()).collect()
    }

    #[test]
    fn flows_get_equal_bytes_whatever_their_trains() {
        let mut queue = FairQueue::default();
        for _ in 0..40 {
            queue.push(1, 1000.0, 1);
        }
        for _ in 0..10 {
            queue.push(2, 4000.0, 2);
        }
        let first = served(&mut queue, 25);
        assert_eq!((first.iter().filter(|flow| **flow == 1).count(), queue.bytes_of(2)), (20, 20_000.0));
        assert_eq!(served(&mut queue, 100).len(), 25);
        assert!(queue.is_empty() && queue.flows.is_empty());
    }

    #[test]
    fn who_sends_little_does_not_wait_behind_a_queue() {
        let mut queue = FairQueue::default();
        for _ in 0..100 {
            queue.push(1, 1500.0, 1);
        }
        served(&mut queue, 10);
        queue.push(2, 100.0, 2);
        assert_eq!(served(&mut queue, 2), [2, 1]);
    }

    #[test]
    fn a_flow_keeps_its_order() {
        let mut queue = FairQueue::default();
        for (bytes, item) in [(3000.0, 0), (10.0, 1), (1500.0, 2), (1.0, 3)] {
            queue.push(7, bytes, item);
        }
        assert_eq!(served(&mut queue, 4), [0, 1, 2, 3]);
    }
}

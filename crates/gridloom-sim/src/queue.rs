//! The event queue, and the conversion between nanoseconds of machines and seconds of flows.
//!
//! **Invariant:** events due at the same time are returned in the order in which they were queued.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use gridloom_base::Time;
use gridloom_base::time::SECOND_NS;

/// Events ordered by (time, sequence number).
#[derive(Debug)]
pub(crate) struct Queue<T> {
    entries: BinaryHeap<Entry<T>>,
    sequence: u64,
}

#[derive(Debug)]
struct Entry<T> {
    at: Time,
    sequence: u64,
    what: T,
}

impl<T> Queue<T> {
    pub(crate) fn new() -> Queue<T> {
        Queue { entries: BinaryHeap::new(), sequence: 0 }
    }

    /// Queues an event. Returns its sequence number, which is unique in this queue.
    pub(crate) fn push(&mut self, at: Time, what: T) -> u64 {
        self.sequence += 1;
        self.entries.push(Entry { at, sequence: self.sequence, what });
        self.sequence
    }

    /// Returns the number of events that were ever queued.
    pub(crate) fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Iterates over all queued events, in no particular order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.entries.iter().map(|entry| &entry.what)
    }

    /// Returns the time of the next event.
    pub(crate) fn next_at(&self) -> Option<Time> {
        self.entries.peek().map(|entry| entry.at)
    }

    /// Removes the next event. Returns it with its sequence number.
    pub(crate) fn pop(&mut self) -> Option<(Time, u64, T)> {
        self.entries.pop().map(|entry| (entry.at, entry.sequence, entry.what))
    }
}

/// Reversed, because the heap returns the greatest entry.
impl<T> Ord for Entry<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.sequence).cmp(&(self.at, self.sequence))
    }
}

impl<T> PartialOrd for Entry<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> PartialEq for Entry<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<T> Eq for Entry<T> {}

/// Converts seconds to whole nanoseconds, rounded up, so that nothing is noticed before it happens. A value that
/// exceeds a whole number only by the rounding error of its representation is converted to that number.
pub(crate) fn ns_up(seconds: f64) -> u64 {
    let ns = seconds * SECOND_NS as f64;
    let nearest = ns.round();
    if (ns - nearest).abs() <= (ns * 4.0 * f64::EPSILON).max(1e-6) { nearest as u64 } else { ns.ceil() as u64 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gridloom_base::time::ns_to_seconds;

    #[test]
    fn what_is_due_together_arrives_in_the_order_put_in() {
        let mut queue = Queue::new();
        for (at, what) in [(2, 'c'), (1, 'a'), (2, 'd'), (1, 'b')] {
            queue.push(Time(at), what);
        }
        assert_eq!(queue.next_at(), Some(Time(1)));
        let order: String = std::iter::from_fn(|| queue.pop()).map(|(_, _, what)| what).collect();
        assert_eq!(order, "abcd");
    }

    #[test]
    fn whole_nanoseconds_survive_the_passage_and_others_go_up() {
        for ns in [0, 1, 3, 7, 999_999_999, 1_000_000_001, 86_400_000_000_003, 4_000_000_000_000_000] {
            assert_eq!(ns_up(ns_to_seconds(ns)), ns);
        }
        assert_eq!(ns_up(1.2e-9), 2);
    }
}

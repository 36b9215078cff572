//! Applies filters to times where there are no messages: between two sites of a grid, which send byte streams.

use gridloom_base::Time;

use super::{Filter, FilterSpec, PeerPair};

/// The filters of one direction or of a part of it. Streams that share a rate share one instance; each sequence with
/// its own order has one of its own.
pub struct FilterTimes {
    filters: Vec<Box<dyn Filter>>,
    /// The time at which the last bytes are due.
    last: Time,
}

impl FilterTimes {
    /// # Errors
    /// If one of the filters changes bytes or spreads messages over connections.
    pub fn new(specs: &[FilterSpec], pair: PeerPair) -> Result<FilterTimes, String> {
        let made = specs.iter().map(|spec| {
            let filter = spec.make(pair).expect("made when it was parsed");
            let allowed = "only rate, delay and jitter are allowed between sites";
            match (filter.changes_bytes(), filter.connections()) {
                (true, _) => Err(format!("filter {spec} changes bytes: {allowed}")),
                (false, 2..) => Err(format!("filter {spec} is for messages: {allowed}; servers have --streams")),
                (false, _) => Ok(filter),
            }
        });
        Ok(FilterTimes { filters: made.collect::<Result<_, _>>()?, last: Time::ZERO })
    }

    /// Returns the longest time for which the filters delay bytes that have left, in nanoseconds.
    pub fn delay_ns_max(&self) -> u64 {
        self.filters.iter().map(|filter| filter.delay_ns_max()).fold(0, u64::saturating_add)
    }

    /// Returns the time at which `size_bytes` bytes sent at `at` have left, after those sent before.
    pub fn departure(&mut self, at: Time, size_bytes: usize) -> Time {
        self.filters.iter_mut().fold(at, |at, filter| filter.departure(at, size_bytes))
    }

    /// Returns the time at which bytes that left at `left` are due: not before bytes that left earlier.
    pub fn delivery(&mut self, left: Time) -> Time {
        self.last = self.last.max(self.filters.iter_mut().fold(left, |at, filter| filter.delivery(at)));
        self.last
    }
}

#[cfg(test)]
mod tests {
    use gridloom_base::time::MILLISECOND_NS;

    use super::*;

    #[test]
    fn bytes_leave_at_the_rate_and_are_due_later_in_their_order() {
        let specs = ["rate=1MB/s", "delay=16ms", "jitter=5ms"].map(|text| text.parse().unwrap());
        let mut times = FilterTimes::new(&specs, PeerPair { from: 0, to: 1 }).unwrap();
        assert_eq!(times.delay_ns_max(), 21 * MILLISECOND_NS);
        let left: Vec<Time> = (0..3).map(|_| times.departure(Time::ZERO, 1000)).collect();
        assert_eq!(left, [1, 2, 3].map(|ms| Time(ms * MILLISECOND_NS)));
        let due: Vec<Time> = left.iter().map(|left| times.delivery(*left)).collect();
        assert!(due.is_sorted() && left.iter().zip(&due).all(|(left, due)| *due >= *left + 16 * MILLISECOND_NS));
        let changing = FilterTimes::new(&["compress".parse().unwrap()], PeerPair { from: 0, to: 1 }).err().unwrap();
        assert!(changing.starts_with("filter compress changes bytes"));
        let several = FilterTimes::new(&["stripe=2".parse().unwrap()], PeerPair { from: 0, to: 1 }).err().unwrap();
        assert!(several.starts_with("filter stripe=2 is for messages"));
    }
}

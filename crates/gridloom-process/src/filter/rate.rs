//! `rate=BANDWIDTH`: a message leaves after the previous ones have left and its own bytes have taken their time.
//!
//! Each direction has the whole rate. Messages wait at the sender, where they count like any others that a connection
//! has not taken yet.

use gridloom_base::Time;
use gridloom_base::limits::FILTER_RATES;
use gridloom_base::time::seconds_to_ns;
use gridloom_platform::units;

use super::{Filter, FilterKind};

pub(super) const KIND: FilterKind = FilterKind {
    name: "rate",
    about: "sends at most that many bytes per second in each direction; messages wait for their turn",
    example: "rate=10MBps",
    make: |value, _| {
        let bandwidth = units::bandwidth(value)?;
        let (least, most) = FILTER_RATES;
        match (least..=most).contains(&bandwidth) {
            true => Ok(Box::new(Rate { bandwidth, free: Time::ZERO })),
            false => Err(format!("expected {least} to {most:e} bytes per second, such as 10MBps")),
        }
    },
};

struct Rate {
    /// Bytes per second.
    bandwidth: f64,
    /// The time at which all messages so far have left.
    free: Time,
}

impl Filter for Rate {
    fn departure(&mut self, at: Time, size_bytes: usize) -> Time {
        self.free = self.free.max(at) + seconds_to_ns(size_bytes as f64 / self.bandwidth);
        self.free
    }

    fn delays_sending(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::super::{FilterChain, PeerPair};
    use gridloom_base::limits::FILTER_AHEAD_NS;
    use gridloom_base::time::SECOND_NS;

    use super::*;

    #[test]
    fn letters_take_their_time_one_after_the_other() {
        let pair = PeerPair { from: 0, to: 1 };
        let mut chain = FilterChain::new(&["rate=1kBps".parse().unwrap()], pair);
        let offered: Vec<u64> = (0..3).map(|_| chain.send(Time(SECOND_NS), vec![7; 500]).1.0).collect();
        assert_eq!(offered, [3, 4, 5].map(|halves| halves * SECOND_NS / 2 - FILTER_AHEAD_NS));
        let (_, later) = chain.send(Time(9 * SECOND_NS), vec![7; 1000]);
        assert_eq!(later.0, 10 * SECOND_NS - FILTER_AHEAD_NS, "a pause is not made up for");
    }
}

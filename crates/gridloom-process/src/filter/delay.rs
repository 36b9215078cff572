//! `delay=TIME`: a message is delivered TIME after it was sent, as if the processes were far apart.

use gridloom_base::Time;

use super::{Filter, FilterKind, parse_delay_ns};

pub(super) const KIND: FilterKind = FilterKind {
    name: "delay",
    about: "delays each message by that time",
    example: "delay=16ms",
    make: |value, _| Ok(Box::new(Delay { ns: parse_delay_ns(value)? })),
};

struct Delay {
    ns: u64,
}

impl Filter for Delay {
    fn delivery(&mut self, left: Time) -> Time {
        left + self.ns
    }

    fn delay_ns_max(&self) -> u64 {
        self.ns
    }
}

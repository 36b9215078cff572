//! `jitter=TIME` or `jitter=TIME:SEED`: delays each message by a random time, uniform from 0 to TIME.
//!
//! The times depend only on the seed (default 0) and the pair of processes. The chain keeps the order: a message with
//! a short delay that follows one with a long delay is due together with it.

use gridloom_base::{SplitMix64, Time};

use super::{Filter, FilterKind, parse_delay_ns};

pub(super) const KIND: FilterKind = FilterKind {
    name: "jitter",
    about: "delays each message by a random time up to that one; jitter=2ms:7 has the seed 7",
    example: "jitter=2ms",
    make: |value, pair| {
        let (time, seed) = value.split_once(':').unwrap_or((value, "0"));
        let seed: u64 = seed.parse().map_err(|_| format!("seed '{seed}' is not a number, such as in jitter=2ms:7"))?;
        // Hashes the pair, so that different pairs and seeds do not share their random times.
        let pair = SplitMix64::new(u64::from(pair.from) << 32 | u64::from(pair.to)).next_u64();
        Ok(Box::new(Jitter { ns: parse_delay_ns(time)?, random: SplitMix64::new(pair.wrapping_add(seed)) }))
    },
};

struct Jitter {
    ns: u64,
    random: SplitMix64,
}

impl Filter for Jitter {
    fn delivery(&mut self, left: Time) -> Time {
        left + self.random.below(self.ns + 1)
    }

    fn delay_ns_max(&self) -> u64 {
        self.ns
    }
}

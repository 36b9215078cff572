//! `stripe=NUMBER`: messages are spread over that many connections in turn and put back in order.
//!
//! ```text
//! | bytes | number of the message, u64 le |
//! ```
//!
//! On a link with a long latency a connection has no more bytes in flight than its buffers hold, and stalls after a
//! loss. The filter itself changes nothing. The owner of a chain opens as many connections as
//! [`FilterChain::connections`](super::FilterChain::connections) returns, and numbers their messages by [`StripeSequencer`].
//!
//! **Promise:** messages are delivered once each, in the order in which they were numbered, from whichever connection
//! they arrive on. **Limit:** none here. A message of 1 GiB may still be in transfer when all later ones have arrived,
//! so those wait for it. The owner of the connections limits the bytes in flight. After their end, [`StripeSequencer::missing`]
//! returns a message that was lost.

use std::collections::BTreeMap;

use gridloom_base::limits::STRIPES;

use super::{Filter, FilterError, FilterKind};

const NAME: &str = "stripe";

pub(super) const KIND: FilterKind = FilterKind {
    name: NAME,
    about: "spreads messages over that many connections and restores their order",
    example: "stripe=4",
    make: |value, _| {
        let (least, most) = STRIPES;
        match value.parse() {
            Ok(connections) if (least..=most).contains(&connections) => Ok(Box::new(StripeFilter { connections })),
            Ok(_) | Err(_) => Err(format!("expected {least} to {most} connections")),
        }
    },
};

struct StripeFilter {
    connections: usize,
}

impl Filter for StripeFilter {
    fn connections(&self) -> usize {
        self.connections
    }
}

/// The messages of a pair of processes, in both directions.
#[derive(Debug, Default)]
pub struct StripeSequencer {
    /// Number of messages sent, and number of messages delivered.
    sent: u64,
    delivered: u64,
    /// Messages that arrived before one that was sent earlier.
    out_of_order: BTreeMap<u64, Vec<u8>>,
}

impl StripeSequencer {
    /// Numbers the next message to be sent.
    pub fn number(&mut self, payload: &mut Vec<u8>) {
        payload.extend_from_slice(&self.sent.to_le_bytes());
        self.sent += 1;
    }

    /// Accepts a received message. Returns the messages that can be delivered now, in order.
    ///
    /// # Errors
    /// If it has no number, or an impossible one.
    pub fn reorder(&mut self, mut payload: Vec<u8>) -> Result<Vec<Vec<u8>>, FilterError> {
        let length = payload.len();
        let Some((_, number)) = payload.split_last_chunk::<8>() else {
            return Err(FilterError::Truncated { filter: NAME, length });
        };
        let number = u64::from_le_bytes(*number);
        payload.truncate(length - 8);
        if number < self.delivered || self.out_of_order.contains_key(&number) {
            let why = format!("message {number} arrived twice");
            return Err(FilterError::Damaged { filter: NAME, length, why });
        }
        self.out_of_order.insert(number, payload);
        let mut all = Vec::new();
        while let Some(payload) = self.out_of_order.remove(&self.delivered) {
            self.delivered += 1;
            all.push(payload);
        }
        Ok(all)
    }

    /// Returns the number of a message that has not arrived although a later one has.
    #[must_use]
    pub fn missing(&self) -> Option<u64> {
        (!self.out_of_order.is_empty()).then_some(self.delivered)
    }
}

#[cfg(test)]
mod tests {
    use gridloom_base::SplitMix64;

    use super::*;

    fn numbered(sender: &mut StripeSequencer, bytes: &[u8]) -> Vec<u8> {
        let mut payload = bytes.to_vec();
        sender.number(&mut payload);
        payload
    }

    #[test]
    fn batches_of_several_connections_arrive_once_and_in_order() {
        for seed in 0..200 {
            let mut random = SplitMix64::new(seed);
            let (mut sender, mut receiver) = <(StripeSequencer, StripeSequencer)>::default();
            let mut ways: Vec<Vec<Vec<u8>>> = vec![Vec::new(); 1 + random.below(5) as usize];
            for number in 0..100_u8 {
                let at = random.below(ways.len() as u64) as usize;
                ways[at].push(numbered(&mut sender, &vec![number; usize::from(number % 3)]));
            }
            let mut came = Vec::new();
            while ways.iter().any(|way| !way.is_empty()) {
                let at = random.below(ways.len() as u64) as usize;
                if !ways[at].is_empty() {
                    came.extend(receiver.reorder(ways[at].remove(0)).unwrap());
                }
            }
            let all: Vec<Vec<u8>> = (0..100_u8).map(|number| vec![number; usize::from(number % 3)]).collect();
            assert_eq!(came, all, "seed {seed}");
            assert_eq!(receiver.missing(), None);
        }
    }

    #[test]
    fn a_letter_that_cannot_be_is_refused() {
        let (mut sender, mut receiver) = <(StripeSequencer, StripeSequencer)>::default();
        assert!(matches!(receiver.reorder(vec![0; 7]), Err(FilterError::Truncated { length: 7, .. })));
        let (first, second) = (numbered(&mut sender, b"a"), numbered(&mut sender, b"b"));
        assert_eq!(receiver.reorder(second.clone()).unwrap().len(), 0);
        assert!(receiver.reorder(second.clone()).unwrap_err().to_string().contains("message 1 arrived twice"));
        assert_eq!(receiver.reorder(first).unwrap(), [b"a", b"b"]);
        assert!(receiver.reorder(second).is_err());
    }

    #[test]
    fn letters_wait_for_one_that_is_longer_than_all_of_them() {
        let (mut sender, mut receiver) = <(StripeSequencer, StripeSequencer)>::default();
        let long = numbered(&mut sender, &vec![1; 1 << 20]);
        for _ in 0..300 {
            assert_eq!(receiver.reorder(numbered(&mut sender, &vec![2; 1 << 20])).unwrap().len(), 0);
        }
        assert_eq!(receiver.missing(), Some(0));
        assert_eq!(receiver.reorder(long).unwrap().len(), 301);
        assert_eq!(receiver.missing(), None);
    }
}

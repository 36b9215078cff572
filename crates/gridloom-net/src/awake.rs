//! Whether to look for what comes next a little before going to sleep.
//!
//! Waking a sleeping processor costs some 30 µs on a virtual machine, several times what a short call costs. But who
//! looks takes a processor: with a single one that is the very processor on which the answer is made.

use std::time::Instant;

/// Who waits stays awake so long for what comes next, if it did not wait longer for the last. A miss costs that once.
const AWAKE_NS: u64 = 100_000;
/// And so much longer for each byte of what it sent last, which has to be read, understood and often answered in length.
const AWAKE_NS_PER_BYTE: u64 = 1;
/// But never longer than this.
const AWAKE_NS_MAX: u64 = 1_000_000;

/// How one waits: awake, while things follow one another closely.
#[derive(Clone, Debug)]
pub(crate) struct Patience {
    may_spin: bool,
    was_close: bool,
    awake_ns: u64,
}

impl Patience {
    pub(crate) fn new() -> Patience {
        Patience { may_spin: has_spare_processor(), was_close: false, awake_ns: AWAKE_NS }
    }

    /// Whether to look again rather than sleep, in a wait that began then. Whoever else wants this processor goes first.
    pub(crate) fn stays_awake(&self, began: Instant) -> bool {
        let stays = self.may_spin && self.was_close && self.is_close(began);
        if stays {
            std::thread::yield_now();
        }
        stays
    }

    /// So much was sent: the next wait may be longer.
    pub(crate) fn sent(&mut self, bytes: u64) {
        self.awake_ns = bytes.saturating_mul(AWAKE_NS_PER_BYTE).saturating_add(AWAKE_NS).min(AWAKE_NS_MAX);
    }

    /// A wait that began then is over.
    pub(crate) fn waited(&mut self, began: Instant) {
        self.was_close = self.is_close(began);
        self.awake_ns = AWAKE_NS;
    }

    fn is_close(&self, began: Instant) -> bool {
        began.elapsed().as_nanos() as u64 <= self.awake_ns
    }
}

/// Whether this thread, and those that it starts, may use more than one processor.
pub(crate) fn has_spare_processor() -> bool {
    rustix::thread::sched_getaffinity(None).is_ok_and(|processors| processors.count() > 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_sent_much_waits_longer_but_not_without_bound() {
        let mut patience = Patience::new();
        let limits = [0, 196_088, 1 << 30, u64::MAX].map(|bytes| {
            patience.sent(bytes);
            patience.awake_ns
        });
        assert_eq!(limits, [AWAKE_NS, AWAKE_NS + 196_088, AWAKE_NS_MAX, AWAKE_NS_MAX]);
    }

    #[test]
    fn who_waited_long_sleeps_at_once() {
        let now = Instant::now();
        let mut patience = Patience { may_spin: true, ..Patience::new() };
        assert!(!patience.stays_awake(now), "nothing has come yet");
        // A test may be stopped for as long as it likes.
        patience.awake_ns = u64::MAX;
        patience.waited(now);
        assert_eq!(patience.awake_ns, AWAKE_NS, "more time is for one wait");
        patience.awake_ns = u64::MAX;
        assert!(patience.stays_awake(now));
        patience.awake_ns = 0;
        patience.waited(now);
        patience.awake_ns = u64::MAX;
        assert!(!patience.stays_awake(now));
    }
}

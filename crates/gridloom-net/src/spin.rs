//! Decides when a waiting thread polls for a while before it sleeps.
//!
//! Waking a sleeping processor costs some 30 µs on a virtual machine, several times what a short call costs. A polling
//! thread takes a processor, though: with only one, that is the processor on which the answer is computed.

use std::time::Instant;

/// Polling time, used if the previous wait was no longer. A wait that takes longer costs this time once.
const AWAKE_NS: u64 = 100_000;
/// Extra polling time for each byte that the thread sent last: the peer has to read and decode it, and often sends a long reply.
const AWAKE_NS_PER_BYTE: u64 = 1;
/// Maximum polling time.
const AWAKE_NS_MAX: u64 = 1_000_000;

/// Polls while messages follow one another closely, and sleeps otherwise.
#[derive(Clone, Debug)]
pub(crate) struct SpinPolicy {
    has_spare: bool,
    /// True if no other thread of the program needs this processor.
    is_alone: bool,
    was_close: bool,
    awake_ns: u64,
}

impl SpinPolicy {
    pub(crate) fn new() -> SpinPolicy {
        SpinPolicy { has_spare: has_spare_processor(), is_alone: false, was_close: false, awake_ns: AWAKE_NS }
    }

    /// Gives this thread its processor exclusively from now on: it no longer yields.
    pub(crate) fn keep_processor(&mut self) {
        self.is_alone = true;
    }

    /// Reports whether to poll again rather than sleep, in a wait that began at `began`. Yields the processor to other
    /// threads first, since the awaited thread may be one of them.
    pub(crate) fn yield_and_spin(&self, began: Instant) -> bool {
        let stays = self.may_spin(began);
        if stays && !self.is_alone {
            std::thread::yield_now();
        }
        stays
    }

    /// Reports whether to poll again rather than sleep, in a wait that began at `began`.
    pub(crate) fn may_spin(&self, began: Instant) -> bool {
        self.has_spare && self.was_close && self.is_close(began)
    }

    /// Records how much was sent: the next wait may poll longer.
    pub(crate) fn note_sent(&mut self, bytes: u64) {
        self.awake_ns = bytes.saturating_mul(AWAKE_NS_PER_BYTE).saturating_add(AWAKE_NS).min(AWAKE_NS_MAX);
    }

    /// Records the end of a wait that began at `began`.
    pub(crate) fn note_waited(&mut self, began: Instant) {
        self.was_close = self.is_close(began);
        self.awake_ns = AWAKE_NS;
    }

    fn is_close(&self, began: Instant) -> bool {
        began.elapsed().as_nanos() as u64 <= self.awake_ns
    }
}

/// Reports whether this thread, and those that it starts, may use more than one processor.
pub(crate) fn has_spare_processor() -> bool {
    gridloom_resources::processors() > 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_send_prolongs_the_next_wait_up_to_a_bound() {
        let mut spin = SpinPolicy::new();
        let limits = [0, 196_088, 1 << 30, u64::MAX].map(|bytes| {
            spin.note_sent(bytes);
            spin.awake_ns
        });
        assert_eq!(limits, [AWAKE_NS, AWAKE_NS + 196_088, AWAKE_NS_MAX, AWAKE_NS_MAX]);
    }

    #[test]
    fn after_a_long_wait_the_next_one_sleeps_at_once() {
        let now = Instant::now();
        let mut spin = SpinPolicy { has_spare: true, ..SpinPolicy::new() };
        assert!(!spin.yield_and_spin(now), "nothing has come yet");
        // The operating system may pause a test for any length of time.
        spin.awake_ns = u64::MAX;
        spin.note_waited(now);
        assert_eq!(spin.awake_ns, AWAKE_NS, "more time is for one wait");
        spin.awake_ns = u64::MAX;
        assert!(spin.yield_and_spin(now));
        spin.awake_ns = 0;
        spin.note_waited(now);
        spin.awake_ns = u64::MAX;
        assert!(!spin.yield_and_spin(now));
    }
}

//! Whether to look for what comes next a little before going to sleep.
//!
//! Waking a sleeping processor costs some 30 µs on a virtual machine, several times what a short call costs. But who
//! looks takes a processor: with a single one that is the very processor on which the answer is made.

use std::time::Instant;

/// Who waits stays awake so long for what comes next, if it did not wait longer for the last. A miss costs that once.
const AWAKE_NS_MAX: u64 = 100_000;

/// How one waits: awake, while things follow one another closely.
#[derive(Clone, Debug)]
pub(crate) struct Patience {
    may_spin: bool,
    last_wait_ns: u64,
}

impl Patience {
    pub(crate) fn new() -> Patience {
        Patience { may_spin: has_spare_processor(), last_wait_ns: u64::MAX }
    }

    /// Whether to look again rather than sleep, in a wait that began then. Whoever else wants this processor goes first.
    pub(crate) fn stays_awake(&self, began: Instant) -> bool {
        let stays =
            self.may_spin && self.last_wait_ns <= AWAKE_NS_MAX && began.elapsed().as_nanos() as u64 <= AWAKE_NS_MAX;
        if stays {
            std::thread::yield_now();
        }
        stays
    }

    /// A wait that began then is over.
    pub(crate) fn waited(&mut self, began: Instant) {
        self.last_wait_ns = began.elapsed().as_nanos() as u64;
    }
}

/// Whether this thread, and those that it starts, may use more than one processor.
pub(crate) fn has_spare_processor() -> bool {
    rustix::thread::sched_getaffinity(None).is_ok_and(|processors| processors.count() > 1)
}

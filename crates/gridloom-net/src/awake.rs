//! Whether to look for what comes next a little before going to sleep.
//!
//! Waking a sleeping processor costs some 30 µs on a virtual machine, several times what a short call costs. But who
//! looks takes a processor: with a single one that is the very processor on which the answer is made.

/// Whether this thread, and those that it starts, may use more than one processor.
pub(crate) fn has_spare_processor() -> bool {
    rustix::thread::sched_getaffinity(None).is_ok_and(|processors| processors.count() > 1)
}

//! The processor time of this thread and of this process. It does not include time in which other threads ran.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Returns the processor time that this thread has used.
pub fn processor_time() -> Duration {
    time_of(ClockId::ThreadCPUTime)
}

/// Returns the processor time that all threads of this process have used.
pub(crate) fn process_time() -> Duration {
    time_of(ClockId::ProcessCPUTime)
}

fn time_of(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

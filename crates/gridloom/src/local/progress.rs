//! Reports how long a program waits for its own processes.

use std::time::{Duration, Instant};

use crate::log;

/// Time after which a wait is reported. Each further report follows after twice the time of the last one.
const REPORT_AFTER: Duration = Duration::from_secs(20);

/// The wait for starting processes.
pub(crate) struct StartProgress {
    began: Instant,
    reported_after: Duration,
}

impl StartProgress {
    pub(crate) fn new() -> StartProgress {
        StartProgress { began: Instant::now(), reported_after: REPORT_AFTER }
    }

    /// Returns the time until the next report.
    pub(crate) fn left(&self) -> Duration {
        self.reported_after.saturating_sub(self.began.elapsed())
    }

    /// Logs the awaited event if the next report is due.
    pub(crate) fn report(&mut self, awaited: impl FnOnce() -> String) {
        let waited = self.began.elapsed();
        if waited < self.reported_after {
            return;
        }
        self.reported_after = waited * 2;
        let seconds = waited.as_secs();
        log::warn(&format!(
            "the local grid has been starting for {seconds} s; all its processes are running: {}",
            awaited()
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_wait_is_reported_ever_less_often() {
        let mut progress = StartProgress::new();
        progress.report(|| panic!("it has just begun"));
        progress.began = Instant::now() - 2 * REPORT_AFTER;
        let mut reports = 0;
        for _ in 0..10 {
            progress.report(|| {
                reports += 1;
                "something".into()
            });
        }
        assert_eq!(reports, 1);
        assert!(progress.left() > REPORT_AFTER);
    }
}

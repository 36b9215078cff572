//! Limits how many log lines refused connections produce: a flood of them would otherwise fill the disk.

use gridloom_base::Time;
use gridloom_base::limits::{REFUSALS_LOGGED_MAX, REFUSALS_LOGGED_NS};

/// Refusals in the current period of [`REFUSALS_LOGGED_NS`].
#[derive(Default)]
pub(super) struct Refusals {
    period_ends: Time,
    logged: u32,
    unlogged: u64,
}

impl Refusals {
    /// Counts a refusal. Returns the suffix of its log line, or `None` if it must not be logged.
    pub(super) fn admit(&mut self, now: Time) -> Option<String> {
        if now >= self.period_ends {
            (self.period_ends, self.logged) = (now + REFUSALS_LOGGED_NS, 0);
        }
        if self.logged == REFUSALS_LOGGED_MAX {
            self.unlogged += 1;
            return None;
        }
        self.logged += 1;
        Some(match std::mem::take(&mut self.unlogged) {
            0 => String::new(),
            more => format!("; {more} more were turned away since the last line"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_gets_few_lines_and_its_number_is_reported() {
        let mut refusals = Refusals::default();
        let lines = (0..1000).filter(|second| refusals.admit(Time(*second)).is_some()).count();
        assert_eq!(lines, REFUSALS_LOGGED_MAX as usize);
        let later = Time(1000) + REFUSALS_LOGGED_NS;
        let told = format!("; {} more were turned away since the last line", 1000 - lines);
        assert_eq!(refusals.admit(later), Some(told));
        assert_eq!(refusals.admit(later), Some(String::new()));
    }
}

//! Limits the records for the audit log, by user: a program that does the same thing all the time must fill neither the log nor
//! the connection to the agent.

use std::collections::BTreeMap;

use gridloom_base::Time;
use gridloom_base::limits::{AUDIT_NS, AUDIT_USERS_MAX};

use super::message::OTHER_USERS;

/// The records of each user in the current period of [`AUDIT_NS`].
#[derive(Debug)]
pub(super) struct RecordLimit {
    records_max: u32,
    period_ends: Time,
    users: BTreeMap<String, Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    recorded: u32,
    suppressed: u64,
}

impl RecordLimit {
    /// Permits this many records of each user in a period.
    pub(super) fn new(records_max: u32) -> RecordLimit {
        RecordLimit { records_max, period_ends: Time::ZERO, users: BTreeMap::new() }
    }

    /// Counts a record of a user. Returns false if the user has too many.
    pub(super) fn admit(&mut self, user: &str) -> bool {
        let is_separate = self.users.len() < AUDIT_USERS_MAX || self.users.contains_key(user);
        let counts = self.users.entry(if is_separate { user } else { OTHER_USERS }.to_string()).or_default();
        let is_recorded = counts.recorded < self.records_max;
        match is_recorded {
            true => counts.recorded += 1,
            false => counts.suppressed += 1,
        }
        is_recorded
    }

    /// Begins a new period, if it is time. Returns the users with suppressed records, and the number of these.
    pub(super) fn begin_period(&mut self, now: Time) -> Vec<(String, u64)> {
        if now < self.period_ends {
            return Vec::new();
        }
        self.period_ends = now + AUDIT_NS;
        let users = std::mem::take(&mut self.users).into_iter();
        users.filter(|(_, counts)| counts.suppressed > 0).map(|(user, counts)| (user, counts.suppressed)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_user_has_a_limit_and_the_others_are_counted() {
        let mut limit = RecordLimit::new(100);
        assert_eq!(limit.begin_period(Time(1)), []);
        let recorded = (0..1000).filter(|_| limit.admit("mallory")).count();
        assert_eq!(recorded, 100);
        assert!(limit.admit("anna"));
        assert_eq!(limit.begin_period(Time(AUDIT_NS)), []);
        let suppressed = vec![("mallory".to_string(), 900)];
        assert_eq!(limit.begin_period(Time(1 + AUDIT_NS)), suppressed);
        assert!(limit.admit("mallory"));
        (0..10 * AUDIT_USERS_MAX).for_each(|user| _ = limit.admit(&format!("user {user}")));
        assert!(limit.users.len() <= AUDIT_USERS_MAX + 1);
    }
}

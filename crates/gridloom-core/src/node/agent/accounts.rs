//! The usage of users by day, summed up over servers.
//!
//! Servers report totals since they started. The table remembers the last totals of each server and adds the differences. It is
//! stored with these totals, so a restarted agent that has lost the last changes adds them with the next report of each server,
//! and counts nothing twice. A server that restarts has a new identifier, and its totals begin at 0.
//!
//! **Limits:** usage counts for the day of its report. What a server has reported since the table was stored is lost if both
//! agent and server end before the table is stored again.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Bound;

use serde::{Deserialize, Serialize};

use crate::node::message::{DayUsage, OTHER_USERS, Usage, UsagePage, UsageQuery, UserUsage};
use gridloom_base::limits::{
    NAME_BYTES_MAX, USAGE_DAYS_MAX, USAGE_PER_PAGE, USAGE_SERVER_DAYS_MAX, USAGE_TOTALS_MAX, USAGE_USERS_MAX,
    USAGE_USERS_PER_DAY_MAX,
};
use gridloom_base::time::DAY_NS;
use gridloom_base::{NodeId, Origin, Time};

/// The usage of all users, by day.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct UsageTable {
    /// Usage by day (days since 1970-01-01, UTC) and user.
    days: BTreeMap<u32, BTreeMap<String, Usage>>,
    servers: BTreeMap<NodeId, LastTotals>,
    reports: u64,
}

/// The totals that a server has reported.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
struct LastTotals {
    /// Day and number of the last report.
    last: (u32, u64),
    users: BTreeMap<String, Usage>,
}

impl UsageTable {
    /// Adds what has changed since the last report of a server. `users` has totals since the server started.
    pub fn report(&mut self, day: u32, server: NodeId, users: &[UserUsage]) {
        self.reports += 1;
        let known = self.servers.entry(server).or_default();
        known.last = (day, self.reports);
        let (of_day, before) = (self.days.entry(day).or_default(), known.users.len());
        for UserUsage { user, usage } in users {
            let is_known = known.users.contains_key(user);
            // No correct server reports more users.
            if !is_known && known.users.len() > USAGE_USERS_MAX {
                continue;
            }
            let last = known.users.entry(user.clone()).or_default();
            let difference = usage.since(last);
            // Totals never decrease, even if an old report arrives again.
            last.add(&difference);
            if !difference.is_empty() {
                let is_separate = of_day.len() < USAGE_USERS_PER_DAY_MAX || of_day.contains_key(user);
                let user = if is_separate { user } else { OTHER_USERS };
                of_day.entry(user.to_string()).or_default().add(&difference);
            }
        }
        if of_day.is_empty() {
            self.days.remove(&day);
        }
        // Days are not counted from today: a clock that was wrong once must not delete everything.
        while self.days.len() > USAGE_DAYS_MAX as usize {
            self.days.pop_first();
        }
        if self.servers[&server].users.len() > before {
            self.forget_silent_servers(day);
        }
    }

    fn forget_silent_servers(&mut self, today: u32) {
        self.servers.retain(|_, server| server.last.0.saturating_add(USAGE_SERVER_DAYS_MAX) > today);
        let mut count: usize = self.servers.values().map(|server| server.users.len()).sum();
        while count > USAGE_TOTALS_MAX {
            let oldest = self.servers.iter().min_by_key(|(_, server)| server.last.1).map(|(node, _)| *node);
            let oldest = oldest.and_then(|node| self.servers.remove(&node)).expect("some server has totals");
            count -= oldest.users.len();
        }
    }

    /// Returns the entries for a query in order, and whether there are more. `user` is the only user to include.
    fn page(&self, query: &UsageQuery, user: Option<&str>) -> (Vec<DayUsage>, bool) {
        let (first, last) = query.days;
        if first > last {
            return Default::default();
        }
        let after = query.after.as_ref().map(|(day, user)| (*day, user.as_str()));
        let from = after.map_or(first, |(day, _)| first.max(day));
        let days = self.days.range((Bound::Included(from), Bound::Included(last.max(from))));
        let all = days.flat_map(|(day, users)| users.iter().map(move |(user, usage)| (*day, user.as_str(), usage)));
        let mut wanted = all
            .filter(|(day, _, _)| *day <= last)
            .filter(|(day, of, _)| after.is_none_or(|after| (*day, *of) > after))
            .filter(|(_, of, _)| user.is_none_or(|user| user == *of));
        let of = |(day, user, usage): (u32, &str, &Usage)| DayUsage { day, user: user.into(), usage: *usage };
        let entries = wanted.by_ref().take(USAGE_PER_PAGE).map(of).collect();
        (entries, wanted.next().is_some())
    }

    /// Answers a query of a user. `stored_bytes` has the bytes of shared data that each user stores, and `disk_bytes` those that each user
    /// has on disks of servers.
    ///
    /// # Errors
    /// If the user may not see the usage of the other one.
    pub(super) fn answer(
        &self,
        by: &Origin,
        query: &UsageQuery,
        stored_bytes: &BTreeMap<Cow<'_, str>, u64>,
        disk_bytes: &BTreeMap<Cow<'_, str>, u64>,
    ) -> Result<UsagePage, String> {
        let own = by.user.as_str();
        let user = match query.user.as_deref() {
            Some(user) if user != own && !by.is_administrator => {
                return Err(format!(
                    "'{own}' may see only the usage of '{own}', not that of '{user}'; an administrator of the grid sees everybody's"
                ));
            }
            None if !by.is_administrator => Some(own),
            user => user,
        };
        let (entries, has_more) = self.page(query, user);
        let shown = |bytes: &BTreeMap<Cow<'_, str>, u64>| {
            let shown = bytes.iter().filter(|(owner, _)| user.is_none_or(|user| user == **owner));
            let shown = shown.filter(|_| query.after.is_none()).take(USAGE_PER_PAGE);
            shown.map(|(owner, bytes)| (owner.to_string(), *bytes)).collect()
        };
        let (stored_bytes, disk_bytes) = (shown(stored_bytes), shown(disk_bytes));
        Ok(UsagePage { entries, has_more, stored_bytes, disk_bytes, links: Vec::new() })
    }
}

/// True if a server may send this report.
pub(super) fn is_valid(users: &[UserUsage]) -> bool {
    users.len() <= USAGE_USERS_MAX + 1 && users.iter().all(|one| one.user.len() <= NAME_BYTES_MAX)
}

/// True if a server may report these bytes of users.
pub(super) fn are_valid(bytes: &[(String, u64)]) -> bool {
    bytes.len() <= USAGE_USERS_MAX && bytes.iter().all(|(user, _)| user.len() <= NAME_BYTES_MAX)
}

/// Returns the bytes of each user on all servers.
pub(super) fn sum_of(servers: &BTreeMap<NodeId, Vec<(String, u64)>>) -> BTreeMap<Cow<'_, str>, u64> {
    let mut sum: BTreeMap<Cow<'_, str>, u64> = BTreeMap::new();
    for (user, bytes) in servers.values().flatten() {
        let of_user = sum.entry(Cow::Borrowed(user.as_str())).or_default();
        *of_user = of_user.saturating_add(*bytes);
    }
    sum.retain(|_, bytes| *bytes > 0);
    sum
}

/// Returns the day of a time, counted from 1970-01-01.
pub(super) fn day_of(now: Time) -> u32 {
    (now.0 / DAY_NS) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVER: NodeId = NodeId(2);

    fn users(all: &[(&str, u64)]) -> Vec<UserUsage> {
        let of = |(user, succeeded): &(&str, u64)| UserUsage {
            user: user.to_string(),
            usage: Usage { succeeded: *succeeded, slot_ns: 10 * succeeded, ..Usage::default() },
        };
        all.iter().map(of).collect()
    }

    fn entries(table: &UsageTable) -> Vec<(u32, String, u64)> {
        let query = UsageQuery { days: (0, u32::MAX), ..UsageQuery::default() };
        let (entries, has_more) = table.page(&query, None);
        assert!(!has_more);
        entries.into_iter().map(|one| (one.day, one.user, one.usage.succeeded)).collect()
    }

    #[test]
    fn lost_and_repeated_reports_are_harmless() {
        let mut table = UsageTable::default();
        table.report(1, SERVER, &users(&[("anna", 3), ("bert", 1)]));
        table.report(1, SERVER, &users(&[("anna", 3)]));
        // A report between these two was lost.
        table.report(2, SERVER, &users(&[("anna", 10)]));
        table.report(2, SERVER, &users(&[("anna", 3)]));
        table.report(2, SERVER, &users(&[("anna", 10)]));
        let of = |day, user: &str, calls| (day, user.to_string(), calls);
        assert_eq!(entries(&table), [of(1, "anna", 3), of(1, "bert", 1), of(2, "anna", 7)]);
        // A server that restarts, and another server on the same host.
        table.report(2, NodeId(3), &users(&[("anna", 2)]));
        table.report(2, NodeId(4), &users(&[("bert", 5)]));
        assert_eq!(entries(&table)[2..], [of(2, "anna", 9), of(2, "bert", 5)]);
    }

    #[test]
    fn an_agent_that_restarts_with_an_old_table_counts_everything_once() {
        let mut table = UsageTable::default();
        table.report(1, SERVER, &users(&[("anna", 3)]));
        let mut old = table.clone();
        for calls in [4, 8] {
            table.report(1, SERVER, &users(&[("anna", calls)]));
        }
        old.report(1, SERVER, &users(&[("anna", 8)]));
        assert_eq!(entries(&old), entries(&table));
    }

    #[test]
    fn days_users_and_servers_are_limited() {
        let mut table = UsageTable::default();
        for day in 0..500 {
            table.report(day, SERVER, &users(&[("anna", u64::from(day) + 1)]));
        }
        assert_eq!((table.days.len(), table.days.first_key_value().unwrap().0), (400, &100));
        for server in 0..4000 {
            let names: Vec<String> = (0..300).map(|number| format!("user {}", server * 10 + number)).collect();
            let all: Vec<(&str, u64)> = names.iter().map(|name| (name.as_str(), 1)).collect();
            table.report(500, NodeId(10 + server), &users(&all));
        }
        let of_day = &table.days[&500];
        assert_eq!(of_day.len(), USAGE_USERS_PER_DAY_MAX + 1);
        let calls: u64 = of_day.values().map(|usage| usage.succeeded).sum();
        assert_eq!(calls, 4000 * (USAGE_USERS_MAX as u64 + 1));
        let known: usize = table.servers.values().map(|server| server.users.len()).sum();
        assert!(known <= USAGE_TOTALS_MAX && table.servers.contains_key(&NodeId(4009)));
        table.report(500 + USAGE_SERVER_DAYS_MAX, NodeId(1), &users(&[("anna", 1)]));
        assert_eq!(table.servers.len(), 1, "others have reported nothing for a month");
    }

    #[test]
    fn a_long_table_is_read_in_pages() {
        let mut table = UsageTable::default();
        for (day, server) in (0..8).flat_map(|day| (0..3).map(move |server| (day, server))) {
            let names: Vec<String> = (0..250).map(|number| format!("{server}/{number:03}")).collect();
            let all: Vec<(&str, u64)> = names.iter().map(|name| (name.as_str(), 1)).collect();
            table.report(day, NodeId(u64::from(day * 10 + server)), &users(&all));
        }
        let read = |days, user| {
            let (mut query, mut all) = (UsageQuery { days, ..UsageQuery::default() }, Vec::new());
            loop {
                let (entries, has_more) = table.page(&query, user);
                assert!(entries.len() <= USAGE_PER_PAGE);
                query.after = entries.last().map(|last| (last.day, last.user.clone()));
                all.extend(entries);
                if !has_more {
                    break all;
                }
            }
        };
        assert_eq!(read((1, 6), None).len(), 6 * 750);
        let of_one: Vec<u32> = read((0, 9), Some("1/007")).into_iter().map(|one| one.day).collect();
        assert_eq!(of_one, (0..8).collect::<Vec<u32>>());
        assert_eq!((read((3, 2), None), read((8, u32::MAX), None)), (vec![], vec![]));
    }
}

//! The bytes that the data of each user have taken over links of the rules today, summed up over servers, and the users who have used up
//! their quotas of them.
//!
//! Servers report their sums of the day, so a lost or repeated report does no harm, and an agent that restarts knows them again after one
//! report of each server.

use std::collections::{BTreeMap, BTreeSet};

use crate::node::message::LinkUse;
use gridloom_base::limits::{LINK_USES_MAX, NAME_BYTES_MAX};
use gridloom_base::{NodeId, Rules};

/// A user and a link.
type Key = (String, String);

#[derive(Debug, Default)]
pub(super) struct LinkUses {
    day: u32,
    servers: BTreeMap<NodeId, BTreeMap<Key, u64>>,
    sums: BTreeMap<Key, u64>,
    used_up: BTreeSet<Key>,
}

/// True if a server may send this report.
pub(super) fn is_valid(uses: &[LinkUse]) -> bool {
    let is_valid = |one: &LinkUse| one.user.len() <= NAME_BYTES_MAX && one.link.len() <= NAME_BYTES_MAX;
    uses.len() <= LINK_USES_MAX && uses.iter().all(is_valid)
}

impl LinkUses {
    fn begin_day(&mut self, today: u32) {
        if self.day != today {
            *self = LinkUses { day: today, ..LinkUses::default() };
        }
    }

    /// Records the sums of a server. Returns true if other users have used up links than before.
    pub(super) fn report(&mut self, today: u32, server: NodeId, day: u32, uses: Vec<LinkUse>, rules: &Rules) -> bool {
        let had_used_up = !self.used_up.is_empty();
        let is_new_day = self.day != today;
        self.begin_day(today);
        let mut is_changed = is_new_day && had_used_up;
        if day != today {
            return is_changed;
        }
        let known = self.servers.entry(server).or_default();
        for LinkUse { user, link, bytes } in uses {
            let key = (user, link);
            if self.sums.len() >= LINK_USES_MAX && !self.sums.contains_key(&key) {
                continue;
            }
            // The sums of a day never decrease, even if an old report arrives again.
            let before = known.entry(key.clone()).or_default();
            let sum = self.sums.entry(key.clone()).or_default();
            *sum = sum.saturating_add(bytes.saturating_sub(*before));
            *before = bytes.max(*before);
            if rules.allowed_over_link(&key.0, &key.1).is_some_and(|allowed| *sum >= allowed) {
                is_changed |= self.used_up.insert(key);
            }
        }
        is_changed
    }

    /// Applies other rules.
    pub(super) fn set_rules(&mut self, rules: &Rules) {
        let is_used_up = |(user, link): &Key, bytes: u64| {
            rules.allowed_over_link(user, link).is_some_and(|allowed| bytes >= allowed)
        };
        let used_up = self.sums.iter().filter(|(key, bytes)| is_used_up(key, **bytes));
        self.used_up = used_up.map(|(key, _)| key.clone()).collect();
    }

    /// Returns the day, and the users who have used up links on it.
    pub(super) fn used_up(&self) -> (u32, Vec<LinkUse>) {
        (self.day, self.used_up.iter().map(|key| self.use_of(key)).collect())
    }

    /// Returns the sums of a user, or of all, on a day.
    pub(super) fn of(&self, today: u32, user: Option<&str>) -> Vec<LinkUse> {
        let sums = self.sums.keys().filter(|(of, _)| self.day == today && user.is_none_or(|user| user == of));
        sums.map(|key| self.use_of(key)).collect()
    }

    fn use_of(&self, key: &Key) -> LinkUse {
        let bytes = self.sums.get(key).copied().unwrap_or(0);
        LinkUse { user: key.0.clone(), link: key.1.clone(), bytes }
    }
}

#[cfg(test)]
mod tests {
    use gridloom_base::{RulesLink, RulesSection};

    use super::*;

    fn rules(allowed: u64) -> Rules {
        let everybody = RulesSection { links: BTreeMap::from([("wan".to_string(), allowed)]), ..Default::default() };
        let link = RulesLink { name: "wan".into(), ..RulesLink::default() };
        Rules { everybody, links: vec![link], ..Rules::default() }
    }

    fn uses(all: &[(&str, u64)]) -> Vec<LinkUse> {
        let one = |(user, bytes): &(&str, u64)| LinkUse { user: user.to_string(), link: "wan".into(), bytes: *bytes };
        all.iter().map(one).collect()
    }

    #[test]
    fn sums_of_servers_are_compared_with_the_rules_of_each_day() {
        let (mut links, rules_of_10) = (LinkUses::default(), rules(10));
        let report = |links: &mut LinkUses, today, server, day, all: &[(&str, u64)]| {
            links.report(today, NodeId(server), day, uses(all), &rules_of_10)
        };
        assert!(!report(&mut links, 1, 2, 1, &[("anna", 6), ("bert", 1)]));
        // A repeated report, and an old one.
        assert!(!report(&mut links, 1, 2, 1, &[("anna", 6)]) && !report(&mut links, 1, 2, 1, &[("anna", 3)]));
        assert!(report(&mut links, 1, 3, 1, &[("anna", 4)]));
        assert!(!report(&mut links, 1, 3, 1, &[("anna", 5)]), "it is known");
        assert_eq!(links.used_up(), (1, uses(&[("anna", 11)])));
        assert_eq!(links.of(1, None), uses(&[("anna", 11), ("bert", 1)]));
        assert_eq!((links.of(1, Some("bert")), links.of(2, None)), (uses(&[("bert", 1)]), vec![]));
        links.set_rules(&rules(12));
        assert_eq!(links.used_up(), (1, vec![]));
        links.set_rules(&rules(1));
        assert_eq!(links.used_up(), (1, uses(&[("anna", 11), ("bert", 1)])));
        assert!(report(&mut links, 2, 3, 1, &[("anna", 50)]), "the next day begins");
        assert_eq!((links.used_up(), links.of(2, None)), ((2, vec![]), vec![]));
    }

    #[test]
    fn the_number_of_sums_is_bounded() {
        let mut links = LinkUses::default();
        for server in 0..3 {
            let users: Vec<String> = (0..LINK_USES_MAX / 2 + 1).map(|number| format!("{server} {number}")).collect();
            let all: Vec<(&str, u64)> = users.iter().map(|user| (user.as_str(), 1)).collect();
            assert!(is_valid(&uses(&all)));
            links.report(1, NodeId(server), 1, uses(&all), &rules(10));
        }
        assert_eq!(links.sums.len(), LINK_USES_MAX);
    }
}

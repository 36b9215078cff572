//! Paths between sites, and their measurement when servers meet.
//!
//! The servers of two sites have one link for each pair, but share one path. Simultaneous probes of all these links
//! would each measure a small part of the bandwidth, and take long if the path is slow. Therefore the agent looks for
//! sites in the results of first probes as they arrive. Links over a path that has not been measured alone wait while
//! one of them, which has had its first probe, is measured again with no other probe at the same time. Then the path
//! is known, and links on it that were not measured are assumed to be like the others.
//!
//! **Invariant:** no link waits for a path longer than [`WAIT_NS_MAX`], because the server that measures it may be gone or busy.

use std::collections::BTreeMap;

use gridloom_base::Time;
use gridloom_base::limits::MEASURE_WAIT_NS_MAX;
use gridloom_perf::{LinkEstimate, Links, Path, SharedPaths};

/// Nanoseconds after which links are measured in their turns, even if their path is still unknown.
const WAIT_NS_MAX: u64 = MEASURE_WAIT_NS_MAX;
/// Number of links up to which sites are determined after each probe.
const FEW: usize = 512;
/// Percentage of new or removed links after which sites are determined again, if there are more than [`FEW`] links.
const CHANGED: usize = 10;
/// Number of links up to which sites are determined again after a host has left.
const MANY: usize = 4096;

/// An ordered pair of hosts.
pub(super) type Pair = (String, String);

/// The state of a link before its turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct LinkState {
    /// The path between sites that the link is assumed to share. Only one link of a path is measured at a time.
    pub(super) path: Option<Path>,
    pub(super) next: NextStep,
}

/// The next step for a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum NextStep {
    /// It is measured in its turn.
    #[default]
    Measure,
    /// Its path is measured first.
    Wait,
    /// It need not be measured: it is assumed to be like the other links on its path.
    Assume,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Paths {
    shared: SharedPaths<String>,
    /// Number of links that were known when sites were last determined.
    links: usize,
    /// Number of links of hosts that have left since.
    forgotten: usize,
    known: BTreeMap<Path, PathMeasurement>,
    /// Links of which a measurement alone was requested, with the time of the request.
    asked: BTreeMap<Pair, Time>,
}

/// The measurement of a path.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
struct PathMeasurement {
    /// The fastest of its links that were measured alone.
    link: Option<LinkEstimate>,
    /// Time at which a measurement of one of its links alone was requested.
    asked: Option<Time>,
}

impl Paths {
    /// True if a link is assumed to share its path with others.
    pub(super) fn is_shared(&self, pair: &Pair) -> bool {
        self.path_of(pair).is_some()
    }

    /// Returns the path that a link is assumed to share with others.
    pub(super) fn path_of(&self, pair: &Pair) -> Option<Path> {
        self.shared.path_of(&pair.0, &pair.1)
    }

    /// Returns the state of a link before its turn.
    pub(super) fn link_state(&self, now: Time, pair: &Pair, links: &Links<String>) -> LinkState {
        let Some(way) = self.shared.path_of(&pair.0, &pair.1) else { return LinkState::default() };
        let known = self.known.get(&way).copied().unwrap_or_default();
        let next = if links.of(&pair.0, &pair.1).is_some() {
            NextStep::Measure
        } else if known.link.is_some() {
            NextStep::Assume
        } else if known.asked.is_some_and(|asked| now.since(asked) < WAIT_NS_MAX) {
            NextStep::Wait
        } else {
            NextStep::Measure
        };
        LinkState { path: Some(way), next }
    }

    /// Returns the assumed estimate of a link that was not measured: that of the fastest link on its path that was measured alone.
    pub(super) fn assumed(&self, pair: &Pair) -> Option<LinkEstimate> {
        self.known.get(&self.shared.path_of(&pair.0, &pair.1)?)?.link
    }

    /// Returns the next time at which links stop waiting for a path.
    pub(super) fn due(&self, now: Time) -> Option<Time> {
        self.asked.values().map(|asked| *asked + WAIT_NS_MAX).filter(|until| *until > now).min()
    }

    /// Returns the time until which plans wait for paths that are being measured. Without the paths, plans would send
    /// the same data over a path repeatedly.
    pub(super) fn awaited(&self, now: Time) -> Option<Time> {
        let unknown = self.known.values().filter(|known| known.link.is_none());
        unknown.filter_map(|known| Some(known.asked? + WAIT_NS_MAX)).filter(|until| *until > now).max()
    }

    /// Updates the sites if enough has changed, and the path of a link that was measured. Returns true if other links
    /// may get their turn as a result.
    pub(super) fn update(&mut self, pair: &Pair, links: &Links<String>) -> bool {
        let count = links.count();
        let changed = self.forgotten + (count + self.forgotten).abs_diff(self.links);
        let is_due = count <= FEW || 100 * changed >= CHANGED * self.links;
        if is_due {
            let shared = links.shared();
            let known = shared.all().map(|way| (way, self.known_of(&shared, way, links))).collect();
            let before = (std::mem::replace(&mut self.shared, shared), std::mem::replace(&mut self.known, known));
            (self.links, self.forgotten) = (count, 0);
            return before.1 != self.known || (!self.known.is_empty() && before.0 != self.shared);
        }
        let Some(way) = self.shared.path_of(&pair.0, &pair.1) else { return false };
        let known = self.known_of(&self.shared, way, links);
        self.known.insert(way, known).is_none_or(|before| before != known)
    }

    fn known_of(&self, shared: &SharedPaths<String>, way: Path, links: &Links<String>) -> PathMeasurement {
        let sure = shared.links(way).filter(|pair| links.is_reliable(pair));
        let estimates = sure.filter_map(|(from, to)| links.of(from, to)?.estimate());
        let link = estimates.max_by(|one, other| one.bandwidth.total_cmp(&other.bandwidth));
        PathMeasurement { link, asked: shared.links(way).filter_map(|pair| self.asked.get(pair).copied()).max() }
    }

    /// Returns, for each path that is neither known nor requested, its first link for which `may` returns a value.
    pub(super) fn unknown<T>(&self, may: impl Fn(&Pair) -> Option<T>) -> Vec<(Pair, T)> {
        let unknown = self.known.iter().filter(|(_, known)| known.link.is_none() && known.asked.is_none());
        unknown
            .filter_map(|(way, _)| self.shared.links(*way).find_map(|pair| Some((pair.clone(), may(pair)?))))
            .collect()
    }

    /// Records that a measurement of this link alone was requested.
    pub(super) fn record_request(&mut self, now: Time, pair: Pair) {
        if let Some(known) = self.shared.path_of(&pair.0, &pair.1).and_then(|way| self.known.get_mut(&way)) {
            known.asked = Some(now);
        }
        self.asked.insert(pair, now);
    }

    /// Forgets a host that is gone, with that many links. A host with the same name may appear at another site.
    pub(super) fn forget(&mut self, host: &str, links: usize) {
        self.asked.retain(|(from, to), _| from != host && to != host);
        self.shared.forget(&host.to_string());
        self.forgotten += links;
        if self.links <= MANY {
            self.links = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gridloom_base::time::MILLISECOND_NS;
    use std::collections::BTreeSet;

    fn pair(from: &str, to: &str) -> Pair {
        (from.into(), to.into())
    }

    #[test]
    fn links_wait_for_their_path_and_then_assume_its_estimate() {
        let mut links = Links::default();
        let mut met = |from: &str, to: &str, bandwidth| {
            links.add_first_probe(Time(0), from.into(), to.into(), LinkEstimate { latency_s: 1e-2, bandwidth });
        };
        // a1 to a3 and b1 to b3 are sites. The network interface of a3 is slow.
        [("a2", "a1"), ("b2", "b1"), ("b3", "b1"), ("b3", "b2")].into_iter().for_each(|(from, to)| met(from, to, 1e8));
        [("a3", "a1"), ("a3", "a2")].into_iter().for_each(|(from, to)| met(from, to, 1e7));
        [("b1", "a1"), ("b2", "a2")].into_iter().for_each(|(from, to)| met(from, to, 2e7));
        let (mut ways, now, first) = (Paths::default(), Time(5 * MILLISECOND_NS), pair("b1", "a1"));
        let met = |links: &Links<String>| {
            let links = links.clone();
            move |pair: &Pair| links.of(&pair.0, &pair.1).map(|_| ())
        };
        assert_eq!(
            ways.link_state(now, &pair("b3", "a2"), &links),
            LinkState::default(),
            "sites are not determined yet"
        );
        assert!(ways.update(&first, &links) && !ways.update(&first, &links), "nothing has changed since");
        assert_eq!(ways.unknown(|_| None::<()>), []);
        assert_eq!(ways.unknown(met(&links)), [(first.clone(), ())], "no link in the opposite direction was measured");
        assert_eq!(ways.link_state(now, &pair("b3", "b2"), &links), LinkState::default());
        ways.record_request(now, first.clone());
        assert_eq!((ways.unknown(met(&links)), ways.due(now)), (vec![], Some(now + WAIT_NS_MAX)));
        assert_eq!((ways.awaited(now), ways.awaited(now + WAIT_NS_MAX)), (Some(now + WAIT_NS_MAX), None));
        let next = |ways: &Paths, links: &Links<String>, now, pair: &Pair| {
            let standing = ways.link_state(now, pair, links);
            assert!(standing.path.is_some());
            standing.next
        };
        assert_eq!(next(&ways, &links, now, &first), NextStep::Measure);
        assert_eq!(next(&ways, &links, now, &pair("b3", "a2")), NextStep::Wait);
        assert_eq!(next(&ways, &links, now + WAIT_NS_MAX, &pair("b3", "a2")), NextStep::Measure, "the wait is over");
        assert_eq!(ways.assumed(&pair("b3", "a2")), None);

        let alone = LinkEstimate { latency_s: 1e-2, bandwidth: 4e7 };
        links.add_probe(now, first.clone(), alone, &BTreeSet::new());
        assert!(ways.update(&first, &links));
        assert_eq!(next(&ways, &links, now, &pair("b3", "a2")), NextStep::Assume);
        assert_eq!(ways.assumed(&pair("b3", "a2")), Some(alone));
        assert_eq!(ways.awaited(now), None);
        assert_eq!(
            ways.link_state(now, &pair("b3", "a3"), &links),
            LinkState::default(),
            "its network interface may be as slow"
        );
        assert_eq!(ways.assumed(&pair("b3", "b2")), None);
    }
}

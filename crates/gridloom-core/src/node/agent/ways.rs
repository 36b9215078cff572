//! Ways between sites, when servers meet.
//!
//! Servers of two sites have a link for each pair, and one way. Probes of all these links together would find a small part of it each, and
//! take as long as the way is slow. So what first probes tell of sites is looked at as they come. Links over a way that nobody has measured alone
//! wait while one of them, which has had its first probe, is measured again with nothing beside it. Then the way is known: links on it that
//! were not measured are taken to be like the others.
//!
//! **Invariant:** nobody waits for a way longer than [`WAIT_NS_MAX`]: the server that measures it may be gone, or busy.

use std::collections::BTreeMap;

use super::links::Pair;
use super::turns::Standing;
use super::{Agent, send};
use crate::node::message::DirectoryToServer;
use crate::node::protocol::Effect;
use gridloom_base::Time;
use gridloom_base::limits::MEASURE_WAIT_NS_MAX;
use gridloom_perf::{LinkEstimate, Links, Shared, Way, host_of};

/// After that time links are measured in their turns, whatever is known of their way.
const WAIT_NS_MAX: u64 = MEASURE_WAIT_NS_MAX;
/// With fewer links sites are looked for after each probe,
const FEW: usize = 512;
/// with more once so many hundredths of them are new or gone.
const CHANGED: usize = 10;

#[derive(Debug, Default)]
pub(super) struct Ways {
    shared: Shared<String>,
    /// How many links were known when sites were last looked for.
    links: usize,
    /// Links that were asked to be measured alone, and when.
    asked: BTreeMap<Pair, Time>,
}

impl Ways {
    /// Whether a link is taken to share its way with others.
    pub(super) fn is_shared(&self, pair: &Pair) -> bool {
        self.shared.way(&pair.0, &pair.1).is_some()
    }

    /// What is known of a link before its turn.
    pub(super) fn standing(&self, now: Time, pair: &Pair, links: &Links<String>) -> Standing {
        let Some(way) = self.shared.way(&pair.0, &pair.1) else { return Standing::Alone };
        if links.of(&pair.0, &pair.1).is_some() {
            Standing::On(way)
        } else if self.is_sure(way, links) {
            Standing::Known
        } else if self.asked_at(way).is_some_and(|asked| now.since(asked) < WAIT_NS_MAX) {
            Standing::Waits
        } else {
            Standing::On(way)
        }
    }

    /// Whether a link on that way was measured alone.
    fn is_sure(&self, way: Way, links: &Links<String>) -> bool {
        self.shared.links(way).any(|pair| links.is_sure(pair))
    }

    /// What a link is taken to do that was not measured: as one on its way that was measured alone.
    pub(super) fn expected(&self, pair: &Pair, links: &Links<String>) -> Option<LinkEstimate> {
        let way = self.shared.way(&pair.0, &pair.1)?;
        let (from, to) = self.shared.links(way).find(|pair| links.is_sure(pair))?;
        links.of(from, to)?.estimate()
    }

    fn asked_at(&self, way: Way) -> Option<Time> {
        self.shared.links(way).filter_map(|pair| self.asked.get(pair).copied()).max()
    }

    /// When nobody waits for the next of the ways any more.
    pub(super) fn due(&self, now: Time) -> Option<Time> {
        self.asked.values().map(|asked| *asked + WAIT_NS_MAX).filter(|until| *until > now).min()
    }

    /// Looks for sites if enough has changed. True if it did.
    fn look(&mut self, links: &Links<String>) -> bool {
        let count = links.count();
        let is_due = count <= FEW || 100 * count.abs_diff(self.links) >= CHANGED * self.links;
        if is_due {
            (self.shared, self.links) = (links.shared(), count);
        }
        is_due
    }

    /// Of each way that is not known and was not asked for, the link that is to be measured alone: one that had its first probe and `may` be.
    fn unknown(&self, links: &Links<String>, may: impl Fn(&Pair) -> bool) -> Vec<Pair> {
        let unknown = self.shared.all().filter(|way| self.asked_at(*way).is_none() && !self.is_sure(*way, links));
        let may = |pair: &&Pair| links.of(&pair.0, &pair.1).is_some() && may(pair);
        unknown.filter_map(|way| self.shared.links(way).find(may).cloned()).collect()
    }
}

impl Agent {
    /// A link was measured: what it tells of ways.
    pub(super) fn ways_told(&mut self, now: Time, pair: &Pair, out: &mut Vec<Effect>) {
        let was_shared = self.ways.is_shared(pair);
        if !self.ways.look(&self.links) && !was_shared {
            return;
        }
        let on = |host: &str| self.servers.iter().find(|(_, server)| host_of(&server.registration.address) == host);
        let ends = |pair: &Pair| Some((on(&pair.0)?, on(&pair.1)?));
        let unknown = self.ways.unknown(&self.links, |pair| ends(pair).is_some()).into_iter();
        let asked = unknown.filter_map(|pair| {
            let ((from, _), (to, there)) = ends(&pair)?;
            Some((pair, *from, *to, there.registration.address.clone()))
        });
        for (pair, from, to, address) in asked.collect::<Vec<_>>() {
            self.links.ask(now, pair.clone());
            self.ways.asked.insert(pair, now);
            self.measure_anew(from, to);
            send(out, from, DirectoryToServer::MeasureLink { to, address });
        }
        self.grant_all_turns(now, out);
    }

    /// A host is gone.
    pub(super) fn forget_ways(&mut self, host: &str) {
        self.ways.asked.retain(|(from, to), _| from != host && to != host);
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
    fn links_wait_for_their_way_and_are_then_taken_to_be_as_it_is() {
        let mut links = Links::default();
        let mut met = |from: &str, to: &str, bandwidth| {
            links.met(Time(0), from.into(), to.into(), LinkEstimate { latency_s: 1e-2, bandwidth });
        };
        // a1 to a3 and b1 to b3 are sites; the card of a3 is slow.
        [("a2", "a1"), ("b2", "b1"), ("b3", "b1"), ("b3", "b2")].into_iter().for_each(|(from, to)| met(from, to, 1e8));
        [("a3", "a1"), ("a3", "a2")].into_iter().for_each(|(from, to)| met(from, to, 1e7));
        [("b1", "a1"), ("b2", "a2")].into_iter().for_each(|(from, to)| met(from, to, 2e7));
        let (mut ways, now) = (Ways::default(), Time(5 * MILLISECOND_NS));
        assert_eq!(ways.standing(now, &pair("b3", "a2"), &links), Standing::Alone, "nobody has looked");
        assert!(ways.look(&links));
        assert_eq!(ways.unknown(&links, |_| false), []);
        assert_eq!(ways.unknown(&links, |_| true), [pair("b1", "a1")], "of the way back no link was measured");
        assert_eq!(ways.standing(now, &pair("b3", "b2"), &links), Standing::Alone);
        ways.asked.insert(pair("b1", "a1"), now);
        assert_eq!((ways.unknown(&links, |_| true), ways.due(now)), (vec![], Some(now + WAIT_NS_MAX)));
        assert!(matches!(ways.standing(now, &pair("b1", "a1"), &links), Standing::On(_)));
        assert_eq!(ways.standing(now, &pair("b3", "a2"), &links), Standing::Waits);
        assert!(matches!(ways.standing(now + WAIT_NS_MAX, &pair("b3", "a2"), &links), Standing::On(_)), "nobody came");
        assert_eq!(ways.expected(&pair("b3", "a2"), &links), None);

        let alone = LinkEstimate { latency_s: 1e-2, bandwidth: 4e7 };
        links.probed(now, pair("b1", "a1"), alone, &BTreeSet::new());
        ways.look(&links);
        assert_eq!(ways.standing(now, &pair("b3", "a2"), &links), Standing::Known);
        assert_eq!(ways.expected(&pair("b3", "a2"), &links), Some(alone));
        assert_eq!(
            ways.standing(now, &pair("b3", "a3"), &links),
            Standing::Alone,
            "its card may be as slow as the way"
        );
        assert_eq!(ways.expected(&pair("b3", "b2"), &links), None);
    }
}

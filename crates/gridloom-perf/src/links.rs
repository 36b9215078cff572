//! All links that one machine knows, with the transfers over them and their models.
//!
//! ```text
//! transfers ──saw──▶ wait until concurrent transfers are reported ──settle──▶ LinkModel
//! probes ──met, probed──▶ LinkModel, of each ordered pair
//! ```

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound::{Excluded, Unbounded};

use super::bottlenecks::{Bottleneck, LinkRelations};
use super::link::{DOUBT_FACTOR, LinkModel};
use super::sites::{self, SharedPaths};
use super::traffic::{CompletedTransfer, Traffic};
use super::{LinkEstimate, LinkReport};
use gridloom_base::Time;
use gridloom_base::limits::{DEGRADED_PROBE_NS, HEARTBEAT_NS, LINK_PROBE_NS, LINKS_MAX, TRAFFIC_SETTLES_NS};

/// A transfer is undisturbed if concurrent transfers moved at most this fraction of its bytes.
const ALONE_PART_MAX: f64 = 0.1;

/// Number of links up to which shared paths are always found from the present estimates.
const FEW: usize = 4096;
/// Percentage of added and removed links after which shared paths are found again, if there are more than [`FEW`] links.
const CHANGED: usize = 10;

/// Links that are worth a probe.
#[derive(Clone, PartialEq, Debug)]
pub struct NextSuspects<P> {
    /// See [`Links::suspects`].
    pub doubtful: Vec<(P, P)>,
    /// See [`Links::narrow_pairs`].
    pub narrow: Vec<(P, P)>,
    /// The last link that was looked at.
    pub last: Option<(P, P)>,
}

/// Link models by ordered pair. `P` names places: hosts or nodes.
#[derive(Clone, Debug)]
pub struct Links<P> {
    models: BTreeMap<(P, P), LinkModel>,
    /// The places at the other ends of each place's links, in `models` or `requested`.
    neighbours: BTreeMap<P, BTreeSet<P>>,
    /// Shared paths as they were found last, and the number of links that were added and removed since.
    shared: SharedPaths<P>,
    changed: usize,
    traffic: Traffic<P>,
    bottlenecks: LinkRelations<P>,
    /// Transfers not learned from yet, and the times at which they were reported.
    waiting: VecDeque<(CompletedTransfer<P>, Time)>,
    /// Times at which probes were last requested.
    requested: BTreeMap<(P, P), Time>,
}

impl<P> Default for Links<P> {
    fn default() -> Self {
        Links {
            models: BTreeMap::new(),
            neighbours: BTreeMap::new(),
            shared: SharedPaths::default(),
            changed: 0,
            traffic: Traffic::default(),
            bottlenecks: LinkRelations::default(),
            waiting: VecDeque::new(),
            requested: BTreeMap::new(),
        }
    }
}

impl<P: Ord + Clone> Links<P> {
    /// Adds a first probe, made possibly while other probes were running.
    pub fn add_first_probe(&mut self, now: Time, from: P, to: P, link: LinkEstimate) {
        self.model((from, to)).add_first_probe(now, link);
    }

    /// Returns the model of a pair, a new one if there is none.
    fn model(&mut self, pair: (P, P)) -> &mut LinkModel {
        if !self.models.contains_key(&pair) {
            if self.models.len() >= LINKS_MAX {
                self.forget_oldest();
            }
            self.changed += 1;
            self.join(&pair);
        }
        self.models.entry(pair).or_default()
    }

    /// Forgets the eighth of the links that was measured longest ago.
    fn forget_oldest(&mut self) {
        let mut links: Vec<(Time, (P, P))> =
            self.models.iter().map(|(pair, model)| (model.measured(), pair.clone())).collect();
        links.sort();
        for (_, (from, to)) in links.into_iter().take(LINKS_MAX / 8) {
            let (pair, back) = ((from.clone(), to.clone()), (to, from));
            self.models.remove(&pair);
            self.requested.remove(&pair);
            if !self.models.contains_key(&back) && !self.requested.contains_key(&back) {
                self.part(&pair.0, &pair.1);
                self.part(&pair.1, &pair.0);
            }
            self.changed += 1;
        }
    }

    /// Removes a place from the neighbours of another.
    fn part(&mut self, place: &P, other: &P) {
        if let Some(others) = self.neighbours.get_mut(place) {
            others.remove(other);
            if others.is_empty() {
                self.neighbours.remove(place);
            }
        }
    }

    fn join(&mut self, (from, to): &(P, P)) {
        self.neighbours.entry(from.clone()).or_default().insert(to.clone());
        self.neighbours.entry(to.clone()).or_default().insert(from.clone());
    }

    /// Finds the shared paths again if enough has changed. With many links, that takes longer than all else.
    fn update_shared(&mut self) {
        if self.models.len() <= FEW || 100 * self.changed >= CHANGED * self.models.len() {
            self.shared = self.shared();
            self.changed = 0;
        }
    }

    /// Adds the first probe of a link. If data moved over related links meanwhile, the estimate of the opposite direction is
    /// preferred.
    pub fn add_concurrent_first_probe(
        &mut self,
        now: Time,
        pair: (P, P),
        link: LinkEstimate,
        moving: &BTreeSet<(P, P)>,
    ) {
        let is_disturbed = self.sharing_count(&pair, moving) > 0;
        if is_disturbed {
            self.init_from_reverse(now, &pair);
        }
        if !is_disturbed || !self.models.contains_key(&pair) {
            self.add_first_probe(now, pair.0, pair.1, link);
        }
    }

    /// Sets the estimate of a link that was never measured.
    pub fn expect(&mut self, now: Time, pair: (P, P), link: LinkEstimate) {
        let model = self.model(pair);
        if model.estimate().is_none() {
            model.add_first_probe(now, link);
            model.set_lower_bound(link.bandwidth);
        }
    }

    /// Number of these links that share a NIC or a path with that one.
    fn sharing_count(&mut self, pair: &(P, P), links: &BTreeSet<(P, P)>) -> usize {
        // Usually nothing moves, and finding sites takes all links.
        if links.is_empty() {
            return 0;
        }
        self.update_shared();
        let is_beside = |other: &(P, P)| other.0 == pair.0 || other.1 == pair.1 || self.shared.share_path(pair, other);
        links.iter().filter(|other| *other != pair && is_beside(other)).count()
    }

    /// Adds a requested probe, the only one at its time. Data may have moved over these links meanwhile.
    pub fn add_probe(&mut self, now: Time, pair: (P, P), link: LinkEstimate, moving: &BTreeSet<(P, P)>) {
        let others = self.sharing_count(&pair, moving);
        let was_sure = self.is_reliable(&pair);
        self.model(pair.clone()).add_concurrent_probe(now, link, others);
        if was_sure || others > 0 {
            return;
        }
        self.update_shared();
        // First probes of links on the same path may have disturbed one another.
        for beside in self.shared.links_on_path_of(&pair) {
            if let Some(model) = self.models.get_mut(beside).filter(|model| model.has_only_first_probes()) {
                model.set_lower_bound(link.bandwidth);
            }
        }
    }

    /// Stores a transfer, to be learned from at the returned time.
    pub fn add_transfer(&mut self, now: Time, seen: CompletedTransfer<P>) -> Time {
        self.traffic.add(now, seen.clone());
        self.waiting.push_back((seen, now));
        now + TRAFFIC_SETTLES_NS
    }

    /// Learns from transfers that have waited long enough. Returns the pairs whose models may have changed, and the
    /// time of the next call.
    pub fn learn_waiting(&mut self, now: Time) -> (Vec<(P, P)>, Option<Time>) {
        let mut changed = Vec::new();
        let is_due = |(_, told): &(CompletedTransfer<P>, Time)| now.since(*told) >= TRAFFIC_SETTLES_NS;
        if self.waiting.front().is_some_and(is_due) {
            self.update_shared();
        }
        while self.waiting.front().is_some_and(is_due) {
            let (seen, _) = self.waiting.pop_front().expect("it was there a moment ago");
            let pair = (seen.from.clone(), seen.to.clone());
            self.init_from_reverse(now, &pair);
            let (models, shared) = (&self.models, &self.shared);
            let rate = models.get(&pair).map_or(0.0, |model| model.rate(seen.size_bytes as f64, seen.seconds()));
            let bandwidth = |pair: &(P, P)| Some(models.get(pair)?.estimate()?.bandwidth);
            let sharing_bytes = self.bottlenecks.learn(
                &seen,
                rate,
                &self.traffic,
                (bandwidth, |other: &(P, P)| shared.width(&pair, other)),
            );
            let others_bytes = self.traffic.bytes_over_same_nics(&seen) + sharing_bytes;
            let model = self.model(pair.clone());
            if others_bytes <= ALONE_PART_MAX * seen.size_bytes as f64 {
                model.add_transfer(now, seen.size_bytes, seen.seconds());
            } else {
                model.add_disturbed_transfer(now, seen.size_bytes, seen.seconds(), others_bytes);
            }
            changed.push(pair);
        }
        changed.sort();
        changed.dedup();
        (changed, self.waiting.front().map(|(_, told)| *told + TRAFFIC_SETTLES_NS))
    }

    /// Paths that links are presumed to share, by their present estimates.
    pub fn shared(&self) -> SharedPaths<P> {
        SharedPaths::of(self.estimates().map(|(pair, link)| (pair, link.bandwidth)))
    }

    /// Starts the model of a pair that was never probed with the estimate of the opposite direction, until its own is known.
    fn init_from_reverse(&mut self, now: Time, pair: &(P, P)) {
        let back = self.models.get(&(pair.1.clone(), pair.0.clone())).and_then(LinkModel::estimate);
        if let (None, Some(link)) = (self.models.get(pair), back) {
            self.model(pair.clone()).add_first_probe(now, link);
        }
    }

    /// Number of links with models.
    pub fn count(&self) -> usize {
        self.models.len()
    }

    /// True if more is known of a link than first probes, which others may have disturbed.
    pub fn is_reliable(&self, pair: &(P, P)) -> bool {
        self.models.get(pair).is_some_and(LinkModel::is_reliable)
    }

    /// The model of a pair.
    pub fn of(&self, from: &P, to: &P) -> Option<&LinkModel> {
        self.models.get(&(from.clone(), to.clone()))
    }

    /// Estimates of all measured links.
    pub fn estimates(&self) -> impl Iterator<Item = (&(P, P), LinkEstimate)> {
        self.models.iter().filter_map(|(pair, model)| Some((pair, model.estimate()?)))
    }

    /// Estimates of the measured links between these places, in the order of their pairs.
    pub fn estimates_between<'a>(
        &'a self,
        places: &'a BTreeSet<P>,
    ) -> impl Iterator<Item = (&'a (P, P), LinkEstimate)> {
        let of_place = |from: &'a P| {
            let neighbours = self.neighbours.get(from).into_iter().flatten().filter(|to| places.contains(*to));
            neighbours.filter_map(|to| self.models.get_key_value(&(from.clone(), to.clone())))
        };
        places.iter().flat_map(of_place).filter_map(|(pair, model)| Some((pair, model.estimate()?)))
    }

    /// Paths that links between these places are presumed to share, unless two of them were observed to be apart: see `sites`.
    pub fn inter_site_paths(&self, places: &BTreeSet<P>) -> Vec<Bottleneck<P>> {
        let measured = self.estimates_between(places).map(|(pair, link)| (pair, link.bandwidth));
        let are_apart = |way: &Bottleneck<P>| self.bottlenecks.are_apart(&way.pairs, way.bandwidth);
        sites::inter_site_paths(measured, |pair| self.is_reliable(pair))
            .into_iter()
            .filter(|way| !are_apart(way))
            .collect()
    }

    /// Bottlenecks that several links were observed to share.
    pub fn bottlenecks(&self) -> Vec<Bottleneck<P>> {
        self.bottlenecks.all(|pair| Some(self.models.get(pair)?.estimate()?.bandwidth))
    }

    /// True if a pair is due for a probe: its last measurement is old or in doubt. After a request, it is not due again at once.
    pub fn is_due(&self, now: Time, pair: &(P, P)) -> bool {
        let (pause_ns, measured) = match self.models.get(pair) {
            None => (LINK_PROBE_NS, Time::ZERO),
            Some(model) if model.is_doubtful() => (HEARTBEAT_NS, model.measured()),
            Some(model) if model.has_fallen() => (DEGRADED_PROBE_NS, model.measured()),
            Some(model) => (LINK_PROBE_NS, model.measured()),
        };
        let last = self.requested.get(pair).copied().unwrap_or(Time::ZERO).max(measured);
        now.since(last) >= pause_ns
    }

    /// Pairs whose forecast is below the usual, or whose last measurement is in doubt.
    pub fn suspects(&self) -> impl Iterator<Item = &(P, P)> {
        let suspects = self.models.iter().filter(|(_, model)| model.is_doubtful() || model.has_fallen());
        suspects.map(|(pair, _)| pair)
    }

    /// Pairs with first probes only that found them much narrower than the NICs of both ends: other probes may have used the same
    /// path meanwhile.
    pub fn narrow_pairs(&self) -> Vec<(P, P)> {
        self.narrow_among(self.models.iter())
    }

    fn narrow_among<'a>(&'a self, links: impl Iterator<Item = (&'a (P, P), &'a LinkModel)>) -> Vec<(P, P)> {
        let mut cards: BTreeMap<&P, f64> = BTreeMap::new();
        let mut card = |place: &'a P| *cards.entry(place).or_insert_with(|| self.card(place));
        let first = links.filter(|(_, model)| model.has_only_first_probes() && !model.is_reliable());
        let narrow = first.filter(|((from, to), model)| {
            let card = card(from).min(card(to));
            model.estimate().is_some_and(|link| DOUBT_FACTOR * link.bandwidth < card)
        });
        narrow.map(|(pair, _)| pair.clone()).collect()
    }

    /// Returns the bandwidth of the widest link from or to a place.
    fn card(&self, place: &P) -> f64 {
        let neighbours = self.neighbours.get(place).into_iter().flatten();
        let pairs = neighbours.flat_map(|other| [(place.clone(), other.clone()), (other.clone(), place.clone())]);
        pairs.filter_map(|pair| Some(self.models.get(&pair)?.estimate()?.bandwidth)).fold(0.0, f64::max)
    }

    /// Returns the suspect links among the next `count` links after that one.
    pub fn next_suspects(&self, after: Option<&(P, P)>, count: usize) -> NextSuspects<P> {
        let after = after.filter(|_| self.models.len() > count);
        let rest = self.models.range::<(P, P), _>((after.map_or(Unbounded, Excluded), Unbounded));
        let next = || rest.clone().chain(after.into_iter().flat_map(|_| &self.models)).take(count);
        let doubtful = next().filter(|(_, model)| model.is_doubtful() || model.has_fallen());
        NextSuspects {
            doubtful: doubtful.map(|(pair, _)| pair.clone()).collect(),
            narrow: self.narrow_among(next()),
            last: next().last().map(|(pair, _)| pair.clone()),
        }
    }

    /// True if a probe of that pair was requested and has not arrived.
    pub fn is_awaited(&self, pair: &(P, P)) -> bool {
        let measured = self.models.get(pair).map_or(Time::ZERO, LinkModel::measured);
        self.requested.get(pair).is_some_and(|asked| *asked > measured)
    }

    /// Time at which a pair was last measured or requested.
    pub fn last(&self, pair: &(P, P)) -> Time {
        let measured = self.models.get(pair).map_or(Time::ZERO, LinkModel::measured);
        self.requested.get(pair).copied().unwrap_or(Time::ZERO).max(measured)
    }

    /// Records that a probe of that pair is requested.
    pub fn request_probe(&mut self, now: Time, pair: (P, P)) {
        self.join(&pair);
        self.requested.insert(pair, now);
    }

    /// Returns the places to which links from this place were measured.
    pub fn measured_from(&self, place: &P) -> impl Iterator<Item = &P> {
        let neighbours = self.neighbours.get(place).into_iter().flatten();
        neighbours.filter(|to| self.models.contains_key(&(place.clone(), (*to).clone())))
    }

    /// Forgets a place that has left. Returns the number of its links.
    pub fn forget(&mut self, place: &P) -> usize {
        let before = self.models.len();
        for other in self.neighbours.remove(place).unwrap_or_default() {
            for pair in [(place.clone(), other.clone()), (other.clone(), place.clone())] {
                self.models.remove(&pair);
                self.requested.remove(&pair);
            }
            self.part(&other, place);
        }
        self.bottlenecks.forget(place);
        self.waiting.retain(|(seen, _)| seen.from != *place && seen.to != *place);
        self.shared.forget(place);
        let count = before - self.models.len();
        self.changed += count;
        count
    }

    /// Returns reports for people.
    pub fn report(&self, now: Time, name: impl Fn(&P) -> String) -> Vec<LinkReport> {
        let named = |one: Bottleneck<P>| Bottleneck {
            pairs: one.pairs.iter().map(|(from, to)| (name(from), name(to))).collect(),
            bandwidth: one.bandwidth,
        };
        let bottlenecks: Vec<Bottleneck<String>> = self.bottlenecks().into_iter().map(named).collect();
        let rows = self.models.iter();
        rows.filter_map(|((from, to), model)| {
            let pair = (name(from), name(to));
            let shared = bottlenecks.iter().filter(|one| one.pairs.contains(&pair)).cloned().collect();
            model.report(now, pair, shared)
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gridloom_base::time::{MILLISECOND_NS, SECOND_NS};

    const MB: u64 = 1_000_000;

    fn seen(from: u32, to: u32, start_ms: u64, end_ms: u64) -> CompletedTransfer<u32> {
        let (start, end) = (Time(start_ms * MILLISECOND_NS), Time(end_ms * MILLISECOND_NS));
        CompletedTransfer { from, to, size_bytes: 100 * MB, start, end }
    }

    #[test]
    fn a_broadcast_does_not_look_like_slow_links() {
        let mut links = Links::default();
        for to in 1..5 {
            links.add_first_probe(Time(0), 0, to, LinkEstimate { latency_s: 1e-3, bandwidth: 1e8 });
        }
        for round in 0..5 {
            for to in 1..5 {
                // Four share a NIC of 100 MB/s; they are reported one after another.
                let told = Time((10 * round + 4) * SECOND_NS + u64::from(to) * 50 * MILLISECOND_NS);
                links.add_transfer(told, seen(0, to, 10_000 * round, 10_000 * round + 4000));
            }
            let (changed, again) = links.learn_waiting(Time((10 * round + 5) * SECOND_NS));
            assert_eq!((changed.len(), again), (4, None));
        }
        assert!(links.estimates().all(|(_, link)| link.bandwidth == 1e8), "{links:?}");
    }

    #[test]
    fn a_link_is_due_for_a_probe_when_it_is_old_and_sooner_when_it_has_fallen() {
        let (mut links, pair) = (Links::default(), (1, 2));
        links.add_first_probe(Time(0), 1, 2, LinkEstimate { latency_s: 1e-3, bandwidth: 1e8 });
        assert!(!links.is_due(Time(LINK_PROBE_NS - 1), &pair) && links.is_due(Time(LINK_PROBE_NS), &pair));
        links.request_probe(Time(LINK_PROBE_NS), pair);
        assert!(!links.is_due(Time(LINK_PROBE_NS + 1), &pair));
        links.add_transfer(Time(LINK_PROBE_NS), seen(1, 2, 0, 10_000));
        let now = Time(LINK_PROBE_NS + SECOND_NS);
        links.learn_waiting(now);
        assert!(links.suspects().eq([&pair]) && links.is_due(now + HEARTBEAT_NS, &pair));
        links.add_probe(now, (1, 2), LinkEstimate { latency_s: 1e-3, bandwidth: 1e7 }, &BTreeSet::new());
        assert!(!links.is_due(now + HEARTBEAT_NS, &pair));
        assert_eq!(links.of(&1, &2).unwrap().change_from(1e8).map(|change| (change * 100.0).round()), Some(10.0));
    }

    #[test]
    fn first_probes_that_found_less_than_both_cards_do_are_in_doubt() {
        let mut links = Links::default();
        let mut met =
            |from, to, bandwidth| links.add_first_probe(Time(0), from, to, LinkEstimate { latency_s: 1e-3, bandwidth });
        met(1, 2, 1e8);
        met(3, 4, 1e8);
        met(1, 4, 1e7);
        // This NIC is slow.
        met(1, 5, 1e7);
        assert_eq!(links.narrow_pairs(), [(1, 4)]);
        links.add_probe(Time(1), (1, 4), LinkEstimate { latency_s: 1e-3, bandwidth: 2e7 }, &BTreeSet::new());
        assert!(links.narrow_pairs().is_empty());
        assert_eq!(links.of(&1, &4).unwrap().estimate().unwrap().bandwidth, 2e7);
    }

    #[test]
    fn suspects_are_sought_a_part_of_the_links_at_a_time() {
        let mut links = Links::default();
        for n in 0..10 {
            links.add_first_probe(Time(0), n, n + 1, LinkEstimate { latency_s: 1e-3, bandwidth: 1e8 });
        }
        links.add_first_probe(Time(0), 9, 2, LinkEstimate { latency_s: 1e-3, bandwidth: 1e7 });
        let all = links.next_suspects(None, 99);
        assert_eq!((&all.narrow, all.last), (&vec![(9, 2)], Some((9, 10))));
        let (mut found, mut after) = (Vec::new(), None);
        for _ in 0..3 {
            let next = links.next_suspects(after.as_ref(), 4);
            found.extend(next.narrow);
            after = next.last;
        }
        assert_eq!((found, after), (vec![(9, 2)], Some((0, 1))), "the search has begun again");
        assert_eq!(links.forget(&9), 3);
        assert_eq!((links.count(), links.measured_from(&8).count(), links.measured_from(&0).count()), (8, 0, 1));
        assert!(links.neighbours.values().all(|others| !others.is_empty() && !others.contains(&9)));
    }

    #[test]
    fn links_that_were_measured_long_ago_make_room_for_new_ones() {
        let mut links = Links::default();
        let count = LINKS_MAX as u64;
        for n in 0..=count {
            links.add_first_probe(Time(n), 2 * n, 2 * n + 1, LinkEstimate { latency_s: 1e-3, bandwidth: 1e8 });
        }
        assert_eq!(links.count(), LINKS_MAX - LINKS_MAX / 8 + 1);
        assert_eq!(links.neighbours.len(), 2 * links.count());
        assert!(links.of(&0, &1).is_none() && links.of(&(2 * count), &(2 * count + 1)).is_some());
    }

    #[test]
    fn one_probe_between_sites_measures_all_links_on_the_path() {
        // Sites are 0 to 2, and 3 to 5; each of the probes between them had a share of the path.
        let mut links = Links::default();
        for (from, to) in (0..6).flat_map(|from| (0..6).map(move |to| (from, to))).filter(|(from, to)| from != to) {
            let bandwidth = if (from < 3) == (to < 3) { 1e8 } else { 1e7 };
            links.add_first_probe(Time(0), from, to, LinkEstimate { latency_s: 1e-3, bandwidth });
        }
        assert_eq!((links.narrow_pairs().len(), links.inter_site_paths(&(0..18).collect()).len()), (18, 0));
        links.add_probe(Time(1), (0, 3), LinkEstimate { latency_s: 1e-3, bandwidth: 4e7 }, &BTreeSet::new());
        let bandwidth = |from, to| links.of(&from, &to).unwrap().estimate().unwrap().bandwidth;
        assert_eq!([bandwidth(2, 5), bandwidth(5, 2), bandwidth(1, 2)], [4e7, 1e7, 1e8]);
        assert_eq!(links.narrow_pairs().len(), 9, "of the way back nothing is known");
        let ways = links.inter_site_paths(&(0..18).collect());
        assert_eq!(ways.iter().map(|way| (way.pairs.len(), way.bandwidth)).collect::<Vec<_>>(), [(9, 4e7), (9, 4e7)]);
    }

    #[test]
    fn what_crosses_a_way_together_makes_none_of_its_links_look_slow() {
        // Sites are 0 to 8, and 9 to 17.
        let mut links = Links::default();
        for (from, to) in (0..18).flat_map(|from| (0..18).map(move |to| (from, to))).filter(|(from, to)| from != to) {
            let bandwidth = if (from < 9) == (to < 9) { 1e8 } else { 4e7 };
            links.add_first_probe(Time(0), from, to, LinkEstimate { latency_s: 1e-3, bandwidth });
        }
        links.add_probe(Time(1), (0, 9), LinkEstimate { latency_s: 1e-3, bandwidth: 4e7 }, &BTreeSet::new());
        for round in 0..6 {
            let (start_ms, end_ms) = (100_000 * round, 100_000 * round + 22_500);
            let told = Time(end_ms * MILLISECOND_NS);
            (0..9).for_each(|from| _ = links.add_transfer(told, seen(from, from + 9, start_ms, end_ms)));
            links.learn_waiting(told + TRAFFIC_SETTLES_NS);
        }
        assert!(
            (0..9).all(|from| links.of(&from, &(from + 9)).unwrap().estimate().unwrap().bandwidth == 4e7),
            "{links:?}"
        );
        assert_eq!(
            links.inter_site_paths(&(0..18).collect()).iter().map(|way| way.pairs.len()).collect::<Vec<_>>(),
            [81, 81]
        );
    }

    #[test]
    fn links_that_look_narrower_than_their_way_are_not_taken_to_be_apart() {
        let mut links = Links::default();
        for (from, to) in (0..6).flat_map(|from| (0..6).map(move |to| (from, to))).filter(|(from, to)| from != to) {
            let bandwidth = match (from < 3) == (to < 3) {
                true => 1e8,
                // Probes of the other links disturbed one another.
                false => [1.6e7, 4e7][usize::from(from == 0 || to == 0)],
            };
            links.add_first_probe(Time(0), from, to, LinkEstimate { latency_s: 1e-3, bandwidth });
        }
        // Half of the path each.
        let told = Time(5000 * MILLISECOND_NS);
        [(1, 4), (2, 5)].into_iter().for_each(|(from, to)| _ = links.add_transfer(told, seen(from, to, 0, 5000)));
        links.learn_waiting(told + TRAFFIC_SETTLES_NS);
        let ways = links.inter_site_paths(&(0..18).collect());
        assert_eq!(ways.iter().map(|way| way.pairs.len()).collect::<Vec<_>>(), [9, 9]);
    }

    #[test]
    fn a_probe_beside_data_on_their_way_bounds_the_bandwidth() {
        let (mut links, pair) = (Links::default(), (1, 2));
        let probe = |bandwidth| LinkEstimate { latency_s: 1e-3, bandwidth };
        let moving = BTreeSet::from([(1, 3), (4, 2), (5, 6), pair]);
        links.add_first_probe(Time(0), 7, 2, probe(5e7));
        links.add_concurrent_first_probe(Time(0), (2, 7), probe(1e6), &BTreeSet::from([(2, 9)]));
        assert_eq!(links.of(&2, &7).unwrap().estimate().unwrap().bandwidth, 5e7);
        // Two of them share a NIC with it.
        links.add_probe(Time(0), pair, probe(1e7), &moving);
        assert!(links.of(&1, &2).unwrap().has_only_first_probes());
        links.add_probe(Time(1), pair, probe(1e8), &BTreeSet::new());
        (0..3).for_each(|n| links.add_probe(Time(2 + n), pair, probe(4e7), &moving));
        let bandwidth = |links: &Links<i32>| links.of(&1, &2).unwrap().estimate().unwrap().bandwidth;
        assert_eq!(bandwidth(&links), 1e8);
        (0..9).for_each(|n| links.add_probe(Time(9 + n), pair, probe(1e7), &moving));
        assert!((bandwidth(&links) / 3e7 - 1.0).abs() < 1e-9, "{links:?}");
    }

    #[test]
    fn what_is_gone_is_forgotten() {
        let mut links = Links::default();
        links.add_transfer(Time(0), seen(1, 2, 0, 100));
        links.learn_waiting(Time(SECOND_NS));
        links.add_transfer(Time(SECOND_NS), seen(1, 2, 0, 100));
        links.forget(&2);
        assert!(links.learn_waiting(Time(9 * SECOND_NS)).0.is_empty() && links.estimates().next().is_none());
    }
}

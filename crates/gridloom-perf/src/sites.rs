//! Sites, and the paths that join them. Places that are joined by wide links, those of high bandwidth, form a site.
//! Links between two sites that are narrower than the NICs at both ends are presumed to share one path.
//!
//! Probes run alone, so they cannot tell whether all links between two sites share one path or each has its own. In
//! real networks they share one. A plan that relies on paths that do not exist loses more than a plan that uses too few
//! paths.

use std::collections::BTreeMap;

use gridloom_base::limits::SITE_PAIRS_MAX;

use super::bottlenecks::Bottleneck;

/// A link with less than this fraction of a NIC's bandwidth is narrow.
const NARROW: f64 = 0.7;
/// Number of passes that assign each place to its site.
const ROUNDS: usize = 3;

/// Finds the paths that join sites, from the bandwidths of links between places, in ascending order. A link that looks narrow
/// counts only if `is_sure` is true for it, because first probes are disturbed, or are guesses.
pub(super) fn inter_site_paths<'a, P: Ord + Clone + 'a>(
    measured: impl Iterator<Item = (&'a (P, P), f64)>,
    is_sure: impl Fn(&(P, P)) -> bool,
) -> Vec<Bottleneck<P>> {
    let measured: Vec<(&(P, P), f64)> = measured.collect();
    let links = Links::new(measured.iter().copied());
    let is_used = |(link, (pair, _)): (&Link, &(&(P, P), f64))| !links.is_narrow(link) || is_sure(pair);
    let used = links.links.iter().zip(&measured).filter(|one| is_used(*one)).map(|(_, measured)| *measured);
    find_paths(&Links::new(used).symmetric())
}

/// A path from one site to another, by the numbers of the sites, which are valid for one [`SharedPaths`].
pub type Path = (usize, usize);

/// The narrow links between sites, by the path that they are presumed to share.
#[derive(Clone, PartialEq, Debug)]
pub struct SharedPaths<P> {
    inter_site_paths: BTreeMap<(P, P), Path>,
    links: BTreeMap<Path, Vec<(P, P)>>,
    /// Bandwidth of each path, which is that of its widest link, in bytes per second.
    widths: BTreeMap<Path, f64>,
    sites: BTreeMap<P, usize>,
}

impl<P> Default for SharedPaths<P> {
    fn default() -> Self {
        let (ways, links, widths, sites) = Default::default();
        SharedPaths { inter_site_paths: ways, links, widths, sites }
    }
}

impl<P: Ord + Clone> SharedPaths<P> {
    /// Finds the paths from the bandwidths of links between places, in ascending order.
    pub(super) fn of<'a>(measured: impl Iterator<Item = (&'a (P, P), f64)>) -> SharedPaths<P>
    where
        P: 'a,
    {
        let links = Links::new(measured).symmetric();
        let sites = links.sites();
        let (mut inter_site_paths, mut widths) = (BTreeMap::new(), BTreeMap::new());
        let mut by_way: BTreeMap<Path, Vec<(P, P)>> = BTreeMap::new();
        for link in links.links.iter().filter(|link| links.is_narrow(link)) {
            let way = (sites[link.from], sites[link.to]);
            if way.0 != way.1 {
                let pair = (links.places[link.from].clone(), links.places[link.to].clone());
                inter_site_paths.insert(pair.clone(), way);
                by_way.entry(way).or_default().push(pair);
                let width: &mut f64 = widths.entry(way).or_default();
                *width = width.max(link.bandwidth);
            }
        }
        let sites = links.places.iter().zip(sites).map(|(place, site)| ((*place).clone(), site)).collect();
        SharedPaths { inter_site_paths, links: by_way, widths, sites }
    }

    /// Forgets the site of a place that has left. Its links still count as measured.
    pub fn forget(&mut self, place: &P) {
        self.sites.remove(place);
    }

    /// Returns the path that a link, measured or not, is presumed to share with others.
    pub fn path_of(&self, from: &P, to: &P) -> Option<Path> {
        let way = (*self.sites.get(from)?, *self.sites.get(to)?);
        (way.0 != way.1 && self.widths.contains_key(&way)).then_some(way)
    }

    /// Iterates over all paths.
    pub fn all(&self) -> impl Iterator<Item = Path> {
        self.widths.keys().copied()
    }

    /// Iterates over the links of a path that were measured in at least one direction.
    pub fn links(&self, way: Path) -> impl Iterator<Item = &(P, P)> {
        self.links.get(&way).into_iter().flatten()
    }

    /// True if two links are presumed to share a path.
    pub(super) fn share_path(&self, pair: &(P, P), other: &(P, P)) -> bool {
        self.width(pair, other).is_some()
    }

    /// Returns the bandwidth of the path that two links are presumed to share, in bytes per second.
    pub(super) fn width(&self, pair: &(P, P), other: &(P, P)) -> Option<f64> {
        let way = self.inter_site_paths.get(pair).filter(|way| self.inter_site_paths.get(other) == Some(way))?;
        self.widths.get(way).copied()
    }

    /// Iterates over the other links that are presumed to share a path with this one.
    pub(super) fn links_on_path_of<'a>(&'a self, pair: &'a (P, P)) -> impl Iterator<Item = &'a (P, P)> {
        let way = self.inter_site_paths.get(pair);
        way.into_iter().flat_map(|way| self.links(*way)).filter(move |other| *other != pair)
    }
}

fn find_paths<P: Ord + Clone>(links: &Links<'_, P>) -> Vec<Bottleneck<P>> {
    let sites = links.sites();
    let mut widest: BTreeMap<Path, f64> = BTreeMap::new();
    for link in links.links.iter().filter(|link| links.is_narrow(link)) {
        let widest = widest.entry((sites[link.from], sites[link.to])).or_default();
        *widest = widest.max(link.bandwidth);
    }
    let mut members: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    sites.iter().enumerate().for_each(|(place, site)| members.entry(*site).or_default().push(place));
    // For two sites, either both directions are counted or neither is.
    let mut left = SITE_PAIRS_MAX;
    let mut is_counted: BTreeMap<Path, bool> = BTreeMap::new();
    let mut found = Vec::new();
    for ((a, b), bandwidth) in widest.into_iter().filter(|((a, b), _)| a != b) {
        let count = members[&a].len() * members[&b].len();
        let is_counted = is_counted.entry((a.min(b), a.max(b))).or_insert_with(|| {
            let has_room = count > 1 && 2 * count <= left;
            left -= if has_room { 2 * count } else { 0 };
            has_room
        });
        if *is_counted {
            let all = members[&a].iter().flat_map(|from| members[&b].iter().map(move |to| (*from, *to)));
            // Wide links are left out: a place of a third site may be near to both sites.
            let shared = all.filter(|(from, to)| links.get(*from, *to).is_none_or(|link| links.is_narrow(link)));
            let pairs = shared.map(|(from, to)| (links.places[from].clone(), links.places[to].clone())).collect();
            found.push(Bottleneck { pairs, bandwidth });
        }
    }
    found
}

/// A link between places, which are given by their indices.
#[derive(Clone, Copy)]
struct Link {
    from: usize,
    to: usize,
    bandwidth: f64,
}

/// Links between places, and lower bounds on the bandwidth of their NICs.
struct Links<'a, P> {
    /// Ascending. Places are given by their indices here.
    places: Vec<&'a P>,
    /// Ascending by sender and receiver.
    links: Vec<Link>,
    out: Vec<f64>,
    into: Vec<f64>,
}

impl<'a, P: Ord> Links<'a, P> {
    /// Takes links with their bandwidths, in ascending order.
    fn new(measured: impl Iterator<Item = (&'a (P, P), f64)>) -> Links<'a, P> {
        let measured: Vec<(&(P, P), f64)> = measured.collect();
        let mut places: Vec<&P> = measured.iter().map(|(pair, _)| &pair.1).collect();
        // Links are in order of their senders.
        places.extend(measured.chunk_by(|a, b| a.0.0 == b.0.0).map(|links| &links[0].0.0));
        places.sort_unstable();
        places.dedup();
        let mut links: Vec<Link> = Vec::with_capacity(measured.len());
        let mut from = 0;
        for (pair, bandwidth) in measured {
            while *places[from] != pair.0 {
                from += 1;
            }
            let to = places.binary_search(&&pair.1).expect("it was just listed");
            links.push(Link { from, to, bandwidth });
        }
        Links { out: Vec::new(), into: Vec::new(), places, links }.with_cards()
    }

    fn with_cards(mut self) -> Self {
        self.out = vec![0.0; self.places.len()];
        self.into = vec![0.0; self.places.len()];
        for link in &self.links {
            self.out[link.from] = self.out[link.from].max(link.bandwidth);
            self.into[link.to] = self.into[link.to].max(link.bandwidth);
        }
        self
    }

    /// Gives a link that was measured in one direction only the same bandwidth in the other.
    fn symmetric(mut self) -> Self {
        let back = self.links.iter().map(|link| Link { from: link.to, to: link.from, ..*link });
        let unmeasured: Vec<Link> = back.filter(|link| self.get(link.from, link.to).is_none()).collect();
        self.links.extend(unmeasured);
        self.links.sort_by_key(|link| (link.from, link.to));
        self.with_cards()
    }

    fn get(&self, from: usize, to: usize) -> Option<&Link> {
        let at = self.links.binary_search_by_key(&(from, to), |link| (link.from, link.to));
        at.ok().map(|at| &self.links[at])
    }

    /// True if a link is narrow compared with the NICs of both ends.
    fn is_narrow(&self, link: &Link) -> bool {
        link.bandwidth < NARROW * self.out[link.from].min(self.into[link.to])
    }

    /// Returns the site of each place: the one to which most of its links are wide. A single link that looks narrow,
    /// because it was measured during other transfers, does not split a site.
    fn sites(&self) -> Vec<usize> {
        let mut near: Vec<Vec<(usize, bool)>> = vec![Vec::new(); self.places.len()];
        for link in &self.links {
            let is_wide = link.bandwidth >= NARROW * self.out[link.from].max(self.into[link.to]);
            if is_wide || self.is_narrow(link) {
                near[link.from].push((link.to, is_wide));
                near[link.to].push((link.from, is_wide));
            }
        }
        let mut sites: Vec<Option<usize>> = vec![None; self.places.len()];
        let mut votes = Votes::new(self.places.len());
        // The first pass knows only the sites of earlier places, the next ones know all.
        for _ in 0..ROUNDS {
            for place in 0..sites.len() {
                near[place].iter().for_each(|(other, is_wide)| votes.add(sites[*other], *is_wide));
                sites[place] = votes.take().or(sites[place]).or(Some(place));
            }
        }
        sites.into_iter().map(|site| site.expect("every pass sets all")).collect()
    }
}

/// Counts the wide links of a place to each site, less the narrow ones.
struct Votes {
    of_site: Vec<i64>,
    voted: Vec<usize>,
}

impl Votes {
    fn new(sites: usize) -> Votes {
        Votes { of_site: vec![0; sites], voted: Vec::new() }
    }

    fn add(&mut self, site: Option<usize>, is_wide: bool) {
        if let Some(site) = site {
            self.of_site[site] += if is_wide { 1 } else { -1 };
            self.voted.push(site);
        }
    }

    /// Returns the site with the greatest excess of wide over narrow links, the first one among equals; `None` if every
    /// excess is negative. Starts over.
    fn take(&mut self) -> Option<usize> {
        let best = self.voted.iter().copied().max_by_key(|site| (self.of_site[*site], std::cmp::Reverse(*site)));
        let best = best.filter(|site| self.of_site[*site] >= 0);
        self.voted.drain(..).for_each(|site| self.of_site[site] = 0);
        best
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gridloom_base::SplitMix64;

    fn found(bandwidths: BTreeMap<(u32, u32), f64>, is_sure: bool) -> Vec<Bottleneck<u32>> {
        inter_site_paths(bandwidths.iter().map(|(pair, bandwidth)| (pair, *bandwidth)), |_| is_sure)
    }

    fn sure(bandwidths: BTreeMap<(u32, u32), f64>) -> Vec<Bottleneck<u32>> {
        found(bandwidths, true)
    }

    /// Links in both directions, for each pair of places.
    fn links(places: u32, bandwidth: impl Fn(u32, u32) -> f64) -> BTreeMap<(u32, u32), f64> {
        let pairs = (0..places).flat_map(|a| (0..places).filter(move |b| *b != a).map(move |b| (a, b)));
        pairs.map(|(a, b)| ((a, b), bandwidth(a.min(b), a.max(b)))).collect()
    }

    /// The sites as they are defined: by votes over maps of places.
    fn sites_by_maps(measured: &BTreeMap<(u32, u32), f64>) -> BTreeMap<u32, usize> {
        let back = measured.iter().map(|((from, to), bandwidth)| ((*to, *from), *bandwidth));
        let links: BTreeMap<(u32, u32), f64> =
            back.chain(measured.iter().map(|(pair, bandwidth)| (*pair, *bandwidth))).collect();
        let card = |is_its: &dyn Fn(&(u32, u32)) -> bool| {
            links.iter().filter(|(pair, _)| is_its(pair)).map(|(_, bandwidth)| *bandwidth).fold(0.0, f64::max)
        };
        let mut near: BTreeMap<u32, Vec<(u32, i64)>> = BTreeMap::new();
        for ((from, to), bandwidth) in &links {
            let (out, into) = (card(&|pair| pair.0 == *from), card(&|pair| pair.1 == *to));
            let (is_wide, is_narrow) = (*bandwidth >= NARROW * out.max(into), *bandwidth < NARROW * out.min(into));
            if is_wide || is_narrow {
                let vote = if is_wide { 1 } else { -1 };
                near.entry(*from).or_default().push((*to, vote));
                near.entry(*to).or_default().push((*from, vote));
            }
        }
        let places: Vec<u32> =
            links.keys().map(|(from, _)| *from).collect::<std::collections::BTreeSet<_>>().into_iter().collect();
        let mut sites: BTreeMap<u32, usize> = BTreeMap::new();
        for _ in 0..ROUNDS {
            for (number, place) in places.iter().enumerate() {
                let mut votes: BTreeMap<usize, i64> = BTreeMap::new();
                for (other, vote) in near.get(place).into_iter().flatten() {
                    sites.get(other).into_iter().for_each(|site| *votes.entry(*site).or_default() += vote);
                }
                let best = votes.into_iter().rev().max_by_key(|(_, votes)| *votes).filter(|(_, votes)| *votes >= 0);
                let site = best.map(|(site, _)| site).or(sites.get(place).copied()).unwrap_or(number);
                sites.insert(*place, site);
            }
        }
        sites
    }

    #[test]
    fn sites_of_random_links_are_those_by_votes_over_maps() {
        let mut random = SplitMix64::new(7);
        for _ in 0..300 {
            let mut measured = links(2 + random.below(14) as u32, |_, _| 0.0);
            let part = 1 + random.below(4);
            measured.retain(|_, _| random.below(4) < part);
            measured
                .values_mut()
                .for_each(|bandwidth| *bandwidth = [10.0, 40.0, 65.0, 100.0, 1000.0][random.below(5) as usize]);
            let found = SharedPaths::of(measured.iter().map(|(pair, bandwidth)| (pair, *bandwidth)));
            assert_eq!(found.sites, sites_by_maps(&measured), "{measured:?}");
        }
    }

    #[test]
    fn two_sites_share_the_way_between_them() {
        // Sites are 0 to 2, and 3 to 5.
        let found = sure(links(6, |a, b| if (a < 3) == (b < 3) { 100.0 } else { 40.0 }));
        assert_eq!(
            found.iter().map(|one| (one.pairs.len(), one.bandwidth)).collect::<Vec<_>>(),
            [(9, 40.0), (9, 40.0)]
        );
        assert_eq!(found[0].pairs[..4], [(0, 3), (0, 4), (0, 5), (1, 3)]);
    }

    #[test]
    fn links_that_look_narrow_within_a_site_do_not_split_it() {
        // Sites are 0 to 7, and 8 to 15.
        let disturbed = [(3, 7), (6, 7), (9, 10), (0, 1), (8, 9), (0, 3)];
        let found = sure(links(16, |a, b| match (a < 8) == (b < 8) {
            true if disturbed.contains(&(a, b)) => 35.0,
            true => 100.0,
            false => 50.0,
        }));
        let counts: Vec<_> = found.iter().map(|one| (one.pairs.len(), one.bandwidth)).collect();
        assert_eq!(counts, [(64, 50.0), (64, 50.0)]);
    }

    #[test]
    fn a_link_that_may_be_wider_than_measured_is_ignored() {
        let known = links(6, |a, b| if (a < 3) == (b < 3) { 100.0 } else { 40.0 });
        assert_eq!(found(known, false), []);
    }

    #[test]
    fn sites_that_are_too_large_have_no_ways_rather_than_one() {
        let site = |place: u32| place < 190;
        let ends = [0, 1, 190, 191];
        let narrow = ends.iter().flat_map(|a| ends.map(|b| (*a, b))).filter(|(a, b)| site(*a) != site(*b));
        let wide = (0..380).flat_map(|a| [(a, if site(a) { 0 } else { 190 }), (if site(a) { 0 } else { 190 }, a)]);
        let wide = wide.filter(|(a, b)| a != b).map(|pair| (pair, 100.0));
        let known: BTreeMap<(u32, u32), f64> = narrow.map(|pair| (pair, 40.0)).chain(wide).collect();
        assert_eq!(sure(known), []);
    }

    #[test]
    fn links_as_wide_as_the_cards_share_nothing() {
        assert_eq!(sure(links(6, |_, _| 100.0)), []);
        // Place 0, the program's machine, has a narrow NIC.
        assert_eq!(sure(links(6, |a, _| if a == 0 { 10.0 } else { 100.0 })), []);
        // Place 5 has a wide NIC.
        let found = sure(links(6, |a, b| if a == 4 && b == 5 { 1000.0 } else { 100.0 }));
        assert!(found.iter().all(|one| one.pairs.iter().all(|(a, b)| *a >= 4 || *b >= 4)), "{found:?}");
    }

    #[test]
    fn a_place_that_is_near_to_both_sites_does_not_join_them() {
        for third in [0, 6] {
            let site = |place: u32| if place == third { None } else { Some((place + u32::from(third == 6)) < 4) };
            let found = sure(links(7, |a, b| match (site(a), site(b)) {
                (Some(a), Some(b)) if a != b => 40.0,
                _ => 100.0,
            }));
            assert_eq!(
                found.iter().map(|one| (one.pairs.len(), one.bandwidth)).collect::<Vec<_>>(),
                [(9, 40.0), (9, 40.0)]
            );
        }
    }

    #[test]
    fn a_pair_that_was_not_measured_shares_the_way_too() {
        let mut known = links(4, |a, b| if (a < 2) == (b < 2) { 100.0 } else { 40.0 });
        (0..4).flat_map(|a| (0..a).map(move |b| (a, b))).for_each(|pair| _ = known.remove(&pair));
        known.remove(&(1, 3));
        let found = sure(known);
        assert_eq!(found[0].pairs, [(0, 2), (0, 3), (1, 2), (1, 3)]);
        assert_eq!(found[1].pairs, [(2, 0), (2, 1), (3, 0), (3, 1)]);
        assert_eq!(sure(BTreeMap::new()), []);
    }
}

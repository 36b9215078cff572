//! Sites, and the paths that join them. Places that are joined by wide links, those of high bandwidth, form a site.
//! Links between two sites that are narrower than the NICs at both ends are presumed to share one path.
//!
//! Probes run alone, so they cannot tell whether all links between two sites share one path or each has its own. In
//! real networks they share one. A plan that relies on paths that do not exist loses more than a plan that uses too few
//! paths.

use std::collections::{BTreeMap, BTreeSet};

use gridloom_base::limits::SITE_PAIRS_MAX;

use super::bottlenecks::Bottleneck;

/// A link with less than this fraction of a NIC's bandwidth is narrow.
const NARROW: f64 = 0.7;
/// Number of passes that assign each place to its site.
const ROUNDS: usize = 3;

/// Finds the paths that join sites, from the bandwidths of links between places. A link that looks narrow counts only
/// if `is_sure` is true for it, because first probes are disturbed, or are guesses.
pub(super) fn inter_site_paths<P: Ord + Clone>(
    mut bandwidths: BTreeMap<(P, P), f64>,
    is_sure: impl Fn(&(P, P)) -> bool,
) -> Vec<Bottleneck<P>> {
    let links = Links::new(&bandwidths);
    let unsure: Vec<(P, P)> =
        bandwidths.keys().filter(|pair| links.is_narrow(pair) && !is_sure(pair)).cloned().collect();
    unsure.iter().for_each(|pair| _ = bandwidths.remove(pair));
    find_paths(&symmetric(&bandwidths))
}

/// Gives a link that was measured in one direction only the same bandwidth in the other.
fn symmetric<P: Ord + Clone>(bandwidths: &BTreeMap<(P, P), f64>) -> BTreeMap<(P, P), f64> {
    let back = bandwidths.iter().map(|((from, to), bandwidth)| ((to.clone(), from.clone()), *bandwidth));
    back.chain(bandwidths.iter().map(|(pair, bandwidth)| (pair.clone(), *bandwidth))).collect()
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
    pub(super) fn of(bandwidths: &BTreeMap<(P, P), f64>) -> SharedPaths<P> {
        let bandwidths = &symmetric(bandwidths);
        let links = Links::new(bandwidths);
        let sites = links.sites();
        let (mut inter_site_paths, mut widths) = (BTreeMap::new(), BTreeMap::new());
        let mut by_way: BTreeMap<Path, Vec<(P, P)>> = BTreeMap::new();
        for (pair, bandwidth) in bandwidths.iter().filter(|(pair, _)| links.is_narrow(pair)) {
            let way = (sites[&pair.0], sites[&pair.1]);
            if way.0 != way.1 {
                inter_site_paths.insert(pair.clone(), way);
                by_way.entry(way).or_default().push(pair.clone());
                let width: &mut f64 = widths.entry(way).or_default();
                *width = width.max(*bandwidth);
            }
        }
        let sites = sites.into_iter().map(|(place, site)| (place.clone(), site)).collect();
        SharedPaths { inter_site_paths, links: by_way, widths, sites }
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
        self.inter_site_paths.keys().filter(move |other| *other != pair && self.share_path(pair, other))
    }
}

fn find_paths<P: Ord + Clone>(bandwidths: &BTreeMap<(P, P), f64>) -> Vec<Bottleneck<P>> {
    let links = Links::new(bandwidths);
    let sites = links.sites();
    let mut widest: BTreeMap<(usize, usize), f64> = BTreeMap::new();
    for ((from, to), bandwidth) in bandwidths.iter().filter(|(pair, _)| links.is_narrow(pair)) {
        let widest = widest.entry((sites[from], sites[to])).or_default();
        *widest = widest.max(*bandwidth);
    }
    let mut members: BTreeMap<usize, Vec<&P>> = BTreeMap::new();
    sites.iter().for_each(|(place, site)| members.entry(*site).or_default().push(place));
    // For two sites, either both directions are counted or neither is.
    let mut left = SITE_PAIRS_MAX;
    let mut is_counted: BTreeMap<(usize, usize), bool> = BTreeMap::new();
    let mut found = Vec::new();
    for ((a, b), bandwidth) in widest.into_iter().filter(|((a, b), _)| a != b) {
        let count = members[&a].len() * members[&b].len();
        let is_counted = is_counted.entry((a.min(b), a.max(b))).or_insert_with(|| {
            let has_room = count > 1 && 2 * count <= left;
            left -= if has_room { 2 * count } else { 0 };
            has_room
        });
        if *is_counted {
            let all = members[&a].iter().flat_map(|from| members[&b].iter().map(|to| ((*from).clone(), (*to).clone())));
            // Wide links are left out: a place of a third site may be near to both sites.
            let pairs = all.filter(|pair| !bandwidths.contains_key(pair) || links.is_narrow(pair)).collect();
            found.push(Bottleneck { pairs, bandwidth });
        }
    }
    found
}

/// Links between places, and lower bounds on the bandwidth of their NICs.
struct Links<'a, P> {
    bandwidths: &'a BTreeMap<(P, P), f64>,
    out: BTreeMap<&'a P, f64>,
    into: BTreeMap<&'a P, f64>,
}

impl<'a, P: Ord> Links<'a, P> {
    fn new(bandwidths: &'a BTreeMap<(P, P), f64>) -> Links<'a, P> {
        let (mut out, mut into): (BTreeMap<&P, f64>, BTreeMap<&P, f64>) = Default::default();
        for ((from, to), bandwidth) in bandwidths {
            for (cards, place) in [(&mut out, from), (&mut into, to)] {
                let card = cards.entry(place).or_default();
                *card = card.max(*bandwidth);
            }
        }
        Links { bandwidths, out, into }
    }

    /// True if a link was measured, and is narrow compared with the NICs of both ends.
    fn is_narrow(&self, pair: &(P, P)) -> bool {
        let bandwidth = self.bandwidths.get(pair);
        bandwidth.is_some_and(|bandwidth| *bandwidth < NARROW * self.out[&pair.0].min(self.into[&pair.1]))
    }

    /// Returns the site of each place: the one to which most of its links are wide. A single link that looks narrow,
    /// because it was measured during other transfers, does not split a site.
    fn sites(&self) -> BTreeMap<&'a P, usize> {
        let mut near: BTreeMap<&P, Vec<(&P, bool)>> = BTreeMap::new();
        for (pair, bandwidth) in self.bandwidths {
            let (from, to) = (&pair.0, &pair.1);
            let is_wide = *bandwidth >= NARROW * self.out[from].max(self.into[to]);
            if is_wide || self.is_narrow(pair) {
                near.entry(from).or_default().push((to, is_wide));
                near.entry(to).or_default().push((from, is_wide));
            }
        }
        let places: BTreeSet<&P> = self.bandwidths.keys().flat_map(|(from, to)| [from, to]).collect();
        let mut sites: BTreeMap<&P, usize> = BTreeMap::new();
        // The first pass knows only the sites of earlier places, the next ones know all.
        for _ in 0..ROUNDS {
            for (number, place) in places.iter().enumerate() {
                let fitting = fitting(near.get(place).into_iter().flatten(), &sites);
                let own = sites.get(place).copied();
                sites.insert(place, fitting.or(own).unwrap_or(number));
            }
        }
        sites
    }
}

/// Returns the site to which these links have the greatest excess of wide over narrow links; `None` if every excess is
/// negative.
fn fitting<'a, P: Ord + 'a>(
    near: impl Iterator<Item = &'a (&'a P, bool)>,
    sites: &BTreeMap<&P, usize>,
) -> Option<usize> {
    let mut votes: BTreeMap<usize, i64> = BTreeMap::new();
    for (other, is_wide) in near {
        if let Some(site) = sites.get(other) {
            *votes.entry(*site).or_default() += if *is_wide { 1 } else { -1 };
        }
    }
    let best = votes.into_iter().rev().max_by_key(|(_, votes)| *votes);
    best.filter(|(_, votes)| *votes >= 0).map(|(site, _)| site)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sure(bandwidths: BTreeMap<(u32, u32), f64>) -> Vec<Bottleneck<u32>> {
        inter_site_paths(bandwidths, |_| true)
    }

    /// Links in both directions, for each pair of places.
    fn links(places: u32, bandwidth: impl Fn(u32, u32) -> f64) -> BTreeMap<(u32, u32), f64> {
        let pairs = (0..places).flat_map(|a| (0..places).filter(move |b| *b != a).map(move |b| (a, b)));
        pairs.map(|(a, b)| ((a, b), bandwidth(a.min(b), a.max(b)))).collect()
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
        assert_eq!(inter_site_paths(known, |_| false), []);
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

//! Dragonflies: groups of chassis of blades (routers) of hosts.
//!
//! Parameters `g,nb;c,nk;r,ng;n`: groups, chassis in each, blades in each of those, hosts on each of those; and how many
//! cables one link stands for, by which its bandwidth is multiplied:
//!
//! ```text
//! local   a host and its blade
//! green   two blades of a chassis                                      ng cables
//! black   blades of the same number in two chassis of a group          nk cables
//! blue    two groups, between blade b of group a and blade a of group b, by number in the group      nb cables
//! ```
//!
//! A route is minimal: to the blade with the link to the other group (green, then black), over the blue link, then green
//! and black to the blade of the target. Names of links are ours, by position: `ID_green_link_A_B` between blades A and B.
//!
//! Source: Kim, Dally, Scott, Abts, "Technology-Driven, Highly-Scalable Dragonfly Topology" (ISCA 2008), in the shape of
//! Cray's Cascade and of SimGrid 4.1. Where there are more groups than blades in a chassis, which is not foreseen
//! there, blades are numbered through all chassis of their group.

use std::collections::BTreeMap;

use super::build::{ELEMENTS_MAX, PlatformBuilder};
use super::cluster::{FlatCluster, Leaves};
use super::net::{Edge, PointId, Walk, ZoneId};
use super::routing::Routing;
use super::{LinkId, PlatformError};

/// How many there are of each part.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) groups: usize,
    pub(super) chassis: usize,
    pub(super) blades: usize,
    pub(super) hosts: usize,
    /// Cables of a blue, black and green link.
    cables: [usize; 3],
}

#[derive(Clone, Debug)]
pub(super) struct Dragonfly {
    pub(super) shape: Shape,
    leaves: Leaves,
    /// Of each host, to its blade and back.
    pub(super) local: Vec<(LinkId, LinkId)>,
    /// From blade to blade.
    between: BTreeMap<(usize, usize), LinkId>,
}

/// Where a blade stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Blade {
    group: usize,
    chassis: usize,
    blade: usize,
}

impl Shape {
    fn parse(parameters: &str, hosts: usize) -> Result<Shape, String> {
        let wrong = |why: &str| format!("topo_parameters '{parameters}' {why}");
        let numbers = |part: &str| -> Option<Vec<usize>> {
            part.split(',').map(|word| word.trim().parse().ok().filter(|number| *number > 0)).collect()
        };
        let parts: Option<Vec<Vec<usize>>> = parameters.split(';').map(numbers).collect();
        let parts = parts.unwrap_or_default();
        let parts: Vec<&[usize]> = parts.iter().map(Vec::as_slice).collect();
        let [[groups, blue], [chassis, black], [blades, green], [each]] = parts[..] else {
            return Err(wrong(
                "must be numbers above 0, as in '3,4;4,3;5,1;2': groups, blue cables; chassis, black cables; blades, \
                 green cables; hosts of a blade",
            ));
        };
        let (groups, chassis, blades, each) = (*groups, *chassis, *blades, *each);
        let shape = Shape { groups, chassis, blades, hosts: each, cables: [*blue, *black, *green] };
        let product = [groups, chassis, blades, each].iter().try_fold(1usize, |product, n| product.checked_mul(*n));
        if product != Some(hosts) {
            let want = product.map_or("too many".to_owned(), |want| want.to_string());
            return Err(wrong(&format!("need {want} hosts, but there are {hosts}")));
        }
        if groups > chassis * blades {
            let why = format!("have {groups} groups, but only {} blades in each to join them", chassis * blades);
            return Err(wrong(&why));
        }
        // No number is above that of the hosts, whose squares are far from overflowing 64 bits.
        let pairs = |n: usize| n as u64 * (n as u64 - 1) / 2;
        let (green, black) = ((groups * chassis) as u64 * pairs(blades), (groups * blades) as u64 * pairs(chassis));
        if green + black + pairs(groups) + hosts as u64 > ELEMENTS_MAX as u64 / 2 {
            return Err(wrong("make too many links"));
        }
        Ok(shape)
    }

    /// The blade of that number in its group.
    fn blade(&self, group: usize, number: usize) -> Blade {
        Blade { group, chassis: number / self.blades, blade: number % self.blades }
    }

    fn blade_of(&self, host: usize) -> Blade {
        let of_group = self.chassis * self.blades;
        self.blade(host / self.hosts / of_group, host / self.hosts % of_group)
    }

    fn number(&self, blade: Blade) -> usize {
        (blade.group * self.chassis + blade.chassis) * self.blades + blade.blade
    }

    /// The blades passed from the one to the other, both included.
    fn way(&self, from: Blade, to: Blade) -> Vec<Blade> {
        let mut way = vec![from];
        if from.group != to.group {
            approach(&mut way, self.blade(from.group, to.group));
            way.push(self.blade(to.group, from.group));
        }
        approach(&mut way, to);
        way
    }

    /// Joins all blades, each pair once; `cable` gets the pair, the colour, and the cables.
    fn join<E>(&self, mut cable: impl FnMut(Blade, Blade, &str, usize) -> Result<(), E>) -> Result<(), E> {
        let [blue, black, green] = self.cables;
        for group in 0..self.groups {
            for number in 0..self.chassis * self.blades {
                let from = self.blade(group, number);
                for blade in from.blade + 1..self.blades {
                    cable(from, Blade { blade, ..from }, "green", green)?;
                }
                for chassis in from.chassis + 1..self.chassis {
                    cable(from, Blade { chassis, ..from }, "black", black)?;
                }
            }
            for other in group + 1..self.groups {
                cable(self.blade(group, other), self.blade(other, group), "blue", blue)?;
            }
        }
        Ok(())
    }
}

/// Goes on to a blade of the same group.
fn approach(way: &mut Vec<Blade>, to: Blade) {
    let Blade { mut blade, chassis, .. } = way[way.len() - 1];
    if blade != to.blade {
        blade = to.blade;
        way.push(Blade { chassis, ..to });
    }
    if chassis != to.chassis {
        way.push(Blade { blade, ..to });
    }
}

impl Dragonfly {
    /// One link of each colour that there is: green, black, blue.
    pub(super) fn examples(&self) -> [Option<LinkId>; 3] {
        let mut found = [None; 3];
        let looked_for = self.shape.join(|from, to, colour, _| {
            let at = ["green", "black", "blue"].iter().position(|known| *known == colour).unwrap_or_default();
            let between = || self.between.get(&(self.shape.number(from), self.shape.number(to))).copied();
            found[at] = found[at].or_else(between);
            Ok::<(), ()>(())
        });
        looked_for.map_or([None; 3], |()| found)
    }

    /// The way between two members. A router stands for the whole dragonfly: nothing is crossed to reach it.
    pub(super) fn route(&self, walk: &mut Walk<'_>, src: PointId, dst: PointId) -> Edge {
        let links = match self.leaves.pair(src, dst) {
            None => Vec::new(),
            Some((from, to)) => self.leaves.loopback(from, to).unwrap_or_else(|| self.way(from, to)),
        };
        walk.add_latency(&links);
        Edge { links, gateway_src: src, gateway_dst: dst }
    }

    fn way(&self, from: usize, to: usize) -> Vec<LinkId> {
        let blades = self.shape.way(self.shape.blade_of(from), self.shape.blade_of(to));
        let numbers: Vec<usize> = blades.into_iter().map(|blade| self.shape.number(blade)).collect();
        let between = numbers.windows(2).map(|pair| self.between[&(pair[0], pair[1])]);
        std::iter::once(self.local[from].0).chain(between).chain([self.local[to].1]).collect()
    }
}

/// Adds a dragonfly as a zone of its own.
pub(super) fn add(
    cluster: &FlatCluster<'_>,
    parameters: &str,
    builder: &mut PlatformBuilder,
    parent: ZoneId,
) -> Result<(), PlatformError> {
    let shape = Shape::parse(parameters, cluster.hosts.len()).map_err(PlatformError::new)?;
    let zone = builder.add_zone(parent, cluster.id, Routing::None)?;
    let leaves = Leaves::add(cluster, builder, zone)?;
    let mut local = Vec::with_capacity(cluster.hosts.len());
    for host in 0..cluster.hosts.len() {
        let name = format!("{}_local_link_{}_{host}", cluster.id, shape.number(shape.blade_of(host)));
        local.push(cluster.add_cable(builder, &name, 1)?);
    }
    let mut between = BTreeMap::new();
    shape.join(|from, to, colour, cables| {
        let (from, to) = (shape.number(from), shape.number(to));
        let name = format!("{}_{colour}_link_{from}_{to}", cluster.id);
        let (there, back) = cluster.add_cable(builder, &name, cables)?;
        between.insert((from, to), there);
        between.insert((to, from), back);
        Ok(())
    })?;
    builder.zone_mut(zone).routing = Routing::Dragonfly(Box::new(Dragonfly { shape, leaves, local, between }));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn other_groups_are_reached_by_the_blade_of_their_number() {
        let shape = Shape::parse("3,4;4,3;5,1;2", 120).unwrap();
        let at = |group, chassis, blade| Blade { group, chassis, blade };
        // Green to blade 2, black to chassis 0, blue, then green and black to the target.
        let way = shape.way(at(0, 3, 4), at(2, 1, 3));
        assert_eq!(way, [at(0, 3, 4), at(0, 3, 2), at(0, 0, 2), at(2, 0, 0), at(2, 0, 3), at(2, 1, 3)]);
        assert_eq!(shape.way(at(1, 2, 3), at(1, 2, 3)), [at(1, 2, 3)]);
        assert_eq!(shape.blade_of(119), at(2, 3, 4));
    }

    proptest! {
        /// Every step of a way is a link that was laid, and there are at most five.
        #[test]
        fn ways_go_over_links(
            groups in 1usize..7, chassis in 1usize..4, blades in 1usize..4, from in 0usize..1000, to in 0usize..1000,
        ) {
            prop_assume!(groups <= chassis * blades);
            let shape = Shape { groups, chassis, blades, hosts: 2, cables: [1, 1, 1] };
            let mut laid = BTreeSet::new();
            let lay = |a, b, _: &str, _| {
                assert!(laid.insert((shape.number(a), shape.number(b))) && laid.insert((shape.number(b), shape.number(a))));
                Ok::<(), ()>(())
            };
            shape.join(lay).unwrap();
            let hosts = groups * chassis * blades * 2;
            let (from, to) = (shape.blade_of(from % hosts), shape.blade_of(to % hosts));
            let way: Vec<usize> = shape.way(from, to).into_iter().map(|blade| shape.number(blade)).collect();
            prop_assert!(way.windows(2).all(|pair| laid.contains(&(pair[0], pair[1]))), "{way:?}");
            prop_assert!(way.len() <= 6);
            prop_assert_eq!((way[0], way[way.len() - 1]), (shape.number(from), shape.number(to)));
        }
    }
}

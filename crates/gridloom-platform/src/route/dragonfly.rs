//! Dragonflies: groups of chassis of blades (routers) of hosts.
//!
//! Parameters `g,nb;c,nk;r,ng;n`: number of groups, of chassis per group, of blades per chassis, of hosts per blade; and the
//! number of cables per link, which multiplies its bandwidth:
//!
//! ```text
//! local   a host and its blade
//! green   two blades of a chassis                                      ng cables
//! black   blades of the same number in two chassis of a group          nk cables
//! blue    two groups, between blade b of group a and blade a of group b, by number in the group      nb cables
//! ```
//!
//! A route is minimal. It goes to the blade with the link to the other group (green, then black), over the blue link,
//! then green and black to the blade of the target. Limiters belong to hosts and blades: each one on the route limits.
//!
//! **As in SimGrid**: after a green link within one group, a route continues from the blade of that number in the *first*
//! chassis. If it began in another chassis, it therefore lacks a black link that it would need, or has one too many.
//!
//! Source: Kim, Dally, Scott, Abts, "Technology-Driven, Highly-Scalable Dragonfly Topology" (ISCA 2008), in the shape of
//! Cray's Cascade and of SimGrid 4.1. If there are more groups than blades in a chassis, a case that SimGrid does not handle,
//! blades are numbered through all chassis of their group.

use std::collections::BTreeMap;

use super::leaves::{Leaves, LinkFactory};
use crate::element::{ELEMENTS_MAX, LinkId};
use crate::error::PlatformError;

/// The number of each part.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) groups: usize,
    pub(crate) chassis: usize,
    pub(crate) blades: usize,
    pub(crate) hosts: usize,
    /// Number of cables of a blue, black and green link.
    cables: [usize; 3],
}

#[derive(Clone, Debug)]
pub(crate) struct Dragonfly {
    pub(crate) shape: Shape,
    pub(crate) leaves: Leaves,
    /// Each host's link to its blade and the link back.
    pub(crate) local: Vec<(LinkId, LinkId)>,
    /// Limiter of each blade, if any.
    limiters: Vec<Option<LinkId>>,
    /// Links by pair of blades.
    between: BTreeMap<(usize, usize), LinkId>,
}

/// The position of a blade.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Blade {
    group: usize,
    chassis: usize,
    blade: usize,
}

impl Shape {
    pub(crate) fn parse(parameters: &str, hosts: usize) -> Result<Shape, String> {
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
        // No number exceeds the number of hosts, whose square is far from overflowing 64 bits.
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

    /// Returns the links from one blade to another, each as the pair of blades at its ends.
    fn route(&self, from: Blade, to: Blade) -> Vec<(Blade, Blade)> {
        let (mut way, mut at) = (Vec::new(), from);
        if from.group != to.group {
            let (door, other) = (self.blade(from.group, to.group), self.blade(to.group, from.group));
            if at.blade != door.blade {
                let green = Blade { chassis: at.chassis, ..door };
                way.push((at, green));
                at = green;
            }
            if at.chassis != door.chassis {
                way.push((at, door));
            }
            way.push((door, other));
            at = other;
        }
        if at.blade != to.blade {
            way.push((at, Blade { chassis: at.chassis, ..to }));
            // After a blue link that is the blade's own chassis, in all shapes that SimGrid supports.
            let chassis = if from.group == to.group { 0 } else { at.chassis };
            at = Blade { chassis, ..to };
        }
        if at.chassis != to.chassis {
            way.push((at, to));
        }
        way
    }

    /// Joins all blades, each pair once; `cable` receives the pair, the name of the link, and its number of cables.
    fn join<E>(&self, mut cable: impl FnMut(Blade, Blade, &str, usize) -> Result<(), E>) -> Result<(), E> {
        let [blue, black, green] = self.cables;
        for (group, chassis) in pairs(self.groups, self.chassis) {
            for (j, k) in ordered_pairs(self.blades) {
                let name = format!("green_link_in_chassis_{chassis}_between_routers_{j}_and_{k}");
                cable(Blade { group, chassis, blade: j }, Blade { group, chassis, blade: k }, &name, green)?;
            }
        }
        for group in 0..self.groups {
            for (j, k) in ordered_pairs(self.chassis) {
                for blade in 0..self.blades {
                    let name = format!("black_link_in_group_{group}_between_chassis_{j}_and_{k}_blade_{blade}");
                    cable(Blade { group, chassis: j, blade }, Blade { group, chassis: k, blade }, &name, black)?;
                }
            }
        }
        for (j, k) in ordered_pairs(self.groups) {
            let (from, to) = (self.blade(j, k), self.blade(k, j));
            let (a, b) = (self.number(from), self.number(to));
            cable(from, to, &format!("blue_link_between_group_{j}_and_{k}_routers_{a}_and_{b}"), blue)?;
        }
        Ok(())
    }
}

fn pairs(first: usize, second: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..first).flat_map(move |a| (0..second).map(move |b| (a, b)))
}

fn ordered_pairs(count: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..count).flat_map(move |a| (a + 1..count).map(move |b| (a, b)))
}

impl Dragonfly {
    /// Creates the links of that many hosts. Their names are numbered through all dragonflies of a platform, of which `laid` links
    /// exist already.
    pub(crate) fn build(
        shape: Shape,
        leaves: Leaves,
        hosts: usize,
        laid: &mut usize,
        cabling: &mut dyn LinkFactory,
    ) -> Result<Dragonfly, PlatformError> {
        // Numbered downwards from twice the number of hosts, like switches of fat trees.
        let numbers = (0..shape.groups * shape.chassis * shape.blades).map(|blade| 2 * hosts - 1 - blade);
        let limiters = numbers.map(|number| cabling.limiter(number)).collect::<Result<_, _>>()?;
        let mut add_link = |name: &str, cables: usize| {
            let name = format!("{name}_{laid}");
            *laid += 1;
            cabling.cable(&name, cables)
        };
        let mut local = Vec::with_capacity(hosts);
        for host in 0..hosts {
            let (blade, place) = (shape.number(shape.blade_of(host)), host % shape.hosts);
            local.push(add_link(&format!("local_link_from_router_{blade}_to_node_{place}"), 1)?);
        }
        let mut between = BTreeMap::new();
        shape.join(|from, to, name, cables| {
            let (from, to) = (shape.number(from), shape.number(to));
            let (there, back) = add_link(name, cables)?;
            between.insert((from, to), there);
            between.insert((to, from), back);
            Ok::<(), PlatformError>(())
        })?;
        Ok(Dragonfly { shape, leaves, local, limiters, between })
    }

    /// Returns one link of each existing colour: green, black, blue.
    pub(crate) fn examples(&self) -> [Option<LinkId>; 3] {
        let mut found = [None; 3];
        let looked_for = self.shape.join(|from, to, name, _| {
            let colours = ["green", "black", "blue"];
            let at = colours.iter().position(|colour| name.starts_with(colour)).expect("names begin with colours");
            let between = || self.between.get(&(self.shape.number(from), self.shape.number(to))).copied();
            found[at] = found[at].or_else(between);
            Ok::<(), ()>(())
        });
        looked_for.map_or([None; 3], |()| found)
    }

    /// Returns the links between two hosts, by position.
    pub(crate) fn route(&self, from: usize, to: usize) -> Vec<LinkId> {
        let (first, last) = (self.shape.blade_of(from), self.shape.blade_of(to));
        let mut links: Vec<LinkId> = self.leaves.limiter(from).into_iter().chain([self.local[from].0]).collect();
        for (here, there) in self.shape.route(first, last) {
            let (limiter, link) = (self.limiters[self.shape.number(here)], self.between(here, there));
            match here.group == there.group {
                true => links.extend(limiter.into_iter().chain([link])),
                false => links.extend([link].into_iter().chain(limiter)),
            }
        }
        links.extend(self.limiters[self.shape.number(last)]);
        links.push(self.local[to].1);
        links.extend(self.leaves.limiter(to));
        links
    }

    fn between(&self, from: Blade, to: Blade) -> LinkId {
        self.between[&(self.shape.number(from), self.shape.number(to))]
    }
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
        let stops = [at(0, 3, 4), at(0, 3, 2), at(0, 0, 2), at(2, 0, 0), at(2, 0, 3), at(2, 1, 3)];
        let way: Vec<(Blade, Blade)> = stops.windows(2).map(|pair| (pair[0], pair[1])).collect();
        assert_eq!(shape.route(at(0, 3, 4), at(2, 1, 3)), way);
        assert_eq!(shape.route(at(1, 2, 3), at(1, 2, 3)), []);
        // The first chassis replaces the route's own.
        assert_eq!(shape.route(at(1, 2, 3), at(1, 0, 1)), [(at(1, 2, 3), at(1, 2, 1))]);
        assert_eq!(shape.route(at(1, 2, 3), at(1, 2, 1)), [(at(1, 2, 3), at(1, 2, 1)), (at(1, 0, 1), at(1, 2, 1))]);
        assert_eq!(shape.blade_of(119), at(2, 3, 4));
    }

    proptest! {
        /// Every step of a route is an existing link, and there are at most five.
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
            let way = shape.route(from, to);
            let are_laid = way.iter().all(|(a, b)| laid.contains(&(shape.number(*a), shape.number(*b))));
            prop_assert!(are_laid && way.len() <= 5, "{way:?}");
            prop_assert!(way.first().is_none_or(|(first, _)| *first == from));
            prop_assert!(from.group == to.group || way.last().is_none_or(|(_, last)| *last == to));
            prop_assert!(from.group == to.group || way.windows(2).all(|pair| pair[0].1 == pair[1].0));
        }
    }
}

//! Repeatedly assigns the chare with the most work to the element that would finish it first. Moves most of the chares.
//!
//! If nothing is fixed and all elements are equally fast, the time is at most 4/3 of the optimum (R. L. Graham,
//! *Bounds on multiprocessing timing anomalies*, SIAM J. Appl. Math. 17, 1969, theorem 2).

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use super::even::Bin;
use super::{Balancer, Loads, Pe, longest_ns};

pub(super) const ENTRY: Balancer = Balancer {
    name: "greedy",
    about: "repeatedly assigns the chare with the most work to the element with the least; moves most chares",
    source: "GreedyLB of Charm++; R. L. Graham, SIAM J. Appl. Math. 17, 1969",
    places,
    cost_ns: longest_ns,
};

fn places(loads: &Loads) -> Vec<Pe> {
    let mut order: Vec<usize> = (0..loads.chares.len()).collect();
    order.sort_by_key(|chare| Reverse(loads.work(&loads.chares[*chare])));
    // Among elements of one speed, the one with the least work finishes first.
    let mut by_speed: BTreeMap<u64, BinaryHeap<Reverse<(u64, Pe)>>> = BTreeMap::new();
    for element in loads.elements.all() {
        let Bin { fixed, size: speed } = loads.bin(element);
        by_speed.entry(speed).or_default().push(Reverse((fixed, element)));
    }
    let mut places = loads.placement();
    for chare in order {
        let work = loads.work(&loads.chares[chare]);
        // A chare that has done no work need not move.
        if work > 0 {
            let least = by_speed.iter_mut().filter_map(|(speed, heap)| heap.peek_mut().map(|least| (*speed, least)));
            let first = least.min_by_key(|(speed, least)| ((least.0.0 + work) / speed, least.0.1));
            let (_, mut first) = first.expect("there is an element");
            places[chare] = first.0.1;
            first.0.0 += work;
        }
    }
    places
}

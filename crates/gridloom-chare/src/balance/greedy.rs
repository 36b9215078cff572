//! The chare with most to do goes to the element with least to do, again and again. Moves most of the chares.
//!
//! At most 4/3 of the least time possible (R. L. Graham, *Bounds on multiprocessing timing anomalies*, SIAM J. Appl. Math. 17, 1969,
//! theorem 2), if nothing is fixed.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::{Balancer, Loads, Pe, longest_ns};

pub(super) const ENTRY: Balancer = Balancer {
    name: "greedy",
    about: "the chare with most to do goes to the element with least to do, and so on; moves most chares",
    source: "GreedyLB of Charm++; R. L. Graham, SIAM J. Appl. Math. 17, 1969",
    places,
    cost_ns: longest_ns,
};

fn places(loads: &Loads) -> Vec<Pe> {
    let mut order: Vec<usize> = (0..loads.chares.len()).collect();
    order.sort_by_key(|chare| Reverse(loads.chares[*chare].busy_ns));
    let elements = loads.fixed_ns.iter().zip(loads.elements.all());
    let mut least: BinaryHeap<Reverse<(u64, Pe)>> = elements.map(|(busy, element)| Reverse((*busy, element))).collect();
    let mut places = loads.places();
    for chare in order {
        let busy_ns = loads.chares[chare].busy_ns;
        // One that has done nothing need not move.
        if busy_ns > 0 {
            let Reverse((busy, element)) = least.pop().expect("there is an element");
            places[chare] = element;
            least.push(Reverse((busy + busy_ns, element)));
        }
    }
    places
}

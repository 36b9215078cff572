//! Moves as few chares as needed from elements with more work than the mean to those with less.

use super::even::{Bin, even};
use super::{Balancer, Loads, Pe, longest_ns};

pub(super) const ENTRY: Balancer = Balancer {
    name: "refine",
    about: "moves chares from elements with more work than the mean to those with the least; moves few chares",
    source: "RefineLB of Charm++",
    places,
    cost_ns: longest_ns,
};

fn places(loads: &Loads) -> Vec<Pe> {
    let bins: Vec<Bin> = loads.elements.all().map(|element| loads.bin(element)).collect();
    let mut items: Vec<(usize, u64)> =
        loads.chares.iter().map(|load| (load.element.0 as usize, loads.work(load))).collect();
    even(&bins, &mut items);
    items.into_iter().map(|(element, _)| Pe(element as u32)).collect()
}

//! Balances the weights of bins with few moves: items move from the fullest bin to the emptiest while this reduces the maximum.

use std::collections::BTreeSet;

/// A bin that holds items: an element, or a group of elements.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bin {
    /// Weight that cannot move.
    pub(super) fixed: u64,
    /// Relative capacity: the speed of an element, or the total speed of a group.
    pub(super) size: u64,
}

/// Inverse of the tolerance: no item is moved from a bin that exceeds the mean by at most 1/32.
const TOLERANCE: u64 = 32;

/// Moves items, given as pairs of bin and weight, to other bins.
pub(super) fn even(bins: &[Bin], items: &mut [(usize, u64)]) {
    let mut weights: Vec<u64> = bins.iter().map(|bin| bin.fixed).collect();
    let mut held: Vec<BTreeSet<(u64, usize)>> = vec![BTreeSet::new(); bins.len()];
    for (item, (bin, weight)) in items.iter().enumerate() {
        weights[*bin] += weight;
        if *weight > 0 {
            held[*bin].insert((*weight, item));
        }
    }
    let fullness = |bin: usize, weight: u64| weight / bins[bin].size;
    let mean = weights.iter().sum::<u64>() / bins.iter().map(|bin| bin.size).sum::<u64>().max(1);
    let enough = mean + mean / TOLERANCE;
    let mut order: BTreeSet<(u64, usize)> = (0..bins.len()).map(|bin| (fullness(bin, weights[bin]), bin)).collect();
    let mut full = order.clone();
    while let Some((was, from)) = full.pop_last().filter(|(fullness, _)| *fullness > enough) {
        let Some((_, to)) = order.first().copied().filter(|(_, to)| *to != from) else { break };
        let after = |item: &(u64, usize)| fullness(to, weights[to] + item.0);
        // Take the heaviest item that does not overfill the other bin; otherwise the lightest, if the other bin stays
        // less full than this one was.
        let room = (enough * bins[to].size).saturating_sub(weights[to]);
        let fits = held[from].range(..=(room, usize::MAX)).next_back().copied();
        let least = || held[from].first().copied().filter(|item| after(item) < was);
        let Some(item) = fits.filter(|item| after(item) < was).or_else(least) else { continue };
        for bin in [from, to] {
            order.remove(&(fullness(bin, weights[bin]), bin));
            full.remove(&(fullness(bin, weights[bin]), bin));
        }
        held[from].remove(&item);
        held[to].insert(item);
        weights[from] -= item.0;
        weights[to] += item.0;
        items[item.1].0 = to;
        for bin in [from, to] {
            order.insert((fullness(bin, weights[bin]), bin));
            full.insert((fullness(bin, weights[bin]), bin));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_moves_than_needed() {
        let bins = [Bin { fixed: 0, size: 1 }; 2];
        let mut items = [(0, 10), (0, 10), (0, 10), (0, 10), (0, 10), (1, 10)];
        even(&bins, &mut items);
        assert_eq!(items.map(|(bin, _)| bin), [0, 0, 0, 1, 1, 1]);
    }

    #[test]
    fn what_is_fixed_and_how_much_a_bin_holds_count() {
        let bins = [Bin { fixed: 30, size: 1 }, Bin { fixed: 0, size: 3 }];
        let mut items = [(0, 10); 9];
        even(&bins, &mut items);
        assert_eq!(items.iter().filter(|(bin, _)| *bin == 1).count(), 9);
    }

    #[test]
    fn an_item_that_is_too_heavy_for_any_other_bin_stays() {
        let bins = [Bin { fixed: 0, size: 1 }; 3];
        let mut items = [(0, 100), (1, 10), (2, 10)];
        even(&bins, &mut items);
        assert_eq!(items.map(|(bin, _)| bin), [0, 1, 2]);
    }
}

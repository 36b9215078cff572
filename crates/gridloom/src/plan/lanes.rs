//! Lanes of a drawing: bars of one row that overlap are drawn in different lanes.

use std::collections::BTreeMap;

/// Row, start and end.
pub(super) type Span<'a> = (&'a str, f64, f64);

/// Returns for each span the first lane of its row that is free at its start, in order of start.
pub(super) fn lanes(spans: &[Span<'_>]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..spans.len()).collect();
    order.sort_by(|a, b| spans[*a].1.total_cmp(&spans[*b].1).then(a.cmp(b)));
    let mut free: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    let mut lanes = vec![0; spans.len()];
    for number in order {
        let (row, start, end) = spans[number];
        let ends = free.entry(row).or_default();
        let lane = ends.iter().position(|until| *until <= start + SAME_S).unwrap_or(ends.len());
        match ends.get_mut(lane) {
            Some(until) => *until = end,
            None => ends.push(end),
        }
        lanes[number] = lane;
    }
    lanes
}

/// An overlap up to this counts as none, since predicted dates are rounded.
const SAME_S: f64 = 1e-9;

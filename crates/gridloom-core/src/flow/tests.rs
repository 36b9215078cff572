//! The engine on random networks, against itself with all rates found anew at each event and kept for each action.

use super::network::{NetworkModel, Transfer};
use super::*;
use proptest::prelude::*;

/// Start, links, latency, size and rate.
type Drawn = (f64, Vec<u32>, f64, f64, f64);

/// When each of some transfers ends on five links and a fat pipe, while widths
/// change. As in the reference, each has a rate of its own; all are found anew at each event.
fn ends_of(reach: Reach, transfers: &[Drawn], widths: &[(f64, u32, f64)]) -> Vec<f64> {
    let mut resources = Resources::new();
    let mut now: Vec<f64> = (0..5).map(|at| 1e6 + 1e5 * f64::from(at)).collect();
    for width in &now {
        resources.add_link(*width, 0.1, Policy::Shared);
    }
    resources.add_link(3.3e6, 0.1, Policy::FatPipe);
    let mut engine = FlowEngine::new(resources, NetworkModel::LV08);
    engine.set_reach(reach);
    let (mut started, mut ends, mut completed) = (Vec::new(), vec![f64::NAN; transfers.len()], Vec::new());
    let (mut begun, mut changed) = (vec![false; transfers.len()], vec![false; widths.len()]);
    loop {
        let starts = transfers.iter().zip(&begun).filter(|(_, begun)| !**begun).map(|(transfer, _)| transfer.0);
        let changes = widths.iter().zip(&changed).filter(|(_, changed)| !**changed).map(|(width, _)| width.0);
        let next = starts.chain(changes).chain(engine.next_event_s()).fold(f64::INFINITY, f64::min);
        if next == f64::INFINITY {
            return ends;
        }
        engine.wait_until(next);
        engine.fire_due(&mut completed);
        for end in completed.drain(..) {
            let (_, at) = started.iter().find(|(action, _)| *action == end.action).unwrap();
            ends[*at] = end.date_s;
        }
        for (at, (start, links, latency_s, size_bytes, rate_max)) in transfers.iter().enumerate() {
            if !begun[at] && *start <= next {
                begun[at] = true;
                let links: Vec<_> = links.iter().map(|link| LinkIndex(*link)).collect();
                let transfer = Transfer { rate_max: *rate_max, ..Transfer::new(&links, *latency_s, *size_bytes) };
                started.push((engine.start_transfer(&transfer), at));
            }
        }
        for (at, (date, link, width)) in widths.iter().enumerate() {
            if !changed[at] && *date <= next {
                (changed[at], now[*link as usize]) = (true, *width);
                engine.set_bandwidth(LinkIndex(*link), *width);
            }
        }
        if reach == Reach::AsReference {
            now.iter().enumerate().for_each(|(link, width)| engine.set_bandwidth(LinkIndex(link as u32), *width));
        }
    }
}

proptest! {
    #[test]
    fn clocks_agree_with_rates_of_their_own(
        transfers in prop::collection::vec(
            (0u8..9, 0u32..5, prop::collection::btree_set(0u32..6, 0..4), 1u8..4, 1u32..50, prop::option::of(1u32..9)),
            1..60,
        ),
        widths in prop::collection::vec((0u8..90, 0u32..5, 10u32..30), 0..8),
    ) {
        let transfers: Vec<Drawn> = (transfers.into_iter())
            .map(|(start, first, mut links, latency, size, rate)| {
                links.insert(first);
                let rate_max = rate.map_or(f64::INFINITY, |rate| 3.1e4 * f64::from(rate));
                let latency_s = f64::from(latency) / 10.0;
                (f64::from(start), links.into_iter().collect(), latency_s, 1e5 * f64::from(size), rate_max)
            })
            .collect();
        let widths: Vec<_> = (widths.into_iter())
            .map(|(date, link, width)| (f64::from(date), link, 1e5 * f64::from(width)))
            .collect();
        let expected = ends_of(Reach::AsReference, &transfers, &widths);
        for (end_s, expected) in ends_of(Reach::Connected, &transfers, &widths).into_iter().zip(expected) {
            prop_assert!((end_s - expected).abs() <= 1e-9 * expected.max(1.0), "{end_s} {expected}");
        }
    }
}

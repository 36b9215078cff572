//! Slots of a server compared with a slow search.

use gridloom_map::parts::Slots;

#[test]
fn a_gap_is_found_and_filled() {
    let mut slots = Slots::new(&[1.0]);
    slots.take(5.0, 6.0);
    assert_eq!(slots.fit(0.0, 4.0, true), 1.0);
    assert_eq!(slots.fit(0.0, 4.5, true), 6.0);
    assert_eq!(slots.fit(0.0, 4.0, false), 6.0);
    slots.take(2.0, 4.0);
    assert_eq!(slots.fit(0.0, 1.0, true), 1.0);
    assert_eq!(slots.fit(1.5, 1.0, true), 4.0);
}

#[test]
fn nothing_lies_across_a_task_that_takes_no_time() {
    let mut slots = Slots::new(&[0.0]);
    slots.take(5.0, 5.0);
    assert_eq!((slots.fit(0.0, 5.0, true), slots.fit(0.0, 6.0, true)), (0.0, 5.0));
    assert_eq!((slots.fit(0.0, 1.0, false), slots.fit(7.0, 0.0, true)), (5.0, 7.0));
    slots.take(5.0, 9.0);
    slots.take(3.0, 3.0);
    assert_eq!((slots.fit(0.0, 3.0, true), slots.fit(0.0, 4.0, true)), (0.0, 9.0));
    // There is room for it between other tasks, but not within them.
    assert_eq!((slots.fit(5.0, 0.0, true), slots.fit(6.0, 0.0, true)), (5.0, 9.0));
}

#[test]
fn two_slots_run_two_tasks() {
    let mut slots = Slots::new(&[0.0, 3.0]);
    assert_eq!(slots.fit(0.0, 9.0, true), 0.0);
    slots.take(0.0, 5.0);
    assert_eq!(slots.fit(0.0, 1.0, true), 3.0);
    slots.take(3.0, 4.0);
    slots.take(4.0, 10.0);
    assert_eq!(slots.fit(0.0, 1.0, true), 5.0);
}

/// The oracle: the earliest start is 0, the ready time, or the end of a placed interval.
fn fit_slowly(placed: &[(f64, f64)], capacity: usize, ready_s: f64, seconds: f64) -> f64 {
    let mut starts: Vec<f64> = placed.iter().map(|(_, end)| end.max(ready_s)).chain([ready_s]).collect();
    starts.sort_by(f64::total_cmp);
    let overlap = |at: f64| placed.iter().filter(|(start, end)| *start <= at && at < *end).count();
    let free = |start: &f64| {
        let inside = placed.iter().map(|(begin, _)| *begin).filter(|begin| begin > start && *begin < start + seconds);
        inside.chain([*start]).all(|at| overlap(at) < capacity)
    };
    starts.into_iter().find(free).expect("after everything there is room")
}

#[test]
fn the_search_agrees_with_a_slow_one() {
    let mut rng = gridloom_base::SplitMix64::new(7);
    for capacity in [1usize, 2, 3] {
        let mut slots = Slots::new(&vec![0.0; capacity]);
        let mut placed = Vec::new();
        for _ in 0..600 {
            let (ready_s, seconds) = (rng.below(400) as f64, 1.0 + rng.below(4) as f64);
            let start_s = slots.fit(ready_s, seconds, true);
            assert_eq!(start_s, fit_slowly(&placed, capacity, ready_s, seconds));
            slots.take(start_s, start_s + seconds);
            placed.push((start_s, start_s + seconds));
        }
    }
}

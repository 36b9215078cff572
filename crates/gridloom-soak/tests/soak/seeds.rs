//! Tests of random groups and plain calls of several clients under random faults, with all invariants checked after every step.
//!
//! The command `gridloom-soak` runs many seeds; this test runs a few hundred. A failing seed is printed with the command to replay
//! it. `GRIDLOOM_SEED=N` runs only that seed and prints its events if it fails; `GRIDLOOM_SEEDS=N` runs N seeds,
//! starting at `GRIDLOOM_FROM=N`.

use std::collections::BTreeMap;

use gridloom_soak::{self as soak, Options};

const SEEDS_DEFAULT: u64 = 300;
/// Maximum number of failing seeds shown before a test gives up.
const FAILURES_SHOWN: usize = 8;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

#[test]
fn whatever_breaks_the_invariants_hold() {
    let alone = number("GRIDLOOM_SEED");
    let from = alone.or(number("GRIDLOOM_FROM")).unwrap_or(0);
    let count = alone.map_or(number("GRIDLOOM_SEEDS").unwrap_or(SEEDS_DEFAULT), |_| 1);
    let (mut faults, mut failed) = (BTreeMap::new(), Vec::new());
    let mut reached: BTreeMap<&str, u64> = BTreeMap::new();
    for seed in from..from + count {
        match soak::run(seed, Options { trace: alone.is_some(), ..Options::default() }) {
            Ok(outcome) => {
                outcome.faults.into_iter().for_each(|kind| *faults.entry(kind.name()).or_insert(0) += 1);
                outcome.reached.into_iter().for_each(|(state, times)| *reached.entry(state).or_default() += times);
            }
            Err(failure) => {
                failure.records.iter().for_each(|record| println!("{} {} {}", record.at, record.node, record.what));
                failure.situation.iter().filter(|_| alone.is_some()).for_each(|line| println!("{line}"));
                failed.push(format!("{failure}\n  {}", failure.faults.join("\n  ")));
            }
        }
        if failed.len() == FAILURES_SHOWN {
            break;
        }
    }
    println!("faults {faults:?}\nreached {reached:#?}");
    let replay =
        "replay: cargo run --release -p gridloom-soak -- --seed N, or GRIDLOOM_SEED=N cargo test -p gridloom-soak";
    assert!(failed.is_empty(), "{}\n{replay}", failed.join("\n"));
    if count >= SEEDS_DEFAULT {
        let never: Vec<_> = reached.iter().filter(|(_, times)| **times == 0).collect();
        assert!(never.is_empty(), "no seed reached {never:?}");
    }
}

#[test]
fn a_run_under_faults_replays_from_its_seed() {
    let outcome = |seed| soak::run(seed, Options::default()).map_err(|failure| failure.to_string());
    for seed in 0..20 {
        assert_eq!(outcome(seed), outcome(seed));
    }
    assert_ne!(outcome(1), outcome(2));
}

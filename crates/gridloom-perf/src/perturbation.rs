//! Tasks side by side: the slowdown of a call while others run on its server.
//!
//! Processors, their caches and the memory bus are shared, so the same call takes longer while others run; how much
//! depends on the function. Historical-trace schedulers for GridRPC use the same *perturbation* (Caniou, Jeannot,
//! *Experimental study of multi-criteria scheduling heuristics for GridRPC systems*, Euro-Par 2004), there for
//! processors in equal shares.
//!
//! ```text
//! factor │            ╱ beyond: along the last line
//!        │        ●──╱
//!        │   ●───╱         between: linear
//!      1 ●──╱
//!        └────────────── tasks that run at a time, itself included
//! ```
//!
//! **Invariants** of one that [`Perturbation::is_sane`] accepts: tasks ascend strictly from 2, factors never decrease, from 1.

use serde::{Deserialize, Serialize};

use gridloom_base::limits::{LOADS_MAX, PACE_MAX};

/// Minimum factor that is not noise.
const SIGNIFICANT_FACTOR: f64 = 1.05;

/// Measurement with a given number of concurrent tasks.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct ConcurrencyPoint {
    /// Number of concurrent tasks, itself included: at least 2.
    pub tasks: u32,
    /// Time of a call divided by its time alone.
    pub factor: f64,
    /// Number of calls on which it is based.
    pub calls: u64,
}

/// Slowdown of calls of one function that run concurrently with others on one server. Without measurements there is no
/// slowdown.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Perturbation {
    /// Ascending by tasks.
    pub points: Vec<ConcurrencyPoint>,
}

impl Perturbation {
    /// Builds it from these points, sorted. Factors that decrease, or are below 1, are noise and are raised.
    pub fn new(mut points: Vec<ConcurrencyPoint>) -> Perturbation {
        points.sort_by_key(|point| point.tasks);
        points.dedup_by_key(|point| point.tasks);
        let mut least = 1.0f64;
        for point in &mut points {
            least = least.max(point.factor.min(PACE_MAX));
            point.factor = least;
        }
        Perturbation { points }
    }

    /// Returns the slowdown of tasks that each keep one core busy and share `cores` cores in equal parts, for up to `tasks` tasks.
    /// Nothing was measured for it.
    pub fn of_cores(cores: u32, tasks: u32) -> Perturbation {
        if cores == 0 || tasks <= cores {
            return Perturbation::default();
        }
        let point = |tasks: u32| ConcurrencyPoint { tasks, factor: f64::from(tasks) / f64::from(cores), calls: 0 };
        Perturbation::new([cores, tasks].into_iter().filter(|tasks| *tasks > 1).map(point).collect())
    }

    /// True if times can be computed from it: a peer or a file may contain any values.
    pub fn is_sane(&self) -> bool {
        let all = || std::iter::once((1, 1.0)).chain(self.points.iter().map(|point| (point.tasks, point.factor)));
        let ascends = |((tasks, factor), (more, larger)): ((u32, f64), (u32, f64))| tasks < more && factor <= larger;
        self.points.len() <= LOADS_MAX && all().zip(all().skip(1)).all(ascends) && all().all(|one| one.1 <= PACE_MAX)
    }

    /// True if calls are known to take longer while others run, by more than noise.
    pub fn is_significant(&self) -> bool {
        self.points.last().is_some_and(|last| last.factor > SIGNIFICANT_FACTOR)
    }

    /// Time of a call while `tasks` tasks run, itself included, divided by its time alone.
    pub fn factor(&self, tasks: f64) -> f64 {
        let mut before = (1.0, 1.0);
        let mut slope = 0.0;
        for point in &self.points {
            let (more, factor) = (f64::from(point.tasks), point.factor);
            slope = (factor - before.1) / (more - before.0);
            if tasks < more {
                break;
            }
            before = (more, factor);
        }
        (before.1 + slope * (tasks - before.0).max(0.0)).min(PACE_MAX)
    }

    /// Merges several, weighted by their calls.
    pub(super) fn merge<'a>(all: impl Iterator<Item = &'a Perturbation>) -> Perturbation {
        let mut points: Vec<ConcurrencyPoint> = all.flat_map(|one| one.points.iter().copied()).collect();
        points.sort_by_key(|point| point.tasks);
        let mut merged: Vec<ConcurrencyPoint> = Vec::new();
        for point in points {
            match merged.last_mut().filter(|last| last.tasks == point.tasks) {
                Some(last) => {
                    let calls = last.calls.saturating_add(point.calls);
                    last.factor += point.calls as f64 / calls.max(1) as f64 * (point.factor - last.factor);
                    last.calls = calls;
                }
                None => merged.push(point),
            }
        }
        merged.truncate(LOADS_MAX);
        Perturbation::new(merged)
    }
}

/// Returns the distinguished number of tasks nearest to a mean: all up to 8, then steps of a third.
pub(super) fn load_of(mean: f64) -> u32 {
    let mut load = 8u32;
    if mean < 8.5 || !mean.is_finite() {
        return (mean.max(1.0).round() as u32).clamp(1, 8);
    }
    while f64::from(load) * 7.0 / 6.0 < mean && load < 1 << 16 {
        load += load / 3;
    }
    load
}

#[cfg(test)]
mod tests {
    use super::*;

    fn beside(points: &[(u32, f64)]) -> Perturbation {
        Perturbation::new(
            points
                .iter()
                .map(|(tasks, factor)| ConcurrencyPoint { tasks: *tasks, factor: *factor, calls: 1 })
                .collect(),
        )
    }

    #[test]
    fn factors_lie_on_lines_through_alone_and_what_was_measured() {
        let known = beside(&[(4, 2.5), (2, 1.1)]);
        let found: Vec<f64> = [0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0].map(|tasks| known.factor(tasks)).to_vec();
        let expected = [1.0, 1.0, 1.05, 1.1, 1.8, 2.5, 3.9];
        assert!(found.iter().zip(expected).all(|(one, other)| (one - other).abs() < 1e-12), "{found:?}");
        assert_eq!(Perturbation::default().factor(9.0), 1.0);
        // Noise.
        assert_eq!(beside(&[(2, 0.9), (3, 1.4), (4, 1.3)]), beside(&[(2, 1.0), (3, 1.4), (4, 1.4)]));
    }

    #[test]
    fn cores_are_shared_in_equal_parts() {
        let factors = |cores, tasks: [f64; 4]| tasks.map(|n| Perturbation::of_cores(cores, 8).factor(n));
        assert_eq!(factors(1, [1.0, 2.0, 4.0, 8.0]), [1.0, 2.0, 4.0, 8.0]);
        assert_eq!(factors(2, [1.0, 2.0, 3.0, 8.0]), [1.0, 1.0, 1.5, 4.0]);
        assert_eq!(
            [8, 9, 0].map(|cores| Perturbation::of_cores(cores, 8)),
            [const { Perturbation { points: Vec::new() } }; 3]
        );
        assert!(Perturbation::of_cores(3, 8).is_sane() && Perturbation::of_cores(1, 2).is_sane());
    }

    #[test]
    fn nonsense_is_reported() {
        let raw = |points: &[(u32, f64)]| Perturbation {
            points: points
                .iter()
                .map(|(tasks, factor)| ConcurrencyPoint { tasks: *tasks, factor: *factor, calls: 1 })
                .collect(),
        };
        assert!(raw(&[(2, 1.0), (4, 3.0)]).is_sane());
        for points in
            [&[(1, 1.0)][..], &[(2, 0.5)], &[(2, f64::NAN)], &[(3, 2.0), (2, 3.0)], &[(2, 2.0), (3, 1.5)], &[(2, 1e9)]]
        {
            assert!(!raw(points).is_sane(), "{points:?}");
        }
    }

    #[test]
    fn loads_are_distinguished_to_a_sixth() {
        assert_eq!([0.0, 1.2, 1.6, 7.4].map(load_of), [1, 1, 2, 7]);
        for load in 1..500 {
            let near = f64::from(load_of(f64::from(load)));
            assert!((near / f64::from(load) - 1.0).abs() < 0.17, "{load}: {near}");
        }
    }

    #[test]
    fn several_servers_of_a_host_have_one() {
        let merged = Perturbation::merge([beside(&[(2, 1.2)]), beside(&[(2, 1.4), (3, 2.0)])].iter());
        assert_eq!(merged.points.iter().map(|p| (p.tasks, p.calls)).collect::<Vec<_>>(), [(2, 2), (3, 1)]);
        assert!((merged.factor(2.0) - 1.3).abs() < 1e-12);
    }
}

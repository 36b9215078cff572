//! Progressive filling straight from its definition, without regard to cost. Tests compare the solver with it.

use super::{PRECISION, Policy};

/// A system whose variables are all enabled.
#[derive(Debug, Default)]
pub(super) struct ReferenceSystem {
    pub(super) constraints: Vec<(f64, Policy)>,
    /// Penalty, bound (no bound if not positive), and weights.
    pub(super) variables: Vec<(f64, f64, Weights)>,
}

/// Weights by constraint.
pub(super) type Weights = Vec<(usize, f64)>;

impl ReferenceSystem {
    pub(super) fn solve(&self) -> Vec<f64> {
        let mut values: Vec<Option<f64>> = vec![None; self.variables.len()];
        let users = |at: usize| {
            let weight = move |list: &Weights| list.iter().find(|(on, _)| *on == at).map(|(_, weight)| *weight);
            self.variables.iter().enumerate().filter_map(move |(i, (p, _, list))| Some((i, weight(list)? / p)))
        };
        let mut left: Vec<(f64, f64)> = (0..self.constraints.len())
            .map(|at| {
                let quotas = users(at).map(|(_, quota)| quota);
                let (capacity, policy) = self.constraints[at];
                (capacity, if policy == Policy::Shared { quotas.sum() } else { quotas.fold(0.0, f64::max) })
            })
            .collect();
        let mut live: Vec<usize> = (0..left.len()).filter(|at| left[*at].1 > 0.0).collect();
        while !live.is_empty() {
            let level = live.iter().map(|at| left[*at].0 / left[*at].1).fold(f64::INFINITY, f64::min);
            let full: Vec<usize> = live.iter().copied().filter(|at| left[*at].0 / left[*at].1 == level).collect();
            let mut due: Vec<usize> = full.iter().flat_map(|at| users(*at).map(|(i, _)| i)).collect();
            due.retain(|i| values[*i].is_none());
            due.sort_unstable();
            due.dedup();
            let ceiling = |i: usize| self.variables[i].0 * self.variables[i].1;
            let bounded = due.iter().map(|i| ceiling(*i)).filter(|own| *own > 0.0 && *own < level);
            let lowest = bounded.min_by(f64::total_cmp);
            for i in due {
                let (penalty, bound, list) = &self.variables[i];
                let value = match lowest {
                    Some(lowest) if (ceiling(i) - lowest).abs() < PRECISION => *bound,
                    Some(_) => continue,
                    None => level / penalty,
                };
                values[i] = Some(value);
                for (at, weight) in list {
                    let (capacity, policy) = self.constraints[*at];
                    let (remaining, usage) = &mut left[*at];
                    if policy == Policy::Shared {
                        *remaining -= weight * value;
                        *usage -= weight / penalty;
                        *remaining = if *remaining < PRECISION * capacity { 0.0 } else { *remaining };
                    } else {
                        *usage = users(*at).filter(|(i, _)| values[*i].is_none()).map(|(_, q)| q).fold(0.0, f64::max);
                    }
                }
            }
            live.retain(|at| left[*at].1 > PRECISION && left[*at].0 > PRECISION * self.constraints[*at].0);
        }
        values.into_iter().map(|value| value.unwrap_or(0.0)).collect()
    }
}

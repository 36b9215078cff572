//! The number of loop bodies that are mapped together, and its adaptation.

use std::sync::Arc;

use gridloom_base::GroupId;
use gridloom_base::limits::REGROUP_BODIES_MAX;

use super::groups::Part;
use crate::Error;
use crate::report::GroupTimes;

/// The number of loop bodies that are mapped together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Regroup {
    /// A fixed number, from 1 to [`REGROUP_BODIES_MAX`].
    Fixed(usize),
    /// One at first, doubling each time up to [`REGROUP_BODIES_MAX`]. Halves when execution deviates from the plan
    /// ([`DEVIATION_FACTOR`]), or when mapping takes a large part of the time ([`MAP_FRACTION_MAX`]) and increasingly long for each body.
    Auto,
}

/// Execution has deviated from the plan if its makespan differs from the predicted one by more than this factor.
const DEVIATION_FACTOR: f64 = 1.5;
/// Maximum mapping time as a fraction of the predicted makespan.
const MAP_FRACTION_MAX: f64 = 0.1;

/// Chooses the number of bodies from the times of earlier ones.
pub(crate) struct Sizing {
    regroup: Regroup,
    /// Number of bodies to launch together.
    size: usize,
    /// The last full batch.
    last: Option<Arc<Part>>,
    /// Mapping time per body of the batch before, seconds.
    map_s: f64,
}

impl Sizing {
    /// # Errors
    /// If the number of bodies is out of range.
    pub(crate) fn new(regroup: Regroup) -> Result<Sizing, Error> {
        if let Regroup::Fixed(bodies) = regroup
            && !(1..=REGROUP_BODIES_MAX).contains(&bodies)
        {
            let why = format!("{bodies} bodies cannot be mapped together; give 1 to {REGROUP_BODIES_MAX}, or auto");
            return Err(Error::Usage(why));
        }
        let size = if let Regroup::Fixed(bodies) = regroup { bodies } else { 1 };
        Ok(Sizing { regroup, size, last: None, map_s: 0.0 })
    }

    pub(crate) fn regroup(&self) -> Regroup {
        self.regroup
    }

    /// Number of bodies to launch together.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Adapts the number of bodies of the next batch, after a full one. `course` returns the times of a batch so far.
    pub(crate) fn adapt(&mut self, launched: Option<Arc<Part>>, course: impl FnOnce(GroupId) -> Option<GroupTimes>) {
        if self.regroup != Regroup::Auto {
            return;
        }
        let last = match launched {
            Some(part) => self.last.replace(part),
            None => None,
        };
        let course = last.and_then(|part| Some((course(part.id)?, part.together)));
        let is_worse = course.is_some_and(|(course, bodies)| {
            let map_s = course.map_s / bodies as f64;
            let costs_more =
                course.map_s > MAP_FRACTION_MAX * course.predicted_s && map_s > self.map_s && self.map_s > 0.0;
            self.map_s = map_s;
            let has_left = course.measured_s.is_some_and(|measured_s| {
                measured_s > DEVIATION_FACTOR * course.predicted_s || measured_s * DEVIATION_FACTOR < course.predicted_s
            });
            costs_more || has_left
        });
        self.size = if is_worse { (self.size / 2).max(1) } else { (2 * self.size).min(REGROUP_BODIES_MAX) };
    }
}

//! Bodies of a loop, each a group, that are delayed and mapped together.
//!
//! Larger groups map better and need fewer requests to the agent; smaller ones start earlier and adapt sooner. Delayed bodies
//! are launched when there are enough, or as soon as the program requests a result of one. So no thread waits for a call
//! that never starts.

use std::sync::Arc;

use super::Group;
use crate::Error;
use crate::launch::{Delayed, Mapping, Recorder, Regroup, Sizing, launch};
use crate::session::Session;

/// A loop with groups as its bodies. Dropping it launches the delayed bodies.
///
/// ```no_run
/// # use gridloom::{Error, Grid, Regroup, Value};
/// # fn body(grid: &Grid) -> Result<(), Error> {
/// let dgemm = grid.function("linalg/dgemm")?;
/// let rounds = grid.regrouped("auto", Regroup::Auto)?;
/// let a = Value::from_f64(&[2, 2], &[1.0, 0.0, 0.0, 1.0]);
/// let mut results = Vec::new();
/// for _ in 0..100 {
///     let group = rounds.group();
///     results.extend(group.call(&dgemm, (&a, &a))?);
///     group.finish()?;
/// }
/// results[99].get()?;
/// # Ok(())
/// # }
/// ```
pub struct Loop(Arc<Delayed>);

impl Loop {
    /// See [`Grid::regrouped`](crate::Grid::regrouped).
    pub(crate) fn new(session: &Session, mapping: Mapping, regroup: Regroup) -> Result<Loop, Error> {
        if mapping.is_plan() {
            let why = "a plan is for the calls of one group; name the heuristic that maps the bodies of the loop";
            return Err(Error::Usage(why.into()));
        }
        Ok(Loop(Delayed::new(session, mapping, Sizing::new(regroup)?)))
    }

    /// Creates a group for the next body. [`Group::finish`] ends the body.
    pub fn group(&self) -> Group {
        let session = self.0.session.clone();
        let recorder = Recorder::new(&session, self.0.mapping.clone(), Some(self.0.clone()));
        self.0.begin_body(&recorder);
        Group { session, recorder, declared: None, priority: None }
    }

    /// Launches the delayed bodies.
    ///
    /// # Errors
    /// If a custom heuristic cannot map them.
    pub fn launch(&self) -> Result<(), Error> {
        launch(&self.0.session, None, |batch| batch.held(&self.0)).map(drop)
    }

    /// Number of delayed bodies.
    pub fn held(&self) -> usize {
        self.0.bodies()
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        // The handles report mapping errors.
        let _ = self.launch();
    }
}

impl std::fmt::Debug for Loop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Loop(by {}, {:?}, {} bodies delayed)", self.0.mapping, self.0.regroup(), self.held())
    }
}

impl Group {
    /// Ends the body.
    pub(super) fn hold(&self) -> Result<(), Error> {
        let Some(held) = &self.recorder.held else { return Ok(()) };
        let mut is_full = false;
        let part = launch(&self.session, Some(&self.recorder.parts), |batch| {
            is_full = held.end_body(&self.recorder, |held| batch.held(held));
        })?;
        if is_full {
            held.adapt(part);
        }
        Ok(())
    }
}

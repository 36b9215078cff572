//! Runs a heuristic of the program's own: within a budget of time, and marked, so that the session refuses to wait inside it.

use std::cell::RefCell;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use gridloom_base::TaskError;
use gridloom_map::{Heuristic, MapError, Plan, Problem};

use crate::{Error, Grid};

/// Sessions that code on a thread maps groups for. A heuristic that goes on in another thread of its own takes this along, so
/// that the session can refuse what would wait for the heuristic itself.
#[derive(Clone, Debug, Default)]
pub struct Inside(Vec<u64>);

thread_local! {
    static INSIDE: RefCell<Inside> = const { RefCell::new(Inside(Vec::new())) };
}

impl Inside {
    /// That of this thread.
    pub fn current() -> Inside {
        INSIDE.with_borrow(Inside::clone)
    }

    /// Makes it that of this thread, and gives what was.
    pub fn enter(self) -> Inside {
        INSIDE.replace(self)
    }

    pub(crate) fn has(&self, grid: &Grid) -> bool {
        self.0.contains(&grid.number())
    }

    fn with(mut self, grid: &Grid) -> Inside {
        self.0.push(grid.number());
        self
    }
}

/// Why a heuristic is given up.
pub fn took_too_long(limit: Duration) -> MapError {
    let seconds = limit.as_secs_f64();
    MapError::Failed {
        why: format!("it gave no plan within {seconds} s; make it quicker, or give it longer with map_timeout"),
    }
}

/// What the heuristic gives. Without a limit it runs on this thread, otherwise on one of its own, which goes on in vain when
/// the limit is past: no thread can be ended from outside.
pub(super) fn run(
    grid: &Grid,
    heuristic: &Arc<dyn Heuristic + Send + Sync>,
    problem: &Arc<Problem>,
    limit: Option<Duration>,
) -> Result<Result<Plan, MapError>, Error> {
    let inside = Inside::current();
    if inside.has(grid) {
        let why =
            "a heuristic cannot have the session that it maps for map by a heuristic of the program's own; name one";
        return Err(Error::Usage(why.into()));
    }
    let inside = inside.with(grid);
    let Some(limit) = limit else {
        let _before = Restored(inside.enter());
        return Ok(heuristic.map(problem));
    };
    let (send, receive) = channel();
    let (heuristic, problem) = (heuristic.clone(), problem.clone());
    let body = move || {
        inside.enter();
        // Nobody may wait any more.
        let _ = send.send(heuristic.map(&problem));
    };
    let thread = thread::Builder::new()
        .name("gridloom-heuristic".into())
        .spawn(body)
        .map_err(|why| Error::from(TaskError::NotMapped { why: format!("no thread for the heuristic: {why}") }))?;
    match receive.recv_timeout(limit) {
        Ok(outcome) => Ok(outcome),
        Err(RecvTimeoutError::Timeout) => Ok(Err(took_too_long(limit))),
        Err(RecvTimeoutError::Disconnected) => {
            resume_unwind(thread.join().expect_err("a heuristic that gives nothing has panicked"))
        }
    }
}

/// What was before, put back.
struct Restored(Inside);

impl Drop for Restored {
    fn drop(&mut self) {
        std::mem::take(&mut self.0).enter();
    }
}

//! Fetches and releases data of a session.

use std::collections::BTreeMap;
use std::time::Duration;

use gridloom_base::{DatumId, Meta, TaskError};
use gridloom_core::node::Command;
use gridloom_net::transfers::TransferProgress;

use crate::{Error, Grid, Value};

/// Data that threads of the program wait for.
#[derive(Default)]
pub(super) struct Fetches(BTreeMap<DatumId, Fetch>);

/// A requested datum. It is forgotten with the last thread that waits for it.
#[derive(Default)]
struct Fetch {
    waiters: usize,
    /// Kept until each of the waiting threads has seen it.
    answer: Option<Result<Meta, TaskError>>,
}

impl Fetches {
    /// Adds a waiting thread.
    fn begin(&mut self, datum: DatumId) {
        self.0.entry(datum).or_default().waiters += 1;
    }

    /// Sets the answer for all waiting threads; there may be none left.
    pub(super) fn on_answer(&mut self, datum: DatumId, answer: Result<Meta, TaskError>) {
        if let Some(fetch) = self.0.get_mut(&datum) {
            fetch.answer = Some(answer);
        }
    }

    fn answer(&self, datum: DatumId) -> Option<Result<Meta, TaskError>> {
        self.0.get(&datum)?.answer.clone()
    }

    /// Removes a thread that has the answer, or gives up.
    fn end(&mut self, datum: DatumId) {
        let fetch = self.0.get_mut(&datum).expect("a thread that waits is counted");
        fetch.waiters -= 1;
        if fetch.waiters == 0 {
            self.0.remove(&datum);
        }
    }

    pub(super) fn check(&self) {
        assert!(self.0.values().all(|fetch| fetch.waiters > 0), "a fetch is forgotten with its last waiter");
    }
}

impl Grid {
    pub(crate) fn get(&self, datum: DatumId, limit: Option<Duration>) -> Result<Value, Error> {
        // Every waiting thread sees the same answer, also if another thread's request brought it.
        self.state().fetches.begin(datum);
        self.command(Command::Get { datum });
        let answer = self.wait_unless_interrupted(limit, |state| state.fetches.answer(datum));
        let mut state = self.state();
        state.fetches.end(datum);
        if let Ok(Err(error)) = &answer {
            state.groups.told_of(datum, error);
        }
        drop(state);
        // The store keeps the value while the handle lives, so that it is not transferred twice.
        Ok(self.value_here(datum, answer??))
    }

    /// Returns a value that has arrived; a placeholder where values have no content.
    pub(super) fn value_here(&self, datum: DatumId, meta: Meta) -> Value {
        self.0.backend.value(datum).unwrap_or_else(|| Value::placeholder(meta))
    }

    /// Large values in transfer to or from this session: arguments and results.
    pub fn moving(&self) -> Vec<TransferProgress> {
        self.0.backend.moving()
    }

    /// Requests a datum for the client as soon as it is made.
    pub(crate) fn prefetch(&self, datum: DatumId) {
        self.command(Command::Get { datum });
    }

    /// Drops a request about a name that nobody waits for any more, with the next command.
    pub(super) fn forget_later(&self, ask: u64) {
        self.dropped().asks.push(ask);
    }

    pub(crate) fn release_later(&self, datum: DatumId) {
        self.dropped().data.push(datum);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gridloom_base::NodeId;

    #[test]
    fn every_thread_that_waits_sees_the_answer_and_the_last_one_forgets_it() {
        let datum = DatumId { client: NodeId(1), serial: 7 };
        let mut fetches = Fetches::default();
        fetches.begin(datum);
        fetches.begin(datum);
        assert_eq!(fetches.answer(datum), None);
        fetches.on_answer(datum, Ok(Meta::Text { size_bytes: 3 }));
        for _ in 0..2 {
            fetches.check();
            assert_eq!(fetches.answer(datum), Some(Ok(Meta::Text { size_bytes: 3 })));
            fetches.end(datum);
        }
        fetches.on_answer(datum, Ok(Meta::Text { size_bytes: 3 }));
        assert!(fetches.0.is_empty(), "nothing waits for an answer that comes again");
    }
}

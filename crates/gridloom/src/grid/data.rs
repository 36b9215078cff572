//! Data of a session: fetched and released.

use std::collections::BTreeMap;
use std::time::Duration;

use gridloom_base::{DatumId, Meta, TaskError};
use gridloom_core::node::Command;
use gridloom_net::moving::OnTheWay;

use crate::{Error, Grid, Value};

/// Data that threads of the program wait for.
#[derive(Default)]
pub(super) struct Fetches(BTreeMap<DatumId, Fetch>);

/// A datum that was asked for. It is forgotten with the last thread that waits for it.
#[derive(Default)]
struct Fetch {
    waiters: usize,
    /// Kept until each of them has seen it.
    answer: Option<Result<Meta, TaskError>>,
}

impl Fetches {
    /// One more thread waits.
    fn begin(&mut self, datum: DatumId) {
        self.0.entry(datum).or_default().waiters += 1;
    }

    /// An answer for all threads that wait for it; none may, if they gave up.
    pub(super) fn on_answer(&mut self, datum: DatumId, answer: Result<Meta, TaskError>) {
        if let Some(fetch) = self.0.get_mut(&datum) {
            fetch.answer = Some(answer);
        }
    }

    fn answer(&self, datum: DatumId) -> Option<Result<Meta, TaskError>> {
        self.0.get(&datum)?.answer.clone()
    }

    /// A thread that waited has the answer, or gives up.
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
        // Every thread that waits sees the same answer, also the one that another's question brought.
        self.state().fetches.begin(datum);
        self.command(Command::Get { datum });
        let answer = self.wait_unless_interrupted(limit, |state| state.fetches.answer(datum));
        let mut state = self.state();
        state.fetches.end(datum);
        if let Ok(Err(error)) = &answer {
            state.groups.told_of(datum, error);
        }
        drop(state);
        // The store keeps it while the handle lives, so that it need not come twice.
        Ok(self.value_here(datum, answer??))
    }

    /// A value that has come here; one without content where nothing has any.
    pub(super) fn value_here(&self, datum: DatumId, meta: Meta) -> Value {
        self.0.backend.value(datum).unwrap_or_else(|| Value::placeholder(meta))
    }

    /// Large values that are on their way to or from this session now: arguments and results.
    pub fn moving(&self) -> Vec<OnTheWay> {
        self.0.backend.moving()
    }

    /// Has a datum brought here as soon as it is made.
    pub(crate) fn prefetch(&self, datum: DatumId) {
        self.command(Command::Get { datum });
    }

    /// A question about a name has lost its last asker.
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

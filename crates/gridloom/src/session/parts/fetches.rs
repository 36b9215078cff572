//! Data that threads of the program wait for.

use std::collections::BTreeMap;

use gridloom_base::{DatumId, Meta, TaskError};

/// Data that threads of the program wait for.
#[derive(Default)]
pub(crate) struct Fetches(BTreeMap<DatumId, Fetch>);

/// A requested datum. It is forgotten with the last thread that waits for it.
#[derive(Default)]
struct Fetch {
    waiters: usize,
    /// Kept until each of the waiting threads has seen it.
    answer: Option<Result<Meta, TaskError>>,
}

impl Fetches {
    /// Adds a waiting thread.
    pub(crate) fn begin(&mut self, datum: DatumId) {
        self.0.entry(datum).or_default().waiters += 1;
    }

    /// Sets the answer for all waiting threads; there may be none left.
    pub(crate) fn on_answer(&mut self, datum: DatumId, answer: Result<Meta, TaskError>) {
        if let Some(fetch) = self.0.get_mut(&datum) {
            fetch.answer = Some(answer);
        }
    }

    pub(crate) fn answer(&self, datum: DatumId) -> Option<Result<Meta, TaskError>> {
        self.0.get(&datum)?.answer.clone()
    }

    /// Removes a thread that has the answer, or gives up.
    pub(crate) fn end(&mut self, datum: DatumId) {
        let fetch = self.0.get_mut(&datum).expect("a thread that waits is counted");
        fetch.waiters -= 1;
        if fetch.waiters == 0 {
            self.0.remove(&datum);
        }
    }

    pub(crate) fn check(&self) {
        assert!(self.0.values().all(|fetch| fetch.waiters > 0), "a fetch is forgotten with its last waiter");
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

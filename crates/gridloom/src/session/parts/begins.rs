//! Asynchronous puts, gets and waits of shared names, which any thread may wait for, or none.

use std::collections::{BTreeMap, BTreeSet};

use gridloom_base::{DatumId, Meta, NameError, TaskError};
use gridloom_core::node::message::CatalogAnswer;

use crate::Error;

type Answer = Result<CatalogAnswer, NameError>;

/// Requests in progress.
#[derive(Default)]
pub(crate) struct PendingRequests {
    all: BTreeMap<u64, PendingRequest>,
    /// Data being transferred to the client, with their requests.
    transfers: BTreeMap<DatumId, BTreeSet<u64>>,
    /// Requests whose answers nobody waits for any more. Data that they find must be released.
    abandoned: BTreeSet<u64>,
}

/// A request.
#[derive(Default)]
struct PendingRequest {
    is_put: bool,
    /// True if the found value is transferred to the client.
    fetches: bool,
    answer: Option<Answer>,
    /// The result of that transfer.
    arrival: Option<Result<(), TaskError>>,
    is_cancelled: bool,
}

impl PendingRequest {
    fn outcome(&self) -> Option<Result<CatalogAnswer, Error>> {
        if self.is_cancelled {
            return Some(Err(Error::Task(TaskError::Cancelled)));
        }
        let found = match self.answer.clone()? {
            Ok(found @ CatalogAnswer::Found { .. }) if self.fetches => found,
            Ok(answer) => return Some(Ok(answer)),
            Err(error) => return Some(Err(Error::Name(error))),
        };
        match self.arrival.clone()? {
            Ok(()) => Some(Ok(found)),
            Err(error) => Some(Err(Error::Task(error))),
        }
    }

    fn found(&self) -> Option<DatumId> {
        match &self.answer {
            Some(Ok(CatalogAnswer::Found { named, .. })) => Some(named.datum),
            _ => None,
        }
    }
}

impl PendingRequests {
    /// Notes a request that is about to be sent. With `brings`, the found value is transferred to the client.
    pub(crate) fn begin(&mut self, ask: u64, is_put: bool, brings: bool) {
        self.all.insert(ask, PendingRequest { is_put, fetches: brings, ..PendingRequest::default() });
    }

    pub(crate) fn has(&self, ask: u64) -> bool {
        self.all.contains_key(&ask) || self.abandoned.contains(&ask)
    }

    /// Processes an answer. Returns whether the request has ended with it, and the datum that was found but is no longer wanted.
    pub(crate) fn on_answer(&mut self, ask: u64, answer: Answer) -> (bool, Option<DatumId>) {
        let Some(begin) = self.all.get_mut(&ask) else {
            self.abandoned.remove(&ask);
            return (false, PendingRequest { answer: Some(answer), ..PendingRequest::default() }.found());
        };
        begin.answer = Some(answer);
        let datum = begin.found();
        if let Some(datum) = datum.filter(|_| begin.fetches) {
            self.transfers.entry(datum).or_default().insert(ask);
        }
        (begin.outcome().is_some(), None)
    }

    /// Called when a datum has arrived, or will not arrive. Returns the requests that have thereby ended.
    pub(crate) fn on_datum(&mut self, datum: DatumId, arrival: &Result<Meta, TaskError>) -> BTreeSet<u64> {
        let asks = self.transfers.remove(&datum).unwrap_or_default();
        for ask in &asks {
            let begin = self.all.get_mut(ask).expect("a question for what comes has begun");
            begin.arrival = Some(arrival.clone().map(drop));
        }
        asks
    }

    /// The result of a request, if it has ended.
    pub(crate) fn outcome(&self, ask: u64) -> Option<Result<CatalogAnswer, Error>> {
        self.all.get(&ask)?.outcome()
    }

    /// Ends the request for those that wait for it. Returns whether it was still in progress.
    pub(crate) fn cancel(&mut self, ask: u64) -> bool {
        let Some(begin) = self.all.get_mut(&ask) else { return false };
        let is_first = begin.outcome().is_none();
        begin.is_cancelled |= is_first;
        is_first
    }

    /// Forgets a request whose end nobody needs any more. Returns the datum that it has found, and whether its answer
    /// is outstanding.
    pub(crate) fn end(&mut self, ask: u64) -> (Option<DatumId>, bool) {
        let Some(begin) = self.all.remove(&ask) else { return (None, false) };
        let datum = begin.found();
        if let Some(datum) = datum
            && let Some(asks) = self.transfers.get_mut(&datum)
        {
            asks.remove(&ask);
            if asks.is_empty() {
                self.transfers.remove(&datum);
            }
        }
        let is_open = begin.answer.is_none();
        // A cancelled put receives no answer.
        if is_open && !(begin.is_put && begin.is_cancelled) {
            self.abandoned.insert(ask);
        }
        (datum, is_open)
    }

    pub(crate) fn check(&self) {
        let is_known = |ask: &u64| self.all.contains_key(ask);
        assert!(self.transfers.values().all(|asks| asks.iter().all(is_known)), "what comes has questions for it");
    }
}

#[cfg(test)]
mod tests {
    use super::super::asks::tests::found;
    use super::*;
    use gridloom_base::NodeId;

    fn begins(asks: &[(u64, bool)]) -> PendingRequests {
        let all =
            asks.iter().map(|(ask, brings)| (*ask, PendingRequest { fetches: *brings, ..PendingRequest::default() }));
        PendingRequests { all: all.collect(), ..PendingRequests::default() }
    }

    #[test]
    fn a_get_ends_with_its_datum_and_a_wait_with_its_answer() {
        let mut begins = begins(&[(1, true), (2, true), (3, false)]);
        let datum = DatumId { client: NodeId(1), serial: 7 };
        assert_eq!(begins.on_answer(1, found(7)), (false, None));
        assert_eq!(begins.on_answer(2, found(7)), (false, None));
        assert_eq!(begins.on_answer(3, found(7)), (true, None));
        begins.check();
        assert!(begins.outcome(1).is_none() && begins.outcome(3).is_some_and(|outcome| outcome.is_ok()));
        assert_eq!(begins.end(2), (Some(datum), false));
        assert_eq!(begins.on_datum(datum, &Ok(Meta::Bytes { size_bytes: 3 })), BTreeSet::from([1]));
        assert!(begins.outcome(1).is_some_and(|outcome| outcome.is_ok()));
        assert!(!begins.cancel(1), "it has ended");
        assert!(begins.on_datum(datum, &Ok(Meta::Bytes { size_bytes: 3 })).is_empty());
    }

    #[test]
    fn what_is_found_for_nobody_is_given_back() {
        let mut begins = begins(&[(1, true), (2, true)]);
        let datum = |serial| DatumId { client: NodeId(1), serial };
        assert_eq!(begins.end(1), (None, true));
        assert!(begins.has(1));
        assert_eq!(begins.on_answer(1, found(7)), (false, Some(datum(7))));
        assert!(begins.cancel(2) && !begins.cancel(2));
        assert!(matches!(begins.outcome(2), Some(Err(Error::Task(TaskError::Cancelled)))));
        begins.on_answer(2, found(8));
        assert_eq!(begins.end(2), (Some(datum(8)), false));
        begins.check();
        assert!(begins.all.is_empty() && begins.transfers.is_empty() && begins.abandoned.is_empty());
    }
}

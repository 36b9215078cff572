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
    /// Notes a request that is about to be sent. With `fetches`, the found value is transferred to the client.
    pub(crate) fn begin(&mut self, request: u64, is_put: bool, fetches: bool) {
        self.all.insert(request, PendingRequest { is_put, fetches, ..PendingRequest::default() });
    }

    pub(crate) fn has(&self, request: u64) -> bool {
        self.all.contains_key(&request) || self.abandoned.contains(&request)
    }

    /// Processes an answer. Returns whether the request has ended with it, and the datum that was found but is no longer wanted.
    pub(crate) fn on_answer(&mut self, request: u64, answer: Answer) -> (bool, Option<DatumId>) {
        let Some(pending) = self.all.get_mut(&request) else {
            self.abandoned.remove(&request);
            return (false, PendingRequest { answer: Some(answer), ..PendingRequest::default() }.found());
        };
        pending.answer = Some(answer);
        let datum = pending.found();
        if let Some(datum) = datum.filter(|_| pending.fetches) {
            self.transfers.entry(datum).or_default().insert(request);
        }
        (pending.outcome().is_some(), None)
    }

    /// Called when a datum has arrived, or will not arrive. Returns the requests that have thereby ended.
    pub(crate) fn on_datum(&mut self, datum: DatumId, arrival: &Result<Meta, TaskError>) -> BTreeSet<u64> {
        let requests = self.transfers.remove(&datum).unwrap_or_default();
        for request in &requests {
            let pending = self.all.get_mut(request).expect("a request with a transfer is known");
            pending.arrival = Some(arrival.clone().map(drop));
        }
        requests
    }

    /// The result of a request, if it has ended.
    pub(crate) fn outcome(&self, request: u64) -> Option<Result<CatalogAnswer, Error>> {
        self.all.get(&request)?.outcome()
    }

    /// Ends the request for those that wait for it. Returns whether it was still in progress.
    pub(crate) fn cancel(&mut self, request: u64) -> bool {
        let Some(pending) = self.all.get_mut(&request) else { return false };
        let is_first = pending.outcome().is_none();
        pending.is_cancelled |= is_first;
        is_first
    }

    /// Forgets a request whose end nobody needs any more. Returns the datum that it has found, and whether its answer
    /// is outstanding.
    pub(crate) fn end(&mut self, request: u64) -> (Option<DatumId>, bool) {
        let Some(pending) = self.all.remove(&request) else { return (None, false) };
        let datum = pending.found();
        if let Some(datum) = datum
            && let Some(requests) = self.transfers.get_mut(&datum)
        {
            requests.remove(&request);
            if requests.is_empty() {
                self.transfers.remove(&datum);
            }
        }
        let is_open = pending.answer.is_none();
        // A cancelled put receives no answer.
        if is_open && !(pending.is_put && pending.is_cancelled) {
            self.abandoned.insert(request);
        }
        (datum, is_open)
    }

    pub(crate) fn check(&self) {
        let is_known = |request: &u64| self.all.contains_key(request);
        assert!(
            self.transfers.values().all(|requests| requests.iter().all(is_known)),
            "a transfer belongs to a known request"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::super::requests::tests::found;
    use super::*;
    use gridloom_base::NodeId;

    fn pending_gets(requests: &[(u64, bool)]) -> PendingRequests {
        let all = requests
            .iter()
            .map(|(request, fetches)| (*request, PendingRequest { fetches: *fetches, ..PendingRequest::default() }));
        PendingRequests { all: all.collect(), ..PendingRequests::default() }
    }

    #[test]
    fn a_get_ends_with_its_datum_and_a_wait_with_its_answer() {
        let mut pending = pending_gets(&[(1, true), (2, true), (3, false)]);
        let datum = DatumId { client: NodeId(1), serial: 7 };
        assert_eq!(pending.on_answer(1, found(7)), (false, None));
        assert_eq!(pending.on_answer(2, found(7)), (false, None));
        assert_eq!(pending.on_answer(3, found(7)), (true, None));
        pending.check();
        assert!(pending.outcome(1).is_none() && pending.outcome(3).is_some_and(|outcome| outcome.is_ok()));
        assert_eq!(pending.end(2), (Some(datum), false));
        assert_eq!(pending.on_datum(datum, &Ok(Meta::Bytes { size_bytes: 3 })), BTreeSet::from([1]));
        assert!(pending.outcome(1).is_some_and(|outcome| outcome.is_ok()));
        assert!(!pending.cancel(1), "it has ended");
        assert!(pending.on_datum(datum, &Ok(Meta::Bytes { size_bytes: 3 })).is_empty());
    }

    #[test]
    fn what_is_found_for_nobody_is_returned() {
        let mut pending = pending_gets(&[(1, true), (2, true)]);
        let datum = |serial| DatumId { client: NodeId(1), serial };
        assert_eq!(pending.end(1), (None, true));
        assert!(pending.has(1));
        assert_eq!(pending.on_answer(1, found(7)), (false, Some(datum(7))));
        assert!(pending.cancel(2) && !pending.cancel(2));
        assert!(matches!(pending.outcome(2), Some(Err(Error::Task(TaskError::Cancelled)))));
        pending.on_answer(2, found(8));
        assert_eq!(pending.end(2), (Some(datum(8)), false));
        pending.check();
        assert!(pending.all.is_empty() && pending.transfers.is_empty() && pending.abandoned.is_empty());
    }
}

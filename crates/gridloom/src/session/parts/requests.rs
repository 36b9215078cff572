//! Requests about shared names: those without an answer, or with an answer that no thread has taken.

use std::collections::BTreeMap;

use gridloom_base::{DatumId, NameError};
use gridloom_core::node::message::CatalogAnswer;

type Answer = Result<CatalogAnswer, NameError>;

/// Requests about names: those without an answer, or with an answer that no thread has taken.
#[derive(Default)]
pub(crate) struct Requests {
    all: BTreeMap<u64, RequestState>,
    /// True if a copy found no room on the server that runs the program, a function. No more copies are sent there.
    near_is_full: bool,
}

enum RequestState {
    /// A thread of the program waits for the answer.
    Waits,
    Answered(Answer),
    /// No thread waits any more. Data found later must be released.
    GivenUp,
}

impl Requests {
    /// Begins to wait for the answer to a request.
    pub(crate) fn begin(&mut self, request: u64) {
        self.all.insert(request, RequestState::Waits);
    }

    /// Processes an answer. Returns the datum that was found but is no longer wanted.
    pub(crate) fn on_answer(&mut self, request: u64, answer: Answer) -> Option<DatumId> {
        let state = self.all.get_mut(&request)?;
        match state {
            RequestState::Waits => *state = RequestState::Answered(answer),
            RequestState::Answered(_) => unreachable!("a request has one answer"),
            RequestState::GivenUp => {
                self.all.remove(&request);
                return found(&answer);
            }
        }
        None
    }

    pub(crate) fn near_is_full(&self) -> bool {
        self.near_is_full
    }

    /// Notes that the server that runs the program has no room for copies.
    pub(crate) fn note_near_is_full(&mut self) {
        self.near_is_full = true;
    }

    /// Takes the answer to a request, if it was received.
    pub(crate) fn take(&mut self, request: u64) -> Option<Answer> {
        match self.all.remove(&request)? {
            RequestState::Answered(answer) => Some(answer),
            other => {
                self.all.insert(request, other);
                None
            }
        }
    }

    /// Called when the thread stops waiting. Returns the datum of an answer that it has not taken.
    pub(crate) fn give_up(&mut self, request: u64) -> Option<DatumId> {
        match self.all.remove(&request)? {
            RequestState::Answered(answer) => found(&answer),
            RequestState::Waits | RequestState::GivenUp => {
                self.all.insert(request, RequestState::GivenUp);
                None
            }
        }
    }
}

fn found(answer: &Answer) -> Option<DatumId> {
    match answer {
        Ok(CatalogAnswer::Found { named, .. }) => Some(named.datum),
        _ => None,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use gridloom_base::{Meta, Method, NamedDatum, NodeId};

    /// An answer for a name that was found.
    pub(in super::super) fn found(serial: u64) -> Answer {
        let datum = DatumId { client: NodeId(1), serial };
        let named = NamedDatum {
            datum,
            name: "mesh".into(),
            version: 1,
            meta: Meta::Bytes { size_bytes: 3 },
            replicas: 1,
            is_durable: false,
            method: Method::Auto,
            put_by: None,
            readers: Default::default(),
        };
        Ok(CatalogAnswer::Found { named, holders: Vec::new() })
    }

    #[test]
    fn what_is_found_for_nobody_is_returned() {
        let mut requests = Requests::default();
        (1..=3).for_each(|request| requests.begin(request));
        assert_eq!(requests.on_answer(1, found(1)), None);
        assert!(requests.take(1).is_some() && requests.take(2).is_none());
        // The thread gives up before the answer arrives, and after it has arrived.
        assert_eq!(requests.give_up(2), None);
        assert_eq!(requests.on_answer(2, found(2)).map(|datum| datum.serial), Some(2));
        assert_eq!(requests.on_answer(3, found(3)), None);
        assert_eq!(requests.give_up(3).map(|datum| datum.serial), Some(3));
        assert!(requests.all.is_empty());
    }
}

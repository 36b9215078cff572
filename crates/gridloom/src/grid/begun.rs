//! Asynchronous puts, gets and waits of shared names, which any thread may wait for, or none.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use gridloom_base::time::seconds_to_ns;
use gridloom_base::{DatumId, Meta, NameError, TaskError, TaskId};
use gridloom_core::node::message::CatalogAnswer;
use gridloom_core::node::{Command, NameCommand};

use super::{Grid, SharedData};
use crate::group::Handle;
use crate::{Error, Value};

type Answer = Result<CatalogAnswer, NameError>;

/// Requests in progress.
#[derive(Default)]
pub(super) struct Begins {
    all: BTreeMap<u64, Begin>,
    /// Data being transferred to the client, with their requests.
    coming: BTreeMap<DatumId, BTreeSet<u64>>,
    /// Requests whose answers nobody waits for any more. Data that they find must be released.
    given_up: BTreeSet<u64>,
}

/// A request.
#[derive(Default)]
struct Begin {
    is_put: bool,
    /// True if the found value is transferred to the client.
    brings: bool,
    answer: Option<Answer>,
    /// The result of that transfer.
    arrival: Option<Result<(), TaskError>>,
    is_cancelled: bool,
}

impl Begin {
    fn outcome(&self) -> Option<Result<CatalogAnswer, Error>> {
        if self.is_cancelled {
            return Some(Err(Error::Task(TaskError::Cancelled)));
        }
        let found = match self.answer.clone()? {
            Ok(found @ CatalogAnswer::Found { .. }) if self.brings => found,
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

impl Begins {
    pub(super) fn has(&self, ask: u64) -> bool {
        self.all.contains_key(&ask) || self.given_up.contains(&ask)
    }

    /// Processes an answer. Returns whether the request has ended with it, and the datum that was found but is no longer wanted.
    pub(super) fn on_answer(&mut self, ask: u64, answer: Answer) -> (bool, Option<DatumId>) {
        let Some(begin) = self.all.get_mut(&ask) else {
            self.given_up.remove(&ask);
            return (false, Begin { answer: Some(answer), ..Begin::default() }.found());
        };
        begin.answer = Some(answer);
        let datum = begin.found();
        if let Some(datum) = datum.filter(|_| begin.brings) {
            self.coming.entry(datum).or_default().insert(ask);
        }
        (begin.outcome().is_some(), None)
    }

    /// Called when a datum has arrived, or will not arrive. Returns the requests that have thereby ended.
    pub(super) fn on_datum(&mut self, datum: DatumId, arrival: &Result<Meta, TaskError>) -> BTreeSet<u64> {
        let asks = self.coming.remove(&datum).unwrap_or_default();
        for ask in &asks {
            let begin = self.all.get_mut(ask).expect("a question for what comes has begun");
            begin.arrival = Some(arrival.clone().map(drop));
        }
        asks
    }

    fn outcome(&self, ask: u64) -> Option<Result<CatalogAnswer, Error>> {
        self.all.get(&ask)?.outcome()
    }

    /// Ends the request for those that wait for it. Returns whether it was still in progress.
    fn cancel(&mut self, ask: u64) -> bool {
        let Some(begin) = self.all.get_mut(&ask) else { return false };
        let is_first = begin.outcome().is_none();
        begin.is_cancelled |= is_first;
        is_first
    }

    /// Forgets a request whose end nobody needs any more. Returns the datum that it has found, and whether its answer
    /// is outstanding.
    fn end(&mut self, ask: u64) -> (Option<DatumId>, bool) {
        let Some(begin) = self.all.remove(&ask) else { return (None, false) };
        let datum = begin.found();
        if let Some(datum) = datum
            && let Some(asks) = self.coming.get_mut(&datum)
        {
            asks.remove(&ask);
            if asks.is_empty() {
                self.coming.remove(&datum);
            }
        }
        let is_open = begin.answer.is_none();
        // A cancelled put receives no answer.
        if is_open && !(begin.is_put && begin.is_cancelled) {
            self.given_up.insert(ask);
        }
        (datum, is_open)
    }

    pub(super) fn check(&self) {
        let is_known = |ask: &u64| self.all.contains_key(ask);
        assert!(self.coming.values().all(|asks| asks.iter().all(is_known)), "what comes has questions for it");
    }
}

/// A request in progress.
struct Begun {
    grid: Grid,
    ask: u64,
    /// True if dropping this drops the request. A put continues.
    is_forgotten: bool,
}

impl Begun {
    fn new(grid: &Grid, command: NameCommand) -> Begun {
        let ask = grid.next_serial();
        let brings = matches!(command, NameCommand::Await { gets_data: true, .. });
        let is_put = matches!(command, NameCommand::Put { .. });
        grid.state().begins.all.insert(ask, Begin { is_put, brings, ..Begin::default() });
        grid.command(Command::Name { request: ask, command });
        Begun { grid: grid.clone(), ask, is_forgotten: !is_put }
    }

    fn wait(&self, limit: Option<Duration>) -> Result<CatalogAnswer, Error> {
        self.grid.wait_unless_interrupted(limit, |state| state.begins.outcome(self.ask))?
    }

    fn is_done(&self) -> bool {
        self.grid.absorb();
        self.grid.state().begins.outcome(self.ask).is_some()
    }

    fn task(&self) -> TaskId {
        TaskId { client: self.grid.client(), serial: self.ask }
    }

    fn note_end(&self) {
        let mut state = self.grid.state();
        let has_ended = state.begins.outcome(self.ask).is_some();
        state.ends.note(self.task(), has_ended);
    }

    fn cancel(&self) {
        self.grid.absorb();
        let is_first = {
            let mut state = self.grid.state();
            let is_first = state.begins.cancel(self.ask);
            if is_first {
                state.ends.on_end(self.task());
            }
            is_first
        };
        if is_first {
            self.grid.command(Command::Name { request: self.ask, command: NameCommand::CancelWait });
        }
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        let (found, is_open) = {
            let mut state = self.grid.state();
            let task = self.task();
            state.ends.forget(task);
            state.begins.end(self.ask)
        };
        found.into_iter().for_each(|datum| self.grid.release_later(datum));
        if is_open && self.is_forgotten {
            self.grid.forget_later(self.ask);
        }
    }
}

macro_rules! under_way {
    ($type:ty) => {
        impl $type {
            /// True if it has ended.
            pub fn is_done(&self) -> bool {
                self.begun.is_done()
            }

            /// Makes [`Grid::await_ends`] report its end, immediately if it has ended.
            pub fn note_end(&self) {
                self.begun.note_end();
            }

            /// The id by which [`Grid::await_ends`] reports it.
            pub fn task(&self) -> TaskId {
                self.begun.task()
            }
        }
    };
}

/// A put in progress: see [`SharedData::begin_put`]. It continues if this is dropped.
pub struct BegunPut {
    begun: Begun,
    /// Keeps the value alive. If this is dropped before the put has ended, the client keeps the value.
    _handle: Handle,
}

under_way!(BegunPut);

impl BegunPut {
    pub(super) fn new(grid: &Grid, command: NameCommand, handle: Handle) -> BegunPut {
        BegunPut { begun: Begun::new(grid, command), _handle: handle }
    }

    /// Waits until every program finds the name. `limit` ends only the wait.
    ///
    /// # Errors
    /// As [`SharedData::put`]; [`Error::TimedOut`] if it has not ended by then.
    pub fn wait(&self, limit: Option<Duration>) -> Result<(), Error> {
        self.begun.wait(limit).map(drop)
    }

    /// Cancels it: [`BegunPut::wait`] then returns [`TaskError::Cancelled`], unless it has ended. The name may still appear if the
    /// cancellation is too late.
    pub fn cancel(&self) {
        self.begun.cancel();
    }
}

/// A get in progress: see [`SharedData::begin_get`]. It ends if this is dropped.
pub struct BegunGet {
    begun: Begun,
    value: Mutex<Option<Value>>,
}

under_way!(BegunGet);

impl BegunGet {
    /// Waits for the value. `limit` ends only the wait.
    ///
    /// # Errors
    /// As [`SharedData::get`]; [`Error::TimedOut`] if it has not ended by then.
    pub fn wait(&self, limit: Option<Duration>) -> Result<Value, Error> {
        let answer = self.begun.wait(limit)?;
        let CatalogAnswer::Found { named, .. } = answer else { unreachable!("a get finds") };
        let mut value = self.value.lock().unwrap_or_else(PoisonError::into_inner);
        // The store keeps the value until this is dropped.
        let got = || self.begun.grid.value_here(named.datum, named.meta);
        Ok(value.get_or_insert_with(got).clone())
    }

    /// Cancels it: [`BegunGet::wait`] then returns [`TaskError::Cancelled`], unless it has ended.
    pub fn cancel(&self) {
        self.begun.cancel();
    }
}

/// A wait for a name in progress: see [`SharedData::begin_wait`]. It ends if this is dropped.
pub struct BegunWait {
    begun: Begun,
}

under_way!(BegunWait);

impl BegunWait {
    /// Waits for the name. `limit` ends only this wait.
    ///
    /// # Errors
    /// As [`SharedData::wait`]; [`Error::TimedOut`] if it has not ended by then.
    pub fn wait(&self, limit: Option<Duration>) -> Result<(), Error> {
        self.begun.wait(limit).map(drop)
    }

    /// Cancels it: [`BegunWait::wait`] then returns [`TaskError::Cancelled`], unless it has ended.
    pub fn cancel(&self) {
        self.begun.cancel();
    }
}

impl SharedData<'_> {
    /// Begins to get the value of a name, and does not wait. The value is transferred as soon as the name is found, for
    /// which `limit` is the time limit. Inside a function it is transferred only to that function.
    pub fn begin_get(&self, name: &str, limit: Option<Duration>) -> BegunGet {
        self.near();
        BegunGet { begun: self.begin_await(name, limit, true), value: Mutex::default() }
    }

    /// Begins to wait for a name, for at most `limit`. Transfers nothing.
    pub fn begin_wait(&self, name: &str, limit: Option<Duration>) -> BegunWait {
        BegunWait { begun: self.begin_await(name, limit, false) }
    }

    fn begin_await(&self, name: &str, limit: Option<Duration>, brings: bool) -> Begun {
        let limit_ns = limit.map(|limit| seconds_to_ns(limit.as_secs_f64()));
        Begun::new(self.0, NameCommand::Await { name: name.into(), limit_ns, gets_data: brings })
    }
}

#[cfg(test)]
mod tests {
    use super::super::names::tests::found;
    use super::*;
    use gridloom_base::NodeId;

    fn begins(asks: &[(u64, bool)]) -> Begins {
        let all = asks.iter().map(|(ask, brings)| (*ask, Begin { brings: *brings, ..Begin::default() }));
        Begins { all: all.collect(), ..Begins::default() }
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
        assert!(begins.all.is_empty() && begins.coming.is_empty() && begins.given_up.is_empty());
    }
}

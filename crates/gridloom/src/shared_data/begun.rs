//! Asynchronous puts, gets and waits of shared names, which any thread may wait for, or none.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use gridloom_base::TaskId;
use gridloom_core::node::message::CatalogAnswer;
use gridloom_core::node::{Command, NameCommand};

use crate::call::Handle;
use crate::session::Session;
use crate::{Error, Value};

/// A request in progress.
struct Begun {
    session: Session,
    request: u64,
    /// True if dropping this drops the request. A put continues.
    is_forgotten: bool,
}

impl Begun {
    fn new(session: &Session, command: NameCommand) -> Begun {
        let request = session.next_serial();
        let gets_data = matches!(command, NameCommand::Await { gets_data: true, .. });
        let is_put = matches!(command, NameCommand::Put { .. });
        session.state().pending_requests.begin(request, is_put, gets_data);
        session.command(Command::Name { request, command });
        Begun { session: session.clone(), request, is_forgotten: !is_put }
    }

    fn wait(&self, limit: Option<Duration>) -> Result<CatalogAnswer, Error> {
        self.session.wait_unless_interrupted(limit, |state| state.pending_requests.outcome(self.request))?
    }

    fn is_done(&self) -> bool {
        self.session.process_events();
        self.session.state().pending_requests.outcome(self.request).is_some()
    }

    fn task(&self) -> TaskId {
        TaskId { client: self.session.client(), serial: self.request }
    }

    fn note_end(&self) {
        let mut state = self.session.state();
        let has_ended = state.pending_requests.outcome(self.request).is_some();
        state.ends.note(self.task(), has_ended);
    }

    fn cancel(&self) {
        self.session.process_events();
        let is_first = {
            let mut state = self.session.state();
            let is_first = state.pending_requests.cancel(self.request);
            if is_first {
                state.ends.on_end(self.task());
            }
            is_first
        };
        if is_first {
            self.session.command(Command::Name { request: self.request, command: NameCommand::CancelWait });
        }
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        let (found, is_open) = {
            let mut state = self.session.state();
            let task = self.task();
            state.ends.forget(task);
            state.pending_requests.end(self.request)
        };
        found.into_iter().for_each(|datum| self.session.release_later(datum));
        if is_open && self.is_forgotten {
            self.session.forget_later(self.request);
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

            /// Makes [`Grid::await_ends`](crate::Grid::await_ends) report its end, immediately if it has ended.
            pub fn note_end(&self) {
                self.begun.note_end();
            }

            /// The id by which [`Grid::await_ends`](crate::Grid::await_ends) reports it.
            pub fn task(&self) -> TaskId {
                self.begun.task()
            }
        }
    };
}

/// A put in progress: see [`SharedData::begin_put`](super::SharedData::begin_put). It continues if this is dropped.
pub struct BegunPut {
    begun: Begun,
    /// Keeps the value alive. If this is dropped before the put has ended, the client keeps the value.
    _handle: Handle,
}

under_way!(BegunPut);

impl BegunPut {
    pub(super) fn new(session: &Session, command: NameCommand, handle: Handle) -> BegunPut {
        BegunPut { begun: Begun::new(session, command), _handle: handle }
    }

    /// Waits until every program of the user finds the name. `limit` ends only the wait.
    ///
    /// # Errors
    /// As [`SharedData::put`](super::SharedData::put); [`Error::TimedOut`] if it has not ended by then.
    pub fn wait(&self, limit: Option<Duration>) -> Result<(), Error> {
        self.begun.wait(limit).map(drop)
    }

    /// Cancels it: [`BegunPut::wait`] then returns [`TaskError::Cancelled`](gridloom_base::TaskError::Cancelled), unless it has ended. The name may still appear if the
    /// cancellation is too late.
    pub fn cancel(&self) {
        self.begun.cancel();
    }
}

/// A get in progress: see [`SharedData::begin_get`](super::SharedData::begin_get). It ends if this is dropped.
pub struct BegunGet {
    begun: Begun,
    value: Mutex<Option<Value>>,
}

under_way!(BegunGet);

impl BegunGet {
    pub(super) fn new(session: &Session, command: NameCommand) -> BegunGet {
        BegunGet { begun: Begun::new(session, command), value: Mutex::default() }
    }

    /// Waits for the value. `limit` ends only the wait.
    ///
    /// # Errors
    /// As [`SharedData::get`](super::SharedData::get); [`Error::TimedOut`] if it has not ended by then.
    pub fn wait(&self, limit: Option<Duration>) -> Result<Value, Error> {
        let answer = self.begun.wait(limit)?;
        let CatalogAnswer::Found { named, .. } = answer else { unreachable!("a get finds") };
        let mut value = self.value.lock().unwrap_or_else(PoisonError::into_inner);
        // The store keeps the value until this is dropped.
        let got = || self.begun.session.value_here(named.datum, named.meta);
        Ok(value.get_or_insert_with(got).clone())
    }

    /// Cancels it: [`BegunGet::wait`] then returns [`TaskError::Cancelled`](gridloom_base::TaskError::Cancelled), unless it has ended.
    pub fn cancel(&self) {
        self.begun.cancel();
    }
}

/// A wait for a name in progress: see [`SharedData::begin_wait`](super::SharedData::begin_wait). It ends if this is dropped.
pub struct BegunWait {
    begun: Begun,
}

under_way!(BegunWait);

impl BegunWait {
    pub(super) fn new(session: &Session, command: NameCommand) -> BegunWait {
        BegunWait { begun: Begun::new(session, command) }
    }

    /// Waits for the name. `limit` ends only this wait.
    ///
    /// # Errors
    /// As [`SharedData::wait`](super::SharedData::wait); [`Error::TimedOut`] if it has not ended by then.
    pub fn wait(&self, limit: Option<Duration>) -> Result<(), Error> {
        self.begun.wait(limit).map(drop)
    }

    /// Cancels it: [`BegunWait::wait`] then returns [`TaskError::Cancelled`](gridloom_base::TaskError::Cancelled), unless it has ended.
    pub fn cancel(&self) {
        self.begun.cancel();
    }
}

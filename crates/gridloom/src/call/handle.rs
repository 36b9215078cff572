//! Handles of results, which the program fetches or passes to further calls.

use std::sync::Arc;
use std::time::Duration;

use gridloom_base::{DatumId, Meta, TaskError};
use gridloom_core::node::Command;
use gridloom_net::transfers::TransferProgress;

use super::view::gives_as;
use crate::launch::{Made, launch};
use crate::session::Session;
use crate::{Error, Value};

/// A result that is, or will be, on some server. Dropping the last clone releases it there.
#[derive(Clone)]
pub struct Handle(Arc<Made>, Option<Arc<Meta>>);

impl Handle {
    pub(crate) fn new(made: Arc<Made>) -> Handle {
        Handle(made, None)
    }

    /// The result, without the description by which this handle reads it.
    pub(crate) fn made(&self) -> &Arc<Made> {
        &self.0
    }

    /// Returns the progress of its transfer to the client, if it is large and being transferred.
    pub fn moving(&self) -> Option<TransferProgress> {
        self.0.session.moving().into_iter().find(|one| one.datum == self.0.datum && !one.is_sent)
    }

    /// The id of its datum.
    pub fn datum(&self) -> DatumId {
        self.0.datum
    }

    /// Its description, known before it is made (except for the length of a text).
    pub fn meta(&self) -> &Meta {
        self.1.as_deref().unwrap_or(&self.0.meta)
    }

    /// Returns the same array for calls that read it with another description: as many elements of the same type, in
    /// their order in memory. `None` if `meta` is not such an array, or if the memory order of this one is not known.
    pub fn read_as(&self, meta: &Meta) -> Option<Handle> {
        match &self.0.meta == meta {
            true => Some(self.clone()),
            false => gives_as(&self.0.signature, &self.0.meta, meta)
                .then(|| Handle(self.0.clone(), Some(Arc::new(meta.clone())))),
        }
    }

    /// Waits for the result and fetches it. If its group is still being recorded, the part recorded so far is mapped and
    /// run; recording continues with the next call.
    ///
    /// # Errors
    /// If its task, or one that it depends on, failed.
    pub fn get(&self) -> Result<Value, Error> {
        self.fetch(None)
    }

    /// Like [`Handle::get`], but waits no longer than `limit`. A timeout cancels nothing: a later `get` works.
    ///
    /// # Errors
    /// [`Error::TimedOut`] if it has not arrived by then; also as for [`Handle::get`].
    pub fn get_within(&self, limit: Duration) -> Result<Value, Error> {
        self.fetch(Some(limit))
    }

    /// Requests the value for the client as soon as it is made, and returns at once. If several results are wanted, each
    /// is transferred while others are still being made.
    ///
    /// # Errors
    /// If the recorded calls cannot be launched. [`Handle::get`] reports a failure of the call.
    pub fn prefetch(&self) -> Result<(), Error> {
        self.launch()?;
        self.0.session.command(Command::Get { datum: self.0.datum });
        Ok(())
    }

    fn fetch(&self, limit: Option<Duration>) -> Result<Value, Error> {
        self.launch()?;
        fetch(&self.0.session, self.0.datum, limit).map_err(|error| self.named(error))
    }

    /// Makes sure that its call is launched.
    pub(crate) fn launch(&self) -> Result<(), Error> {
        self.check()?;
        launch(&self.0.session, Some(&self.0.parts), |batch| batch.add_producer(&self.0))?;
        self.check()
    }

    /// Checks that its call was not discarded.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let Some(why) = self.0.discarded() else { return Ok(()) };
        Err(Error::Discarded { function: self.0.signature.name.clone(), why: why.to_string() })
    }

    /// Rewrites an error to name the result's call instead of the datum's number.
    fn named(&self, error: Error) -> Error {
        match error {
            Error::Task(TaskError::DatumLost { datum, why }) if datum == self.0.datum => {
                let why = format!("the result of '{}': {why}", self.0.signature.name);
                TaskError::DatumLost { datum, why }.into()
            }
            other => other,
        }
    }
}

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Handle({}, {})", self.0.datum, self.meta())
    }
}

/// Waits for a datum, and returns its value.
fn fetch(session: &Session, datum: DatumId, limit: Option<Duration>) -> Result<Value, Error> {
    // Every waiting thread sees the same answer, also if another thread's request brought it.
    session.state().fetches.begin(datum);
    session.command(Command::Get { datum });
    let answer = session.wait_unless_interrupted(limit, |state| state.fetches.answer(datum));
    let mut state = session.state();
    state.fetches.end(datum);
    if let Ok(Err(error)) = &answer {
        state.groups.note_error_read(datum, error);
    }
    drop(state);
    // The store keeps the value while the handle lives, so that it is not transferred twice.
    Ok(session.value_here(datum, answer??))
}

//! A result of a mapped call, which may be on a server instead of in the program's memory.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gridloom::{Handle, Value};
use gridloom_base::Meta;

use super::super::arguments::Item;
use super::super::code::{Failed, Outcome};
use super::super::memory;
use super::regions::Part;

/// A result of a mapped call.
pub(crate) struct MappedResult {
    pub(crate) handle: Handle,
    /// Result, function and call, for messages.
    pub(crate) name: String,
    /// Its form in the program's memory.
    pub(crate) meta: Meta,
    /// True if it stays on its server when the block ends.
    pub(crate) stays_remote: bool,
    /// True once the call that makes it has ended.
    has_ended: Box<dyn Fn() -> bool + Send + Sync>,
    /// Its value, once it has been fetched to the program's memory.
    fetched: Mutex<Option<Value>>,
}

impl MappedResult {
    pub(crate) fn new(
        handle: Handle,
        name: String,
        meta: Meta,
        stays_remote: bool,
        has_ended: impl Fn() -> bool + Send + Sync + 'static,
    ) -> MappedResult {
        MappedResult { handle, name, meta, stays_remote, has_ended: Box::new(has_ended), fetched: Mutex::default() }
    }

    /// True if its call has ended.
    pub(crate) fn is_ended(&self) -> bool {
        (self.has_ended)()
    }

    pub(super) fn here(&self) -> MutexGuard<'_, Option<Value>> {
        self.fetched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_here(&self) -> bool {
        self.here().is_some()
    }

    /// Fetches its value.
    pub(crate) fn value(&self) -> Outcome<Value> {
        if let Some(value) = &*self.here() {
            return Ok(value.clone());
        }
        let value = self.handle.get().map_err(|error| Failed::without_value(error, &self.name))?;
        let expected = self.meta.size_bytes();
        if value.meta().checked_size_bytes() != Some(expected) {
            let text = format!("{} is {}, expected {}; nothing is written", self.name, value.meta(), self.meta);
            return Err(Failed::other(text));
        }
        Ok(value)
    }

    /// Passes those parts of its value to `take`, each with its first address. If all are taken, the result counts as fetched.
    pub(crate) fn deliver_parts(
        &self,
        value: &Value,
        parts: &[&Part<Arc<MappedResult>>],
        mut take: impl FnMut(usize, &[u8]) -> bool,
    ) -> bool {
        // A simulation that does not run bodies has no content.
        let are_taken = value.bytes_as(&self.meta).is_none_or(|bytes| {
            parts.iter().all(|part| take(part.start, &bytes[part.offset..part.offset + (part.end - part.start)]))
        });
        if are_taken {
            *self.here() = Some(value.clone());
        }
        are_taken
    }

    /// True if the program has changed it since it was fetched.
    ///
    /// # Safety
    /// The item's memory matches the signature.
    pub(crate) unsafe fn is_changed(&self, item: &Item<'_>) -> bool {
        let here = self.here();
        let brought = here.as_ref().and_then(|value| value.bytes_as(&self.meta));
        // SAFETY: promised by the caller.
        brought.is_some_and(|bytes| !unsafe { memory::holds(item.pointer, &bytes) })
    }

    /// Returns the result for a call that reads memory as described by the item, if the call then gets what the
    /// program would pass.
    pub(crate) fn read_as(&self, item: &Item<'_>) -> Option<Handle> {
        match self.meta == item.meta {
            true => Some(self.handle.clone()),
            false => self.handle.read_for(&self.meta, &item.meta),
        }
    }
}

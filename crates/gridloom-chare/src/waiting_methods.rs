//! The waiting methods of an element's chares ([`super::awaits`]), stored by chare without their types.

use std::any::Any;
use std::borrow::Cow;
use std::cell::Cell;
use std::rc::Rc;

use super::id::ArrayId;

/// Result tags from this one on are reserved for waiting methods.
pub(crate) const TAGS: u32 = 1 << 31;
/// Tag that starts methods.
pub(crate) const START_TAG: u32 = u32::MAX;
/// Tag of a value received on a channel.
pub(crate) const CHANNEL_TAG: u32 = u32::MAX - 1;

/// Returns the name that a timeline shows for a result with this tag.
pub(crate) fn name_of(tag: u32) -> Cow<'static, str> {
    match tag {
        START_TAG => "begin".into(),
        CHANNEL_TAG => "channel".into(),
        _ => "reply".into(),
    }
}

/// The waiting methods of one chare.
pub(crate) trait AnyWaiting: Any {
    /// Describes what the methods wait for, as text; `None` if none waits.
    fn waits_for(&self) -> Option<String>;

    /// Returns the number of messages that were kept and not yet received.
    fn kept(&self) -> usize;
}

/// A flag of the element that each chare's `AsyncContext` can set.
pub(crate) type Woken = Rc<Cell<bool>>;

/// The waiting methods of all chares of an element.
#[derive(Default)]
pub(crate) struct WaitingMethods {
    /// Waiting methods by array and slot.
    chares: Vec<Vec<Option<Box<dyn AnyWaiting>>>>,
    /// Set if something has arrived for methods of the running chare, or if an `AsyncContext` has requested an action.
    woken: Woken,
}

impl WaitingMethods {
    #[inline]
    pub(crate) fn is_woken(&self) -> bool {
        self.woken.get()
    }

    pub(crate) fn wake(&self) {
        self.woken.set(true);
    }

    pub(crate) fn woken(&self) -> &Woken {
        &self.woken
    }

    /// Reports whether something has arrived, and resets the flag.
    pub(crate) fn take_woken(&self) -> bool {
        self.woken.take()
    }

    fn of(&self, array: ArrayId, slot: u32) -> Option<&dyn AnyWaiting> {
        self.chares.get(array.0 as usize)?.get(slot as usize)?.as_deref()
    }

    pub(crate) fn has(&self, array: ArrayId, slot: u32) -> bool {
        self.of(array, slot).is_some()
    }

    /// Returns the waiting methods of a chare, if it has any.
    ///
    /// # Panics
    /// If they have another type.
    pub(crate) fn get<W: AnyWaiting>(&mut self, array: ArrayId, slot: u32) -> Option<&mut W> {
        let any: &mut dyn Any = self.chares.get_mut(array.0 as usize)?.get_mut(slot as usize)?.as_deref_mut()?;
        Some(any.downcast_mut().expect("an array knows the type of its chares"))
    }

    pub(crate) fn put(&mut self, array: ArrayId, slot: u32, waiting: Box<dyn AnyWaiting>) {
        let (array, slot) = (array.0 as usize, slot as usize);
        if self.chares.len() <= array {
            self.chares.resize_with(array + 1, Vec::new);
        }
        let slots = &mut self.chares[array];
        if slots.len() <= slot {
            slots.resize_with(slot + 1, || None);
        }
        slots[slot] = Some(waiting);
    }

    /// Describes what methods of a chare wait for; `None` if none waits.
    pub(crate) fn waits_for(&self, array: ArrayId, slot: u32) -> Option<String> {
        self.of(array, slot)?.waits_for()
    }

    /// Returns the number of messages that a chare keeps.
    pub(crate) fn kept(&self, array: ArrayId, slot: u32) -> usize {
        self.of(array, slot).map_or(0, AnyWaiting::kept)
    }

    /// Removes the methods of a chare that has left.
    pub(crate) fn forget(&mut self, array: ArrayId, slot: u32) {
        if let Some(waiting) = self.chares.get_mut(array.0 as usize).and_then(|slots| slots.get_mut(slot as usize)) {
            *waiting = None;
        }
    }
}

/// Splits the bytes of a chare into its state and the data for its waiting methods.
///
/// # Errors
/// If the bytes are too short for both.
pub(crate) fn split_state(bytes: &[u8]) -> Result<(&[u8], &[u8]), String> {
    let too_short = || "it is too short".to_string();
    let (rest, kept_bytes) = bytes.split_last_chunk().ok_or_else(too_short)?;
    let state_bytes = rest.len().checked_sub(u32::from_le_bytes(*kept_bytes) as usize).ok_or_else(too_short)?;
    Ok(rest.split_at(state_bytes))
}

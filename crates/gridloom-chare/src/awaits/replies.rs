//! Values that arrive once: from reductions, from quiescence, and from other chares.

use std::collections::BTreeMap;

use gridloom_layout::error::Fault;
use gridloom_layout::rust::{Data, Declare, Reader, Writer};
use gridloom_layout::types::Type;
use serde::{Deserialize, Serialize};

use crate::id::{ArrayId, INDEX_DIMENSIONS_MAX, Index};
use crate::proxy::{Callback, Proxy};
use crate::value::Value;
use crate::waiting_methods::TAGS;

/// Limit of reply numbers. Doubled, they stay between the tags of programs and those for starting a method and for channels.
const NUMBERS: u32 = 1 << 29;

/// Replies of one chare that were not yet received, by tag. Odd tags belong to reductions, which all chares of the
/// array number alike.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Replies {
    states: BTreeMap<u32, State>,
    own: u32,
    shared: u32,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
enum State {
    Waits,
    Arrived(Value),
    /// The reply was dropped before the value arrived.
    Dropped,
}

impl Replies {
    pub(super) fn own(&mut self) -> u32 {
        self.own = (self.own + 1) % NUMBERS;
        self.make(TAGS | (2 * self.own))
    }

    pub(super) fn shared(&mut self) -> u32 {
        self.shared = (self.shared + 1) % NUMBERS;
        self.make(TAGS | (2 * self.shared + 1))
    }

    fn make(&mut self, tag: u32) -> u32 {
        self.states.insert(tag, State::Waits);
        tag
    }

    /// Stores a value. Returns false unless the reply is awaited or was dropped.
    pub(super) fn put(&mut self, tag: u32, value: Value) -> bool {
        match self.states.get_mut(&tag) {
            Some(state @ State::Waits) => *state = State::Arrived(value),
            Some(State::Dropped) => _ = self.states.remove(&tag),
            Some(State::Arrived(_)) | None => return false,
        }
        true
    }

    pub(super) fn take(&mut self, tag: u32) -> Option<Value> {
        match self.states.remove(&tag)? {
            State::Arrived(value) => Some(value),
            other => {
                self.states.insert(tag, other);
                None
            }
        }
    }

    pub(super) fn forget(&mut self, tag: u32) {
        if let Some(State::Waits) = self.states.remove(&tag) {
            self.states.insert(tag, State::Dropped);
        }
    }

    /// Returns the part that moves with a chare when none of its methods waits: replies to values that have not
    /// arrived are dropped.
    pub(super) fn packed(&self) -> Replies {
        let comes = self.states.iter().filter(|(_, state)| !matches!(state, State::Arrived(_)));
        Replies { states: comes.map(|(tag, _)| (*tag, State::Dropped)).collect(), own: self.own, shared: self.shared }
    }
}

/// The address where a chare waits for a value, used as a field of messages. Any chare provides the value, once, with
/// [`Context::call_back`](crate::Context::call_back).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReplyTo {
    pub(super) array: ArrayId,
    pub(super) index: Index,
    pub(super) tag: u32,
}

impl From<ReplyTo> for Callback {
    fn from(to: ReplyTo) -> Callback {
        Callback::to(Proxy::<()>::new(to.array).at(to.index)).with_tag(to.tag)
    }
}

/// Array, tag, number of dimensions, and index.
type Fields = [i32; 3 + INDEX_DIMENSIONS_MAX];

impl Data for ReplyTo {
    const SIZE: usize = Fields::SIZE;
    const ALIGN: usize = Fields::ALIGN;

    fn ty(declare: &mut Declare) -> Type {
        Fields::ty(declare)
    }

    fn write(&self, writer: &mut Writer<'_>, at: usize) -> Result<(), Box<Fault>> {
        let index = self.index.as_slice();
        let mut fields: Fields = Default::default();
        fields[..3].copy_from_slice(&[self.array.0 as i32, self.tag as i32, index.len() as i32]);
        fields[3..3 + index.len()].copy_from_slice(index);
        fields.write(writer, at)
    }

    fn read(reader: &mut Reader<'_>, at: usize) -> Result<ReplyTo, Box<Fault>> {
        let [array, tag, dimensions, integers @ ..] = Fields::read(reader, at)?;
        // A value corrupted in transit names a chare that does not exist, which is reported where it is used.
        let dimensions = (dimensions.max(1) as usize).min(INDEX_DIMENSIONS_MAX);
        Ok(ReplyTo { array: ArrayId(array as u32), index: Index::new(&integers[..dimensions]), tag: tag as u32 })
    }
}

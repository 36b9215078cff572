//! What has come on channels, and how it travels: as the result of a callback, with the channel's key and a number beside it. Letters
//! between two elements may overtake one another, so the number tells what is next.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::id::{ArrayId, Index};
use crate::value::Value;

/// One end of a channel: array and index of the other, and which of their channels it is.
pub(super) type Key = (ArrayId, Index, u32);

/// The channels of one chare.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Pipes {
    pipes: BTreeMap<Key, Pipe>,
    /// How many it has made to each chare.
    made: BTreeMap<(ArrayId, Index), u32>,
}

/// What has come on a channel, by number, and the number that is received next.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Pipe {
    early: BTreeMap<i64, Value>,
    next: i64,
}

impl Pipes {
    /// The key of its next channel to that chare.
    pub(super) fn make(&mut self, array: ArrayId, index: Index) -> Key {
        let made = self.made.entry((array, index)).or_default();
        *made += 1;
        (array, index, *made - 1)
    }

    /// Nothing but a channel's other end sends what can be put.
    pub(super) fn put(&mut self, came: Value) {
        if let Some((key, number, value)) = unpacked(came) {
            self.pipes.entry(key).or_default().early.insert(number, value);
        }
    }

    pub(super) fn take(&mut self, key: &Key) -> Option<Value> {
        let pipe = self.pipes.get_mut(key)?;
        let value = pipe.early.remove(&pipe.next)?;
        pipe.next += 1;
        Some(value)
    }
}

/// What the sender's end sends: its key at the receiver, the number on the channel, and the value.
pub(super) fn packed((array, index, channel): Key, number: i64, value: Value) -> Value {
    let head = vec![i64::from(array.0), i64::from(channel), number];
    Value::Gathered(vec![(index, head.into()), (index, value)])
}

fn unpacked(came: Value) -> Option<(Key, i64, Value)> {
    let Value::Gathered(both) = came else { return None };
    let [(index, Value::Integers(head)), (_, value)] = <[_; 2]>::try_from(both).ok()? else { return None };
    let [array, channel, number] = head[..] else { return None };
    let key = (ArrayId(u32::try_from(array).ok()?), index, u32::try_from(channel).ok()?);
    Some((key, number, value))
}

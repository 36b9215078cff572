//! Values received on channels. A value travels as the result of a callback, together with the channel's key and a
//! sequence number. Message batches between two elements may overtake one another, so the sequence number determines
//! the order.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::id::{ArrayId, Index};
use crate::value::Value;

/// One end of a channel: array and index of the other chare, and the channel's number between the two.
pub(super) type Key = (ArrayId, Index, u32);

/// The channels of one chare: those of which it has an end, and those that only the other chare has opened so far.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Channels {
    pipes: BTreeMap<Key, ChannelState>,
    /// Number of channels that it has opened to each chare.
    channels_opened: BTreeMap<(ArrayId, Index), u32>,
}

/// The values received on a channel, by sequence number, and the next number to return.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct ChannelState {
    early: BTreeMap<i64, Value>,
    next: i64,
}

impl Channels {
    /// Opens the next channel to a chare and returns its key.
    pub(super) fn make(&mut self, array: ArrayId, index: Index) -> Key {
        let made = self.channels_opened.entry((array, index)).or_default();
        *made += 1;
        let key = (array, index, *made - 1);
        self.pipes.entry(key).or_default();
        key
    }

    /// Forgets a channel whose end on this chare is gone.
    pub(super) fn forget(&mut self, key: &Key) {
        self.pipes.remove(key);
    }

    fn was_made(&self, (array, index, channel): &Key) -> bool {
        self.channels_opened.get(&(*array, *index)).is_some_and(|made| channel < made)
    }

    /// Returns the part that moves with a chare. An open end of a channel does not move.
    pub(super) fn packed(&self) -> Channels {
        let early = self.pipes.iter().filter(|(key, _)| !self.was_made(key));
        Channels {
            pipes: early.map(|(key, pipe)| (*key, pipe.clone())).collect(),
            channels_opened: self.channels_opened.clone(),
        }
    }

    /// Stores a value that was received on a channel. Only a channel's other end sends valid values.
    pub(super) fn put(&mut self, came: Value) {
        if let Some((key, number, value)) = unpacked(came)
            && (self.pipes.contains_key(&key) || !self.was_made(&key))
        {
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

/// Encodes the value that one end sends: its key at the receiver, the sequence number, and the value.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_for_a_closed_end_are_dropped_and_early_ones_migrate() {
        let (mut pipes, other) = (Channels::default(), (ArrayId(0), Index::from(1)));
        let sent = |channel, number| packed((other.0, other.1, channel), number, number.into());
        let first = pipes.make(other.0, other.1);
        (0..2).for_each(|number| pipes.put(sent(0, number)));
        pipes.put(sent(1, 0));
        assert_eq!(pipes.take(&first), Some(0.into()));
        let mut gone = pipes.packed();
        pipes.forget(&first);
        for pipes in [&mut pipes, &mut gone] {
            pipes.put(sent(0, 2));
            let keys: Vec<u32> = pipes.pipes.keys().map(|key| key.2).collect();
            assert_eq!(keys, [1], "nothing can receive what is left of the first channel");
            let second = pipes.make(other.0, other.1);
            assert_eq!((second.2, pipes.take(&second)), (1, Some(0.into())));
        }
    }
}

//! Holds messages that arrived before the process asked for their type.
//!
//! **Invariant:** messages of one type are taken in the order of arrival; so are all messages if any type will do.
//! **Limit:** none of its own. The world's limit on bytes in flight bounds each connection.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::{PeerId, ProcessMessage};

/// Messages that wait.
#[derive(Clone, Debug, Default)]
pub struct Mailbox {
    next: u64,
    messages: BTreeMap<u64, (PeerId, ProcessMessage)>,
    by_kind: BTreeMap<Arc<str>, VecDeque<u64>>,
}

impl Mailbox {
    /// Adds a message.
    pub fn put(&mut self, from: PeerId, letter: ProcessMessage) {
        let number = self.next;
        self.next += 1;
        self.by_kind.entry(letter.kind.clone()).or_default().push_back(number);
        self.messages.insert(number, (from, letter));
    }

    /// Removes the first message of that type, from that peer if one is given.
    pub fn take(&mut self, kind: &str, from: Option<PeerId>) -> Option<(PeerId, ProcessMessage)> {
        let waiting = self.by_kind.get_mut(kind)?;
        let fits = |number: &u64| from.is_none_or(|from| self.messages[number].0 == from);
        let at = waiting.iter().position(fits)?;
        let number = waiting.remove(at)?;
        if waiting.is_empty() {
            self.by_kind.remove(kind);
        }
        self.messages.remove(&number)
    }

    /// Removes the first message of a type that `wants` accepts.
    pub fn take_first(&mut self, wants: impl Fn(&str) -> bool) -> Option<(PeerId, ProcessMessage)> {
        let kind = self.messages.values().map(|(_, letter)| &letter.kind).find(|kind| wants(kind))?.clone();
        self.take(&kind, None)
    }

    pub fn len(&self) -> usize {
        self.messages.len()
    }

    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Returns the number of waiting messages by type. Explains why a process makes no progress.
    pub fn waiting(&self) -> Vec<(&str, usize)> {
        self.by_kind.iter().map(|(kind, waiting)| (&**kind, waiting.len())).collect()
    }

    /// Returns the number of waiting messages by type and sender, in the order of the types.
    pub fn unread(&self) -> BTreeMap<(&str, PeerId), usize> {
        let mut unread = BTreeMap::new();
        for (from, letter) in self.messages.values() {
            *unread.entry((&*letter.kind, *from)).or_default() += 1;
        }
        unread
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn letter(kind: &str, byte: u8) -> ProcessMessage {
        ProcessMessage { kind: kind.into(), payload: vec![byte] }
    }

    #[test]
    fn letters_come_out_in_order_by_type_or_at_all() {
        let mut mailbox = Mailbox::default();
        for (kind, byte) in [("a", 1), ("b", 2), ("a", 3), ("c", 4)] {
            mailbox.put(PeerId(0), letter(kind, byte));
        }
        assert_eq!(mailbox.take("b", None).unwrap().1.payload, [2]);
        assert_eq!(mailbox.take("b", None), None);
        assert_eq!(mailbox.take_first(|kind| kind != "c").unwrap().1.payload, [1]);
        assert_eq!(mailbox.waiting(), [("a", 1), ("c", 1)]);
        assert_eq!(mailbox.unread(), BTreeMap::from([(("a", PeerId(0)), 1), (("c", PeerId(0)), 1)]));
        assert_eq!(mailbox.take("a", Some(PeerId(0))).unwrap().1.payload, [3]);
        assert_eq!(mailbox.take_first(|_| true).unwrap().1.payload, [4]);
        assert!(mailbox.is_empty());
    }
}

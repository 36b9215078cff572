//! The message types of a process, and the peers to which their declarations were sent.

use std::any::{Any, TypeId};
use std::collections::{BTreeMap, BTreeSet};

use gridloom_layout::{Message, MessageCodec};
use gridloom_process::PeerId;

/// The message types that a process has used, and which declarations each peer was sent.
#[derive(Default)]
pub(super) struct Types {
    known: BTreeMap<TypeId, Box<dyn Any + Send>>,
    described: BTreeMap<PeerId, BTreeSet<u64>>,
}

impl Types {
    pub(super) fn get<M: Message>(&mut self) -> &mut MessageCodec<M> {
        let make = || -> Box<dyn Any + Send> {
            let made = MessageCodec::<M>::new();
            Box::new(
                made.unwrap_or_else(|error| panic!("{} is not a message type: {error}", std::any::type_name::<M>())),
            )
        };
        let found = self.known.entry(TypeId::of::<M>()).or_insert_with(make);
        found.downcast_mut().expect("types are kept by their own identity")
    }

    /// Forgets a peer that is gone.
    pub(super) fn forget(&mut self, peer: PeerId) {
        self.described.remove(&peer);
    }

    /// True if a peer was sent the declaration with that hash.
    pub(super) fn knows(&self, peer: PeerId, hash: u64) -> bool {
        self.described.get(&peer).is_some_and(|known| known.contains(&hash))
    }

    /// Notes that a peer was sent the declaration.
    pub(super) fn introduced(&mut self, peer: PeerId, hash: u64) {
        self.described.entry(peer).or_default().insert(hash);
    }
}

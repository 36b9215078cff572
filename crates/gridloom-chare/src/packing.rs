//! Serialization of chares for migration.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::chare::Chare;
use super::id::Index;

/// A chare that can move to another element.
pub trait Migrate: Chare {
    /// The state that moves: serialized by serde and postcard. Data that every element has anyway can be left out.
    type State: Serialize + DeserializeOwned;

    fn pack(&self) -> Self::State;
}

/// Packs a chare. An error describes what is wrong with its state.
type Pack<C> = dyn FnMut(&C) -> Result<Vec<u8>, String>;
/// Recreates the chare with an index from its state.
type Unpack<C> = dyn FnMut(Index, &[u8]) -> Result<C, String>;

/// Functions that serialize and recreate the chares of an array.
pub struct Packing<C> {
    pub(crate) pack: Box<Pack<C>>,
    pub(crate) unpack: Box<Unpack<C>>,
    pub(crate) can_move: Box<dyn Fn(&C) -> bool>,
}

impl<C> Packing<C> {
    /// Uses custom functions. Their errors describe what is wrong with the state.
    pub fn new(
        pack: impl FnMut(&C) -> Result<Vec<u8>, String> + 'static,
        unpack: impl FnMut(Index, &[u8]) -> Result<C, String> + 'static,
    ) -> Packing<C> {
        Packing { pack: Box::new(pack), unpack: Box::new(unpack), can_move: Box::new(|_| true) }
    }

    /// Lets a balancer move a chare only when `can_move` returns true.
    #[must_use]
    pub fn only_if(mut self, can_move: impl Fn(&C) -> bool + 'static) -> Packing<C> {
        self.can_move = Box::new(can_move);
        self
    }
}

impl<C: Migrate> Packing<C> {
    /// Uses the chares' [`Migrate::State`]. `make` creates the chare with an index from it.
    pub fn of_state(mut make: impl FnMut(Index, C::State) -> C + 'static) -> Packing<C> {
        Packing::new(
            |chare: &C| postcard::to_allocvec(&chare.pack()).map_err(|error| error.to_string()),
            move |index, bytes| Ok(make(index, postcard::from_bytes(bytes).map_err(|error| error.to_string())?)),
        )
    }
}

//! Data are immutable: all copies of a datum are equal, wherever and whenever they come to be.

use std::collections::BTreeMap;

use gridloom_base::{DatumId, Time};

use super::{Check, Invariant};
use crate::event::SimEvent;
use crate::simulation::Simulation;
use crate::soak::ledger::Ledger;
use crate::soak::workload::first;

pub(super) const INVARIANT: Invariant = Invariant {
    name: "data are immutable",
    about: "all copies of a datum are equal, wherever and whenever they come to be",
    make: || Box::<Immutable>::default(),
};

/// Size and first element of the first copy of each datum; arrays of the workload are of one value.
#[derive(Default)]
struct Immutable {
    known: BTreeMap<DatumId, (u64, u64)>,
}

impl Check for Immutable {
    fn see(&mut self, _: &Simulation, _: &Ledger, _: Time, event: &SimEvent) -> Result<(), String> {
        let SimEvent::Stored { node, datum, value } = event else { return Ok(()) };
        let bits = value.bytes.as_ref().map_or(0, |bytes| first(bytes).to_bits());
        let copy = (value.meta.size_bytes(), bits);
        match *self.known.entry(*datum).or_insert(copy) {
            known if known == copy => Ok(()),
            known => Err(format!("{datum} at {node} is {copy:?} (size, bits), and was {known:?} elsewhere or before")),
        }
    }
}

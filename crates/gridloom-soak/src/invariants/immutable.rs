//! Data are immutable: all copies of a datum are equal, byte for byte, wherever and whenever they are created. So
//! nobody accepts bytes that differ from the put value, even if they were corrupted in transit.

use std::collections::BTreeMap;

use gridloom_base::{DatumId, Time};

use super::{Invariant, InvariantCheck};
use crate::ledger::Ledger;
use gridloom_sim::Simulation;
use gridloom_sim::inspect::SimEvent;
use gridloom_sim::inspect::StoredValue;

pub(crate) const INVARIANT: Invariant = Invariant {
    name: "data are immutable",
    about: "all copies of a datum are equal, byte for byte, wherever created, even if data are corrupted in transit",
    new_check: || Box::<Immutable>::default(),
};

#[derive(Default)]
struct Immutable {
    /// The first copy of each datum.
    known: BTreeMap<DatumId, StoredValue>,
    /// Number of data that were rejected because they had been corrupted in transit.
    refused: u64,
    /// Number of interrupted transfers that continued where they had broken off.
    went_on: u64,
}

impl InvariantCheck for Immutable {
    fn observe(&mut self, _: &Simulation, _: &Ledger, _: Time, event: &SimEvent) -> Result<(), String> {
        match event {
            SimEvent::Corrupted { .. } => self.refused += 1,
            SimEvent::Continues => self.went_on += 1,
            SimEvent::Stored { node, datum, value } => match self.known.get(datum) {
                None => _ = self.known.insert(*datum, value.clone()),
                Some(known) if is_equal(known, value) => {}
                Some(known) => {
                    return Err(format!("{datum} at {node} is {}, and was {} before", shown(value), shown(known)));
                }
            },
            _ => {}
        }
        Ok(())
    }

    fn reached(&self) -> Vec<(&'static str, u64)> {
        vec![("changed bytes were refused", self.refused), ("a datum went on where it had broken off", self.went_on)]
    }
}

/// Compares two values. Most copies share the same memory.
fn is_equal(a: &StoredValue, b: &StoredValue) -> bool {
    let is_one = a.bytes.as_ref().zip(b.bytes.as_ref()).is_some_and(|(a, b)| std::sync::Arc::ptr_eq(a, b));
    a.meta.size_bytes() == b.meta.size_bytes() && (is_one || a.bytes == b.bytes)
}

fn shown(value: &StoredValue) -> String {
    let digest = value.bytes.as_ref().map(|bytes| gridloom_sim::inspect::digest(bytes));
    format!("{} bytes (digest {digest:x?})", value.meta.size_bytes())
}

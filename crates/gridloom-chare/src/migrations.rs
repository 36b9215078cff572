//! Chares that are about to leave, and records for chares that have not yet arrived.

use std::collections::BTreeMap;

use super::credit::CreditDue;
use super::id::{ArrayId, Pe};
use super::record::RecordHeader;

/// The records received for a chare, in order of arrival.
type Records = Vec<(RecordHeader, Vec<u8>, CreditDue)>;

/// Migrations in progress.
#[derive(Debug, Default)]
pub(crate) struct Migrations {
    /// True if an entry method must be followed by a move or a measurement.
    needs_follow_up: bool,
    /// The destination of the running chare after its entry method returns.
    pub(crate) destination: Option<Pe>,
    /// The destinations of chares that a balancer moves.
    orders: BTreeMap<(ArrayId, u32), Pe>,
    has_new_orders: bool,
    /// Records for chares that have not yet arrived.
    held: BTreeMap<(ArrayId, u32), Records>,
    count: usize,
}

impl Migrations {
    #[inline]
    pub(crate) fn is_attentive(&self) -> bool {
        self.needs_follow_up
    }

    /// Updates whether entry methods must be followed by a move or a measurement. `always` is true if each entry method
    /// is measured.
    pub(crate) fn set_attentive(&mut self, always: bool) {
        self.needs_follow_up = always || self.destination.is_some() || !self.orders.is_empty();
    }

    pub(crate) fn order(&mut self, orders: BTreeMap<(ArrayId, u32), Pe>) {
        self.has_new_orders = true;
        self.needs_follow_up |= !orders.is_empty();
        self.orders = orders;
    }

    /// Returns all orders if some were added since the last call.
    pub(crate) fn new_orders(&mut self) -> Option<Vec<((ArrayId, u32), Pe)>> {
        std::mem::take(&mut self.has_new_orders).then(|| self.orders.iter().map(|(chare, to)| (*chare, *to)).collect())
    }

    /// Returns the destination to which a chare is ordered.
    pub(crate) fn ordered(&self, array: ArrayId, number: u32) -> Option<Pe> {
        self.orders.get(&(array, number)).copied()
    }

    /// Removes an order that was carried out or cannot be carried out.
    pub(crate) fn order_done(&mut self, array: ArrayId, number: u32) {
        self.orders.remove(&(array, number));
    }

    /// Returns the number of held records.
    pub(crate) fn held(&self) -> usize {
        self.count
    }

    pub(crate) fn hold(&mut self, array: ArrayId, head: RecordHeader, body: &[u8], debt: CreditDue) {
        self.held.entry((array, head.number)).or_default().push((head, body.to_vec(), debt));
        self.count += 1;
    }

    /// Takes the records held for a chare.
    pub(crate) fn release(&mut self, array: ArrayId, number: u32) -> Records {
        let held = self.held.remove(&(array, number)).unwrap_or_default();
        self.count -= held.len();
        held
    }
}

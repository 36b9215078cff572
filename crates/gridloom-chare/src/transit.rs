//! Chares that are about to leave, and records for those that have still to come.

use std::collections::BTreeMap;

use super::credit::Debt;
use super::id::{ArrayId, Pe};
use super::record::Head;

/// What came for a chare, in the order of its coming.
type Records = Vec<(Head, Vec<u8>, Debt)>;

/// What is on the move.
#[derive(Debug, Default)]
pub(crate) struct Transit {
    /// Whether something is to be done after an entry method: a move, or a measurement.
    is_attentive: bool,
    /// Where the chare that runs goes when its entry method has returned.
    pub(crate) leaving: Option<Pe>,
    /// Where chares are to go that a balancer moves.
    orders: BTreeMap<(ArrayId, u32), Pe>,
    are_new: bool,
    /// Records for chares that have still to come.
    held: BTreeMap<(ArrayId, u32), Records>,
    count: usize,
}

impl Transit {
    #[inline]
    pub(crate) fn is_attentive(&self) -> bool {
        self.is_attentive
    }

    /// `always` if each entry method is measured.
    pub(crate) fn set_attentive(&mut self, always: bool) {
        self.is_attentive = always || self.leaving.is_some() || !self.orders.is_empty();
    }

    pub(crate) fn order(&mut self, orders: BTreeMap<(ArrayId, u32), Pe>) {
        self.are_new = true;
        self.is_attentive |= !orders.is_empty();
        self.orders = orders;
    }

    /// Orders, if some have come since the last time.
    pub(crate) fn new_orders(&mut self) -> Option<Vec<((ArrayId, u32), Pe)>> {
        std::mem::take(&mut self.are_new).then(|| self.orders.iter().map(|(chare, to)| (*chare, *to)).collect())
    }

    /// Where that chare is ordered to go.
    pub(crate) fn ordered(&self, array: ArrayId, number: u32) -> Option<Pe> {
        self.orders.get(&(array, number)).copied()
    }

    /// An order is carried out, or cannot be.
    pub(crate) fn ended(&mut self, array: ArrayId, number: u32) {
        self.orders.remove(&(array, number));
    }

    /// How many records are held.
    pub(crate) fn held(&self) -> usize {
        self.count
    }

    pub(crate) fn hold(&mut self, array: ArrayId, head: Head, body: &[u8], debt: Debt) {
        self.held.entry((array, head.number)).or_default().push((head, body.to_vec(), debt));
        self.count += 1;
    }

    /// What was held for a chare.
    pub(crate) fn release(&mut self, array: ArrayId, number: u32) -> Records {
        let held = self.held.remove(&(array, number)).unwrap_or_default();
        self.count -= held.len();
        held
    }
}

//! Carries out a balancer's moves.
//!
//! ```text
//!  first element                    others
//!    │── measure ──────────────────▶│
//!    │◀──────── measurements ───────│
//!    │ Decision: does it pay off?   │
//!    │── order: these move there ──▶│── chare ──▶
//! ```
//! A chare that cannot move immediately moves after the first entry method that leaves it movable.

use gridloom_base::Time;

use super::balance::Balancer;
use super::core::Core;
use super::decision::{Decision, Order};
use super::id::{ArrayId, Pe};
use super::load_meter::{LoadReport, Meter};
use super::location_table::Location;
use super::record::Control;

impl Core {
    /// Starts measuring on this element; the first element then has chares moved.
    pub(crate) fn set_balancer(&mut self, balancer: &'static Balancer) {
        self.balancing.meter = Some(Meter::default());
        self.transit.set_attentive(true);
        if self.me == Pe(0) && self.elements.count() > 1 {
            self.balancing.decision = Some(Decision::new(balancer, self.elements.clone(), (self.clock)()));
        }
    }

    /// On the first element: returns when to ask for measurements next.
    pub(crate) fn balance_due(&self) -> Option<Time> {
        self.balancing.decision.as_ref().and_then(Decision::due)
    }

    /// On the first element, if due: asks all elements for their measurements.
    pub(crate) fn balance(&mut self) {
        if self.balance_due().is_none_or(|due| due > (self.clock)()) || self.checkpoints.is_busy() {
            return;
        }
        if let Some(decision) = &mut self.balancing.decision {
            decision.measuring();
            self.elements.clone().all().for_each(|element| self.send_control(element, Control::Measure));
        }
    }

    pub(crate) fn tell_measured(&mut self) {
        let rosters = &self.rosters;
        let measured = self.balancing.meter.as_mut().map(|meter| meter.take(rosters)).unwrap_or_default();
        self.send_control(Pe(0), Control::Measured { from: self.me, measured });
    }

    pub(crate) fn on_measured(&mut self, from: Pe, measured: LoadReport) {
        let now = (self.clock)();
        let Some(decision) = self.balancing.decision.as_mut().filter(|_| from.0 < self.elements.count()) else {
            return;
        };
        // Chares stay where they are while they are being saved.
        let orders = decision.on_measurements(from, measured, now, !self.checkpoints.is_busy());
        decision.ordered_in(self.quiescence.wave(), orders.len() as u32);
        for (element, orders) in orders {
            self.send_control(element, Control::Order(orders));
        }
    }

    pub(crate) fn tell_obeyed(&mut self) {
        self.send_control(Pe(0), Control::OrdersDone);
    }

    pub(crate) fn on_obeyed(&mut self) {
        let wave = self.quiescence.wave();
        if let Some(decision) = &mut self.balancing.decision {
            decision.completed_in(wave);
        }
    }

    /// On the first element, after the two waves that found the program quiet: reports whether a chare may be in
    /// transit that was ordered to move after its element had answered the first wave.
    pub(crate) fn may_be_migrating(&self) -> bool {
        let wave = self.quiescence.wave();
        self.balancing.decision.as_ref().is_some_and(|decision| decision.is_active_since(wave.saturating_sub(1)))
    }

    /// Stores the orders that this element can carry out. Earlier orders that were not carried out become void.
    pub(crate) fn on_orders(&mut self, orders: Vec<Order>) {
        let is_possible = |(array, number, to): &Order| {
            let roster = self.rosters.get(array.0 as usize).filter(|roster| roster.is_migratable);
            let is_here = roster.is_some_and(|roster| matches!(roster.location(*number), Some(Location::Here { .. })));
            is_here && *to != self.me && to.0 < self.elements.count()
        };
        let orders = orders.into_iter().filter(is_possible).map(|(array, number, to)| ((array, number), to)).collect();
        self.transit.order(orders);
    }

    /// Records the work of an entry method of the chare in a slot. Returns the element to which the chare is ordered to move.
    pub(crate) fn after_entry(&mut self, array: ArrayId, slot: u32) -> Option<Pe> {
        if let Some(meter) = &mut self.balancing.meter {
            meter.ran(array, slot);
        }
        let to = self.transit.ordered(array, self.roster(array).number(slot));
        self.transit.set_attentive(self.balancing.meter.is_some());
        to
    }
}

//! What an element does about credit: gives it back, parks chares that send without, and lets them go on.

use gridloom_base::limits::CHARE_UNSENT_BYTES_MAX;

use super::core::Core;
use super::credit::Debt;
use super::error::ChareError;
use super::id::{ArrayId, Pe};
use super::record::Control;

impl Core {
    /// A message of another element has run, or has left for yet another one.
    #[inline]
    pub(crate) fn repay(&mut self, debt: Debt) {
        if debt.bytes > 0
            && let Some(bytes) = self.outbound.credits.ran(debt)
        {
            self.tell(debt.to, Control::Credit { from: self.me, bytes });
        }
    }

    /// The chare in that slot has left too much for other elements: nothing runs for it until some has gone.
    #[cold]
    pub(crate) fn park(&mut self, array: ArrayId, slot: u32) {
        let on = self.outbound.credits.take_over();
        self.ready.parking.park((array, slot), on);
    }

    pub(crate) fn unpark(&mut self, (array, slot): (ArrayId, u32)) {
        if self.ready.parking.is_parked((array, slot)) {
            let back = self.mails[array.0 as usize].unpark(slot);
            self.ready.parking.free((array, slot), back.len());
            back.into_iter().for_each(|priority| self.ready.put_back(array, priority));
        }
    }

    /// Another element has run messages of this one.
    pub(crate) fn on_credit(&mut self, from: Pe, bytes: u64) {
        if from.0 >= self.elements.count() {
            return;
        }
        self.outbound.returned(from, bytes);
        if !self.ready.parking.is_empty() && self.outbound.credits.is_relieved(from) {
            let chares = self.ready.parking.relieved(from);
            chares.into_iter().for_each(|at| self.unpark(at));
        }
    }

    fn is_stuck(&self) -> bool {
        self.ready.len() == 0 && self.ready.parking.held() > 0
    }

    /// Nothing can run here. Asks, once, whether others wait for this element in a circle.
    pub(crate) fn stick(&mut self) {
        if let Some(question) = self.ready.parking.stick() {
            self.ask(self.me, question);
        }
    }

    fn ask(&mut self, of: Pe, question: u64) {
        for element in self.ready.parking.waits_for() {
            self.tell(element, Control::Stuck { of, question });
        }
    }

    /// That element can run nothing, and waits for this one.
    pub(crate) fn on_stuck(&mut self, of: Pe, question: u64) {
        if !self.is_stuck() || of.0 >= self.elements.count() {
            return;
        }
        if of != self.me {
            if self.ready.parking.passes_on(of, question) {
                self.ask(of, question);
            }
            return;
        }
        if !self.ready.parking.is_asked(question) {
            return;
        }
        for to in self.ready.parking.waits_for() {
            if !self.outbound.credits.lend(to) {
                return self.fail(ChareError::TooMuch { element: self.me, to, limit: CHARE_UNSENT_BYTES_MAX });
            }
        }
        self.ready.parking.all().into_iter().for_each(|at| self.unpark(at));
    }
}

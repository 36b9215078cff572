//! Flow control of an element: returns credit, parks chares that send without credit, and resumes them.
//!
//! Credit is returned for a quarter of the receiver's window at a time. If the sender's window is much smaller, that
//! might never happen. So an element whose program has set a limit other than the default sends it to all others, and
//! they refuse it if theirs differs.

use gridloom_base::limits::{CHARE_MAILBOX_BYTES, CHARE_UNSENT_BYTES_MAX};

use super::core::Core;
use super::credit::CreditDue;
use super::error::ChareError;
use super::id::{ArrayId, Pe};
use super::parking::{ChareSlot, DeadlockProbe};
use super::record::Control;

impl Core {
    /// Returns credit for a message that has run here, or was forwarded to another element.
    #[inline]
    pub(crate) fn return_credit(&mut self, debt: CreditDue) {
        if debt.bytes > 0
            && let Some(bytes) = self.outbound.credits.on_run(&debt)
        {
            self.send_control(debt.to, Control::Credit { from: self.me, bytes });
        }
        if debt.bytes > 0 && !self.ready.parking.is_empty() {
            self.probe_if_blocked(debt.to);
        }
    }

    /// Parks a chare that has left too much waiting for other elements. It runs nothing until enough has been sent.
    #[cold]
    pub(crate) fn park(&mut self, array: ArrayId, slot: u32) {
        let on = self.outbound.credits.full();
        self.ready.parking.park((array, slot), on);
    }

    pub(crate) fn unpark(&mut self, (array, slot): ChareSlot) {
        if self.ready.parking.is_parked((array, slot)) {
            let back = self.mails[array.0 as usize].unpark(slot);
            self.ready.parking.remove((array, slot), back.len());
            for (priority, debt) in back {
                self.outbound.credits.release(&debt);
                self.ready.put_back(array, priority);
            }
        }
    }

    /// Holds a message or result for a parked chare.
    pub(crate) fn hold(&mut self, at: ChareSlot, debt: &CreditDue) {
        self.ready.parking.hold(at, (debt.bytes > 0).then_some(debt.to));
        if debt.bytes > 0 {
            self.outbound.credits.add_parked(debt);
            self.probe_if_blocked(debt.to);
        }
    }

    /// Handles credit: another element has run messages of this one.
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

    /// Sends this element's mailbox limit to all others, unless it is the default.
    pub(crate) fn announce_mailbox_bound(&mut self) {
        let Some(bytes) = self.outbound.credits.limit() else { return };
        for element in self.others() {
            self.send_control(element, Control::MailboxLimit { from: self.me, bytes });
        }
    }

    /// # Errors
    /// If this element has another mailbox limit.
    pub(crate) fn check_bound(&self, from: Pe, bytes: u64) -> Result<(), ChareError> {
        let own = self.outbound.credits.limit().unwrap_or(CHARE_MAILBOX_BYTES);
        match own == bytes {
            true => Ok(()),
            false => {
                Err(ChareError::MailboxLimitsDiffer { element: self.me, bytes: own, other: from, other_bytes: bytes })
            }
        }
    }

    /// If an element is blocked here now, starts a probe for a cycle of elements that wait for one another.
    fn probe_if_blocked(&mut self, blocked: Pe) {
        if self.outbound.credits.is_blocked(blocked) {
            let question = self.ready.parking.new_probe(self.me, blocked);
            for element in self.ready.parking.waits_for(blocked) {
                self.send_control(element, Control::DeadlockProbe { from: self.me, question });
            }
        }
    }

    /// Handles a probe from an element that waits for this one to return credit. The sender started or forwarded it.
    pub(crate) fn on_blocked(&mut self, from: Pe, question: DeadlockProbe) {
        let count = self.elements.count();
        if from.0 >= count || question.by.0 >= count || !self.outbound.credits.is_blocked(from) {
            return;
        }
        let waits_for = self.ready.parking.waits_for(from);
        if (question.by, question.blocked) != (self.me, from) {
            for element in self.ready.parking.forward_to(question, waits_for) {
                self.send_control(element, Control::DeadlockProbe { from: self.me, question });
            }
            return;
        }
        if !self.ready.parking.is_current_probe(question) {
            return;
        }
        for to in waits_for {
            if !self.outbound.credits.raise_limit(to) {
                return self.fail(ChareError::UnsentLimit { element: self.me, to, limit: CHARE_UNSENT_BYTES_MAX });
            }
        }
        self.ready.parking.chares_holding(from).into_iter().for_each(|at| self.unpark(at));
    }
}

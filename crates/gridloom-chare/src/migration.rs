//! Migrating chares, and the forwarding of messages to them.
//!
//! ```text
//!  sender              P, where the chare was          Q, where it is
//!    │                       │── chare, its state ──────────▶│
//!    │── message ───────────▶│── message, "1 move" ─────────▶│
//!    │◀─ "at Q, 1 move" ─────│                               │
//!    │── message, "1 move" ─────────────────────────────────▶│
//! ```
//! Every element knows a location of each chare, and the number of moves after which the chare was there. A record for
//! a chare that is not here is forwarded to the known location, with that number. If the record carries a higher
//! number than is known here, the chare is on its way here, and the record is held until the chare arrives. So each
//! record either waits or reaches an element that knows of more moves: no record circulates forever. No search is
//! needed when a chare leaves: items that wait for it here are forwarded when their turn comes.
//!
//! A message to a whole array reaches each chare through the element where the chare began, which forwards it as a
//! message to one chare. So each chare gets it once, wherever it is.

use gridloom_base::Time;

use super::core::Core;
use super::credit::CreditDue;
use super::error::ChareError;
use super::id::{ArrayId, Pe, Priority};
use super::location_table::Location;
use super::mail::{Outcome, Slots, Work, WorkItem};
use super::payload::Payload;
use super::record::{Control, Kind, RecordHeader};

impl Core {
    /// Requests a move of the running chare.
    pub(crate) fn request_move(&mut self, array: ArrayId, to: Pe) {
        let roster = self.roster(array);
        if !roster.is_migratable {
            let why = format!("chares of array {} cannot move: make it a migratable array", roster.name);
            return self.fail(ChareError::Failed(why));
        }
        if to.0 >= self.elements.count() {
            let (name, count) = (&roster.name, self.elements.count());
            let why = format!(
                "a chare of array {name} cannot move to element {}: there are {count} elements, numbered from 0",
                to.0
            );
            return self.fail(ChareError::Failed(why));
        }
        self.transit.destination = (to != self.me).then_some(to);
        self.transit.set_attentive(self.balancing.meter.is_some());
    }

    /// Sends the chare in a slot to another element with its packed state.
    pub(crate) fn depart(&mut self, array: ArrayId, slot: u32, to: Pe, state: &[u8]) {
        // Waiting items are forwarded to it.
        self.unpark((array, slot));
        let (round, told) = self.reductions[array.0 as usize].remove_chare(slot);
        self.send_partials_to_root(array, told);
        let roster = &mut self.rosters[array.0 as usize];
        let number = roster.number(slot);
        let moves = roster.record_departure(slot, to);
        self.transit.order_done(array, number);
        if let Some(meter) = &mut self.balancing.meter {
            meter.left += 1;
        }
        let head = RecordHeader { kind: Kind::Move, array: array.0, priority: 0, number };
        let written = self.outbound.add(to, head, |out| {
            out.extend_from_slice(&moves.to_le_bytes());
            out.extend_from_slice(&round.to_le_bytes());
            out.extend_from_slice(state);
            Ok(())
        });
        match written {
            Ok(()) => self.quiescence.counts.sent += 1,
            Err(why) => self.cannot_move(array, number, why),
        }
    }

    /// Returns the start time for packing or unpacking a migrating chare, if a balancer measures it.
    pub(crate) fn move_begins(&self) -> Option<Time> {
        self.balancing.meter.as_ref().map(|_| (self.clock)())
    }

    pub(crate) fn move_ends(&mut self, began: Option<Time>) {
        if let (Some(began), Some(meter)) = (began, &mut self.balancing.meter) {
            meter.moving_ns += (self.clock)().0.saturating_sub(began.0);
        }
    }

    pub(crate) fn cannot_move(&mut self, array: ArrayId, number: u32, why: String) {
        let roster = self.roster(array);
        let (name, index) = (roster.name.clone(), roster.shape.index(number));
        self.fail(ChareError::Migration { array: name, index, why });
    }

    /// Adds a chare that has arrived. Returns its slot.
    pub(crate) fn arrive(&mut self, array: ArrayId, number: u32, moves: u32, round: u32) -> u32 {
        let at = array.0 as usize;
        let mail = &self.mails[at];
        let slot = self.rosters[at].record_arrival(number, moves, |slots| mail.retain_unused(slots));
        self.reductions[at].add_chare(slot, round);
        slot
    }

    /// Delivers the records held for a chare that has arrived.
    pub(crate) fn release(&mut self, array: ArrayId, number: u32, slot: u32) -> Result<(), ChareError> {
        let held = self.transit.release(array, number);
        held.into_iter().try_for_each(|(head, body, debt)| self.put_record(head, slot, &body, debt))
    }

    /// Handles a record for one chare. `moves` is the number of moves after which, as far as the sender knows, the chare
    /// is here.
    pub(crate) fn on_one(
        &mut self,
        from: Pe,
        head: RecordHeader,
        moves: u32,
        body: &[u8],
        debt: CreditDue,
    ) -> Result<(), ChareError> {
        let array = ArrayId(head.array);
        let roster = self.roster(array);
        match roster.location(head.number) {
            Some(Location::Here { slot }) => self.put_record(head, slot, body, debt),
            Some(Location::At(_)) if roster.is_migratable && moves > roster.moves(head.number) => {
                self.transit.hold(array, head, body, debt);
                self.wait(array, Priority::default(), 0);
                Ok(())
            }
            Some(Location::At(at)) if roster.is_migratable => {
                self.forward(from, at, head, body);
                self.return_credit(debt);
                Ok(())
            }
            Some(Location::At(_)) | None => {
                let name = &roster.name;
                let why = format!(
                    "chare {} of array {name} is not on this element: do all elements use the same placement?",
                    head.number
                );
                Err(ChareError::Batch { from, why })
            }
        }
    }

    fn put_record(&mut self, head: RecordHeader, slot: u32, body: &[u8], debt: CreditDue) -> Result<(), ChareError> {
        if head.kind != Kind::Result {
            return self.put_message(head, Slots::Some(&[slot]), body, debt);
        }
        let array = ArrayId(head.array);
        let outcome = postcard::from_bytes(body).map_err(|error| {
            let array = self.roster(array).name.clone();
            ChareError::Message { array, why: error.to_string() }
        })?;
        self.put_outcome_in(array, Slots::Some(&[slot]), outcome);
        Ok(())
    }

    /// Forwards a record to the chare's new location, and notifies its sender.
    fn forward(&mut self, from: Pe, to: Pe, head: RecordHeader, body: &[u8]) {
        let (array, number) = (ArrayId(head.array), head.number);
        let moves = self.roster(array).moves(number);
        let kind = match head.kind {
            Kind::One if moves > 0 => Kind::Sought,
            kind => kind,
        };
        let written = self.outbound.add(to, RecordHeader { kind, ..head }, |out| {
            if kind != Kind::One {
                out.extend_from_slice(&moves.to_le_bytes());
            }
            out.extend_from_slice(body);
            Ok(())
        });
        match written {
            Ok(()) => self.quiescence.counts.sent += 1,
            Err(why) => self.fail(ChareError::Failed(why)),
        }
        if moves > 0 {
            self.send_control(from, Control::ChareMoved { array, number, at: to, moves });
        }
    }

    /// Forwards an item that has waited for a chare.
    pub(crate) fn forward_item<M: Payload>(
        &mut self,
        array: ArrayId,
        slot: u32,
        priority: Priority,
        (work, debt): (Work<M>, CreditDue),
    ) {
        let roster = self.roster(array);
        let number = roster.number(slot);
        match (roster.location(number).expect("the number of a slot"), work) {
            (Location::Here { slot }, work) => return self.put(array, priority, WorkItem::One { slot, work, debt }),
            (Location::At(at), Work::Message(message)) => self.send_to_one(at, array, number, priority, &message),
            (Location::At(at), Work::Outcome(outcome)) => self.post_outcome(at, array, number, &outcome),
        }
        self.return_credit(debt);
    }

    /// Sends a result to a chare on another element.
    pub(crate) fn post_outcome(&mut self, element: Pe, array: ArrayId, number: u32, outcome: &Outcome) {
        let moves = self.roster(array).moves(number);
        let head = RecordHeader { kind: Kind::Result, array: array.0, priority: 0, number };
        let written = self.outbound.add(element, head, |out| {
            out.extend_from_slice(&moves.to_le_bytes());
            *out = postcard::to_extend(outcome, std::mem::take(out))
                .expect("serializing this type into a vector cannot fail");
            Ok(())
        });
        match written {
            Ok(()) => self.quiescence.counts.sent += 1,
            Err(why) => self.fail(ChareError::Failed(why)),
        }
    }
}

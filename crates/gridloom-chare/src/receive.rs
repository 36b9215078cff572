//! Handles the records of batches from other elements.

use super::core::{Core, is_counted};
use super::credit::CreditDue;
use super::error::ChareError;
use super::id::{ArrayId, Pe, Priority};
use super::location_table::Location;
use super::mail::Slots;
use super::record::{HEAD_BYTES, Kind, RecordHeader, number, section};

impl Core {
    /// Handles any record except a chare that moves here.
    ///
    /// # Errors
    /// If an element could not have sent it.
    pub(crate) fn on_record(&mut self, from: Pe, head: RecordHeader, body: &[u8]) -> Result<(), ChareError> {
        let wrong = |why: String| ChareError::Batch { from, why };
        if head.kind == Kind::Control {
            let (control, rest) = postcard::take_from_bytes(body).map_err(|error| wrong(error.to_string()))?;
            if !rest.is_empty() {
                return Err(wrong(format!("{} bytes left over", rest.len())));
            }
            self.quiescence.counts.received += u64::from(is_counted(&control));
            return self.on_control(control);
        }
        self.quiescence.counts.received += 1;
        self.check_array(from, head)?;
        let debt = match head.kind.takes_credit() {
            true => CreditDue::new(from, (HEAD_BYTES + body.len()) as u64),
            false => CreditDue::NONE,
        };
        self.outbound.credits.arrived(&debt);
        match head.kind {
            Kind::One => self.on_one(from, head, 0, body, debt),
            Kind::Sought | Kind::Result => {
                let (moves, body) = number(body).map_err(wrong)?;
                self.on_one(from, head, moves, body, debt)
            }
            Kind::Section => self.on_section(from, head, body, debt),
            Kind::All if self.rosters[head.array as usize].natives().is_empty() => {
                self.return_credit(debt);
                Ok(())
            }
            Kind::All => self.put_message(head, Slots::All, body, debt),
            Kind::Control | Kind::Move => unreachable!("handled apart"),
        }
    }

    /// # Errors
    /// If this element has not created the record's array.
    pub(crate) fn check_array(&self, from: Pe, head: RecordHeader) -> Result<(), ChareError> {
        if (head.array as usize) < self.rosters.len() {
            return Ok(());
        }
        let why = format!("array {} of {}: each element must create all arrays", head.array, self.rosters.len());
        Err(ChareError::Batch { from, why })
    }

    fn on_section(&mut self, from: Pe, head: RecordHeader, body: &[u8], debt: CreditDue) -> Result<(), ChareError> {
        let (numbers, message) = section(head.number, body).map_err(|why| ChareError::Batch { from, why })?;
        let mut here = Vec::new();
        for number in numbers {
            match self.roster(ArrayId(head.array)).location(number) {
                Some(Location::Here { slot }) => here.push(slot),
                _ => {
                    self.on_one(from, RecordHeader { kind: Kind::One, number, ..head }, 0, message, CreditDue::NONE)?
                }
            }
        }
        self.put_message(head, Slots::Some(&here), message, debt)
    }

    /// Adds a received message for chares of this element.
    ///
    /// # Errors
    /// If it is not a valid message.
    pub(crate) fn put_message(
        &mut self,
        head: RecordHeader,
        slots: Slots<'_>,
        bytes: &[u8],
        debt: CreditDue,
    ) -> Result<(), ChareError> {
        let (array, priority) = (ArrayId(head.array), Priority(head.priority));
        let copies = match slots {
            Slots::All => self.roster(array).natives().len(),
            Slots::Some(slots) => slots.len(),
        };
        let debt = debt.shared(copies);
        let put = self.mails[head.array as usize].put_bytes(slots, priority, bytes, debt.clone());
        let count = put.map_err(|why| ChareError::Message { array: self.roster(array).name.clone(), why })?;
        if count == 0 {
            self.return_credit(debt);
        }
        self.wait(array, priority, count);
        Ok(())
    }
}

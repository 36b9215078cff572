//! In-memory checkpoints: each element keeps its own part, and a copy of the part of another element, whose *buddy* it is.
//!
//! ```text
//!  a checkpoint                               after a loss, over new connections
//!  element           its buddy                each element            all others
//!    │── copy ──────────▶│ keeps it             │── its holdings ──────────▶│
//!    │◀──────── kept ────│                      │ all choose the same checkpoint
//!    │ notifies the first element: saved        │── parts to those that lack them ─▶│
//!    │◀── complete ── the first element         │ creates its arrays
//!    │ drops earlier ones                       │── shares: chares that begin there ─▶│
//! ```
//! After a loss, the program continues from the latest checkpoint of which each part is in some memory. Its parts are
//! the chares' states when the program was quiet, so it does not matter whether the first element knew that all had
//! saved.
//!
//! **Promises:** if one element is lost at a time, and its replacement is in place before the next loss, no complete
//! checkpoint is lost. All elements choose the same checkpoint. Notes may arrive in any order.
//!
//! **Does not** detect lost elements or transport notes. The owner does both, and drops notes from before a loss.
//!
//! Source: G. Zheng, L. Shi, L. V. Kalé, *FTC-Charm++: an in-memory checkpoint-based fault tolerant runtime for Charm++ and MPI*, Cluster 2004
//! (double in-memory checkpointing).

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::error::ChareError;
use super::id::Pe;

/// A message between elements about in-memory checkpoints.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum BuddyMessage {
    /// The sender's part of this checkpoint, sent to its buddy.
    Copy { number: u64, part: Vec<u8> },
    /// The buddy has stored the copy.
    Kept { number: u64 },
    /// The first element reports that all elements have saved this checkpoint.
    Complete { number: u64 },
    /// The sender's holdings, sent after a loss.
    Holdings(Has),
    /// A part of element `of` that the receiver lacks.
    Part { of: Pe, number: u64, part: Vec<u8> },
    /// Saved chares of the sender that begin at the receiver.
    Share(Vec<u8>),
    /// The sender knows the program's result.
    Ended,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Has {
    own: BTreeSet<u64>,
    copies: BTreeSet<(Pe, u64)>,
    /// True if the sender knows that some checkpoint was complete.
    has_complete_checkpoint: bool,
}

/// The point from which the program continues after a loss.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RestartPoint {
    /// The beginning: no checkpoint was complete.
    Beginning,
    Checkpoint(u64),
}

/// An element's in-memory checkpoints.
#[derive(Debug)]
pub struct Buddies {
    me: Pe,
    /// The buddy of each element.
    buddies: Vec<Pe>,
    /// This element's parts, by checkpoint.
    own: BTreeMap<u64, Vec<u8>>,
    copies: BTreeMap<(Pe, u64), Vec<u8>>,
    is_begun: bool,
    kept: Option<u64>,
    meeting: Agreement,
}

/// The agreement between elements after a loss.
#[derive(Debug, Default)]
struct Agreement {
    has: BTreeMap<Pe, Has>,
    /// The result, once all elements have reported. An error lists the elements whose parts are lost.
    agreed: Option<Result<RestartPoint, Vec<Pe>>>,
    shares: BTreeMap<Pe, Vec<u8>>,
    ended: BTreeSet<Pe>,
}

impl Buddies {
    /// Creates the state of element `me`. `hosts` has the host of each element. An element's buddy is the next element
    /// on another host if there is one, otherwise the next element.
    ///
    /// # Panics
    /// Panics if there are fewer than two elements, or if `me` is not one of them.
    pub fn new<H: PartialEq>(me: Pe, hosts: &[H]) -> Buddies {
        let count = hosts.len();
        assert!(count > 1 && (me.0 as usize) < count, "element {} of {count} has no buddy", me.0);
        let buddy = |of: usize| {
            let mut others = (1..count).map(|step| (of + step) % count);
            let next = others.clone().next().expect("there is another element");
            Pe(others.find(|other| hosts[*other] != hosts[of]).unwrap_or(next) as u32)
        };
        let buddies = (0..count).map(buddy).collect();
        let (own, copies, kept, meeting) = Default::default();
        Buddies { me, buddies, own, copies, is_begun: false, kept, meeting }
    }

    fn others(&self) -> impl Iterator<Item = Pe> + use<> {
        let (me, count) = (self.me, self.buddies.len() as u32);
        (0..count).map(Pe).filter(move |element| *element != me)
    }

    fn is_buddy_of(&self, element: Pe) -> bool {
        self.buddies.get(element.0 as usize) == Some(&self.me)
    }

    fn all_others(&self, note: &BuddyMessage) -> Vec<(Pe, BuddyMessage)> {
        self.others().map(|element| (element, note.clone())).collect()
    }

    /// Returns the size of all stored parts and copies, bytes.
    pub fn bytes(&self) -> usize {
        self.own.values().chain(self.copies.values()).map(Vec::len).sum()
    }

    /// Records that a checkpoint was complete before this process started.
    pub fn has_begun(&mut self) {
        self.is_begun = true;
    }

    /// Stores this element's part of a checkpoint. Returns the note for its buddy.
    pub fn save(&mut self, number: u64, part: Vec<u8>) -> (Pe, BuddyMessage) {
        // The previous checkpoint is complete; otherwise the first element would not have requested this one.
        self.is_begun |= !self.own.is_empty();
        let last = self.own.last_key_value().map_or(0, |(last, _)| *last);
        self.own.retain(|kept, _| *kept >= last);
        self.own.insert(number, part.clone());
        (self.buddies[self.me.0 as usize], BuddyMessage::Copy { number, part })
    }

    /// Returns the number of a checkpoint whose copy the buddy has stored. Each number is returned once.
    pub fn take_kept(&mut self) -> Option<u64> {
        self.kept.take()
    }

    /// On the first element: records that all elements have saved. Returns the notes to send.
    pub fn complete(&mut self, number: u64) -> Vec<(Pe, BuddyMessage)> {
        self.forget_before(number);
        self.all_others(&BuddyMessage::Complete { number })
    }

    fn forget_before(&mut self, number: u64) {
        self.is_begun = true;
        self.own.retain(|kept, _| *kept >= number);
        self.copies.retain(|(_, kept), _| *kept >= number);
    }

    /// Handles a note. Returns the notes to send.
    pub fn handle(&mut self, from: Pe, note: BuddyMessage) -> Vec<(Pe, BuddyMessage)> {
        match note {
            BuddyMessage::Copy { .. } if !self.is_buddy_of(from) => {}
            BuddyMessage::Copy { number, part } => {
                self.copies.insert((from, number), part);
                return vec![(from, BuddyMessage::Kept { number })];
            }
            BuddyMessage::Kept { number } => self.kept = Some(number),
            BuddyMessage::Complete { number } => self.forget_before(number),
            BuddyMessage::Holdings(has) => {
                self.meeting.has.insert(from, has);
                return self.agree();
            }
            BuddyMessage::Part { of, number, part } if of == self.me => _ = self.own.insert(number, part),
            BuddyMessage::Part { of, .. } if !self.is_buddy_of(of) => {}
            BuddyMessage::Part { of, number, part } => _ = self.copies.insert((of, number), part),
            BuddyMessage::Share(share) => _ = self.meeting.shares.insert(from, share),
            BuddyMessage::Ended => _ = self.meeting.ended.insert(from),
        }
        Vec::new()
    }

    // ---- after a loss

    /// Starts the agreement after an element was lost and replaced. Returns the notes to all other elements.
    pub fn start_agreement(&mut self) -> Vec<(Pe, BuddyMessage)> {
        let (own, copies) = (self.own.keys().copied().collect(), self.copies.keys().copied().collect());
        let has = Has { own, copies, has_complete_checkpoint: self.is_begun };
        self.kept = None;
        self.meeting = Agreement { has: BTreeMap::from([(self.me, has.clone())]), ..Agreement::default() };
        self.all_others(&BuddyMessage::Holdings(has))
    }

    /// Reports whether element `of` or its buddy has the element's part.
    fn is_available(&self, of: Pe, number: u64) -> bool {
        let buddy = self.buddies[of.0 as usize];
        let has = |element: Pe| &self.meeting.has[&element];
        has(of).own.contains(&number) || has(buddy).copies.contains(&(of, number))
    }

    /// Once all elements have reported their holdings: returns the parts that others lack.
    fn agree(&mut self) -> Vec<(Pe, BuddyMessage)> {
        if self.meeting.has.len() < self.buddies.len() {
            return Vec::new();
        }
        let all = || (0..self.buddies.len() as u32).map(Pe);
        let told = self.meeting.has.values();
        let numbers: BTreeSet<u64> =
            told.flat_map(|has| has.own.iter().copied().chain(has.copies.iter().map(|(_, number)| *number))).collect();
        let whole = numbers.iter().rev().find(|number| all().all(|of| self.is_available(of, **number))).copied();
        let is_begun = self.meeting.has.values().any(|has| has.has_complete_checkpoint);
        let missing = |number: u64| all().filter(|of| !self.is_available(*of, number)).collect::<Vec<Pe>>();
        self.meeting.agreed = Some(match whole {
            Some(number) => Ok(RestartPoint::Checkpoint(number)),
            None if !is_begun => Ok(RestartPoint::Beginning),
            None => Err(numbers.iter().map(|number| missing(*number)).min_by_key(Vec::len).unwrap_or(all().collect())),
        });
        let Some(number) = whole else {
            if !is_begun {
                (self.own, self.copies) = Default::default();
            }
            return Vec::new();
        };
        self.own.retain(|kept, _| *kept == number);
        self.copies.retain(|(_, kept), _| *kept == number);
        self.is_begun = true;
        self.missing_parts(number)
    }

    fn missing_parts(&self, number: u64) -> Vec<(Pe, BuddyMessage)> {
        let mut notes = Vec::new();
        let buddy = self.buddies[self.me.0 as usize];
        if !self.meeting.has[&buddy].copies.contains(&(self.me, number))
            && let Some(part) = self.own.get(&number)
        {
            notes.push((buddy, BuddyMessage::Part { of: self.me, number, part: part.clone() }));
        }
        for ((of, _), part) in &self.copies {
            if !self.meeting.has[of].own.contains(&number) {
                notes.push((*of, BuddyMessage::Part { of: *of, number, part: part.clone() }));
            }
        }
        notes
    }

    /// Returns where the program continues, once it is agreed and this element has its part.
    ///
    /// # Errors
    /// Returns [`ChareError::PartsLost`] if an element and its buddy were lost together.
    pub fn agreed(&self) -> Result<Option<RestartPoint>, ChareError> {
        match &self.meeting.agreed {
            None => Ok(None),
            Some(Ok(RestartPoint::Checkpoint(number))) if !self.own.contains_key(number) => Ok(None),
            Some(Ok(agreed)) => Ok(Some(*agreed)),
            Some(Err(parts)) => {
                let buddy = |of: &Pe| (*of, self.buddies[of.0 as usize]);
                Err(ChareError::PartsLost { parts: parts.iter().map(buddy).collect() })
            }
        }
    }

    /// Returns this element's part of a checkpoint.
    ///
    /// # Panics
    /// Panics if that checkpoint was not agreed on.
    pub fn part(&self, number: u64) -> &[u8] {
        &self.own[&number]
    }

    /// Sends each element its share of what this element has ([`Element::shares`](super::Element::shares)).
    pub fn share(&mut self, shares: Vec<Vec<u8>>) -> Vec<(Pe, BuddyMessage)> {
        let mut notes = Vec::new();
        for (element, share) in (0..).map(Pe).zip(shares) {
            match element == self.me {
                true => _ = self.meeting.shares.insert(element, share),
                false => notes.push((element, BuddyMessage::Share(share))),
            }
        }
        notes
    }

    /// Returns the shares of all elements, once they have arrived.
    pub fn take_shares(&mut self) -> Option<Vec<Vec<u8>>> {
        let are_there = self.meeting.shares.len() == self.buddies.len();
        are_there.then(|| std::mem::take(&mut self.meeting.shares).into_values().collect())
    }

    // ---- the end

    /// Records that this element knows the program's result. Returns the notes to all other elements.
    pub fn end(&mut self) -> Vec<(Pe, BuddyMessage)> {
        self.all_others(&BuddyMessage::Ended)
    }

    /// Reports whether an element knows the result, so that it may have exited.
    pub fn has_ended(&self, element: Pe) -> bool {
        self.meeting.ended.contains(&element)
    }

    /// Reports whether all other elements know the result, so that none has to go back any more.
    pub fn have_ended(&self) -> bool {
        self.meeting.ended.len() + 1 == self.buddies.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buddy_is_on_another_host_if_there_is_one() {
        let buddies =
            |hosts: &[u32]| Buddies::new(Pe(0), hosts).buddies.iter().map(|buddy| buddy.0).collect::<Vec<_>>();
        assert_eq!(buddies(&[0, 1, 2]), [1, 2, 0]);
        assert_eq!(buddies(&[0, 0, 1, 1]), [2, 2, 0, 0]);
        assert_eq!(buddies(&[5, 5]), [1, 0]);
    }

    #[test]
    fn a_part_of_no_element_that_has_its_buddy_here_is_not_kept() {
        let mut element = Buddies::new(Pe(0), &[0, 1, 2]);
        for of in [1, 7] {
            element.handle(Pe(1), BuddyMessage::Part { of: Pe(of), number: 0, part: vec![0; 10] });
        }
        assert!(element.handle(Pe(1), BuddyMessage::Copy { number: 0, part: vec![0; 10] }).is_empty());
        assert_eq!(element.bytes(), 0);
        element.handle(Pe(1), BuddyMessage::Part { of: Pe(2), number: 0, part: vec![0; 10] });
        assert_eq!(element.bytes(), 10);
    }

    #[test]
    fn earlier_checkpoints_are_forgotten_once_a_later_one_is_complete() {
        let mut element = Buddies::new(Pe(0), &[0, 1]);
        for number in 0..3 {
            element.save(number, vec![0; 10]);
            element.handle(Pe(1), BuddyMessage::Copy { number, part: vec![0; 10] });
            assert_eq!(element.bytes(), if number == 0 { 20 } else { 40 });
            element.handle(Pe(1), BuddyMessage::Complete { number });
            assert_eq!(element.bytes(), 20);
        }
    }
}

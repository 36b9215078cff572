//! Checkpoints in memory: each element keeps its own part, and a copy of that of another element, whose *buddy* it is.
//!
//! ```text
//!  a checkpoint                               after a loss, over new connections
//!  element           its buddy                each element            all others
//!    │── copy ──────────▶│ keeps it             │── what it has ───────────▶│
//!    │◀──────── kept ────│                      │ all choose the same checkpoint
//!    │ tells the first element: saved           │── parts to those that lack them ─▶│
//!    │◀── complete ── the first element         │ makes its arrays
//!    │ forgets earlier ones                     │── shares: chares that begin there ─▶│
//! ```
//! The checkpoint after a loss is the latest of which each part is in some memory. Its parts are those that chares had when all was quiet, so
//! it does not matter whether the first element knew that all have saved.
//!
//! **Promises:** if one element is lost at a time, with its successor in its place, no checkpoint that was complete is lost. All elements choose the
//! same checkpoint. Notes may come in any order.
//!
//! **Does not**: notice that an element is lost, or carry notes. Its owner does, and drops notes of the time before a loss.
//!
//! Source: G. Zheng, L. Shi, L. V. Kalé, *FTC-Charm++: an in-memory checkpoint-based fault tolerant runtime for Charm++ and MPI*, Cluster 2004
//! (double in-memory checkpointing).

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::error::ChareError;
use super::id::Pe;

/// What elements tell one another of checkpoints in memory.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Note {
    /// To the buddy: the sender's part of that checkpoint.
    Copy { number: u64, part: Vec<u8> },
    /// The copy is kept.
    Kept { number: u64 },
    /// From the first element: all have saved that checkpoint.
    Complete { number: u64 },
    /// After a loss: what the sender has.
    Has(Has),
    /// A part that the receiver lacks, of that element.
    Part { of: Pe, number: u64, part: Vec<u8> },
    /// What was saved at the sender of chares that begin at the receiver.
    Share(Vec<u8>),
    /// The sender knows the value with which the program has ended.
    Ended,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Has {
    own: BTreeSet<u64>,
    copies: BTreeSet<(Pe, u64)>,
    /// Whether it knows that a checkpoint was complete.
    is_begun: bool,
}

/// Where the program goes on after a loss.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Agreed {
    /// No checkpoint was complete.
    Beginning,
    Checkpoint(u64),
}

/// What an element has of checkpoints in memory.
#[derive(Debug)]
pub struct Buddies {
    me: Pe,
    /// By element: its buddy.
    buddies: Vec<Pe>,
    /// This element's parts, by checkpoint.
    own: BTreeMap<u64, Vec<u8>>,
    copies: BTreeMap<(Pe, u64), Vec<u8>>,
    is_begun: bool,
    kept: Option<u64>,
    meeting: Meeting,
}

/// How elements agree after a loss.
#[derive(Debug, Default)]
struct Meeting {
    has: BTreeMap<Pe, Has>,
    /// Once all have told. The elements whose parts are nowhere, if so.
    agreed: Option<Result<Agreed, Vec<Pe>>>,
    shares: BTreeMap<Pe, Vec<u8>>,
    ended: BTreeSet<Pe>,
}

impl Buddies {
    /// `hosts` has the host of each element. An element's buddy is the next one on another host if there is one, else the next one.
    ///
    /// # Panics
    /// If there are fewer than two elements, or `me` is none of them.
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

    fn all_others(&self, note: &Note) -> Vec<(Pe, Note)> {
        self.others().map(|element| (element, note.clone())).collect()
    }

    /// Bytes of all that is kept.
    pub fn bytes(&self) -> usize {
        self.own.values().chain(self.copies.values()).map(Vec::len).sum()
    }

    /// A checkpoint was complete before this process was there.
    pub fn has_begun(&mut self) {
        self.is_begun = true;
    }

    /// This element has saved that: a note for its buddy.
    pub fn save(&mut self, number: u64, part: Vec<u8>) -> (Pe, Note) {
        // The one before is complete, or the first element would not have asked for this one.
        self.is_begun |= !self.own.is_empty();
        let last = self.own.last_key_value().map_or(0, |(last, _)| *last);
        self.own.retain(|kept, _| *kept >= last);
        self.own.insert(number, part.clone());
        (self.buddies[self.me.0 as usize], Note::Copy { number, part })
    }

    /// The number of a checkpoint of which the buddy has kept the copy, once.
    pub fn take_kept(&mut self) -> Option<u64> {
        self.kept.take()
    }

    /// At the first element: all have saved.
    pub fn complete(&mut self, number: u64) -> Vec<(Pe, Note)> {
        self.forget_before(number);
        self.all_others(&Note::Complete { number })
    }

    fn forget_before(&mut self, number: u64) {
        self.is_begun = true;
        self.own.retain(|kept, _| *kept >= number);
        self.copies.retain(|(_, kept), _| *kept >= number);
    }

    /// A note has come; the notes that are to go now.
    pub fn on_note(&mut self, from: Pe, note: Note) -> Vec<(Pe, Note)> {
        match note {
            Note::Copy { .. } if !self.is_buddy_of(from) => {}
            Note::Copy { number, part } => {
                self.copies.insert((from, number), part);
                return vec![(from, Note::Kept { number })];
            }
            Note::Kept { number } => self.kept = Some(number),
            Note::Complete { number } => self.forget_before(number),
            Note::Has(has) => {
                self.meeting.has.insert(from, has);
                return self.agree();
            }
            Note::Part { of, number, part } if of == self.me => _ = self.own.insert(number, part),
            Note::Part { of, .. } if !self.is_buddy_of(of) => {}
            Note::Part { of, number, part } => _ = self.copies.insert((of, number), part),
            Note::Share(share) => _ = self.meeting.shares.insert(from, share),
            Note::Ended => _ = self.meeting.ended.insert(from),
        }
        Vec::new()
    }

    // ---- after a loss

    /// An element was lost, and another process is there in its place: what this one tells all others.
    pub fn meet(&mut self) -> Vec<(Pe, Note)> {
        let (own, copies) = (self.own.keys().copied().collect(), self.copies.keys().copied().collect());
        let has = Has { own, copies, is_begun: self.is_begun };
        self.kept = None;
        self.meeting = Meeting { has: BTreeMap::from([(self.me, has.clone())]), ..Meeting::default() };
        self.all_others(&Note::Has(has))
    }

    /// Whether that element, or its buddy, has the element's part.
    fn is_somewhere(&self, of: Pe, number: u64) -> bool {
        let buddy = self.buddies[of.0 as usize];
        let has = |element: Pe| &self.meeting.has[&element];
        has(of).own.contains(&number) || has(buddy).copies.contains(&(of, number))
    }

    /// Once all have told what they have: the parts that others lack.
    fn agree(&mut self) -> Vec<(Pe, Note)> {
        if self.meeting.has.len() < self.buddies.len() {
            return Vec::new();
        }
        let all = || (0..self.buddies.len() as u32).map(Pe);
        let told = self.meeting.has.values();
        let numbers: BTreeSet<u64> =
            told.flat_map(|has| has.own.iter().copied().chain(has.copies.iter().map(|(_, number)| *number))).collect();
        let whole = numbers.iter().rev().find(|number| all().all(|of| self.is_somewhere(of, **number))).copied();
        let is_begun = self.meeting.has.values().any(|has| has.is_begun);
        let missing = |number: u64| all().filter(|of| !self.is_somewhere(*of, number)).collect::<Vec<Pe>>();
        self.meeting.agreed = Some(match whole {
            Some(number) => Ok(Agreed::Checkpoint(number)),
            None if !is_begun => Ok(Agreed::Beginning),
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

    fn missing_parts(&self, number: u64) -> Vec<(Pe, Note)> {
        let mut notes = Vec::new();
        let buddy = self.buddies[self.me.0 as usize];
        if !self.meeting.has[&buddy].copies.contains(&(self.me, number))
            && let Some(part) = self.own.get(&number)
        {
            notes.push((buddy, Note::Part { of: self.me, number, part: part.clone() }));
        }
        for ((of, _), part) in &self.copies {
            if !self.meeting.has[of].own.contains(&number) {
                notes.push((*of, Note::Part { of: *of, number, part: part.clone() }));
            }
        }
        notes
    }

    /// Where the program goes on, once that is known and this element has its part.
    ///
    /// # Errors
    /// [`ChareError::PartsLost`] if an element and its buddy were lost together.
    pub fn agreed(&self) -> Result<Option<Agreed>, ChareError> {
        match &self.meeting.agreed {
            None => Ok(None),
            Some(Ok(Agreed::Checkpoint(number))) if !self.own.contains_key(number) => Ok(None),
            Some(Ok(agreed)) => Ok(Some(*agreed)),
            Some(Err(parts)) => {
                let buddy = |of: &Pe| (*of, self.buddies[of.0 as usize]);
                Err(ChareError::PartsLost { parts: parts.iter().map(buddy).collect() })
            }
        }
    }

    /// This element's part of that checkpoint.
    ///
    /// # Panics
    /// If it was not agreed on.
    pub fn part(&self, number: u64) -> &[u8] {
        &self.own[&number]
    }

    /// Gives each element what this one has for it ([`Element::shares`](super::Element::shares)).
    pub fn share(&mut self, shares: Vec<Vec<u8>>) -> Vec<(Pe, Note)> {
        let mut notes = Vec::new();
        for (element, share) in (0..).map(Pe).zip(shares) {
            match element == self.me {
                true => _ = self.meeting.shares.insert(element, share),
                false => notes.push((element, Note::Share(share))),
            }
        }
        notes
    }

    /// The shares of all elements, once they are there.
    pub fn take_shares(&mut self) -> Option<Vec<Vec<u8>>> {
        let are_there = self.meeting.shares.len() == self.buddies.len();
        are_there.then(|| std::mem::take(&mut self.meeting.shares).into_values().collect())
    }

    // ---- the end

    /// This element knows the value with which the program has ended: what it tells all others.
    pub fn end(&mut self) -> Vec<(Pe, Note)> {
        self.all_others(&Note::Ended)
    }

    /// Whether that element does, so that it may be gone.
    pub fn has_ended(&self, element: Pe) -> bool {
        self.meeting.ended.contains(&element)
    }

    /// Whether all others know it too, so that none has to go back any more.
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
            element.on_note(Pe(1), Note::Part { of: Pe(of), number: 0, part: vec![0; 10] });
        }
        assert!(element.on_note(Pe(1), Note::Copy { number: 0, part: vec![0; 10] }).is_empty());
        assert_eq!(element.bytes(), 0);
        element.on_note(Pe(1), Note::Part { of: Pe(2), number: 0, part: vec![0; 10] });
        assert_eq!(element.bytes(), 10);
    }

    #[test]
    fn earlier_checkpoints_are_forgotten_once_a_later_one_is_complete() {
        let mut element = Buddies::new(Pe(0), &[0, 1]);
        for number in 0..3 {
            element.save(number, vec![0; 10]);
            element.on_note(Pe(1), Note::Copy { number, part: vec![0; 10] });
            assert_eq!(element.bytes(), if number == 0 { 20 } else { 40 });
            element.on_note(Pe(1), Note::Complete { number });
            assert_eq!(element.bytes(), 20);
        }
    }
}

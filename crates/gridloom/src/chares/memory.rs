//! Checkpoints in the memory of elements: what an element does when another one is lost.
//!
//! ```text
//!  command                  survivors                        a new process
//!    │ an element was killed   │ a connection is closed
//!    │ epoch 1 ─▶ file         │ close all, wait for the file
//!    │── starts ──────────────────────────────────────────────▶│ reads the file
//!                              │◀──── connect again, epoch 1 ───▶│
//!                              │  agree on a checkpoint (`Buddies`), make the arrays, restore, go on
//! ```
//! What an epoch is, and how elements learn of it: `course`. After a change of the number of elements none has anything in its memory: until the
//! next checkpoint they go back to what was saved for that change.

use std::collections::VecDeque;
use std::time::Instant;

use gridloom_base::say;
use gridloom_chare::{Agreed, Buddies, Element, Note, Pe};
use gridloom_process::{ProcessError, ProcessWorld};
use serde::{Deserialize, Serialize};

use super::epochs::{Epochs, Generation};
use super::kept::Origin;
use super::links::Links;
use super::places::Places;
use crate::Error;

/// How elements keep checkpoints in memory.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct InMemory {
    /// One of so many that the program asks for.
    pub every: u64,
}

/// An element's part in it.
#[derive(Debug)]
pub(super) struct Memory {
    epochs: Epochs,
    every: u64,
    /// Of the generation in which this memory began.
    since: u64,
    buddies: Buddies,
    has_complete: bool,
    /// When the loss was noticed that the program goes back for.
    lost_at: Option<Instant>,
}

impl Memory {
    /// The memory of an element of that generation.
    pub(super) fn new(kept: &InMemory, epochs: &Epochs, places: &Places, since: u64) -> Memory {
        let hosts: Vec<&str> = places.elements.iter().map(|(host, _)| host.as_str()).collect();
        let mut buddies = Buddies::new(places.me(), &hosts);
        let has_complete = epochs.has_complete(since);
        if has_complete {
            buddies.has_begun();
        }
        Memory { epochs: epochs.clone(), every: kept.every, since, buddies, has_complete, lost_at: None }
    }

    /// An element was lost: all go back.
    pub(super) fn note_loss(&mut self) {
        self.lost_at.get_or_insert_with(Instant::now);
    }

    /// After a loss, over new connections: the checkpoint from which all go on, or none from the beginning.
    ///
    /// # Errors
    /// If there is none any more, or another element is lost.
    pub(super) fn agree(
        &mut self,
        world: &mut dyn ProcessWorld,
        links: &mut Links,
        generation: &Generation,
    ) -> Result<Option<u64>, Error> {
        if generation.epoch == self.since {
            return Ok(None);
        }
        let notes = self.buddies.meet();
        links.tell_all(world, notes)?;
        loop {
            match self.buddies.agreed()? {
                Some(Agreed::Beginning) => return Ok(None),
                Some(Agreed::Checkpoint(number)) => return Ok(Some(number)),
                None => self.next_note(world, links)?,
            }
        }
    }

    fn next_note(&mut self, world: &mut dyn ProcessWorld, links: &mut Links) -> Result<(), Error> {
        let (from, note) = links.next_note(world, |element| self.buddies.has_ended(element))?;
        let notes = self.buddies.on_note(from, note);
        links.tell_all(world, notes)
    }

    /// Has the first element ask for checkpoints.
    pub(super) fn keep(&self, element: &mut Element, from: Option<u64>) {
        element.keep_checkpoints(self.every, from.map_or(0, |number| number + 1));
    }

    /// All arrays are made: gives the chares what they were.
    ///
    /// # Errors
    /// If another element is lost, or these are not the arrays that were saved.
    pub(super) fn restore(
        &mut self,
        world: &mut dyn ProcessWorld,
        links: &mut Links,
        element: &mut Element,
        from: u64,
    ) -> Result<(), Error> {
        let shares = element.shares(self.buddies.part(from))?;
        let notes = self.buddies.share(shares);
        links.tell_all(world, notes)?;
        let shares = loop {
            match self.buddies.take_shares() {
                Some(shares) => break shares,
                None => self.next_note(world, links)?,
            }
        };
        Ok(element.restore(&shares)?)
    }

    /// This element has gone back if some were lost, and goes on.
    pub(super) fn tell_return(&mut self, element: &Element, generation: &Generation, from: &Origin) {
        let lost_at = self.lost_at.take();
        if generation.epoch > self.since && element.me() == Pe(0) {
            let from = match from {
                Origin::Beginning => "the beginning".into(),
                Origin::Folder(..) | Origin::Parts(_) => "the checkpoint before that".into(),
                Origin::Memory(number) => format!("checkpoint {number}"),
            };
            let took = |lost_at: Instant| format!(", {:.1} ms after the loss", lost_at.elapsed().as_secs_f64() * 1e3);
            say!("gridloom: all elements go on from {from}{}", lost_at.map(took).unwrap_or_default());
        }
    }

    /// Keeps what the element is to save, and takes in notes of others.
    ///
    /// # Errors
    /// If a chare cannot be saved, or a connection fails.
    pub(super) fn run(
        &mut self,
        world: &mut dyn ProcessWorld,
        links: &mut Links,
        element: &mut Element,
        came: VecDeque<(Pe, Note)>,
    ) -> Result<(), Error> {
        let mut notes = Vec::new();
        for (from, note) in came {
            notes.extend(self.buddies.on_note(from, note));
        }
        if let Some((number, part)) = element.take_saved()? {
            notes.push(self.buddies.save(number, part));
        }
        if let Some(number) = self.buddies.take_kept() {
            element.saved(number);
        }
        if let Some(number) = element.take_complete() {
            if !std::mem::replace(&mut self.has_complete, true) {
                self.epochs.note_complete(self.since)?;
            }
            notes.extend(self.buddies.complete(number));
            element.go_on();
        }
        links.tell_all(world, notes)
    }

    /// The program has ended here. Waits until it has on all others, since what one of them may still need is in this memory.
    ///
    /// # Errors
    /// If an element is lost before.
    pub(super) fn end(
        &mut self,
        world: &mut dyn ProcessWorld,
        links: &mut Links,
        element: &mut Element,
    ) -> Result<(), Error> {
        links.post(world, element)?;
        let notes = self.buddies.end();
        links.tell_all(world, notes)?;
        while !self.buddies.have_ended() {
            self.next_note(world, links)?;
        }
        // All know the value. An element that is killed from now on, in what follows the program, is not needed any more.
        self.epochs.end()
    }
}

/// Whether an error says that another element is gone.
pub(super) fn is_loss(error: &Error) -> bool {
    matches!(
        error,
        Error::Chares(gridloom_chare::ChareError::Lost { .. }) | Error::Process(ProcessError::Closed { .. })
    )
}

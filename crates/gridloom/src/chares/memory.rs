//! Checkpoints in the memory of elements: how an element recovers when another one is lost.
//!
//! ```text
//!  command                  survivors                        a new process
//!    │ an element was killed   │ a connection is closed
//!    │ epoch 1 ─▶ file         │ close all, wait for the file
//!    │── starts ──────────────────────────────────────────────▶│ reads the file
//!                              │◀──── connect again, epoch 1 ───▶│
//!                              │  agree on a checkpoint (`Buddies`), make the arrays, restore, continue
//! ```
//! `course` explains epochs and how elements learn of them. After a change of the number of elements no element has a
//! checkpoint in its memory: until the next checkpoint, they fall back to the state saved for that change.

use std::collections::VecDeque;
use std::time::Instant;

use gridloom_base::stderr_line;
use gridloom_chare::{Buddies, BuddyMessage, Element, Pe, RestartPoint};
use gridloom_process::{ProcessError, ProcessWorld};

use super::checkpoints::Origin;
use super::links::Links;
use super::options::InMemory;
use super::placement::ElementPlacement;
use super::run_folder::{Generation, RunFolder};
use crate::Error;

/// An element's part in checkpoints in memory.
#[derive(Debug)]
pub(super) struct Memory {
    epochs: RunFolder,
    every: u64,
    /// The epoch in which this memory began.
    since: u64,
    buddies: Buddies,
    has_complete: bool,
    /// When the loss that caused the current recovery was noticed.
    lost_at: Option<Instant>,
}

impl Memory {
    /// Creates the memory of an element of that generation.
    pub(super) fn new(kept: &InMemory, epochs: &RunFolder, places: &ElementPlacement, since: u64) -> Memory {
        let hosts: Vec<&str> = places.elements.iter().map(|(host, _)| host.as_str()).collect();
        let mut buddies = Buddies::new(places.me(), &hosts);
        let has_complete = epochs.has_complete(since);
        if has_complete {
            buddies.has_begun();
        }
        Memory { epochs: epochs.clone(), every: kept.every, since, buddies, has_complete, lost_at: None }
    }

    /// Notes that an element was lost and all elements go back to a checkpoint.
    pub(super) fn note_loss(&mut self) {
        self.lost_at.get_or_insert_with(Instant::now);
    }

    /// After a loss, over new connections: returns the checkpoint from which all elements resume, or `None` to restart
    /// from the beginning.
    ///
    /// # Errors
    /// If no checkpoint is left, or another element is lost.
    pub(super) fn agree(
        &mut self,
        world: &mut dyn ProcessWorld,
        links: &mut Links,
        generation: &Generation,
    ) -> Result<Option<u64>, Error> {
        if generation.epoch == self.since {
            return Ok(None);
        }
        let notes = self.buddies.start_agreement();
        links.send_notes(world, notes)?;
        loop {
            match self.buddies.agreed()? {
                Some(RestartPoint::Beginning) => return Ok(None),
                Some(RestartPoint::Checkpoint(number)) => return Ok(Some(number)),
                None => self.next_note(world, links)?,
            }
        }
    }

    fn next_note(&mut self, world: &mut dyn ProcessWorld, links: &mut Links) -> Result<(), Error> {
        let (from, note) = links.next_note(world, |element| self.buddies.has_ended(element))?;
        let notes = self.buddies.handle(from, note);
        links.send_notes(world, notes)
    }

    /// Makes the first element request checkpoints.
    pub(super) fn keep(&self, element: &mut Element, from: Option<u64>) {
        element.keep_checkpoints(self.every, from.map_or(0, |number| number + 1));
    }

    /// Called when all arrays are made. Restores the chares.
    ///
    /// # Errors
    /// If another element is lost, or the saved arrays differ from these.
    pub(super) fn restore(
        &mut self,
        world: &mut dyn ProcessWorld,
        links: &mut Links,
        element: &mut Element,
        from: u64,
    ) -> Result<(), Error> {
        let shares = element.shares(self.buddies.part(from))?;
        let notes = self.buddies.share(shares);
        links.send_notes(world, notes)?;
        let shares = loop {
            match self.buddies.take_shares() {
                Some(shares) => break shares,
                None => self.next_note(world, links)?,
            }
        };
        Ok(element.restore(&shares)?)
    }

    /// Logs that the elements have recovered from a loss, if there was one.
    pub(super) fn log_recovery(&mut self, element: &Element, generation: &Generation, from: &Origin) {
        let lost_at = self.lost_at.take();
        if generation.epoch > self.since && element.me() == Pe(0) {
            let from = match from {
                Origin::Beginning => "the beginning".into(),
                Origin::Folder(..) | Origin::Parts(_) => "the checkpoint before that".into(),
                Origin::Memory(number) => format!("checkpoint {number}"),
            };
            let took = |lost_at: Instant| format!(", {:.1} ms after the loss", lost_at.elapsed().as_secs_f64() * 1e3);
            stderr_line!("gridloom: all elements resume from {from}{}", lost_at.map(took).unwrap_or_default());
        }
    }

    /// Keeps what the element has to save, and processes notes from others.
    ///
    /// # Errors
    /// If a chare cannot be saved, or a connection fails.
    pub(super) fn run(
        &mut self,
        world: &mut dyn ProcessWorld,
        links: &mut Links,
        element: &mut Element,
        came: VecDeque<(Pe, BuddyMessage)>,
    ) -> Result<(), Error> {
        let mut notes = Vec::new();
        for (from, note) in came {
            notes.extend(self.buddies.handle(from, note));
        }
        if let Some((number, part)) = element.take_part()? {
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
            element.resume();
        }
        links.send_notes(world, notes)
    }

    /// Called when the program has ended here. Waits until it has ended on all other elements, since they may still
    /// need data in this memory.
    ///
    /// # Errors
    /// If an element is lost before that.
    pub(super) fn end(
        &mut self,
        world: &mut dyn ProcessWorld,
        links: &mut Links,
        element: &mut Element,
    ) -> Result<(), Error> {
        links.send_all(world, element)?;
        let notes = self.buddies.end();
        links.send_notes(world, notes)?;
        while !self.buddies.have_ended() {
            self.next_note(world, links)?;
        }
        // All elements know the value. One that is killed from now on is not needed any more.
        self.epochs.end()
    }
}

/// True if an error means that another element is lost.
pub(super) fn is_loss(error: &Error) -> bool {
    matches!(
        error,
        Error::Chares(gridloom_chare::ChareError::Lost { .. }) | Error::Process(ProcessError::Closed { .. })
    )
}

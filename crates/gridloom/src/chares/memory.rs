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
//! The *epoch* counts the elements that were lost. A connection serves one epoch, so nothing of the time before a loss comes after it. The
//! command is the one that counts, since only it knows of an end whether the process was killed.

use std::collections::VecDeque;
use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::Instant;

use gridloom_base::say;
use gridloom_base::time::{MILLISECOND_NS, SECOND_NS};
use gridloom_chare::{Agreed, Buddies, Element, Note, Pe};
use gridloom_process::{ProcessError, ProcessWorld};
use serde::{Deserialize, Serialize};

use super::links::Links;
use super::places::Places;
use crate::Error;

/// For so long an element waits for the command to tell what comes of a loss.
const VERDICT_NS: u64 = 30 * SECOND_NS;
const LOOK_NS: u64 = MILLISECOND_NS;

/// How elements keep checkpoints in memory.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct InMemory {
    /// For the files by which the command tells elements of losses.
    pub folder: String,
    /// One of so many that the program asks for.
    pub every: u64,
}

/// What the command tells of losses, in a file.
#[derive(Debug)]
pub struct Epochs(PathBuf);

/// What comes of a loss.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verdict {
    /// So many elements were lost, and each has a successor.
    Epoch(u64),
    /// No other process comes in its place: the program has ended, or fails. That is final.
    Over,
}

fn cannot(what: &str, path: &std::path::Path, error: &std::io::Error) -> Error {
    Error::Input(format!("checkpoints in memory: cannot {what} {}: {error}", path.display()))
}

impl Epochs {
    pub fn new(folder: impl Into<PathBuf>) -> Epochs {
        Epochs(folder.into())
    }

    /// So many elements were lost, and each gets a successor.
    ///
    /// # Errors
    /// If that cannot be written.
    pub fn begin(&self, epoch: u64) -> Result<(), Error> {
        self.write("epoch", &epoch.to_string())
    }

    /// From now on no lost element gets a successor.
    ///
    /// # Errors
    /// If that cannot be written.
    pub fn end(&self) -> Result<(), Error> {
        self.write("epoch", "over")
    }

    fn write(&self, name: &str, text: &str) -> Result<(), Error> {
        // Elements and the command may write at once.
        let (path, new) = (self.0.join(name), self.0.join(format!("{name}-{}.new", std::process::id())));
        fs::write(&new, text).and_then(|()| fs::rename(&new, &path)).map_err(|error| cannot("write", &path, &error))
    }

    /// Whether no lost element gets a successor any more.
    ///
    /// # Errors
    /// If that cannot be read.
    pub fn is_over(&self) -> Result<bool, Error> {
        Ok(self.read()? == Verdict::Over)
    }

    fn read(&self) -> Result<Verdict, Error> {
        let path = self.0.join("epoch");
        match fs::read_to_string(&path) {
            Ok(text) => Ok(text.parse().map_or(Verdict::Over, Verdict::Epoch)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Verdict::Epoch(0)),
            Err(error) => Err(cannot("read", &path, &error)),
        }
    }

    /// A checkpoint was complete: a process that comes later cannot know it otherwise, if it comes in the place of all that did.
    fn note_complete(&self) -> Result<(), Error> {
        self.write("complete", "")
    }

    fn has_complete(&self) -> bool {
        self.0.join("complete").exists()
    }
}

/// An element's part in it.
#[derive(Debug)]
pub(super) struct Memory {
    epochs: Epochs,
    every: u64,
    pub(super) epoch: u64,
    buddies: Buddies,
    has_complete: bool,
    /// When the loss was noticed that the program goes back for.
    lost_at: Option<Instant>,
}

impl Memory {
    /// # Errors
    /// If the command's file cannot be read.
    pub(super) fn new(kept: &InMemory, places: &Places) -> Result<Memory, Error> {
        let epochs = Epochs::new(&kept.folder);
        let hosts: Vec<&str> = places.elements.iter().map(|(host, _)| host.as_str()).collect();
        let mut buddies = Buddies::new(places.me(), &hosts);
        let epoch = match epochs.read()? {
            Verdict::Epoch(epoch) => epoch,
            Verdict::Over => 0,
        };
        let has_complete = epochs.has_complete();
        if has_complete {
            buddies.has_begun();
        }
        Ok(Memory { epochs, every: kept.every, epoch, buddies, has_complete, lost_at: None })
    }

    /// Whether elements that have not connected for long may still do so: after a loss they come when the entry method that they run has ended.
    ///
    /// # Errors
    /// If the command's file cannot be read.
    pub(super) fn may_come(&self) -> Result<bool, Error> {
        Ok(self.epoch > 0 && !self.epochs.is_over()?)
    }

    /// Waits for what comes of a loss: whether the program goes on, from another epoch.
    ///
    /// # Errors
    /// If the command's file cannot be read.
    pub(super) fn begin_again(&mut self, world: &mut dyn ProcessWorld) -> Result<bool, Error> {
        self.lost_at.get_or_insert_with(Instant::now);
        let until = world.now() + VERDICT_NS;
        loop {
            match self.epochs.read()? {
                Verdict::Over => return Ok(false),
                Verdict::Epoch(epoch) if epoch > self.epoch => {
                    self.epoch = epoch;
                    return Ok(true);
                }
                Verdict::Epoch(_) if world.now() >= until => return Ok(false),
                Verdict::Epoch(_) => world.sleep_until(world.now() + LOOK_NS)?,
            }
        }
    }

    /// After a loss, over new connections: the checkpoint from which all go on, or none from the beginning.
    ///
    /// # Errors
    /// If there is none any more, or another element is lost.
    pub(super) fn agree(&mut self, world: &mut dyn ProcessWorld, links: &mut Links) -> Result<Option<u64>, Error> {
        if self.epoch == 0 {
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
        from: Option<u64>,
    ) -> Result<(), Error> {
        if let Some(number) = from {
            let shares = element.shares(self.buddies.part(number))?;
            let notes = self.buddies.share(shares);
            links.tell_all(world, notes)?;
            let shares = loop {
                match self.buddies.take_shares() {
                    Some(shares) => break shares,
                    None => self.next_note(world, links)?,
                }
            };
            element.restore(&shares)?;
            if element.me() == Pe(0) {
                element.go_on();
            }
        }
        let lost_at = self.lost_at.take();
        if self.epoch > 0 && element.me() == Pe(0) {
            let from = from.map_or("the beginning".into(), |number| format!("checkpoint {number}"));
            let took = |lost_at: Instant| format!(", {:.1} ms after the loss", lost_at.elapsed().as_secs_f64() * 1e3);
            say!("gridloom: all elements go on from {from}{}", lost_at.map(took).unwrap_or_default());
        }
        Ok(())
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
                self.epochs.note_complete()?;
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

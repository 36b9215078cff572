//! How the number of elements changes while a program runs, and how elements learn of lost elements.
//!
//! ```text
//!  gridloom chares resize 4     command             elements
//!    │── wanted ─▶ file          │                   │ all is quiet, and a chare wants to save
//!    │                           │                   │ the first one reads the file, and all save
//!    │                           │◀─ request, bell ──│ the first one, when all have; then all end, and wait
//!    │                           │ epoch 1 ─▶ file   │
//!    │                           │── starts the third and the fourth
//!    │◀──────── reads it         │                   │ all four read it, connect, make their arrays, restore, continue
//! ```
//! The *epoch* counts losses after which a successor starts, and changes of the number of elements. A connection serves
//! one epoch, so nothing sent before arrives after it. Only the command begins epochs: it knows whether a process that
//! ended was killed, and it puts simultaneous events into an order. A *generation* is the set of elements of an epoch.
//! In simulation the first element takes the part of the command.
//!
//! **Promise:** a request of an epoch that is over, because an element was lost meanwhile, has no effect.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gridloom_base::time::{MILLISECOND_NS, SECOND_NS};
use gridloom_chare::{ChareError, Element, Pe, ResizePolicy};
use gridloom_process::{Incoming, ProcessError, ProcessMessage, ProcessWorld};

use super::links::{Early, parse_hello};
use super::options::{ElementLimits, Resizing, Restart};
use super::placement::ElementPlacement;
use super::run_folder::{Decision, Generation, ResizeRequest, RunFolder};
use crate::Error;

/// Time for which an element waits for the command's decision after a loss or a request.
const VERDICT_NS: u64 = 30 * SECOND_NS;
const POLL_NS: u64 = MILLISECOND_NS;
/// Type of the message that makes a simulated element that has left check the state again.
const WAKE: &str = "chares:wake";

/// State that the elements of a simulation share.
#[derive(Debug, Default)]
pub(super) struct Shared {
    generation: Option<Generation>,
    /// The states that all elements saved for a change of their number.
    parts: BTreeMap<Pe, Vec<u8>>,
    /// True when the program has ended.
    is_over: bool,
}

/// How an element learns its generation.
#[derive(Clone, Debug)]
pub(super) enum Membership {
    /// The elements never change.
    Fixed,
    Command {
        epochs: RunFolder,
        bounds: ElementLimits,
    },
    Simulated(Arc<Mutex<Shared>>),
}

impl Membership {
    pub(super) fn of(places: &ElementPlacement, world: &dyn ProcessWorld, shared: &Arc<Mutex<Shared>>) -> Membership {
        match world.is_simulated() {
            true => Membership::Simulated(shared.clone()),
            false => Membership::real(places),
        }
    }

    /// Returns the membership of an element that is not simulated.
    pub(super) fn real(places: &ElementPlacement) -> Membership {
        match &places.resizing {
            Some(Resizing { folder, bounds }) => {
                Membership::Command { epochs: RunFolder::new(folder), bounds: bounds.clone() }
            }
            None => Membership::Fixed,
        }
    }

    /// Returns the generation of this element when it begins.
    ///
    /// # Errors
    /// If the command's file cannot be read.
    pub(super) fn first(&self, places: &ElementPlacement) -> Result<Generation, Error> {
        let own = || Generation {
            elements: places.elements.clone(),
            restart: places.restart.clone(),
            ..Generation::default()
        };
        match self {
            Membership::Command { epochs, .. } => Ok(epochs.generation()?.unwrap_or_else(own)),
            Membership::Fixed | Membership::Simulated(_) => Ok(own()),
        }
    }

    fn verdict(&self) -> Result<Option<Decision>, Error> {
        match self {
            Membership::Fixed => Ok(None),
            Membership::Command { epochs, .. } => epochs.verdict(),
            Membership::Simulated(shared) => Ok(lock(shared).generation.clone().map(Decision::Continue)),
        }
    }

    /// Returns the generation after that epoch, if it has begun.
    ///
    /// # Errors
    /// If the command's file cannot be read.
    pub(super) fn next(&self, epoch: u64) -> Result<Option<Generation>, Error> {
        Ok(match self.verdict()? {
            Some(Decision::Continue(generation)) if generation.epoch > epoch => Some(generation),
            _ => None,
        })
    }

    /// Waits for the next generation; returns `None` if there is none.
    ///
    /// # Errors
    /// If the command's file cannot be read.
    pub(super) fn await_next(&self, world: &mut dyn ProcessWorld, epoch: u64) -> Result<Option<Generation>, Error> {
        let until = world.now() + VERDICT_NS;
        while world.now() < until && self.verdict()? != Some(Decision::Over) {
            if let Some(generation) = self.next(epoch)? {
                return Ok(Some(generation));
            }
            world.sleep_until(world.now() + POLL_NS)?;
        }
        Ok(None)
    }

    /// True if elements that have not connected for a long time may still do so: after a loss they connect when their
    /// current entry method has ended.
    ///
    /// # Errors
    /// If the command's file cannot be read.
    pub(super) fn may_still_connect(&self, epoch: u64) -> Result<bool, Error> {
        Ok(epoch > 0
            && matches!(self, Membership::Command { .. })
            && !matches!(self.verdict()?, None | Some(Decision::Over)))
    }

    pub(super) fn epochs(&self) -> Option<&RunFolder> {
        if let Membership::Command { epochs, .. } = self { Some(epochs) } else { None }
    }

    /// Lets the number of elements change, where that is possible.
    pub(super) fn let_resize(&self, places: &ElementPlacement, element: &mut Element) {
        let owner = match self {
            Membership::Fixed => return,
            Membership::Command { epochs, bounds } => {
                PendingResize { epochs: Some(epochs.clone()), bounds: bounds.clone() }
            }
            Membership::Simulated(_) => {
                let most = places.elements.len() as u32;
                let why_most = format!("the deployment of the simulation has {most}");
                PendingResize {
                    epochs: None,
                    bounds: ElementLimits { least: 1, most, why_least: String::new(), why_most },
                }
            }
        };
        element.set_resize_policy(Box::new(owner));
    }

    /// Saves this element's state for a change of the number of elements. The program's own checkpoints are kept elsewhere.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(super) fn save(&self, epoch: u64, element: Pe, bytes: Vec<u8>) -> Result<(), Error> {
        match self {
            Membership::Fixed => {
                Err(Error::Chares(ChareError::Failed("this element's run has a fixed number of elements".into())))
            }
            Membership::Command { epochs, .. } => epochs.parts().write(epoch, (element, 0), &bytes),
            Membership::Simulated(shared) => {
                lock(shared).parts.insert(element, bytes);
                Ok(())
            }
        }
    }

    /// Called when all elements of that generation have saved: requests the next generation. `kept` is the checkpoint's
    /// place, if it is one of the program's own checkpoints.
    ///
    /// # Errors
    /// If the command cannot be notified.
    pub(super) fn resize(
        &self,
        places: &ElementPlacement,
        old: &Generation,
        elements: u32,
        kept: Option<Restart>,
    ) -> Result<(), Error> {
        match self {
            Membership::Fixed => Ok(()),
            Membership::Command { epochs, .. } => {
                let own = || -> Result<Restart, Error> {
                    let folder = epochs.parts();
                    // If an element is lost before the command starts the next generation, all go back to an earlier one.
                    folder.mark_complete(old.epoch, old.elements.len() as u32, 0)?;
                    Ok(Restart { folder: folder.path(), number: Some(old.epoch) })
                };
                let restart = kept.map_or_else(own, Ok)?;
                epochs.request(&ResizeRequest { epoch: old.epoch, elements, restart })
            }
            Membership::Simulated(shared) => {
                let epoch = old.epoch + 1;
                let elements = places.elements[..elements as usize].to_vec();
                let mut shared = lock(shared);
                // There may have been more elements earlier.
                shared.parts.retain(|element, _| (element.0 as usize) < old.elements.len());
                shared.generation = Some(Generation { epoch, since: epoch, elements, ..Generation::default() });
                Ok(())
            }
        }
    }

    /// Returns the states that all simulated elements saved before that generation.
    pub(super) fn parts(&self, generation: &Generation) -> Option<Vec<Vec<u8>>> {
        match self {
            Membership::Simulated(shared) if generation.epoch > 0 => {
                Some(lock(shared).parts.values().cloned().collect())
            }
            _ => None,
        }
    }

    /// Makes a simulated element that has left wait until it is part of the program again, or until the program has
    /// ended.
    ///
    /// # Errors
    /// If the simulation ends.
    pub(super) fn await_return(
        &self,
        world: &mut dyn ProcessWorld,
        (me, epoch): (Pe, u64),
        early: &mut Early,
    ) -> Result<Option<Generation>, Error> {
        let Membership::Simulated(shared) = self else { return Ok(None) };
        loop {
            let next = self.next(epoch)?.filter(|generation| (me.0 as usize) < generation.elements.len());
            if next.is_some() || lock(shared).is_over {
                return Ok(next);
            }
            match world.receive(None)? {
                Some(Incoming::Message { from, letter }) => {
                    early.extend(parse_hello(&letter).map(|hello| (from, hello)))
                }
                Some(Incoming::Closed { peer, .. }) => _ = early.remove(&peer),
                None => {}
            }
        }
    }

    /// Wakes the simulated elements that have left, from number `from` on. Only the first element does this.
    ///
    /// # Errors
    /// If the simulation ends.
    pub(super) fn wake(
        &self,
        world: &mut dyn ProcessWorld,
        places: &ElementPlacement,
        from: usize,
    ) -> Result<(), Error> {
        if !matches!(self, Membership::Simulated(_)) || places.me() != Pe(0) {
            return Ok(());
        }
        for element in (from as u32..places.elements.len() as u32).map(Pe) {
            // An element that does not listen has ended, or has not begun to wait: then it looks at the shared state first.
            let peer = match world.connect(places.host(element), places.port(element)) {
                Err(ProcessError::CannotConnect { .. }) => continue,
                outcome => outcome?,
            };
            match world.send(peer, ProcessMessage { kind: WAKE.into(), payload: Vec::new() }) {
                Ok(()) | Err(ProcessError::Closed { .. }) => world.close(peer),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Ends a simulated program also for elements that have left.
    ///
    /// # Errors
    /// If the simulation ends.
    pub(super) fn end_all(
        &self,
        world: &mut dyn ProcessWorld,
        places: &ElementPlacement,
        generation: &Generation,
    ) -> Result<(), Error> {
        if let Membership::Simulated(shared) = self {
            lock(shared).is_over = true;
        }
        self.wake(world, places, generation.elements.len())
    }
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Decides with how many elements a program can continue.
struct PendingResize {
    /// `None` in simulation.
    epochs: Option<RunFolder>,
    bounds: ElementLimits,
}

impl ResizePolicy for PendingResize {
    fn requested(&mut self) -> Option<u32> {
        // An unreadable request counts as none: the program continues.
        self.epochs.as_ref().and_then(|epochs| epochs.requested_elements().ok().flatten())
    }

    fn check(&self, elements: u32) -> Result<(), String> {
        self.bounds.check(elements)
    }

    fn refuse(&mut self, _: u32, why: &str) {
        if let Some(epochs) = &self.epochs
            && let Err(error) = epochs.refuse(why)
        {
            gridloom_base::stderr_line!("gridloom: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_saved_stays_until_others_have_begun() {
        let path = std::env::temp_dir().join(format!("gridloom-course-{}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        let epochs = RunFolder::new(&path);
        let bounds = ElementLimits { least: 1, most: 9, why_least: String::new(), why_most: String::new() };
        let course = Membership::Command { epochs: epochs.clone(), bounds };
        for epoch in [0, 1] {
            course.save(epoch, Pe(0), vec![epoch as u8]).unwrap();
            let old = Generation { epoch, elements: vec![(String::new(), 0)], ..Generation::default() };
            // All elements have saved, but nothing follows, since there is no command.
            assert!(course.resize(&ElementPlacement::default(), &old, 3, None).is_err());
        }
        assert_eq!(epochs.parts().read(Some(0)).unwrap(), [[0]], "elements may go back to it");
        assert_eq!(epochs.parts().read(Some(1)).unwrap(), [[1]]);
        epochs.delete_parts_before(1).unwrap();
        assert!(epochs.parts().read(Some(0)).is_err());
        assert_eq!(epochs.parts().read(Some(1)).unwrap(), [[1]]);
        std::fs::remove_dir_all(path).unwrap();
    }
}

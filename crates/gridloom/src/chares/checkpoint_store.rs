//! Where an element keeps its checkpoints: in a folder, in the memory of elements, or nowhere.

use gridloom_chare::{Element, Pe};
use gridloom_process::ProcessWorld;

use super::checkpoints::{CheckpointFolder, Origin};
use super::links::Links;
use super::membership::Membership;
use super::memory::Memory;
use super::options::{CheckpointOptions, Restart};
use super::placement::ElementPlacement;
use super::run_folder::Generation;
use crate::Error;

#[derive(Debug)]
pub(super) enum CheckpointStore {
    Nowhere,
    /// Keeps every `every`-th checkpoint, numbered from `next`.
    Folder {
        folder: CheckpointFolder,
        every: u64,
        run: u64,
        next: u64,
    },
    Memory(Box<Memory>),
}

impl CheckpointStore {
    /// Returns where an element of that generation keeps its checkpoints.
    ///
    /// # Errors
    /// If the command does not name the folder in which it reports losses.
    pub(super) fn new(
        places: &ElementPlacement,
        course: &Membership,
        generation: &Generation,
    ) -> Result<CheckpointStore, Error> {
        match (&places.memory, &places.checkpoint) {
            (Some(memory), _) => {
                let no_command = || Error::Input("checkpoints in memory: the command names no folder".into());
                let epochs = course.epochs().ok_or_else(no_command)?;
                Ok(CheckpointStore::Memory(Box::new(Memory::new(memory, epochs, places, generation.since))))
            }
            (None, Some(keep)) => {
                let CheckpointOptions { every, run, next, .. } = *keep;
                Ok(CheckpointStore::Folder { folder: CheckpointFolder::new(&keep.folder), every, run, next })
            }
            (None, None) => Ok(CheckpointStore::Nowhere),
        }
    }

    /// Called when all elements are connected. Returns the state from which the program resumes.
    ///
    /// # Errors
    /// If a checkpoint in memory is lost, or an element.
    pub(super) fn origin(
        &mut self,
        world: &mut dyn ProcessWorld,
        links: &mut Links,
        (places, course): (&ElementPlacement, &Membership),
        generation: &Generation,
    ) -> Result<Origin, Error> {
        if let CheckpointStore::Memory(memory) = self
            && let Some(number) = memory.agree(world, links, generation)?
        {
            return Ok(Origin::Memory(number));
        }
        let folder = |restart: &Restart| Origin::Folder(CheckpointFolder::new(&restart.folder), restart.number);
        let parts = course.parts(generation).map(Origin::Parts);
        Ok(parts.or(places.restart.as_ref().map(folder)).unwrap_or(Origin::Beginning))
    }

    /// Called when all arrays are made. Restores the chares.
    ///
    /// # Errors
    /// If the saved state does not fit these chares.
    pub(super) fn begin(
        &mut self,
        world: &mut dyn ProcessWorld,
        links: &mut Links,
        element: &mut Element,
        from: &Origin,
        generation: &Generation,
    ) -> Result<(), Error> {
        let is_first = element.me() == Pe(0);
        match self {
            CheckpointStore::Folder { folder, every, next, .. } if is_first => {
                element.keep_checkpoints(*every, folder.next()?.max(*next));
            }
            CheckpointStore::Nowhere | CheckpointStore::Folder { .. } => {}
            CheckpointStore::Memory(memory) => {
                memory.keep(element, if let Origin::Memory(number) = from { Some(*number) } else { None })
            }
        }
        match (from, &mut *self) {
            (Origin::Beginning, _) => {}
            (Origin::Folder(folder, number), _) => element.restore(&folder.read(*number)?)?,
            (Origin::Parts(parts), _) => element.restore(parts)?,
            (Origin::Memory(number), CheckpointStore::Memory(memory)) => {
                memory.restore(world, links, element, *number)?
            }
            (Origin::Memory(_), _) => unreachable!("elements agree on what is in their memory"),
        }
        if is_first && !matches!(from, Origin::Beginning) {
            element.resume();
        }
        if let CheckpointStore::Memory(memory) = self {
            memory.log_recovery(element, generation, from);
        }
        Ok(())
    }

    /// Keeps what the element has to save.
    ///
    /// # Errors
    /// If it cannot be saved or written.
    pub(super) fn run(
        &mut self,
        world: &mut dyn ProcessWorld,
        links: &mut Links,
        element: &mut Element,
        (places, course): (&ElementPlacement, &Membership),
        generation: &Generation,
    ) -> Result<(), Error> {
        if let Some(elements) = element.saves_for() {
            return self.resize(element, elements, (places, course), generation);
        }
        match self {
            CheckpointStore::Nowhere => {}
            CheckpointStore::Folder { folder, run, .. } => {
                if let Some((number, bytes)) = element.take_part()? {
                    folder.write(number, (element.me(), *run), &bytes)?;
                    element.saved(number);
                }
                if let Some(number) = element.take_complete() {
                    folder.complete(number, element.elements().count(), *run)?;
                    element.resume();
                }
            }
            CheckpointStore::Memory(memory) => {
                let notes = links.take_notes();
                memory.run(world, links, element, notes)?;
            }
        }
        Ok(())
    }

    /// Saves the element's state for a change of the number of elements, in the folder of the program's checkpoints if
    /// there is one.
    fn resize(
        &mut self,
        element: &mut Element,
        elements: u32,
        (places, course): (&ElementPlacement, &Membership),
        generation: &Generation,
    ) -> Result<(), Error> {
        if let Some(number) = element.due_checkpoint() {
            match self.save(element, course, generation) {
                Ok(()) => element.saved(number),
                Err(why) if element.is_resize_requested() => element.cannot_save(number, &why.to_string()),
                Err(why) => return Err(why),
            }
        }
        if let Some(number) = element.take_complete() {
            let kept = match self {
                CheckpointStore::Folder { folder, run, .. } => folder
                    .complete(number, element.elements().count(), *run)
                    .map(|()| Some(Restart { folder: folder.path(), number: Some(number) })),
                CheckpointStore::Nowhere | CheckpointStore::Memory(_) => Ok(None),
            };
            match kept.and_then(|kept| course.resize(places, generation, elements, kept)) {
                Ok(()) => element.renew(),
                Err(why) if element.is_resize_requested() => element.cannot_complete(&why.to_string()),
                Err(why) => return Err(why),
            }
        }
        Ok(())
    }

    /// Saves the element's state for a change of the number of elements.
    fn save(&self, element: &mut Element, course: &Membership, generation: &Generation) -> Result<(), Error> {
        let Some((number, bytes)) = element.take_part()? else { return Ok(()) };
        match self {
            CheckpointStore::Folder { folder, run, .. } => folder.write(number, (element.me(), *run), &bytes),
            CheckpointStore::Nowhere | CheckpointStore::Memory(_) => course.save(generation.epoch, element.me(), bytes),
        }
    }

    /// Notes that an element was lost. Returns whether the others wait for its successor.
    pub(super) fn on_loss(&mut self) -> bool {
        match self {
            CheckpointStore::Nowhere | CheckpointStore::Folder { .. } => false,
            CheckpointStore::Memory(memory) => {
                memory.note_loss();
                true
            }
        }
    }

    /// Called when the program has ended.
    ///
    /// # Errors
    /// If an element is lost that others still need.
    pub(super) fn end(
        &mut self,
        world: &mut dyn ProcessWorld,
        links: &mut Links,
        element: &mut Element,
    ) -> Result<(), Error> {
        match self {
            CheckpointStore::Nowhere | CheckpointStore::Folder { .. } => Ok(()),
            CheckpointStore::Memory(memory) => memory.end(world, links, element),
        }
    }
}

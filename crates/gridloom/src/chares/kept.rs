//! Where an element's checkpoints are: in a folder, in the memory of elements, or nowhere.

use gridloom_chare::{Element, Pe};
use gridloom_process::ProcessWorld;

use super::checkpoints::CheckpointFolder;
use super::links::Links;
use super::memory::Memory;
use super::places::{Keep, Places};
use crate::Error;

#[derive(Debug)]
pub(super) enum Kept {
    Nowhere,
    /// Keeps one of so many, under numbers from `next` on.
    Folder {
        folder: CheckpointFolder,
        every: u64,
        run: u64,
        next: u64,
    },
    Memory(Box<Memory>),
}

/// What the program goes on from.
#[derive(Debug)]
pub(super) enum Origin {
    Beginning,
    /// That one of a folder, or the last.
    Folder(CheckpointFolder, Option<u64>),
    Memory(u64),
}

impl Kept {
    /// # Errors
    /// If the command's file cannot be read.
    pub(super) fn of(places: &Places) -> Result<Kept, Error> {
        match (&places.memory, &places.checkpoint) {
            (Some(memory), _) => Ok(Kept::Memory(Box::new(Memory::new(memory, places)?))),
            (None, Some(keep)) => {
                let Keep { every, run, next, .. } = *keep;
                Ok(Kept::Folder { folder: CheckpointFolder::new(&keep.folder), every, run, next })
            }
            (None, None) => Ok(Kept::Nowhere),
        }
    }

    pub(super) fn epoch(&self) -> u64 {
        match self {
            Kept::Memory(memory) => memory.epoch,
            Kept::Nowhere | Kept::Folder { .. } => 0,
        }
    }

    /// Whether elements that have not connected for long may still do so.
    ///
    /// # Errors
    /// If the command's file cannot be read.
    pub(super) fn may_come(&self) -> Result<bool, Error> {
        match self {
            Kept::Memory(memory) => memory.may_come(),
            Kept::Nowhere | Kept::Folder { .. } => Ok(false),
        }
    }

    /// All are connected: from where the program goes on.
    ///
    /// # Errors
    /// If a checkpoint in memory is lost, or an element.
    pub(super) fn from(
        &mut self,
        world: &mut dyn ProcessWorld,
        links: &mut Links,
        places: &Places,
    ) -> Result<Origin, Error> {
        if let Kept::Memory(memory) = self {
            return Ok(memory.agree(world, links)?.map_or(Origin::Beginning, Origin::Memory));
        }
        Ok(places.restart.as_ref().map_or(Origin::Beginning, |restart| {
            Origin::Folder(CheckpointFolder::new(&restart.folder), restart.number)
        }))
    }

    /// All arrays are made.
    ///
    /// # Errors
    /// If the chares cannot be what was saved.
    pub(super) fn begin(
        &mut self,
        world: &mut dyn ProcessWorld,
        links: &mut Links,
        element: &mut Element,
        from: &Origin,
    ) -> Result<(), Error> {
        let is_first = element.me() == Pe(0);
        match self {
            Kept::Folder { folder, every, next, .. } if is_first => {
                element.keep_checkpoints(*every, folder.next()?.max(*next));
            }
            Kept::Nowhere | Kept::Folder { .. } => {}
            Kept::Memory(memory) => {
                let from = if let Origin::Memory(number) = from { Some(*number) } else { None };
                memory.keep(element, from);
                return memory.restore(world, links, element, from);
            }
        }
        if let Origin::Folder(folder, number) = from {
            element.restore(&folder.read(*number)?)?;
            if is_first {
                element.go_on();
            }
        }
        Ok(())
    }

    /// Keeps what the element is to save.
    ///
    /// # Errors
    /// If it cannot be saved or written.
    pub(super) fn run(
        &mut self,
        world: &mut dyn ProcessWorld,
        links: &mut Links,
        element: &mut Element,
    ) -> Result<(), Error> {
        match self {
            Kept::Nowhere => {}
            Kept::Folder { folder, run, .. } => {
                if let Some((number, bytes)) = element.take_saved()? {
                    folder.write(number, (element.me(), *run), &bytes)?;
                    element.saved(number);
                }
                if let Some(number) = element.take_complete() {
                    folder.complete(number, element.elements().count(), *run)?;
                    element.go_on();
                }
            }
            Kept::Memory(memory) => {
                let notes = links.take_notes();
                memory.run(world, links, element, notes)?;
            }
        }
        Ok(())
    }

    /// The program has ended.
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
            Kept::Nowhere | Kept::Folder { .. } => Ok(()),
            Kept::Memory(memory) => memory.end(world, links, element),
        }
    }
}

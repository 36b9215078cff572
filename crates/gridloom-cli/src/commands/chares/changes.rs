//! Changes during `gridloom chares run`: replaces killed elements, and changes the number of elements.
//!
//! **Invariant:** epoch numbers increase. A request of the first element counts only if no element was lost in the
//! epoch that it names.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use gridloom::chares::{ElementLimits, Generation, ResizeRequest, Resizing, RunDescription, RunFolder};
use gridloom_base::limits::PROCESSING_ELEMENTS_MAX;
use gridloom_base::stderr_line;
use gridloom_net::descriptors::{descriptor_limit, raise_descriptor_limit};
use gridloom_net::process::processors;
use gridloom_testbed::Error;
use gridloom_testbed::fleet::{AfterEnd, ExitCause, RunController};
use gridloom_testbed::spec::{Deployed, Launch};
use rustix::fs::{CWD, Mode, OFlags, mkfifoat};

use super::super::absolute;
use super::{Elements, FOLDER_NAME, deployed_of, hosts_of};
use crate::commands::OwnFolder;

/// How long the next change waits for elements that the last change has removed. Shorter than the time for which
/// elements wait for the change.
const LEAVE_GRACE: Duration = Duration::from_secs(10);
/// File descriptors that this command needs for each process: its two outputs, and some while it starts.
const DESCRIPTORS_PER_PROCESS: u64 = 2;
/// File descriptors that this command needs for itself.
const DESCRIPTORS_OWN: u64 = 64;

/// A run whose elements may change.
pub(super) struct ElementChanges<'a> {
    /// Folder through which the command and the elements communicate. Removed at the end.
    folder: OwnFolder,
    epochs: RunFolder,
    bell: File,
    elements: &'a Elements,
    program: &'a [OsString],
    /// Folder for the files by which processes report that they have read which element they are.
    reports: &'a OwnFolder,
    generation: Generation,
    /// Numbers of elements that are no longer part of the program, but whose processes have not ended yet.
    leaving: BTreeSet<usize>,
    /// Pending request of the first element, and the deadline for removed elements to end.
    pending_request: Option<(ResizeRequest, Instant)>,
    /// How many more killed elements are replaced. The others return to a checkpoint in memory.
    replacements_left: u32,
    /// Number of elements in each epoch.
    pub(super) counts: Vec<u32>,
}

/// Creates the folder of a run. Returns it, with the data about it that elements get.
pub(super) fn prepared(elements: &Elements, is_in_memory: bool) -> Result<(OwnFolder, Resizing)> {
    let folder = OwnFolder::new(FOLDER_NAME)?;
    let epochs = RunFolder::new(&folder.0);
    mkfifoat(CWD, epochs.pipe(), Mode::RUSR | Mode::WUSR).with_context(|| epochs.pipe().display().to_string())?;
    let bounds = bounds(elements, is_in_memory)?;
    let changing = Resizing { folder: absolute(&folder.0)?, bounds };
    Ok((folder, changing))
}

fn bounds(elements: &Elements, is_in_memory: bool) -> Result<ElementLimits> {
    let Elements { number, ppn, sites, binds, .. } = *elements;
    let (number, sites) = (number as u32, sites as u32);
    if ppn > 1 {
        let why =
            format!("with --ppn {ppn} elements are threads of processes, which cannot be replaced: leave --ppn out");
        return Ok(ElementLimits { least: number, most: number, why_least: why.clone(), why_most: why });
    }
    let (least, why_least) = match (sites, is_in_memory) {
        (2.., _) => (sites, format!("each of the {sites} sites of --sites has an element")),
        (_, true) => (2, "with --checkpoint memory an element needs another one".to_string()),
        _ => (1, "a program needs an element".to_string()),
    };
    raise_descriptor_limit();
    let limit = descriptor_limit();
    let held = (usize::try_from(limit.saturating_sub(DESCRIPTORS_OWN) / DESCRIPTORS_PER_PROCESS).unwrap_or(usize::MAX))
        .max(number as usize);
    let (most, why_most) = match binds {
        true => (processors()?.len(), "with --bind each has a processor".to_string()),
        false if held < PROCESSING_ELEMENTS_MAX => (
            held,
            format!(
                "each needs {DESCRIPTORS_PER_PROCESS} descriptors of the command, whose limit is {limit} (ulimit -Hn)"
            ),
        ),
        false => (PROCESSING_ELEMENTS_MAX, "that is the limit of a run".to_string()),
    };
    Ok(ElementLimits { least, most: most as u32, why_least, why_most })
}

impl<'a> ElementChanges<'a> {
    pub(super) fn new(
        folder: OwnFolder,
        elements: &'a Elements,
        program: &'a [OsString],
        asked: &'a OwnFolder,
        left: u32,
    ) -> Result<ElementChanges<'a>> {
        let epochs = RunFolder::new(&folder.0);
        epochs.clear()?;
        let changing = elements.places.resizing.as_ref().context("elements are told of changes")?;
        let (number, bounds) = (elements.number as u32, changing.bounds.clone());
        epochs.describe(&RunDescription { program: program.to_vec(), elements: number, bounds })?;
        let bell = || {
            OpenOptions::new().read(true).write(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(epochs.pipe())
        };
        let bell = bell().with_context(|| epochs.pipe().display().to_string())?;
        let generation = Generation { elements: hosts_of(elements, elements.number), ..Generation::default() };
        let (leaving, asked_for, counts) = (BTreeSet::new(), None, vec![elements.number as u32]);
        Ok(ElementChanges {
            folder,
            epochs,
            bell,
            elements,
            program,
            reports: asked,
            generation,
            leaving,
            pending_request: asked_for,
            replacements_left: left,
            counts,
        })
    }

    /// Returns the current number of elements.
    pub(super) fn number(&self) -> usize {
        self.generation.elements.len()
    }

    /// Returns the folder, for the next start of all elements.
    pub(super) fn into_folder(self) -> OwnFolder {
        self.folder
    }

    fn begin(&mut self, mut generation: Generation) -> Result<(), Error> {
        self.counts.push(generation.elements.len() as u32);
        generation.counts.clone_from(&self.counts);
        self.epochs.begin(&generation).map_err(usage)?;
        self.generation = generation;
        Ok(())
    }

    /// Applies a request for another number of elements. Returns the elements to start.
    fn resize(&mut self, request: ResizeRequest) -> Result<Vec<Deployed>, Error> {
        let (before, number) = (self.generation.elements.len(), request.elements as usize);
        let epoch = self.generation.epoch + 1;
        let elements = hosts_of(self.elements, number);
        let saved_in = request.epoch;
        self.begin(Generation {
            epoch,
            since: epoch,
            elements,
            restart: Some(request.restart),
            ..Generation::default()
        })?;
        if self.epochs.requested_elements().map_err(usage)? == Some(request.elements) {
            self.epochs.clear_request().map_err(usage)?;
        }
        // The new epoch starts from these checkpoint files, so the worst case is that files remain until the end.
        if let Err(error) = self.epochs.delete_parts_before(saved_in) {
            stderr_line!("gridloom: {error}");
        }
        self.leaving.extend(number..before);
        let all = deployed_of(self.elements, number, self.program, &self.reports.0);
        Ok(all.map_err(|error| Error::Usage(error.to_string()))?.into_iter().skip(before).collect())
    }
}

impl RunController for ElementChanges<'_> {
    fn ended(&mut self, launch: &Launch, end: ExitCause) -> Result<AfterEnd, Error> {
        if number_of(launch).is_some_and(|number| self.leaving.remove(&number)) {
            return Ok(AfterEnd::IsDone);
        }
        match end {
            ExitCause::Signal(_) if self.replacements_left > 0 && !self.epochs.is_over().map_err(usage)? => {
                self.replacements_left -= 1;
                self.begin(Generation { epoch: self.generation.epoch + 1, ..self.generation.clone() })?;
                stderr_line!(
                    "gridloom: restarts {}, and {} more elements if they are killed",
                    launch.label,
                    self.replacements_left
                );
                Ok(AfterEnd::Restarts)
            }
            // The program has ended, or it fails.
            ExitCause::Status(_) | ExitCause::Signal(_) => {
                self.epochs.end().map_err(usage)?;
                Ok(AfterEnd::Counts)
            }
        }
    }

    fn more(&mut self) -> Result<Vec<Deployed>, Error> {
        while matches!((&self.bell).read(&mut [0; 64]), Ok(1..)) {}
        if let Some(request) = self.epochs.take_request().map_err(usage)? {
            self.pending_request = Some((request, Instant::now() + LEAVE_GRACE));
        }
        let epoch = self.generation.epoch;
        let is_over = self.epochs.is_over().map_err(usage)?;
        self.pending_request.take_if(|(request, _)| is_over || request.epoch != epoch);
        // Otherwise remaining elements would connect to an element that is leaving, instead of to the new element with its number.
        let leaving = &self.leaving;
        match self.pending_request.take_if(|_| leaving.is_empty()) {
            Some((request, _)) => self.resize(request),
            None => Ok(Vec::new()),
        }
    }

    fn to_end(&self, launch: &Launch) -> Option<Instant> {
        let (_, at) = self.pending_request.as_ref()?;
        number_of(launch).is_some_and(|number| self.leaving.contains(&number)).then_some(*at)
    }

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.bell.as_fd())
    }
}

/// Returns the element's number.
fn number_of(launch: &Launch) -> Option<usize> {
    launch.label.rsplit('@').next().and_then(|number| number.parse().ok())
}

fn usage(error: gridloom::Error) -> Error {
    Error::Usage(error.to_string())
}

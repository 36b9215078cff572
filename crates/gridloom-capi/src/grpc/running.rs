//! A call under way: one whose results all come here, or one that leaves some where they are made.

use gridloom::{CallEnd, Kept, Pending, Watch};
use gridloom_core::base::TaskId;

use super::code::{Failed, Outcome};
use super::deliver::{Destination, deliver};
use super::library::library;

/// It, until its results are taken.
pub(super) enum Running {
    Plain(Pending),
    /// It reads or makes remote data.
    Kept(Kept),
}

/// Asks for it to be cancelled, whoever has it.
pub(super) enum Stop {
    Plain(Watch),
    Kept(Kept),
}

impl Running {
    pub(super) fn task(&self) -> TaskId {
        match self {
            Running::Plain(pending) => pending.task(),
            Running::Kept(kept) => kept.task(),
        }
    }

    /// Has the grid tell of its end.
    pub(super) fn note_end(&self) {
        match self {
            Running::Plain(pending) => pending.note_end(),
            Running::Kept(kept) => kept.note_end(),
        }
    }

    /// How it ended; `None` while it runs.
    pub(super) fn end(&self) -> Option<CallEnd> {
        match self {
            Running::Plain(pending) => pending.end(),
            Running::Kept(kept) => kept.end(),
        }
    }

    pub(super) fn stop(&self) -> Stop {
        match self {
            Running::Plain(pending) => Stop::Plain(pending.watch()),
            Running::Kept(kept) => Stop::Kept(kept.clone()),
        }
    }

    /// Waits for its end and writes what the program wants of its results.
    ///
    /// # Safety
    /// As of [`deliver`].
    pub(super) unsafe fn finish(self, destinations: &[Destination]) -> Outcome<()> {
        match self {
            // SAFETY: promised by the caller.
            Running::Plain(pending) => unsafe { deliver(&pending.wait()?, destinations) },
            Running::Kept(kept) => {
                kept.wait()?;
                let wanted = || kept.results().iter().zip(destinations).filter(|(_, to)| to.is_wanted());
                let values = wanted().map(|(result, _)| result.get()).collect::<Result<Vec<_>, _>>();
                let wanted_destinations: Vec<Destination> = wanted().map(|(_, to)| to.clone()).collect();
                // SAFETY: promised by the caller.
                unsafe { deliver(&values.map_err(Failed::from)?, &wanted_destinations) }?;
                let library = library()?;
                let mut remotes = destinations.iter().filter_map(Destination::remote);
                // SAFETY: as above.
                remotes.try_for_each(|remote| unsafe { remote.put_elsewhere(&library.remotes) })
            }
        }
    }
}

impl Stop {
    pub(super) fn ask(&self) {
        match self {
            Stop::Plain(watch) => watch.cancel(),
            Stop::Kept(kept) => kept.cancel(),
        }
    }
}

//! A datum that the program described, and what was done with it since.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{DataError, Datum, Description, Kind, Mode, Places, Uri};

pub(super) struct Managed {
    description: Description,
    done: Mutex<Done>,
}

#[derive(Default)]
struct Done {
    /// Of a container.
    items: Vec<Option<Arc<Datum>>>,
    /// Begun and not waited for.
    transfers: Vec<Transfer>,
    /// Files that the client wrote.
    files: BTreeSet<PathBuf>,
    /// Files that servers wrote: server and path.
    server_files: BTreeSet<(String, String)>,
}

/// A transfer with its input read; the places that its wait writes.
type Transfer = Result<Vec<(Uri, Mode)>, DataError>;

impl Managed {
    pub(super) fn new(description: Description) -> Managed {
        let done = Done { items: vec![None; description.places()], ..Done::default() };
        Managed { description, done: Mutex::new(done) }
    }

    pub(super) fn description(&self) -> &Description {
        &self.description
    }

    fn done(&self) -> MutexGuard<'_, Done> {
        self.done.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn note_file(&self, path: &Path) {
        self.done().files.insert(path.into());
    }

    pub(super) fn note_server_file(&self, server: &str, path: &str) {
        self.done().server_files.insert((server.into(), path.into()));
    }

    /// Files that have its value: those of servers first, since any client can read them.
    pub(super) fn files(&self) -> Vec<Uri> {
        let done = self.done();
        let there = done.server_files.iter().map(|(server, path)| Uri::ServerFile(server.clone(), path.clone()));
        there.chain(done.files.iter().cloned().map(Uri::File)).collect()
    }

    /// Takes out those of the files that servers wrote.
    fn take_server_files(&self, which: impl Fn(&Uri) -> bool) -> BTreeSet<(String, String)> {
        let is_one = |(server, path): &(String, String)| which(&Uri::ServerFile(server.clone(), path.clone()));
        let mut done = self.done();
        let taken: BTreeSet<(String, String)> = done.server_files.iter().filter(|file| is_one(file)).cloned().collect();
        done.server_files.retain(|file| !taken.contains(file));
        taken
    }

    /// Deletes those of the files that the client wrote.
    fn delete_files(&self, which: impl Fn(&Uri) -> bool) -> Result<(), DataError> {
        let mut done = self.done();
        let taken: BTreeSet<PathBuf> =
            done.files.iter().filter(|path| which(&Uri::File((*path).clone()))).cloned().collect();
        done.files.retain(|path| !taken.contains(path));
        drop(done);
        let mut outcome = Ok(());
        for path in taken {
            if let Err(error) = fs::remove_file(&path) {
                let text = format!("cannot delete '{}': {error}", path.display());
                outcome = outcome.and(Err(DataError::Unwritable(text)));
            }
        }
        outcome
    }

    fn item<R>(&self, rank: i32, take: impl FnOnce(&mut Option<Arc<Datum>>) -> R) -> Result<R, DataError> {
        let mut done = self.done();
        let size = done.items.len();
        let place = usize::try_from(rank).ok().and_then(|rank| done.items.get_mut(rank));
        place.map(take).ok_or_else(|| {
            DataError::Invalid(match self.description.kind() {
                Kind::Container => format!("rank {rank}: the container has places 0 to {size}, that one left out"),
                _ => "the datum is no container; give it the type GRPC_CONTAINER_OF_GRPC_DATA".into(),
            })
        })
    }
}

impl Datum {
    /// Puts a datum into this container, at a rank from 0.
    ///
    /// # Errors
    /// If this is no container, has no such rank, or would hold itself.
    pub fn set_item(self: &Arc<Datum>, rank: i32, item: Arc<Datum>) -> Result<(), DataError> {
        if Arc::ptr_eq(self, &item) {
            return Err(DataError::Invalid("a container cannot hold itself".into()));
        }
        let old = self.as_managed()?.item(rank, |place| place.replace(item))?;
        // Outside of the lock.
        drop(old);
        Ok(())
    }

    /// The datum at that rank of this container.
    ///
    /// # Errors
    /// If this is no container, or nothing is there.
    pub fn item(&self, rank: i32) -> Result<Arc<Datum>, DataError> {
        let found = self.as_managed()?.item(rank, |place| place.clone())?;
        found.ok_or_else(|| DataError::Invalid(format!("the container has nothing at rank {rank}")))
    }

    /// Begins a transfer: reads the value now, from the first of these inputs that has it (for none, its own value or
    /// input), and remembers where [`Datum::end_transfers`] puts it. An input that cannot be read fails there.
    ///
    /// # Errors
    /// If it was not described.
    pub fn begin_transfer(
        &self,
        places: &Places<'_>,
        inputs: &[Uri],
        outputs: Vec<(Uri, Mode)>,
    ) -> Result<(), DataError> {
        let managed = self.as_managed()?;
        let read = self.fill(places, inputs);
        managed.done().transfers.push(read.map(|()| outputs));
        Ok(())
    }

    /// Ends its transfers: puts the value where each has to put it.
    ///
    /// # Errors
    /// If a value could not be read, or cannot be put.
    pub fn end_transfers(&self, places: &Places<'_>) -> Result<(), DataError> {
        let transfers = std::mem::take(&mut self.as_managed()?.done().transfers);
        transfers.into_iter().try_for_each(|outputs| self.write(places, &outputs?))
    }

    /// Deletes what Gridloom put to these places, or to all if none are named: copies in stores, and files that were
    /// written for this datum. The client's memory stays.
    ///
    /// # Errors
    /// The first thing that could not be deleted; the rest is.
    pub fn delete(&self, places: &Places<'_>, at: Option<&[Uri]>) -> Result<(), DataError> {
        let managed = self.as_managed()?;
        let is_named = |uri: &Uri| at.is_none_or(|at| at.contains(uri));
        let files = managed.take_server_files(is_named);
        let files = files.iter().map(|(server, path)| places.delete_file(server, path));
        let stores = at.into_iter().flatten().filter_map(|uri| match uri {
            Uri::Store(server) => Some(self.give_up_at(places, server)),
            _ => None,
        });
        let there: Vec<Result<(), DataError>> = files.chain(stores).collect();
        if is_named(&Uri::Grid) {
            self.clear();
        }
        let here = managed.delete_files(is_named);
        there.into_iter().chain([here]).collect()
    }
}

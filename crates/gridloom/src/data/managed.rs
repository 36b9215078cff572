//! A datum that the program described, with its state since then.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{DataError, DataPlaces, Datum, Description, Kind, Mode, Uri};

pub(super) struct DescribedDatum {
    description: Description,
    done: Mutex<ManagedState>,
}

#[derive(Default)]
struct ManagedState {
    /// Items of a container.
    items: Vec<Option<Arc<Datum>>>,
    /// Transfers begun and not yet waited for.
    transfers: Vec<Transfer>,
    /// Files that the client wrote.
    files: BTreeSet<PathBuf>,
    /// Files that servers wrote: server and path.
    server_files: BTreeSet<(String, String)>,
}

/// A transfer with its input already read; has the places to write when it is waited for.
type Transfer = Result<Vec<(Uri, Mode)>, DataError>;

impl DescribedDatum {
    pub(super) fn new(description: Description) -> DescribedDatum {
        let done = ManagedState { items: vec![None; description.places()], ..ManagedState::default() };
        DescribedDatum { description, done: Mutex::new(done) }
    }

    pub(super) fn description(&self) -> &Description {
        &self.description
    }

    fn done(&self) -> MutexGuard<'_, ManagedState> {
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

    /// Removes and returns the selected files that servers wrote.
    fn take_server_files(&self, which: impl Fn(&Uri) -> bool) -> BTreeSet<(String, String)> {
        let is_one = |(server, path): &(String, String)| which(&Uri::ServerFile(server.clone(), path.clone()));
        let mut done = self.done();
        let taken: BTreeSet<(String, String)> = done.server_files.iter().filter(|file| is_one(file)).cloned().collect();
        done.server_files.retain(|file| !taken.contains(file));
        taken
    }

    /// Deletes the selected files that the client wrote.
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
                Kind::Container => format!("rank {rank}: the container has ranks from 0 to below {size}"),
                _ => "the datum is not a container; give it the type GRPC_CONTAINER_OF_GRPC_DATA".into(),
            })
        })
    }
}

impl Datum {
    /// Puts a datum into this container, at a rank from 0.
    ///
    /// # Errors
    /// If this is not a container, has no such rank, or would contain itself.
    pub fn set_item(self: &Arc<Datum>, rank: i32, item: Arc<Datum>) -> Result<(), DataError> {
        if Arc::ptr_eq(self, &item) {
            return Err(DataError::Invalid("a container cannot hold itself".into()));
        }
        let old = self.as_managed()?.item(rank, |place| place.replace(item))?;
        // Dropped outside of the lock.
        drop(old);
        Ok(())
    }

    /// Returns the datum at that rank of this container.
    ///
    /// # Errors
    /// If this is not a container, or the rank is empty.
    pub fn item(&self, rank: i32) -> Result<Arc<Datum>, DataError> {
        let found = self.as_managed()?.item(rank, |place| place.clone())?;
        found.ok_or_else(|| DataError::Invalid(format!("the container has nothing at rank {rank}")))
    }

    /// Begins a transfer: reads the value now, from the first of these inputs that has it (without inputs: its own value or
    /// input). [`Datum::end_transfers`] writes it to `outputs`, and also reports an input that cannot be read.
    ///
    /// # Errors
    /// If the datum was not described.
    pub fn begin_transfer(
        &self,
        places: &DataPlaces<'_>,
        inputs: &[Uri],
        outputs: Vec<(Uri, Mode)>,
    ) -> Result<(), DataError> {
        let managed = self.as_managed()?;
        let read = self.fill(places, inputs);
        managed.done().transfers.push(read.map(|()| outputs));
        Ok(())
    }

    /// Ends its transfers: writes the value to the outputs of each.
    ///
    /// # Errors
    /// If a value could not be read, or cannot be written.
    pub fn end_transfers(&self, places: &DataPlaces<'_>) -> Result<(), DataError> {
        let transfers = std::mem::take(&mut self.as_managed()?.done().transfers);
        transfers.into_iter().try_for_each(|outputs| self.write(places, &outputs?))
    }

    /// Deletes what Gridloom has written to these places, or to all places if `at` is `None`: copies in stores, and files
    /// written for this datum. The client's memory is not touched.
    ///
    /// # Errors
    /// The first deletion that failed; the others are still done.
    pub fn delete(&self, places: &DataPlaces<'_>, at: Option<&[Uri]>) -> Result<(), DataError> {
        let managed = self.as_managed()?;
        let is_named = |uri: &Uri| at.is_none_or(|at| at.contains(uri));
        let files = managed.take_server_files(is_named);
        let files = files.iter().map(|(server, path)| places.delete_file(server, path));
        let stores = at.into_iter().flatten().filter_map(|uri| match uri {
            Uri::Store(server) => Some(self.release_at(places, server)),
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

//! What a program says of a datum that it has managed (`grpc_data.h`): where it is read, where it is put, what it is.

use std::collections::{BTreeSet, HashMap};
use std::ffi::{CStr, c_void};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gridloom_core::base::{Dtype, Meta};
use gridloom_net::payload::Payload;

use super::code::{Failed, GRPC_INVALID_DATA_NP, Outcome};
use super::datum::Remote;
use super::files::NewFile;
use super::memory;
use super::uri::Uri;

/// Addresses by the keys of `memory:` URIs.
pub(super) type Keys = HashMap<String, usize>;

/// `grpc_data_type_t`, by its number: name and bytes of an element; 0 where these follow from the content.
pub(super) const TYPES: [(&str, u64); 12] = [
    ("GRPC_BOOL", 1),
    ("GRPC_CHAR", 1),
    ("GRPC_SHORT", 2),
    ("GRPC_INT", 4),
    ("GRPC_LONG", 8),
    ("GRPC_FLOAT", 4),
    ("GRPC_DOUBLE", 8),
    ("GRPC_COMPLEX", 8),
    ("GRPC_DOUBLE_COMPLEX", 16),
    ("GRPC_STRING", 0),
    ("GRPC_FILE", 0),
    ("GRPC_CONTAINER_OF_GRPC_DATA", 0),
];
/// How elements are described to the grid.
const ELEMENTS: [Option<Dtype>; 12] = [
    Some(Dtype::Bool),
    Some(Dtype::Int8),
    Some(Dtype::Int16),
    Some(Dtype::Int32),
    Some(Dtype::Int64),
    Some(Dtype::Float32),
    Some(Dtype::Float64),
    Some(Dtype::Complex64),
    Some(Dtype::Complex128),
    None,
    None,
    None,
];
const STRING: usize = 9;
const CONTAINER: usize = 11;

/// `grpc_data_mode_t`, by its number.
pub(super) const MODES: [&str; 5] =
    ["GRPC_VOLATILE", "GRPC_STRICTLY_VOLATILE", "GRPC_STICKY", "GRPC_UNIQUE_STICKY", "GRPC_PERSISTENT"];
const STRICTLY_VOLATILE: usize = 1;
const STICKY: usize = 2;
const UNIQUE_STICKY: usize = 3;

/// It, and what has been done with it.
pub(super) struct Description {
    pub(super) inputs: Vec<Uri>,
    /// Each with its mode.
    pub(super) outputs: Vec<(Uri, usize)>,
    /// Its place in [`TYPES`].
    pub(super) kind: usize,
    /// Outermost first; none for a scalar, or what follows from the content.
    pub(super) extents: Vec<u64>,
    done: Mutex<Done>,
}

#[derive(Default)]
struct Done {
    /// Of a container.
    items: Vec<Option<Arc<Remote>>>,
    /// Begun and not waited for.
    transfers: Vec<Transfer>,
    /// Files that were made, here and by servers.
    written: BTreeSet<PathBuf>,
    written_there: BTreeSet<(String, String)>,
}

/// A transfer under way: what it reads is read, what it writes, and on whose terms, is written when it is waited for.
pub(super) type Transfer = Outcome<Vec<(Uri, usize)>>;

impl Description {
    pub(super) fn new(
        inputs: Vec<Uri>,
        outputs: Vec<(Uri, usize)>,
        kind: usize,
        extents: Vec<u64>,
    ) -> Outcome<Description> {
        let wrong = |why: String| Failed::new(GRPC_INVALID_DATA_NP, why);
        if kind >= TYPES.len() {
            return Err(wrong(format!("{kind} is no type of data; grpc_data_type_t has them")));
        }
        if let Some((uri, mode)) = outputs.iter().find(|(_, mode)| *mode >= MODES.len()) {
            return Err(wrong(format!("mode {mode} of output '{uri}' is none; grpc_data_mode_t has them")));
        }
        let mut done = Done::default();
        if kind == CONTAINER {
            let [size] = extents[..] else { return Err(wrong("a container has one extent, its size".into())) };
            let size = usize::try_from(size).ok().filter(|size| *size <= ITEMS_MAX);
            let size = size.ok_or_else(|| wrong(format!("a container has at most {ITEMS_MAX} data")))?;
            done.items = vec![None; size];
        }
        let alone = outputs.iter().find(|(_, mode)| matches!(*mode, STRICTLY_VOLATILE | UNIQUE_STICKY));
        let stores = outputs.iter().filter(|(uri, _)| matches!(uri, Uri::Store(_))).count();
        if let Some((_, mode)) = alone.filter(|_| stores > 1) {
            return Err(wrong(format!("{} is of one place, and {stores} servers are named", MODES[*mode])));
        }
        let mut bytes = Some(TYPES[kind].1);
        extents.iter().for_each(|extent| bytes = bytes.and_then(|bytes| bytes.checked_mul(*extent)));
        if bytes.is_none() {
            return Err(wrong("its size is past 2^64 bytes".into()));
        }
        Ok(Description { inputs, outputs, kind, extents, done: Mutex::new(done) })
    }

    fn done(&self) -> MutexGuard<'_, Done> {
        self.done.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It is to be erased right after a call has read it.
    pub(super) fn is_strictly_volatile(&self) -> bool {
        self.outputs.iter().any(|(_, mode)| *mode == STRICTLY_VOLATILE)
    }

    /// Why there is one copy of it at most, which calls that read it have to go to.
    pub(super) fn alone(&self) -> Option<&'static str> {
        let modes = self.outputs.iter().map(|(_, mode)| *mode);
        modes.filter(|mode| matches!(*mode, STRICTLY_VOLATILE | UNIQUE_STICKY)).map(|mode| MODES[mode]).next()
    }

    /// The server on which it has to be made, of one of which there is one copy.
    pub(super) fn only_store(&self) -> Option<&str> {
        self.alone()?;
        self.outputs.iter().find_map(|(uri, _)| match uri {
            Uri::Store(server) => Some(server.as_str()),
            _ => None,
        })
    }

    /// Number and type of its elements, of `size_bytes` in all, and how many bytes one has.
    pub(super) fn elements(&self, size_bytes: u64) -> (Dtype, u64) {
        match ELEMENTS[self.kind] {
            Some(dtype) if size_bytes.is_multiple_of(dtype.size_bytes()) => (dtype, size_bytes / dtype.size_bytes()),
            _ => (Dtype::Int8, size_bytes),
        }
    }

    /// How it lies in memory.
    pub(super) fn meta(&self, size_bytes: u64) -> Meta {
        let (dtype, count) = self.elements(size_bytes);
        match self.extents.iter().product::<u64>() == count {
            true if !self.extents.is_empty() => Meta::array(dtype, &self.extents),
            _ => Meta::array(dtype, &[count]),
        }
    }

    /// Whether a file, or what else says its own size, can be it.
    ///
    /// # Errors
    /// If it has been described with another size.
    pub(super) fn check_size(&self, uri: &Uri, got: u64) -> Outcome<()> {
        let Some(needed) = self.size_bytes().filter(|needed| !self.extents.is_empty() && *needed != got) else {
            return Ok(());
        };
        let extents: Vec<String> = self.extents.iter().map(u64::to_string).collect();
        let (what, extents) = (TYPES[self.kind].0, extents.join(" x "));
        let text = format!("'{uri}' has {got} bytes, and the datum is {extents} of {what}, {needed} bytes");
        Err(Failed::new(GRPC_INVALID_DATA_NP, text))
    }

    /// Bytes in memory, if its type says it.
    pub(super) fn size_bytes(&self) -> Option<u64> {
        (TYPES[self.kind].1 > 0).then(|| TYPES[self.kind].1 * self.extents.iter().product::<u64>())
    }

    /// Reads it from a place of the client's.
    ///
    /// # Safety
    /// Memory that is named is as it was described (`memory`).
    pub(super) unsafe fn read(&self, uri: &Uri, keys: &Keys) -> Outcome<Payload> {
        let failed = |why: String| Failed::new(GRPC_INVALID_DATA_NP, format!("cannot read '{uri}': {why}"));
        let address = match uri {
            Uri::Grid => return Err(failed("the grid has no value of it".into())),
            Uri::Store(_) | Uri::ServerFile(..) => return Err(failed("the server has no value of it".into())),
            Uri::File(path) => {
                let bytes = fs::read(path).map_err(|error| failed(error.to_string()))?;
                self.check_size(uri, bytes.len() as u64)?;
                return Ok(Payload::Inline(bytes.into()));
            }
            Uri::Key(key) => *keys.get(key).ok_or_else(|| failed("the key has no address".into()))?,
            Uri::Address(address) => *address,
        };
        let pointer: *const c_void = std::ptr::with_exposed_provenance(address);
        let size_bytes = match self.kind {
            // SAFETY: a text, as the header asks of its type.
            STRING => unsafe { CStr::from_ptr(pointer.cast()) }.to_bytes_with_nul().len() as u64,
            _ => self.size_bytes().ok_or_else(|| failed("its type does not say how long it is in memory".into()))?,
        };
        // SAFETY: promised by the caller.
        let copy = unsafe { memory::copied(pointer, size_bytes) };
        Ok(Payload::Inline(copy.ok_or_else(|| failed("it is NULL".into()))?))
    }

    /// Writes its bytes to these places.
    ///
    /// # Safety
    /// As of [`Description::read`].
    pub(super) unsafe fn write<'a>(
        &self,
        bytes: &[u8],
        outputs: impl Iterator<Item = &'a Uri>,
        keys: &Keys,
    ) -> Outcome<()> {
        for uri in outputs {
            let failed = |why: String| Failed::other(format!("cannot write '{uri}': {why}"));
            let address = match uri {
                Uri::Grid | Uri::Store(_) | Uri::ServerFile(..) => continue,
                Uri::File(path) => {
                    let name = uri.to_string();
                    NewFile::write(&name, path, bytes)?.place(&name)?;
                    self.done().written.insert(path.clone());
                    continue;
                }
                Uri::Key(key) => *keys.get(key).ok_or_else(|| failed("the key has no address".into()))?,
                Uri::Address(address) => *address,
            };
            if let Some(size_bytes) = self.size_bytes().filter(|size_bytes| *size_bytes < bytes.len() as u64) {
                return Err(failed(format!("it has {} bytes, and was described with {size_bytes}", bytes.len())));
            }
            // SAFETY: promised by the caller.
            unsafe { memory::write(std::ptr::with_exposed_provenance_mut(address), bytes) };
        }
        Ok(())
    }

    pub(super) fn begin_transfer(&self, transfer: Transfer) {
        self.done().transfers.push(transfer);
    }

    pub(super) fn take_transfers(&self) -> Vec<Transfer> {
        std::mem::take(&mut self.done().transfers)
    }

    /// A server has made that file.
    pub(super) fn note_file(&self, server: &str, path: &str) {
        self.done().written_there.insert((server.into(), path.into()));
    }

    /// The files that have its value: those of servers, which others can read, and the client's own.
    pub(super) fn files(&self) -> Vec<Uri> {
        let done = self.done();
        let there = done.written_there.iter().map(|(server, path)| Uri::ServerFile(server.clone(), path.clone()));
        there.chain(done.written.iter().cloned().map(Uri::File)).collect()
    }

    /// Those of the files that servers made, which are not known any more then.
    pub(super) fn take_files(&self, which: impl Fn(&Uri) -> bool) -> Vec<(String, String)> {
        let mut done = self.done();
        let is_one = |(server, path): &(String, String)| which(&Uri::ServerFile(server.clone(), path.clone()));
        let (taken, left) = std::mem::take(&mut done.written_there).into_iter().partition(is_one);
        done.written_there = left;
        let taken: BTreeSet<(String, String)> = taken;
        taken.into_iter().collect()
    }

    /// Deletes those of the files that were made here.
    pub(super) fn delete(&self, which: impl Fn(&Path) -> bool) -> Outcome<()> {
        let written = std::mem::take(&mut self.done().written);
        let (mut kept, mut outcome) = (BTreeSet::new(), Ok(()));
        for path in written {
            if !which(&path) {
                kept.insert(path);
            } else if let Err(error) = fs::remove_file(&path) {
                let text = format!("cannot delete '{}': {error}", path.display());
                outcome = outcome.and(Err(Failed::other(text)));
            }
        }
        self.done().written = kept;
        outcome
    }

    /// The place of a container.
    ///
    /// # Errors
    /// If it is none, or has none such.
    pub(super) fn item<R>(&self, rank: i32, take: impl FnOnce(&mut Option<Arc<Remote>>) -> R) -> Outcome<R> {
        let mut done = self.done();
        let size = done.items.len();
        let place = usize::try_from(rank).ok().and_then(|rank| done.items.get_mut(rank));
        place.map(take).ok_or_else(|| {
            let text = match self.kind {
                CONTAINER => format!("rank {rank}: the container has places 0 to {size}, that one left out"),
                _ => "the datum is no container; give it the type GRPC_CONTAINER_OF_GRPC_DATA".into(),
            };
            Failed::new(GRPC_INVALID_DATA_NP, text)
        })
    }
}

/// Whether what is put to a server's store on these terms stays there while the datum is.
pub(super) fn stays(mode: usize) -> bool {
    matches!(mode, STICKY | UNIQUE_STICKY | STRICTLY_VOLATILE)
}

/// Data in a container.
const ITEMS_MAX: usize = 1 << 20;

//! The folder that servers share: one server writes a shared datum there, and the others read it. It may be on a
//! cluster file system.
//!
//! ```text
//! DIR/gridloom-storage          identifies the storage: the same file means the same storage
//! DIR/NODE/lock                 locked by the server while it runs
//! DIR/NODE/DATUM                a datum that the server has written
//! DIR/NODE/new                  the datum that it is writing
//! ```
//! **Invariants.** A file is complete once it has its final name. Its content is checked against the digest that the
//! writer sent over the connection between the two servers. A server removes a file when it drops the datum, removes
//! its own folder when it ends, and at startup removes the folders of servers that have ended, whose locks nobody
//! holds.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::Builder;

use gridloom_base::limits::PARTS;
use gridloom_base::{DatumId, Meta, NodeId, StorageId};
use rustix::fs::{FlockOperation, flock};

use crate::payload::Payload;
use crate::store::Store;
use crate::transport::notice::{Inbox, Link, Notice};

/// File that identifies a storage.
const NAME: &str = "gridloom-storage";
const LOCK: &str = "lock";
/// File being written.
const NEW: &str = "new";
/// Maximum number of files that wait to be read. Data that peers announce beyond this limit are requested over the network.
const READS_MAX: usize = 4096;

/// A folder that servers share.
#[derive(Debug)]
pub struct Storage {
    folder: PathBuf,
    id: StorageId,
}

impl Storage {
    /// Opens the folder, creating it if needed.
    ///
    /// # Errors
    /// If the folder cannot be written, or its file system does not support locks.
    pub fn open(folder: &Path) -> io::Result<Storage> {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let mut draw = [0; 8];
        getrandom::fill(&mut draw).map_err(io::Error::other)?;
        let mut named = tempfile::NamedTempFile::new_in(folder)?;
        writeln!(named, "{:016x}", u64::from_le_bytes(draw))?;
        named.as_file().sync_all()?;
        flock(&named, FlockOperation::NonBlockingLockExclusive)?;
        let name = folder.join(NAME);
        match named.persist_noclobber(&name) {
            // Another server created it first.
            Err(error) if error.error.kind() != io::ErrorKind::AlreadyExists => return Err(error.error),
            _ => {}
        }
        let text = fs::read_to_string(&name)?;
        let id = u64::from_str_radix(text.trim(), 16).map_err(|_| {
            io::Error::other(format!("'{NAME}' there contains '{}', which is not the id of a storage", text.trim()))
        })?;
        Ok(Storage { folder: folder.to_path_buf(), id: StorageId(id) })
    }

    pub fn id(&self) -> StorageId {
        self.id
    }

    fn of(&self, node: NodeId) -> PathBuf {
        self.folder.join(format!("{:016x}", node.0))
    }

    /// Creates the folder of a server and locks it. The folder is locked before it gets its final name.
    fn begin(&self, node: NodeId) -> io::Result<(PathBuf, File)> {
        let (own, new) = (self.of(node), self.of(node).with_extension("new"));
        DirBuilder::new().mode(0o700).create(&new)?;
        let lock = File::create(new.join(LOCK))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        fs::rename(new, &own)?;
        Ok((own, lock))
    }

    /// Removes the folders of servers that have ended.
    fn sweep(&self) -> io::Result<()> {
        for entry in fs::read_dir(&self.folder)? {
            let path = entry?.path();
            let is_one = path
                .file_name()
                .and_then(|name| name.to_str())
                .is_some_and(|name| name.len() == 16 && name.bytes().all(|byte| byte.is_ascii_hexdigit()));
            let lock = if is_one { File::open(path.join(LOCK)).ok() } else { None };
            if lock.is_some_and(|lock| flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok()) {
                // Another server may be removing it at the same time.
                let _ = remove_own(&path);
            }
        }
        Ok(())
    }
}

/// Removes the folder of a server. A folder with other files in it is not ours and is left alone.
fn remove_own(folder: &Path) -> io::Result<()> {
    let is_number = |text: &str| text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_datum = |name: &str| name.split_once('-').is_some_and(|(a, b)| is_number(a) && is_number(b));
    let names: io::Result<Vec<_>> = fs::read_dir(folder)?.map(|entry| Ok(entry?.file_name())).collect();
    let is_own = |name: &str| name == LOCK || name == NEW || is_datum(name);
    if names?.iter().all(|name| name.to_str().is_some_and(is_own)) { fs::remove_dir_all(folder) } else { Ok(()) }
}

fn file_name(datum: DatumId) -> String {
    format!("{:016x}-{:016x}", datum.client.0, datum.serial)
}

/// A change to the server's folder. Changes are applied in order.
enum Change {
    /// Ends with one [`Notice::Stored`] for the peer of this link.
    Write(Link, DatumId, Payload),
    Remove(DatumId),
}

/// A file that a peer has written, and the description of its content.
#[derive(Debug)]
pub(crate) struct Stored {
    pub(crate) link: Link,
    pub(crate) datum: DatumId,
    pub(crate) meta: Meta,
    pub(crate) digest: [u8; 32],
}

/// A server's files in the storage, and the threads that write and read them.
#[derive(Default)]
pub(crate) struct Files(Option<OpenFiles>);

struct OpenFiles {
    own: PathBuf,
    _lock: File,
    changes: Sender<Change>,
    reads: SyncSender<Stored>,
}

impl Files {
    /// Starts the threads.
    ///
    /// # Errors
    /// If the folder cannot be used, or the system cannot start a thread.
    pub(crate) fn start(storage: Storage, node: NodeId, inbox: &Arc<Inbox>, store: &Arc<Store>) -> io::Result<Files> {
        storage.sweep()?;
        let (own, lock) = storage.begin(node)?;
        let ((changes, changed), (reads, read)) = (channel(), sync_channel(READS_MAX));
        let (folder, told) = (own.clone(), inbox.clone());
        let name = || Builder::new().name("storage".into());
        inbox.threads.spawn(name(), move || write_all(&folder, &changed, &told))?;
        let (told, store) = (inbox.clone(), store.clone());
        inbox.threads.spawn(name(), move || read_all(&storage, &read, &told, &store))?;
        Ok(Files(Some(OpenFiles { own, _lock: lock, changes, reads })))
    }

    /// Queues a datum to be written for a peer. Returns false if there is no storage.
    pub(crate) fn write(&self, link: Link, datum: DatumId, payload: Payload) -> bool {
        self.0.as_ref().is_some_and(|open| open.changes.send(Change::Write(link, datum, payload)).is_ok())
    }

    /// Queues a file that a peer has written to be read, which ends with one [`Notice::Loaded`]. Returns false if
    /// there is no storage or the read queue is full.
    pub(crate) fn read(&self, stored: Stored) -> bool {
        self.0.as_ref().is_some_and(|open| open.reads.try_send(stored).is_ok())
    }

    /// Removes the file of a datum that this server no longer has.
    pub(crate) fn remove(&self, datum: DatumId) {
        if let Some(open) = self.0.as_ref().filter(|_| datum.is_shared() && datum.slice().is_none()) {
            // If the thread has died, the process ends with it.
            let _ = open.changes.send(Change::Remove(datum));
        }
    }

    /// Removes the server's folder when the server ends.
    pub(crate) fn shut_down(&mut self) {
        if let Some(OpenFiles { own, .. }) = self.0.take() {
            // The next server that starts removes what is left.
            let _ = fs::remove_dir_all(own);
        }
    }
}

fn write_all(folder: &Path, changes: &Receiver<Change>, inbox: &Inbox) {
    let mut written: BTreeMap<DatumId, [u8; 32]> = BTreeMap::new();
    for change in changes {
        match change {
            Change::Write(link, datum, payload) => {
                let known = written.get(&datum).copied();
                let outcome = known.map_or_else(|| write(folder, datum, &payload), Ok);
                if let Ok(digest) = outcome {
                    written.insert(datum, digest);
                }
                let outcome = outcome.map_err(|error| format!("storage folder '{}': {error}", folder.display()));
                inbox.post(Notice::Stored { link, datum, outcome });
            }
            Change::Remove(datum) if written.remove(&datum).is_some() => {
                if let Err(error) = fs::remove_file(folder.join(file_name(datum))) {
                    let folder = folder.display();
                    gridloom_base::stderr_line!(
                        "gridloom: a file in the storage folder '{folder}' cannot be removed: {error}"
                    );
                }
            }
            Change::Remove(_) => {}
        }
    }
}

/// Writes a datum to a file and returns the digest of its bytes.
fn write(folder: &Path, datum: DatumId, payload: &Payload) -> io::Result<[u8; 32]> {
    let (name, new) = (folder.join(file_name(datum)), folder.join(NEW));
    let written = (|| {
        let mut file = File::options().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        let mut hasher = blake3::Hasher::new();
        payload.visit(0..payload.size_bytes() as usize, PARTS.most_bytes as usize, |part| {
            hasher.update(part);
            file.write_all(part)
        })?;
        drop(file);
        fs::rename(&new, name)?;
        Ok(*hasher.finalize().as_bytes())
    })();
    if written.is_err() {
        // A full disk may leave part of the file.
        let _ = fs::remove_file(&new);
    }
    written
}

fn read_all(storage: &Storage, reads: &Receiver<Stored>, inbox: &Inbox, store: &Store) {
    for stored in reads {
        let outcome = read(storage, &stored, store).map_err(|error| {
            let is_no_memory = error.kind() == io::ErrorKind::OutOfMemory;
            (is_no_memory, format!("storage folder '{}': {error}", storage.folder.display()))
        });
        let Stored { link, datum, meta, .. } = stored;
        inbox.post(Notice::Loaded { link, datum, meta, outcome });
    }
}

fn read(storage: &Storage, stored: &Stored, store: &Store) -> io::Result<Payload> {
    let mut file = File::open(storage.of(stored.link.peer).join(file_name(stored.datum)))?;
    let size_bytes = stored.meta.checked_size_bytes().unwrap_or(u64::MAX);
    if file.metadata()?.len() != size_bytes {
        return Err(io::Error::other(format!(
            "the file of {} does not have the length of {size_bytes} bytes",
            stored.datum
        )));
    }
    let no_memory = |error: io::Error| io::Error::new(io::ErrorKind::OutOfMemory, error);
    let mut memory = store.allocate_for(stored.datum.client, size_bytes).map_err(no_memory)?;
    let mut hasher = blake3::Hasher::new();
    for part in memory.bytes_mut().chunks_mut(PARTS.most_bytes as usize) {
        file.read_exact(part)?;
        hasher.update(part);
    }
    if *hasher.finalize().as_bytes() != stored.digest {
        return Err(io::Error::other(format!(
            "the content of the file of {} differs from what was written",
            stored.datum
        )));
    }
    Ok(Payload::segment(memory.freeze()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::Pool;

    const DATUM: DatumId = DatumId { client: NodeId::CATALOG, serial: 7 };

    fn stored(writer: NodeId, size_bytes: u64, digest: [u8; 32]) -> Stored {
        let link = Link { peer: writer, generation: 1 };
        Stored { link, datum: DATUM, meta: Meta::Bytes { size_bytes }, digest }
    }

    #[test]
    fn what_one_writes_another_reads_and_what_was_changed_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (one, other) = (Storage::open(folder.path()).unwrap(), Storage::open(folder.path()).unwrap());
        assert_eq!(one.id(), other.id());
        let elsewhere = tempfile::tempdir().unwrap();
        assert_ne!(Storage::open(elsewhere.path()).unwrap().id(), one.id());
        let (writer, bytes) = (NodeId(1), vec![5; 3 << 20]);
        let (own, lock) = one.begin(writer).unwrap();
        let digest = write(&own, DATUM, &Payload::copied(&bytes)).unwrap();
        let store = Store::new(Pool::new(0));
        let read_of = |size_bytes, digest| read(&other, &stored(writer, size_bytes, digest), &store);
        assert_eq!(read_of(3 << 20, digest).unwrap().bytes(), bytes);
        assert!(read_of(3 << 20, [0; 32]).unwrap_err().to_string().contains("differs from what was written"));
        assert!(read_of(2 << 20, digest).unwrap_err().to_string().contains("length of 2097152 bytes"));
        // Another server that starts leaves the folder alone while its writer runs.
        other.sweep().unwrap();
        assert!(own.join(file_name(DATUM)).exists());
        // Folders of other programs may have such names, too.
        let others = folder.path().join("0123456789abcdef");
        fs::create_dir(&others).unwrap();
        [LOCK, "results"].iter().for_each(|name| fs::write(others.join(name), "mine").unwrap());
        drop(lock);
        other.sweep().unwrap();
        assert!(!own.exists() && others.join("results").exists());
        assert!(read_of(3 << 20, digest).is_err());
        assert!(folder.path().join(NAME).exists());
    }

    #[test]
    fn a_folder_of_something_else_is_no_storage() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(NAME), "of the user").unwrap();
        let error = Storage::open(folder.path()).unwrap_err().to_string();
        assert!(error.contains("contains 'of the user', which is not the id of a storage"), "{error}");
        let error = Storage::open(Path::new("/dev/null/storage")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotADirectory);
    }
}

//! Durable data: shared data in files of a folder, described in a database beside them ([redb]). A server that starts there again has
//! them.
//!
//! **Invariants.** A datum counts as written when its file, then its record with the digest of its bytes are on the disk. What is read
//! at the start is checked against that: a file that was changed, or is only part of what was written, is not taken for the datum.
//!
//! [redb]: https://www.redb.org

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::Builder;

use blake3::Hash;
use gridloom_base::limits::PART_BYTES;
use gridloom_base::{DatumId, Named, NodeId};
use redb::{Database, DatabaseError, ReadableDatabase, ReadableTable, TableDefinition};
use serde::{Deserialize, Serialize};

use crate::payload::Payload;
use crate::segment::{PAGE_BYTES, Segment};
use crate::transport::notice::{Inbox, Notice};

const DATABASE: &str = "durable.redb";
/// A record for each datum, by the serial of its name.
const RECORDS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("records 1");

#[derive(Serialize, Deserialize)]
struct Record {
    named: Named,
    digest: [u8; 32],
}

/// A folder with durable data.
/// A folder with durable data.
#[derive(Debug)]
pub struct Durable {
    folder: PathBuf,
    database: Database,
    /// What was there at the start.
    found: Vec<(Named, Arc<Segment>)>,
}

impl Durable {
    /// Opens the folder, which is made if it is not there, and checks what is in it. Also gives what is wrong with some of that; such
    /// data are removed.
    ///
    /// # Errors
    /// If another process uses the folder, or the disk fails.
    pub fn open(folder: &Path) -> io::Result<(Durable, Vec<String>)> {
        fs::create_dir_all(folder)?;
        let database = Database::create(folder.join(DATABASE)).map_err(|error| match error {
            DatabaseError::DatabaseAlreadyOpen => io::Error::other("another server keeps its data there"),
            error => io::Error::other(error),
        })?;
        let mut durable = Durable { folder: folder.to_path_buf(), database, found: Vec::new() };
        let mut wrong = Vec::new();
        for (serial, record) in durable.records()? {
            match record.and_then(|record| durable.read(serial, record)) {
                Ok(found) => durable.found.push(found),
                Err(error) => {
                    durable.remove(serial)?;
                    let file = durable.file(serial);
                    wrong.push(format!("durable data in '{}' are lost: {error}", file.display()));
                }
            }
        }
        durable.clean()?;
        Ok((durable, wrong))
    }

    /// What is in it.
    pub fn named(&self) -> Vec<Named> {
        self.found.iter().map(|(named, _)| named.clone()).collect()
    }

    /// The bytes of what was in it at the start; given once.
    pub(crate) fn take_found(&mut self) -> Vec<(Named, Arc<Segment>)> {
        std::mem::take(&mut self.found)
    }

    fn file(&self, serial: u64) -> PathBuf {
        self.folder.join(format!("{serial:016x}.data"))
    }

    fn records(&self) -> io::Result<Vec<(u64, io::Result<Record>)>> {
        let write = self.database.begin_write().map_err(io::Error::other)?;
        // So that it exists.
        drop(write.open_table(RECORDS).map_err(io::Error::other)?);
        write.commit().map_err(io::Error::other)?;
        let read = self.database.begin_read().map_err(io::Error::other)?;
        let table = read.open_table(RECORDS).map_err(io::Error::other)?;
        let mut records = Vec::new();
        for entry in table.iter().map_err(io::Error::other)? {
            let (serial, record) = entry.map_err(io::Error::other)?;
            records.push((serial.value(), postcard::from_bytes(record.value()).map_err(io::Error::other)));
        }
        Ok(records)
    }

    fn read(&self, serial: u64, Record { named, digest }: Record) -> io::Result<(Named, Arc<Segment>)> {
        let size_bytes = named.meta.checked_size_bytes().unwrap_or(u64::MAX);
        if named.datum != (DatumId { client: NodeId::CATALOG, serial }) {
            return Err(io::Error::other("their description is that of others"));
        }
        let segment = Segment::of_file(File::open(self.file(serial))?, size_bytes)?;
        if blake3::hash(segment.bytes()) != Hash::from_bytes(digest) {
            return Err(io::Error::other(format!("they are not the {size_bytes} bytes of '{}'", named.name)));
        }
        Ok((named, segment))
    }

    /// Files without a record were not whole when a server ended.
    fn clean(&self) -> io::Result<()> {
        let known: Vec<PathBuf> = self.found.iter().map(|(named, _)| self.file(named.datum.serial)).collect();
        for entry in fs::read_dir(&self.folder)? {
            let path = entry?.path();
            if path.extension().is_some_and(|end| end == "data") && !known.contains(&path) {
                fs::remove_file(path)?;
            }
        }
        Ok(())
    }

    /// When this returns, the datum outlives the process, and the machine.
    fn write(&self, named: &Named, payload: &Payload) -> io::Result<()> {
        let serial = named.datum.serial;
        let (path, bytes) = (self.file(serial), payload.bytes());
        let mut file = File::create(&path)?;
        let mut hasher = blake3::Hasher::new();
        for part in bytes.chunks(PART_BYTES as usize) {
            hasher.update(part);
            file.write_all(part)?;
        }
        // Whole pages, as mappings want them.
        file.set_len((bytes.len() as u64).max(1).next_multiple_of(PAGE_BYTES))?;
        file.sync_all()?;
        File::open(&self.folder)?.sync_all()?;
        let record = Record { named: named.clone(), digest: *hasher.finalize().as_bytes() };
        let record = postcard::to_stdvec(&record).map_err(io::Error::other)?;
        let write = self.database.begin_write().map_err(io::Error::other)?;
        write.open_table(RECORDS).map_err(io::Error::other)?.insert(serial, &record[..]).map_err(io::Error::other)?;
        write.commit().map_err(io::Error::other)
    }

    fn remove(&self, serial: u64) -> io::Result<()> {
        let write = self.database.begin_write().map_err(io::Error::other)?;
        let is_known = {
            let mut table = write.open_table(RECORDS).map_err(io::Error::other)?;
            table.remove(serial).map_err(io::Error::other)?.is_some()
        };
        match is_known {
            true => write.commit().map_err(io::Error::other)?,
            false => write.abort().map_err(io::Error::other)?,
        }
        match fs::remove_file(self.file(serial)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

/// What is to be done in the folder, in this order.
enum Job {
    Write(Named, Payload),
    Remove(DatumId),
}

/// The thread that writes and removes.
#[derive(Default)]
pub(crate) struct Writer(Option<Sender<Job>>);

impl Writer {
    /// # Errors
    /// If the system has no thread to give.
    pub(crate) fn start(durable: Durable, inbox: &Arc<Inbox>) -> io::Result<Writer> {
        let (jobs, queue) = channel();
        let own = inbox.clone();
        inbox.threads.spawn(Builder::new().name("durable data".into()), move || run(&durable, &queue, &own))?;
        Ok(Writer(Some(jobs)))
    }

    /// Ends in one [`Notice::MadeDurable`]. False if there is no folder.
    pub(crate) fn write(&self, named: Named, payload: Payload) -> bool {
        self.0.as_ref().is_some_and(|jobs| jobs.send(Job::Write(named, payload)).is_ok())
    }

    /// The datum is not to outlive the process.
    pub(crate) fn remove(&self, datum: DatumId) {
        if let Some(jobs) = self.0.as_ref().filter(|_| datum.is_shared()) {
            // A thread that is gone takes the process with it.
            let _ = jobs.send(Job::Remove(datum));
        }
    }
}

fn run(durable: &Durable, queue: &Receiver<Job>, inbox: &Inbox) {
    for job in queue {
        match job {
            Job::Write(named, payload) => {
                let outcome = durable.write(&named, &payload).map_err(|error| {
                    // A full disk leaves part of the file.
                    let _ = durable.remove(named.datum.serial);
                    format!("folder '{}': {error}", durable.folder.display())
                });
                inbox.post(Notice::MadeDurable { datum: named.datum, outcome });
            }
            // What cannot be removed is there at the next start: the agent knows that the name is gone, if it is the same.
            Job::Remove(datum) => _ = durable.remove(datum.serial),
        }
    }
}

#[cfg(test)]
mod tests {
    use gridloom_base::Meta;

    use super::*;

    fn named(serial: u64, size_bytes: u64) -> Named {
        let datum = DatumId { client: NodeId::CATALOG, serial };
        Named {
            datum,
            name: format!("n{serial}"),
            version: 1,
            meta: Meta::Bytes { size_bytes },
            replicas: 1,
            is_durable: true,
            made_by: None,
        }
    }

    #[test]
    fn what_was_written_is_there_again_and_what_was_changed_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let (durable, wrong) = Durable::open(folder.path()).unwrap();
        assert!(wrong.is_empty() && durable.named().is_empty());
        assert!(Durable::open(folder.path()).is_err_and(|error| error.to_string().contains("another server")));
        for (serial, bytes) in [(1, &b"one"[..]), (2, b"two"), (3, b""), (4, b"four"), (5, b"five")] {
            durable.write(&named(serial, bytes.len() as u64), &Payload::copied(bytes)).unwrap();
        }
        durable.remove(2).unwrap();
        durable.remove(2).unwrap();
        fs::write(durable.file(4), vec![b'x'; 4096]).unwrap();
        fs::write(durable.file(5), b"five").unwrap();
        fs::write(durable.file(6), b"part").unwrap();
        let files = [4, 5, 6].map(|serial| durable.file(serial));
        drop(durable);
        let (mut durable, wrong) = Durable::open(folder.path()).unwrap();
        assert_eq!(wrong.len(), 2, "{wrong:?}");
        assert!(wrong[0].contains("they are not the 4 bytes of 'n4'"), "{wrong:?}");
        assert!(!files.iter().any(|file| file.exists()));
        assert_eq!(durable.named(), [named(1, 3), named(3, 0)]);
        let bytes: Vec<Vec<u8>> = durable.take_found().iter().map(|(_, segment)| segment.bytes().to_vec()).collect();
        assert_eq!(bytes, [b"one".to_vec(), Vec::new()]);
        drop(durable);
        assert_eq!(Durable::open(folder.path()).unwrap().1, [""; 0]);
    }
}

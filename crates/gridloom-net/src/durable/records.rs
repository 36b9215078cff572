//! The database that describes durable data: one record per datum, keyed by its serial.
//!
//! **Invariants.** What a method has written is on the disk when the method returns. After a disk error the database
//! accepts no more writes (as [redb] documents), so it is closed and reopened for the next change.
//!
//! [redb]: https://www.redb.org

use std::collections::BTreeSet;
use std::fs::{File, Permissions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use gridloom_base::NamedDatum;
use redb::{Database, DatabaseError, ReadableDatabase, ReadableTable, TableDefinition, TableHandle, WriteTransaction};
use serde::{Deserialize, Serialize};

/// Table of records. The number in its name is the version of the record layout.
pub(super) const RECORDS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("records 5");

#[derive(Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) named: NamedDatum,
    pub(super) digest: [u8; 32],
}

/// The database of records. See the module documentation.
#[derive(Debug)]
pub(super) struct Records {
    path: PathBuf,
    /// `None` after an error.
    database: Option<Database>,
    /// Records that are no longer needed but could not be removed yet.
    unremoved: BTreeSet<u64>,
}

impl Records {
    /// Opens or creates the database. Also returns its records.
    ///
    /// # Errors
    /// If another process uses it, it has another version, or the disk fails.
    pub(super) fn open(path: PathBuf) -> io::Result<(Records, Vec<(u64, Record)>)> {
        // Names and places of data are as private as the data.
        let file = File::options().read(true).write(true).create(true).truncate(false).mode(0o600).open(&path)?;
        file.set_permissions(Permissions::from_mode(0o600))?;
        let database = Database::builder().create_file(file).map_err(|error| match error {
            DatabaseError::DatabaseAlreadyOpen => io::Error::other("another server keeps its data there"),
            error => io::Error::other(error),
        })?;
        let known = read(&database)?;
        Ok((Records { path, database: Some(database), unremoved: BTreeSet::new() }, known))
    }

    /// Inserts a record.
    ///
    /// # Errors
    /// If the disk is full or fails.
    pub(super) fn insert(&mut self, serial: u64, record: &Record) -> io::Result<()> {
        let record = postcard::to_stdvec(record).map_err(io::Error::other)?;
        self.change(|write, unremoved| {
            let mut table = write.open_table(RECORDS).map_err(io::Error::other)?;
            for serial in unremoved {
                table.remove(serial).map_err(io::Error::other)?;
            }
            table.insert(serial, &record[..]).map_err(io::Error::other)?;
            Ok(true)
        })
    }

    /// Returns a record.
    ///
    /// # Errors
    /// If the disk fails.
    pub(super) fn get(&mut self, serial: u64) -> io::Result<Option<Record>> {
        let database = match self.database.take() {
            Some(database) => database,
            None => reopen(&self.path)?,
        };
        let read = database.begin_read().map_err(io::Error::other)?;
        let table = read.open_table(RECORDS).map_err(io::Error::other)?;
        let found = table.get(serial).map_err(io::Error::other)?;
        let record = found.map(|bytes| postcard::from_bytes(bytes.value()).map_err(io::Error::other)).transpose()?;
        self.database = Some(database);
        Ok(record)
    }

    /// Removes a record, if it exists. If it cannot be removed now, the next change removes it.
    ///
    /// # Errors
    /// If the disk is full or fails.
    pub(super) fn remove(&mut self, serial: u64) -> io::Result<()> {
        self.unremoved.insert(serial);
        self.change(|write, unremoved| {
            let mut table = write.open_table(RECORDS).map_err(io::Error::other)?;
            let mut is_known = false;
            for serial in unremoved {
                is_known |= table.remove(serial).map_err(io::Error::other)?.is_some();
            }
            Ok(is_known)
        })
    }

    /// Runs one transaction; the closure returns whether to commit or abort it.
    fn change(&mut self, act: impl Fn(&WriteTransaction, &BTreeSet<u64>) -> io::Result<bool>) -> io::Result<()> {
        let database = match self.database.take() {
            Some(database) => database,
            None => reopen(&self.path)?,
        };
        let write = database.begin_write().map_err(io::Error::other)?;
        match act(&write, &self.unremoved)? {
            true => write.commit().map_err(io::Error::other)?,
            false => write.abort().map_err(io::Error::other)?,
        }
        self.unremoved.clear();
        self.database = Some(database);
        Ok(())
    }

    #[cfg(test)]
    pub(super) fn database(&self) -> &Database {
        self.database.as_ref().expect("nothing has failed")
    }
}

/// Reopens the database after an error. It contains only committed changes.
fn reopen(path: &Path) -> io::Result<Database> {
    let again = |error| io::Error::other(format!("'{}' cannot be reopened: {error}", path.display()));
    Database::open(path).map_err(again)
}

fn read(database: &Database) -> io::Result<Vec<(u64, Record)>> {
    let read = database.begin_read().map_err(io::Error::other)?;
    let has_others = read.list_tables().map_err(io::Error::other)?.any(|table| table.name() != RECORDS.name());
    drop(read);
    if has_others {
        return Err(io::Error::other("it has data of another version of Gridloom"));
    }
    let write = database.begin_write().map_err(io::Error::other)?;
    // Creates the table if it does not exist.
    drop(write.open_table(RECORDS).map_err(io::Error::other)?);
    write.commit().map_err(io::Error::other)?;
    let read = database.begin_read().map_err(io::Error::other)?;
    let table = read.open_table(RECORDS).map_err(io::Error::other)?;
    let mut records = Vec::new();
    for entry in table.iter().map_err(io::Error::other)? {
        let (serial, record) = entry.map_err(io::Error::other)?;
        records.push((serial.value(), postcard::from_bytes(record.value()).map_err(io::Error::other)?));
    }
    Ok(records)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use gridloom_base::{DatumId, Meta, NodeId};
    use redb::StorageBackend;
    use redb::backends::FileBackend;

    use super::*;

    /// A disk that rejects writes while the flag is set.
    #[derive(Debug)]
    struct Disk(FileBackend, Arc<AtomicBool>);

    impl Disk {
        fn check(&self) -> io::Result<()> {
            match self.1.load(Ordering::Relaxed) {
                true => Err(io::Error::from(io::ErrorKind::StorageFull)),
                false => Ok(()),
            }
        }
    }

    impl StorageBackend for Disk {
        fn len(&self) -> io::Result<u64> {
            self.0.len()
        }

        fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
            self.0.read(offset, out)
        }

        fn set_len(&self, len: u64) -> io::Result<()> {
            self.check().and_then(|()| self.0.set_len(len))
        }

        fn sync_data(&self) -> io::Result<()> {
            self.check().and_then(|()| self.0.sync_data())
        }

        fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
            self.check().and_then(|()| self.0.write(offset, data))
        }

        fn close(&self) -> io::Result<()> {
            self.0.close()
        }
    }

    fn record(serial: u64) -> Record {
        let (datum, meta) = (DatumId { client: NodeId::CATALOG, serial }, Meta::Bytes { size_bytes: 1 });
        let (name, version, replicas, is_durable, made_by) = (format!("n{serial}"), 1, 1, true, None);
        Record {
            named: NamedDatum {
                datum,
                name,
                version,
                meta,
                replicas,
                is_durable,
                method: gridloom_base::Method::Auto,
                put_by: made_by,
                readers: Default::default(),
            },
            digest: [0; 32],
        }
    }

    #[test]
    fn only_the_user_may_read_the_database() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("durable.redb");
        let mode = || std::fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        drop(Records::open(path.clone()).unwrap());
        assert_eq!(mode(), 0o600);
        std::fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        drop(Records::open(path.clone()).unwrap());
        assert_eq!(mode(), 0o600);
    }

    #[test]
    fn after_an_error_of_the_disk_the_database_is_opened_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("durable.redb");
        let (mut records, known) = Records::open(path.clone()).unwrap();
        assert!(known.is_empty());
        (1..=3).for_each(|serial| records.insert(serial, &record(serial)).unwrap());
        drop(records);
        let is_full = Arc::new(AtomicBool::new(false));
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let disk = Disk(FileBackend::new(file).unwrap(), is_full.clone());
        let database = Some(Database::builder().create_with_backend(disk).unwrap());
        let mut records = Records { path: path.clone(), database, unremoved: BTreeSet::new() };
        records.insert(4, &record(4)).unwrap();
        is_full.store(true, Ordering::Relaxed);
        assert!(records.remove(1).is_err());
        is_full.store(false, Ordering::Relaxed);
        // This also removes the first record.
        records.insert(5, &record(5)).unwrap();
        records.remove(2).unwrap();
        assert!(Records::open(path.clone()).is_err_and(|error| error.to_string().contains("another server")));
        drop(records);
        let serials: Vec<u64> = Records::open(path).unwrap().1.into_iter().map(|(serial, _)| serial).collect();
        assert_eq!(serials, [3, 4, 5]);
    }
}

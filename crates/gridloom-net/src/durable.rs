//! Durable data: shared data stored in files of a folder and described in a database beside them ([redb]). A server
//! that is restarted with that folder has the data again.
//!
//! **Invariants.** A datum counts as written once its file, and then its record with the digest of its bytes, are on
//! the disk. It counts as removed once its record is; if the disk has no room for that, once its file has the extension
//! of removed ones. If the process ends in between, the datum is there with its file, or not there at all, but never
//! damaged. Files are checked against the digest at startup: a file that was changed or is incomplete is not used.
//!
//! [redb]: https://www.redb.org

mod records;

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::Builder;

use gridloom_base::limits::{EAGER_BYTES_MAX, PARTS};
use gridloom_base::{DatumId, EscapedLine, NamedDatum, NodeId};
use gridloom_core::node::message::DamagedVersion;

use self::records::{Record, Records};
use crate::descriptors::raise_descriptor_limit;
use crate::payload::Payload;
use crate::segment::{PAGE_BYTES, Segment};
use crate::transport::notice::{Inbox, Notice};

const DATABASE: &str = "durable.redb";

/// A folder with durable data.
#[derive(Debug)]
pub struct Durable {
    folder: PathBuf,
    records: Records,
    /// Data found at startup.
    found: Vec<(NamedDatum, Payload)>,
    /// Data whose files are damaged.
    damaged: Vec<DamagedVersion>,
}

impl Durable {
    /// Opens the folder, creating it if needed, and checks its files. Damaged files are renamed; their records stay until
    /// the name is put again or deleted.
    ///
    /// # Errors
    /// If another process uses the folder, if it has data of another version of Gridloom, or if the disk fails. The
    /// folder is not changed then.
    pub fn open(folder: &Path) -> io::Result<Durable> {
        raise_descriptor_limit();
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let path = folder.join(DATABASE);
        if !path.exists() && files(folder, DATA)?.next().is_some() {
            let why = format!("it has data files, but '{DATABASE}', which describes them, is missing");
            return Err(io::Error::other(why));
        }
        let (records, known) = Records::open(path)?;
        let mut durable = Durable { folder: folder.to_path_buf(), records, found: Vec::new(), damaged: Vec::new() };
        for (serial, record) in known {
            if exists(&durable.file(serial, GONE)) {
                durable.end_removal(serial)?;
                continue;
            }
            let named = record.named.clone();
            match durable.read(serial, record)? {
                Ok(found) => durable.found.push(found),
                Err(why) => {
                    let (file, aside) = (durable.file(serial, DATA), durable.file(serial, WRONG));
                    if exists(&file) {
                        fs::rename(&file, &aside)?;
                    }
                    let kept =
                        if exists(&aside) { format!("; it is kept as '{}'", aside.display()) } else { String::new() };
                    let why = format!("'{}': {why}{kept}; put the name again, or delete it", file.display());
                    durable.damaged.push(DamagedVersion { named, why });
                }
            }
        }
        durable.clean()?;
        Ok(durable)
    }

    /// Returns the data whose files are damaged.
    pub fn damaged(&self) -> &[DamagedVersion] {
        &self.damaged
    }

    /// Returns the descriptions of the data in the folder.
    pub fn named(&self) -> Vec<NamedDatum> {
        self.found.iter().map(|(named, _)| named.clone()).collect()
    }

    /// Returns the data found at startup; the second call returns nothing.
    pub(crate) fn take_found(&mut self) -> Vec<(NamedDatum, Payload)> {
        std::mem::take(&mut self.found)
    }

    fn file(&self, serial: u64, end: &str) -> PathBuf {
        self.folder.join(format!("{serial:016x}.{end}"))
    }

    /// Returns the datum, or what is wrong with its file.
    ///
    /// # Errors
    /// If the file may be intact but cannot be read now.
    fn read(&self, serial: u64, Record { named, digest }: Record) -> io::Result<Result<(NamedDatum, Payload), String>> {
        let size_bytes = named.meta.checked_size_bytes().unwrap_or(u64::MAX);
        if named.datum != (DatumId { client: NodeId::CATALOG, serial }) {
            return Err(io::Error::other(format!("the record {serial:016x} describes {}", named.datum)));
        }
        let path = self.file(serial, DATA);
        // The kind is checked before opening, because opening a device may have side effects, and after it, because the
        // file may have been replaced in between.
        let open = || match fs::metadata(&path)?.is_file() {
            true => File::options().read(true).custom_flags(libc::O_NONBLOCK).open(&path).map(Some),
            false => Ok(None),
        };
        let file = match open() {
            Ok(file) => file.filter(|file| file.metadata().is_ok_and(|metadata| metadata.is_file())),
            Err(error) if error.kind() == io::ErrorKind::NotFound && exists(&self.file(serial, WRONG)) => {
                return Ok(Err("the file was damaged".into()));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Err("the file is missing".into())),
            Err(error) if error.raw_os_error() == Some(libc::ELOOP) => return Ok(Err("it is a link to itself".into())),
            Err(error) => return Err(error),
        };
        let Some(file) = file else {
            return Ok(Err("it is a folder, device, pipe or socket instead of the file with the data".into()));
        };
        if file.metadata()?.len() != file_bytes(size_bytes) {
            return Ok(Err(format!("the file does not have the length of {size_bytes} bytes of data")));
        }
        let payload = Payload::segment(Segment::of_file(file, size_bytes)?);
        let found = match payload.digest_of_part(0..size_bytes as usize) {
            // Small data are copied so that they do not hold a descriptor.
            Ok(found) if found == digest && size_bytes <= EAGER_BYTES_MAX => Payload::copied(&payload.read()?),
            Ok(found) if found == digest => payload,
            Ok(_) => return Ok(Err("its content was changed".into())),
            Err(error) => match payload.check_intact() {
                Ok(()) => return Err(error),
                Err(damage) => return Ok(Err(damage.to_string())),
            },
        };
        Ok(Ok((named, found)))
    }

    /// Removes files without a record: they were incomplete when a server ended.
    fn clean(&self) -> io::Result<()> {
        let known: BTreeSet<PathBuf> =
            self.found.iter().map(|(named, _)| self.file(named.datum.serial, DATA)).collect();
        let unfinished = files(&self.folder, NEW)?.chain(files(&self.folder, GONE)?);
        for path in files(&self.folder, DATA)?.filter(|path| !known.contains(path)).chain(unfinished) {
            fs::remove_file(path)?;
        }
        Ok(())
    }

    /// Writes a datum. When this returns, the datum survives the end of the process and of the machine.
    fn write(&mut self, named: &NamedDatum, payload: &Payload) -> io::Result<()> {
        let (serial, size_bytes) = (named.datum.serial, payload.size_bytes());
        let new = self.file(serial, NEW);
        // An earlier attempt may have left a file. A pipe in its place would block.
        remove_if_present(&new)?;
        let mut file = File::options().write(true).create_new(true).mode(0o600).open(&new)?;
        let mut hasher = blake3::Hasher::new();
        payload.visit(0..size_bytes as usize, PARTS.most_bytes as usize, |part| {
            hasher.update(part);
            file.write_all(part)
        })?;
        file.set_len(file_bytes(size_bytes))?;
        file.sync_all()?;
        fs::rename(new, self.file(serial, DATA))?;
        File::open(&self.folder)?.sync_all()?;
        let digest = *hasher.finalize().as_bytes();
        self.records.insert(serial, &Record { named: named.clone(), digest })?;
        // Left by a removal for which the disk had no room.
        let gone = self.file(serial, GONE);
        if exists(&gone) {
            fs::remove_file(gone)?;
            File::open(&self.folder)?.sync_all()?;
        }
        Ok(())
    }

    /// Replaces the description of a datum. The bytes stay.
    fn update(&mut self, named: NamedDatum) -> io::Result<()> {
        let serial = named.datum.serial;
        match self.records.get(serial)? {
            Some(Record { digest, .. }) => self.records.insert(serial, &Record { named, digest }),
            None => Ok(()),
        }
    }

    /// Removes a datum. When this returns, the datum does not return after the end of the process or of the machine.
    ///
    /// # Errors
    /// If the disk fails.
    fn remove(&mut self, serial: u64) -> io::Result<()> {
        self.remove_in_steps(serial, &mut |_| ())
    }

    /// As [`Durable::remove`]; `after` is called with the folder after each change on the disk. The record is removed
    /// first: a file without a record is not used, but a record without a file would be reported as damage.
    fn remove_in_steps(&mut self, serial: u64, after: &mut dyn FnMut(&Path)) -> io::Result<()> {
        remove_if_present(&self.file(serial, NEW))?;
        let removed = self.records.remove(serial);
        after(&self.folder);
        match removed {
            Ok(()) => remove_if_present(&self.file(serial, DATA))?,
            // On a full disk, the database may have no room for its own write.
            Err(error) => self.remove_without_room(serial, after, error)?,
        }
        after(&self.folder);
        Ok(())
    }

    /// Removes a datum whose record cannot be removed now. Renaming its file needs no room. Then an empty file replaces
    /// it, so that there is room for the database. If that fails, the next start removes both.
    fn remove_without_room(&mut self, serial: u64, after: &mut dyn FnMut(&Path), error: io::Error) -> io::Result<()> {
        let (file, gone, new) = (self.file(serial, DATA), self.file(serial, GONE), self.file(serial, NEW));
        match fs::rename(&file, &gone) {
            // The file of a damaged datum is missing.
            Err(missing) if missing.kind() == io::ErrorKind::NotFound => {
                File::options().write(true).create(true).truncate(false).mode(0o600).open(&gone).map_err(|_| error)?;
            }
            renamed => renamed?,
        }
        File::open(&self.folder)?.sync_all()?;
        after(&self.folder);
        let emptied = File::options().write(true).create_new(true).mode(0o600).open(&new);
        if emptied.and_then(|_| fs::rename(&new, &gone)).is_ok() {
            after(&self.folder);
            if self.records.remove(serial).is_ok() {
                remove_if_present(&gone)?;
            }
        }
        Ok(())
    }

    /// Completes a removal for which the disk had no room when the process ended.
    fn end_removal(&mut self, serial: u64) -> io::Result<()> {
        match self.records.remove(serial) {
            Ok(()) => remove_if_present(&self.file(serial, GONE)),
            Err(error) => self.remove_without_room(serial, &mut |_| (), error),
        }
    }
}

/// True if there is a file of any kind, even a dangling link.
fn exists(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

fn remove_if_present(file: &Path) -> io::Result<()> {
    match fs::remove_file(file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Extensions of complete data files, of files being written, and of damaged files.
const DATA: &str = "data";
const NEW: &str = "new";
const WRONG: &str = "wrong";
/// Extension of the files of removed data whose records could not be removed.
const GONE: &str = "gone";

/// Returns the folder's files with this extension and a serial as name. Folders are skipped: Gridloom creates none.
fn files(folder: &Path, end: &'static str) -> io::Result<impl Iterator<Item = PathBuf>> {
    let is_serial = |stem: &str| stem.len() == 16 && stem.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_one = move |path: &Path| {
        let stem = path.file_stem().and_then(|stem| stem.to_str());
        stem.is_some_and(is_serial) && path.extension().is_some_and(|its| its == end)
    };
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if !entry.file_type()?.is_dir() {
            paths.push(entry.path());
        }
    }
    Ok(paths.into_iter().filter(move |path| is_one(path)))
}

/// Rounds up to whole pages, as mappings require.
fn file_bytes(size_bytes: u64) -> u64 {
    size_bytes.max(1).checked_next_multiple_of(PAGE_BYTES).unwrap_or(u64::MAX)
}

/// A change to the folder. Changes are applied in order.
enum Job {
    Write(NamedDatum, Payload),
    Update(NamedDatum),
    Remove(DatumId),
    /// Reports that the changes before it are on the disk.
    Sync(u64),
}

/// The thread that writes and removes files.
#[derive(Default)]
pub(crate) struct Writer(Option<Sender<Job>>);

impl Writer {
    /// Starts the thread.
    ///
    /// # Errors
    /// If the system cannot start a thread.
    pub(crate) fn start(mut durable: Durable, inbox: &Arc<Inbox>) -> io::Result<Writer> {
        let (jobs, queue) = channel();
        let own = inbox.clone();
        inbox.threads.spawn(Builder::new().name("durable data".into()), move || run(&mut durable, &queue, &own))?;
        Ok(Writer(Some(jobs)))
    }

    /// Queues the datum for writing, which ends with one [`Notice::MadeDurable`]. Returns false if there is no folder.
    pub(crate) fn write(&self, named: NamedDatum, payload: Payload) -> bool {
        self.0.as_ref().is_some_and(|jobs| jobs.send(Job::Write(named, payload)).is_ok())
    }

    /// Replaces the description of a datum that was written.
    pub(crate) fn update(&self, named: NamedDatum) {
        if let Some(jobs) = &self.0 {
            let _ = jobs.send(Job::Update(named));
        }
    }

    /// Queues a report that the removals so far are on the disk, [`Notice::DurableSynced`]. Returns false if there is
    /// no folder.
    pub(crate) fn sync(&self, number: u64) -> bool {
        self.0.as_ref().is_some_and(|jobs| jobs.send(Job::Sync(number)).is_ok())
    }

    /// Removes the datum, which must not outlive the process any more.
    pub(crate) fn remove(&self, datum: DatumId) {
        if let Some(jobs) = self.0.as_ref().filter(|_| datum.is_shared() && datum.slice().is_none()) {
            // If the thread has died, the process ends with it.
            let _ = jobs.send(Job::Remove(datum));
        }
    }
}

fn run(durable: &mut Durable, queue: &Receiver<Job>, inbox: &Inbox) {
    for job in queue {
        match job {
            Job::Write(named, payload) => {
                let outcome = durable.write(&named, &payload).map_err(|error| {
                    // A full disk may leave part of the file.
                    let _ = durable.remove(named.datum.serial);
                    format!("folder '{}': {error}", durable.folder.display())
                });
                inbox.post(Notice::MadeDurable { datum: named.datum, outcome });
            }
            Job::Update(named) => {
                let name = named.name.clone();
                if let Err(error) = durable.update(named) {
                    let (folder, name) = (durable.folder.display(), EscapedLine(&name));
                    gridloom_base::stderr_line!(
                        "gridloom: folder '{folder}': cannot record who may read '{name}': {error}; share it again"
                    );
                }
            }
            Job::Sync(number) => inbox.post(Notice::DurableSynced { number }),
            Job::Remove(datum) => {
                if let Err(error) = durable.remove(datum.serial) {
                    let folder = durable.folder.display();
                    gridloom_base::stderr_line!("gridloom: durable data in '{folder}' cannot be removed: {error}");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use gridloom_base::Meta;
    use redb::TableDefinition;

    use super::*;

    fn named(serial: u64, size_bytes: u64) -> NamedDatum {
        let datum = DatumId { client: NodeId::CATALOG, serial };
        NamedDatum {
            datum,
            name: format!("n{serial}"),
            version: 1,
            meta: Meta::Bytes { size_bytes },
            replicas: 1,
            is_durable: true,
            method: gridloom_base::Method::Auto,
            put_by: None,
            readers: Default::default(),
        }
    }

    #[test]
    fn what_was_written_is_there_again_and_what_was_changed_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let mut durable = Durable::open(folder.path()).unwrap();
        assert!(durable.damaged().is_empty() && durable.named().is_empty());
        assert!(Durable::open(folder.path()).is_err_and(|error| error.to_string().contains("another server")));
        for (serial, bytes) in [(1, &b"one"[..]), (2, b"two"), (3, b""), (4, b"four"), (5, b"five")] {
            durable.write(&named(serial, bytes.len() as u64), &Payload::copied(bytes)).unwrap();
        }
        durable.remove(2).unwrap();
        durable.remove(2).unwrap();
        fs::write(durable.file(4, DATA), vec![b'x'; 4096]).unwrap();
        fs::write(durable.file(5, DATA), b"five").unwrap();
        fs::write(durable.file(6, DATA), b"part").unwrap();
        fs::write(durable.file(7, NEW), b"part").unwrap();
        let results = folder.path().join("results.data");
        fs::write(&results, b"of the user").unwrap();
        let files = [4, 5, 6].map(|serial| durable.file(serial, DATA));
        let aside = [4, 5].map(|serial| durable.file(serial, WRONG));
        drop(durable);
        let mut durable = Durable::open(folder.path()).unwrap();
        let damage = |durable: &Durable| {
            let of = |damaged: &DamagedVersion| (damaged.named.name.clone(), damaged.why.clone());
            durable.damaged().iter().map(of).unzip::<_, _, Vec<String>, Vec<String>>()
        };
        let (names, why) = damage(&durable);
        assert_eq!(names, ["n4", "n5"]);
        let (file, kept) = (files[0].display(), aside[0].display());
        let expected =
            format!("'{file}': its content was changed; it is kept as '{kept}'; put the name again, or delete it");
        assert_eq!(why[0], expected);
        assert!(why[1].contains("not have the length of 4 bytes"), "{why:?}");
        assert!(!files.iter().any(|file| file.exists()) && !durable.file(7, NEW).exists());
        assert!(aside.iter().all(|file| file.exists()) && results.exists());
        assert_eq!(durable.named(), [named(1, 3), named(3, 0)]);
        let bytes: Vec<Vec<u8>> = durable.take_found().iter().map(|(_, found)| found.bytes().to_vec()).collect();
        assert_eq!(bytes, [b"one".to_vec(), Vec::new()]);
        drop(durable);
        // The damage is reported until the data are removed.
        let mut durable = Durable::open(folder.path()).unwrap();
        let (names, why) = damage(&durable);
        assert!(names == ["n4", "n5"] && why[0].contains("': the file was damaged; it is kept as '"), "{why:?}");
        durable.remove(4).unwrap();
        drop(durable);
        assert_eq!(damage(&Durable::open(folder.path()).unwrap()).0, ["n5"]);
        assert!(aside.iter().all(|file| file.exists()));
        let own = fs::metadata(folder.path().join(format!("{:016x}.data", 1))).unwrap();
        assert_eq!(own.permissions().mode() & 0o777, 0o600);
    }

    /// Copies the folder as it is, as if the process were killed now, and opens the copy.
    fn after_kill(folder: &Path) -> (tempfile::TempDir, Durable) {
        let copy = tempfile::tempdir().unwrap();
        for entry in fs::read_dir(folder).unwrap().flatten() {
            fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
        }
        let durable = Durable::open(copy.path()).unwrap();
        (copy, durable)
    }

    /// Earlier, the file was removed before its record: after a kill in between, the deleted datum was reported as
    /// lost.
    #[test]
    fn a_kill_while_data_are_removed_leaves_them_intact_or_removed() {
        let folder = tempfile::tempdir().unwrap();
        let mut durable = Durable::open(folder.path()).unwrap();
        (1..=3).for_each(|serial| durable.write(&named(serial, 3), &Payload::copied(b"one")).unwrap());
        let mut found = Vec::new();
        let mut look = |folder: &Path| {
            let (_copy, durable) = after_kill(folder);
            assert_eq!(durable.damaged(), []);
            found.push(durable.named().iter().map(|named| named.datum.serial).collect::<Vec<_>>());
        };
        look(folder.path());
        durable.remove_in_steps(1, &mut look).unwrap();
        assert_eq!(found, [vec![1, 2, 3], vec![2, 3], vec![2, 3]]);
    }

    #[test]
    fn data_are_removed_from_a_full_disk_also_if_the_process_is_killed_meanwhile() {
        let folder = tempfile::tempdir().unwrap();
        let mut durable = Durable::open(folder.path()).unwrap();
        (1..=3).for_each(|serial| durable.write(&named(serial, 3), &Payload::copied(b"one")).unwrap());
        // The file of one is missing.
        fs::remove_file(durable.file(2, DATA)).unwrap();
        let full = || io::Error::from(io::ErrorKind::StorageFull);
        let mut states = 0;
        for serial in [1, 2] {
            let mut look = |folder: &Path| {
                states += 1;
                let (copy, durable) = after_kill(folder);
                let serials = |durable: &Durable| {
                    let named = durable.named();
                    let of_damaged = durable.damaged().iter().map(|damaged| damaged.named.clone());
                    named.into_iter().chain(of_damaged).map(|named| named.datum.serial).collect::<BTreeSet<_>>()
                };
                assert_eq!(serials(&durable), if serial == 1 { [2, 3].into() } else { [3].into() });
                assert!(files(copy.path(), GONE).unwrap().next().is_none());
                drop(durable);
                assert!(!serials(&Durable::open(copy.path()).unwrap()).contains(&serial), "it stays removed");
            };
            durable.remove_without_room(serial, &mut look, full()).unwrap();
            look(folder.path());
            assert!(!exists(&durable.file(serial, GONE)) && !exists(&durable.file(serial, DATA)));
        }
        assert_eq!(states, 6);
        // A datum that is put again after that is not removed at the next start.
        fs::write(durable.file(1, GONE), b"").unwrap();
        durable.write(&named(1, 3), &Payload::copied(b"new")).unwrap();
        let (_copy, durable) = after_kill(folder.path());
        assert_eq!(durable.named(), [named(1, 3), named(3, 3)]);
    }

    /// Earlier, a server that opened such a file hung and did not register.
    #[test]
    fn a_file_that_was_replaced_by_something_else_is_damaged() {
        let folder = tempfile::tempdir().unwrap();
        let mut durable = Durable::open(folder.path()).unwrap();
        (1..=7).for_each(|serial| durable.write(&named(serial, 3), &Payload::copied(b"one")).unwrap());
        let paths: Vec<PathBuf> = (1..=6).map(|serial| durable.file(serial, DATA)).collect();
        paths.iter().for_each(|path| fs::remove_file(path).unwrap());
        let pipe = |path: &Path| rustix::fs::mkfifoat(rustix::fs::CWD, path, 0o600.into()).unwrap();
        pipe(&paths[0]);
        fs::create_dir(&paths[1]).unwrap();
        std::os::unix::fs::symlink("/dev/zero", &paths[2]).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(&paths[3]).unwrap();
        std::os::unix::fs::symlink(&paths[4], &paths[4]).unwrap();
        std::os::unix::fs::symlink("nowhere", &paths[5]).unwrap();
        pipe(&durable.file(8, NEW));
        let foreign = durable.file(9, DATA);
        fs::create_dir(&foreign).unwrap();
        drop(durable);
        let mut durable = Durable::open(folder.path()).unwrap();
        assert_eq!(durable.named(), [named(7, 3)]);
        let why: Vec<&str> = durable.damaged().iter().map(|damaged| &*damaged.why).collect();
        assert_eq!(why.len(), 6);
        let of_kind = |why: &&str| why.contains("it is a folder, device, pipe or socket instead of the file");
        assert!(why[..4].iter().all(of_kind) && why.iter().all(|why| why.contains("it is kept as '")), "{why:?}");
        assert!(foreign.is_dir(), "it belongs to the user");
        // Such a file does not block a write, either.
        pipe(&durable.file(10, NEW));
        durable.write(&named(10, 3), &Payload::copied(b"ten")).unwrap();
        drop(durable);
        let durable = Durable::open(folder.path()).unwrap();
        assert_eq!((durable.named(), durable.damaged().len()), (vec![named(7, 3), named(10, 3)], 6));
    }

    /// Earlier, a server that read such a file was killed by SIGBUS.
    #[test]
    fn a_file_that_is_truncated_while_it_is_used_is_reported_as_damaged() {
        let folder = tempfile::tempdir().unwrap();
        let size_bytes = 4 * EAGER_BYTES_MAX;
        let mut durable = Durable::open(folder.path()).unwrap();
        durable.write(&named(1, size_bytes), &Payload::copied(&vec![7; size_bytes as usize])).unwrap();
        drop(durable);
        let mut durable = Durable::open(folder.path()).unwrap();
        let (_, payload) = durable.take_found().remove(0);
        let part = payload.part(EAGER_BYTES_MAX, EAGER_BYTES_MAX).unwrap();
        let mut bytes = vec![0; EAGER_BYTES_MAX as usize];
        part.copy_to(&mut bytes).unwrap();
        assert!(bytes.iter().all(|byte| *byte == 7) && payload.check_intact().is_ok());
        File::options().write(true).open(durable.file(1, DATA)).unwrap().set_len(PAGE_BYTES).unwrap();
        for error in [payload.check_intact(), part.check_intact(), part.copy_to(&mut bytes)] {
            let error = error.unwrap_err().to_string();
            assert!(error.contains("truncated to 4096 bytes") && error.contains("put the data again"), "{error}");
        }
        assert_eq!(payload.size_bytes(), size_bytes);
        let whole = 0..size_bytes as usize;
        let read = payload.read().map(drop);
        let hashed = payload.digest_of_part(whole).map(drop);
        for error in [read, hashed, durable.write(&named(2, size_bytes), &payload)] {
            let error = error.unwrap_err().to_string();
            assert!(error.contains("truncated to 4096 bytes"), "{error}");
            assert!(error.contains(&format!("its file '{}'", durable.file(1, DATA).display())), "{error}");
        }
    }

    #[test]
    fn what_is_not_understood_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let mut durable = Durable::open(folder.path()).unwrap();
        durable.write(&named(1, 3), &Payload::copied(b"one")).unwrap();
        let file = durable.file(1, DATA);
        let other: TableDefinition<'_, u64, u64> = TableDefinition::new("records 99");
        let write = durable.records.database().begin_write().unwrap();
        write.open_table(other).unwrap().insert(1, 1).unwrap();
        write.commit().unwrap();
        drop(durable);
        let refused = |why: &str| Durable::open(folder.path()).is_err_and(|error| error.to_string().contains(why));
        assert!(refused("another version of Gridloom") && file.exists());
        fs::remove_file(folder.path().join(DATABASE)).unwrap();
        assert!(refused("'durable.redb', which describes them, is missing") && file.exists());
    }
}

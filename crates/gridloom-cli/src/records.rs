//! Records of an agent on disk: the usage of users in `usage.json`, and the audit log in `audit.jsonl`.
//!
//! ```text
//! {"format": "gridloom usage", "version": 1, "usage": {"days": {"20421": {"anna": {"succeeded": 12, …}}}, "servers": {…}, …}}
//! {"time":"2026-11-30T14:08:04.123Z","event":"cancel","outcome":"refused","user":"bert","host":"lab-7","program":"gridloom",…}
//! ```
//!
//! A thread of their own writes the files, so the agent never waits for the disk. If the disk is full, the agent continues and
//! reports it once a minute. One agent uses a folder at a time. A table that cannot be parsed is renamed to
//! `usage.json.unreadable` and reported: nothing is lost, and the agent starts with a new one.
//!
//! **Limits:** if the process is killed, the last minute of usage is missing in the table until the servers report again.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, bail};
use gridloom_base::escaped::escaped_json;
use gridloom_base::{NodeId, Program};
use gridloom_core::node::message::{AuditRecord, UserUsage};
use gridloom_core::node::{Event, UsageTable};
use gridloom_resources::private_file::{self, Existing};
use rustix::fs::{FlockOperation, flock};
use serde_json::{Map, Value, json};

use crate::model_store::state_folder;

const FORMAT: &str = "gridloom usage";
const VERSION: u64 = 1;
const TABLE: &str = "usage.json";
const LOG: &str = "audit.jsonl";
/// A larger table was not written by Gridloom.
const TABLE_BYTES_MAX: u64 = 256 << 20;
/// Size from which the audit log continues in a new file.
const LOG_BYTES_MAX: u64 = 64 << 20;
/// Number of earlier files of the audit log that are kept.
const LOGS_KEPT: usize = 8;
/// Shortest pause between two writes of the table, and between two warnings.
const PAUSE: Duration = Duration::from_secs(60);
/// Records that wait for the disk. Further ones are dropped and counted.
const QUEUE_MAX: usize = 8192;

/// The records of an agent.
pub struct Records {
    queue: SyncSender<Record>,
    writer: JoinHandle<()>,
    dropped: u64,
}

enum Record {
    Usage(u32, NodeId, Vec<UserUsage>),
    Audit(SystemTime, Box<AuditRecord>),
    /// This many records were dropped before.
    Dropped(SystemTime, u64),
}

impl Records {
    /// Opens the records in a folder. Returns the usage so far, and a warning if its file cannot be parsed.
    ///
    /// # Errors
    /// If the folder cannot be used, or another agent uses it.
    pub fn open(folder: &Path) -> Result<(Records, UsageTable, Option<String>)> {
        let mut files = Files::open(folder, LOG_BYTES_MAX)?;
        let (table, warning) = match read_table(&folder.join(TABLE)) {
            Ok(table) => (table, None),
            Err(error) => {
                let aside = folder.join(format!("{TABLE}.unreadable"));
                let fate = match std::fs::rename(folder.join(TABLE), &aside) {
                    Ok(()) => format!("it is now {}, and a new one begins", aside.display()),
                    Err(error) => bail!("{}: it cannot be parsed, and not be renamed: {error}", aside.display()),
                };
                (UsageTable::default(), Some(format!("the usage of users cannot be read: {error:#}; {fate}")))
            }
        };
        files.table = table.clone();
        let (queue, records) = sync_channel(QUEUE_MAX);
        let writer = std::thread::Builder::new().name("records".into()).spawn(move || files.run(&records))?;
        Ok((Records { queue, writer, dropped: 0 }, table, warning))
    }

    /// Takes an event of the agent, if it is one for the records. Never waits.
    pub fn add(&mut self, event: Event) {
        let now = SystemTime::now();
        let record = match event {
            Event::UsageReported { day, server, users } => Record::Usage(day, server, users),
            Event::Audit(record) => Record::Audit(now, record),
            _ => return,
        };
        if self.dropped > 0 && self.queue.try_send(Record::Dropped(now, self.dropped)).is_ok() {
            self.dropped = 0;
        }
        if let Err(TrySendError::Full(_)) = self.queue.try_send(record) {
            self.dropped += 1;
        }
    }

    /// Writes everything that is left, and waits for that.
    pub fn finish(self) {
        drop(self.queue);
        // The thread has reported what it could not write.
        let _ = self.writer.join();
    }
}

/// The files, and what has to be written to them.
struct Files {
    folder: PathBuf,
    log_bytes_max: u64,
    /// Locked while the agent runs.
    _lock: File,
    table: UsageTable,
    is_changed: bool,
    written: Instant,
    /// The open audit log, and its size.
    log: Option<(File, u64)>,
    /// The last line in the file may be incomplete.
    is_torn: bool,
    lost: u64,
    warned: Option<Instant>,
}

impl Files {
    fn open(folder: &Path, log_bytes_max: u64) -> Result<Files> {
        let shown = || folder.display().to_string();
        private_file::create_folder(folder).with_context(shown)?;
        let lock = File::open(folder).with_context(shown)?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Err(error) if error == rustix::io::Errno::WOULDBLOCK => {
                bail!("{}: another agent keeps its records there; --records FOLDER names another folder", shown());
            }
            // File systems without locks.
            _ => {}
        }
        let mut files = Files {
            folder: folder.to_path_buf(),
            log_bytes_max,
            _lock: lock,
            table: UsageTable::default(),
            is_changed: false,
            written: Instant::now(),
            log: None,
            is_torn: false,
            lost: 0,
            warned: None,
        };
        files.open_log().with_context(|| files.folder.join(LOG).display().to_string())?;
        Ok(files)
    }

    fn run(mut self, records: &Receiver<Record>) {
        loop {
            let due = self.written + PAUSE;
            let first = match self.is_changed {
                true => records.recv_timeout(due.saturating_duration_since(Instant::now())),
                false => records.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            let is_over = matches!(first, Err(RecvTimeoutError::Disconnected));
            let mut lines = VecDeque::new();
            for record in first.into_iter().chain(records.try_iter().take(QUEUE_MAX)) {
                match record {
                    Record::Usage(day, server, users) => {
                        self.table.report(day, server, &users);
                        self.is_changed = true;
                    }
                    Record::Audit(at, record) => lines.push_back(line(at, &record)),
                    Record::Dropped(at, count) => {
                        let what = "records that the disk was too slow for";
                        lines.push_back(line(at, &suppressed(what, count)));
                    }
                }
            }
            self.write_lines(lines);
            if self.is_changed && (is_over || Instant::now() >= due) {
                self.write_table();
            }
            if is_over {
                return;
            }
        }
    }

    fn write_table(&mut self) {
        self.written = Instant::now();
        let value = json!({ "format": FORMAT, "version": VERSION, "usage": self.table });
        let path = self.folder.join(TABLE);
        match private_file::write(&path, (value.to_string() + "\n").as_bytes(), Existing::Replaced) {
            Ok(()) => self.is_changed = false,
            Err(error) => self.warn(&format!("the usage of users cannot be written to {}: {error}", path.display())),
        }
    }

    fn write_lines(&mut self, mut lines: VecDeque<String>) {
        while !lines.is_empty() {
            if self.lost > 0 {
                lines.push_front(line(SystemTime::now(), &suppressed("records that could not be written", self.lost)));
            }
            let (mut text, mut count) = (String::from(if self.is_torn { "\n" } else { "" }), 0);
            while let Some(next) = lines.pop_front() {
                text += &next;
                count += 1;
                if text.len() as u64 >= self.log_bytes_max / 4 {
                    break;
                }
            }
            match self.append(&text) {
                Ok(()) => (self.lost, self.is_torn) = (0, false),
                Err(error) => {
                    let of_record = u64::from(self.lost > 0);
                    self.lost += count - of_record + lines.len() as u64;
                    self.is_torn = true;
                    let path = self.folder.join(LOG);
                    return self.warn(&format!(
                        "the audit log cannot be written to {}: {error}; {} records are lost",
                        path.display(),
                        self.lost
                    ));
                }
            }
        }
    }

    fn append(&mut self, text: &str) -> std::io::Result<()> {
        let has_room = |size: u64| size == 0 || size + text.len() as u64 <= self.log_bytes_max;
        if self.log.as_ref().is_none_or(|(_, size)| !has_room(*size)) {
            if self.log.take().is_some() {
                self.rotate()?;
            }
            self.open_log()?;
        }
        let (log, size) = self.log.as_mut().expect("it was just opened");
        let written = log.write_all(text.as_bytes());
        *size = log.metadata()?.len();
        written
    }

    fn open_log(&mut self) -> std::io::Result<()> {
        let log = OpenOptions::new().create(true).append(true).mode(0o600).open(self.folder.join(LOG))?;
        let size = log.metadata()?.len();
        let mut last = [b'\n'];
        if size > 0 {
            File::open(self.folder.join(LOG))?.read_exact_at(&mut last, size - 1)?;
        }
        // An earlier agent may have ended in the middle of a line, or found the disk full.
        self.is_torn |= last != [b'\n'];
        self.log = Some((log, size));
        Ok(())
    }

    /// Renames the log to `audit.1.jsonl`, and earlier ones to the next number. The oldest is deleted.
    fn rotate(&self) -> std::io::Result<()> {
        for number in (0..LOGS_KEPT).rev() {
            match std::fs::rename(log_file(&self.folder, number), log_file(&self.folder, number + 1)) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Logs a warning, at most one in [`PAUSE`].
    fn warn(&mut self, text: &str) {
        if self.warned.is_none_or(|at| at.elapsed() >= PAUSE) {
            self.warned = Some(Instant::now());
            tracing::warn!(target: "gridloom.records", "{}", gridloom_base::EscapedLine(text));
        }
    }
}

/// Returns the default folder for the records of a grid's agent; `None` if there is no home.
pub fn default_folder(grid: &str) -> Option<PathBuf> {
    state_folder().map(|state| state.join("records").join(grid))
}

/// Returns the paths at which the files of the audit log may be, newest first.
pub fn log_files(folder: &Path) -> impl Iterator<Item = PathBuf> {
    (0..=LOGS_KEPT).map(|number| log_file(folder, number))
}

fn log_file(folder: &Path, number: usize) -> PathBuf {
    match number {
        0 => folder.join(LOG),
        number => folder.join(format!("audit.{number}.jsonl")),
    }
}

fn read_table(path: &Path) -> Result<UsageTable> {
    let shown = || path.display().to_string();
    let bytes = match private_file::read(path, TABLE_BYTES_MAX) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(UsageTable::default()),
        other => other.with_context(shown)?,
    };
    let mut value: Value = serde_json::from_slice(&bytes).with_context(shown)?;
    if value["format"] != FORMAT {
        bail!("{}: its \"format\" is {}, not \"{FORMAT}\"", shown(), value["format"]);
    }
    if value["version"] != VERSION {
        bail!("{}: its version is {}, this program reads {VERSION}", shown(), value["version"]);
    }
    serde_json::from_value(value["usage"].take()).with_context(shown)
}

fn suppressed(what: &str, count: u64) -> AuditRecord {
    let (user, host, name) = Default::default();
    let by = Program { client: NodeId::CATALOG, user, host, name };
    AuditRecord { count, ..AuditRecord::new(gridloom_core::node::message::AuditEvent::Suppressed, by, what) }
}

/// Returns a line of the audit log. Empty values are left out.
fn line(at: SystemTime, record: &AuditRecord) -> String {
    let AuditRecord { event, by, what, server, address, outcome, why, count } = record;
    let mut line = Map::new();
    let known = [
        ("user", &by.user),
        ("host", &by.host),
        ("program", &by.name),
        ("what", what),
        ("server", server),
        ("address", address),
        ("why", why),
    ];
    line.insert("time".into(), humantime::format_rfc3339_millis(at).to_string().into());
    line.insert("event".into(), json!(event));
    line.insert("outcome".into(), json!(outcome));
    line.insert("count".into(), (*count).into());
    if by.client != NodeId::CATALOG {
        line.insert("client".into(), by.client.to_string().into());
    }
    for (name, text) in known.into_iter().filter(|(_, text)| !text.is_empty()) {
        line.insert(name.into(), text.as_str().into());
    }
    escaped_json(&Value::Object(line).to_string()) + "\n"
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use gridloom_core::node::message::{AuditEvent, Usage};

    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("gridloom-records-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        folder
    }

    fn usage(succeeded: u64) -> Vec<UserUsage> {
        vec![UserUsage { user: "anna".into(), usage: Usage { succeeded, ..Usage::default() } }]
    }

    fn reported(succeeded: u64) -> Event {
        Event::UsageReported { day: 7, server: NodeId(2), users: usage(succeeded) }
    }

    #[test]
    fn usage_is_there_again_and_a_damaged_file_is_kept_aside() {
        let folder = folder("again");
        let (mut records, table, warning) = Records::open(&folder).unwrap();
        assert_eq!((table, warning), (UsageTable::default(), None));
        let Err(refused) = Records::open(&folder) else { panic!("two agents use one folder") };
        assert!(refused.to_string().contains("another agent keeps its records there; --records"), "{refused}");
        [1, 3, 3].into_iter().for_each(|calls| records.add(reported(calls)));
        records.finish();
        let mut expected = UsageTable::default();
        [1, 3, 3].into_iter().for_each(|calls| expected.report(7, NodeId(2), &usage(calls)));
        let file = folder.join(TABLE);
        assert_eq!(std::fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
        let (records, table, warning) = Records::open(&folder).unwrap();
        assert_eq!((table, warning), (expected, None));
        records.finish();
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, &text[..text.len() / 2]).unwrap();
        let (records, table, warning) = Records::open(&folder).unwrap();
        let warning = warning.unwrap();
        assert!(
            table == UsageTable::default() && warning.contains("usage.json.unreadable, and a new one"),
            "{warning}"
        );
        assert!(warning.contains(file.to_str().unwrap()), "{warning}");
        assert_eq!(std::fs::read_to_string(folder.join("usage.json.unreadable")).unwrap(), text[..text.len() / 2]);
        records.finish();
        std::fs::remove_dir_all(folder).unwrap();
    }

    fn record(number: usize) -> AuditRecord {
        let (user, host, name) = ("anna".to_string(), "lap\u{9b}top".to_string(), "train.py".to_string());
        let by = Program { client: NodeId(3), user, host, name };
        AuditRecord::new(AuditEvent::Delete, by, format!("mesh/{number}")).refused("it belongs to 'bert'")
    }

    #[test]
    fn a_line_is_json_without_control_characters() {
        let at = SystemTime::UNIX_EPOCH + Duration::from_millis(1_795_961_284_123);
        let line = line(at, &record(1));
        let value: Value = serde_json::from_str(&line).unwrap();
        let expected = json!({
            "time": "2026-11-29T14:08:04.123Z", "event": "delete", "outcome": "refused", "count": 1,
            "user": "anna", "host": "lap\u{9b}top", "program": "train.py", "client": NodeId(3).to_string(),
            "what": "mesh/1", "why": "it belongs to 'bert'",
        });
        assert_eq!(value, expected);
        assert!(line.ends_with("}\n") && !line.contains('\u{9b}'), "{line}");
    }

    #[test]
    fn a_long_log_continues_in_a_new_file() {
        let folder = folder("long");
        let mut files = Files::open(&folder, 4096).unwrap();
        for number in 0..1000 {
            files.write_lines(VecDeque::from([line(SystemTime::now(), &record(number))]));
        }
        let sizes: Vec<u64> =
            std::fs::read_dir(&folder).unwrap().map(|one| one.unwrap().metadata().unwrap().len()).collect();
        assert!(sizes.len() == LOGS_KEPT + 1 && sizes.iter().all(|size| *size <= 4096), "{sizes:?}");
        let last = std::fs::read_to_string(folder.join(LOG)).unwrap();
        assert!(last.lines().last().unwrap().contains("mesh/999"), "{last}");
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_log_that_cannot_be_written_continues_later_with_the_number_of_lost_lines() {
        let folder = folder("full");
        let mut files = Files::open(&folder, 4096).unwrap();
        let write =
            |files: &mut Files, number| files.write_lines(VecDeque::from([line(SystemTime::now(), &record(number))]));
        write(&mut files, 0);
        // Every write to this device fails as on a full disk.
        files.log = Some((OpenOptions::new().write(true).open("/dev/full").unwrap(), 1));
        (1..4).for_each(|number| write(&mut files, number));
        files.open_log().unwrap();
        write(&mut files, 4);
        let text = std::fs::read_to_string(folder.join(LOG)).unwrap();
        let values: Vec<Value> =
            text.lines().filter(|line| !line.is_empty()).map(|line| serde_json::from_str(line).unwrap()).collect();
        let events: Vec<(&str, u64)> =
            values.iter().map(|line| (line["event"].as_str().unwrap(), line["count"].as_u64().unwrap())).collect();
        assert_eq!(events, [("delete", 1), ("suppressed", 3), ("delete", 1)], "{text}");
        std::fs::remove_dir_all(folder).unwrap();
    }
}

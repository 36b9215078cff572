//! `gridloom audit`: reads the audit log in the records of an agent of this user.
//!
//! The log is in several files: the agent renames a full one and continues in a new one, also while the command follows the log. A line
//! that cannot be parsed, because the agent was killed while it wrote it, is left out and counted.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead, BufReader, Error as IoError, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use gridloom_base::escaped::escaped_json;
use gridloom_base::{EscapedBytes, EscapedLine};
use gridloom_keys::KeysFolder;
use serde::Deserialize;

use super::{count, keys, print_line, print_text};
use crate::records;

/// How often the files are checked for new lines.
const LOOK_PAUSE: Duration = Duration::from_millis(500);
/// Bytes of output that are collected before they are printed.
const OUTPUT_BYTES: usize = 64 << 10;
/// Events of the audit log.
const EVENTS: [&str; 10] =
    ["join", "leave", "connect", "call", "cancel", "put", "find", "share", "delete", "suppressed"];
/// Outcomes of events.
const OUTCOMES: [&str; 4] = ["done", "failed", "cancelled", "refused"];

/// Show the audit log of an agent: who joined, called, cancelled, read, put and deleted what, and what was refused.
///
/// The agent writes the log into the folder of its records, which only the user who runs the agent can read.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  gridloom audit --since 2026-11-01 --outcome refused\n  gridloom audit --user anna --event put --event delete\n  \
                  gridloom audit --follow --json"
)]
pub struct Options {
    /// Folder of the agent's records [default: ~/.local/state/gridloom/records/GRID]
    #[arg(long, env = "GRIDLOOM_RECORDS", hide_env_values = true, value_name = "FOLDER")]
    records: Option<PathBuf>,
    /// Grid whose agent has written the log, for the default folder [default: the only one]
    #[arg(long, value_name = "GRID", value_parser = keys::parse_grid)]
    grid: Option<String>,
    /// Show only events of this user
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Show only this kind of event; may be repeated
    #[arg(long, value_name = "EVENT", value_parser = EVENTS)]
    event: Vec<String>,
    /// Show only events with this outcome; may be repeated
    #[arg(long, value_name = "OUTCOME", value_parser = OUTCOMES)]
    outcome: Vec<String>,
    /// Show only events from this day or time on, in UTC
    #[arg(long, value_name = "YYYY-MM-DD[THH:MM:SS]", value_parser = parse_time)]
    since: Option<SystemTime>,
    /// Show only the last N of these events
    #[arg(short = 'n', long, value_name = "N", visible_alias = "tail")]
    lines: Option<usize>,
    /// Keep printing new events until interrupted
    #[arg(short, long)]
    follow: bool,
    /// Print JSON, one object for each event, as in the log
    #[arg(long)]
    json: bool,
}

pub fn run(options: &Options) -> Result<ExitCode> {
    let mut events = Events { options, log: AuditLog::open(folder(options)?)?, damaged: 0 };
    let mut output = Output { is_json: options.json, has_any: false, text: String::new() };
    match options.lines {
        None => events.print(&mut output)?,
        Some(lines) => {
            let mut last = VecDeque::new();
            while let Some(event) = events.next()? {
                last.push_back(event);
                if last.len() > lines {
                    last.pop_front();
                }
            }
            last.iter().try_for_each(|event| output.add(event))?;
        }
    }
    output.print()?;
    if events.damaged > 0 {
        let lines = count(events.damaged, "line");
        gridloom_base::stderr_line!(
            "gridloom: {lines} of the log cannot be parsed; the agent may have been killed while it wrote"
        );
    }
    if !options.follow {
        if !output.has_any && !options.json {
            print_line("no such events")?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    loop {
        std::thread::sleep(LOOK_PAUSE);
        events.log.look_for_files()?;
        events.print(&mut output)?;
        output.print()?;
    }
}

/// Returns the folder of the records, as the agent chooses it.
fn folder(options: &Options) -> Result<PathBuf> {
    match &options.records {
        Some(folder) if folder.as_os_str() == "none" => {
            bail!(
                "with --records none, or GRIDLOOM_RECORDS=none, an agent keeps no records; name the folder of another one"
            )
        }
        Some(folder) => Ok(folder.clone()),
        None => {
            let keys = KeysFolder::find()?.existing(options.grid.as_deref())?;
            records::default_folder(keys.grid()).context("HOME is not set; name the folder with --records")
        }
    }
}

/// A line of the log. An agent leaves out what it does not know.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Event {
    time: String,
    event: String,
    outcome: String,
    user: String,
    what: String,
    count: u64,
    server: String,
    host: String,
    program: String,
    address: String,
    why: String,
}

impl Event {
    fn is_selected(&self, options: &Options) -> bool {
        let is_any = |selected: &[String], value: &str| selected.is_empty() || selected.iter().any(|one| one == value);
        let is_later = |since: SystemTime| humantime::parse_rfc3339(&self.time).is_ok_and(|at| at >= since);
        options.user.as_ref().is_none_or(|user| *user == self.user)
            && is_any(&options.event, &self.event)
            && is_any(&options.outcome, &self.outcome)
            && options.since.is_none_or(is_later)
    }

    /// Formats the event as a row below [`HEADER`]. Control characters are escaped: a value must not imitate other rows.
    fn row(&self) -> String {
        let Event { time, event, outcome, user, what, count, server, host, program, address, why } = self;
        let shown = |text: &str| EscapedLine(text).to_string();
        let user = if user.is_empty() { "-".to_string() } else { shown(user) };
        let mut text =
            format!("{:<24}  {:<10} {:<9} {user:<16} {}", shown(time), shown(event), shown(outcome), shown(what));
        if *count > 1 {
            text += &format!(" ({count} times)");
        }
        for (before, value) in [(" at ", server), (" by ", program), (" on ", host), (" from ", address), (": ", why)] {
            if !value.is_empty() {
                text += before;
                text += &shown(value);
            }
        }
        text + "\n"
    }
}

const HEADER: &str = "time                      event      outcome   user             what\n";

/// The events of the log that the options select.
struct Events<'a> {
    options: &'a Options,
    log: AuditLog,
    /// Number of lines that could not be parsed.
    damaged: usize,
}

impl Events<'_> {
    /// Returns the next event as it is printed; `None` at the end of the log.
    fn next(&mut self) -> Result<Option<String>> {
        while let Some(line) = self.log.next_line()? {
            let line = line.trim_ascii();
            match (serde_json::from_slice::<Event>(line), std::str::from_utf8(line)) {
                (Ok(event), Ok(text)) if event.is_selected(self.options) => {
                    return Ok(Some(if self.options.json { escaped_json(text) + "\n" } else { event.row() }));
                }
                (Ok(_), Ok(_)) => {}
                _ => self.damaged += usize::from(!line.is_empty()),
            }
        }
        Ok(None)
    }

    fn print(&mut self, output: &mut Output) -> Result<()> {
        while let Some(event) = self.next()? {
            output.add(&event)?;
        }
        Ok(())
    }
}

/// Text that is printed in large parts.
struct Output {
    is_json: bool,
    has_any: bool,
    text: String,
}

impl Output {
    fn add(&mut self, event: &str) -> Result<()> {
        if !self.has_any && !self.is_json {
            self.text += HEADER;
        }
        self.has_any = true;
        self.text += event;
        if self.text.len() < OUTPUT_BYTES { Ok(()) } else { self.print() }
    }

    fn print(&mut self) -> Result<()> {
        let text = std::mem::take(&mut self.text);
        if text.is_empty() { Ok(()) } else { print_text(&text) }
    }
}

/// The lines of the log, in the order in which they were written.
struct AuditLog {
    folder: PathBuf,
    /// Files that were not read to their ends, oldest first. The last one may grow.
    files: VecDeque<LogFile>,
}

struct LogFile {
    /// Device and inode.
    id: (u64, u64),
    reader: BufReader<File>,
    /// The beginning of a line whose end was not written yet.
    line: Vec<u8>,
}

impl AuditLog {
    fn open(folder: PathBuf) -> Result<AuditLog> {
        let mut log = AuditLog { folder, files: VecDeque::new() };
        log.look_for_files()?;
        if log.files.is_empty() {
            bail!(
                "{}: there is no audit log; an agent of this user writes it, and --records names the folder of the agent",
                EscapedBytes::of(&log.folder)
            );
        }
        Ok(log)
    }

    /// Adds the files in which the log continues.
    fn look_for_files(&mut self) -> Result<()> {
        let known = self.files.back().map(|file| file.id);
        let mut newer: Vec<LogFile> = Vec::new();
        // From the newest to the oldest: a file that is renamed meanwhile is found twice, and none is missed.
        for path in records::log_files(&self.folder) {
            let file = match File::open(&path) {
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                opened => opened.with_context(|| EscapedBytes::of(&path).to_string())?,
            };
            let status = file.metadata()?;
            let id = (status.dev(), status.ino());
            if Some(id) == known {
                break;
            }
            if newer.iter().all(|one| one.id != id) {
                newer.push(LogFile { id, reader: BufReader::new(file), line: Vec::new() });
            }
        }
        self.files.extend(newer.into_iter().rev());
        Ok(())
    }

    /// Returns the next line; `None` if no further one was written completely.
    fn next_line(&mut self) -> Result<Option<Vec<u8>>, IoError> {
        while let Some(file) = self.files.front_mut() {
            file.reader.read_until(b'\n', &mut file.line)?;
            if file.line.ends_with(b"\n") {
                return Ok(Some(std::mem::take(&mut file.line)));
            }
            // Only the last file grows.
            if self.files.len() == 1 {
                return Ok(None);
            }
            let torn = self.files.pop_front().map(|file| file.line).unwrap_or_default();
            if !torn.is_empty() {
                return Ok(Some(torn));
            }
        }
        Ok(None)
    }
}

/// Parses a day or a time in UTC.
fn parse_time(text: &str) -> Result<SystemTime, String> {
    let whole = if text.len() == 10 { format!("{text}T00:00:00") } else { text.to_string() };
    let at = humantime::parse_rfc3339_weak(&whole).ok().filter(|at| *at >= UNIX_EPOCH);
    at.ok_or_else(|| {
        format!("'{text}' is neither a day since 1970, such as 2026-11-29, nor a time, such as 2026-11-29T14:08:04")
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_row_has_the_known_values_and_no_control_characters() {
        let event = |text: &str| serde_json::from_str::<Event>(text).unwrap();
        let cancel = event(
            r#"{"client":"n2f3a90","count":1,"event":"cancel","host":"lab-7","outcome":"refused","program":"gridloom","server":"node-1",
               "time":"2026-11-29T14:08:04.123Z","user":"bert","what":"t17@n77c1d2","why":"it belongs to 'anna'"}"#,
        );
        assert_eq!(
            cancel.row(),
            "2026-11-29T14:08:04.123Z  cancel     refused   bert             t17@n77c1d2 at node-1 by gridloom on lab-7: it belongs to \
             'anna'\n"
        );
        let call = event(r#"{"time":"t","event":"call","outcome":"done","what":"a\nb\u001b[2J","count":12}"#);
        assert_eq!(
            call.row(),
            "t                         call       done      -                a\\nb\\u{1b}[2J (12 times)\n"
        );
    }

    #[test]
    fn the_log_is_read_across_its_files_while_it_continues() {
        let folder = std::env::temp_dir().join(format!("gridloom-audit-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir(&folder).unwrap();
        let path = |name: &str| folder.join(name);
        let append = |name: &str, text: &str| {
            let mut file = std::fs::OpenOptions::new().create(true).append(true).open(path(name)).unwrap();
            file.write_all(text.as_bytes()).unwrap();
        };
        let all = |log: &mut AuditLog| {
            log.look_for_files().unwrap();
            let lines = std::iter::from_fn(|| log.next_line().unwrap());
            lines.map(|line| String::from_utf8(line).unwrap().trim().to_string()).collect::<Vec<_>>()
        };
        let error = AuditLog::open(folder.clone()).err().unwrap().to_string();
        assert!(error.contains("there is no audit log; an agent of this user writes it, and --records"), "{error}");

        append("audit.2.jsonl", "1\n2\n");
        append("audit.1.jsonl", "3\ntorn");
        append("audit.jsonl", "4\n5");
        let mut log = AuditLog::open(folder.clone()).unwrap();
        assert_eq!(all(&mut log), ["1", "2", "3", "torn", "4"]);
        assert!(all(&mut log).is_empty(), "the line is not complete");
        append("audit.jsonl", "5\n6\n");
        assert_eq!(all(&mut log), ["55", "6"]);
        // The file is full after another line, and so is the next one.
        append("audit.jsonl", "7\n");
        std::fs::rename(path("audit.1.jsonl"), path("audit.3.jsonl")).unwrap();
        std::fs::rename(path("audit.jsonl"), path("audit.2.jsonl")).unwrap();
        append("audit.1.jsonl", "8\n");
        append("audit.jsonl", "9\n");
        assert_eq!(all(&mut log), ["7", "8", "9"]);
        assert!(all(&mut log).is_empty());
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn events_and_outcomes_are_those_of_the_log() {
        use gridloom_core::node::message::{AuditEvent, AuditOutcome};
        for name in EVENTS {
            assert!(serde_json::from_value::<AuditEvent>(name.into()).is_ok(), "{name}");
        }
        for name in OUTCOMES {
            assert!(serde_json::from_value::<AuditOutcome>(name.into()).is_ok(), "{name}");
        }
    }

    #[test]
    fn days_and_times_are_parsed() {
        let day = UNIX_EPOCH + Duration::from_secs(20_786 * 86_400);
        assert_eq!(parse_time("2026-11-29"), Ok(day));
        assert_eq!(parse_time("2026-11-29T00:01:00"), Ok(day + Duration::from_secs(60)));
        assert_eq!(parse_time("2026-11-29T00:01:00Z"), Ok(day + Duration::from_secs(60)));
        for wrong in ["", "yesterday", "2026-02-30", "1969-12-31", "2026-11-29T"] {
            assert!(parse_time(wrong).unwrap_err().contains("is neither a day since 1970, such as"), "{wrong}");
        }
    }
}

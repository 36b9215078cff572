//! `gridloom logs`.
//!
//! Servers number their lines. The command asks each server for the lines after the last one that it has: first for
//! the existing lines, then, with `--follow`, for new ones. Times are from the clocks of the servers, so a line always
//! shows the same time.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Result, bail};
use gridloom::{Error, Grid};
use gridloom_base::escaped::escaped_json;
use gridloom_base::near::near_names;
use gridloom_base::{EscapedLine, NodeId, Program, TaskId};
use gridloom_core::node::message::{OutputLine, OutputPage, OutputQuery, short_name};
use serde_json::json;

use super::calls::add_program;
use super::{GridOption, print_text};

/// How long to wait for a server's answer before the command continues without it.
const ANSWER_LIMIT: Duration = Duration::from_secs(3);
/// How often to look for new servers.
const LOOK_PAUSE: Duration = Duration::from_secs(1);
/// A server that has sent no lines for this long is asked again: it has lost the request if its connection broke.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// Show what functions have printed on the servers, also in calls that have ended.
///
/// Servers keep the last 64 KiB of each call's lines, and 8 MiB of lines of all calls: the output of print, logging
/// and warnings in Python functions. The output of C code and of other processes is in the servers' own logs.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  gridloom logs --follow\n  gridloom logs --function solve --lines 20\n  \
                        gridloom logs t17@n2f3a90 --json")]
pub struct Options {
    #[command(flatten)]
    grid: GridOption,
    /// Show only lines of this call, as 'gridloom calls' names it
    call: Option<TaskId>,
    /// Show only lines of this server; may be repeated
    #[arg(long, value_name = "NAME")]
    server: Vec<String>,
    /// Show only lines of this function, with or without its module
    #[arg(long, value_name = "NAME")]
    function: Option<String>,
    /// Show only the last N lines of all
    #[arg(short = 'n', long, value_name = "N", visible_alias = "tail")]
    lines: Option<u64>,
    /// Keep printing new lines until interrupted
    #[arg(short, long)]
    follow: bool,
    /// Print JSON, one object for each line
    #[arg(long)]
    json: bool,
}

pub fn run(options: &Options) -> Result<ExitCode> {
    let grid = options.grid.connect()?;
    let mut reader = Reader { grid: &grid, options, servers: BTreeMap::new() };
    reader.check_servers()?;
    let past = reader.past()?;
    if past.is_empty() {
        if let Some(function) = &options.function {
            check_offered(&grid, function)?;
        }
        if !options.follow && options.lines != Some(0) {
            let of = options.function.as_ref().map_or_else(String::new, |name| format!(" of function '{name}'"));
            gridloom_base::stderr_line!("gridloom: no line{of} is kept; output of C code is in the servers' own logs");
        }
    }
    print(options, &past)?;
    if !options.follow {
        return Ok(ExitCode::SUCCESS);
    }
    loop {
        print(options, &reader.next()?)?;
    }
}

/// Returns an error if no server offers the function, unless a program may have sent a function of that name.
fn check_offered(grid: &Grid, function: &str) -> Result<()> {
    match grid.function(function) {
        Err(Error::UnknownFunction { near, .. }) if !near.contains("did you mean") && runs_code(grid) => Ok(()),
        found => Ok(found.map(drop)?),
    }
}

fn runs_code(grid: &Grid) -> bool {
    grid.function("python/run").is_ok()
}

/// A line of output, with its server.
struct LineFromServer {
    server: String,
    program: Option<Program>,
    line: OutputLine,
}

/// The state of reading one server's lines.
struct ServerPosition {
    name: String,
    /// Number of the last line received.
    after: u64,
    asked: Option<Instant>,
}

struct Reader<'a> {
    grid: &'a Grid,
    options: &'a Options,
    servers: BTreeMap<NodeId, ServerPosition>,
}

impl Reader<'_> {
    fn check_servers(&self) -> Result<()> {
        let view = self.grid.servers();
        let known: Vec<&str> = view.servers.iter().map(|server| server.name.as_str()).collect();
        for name in &self.options.server {
            if !known.contains(&name.as_str()) {
                let near = near_names(name, known.iter().copied());
                let near =
                    if near.is_empty() { String::new() } else { format!("did you mean {}? ", near.join(" or ")) };
                bail!("no server has the name '{name}'; {near}'gridloom servers' lists those of the grid");
            }
        }
        Ok(())
    }

    /// Returns the existing lines in the order of their times.
    fn past(&mut self) -> Result<Vec<LineFromServer>> {
        let last = self.options.lines.unwrap_or(u64::MAX);
        let mut lines = Vec::new();
        self.update_servers();
        let mut wanted: BTreeMap<NodeId, u64> = self.servers.keys().map(|server| (*server, last)).collect();
        wanted.keys().for_each(|server| self.request_lines(*server, last, false));
        let mut heard = Instant::now();
        while !wanted.is_empty() && heard.elapsed() < ANSWER_LIMIT {
            for (server, output) in self.grid.take_output(ANSWER_LIMIT)? {
                heard = Instant::now();
                let Some(left) = wanted.get_mut(&server) else { continue };
                *left = left.saturating_sub(output.lines.len() as u64);
                let (left, has_more) = (*left, output.has_more);
                lines.extend(self.new_lines(server, output));
                match has_more {
                    true => self.request_lines(server, left, false),
                    false => drop(wanted.remove(&server)),
                }
            }
        }
        for server in wanted.keys() {
            let (name, limit) = (&self.servers[server].name, ANSWER_LIMIT.as_secs());
            gridloom_base::stderr_line!("gridloom: {name}: no answer within {limit} s");
        }
        lines.sort_by_key(|line| line.line.at);
        let beyond = (lines.len() as u64).saturating_sub(last);
        Ok(lines.split_off(beyond as usize))
    }

    /// Returns new lines, if any arrive before the next look for servers.
    fn next(&mut self) -> Result<Vec<LineFromServer>> {
        self.update_servers();
        let is_due = |place: &ServerPosition| place.asked.is_none_or(|asked| asked.elapsed() > RETRY_AFTER);
        let due: Vec<NodeId> =
            self.servers.iter().filter(|(_, place)| is_due(place)).map(|(server, _)| *server).collect();
        due.into_iter().for_each(|server| self.request_lines(server, u64::MAX, true));
        let mut lines = Vec::new();
        for (server, output) in self.grid.take_output(LOOK_PAUSE)? {
            if output.has_gap
                && let Some(place) = self.servers.get(&server)
            {
                gridloom_base::stderr_line!(
                    "gridloom: {}: lines arrived too fast to be kept; some are missing",
                    place.name
                );
            }
            lines.extend(self.new_lines(server, output));
        }
        lines.sort_by_key(|line| line.line.at);
        Ok(lines)
    }

    /// Updates the list of servers.
    fn update_servers(&mut self) {
        let view = self.grid.servers();
        self.servers.retain(|server, _| view.server(*server).is_some());
        let wanted = &self.options.server;
        for server in view.servers.iter().filter(|server| wanted.is_empty() || wanted.contains(&server.name)) {
            let place = || ServerPosition { name: server.name.clone(), after: 0, asked: None };
            self.servers.entry(server.node).or_insert_with(place);
        }
    }

    fn request_lines(&mut self, server: NodeId, last: u64, waits: bool) {
        let Some(place) = self.servers.get_mut(&server) else { return };
        place.asked = Some(Instant::now());
        let (function, call) = (self.options.function.clone(), self.options.call);
        self.grid.ask_output(server, OutputQuery { after: place.after, last, function, call, wait: waits });
    }

    /// Returns the new lines of an answer: the answers of two requests may overlap.
    fn new_lines(&mut self, server: NodeId, output: OutputPage) -> Vec<LineFromServer> {
        let Some(place) = self.servers.get_mut(&server) else { return Vec::new() };
        let former = place.after;
        place.asked = None;
        place.after = place.after.max(output.after);
        let new = output.lines.iter().filter(|line| line.number > former);
        let of = |line: &OutputLine| {
            let (server, program) = (place.name.clone(), output.program_of(line).cloned());
            LineFromServer { server, program, line: line.clone() }
        };
        new.map(of).collect()
    }
}

fn print(options: &Options, lines: &[LineFromServer]) -> Result<()> {
    let text: String = lines.iter().map(|line| if options.json { json_of(line) } else { text_of(line) }).collect();
    if text.is_empty() { Ok(()) } else { print_text(&text) }
}

fn json_of(LineFromServer { server, program, line }: &LineFromServer) -> String {
    let mut value = json!({
        "time": humantime::format_rfc3339_micros(date(line)).to_string(),
        "server": server,
        "function": line.function,
        "call": line.call.to_string(),
        "stream": if line.is_error { "stderr" } else { "stdout" },
        "text": line.text,
    });
    add_program(&mut value, program.as_ref());
    format!("{}\n", escaped_json(&value.to_string()))
}

fn date(line: &OutputLine) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_nanos(line.at.0)
}

/// Formats a line: `2026-01-31T12:00:00.123Z [solve@node-3 t17@n2f3a90 anna: train.py on laptop] residual 0.02`. Control
/// characters are escaped: a line must neither imitate other lines nor change the terminal.
fn text_of(LineFromServer { server, program, line }: &LineFromServer) -> String {
    let (time, call) = (humantime::format_rfc3339_millis(date(line)), line.call);
    let program = program.as_ref().map_or_else(String::new, |program| format!(" {program}"));
    let function = short_name(&line.function);
    let (server, text) = (EscapedLine(server), EscapedLine(&line.text));
    format!("{time} [{}@{server} {call}{program}] {text}\n", EscapedLine(function))
}

#[cfg(test)]
mod tests {
    use gridloom_base::Time;

    use super::*;

    #[test]
    fn a_line_has_its_origin_and_no_control_characters() {
        let line = OutputLine {
            number: 1,
            call: "t17@n2f3a90".parse().unwrap(),
            function: "physics/solve".into(),
            program: NodeId(7),
            is_error: true,
            at: Time(1_500_000),
            text: "a\tb\x1b[2Jä".into(),
        };
        let program =
            Program { client: NodeId(7), user: "anna".into(), host: "lap\ntop".into(), name: "train.py".into() };
        let printed = LineFromServer { server: "one".into(), program: Some(program), line };
        let text = "1970-01-01T00:00:00.001Z [solve@one t17@n2f3a90 anna: train.py on lap\\ntop] a\tb\\u{1b}[2Jä\n";
        assert_eq!(text_of(&printed), text);
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&json_of(&printed)).unwrap(),
            json!({"time": "1970-01-01T00:00:00.001500Z", "server": "one", "function": "physics/solve", "call": "t17@n2f3a90",
                   "stream": "stderr", "text": "a\tb\x1b[2Jä", "user": "anna", "host": "lap\ntop", "program": "train.py"})
        );
    }
}

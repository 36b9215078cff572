//! Prints the output and the ends of the processes of a run: as lines of text, or as one line of JSON per event.
//!
//! **Invariant:** as JSON, everything goes to standard output, so that events are read in order.

use std::io::{self, Write};
use std::process::ExitStatus;

use serde_json::{Value, json};

/// Output format of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OutputFormat {
    /// The output of processes goes to the stream on which they print it, each line after the name of its process; the
    /// rest goes to standard error.
    #[default]
    Text,
    /// Like text, but lines do not show which process printed them.
    Plain,
    Json,
}

impl OutputFormat {
    /// Prints a line of a process's output. A closed output is ignored: the process still runs to its end.
    pub fn line(self, process: &str, is_error: bool, text: &str) {
        let _ = match (self, is_error) {
            (OutputFormat::Text, false) => write(io::stdout().lock(), &format!("{process}| {text}")),
            (OutputFormat::Text, true) => write(io::stderr().lock(), &format!("{process}| {text}")),
            (OutputFormat::Plain, false) => write(io::stdout().lock(), text),
            (OutputFormat::Plain, true) => write(io::stderr().lock(), text),
            (OutputFormat::Json, _) => {
                let stream = if is_error { "stderr" } else { "stdout" };
                event(json!({ "event": "output", "process": process, "stream": stream, "text": text }))
            }
        };
    }

    /// Prints that a process has ended by itself, or was killed at its kill time. As text, a successful end prints nothing.
    pub fn ended(self, process: &str, status: ExitStatus, was_killed: bool) {
        use std::os::unix::process::ExitStatusExt;
        match self {
            OutputFormat::Text | OutputFormat::Plain if status.success() || was_killed => {}
            OutputFormat::Text | OutputFormat::Plain => self.message(&format!("{process} ended with {status}")),
            OutputFormat::Json => {
                let (code, signal) = (status.code(), status.signal());
                let ended = json!({
                    "event": "ended", "process": process, "status": code, "signal": signal, "was_killed": was_killed,
                });
                let _ = event(ended);
            }
        }
    }

    /// Prints a message about the run as a whole.
    pub fn message(self, text: &str) {
        match self {
            OutputFormat::Text | OutputFormat::Plain => gridloom_base::stderr_line!("gridloom: {text}"),
            OutputFormat::Json => drop(event(json!({ "event": "message", "text": text }))),
        }
    }

    /// Prints that a process has ended with status 0 without asking which process it is.
    pub fn never_read_config(self, process: &str) {
        self.message(&format!(
            "{process} ended without asking which process it is: the program does not run Gridloom processes, or \
             ended before it ran them"
        ));
    }

    /// Prints the end of the run as JSON; prints nothing in text format.
    pub fn done(self, status: u8) {
        if self == OutputFormat::Json {
            let _ = event(json!({ "event": "done", "status": status }));
        }
    }
}

fn event(value: Value) -> io::Result<()> {
    write(io::stdout().lock(), &value.to_string())
}

fn write(mut to: impl Write, line: &str) -> io::Result<()> {
    writeln!(to, "{line}")?;
    to.flush()
}

//! How a run of processes tells what they print and how they end: as lines of text, or as a line of JSON for each event.
//!
//! **Invariant:** as JSON all stands on standard output, so that events are read in their order.

use std::io::{self, Write};
use std::process::ExitStatus;

use serde_json::{Value, json};

/// See the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Telling {
    /// What processes print stands where they print it, each line after its process; the rest on standard error.
    #[default]
    Text,
    /// As text, and lines do not say which process prints them.
    Plain,
    Json,
}

impl Telling {
    /// A line that a process prints. A reader that is gone is no error: the process still runs to its end.
    pub fn line(self, process: &str, is_error: bool, text: &str) {
        let _ = match (self, is_error) {
            (Telling::Text, false) => write(io::stdout().lock(), &format!("{process}| {text}")),
            (Telling::Text, true) => write(io::stderr().lock(), &format!("{process}| {text}")),
            (Telling::Plain, false) => write(io::stdout().lock(), text),
            (Telling::Plain, true) => write(io::stderr().lock(), text),
            (Telling::Json, _) => {
                let stream = if is_error { "stderr" } else { "stdout" };
                event(json!({ "event": "output", "process": process, "stream": stream, "text": text }))
            }
        };
    }

    /// A process has ended by itself, or because it was killed at its time. As text, an end without failure says nothing.
    pub fn ended(self, process: &str, status: ExitStatus, was_killed: bool) {
        use std::os::unix::process::ExitStatusExt;
        match self {
            Telling::Text | Telling::Plain if status.success() || was_killed => {}
            Telling::Text | Telling::Plain => self.message(&format!("{process} ended with {status}")),
            Telling::Json => {
                let (code, signal) = (status.code(), status.signal());
                let ended = json!({
                    "event": "ended", "process": process, "status": code, "signal": signal, "was_killed": was_killed,
                });
                let _ = event(ended);
            }
        }
    }

    /// What happens to the run as a whole.
    pub fn message(self, text: &str) {
        match self {
            Telling::Text | Telling::Plain => gridloom_base::say!("gridloom: {text}"),
            Telling::Json => drop(event(json!({ "event": "message", "text": text }))),
        }
    }

    /// A process has ended with status 0 and never asked which process it is.
    pub fn never_asked(self, process: &str) {
        self.message(&format!(
            "{process} ended without having asked for its function: the program is not one of Gridloom's processes, or has ended \
             before it ran them"
        ));
    }

    /// The run is over. Text needs no word for it.
    pub fn done(self, status: u8) {
        if self == Telling::Json {
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

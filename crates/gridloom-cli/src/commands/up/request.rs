//! What `gridloom up` and its like ask of `gridloom host` on another machine, and the answers: a line of JSON each way.
//!
//! The request passes by standard input, since it holds the grid's secret. A command line or a log never does.

use serde::{Deserialize, Serialize};

use super::python::{Asked, Environment};

/// This program's version: both sides must have the same.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A request. The version comes first and is looked at before the rest is read.
#[derive(Serialize, Deserialize)]
pub struct Request {
    pub version: String,
    /// The grid's name.
    pub grid: String,
    /// Drawn when the grid first started: two users of one account may both have a grid of that name.
    pub grid_id: String,
    pub action: Action,
}

/// What is to be done.
#[derive(Serialize, Deserialize)]
pub enum Action {
    Start(Start),
    /// Take a folder of a program, unless a copy of that hash is there. An archive of so many bytes follows the line.
    Receive {
        hash: String,
        bytes: u64,
    },
    /// Say what the Python of a part has, and refuse one that lacks something.
    Python(Python),
    /// Look at these parts.
    Look {
        labels: Vec<String>,
    },
    /// Drain these servers, and wait so many seconds for their end.
    Drain {
        labels: Vec<String>,
        wait_s: f64,
    },
    /// End these parts: ask them by a signal, and kill those that run after `grace_s` seconds.
    End {
        labels: Vec<String>,
        grace_s: f64,
    },
}

impl Action {
    /// The parts that are looked at or ended; `None` if it is something else.
    pub fn labels(&self) -> Option<&[String]> {
        match self {
            Action::Start(_) | Action::Receive { .. } | Action::Python(_) => None,
            Action::Look { labels } | Action::Drain { labels, .. } | Action::End { labels, .. } => Some(labels),
        }
    }
}

/// Parts of the grid to start on one host.
#[derive(Serialize, Deserialize)]
pub struct Start {
    pub secret: String,
    pub parts: Vec<Launch>,
    /// Working directory; the user's home without it.
    pub folder: Option<String>,
    /// Seconds until each part must have registered.
    pub wait_s: f64,
    /// Stay until the parts have ended, which would end with this command.
    pub stay: Option<Stay>,
}

/// A Python that is looked at before a part is started with it.
#[derive(Clone, Serialize, Deserialize)]
pub struct Python {
    pub asked: Asked,
    /// The copy of the program's folder.
    pub code: Option<String>,
    /// Working directory; the user's home without it.
    pub folder: Option<String>,
}

/// The allocation that parts run in.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Stay {
    /// Number of its job in Slurm.
    pub job: String,
    /// Servers drain so many seconds before its end.
    pub drain_s: f64,
}

/// One process to start.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Launch {
    /// `agent` or `server-NAME`: unique in the grid, and the name of its files.
    pub label: String,
    /// The command line behind `gridloom`.
    pub words: Vec<String>,
    /// The copy of the program's folder, in which Python finds its modules. Words may have it: see [`CODE`].
    pub code: Option<String>,
    /// The Python that runs its functions, if it has any of Python.
    pub python: Option<Asked>,
}

/// The part of a word of a launch that stands for the copy of the program's folder.
pub const CODE: &str = "{code}/";

/// The answer.
#[derive(Debug, Serialize, Deserialize)]
pub struct Answer {
    /// Marks the line among what a login shell may print.
    pub gridloom_host: String,
    pub result: Result<Reply, Refusal>,
}

/// What was done.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    Parts(Vec<PartState>),
    Received {
        /// Name of the copy.
        copy: String,
        /// It was there, and whole.
        was_there: bool,
    },
    /// What it has.
    Python(Environment),
}

/// One part of the grid on its host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartState {
    pub label: String,
    pub state: State,
    pub pid: Option<u32>,
    /// Where other nodes dial it.
    pub address: Option<String>,
    /// The file of its log, on its host.
    pub log: String,
    /// Why it could not be started, or the last line of the log of one that has ended.
    pub why: Option<String>,
    /// The copy of the program's folder with which it runs.
    pub code: Option<String>,
    /// What its Python has, if that was asked.
    pub python: Option<Environment>,
}

impl PartState {
    /// A part that was ended from outside, with all that ran on its host.
    pub fn lost(label: &str, why: &str) -> PartState {
        let (label, log, why) = (label.into(), String::new(), Some(why.into()));
        PartState { label, state: State::Ended, pid: None, address: None, log, why, code: None, python: None }
    }
}

/// Whether a part runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    Runs,
    /// It takes no new calls, and ends when no program needs anything of it.
    Drains,
    Ended,
    /// It was started and has not come up: it was ended again.
    Failed,
}

impl State {
    pub fn word(self) -> &'static str {
        match self {
            State::Runs => "runs",
            State::Drains => "drains",
            State::Ended => "ended",
            State::Failed => "failed",
        }
    }
}

/// Why a host did nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refusal {
    /// Its program has that version.
    Version(String),
    /// The folder for logs takes nothing more.
    Full(String),
    /// Its Python lacks something.
    Unfit { why: String, remedy: String },
    /// Anything else.
    Other(String),
}

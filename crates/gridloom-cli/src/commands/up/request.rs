//! Requests of `gridloom up` and related commands to `gridloom host` on another machine, and the answers: one line of
//! JSON in each direction.
//!
//! The request is sent through standard input because it contains private keys, which never appear in a command line or
//! a log.

use serde::{Deserialize, Serialize};

use super::python::{Environment, PythonSpec};

/// This program's version: both sides must have the same.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A request. The version is the first field and is checked before the rest is parsed.
#[derive(Serialize, Deserialize)]
pub struct Request {
    pub version: String,
    /// The grid's name.
    pub grid: String,
    /// Random number drawn when the grid first started: two users of one account may both have a grid of that name.
    pub grid_id: String,
    pub action: Action,
}

/// The requested action.
#[derive(Serialize, Deserialize)]
pub enum Action {
    Start(StartRequest),
    /// Receive a folder of a program, unless a copy of that hash exists. An archive of `bytes` bytes follows the line.
    Receive {
        hash: String,
        bytes: u64,
    },
    /// Report the Python environment of a part, and refuse one that lacks something.
    Python(PythonCheck),
    /// Do nothing: the answer shows that requests arrive, and that the versions agree.
    Reach,
    /// Run a process of a program until it ends, or until standard input closes. There is no answer: the process's
    /// output and exit status are those of the command.
    Run(RunRequest),
    /// Check these parts.
    Look {
        labels: Vec<String>,
    },
    /// Drain these servers, and wait this many seconds for their end.
    Drain {
        labels: Vec<String>,
        wait_s: f64,
    },
    /// End these parts: signal them, and kill those that still run after `grace_s` seconds.
    End {
        labels: Vec<String>,
        grace_s: f64,
    },
}

impl Action {
    /// Returns the parts to check or end; `None` for other requests.
    pub fn labels(&self) -> Option<&[String]> {
        match self {
            Action::Start(_) | Action::Receive { .. } | Action::Python(_) | Action::Reach | Action::Run(_) => None,
            Action::Look { labels } | Action::Drain { labels, .. } | Action::End { labels, .. } => Some(labels),
        }
    }
}

/// Parts of the grid to start on one host.
#[derive(Serialize, Deserialize)]
pub struct StartRequest {
    pub parts: Vec<Part>,
    /// Keys of a client that checks whether the parts answer: a text of `Bundle::to_pem`.
    pub client_keys: String,
    /// Working directory; `None` for the user's home.
    pub folder: Option<String>,
    /// Seconds until each part must have registered.
    pub wait_s: f64,
    /// Keep running until the parts have ended, because they would end with this command.
    pub stay: Option<StayOptions>,
}

/// A process of a program.
#[derive(Serialize, Deserialize)]
pub struct RunRequest {
    pub command: Vec<String>,
    pub environment: Vec<(String, String)>,
    /// Working directory; `None` for the user's home.
    pub folder: Option<String>,
    /// A text of `Bundle::to_pem`.
    pub keys: String,
}

/// A Python that is checked before a part is started with it.
#[derive(Clone, Serialize, Deserialize)]
pub struct PythonCheck {
    pub python: PythonSpec,
    /// The copy of the program's folder.
    pub code: Option<String>,
    /// Working directory; `None` for the user's home.
    pub folder: Option<String>,
}

/// The allocation in which parts run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StayOptions {
    /// Number of its Slurm job.
    pub job: String,
    /// Servers drain this many seconds before its end.
    pub drain_s: f64,
}

/// One process to start, with its keys.
#[derive(Serialize, Deserialize)]
pub struct Part {
    pub launch: Launch,
    /// A line of `IssuedKeys::to_line`.
    pub keys: String,
}

/// The command of a process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Launch {
    /// `agent` or `server-NAME`: unique in the grid, and the name of its files.
    pub label: String,
    /// Arguments after `gridloom`.
    pub arguments: Vec<String>,
    /// The copy of the program's folder, in which Python finds its modules. Arguments may contain it: see [`CODE`].
    pub code: Option<String>,
    /// The Python that runs its functions, if it has Python functions.
    pub python: Option<PythonSpec>,
}

/// Placeholder in an argument of a launch for the copy of the program's folder.
pub const CODE: &str = "{code}/";

/// The answer.
#[derive(Debug, Serialize, Deserialize)]
pub struct Answer {
    /// Distinguishes the line from other output of a login shell.
    pub gridloom_host: String,
    pub result: Result<Reply, Refusal>,
}

/// The result of a request.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    Parts(Vec<PartState>),
    Received {
        /// Name of the copy.
        copy: String,
        /// True if it existed and was complete.
        was_there: bool,
    },
    /// The Python environment.
    Python(Environment),
}

/// One part of the grid on its host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartState {
    pub label: String,
    pub state: State,
    pub pid: Option<u32>,
    /// Address at which other nodes connect.
    pub address: Option<String>,
    /// Path of its log on its host.
    pub log: String,
    /// Why it could not be started; if it has ended, the last line of its log.
    pub why: Option<String>,
    /// The copy of the program's folder with which it runs.
    pub code: Option<String>,
    /// Its Python environment, if the request asked for it.
    pub python: Option<Environment>,
}

impl PartState {
    /// Returns the state of a part that was ended from outside, with everything that ran on its host.
    pub fn lost(label: &str, why: &str) -> PartState {
        let (label, log, why) = (label.into(), String::new(), Some(why.into()));
        PartState { label, state: State::Ended, pid: None, address: None, log, why, code: None, python: None }
    }
}

/// The state of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    Runs,
    /// It accepts no new calls, and ends when no program needs it any more.
    Drains,
    Ended,
    /// It was started but did not register: it was ended again.
    Failed,
}

impl State {
    pub fn name(self) -> &'static str {
        match self {
            State::Runs => "runs",
            State::Drains => "drains",
            State::Ended => "ended",
            State::Failed => "failed",
        }
    }
}

/// Why a host refused a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refusal {
    /// The host's program has that version.
    Version(String),
    /// There is no room in the folder for logs or copies.
    Full(String),
    /// Its Python lacks something.
    Unfit { why: String, remedy: String },
    /// Anything else.
    Other(String),
}

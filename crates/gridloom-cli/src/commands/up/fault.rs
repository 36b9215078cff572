//! What a command on a host has said, and what is wrong with a host.

/// Why a host does not do its part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    pub host: String,
    /// What is wrong.
    pub why: String,
    /// The command that was run.
    pub tried: String,
    pub remedy: String,
    /// A part may run there all the same: the connection was lost, or the host is silent.
    pub may_run: bool,
    /// There is no such program.
    pub is_missing: bool,
}

impl std::fmt::Display for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "host '{}': {}\n  tried: {}\n  remedy: {}", self.host, self.why, self.tried, self.remedy)
    }
}

/// What the other side of a connection has said.
pub struct Said {
    /// The exit status; `None` after a signal.
    pub code: Option<i32>,
    pub output: String,
    pub errors: String,
}

/// What is wrong, and what to do about it.
pub struct Fault {
    pub why: String,
    pub remedy: String,
    pub may_run: bool,
}

impl Fault {
    pub fn new(why: String, remedy: &str) -> Fault {
        Fault { why, remedy: remedy.into(), may_run: false }
    }

    pub fn at(self, host: &str, tried: String) -> Trouble {
        Trouble {
            host: host.into(),
            why: self.why,
            tried,
            remedy: self.remedy,
            may_run: self.may_run,
            is_missing: false,
        }
    }
}

/// The last line that says something.
pub fn last(text: &str) -> String {
    text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default().trim().to_string()
}

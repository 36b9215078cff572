//! Output of commands on hosts, and errors of hosts.

/// The failure of a request to a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostFailure {
    pub host: String,
    /// The error.
    pub why: String,
    /// The command that was run.
    pub tried: String,
    pub remedy: String,
    /// True if a part may run on the host nevertheless: the connection was lost, or the host does not answer.
    pub may_run: bool,
    /// True if the program does not exist on the host.
    pub is_missing: bool,
}

impl std::fmt::Display for HostFailure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "host '{}': {}\n  tried: {}\n  remedy: {}", self.host, self.why, self.tried, self.remedy)
    }
}

/// The output and exit status of a command on the other side of a connection.
pub struct CommandOutput {
    /// The exit status; `None` after a signal.
    pub code: Option<i32>,
    pub output: String,
    pub errors: String,
}

/// An error and its remedy.
pub struct Fault {
    pub why: String,
    pub remedy: String,
    pub may_run: bool,
}

impl Fault {
    pub fn new(why: String, remedy: &str) -> Fault {
        Fault { why, remedy: remedy.into(), may_run: false }
    }

    pub fn at(self, host: &str, tried: String) -> HostFailure {
        HostFailure {
            host: host.into(),
            why: self.why,
            tried,
            remedy: self.remedy,
            may_run: self.may_run,
            is_missing: false,
        }
    }
}

/// Returns the last line that is not empty.
pub fn last_line(text: &str) -> String {
    text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default().trim().to_string()
}

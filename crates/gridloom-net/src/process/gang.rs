//! What a server tells a process of a gang beside its [`ProcessConfig`](super::ProcessConfig). That comes from the gang's caller; this does not.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// In the environment of a process of a gang: its [`Gang`], as JSON.
pub const GANG_VARIABLE: &str = "GRIDLOOM_GANG";

/// What the server says. A process uses no other files, whatever its caller tells it.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Gang {
    /// Folder of the program, below which its checkpoints are kept, each by its name.
    pub checkpoints: Option<PathBuf>,
    /// The file for what the process did.
    pub records: Option<PathBuf>,
    /// What is to be added to this machine's monotonic clock to get that of the caller, nanoseconds.
    pub shift_ns: i64,
}

impl Gang {
    pub fn to_variable(&self) -> String {
        serde_json::to_string(self).expect("paths that were texts, and a number")
    }

    /// Of this process, if a server has started it.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn of_environment() -> Result<Option<Gang>, String> {
        let Some(text) = std::env::var_os(GANG_VARIABLE) else { return Ok(None) };
        let gang = serde_json::from_str(&text.to_string_lossy());
        gang.map(Some).map_err(|error| format!("{GANG_VARIABLE} is not what a server says: {error}"))
    }
}

//! What a server passes to a process of a gang, in addition to its [`ProcessConfig`](super::ProcessConfig). The
//! `ProcessConfig` is set by the gang's caller; this is not.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Environment variable with the [`Gang`] of a process, as JSON.
pub const GANG_VARIABLE: &str = "GRIDLOOM_GANG";

/// The server's settings for a process. A process uses no other files, whatever its caller requests.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Gang {
    /// Folder of the program that contains its checkpoints by name.
    #[serde(default, with = "gridloom_base::path_bytes::option")]
    pub checkpoints: Option<PathBuf>,
    /// File for the records of the process.
    #[serde(default, with = "gridloom_base::path_bytes::option")]
    pub records: Option<PathBuf>,
    /// Offset to add to this machine's monotonic clock to get the caller's clock, in nanoseconds.
    pub shift_ns: i64,
}

impl Gang {
    pub fn to_variable(&self) -> String {
        serde_json::to_string(self).expect("paths and a number")
    }

    /// Returns the settings of this process, if a server has started it.
    ///
    /// # Errors
    /// If the variable cannot be parsed.
    pub fn of_environment() -> Result<Option<Gang>, String> {
        let Some(text) = std::env::var_os(GANG_VARIABLE) else { return Ok(None) };
        let gang = serde_json::from_str(&text.to_string_lossy());
        gang.map(Some).map_err(|error| format!("{GANG_VARIABLE} is not the JSON that a server sets: {error}"))
    }
}

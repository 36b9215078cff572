//! Names of shared data: which texts are valid names, and why an operation on a name failed.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{DatumId, InvalidName, Meta, Method, NameKind, TaskId};

/// A version of a shared name.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct NamedDatum {
    pub datum: DatumId,
    pub name: String,
    /// Increases with each put of the name.
    pub version: u64,
    pub meta: Meta,
    /// Number of servers that store it.
    pub replicas: u16,
    /// True if the servers keep it across restarts, until it is deleted.
    pub is_durable: bool,
    /// How it is sent to the servers that read it.
    pub method: Method,
    /// The call that put it, if a function did.
    pub put_by: Option<PutOrigin>,
    /// The user who put it. Other users can read it, but not replace or delete it.
    pub owner: String,
}

/// The call that put a datum, and a digest of the data. If the call runs again, it may put the same data again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PutOrigin {
    pub task: TaskId,
    /// BLAKE3 hash of description and bytes.
    pub digest: [u8; 32],
}

/// Why a put, lookup or deletion of a named datum failed.
#[derive(Clone, PartialEq, Debug, Error, Serialize, Deserialize)]
#[non_exhaustive]
pub enum NameError {
    /// The name is taken.
    #[error("shared data named '{name}' exist already; put them with replace, or under another name")]
    Exists { name: String },
    /// Another program is putting this name.
    #[error("shared data named '{name}' are being put by another program; wait for them, or choose another name")]
    BeingPut { name: String },
    /// A call that runs again puts data that differ from those of its first run.
    #[error(
        "the call that put '{name}' was restarted and puts other data; make its function return the same data each time, or put with \
         replace"
    )]
    ContentDiffers { name: String },
    /// The name belongs to another user.
    #[error(
        "'{name}' belongs to '{owner}', and '{user}' can neither replace nor delete it; use another name, or ask '{owner}' or an \
         administrator of the grid"
    )]
    NotOwner { name: String, owner: String, user: String },
    /// The name does not exist.
    #[error("no shared data are named '{name}'{}", near_text(near))]
    Unknown {
        name: String,
        /// Similar names.
        near: Vec<String>,
    },
    /// All servers that stored it are lost.
    #[error("the data named '{name}' are lost: {why}; put them again")]
    Lost { name: String, why: String },
    /// No server has room for it.
    #[error("no server can store the {size_bytes} bytes of '{name}': {why}")]
    NoRoom { name: String, size_bytes: u64, why: String },
    /// The text is not a valid name.
    #[error("{name:?} cannot name shared data: {why}")]
    InvalidName { name: String, why: String },
    /// A limit on the number of names or requests is reached.
    #[error("the agent lists {limit} {what}, which is its limit; delete some, or wait until others have ended")]
    TooMany { what: String, limit: usize },
    /// The agent, which knows the names, cannot be reached.
    #[error("shared names need an agent, and none is connected ({why})")]
    NoAgent { why: String },
    /// The transfer to the server that should store it failed.
    #[error("'{name}' did not arrive at server '{server}': {why}")]
    NotStored { name: String, server: String, why: String },
    /// The connection to the agent was lost each time after this request was sent. Clients detect this themselves; no
    /// message carries it.
    #[error(
        "the agent at {address} closed the connection {times} times when it was asked {asked} ({why}): compare the releases of agent \
         and program (`gridloom status`), or see the agent's log"
    )]
    AgentDisconnects {
        address: String,
        /// The request as text, such as "for 'mesh'".
        asked: String,
        times: u32,
        why: String,
    },
}

fn near_text(near: &[String]) -> String {
    if near.is_empty() { String::new() } else { format!("; did you mean '{}'?", near.join("' or '")) }
}

/// Checks that a text can name shared data: the rules are those of [`NameKind::Data`].
///
/// # Errors
/// Why it cannot.
pub fn check_name(name: &str) -> Result<(), NameError> {
    NameKind::Data.check(name).map_err(|InvalidName { name, why, .. }| NameError::InvalidName { name, why })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::DATUM_NAME_BYTES_MAX;

    #[test]
    fn names_have_a_bound_and_no_control_characters() {
        assert_eq!(check_name("a"), Ok(()));
        assert_eq!(check_name(&"\u{e9}".repeat(DATUM_NAME_BYTES_MAX / 2)), Ok(()));
        for (wrong, why) in
            [("", "empty"), ("a\0b", "control"), ("a\n", "control"), (&"x".repeat(DATUM_NAME_BYTES_MAX + 1), "limit")]
        {
            let error = check_name(wrong).unwrap_err().to_string();
            assert!(error.contains(why) && error.len() < 200, "{error}");
        }
    }

    #[test]
    fn an_unknown_name_is_reported_with_those_like_it() {
        let near = vec!["mesh".to_string(), "mush".to_string()];
        let error = NameError::Unknown { name: "mehs".into(), near };
        assert_eq!(error.to_string(), "no shared data are named 'mehs'; did you mean 'mesh' or 'mush'?");
    }

    #[test]
    fn an_unreachable_agent_is_reported_with_a_remedy() {
        let (address, asked, why) = ("here:1".into(), "for 'mesh'".into(), "it hung up".into());
        let error = NameError::AgentDisconnects { address, asked, times: 5, why };
        let text = "the agent at here:1 closed the connection 5 times when it was asked for 'mesh' (it hung up): compare the releases of \
                    agent and program (`gridloom status`), or see the agent's log";
        assert_eq!(error.to_string(), text);
    }
}

//! Names of shared data: which texts are valid names, to whom they belong, and why an operation on a name failed.
//!
//! Each user has a *namespace*. A *full name*, `~anna/mesh`, states the user and the name in that user's namespace. A name
//! without a user is in the namespace of the user who states it. In the name of the user, `%` and `/` are written as `%25` and `%2F`.
//!
//! The rules of a grid may permit users to read or change names in other namespaces. If no user has the name of a namespace, it
//! belongs to a project: those whom the rules name.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{DatumId, InvalidName, Meta, Method, NameKind, TaskId};

/// The reader that stands for all users.
pub const ALL_USERS: &str = "*";

/// A version of a shared name.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct NamedDatum {
    pub datum: DatumId,
    /// Its full name. Clients get the name as they would state it, without their own user.
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
    pub readers: Readers,
}

/// The users who may read a shared datum, besides its owner.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Readers {
    /// Names of users, [`ALL_USERS`], or groups of the rules, such as `group:students`.
    pub users: Vec<String>,
    /// Increases with each change by the owner.
    pub revision: u64,
}

impl NamedDatum {
    /// Returns the user to whom it belongs, who may replace and delete it. Empty if the name states no user.
    pub fn owner(&self) -> Cow<'_, str> {
        owner_of(&self.name).unwrap_or_default()
    }
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
    /// The name is in the namespace of another user.
    #[error(
        "'{name}' belongs to '{owner}', and '{user}' can neither put, share nor delete it; use another name, or ask '{owner}' or an \
         administrator of the grid"
    )]
    NotOwner { name: String, owner: String, user: String },
    /// The name is in the namespace of another user, and does not exist or is not shared with this user.
    #[error(
        "'{owner}' shares no data named '{name}' with '{user}'; '{owner}' can do so with share(), or 'gridloom data share', and an \
         administrator with the rules of the grid"
    )]
    NotShared { name: String, owner: String, user: String },
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
    /// The text is not the name of a user, or the names are too long.
    #[error("data cannot be shared with {name:?}: {why}")]
    InvalidReader { name: String, why: String },
    /// The name is shared with too many users.
    #[error(
        "'{name}' would be shared with {count} users one by one, and the limit is {limit}; '*' shares it with all users"
    )]
    TooManyReaders { name: String, count: usize, limit: usize },
    /// A limit on the number of names or requests is reached.
    #[error("the agent lists {limit} {what}, which is its limit; delete some, or wait until others have ended")]
    TooMany { what: String, limit: usize },
    /// The agent, which knows the names, cannot be reached.
    #[error("shared names need an agent, and none is connected ({why})")]
    NoAgent { why: String },
    /// The transfer to the server that should store it failed.
    #[error("'{name}' did not arrive at server '{server}': {why}")]
    NotStored { name: String, server: String, why: String },
    /// The rules of the grid limit the durable data of the owner of the name.
    #[error("server '{server}' does not store '{name}': {why}")]
    QuotaExceeded {
        name: String,
        server: String,
        /// The quota and the remedy.
        why: String,
    },
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

impl NameError {
    /// Replaces each name of shared data in the error.
    #[must_use]
    pub fn map_names(mut self, map: impl Fn(&str) -> String) -> NameError {
        match &mut self {
            NameError::Unknown { name, near } => {
                near.iter_mut().for_each(|near| *near = map(near));
                *name = map(name);
            }
            NameError::Exists { name }
            | NameError::BeingPut { name }
            | NameError::ContentDiffers { name }
            | NameError::NotOwner { name, .. }
            | NameError::NotShared { name, .. }
            | NameError::Lost { name, .. }
            | NameError::NoRoom { name, .. }
            | NameError::NotStored { name, .. }
            | NameError::QuotaExceeded { name, .. }
            | NameError::TooManyReaders { name, .. } => *name = map(name),
            NameError::InvalidName { .. }
            | NameError::InvalidReader { .. }
            | NameError::TooMany { .. }
            | NameError::NoAgent { .. }
            | NameError::AgentDisconnects { .. } => {}
        }
        self
    }
}

fn near_text(near: &[String]) -> String {
    if near.is_empty() { String::new() } else { format!("; did you mean '{}'?", near.join("' or '")) }
}

/// Checks that a text can name shared data, with or without a user: the rules are those of [`NameKind::Data`].
///
/// # Errors
/// Why it cannot.
pub fn check_name(name: &str) -> Result<(), NameError> {
    let invalid = |InvalidName { name, why, .. }| NameError::InvalidName { name, why };
    let Some(after) = name.strip_prefix('~') else { return NameKind::Data.check(name).map_err(invalid) };
    let Some((user, plain)) = after.split_once('/') else {
        let why = "a name that begins with '~' states a user; expected the form ~USER/NAME".to_string();
        return Err(NameError::InvalidName { name: name.chars().take(64).collect(), why });
    };
    if !user.is_empty() {
        NameKind::User.check(&decoded(user)).map_err(invalid)?;
    }
    NameKind::Data.check(plain).map_err(invalid)
}

/// Returns the full name for a name that a user states.
pub fn full_name<'a>(user: &str, name: &'a str) -> Cow<'a, str> {
    if name.starts_with('~') { Cow::Borrowed(name) } else { Cow::Owned(namespace(user) + name) }
}

/// Returns the beginning of all full names of a user, `~anna/`.
pub fn namespace(user: &str) -> String {
    format!("~{}/", user.replace('%', "%25").replace('/', "%2F"))
}

/// Returns the name as that user would state it: without the user if it is in their namespace.
pub fn name_for<'a>(user: &str, name: &'a str) -> &'a str {
    name.strip_prefix(namespace(user).as_str()).unwrap_or(name)
}

/// Returns the name without the user.
pub fn plain_name(name: &str) -> &str {
    name.strip_prefix('~').and_then(|after| after.split_once('/')).map_or(name, |(_, plain)| plain)
}

/// Returns the user that a full name states.
pub fn owner_of(name: &str) -> Option<Cow<'_, str>> {
    Some(decoded(name.strip_prefix('~')?.split_once('/')?.0))
}

fn decoded(user: &str) -> Cow<'_, str> {
    if user.contains('%') { Cow::Owned(user.replace("%2F", "/").replace("%25", "%")) } else { Cow::Borrowed(user) }
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
    fn a_full_name_states_its_user() {
        for user in ["anna", "", "a/b", "50%", "%2F", "functions of s1"] {
            let full = full_name(user, "mesh/2");
            assert_eq!((owner_of(&full).unwrap(), check_name(&full)), (user.into(), Ok(())), "{full}");
            assert_eq!((name_for(user, &full), name_for("bert", &full)), ("mesh/2", &*full));
            assert_eq!(full_name("bert", &full), full);
        }
        assert_eq!(full_name("a/b", "c"), "~a%2Fb/c");
        assert_eq!(owner_of("mesh"), None);
        for wrong in ["~", "~anna", "~anna/", "~ /mesh", "~an\0na/mesh"] {
            assert!(matches!(check_name(wrong), Err(NameError::InvalidName { .. })), "{wrong}");
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

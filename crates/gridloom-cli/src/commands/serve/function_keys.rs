//! The folder with the keys for the functions of a server: a certificate of a client.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};

use anyhow::{Context, Result};
use gridloom_base::EscapedBytes;
use gridloom_keys::{Bundle, KEYS_VARIABLE, KeysFolder};
use gridloom_net::jobs::RunAs;

use super::super::{OwnFolder, end_on_signals};

/// Writes the keys into a folder that exists as long as the server. Without keys, or if they cannot be written, functions
/// cannot open sessions. A warning says so if they may need it.
pub fn function_keys(
    keys: Option<&Bundle>,
    run_as: Option<&RunAs>,
    may_open_sessions: bool,
) -> Result<Option<OwnFolder>> {
    let why = match keys.map(|keys| written(keys, run_as)) {
        Some(Ok(folder)) => {
            end_on_signals(&folder)?;
            return Ok(Some(folder));
        }
        Some(Err(error)) => format!("no keys for functions can be written: {error:#}"),
        // They find the keys of the user in the usual folder.
        None if run_as.is_none() && [KEYS_VARIABLE, "XDG_CONFIG_HOME"].map(std::env::var_os) == [None, None] => {
            return Ok(None);
        }
        None => "the authority of the grid is on another machine, and only it can issue keys for functions".into(),
    };
    if may_open_sessions {
        tracing::warn!(target: "gridloom.keys", "functions cannot open sessions: {why}");
    }
    Ok(None)
}

fn written(keys: &Bundle, run_as: Option<&RunAs>) -> Result<OwnFolder> {
    let folder = OwnFolder::new("keys")?;
    let stored = KeysFolder::at(&folder.0).store(keys)?;
    if let Some(RunAs { user, group, .. }) = run_as {
        let give = || {
            for entry in fs::read_dir(stored.path())? {
                chown(entry?.path(), Some(*user), Some(*group))?;
            }
            chown(stored.path(), Some(*user), Some(*group))?;
            fs::set_permissions(&folder.0, Permissions::from_mode(0o755))
        };
        give().with_context(|| EscapedBytes::of(stored.path()).to_string())?;
    }
    Ok(folder)
}

//! The folder with the keys for the functions of a server: a certificate of a client. A server that runs functions as
//! another user owns the folder, so that functions can read the keys and not change them.

use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use gridloom_base::EscapedBytes;
use gridloom_keys::{KEYS_VARIABLE, KeysError, KeysFolder, UnixTime};
use gridloom_net::identity::FunctionKeys;
use gridloom_net::jobs::RunAs;
use gridloom_resources::private_file::{Readers, open_to_group};

use super::super::{OwnFolder, end_on_signals};

/// Interval at which the server renews the keys if that is due.
const RENEWAL_INTERVAL: Duration = Duration::from_secs(3600);

/// Writes the keys into a folder that exists as long as the server, and renews them where the authority is. Without keys,
/// or if they cannot be written, functions cannot open sessions, unless they see the keys of the user in the usual folder.
/// If they may need to, a warning is logged.
pub fn function_keys(
    keys: Option<FunctionKeys>,
    run_as: Option<&RunAs>,
    sees_user_keys: bool,
    may_open_sessions: bool,
) -> Result<Option<OwnFolder>> {
    let why = match keys.map(|keys| written(keys, run_as)) {
        Some(Ok(folder)) => {
            end_on_signals(&folder)?;
            return Ok(Some(folder));
        }
        Some(Err(error)) => format!("no keys for functions can be written: {error:#}"),
        None if sees_user_keys && [KEYS_VARIABLE, "XDG_CONFIG_HOME"].map(std::env::var_os) == [None, None] => {
            return Ok(None);
        }
        None => "the authority of the grid is on another machine, and only it can issue keys for functions".into(),
    };
    if may_open_sessions {
        tracing::warn!(target: "gridloom.keys", "functions cannot open sessions: {why}");
    }
    Ok(None)
}

fn written(keys: FunctionKeys, run_as: Option<&RunAs>) -> Result<OwnFolder> {
    let folder = OwnFolder::new("keys")?;
    let path = folder.0.clone();
    let readers = match run_as {
        Some(RunAs { group, .. }) => {
            open_to_group(&path, *group, 0o750).with_context(|| EscapedBytes::of(&path).to_string())?;
            Readers::Group(*group)
        }
        None => Readers::Nobody,
    };
    KeysFolder::at(&path).readable_by(readers).store(&keys.current)?;
    if keys.can_renew() {
        let thread = thread::Builder::new().name("function keys".into());
        thread
            .spawn(move || keep_renewed(keys, path, readers))
            .context("a thread that renews the keys of functions")?;
    }
    Ok(folder)
}

/// Renews the keys until the process ends. Sessions that functions have opened keep theirs.
fn keep_renewed(mut keys: FunctionKeys, path: PathBuf, readers: Readers) {
    let folder = KeysFolder::at(path).readable_by(readers);
    let (mut reported, mut is_stored) = (None, true);
    loop {
        thread::sleep(RENEWAL_INTERVAL);
        let mut renew = || {
            is_stored &= !keys.renew_if_due(UnixTime::now())?;
            if !is_stored {
                folder.store(&keys.current)?;
                is_stored = true;
            }
            Ok(())
        };
        let error = renew().err().map(|error: KeysError| error.to_string());
        if let Some(why) = error.as_ref().filter(|_| error != reported) {
            tracing::warn!(target: "gridloom.keys", "the keys of functions cannot be renewed: {why}");
        }
        reported = error;
    }
}

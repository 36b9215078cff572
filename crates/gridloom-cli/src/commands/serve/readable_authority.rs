//! Whether functions can read the key of the grid's authority, or that of the server.

use std::os::unix::fs::MetadataExt;

use gridloom_base::EscapedBytes;
use gridloom_keys::{GridFolder, KeysError, KeysFolder};
use gridloom_net::identity::Keys;
use gridloom_net::jobs::SystemUsers;

/// Logs that functions can read the key of the authority. It is a warning once the authority has admitted others, who may
/// send functions; until then the user's functions can do what the user can do.
pub fn report_readable_authority(keys: &Keys, system_users: &SystemUsers) {
    let Some(folder) = folder_of(keys) else { return };
    let file = folder.authority_key();
    let Ok(status) = std::fs::metadata(&file) else { return };
    let can_read = |user: u32| user == status.uid() || user == 0;
    let is_readable = match system_users {
        SystemUsers::Own => can_read(rustix::process::geteuid().as_raw()),
        SystemUsers::One(run_as) => can_read(run_as.user),
        SystemUsers::PerUser(mapping) => {
            mapping.named.values().chain(&mapping.others).any(|run_as| can_read(run_as.user))
        }
    };
    if !is_readable {
        return;
    }
    let file = EscapedBytes::of(&file);
    let why = format!(
        "functions run as a user who can read the key of the grid's authority, {file}: with it they can admit anybody to \
         the grid; confine them with --confine, run them as another user with --run-as, or run no servers on the machine of \
         the authority"
    );
    match has_admitted_others(&folder) {
        Ok(false) => tracing::debug!(target: "gridloom.keys", "{why}"),
        // If it is not known whether there are others, there may be.
        Ok(true) | Err(_) => tracing::warn!(target: "gridloom.keys", "{why}"),
    }
}

/// Logs a warning if functions that programs send can read the private key of this server. The authority is on another
/// machine, so the grid has other users.
pub fn report_readable_own_key(keys: &Keys) {
    let Some(identity) = keys.identity() else { return };
    let Ok(folder) = KeysFolder::find().and_then(|keys| keys.grid(identity.grid())) else { return };
    let is_own = || folder.own().is_ok_and(|own| own.issued.certificate.identity == identity);
    if !folder.has_authority() && is_own() {
        tracing::warn!(
            target: "gridloom.keys",
            "functions run as a user who can read the private key of this server: with it they can take the server's place \
             in the grid; confine them with --confine, or run them as another user with --run-as"
        );
    }
}

/// Returns the user's folder of the grid, if its authority is there. A grid that exists in processes only, such as one of
/// `gl.local()`, may have the name of another one.
fn folder_of(keys: &Keys) -> Option<GridFolder> {
    let folder = KeysFolder::find().ok()?.grid(keys.identity()?.grid()).ok()?;
    let is_it = folder.has_authority() && folder.trust().ok()?.fingerprint() == keys.authority()?;
    is_it.then_some(folder)
}

fn has_admitted_others(folder: &GridFolder) -> Result<bool, KeysError> {
    let own = folder.own()?.issued.certificate.identity;
    Ok(folder.issued()?.iter().any(|record| record.identity != own))
}

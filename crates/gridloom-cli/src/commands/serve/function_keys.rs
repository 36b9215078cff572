//! The folder with the keys for the functions of a server: a certificate of a client. A server that runs functions as
//! another user owns the folder, so that functions can read the keys and not change them.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use gridloom_base::EscapedBytes;
use gridloom_keys::{KEYS_VARIABLE, KeysError, KeysFolder, UnixTime};
use gridloom_net::identity::FunctionKeys;
use gridloom_net::jobs::{FunctionKeyFolders, SystemUsers};
use gridloom_resources::private_file::{Readers, open_to_group};

use super::super::{OwnFolder, end_on_signals};

/// Interval at which the server renews the keys if that is due.
const RENEWAL_INTERVAL: Duration = Duration::from_secs(3600);

/// The folder with the keys, which exists as long as the server.
pub struct FolderOfKeys {
    pub folder: OwnFolder,
    /// If functions run as different users: those in it with the keys for each of their groups.
    of_groups: Option<Arc<KeyFolders>>,
}

impl FolderOfKeys {
    pub fn of_groups(&self) -> Option<Arc<dyn FunctionKeyFolders>> {
        self.of_groups.clone().map(|folders| folders as Arc<dyn FunctionKeyFolders>)
    }
}

/// Writes the keys into a folder, and renews them where the authority is. Without keys,
/// or if they cannot be written, functions cannot open sessions, unless they see the keys of the user in the usual folder.
/// If they may need to, a warning is logged.
pub fn function_keys(
    keys: Option<FunctionKeys>,
    system_users: &SystemUsers,
    sees_user_keys: bool,
    may_open_sessions: bool,
) -> Result<Option<FolderOfKeys>> {
    let why = match keys.map(|keys| written(keys, system_users)) {
        Some(Ok(keys)) => {
            end_on_signals(&keys.folder)?;
            return Ok(Some(keys));
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

fn written(keys: FunctionKeys, system_users: &SystemUsers) -> Result<FolderOfKeys> {
    let folder = OwnFolder::new("keys")?;
    let path = folder.0.clone();
    let (is_renewed, are_per_user) = (keys.can_renew(), system_users.are_per_user());
    let stored = Stored { keys, folders: Vec::new(), is_stored: true };
    let folders = Arc::new(KeyFolders { place: path.clone(), stored: Mutex::new(stored) });
    let name = || EscapedBytes::of(&path).to_string();
    match system_users {
        SystemUsers::Own => folders.add(KeysFolder::at(&path))?,
        SystemUsers::One(run_as) => {
            open_to_group(&path, run_as.group, 0o750).with_context(name)?;
            folders.add(KeysFolder::at(&path).readable_by(Readers::Group(run_as.group)))?;
        }
        // Users open their folders in it, and do not list it.
        SystemUsers::PerUser(_) => {
            fs::set_permissions(&path, Permissions::from_mode(0o711)).with_context(name)?;
        }
    }
    if is_renewed {
        let (thread, folders) = (thread::Builder::new().name("function keys".into()), folders.clone());
        thread.spawn(move || folders.keep_renewed()).context("a thread that renews the keys of functions")?;
    }
    Ok(FolderOfKeys { folder, of_groups: are_per_user.then_some(folders) })
}

/// The folders into which the keys are written.
#[derive(Debug)]
struct KeyFolders {
    place: PathBuf,
    stored: Mutex<Stored>,
}

#[derive(Debug)]
struct Stored {
    keys: FunctionKeys,
    folders: Vec<KeysFolder>,
    /// False if renewed keys are not in all folders yet.
    is_stored: bool,
}

impl Stored {
    fn renew(&mut self) -> Result<(), KeysError> {
        self.is_stored &= !self.keys.renew_if_due(UnixTime::now())?;
        if !self.is_stored {
            self.folders.iter().try_for_each(|folder| folder.store(&self.keys.current).map(drop))?;
            self.is_stored = true;
        }
        Ok(())
    }
}

impl KeyFolders {
    fn stored(&self) -> MutexGuard<'_, Stored> {
        self.stored.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the keys into one more folder.
    fn add(&self, folder: KeysFolder) -> Result<(), KeysError> {
        let mut stored = self.stored();
        folder.store(&stored.keys.current)?;
        stored.folders.push(folder);
        Ok(())
    }

    /// Renews the keys until the process ends. Sessions that functions have opened keep theirs.
    fn keep_renewed(&self) {
        let mut reported = None;
        loop {
            thread::sleep(RENEWAL_INTERVAL);
            let error = self.stored().renew().err().map(|error| error.to_string());
            if let Some(why) = error.as_ref().filter(|_| error != reported) {
                tracing::warn!(target: "gridloom.keys", "the keys of functions cannot be renewed: {why}");
            }
            reported = error;
        }
    }
}

impl FunctionKeyFolders for KeyFolders {
    fn folder_of(&self, group: u32) -> io::Result<PathBuf> {
        let path = self.place.join(group.to_string());
        match fs::DirBuilder::new().mode(0o700).create(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(path),
            made => made?,
        }
        let written = open_to_group(&path, group, 0o750).and_then(|()| {
            let folder = KeysFolder::at(&path).readable_by(Readers::Group(group));
            self.add(folder).map_err(io::Error::other)
        });
        match written {
            Ok(()) => Ok(path),
            Err(error) => {
                // The next worker tries again.
                let _ = fs::remove_dir_all(&path);
                Err(io::Error::new(error.kind(), format!("the keys of functions in '{}': {error}", path.display())))
            }
        }
    }
}

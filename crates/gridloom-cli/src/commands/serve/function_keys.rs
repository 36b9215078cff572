//! The folder with the keys for the functions of a server: a certificate of a client. A server that runs functions as
//! another user owns the folder, so that functions can read the keys and not change them.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt::Display;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use gridloom_base::{EscapedBytes, Pattern};
use gridloom_core::exec::Separation;
use gridloom_keys::{KEYS_VARIABLE, KeysError, KeysFolder, UnixTime};
use gridloom_net::identity::FunctionKeys;
use gridloom_net::jobs::{FunctionKeyFolders, SystemUsers, WorkerUser};
use gridloom_resources::private_file::{Readers, open_to_group};

use super::super::{OwnFolder, end_on_signals};

/// Maximum number of users for whom there are keys.
const USERS_MAX: usize = 4096;
/// Interval at which the server renews the keys if that is due.
const RENEWAL_INTERVAL: Duration = Duration::from_secs(3600);

/// The folder with the keys, which exists as long as the server.
pub struct FolderOfKeys {
    folder: OwnFolder,
    /// If each worker serves one user: the folders in it, one for each user.
    of_users: Option<Arc<KeyFolders>>,
}

impl FolderOfKeys {
    /// Returns the folder of keys for all users, if workers are shared.
    pub fn of_all(&self) -> Option<&OwnFolder> {
        self.of_users.is_none().then_some(&self.folder)
    }

    pub fn of_users(&self) -> Option<Arc<dyn FunctionKeyFolders>> {
        self.of_users.clone().map(|folders| folders as Arc<dyn FunctionKeyFolders>)
    }
}

/// Writes the keys into a folder, and renews them where the authority is. Without keys,
/// or if they cannot be written, functions cannot open sessions, unless they see the keys of the user in the usual folder.
/// If they may need to, a warning is logged.
pub fn function_keys(
    keys: Option<FunctionKeys>,
    users: (&SystemUsers, Separation),
    sees_user_keys: bool,
    may_open_sessions: bool,
) -> Result<Option<FolderOfKeys>> {
    let why = match keys.map(|keys| written(keys, users, may_open_sessions)) {
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

fn written(
    keys: FunctionKeys,
    (system_users, separation): (&SystemUsers, Separation),
    may_open_sessions: bool,
) -> Result<FolderOfKeys> {
    let folder = OwnFolder::new("keys")?;
    let path = folder.0.clone();
    let (is_renewed, is_per_user) = (keys.can_renew(), separation == Separation::AllFunctions);
    if is_per_user && !is_renewed && may_open_sessions {
        let effect = if system_users.are_per_user() { "cannot open sessions" } else { "can act for any user" };
        tracing::warn!(
            target: "gridloom.keys",
            "functions {effect}, because this server cannot issue keys per user: run it on the machine that has the \
             authority of the grid"
        );
    }
    let may_act_for_all = !system_users.are_per_user();
    let stored = Stored { keys, common: Vec::new(), of_users: BTreeMap::new(), is_stored: true, may_act_for_all };
    let folders = Arc::new(KeyFolders { place: path.clone(), stored: Mutex::new(stored) });
    let name = || EscapedBytes::of(&path).to_string();
    match system_users {
        // Users open their folders in it, and do not list it.
        _ if is_per_user => fs::set_permissions(&path, Permissions::from_mode(0o711)).with_context(name)?,
        SystemUsers::One(run_as) => {
            open_to_group(&path, run_as.group, 0o750).with_context(name)?;
            folders.add_common(KeysFolder::at(&path).readable_by(Readers::Group(run_as.group)))?;
        }
        SystemUsers::Own | SystemUsers::PerUser(_) => folders.add_common(KeysFolder::at(&path))?,
    }
    if is_renewed {
        let (thread, folders) = (thread::Builder::new().name("function keys".into()), folders.clone());
        thread.spawn(move || folders.keep_renewed()).context("a thread that renews the keys of functions")?;
    }
    Ok(FolderOfKeys { folder, of_users: is_per_user.then_some(folders) })
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
    /// Folders with the keys for all users.
    common: Vec<KeysFolder>,
    /// Folders with keys for one user, by name and group.
    of_users: BTreeMap<(Box<str>, Option<u32>), UserKeys>,
    /// False if renewed keys for all users are not in all folders yet.
    is_stored: bool,
    /// False if functions of one user must not act for others, because each user has a Unix account.
    may_act_for_all: bool,
}

/// The keys of the functions of one user.
#[derive(Debug)]
struct UserKeys {
    folder: KeysFolder,
    functions: Vec<Pattern>,
    renewal_due_at: UnixTime,
}

impl Stored {
    fn renew(&mut self) -> Result<(), KeysError> {
        let now = UnixTime::now();
        self.is_stored &= !self.keys.renew_if_due(now)?;
        if !self.is_stored {
            self.common.iter().try_for_each(|folder| folder.store(&self.keys.current).map(drop))?;
            self.is_stored = true;
        }
        for ((name, _), user) in &mut self.of_users {
            if now >= user.renewal_due_at {
                user.store(&self.keys, name, now, self.may_act_for_all)?;
            }
        }
        Ok(())
    }
}

impl UserKeys {
    /// Writes new keys. If the server cannot issue any, those for all users, or none if functions must not have these.
    fn store(
        &mut self,
        keys: &FunctionKeys,
        name: &str,
        now: UnixTime,
        may_act_for_all: bool,
    ) -> Result<(), KeysError> {
        let own = keys.for_user(name, &self.functions, now)?;
        let bundle = own.as_ref().unwrap_or(&keys.current);
        if own.is_some() || may_act_for_all {
            self.folder.store(bundle)?;
        }
        self.renewal_due_at = bundle.issued.certificate.renewal_due_at();
        Ok(())
    }
}

impl KeyFolders {
    fn stored(&self) -> MutexGuard<'_, Stored> {
        self.stored.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the keys for all users into a folder.
    fn add_common(&self, folder: KeysFolder) -> Result<(), KeysError> {
        let mut stored = self.stored();
        folder.store(&stored.keys.current)?;
        stored.common.push(folder);
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

    fn new_folder(&self, number: usize, group: Option<u32>) -> io::Result<KeysFolder> {
        let path = self.place.join(number.to_string());
        fs::DirBuilder::new().mode(0o700).create(&path)?;
        let readers = group.map_or(Readers::Nobody, Readers::Group);
        if let Some(group) = group {
            open_to_group(&path, group, 0o750).inspect_err(|_| _ = fs::remove_dir(&path))?;
        }
        Ok(KeysFolder::at(path).readable_by(readers))
    }
}

impl FunctionKeyFolders for KeyFolders {
    fn folder_of(&self, user: &WorkerUser) -> io::Result<PathBuf> {
        let described = |error: &dyn Display| format!("the keys of functions for '{}': {error}", user.name);
        let mut stored = self.stored();
        let Stored { keys, of_users, may_act_for_all, .. } = &mut *stored;
        let (key, number, now) = ((user.name.clone(), user.group), of_users.len(), UnixTime::now());
        let known = match of_users.entry(key) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(_) if number >= USERS_MAX => {
                let why = format!("this server has keys for {USERS_MAX} users, which is the limit; restart it");
                return Err(io::Error::other(described(&why)));
            }
            Entry::Vacant(new) => {
                let folder = self.new_folder(number, user.group);
                let folder = folder.map_err(|error| io::Error::new(error.kind(), described(&error)))?;
                // Written below.
                new.insert(UserKeys {
                    folder,
                    functions: Vec::new(),
                    renewal_due_at: UnixTime::since_unix_epoch(Duration::ZERO),
                })
            }
        };
        if now >= known.renewal_due_at || known.functions != user.functions {
            known.functions.clone_from(&user.functions);
            let stored = known.store(keys, &user.name, now, *may_act_for_all);
            stored.map_err(|error| io::Error::other(described(&error)))?;
        }
        Ok(known.folder.path().to_path_buf())
    }
}

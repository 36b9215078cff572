//! The folder with the keys for the functions of a server: a certificate of a client. A server that runs functions as
//! another user owns the folder, so that functions can read the keys and not change them.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use gridloom_base::{EscapedBytes, Pattern};
use gridloom_core::exec::Separation;
use gridloom_keys::{KEYS_VARIABLE, KeysError, KeysFolder, Refusal, UnixTime};
use gridloom_net::identity::FunctionKeys;
use gridloom_net::jobs::{FunctionKeyFolders, HeldKeys, SystemUsers, WorkerUser};
use gridloom_resources::private_file::{Readers, open_to_group};

use super::super::{OwnFolder, end_on_signals};

/// Maximum number of users for whom there are keys. The keys of a user without a worker are removed for those of another.
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
    let stored = Mutex::new(Stored::new(keys, may_act_for_all, USERS_MAX));
    let folders = Arc::new(KeyFolders { place: path.clone(), stored });
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
    users_max: usize,
    /// Number of folders that were made for users.
    folders_made: u64,
    /// Number of workers that got keys of one user.
    uses: u64,
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
    /// Shared with the workers that use the keys.
    holders: Arc<()>,
    /// Serial number of the last use.
    last_use: u64,
}

impl Stored {
    fn new(keys: FunctionKeys, may_act_for_all: bool, users_max: usize) -> Stored {
        let (common, of_users) = Default::default();
        Stored { keys, common, of_users, users_max, folders_made: 0, uses: 0, is_stored: true, may_act_for_all }
    }

    /// Renews the keys that are due, and removes those of revoked users. Returns the first error.
    fn renew(&mut self, now: UnixTime) -> Result<(), KeysError> {
        let of_all = self.renew_common(now);
        let due = self.of_users.iter().filter(|(_, user)| now >= user.renewal_due_at);
        let due: Vec<_> = due.map(|(key, _)| key.clone()).collect();
        due.into_iter().fold(of_all, |so_far, key| so_far.and(self.renew_user(&key, now)))
    }

    fn renew_common(&mut self, now: UnixTime) -> Result<(), KeysError> {
        self.is_stored &= !self.keys.renew_if_due(now)?;
        if !self.is_stored {
            self.common.iter().try_for_each(|folder| folder.store(&self.keys.current).map(drop))?;
            self.is_stored = true;
        }
        Ok(())
    }

    fn renew_user(&mut self, key: &(Box<str>, Option<u32>), now: UnixTime) -> Result<(), KeysError> {
        let Some(user) = self.of_users.get_mut(key) else { return Ok(()) };
        match user.store(&self.keys, &key.0, now, self.may_act_for_all) {
            Err(error) if is_revoked(&error) => {
                self.remove(key);
                Ok(())
            }
            stored => stored,
        }
    }

    /// Returns the keys of a user for a new worker.
    fn hold(&mut self, place: &Path, user: &WorkerUser, now: UnixTime) -> io::Result<HeldKeys> {
        let key = (user.name.clone(), user.group);
        if let Err(error) = self.keys.check_user(&user.name, now) {
            if is_revoked(&error) {
                self.remove(&key);
            }
            return Err(io::Error::other(error));
        }
        if !self.of_users.contains_key(&key) {
            self.make_room()?;
            let folder = new_folder(place, self.folders_made, user.group)?;
            self.folders_made += 1;
            // The keys are written below.
            let renewal_due_at = UnixTime::since_unix_epoch(Duration::ZERO);
            let new = UserKeys { folder, functions: Vec::new(), renewal_due_at, holders: Arc::new(()), last_use: 0 };
            self.of_users.insert(key.clone(), new);
        }
        self.uses += 1;
        let known = self.of_users.get_mut(&key).expect("it was inserted above");
        known.last_use = self.uses;
        if now >= known.renewal_due_at || known.functions != user.functions {
            known.functions.clone_from(&user.functions);
            known.store(&self.keys, &user.name, now, self.may_act_for_all).map_err(io::Error::other)?;
        }
        Ok(HeldKeys { folder: known.folder.path().to_path_buf(), holders: known.holders.clone() })
    }

    /// Removes the keys that no worker uses and that were used least recently, if there are as many as are allowed.
    fn make_room(&mut self) -> io::Result<()> {
        if self.of_users.len() < self.users_max {
            return Ok(());
        }
        let unused = self.of_users.iter().filter(|(_, user)| Arc::strong_count(&user.holders) == 1);
        let Some(key) = unused.min_by_key(|(_, user)| user.last_use).map(|(key, _)| key.clone()) else {
            return Err(io::Error::other(format!(
                "workers of {} users have keys of functions, which is the limit of a server; try again when some of them have \
                 ended, or start another server",
                self.of_users.len()
            )));
        };
        self.remove(&key);
        Ok(())
    }

    fn remove(&mut self, key: &(Box<str>, Option<u32>)) {
        let Some(UserKeys { folder, .. }) = self.of_users.remove(key) else { return };
        if let Err(error) = fs::remove_dir_all(folder.path()) {
            let user = EscapedBytes::of(&*key.0);
            tracing::warn!(target: "gridloom.keys", "the keys of functions for '{user}' cannot be removed: {error}");
        }
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

fn is_revoked(error: &KeysError) -> bool {
    matches!(error, KeysError::Refused(Refusal::Revoked { .. }))
}

fn new_folder(place: &Path, number: u64, group: Option<u32>) -> io::Result<KeysFolder> {
    let path = place.join(number.to_string());
    fs::DirBuilder::new().mode(0o700).create(&path)?;
    let readers = group.map_or(Readers::Nobody, Readers::Group);
    if let Some(group) = group {
        open_to_group(&path, group, 0o750).inspect_err(|_| _ = fs::remove_dir(&path))?;
    }
    Ok(KeysFolder::at(path).readable_by(readers))
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
            let error = self.stored().renew(UnixTime::now()).err().map(|error| error.to_string());
            if let Some(why) = error.as_ref().filter(|_| error != reported) {
                tracing::warn!(target: "gridloom.keys", "the keys of functions cannot be renewed: {why}");
            }
            reported = error;
        }
    }
}

impl FunctionKeyFolders for KeyFolders {
    fn folder_of(&self, user: &WorkerUser) -> io::Result<HeldKeys> {
        self.stored().hold(&self.place, user, UnixTime::now()).map_err(|error| {
            let user = EscapedBytes::of(&*user.name);
            io::Error::new(error.kind(), format!("the keys of functions for '{user}': {error}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use gridloom_keys::{DAY, Grant, GridFolder, Identity, Patterns, Revoked, Role};
    use gridloom_net::identity::NodeKeys;

    use super::*;

    /// A server on the machine of the authority. Its folder is removed at the end.
    struct Lab {
        place: PathBuf,
        grid: GridFolder,
        stored: Stored,
    }

    impl Lab {
        fn new(name: &str, users_max: usize) -> Lab {
            let place = std::env::temp_dir().join(format!("gridloom-function-keys-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&place);
            fs::create_dir_all(place.join("functions")).unwrap();
            let administrator = Identity::new("lab", Role::Administrator, "carol").unwrap();
            let grid = KeysFolder::at(place.join("keys")).create(&administrator, UnixTime::now()).unwrap();
            let functions = NodeKeys::issue(&grid, Role::Server, "s1").unwrap().functions.unwrap();
            Lab { place, grid, stored: Stored::new(functions, true, users_max) }
        }

        fn hold(&mut self, user: &str, now: UnixTime) -> io::Result<HeldKeys> {
            let user = WorkerUser { name: user.into(), functions: vec![Pattern::all()], group: None };
            self.stored.hold(&self.place.join("functions"), &user, now)
        }
    }

    impl Drop for Lab {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.place);
        }
    }

    fn after(now: UnixTime, seconds: u64) -> UnixTime {
        UnixTime::since_unix_epoch(Duration::from_secs(now.as_secs() + seconds))
    }

    #[test]
    fn functions_of_a_revoked_user_get_no_keys_until_the_user_is_admitted_again() {
        let (mut lab, now) = (Lab::new("revoked", USERS_MAX), UnixTime::now());
        let anna = Identity::new("lab", Role::Client, "anna").unwrap();
        let [of_anna, of_bert] = ["anna", "bert"].map(|user| lab.hold(user, now).unwrap());
        let serial = |keys: &HeldKeys| {
            let folder = KeysFolder::at(&keys.folder).existing(Some("lab")).unwrap();
            folder.own().unwrap().issued.certificate.serial
        };
        let serial_of_bert = serial(&of_bert);
        lab.grid.revoke(&[Revoked::Identity(anna.clone())], "left", now).unwrap();
        let error = lab.hold("anna", after(now, 1)).unwrap_err().to_string();
        assert!(error.contains("client 'anna'") && error.ends_with("left"), "{error}");
        assert!(!of_anna.folder.exists(), "the old keys are removed");

        // Keys of the others are renewed.
        lab.stored.renew(after(now, 50 * DAY.as_secs())).unwrap();
        assert_ne!(serial(&of_bert), serial_of_bert);

        let request = KeysFolder::at(lab.place.join("laptop")).grid("lab").unwrap();
        let request = request.request(Role::Client, "anna", &Patterns::all(), false, now).unwrap();
        lab.grid.approve(&request, &Grant::new(anna), false, after(now, 2)).unwrap();
        assert!(lab.hold("anna", after(now, 2)).unwrap().folder.exists());
    }

    #[test]
    fn keys_of_a_user_who_was_revoked_meanwhile_are_removed_instead_of_renewed() {
        let (mut lab, now) = (Lab::new("renewed", USERS_MAX), UnixTime::now());
        let [of_anna, of_bert] = ["anna", "bert"].map(|user| lab.hold(user, now).unwrap().folder);
        let anna = Identity::new("lab", Role::Client, "anna").unwrap();
        lab.grid.revoke(&[Revoked::Identity(anna)], "left", now).unwrap();
        lab.stored.renew(after(now, 50 * DAY.as_secs())).unwrap();
        assert_eq!((of_anna.exists(), of_bert.exists()), (false, true));
    }

    #[test]
    fn keys_of_users_without_workers_are_replaced_and_others_are_not() {
        let (mut lab, now) = (Lab::new("limit", 2), UnixTime::now());
        let (of_anna, of_bert) = (lab.hold("anna", now).unwrap(), lab.hold("bert", now).unwrap());
        let error = lab.hold("carl", now).unwrap_err().to_string();
        assert!(error.contains("workers of 2 users") && error.contains("start another server"), "{error}");
        // Both workers end, and Anna gets another one, which ends, too.
        drop((of_bert.holders, of_anna.holders));
        assert_eq!(lab.hold("anna", now).unwrap().folder, of_anna.folder);
        let of_carl = lab.hold("carl", now).unwrap();
        assert_eq!((of_anna.folder.exists(), of_bert.folder.exists(), of_carl.folder.exists()), (true, false, true));
    }
}

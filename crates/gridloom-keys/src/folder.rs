//! Keys in files: one folder per grid, which only its user can read.
//!
//! ```text
//!  GRIDLOOM_KEYS or $XDG_CONFIG_HOME/gridloom/keys or ~/.config/gridloom/keys
//!    GRID                  mode 0700; all files 0600
//!      authority.pem       the certificate of the grid's authority
//!      own.pem own.key     the own certificate and private key; own.key.new while they are replaced
//!      requested.pem .key  the own request, until its certificate is installed
//!      authority.key       where the authority is: its private key
//!      issued              where the authority is: certificates that have not expired, as JSON lines
//!      revoked             revocations, as JSON lines
//!      requests/           where the authority is: requests of others that wait for approval
//!      lock                held while a file is changed
//! ```
//! **Guarantees:** files are replaced as a whole. A file or folder that other users can use is refused. But a group may read
//! files that root has written for it, since functions may run as another user than their server. The own
//! certificate and key are replaced together: a process that ends between the steps leaves the old or the new pair.
//!
//! ```text
//!  own.key.new ◀─ the new key      the old certificate still belongs to own.key
//!  own.pem     ◀─ the new one      it belongs to own.key.new
//!  own.key     ◀─ own.key.new      renamed
//! ```

use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use gridloom_base::EscapedBytes;
use gridloom_resources::private_file::{self, Existing, Readers};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustls_pki_types::UnixTime;
use serde::{Deserialize, Serialize};

use crate::authority::{Authority, Bundle, Grant, Issued};
use crate::certificate::{Certificate, Fingerprint, Serial};
use crate::defaults::{default_grid, default_name};
use crate::error::KeysError;
use crate::identity::{Identity, Role, check_grid};
use crate::json_lines::{self, LineError};
use crate::membership::{Membership, Memberships};
use crate::patterns::Patterns;
use crate::pem::{self, Sections};
use crate::refusal::Refusal;
use crate::request::Request;
use crate::revocations::{Revocation, Revocations, Revoked};
use crate::time::{after, as_seconds, date};
use crate::trust::Trust;

/// Environment variable with the folder of all keys.
pub const KEYS_VARIABLE: &str = "GRIDLOOM_KEYS";

/// Environment variable with the name of a grid, for users with keys of several.
pub const GRID_VARIABLE: &str = "GRIDLOOM_GRID";

/// Returns the grid that the environment names.
pub fn chosen_grid() -> Option<String> {
    std::env::var(GRID_VARIABLE).ok().filter(|name| !name.trim().is_empty())
}

/// The keys of a user, of all grids.
#[derive(Clone, Debug)]
pub struct KeysFolder {
    path: PathBuf,
    readers: Readers,
}

/// The keys of a user for one grid.
#[derive(Clone, Debug)]
pub struct GridFolder {
    grid: String,
    path: PathBuf,
    readers: Readers,
}

/// The versions of the files that [`GridFolder::refresh`] reads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileVersions([Option<(u64, i64, i64, u64)>; 2]);

/// A certificate that an authority has issued.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    pub serial: Serial,
    pub identity: Identity,
    pub functions: Patterns,
    #[serde(with = "as_seconds")]
    pub issued: UnixTime,
    #[serde(with = "as_seconds")]
    pub expires: UnixTime,
    /// Fingerprint of the public key.
    pub key: Fingerprint,
    /// The certificate, PEM.
    pub pem: String,
}

impl KeysFolder {
    /// Returns the user's folder; it need not exist.
    ///
    /// # Errors
    /// If the environment names none.
    pub fn find() -> Result<KeysFolder, KeysError> {
        let set = |name: &str| std::env::var_os(name).map(PathBuf::from);
        if let Some(folder) = set(KEYS_VARIABLE) {
            return match folder.is_absolute() {
                true => Ok(KeysFolder::at(folder)),
                false => Err(KeysError::Invalid(format!(
                    "{KEYS_VARIABLE} is '{}'; set it to an absolute path, or unset it",
                    EscapedBytes::of(&folder)
                ))),
            };
        }
        let home = || std::env::home_dir().map(|home| home.join(".config"));
        let config = set("XDG_CONFIG_HOME").filter(|folder| folder.is_absolute());
        match config.or_else(|| home().filter(|folder| folder.is_absolute())) {
            Some(config) => Ok(KeysFolder::at(config.join("gridloom").join("keys"))),
            None => Err(KeysError::Missing(format!(
                "there is no folder for keys; set HOME, XDG_CONFIG_HOME or {KEYS_VARIABLE} to an absolute path"
            ))),
        }
    }

    pub fn at(path: impl Into<PathBuf>) -> KeysFolder {
        KeysFolder { path: path.into(), readers: Readers::Nobody }
    }

    /// Lets others read the files that are written from now on.
    pub fn readable_by(self, readers: Readers) -> KeysFolder {
        KeysFolder { readers, ..self }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the grids for which there is a folder, in order.
    ///
    /// # Errors
    /// If the folder cannot be read.
    pub fn grids(&self) -> Result<Vec<GridFolder>, KeysError> {
        let entries = match fs::read_dir(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(KeysError::at(&self.path))?,
        };
        let mut found = Vec::new();
        for entry in entries {
            let name = entry.map_err(KeysError::at(&self.path))?.file_name();
            let name = name.to_str().filter(|name| check_grid(name).is_ok() && self.path.join(name).is_dir());
            found.extend(name.map(|name| self.at_name(name)));
        }
        found.sort_by(|one, other| one.grid.cmp(&other.grid));
        Ok(found)
    }

    /// Returns the folder of a grid; it need not exist.
    ///
    /// # Errors
    /// If it is not the name of a grid.
    pub fn grid(&self, grid: &str) -> Result<GridFolder, KeysError> {
        check_grid(grid)?;
        Ok(self.at_name(grid))
    }

    /// Returns the folder of that grid, or that of the only grid.
    ///
    /// # Errors
    /// If there is no such grid, or there are several and none is named.
    pub fn existing(&self, grid: Option<&str>) -> Result<GridFolder, KeysError> {
        let all = self.grids()?;
        let folder = EscapedBytes::of(&self.path);
        let of_variable = chosen_grid();
        let grid = grid.or(of_variable.as_deref());
        if let Some(grid) = grid {
            let found = self.grid(grid)?;
            return match all.iter().any(|one| one.grid == grid) {
                true => Ok(found),
                false => Err(KeysError::Missing(format!(
                    "there are no keys of the grid '{grid}' in {folder}; {MAKE_OR_REQUEST}"
                ))),
            };
        }
        match &all[..] {
            [only] => Ok(only.clone()),
            [] => Err(KeysError::Missing(format!("there are no keys in {folder}; {MAKE_OR_REQUEST}"))),
            several => {
                let names = several.iter().map(|one| one.grid.as_str()).collect::<Vec<_>>().join(", ");
                Err(KeysError::Invalid(format!(
                    "there are keys of several grids: {names}; choose one with --grid GRID, or set {GRID_VARIABLE}"
                )))
            }
        }
    }

    /// Returns the only grid, and makes one with default names if there is none: for the first agent of a user.
    ///
    /// # Errors
    /// If there are several, or none can be made.
    pub fn existing_or_new(&self, now: UnixTime) -> Result<GridFolder, KeysError> {
        if let Some(found) = self.only_member()? {
            return Ok(found);
        }
        // Two processes of the user may start at once, also on two hosts with one home folder.
        let _lock = lock(&self.path, &self.path.join(FOLDER_LOCK))?;
        if let Some(found) = self.only_member()? {
            return Ok(found);
        }
        let role = Role::Administrator;
        match self.create(&Identity::new(&default_grid(), role, &default_name(role))?, now) {
            // Another process has made it meanwhile.
            Err(KeysError::Exists(_)) => self.existing(None),
            made => made,
        }
    }

    /// Returns the only grid of which the user is a member; `None` if there is none. A request that waits for approval is no
    /// membership.
    fn only_member(&self) -> Result<Option<GridFolder>, KeysError> {
        let mut members = self.grids()?;
        members.retain(|grid| grid.has_own() || grid.has_authority());
        match members.len() {
            0 | 1 => Ok(members.pop()),
            _ => self.existing(None).map(Some),
        }
    }

    /// Makes a new grid: its authority, and a certificate of its administrator.
    ///
    /// # Errors
    /// [`KeysError::Exists`] if there are keys of that grid; or if they cannot be written.
    pub fn create(&self, administrator: &Identity, now: UnixTime) -> Result<GridFolder, KeysError> {
        let folder = self.grid(administrator.grid())?;
        let exists = || {
            let path = EscapedBytes::of(&folder.path);
            KeysError::Exists(format!("there are keys of the grid '{}' in {path}; choose another name", folder.grid))
        };
        if folder.path.exists() {
            return Err(exists());
        }
        let authority = Authority::new(&folder.grid, now)?;
        let own = authority.issue_bundle(&Grant::new(administrator.clone()), now)?;
        // The folder appears as a whole: another process that makes the same grid finds all of it, or nothing.
        let serial = own.issued.certificate.serial;
        let trial = GridFolder { path: self.path.join(format!(".new-{serial}")), ..folder.clone() };
        let made = || {
            trial.write(AUTHORITY_KEY, &authority.key_to_pem())?;
            trial.write(AUTHORITY, &authority.certificate_to_pem())?;
            trial.write(OWN_KEY, &own.key_to_pem())?;
            trial.write(OWN, &own.issued.certificate.to_pem())?;
            trial.write(ISSUED, &json_lines::to_text([Record::of(&own.issued.certificate)]))?;
            fs::rename(&trial.path, &folder.path).map_err(|error| match error.kind() {
                ErrorKind::DirectoryNotEmpty | ErrorKind::AlreadyExists => exists(),
                _ => KeysError::file(&folder.path, error),
            })
        };
        let done = made();
        // After the rename it no longer exists.
        let _ = fs::remove_dir_all(&trial.path);
        done.map(|()| folder)
    }

    /// Stores a certificate, its private key and the certificate of the authority, for another process.
    ///
    /// # Errors
    /// If they cannot be written.
    pub fn store(&self, bundle: &Bundle) -> Result<GridFolder, KeysError> {
        let folder = self.grid(bundle.issued.certificate.identity.grid())?;
        let _lock = folder.lock()?;
        folder.write(AUTHORITY, &Trust::from_der(&bundle.issued.authority)?.to_pem())?;
        folder.replace_own(bundle)?;
        Ok(folder)
    }

    /// Returns the memberships in all grids of which there is a certificate, and the errors of those that cannot be used.
    ///
    /// # Errors
    /// If the folder cannot be read, or none of the grids in it can be used.
    pub fn memberships(&self) -> Result<(Memberships, Vec<KeysError>), KeysError> {
        let (mut usable, mut errors) = (Vec::new(), Vec::new());
        for grid in self.grids()?.into_iter().filter(GridFolder::has_own) {
            match grid.membership() {
                Ok(membership) => usable.push(Arc::new(membership)),
                Err(error) => errors.push(error),
            }
        }
        match errors.is_empty() || !usable.is_empty() {
            true => Ok((Memberships::new(usable), errors)),
            false => Err(errors.remove(0)),
        }
    }

    fn at_name(&self, grid: &str) -> GridFolder {
        GridFolder { grid: grid.into(), path: self.path.join(grid), readers: self.readers }
    }
}

impl GridFolder {
    pub fn grid(&self) -> &str {
        &self.grid
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// True if the authority of the grid is here.
    pub fn has_authority(&self) -> bool {
        self.path.join(AUTHORITY_KEY).exists()
    }

    /// Returns the file with the private key of the authority, which exists where the authority is.
    pub fn authority_key(&self) -> PathBuf {
        self.path.join(AUTHORITY_KEY)
    }

    /// True if the certificate of the authority is known.
    pub fn knows_authority(&self) -> bool {
        self.path.join(AUTHORITY).exists()
    }

    /// True if there is a certificate of the user.
    pub fn has_own(&self) -> bool {
        self.path.join(OWN).exists()
    }

    /// # Errors
    /// [`KeysError::Missing`] if the authority is not here; or if its files are wrong.
    pub fn authority(&self) -> Result<Authority, KeysError> {
        if !self.has_authority() {
            return Err(KeysError::Missing(format!(
                "the authority of the grid '{}' is not on this machine: {} does not exist; run the command where \
                 'gridloom keys init' made the grid",
                self.grid,
                EscapedBytes::of(&self.path.join(AUTHORITY_KEY))
            )));
        }
        let (certificate, key) = (self.read(AUTHORITY)?, self.read(AUTHORITY_KEY)?);
        self.checked(AUTHORITY)?;
        self.sections(AUTHORITY_KEY)?;
        let authority = Authority::from_pem(&certificate, &key);
        self.of_this_grid(authority.map_err(|error| self.error(AUTHORITY_KEY, error))?, |authority| authority.grid())
    }

    /// Returns the authority and the revocations.
    ///
    /// # Errors
    /// [`KeysError::Missing`] if they are not known yet; or if the files are wrong.
    pub fn trust(&self) -> Result<Trust, KeysError> {
        let trust = self.checked(AUTHORITY)?;
        trust.add_revocations(&self.revocations()?);
        Ok(trust)
    }

    /// Returns the own certificate and key.
    ///
    /// # Errors
    /// [`KeysError::Missing`] if there are none; or if the files are wrong.
    pub fn own(&self) -> Result<Bundle, KeysError> {
        if !self.has_own() {
            let what = match self.path.join(REQUESTED).exists() {
                true => "the request waits for approval; 'gridloom keys install FILE' installs the certificate",
                false => MAKE_OR_REQUEST,
            };
            return Err(KeysError::Missing(format!("there is no certificate for the grid '{}': {what}", self.grid)));
        }
        // While another process replaces them, the files that are read may belong to different pairs.
        self.read_own().or_else(|_| {
            // Only the owner of the files can wait for the end of the replacement.
            let _lock = self.lock().ok();
            self.read_own()
        })
    }

    fn read_own(&self) -> Result<Bundle, KeysError> {
        let trust = self.checked(AUTHORITY)?;
        let found = self.sections(OWN)?;
        let [der] = &found.certificates[..] else {
            return Err(
                self.error(OWN, format!("expected one certificate, and there are {}", found.certificates.len()))
            );
        };
        let certificate = Certificate::read(der).map_err(|why| self.error(OWN, why))?;
        trust.verify(std::slice::from_ref(der), certificate.not_before).map_err(|why| self.error(OWN, why))?;
        let issued = Issued { certificate, authority: trust.certificate().clone() };
        let with_key = |name| {
            let found = self.sections(name)?;
            let [key] = &found.keys[..] else {
                return Err(self.error(name, format!("expected one private key, and there are {}", found.keys.len())));
            };
            Bundle::new(issued.clone(), key).map_err(|error| self.error(name, error))
        };
        with_key(OWN_KEY).or_else(|error| with_key(NEW_KEY).map_err(|_| error))
    }

    /// Replaces the own certificate and key. The caller holds the lock.
    fn replace_own(&self, bundle: &Bundle) -> Result<(), KeysError> {
        REPLACE_OWN.iter().try_for_each(|step| step(self, bundle))
    }

    /// Completes a replacement that another process has begun and not ended, since the next one overwrites its key.
    fn complete_replacement(&self) -> Result<(), KeysError> {
        if !self.path.join(NEW_KEY).exists() {
            return Ok(());
        }
        let key = pem::sections(&self.read(NEW_KEY)?).ok().and_then(|found| found.keys.into_iter().next());
        let of_new = key.and_then(|key| Bundle::new(self.read_own().ok()?.issued, &key).ok());
        match of_new.is_some() {
            true => self.rename(NEW_KEY, OWN_KEY),
            false => remove(&self.path.join(NEW_KEY)),
        }
    }

    /// Returns the user's membership, with the revocations.
    ///
    /// # Errors
    /// As [`GridFolder::own`] and [`GridFolder::revocations`].
    pub fn membership(&self) -> Result<Membership, KeysError> {
        let membership = Membership::new(&self.own()?)?;
        membership.trust.add_revocations(&self.revocations()?);
        Ok(membership)
    }

    /// Returns the versions of the certificate and revocation files from their metadata, without reading the files.
    pub fn versions(&self) -> FileVersions {
        FileVersions([OWN, REVOKED].map(|name| {
            let status = fs::metadata(self.path.join(name)).ok()?;
            Some((status.ino(), status.mtime(), status.mtime_nsec(), status.len()))
        }))
    }

    /// Reads the files again, and replaces in a membership what has changed, as after `gridloom keys renew` or `revoke`.
    /// Stores revocations that other nodes have sent. Returns whether the membership has changed.
    ///
    /// # Errors
    /// As [`GridFolder::membership`].
    pub fn refresh(&self, membership: &Membership) -> Result<bool, KeysError> {
        let (own, revocations) = (self.own()?, self.revocations()?);
        let is_renewed = own.issued.certificate.serial != membership.credentials.certificate().serial;
        if is_renewed {
            membership.credentials.replace(&own)?;
        }
        let has_others = membership.trust.add_revocations(&revocations);
        let received = membership.trust.revocations();
        if !received.without(&revocations).is_empty() {
            self.add_revocations(&received)?;
        }
        Ok(is_renewed || has_others)
    }

    /// Makes a request for a certificate, and stores it with its private key.
    ///
    /// # Errors
    /// [`KeysError::Exists`] if one waits for approval and `replaces` is false; or if the files cannot be written.
    pub fn request(
        &self,
        role: Role,
        name: &str,
        functions: &Patterns,
        replaces: bool,
        now: UnixTime,
    ) -> Result<Request, KeysError> {
        let identity = Identity::new(&self.grid, role, name)?;
        let _lock = self.lock()?;
        let file = self.path.join(REQUESTED);
        if file.exists() && !replaces {
            return Err(KeysError::Exists(format!(
                "a request for the grid '{}' waits for approval: {}; send it, or make another one with --replace",
                self.grid,
                EscapedBytes::of(&file)
            )));
        }
        let (request, key) = Request::new(&identity, functions, now)?;
        self.write(REQUESTED_KEY, &pem::private_key(&key.0))?;
        self.write(REQUESTED, &request.to_pem())?;
        Ok(request)
    }

    /// Returns the own request that waits for approval; `None` if there is none, or it has expired.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn requested(&self, now: UnixTime) -> Result<Option<Request>, KeysError> {
        match self.path.join(REQUESTED).exists() {
            true => Ok(Request::from_pem(&self.read(REQUESTED)?, now).ok()),
            false => Ok(None),
        }
    }

    /// Installs a certificate, with that of its authority, for the key of the request or the own key. With `expected`,
    /// the authority must have that fingerprint.
    ///
    /// # Errors
    /// If the text is something else, no key here belongs to it, it is not valid, or the grid has another authority.
    pub fn install(&self, text: &[u8], expected: Option<Fingerprint>, now: UnixTime) -> Result<Certificate, KeysError> {
        let issued = Issued::from_pem(text)?;
        let trust = Trust::from_der(&issued.authority)?;
        let (grid, fingerprint) = (trust.grid(), trust.fingerprint());
        if grid != self.grid {
            return Err(KeysError::Invalid(format!(
                "the certificate is for the grid '{grid}', not for '{}'",
                self.grid
            )));
        }
        if let Some(expected) = expected.filter(|expected| *expected != fingerprint) {
            return Err(KeysError::Invalid(format!(
                "the fingerprint of the authority is {fingerprint}, and {expected} was expected; ask the administrator"
            )));
        }
        let _lock = self.lock()?;
        if self.knows_authority() {
            let known = self.checked(AUTHORITY)?;
            if known.certificate() != &issued.authority {
                return Err(KeysError::Invalid(format!(
                    "the grid '{grid}' has another authority here: fingerprint {}, and the certificate is from {fingerprint}; \
                     ask the administrator, and remove {} if the grid was made again",
                    known.fingerprint(),
                    EscapedBytes::of(&self.path)
                )));
            }
            trust.add_revocations(&self.revocations()?);
        }
        trust.check(&issued.certificate, now)?;
        self.complete_replacement()?;
        let key = self.key_of(&issued)?;
        self.write(AUTHORITY, &trust.to_pem())?;
        self.replace_own(&key)?;
        for done in [REQUESTED, REQUESTED_KEY] {
            remove(&self.path.join(done))?;
        }
        Ok(issued.certificate)
    }

    fn key_of(&self, issued: &Issued) -> Result<Bundle, KeysError> {
        for name in [REQUESTED_KEY, OWN_KEY].into_iter().filter(|name| self.path.join(name).exists()) {
            let found = self.sections(name)?;
            let bundle = found.keys.iter().find_map(|key| Bundle::new(issued.clone(), key).ok());
            if let Some(bundle) = bundle {
                return Ok(bundle);
            }
        }
        Err(KeysError::Invalid(format!(
            "no private key in {} belongs to the certificate of the {}; install it on the machine that made the request",
            EscapedBytes::of(&self.path),
            issued.certificate.identity
        )))
    }

    /// Stores a request of another machine until it is approved.
    ///
    /// # Errors
    /// If too many wait, or it cannot be written.
    pub fn add_pending(&self, request: &Request, now: UnixTime) -> Result<(), KeysError> {
        self.check_grid_of(request)?;
        let _lock = self.lock()?;
        let pending = self.pending(now)?;
        if pending.len() >= PENDING_MAX && !pending.contains(request) {
            return Err(KeysError::Invalid(format!("{PENDING_MAX} requests wait for approval, which is the limit")));
        }
        self.write(&pending_name(request.fingerprint()), &request.to_pem())
    }

    /// Returns the requests that wait for approval, and have not expired. Files that are no requests are skipped.
    ///
    /// # Errors
    /// If the folder cannot be read.
    pub fn pending(&self, now: UnixTime) -> Result<Vec<Request>, KeysError> {
        let folder = self.path.join(REQUESTS);
        let entries = match fs::read_dir(&folder) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(KeysError::at(&folder))?,
        };
        let mut found = Vec::new();
        for entry in entries {
            let path = entry.map_err(KeysError::at(&folder))?.path();
            let text = private_file::read(&path, FILE_BYTES_MAX).ok();
            match text.and_then(|text| Request::from_pem_of_any_time(&text).ok()) {
                // An expired one makes room.
                Some(request) if request.has_expired(now) => remove(&path)?,
                Some(request) => found.push(request),
                None => {}
            }
        }
        found.sort_by(|one, other| one.identity().cmp(other.identity()));
        Ok(found)
    }

    /// Issues the certificate for a request. With `again`, the identity may have one for another key already.
    ///
    /// # Errors
    /// If the authority is not here, or the identity has a certificate already.
    pub fn approve(&self, request: &Request, grant: &Grant, again: bool, now: UnixTime) -> Result<Issued, KeysError> {
        self.check_grid_of(request)?;
        let authority = self.authority()?;
        let _lock = self.lock()?;
        let mut issued = self.issued()?;
        let valid = self.valid_of(&issued, &grant.identity, now)?;
        if let Some(other) = valid.iter().find(|record| record.key != request.fingerprint() && !again) {
            return Err(KeysError::Exists(format!(
                "the {} has a certificate of another key until {}; choose another --name, or pass --again if it is the \
                 same",
                grant.identity,
                date(other.expires)
            )));
        }
        let new = authority.issue(request.public_key(), grant, self.issue_time(&grant.identity, now)?)?;
        self.add_record(&mut issued, &new.certificate, now)?;
        remove(&self.path.join(pending_name(request.fingerprint())))?;
        Ok(new)
    }

    /// Makes a key, and issues a certificate for it with the authority that is here: for the user's own agents, servers
    /// and jobs. It is not recorded, because there may be thousands a day; it can be revoked by its name.
    ///
    /// # Errors
    /// If the authority is not here, or [`GridFolder::check_user`] refuses the user for whom the holder acts.
    pub fn issue(&self, grant: &Grant, now: UnixTime) -> Result<Bundle, KeysError> {
        let mut issue_at = self.issue_time(&grant.identity, now)?;
        if let Some(user) = &grant.user {
            self.check_user(user, now)?;
            for identity in self.identities_of_user(user)? {
                issue_at = issue_at.max(self.issue_time(&identity, now)?);
            }
        }
        self.authority()?.issue_bundle(grant, issue_at)
    }

    /// Checks that the functions of a user may have certificates: the user is not revoked, or has been admitted again since.
    /// Revocations of single certificates by their serial numbers do not count.
    ///
    /// # Errors
    /// [`Refusal::Revoked`] if the user is revoked; or if the files are wrong.
    pub fn check_user(&self, user: &str, now: UnixTime) -> Result<(), KeysError> {
        let revocations = self.revocations()?;
        let identities = self.identities_of_user(user)?;
        let found = |identity| Some((identity, revocations.of_identity(identity)?));
        let Some((identity, revocation)) = identities.iter().filter_map(found).max_by_key(|(_, found)| found.at) else {
            return Ok(());
        };
        let is_valid = |record: &Record| record.expires >= now && record.revocation(&revocations).is_none();
        match self.issued()?.iter().any(|record| identities.contains(&record.identity) && is_valid(record)) {
            true => Ok(()),
            false => {
                let Revocation { at, reason, .. } = revocation.clone();
                Err(Refusal::Revoked { identity: identity.clone(), at, reason }.into())
            }
        }
    }

    /// Returns the identities that a user of this name may have.
    fn identities_of_user(&self, user: &str) -> Result<[Identity; 2], KeysError> {
        let identity = |role| Identity::new(&self.grid, role, user);
        Ok([identity(Role::Client)?, identity(Role::Administrator)?])
    }

    fn issue_and_record(&self, grant: &Grant, now: UnixTime) -> Result<Bundle, KeysError> {
        let authority = self.authority()?;
        let _lock = self.lock()?;
        let bundle = authority.issue_bundle(grant, self.issue_time(&grant.identity, now)?)?;
        self.add_record(&mut self.issued()?, &bundle.issued.certificate, now)?;
        Ok(bundle)
    }

    /// Replaces the own certificate and key by new ones from the authority that is here.
    ///
    /// # Errors
    /// If the authority is not here, or there is no own certificate.
    pub fn renew(&self, lifetime: Duration, now: UnixTime) -> Result<Certificate, KeysError> {
        let own = self.own()?.issued.certificate;
        let grant = Grant { identity: own.identity, user: own.user, functions: own.functions, lifetime };
        let bundle = self.issue_and_record(&grant, now)?;
        let _lock = self.lock()?;
        self.replace_own(&bundle)?;
        Ok(bundle.issued.certificate)
    }

    /// Returns the issued certificates that have not expired when the last one was issued.
    ///
    /// # Errors
    /// With file and line.
    pub fn issued(&self) -> Result<Vec<Record>, KeysError> {
        let records = json_lines::parse(&self.text(ISSUED)?).map_err(|error| self.line_error(ISSUED, error))?;
        Ok(records.into_iter().map(|(_, record)| record).collect())
    }

    /// Revokes certificates where the authority is.
    ///
    /// # Errors
    /// If the authority is not here.
    pub fn revoke(&self, revoked: &[Revoked], reason: &str, now: UnixTime) -> Result<(), KeysError> {
        let authority = self.authority()?;
        let _lock = self.lock()?;
        let mut all = self.revocations()?;
        for one in revoked {
            all.add(authority.sign(Revocation::new(one.clone(), now, reason)?)?);
        }
        // Lines that were written by hand.
        for unsigned in all.without(&all.signed()).iter().cloned().collect::<Vec<_>>() {
            all.add(authority.sign(unsigned)?);
        }
        self.write(REVOKED, &all.to_text())
    }

    /// Stores revocations that other nodes have sent.
    ///
    /// # Errors
    /// If they cannot be written.
    pub fn add_revocations(&self, revocations: &Revocations) -> Result<(), KeysError> {
        let _lock = self.lock()?;
        let mut all = self.revocations()?;
        revocations.iter().for_each(|one| all.add(one.clone()));
        self.write(REVOKED, &all.to_text())
    }

    /// # Errors
    /// With file and line.
    pub fn revocations(&self) -> Result<Revocations, KeysError> {
        Revocations::parse(&self.text(REVOKED)?).map_err(|error| self.line_error(REVOKED, error))
    }

    fn check_grid_of(&self, request: &Request) -> Result<(), KeysError> {
        match request.identity().grid() == self.grid {
            true => Ok(()),
            false => {
                let why =
                    format!("the request is for the {}, and this is the grid '{}'", request.identity(), self.grid);
                Err(KeysError::Invalid(why))
            }
        }
    }

    /// Returns the records of an identity that have neither expired nor been revoked.
    fn valid_of<'a>(
        &self,
        all: &'a [Record],
        identity: &Identity,
        now: UnixTime,
    ) -> Result<Vec<&'a Record>, KeysError> {
        let revocations = self.revocations()?;
        let is_valid = |record: &&Record| record.expires >= now && record.revocation(&revocations).is_none();
        Ok(all.iter().filter(|record| record.identity == *identity).filter(is_valid).collect())
    }

    /// Returns the time at which to issue a certificate: after the revocation of earlier ones of the identity.
    fn issue_time(&self, identity: &Identity, now: UnixTime) -> Result<UnixTime, KeysError> {
        let revocations = self.revocations()?;
        let second = Duration::from_secs(1);
        Ok(revocations.of_identity(identity).map_or(now, |revocation| now.max(after(revocation.at, second))))
    }

    fn add_record(&self, all: &mut Vec<Record>, new: &Certificate, now: UnixTime) -> Result<(), KeysError> {
        all.retain(|record| record.expires >= now);
        all.push(Record::of(new));
        self.write(ISSUED, &json_lines::to_text(&*all))
    }

    /// Reads the certificate of the authority.
    fn checked(&self, name: &str) -> Result<Trust, KeysError> {
        let found = self.sections(name)?;
        let [certificate] = &found.certificates[..] else {
            return Err(
                self.error(name, format!("expected one certificate, and there are {}", found.certificates.len()))
            );
        };
        let trust = Trust::from_der(certificate).map_err(|error| self.error(name, error))?;
        self.of_this_grid(trust, |trust| trust.grid())
    }

    fn of_this_grid<T>(&self, found: T, grid: impl Fn(&T) -> &str) -> Result<T, KeysError> {
        match grid(&found) == self.grid {
            true => Ok(found),
            false => Err(self.error(AUTHORITY, format!("it is the authority of the grid '{}'", grid(&found)))),
        }
    }

    fn sections(&self, name: &str) -> Result<Sections, KeysError> {
        let wrong =
            |error: pem::PemError| KeysError::File { path: self.path.join(name), line: error.line, why: error.why };
        pem::sections(&self.read(name)?).map_err(wrong)
    }

    /// Returns the text of a file; empty if there is none.
    fn text(&self, name: &str) -> Result<String, KeysError> {
        match self.path.join(name).exists() {
            false => Ok(String::new()),
            true => String::from_utf8(self.read(name)?).map_err(|error| {
                let line =
                    error.as_bytes()[..error.utf8_error().valid_up_to()].iter().filter(|byte| **byte == b'\n').count();
                KeysError::line(&self.path.join(name), line + 1, "it is not UTF-8")
            }),
        }
    }

    fn read(&self, name: &str) -> Result<Vec<u8>, KeysError> {
        self.check_folder()?;
        let path = self.path.join(name);
        private_file::read_for(&path, FILE_BYTES_MAX, self.readers).map_err(KeysError::at(&path))
    }

    fn write(&self, name: &str, text: &str) -> Result<(), KeysError> {
        let path = self.path.join(name);
        private_file::write_for(&path, text.as_bytes(), Existing::Replaced, self.readers).map_err(KeysError::at(&path))
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), KeysError> {
        let to = self.path.join(to);
        fs::rename(self.path.join(from), &to).map_err(KeysError::at(&to))
    }

    /// Refuses a folder in which other users can put files.
    fn check_folder(&self) -> Result<(), KeysError> {
        let status = fs::metadata(&self.path).map_err(KeysError::at(&self.path))?;
        let remedy = |why| format!("{why}; run: chmod 700 '{}'", self.path.display());
        private_file::check_for(&status, self.readers).map_err(|why| KeysError::file(&self.path, remedy(why)))
    }

    /// Excludes other processes that change files, until it is dropped.
    fn lock(&self) -> Result<File, KeysError> {
        private_file::create_folder(&self.path).map_err(KeysError::at(&self.path))?;
        self.check_folder()?;
        lock(&self.path, &self.path.join(LOCK))
    }

    fn error(&self, name: &str, why: impl std::fmt::Display) -> KeysError {
        KeysError::file(&self.path.join(name), why)
    }

    fn line_error(&self, name: &str, error: LineError) -> KeysError {
        KeysError::line(&self.path.join(name), error.line, error.why)
    }
}

impl Record {
    fn of(certificate: &Certificate) -> Record {
        Record {
            serial: certificate.serial,
            identity: certificate.identity.clone(),
            functions: certificate.functions.clone(),
            issued: certificate.issued_at(),
            expires: certificate.not_after,
            key: certificate.public_key.fingerprint(),
            pem: certificate.to_pem(),
        }
    }

    /// Returns the revocation that applies to the certificate.
    pub fn revocation<'a>(&self, revocations: &'a Revocations) -> Option<&'a Revocation> {
        revocations.of_issued(self.serial, &self.identity, self.issued)
    }

    /// Parses records as JSON lines.
    ///
    /// # Errors
    /// With the number of the wrong line.
    pub fn from_text(text: &str) -> Result<Vec<Record>, KeysError> {
        let records = json_lines::parse(text).map_err(|error| KeysError::Invalid(error.to_string()))?;
        Ok(records.into_iter().map(|(_, record)| record).collect())
    }
}

/// Excludes other processes until the result is dropped. Some network file systems have no locks; there, nobody is excluded.
fn lock(folder: &Path, path: &Path) -> Result<File, KeysError> {
    private_file::create_folder(folder).map_err(KeysError::at(folder))?;
    let open = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path);
    let file = open.map_err(KeysError::at(path))?;
    match flock(&file, FlockOperation::LockExclusive) {
        Ok(()) | Err(Errno::NOSYS | Errno::OPNOTSUPP | Errno::NOLCK) => Ok(file),
        Err(error) => Err(KeysError::file(path, error)),
    }
}

fn pending_name(fingerprint: Fingerprint) -> String {
    format!("{REQUESTS}/{fingerprint}.pem")
}

fn remove(path: &Path) -> Result<(), KeysError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(KeysError::file(path, error)),
        _ => Ok(()),
    }
}

type Step = fn(&GridFolder, &Bundle) -> Result<(), KeysError>;

/// The steps that replace the own certificate and key. After each of them, there is a key for the certificate.
const REPLACE_OWN: [Step; 4] = [
    |folder, _| folder.complete_replacement(),
    |folder, bundle| folder.write(NEW_KEY, &bundle.key_to_pem()),
    |folder, bundle| folder.write(OWN, &bundle.issued.certificate.to_pem()),
    |folder, _| folder.rename(NEW_KEY, OWN_KEY),
];

const AUTHORITY: &str = "authority.pem";
const AUTHORITY_KEY: &str = "authority.key";
const OWN: &str = "own.pem";
const OWN_KEY: &str = "own.key";
const NEW_KEY: &str = "own.key.new";
const REQUESTED: &str = "requested.pem";
const REQUESTED_KEY: &str = "requested.key";
const REQUESTS: &str = "requests";
const ISSUED: &str = "issued";
const REVOKED: &str = "revoked";
const LOCK: &str = "lock";
/// Held while a first grid is made.
const FOLDER_LOCK: &str = ".lock";
/// Maximum size of a file: the records of 100,000 certificates.
const FILE_BYTES_MAX: u64 = 256 << 20;
/// Maximum number of requests that wait for approval.
const PENDING_MAX: usize = 1000;
const MAKE_OR_REQUEST: &str =
    "'gridloom keys init' makes a grid, and 'gridloom keys request' a request to be admitted to one";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::patterns::Patterns;

    #[test]
    fn a_process_that_ends_while_it_replaces_the_own_pair_leaves_a_complete_one() {
        let place = std::env::temp_dir().join(format!("gridloom-keys-replaced-{}", std::process::id()));
        let _ = fs::remove_dir_all(&place);
        let now = UnixTime::now();
        let administrator = Identity::new("lab", Role::Administrator, "root").unwrap();
        let folder = KeysFolder::at(&place).create(&administrator, now).unwrap();
        let serial = || folder.own().unwrap().issued.certificate.serial;
        for steps in 0..=REPLACE_OWN.len() {
            for again in 0..=REPLACE_OWN.len() {
                let mut allowed = vec![serial()];
                // The second process finds what the first has left.
                for done in [steps, again] {
                    let new = folder.issue_and_record(&Grant::new(administrator.clone()), now).unwrap();
                    allowed.push(new.issued.certificate.serial);
                    REPLACE_OWN[..done].iter().for_each(|step| step(&folder, &new).unwrap());
                    assert!(allowed.contains(&serial()), "after {done} steps");
                    let is_new = serial() == new.issued.certificate.serial;
                    assert_eq!(is_new, done >= 3, "after {done} steps");
                }
                let renewed = folder.renew(Grant::LIFETIME, now).unwrap();
                assert_eq!(serial(), renewed.serial, "after {steps} and {again} steps");
                assert!(!folder.path.join(NEW_KEY).exists());
            }
        }
        // A request is approved while a replacement is incomplete.
        let new = folder.issue_and_record(&Grant::new(administrator.clone()), now).unwrap();
        REPLACE_OWN[..3].iter().for_each(|step| step(&folder, &new).unwrap());
        let request = folder.request(Role::Administrator, "root", &Patterns::all(), false, now).unwrap();
        let issued = folder.approve(&request, &Grant::new(administrator), true, now).unwrap();
        folder.install(issued.to_pem().as_bytes(), None, now).unwrap();
        assert_eq!(serial(), issued.certificate.serial);
        fs::remove_dir_all(place).unwrap();
    }
}

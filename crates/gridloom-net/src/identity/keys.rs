//! The keys of a node: its membership in a grid, and the identifier that is derived from it.
//!
//! A program finds its keys in the user's folder ([`KeysFolder`]). A function also finds the keys that its server has
//! made for its functions: they admit clients only, so a function can open sessions without seeing the server's keys.
//!
//! **Guarantee:** nobody with another certificate can use the identifier of a node: it is a hash of the identity in the
//! certificate and of a random number, and peers check both. **Limit:** an identifier has 64 bits. To obtain the
//! identifier of a given node, an attacker has to try 2^64 numbers.

use std::fmt;
use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use gridloom_base::dial::{ConnectionError, ConnectionFault};
use gridloom_base::limits::DIAL_NS_MAX;
use gridloom_base::{EscapedBytes, NodeId};
use gridloom_keys::{
    Authority, Bundle, Certificate, CertificateDer, Fingerprint, Grant, GridFolder, Identity, KeysError, KeysFolder,
    Membership, Memberships, Observer, Pattern, Patterns, Revocations, Role, UnixTime, chosen_grid,
};

use rustls::ServerConfig;
use serde::{Deserialize, Serialize};

use super::tls_configs::grid_of;
use super::{TlsConfigs, random};
use crate::threads::STACK_BYTES;

/// Environment variable with the folder of the keys that a server has made for its functions.
pub const FUNCTION_KEYS_VARIABLE: &str = "GRIDLOOM_FUNCTION_KEYS";

/// Interval at which a node checks whether the files of revocations and of its certificate have changed.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Interval at which a node reads these files in any case, and renews its certificate if that is due.
const REFRESH_INTERVAL: Duration = Duration::from_secs(60);

/// The keys of a program, for one grid.
#[derive(Clone)]
pub struct Keys(Found);

#[derive(Clone)]
enum Found {
    Membership(Arc<Membership>),
    /// Without keys, every connection fails for this reason.
    Missing(Arc<str>),
}

impl Keys {
    pub fn new(membership: Membership) -> Keys {
        Keys(Found::Membership(Arc::new(membership)))
    }

    /// Returns keys without a membership: connections fail for this reason.
    pub fn missing(why: &str) -> Keys {
        Keys(Found::Missing(why.into()))
    }

    /// Reads the text of [`Bundle::to_pem`].
    ///
    /// # Errors
    /// If the text is not complete, or its parts do not belong together.
    pub fn from_pem(text: &[u8]) -> io::Result<Keys> {
        Keys::of_bundle(&Bundle::from_pem(text).map_err(error)?)
    }

    fn of_bundle(bundle: &Bundle) -> io::Result<Keys> {
        bundle.membership().map(Keys::new).map_err(error)
    }

    /// Returns the keys of the user for the grid of one of these addresses, or of the function in which this process
    /// runs. If there are none, [`Keys::is_missing`] is true. If there are keys of several grids, the first node that
    /// answers within the limit decides.
    ///
    /// # Errors
    /// If keys exist but cannot be used.
    pub fn find(addresses: &[&str], limit: Duration) -> io::Result<Keys> {
        let until = Instant::now() + limit.min(Duration::from_nanos(DIAL_NS_MAX));
        let mut all: Vec<Arc<Membership>> = Vec::new();
        let of_functions = std::env::var_os(FUNCTION_KEYS_VARIABLE).map(PathBuf::from);
        if let Some(folder) = &of_functions {
            match KeysFolder::at(folder).memberships() {
                Ok((found, _)) => all.extend(found.iter().cloned()),
                Err(why) => tracing::warn!(target: "gridloom.keys", "the keys of functions cannot be used: {why}"),
            }
        }
        let folder = match KeysFolder::find() {
            Ok(folder) => folder,
            Err(_) if !all.is_empty() => return Ok(Keys(Found::Membership(all.remove(0)))),
            Err(why) => return Ok(Keys::missing(&why.to_string())),
        };
        match folder.memberships() {
            Ok((found, unusable)) => {
                for why in unusable {
                    tracing::warn!(target: "gridloom.keys", "some keys cannot be used: {why}");
                }
                let is_new = |one: &&Arc<Membership>| all.iter().all(|known| known.trust.grid() != one.trust.grid());
                let new: Vec<Arc<Membership>> = found.iter().filter(is_new).cloned().collect();
                all.extend(new);
            }
            // A function may run as another user.
            Err(_) if !all.is_empty() => {}
            Err(why) => return Err(error(why)),
        }
        if let Some(grid) = chosen_grid() {
            all.retain(|membership| membership.trust.grid() == grid);
        }
        match &all[..] {
            [] => Ok(Keys::missing(&folder.existing(None).err().map_or_else(String::new, |why| why.to_string()))),
            [only] => Ok(Keys(Found::Membership(only.clone()))),
            [first, ..] => {
                let memberships = Memberships::new(all.iter().cloned());
                let grid = addresses.iter().find_map(|address| grid_of(address, &memberships, until));
                let found = grid.and_then(|grid| memberships.of_grid(&grid).cloned());
                Ok(Keys(Found::Membership(found.unwrap_or_else(|| first.clone()))))
            }
        }
    }

    /// Returns the keys of the user for the processes of a program, and makes a grid if there are none.
    ///
    /// # Errors
    /// If the existing keys cannot be used, or none can be made.
    pub fn find_or_make() -> io::Result<Keys> {
        let keys = Keys::find(&[], Duration::ZERO)?;
        match keys.is_missing() {
            false => Ok(keys),
            true => Keys::of_bundle(
                &user_folder()?.existing_or_new(UnixTime::now()).and_then(|grid| grid.own()).map_err(error)?,
            ),
        }
    }

    pub fn is_missing(&self) -> bool {
        matches!(self.0, Found::Missing(_))
    }

    /// Returns why there are no keys.
    pub fn why_missing(&self) -> Option<&str> {
        match &self.0 {
            Found::Missing(why) => Some(why),
            Found::Membership(_) => None,
        }
    }

    /// Returns the identity in the certificate.
    pub fn identity(&self) -> Option<Identity> {
        match &self.0 {
            Found::Missing(_) => None,
            Found::Membership(membership) => Some(membership.credentials.certificate().identity.clone()),
        }
    }

    /// True if a client with these keys may be a function, which acts for the programs that call it.
    pub fn acts_for_callers(&self) -> bool {
        self.identity().is_some_and(|identity| acts_for_callers(identity.role()))
    }

    pub(crate) fn memberships(&self) -> Memberships {
        match &self.0 {
            Found::Missing(_) => Memberships::new([]),
            Found::Membership(membership) => Memberships::new([membership.clone()]),
        }
    }
}

impl Keys {
    /// Returns the fingerprint of the grid's authority.
    pub fn authority(&self) -> Option<Fingerprint> {
        match &self.0 {
            Found::Missing(_) => None,
            Found::Membership(membership) => Some(membership.trust.fingerprint()),
        }
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Keys").field(&self.identity()).finish()
    }
}

/// True if a client with a certificate for this role may be a function, which acts for the programs that call it. Where the
/// authority is on another machine, functions of a server have no other certificate than its own.
pub(crate) fn acts_for_callers(role: Role) -> bool {
    matches!(role, Role::Functions | Role::Server | Role::Agent)
}

/// The keys of an agent or a server, and of the functions that it runs.
#[derive(Debug)]
pub struct NodeKeys {
    pub own: Keys,
    /// Keys of functions that open sessions.
    pub functions: Option<FunctionKeys>,
}

/// Keys for functions that open sessions: a certificate of a client.
#[derive(Debug)]
pub struct FunctionKeys {
    pub current: Bundle,
    /// The folder of the authority, if it can issue new ones.
    issuer: Option<GridFolder>,
}

impl FunctionKeys {
    /// Replaces the keys after half of their lifetime, if the authority is here. Returns whether it replaced them.
    ///
    /// # Errors
    /// If the files of the authority cannot be used any more.
    pub fn renew_if_due(&mut self, now: UnixTime) -> Result<bool, KeysError> {
        let certificate = &self.current.issued.certificate;
        let Some(grid) = self.issuer.as_ref().filter(|_| now >= certificate.renewal_due_at()) else { return Ok(false) };
        self.current = grid.issue(&Grant::new(certificate.identity.clone()), now)?;
        Ok(true)
    }

    /// Issues keys for functions that act for one user only, who may call these functions; `None` if the authority is on
    /// another machine.
    ///
    /// # Errors
    /// If the user is revoked, the files of the authority cannot be used, or the name is not that of a user.
    pub fn for_user(&self, user: &str, functions: &[Pattern], now: UnixTime) -> Result<Option<Bundle>, KeysError> {
        let Some(grid) = &self.issuer else { return Ok(None) };
        let functions = Patterns::new(functions.iter().cloned())?;
        let identity = self.current.issued.certificate.identity.clone();
        grid.issue(&Grant { user: Some(user.into()), functions, ..Grant::new(identity) }, now).map(Some)
    }

    /// Checks that the functions of a user may have keys. Where the authority is on another machine, it checks nothing.
    ///
    /// # Errors
    /// If the user is revoked, or the files of the authority cannot be used.
    pub fn check_user(&self, user: &str, now: UnixTime) -> Result<(), KeysError> {
        self.issuer.as_ref().map_or(Ok(()), |grid| grid.check_user(user, now))
    }

    pub fn can_renew(&self) -> bool {
        self.issuer.is_some()
    }
}

impl NodeKeys {
    /// Returns the keys of an agent or server with this name. Where the authority of the grid is, it issues them;
    /// elsewhere they are the user's own. If `makes_grid`, the first node of a user makes a grid.
    ///
    /// # Errors
    /// If there are no keys, those of several grids and none is named, or those of another role.
    pub fn find(grid: Option<&str>, role: Role, name: &str, makes_grid: bool) -> io::Result<NodeKeys> {
        let now = UnixTime::now();
        let folder = user_folder()?;
        let grid = match (grid, makes_grid) {
            (None, true) => folder.existing_or_new(now),
            (grid, _) => folder.existing(grid),
        };
        let grid = grid.map_err(error)?;
        if grid.has_authority() {
            return NodeKeys::issue(&grid, role, name).map_err(error);
        }
        let membership = grid.membership().map_err(error)?;
        let identity = membership.credentials.certificate().identity.clone();
        if identity.role() != role {
            let why = format!(
                "the certificate in {} is for the {identity}, and this is to be the {role} '{name}'; 'gridloom keys request \
                 {} --role {role}' makes a request for one",
                EscapedBytes::of(grid.path()),
                grid.grid()
            );
            return Err(io::Error::new(ErrorKind::PermissionDenied, why));
        }
        let membership = Arc::new(membership);
        keep_fresh(grid, &membership, None);
        Ok(NodeKeys { own: Keys(Found::Membership(membership)), functions: None })
    }

    /// Issues the keys of an agent or server with the authority in that folder.
    ///
    /// # Errors
    /// If the authority is not there, or the name cannot be that of a node.
    pub fn issue(grid: &GridFolder, role: Role, name: &str) -> Result<NodeKeys, KeysError> {
        let IssuedKeys { own, functions, revocations } = IssuedKeys::with_lifetime(grid, role, name, Grant::LIFETIME)?;
        let grant = Grant::new(own.issued.certificate.identity.clone());
        let own = own.membership()?;
        own.trust.add_revocations(&revocations);
        let own = Arc::new(own);
        keep_fresh(grid.clone(), &own, Some(grant));
        let functions = functions.map(|current| FunctionKeys { current, issuer: Some(grid.clone()) });
        Ok(NodeKeys { own: Keys(Found::Membership(own)), functions })
    }

    /// Reads the line of [`IssuedKeys::to_line`].
    ///
    /// # Errors
    /// If the line is not complete, or its parts do not belong together.
    pub fn from_line(line: &str) -> io::Result<NodeKeys> {
        let text: KeysLine = serde_json::from_str(line)
            .map_err(|error| io::Error::new(ErrorKind::InvalidData, format!("no keys on standard input: {error}")))?;
        let functions = text.functions.map(|pem| Bundle::from_pem(pem.as_bytes())).transpose().map_err(error)?;
        let own = Bundle::from_pem(text.own.as_bytes()).and_then(|bundle| bundle.membership()).map_err(error)?;
        own.trust.add_revocations(&Revocations::from_text(&text.revocations).map_err(error)?);
        Ok(NodeKeys { own: Keys::new(own), functions: functions.map(|current| FunctionKeys { current, issuer: None }) })
    }
}

/// New keys of an agent or a server and of its functions, to be passed to its process.
#[derive(Debug)]
pub struct IssuedKeys {
    own: Bundle,
    functions: Option<Bundle>,
    revocations: Revocations,
}

/// Form of [`IssuedKeys`] on one line.
#[derive(Serialize, Deserialize)]
struct KeysLine {
    own: String,
    functions: Option<String>,
    /// JSON lines.
    revocations: String,
}

impl IssuedKeys {
    /// Issues keys with an authority that exists in this process only. They are valid as long as the authority.
    ///
    /// # Errors
    /// If the name cannot be that of a node, or the system has no random bytes.
    pub fn by_authority(authority: &Authority, role: Role, name: &str) -> Result<IssuedKeys, KeysError> {
        let issue = |identity, now| {
            authority.issue_bundle(&Grant { lifetime: Grant::LIFETIME_MAX, ..Grant::new(identity) }, now)
        };
        IssuedKeys::new(authority.grid(), role, name, Revocations::default(), issue)
    }

    /// Issues keys with the authority in a folder, for a process that cannot renew them.
    ///
    /// # Errors
    /// If the authority is not there, or the name cannot be that of a node.
    pub fn by_grid(grid: &GridFolder, role: Role, name: &str) -> Result<IssuedKeys, KeysError> {
        IssuedKeys::with_lifetime(grid, role, name, Grant::LIFETIME_OF_PROCESS)
    }

    fn with_lifetime(grid: &GridFolder, role: Role, name: &str, lifetime: Duration) -> Result<IssuedKeys, KeysError> {
        let issue = |identity, now| grid.issue(&Grant { lifetime, ..Grant::new(identity) }, now);
        IssuedKeys::new(grid.grid(), role, name, grid.revocations()?, issue)
    }

    fn new(
        grid: &str,
        role: Role,
        name: &str,
        revocations: Revocations,
        issue: impl Fn(Identity, UnixTime) -> Result<Bundle, KeysError>,
    ) -> Result<IssuedKeys, KeysError> {
        let issue = |role, name: &str| issue(Identity::new(grid, role, name)?, UnixTime::now());
        let own = issue(role, name)?;
        let functions = match role {
            Role::Server => Some(issue(Role::Functions, name)?),
            Role::Agent | Role::Client | Role::Functions | Role::Administrator | Role::Relay => None,
        };
        Ok(IssuedKeys { own, functions, revocations })
    }

    /// Returns the keys for functions.
    pub fn functions(&self) -> Option<&Bundle> {
        self.functions.as_ref()
    }

    /// Returns all of them on one line of JSON, with the private keys. Pass it through a pipe, never in a command line or
    /// a log.
    pub fn to_line(&self) -> String {
        let (functions, revocations) = (self.functions.as_ref().map(Bundle::to_pem), self.revocations.to_text());
        let line = KeysLine { own: self.own.to_pem(), functions, revocations };
        serde_json::to_string(&line).expect("texts are JSON")
    }

    /// Returns the own keys.
    ///
    /// # Errors
    /// If the cryptographic library does not accept the key.
    pub fn keys(&self) -> io::Result<Keys> {
        Keys::of_bundle(&self.own)
    }
}

/// Reads revocations and a renewed certificate of the user regularly, as long as the membership is used. With `grant`, it
/// renews the certificate itself, at half its life. Live connections keep theirs.
fn keep_fresh(grid: GridFolder, membership: &Arc<Membership>, grant: Option<Grant>) {
    let membership = Arc::downgrade(membership);
    let keep = move || {
        let (mut reported, mut versions, mut read_at) = (None, None, Instant::now());
        loop {
            thread::sleep(LOOK_INTERVAL);
            let Some(membership) = membership.upgrade() else { return };
            // Before the files are read: a change meanwhile is found at the next look.
            let found = Some(grid.versions());
            if found == versions && read_at.elapsed() < REFRESH_INTERVAL {
                continue;
            }
            (versions, read_at) = (found, Instant::now());
            let refreshed = refresh(&grid, &membership, grant.as_ref(), UnixTime::now());
            let error = refreshed.err().map(|error| error.to_string());
            if let Some(why) = error.as_ref().filter(|_| error != reported) {
                tracing::warn!(target: "gridloom.keys", "the keys of this node cannot be refreshed: {why}");
            }
            reported = error;
        }
    };
    let thread = thread::Builder::new().name("keys".into()).stack_size(STACK_BYTES);
    if let Err(error) = thread.spawn(keep) {
        tracing::warn!(target: "gridloom.keys", "the keys of this node will not be refreshed: {error}");
    }
}

fn refresh(grid: &GridFolder, membership: &Membership, grant: Option<&Grant>, now: UnixTime) -> Result<(), KeysError> {
    let Some(grant) = grant else { return grid.refresh(membership).map(drop) };
    membership.trust.add_revocations(&grid.revocations()?);
    match membership.credentials.due_for_renewal(now) {
        true => membership.credentials.replace(&grid.issue(grant, now)?),
        false => Ok(()),
    }
}

/// The keys that a node shows in a handshake, and the memberships that it accepts.
#[derive(Clone, Debug)]
pub struct Credentials {
    keys: Keys,
    memberships: Memberships,
    pub tls: TlsConfigs,
    node: NodeId,
    pub(crate) nonce: [u8; 16],
}

impl Credentials {
    /// Creates credentials for a node that starts with these keys.
    ///
    /// # Errors
    /// If the system has no random bytes.
    pub fn new(keys: Keys) -> io::Result<Credentials> {
        let nonce = random()?;
        let memberships = keys.memberships();
        let node = id_of(keys.identity().as_ref(), &nonce);
        let tls = TlsConfigs::new(&memberships);
        Ok(Credentials { keys, memberships, tls, node, nonce })
    }

    /// Returns the identifier of the node.
    pub fn id(&self) -> NodeId {
        self.node
    }

    pub(crate) fn why_missing(&self) -> Option<&str> {
        self.keys.why_missing()
    }

    /// Checks that the certificate of a verified peer has not been revoked since.
    ///
    /// # Errors
    /// The certificate, when it was revoked, and why.
    pub(crate) fn check_revoked(&self, peer: &Certificate) -> Result<(), ConnectionError> {
        self.memberships.check_revoked(peer).map_err(ConnectionError::from)
    }

    /// Checks that the own certificate is not revoked.
    ///
    /// # Errors
    /// As [`Credentials::check_revoked`].
    pub(crate) fn check_own_revoked(&self) -> Result<(), ConnectionError> {
        let mut own = self.memberships.iter().map(|membership| membership.credentials.certificate());
        own.try_for_each(|certificate| self.check_revoked(&certificate))
    }

    /// Returns the revocations that the authority has signed.
    pub(crate) fn signed_revocations(&self) -> Revocations {
        let of_grid = self.memberships.iter().next();
        of_grid.map_or_else(Revocations::default, |membership| membership.trust.revocations().signed())
    }

    /// Adds revocations that a peer has sent, as JSON lines.
    ///
    /// # Errors
    /// If the text is malformed, or the authority has not signed them.
    pub(crate) fn add_signed_revocations(&self, text: &str) -> Result<(), String> {
        let new = Revocations::from_text(text).map_err(|error| error.to_string())?;
        let mut all = self.memberships.iter();
        all.try_for_each(|membership| membership.trust.add_signed_revocations(&new).map(drop))
            .map_err(|error| error.to_string())
    }

    /// Calls `observer` after each change of the revocations, as long as it exists.
    pub(crate) fn observe_revocations(&self, observer: &Arc<Observer>) {
        self.memberships.iter().for_each(|membership| membership.trust.observe_revocations(observer));
    }

    /// Verifies the certificate of a peer. TLS verifies nothing if it resumes a session, and a certificate may have been
    /// revoked since.
    ///
    /// # Errors
    /// Why the peer is refused.
    pub(crate) fn peer(&self, certificates: Option<&[CertificateDer<'_>]>) -> Result<Certificate, ConnectionError> {
        if let Some(why) = self.why_missing() {
            return Err(ConnectionError::new(ConnectionFault::NoCertificate, why));
        }
        self.memberships.peer(certificates, &Role::NODES, UnixTime::now()).map_err(ConnectionError::from)
    }

    /// Verifies the certificate of a relay.
    ///
    /// # Errors
    /// Why the relay is refused.
    pub(crate) fn relay(&self, certificates: Option<&[CertificateDer<'_>]>) -> Result<Certificate, ConnectionError> {
        self.memberships.peer(certificates, &[Role::Relay], UnixTime::now()).map_err(ConnectionError::from)
    }

    /// Returns the configuration of TLS for a relay with these keys.
    pub(crate) fn relay_config(&self) -> Arc<ServerConfig> {
        Arc::new(TlsConfigs::of_relay(&self.memberships))
    }
}

/// Returns the identifier of a node with this identity.
pub(crate) fn id_of(identity: Option<&Identity>, nonce: &[u8; 16]) -> NodeId {
    let uri = identity.map_or_else(String::new, Identity::uri);
    let hash = blake3::derive_key("gridloom 2026 identifier of a node v2", &[uri.as_bytes(), nonce].concat());
    NodeId(u64::from_le_bytes(*hash.first_chunk().expect("a hash has 32 bytes")))
}

fn user_folder() -> io::Result<KeysFolder> {
    KeysFolder::find().map_err(error)
}

fn error(error: KeysError) -> io::Error {
    let kind = match error {
        KeysError::Missing(_) => ErrorKind::NotFound,
        KeysError::Refused(_) => ErrorKind::PermissionDenied,
        _ => ErrorKind::InvalidInput,
    };
    io::Error::new(kind, error.to_string())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Returns keys of a grid that exists in this process only.
    pub(crate) fn keys(role: Role) -> Keys {
        Keys::of_bundle(&bundle(role, "test")).unwrap()
    }

    /// Returns a certificate of that grid.
    pub(crate) fn certificate(role: Role, name: &str) -> Certificate {
        bundle(role, name).issued.certificate
    }

    fn bundle(role: Role, name: &str) -> Bundle {
        static AUTHORITY: std::sync::OnceLock<Authority> = std::sync::OnceLock::new();
        let authority = AUTHORITY.get_or_init(|| Authority::new("tests", UnixTime::now()).unwrap());
        let grant = Grant::new(Identity::new("tests", role, name).unwrap());
        authority.issue_bundle(&grant, UnixTime::now()).unwrap()
    }

    #[test]
    fn an_identifier_depends_on_the_identity_and_the_number() {
        let (one, other) =
            (Credentials::new(keys(Role::Server)).unwrap(), Credentials::new(keys(Role::Server)).unwrap());
        assert_ne!(one.id(), other.id());
        let identity = one.keys.identity().unwrap();
        assert_eq!(id_of(Some(&identity), &one.nonce), one.id());
        let another = Identity::new("tests", Role::Client, "test").unwrap();
        assert_ne!(id_of(Some(&another), &one.nonce), one.id());
        assert_ne!(id_of(None, &one.nonce), one.id());
    }

    #[test]
    fn keys_pass_through_a_pipe_on_one_line() {
        let authority = Authority::new("tests", UnixTime::now()).unwrap();
        let issued = IssuedKeys::by_authority(&authority, Role::Server, "s1").unwrap();
        let line = issued.to_line();
        assert_eq!(line.lines().count(), 1);
        let found = NodeKeys::from_line(&line).unwrap();
        assert_eq!(found.own.identity(), issued.keys().unwrap().identity());
        assert_eq!(
            found.functions.unwrap().current.issued.certificate.identity.to_string(),
            "functions of the server 's1' of the grid 'tests'"
        );
        assert!(IssuedKeys::by_authority(&authority, Role::Agent, "a").unwrap().functions().is_none());
        let error = NodeKeys::from_line("{}").unwrap_err();
        assert!(error.to_string().starts_with("no keys on standard input: "), "{error}");
        assert!(NodeKeys::from_line(&line[..line.len() / 2]).is_err());
    }

    #[test]
    fn a_node_renews_its_certificate_at_half_its_life_and_reads_revocations() {
        let place = tempfile::tempdir().unwrap();
        let (now, administrator) = (UnixTime::now(), Identity::new("lab", Role::Administrator, "carol").unwrap());
        let grid = KeysFolder::at(place.path().join("keys")).create(&administrator, now).unwrap();
        let grant = Grant::new(Identity::new("lab", Role::Server, "s1").unwrap());
        let membership = grid.issue(&grant, now).unwrap().membership().unwrap();
        let serial = || membership.credentials.certificate().serial;
        let (first, day) = (serial(), gridloom_keys::DAY.as_secs());
        let after = |days: u64| UnixTime::since_unix_epoch(Duration::from_secs(now.as_secs() + days * day));
        refresh(&grid, &membership, Some(&grant), after(40)).unwrap();
        assert_eq!(serial(), first);
        refresh(&grid, &membership, Some(&grant), after(50)).unwrap();
        assert_ne!(serial(), first);
        assert_eq!(membership.trust.revocations().iter().count(), 0);
        grid.revoke(&[gridloom_keys::Revoked::Identity(administrator)], "a test", now).unwrap();
        refresh(&grid, &membership, Some(&grant), after(50)).unwrap();
        assert_eq!(membership.trust.revocations().iter().count(), 1);
    }

    #[test]
    fn keys_of_functions_are_renewed_at_half_their_life_where_the_authority_is() {
        let place = tempfile::tempdir().unwrap();
        let (now, administrator) = (UnixTime::now(), Identity::new("lab", Role::Administrator, "carol").unwrap());
        let grid = KeysFolder::at(place.path().join("keys")).create(&administrator, now).unwrap();
        let after = |days: u64| {
            UnixTime::since_unix_epoch(Duration::from_secs(now.as_secs() + days * gridloom_keys::DAY.as_secs()))
        };
        let mut keys = NodeKeys::issue(&grid, Role::Server, "s1").unwrap().functions.unwrap();
        let serial = |keys: &FunctionKeys| keys.current.issued.certificate.serial;
        let first = serial(&keys);
        assert!(!keys.renew_if_due(after(44)).unwrap() && serial(&keys) == first);
        assert!(keys.renew_if_due(after(46)).unwrap() && serial(&keys) != first);
        assert!(!keys.renew_if_due(after(47)).unwrap());
        // Keys that are passed to a process are valid for longer.
        let passed = IssuedKeys::by_grid(&grid, Role::Server, "s1").unwrap();
        let mut passed = NodeKeys::from_line(&passed.to_line()).unwrap().functions.unwrap();
        assert!(!passed.can_renew() && !passed.renew_if_due(after(360)).unwrap());
        assert!(passed.current.issued.certificate.not_after >= after(364));
    }

    #[test]
    fn missing_keys_refuse_every_peer_with_their_reason() {
        let credentials = Credentials::new(Keys::missing("no keys here")).unwrap();
        assert_eq!(credentials.peer(None).unwrap_err().why, "no keys here");
        assert!(Keys::missing("why").is_missing());
    }
}

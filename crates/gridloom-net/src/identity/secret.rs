//! The secret of a grid: where it is stored, and how a node proves that it knows it.
//!
//! A program takes the secret from `GRIDLOOM_SECRET`, otherwise from the file named by `GRIDLOOM_SECRET_FILE`,
//! otherwise from `gridloom/secret` in the user's configuration folder. The first agent or server of a user creates
//! that file, with random content and mode 0600.
//!
//! A *ticket* is derived from the secret for the functions of a server. It admits clients only, so that functions can
//! open sessions without seeing the secret.
//!
//! **Guarantees:** a [`Secret`] is never printed and never leaves the process. A blank secret is rejected, and so is a
//! file that other users can read. Two programs that create the file at the same time end up with one secret.

use std::ffi::OsStr;
use std::fmt::{self, Write as _};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{env, fs};

use gridloom_resources::private_file::{self, Existing};

use super::random;

/// Environment variable that holds the grid's secret.
pub const SECRET_VARIABLE: &str = "GRIDLOOM_SECRET";
/// Environment variable that names a file with the grid's secret.
pub const SECRET_FILE_VARIABLE: &str = "GRIDLOOM_SECRET_FILE";
/// Environment variable that holds a ticket, for sessions that functions open.
pub const TICKET_VARIABLE: &str = "GRIDLOOM_TICKET";
/// Environment variable that gives functions the address of their server's agent.
const AGENT_VARIABLE: &str = "GRIDLOOM_AGENT";
/// Maximum size of a secret file: a larger file is a mistake.
const SECRET_FILE_BYTES_MAX: u64 = 4096;

/// The secret that the nodes of one grid share. Nodes prove to each other that they know it, without revealing it.
#[derive(Clone)]
pub struct Secret {
    key: [u8; 32],
    /// Number of the ticket, if this is a ticket and not the secret of a grid.
    ticket: Option<Ticket>,
    source: Arc<SecretSource>,
}

/// The number of a ticket.
pub(crate) type Ticket = [u8; 16];

/// The source of a secret, for error messages.
#[derive(Debug)]
enum SecretSource {
    /// Passed by the program.
    Given,
    /// `GRIDLOOM_SECRET`.
    Variable,
    /// `GRIDLOOM_TICKET`.
    Ticket,
    File(PathBuf),
    /// No secret at the usual path, or no usual path.
    Missing(Option<PathBuf>),
}

impl PartialEq for Secret {
    fn eq(&self, other: &Secret) -> bool {
        // Comparing two hashes of blake3 takes constant time.
        blake3::Hash::from_bytes(self.key) == blake3::Hash::from_bytes(other.key)
    }
}

impl Eq for Secret {}

impl Secret {
    /// Derives a secret from these bytes.
    pub fn from_bytes(bytes: &[u8]) -> Secret {
        Secret::new(bytes, SecretSource::Given)
    }

    fn new(bytes: &[u8], source: SecretSource) -> Secret {
        let key = blake3::derive_key("gridloom 2026 grid secret v1", bytes);
        Secret { key, ticket: None, source: Arc::new(source) }
    }

    /// Reads a secret from a file, ignoring surrounding white space.
    ///
    /// # Errors
    /// If it cannot be read, is blank or too long, or if other users can read it.
    pub fn from_file(path: &Path) -> io::Result<Secret> {
        let say =
            |why: String| io::Error::new(ErrorKind::InvalidData, format!("grid secret '{}': {why}", path.display()));
        let read = |error: io::Error| io::Error::new(error.kind(), say(error.to_string()).to_string());
        let bytes = private_file::read(path, SECRET_FILE_BYTES_MAX).map_err(read)?;
        match bytes.trim_ascii() {
            [] => Err(say(
                "the file is blank; 'gridloom secret --replace' writes a random secret to the usual file".into()
            )),
            bytes => Ok(Secret::new(bytes, SecretSource::File(path.to_path_buf()))),
        }
    }

    /// Returns the secret from the environment or the user's file. If there is none, returns a random secret: no grid
    /// admits it, and [`Secret::remedy`] names the missing file.
    ///
    /// # Errors
    /// If a secret exists but cannot be used.
    pub fn find() -> io::Result<Secret> {
        if let Some(secret) = Secret::from_environment()? {
            return Ok(secret);
        }
        let missing = |file| Ok(Secret::new(&random::<32>()?, SecretSource::Missing(file)));
        let Some(file) = secret_file() else { return missing(None) };
        match Secret::from_file(&file) {
            Err(error) if error.kind() == ErrorKind::NotFound => missing(Some(file)),
            found => found,
        }
    }

    /// Like [`Secret::find`], for connecting to `agent`: a function uses its ticket with the agent of its own server,
    /// whatever secret its program has set for another grid.
    ///
    /// # Errors
    /// If a secret exists but cannot be used.
    pub fn find_for(agent: &str) -> io::Result<Secret> {
        let is_its_own = env::var(AGENT_VARIABLE).is_ok_and(|own| own == agent);
        match env::var_os(TICKET_VARIABLE).filter(|_| is_its_own) {
            Some(text) => ticket_in(&text),
            None => Secret::find(),
        }
    }

    /// Like [`Secret::find`], but creates the user's file if there is no secret yet.
    ///
    /// # Errors
    /// If the existing secret cannot be used, or none can be created.
    pub fn find_or_make() -> io::Result<Secret> {
        let secret = Secret::find()?;
        let file = match &*secret.source {
            SecretSource::Missing(Some(file)) => file,
            SecretSource::Missing(None) => return Err(io::Error::new(ErrorKind::NotFound, secret.remedy())),
            _ => return Ok(secret),
        };
        match write_new(file, false) {
            // Another program has created it meanwhile.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            written => written?,
        }
        Secret::from_file(file)
    }

    /// Returns the text of the secret that [`Secret::find_or_make`] returns, for passing to nodes on other machines.
    /// Pass it through a pipe, never in a command line or a log.
    ///
    /// # Errors
    /// As [`Secret::find_or_make`]; also if it is a ticket, or not text.
    pub fn find_text_or_make() -> io::Result<String> {
        let secret = Secret::find_or_make()?;
        let bytes = match &*secret.source {
            SecretSource::Variable => env::var_os(SECRET_VARIABLE).unwrap_or_default().into_encoded_bytes(),
            SecretSource::File(file) => fs::read(file)?,
            SecretSource::Given | SecretSource::Ticket | SecretSource::Missing(_) => {
                let why = format!("a grid needs its secret, but {TICKET_VARIABLE} contains a ticket; unset it");
                return Err(io::Error::new(ErrorKind::InvalidInput, why));
            }
        };
        match std::str::from_utf8(bytes.trim_ascii()) {
            Ok(text) if !text.contains('\0') => Ok(text.to_string()),
            _ => Err(io::Error::new(
                ErrorKind::InvalidData,
                "the grid's secret is not text; 'gridloom secret --replace' creates a new one",
            )),
        }
    }

    /// Writes a new random secret to the user's file and returns the file's path.
    ///
    /// # Errors
    /// [`ErrorKind::AlreadyExists`] if a file exists and `replaces` is false; or if the file cannot be written.
    pub fn make(replaces: bool) -> io::Result<PathBuf> {
        let file = secret_file().ok_or_else(|| io::Error::new(ErrorKind::NotFound, NO_FOLDER))?;
        write_new(&file, replaces)?;
        Ok(file)
    }

    fn from_environment() -> io::Result<Option<Secret>> {
        if let Some(text) = env::var_os(SECRET_VARIABLE) {
            return match text.as_encoded_bytes().trim_ascii() {
                [] => Err(io::Error::new(
                    ErrorKind::InvalidInput,
                    format!("{SECRET_VARIABLE} is set and blank; give it a value, or unset it"),
                )),
                bytes => Ok(Some(Secret::new(bytes, SecretSource::Variable))),
            };
        }
        if let Some(text) = env::var_os(TICKET_VARIABLE) {
            return ticket_in(&text).map(Some);
        }
        let Some(path) = env::var_os(SECRET_FILE_VARIABLE) else { return Ok(None) };
        let named = |error: io::Error| io::Error::new(error.kind(), format!("{SECRET_FILE_VARIABLE}: {error}"));
        Secret::from_file(Path::new(&path)).map(Some).map_err(named)
    }

    /// Creates a ticket for functions, as text: its holder can be a client of the grid and nothing else. It does not
    /// reveal the secret.
    ///
    /// # Errors
    /// If the system has no random bytes.
    pub fn new_ticket(&self) -> io::Result<String> {
        let number = random::<16>()?;
        Ok(format!("{}{}", hex(&number), hex(&self.ticket(number).key)))
    }

    /// Returns the ticket of the programs that servers offer. It is the same on all servers of the grid, so that
    /// processes of one gang can authenticate to each other.
    pub fn ticket_of_programs(&self) -> String {
        format!("{}{}", hex(PROGRAMS), hex(&self.ticket(*PROGRAMS).key))
    }

    /// Parses a ticket created by [`Secret::new_ticket`].
    pub fn from_ticket(text: &str) -> Option<Secret> {
        let byte = |at: usize| u8::from_str_radix(text.get(2 * at..2 * at + 2)?, 16).ok();
        let bytes: Vec<u8> = (0..48).map(byte).collect::<Option<_>>()?;
        let (number, key) = bytes.split_first_chunk::<16>()?;
        let key = key.try_into().ok().filter(|_| text.len() == 96)?;
        Some(Secret { key, ticket: Some(*number), source: Arc::new(SecretSource::Ticket) })
    }

    fn ticket(&self, number: Ticket) -> Secret {
        let derived = blake3::keyed_hash(&self.key, &[&b"gridloom 2026 ticket v1"[..], &number].concat());
        Secret { key: *derived.as_bytes(), ticket: Some(number), source: self.source.clone() }
    }

    /// Returns the key for authenticating a connection to a peer with this ticket.
    pub(crate) fn for_peer(&self, ticket: Option<Ticket>) -> Secret {
        match (self.ticket, ticket) {
            (None, Some(number)) => self.ticket(number),
            // If this is a ticket with another number, the proofs will not match.
            _ => self.clone(),
        }
    }

    /// Returns the ticket's number, if this is a ticket.
    pub(crate) fn ticket_number(&self) -> Option<Ticket> {
        self.ticket
    }

    /// Reports whether this is a ticket, which admits to the grid only as a client.
    pub fn is_ticket(&self) -> bool {
        self.ticket.is_some()
    }

    /// Reports whether this is a random secret that replaces a missing one.
    pub fn is_missing(&self) -> bool {
        matches!(*self.source, SecretSource::Missing(_))
    }

    /// Returns the file that the secret was read from, or that is missing.
    pub fn file(&self) -> Option<&Path> {
        match &*self.source {
            SecretSource::File(file) | SecretSource::Missing(Some(file)) => Some(file),
            SecretSource::Given | SecretSource::Variable | SecretSource::Ticket | SecretSource::Missing(None) => None,
        }
    }

    /// Describes the source of the secret, and what to do if the other side of a connection has a different one.
    pub fn remedy(&self) -> String {
        let carry = "'gridloom secret' on the agent's machine prints how to copy its secret here";
        match &*self.source {
            SecretSource::Given => "this side's secret was passed by its program".into(),
            SecretSource::Variable => {
                format!("this side's secret is from {SECRET_VARIABLE}; set it to the same value on both sides")
            }
            SecretSource::File(file) => format!("this side's secret is from '{}'; {carry}", file.display()),
            SecretSource::Ticket => {
                "this side has a ticket that a server passed to its functions; its grid may have ended".into()
            }
            SecretSource::Missing(Some(file)) => {
                format!("this side has no secret, since there is no file '{}'; {carry}", file.display())
            }
            SecretSource::Missing(None) => format!("this side has no secret: {NO_FOLDER}"),
        }
    }

    /// Returns a short text for comparing the secrets of two machines. It does not reveal the secret.
    pub fn fingerprint(&self) -> String {
        hex(&blake3::derive_key("gridloom 2026 fingerprint of a grid secret v1", &self.key)[..8])
    }

    /// Returns a proof that the holder knows the secret and saw this transcript.
    pub(crate) fn prove(&self, side: &[u8], transcript: &[&[u8]]) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        for part in std::iter::once(&side).chain(transcript) {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        hasher.finalize()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

fn ticket_in(text: &OsStr) -> io::Result<Secret> {
    let wrong =
        || io::Error::new(ErrorKind::InvalidInput, format!("{TICKET_VARIABLE} does not contain a server's ticket"));
    Secret::from_ticket(&text.to_string_lossy()).ok_or_else(wrong)
}

/// Returns the path of the user's secret file; `None` if the user has no home folder.
pub fn secret_file() -> Option<PathBuf> {
    let set = |name: &str| env::var_os(name).map(PathBuf::from).filter(|folder| folder.is_absolute());
    let home = || env::home_dir().filter(|home| home.is_absolute()).map(|home| home.join(".config"));
    set("XDG_CONFIG_HOME").or_else(home).map(|folder| folder.join("gridloom").join("secret"))
}

/// Writes a random secret atomically: a reader of the file finds a complete secret or none.
fn write_new(file: &Path, replaces: bool) -> io::Result<()> {
    let named = |error: io::Error| {
        let what =
            format!("cannot store a grid secret in '{}': {error}; alternatively set {SECRET_VARIABLE}", file.display());
        io::Error::new(error.kind(), what)
    };
    let text = format!("{}\n", hex(&random::<32>()?));
    let existing = if replaces { Existing::Replaced } else { Existing::Refused };
    private_file::write(file, text.as_bytes(), existing).map_err(named)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a string takes all");
        text
    })
}

/// The ticket number of programs.
const PROGRAMS: &Ticket = b"gridloom-program";

const NO_FOLDER: &str =
    "there is no configuration folder for a grid secret; set HOME, XDG_CONFIG_HOME or GRIDLOOM_SECRET";

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder = env::temp_dir().join(format!("gridloom-secret-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[test]
    fn a_proof_depends_on_secret_side_and_transcript() {
        let (one, other) = (Secret::from_bytes(b"one"), Secret::from_bytes(b"other"));
        let proof = one.prove(b"dial", &[b"ab", b"c"]);
        assert_eq!(proof, one.prove(b"dial", &[b"ab", b"c"]));
        assert_ne!(proof, one.prove(b"dial", &[b"a", b"bc"]));
        assert_ne!(proof, one.prove(b"accept", &[b"ab", b"c"]));
        assert_ne!(proof, other.prove(b"dial", &[b"ab", b"c"]));
    }

    #[test]
    fn a_secret_is_not_printed() {
        assert_eq!(format!("{:?}", Secret::from_bytes(b"hunter2")), "Secret(..)");
    }

    #[test]
    fn a_file_that_others_can_read_is_refused_with_mode_and_remedy() {
        let folder = folder("modes");
        let file = folder.join("secret");
        fs::write(&file, "hunter2\n").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        let error = Secret::from_file(&file).unwrap_err().to_string();
        let path = file.display();
        assert!(
            error.starts_with(&format!("grid secret '{path}': other users can use the file (mode 0644)")),
            "{error}"
        );
        assert!(error.ends_with(&format!("; run: chmod 600 '{path}'")), "{error}");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(Secret::from_file(&file).unwrap(), Secret::from_bytes(b"hunter2"));
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_blank_file_is_refused() {
        let folder = folder("blank");
        let file = folder.join("secret");
        for content in ["", " \n\t\n"] {
            fs::write(&file, content).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
            let error = Secret::from_file(&file).unwrap_err().to_string();
            assert!(error.contains("blank") && error.contains(&file.display().to_string()), "{error}");
        }
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_secret_is_replaced_only_on_request() {
        let folder = folder("once");
        let file = folder.join("gridloom").join("secret");
        write_new(&file, false).unwrap();
        let before = Secret::from_file(&file).unwrap();
        assert_eq!(write_new(&file, false).unwrap_err().kind(), ErrorKind::AlreadyExists);
        assert_eq!(Secret::from_file(&file).unwrap(), before);
        write_new(&file, true).unwrap();
        assert_ne!(Secret::from_file(&file).unwrap(), before);
        assert_eq!(fs::read(&file).unwrap().len(), 65);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_ticket_proves_what_the_secret_derives_from_its_number() {
        let secret = Secret::from_bytes(b"one");
        let text = secret.new_ticket().unwrap();
        let ticket = Secret::from_ticket(&text).unwrap();
        assert!(ticket.is_ticket() && ticket != secret);
        assert_eq!(secret.for_peer(ticket.ticket_number()), ticket);
        assert_eq!(ticket.for_peer(ticket.ticket_number()), ticket);
        assert_ne!(Secret::from_bytes(b"other").for_peer(ticket.ticket_number()), ticket);
        for wrong in ["", "00", &text[1..], &format!("{text}0"), &text.replace(|c: char| c.is_ascii_digit(), "x")] {
            assert!(Secret::from_ticket(wrong).is_none(), "{wrong}");
        }
    }
}

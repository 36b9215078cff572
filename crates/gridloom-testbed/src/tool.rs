//! The tool's side: starts the box, waits for it, joins its hosts.

use std::fs;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};

use rustix::fs::fstat;
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::control::{self, ReplyBody, Request};
use crate::enclosure;
use crate::error::Error;
use crate::folder;
use crate::init::{READY, join};
use crate::kernel::sys;
use crate::report::Report;
use crate::shutdown::{Content, Shutdown};
use crate::signals::Signals;
use crate::spec::Spec;

/// The process that cleans up, and the folder that it has created. Dropping it takes the testbed down.
#[derive(Debug)]
pub struct CleanupProcess {
    process: Child,
    /// Channel that closes when this process ends, which notifies the keeper.
    channel: Option<UnixStream>,
    folder: PathBuf,
}

impl CleanupProcess {
    /// Starts the keeper of a testbed of this name, before anything is created that would have to be removed.
    /// `command` becomes the keeper ([`enclosure::run_keeper`]); the name and the number of the channel's descriptor are
    /// appended as its last arguments.
    ///
    /// # Errors
    /// If a testbed of this name is running, or its folder cannot be created.
    pub fn start(name: &str, mut command: Command, signals: Option<&Signals>) -> Result<CleanupProcess, Error> {
        let folder = folder::path_of(name)?;
        let (channel, theirs) = UnixStream::pair().map_err(Error::system("a channel"))?;
        let theirs = OwnedFd::from(theirs);
        fcntl_setfd(&theirs, FdFlags::empty()).map_err(Error::system("a channel"))?;
        command.arg(name).arg(theirs.as_raw_fd().to_string());
        sys::before_exec(&mut command, || {
            // A signal that ends the tool's process group must not end the keeper.
            sys::block_signals();
            Ok(rustix::process::setpgid(None, None)?)
        });
        let process = command.spawn().map_err(Error::system("the testbed's keeper"))?;
        drop(theirs);
        let mut keeper = CleanupProcess { process, channel: Some(channel), folder };
        match keeper.read_byte(signals)? {
            Some(enclosure::FOLDER_READY) => Ok(keeper),
            Some(enclosure::REFUSED) => {
                let mut why = String::new();
                keeper.channel().read_to_string(&mut why).map_err(Error::system("the testbed's keeper"))?;
                Err(Error::Usage(why))
            }
            _ => Err(Error::Usage("the testbed's keeper did not start; see its message above".into())),
        }
    }

    /// Returns the testbed's folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the keeper's pid.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    fn channel(&mut self) -> &mut UnixStream {
        self.channel.as_mut().expect("open until dropped")
    }

    /// Reads one byte from the keeper or the box, or `None` if they have ended. A signal that arrives meanwhile is an error.
    fn read_byte(&mut self, signals: Option<&Signals>) -> Result<Option<u8>, Error> {
        while let Some(signals) = signals {
            match signals.caught() {
                0 => {}
                signal => return Err(Error::Signalled(signal as i32)),
            }
            if signals.wait_for(self.channel(), None).map_err(Error::system("the testbed's keeper"))? {
                break;
            }
        }
        let mut byte = [0];
        match self.channel().read(&mut byte) {
            Ok(length) => Ok((length > 0).then_some(byte[0])),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => Ok(None),
            Err(error) => Err(Error::system("the testbed")(error)),
        }
    }

    fn write_byte(&mut self, word: u8) -> Result<(), Error> {
        self.channel().write_all(&[word]).map_err(Error::system("the testbed's keeper"))
    }
}

impl Drop for CleanupProcess {
    fn drop(&mut self) {
        drop(self.channel.take());
        // The keeper ends when the channel closes, if it has not ended before.
        let _ = self.process.wait();
        // If the keeper was killed, its folder is left.
        folder::remove_orphan(&self.folder);
    }
}

/// A running testbed. Dropping it takes it down.
#[derive(Debug)]
pub struct Testbed {
    keeper: CleanupProcess,
    what: Content,
}

impl Testbed {
    /// Starts a testbed. When this returns, it is up, its services are ready and its program is starting.
    ///
    /// # Errors
    /// If the machine does not permit it, or a service does not start; the cause was printed on standard error. Also
    /// if a signal arrived.
    pub fn start(mut keeper: CleanupProcess, spec: &Spec, signals: Option<&Signals>) -> Result<Testbed, Error> {
        let text = serde_json::to_string(spec).expect("a description of names and numbers");
        fs::write(keeper.folder.join(folder::SPEC), text).map_err(Error::system("the testbed's description"))?;
        keeper.write_byte(enclosure::BUILD)?;
        if keeper.read_byte(signals)? == Some(enclosure::UNSHARED) {
            let mapped = map_users(keeper.pid()).is_ok();
            keeper.write_byte(if mapped { enclosure::MAPPED } else { enclosure::MAP_YOURSELF })?;
            if keeper.read_byte(signals)? == Some(READY) {
                return Ok(Testbed { keeper, what: Content::of(spec) });
            }
        }
        Err(Error::Usage("the testbed did not start; see its message above".into()))
    }

    /// Returns its folder, for [`control::request`].
    pub fn folder(&self) -> &Path {
        self.keeper.folder()
    }

    /// Waits for its end, or ends it as signals request. The exit status is the program's, or 128 plus the number of
    /// the signal that ended the testbed.
    ///
    /// # Errors
    /// If the system does not report how it ended.
    pub fn wait(mut self, signals: &Signals) -> Result<(u8, Option<Report>), Error> {
        let failed = || Error::system("the testbed's keeper");
        let mut ending = Shutdown::new(self.what);
        loop {
            let caught = signals.caught();
            if !ending.advance(caught as i32, &self.keeper.folder) {
                // No process inside replies: the keeper ends the testbed, which may have ended already.
                let _ = self.keeper.channel().shutdown(std::net::Shutdown::Write);
            }
            if signals.wait_for(self.keeper.channel(), ending.next_due()).map_err(failed())? {
                break;
            }
        }
        let code = match self.keeper.read_byte(None)? {
            Some(enclosure::ENDED) => self.keeper.read_byte(None)?,
            _ => None,
        };
        let report = fs::read_to_string(self.keeper.folder.join(folder::REPORT)).ok();
        // If the keeper has ended, the kernel has killed everything.
        let code = ending.status().or(code).unwrap_or(128 + 9);
        Ok((code, report.and_then(|text| serde_json::from_str(&text).ok())))
    }
}

/// Maps users inside to the same users outside. Only a privileged process may map all of them.
fn map_users(keeper: u32) -> std::io::Result<()> {
    if !rustix::process::geteuid().is_root() {
        return Err(std::io::ErrorKind::PermissionDenied.into());
    }
    for kind in ["uid_map", "gid_map"] {
        // Lines are: first inside, first outside, count. The numbers inside are the same as outside.
        let own = fs::read_to_string(format!("/proc/self/{kind}"))?;
        let mut lines = String::new();
        for line in own.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            if let [inside, _, count] = words[..] {
                lines.push_str(&format!("{inside} {inside} {count}\n"));
            }
        }
        fs::write(format!("/proc/{keeper}/{kind}"), lines)?;
    }
    Ok(())
}

/// Runs a command on a host of the testbed of this folder, and waits for it.
///
/// # Errors
/// If there is no such host, or the command cannot be run.
pub fn enter(folder: &Path, host: &str, mut command: Command) -> Result<ExitStatus, Error> {
    let (answer, namespaces) = control::request(folder, &Request::Enter(host.to_string()))?;
    let (ReplyBody::Namespaces(environment), Ok([user, mount, process, network])) =
        (answer, <[OwnedFd; 4]>::try_from(namespaces))
    else {
        return Err(Error::Usage("the testbed did not send its namespaces".into()));
    };
    fn into_host<E: Into<std::io::Error>>(host: &str) -> impl FnOnce(E) -> Error {
        Error::system(format!("into host '{host}'"))
    }
    let here = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
    for (namespace, own, kind) in [
        (&user, "user", LinkNameSpaceType::User),
        (&process, "pid_for_children", LinkNameSpaceType::ProcessID),
        (&mount, "mnt", LinkNameSpaceType::Mount),
    ] {
        // The kernel does not let a process enter the user namespace that it is already in, as when a host is entered
        // from another host.
        let wanted = fstat(namespace).map(|facts| facts.st_ino).map_err(into_host(host))?;
        let own = fs::metadata(format!("/proc/self/ns/{own}")).map_err(into_host(host))?;
        if own.ino() == wanted && kind == LinkNameSpaceType::User && !rustix::process::geteuid().is_root() {
            return Err(Error::Forbidden(format!(
                "a process inside the testbed cannot enter host '{host}' unless it is root; enter it from outside"
            )));
        }
        if own.ino() != wanted {
            move_into_link_name_space(namespace.as_fd(), Some(kind)).map_err(into_host(host))?;
        }
    }
    let name = host.to_string();
    sys::before_exec(&mut command, move || join(&network, &name));
    let what = format!("cannot run '{}'", command.get_program().to_string_lossy());
    command.envs(environment).current_dir(here).status().map_err(Error::system(what))
}

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

use crate::control::{self, Answer, Request};
use crate::enclosure::{MAP_YOURSELF, MAPPED, UNSHARED};
use crate::error::Error;
use crate::folder::{self, Folder};
use crate::init::{READY, join};
use crate::kernel::sys;
use crate::report::Report;
use crate::spec::Spec;

/// A running testbed. Dropping it takes it down.
#[derive(Debug)]
pub struct Testbed {
    folder: Folder,
    keeper: Child,
    /// Its closing is what tells the keeper that this process has ended.
    channel: Option<UnixStream>,
}

impl Testbed {
    /// Starts a testbed; it is up and its services are ready, and its program has started, when this returns.
    /// `keeper` is the command that becomes the keeper ([`crate::enclosure::keep`]), given the folder and the number
    /// of the channel's descriptor as its last arguments.
    ///
    /// # Errors
    /// If the machine does not allow it, or a service does not start; the cause has been said on standard error.
    pub fn start(folder: Folder, spec: &Spec, mut keeper: Command) -> Result<Testbed, Error> {
        let groups: Vec<String> = spec.groups.iter().map(|group| format!("{}\n", group.display())).collect();
        fs::write(folder.path().join(folder::GROUPS), groups.concat())
            .map_err(Error::system("the testbed's groups"))?;
        let text = serde_json::to_string(spec).expect("a description of names and numbers");
        fs::write(folder.path().join(folder::SPEC), text).map_err(Error::system("the testbed's description"))?;
        let (channel, theirs) = UnixStream::pair().map_err(Error::system("a channel"))?;
        let theirs = OwnedFd::from(theirs);
        fcntl_setfd(&theirs, FdFlags::empty()).map_err(Error::system("a channel"))?;
        keeper.arg(folder.path()).arg(theirs.as_raw_fd().to_string());
        let keeper = keeper.spawn().map_err(Error::system("the testbed's keeper"))?;
        drop(theirs);
        let mut testbed = Testbed { folder, keeper, channel: Some(channel) };
        if testbed.hear()? == UNSHARED {
            let answer = if map_users(testbed.keeper.id()).is_ok() { MAPPED } else { MAP_YOURSELF };
            let channel = testbed.channel.as_mut().expect("open until dropped");
            channel.write_all(answer).map_err(Error::system("the testbed's keeper"))?;
            if testbed.hear()? == READY {
                return Ok(testbed);
            }
        }
        let status = testbed.keeper.wait().map_err(Error::system("the testbed's keeper"))?;
        Err(Error::Usage(format!("the testbed did not start ({status}); see its message above")))
    }

    /// One byte of the box, or nothing if it has ended.
    fn hear(&mut self) -> Result<Vec<u8>, Error> {
        let mut byte = [0];
        let channel = self.channel.as_mut().expect("open until dropped");
        match channel.read(&mut byte) {
            Ok(length) => Ok(byte[..length].to_vec()),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => Ok(Vec::new()),
            Err(error) => Err(Error::system("the testbed")(error)),
        }
    }

    /// Its folder, for [`control::ask`].
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Process identifier of the keeper.
    pub fn keeper(&self) -> u32 {
        self.keeper.id()
    }

    /// Waits for its end; the exit status is the program's.
    ///
    /// # Errors
    /// If the system does not say how it ended.
    pub fn wait(mut self) -> Result<(ExitStatus, Option<Report>), Error> {
        let status = self.keeper.wait().map_err(Error::system("the testbed's keeper"))?;
        let report = fs::read_to_string(self.folder.path().join(folder::REPORT)).ok();
        Ok((status, report.and_then(|text| serde_json::from_str(&text).ok())))
    }
}

impl Drop for Testbed {
    fn drop(&mut self) {
        drop(self.channel.take());
        // It ends when the channel closes; there is nobody left to tell if it had ended before.
        let _ = self.keeper.wait();
    }
}

/// Inside, users are who they are outside. Only a privileged process may say so of all of them.
fn map_users(keeper: u32) -> std::io::Result<()> {
    if !rustix::process::geteuid().is_root() {
        return Err(std::io::ErrorKind::PermissionDenied.into());
    }
    for kind in ["uid_map", "gid_map"] {
        // Lines are: first inside, first outside, count. The same numbers inside as here.
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

/// Runs a command on a host of the testbed of that folder, and waits for it.
///
/// # Errors
/// If there is no such host, or the command cannot be run.
pub fn enter(folder: &Path, host: &str, mut command: Command) -> Result<ExitStatus, Error> {
    let (answer, namespaces) = control::ask(folder, &Request::Enter(host.to_string()))?;
    let (Answer::Namespaces(environment), Ok([user, mount, process, network])) =
        (answer, <[OwnedFd; 4]>::try_from(namespaces))
    else {
        return Err(Error::Usage("the testbed did not give its namespaces".into()));
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
        // The kernel refuses to let a process into the namespace of users that it is in: a host entered from another.
        let wanted = fstat(namespace).map(|facts| facts.st_ino).map_err(into_host(host))?;
        let own = fs::metadata(format!("/proc/self/ns/{own}")).map_err(into_host(host))?;
        if own.ino() == wanted && kind == LinkNameSpaceType::User && !rustix::process::geteuid().is_root() {
            return Err(Error::Forbidden(format!(
                "a process inside the testbed may not enter host '{host}' without being root; enter it from outside"
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

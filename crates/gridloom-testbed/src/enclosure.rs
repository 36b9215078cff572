//! The box of a testbed: a process with its own namespaces, and the first process of a new process namespace in it,
//! from which all other processes inside descend.
//!
//! ```text
//!  tool ──spawns──▶ keeper ──forks──▶ first process (pid 1): forwarder, services, program
//!   └─── channel ───┘  makes the folder; kills the first process and removes the folder when the channel closes
//! ```
//!
//! **Invariant:** nothing outlives the tool. The keeper starts before anything else: it creates the folder itself, and
//! control groups are recorded in the folder before they are created. If the tool ends, for whatever reason and at any
//! time, the channel closes, and the keeper kills the first process and removes folder and groups. If the keeper ends,
//! the kernel kills the first process and the tool removes folder and groups. When the first process ends, the kernel
//! kills everything in its namespace, and namespaces, interfaces and addresses disappear with their last process. The
//! keeper is in its own process group, so that a signal to the tool's group does not kill it. Folder and groups are
//! left only if tool and keeper are both killed before either has removed them; the next testbed removes them then.

use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, kill_process, pidfd_open, set_parent_process_death_signal, waitpid,
};
use rustix::thread::UnshareFlags;

use crate::error::Error;
use crate::folder::Folder;
use crate::init;
use crate::kernel::sys::{self, Forked};

/// Keeper: the folder exists.
pub const FOLDER_READY: u8 = b'k';
/// Keeper: there is no folder; the reason follows.
pub const REFUSED: u8 = b'x';
/// Tool's reply: the description is written, and the testbed must be built.
pub const BUILD: u8 = b'b';
/// Keeper: the namespaces exist and wait for their user mapping.
pub const UNSHARED: u8 = b'u';
/// Tool's reply: it has mapped the users.
pub const MAPPED: u8 = b'y';
/// Tool's reply: it is not allowed to map the users; the keeper maps itself.
pub const MAP_YOURSELF: u8 = b'n';
/// Keeper: the first process has ended; its exit status follows. The folder stays until the tool closes the channel.
pub const ENDED: u8 = b'e';

/// Runs the keeper; `channel` is the number of the descriptor that the tool left open for it. Nothing reads its exit status.
///
/// # Errors
/// If the machine does not permit a required step.
pub fn run_keeper(name: &str, channel: i32) -> Result<ExitCode, Error> {
    // A terminal's interrupt, for example, is meant for the tool and the program: the keeper has to clean up after them.
    sys::block_signals();
    let channel = sys::inherited(channel).map_err(Error::system("the channel to the tool"))?;
    rustix::io::fcntl_setfd(&channel, rustix::io::FdFlags::CLOEXEC)
        .map_err(Error::system("the channel to the tool"))?;
    let mut channel = UnixStream::from(channel);
    let folder = match Folder::new(name) {
        Ok(folder) => folder,
        Err(error) => {
            // The tool prints it, if it is still running.
            let _ = channel.write_all(&[REFUSED]).and_then(|()| channel.write_all(error.to_string().as_bytes()));
            return Ok(ExitCode::FAILURE);
        }
    };
    // A tool that does not reply has ended, and dropping `folder` removes everything that was created.
    if agree(&mut channel, FOLDER_READY).ok() != Some(BUILD) {
        return Ok(ExitCode::FAILURE);
    }
    let all = UnshareFlags::NEWUSER
        | UnshareFlags::NEWNS
        | UnshareFlags::NEWNET
        | UnshareFlags::NEWPID
        | UnshareFlags::NEWIPC
        | UnshareFlags::NEWUTS;
    let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    sys::unshare(all).map_err(forbidden)?;
    match agree(&mut channel, UNSHARED) {
        Ok(MAPPED) => {}
        Ok(_) => map_user(user).and_then(|()| map_group(group)).map_err(forbidden)?,
        Err(_) => {
            // An unmapped user is not allowed to remove control groups. The tool may have done part of the mapping.
            let _ = map_user(user);
            let _ = map_group(group);
            return Ok(ExitCode::FAILURE);
        }
    }
    let keeper = pidfd_open(rustix::process::getpid(), PidfdFlags::empty()).map_err(failed)?;
    let (mut go, mut ready) = UnixStream::pair().map_err(failed)?;
    match sys::fork().map_err(failed)? {
        Forked::Child => {
            let folder = folder.leave();
            drop(ready);
            set_parent_process_death_signal(Some(Signal::KILL)).map_err(failed)?;
            if go.read_exact(&mut [0]).is_err() || is_over(&keeper) {
                return Ok(ExitCode::FAILURE);
            }
            drop(keeper);
            init::run(&folder, channel)
        }
        Forked::Parent(pid) => {
            drop(go);
            let first = Pid::from_raw(pid).expect("a process identifier is positive");
            // If the tool has ended meanwhile, its group no longer exists; then the first process ends before it does anything.
            if into_the_tools_group(first).is_ok() {
                let _ = ready.write_all(&[0]);
            }
            drop(ready);
            let code = watch(first, &channel)?;
            // The tool reads the report and closes the channel. It may have ended.
            let _ = channel.write_all(&[ENDED, code]).and_then(|()| channel.read_to_end(&mut Vec::new()));
            drop(folder);
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn failed<E: Into<io::Error>>(error: E) -> Error {
    Error::system("the first process inside")(error)
}

/// Sends a byte and waits for the reply.
fn agree(channel: &mut UnixStream, say: u8) -> io::Result<u8> {
    let mut answer = [0];
    channel.write_all(&[say])?;
    channel.read_exact(&mut answer)?;
    Ok(answer[0])
}

/// Moves the first process into the tool's process group, like a program that the tool runs: it reads from the
/// terminal and receives its interrupts. It cannot see that group itself. The keeper is never in that group, not even
/// briefly.
fn into_the_tools_group(first: Pid) -> io::Result<()> {
    let group = rustix::process::getpgid(rustix::process::getppid())?;
    Ok(rustix::process::setpgid(Some(first), Some(group))?)
}

fn is_over(process: &OwnedFd) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&now)).is_ok_and(|ready| ready > 0)
}

/// Waits for the first process, and kills it when the tool has ended. Uses no thread: the kernel creates none for a
/// process whose children have another process namespace than itself.
fn watch(first: Pid, channel: &UnixStream) -> Result<u8, Error> {
    let handle = pidfd_open(first, PidfdFlags::empty()).map_err(failed)?;
    let mut is_orphan = false;
    let status = loop {
        let mut fds = vec![PollFd::new(&handle, PollFlags::IN)];
        if !is_orphan {
            // The tool sends nothing more: the channel becomes readable when it is closed.
            fds.push(PollFd::new(channel, PollFlags::IN));
        }
        match poll(&mut fds, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(failed(error)),
        }
        if fds.get(1).is_some_and(|fd| !fd.revents().is_empty()) {
            is_orphan = true;
            // The process may have ended at the same time.
            let _ = kill_process(first, Signal::KILL);
        }
        match waitpid(Some(first), WaitOptions::NOHANG) {
            Ok(Some((_, status))) => break status,
            Ok(None) | Err(Errno::INTR) => {}
            Err(error) => return Err(failed(error)),
        }
    };
    let code = status.exit_status().unwrap_or_else(|| 128 + status.terminating_signal().unwrap_or(0));
    Ok(u8::try_from(code).unwrap_or(1))
}

fn map_user(user: u32) -> io::Result<()> {
    fs::write("/proc/self/uid_map", format!("{user} {user} 1"))
}

fn map_group(group: u32) -> io::Result<()> {
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/gid_map", format!("{group} {group} 1"))
}

fn forbidden(error: io::Error) -> Error {
    let read = |name: &str| fs::read_to_string(format!("/proc/sys/{name}")).ok().map(|text| text.trim().to_string());
    let mut why = Vec::new();
    if read("user/max_user_namespaces").as_deref() == Some("0") {
        why.push("user namespaces are switched off: as root, 'sysctl user.max_user_namespaces=15000'");
    }
    if read("kernel/unprivileged_userns_clone").as_deref() == Some("0") {
        why.push("user namespaces are limited to root: as root, 'sysctl kernel.unprivileged_userns_clone=1'");
    }
    if read("kernel/apparmor_restrict_unprivileged_userns").as_deref() == Some("1") {
        why.push(
            "AppArmor restricts user namespaces: as root, 'sysctl kernel.apparmor_restrict_unprivileged_userns=0'",
        );
    }
    if why.is_empty() {
        why.push("a container's seccomp profile may forbid them: start the container with user namespaces allowed");
    }
    let why = why.join("; ");
    Error::Forbidden(format!(
        "this machine does not let this user have user, network and process namespaces ({error}), which a testbed \
         needs: {why}. 'gridloom simulate' needs none"
    ))
}

//! The box: a process with namespaces of its own, and in it the first process of a new process namespace, which is all
//! that runs inside.
//!
//! ```text
//!  tool ──spawns──▶ keeper ──forks──▶ first process (pid 1): forwarder, services, program
//!   └─── channel ───┘  kills it when the channel closes; removes the folder
//! ```
//!
//! **Invariant:** nothing outlives the tool. If the tool ends, however it does, the channel closes and the keeper kills
//! the first process; if the keeper ends, the kernel does. With the first process the kernel kills everything in its
//! namespace, and namespaces, interfaces and addresses go with their last process. Only the folder can be left, if tool
//! and keeper are killed at the same time; the next testbed removes it.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ExitCode;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, kill_process, pidfd_open, set_parent_process_death_signal, waitpid,
};
use rustix::thread::UnshareFlags;

use crate::error::Error;
use crate::kernel::sys::{self, Forked};
use crate::{folder, init};

/// Says on the channel that namespaces are there and wait for their users.
pub const UNSHARED: &[u8] = b"u";
/// The tool's answer: it has mapped the users.
pub const MAPPED: &[u8] = b"y";
/// The tool's answer: it may not; the keeper maps itself.
pub const MAP_YOURSELF: &[u8] = b"n";

/// The keeper's whole life; `channel` is the number of the descriptor that the tool left open for it. Its exit status is
/// the program's.
///
/// # Errors
/// If the machine does not allow what is needed.
pub fn keep(folder_path: &Path, channel: i32) -> Result<ExitCode, Error> {
    let channel = sys::inherited(channel).map_err(Error::system("the channel to the tool"))?;
    rustix::io::fcntl_setfd(&channel, rustix::io::FdFlags::CLOEXEC)
        .map_err(Error::system("the channel to the tool"))?;
    let mut channel = UnixStream::from(channel);
    let all = UnshareFlags::NEWUSER
        | UnshareFlags::NEWNS
        | UnshareFlags::NEWNET
        | UnshareFlags::NEWPID
        | UnshareFlags::NEWIPC
        | UnshareFlags::NEWUTS;
    let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    sys::unshare(all).map_err(forbidden)?;
    let mut answer = [0];
    channel.write_all(UNSHARED).and_then(|()| channel.read_exact(&mut answer)).map_err(Error::system("the tool"))?;
    if answer != MAPPED {
        map_self(user, group).map_err(forbidden)?;
    }
    match sys::fork().map_err(Error::system("the first process inside"))? {
        Forked::Child => {
            // If the keeper is gone already, the channel is the only other end that would notice.
            let _ = set_parent_process_death_signal(Some(Signal::KILL));
            init::run(folder_path, channel)
        }
        Forked::Parent(pid) => {
            let first = Pid::from_raw(pid).expect("a process identifier is positive");
            let code = watch(first, &channel, folder_path)?;
            Ok(ExitCode::from(code))
        }
    }
}

/// Waits for the first process, and kills it when the tool is gone. Without a thread: the kernel gives none to a
/// process whose children have another process namespace than itself.
fn watch(first: Pid, channel: &UnixStream, folder_path: &Path) -> Result<u8, Error> {
    // Signals to the whole group of processes, from a terminal for instance, are for the tool and the program: the keeper
    // has to clean up after them.
    sys::block_signals();
    let failed = || Error::system("the first process inside");
    let handle = pidfd_open(first, PidfdFlags::empty()).map_err(failed())?;
    let mut is_orphan = false;
    let status = loop {
        let mut fds = vec![PollFd::new(&handle, PollFlags::IN)];
        if !is_orphan {
            // The tool says nothing any more; its end is readable.
            fds.push(PollFd::new(channel, PollFlags::IN));
        }
        match poll(&mut fds, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(failed()(error)),
        }
        if fds.get(1).is_some_and(|fd| !fd.revents().is_empty()) {
            is_orphan = true;
            // It may have ended at the same time.
            let _ = kill_process(first, Signal::KILL);
        }
        match waitpid(Some(first), WaitOptions::NOHANG) {
            Ok(Some((_, status))) => break status,
            Ok(None) | Err(Errno::INTR) => {}
            Err(error) => return Err(failed()(error)),
        }
    };
    if is_orphan {
        folder::remove(folder_path);
    }
    let code = status.exit_status().unwrap_or_else(|| 128 + status.terminating_signal().unwrap_or(0));
    Ok(u8::try_from(code).unwrap_or(1))
}

fn map_self(user: u32, group: u32) -> std::io::Result<()> {
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
    fs::write("/proc/self/gid_map", format!("{group} {group} 1"))
}

fn forbidden(error: std::io::Error) -> Error {
    let read = |name: &str| fs::read_to_string(format!("/proc/sys/{name}")).ok().map(|text| text.trim().to_string());
    let mut why = Vec::new();
    if read("user/max_user_namespaces").as_deref() == Some("0") {
        why.push("user namespaces are switched off: as root, 'sysctl user.max_user_namespaces=15000'");
    }
    if read("kernel/unprivileged_userns_clone").as_deref() == Some("0") {
        why.push("they are for root only: as root, 'sysctl kernel.unprivileged_userns_clone=1'");
    }
    if read("kernel/apparmor_restrict_unprivileged_userns").as_deref() == Some("1") {
        why.push("AppArmor restricts them: as root, 'sysctl kernel.apparmor_restrict_unprivileged_userns=0'");
    }
    if why.is_empty() {
        why.push("in a container, its seccomp profile may forbid them: start it with user namespaces allowed");
    }
    let why = why.join("; ");
    Error::Forbidden(format!(
        "this machine does not let this user have user, network and process namespaces ({error}), which a testbed is \
         made of: {why}. 'gridloom simulate' needs none"
    ))
}

//! Processes of other commands, identified by number, start time, and boot of the machine.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Child;
use std::time::Instant;

use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, kill_process_group, pidfd_open};
use serde::{Deserialize, Serialize};

/// A process, identified such that no other process can be mistaken for it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    pub pid: u32,
    /// Clock ticks from the boot to its start.
    started: u64,
    boot: String,
}

impl Process {
    pub fn of(pid: u32) -> Result<Process> {
        // A process that has ended already reports the reason elsewhere.
        let (started, _) = stat(pid).with_context(|| format!("process {pid}"))?;
        Ok(Process { pid, started, boot: boot()? })
    }

    pub fn runs(&self) -> bool {
        boot().is_ok_and(|boot| boot == self.boot) && stat(self.pid) == Some((self.started, true))
    }

    /// True if it was started on another machine, or before this machine was rebooted.
    pub fn is_on_other_boot(&self) -> bool {
        boot().is_ok_and(|boot| boot != self.boot)
    }

    fn id(&self) -> Option<Pid> {
        i32::try_from(self.pid).ok().and_then(Pid::from_raw)
    }

    /// Returns a descriptor that becomes readable when it ends; `None` if it has ended.
    fn end(&self) -> Result<Option<OwnedFd>> {
        match self.id().map(|pid| pidfd_open(pid, PidfdFlags::empty())) {
            Some(Ok(end)) => Ok(self.runs().then_some(end)),
            Some(Err(error)) if error != Errno::SRCH => Err(error).with_context(|| format!("process {}", self.pid)),
            _ => Ok(None),
        }
    }

    pub fn signal(&self, signal: Signal) -> Result<()> {
        match self.id().map(|pid| kill_process(pid, signal)) {
            Some(Err(error)) if error != Errno::SRCH => Err(error).with_context(|| format!("process {}", self.pid)),
            _ => Ok(()),
        }
    }

    /// Kills it with its workers, which are in its process group.
    pub fn kill(&self) -> Result<()> {
        self.signal_group(Signal::KILL)
    }

    /// Sends the signal to all processes of its process group.
    pub fn signal_group(&self, signal: Signal) -> Result<()> {
        match self.id().map(|pid| kill_process_group(pid, signal)) {
            Some(Err(error)) if error != Errno::SRCH => Err(error).with_context(|| format!("process {}", self.pid)),
            _ => Ok(()),
        }
    }

    /// True if a process of its process group runs, even if it has ended itself.
    pub fn group_runs(&self) -> bool {
        let group = self.pid.to_string();
        let is_of_group = |entry: fs::DirEntry| {
            let text = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
            let mut rest = text.rsplit(')').next().unwrap_or_default().split_ascii_whitespace();
            rest.next().is_some_and(|state| state != "Z") && rest.nth(1) == Some(&group)
        };
        fs::read_dir("/proc").into_iter().flatten().flatten().any(is_of_group)
    }
}

/// Waits until all processes in `left` have ended, or until that time. Removes those that have ended.
pub fn wait_for(left: &mut Vec<Process>, until: Instant) -> Result<()> {
    loop {
        let mut ends = Vec::new();
        for process in left.iter() {
            ends.extend(process.end()?);
        }
        // Checked after the descriptors were opened: a number that was reused before that is not waited for.
        left.retain(Process::runs);
        let limit = until.saturating_duration_since(Instant::now());
        if left.is_empty() || limit.is_zero() {
            return Ok(());
        }
        let mut polled: Vec<PollFd<'_>> = ends.iter().map(|end| PollFd::new(end, PollFlags::IN)).collect();
        match poll(&mut polled, Some(&Timespec::try_from(limit)?)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error).context("processes that have to end"),
        }
    }
}

/// Kills it with its workers, which are in its process group.
pub fn stop(child: &mut Child) {
    // They may have ended by themselves.
    let _ = kill_process_group(Pid::from_child(child), Signal::KILL);
    let _ = child.wait();
}

/// True if a signal has stopped the process (SIGSTOP, or a debugger): it exists, but does not run.
pub fn is_stopped(pid: u32) -> bool {
    let text = fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat"));
    let state = text.ok().and_then(|text| text[text.rfind(')')? + 1..].trim_start().chars().next());
    matches!(state, Some('T' | 't'))
}

fn boot() -> Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_string())
}

/// Returns when a process started, in clock ticks since the boot, and whether it runs: it may have ended without its
/// parent having waited for it. Returns `None` if there is no such process.
fn stat(pid: u32) -> Option<(u64, bool)> {
    let text = fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat")).ok()?;
    // The name is in parentheses and may contain anything. The rest begins with field 3.
    let mut rest = text[text.rfind(')')? + 1..].split_ascii_whitespace();
    let is_running = rest.next()? != "Z";
    Some((rest.nth(18)?.parse().ok()?, is_running))
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_process_with_another_start_is_another_process() {
        let own = Process::of(std::process::id()).unwrap();
        assert!(own.runs());
        assert!(!Process { started: own.started + 1, ..own.clone() }.runs());
        assert!(!Process { boot: "another".into(), ..own }.runs());
    }

    #[test]
    fn a_process_that_has_ended_has_a_start_and_does_not_run() {
        let mut child = Command::new("true").stdout(Stdio::piped()).spawn().unwrap();
        // The end of the process closes the pipe.
        let mut stdout = child.stdout.take().unwrap();
        io::copy(&mut stdout, &mut io::sink()).unwrap();
        let process = Process::of(child.id()).unwrap();
        while process.runs() {
            std::thread::yield_now();
        }
        assert!(Process::of(child.id()).unwrap() == process);
        child.wait().unwrap();
        assert!(Process::of(process.pid).is_err());
    }
}

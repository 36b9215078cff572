//! Messages between a worker and the caller of a gang, as JSON.

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::process::ProcessConfig;

/// Number of the callback by which a gang reports that it has its slots. [`Ready`] is answered with [`GangStart`].
pub const READY: u32 = 0;
/// Number of the callback by which a gang reports the first failure of a process on this server. [`ProcessEnd`] has an
/// empty reply, which the worker does not wait for.
pub const FAILED: u32 = 1;

/// The caller's requirements, the first item of the call's arguments.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct GangRequest {
    /// Name under which the processes store checkpoints.
    pub checkpoint: Option<String>,
    /// Name of the checkpoints from which they restart.
    pub restart: Option<String>,
    /// True if each process uses a processor exclusively.
    pub binds: bool,
    /// Random number that identifies the run: the same for all starts by one command.
    pub run: u64,
    /// Number of earlier starts of the run.
    pub start: u32,
}

/// Reports that a worker has the slots and sockets of its processes.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Ready {
    /// Listening port of each process.
    pub ports: Vec<u16>,
    /// Site of the server, empty if it has none.
    pub site: String,
    /// If checkpoints are wanted: whether a server that was asked earlier uses the same checkpoint folder.
    pub shares: Option<bool>,
    /// Last complete checkpoint that this run has stored, and last one of the name to restart from.
    pub last: [Option<u64>; 2],
    /// A checkpoint number that was never used under the name.
    pub next: u64,
    pub clock: Reading,
}

/// A reading of a machine's monotonic clock.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Reading {
    /// Boot id of the machine. Empty if unknown.
    pub boot: String,
    pub at_ns: u64,
}

impl Reading {
    /// Reads this machine's clock.
    pub fn now() -> Reading {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let time = clock_gettime(ClockId::Monotonic);
        Reading { boot, at_ns: time.tv_sec as u64 * gridloom_base::time::SECOND_NS + time.tv_nsec as u64 }
    }

    fn is_of(&self, other: &Reading) -> bool {
        !self.boot.is_empty() && self.boot == other.boot
    }
}

/// When the caller received [`Ready`], and when it replied.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ReplyTimes {
    pub received: Reading,
    pub sent: Reading,
}

/// Returns the nanoseconds to add to a worker's clock to get its caller's clock.
///
/// The worker sent its request at `request_sent` and received the reply at `reply_received`. As in NTP (RFC 5905, section 8), the mean
/// of both differences is wrong by at most half of the time that the messages took. Processes on one machine share one
/// clock.
pub fn shift_ns(request_sent: &Reading, caller: &ReplyTimes, reply_received: &Reading) -> i64 {
    if request_sent.is_of(&caller.received) {
        return 0;
    }
    let ahead = |caller: &Reading, worker: &Reading| i128::from(caller.at_ns) - i128::from(worker.at_ns);
    ((ahead(&caller.received, request_sent) + ahead(&caller.sent, reply_received)) / 2) as i64
}

/// Instructions for the processes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GangStart {
    pub config: ProcessConfig,
    /// Last argument of each process, which differs between processes.
    pub own: Vec<String>,
    /// Present if the records of the processes are wanted.
    pub records: Option<ReplyTimes>,
}

/// How a process has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ProcessEnd {
    /// Its index among the processes of its call.
    pub process: usize,
    /// Wait status, as reported by the system.
    pub wait_status: i32,
    /// True if it was killed because another process had failed.
    pub was_killed: bool,
    /// True if it has read its configuration.
    pub has_read_config: bool,
}

impl ProcessEnd {
    pub fn has_failed(&self) -> bool {
        !(self.was_killed || self.wait_status == 0 && self.has_read_config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(boot: &str, at_ns: u64) -> Reading {
        Reading { boot: boot.into(), at_ns }
    }

    #[test]
    fn clocks_of_two_machines_differ_by_the_mean() {
        // The worker's clock is 1000 behind; its message takes 10, the reply 30.
        let answered = ReplyTimes { received: at("a", 1110), sent: at("a", 5000) };
        assert_eq!(shift_ns(&at("b", 100), &answered, &at("b", 4030)), 990);
        assert_eq!(shift_ns(&at("a", 100), &answered, &at("a", 4030)), 0);
        assert_eq!(shift_ns(&at("", 100), &ReplyTimes { received: at("", 50), sent: at("", 60) }, &at("", 110)), -50);
    }
}

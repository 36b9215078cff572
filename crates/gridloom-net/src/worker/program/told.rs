//! What a worker and the caller of a gang tell each other, as JSON.

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::process::ProcessConfig;

/// Number of the callback by which a gang says that it has its slots. [`Ready`] is answered with [`Start`].
pub const READY: u32 = 0;
/// Number of the callback by which a gang says that a process has failed: the first one of this server. [`ProcessEnd`] has an empty answer, which
/// the worker does not wait for.
pub const FAILED: u32 = 1;

/// What the caller wants, the first item of the call's arguments.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Wanted {
    /// Name under which the processes keep checkpoints.
    pub checkpoint: Option<String>,
    /// Name of those from which they go on.
    pub restart: Option<String>,
    /// Whether each uses a processor alone.
    pub binds: bool,
    /// Which run this is: one number for all starts of a command, drawn at random.
    pub run: u64,
    /// How often the run has been started before.
    pub start: u32,
}

/// A worker has the slots and sockets of its processes.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Ready {
    /// Where each process listens.
    pub ports: Vec<u16>,
    /// The site of the server, empty if it has none.
    pub site: String,
    /// If checkpoints are wanted: whether a server that was asked before has the same folder for them.
    pub shares: Option<bool>,
    /// The last complete checkpoint that this run has kept, and the last one of the name to go on from.
    pub last: [Option<u64>; 2],
    /// A number that no checkpoint has had that was kept under the name.
    pub next: u64,
    pub clock: Reading,
}

/// A reading of a machine's monotonic clock.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Reading {
    /// The machine, since it was started. Empty if that is not known.
    pub boot: String,
    pub at_ns: u64,
}

impl Reading {
    /// Of this machine, now.
    pub fn now() -> Reading {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let time = clock_gettime(ClockId::Monotonic);
        Reading { boot, at_ns: time.tv_sec as u64 * gridloom_base::time::SECOND_NS + time.tv_nsec as u64 }
    }

    fn is_of(&self, other: &Reading) -> bool {
        !self.boot.is_empty() && self.boot == other.boot
    }
}

/// When the caller got [`Ready`] and when it answered.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Answered {
    pub came: Reading,
    pub sent: Reading,
}

/// What is to be added to the clock of a worker, nanoseconds, to get that of its caller.
///
/// The worker asked and got the answer at these times. As in NTP (RFC 5905, section 8), the mean of both differences is wrong by at
/// most half of what the messages took. Processes of one machine have one clock.
pub fn shift_ns(asked: &Reading, answered: &Answered, came: &Reading) -> i64 {
    if asked.is_of(&answered.came) {
        return 0;
    }
    let ahead = |caller: &Reading, worker: &Reading| i128::from(caller.at_ns) - i128::from(worker.at_ns);
    ((ahead(&answered.came, asked) + ahead(&answered.sent, came)) / 2) as i64
}

/// What the processes are told.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Start {
    pub config: ProcessConfig,
    /// The last argument of each, which differs from the others'.
    pub own: Vec<String>,
    /// Set if their records are wanted.
    pub records: Option<Answered>,
}

/// How a process has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ProcessEnd {
    /// Its number among those of its call.
    pub process: usize,
    /// As the system says it.
    pub wait_status: i32,
    /// It was ended because another one had failed.
    pub was_killed: bool,
    /// It has asked which process it is.
    pub has_asked: bool,
}

impl ProcessEnd {
    pub fn has_failed(&self) -> bool {
        !(self.was_killed || self.wait_status == 0 && self.has_asked)
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
        // The worker's clock is 1000 behind; its message takes 10, the answer 30.
        let answered = Answered { came: at("a", 1110), sent: at("a", 5000) };
        assert_eq!(shift_ns(&at("b", 100), &answered, &at("b", 4030)), 990);
        assert_eq!(shift_ns(&at("a", 100), &answered, &at("a", 4030)), 0);
        assert_eq!(shift_ns(&at("", 100), &Answered { came: at("", 50), sent: at("", 60) }, &at("", 110)), -50);
    }
}

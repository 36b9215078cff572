//! Faults as data: what breaks or is mended, named as people name it, and when.

use std::fmt;

use gridloom_base::time::ns_to_seconds;
use gridloom_base::{NodeId, Time};
use gridloom_platform::HostId;

use crate::kernel::Occurrence;
use crate::observe::Seen;
use crate::simulation::Simulation;

/// The kinds of faults. A new one is a line here, one in [`Kind::ALL`], and its effect in [`Simulation::strike`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[allow(missing_docs)]
pub enum Kind {
    Kill,
    Restart,
    Hang,
    Pause,
    Resume,
    Cut,
    Heal,
    Lose,
    Reset,
    HalfOpen,
    Slow,
    SlowDisk,
    Full,
    Off,
    On,
}

impl Kind {
    /// Each with its word in a scenario, how it is written, and what it does.
    pub const ALL: &[(Kind, &str, &str, &str)] = &[
        (Kind::Kill, "kill", "kill NODE", "the process ends without warning"),
        (Kind::Restart, "restart", "restart NODE", "an agent or server starts anew at its address"),
        (Kind::Hang, "hang", "hang NODE", "it reacts no more, its connections stay up"),
        (Kind::Pause, "pause", "pause NODE [for TIME]", "it is stopped; what comes waits"),
        (Kind::Resume, "resume", "resume NODE", "a paused node goes on"),
        (Kind::Cut, "cut", "cut HOST HOST [for TIME]", "nothing passes between two hosts"),
        (Kind::Heal, "heal", "heal HOST HOST", "everything passes between them again"),
        (Kind::Lose, "lose", "lose HOST -> HOST [for TIME]", "nothing passes from one host to another"),
        (Kind::Reset, "reset", "reset NODE NODE", "both lose their connection"),
        (Kind::HalfOpen, "half-open", "half-open NODE NODE", "the first forgets their connection"),
        (Kind::Slow, "slow", "slow HOST FACTOR [for TIME]", "a host computes at that factor of its speed"),
        (
            Kind::SlowDisk,
            "slow-disk",
            "slow-disk HOST FACTOR [for TIME]",
            "its disk reads and writes at that factor of its rate",
        ),
        (Kind::Full, "full", "full NODE for TIME", "it takes no datum in"),
        (Kind::Off, "off", "off HOST [for TIME]", "a host crashes: whatever runs there ends"),
        (Kind::On, "on", "on HOST", "it starts again, and its agent and servers with it"),
    ];

    pub fn name(self) -> &'static str {
        Kind::ALL.iter().find(|(kind, ..)| *kind == self).expect("the table has every kind").1
    }
}

/// What breaks or is mended. Nodes and hosts are named as in the platform and the grid; a name that several nodes bear, one
/// after the other, means the last.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs)]
pub enum Fault {
    Kill(String),
    Restart(String),
    Hang(String),
    Pause(String),
    Resume(String),
    Cut(String, String),
    Heal(String, String),
    Lose { from: String, to: String },
    Reset(String, String),
    HalfOpen { forgets: String, keeps: String },
    Slow { host: String, factor: f64 },
    SlowDisk { host: String, factor: f64 },
    Full { node: String, for_ns: u64 },
    Off(String),
    On(String),
}

/// A fault at its time.
#[derive(Clone, PartialEq, Debug)]
pub struct Strike {
    pub at: Time,
    pub fault: Fault,
}

impl Fault {
    /// Of what kind it is.
    pub fn kind(&self) -> Kind {
        match self {
            Fault::Kill(_) => Kind::Kill,
            Fault::Restart(_) => Kind::Restart,
            Fault::Hang(_) => Kind::Hang,
            Fault::Pause(_) => Kind::Pause,
            Fault::Resume(_) => Kind::Resume,
            Fault::Cut(..) => Kind::Cut,
            Fault::Heal(..) => Kind::Heal,
            Fault::Lose { .. } => Kind::Lose,
            Fault::Reset(..) => Kind::Reset,
            Fault::HalfOpen { .. } => Kind::HalfOpen,
            Fault::Slow { .. } => Kind::Slow,
            Fault::SlowDisk { .. } => Kind::SlowDisk,
            Fault::Full { .. } => Kind::Full,
            Fault::Off(_) => Kind::Off,
            Fault::On(_) => Kind::On,
        }
    }

    /// The nodes that it names.
    pub fn nodes(&self) -> Vec<&str> {
        match self {
            Fault::Kill(node)
            | Fault::Restart(node)
            | Fault::Hang(node)
            | Fault::Pause(node)
            | Fault::Resume(node)
            | Fault::Full { node, .. } => vec![node],
            Fault::Reset(a, b) | Fault::HalfOpen { forgets: a, keeps: b } => vec![a, b],
            Fault::Cut(..)
            | Fault::Heal(..)
            | Fault::Lose { .. }
            | Fault::Slow { .. }
            | Fault::SlowDisk { .. }
            | Fault::Off(_)
            | Fault::On(_) => Vec::new(),
        }
    }

    /// Whether it starts a process anew.
    pub(crate) fn restarts_process(&self) -> bool {
        matches!(self, Fault::Restart(_)) && self.may_strike_process()
    }

    /// Whether it may strike a process of a deployment: by its name, `function@host`, or with its host.
    pub(crate) fn may_strike_process(&self) -> bool {
        if matches!(self, Fault::Off(_) | Fault::On(_)) {
            return true;
        }
        let is_of_all = matches!(self, Fault::Full { .. } | Fault::Reset(..) | Fault::HalfOpen { .. });
        !is_of_all && self.nodes().iter().any(|name| name.contains('@'))
    }

    /// The hosts that it names.
    pub fn hosts(&self) -> Vec<&str> {
        match self {
            Fault::Cut(a, b) | Fault::Heal(a, b) | Fault::Lose { from: a, to: b } => vec![a, b],
            Fault::Slow { host, .. } | Fault::SlowDisk { host, .. } | Fault::Off(host) | Fault::On(host) => vec![host],
            Fault::Kill(_)
            | Fault::Restart(_)
            | Fault::Hang(_)
            | Fault::Pause(_)
            | Fault::Resume(_)
            | Fault::Full { .. }
            | Fault::Reset(..)
            | Fault::HalfOpen { .. } => Vec::new(),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = self.kind().name();
        match self {
            Fault::Kill(name)
            | Fault::Restart(name)
            | Fault::Hang(name)
            | Fault::Pause(name)
            | Fault::Resume(name)
            | Fault::Off(name)
            | Fault::On(name) => write!(f, "{word} {name}"),
            Fault::Cut(a, b) | Fault::Heal(a, b) | Fault::Reset(a, b) | Fault::HalfOpen { forgets: a, keeps: b } => {
                write!(f, "{word} {a} {b}")
            }
            Fault::Lose { from, to } => write!(f, "{word} {from} -> {to}"),
            Fault::Slow { host, factor } | Fault::SlowDisk { host, factor } => write!(f, "{word} {host} {factor}"),
            Fault::Full { node, for_ns } => write!(f, "{word} {node} for {}s", ns_to_seconds(*for_ns)),
        }
    }
}

/// As a line of a scenario.
impl fmt::Display for Strike {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at {}s {}", self.at.seconds(), self.fault)
    }
}

impl Simulation {
    /// Has faults strike at their times.
    pub fn schedule(&mut self, strikes: impl IntoIterator<Item = Strike>) {
        for Strike { at, fault } in strikes {
            self.kernel.push(at.max(self.now()), Occurrence::Strike(fault));
        }
    }

    /// Lets a fault strike now. What it names and is not there (not yet, or a host of another platform) is not struck.
    pub fn strike(&mut self, fault: &Fault) {
        self.kernel.see(|| Seen::Fault { fault });
        self.strike_processes(fault);
        let node = |name: &String| self.node_named(name);
        let host = |name: &String| self.host_named(name);
        match fault {
            Fault::Kill(name) => node(name).map(|node| self.kill(node)),
            Fault::Restart(name) => node(name).and_then(|node| self.restart(node)).map(|_| ()),
            Fault::Hang(name) => node(name).map(|node| self.hang(node)),
            Fault::Pause(name) => node(name).map(|node| self.pause(node)),
            Fault::Resume(name) => node(name).map(|node| self.resume(node)),
            Fault::Cut(a, b) => host(a).zip(host(b)).map(|(a, b)| self.cut(a, b)),
            Fault::Heal(a, b) => host(a).zip(host(b)).map(|(a, b)| self.heal(a, b)),
            Fault::Lose { from, to } => host(from).zip(host(to)).map(|(from, to)| self.lose(from, to)),
            Fault::Reset(a, b) => node(a).zip(node(b)).map(|(a, b)| self.reset(a, b)),
            Fault::HalfOpen { forgets, keeps } => node(forgets).zip(node(keeps)).map(|(a, b)| self.half_open(a, b)),
            Fault::Slow { host: name, factor } => host(name).map(|host| self.slow(host, *factor)),
            Fault::SlowDisk { host: name, factor } => host(name).map(|host| self.slow_disk(host, *factor)),
            Fault::Off(name) => host(name).map(|host| self.turn_off(host)),
            Fault::On(name) => host(name).map(|host| self.turn_on(host)),
            Fault::Full { node: name, for_ns } => node(name).map(|node| self.fill(node, *for_ns)),
        };
    }

    /// Processes that a fault names are struck beside their clients of the grid.
    fn strike_processes(&mut self, fault: &Fault) {
        let (Fault::Kill(name) | Fault::Restart(name) | Fault::Hang(name) | Fault::Pause(name) | Fault::Resume(name)) =
            fault
        else {
            return;
        };
        for process in self.processes.named(name) {
            match fault {
                Fault::Kill(_) => self.kill_process(process, "the process was killed"),
                Fault::Restart(_) => self.restart_process(process),
                Fault::Resume(_) => self.processes.resume(&mut self.kernel, process),
                _ => self.processes.stop(process),
            }
        }
    }

    /// Names of all nodes, in the order in which they were started.
    pub fn names(&self) -> Vec<String> {
        self.nodes.iter().map(|(_, node)| node.name.clone()).collect()
    }

    /// The last node that was started under that name.
    pub fn node_named(&self, name: &str) -> Option<NodeId> {
        self.nodes.named(name)
    }

    /// The host of that name, or of the node of that name.
    fn host_named(&self, name: &str) -> Option<HostId> {
        self.platform.host(name).or_else(|| self.node_named(name).map(|node| self.node(node).host))
    }
}

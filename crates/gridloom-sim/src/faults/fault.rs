//! Faults as data: the node or host that breaks or is repaired, by name, and when.

use std::fmt;

use gridloom_base::Time;
use gridloom_base::time::ns_to_seconds;

/// The kinds of faults. To add one, add a variant here, a line in [`Kind::ALL`], and its effect in [`Simulation::apply_fault`].
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
    Corrupt,
    Reset,
    HalfOpen,
    Slow,
    SlowDisk,
    Full,
    FullDisk,
    Off,
    On,
}

impl Kind {
    /// Each kind with its keyword in a scenario, its syntax, and its description.
    pub const ALL: &[(Kind, &str, &str, &str)] = &[
        (Kind::Kill, "kill", "kill NODE", "the process ends without warning"),
        (Kind::Restart, "restart", "restart NODE", "an agent or server restarts at its address"),
        (Kind::Hang, "hang", "hang NODE", "it stops reacting, but its connections stay up"),
        (Kind::Pause, "pause", "pause NODE [for TIME]", "it stops reacting for a while; its inputs wait"),
        (Kind::Resume, "resume", "resume NODE", "a paused node resumes"),
        (Kind::Cut, "cut", "cut HOST HOST [for TIME]", "nothing passes between two hosts"),
        (Kind::Heal, "heal", "heal HOST HOST", "everything passes between them again"),
        (Kind::Lose, "lose", "lose HOST -> HOST [for TIME]", "nothing passes from one host to another"),
        (
            Kind::Corrupt,
            "corrupt",
            "corrupt HOST HOST FRACTION [for TIME]",
            "that fraction of the data between them is corrupted",
        ),
        (Kind::Reset, "reset", "reset NODE NODE", "both lose their connection"),
        (Kind::HalfOpen, "half-open", "half-open NODE NODE", "the first forgets their connection"),
        (Kind::Slow, "slow", "slow HOST FACTOR [for TIME]", "a host computes at that factor of its speed"),
        (
            Kind::SlowDisk,
            "slow-disk",
            "slow-disk HOST FACTOR [for TIME]",
            "its disk reads and writes at that factor of its rate",
        ),
        (Kind::Full, "full", "full NODE for TIME", "it accepts no data"),
        (Kind::FullDisk, "full-disk", "full-disk SERVER for TIME", "it can write no durable data"),
        (Kind::Off, "off", "off HOST [for TIME]", "a host crashes: everything that runs there ends"),
        (Kind::On, "on", "on HOST", "it starts again, with its agent and servers"),
    ];

    pub fn name(self) -> &'static str {
        Kind::ALL.iter().find(|(kind, ..)| *kind == self).expect("the table has every kind").1
    }
}

/// A fault or a repair. Nodes and hosts are named as in the platform and the grid. If several nodes have had the same
/// name, it means the last one.
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
    Corrupt { a: String, b: String, fraction: f64 },
    Reset(String, String),
    HalfOpen { forgets: String, keeps: String },
    Slow { host: String, factor: f64 },
    SlowDisk { host: String, factor: f64 },
    Full { node: String, for_ns: u64 },
    FullDisk { server: String, for_ns: u64 },
    Off(String),
    On(String),
}

/// A fault with its time.
#[derive(Clone, PartialEq, Debug)]
pub struct ScheduledFault {
    pub at: Time,
    pub fault: Fault,
}

impl Fault {
    /// Returns the kind of the fault.
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
            Fault::Corrupt { .. } => Kind::Corrupt,
            Fault::Reset(..) => Kind::Reset,
            Fault::HalfOpen { .. } => Kind::HalfOpen,
            Fault::Slow { .. } => Kind::Slow,
            Fault::SlowDisk { .. } => Kind::SlowDisk,
            Fault::Full { .. } => Kind::Full,
            Fault::FullDisk { .. } => Kind::FullDisk,
            Fault::Off(_) => Kind::Off,
            Fault::On(_) => Kind::On,
        }
    }

    /// Returns the nodes that the fault names.
    pub fn named_nodes(&self) -> Vec<&str> {
        match self {
            Fault::Kill(node)
            | Fault::Restart(node)
            | Fault::Hang(node)
            | Fault::Pause(node)
            | Fault::Resume(node)
            | Fault::Full { node, .. }
            | Fault::FullDisk { server: node, .. } => vec![node],
            Fault::Reset(a, b) | Fault::HalfOpen { forgets: a, keeps: b } => vec![a, b],
            Fault::Cut(..)
            | Fault::Heal(..)
            | Fault::Lose { .. }
            | Fault::Corrupt { .. }
            | Fault::Slow { .. }
            | Fault::SlowDisk { .. }
            | Fault::Off(_)
            | Fault::On(_) => Vec::new(),
        }
    }

    /// Reports whether the fault restarts a process.
    pub(crate) fn restarts_process(&self) -> bool {
        matches!(self, Fault::Restart(_)) && self.may_affect_process()
    }

    /// Reports whether the fault may affect a process of a deployment, named as `function@host` or by its host.
    pub(crate) fn may_affect_process(&self) -> bool {
        if matches!(self, Fault::Off(_) | Fault::On(_)) {
            return true;
        }
        let is_of_all =
            matches!(self, Fault::Full { .. } | Fault::FullDisk { .. } | Fault::Reset(..) | Fault::HalfOpen { .. });
        !is_of_all && self.named_nodes().iter().any(|name| name.contains('@'))
    }

    /// Returns the hosts that the fault names.
    pub fn hosts(&self) -> Vec<&str> {
        match self {
            Fault::Cut(a, b) | Fault::Heal(a, b) | Fault::Lose { from: a, to: b } | Fault::Corrupt { a, b, .. } => {
                vec![a, b]
            }
            Fault::Slow { host, .. } | Fault::SlowDisk { host, .. } | Fault::Off(host) | Fault::On(host) => vec![host],
            Fault::Kill(_)
            | Fault::Restart(_)
            | Fault::Hang(_)
            | Fault::Pause(_)
            | Fault::Resume(_)
            | Fault::Full { .. }
            | Fault::FullDisk { .. }
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
            Fault::Corrupt { a, b, fraction } => write!(f, "{word} {a} {b} {fraction}"),
            Fault::Lose { from, to } => write!(f, "{word} {from} -> {to}"),
            Fault::Slow { host, factor } | Fault::SlowDisk { host, factor } => write!(f, "{word} {host} {factor}"),
            Fault::Full { node, for_ns } | Fault::FullDisk { server: node, for_ns } => {
                write!(f, "{word} {node} for {}s", ns_to_seconds(*for_ns))
            }
        }
    }
}

/// Formats the fault as a line of a scenario.
impl fmt::Display for ScheduledFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at {}s {}", self.at.seconds(), self.fault)
    }
}

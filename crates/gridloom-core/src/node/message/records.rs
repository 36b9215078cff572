//! Records of a grid: what each user has used, and who did what. Servers report to the agent, and clients request the usage.

use serde::{Deserialize, Serialize};

use gridloom_base::limits::DATUM_NAME_BYTES_MAX;
use gridloom_base::{Program, truncated};

/// The usage of a user.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Usage {
    /// Calls that returned results.
    pub succeeded: u64,
    pub failed: u64,
    pub cancelled: u64,
    /// Time for which slots were occupied, in nanoseconds: run time times slots.
    pub slot_ns: u64,
    /// Bytes that programs sent to servers.
    pub received_bytes: u64,
    /// Bytes that servers sent to programs.
    pub sent_bytes: u64,
}

impl Usage {
    /// Adds another usage.
    pub fn add(&mut self, other: &Usage) {
        self.combine(other, u64::saturating_add);
    }

    /// Returns the usage since an earlier one.
    pub fn since(&self, earlier: &Usage) -> Usage {
        let mut difference = *self;
        difference.combine(earlier, u64::saturating_sub);
        difference
    }

    pub fn is_empty(&self) -> bool {
        *self == Usage::default()
    }

    fn combine(&mut self, other: &Usage, of: impl Fn(u64, u64) -> u64) {
        let Usage { succeeded, failed, cancelled, slot_ns, received_bytes, sent_bytes } = other;
        self.succeeded = of(self.succeeded, *succeeded);
        self.failed = of(self.failed, *failed);
        self.cancelled = of(self.cancelled, *cancelled);
        self.slot_ns = of(self.slot_ns, *slot_ns);
        self.received_bytes = of(self.received_bytes, *received_bytes);
        self.sent_bytes = of(self.sent_bytes, *sent_bytes);
    }
}

/// The usage of a user.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct UserUsage {
    /// The name in the user's certificate, or [`OTHER_USERS`].
    pub user: String,
    pub usage: Usage,
}

/// Stands for all users beyond the maximum number. No certificate has this name.
pub const OTHER_USERS: &str = "\u{0}others";

/// The usage of a user on one day.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DayUsage {
    /// Days since 1970-01-01, UTC.
    pub day: u32,
    pub user: String,
    pub usage: Usage,
}

/// A client requests the usage of some days. Administrators see all users, others only themselves.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct UsageQuery {
    /// The first and the last day.
    pub days: (u32, u32),
    /// Selects only this user.
    pub user: Option<String>,
    /// Selects only entries after this day and user.
    pub after: Option<(u32, String)>,
}

/// The answer to a [`UsageQuery`].
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct UsagePage {
    /// Entries in order of day and user.
    pub entries: Vec<DayUsage>,
    pub has_more: bool,
    /// Bytes of shared data that each user stores now, in all copies. Empty in answers to queries with `after`.
    pub stored_bytes: Vec<(String, u64)>,
    /// Bytes that each user has on disks of servers now, as they reported last: durable data, and data that do not fit into memory.
    /// Empty in answers to queries with `after`.
    #[serde(default)]
    pub disk_bytes: Vec<(String, u64)>,
    /// Bytes over links of the rules today. Empty in answers to queries with `after`.
    #[serde(default)]
    pub links: Vec<LinkUse>,
}

/// The bytes that the data of a user have taken over a link of the rules on one day.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LinkUse {
    pub user: String,
    pub link: String,
    pub bytes: u64,
}

/// An event that the agent records, for the audit log.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AuditRecord {
    pub event: AuditEvent,
    /// Who did it, as far as known.
    pub by: Program,
    /// The shared name, the function, the call or the role that it concerns.
    pub what: String,
    /// The server where it happened; empty for the agent.
    pub server: String,
    /// An address of the peer, if known.
    pub address: String,
    pub outcome: AuditOutcome,
    /// Reason of a refusal or an end; empty if there is none.
    pub why: String,
    /// Number of events that the record represents.
    pub count: u64,
}

impl AuditRecord {
    /// Returns the record of a single event with outcome `Done` at the agent.
    pub fn new(event: AuditEvent, by: Program, what: impl Into<String>) -> AuditRecord {
        let (server, address, why) = Default::default();
        let what = shortened(what.into());
        AuditRecord { event, by, what, server, address, outcome: AuditOutcome::Done, why, count: 1 }
    }

    #[must_use]
    pub fn refused(self, why: impl Into<String>) -> AuditRecord {
        AuditRecord { outcome: AuditOutcome::Refused, why: shortened(why.into()), ..self }
    }
}

/// Limits a text that a client may have chosen.
fn shortened(mut text: String) -> String {
    text.truncate(truncated(&text, DATUM_NAME_BYTES_MAX).len());
    text.shrink_to_fit();
    text
}

/// The kind of an [`AuditRecord`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AuditEvent {
    /// A node connected to the agent.
    Join,
    /// A node is no longer connected to the agent.
    Leave,
    /// A connection was refused.
    Connect,
    /// Calls of a function ended.
    Call,
    /// An operator requested to cancel a call.
    Cancel,
    /// A shared name was put.
    Put,
    /// A shared name was found, to read its data.
    Find,
    /// A shared name was shared with other users.
    Share,
    /// A shared name was deleted.
    Delete,
    /// Events of one user were not recorded, because there were too many.
    Suppressed,
}

/// How an event ended.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AuditOutcome {
    Done,
    Failed,
    Cancelled,
    Refused,
}

/// A server's report for the agent's records.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ServerRecords {
    /// Totals since the server started, of users whose totals may have changed since the last report.
    pub usage: Vec<UserUsage>,
    /// What happened since the last report: the numbers of calls, and cancellations and refusals.
    pub audit: Vec<AuditRecord>,
    /// Bytes on the server's disk by user, if they may have changed since the last report.
    #[serde(default)]
    pub disk_bytes: Option<Vec<(String, u64)>>,
    /// A day, counted from 1970-01-01, and the bytes that the server has received over links on it, if they may have changed since the
    /// last report.
    #[serde(default)]
    pub links: Option<(u32, Vec<LinkUse>)>,
}

impl ServerRecords {
    pub fn is_empty(&self) -> bool {
        self.usage.is_empty() && self.audit.is_empty() && self.disk_bytes.is_none() && self.links.is_none()
    }
}

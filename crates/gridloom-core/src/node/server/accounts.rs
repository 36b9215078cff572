//! Accounts: what each user has used of this server since it started, and what the audit log records of its calls.
//!
//! The agent receives the totals, not their changes: a report that is lost or repeated does no harm. The numbers of calls for the
//! audit log are sent once, so the agent misses those of a report that was lost with its connection.
//!
//! **Limits:** a call counts when it ends. If the process is killed, what happened since its last report is lost, at most
//! [`USAGE_REPORT_NS`].

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Server, send};
use crate::exec::TaskEntry;
use crate::graph::TaskKind;
use crate::node::message::{
    AuditEvent, AuditOutcome, AuditRecord, DirectoryToAgent, OTHER_USERS, ServerRecords, Usage, UserUsage,
};
use crate::node::protocol::Effect;
use crate::node::record_limit::RecordLimit;
use gridloom_base::limits::{AUDIT_PER_REPORT, AUDIT_RECORDS_MAX, USAGE_REPORT_NS, USAGE_USERS_MAX};
use gridloom_base::{NodeId, Program, TaskError, Time};

/// Interval at which all totals are reported again, although they have not changed: an agent forgets servers that are silent
/// for many days.
const REPEAT_NS: u64 = 24 * 3600 * gridloom_base::time::SECOND_NS;

#[derive(Debug)]
pub(super) struct Accounts {
    users: BTreeMap<Arc<str>, Account>,
    /// Calls that have ended since the last report, by program, function and outcome.
    calls: BTreeMap<(NodeId, String, AuditOutcome), (Program, u64)>,
    /// Calls and requests that are not recorded, because a report would be too long.
    unrecorded: u64,
    /// Other records since the last report.
    records: Vec<AuditRecord>,
    limit: RecordLimit,
    /// Bytes on disk by user, as reported last; `None` if the agent may not know them.
    disk_bytes: Option<BTreeMap<String, u64>>,
    reported: Time,
    reported_all: Time,
}

impl Default for Accounts {
    fn default() -> Accounts {
        let (users, calls, unrecorded, records) = Default::default();
        let limit = RecordLimit::new(AUDIT_RECORDS_MAX);
        let (disk_bytes, reported, reported_all) = (None, Time::ZERO, Time::ZERO);
        Accounts { users, calls, unrecorded, records, limit, disk_bytes, reported, reported_all }
    }
}

#[derive(Debug, Default)]
struct Account {
    total: Usage,
    is_changed: bool,
}

impl Accounts {
    fn change(&mut self, user: &Arc<str>, change: impl FnOnce(&mut Usage)) {
        let is_separate = self.users.len() < USAGE_USERS_MAX || self.users.contains_key(user);
        let user = if is_separate { user.clone() } else { OTHER_USERS.into() };
        let account = self.users.entry(user).or_default();
        change(&mut account.total);
        account.is_changed = true;
    }

    /// Counts a call that has ended.
    fn add_call(&mut self, user: &Arc<str>, by: Program, function: &str, outcome: AuditOutcome, slot_ns: u64) {
        self.change(user, |total| {
            *match outcome {
                AuditOutcome::Done => &mut total.succeeded,
                AuditOutcome::Cancelled => &mut total.cancelled,
                AuditOutcome::Failed | AuditOutcome::Refused => &mut total.failed,
            } += 1;
            total.slot_ns = total.slot_ns.saturating_add(slot_ns);
        });
        let (key, is_full) = ((by.client, function.to_string(), outcome), self.calls.len() >= AUDIT_PER_REPORT);
        match self.calls.get_mut(&key) {
            Some((_, count)) => *count += 1,
            None if is_full => self.unrecorded += 1,
            None if self.limit.admit(user) => _ = self.calls.insert(key, (by, 1)),
            None => {}
        }
    }

    /// Counts bytes that a program sent here.
    pub(super) fn received(&mut self, user: &Arc<str>, bytes: u64) {
        self.change(user, |total| total.received_bytes = total.received_bytes.saturating_add(bytes));
    }

    /// Counts bytes that were sent to a program.
    pub(super) fn sent(&mut self, user: &Arc<str>, bytes: u64) {
        self.change(user, |total| total.sent_bytes = total.sent_bytes.saturating_add(bytes));
    }

    /// Adds a record for the audit log, unless its user has too many of them.
    fn record(&mut self, record: AuditRecord) {
        if self.records.len() >= AUDIT_PER_REPORT {
            self.unrecorded += 1;
        } else if self.limit.admit(&record.by.user) {
            self.records.push(record);
        }
    }

    /// Marks all totals as changed: the agent may not know them.
    pub(super) fn repeat(&mut self, now: Time) {
        self.reported_all = now;
        self.disk_bytes = None;
        self.users.values_mut().for_each(|account| account.is_changed = true);
    }

    /// True if a report is due.
    fn is_due(&mut self, now: Time) -> bool {
        if now.since(self.reported_all) >= REPEAT_NS {
            self.repeat(now);
        }
        now.since(self.reported) >= USAGE_REPORT_NS
    }

    /// Returns the report for the agent. `disk_bytes` has the bytes that are on disk by user.
    fn take_report(&mut self, now: Time, mut disk_bytes: BTreeMap<String, u64>) -> ServerRecords {
        self.reported = now;
        while disk_bytes.len() > USAGE_USERS_MAX {
            disk_bytes.pop_last();
        }
        // An agent that knows nothing of a server assumes that nothing is on its disk.
        let is_changed = *self.disk_bytes.get_or_insert_default() != disk_bytes;
        let reported_disk = is_changed.then(|| disk_bytes.iter().map(|(user, bytes)| (user.clone(), *bytes)).collect());
        self.disk_bytes = Some(disk_bytes);
        let mut usage = Vec::new();
        for (user, account) in &mut self.users {
            if std::mem::take(&mut account.is_changed) {
                usage.push(UserUsage { user: user.to_string(), usage: account.total });
            }
        }
        let mut audit = std::mem::take(&mut self.records);
        for ((_, function, outcome), (by, count)) in std::mem::take(&mut self.calls) {
            audit.push(AuditRecord { outcome, count, ..AuditRecord::new(AuditEvent::Call, by, function) });
        }
        let nobody = |user: &str| Program { user: user.into(), ..unknown() };
        let suppressed = |user: &str, count, what| AuditRecord {
            count,
            ..AuditRecord::new(AuditEvent::Suppressed, nobody(user), what)
        };
        match std::mem::take(&mut self.unrecorded) {
            0 => {}
            count => audit.push(suppressed(OTHER_USERS, count, "calls and requests")),
        }
        let of_users = self.limit.begin_period(now).into_iter();
        audit.extend(of_users.map(|(user, count)| suppressed(&user, count, "records of a server")));
        ServerRecords { usage, audit, disk_bytes: reported_disk, links: None }
    }
}

fn unknown() -> Program {
    Program { client: NodeId::CATALOG, user: String::new(), host: String::new(), name: String::new() }
}

impl Server {
    /// Counts a call that has ended or was removed before it began. Other tasks are not counted: users do not request them.
    pub(super) fn count_call(&mut self, entry: &TaskEntry, error: Option<&TaskError>, slot_ns: u64) {
        let task = &entry.task;
        let is_call = matches!(task.kind, TaskKind::Call { .. } | TaskKind::Method { .. });
        if !is_call || task.options.is_measuring {
            return;
        }
        let outcome = match error {
            None => AuditOutcome::Done,
            Some(TaskError::Cancelled) => AuditOutcome::Cancelled,
            Some(_) => AuditOutcome::Failed,
        };
        let user = &entry.owner.user;
        let by = self.programs.of(task).cloned();
        let by = by.unwrap_or_else(|| Program { client: task.program(), ..unknown() });
        let by = Program { user: user.to_string(), ..by };
        self.accounts.add_call(user, by, task.name(), outcome, slot_ns);
    }

    /// Counts data that a client sent here.
    pub(super) fn count_received(&mut self, from: NodeId, bytes: u64) {
        if let Some(user) = self.programs.user_of_client(from) {
            self.accounts.received(&user, bytes);
        }
    }

    /// Counts data that are sent to a client.
    pub(super) fn count_sent(&mut self, to: NodeId, bytes: u64) {
        if let Some(user) = self.programs.user_of_client(to) {
            self.accounts.sent(&user, bytes);
        }
    }

    /// Records for the audit log that a client requested something, and whether it was permitted.
    pub(super) fn record_request(
        &mut self,
        client: NodeId,
        event: AuditEvent,
        what: &str,
        permitted: Result<(), &str>,
    ) {
        let by = self.programs.program(client).cloned().unwrap_or_else(|| Program { client, ..unknown() });
        let record = AuditRecord::new(event, by, what);
        self.accounts.record(match permitted {
            Ok(()) => record,
            Err(why) => record.refused(why),
        });
    }

    /// Reports to the agent, if it is time.
    pub(super) fn report_accounts_when_due(&mut self, now: Time, out: &mut Vec<Effect>) {
        if self.accounts.is_due(now) {
            self.report_accounts(now, out);
        }
    }

    /// Reports to the agent, if there is one. Otherwise everything is kept for the next report.
    pub(super) fn report_accounts(&mut self, now: Time, out: &mut Vec<Effect>) {
        let Some(agent) = self.registering.agent().filter(|_| self.registering.is_accepted()) else { return };
        let mut report = self.accounts.take_report(now, self.disk_bytes());
        report.links = self.link_quotas.take_report();
        if !report.is_empty() {
            send(out, agent, DirectoryToAgent::Records(report));
        }
    }

    /// Handles the end of the process: counts the calls that end with it.
    pub(super) fn stop(&mut self, now: Time, out: &mut Vec<Effect>) {
        let running: Vec<TaskEntry> = self.admission.tasks().filter(|entry| entry.state.has_begun()).cloned().collect();
        for entry in running {
            let waited_ns = self.pauses.waited_ns(now, entry.task.id);
            let run_ns = self.learning.elapsed_ns(now, entry.task.id).saturating_sub(waited_ns);
            self.count_call(&entry, Some(&TaskError::Cancelled), slot_ns(&entry, run_ns));
        }
        self.report_accounts(now, out);
    }
}

/// Returns the slot time of a call whose function ran that long without waiting for other calls.
pub(super) fn slot_ns(entry: &TaskEntry, run_ns: u64) -> u64 {
    run_ns.saturating_mul(entry.task.options.gang.max(1).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(client: u64, user: &str) -> Program {
        Program { client: NodeId(client), user: user.into(), ..unknown() }
    }

    #[test]
    fn totals_are_repeated_and_numbers_of_calls_are_not() {
        let (mut accounts, anna) = (Accounts::default(), Arc::<str>::from("anna"));
        let now = Time(USAGE_REPORT_NS);
        assert!(!accounts.is_due(Time(USAGE_REPORT_NS - 1)) && accounts.is_due(now));
        accounts.add_call(&anna, program(1, "anna"), "m/f", AuditOutcome::Done, 5);
        accounts.add_call(&anna, program(1, "anna"), "m/f", AuditOutcome::Done, 6);
        accounts.add_call(&anna, program(1, "anna"), "m/f", AuditOutcome::Failed, 1);
        accounts.received(&anna, 100);
        let report = accounts.take_report(now, BTreeMap::new());
        let usage = Usage { succeeded: 2, failed: 1, slot_ns: 12, received_bytes: 100, ..Usage::default() };
        assert_eq!(report.usage, [UserUsage { user: "anna".into(), usage }]);
        let counts: Vec<(AuditOutcome, u64)> = report.audit.iter().map(|one| (one.outcome, one.count)).collect();
        assert_eq!(counts, [(AuditOutcome::Done, 2), (AuditOutcome::Failed, 1)]);
        assert!(accounts.take_report(now, BTreeMap::new()).is_empty());
        accounts.repeat(now);
        let again = accounts.take_report(now, BTreeMap::new());
        assert_eq!((again.usage, again.audit.len()), (report.usage, 0));
    }

    #[test]
    fn bytes_on_disk_are_reported_when_they_change() {
        let mut accounts = Accounts::default();
        let on_disk = |bytes| BTreeMap::from([("anna".to_string(), bytes)]);
        let take = |accounts: &mut Accounts, disk_bytes| accounts.take_report(Time(1), disk_bytes).disk_bytes;
        assert_eq!(take(&mut accounts, BTreeMap::new()), None);
        assert_eq!(take(&mut accounts, on_disk(7)), Some(vec![("anna".to_string(), 7)]));
        assert_eq!(take(&mut accounts, on_disk(7)), None);
        accounts.repeat(Time(2));
        assert_eq!(take(&mut accounts, on_disk(7)), Some(vec![("anna".to_string(), 7)]));
        assert_eq!(take(&mut accounts, BTreeMap::new()), Some(vec![]));
    }

    #[test]
    fn users_calls_and_records_are_limited() {
        let mut accounts = Accounts::default();
        for number in 0..2000_u64 {
            let user: Arc<str> = format!("user {number}").into();
            accounts.add_call(&user, program(number, &user), "m/f", AuditOutcome::Done, 1);
        }
        for _ in 0..2000 {
            accounts
                .record(AuditRecord::new(AuditEvent::Cancel, program(1, "mallory"), "t1@n1").refused("not permitted"));
        }
        let report = accounts.take_report(Time(1), BTreeMap::new());
        let total: u64 = report.usage.iter().map(|one| one.usage.succeeded).sum();
        assert_eq!((report.usage.len(), total), (USAGE_USERS_MAX + 1, 2000));
        let calls = report.audit.iter().filter(|one| one.event == AuditEvent::Call).map(|one| one.count);
        assert_eq!(calls.sum::<u64>(), AUDIT_PER_REPORT as u64);
        let suppressed: Vec<(&str, u64)> = report
            .audit
            .iter()
            .filter(|one| one.event == AuditEvent::Suppressed)
            .map(|one| (one.by.user.as_str(), one.count))
            .collect();
        let (calls, refusals) = (2000 - AUDIT_PER_REPORT as u64, 2000 - u64::from(AUDIT_RECORDS_MAX));
        assert_eq!(suppressed, [(OTHER_USERS, calls), ("mallory", refusals)]);
        assert!(report.audit.len() <= 2 * AUDIT_PER_REPORT);
    }
}

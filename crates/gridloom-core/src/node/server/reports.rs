//! Reports to clients and to the agent: tasks that ended, and transfers that were measured here.

use std::collections::{BTreeMap, BTreeSet};

use super::send;
use crate::node::message::{LinkToAgent, TaskReport, TaskTimes, TaskToClient, TransferReport};
use crate::node::protocol::Effect;
use crate::node::unreported::UnreportedTransfers;
use gridloom_base::limits::{BLOCKERS_REPORTED_MAX, EAGER_BYTES_MAX};
use gridloom_base::{DatumId, Meta, NodeId, TaskError, TaskId, Time};

#[derive(Debug, Default)]
pub(super) struct Reports {
    /// Transfers that are not reported yet, by the client that owns the datum.
    transfers: BTreeMap<NodeId, Vec<(TransferReport, Time)>>,
    /// Transfers that are not reported to the agent yet.
    seen: UnreportedTransfers,
    timer_is_set: bool,
    /// The timer is set after which clients are notified of tasks that keep theirs waiting.
    waits_timer_is_set: bool,
    /// Clients that were notified of such tasks.
    notified_clients: BTreeSet<NodeId>,
}

impl Reports {
    /// Records a transfer that ended here. `is_measure`: the link determined the transfer's duration. Returns true if
    /// the caller must set the timer after which the agent and the owner are notified.
    #[must_use]
    pub(super) fn transferred(&mut self, now: Time, report: TransferReport, is_measure: bool) -> bool {
        self.transfers.entry(report.datum.client).or_default().push((report, now));
        let is_learned = is_measure && self.seen.add(now, report.from, report.size_bytes, report.run_ns);
        // The owner needs to know whether a task waits for its data or for a slot. The catalog has no other source of
        // information about copies.
        let is_news = is_learned || report.size_bytes > EAGER_BYTES_MAX || report.datum.is_shared();
        is_news && !std::mem::replace(&mut self.timer_is_set, true)
    }

    /// Handles the timer. Returns the report for the agent.
    pub(super) fn take_seen(&mut self, now: Time) -> Option<LinkToAgent> {
        self.timer_is_set = false;
        let transfers = self.seen.take(now);
        (!transfers.is_empty()).then_some(LinkToAgent::TransfersReceived { transfers })
    }

    /// Reports transfers to all clients that own one of the data.
    pub(super) fn report_all_transfers(&mut self, now: Time, others: impl Fn(NodeId) -> u32, out: &mut Vec<Effect>) {
        for client in self.transfers.keys().copied().collect::<Vec<_>>() {
            self.report_transfers(now, client, others(client), out);
        }
    }

    /// Reports the end of a task. `others` is the number of tasks of other clients at this server.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn report_task(
        &mut self,
        now: Time,
        client: NodeId,
        task: TaskId,
        outcome: Result<Vec<(DatumId, Meta)>, TaskError>,
        run_ns: u64,
        others: u32,
        out: &mut Vec<Effect>,
    ) {
        let transfers = self.take_transfers(now, client);
        let report = TaskReport { task, outcome, timing: TaskTimes { run_ns, age_ns: 0 } };
        send(out, client, TaskToClient::TasksEnded { reports: vec![report], transfers, other_tasks: others });
    }

    /// Reports the data that arrived here for a client at once, so that the report does not follow the one of their removal.
    pub(super) fn report_transfers(&mut self, now: Time, client: NodeId, others: u32, out: &mut Vec<Effect>) {
        let transfers = self.take_transfers(now, client);
        if !transfers.is_empty() {
            send(out, client, TaskToClient::TasksEnded { reports: Vec::new(), transfers, other_tasks: others });
        }
    }

    fn take_transfers(&mut self, now: Time, client: NodeId) -> Vec<TransferReport> {
        let transfers = self.transfers.remove(&client).unwrap_or_default();
        let aged = transfers.into_iter().map(|(report, at)| TransferReport { age_ns: now.since(at), ..report });
        aged.collect()
    }

    pub(super) fn forget_client(&mut self, client: NodeId) {
        self.transfers.remove(&client);
        self.notified_clients.remove(&client);
    }

    /// Tasks of several clients are here, and some wait. Returns true if the caller must set the timer after which
    /// clients are notified.
    #[must_use]
    pub(super) fn start_waits_timer(&mut self) -> bool {
        !std::mem::replace(&mut self.waits_timer_is_set, true)
    }

    /// Handles the timer. Notifies clients how long the tasks of other clients have run that keep theirs waiting.
    /// Returns true if the caller must set the timer again.
    pub(super) fn report_waits(&mut self, running_ns: BTreeMap<NodeId, Vec<u64>>, out: &mut Vec<Effect>) -> bool {
        let over = self.notified_clients.iter().filter(|client| !running_ns.contains_key(client));
        over.for_each(|client| send(out, *client, TaskToClient::OtherTasksRunning { elapsed_ns: Vec::new() }));
        self.notified_clients = running_ns.keys().copied().collect();
        for (client, mut elapsed_ns) in running_ns {
            elapsed_ns.sort_unstable_by(|a, b| b.cmp(a));
            elapsed_ns.truncate(BLOCKERS_REPORTED_MAX);
            send(out, client, TaskToClient::OtherTasksRunning { elapsed_ns });
        }
        self.waits_timer_is_set = !self.notified_clients.is_empty();
        self.waits_timer_is_set
    }

    /// Returns the number of clients with transfers to report.
    pub(super) fn clients(&self) -> usize {
        self.transfers.len()
    }

    pub(super) fn check(&self) -> Result<(), String> {
        let is_of_another = |(client, of): (&NodeId, &Vec<(TransferReport, Time)>)| {
            of.is_empty() || of.iter().any(|(report, _)| report.datum.client != *client)
        };
        if self.transfers.iter().any(is_of_another) {
            Err("a transfer is listed for another client".into())
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transfer_is_reported_once_and_with_its_age() {
        let (client, from, to) = (NodeId(7), NodeId(2), NodeId(1));
        let datum = DatumId { client, serial: 1 };
        let report = TransferReport { datum, from, to, size_bytes: 8, run_ns: 0, age_ns: 0 };
        let mut reports = Reports::default();
        assert!(!reports.transferred(Time(5), report, true), "it is too small to learn from");
        reports.check().unwrap();
        let mut out = Vec::new();
        for _ in 0..2 {
            reports.report_all_transfers(Time(9), |_| 2, &mut out);
        }
        let transfers = vec![TransferReport { age_ns: 4, ..report }];
        let message = TaskToClient::TasksEnded { reports: Vec::new(), transfers, other_tasks: 2 }.into();
        assert_eq!(out, [Effect::Send { to: client, message }]);
        assert_eq!((reports.clients(), reports.take_seen(Time(9))), (0, None));
    }
}

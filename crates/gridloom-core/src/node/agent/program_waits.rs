//! The pending requests of programs, as reported by their clients, for operators.

use std::collections::BTreeMap;

use crate::node::message::ProgramWaits;
use gridloom_base::limits::{TASKS_PER_MESSAGE, WAIT_TEXT_BYTES_MAX, WAITS_PER_PROGRAM_MAX};
use gridloom_base::{NodeId, Program, Time, truncated};

#[derive(Debug, Default)]
pub(super) struct ReportedWaits {
    /// For each program, the time of its last event and its pending requests, at least one.
    waits: BTreeMap<NodeId, (Time, Vec<String>)>,
}

impl ReportedWaits {
    /// Records a client's report. Texts beyond the maximum number are dropped, and long texts are truncated.
    pub(super) fn report(&mut self, now: Time, client: NodeId, waited_ns: u64, mut waits: Vec<String>) {
        waits.truncate(WAITS_PER_PROGRAM_MAX);
        for text in &mut waits {
            text.truncate(truncated(text, WAIT_TEXT_BYTES_MAX).len());
        }
        match waits.is_empty() {
            true => _ = self.waits.remove(&client),
            false => _ = self.waits.insert(client, (Time(now.0.saturating_sub(waited_ns)), waits)),
        }
    }

    pub(super) fn forget(&mut self, client: NodeId) {
        self.waits.remove(&client);
    }

    /// Returns the longest waits first, for at most as many programs as fit into one message.
    pub(super) fn longest(&self, now: Time, program_of: impl Fn(NodeId) -> Option<Program>) -> Vec<ProgramWaits> {
        let mut longest: Vec<(&Time, &NodeId)> =
            self.waits.iter().map(|(client, (since, _))| (since, client)).collect();
        longest.sort_unstable();
        let of = |(since, client): (&Time, &NodeId)| {
            let (waited_ns, waits) = (now.since(*since), self.waits[client].1.clone());
            Some(ProgramWaits { program: program_of(*client)?, waited_ns, waits })
        };
        longest.into_iter().filter_map(of).take(TASKS_PER_MESSAGE).collect()
    }
}

#[cfg(test)]
mod tests {
    use gridloom_base::Origin;

    use super::*;

    #[test]
    fn the_longest_waits_are_first_and_reports_are_limited() {
        let mut reported = ReportedWaits::default();
        reported.report(Time(100), NodeId(2), 10, vec!["a".into()]);
        reported.report(Time(100), NodeId(3), u64::MAX, vec!["\u{e9}".repeat(WAIT_TEXT_BYTES_MAX); 1000]);
        reported.report(Time(100), NodeId(4), 20, vec!["c".into()]);
        reported.report(Time(101), NodeId(4), 0, Vec::new());
        let program_of = |client| Some(Origin::default().program(client, "train.py"));
        let longest = reported.longest(Time(200), program_of);
        let times: Vec<(NodeId, u64)> = longest.iter().map(|one| (one.program.client, one.waited_ns)).collect();
        assert_eq!(times, [(NodeId(3), 200), (NodeId(2), 110)]);
        assert!(longest[0].waits.len() == WAITS_PER_PROGRAM_MAX && longest[0].waits[0].len() <= WAIT_TEXT_BYTES_MAX);
        reported.forget(NodeId(3));
        assert_eq!(reported.longest(Time(200), program_of).len(), 1);
    }
}

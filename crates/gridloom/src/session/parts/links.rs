//! Links: the agent's knowledge of them, and the session's traffic.

use std::collections::BTreeMap;

use gridloom_base::NodeId;
use gridloom_core::node::message::TransferReport;
use gridloom_perf::LinkReport;
use serde::Serialize;

/// Bytes moved since the session began.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Traffic {
    /// Over links of the client, in both directions.
    pub client_bytes: u64,
    /// Between servers.
    pub server_bytes: u64,
    /// Bytes by pair of names, sender first.
    pub by_link: BTreeMap<String, u64>,
}

/// A session's knowledge of links.
#[derive(Default)]
pub(crate) struct Links {
    /// The last answer of the agent. It is not removed, since several threads may wait for one.
    answer: Vec<LinkReport>,
    /// Number of answers so far.
    answers: u64,
    traffic: Traffic,
}

impl Links {
    pub(crate) fn on_answer(&mut self, links: Vec<LinkReport>) {
        self.answer = links;
        self.answers += 1;
    }

    /// Number of answers so far.
    pub(crate) fn answers(&self) -> u64 {
        self.answers
    }

    pub(crate) fn traffic(&self) -> &Traffic {
        &self.traffic
    }

    /// Returns the last answer, if it is newer than answer number `answers`.
    pub(crate) fn answer_after(&self, answers: u64) -> Option<Vec<LinkReport>> {
        (self.answers > answers).then(|| self.answer.clone())
    }

    pub(crate) fn on_transfer(&mut self, report: &TransferReport, client: NodeId, names: &BTreeMap<NodeId, String>) {
        let is_client = report.from == client || report.to == client;
        let total = if is_client { &mut self.traffic.client_bytes } else { &mut self.traffic.server_bytes };
        *total += report.size_bytes;
        let name = |node: &NodeId| names.get(node).cloned().unwrap_or_else(|| node.to_string());
        let link = format!("{} -> {}", name(&report.from), name(&report.to));
        *self.traffic.by_link.entry(link).or_default() += report.size_bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thread_gets_an_answer_to_its_own_request() {
        let mut links = Links::default();
        let first = links.answers;
        links.on_answer(Vec::new());
        let second = links.answers;
        assert_eq!((links.answer_after(first), links.answer_after(second)), (Some(Vec::new()), None));
        links.on_answer(Vec::new());
        assert_eq!((links.answer_after(second), links.answer_after(first)), (Some(Vec::new()), Some(Vec::new())));
    }
}

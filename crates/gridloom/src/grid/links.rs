//! Links: what the agent knows of them, and what the session has moved over them.

use std::collections::BTreeMap;

use gridloom_base::NodeId;
use gridloom_core::node::Command;
use gridloom_core::node::message::TransferReport;
use gridloom_perf::LinkReport;
use serde::Serialize;

use super::CONNECT_LIMIT;
use crate::{Error, Grid};

/// Bytes moved since the session began.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Traffic {
    /// Over links of the client, both ways.
    pub client_bytes: u64,
    /// Between servers.
    pub server_bytes: u64,
    /// By pair of names, sender first.
    pub by_link: BTreeMap<String, u64>,
}

/// What a session knows of links.
#[derive(Default)]
pub(super) struct Links {
    /// The agent's answer to the last question.
    answer: Option<Vec<LinkReport>>,
    traffic: Traffic,
}

impl Links {
    pub(super) fn on_answer(&mut self, links: Vec<LinkReport>) {
        self.answer = Some(links);
    }

    pub(super) fn on_transfer(&mut self, report: &TransferReport, client: NodeId, names: &BTreeMap<NodeId, String>) {
        let is_client = report.from == client || report.to == client;
        let total = if is_client { &mut self.traffic.client_bytes } else { &mut self.traffic.server_bytes };
        *total += report.size_bytes;
        let name = |node: &NodeId| names.get(node).cloned().unwrap_or_else(|| node.to_string());
        let link = format!("{} -> {}", name(&report.from), name(&report.to));
        *self.traffic.by_link.entry(link).or_default() += report.size_bytes;
    }
}

impl Grid {
    /// What the agent knows of the links between hosts, and of those to clients that are connected.
    ///
    /// # Errors
    /// If the agent does not answer.
    pub fn links(&self) -> Result<Vec<LinkReport>, Error> {
        self.state().links.answer = None;
        self.command(Command::Links);
        self.wait(Some(CONNECT_LIMIT), |state| state.links.answer.take())
    }

    /// Bytes moved since the session began.
    pub fn traffic(&self) -> Traffic {
        self.absorb();
        self.state().links.traffic.clone()
    }
}

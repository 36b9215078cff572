//! Logs the pending requests of a program. If a program has waited for [`QUIET_NS`] without an event, its client logs the
//! reasons of the wait, and logs them again each time the wait has doubled.

use std::collections::BTreeMap;

use super::Client;
use crate::node::protocol::{Effect, Event};
use crate::node::{Category, LogLine};
use gridloom_base::limits::QUIET_NS;
use gridloom_base::time::ns_to_seconds;
use gridloom_base::{Level, NodeId, Time};

/// Maximum number of calls of each server, and of requests about names, in a log line.
const NAMED_MAX: usize = 3;

/// The time without an event for the program.
#[derive(Debug)]
pub(super) struct Quiet {
    since: Time,
    /// Length of the next report.
    report_ns: u64,
}

impl Default for Quiet {
    fn default() -> Self {
        Quiet::from(Time(0))
    }
}

impl Quiet {
    fn from(since: Time) -> Quiet {
        Quiet { since, report_ns: QUIET_NS }
    }
}

impl Client {
    /// Ends the quiet if an event for the program is among these effects.
    pub(super) fn end_quiet(&mut self, now: Time, effects: &[Effect]) {
        let is_event = |effect: &Effect| matches!(effect, Effect::Emit(event) if !matches!(event, Event::Directory { .. } | Event::Log(_)));
        if effects.iter().any(is_event) {
            self.quiet = Quiet::from(now);
        }
    }

    /// Logs the pending requests if the program has waited for long without an event.
    pub(super) fn report_quiet(&mut self, now: Time, out: &mut Vec<Effect>) {
        let is_idle =
            self.queues.len() + self.names.counts().0 == 0 && self.counted_waits().iter().all(|(n, _)| *n == 0);
        if is_idle {
            self.quiet = Quiet::from(now);
            return;
        }
        let quiet_ns = now.since(self.quiet.since);
        if quiet_ns < self.quiet.report_ns {
            return;
        }
        self.quiet.report_ns = self.quiet.report_ns.saturating_mul(2);
        let (running, mut waits) = (self.calls_at_servers(), self.other_waits());
        if self.contacts.agent().is_none() {
            let (agent, why) = (&self.config.agent, self.contacts.agent_fault());
            waits.push(format!("the agent at {agent} is not connected ({why})"));
        }
        // Calls on connected servers may take long.
        let is_normal = waits.is_empty() && running.iter().all(|(_, is_up)| *is_up);
        let level = if is_normal { Level::Info } else { Level::Warning };
        let waits: Vec<String> = running.into_iter().map(|(text, _)| text).chain(waits).collect();
        let text = format!("the program has waited for {:.0} s without an event", ns_to_seconds(quiet_ns));
        out.push(LogLine::new(level, Category::Client, text).why(waits.join("; ")).into());
    }

    /// Returns a text about the calls at each server, and whether the server is connected.
    fn calls_at_servers(&self) -> Vec<(String, bool)> {
        let mut calls: BTreeMap<NodeId, Vec<String>> = BTreeMap::new();
        for (task, server) in self.queues.tasks() {
            let label = self.label_at(task, server).unwrap_or_default();
            calls.entry(server).or_default().push(format!("{task} '{label}'"));
        }
        let text = |(server, calls): (NodeId, Vec<String>)| {
            let is_up = self.contacts.is_up(server);
            let state = if is_up { "" } else { ", which is not connected" };
            (format!("calls at server '{}'{state} {}", self.contacts.name_of(server), listed(&calls)), is_up)
        };
        calls.into_iter().map(text).collect()
    }

    /// Returns the numbers of waits that belong to no server and no request.
    fn counted_waits(&self) -> [(usize, &'static str); 4] {
        [
            (self.plans.waiting(), "groups wait for a plan of the agent"),
            (self.waiting_calls.len(), "calls wait for a server that can run them"),
            (self.backlog.len().0, "calls wait for a free slot"),
            (self.supplies.waiting(), "data wait for a server that can send them"),
        ]
    }

    /// Describes all waits except those for calls at servers.
    fn other_waits(&self) -> Vec<String> {
        let requests: Vec<String> = self.names.texts().collect();
        let counts = self
            .counted_waits()
            .into_iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, what)| format!("{count} {what}"));
        let asked = Some(format!("requests at the agent {}", listed(&requests)));
        counts.chain(asked.filter(|_| !requests.is_empty())).collect()
    }
}

/// Returns a text with the number of items and the first few of them.
fn listed(items: &[String]) -> String {
    let more = if items.len() > NAMED_MAX { ", ..." } else { "" };
    format!("({}): {}{more}", items.len(), items[..items.len().min(NAMED_MAX)].join(", "))
}

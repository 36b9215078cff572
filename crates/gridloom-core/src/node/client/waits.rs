//! Reports the pending requests of a program: what it waits for, from whom and since when. If a program has waited for
//! [`WAITS_REPORT_NS`] without an event, its client reports the reasons of the wait to the agent, where operators see them.
//! After [`QUIET_NS`] the client logs them, and logs them again each time the wait has doubled.

use std::collections::BTreeMap;

use super::{Client, send};
use crate::node::message::DirectoryToAgent;
use crate::node::protocol::{Effect, Event};
use crate::node::{Category, LogLine};
use gridloom_base::limits::{QUIET_NS, WAITS_PER_PROGRAM_MAX, WAITS_REPORT_NS};
use gridloom_base::time::ns_to_seconds;
use gridloom_base::{DatumId, Level, NodeId, Time};

/// Maximum number of calls of each server, and of requests about names, in a log line.
const NAMED_MAX: usize = 3;

/// The time without an event for the program.
#[derive(Debug)]
pub(super) struct Quiet {
    since: Time,
    /// Length of the next report.
    report_ns: u64,
    /// The last report to an agent: the agent, the time of the last event, and the waits.
    reported: Option<(NodeId, Time, Vec<String>)>,
}

impl Default for Quiet {
    fn default() -> Self {
        Quiet { since: Time(0), report_ns: QUIET_NS, reported: None }
    }
}

impl Quiet {
    /// Restarts the measurement of the wait.
    pub(super) fn end(&mut self, now: Time) {
        (self.since, self.report_ns) = (now, QUIET_NS);
    }

    /// Causes a new report: an agent forgets the report of a client when it loses the connection.
    pub(super) fn agent_up(&mut self) {
        self.reported = None;
    }
}

impl Client {
    /// Restarts the measurement of the wait if these effects contain an event that answers a request of the program.
    pub(super) fn end_quiet(&mut self, now: Time, effects: &[Effect]) {
        let is_progress = |effect: &Effect| matches!(effect, Effect::Emit(event) if !is_about_nodes(event));
        if effects.iter().any(is_progress) {
            self.quiet.end(now);
        }
    }

    /// Reports the pending requests to the agent, for operators, and logs them if the program has had no event for a long
    /// time.
    pub(super) fn report_quiet(&mut self, now: Time, out: &mut Vec<Effect>) {
        let is_idle = self.queues.len() + self.names.counts().0 == 0
            && self.counted_waits().iter().all(|(n, _)| *n == 0)
            && self.graph.wanted().next().is_none();
        if is_idle {
            self.quiet.end(now);
        }
        let quiet_ns = now.since(self.quiet.since);
        if quiet_ns < WAITS_REPORT_NS {
            return self.report_to_agent(now, Vec::new(), out);
        }
        let running = self.calls_at_servers().into_iter().map(|(text, _)| text);
        // The list is cut: a program may wait for many servers that work.
        let waits = self.other_waits().into_iter().chain(running).collect();
        self.report_to_agent(now, waits, out);
        if quiet_ns < self.quiet.report_ns {
            return;
        }
        self.quiet.report_ns = self.quiet.report_ns.saturating_mul(2);
        self.log_waits(now, out);
    }

    /// Logs the pending requests.
    pub(super) fn log_waits(&self, now: Time, out: &mut Vec<Effect>) {
        let (running, mut waits) = (self.calls_at_servers(), self.other_waits());
        let (is_running_only, quiet_ns) = (waits.is_empty(), now.since(self.quiet.since));
        let has_agent = self.contacts.agent().is_some();
        if !has_agent {
            let (agent, why) = (&self.config.agent, self.contacts.why_agent_lost());
            waits.push(format!("the agent at {agent} is not connected ({why})"));
        }
        // Calls on connected servers may take long.
        let is_normal = is_running_only && has_agent && running.iter().all(|(_, is_up)| *is_up);
        let level = if is_normal { Level::Info } else { Level::Warning };
        let waits: Vec<String> = running.into_iter().map(|(text, _)| text).chain(waits).collect();
        let text = format!("the program has waited for {:.0} s without an event", ns_to_seconds(quiet_ns));
        out.push(LogLine::new(level, Category::Client, text).why(waits.join("; ")).into());
    }

    /// Reports to the agent what the program waits for, unless the last report is still correct.
    fn report_to_agent(&mut self, now: Time, mut waits: Vec<String>, out: &mut Vec<Effect>) {
        waits.truncate(WAITS_PER_PROGRAM_MAX);
        let Some(agent) = self.contacts.agent() else { return };
        let since = self.quiet.since;
        let is_known = match &self.quiet.reported {
            Some((to, from, last)) if *to == agent => *last == waits && (*from == since || waits.is_empty()),
            Some(_) | None => waits.is_empty(),
        };
        if !is_known {
            self.quiet.reported = Some((agent, since, waits.clone()));
            send(out, agent, DirectoryToAgent::Waits { waited_ns: now.since(since), waits });
        }
    }

    /// Returns a text about the calls at each server, and whether the server is connected.
    fn calls_at_servers(&self) -> Vec<(String, bool)> {
        let mut calls: BTreeMap<NodeId, (usize, Vec<String>)> = BTreeMap::new();
        for (task, server) in self.queues.tasks() {
            let (count, texts) = calls.entry(server).or_default();
            *count += 1;
            if texts.len() < NAMED_MAX {
                texts.push(format!("{task} '{}'", self.label_at(task, server).unwrap_or_default()));
            }
        }
        let text = |(server, (count, calls)): (NodeId, (usize, Vec<String>))| {
            let is_up = self.contacts.is_up(server);
            let state = if is_up { "" } else { ", which is not connected" };
            (format!("calls at server '{}'{state} {}", self.contacts.name_of(server), listed(count, &calls)), is_up)
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
        let requests: Vec<String> = self.names.texts().take(NAMED_MAX).collect();
        let counts = self
            .counted_waits()
            .into_iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, what)| format!("{count} {what}"));
        let asked = Some(format!("requests at the agent {}", listed(self.names.counts().0, &requests)));
        let mut waits: Vec<String> = counts.chain(asked.filter(|_| !requests.is_empty())).collect();
        let from = |from: NodeId| format!("from server '{}'", self.contacts.name_of(from));
        let text = |(datum, source): (DatumId, Option<NodeId>)| match source {
            Some(source) => format!("{datum} {}", from(source)),
            None => format!("{datum} from its call"),
        };
        let wanted: Vec<String> = self.graph.wanted().take(NAMED_MAX).map(text).collect();
        if !wanted.is_empty() {
            waits.push(format!("data for the program {}", listed(self.graph.wanted().count(), &wanted)));
        }
        waits
    }
}

/// True if an event is about nodes or a log line, and answers no request: a program that loses its agent keeps waiting.
fn is_about_nodes(event: &Event) -> bool {
    matches!(
        event,
        Event::Directory { .. }
            | Event::Log(_)
            | Event::AgentLost { .. }
            | Event::ServerLost { .. }
            | Event::ServerReached { .. }
            | Event::ServerNotReached { .. }
    )
}

/// Returns a text with the number of items and the first few of them.
fn listed(count: usize, items: &[String]) -> String {
    let more = if count > items.len() { ", ..." } else { "" };
    format!("({count}): {}{more}", items.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::client::ClientConfig;
    use crate::node::message::{DirectoryMessage, LinkMessage, Message};
    use crate::node::protocol::{Command, Input, NameCommand, Role};
    use crate::node::version::VERSIONS;
    use crate::node::{ClientTimer, Timer};
    use gridloom_base::time::SECOND_NS;
    use gridloom_base::{Machine, Origin};

    /// Earlier, a program that waited from its start was reported to have waited for decades: a real clock does not start
    /// at 0.
    #[test]
    fn the_wait_of_a_new_program_begins_with_its_client() {
        let began = 1_800_000_000 * SECOND_NS;
        let (id, name, agent, is_in_call) = (NodeId(9), "program".into(), "agent:1".to_string(), false);
        let mut client = Client::new(ClientConfig { id, name, agent: agent.clone(), is_in_call });
        let (peer, role, version) = (NodeId(1), Role::Agent, VERSIONS.1);
        let command = NameCommand::Find { name: "mesh".into(), waits: true };
        let mut out = Vec::new();
        for input in [
            Input::Start,
            Input::PeerUp { peer, role, name: "agent".into(), origin: Origin::default(), address: agent, version },
            Input::Command(Command::Name { request: 1, command }),
        ] {
            client.handle(Time(began), input, &mut out);
        }
        for second in 1..=4 {
            let now = Time(began + second * SECOND_NS);
            let answer = LinkMessage::Pong { token: 0 }.into();
            client.handle(now, Input::Received { from: peer, message: answer }, &mut out);
            client.handle(now, Input::Timer(Timer::Client(ClientTimer::Heartbeat)), &mut out);
        }
        let reports = out.iter().filter_map(|effect| match effect {
            Effect::Send {
                message: Message::Directory(DirectoryMessage::ToAgent(DirectoryToAgent::Waits { waited_ns, waits })),
                ..
            } => Some((*waited_ns, waits.clone())),
            _ => None,
        });
        let waits = vec!["requests at the agent (1): for 'mesh'".to_string()];
        assert_eq!(reports.collect::<Vec<_>>(), [(3 * SECOND_NS, waits)]);
    }
}

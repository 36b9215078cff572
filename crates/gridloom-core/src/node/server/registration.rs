//! Registration with the agent, and with clients that map onto this server without an agent. Both are notified of the
//! functions that this server offers, of its measurements and of its models.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{ServerConfig, line, send};
use crate::node::message::{DirectoryToAgent, Message, Registration};
use crate::node::protocol::Effect;
use crate::node::version::RELEASE;
use crate::node::{Category, LogLine};
use gridloom_base::limits::{HEARTBEAT_NS, SILENCE_NS_MAX};
use gridloom_base::time::ns_to_seconds;
use gridloom_base::{Level, NodeId, TaskError, Time};

/// Nanoseconds for which a registration is retried that was refused for a temporary reason: until the agent must have
/// noticed that a server is dead.
const REFUSED_NS_MAX: u64 = SILENCE_NS_MAX + 3 * HEARTBEAT_NS;

/// Number of consecutive calls of a function that fail to start, after which the server reports that it cannot run the function.
const FAILED_STARTS_MAX: u32 = 2;

#[derive(Debug)]
pub(super) struct RegistrationState {
    config: Arc<ServerConfig>,
    agent: Option<NodeId>,
    /// Clients that map by themselves and receive the same reports as an agent.
    subscribers: BTreeSet<NodeId>,
    speed_flops: Option<f64>,
    /// Time since which the agent has refused the registration for a temporary reason.
    refused_since: Option<Time>,
    /// Functions that failed to start: the number of consecutive failures, and the last reason.
    failed_starts: BTreeMap<String, (u32, String)>,
    /// The log already contains that the agent is unreachable. A server may dial for months.
    is_missing_logged: bool,
    /// Time since which the server takes no calls that other servers can take.
    drains_since: Option<Time>,
}

impl RegistrationState {
    pub(super) fn new(config: Arc<ServerConfig>) -> RegistrationState {
        RegistrationState {
            config,
            agent: None,
            subscribers: BTreeSet::new(),
            speed_flops: None,
            refused_since: None,
            failed_starts: BTreeMap::new(),
            is_missing_logged: false,
            drains_since: None,
        }
    }

    /// Requests that no more calls be sent to this server.
    pub(super) fn drain(&mut self, now: Time, out: &mut Vec<Effect>) {
        if self.drains_since.is_none() {
            self.drains_since = Some(now);
            self.notify(DirectoryToAgent::Draining, out);
        }
    }

    pub(super) fn drains_since(&self) -> Option<Time> {
        self.drains_since
    }

    pub(super) fn agent(&self) -> Option<NodeId> {
        self.agent
    }

    pub(super) fn dial(&self, out: &mut Vec<Effect>) {
        if !self.config.agent.is_empty() {
            out.push(Effect::Dial { address: self.config.agent.clone() });
        }
    }

    /// Sends a message to the agent and the subscribed clients.
    pub(super) fn notify(&self, message: impl Into<Message>, out: &mut Vec<Effect>) {
        let message = message.into();
        for to in self.agent.iter().chain(&self.subscribers) {
            send(out, *to, message.clone());
        }
    }

    pub(super) fn agent_up(&mut self, agent: NodeId, out: &mut Vec<Effect>) {
        self.agent = Some(agent);
        self.is_missing_logged = false;
        self.register(agent, out);
    }

    pub(super) fn subscribe(&mut self, client: NodeId, out: &mut Vec<Effect>) {
        self.subscribers.insert(client);
        self.register(client, out);
    }

    fn register(&self, to: NodeId, out: &mut Vec<Effect>) {
        let c = &self.config;
        let registration = Registration {
            name: c.name.clone(),
            address: c.address.clone(),
            slots: c.slots,
            is_stateless: c.is_stateless,
            memory_bytes: c.memory_bytes,
            is_durable: c.durable.is_some(),
            storage: c.storage,
            slowdown: c.slowdown,
            functions: c.functions.clone(),
            code_hashes: c.code_hashes.clone(),
            release: RELEASE.into(),
        };
        send(out, to, DirectoryToAgent::Register(registration));
        if let Some(flops) = self.speed_flops {
            send(out, to, DirectoryToAgent::Speed { flops });
        }
        if self.drains_since.is_some() {
            send(out, to, DirectoryToAgent::Draining);
        }
        for (function, (_, why)) in self.failed_starts.iter().filter(|(_, (times, _))| *times >= FAILED_STARTS_MAX) {
            send(out, to, DirectoryToAgent::CannotRun { function: function.clone(), why: why.clone() });
        }
    }

    /// Records the end of a call. A function that repeatedly fails to start lacks something here, and this is reported.
    pub(super) fn call_ended(&mut self, function: &str, error: Option<&TaskError>, out: &mut Vec<Effect>) {
        let Some(error) = error.filter(|error| error.is_server_fault()) else {
            self.failed_starts.remove(function);
            return;
        };
        let (times, why) = self.failed_starts.entry(function.to_string()).or_default();
        *times += 1;
        *why = error.to_string();
        if *times == FAILED_STARTS_MAX {
            let message = DirectoryToAgent::CannotRun { function: function.to_string(), why: why.clone() };
            self.notify(message, out);
        }
    }

    /// The agent or a client has accepted the registration.
    pub(super) fn accepted(&mut self) {
        self.refused_since = None;
    }

    pub(super) fn refused(&mut self, now: Time, from: NodeId, why: &str, may_pass: bool, out: &mut Vec<Effect>) {
        if self.agent != Some(from) {
            return out.push(line(Level::Warning, "a client does not use this server").peer(from).why(why).into());
        }
        let refused = || format!("the agent refused server '{}': {why}", self.config.name);
        match self.refused_since {
            _ if !may_pass => out.push(Effect::Exit { why: refused() }),
            None => {
                self.refused_since = Some(now);
                let limit_s = ns_to_seconds(REFUSED_NS_MAX);
                let text = format!(
                    "the agent refused this server; trying again for {limit_s} s, in case the other server is gone"
                );
                out.push(LogLine::new(Level::Warning, Category::Server, text).why(why).into());
            }
            Some(since) if now.since(since) >= REFUSED_NS_MAX => out.push(Effect::Exit { why: refused() }),
            Some(_) => {}
        }
    }

    pub(super) fn speed_measured(&mut self, flops: f64, out: &mut Vec<Effect>) {
        self.speed_flops = Some(flops);
        self.notify(DirectoryToAgent::Speed { flops }, out);
    }

    /// Dials a missing agent, or retries a refused registration, once per heartbeat.
    pub(super) fn on_heartbeat(&self, out: &mut Vec<Effect>) {
        match self.agent {
            None => self.dial(out),
            Some(agent) if self.refused_since.is_some() => self.register(agent, out),
            Some(_) => {}
        }
    }

    /// Warns if a server answers at the agent's address.
    pub(super) fn server_answers(&self, address: &str, out: &mut Vec<Effect>) {
        if !address.is_empty() && self.awaits_agent_at(address) {
            let text = "no agent at this address: a server answers there; give the agent's address";
            out.push(line(Level::Warning, text).address(address).into());
        }
    }

    pub(super) fn dial_failed(&mut self, address: &str, why: &str, out: &mut Vec<Effect>) {
        if self.awaits_agent_at(address) && !std::mem::replace(&mut self.is_missing_logged, true) {
            out.push(line(Level::Warning, "cannot reach the agent; trying again").address(address).why(why).into());
        }
    }

    fn awaits_agent_at(&self, address: &str) -> bool {
        address == self.config.agent && self.agent.is_none()
    }

    pub(super) fn peer_lost(&mut self, peer: NodeId, why: &str, out: &mut Vec<Effect>) {
        self.subscribers.remove(&peer);
        if self.agent == Some(peer) {
            self.agent = None;
            self.refused_since = None;
            let text = "lost the agent; registering again when it is back";
            out.push(line(Level::Warning, text).address(&self.config.agent).why(why).into());
        }
    }

    pub(super) fn check(&self) -> Result<(), String> {
        let is_refused_by_none = self.refused_since.is_some() && self.agent.is_none();
        if is_refused_by_none { Err("a refusal is recorded, but no agent is connected".into()) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::server::tests::offering_nothing;

    const AGENT: NodeId = NodeId(2);

    #[test]
    fn a_temporary_refusal_is_retried_for_a_while() {
        let mut registering = RegistrationState::new(Arc::new(offering_nothing()));
        let mut out = Vec::new();
        registering.agent_up(AGENT, &mut out);
        let exits = |out: &[Effect]| out.iter().any(|effect| matches!(effect, Effect::Exit { .. }));
        registering.refused(Time(0), AGENT, "the name is taken", true, &mut out);
        out.clear();
        registering.on_heartbeat(&mut out);
        assert!(matches!(out[..], [Effect::Send { to: AGENT, .. }]), "it registers again: {out:?}");
        registering.refused(Time(REFUSED_NS_MAX - 1), AGENT, "the name is taken", true, &mut out);
        assert!(!exits(&out));
        registering.refused(Time(REFUSED_NS_MAX), AGENT, "the name is taken", true, &mut out);
        assert!(exits(&out));
        registering.peer_lost(AGENT, "silent", &mut out);
        registering.check().unwrap();
    }
}

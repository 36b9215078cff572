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

/// Minimum and maximum pause, in nanoseconds, before a function that could not run here is offered again. Each further
/// failure doubles the pause.
const WITHDRAWN_NS_MIN: u64 = 5 * HEARTBEAT_NS;
const WITHDRAWN_NS_MAX: u64 = 60 * HEARTBEAT_NS;

/// A function that could not run here.
#[derive(Debug)]
struct FailedFunction {
    why: String,
    /// Time from which it is offered again; `pause_ns` is the length of the pause.
    offered_at: Time,
    pause_ns: u64,
    /// True if it is offered again but no call of it has ended since then.
    is_offered: bool,
}

#[derive(Debug)]
pub(super) struct RegistrationState {
    config: Arc<ServerConfig>,
    agent: Option<NodeId>,
    /// True if the connected agent has accepted the registration.
    is_accepted: bool,
    /// Clients that map by themselves and receive the same reports as an agent.
    subscribers: BTreeSet<NodeId>,
    speed_flops: Option<f64>,
    /// True once an agent has accepted it.
    was_registered: bool,
    /// Time since which the agent has refused the registration for a temporary reason.
    refused_since: Option<Time>,
    /// Functions whose last call failed because of the server, such as a missing module.
    failed: BTreeMap<String, FailedFunction>,
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
            is_accepted: false,
            subscribers: BTreeSet::new(),
            speed_flops: None,
            was_registered: false,
            refused_since: None,
            failed: BTreeMap::new(),
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

    /// True if the connected agent has accepted the registration.
    pub(super) fn is_accepted(&self) -> bool {
        self.agent.is_some() && self.is_accepted
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
        self.is_accepted = false;
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
            was_registered: self.was_registered,
        };
        send(out, to, DirectoryToAgent::Register(registration));
        if let Some(flops) = self.speed_flops {
            send(out, to, DirectoryToAgent::Speed { flops });
        }
        if self.drains_since.is_some() {
            send(out, to, DirectoryToAgent::Draining);
        }
        for (function, failed) in self.failed.iter().filter(|(_, failed)| !failed.is_offered) {
            send(out, to, DirectoryToAgent::CannotRun { function: function.clone(), why: failed.why.clone() });
        }
    }

    /// Records the end of a call. A function that cannot run here is withdrawn, so that other servers receive its calls.
    /// It is offered again after a pause, or when a call of it succeeds.
    pub(super) fn call_ended(&mut self, now: Time, function: &str, error: Option<&TaskError>, out: &mut Vec<Effect>) {
        match error {
            Some(error) if error.is_server_fault() => {
                let before = self.failed.get(function);
                if before.is_some_and(|failed| !failed.is_offered) {
                    return;
                }
                let pause_ns = before.map_or(WITHDRAWN_NS_MIN, |failed| (2 * failed.pause_ns).min(WITHDRAWN_NS_MAX));
                let (function, why) = (function.to_string(), error.to_string());
                let failed =
                    FailedFunction { why: why.clone(), offered_at: now + pause_ns, pause_ns, is_offered: false };
                self.failed.insert(function.clone(), failed);
                self.notify(DirectoryToAgent::CannotRun { function, why }, out);
            }
            // The function has run.
            None | Some(TaskError::Raised { .. }) => {
                if self.failed.remove(function).is_some_and(|failed| !failed.is_offered) {
                    self.notify(DirectoryToAgent::CanRun { function: function.to_string() }, out);
                }
            }
            Some(_) => {}
        }
    }

    /// Offers the withdrawn functions again whose pause has ended.
    fn offer_again(&mut self, now: Time, out: &mut Vec<Effect>) {
        let mut offered = Vec::new();
        for (function, failed) in self.failed.iter_mut() {
            if !failed.is_offered && failed.offered_at <= now {
                failed.is_offered = true;
                offered.push(function.clone());
            }
        }
        offered.into_iter().for_each(|function| self.notify(DirectoryToAgent::CanRun { function }, out));
    }

    /// The agent or a client has accepted the registration.
    pub(super) fn accepted(&mut self, by: NodeId) {
        self.refused_since = None;
        self.is_accepted |= self.agent == Some(by);
        self.was_registered |= self.is_accepted;
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

    /// Dials a missing agent, or retries a refused registration, and offers functions again, once per heartbeat.
    pub(super) fn on_heartbeat(&mut self, now: Time, out: &mut Vec<Effect>) {
        self.offer_again(now, out);
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
    use gridloom_base::RaisedCause;

    const AGENT: NodeId = NodeId(2);

    #[test]
    fn a_temporary_refusal_is_retried_for_a_while() {
        let mut registering = RegistrationState::new(Arc::new(offering_nothing()));
        let mut out = Vec::new();
        registering.agent_up(AGENT, &mut out);
        let exits = |out: &[Effect]| out.iter().any(|effect| matches!(effect, Effect::Exit { .. }));
        registering.refused(Time(0), AGENT, "the name is taken", true, &mut out);
        out.clear();
        registering.on_heartbeat(Time(0), &mut out);
        assert!(matches!(out[..], [Effect::Send { to: AGENT, .. }]), "it registers again: {out:?}");
        registering.refused(Time(REFUSED_NS_MAX - 1), AGENT, "the name is taken", true, &mut out);
        assert!(!exits(&out));
        registering.refused(Time(REFUSED_NS_MAX), AGENT, "the name is taken", true, &mut out);
        assert!(exits(&out));
        registering.peer_lost(AGENT, "silent", &mut out);
        registering.check().unwrap();
    }

    #[test]
    fn a_function_that_cannot_run_is_withdrawn_and_offered_again() {
        let mut registering = RegistrationState::new(Arc::new(offering_nothing()));
        let mut out = Vec::new();
        registering.agent_up(AGENT, &mut out);
        let lost = TaskError::Raised {
            function: "m/f".into(),
            server: "s".into(),
            kind: "EndpointLost".into(),
            message: "cannot be reached".into(),
            traceback: String::new(),
            cause: RaisedCause::Server,
        };
        let told = |out: &mut Vec<Effect>| {
            let texts: Vec<String> = out.drain(..).map(|effect| format!("{effect:?}")).collect();
            let has = |text: &str| texts.iter().filter(|told| told.contains(text)).count();
            (has("CannotRun"), has("CanRun"))
        };
        told(&mut out);
        registering.call_ended(Time(0), "m/f", Some(&lost), &mut out);
        registering.call_ended(Time(1), "m/f", Some(&lost), &mut out);
        assert_eq!(told(&mut out), (1, 0), "it is withdrawn once");
        registering.subscribe(NodeId(3), &mut out);
        assert_eq!(told(&mut out), (1, 0), "a new client is notified");
        registering.on_heartbeat(Time(WITHDRAWN_NS_MIN - 1), &mut out);
        assert_eq!(told(&mut out), (0, 0));
        registering.on_heartbeat(Time(WITHDRAWN_NS_MIN), &mut out);
        assert_eq!(told(&mut out), (0, 2), "agent and client");
        // The second pause is longer.
        registering.call_ended(Time(WITHDRAWN_NS_MIN), "m/f", Some(&lost), &mut out);
        assert_eq!(told(&mut out), (2, 0));
        registering.on_heartbeat(Time(2 * WITHDRAWN_NS_MIN), &mut out);
        assert_eq!(told(&mut out), (0, 0));
        registering.call_ended(Time(2 * WITHDRAWN_NS_MIN), "m/f", Some(&TaskError::Cancelled), &mut out);
        assert_eq!(told(&mut out), (0, 0), "a cancelled call does not count");
        registering.call_ended(Time(2 * WITHDRAWN_NS_MIN), "m/f", None, &mut out);
        assert_eq!(told(&mut out), (0, 2), "it has run");
        registering.call_ended(Time(2 * WITHDRAWN_NS_MIN), "m/f", None, &mut out);
        assert_eq!(told(&mut out), (0, 0));
    }
}

//! A client without an external agent: it is given servers, and maps with an agent of its own that no other node can
//! see.
//!
//! ```text
//!   this node     client ⇄ agent              messages between them never leave the node
//!                    │       │
//!                 tasks,     registrations, models, measurements
//!                  data      │
//!                    servers (they send every subscriber what they send an agent)
//! ```
//!
//! Both are the machines of any grid, so there is one mapper, one liveness check and one recovery. Two such clients
//! know nothing of each other's plans: servers run calls in the order in which they arrive.
//!
//! **Invariants.** A given address that does not lead to a connected server is dialled once per heartbeat. For each
//! address an event reports that it leads to a server that is used ([`Event::ServerReached`]) or why not
//! ([`Event::ServerNotReached`]), even if it is the second address of a server. A server that was refused because of another
//! one is asked again when a server is lost.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::agent::{Agent, AgentConfig};
use super::client::{Client, ClientConfig};
use super::log::{Category, LogLine};
use super::message::{DirectoryMessage, DirectoryToAgent, DirectoryToServer, LinkMessage, Message};
use super::protocol::{Effect, Event, Input, Role};
use super::timer::Timer;
use super::version::VERSIONS;
use crate::data::IdentifierKey;
use gridloom_base::dial::ConnectionFault;
use gridloom_base::limits::HEARTBEAT_NS;
use gridloom_base::{Level, Machine, NodeId, Origin, Time};

/// Address of the client's agent. It cannot be dialled.
const OWN_AGENT: &str = "this client's own";
/// Distinguishes the agent's pings from the client's.
const AGENT_TOKEN_BIT: u64 = 1 << 62;

/// Configuration of such a client.
#[derive(Clone, Debug)]
pub struct ClientWithAgentConfig {
    pub id: NodeId,
    pub name: String,
    /// Addresses of its servers.
    pub servers: Vec<String>,
}

/// The machine that combines both.
#[derive(Debug)]
pub struct ClientWithAgent {
    client: Client,
    agent: Agent,
    /// State of each given address.
    servers: BTreeMap<String, AddressState>,
    /// Servers that were connected once, also by an address that they reported themselves.
    known: BTreeSet<NodeId>,
    /// Servers that are connected.
    up: BTreeSet<NodeId>,
    /// Connected servers that the agent refused.
    refused: BTreeMap<NodeId, Refusal>,
    /// True if refused servers are asked again at the next dial, because a server was lost: it may have been the
    /// conflicting one.
    retries_refused: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct AddressState {
    is_dialled: bool,
    /// True if an event has reported that it cannot be reached.
    is_reported: bool,
    /// The server that last answered there.
    server: Option<NodeId>,
}

#[derive(Clone, Debug)]
struct Refusal {
    why: String,
    /// True if another server has the name, the address, or a function of that name, so that the refusal is temporary.
    may_pass: bool,
}

/// One of the two machines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum MachinePart {
    Client,
    Agent,
}

impl ClientWithAgent {
    /// Creates a machine that has not started.
    pub fn new(config: ClientWithAgentConfig) -> ClientWithAgent {
        let ClientWithAgentConfig { id, name, servers } = config;
        // No names are shared through it.
        let identifier_key = IdentifierKey::default();
        let agent = AgentConfig { id: NodeId(!id.0), name: OWN_AGENT.into(), is_shared: false, identifier_key };
        ClientWithAgent {
            client: Client::new(ClientConfig { id, name, agent: OWN_AGENT.into(), is_in_call: false }),
            agent: Agent::new(agent),
            servers: servers.into_iter().map(|address| (address, AddressState::default())).collect(),
            known: BTreeSet::new(),
            up: BTreeSet::new(),
            refused: BTreeMap::new(),
            retries_refused: false,
        }
    }

    /// Returns the client part, for invariants and status.
    pub fn client(&self) -> &Client {
        &self.client
    }

    fn on_peer_up(&mut self, peer: NodeId, role: Role, name: &str, address: &str, out: &mut Vec<Effect>) -> bool {
        let way = self.servers.get_mut(address);
        if let Some(way) = way {
            let server = (role == Role::Server).then_some(peer);
            *way = AddressState { is_dialled: false, is_reported: server.is_none(), server };
            if role != Role::Server {
                let what = if role == Role::Agent { "an agent: connect to it alone" } else { "a client" };
                let why = format!("it is not a server: '{name}' answers there, which is {what}");
                out.push(log("cannot use the server", address, &why));
                out.push(not_reached(address, why));
            }
        } else if !self.known.contains(&peer) {
            return false;
        }
        if role != Role::Server {
            return false;
        }
        self.known.insert(peer);
        self.up.insert(peer);
        self.servers.values_mut().filter(|way| way.server == Some(peer)).for_each(|way| way.is_reported = false);
        self.reached(peer, out);
        out.push(Effect::Send { to: peer, message: DirectoryToServer::Subscribe.into() });
        true
    }

    fn on_dial_failed(&mut self, address: &str, why: &str, connected: Option<NodeId>, out: &mut Vec<Effect>) {
        let Some(way) = self.servers.get_mut(address) else { return };
        way.is_dialled = false;
        if let Some(server) = connected.filter(|server| self.up.contains(server)) {
            // This is the server's second address.
            *way = AddressState { is_dialled: false, is_reported: false, server: Some(server) };
            out.push(match self.refused.get(&server) {
                Some(refusal) => not_reached(address, refusal.why.clone()),
                None => reached(address, server),
            });
        } else if !std::mem::replace(&mut way.is_reported, true) {
            out.push(log("cannot reach the server; trying again", address, why));
            out.push(not_reached(address, why.to_string()));
        }
    }

    /// Dials the servers that are not connected.
    fn dial(&mut self, now: Time, out: &mut Vec<Effect>) {
        out.push(Effect::SetTimer { timer: Timer::Dial, at: now + HEARTBEAT_NS });
        for (address, way) in self.servers.iter_mut().filter(|(_, way)| !way.is_dialled) {
            if !way.server.is_some_and(|server| self.up.contains(&server)) {
                way.is_dialled = true;
                out.push(Effect::Dial { address: address.clone() });
            }
        }
        if std::mem::take(&mut self.retries_refused) {
            for (server, _) in self.refused.iter().filter(|(_, refusal)| refusal.may_pass) {
                out.push(Effect::Send { to: *server, message: DirectoryToServer::Subscribe.into() });
            }
        }
    }

    /// Returns the given addresses of a server.
    fn addresses(&self, server: NodeId) -> impl Iterator<Item = &String> {
        self.servers.iter().filter(move |(_, way)| way.server == Some(server)).map(|(address, _)| address)
    }

    fn reached(&self, server: NodeId, out: &mut Vec<Effect>) {
        out.extend(self.addresses(server).map(|address| reached(address, server)));
    }

    /// Handles the agent's answer to a server that registers.
    fn on_answer(&mut self, server: NodeId, answer: &Message, out: &mut Vec<Effect>) {
        let Message::Directory(DirectoryMessage::ToServer(answer)) = answer else { return };
        match answer {
            DirectoryToServer::RegistrationRefused { why, is_temporary: may_pass } => {
                self.refused.insert(server, Refusal { why: why.clone(), may_pass: *may_pass });
                out.extend(self.addresses(server).map(|address| not_reached(address, why.clone())));
            }
            DirectoryToServer::Registered { .. } if self.refused.remove(&server).is_some() => self.reached(server, out),
            _ => {}
        }
    }

    /// Removes a lost server. Returns true if it was connected.
    fn lost(&mut self, server: NodeId) -> bool {
        let was_up = self.up.remove(&server);
        self.refused.remove(&server);
        self.retries_refused |= was_up;
        was_up
    }

    /// Passes inputs to the two machines, and their messages to each other, until only effects for the world are left.
    fn run(&mut self, now: Time, inputs: Vec<(MachinePart, Input)>, out: &mut Vec<Effect>) {
        let mut queue = VecDeque::from(inputs);
        let mut effects = Vec::new();
        let (client, agent) = (self.client.id(), self.agent.id());
        while let Some((half, input)) = queue.pop_front() {
            match half {
                MachinePart::Client => self.client.handle(now, input, &mut effects),
                MachinePart::Agent => self.agent.handle(now, input, &mut effects),
            }
            for effect in effects.drain(..) {
                match (half, effect) {
                    (MachinePart::Client, Effect::Send { to, message }) if to == agent => {
                        queue.push_back((MachinePart::Agent, Input::Received { from: client, message }));
                    }
                    (MachinePart::Agent, Effect::Send { to, message }) if to == client => {
                        queue.push_back((MachinePart::Client, Input::Received { from: agent, message }));
                    }
                    (MachinePart::Client, Effect::Dial { address }) if address == OWN_AGENT => {
                        let up = |peer, role| {
                            let (name, address) = (String::new(), OWN_AGENT.to_string());
                            Input::PeerUp { peer, role, name, origin: Origin::default(), address, version: VERSIONS.1 }
                        };
                        queue.push_back((MachinePart::Agent, up(client, Role::Client)));
                        queue.push_back((MachinePart::Client, up(agent, Role::Agent)));
                    }
                    (MachinePart::Agent, Effect::Send { to, message: Message::Link(LinkMessage::Ping { token }) }) => {
                        out.push(Effect::Send {
                            to,
                            message: LinkMessage::Ping { token: token | AGENT_TOKEN_BIT }.into(),
                        });
                    }
                    (MachinePart::Agent, Effect::Send { to, message }) => {
                        self.on_answer(to, &message, out);
                        out.push(Effect::Send { to, message });
                    }
                    (_, Effect::Disconnect { peer }) => {
                        out.push(Effect::Disconnect { peer });
                        if self.lost(peer) {
                            let other =
                                if half == MachinePart::Client { MachinePart::Agent } else { MachinePart::Client };
                            let (fault, why) = (ConnectionFault::Disconnected, "its connection was closed".to_string());
                            queue.push_back((other, Input::PeerLost { peer, fault, why }));
                        }
                    }
                    (_, effect) => out.push(effect),
                }
            }
        }
    }
}

impl Machine for ClientWithAgent {
    type Input = Input;
    type Effect = Effect;

    fn handle(&mut self, now: Time, input: Input, out: &mut Vec<Effect>) {
        if let Input::Received { from, .. } | Input::DatumBegun { from, .. } | Input::DatumArrived { from, .. } = input
        {
            // Its sender is alive, whichever machine it is for.
            self.client.record_received(now, from);
            self.agent.mark_alive(now, from);
        }
        let both = |input: Input| vec![(MachinePart::Agent, input.clone()), (MachinePart::Client, input)];
        let inputs = match input {
            Input::Timer(Timer::Dial) => {
                self.dial(now, out);
                return;
            }
            Input::Start => {
                self.dial(now, out);
                both(Input::Start)
            }
            Input::PeerUp { peer, role, ref name, ref address, .. } => {
                if self.on_peer_up(peer, role, name, address, out) {
                    both(input)
                } else {
                    vec![(MachinePart::Client, input)]
                }
            }
            Input::PeerLost { peer, .. } => {
                if self.lost(peer) {
                    both(input)
                } else {
                    vec![(MachinePart::Client, input)]
                }
            }
            Input::DialFailed { ref address, ref why, connected, .. } => {
                self.on_dial_failed(address, why, connected, out);
                vec![(MachinePart::Client, input)]
            }
            Input::Timer(Timer::Agent(_)) | Input::Mapped { .. } => vec![(MachinePart::Agent, input)],
            Input::Received { from, message: Message::Link(LinkMessage::Pong { token }) }
                if token & AGENT_TOKEN_BIT != 0 =>
            {
                let message = LinkMessage::Pong { token: token & !AGENT_TOKEN_BIT }.into();
                vec![(MachinePart::Agent, Input::Received { from, message })]
            }
            Input::Received {
                message:
                    Message::Link(LinkMessage::ToAgent(_))
                    | Message::Directory(DirectoryMessage::ToAgent(
                        DirectoryToAgent::Register(_)
                        | DirectoryToAgent::Speed { .. }
                        | DirectoryToAgent::Model { .. }
                        | DirectoryToAgent::Pace { .. }
                        | DirectoryToAgent::CannotRun { .. }
                        | DirectoryToAgent::CanRun { .. }
                        | DirectoryToAgent::Draining
                        | DirectoryToAgent::ModelsReported { .. },
                    )),
                ..
            } => vec![(MachinePart::Agent, input)],
            input => vec![(MachinePart::Client, input)],
        };
        self.run(now, inputs, out);
    }
}

fn not_reached(address: &str, why: String) -> Effect {
    Effect::Emit(Event::ServerNotReached { address: address.to_string(), why })
}

fn reached(address: &str, server: NodeId) -> Effect {
    Effect::Emit(Event::ServerReached { address: address.to_string(), server })
}

fn log(text: &'static str, address: &str, why: &str) -> Effect {
    LogLine::new(Level::Warning, Category::Client, text).address(address).why(why).into()
}

#[cfg(test)]
mod tests {
    use super::super::message::DirectoryToAgent;
    use super::*;

    const SERVER: NodeId = NodeId(7);

    /// Returns the given addresses that lead to the server according to these effects, and those that do not, with
    /// the reasons.
    fn told(out: &[Effect]) -> Vec<(&str, Option<&str>)> {
        let mut told = Vec::new();
        for effect in out {
            match effect {
                Effect::Emit(Event::ServerReached { address, server }) if *server == SERVER => {
                    told.push((address.as_str(), None));
                }
                Effect::Emit(Event::ServerNotReached { address, why }) => {
                    told.push((address.as_str(), Some(why.as_str())))
                }
                _ => {}
            }
        }
        told
    }

    struct Test {
        machine: ClientWithAgent,
        now: Time,
    }

    impl Test {
        fn new() -> Test {
            let servers = vec!["host:1".to_string(), "alias:1".to_string()];
            let machine = ClientWithAgent::new(ClientWithAgentConfig { id: NodeId(1), name: "c".into(), servers });
            let mut test = Test { machine, now: Time::ZERO };
            assert_eq!(test.dialled(Input::Start), ["alias:1", "host:1"]);
            test
        }

        fn handle(&mut self, input: Input) -> Vec<Effect> {
            let mut out = Vec::new();
            self.machine.handle(self.now, input, &mut out);
            out
        }

        fn dialled(&mut self, input: Input) -> Vec<String> {
            self.now = self.now + HEARTBEAT_NS;
            let dialled = |effect| if let Effect::Dial { address } = effect { Some(address) } else { None };
            self.handle(input).into_iter().filter_map(dialled).collect()
        }

        fn is_up(&mut self) -> Vec<Effect> {
            let (name, address) = ("s".to_string(), "host:1".to_string());
            self.handle(Input::PeerUp {
                peer: SERVER,
                role: Role::Server,
                name,
                origin: Origin::default(),
                address,
                version: VERSIONS.1,
            })
        }

        fn alias_is_known(&mut self) -> Vec<Effect> {
            let (address, why) = ("alias:1".to_string(), "it is connected already".to_string());
            let fault = ConnectionFault::ConnectedAlready;
            self.handle(Input::DialFailed { address, fault, why, connected: Some(SERVER) })
        }
    }

    #[test]
    fn the_second_address_of_a_server_leads_to_it() {
        let mut test = Test::new();
        assert_eq!(told(&test.is_up()), [("host:1", None)]);
        assert_eq!(told(&test.alias_is_known()), [("alias:1", None)]);
        assert!(test.dialled(Input::Timer(Timer::Dial)).is_empty());
        test.handle(Input::PeerLost { peer: SERVER, fault: ConnectionFault::Disconnected, why: "gone".into() });
        assert_eq!(test.dialled(Input::Timer(Timer::Dial)), ["alias:1", "host:1"]);
    }

    #[test]
    fn the_reason_of_a_refusal_is_reported_for_each_address_of_a_server() {
        let mut test = Test::new();
        test.is_up();
        let registration = super::super::message::Registration {
            name: "s".into(),
            address: "host:1".into(),
            slots: 0,
            is_stateless: false,
            memory_bytes: 0,
            is_durable: false,
            storage: None,
            slowdown: 1.0,
            functions: Vec::new(),
            code_hashes: BTreeMap::new(),
            release: String::new(),
            was_registered: false,
        };
        let refused =
            test.handle(Input::Received { from: SERVER, message: DirectoryToAgent::Register(registration).into() });
        let why = "it has no slots; start it with --slots of at least 1";
        assert_eq!(told(&refused), [("host:1", Some(why))]);
        assert_eq!(told(&test.alias_is_known()), [("alias:1", Some(why))]);
    }
}

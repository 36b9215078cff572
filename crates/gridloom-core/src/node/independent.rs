//! A client without an agent: it is given servers, and maps with an agent of its own that nobody else can see.
//!
//! ```text
//!   this node     client ⇄ agent              what one says to the other never leaves the node
//!                    │       │
//!                 tasks,     what they register, learn and measure
//!                  data      │
//!                    servers (they tell whoever subscribes what they tell an agent)
//! ```
//!
//! Both are the machines of any grid, so there is one mapper, one liveness and one recovery. Two such clients do not know what
//! the other has promised to whom: servers run what comes in the order in which it comes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::agent::{Agent, AgentConfig};
use super::client::{Client, ClientConfig};
use super::message::Message;
use super::protocol::{Effect, Event, Input, Role, TimerId};
use crate::base::limits::HEARTBEAT_NS;
use crate::base::{Machine, NodeId, Time};

/// Where the client finds its agent: no address that can be dialled.
const OWN_AGENT: &str = "this client's own";
/// When servers that are not connected are dialled again.
const DIAL: TimerId = TimerId(u64::MAX);
/// Tells the agent's timers and pings from the client's.
const AGENTS: u64 = 1 << 62;

/// How it is set up.
#[derive(Clone, Debug)]
pub struct IndependentConfig {
    /// Its identifier.
    pub id: NodeId,
    /// Its name.
    pub name: String,
    /// Where its servers are.
    pub servers: Vec<String>,
}

/// The machine.
#[derive(Debug)]
pub struct Independent {
    client: Client,
    agent: Agent,
    /// Given addresses: what is known of each.
    servers: BTreeMap<String, Way>,
    /// Servers that were connected once, also by an address that they told.
    known: BTreeSet<NodeId>,
    /// Servers that are connected, with the address that was dialled.
    up: BTreeMap<NodeId, String>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Way {
    is_dialled: bool,
    /// It was said that it cannot be reached.
    is_said: bool,
}

/// Who of the two is meant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Half {
    Client,
    Agent,
}

impl Independent {
    /// A machine that has not started.
    pub fn new(config: IndependentConfig) -> Independent {
        let IndependentConfig { id, name, servers } = config;
        let agent = AgentConfig { id: NodeId(!id.0), name: OWN_AGENT.into() };
        Independent {
            client: Client::new(ClientConfig { id, name, agent: OWN_AGENT.into() }),
            agent: Agent::new(agent),
            servers: servers.into_iter().map(|address| (address, Way::default())).collect(),
            known: BTreeSet::new(),
            up: BTreeMap::new(),
        }
    }

    /// The client in it: for invariants and status.
    pub fn client(&self) -> &Client {
        &self.client
    }

    fn on_peer_up(&mut self, peer: NodeId, role: Role, name: &str, address: &str, out: &mut Vec<Effect>) -> bool {
        let way = self.servers.get_mut(address);
        if let Some(way) = way {
            *way = Way::default();
            if role != Role::Server {
                let what = if role == Role::Agent { "an agent: connect to it by itself" } else { "a client" };
                let why = format!("it is no server: '{name}' answers there, which is {what}");
                out.push(log(format!("cannot use the server at {address}: {why}")));
                out.push(not_reached(address, why));
            } else {
                let event = Event::Reached { address: address.to_string(), server: peer };
                out.push(Effect::Emit(event));
            }
        } else if !self.known.contains(&peer) {
            return false;
        }
        if role != Role::Server {
            return false;
        }
        self.known.insert(peer);
        self.up.insert(peer, address.to_string());
        out.push(Effect::Send { to: peer, message: Message::Subscribe });
        true
    }

    fn on_dial_failed(&mut self, address: &str, why: &str, out: &mut Vec<Effect>) {
        if let Some(way) = self.servers.get_mut(address) {
            way.is_dialled = false;
            let is_up = self.up.values().any(|known| known == address);
            if !is_up && !std::mem::replace(&mut way.is_said, true) {
                out.push(log(format!("cannot reach the server at {address}: {why}; trying again")));
                out.push(not_reached(address, why.to_string()));
            }
        }
    }

    fn dial(&mut self, now: Time, out: &mut Vec<Effect>) {
        out.push(Effect::SetTimer { timer: DIAL, at: now + HEARTBEAT_NS });
        for (address, way) in self.servers.iter_mut().filter(|(_, way)| !way.is_dialled) {
            if !self.up.values().any(|known| known == address) {
                way.is_dialled = true;
                out.push(Effect::Dial { address: address.clone() });
            }
        }
    }

    /// Hands inputs to the two, and what they say to one another, until only effects for the world are left.
    fn run(&mut self, now: Time, inputs: Vec<(Half, Input)>, out: &mut Vec<Effect>) {
        let mut queue = VecDeque::from(inputs);
        let mut effects = Vec::new();
        let (client, agent) = (self.client.id(), self.agent.id());
        while let Some((half, input)) = queue.pop_front() {
            match half {
                Half::Client => self.client.handle(now, input, &mut effects),
                Half::Agent => self.agent.handle(now, input, &mut effects),
            }
            for effect in effects.drain(..) {
                match (half, effect) {
                    (Half::Client, Effect::Send { to, message }) if to == agent => {
                        queue.push_back((Half::Agent, Input::Received { from: client, message }));
                    }
                    (Half::Agent, Effect::Send { to, message }) if to == client => {
                        queue.push_back((Half::Client, Input::Received { from: agent, message }));
                    }
                    (Half::Client, Effect::Dial { address }) if address == OWN_AGENT => {
                        let up = |peer, role| {
                            let (name, address) = (String::new(), OWN_AGENT.to_string());
                            Input::PeerUp { peer, role, name, address }
                        };
                        queue.push_back((Half::Agent, up(client, Role::Client)));
                        queue.push_back((Half::Client, up(agent, Role::Agent)));
                    }
                    (Half::Agent, Effect::Send { to, message: Message::RegistrationRefused { why, may_pass } }) => {
                        if let Some(address) = self.up.get(&to) {
                            out.push(not_reached(address, why.clone()));
                        }
                        out.push(Effect::Send { to, message: Message::RegistrationRefused { why, may_pass } });
                    }
                    (Half::Agent, Effect::Send { to, message: Message::Ping { token } }) => {
                        out.push(Effect::Send { to, message: Message::Ping { token: token | AGENTS } });
                    }
                    (_, Effect::HangUp { peer }) => {
                        out.push(Effect::HangUp { peer });
                        if self.up.remove(&peer).is_some() {
                            let other = if half == Half::Client { Half::Agent } else { Half::Client };
                            let why = "its connection was given up".to_string();
                            queue.push_back((other, Input::PeerLost { peer, why }));
                        }
                    }
                    (Half::Agent, Effect::SetTimer { timer, at }) => {
                        out.push(Effect::SetTimer { timer: TimerId(timer.0 | AGENTS), at });
                    }
                    (Half::Agent, Effect::CancelTimer { timer }) => {
                        out.push(Effect::CancelTimer { timer: TimerId(timer.0 | AGENTS) });
                    }
                    (_, effect) => out.push(effect),
                }
            }
        }
    }
}

impl Machine for Independent {
    type Input = Input;
    type Effect = Effect;

    fn handle(&mut self, now: Time, input: Input, out: &mut Vec<Effect>) {
        if let Input::Received { from, .. } | Input::DatumArrived { from, .. } = input {
            // Whomever it is for: its sender lives.
            self.client.heard(now, from);
            self.agent.heard(now, from);
        }
        let both = |input: Input| vec![(Half::Agent, input.clone()), (Half::Client, input)];
        let inputs = match input {
            Input::Timer(DIAL) => {
                self.dial(now, out);
                return;
            }
            Input::Start => {
                self.dial(now, out);
                both(Input::Start)
            }
            Input::PeerUp { peer, role, ref name, ref address } => {
                if self.on_peer_up(peer, role, name, address, out) {
                    both(input)
                } else {
                    vec![(Half::Client, input)]
                }
            }
            Input::PeerLost { peer, .. } => {
                if self.up.remove(&peer).is_some() {
                    both(input)
                } else {
                    vec![(Half::Client, input)]
                }
            }
            Input::DialFailed { ref address, ref why } => {
                self.on_dial_failed(address, why, out);
                vec![(Half::Client, input)]
            }
            Input::Timer(TimerId(timer)) if timer & AGENTS != 0 => {
                vec![(Half::Agent, Input::Timer(TimerId(timer & !AGENTS)))]
            }
            Input::Received { from, message: Message::Pong { token } } if token & AGENTS != 0 => {
                let message = Message::Pong { token: token & !AGENTS };
                vec![(Half::Agent, Input::Received { from, message })]
            }
            Input::Received {
                message:
                    Message::Register(_)
                    | Message::Speed { .. }
                    | Message::LinkMeasured { .. }
                    | Message::LinkBroken { .. }
                    | Message::LinksDone
                    | Message::AskTurn { .. }
                    | Message::TurnOver { .. }
                    | Message::TransfersSeen { .. }
                    | Message::Model { .. }
                    | Message::ModelsTold { .. }
                    | Message::Pace { .. },
                ..
            } => vec![(Half::Agent, input)],
            input => vec![(Half::Client, input)],
        };
        self.run(now, inputs, out);
    }
}

fn not_reached(address: &str, why: String) -> Effect {
    Effect::Emit(Event::NotReached { address: address.to_string(), why })
}

fn log(line: String) -> Effect {
    Effect::Emit(Event::Log(line))
}

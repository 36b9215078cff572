//! The agent: who is alive, which function is where, how fast, and the mapping of groups.
//!
//! Its knowledge is soft: servers register again with an agent that was started anew. It is on the path neither of data
//! nor of a running plan.

mod links;
mod mapping;
mod models;
mod registry;
mod stale;
mod turns;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::base::limits::{HEARTBEAT_NS, PACE_MAX, PACE_MIN};
use crate::base::time::ns_to_seconds;
use crate::base::{GroupId, Machine, NodeId, Time};
use crate::idl::Signature;
use crate::map::Plan;
use crate::member::Members;
use crate::node::message::{MapRequest, Message, Registration};
use crate::node::protocol::{Effect, Event, Input, TimerId};
use crate::perf::{GridView, LinkEstimate, Links, host_of};
use links::Planned;
use models::Models;
use turns::Turns;

const HEARTBEAT: TimerId = TimerId(0);
const MEASURED: TimerId = TimerId(1);
const DIRECTORY: TimerId = TimerId(2);
const SETTLED: TimerId = TimerId(3);
const TURNS: TimerId = TimerId(4);
/// Changes within this time are told to clients together.
const DIRECTORY_PAUSE_NS: u64 = 2_000_000;
/// Models that were learned are told to clients no more often than this.
const MODELS_PAUSE_NS: u64 = 200_000_000;

/// How it is set up.
#[derive(Clone, Debug)]
pub struct AgentConfig {
    /// Its identifier.
    pub id: NodeId,
    /// Its name.
    pub name: String,
}

#[derive(Debug)]
struct Registered {
    registration: Registration,
    /// Whose models it shares: see [`Registration::processors`].
    processors: String,
    since: Time,
    speed_flops: Option<f64>,
    links_done: bool,
    links: BTreeMap<NodeId, Option<LinkEstimate>>,
    pace: f64,
    /// Work promised to groups.
    promised: BTreeMap<GroupId, Promise>,
}

/// What a plan rests on.
#[derive(Clone, Copy, Debug)]
struct Promise {
    /// When its tasks are predicted to be done here.
    end: Time,
    /// The server's pace when it was made.
    pace: f64,
}

/// The machine.
#[derive(Debug)]
pub struct Agent {
    config: AgentConfig,
    members: Members<()>,
    servers: BTreeMap<NodeId, Registered>,
    /// The registered functions: signature and number of servers that offer it.
    functions: BTreeMap<String, (Signature, u32)>,
    /// Clients that are told of changes, with the version of the functions that they know.
    subscribers: BTreeMap<NodeId, u64>,
    models: Models,
    /// By host; clients are places of their own.
    links: Links<String>,
    /// Transfers wait to be learned from.
    settling: bool,
    /// The server that was last asked to probe because it was its turn.
    probe_turn: NodeId,
    /// Plans under way.
    plans: BTreeMap<GroupId, Planned>,
    version: u64,
    functions_version: u64,
    /// A change is to be told.
    telling: bool,
    /// Requests that wait for links and speeds that are still being measured.
    waiting: Vec<MapRequest>,
    /// Who measures links.
    turns: Turns,
}

impl Agent {
    /// A machine that has not started.
    pub fn new(config: AgentConfig) -> Agent {
        Agent {
            config,
            members: Members::default(),
            servers: BTreeMap::new(),
            functions: BTreeMap::new(),
            subscribers: BTreeMap::new(),
            models: Models::default(),
            links: Links::default(),
            settling: false,
            probe_turn: NodeId(0),
            plans: BTreeMap::new(),
            version: 0,
            functions_version: 1,
            telling: false,
            waiting: Vec::new(),
            turns: Turns::default(),
        }
    }

    /// A peer has been heard of in another way than by what it sends here: it lives.
    pub(in crate::node) fn heard(&mut self, now: Time, peer: NodeId) {
        let _ = self.members.heard(now, peer);
    }

    /// Its identifier.
    pub fn id(&self) -> NodeId {
        self.config.id
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.config.name
    }

    /// What it remembers of groups, by kind: all 0 once every group has ended, or its client is gone.
    pub fn leftovers(&self) -> [(&'static str, usize); 3] {
        let promised = self.servers.values().map(|server| server.promised.len()).sum();
        [("promises to groups", promised), ("requests for plans", self.waiting.len()), ("plans", self.plans.len())]
    }

    fn on_message(&mut self, now: Time, from: NodeId, message: Message, out: &mut Vec<Effect>) {
        match message {
            Message::Ping { token } => send(out, from, Message::Pong { token }),
            Message::Pong { token } => {
                self.members.pong(now, from, token);
            }
            Message::Register(registration) => self.on_register(now, from, registration, out),
            Message::Speed { flops } => {
                if let Some(server) = self.servers.get_mut(&from) {
                    server.speed_flops = (flops.is_finite() && flops > 0.0).then_some(flops);
                    self.tell(now + DIRECTORY_PAUSE_NS, out);
                    self.newly_usable(from, out);
                    self.map_waiting(now, out);
                }
            }
            Message::LinkMeasured { to, link } => self.on_link_measured(now, from, to, link, out),
            Message::TransfersSeen { transfers } => self.on_transfers_seen(now, from, &transfers, out),
            Message::AskLinks => send(out, from, Message::LinksKnown { links: self.link_reports(now) }),
            Message::LinkBroken { to } => {
                if let Some(server) = self.servers.get_mut(&from) {
                    server.links.insert(to, None);
                }
            }
            Message::AskTurn { to } => self.on_ask_turn(now, from, to, out),
            Message::TurnOver { to } => self.on_turn_over(now, from, to, out),
            Message::LinksDone => {
                if let Some(server) = self.servers.get_mut(&from) {
                    server.links_done = true;
                    self.newly_usable(from, out);
                    self.map_waiting(now, out);
                }
            }
            Message::Model { function, model } => self.on_model(now, from, &function, model, out),
            // Who asked may be the client of another agent, or have gone.
            Message::ModelsTold { client } if self.subscribers.contains_key(&client) => {
                self.send_directory(now, client, out);
                send(out, client, Message::ModelsKnown { server: from });
            }
            Message::ModelsTold { .. } => {}
            Message::Pace { pace } if (PACE_MIN..=PACE_MAX).contains(&pace) => self.on_pace(now, from, pace, out),
            Message::Subscribe => {
                self.subscribers.insert(from, 0);
                self.send_directory(now, from, out);
            }
            Message::MapGroup(MapRequest { group, .. }) if group.client != from => {
                log(out, format!("{from} asked for a plan of {group}, which is another client's"));
            }
            Message::MapGroup(mut request) => {
                request.client_links.retain(|(_, link)| link.is_sane());
                self.waiting.push(request);
                self.map_waiting(now, out);
            }
            Message::GroupEnded { group } => {
                if group.client == from {
                    self.plans.remove(&group);
                    self.waiting.retain(|request| request.group != group);
                    self.servers.values_mut().for_each(|server| {
                        server.promised.remove(&group);
                    });
                }
            }
            Message::ProbeArrived { .. }
            | Message::Turn { .. }
            | Message::Registered { .. }
            | Message::MeasureLink { .. }
            | Message::LinksKnown { .. }
            | Message::RegistrationRefused { .. }
            | Message::Directory { .. }
            | Message::GroupMapped { .. }
            | Message::GroupNotMapped { .. }
            | Message::Call { .. }
            | Message::RunTasks { .. }
            | Message::Resupply { .. }
            | Message::Recall { .. }
            | Message::Recalled { .. }
            | Message::Stale { .. }
            | Message::TellModels
            | Message::ModelsKnown { .. }
            | Message::Pace { .. }
            | Message::CallsBack(_)
            | Message::CalledBack { .. }
            | Message::Cancel { .. }
            | Message::Release { .. }
            | Message::TasksEnded { .. }
            | Message::Dropped { .. }
            | Message::SupplyFailed { .. }
            | Message::Fetch { .. }
            | Message::FetchRefused { .. } => log(out, format!("{from} sent an agent what no agent takes")),
        }
    }

    fn forget_server(&mut self, node: NodeId) -> Option<Registered> {
        let server = self.servers.remove(&node)?;
        for signature in &server.registration.functions {
            if let Some((_, count)) = self.functions.get_mut(&signature.name) {
                *count -= 1;
                if *count == 0 {
                    self.functions.remove(&signature.name);
                }
            }
        }
        Some(server)
    }

    fn changed(&mut self, now: Time, out: &mut Vec<Effect>) {
        self.functions_version += 1;
        self.telling = false;
        self.tell(now + DIRECTORY_PAUSE_NS, out);
    }

    /// Has clients told by then; several changes are told together.
    fn tell(&mut self, at: Time, out: &mut Vec<Effect>) {
        if !self.telling {
            self.telling = true;
            out.push(Effect::SetTimer { timer: DIRECTORY, at });
        }
    }

    fn send_directory(&mut self, now: Time, to: NodeId, out: &mut Vec<Effect>) {
        // Who maps needs the links between servers; who only calls does not, and they are many.
        let grid = self.grid_view(now, &[], &[], None);
        let known = self.subscribers.insert(to, self.functions_version);
        let functions = (known != Some(self.functions_version))
            .then(|| self.functions.values().map(|(signature, _)| signature.clone()).collect());
        self.version += 1;
        send(out, to, Message::Directory { version: self.version, grid, functions });
    }

    fn on_lost(&mut self, now: Time, node: NodeId, why: &str, out: &mut Vec<Effect>) {
        self.members.lost(node);
        self.turns_lost(now, node, out);
        self.subscribers.remove(&node);
        self.waiting.retain(|request| request.group.client != node);
        self.plans.retain(|group, _| group.client != node);
        self.forget_links(&node.to_string());
        for server in self.servers.values_mut() {
            server.promised.retain(|group, _| group.client != node);
            server.links.remove(&node);
        }
        if let Some(server) = self.forget_server(node) {
            log(out, format!("lost server '{}': {why}", server.registration.name));
            self.forget_links(host_of(&server.registration.address));
            self.changed(now, out);
            self.map_waiting(now, out);
        }
    }
}

impl Machine for Agent {
    type Input = Input;
    type Effect = Effect;

    fn handle(&mut self, now: Time, input: Input, out: &mut Vec<Effect>) {
        match input {
            Input::Start => out.push(Effect::SetTimer { timer: HEARTBEAT, at: now + HEARTBEAT_NS }),
            Input::PeerUp { peer, .. } => self.members.up(now, peer, ()),
            Input::PeerLost { peer, why } => self.on_lost(now, peer, &why, out),
            Input::Received { from, message } => {
                if self.members.heard(now, from) {
                    self.on_message(now, from, message, out);
                }
            }
            Input::Timer(HEARTBEAT) => {
                out.push(Effect::SetTimer { timer: HEARTBEAT, at: now + HEARTBEAT_NS });
                let beat = self.members.beat(now);
                for (peer, token) in beat.pings {
                    send(out, peer, Message::Ping { token });
                }
                for (peer, silence_ns) in beat.silent {
                    out.push(Effect::HangUp { peer });
                    self.on_lost(now, peer, &format!("silent for {:.1} s", ns_to_seconds(silence_ns)), out);
                }
                self.probe_one(now, out);
            }
            Input::Timer(SETTLED) => self.on_settled(now, out),
            Input::Timer(MEASURED) => self.map_waiting(now, out),
            Input::Timer(TURNS) => self.on_turns_timer(now, out),
            Input::Timer(DIRECTORY) => {
                self.telling = false;
                for client in self.subscribers.keys().copied().collect::<Vec<_>>() {
                    self.send_directory(now, client, out);
                }
            }
            Input::ProbeArrived { from, size_bytes } => send(out, from, Message::ProbeArrived { size_bytes }),
            Input::DatumArrived { datum, .. } => out.push(Effect::DropDatum { datum }),
            Input::Timer(_)
            | Input::DialFailed { .. }
            | Input::DatumBroken { .. }
            | Input::TaskEnded { .. }
            | Input::CallsBack(_)
            | Input::SpeedMeasured { .. }
            | Input::Command(_) => {}
        }
    }
}

fn send(out: &mut Vec<Effect>, to: NodeId, message: Message) {
    out.push(Effect::Send { to, message });
}

fn log(out: &mut Vec<Effect>, line: String) {
    out.push(Effect::Emit(Event::Log(line)));
}

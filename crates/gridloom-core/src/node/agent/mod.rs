//! The agent: tracks live nodes, the functions that servers offer and their speeds, and maps groups.
//!
//! Its knowledge is soft state: servers register again with a restarted agent. Neither data nor running plans depend on the agent.

mod backoff;
mod batches;
mod directory;
mod explain;
mod links;
mod mapping;
mod models;
mod names;
mod paths;
mod placement;
mod registry;
mod requests;
mod sources;
mod stale;
mod turns;

use std::collections::{BTreeMap, BTreeSet};

use crate::member::Members;
use crate::node::message::{
    CatalogMessage, DirectoryMessage, DirectoryToAgent, DirectoryToClient, LinkMessage, LinkToAgent, LinkToProber,
    MapMessage, MapToAgent, Message, Registration, TaskMessage,
};
use crate::node::protocol::{Effect, Input, Role};
use crate::node::{AgentTimer, Category, LogLine, Timer};
use directory::{DIRECTORY_PAUSE_NS, DirectoryPush};
use gridloom_base::limits::{HEARTBEAT_NS, PACE_MAX, PACE_MIN};
use gridloom_base::time::ns_to_seconds;
use gridloom_base::{GroupId, Level, Machine, NodeId, Time};
use gridloom_idl::Signature;
use gridloom_perf::{LinkEstimate, Links, host_of};
use links::PlanAssumptions;
use models::Models;
use names::Names;
use paths::Paths;
use requests::Requests;
use turns::Turns;

/// The configuration of an agent.
#[derive(Clone, Debug)]
pub struct AgentConfig {
    pub id: NodeId,
    pub name: String,
    /// Several clients share the agent, and through it the names of data.
    pub is_shared: bool,
}

/// The data stored for each peer.
#[derive(Clone, Copy, Debug)]
struct PeerInfo {
    role: Role,
    /// Version of the protocol.
    version: u16,
}

#[derive(Debug)]
struct Registered {
    registration: Registration,
    /// Version of the protocol that the server uses with this agent.
    protocol: u16,
    /// Label of the servers that share models with this one. See [`Registration::processors`].
    processors: String,
    since: Time,
    /// Increases with each registration: servers that registered later have higher numbers.
    number: u64,
    speed_flops: Option<f64>,
    links_done: bool,
    links: BTreeMap<NodeId, Option<LinkEstimate>>,
    pace: f64,
    /// Functions that it offers but failed to run. It receives calls of them only while no other server can run them.
    cannot_run: BTreeSet<String>,
    /// It is draining and will exit.
    is_draining: bool,
    /// Work reserved for groups.
    reservations: BTreeMap<GroupId, Reservation>,
}

/// A group's reservation of a server, with the assumptions of its plan.
#[derive(Clone, Copy, Debug)]
struct Reservation {
    /// Predicted end of the group's tasks on this server.
    end: Time,
    /// The server's pace at the time of the plan.
    pace: f64,
}

/// The state machine of an agent.
#[derive(Debug)]
pub struct Agent {
    config: AgentConfig,
    members: Members<PeerInfo>,
    servers: BTreeMap<NodeId, Registered>,
    /// The registered functions: signature, and number of servers that offer the function.
    functions: BTreeMap<String, (Signature, u32)>,
    directory: DirectoryPush,
    models: Models,
    /// Models of links by host. Each client counts as a host of its own.
    links: Links<String>,
    /// Reported transfers wait until the link models are updated from them.
    settle_timer_is_set: bool,
    /// The server whose turn it was last to be asked for a probe.
    probe_turn: NodeId,
    /// Plans of groups that have not ended.
    plans: BTreeMap<GroupId, PlanAssumptions>,
    requests: Requests,
    /// Turns to measure links.
    turns: Turns,
    paths: Paths,
    names: Names,
}

impl Agent {
    /// Returns a machine that has not started.
    pub fn new(config: AgentConfig) -> Agent {
        Agent {
            names: Names::new(config.id, config.is_shared),
            config,
            members: Members::default(),
            servers: BTreeMap::new(),
            functions: BTreeMap::new(),
            directory: DirectoryPush::default(),
            models: Models::default(),
            links: Links::default(),
            settle_timer_is_set: false,
            probe_turn: NodeId(0),
            plans: BTreeMap::new(),
            requests: Requests::default(),
            turns: Turns::default(),
            paths: Paths::default(),
        }
    }

    /// Records that a peer is alive although it sent nothing here.
    pub(in crate::node) fn mark_alive(&mut self, now: Time, peer: NodeId) {
        let _ = self.members.record_received(now, peer);
    }

    pub fn id(&self) -> NodeId {
        self.config.id
    }

    pub fn name(&self) -> &str {
        &self.config.name
    }

    /// Returns the number of entries about groups and shared data, by kind: all 0 once every group has ended or its
    /// client is gone, and all names are deleted and no longer read.
    pub fn leak_counts(&self) -> [(&'static str, usize); 6] {
        let promised = self.servers.values().map(|server| server.reservations.len()).sum();
        let [versions, waits, searches] = self.names.counts();
        [
            ("reservations of groups", promised),
            ("requests for plans", self.requests.len()),
            ("plans", self.plans.len()),
            ("versions of shared data", versions),
            ("requests that wait for names", waits),
            ("searches for shared data", searches),
        ]
    }

    fn on_message(&mut self, now: Time, from: NodeId, message: Message, out: &mut Vec<Effect>) {
        match message {
            Message::Link(LinkMessage::Ping { token }) => send(out, from, LinkMessage::Pong { token }),
            Message::Link(LinkMessage::Pong { token }) => {
                self.members.pong(now, from, token);
            }
            Message::Link(LinkMessage::ToAgent(message)) => self.on_link_message(now, from, message, out),
            Message::Directory(DirectoryMessage::ToAgent(message)) => {
                self.on_directory_message(now, from, message, out);
            }
            Message::Map(MapMessage::ToAgent(message)) => self.on_map_message(now, from, message, out),
            Message::Catalog(CatalogMessage::FromClient(message)) => self.on_client_of_catalog(now, from, message, out),
            Message::Catalog(CatalogMessage::FromServer(message)) => self.on_server_of_catalog(now, from, message, out),
            Message::Task(TaskMessage::ToClient(message)) => self.on_owner_message(now, from, message, out),
            Message::Link(LinkMessage::ToProber(_))
            | Message::Directory(DirectoryMessage::ToServer(_) | DirectoryMessage::ToClient(_))
            | Message::Map(MapMessage::ToClient(_))
            | Message::Task(TaskMessage::ToServer(_))
            | Message::Catalog(CatalogMessage::ToClient(_) | CatalogMessage::ToServer(_))
            | Message::Data(_) => reject_message(from, out),
        }
    }

    fn on_link_message(&mut self, now: Time, from: NodeId, message: LinkToAgent, out: &mut Vec<Effect>) {
        match message {
            LinkToAgent::LinkMeasured { to, link } => self.on_link_measured(now, from, to, link, out),
            LinkToAgent::TransfersReceived { transfers } => self.on_transfers_seen(now, from, &transfers, out),
            LinkToAgent::LinkBroken { to } => {
                if let Some(server) = self.servers.get_mut(&from) {
                    server.links.insert(to, None);
                }
            }
            LinkToAgent::RequestTurn { to } => self.on_turn_request(now, from, to, out),
            LinkToAgent::TurnOver { to } => self.on_turn_over(now, from, to, out),
            LinkToAgent::LinksDone => {
                if let Some(server) = self.servers.get_mut(&from) {
                    server.links_done = true;
                    self.notify_newly_usable(from, out);
                    self.map_waiting(now, out);
                }
            }
        }
    }

    fn on_directory_message(&mut self, now: Time, from: NodeId, message: DirectoryToAgent, out: &mut Vec<Effect>) {
        match message {
            DirectoryToAgent::Register(registration) if self.is_server(from) => {
                self.on_register(now, from, registration, out);
            }
            DirectoryToAgent::Register(_) => reject_message(from, out),
            DirectoryToAgent::Speed { flops } => {
                if let Some(server) = self.servers.get_mut(&from) {
                    server.speed_flops = (flops.is_finite() && flops > 0.0).then_some(flops);
                    self.schedule_push(now + DIRECTORY_PAUSE_NS, out);
                    self.notify_newly_usable(from, out);
                    self.map_waiting(now, out);
                }
            }
            DirectoryToAgent::Model { function, model } => self.on_model(now, from, &function, model, out),
            // The requesting client may be connected to another agent, or may be gone.
            DirectoryToAgent::ModelsReported { client } if self.directory.is_subscribed(client) => {
                self.push_directory(now, out);
                send(out, client, DirectoryToClient::ModelsKnown { server: from });
            }
            DirectoryToAgent::ModelsReported { .. } => {}
            DirectoryToAgent::Pace { pace } if (PACE_MIN..=PACE_MAX).contains(&pace) => {
                self.on_pace(now, from, pace, out);
            }
            DirectoryToAgent::Pace { .. } => reject_message(from, out),
            DirectoryToAgent::CannotRun { function, why } => self.on_cannot_run(now, from, function, &why, out),
            DirectoryToAgent::Draining => self.on_drains(now, from, out),
            DirectoryToAgent::Subscribe => self.on_subscribe(now, from, out),
            DirectoryToAgent::GetLinks => {
                send(out, from, DirectoryToClient::LinksKnown { links: self.link_reports(now) });
            }
        }
    }

    fn on_map_message(&mut self, now: Time, from: NodeId, message: MapToAgent, out: &mut Vec<Effect>) {
        match message {
            MapToAgent::MapGroup(request) if request.group.client != from => {
                let group = request.group;
                let line = LogLine::new(
                    Level::Warning,
                    Category::Agent,
                    format!("a client requested a plan for {group}, which belongs to another client"),
                );
                out.push(line.peer(from).into());
            }
            MapToAgent::MapGroup(mut request) => {
                request.client_links.retain(|(_, link)| link.is_sane());
                self.on_request(now, *request, out);
            }
            MapToAgent::GroupEnded { group } => {
                if group.client == from {
                    self.plans.remove(&group);
                    self.requests.forget_group(group, out);
                    self.servers.values_mut().for_each(|server| {
                        server.reservations.remove(&group);
                    });
                }
            }
        }
    }

    fn on_timer(&mut self, now: Time, timer: AgentTimer, out: &mut Vec<Effect>) {
        match timer {
            AgentTimer::Heartbeat => self.on_heartbeat(now, out),
            AgentTimer::TransfersSettled => self.on_settled(now, out),
            AgentTimer::Batches => self.answer_batches(now, out),
            AgentTimer::MeasureTimeout => self.map_waiting(now, out),
            AgentTimer::Turns => self.on_turns_timer(now, out),
            AgentTimer::Mapping => {
                self.requests.stop_late(now, out);
                self.map_waiting(now, out);
            }
            AgentTimer::DirectoryPush => self.push_directory(now, out),
        }
    }

    fn on_heartbeat(&mut self, now: Time, out: &mut Vec<Effect>) {
        out.push(Effect::SetTimer { timer: AgentTimer::Heartbeat.into(), at: now + HEARTBEAT_NS });
        let beat = self.members.beat(now);
        for (peer, token) in beat.pings {
            send(out, peer, LinkMessage::Ping { token });
        }
        for (peer, silence_ns) in beat.silent {
            out.push(Effect::Disconnect { peer });
            self.on_lost(now, peer, &format!("silent for {:.1} s", ns_to_seconds(silence_ns)), out);
        }
        self.request_probe(now, out);
        self.retry_all_searches(now, out);
        self.settle_names(now, out);
        self.add_missing_keepers(now, out);
        debug_assert_eq!(self.names.catalog().check(), Ok(()), "agent '{}'", self.config.name);
    }

    /// True if a peer is a server, registered or not.
    fn is_server(&self, peer: NodeId) -> bool {
        self.members.get(peer).is_some_and(|peer| peer.data.role == Role::Server)
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

    fn on_lost(&mut self, now: Time, node: NodeId, why: &str, out: &mut Vec<Effect>) {
        self.members.remove(node);
        self.turns_lost(now, node, out);
        self.directory.forget(node);
        self.requests.forget_client(node, out);
        self.plans.retain(|group, _| group.client != node);
        self.forget_links(&node.to_string());
        self.names_lost(now, node, why, out);
        for server in self.servers.values_mut() {
            server.reservations.retain(|group, _| group.client != node);
            server.links.remove(&node);
        }
        if let Some(server) = self.forget_server(node) {
            let Registration { name, address, .. } = &server.registration;
            let line = LogLine::new(Level::Warning, Category::Agent, "lost a server");
            out.push(line.peer(name).address(address).why(why).into());
            self.forget_links(host_of(&server.registration.address));
            self.directory_changed(now, out);
            self.map_waiting(now, out);
        }
        self.send_catalog_updates(now, out);
    }
}

impl Machine for Agent {
    type Input = Input;
    type Effect = Effect;

    fn handle(&mut self, now: Time, input: Input, out: &mut Vec<Effect>) {
        match input {
            Input::Start => {
                self.names.begin(now);
                out.push(Effect::SetTimer { timer: AgentTimer::Heartbeat.into(), at: now + HEARTBEAT_NS });
            }
            Input::PeerUp { peer, role, version, .. } => self.members.add(now, peer, PeerInfo { role, version }),
            Input::PeerLost { peer, why } => self.on_lost(now, peer, &why, out),
            Input::Received { from, message } => {
                if self.members.record_received(now, from) {
                    self.on_message(now, from, message, out);
                }
            }
            Input::Mapped { number, outcome } => self.on_mapped(now, number, outcome, out),
            Input::Timer(Timer::Agent(timer)) => self.on_timer(now, timer, out),
            Input::ProbeArrived { from, size_bytes } => send(out, from, LinkToProber::ProbeArrived { size_bytes }),
            Input::DatumArrived { datum, .. } => out.push(Effect::DropDatum { datum }),
            Input::Timer(_)
            | Input::DialFailed { .. }
            | Input::DatumBegun { .. }
            | Input::DatumBroken { .. }
            | Input::TaskEnded { .. }
            | Input::CallsBack(_)
            | Input::CallOutput(_)
            | Input::Paused { .. }
            | Input::SpeedMeasured { .. }
            | Input::MadeDurable { .. }
            | Input::Command(_) => {}
        }
    }
}

fn send(out: &mut Vec<Effect>, to: NodeId, message: impl Into<Message>) {
    out.push(Effect::Send { to, message: message.into() });
}

fn reject_message(from: NodeId, out: &mut Vec<Effect>) {
    out.push(
        LogLine::new(Level::Warning, Category::Agent, "ignored a message that an agent does not accept")
            .peer(from)
            .into(),
    );
}

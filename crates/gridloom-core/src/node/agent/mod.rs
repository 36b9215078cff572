//! The agent: tracks live nodes, the functions that servers offer and their speeds, and maps groups.
//!
//! Its knowledge is soft state: servers register again with a restarted agent. Neither data nor running plans depend on the agent.
//!
//! The agent only coordinates its parts. Each part has private fields, receives facts, and returns what follows from
//! them as values or effects:
//!
//! | part | contents |
//! |---|---|
//! | [`registry`] | servers, and the functions that they offer |
//! | [`models`] | run time models of functions |
//! | [`links`], [`paths`], [`turns`] | links between hosts, and their measurement |
//! | [`directory`] | updates for clients about servers and functions |
//! | [`program_waits`] | pending requests of programs, for operators |
//! | [`accounts`], [`audit`] | the usage of users; records for the audit log |
//! | [`requests`], [`plans`], [`view`] | requests for plans; reservations and assumptions of plans; the grid as known |
//! | [`names`], [`name_rights`], [`sources`], [`batches`], [`placement`], [`backoff`], [`settling`], [`explain`] | shared data: names; who may read and change them; where servers get them; which servers keep them; requests that wait until servers have returned |
//!
//! The parts read the registry. Apart from that, they do not access one another.

mod accounts;
mod audit;
mod backoff;
mod batches;
mod candidates;
mod directory;
mod explain;
mod link_uses;
mod links;
mod mapping;
mod models;
mod name_rights;
mod names;
mod paths;
mod placement;
mod plans;
mod program_waits;
mod registration;
mod registry;
mod relays;
mod removals;
mod requests;
mod settling;
mod sources;
mod turns;
mod view;

use std::collections::{BTreeMap, BTreeSet};

use crate::data::IdentifierKey;
use crate::member::Members;
use crate::node::message::{
    CatalogMessage, ClientToCatalog, DirectoryMessage, DirectoryToAgent, DirectoryToClient, DirectoryToServer,
    LinkMessage, LinkToAgent, LinkToProber, MapMessage, MapToAgent, Message, ProgramWaits, ReceivedTransfer,
    ServerRecords, ServerToCatalog, TaskMessage, TaskToClient, UsagePage, UsageQuery,
};
use crate::node::protocol::{Effect, Event, Input, Role};
use crate::node::{AgentTimer, Category, Command, LogLine, Timer};
pub use accounts::UsageTable;
use audit::Audit;
use directory::{DIRECTORY_PAUSE_NS, DirectoryPush, MODELS_PAUSE_NS, pause_factor};
use gridloom_base::limits::{
    HEARTBEAT_NS, LEARN_BYTES_MIN, PACE_MAX, PACE_MIN, SERVERS_MAPPED_ALL_MAX, SURPRISE_FACTOR, TRANSFERS_PER_REPORT,
};
use gridloom_base::time::ns_to_seconds;
use gridloom_base::{Level, Machine, NodeId, Origin, Program, Rules, Time};
#[cfg(test)]
use gridloom_perf::GridView;
use gridloom_perf::{CompletedTransfer, FunctionModel, LinkEstimate};
use link_uses::LinkUses;
use links::HostLinks;
use models::Models;
use names::Names;
use paths::Pair;
use plans::Plans;
use program_waits::ReportedWaits;
use registry::{Registered, Registry};
use requests::Requests;
use sources::GridFacts;
use view::GridKnowledge;

/// By how much less the pauses between updates of models grow with the grid than those between other updates.
const MODELS_PAUSE_LESS: u64 = 8;

/// The configuration of an agent.
#[derive(Clone, Debug)]
pub struct AgentConfig {
    pub id: NodeId,
    pub name: String,
    /// Several clients share the agent, and through it the names of data.
    pub is_shared: bool,
    /// Makes the identifiers of shared data unpredictable for clients.
    pub identifier_key: IdentifierKey,
}

/// The data stored for each peer.
#[derive(Clone, Debug)]
struct PeerInfo {
    role: Role,
    program: Program,
    origin: Origin,
    /// Version of the protocol.
    version: u16,
}

/// The state machine of an agent.
#[derive(Debug)]
pub struct Agent {
    config: AgentConfig,
    members: Members<PeerInfo>,
    registry: Registry,
    directory: DirectoryPush,
    models: Models,
    links: HostLinks,
    requests: Requests,
    plans: Plans,
    names: Names,
    program_waits: ReportedWaits,
    usage: UsageTable,
    /// Bytes on the disk of each server by user, as it has reported them last.
    disk_bytes: BTreeMap<NodeId, Vec<(String, u64)>>,
    link_uses: LinkUses,
    audit: Audit,
    /// The rules of the grid. Servers apply them to calls, and [`names`] to shared data.
    rules: Box<Rules>,
}

impl Agent {
    /// Returns a machine that has not started.
    pub fn new(config: AgentConfig) -> Agent {
        Agent {
            names: Names::new(config.identifier_key.clone(), config.is_shared),
            audit: Audit::new(config.is_shared),
            usage: UsageTable::default(),
            disk_bytes: BTreeMap::new(),
            link_uses: LinkUses::default(),
            config,
            members: Members::default(),
            registry: Registry::default(),
            directory: DirectoryPush::default(),
            models: Models::default(),
            links: HostLinks::default(),
            requests: Requests::default(),
            plans: Plans::default(),
            program_waits: ReportedWaits::default(),
            rules: Box::default(),
        }
    }

    /// Continues the usage of users that an earlier agent has recorded.
    #[must_use]
    pub fn with_usage(self, usage: UsageTable) -> Agent {
        Agent { usage, ..self }
    }

    /// Sets the rules with which the agent starts. [`Command::SetRules`] replaces them.
    #[must_use]
    pub fn with_rules(self, rules: Rules) -> Agent {
        Agent { rules: Box::new(rules), ..self }
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
        let (plans, reservations) = self.plans.counts();
        let [versions, waits, searches] = self.names.counts();
        [
            ("reservations of groups", reservations),
            ("requests for plans", self.requests.len()),
            ("plans", plans),
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

    // ---- links

    fn on_link_message(&mut self, now: Time, from: NodeId, message: LinkToAgent, out: &mut Vec<Effect>) {
        match message {
            LinkToAgent::LinkMeasured { to, link } => self.on_link_measured(now, (from, to), link, out),
            LinkToAgent::TransfersReceived { transfers } => self.on_transfers_received(now, from, &transfers, out),
            LinkToAgent::DataPath { from: sender, relay } => self.links.set_path((sender, from), relay),
            LinkToAgent::LinkBroken { to } => self.registry.link_broken(from, to),
            LinkToAgent::RequestTurn { to } => self.links.turn_requested(now, &self.registry, (from, to), out),
            LinkToAgent::TurnOver { to } => self.links.turn_ended(now, &self.registry, (from, to), out),
            LinkToAgent::LinksDone => {
                if self.registry.links_done(from) {
                    self.on_measured(now, from, out);
                }
            }
        }
    }

    fn on_link_measured(&mut self, now: Time, (from, to): (NodeId, NodeId), link: LinkEstimate, out: &mut Vec<Effect>) {
        let sane = Some(link).filter(LinkEstimate::is_sane);
        let Some(was_measured) = sane.and_then(|link| self.registry.link_measured(from, to, link)) else { return };
        let pair = self.pair((from, to));
        let moving = self.pairs_in_transfer();
        if self.links.measured(now, (from, to), &pair, (link, was_measured), &moving) {
            self.link_changed(&pair, out);
        }
        if self.links.update_paths(now, &self.registry, &pair, out) {
            self.map_waiting(now, out);
        }
    }

    fn pair(&self, (from, to): (NodeId, NodeId)) -> Pair {
        (self.registry.location(from), self.registry.location(to))
    }

    /// Returns the pairs of hosts between which transfers may be in progress: those of current plans, and of shared data.
    fn pairs_in_transfer(&self) -> BTreeSet<Pair> {
        let shared = self.names.transfer_pairs().map(|nodes| self.pair(nodes));
        self.plans.transfers().cloned().chain(shared).collect()
    }

    fn on_transfers_received(
        &mut self,
        now: Time,
        receiver: NodeId,
        transfers: &[ReceivedTransfer],
        out: &mut Vec<Effect>,
    ) {
        let is_known = |node: NodeId| self.registry.has(node) || self.directory.is_subscribed(node);
        if !is_known(receiver) {
            return;
        }
        // Transfers from nodes that are gone are not stored.
        for one in transfers.iter().take(TRANSFERS_PER_REPORT).filter(|one| is_known(one.from)) {
            let (from, to) = (self.registry.location(one.from), self.registry.location(receiver));
            if one.duration_ns == 0 || one.size_bytes < LEARN_BYTES_MIN || from == to {
                continue;
            }
            let end = now - one.age_ns;
            let start = end - one.duration_ns;
            let size_bytes = one.size_bytes;
            self.links.add_relayed_transfer(&CompletedTransfer {
                from: one.from,
                to: receiver,
                size_bytes,
                start,
                end,
            });
            self.links.add_transfer(now, CompletedTransfer { from, to, size_bytes, start, end }, out);
        }
    }

    fn on_transfers_settled(&mut self, now: Time, out: &mut Vec<Effect>) {
        for pair in self.links.learn(now, out) {
            self.link_changed(&pair, out);
        }
    }

    fn link_changed(&mut self, pair: &Pair, out: &mut Vec<Effect>) {
        // Clients measure the links to and from themselves.
        let are_servers = [&pair.0, &pair.1].into_iter().all(|host| self.registry.on_host(host).is_some());
        if let Some(model) = self.links.models().of(&pair.0, &pair.1).filter(|_| are_servers) {
            self.plans.link_changed(pair, model, out);
        }
    }

    /// Forgets the links of a node that is gone. A host is forgotten with its last server.
    fn forget_links(&mut self, place: &str) {
        if self.registry.on_host(place).is_none() {
            self.links.forget(place);
        }
    }

    // ---- servers and their functions

    fn on_directory_message(&mut self, now: Time, from: NodeId, message: DirectoryToAgent, out: &mut Vec<Effect>) {
        match message {
            DirectoryToAgent::Register(registration) if self.has_role(from, Role::Server) => {
                self.on_register(now, from, registration, out);
            }
            DirectoryToAgent::Register(_) => reject_message(from, out),
            DirectoryToAgent::Speed { flops } => {
                if self.registry.set_speed(from, flops) {
                    self.speed_changed(from);
                    self.schedule_push(now, out);
                    self.on_measured(now, from, out);
                }
            }
            DirectoryToAgent::Model { function, model } => self.on_model(now, from, &function, model, out),
            // The requesting client may be connected to another agent, or may be gone.
            DirectoryToAgent::ModelsReported { client } if self.directory.is_subscribed(client) => {
                self.push_directory(out);
                send(out, client, DirectoryToClient::ModelsKnown { server: from });
            }
            DirectoryToAgent::ModelsReported { .. } => {}
            DirectoryToAgent::Pace { pace } if (PACE_MIN..=PACE_MAX).contains(&pace) => {
                if let Some(server) = self.registry.set_pace(from, pace) {
                    self.plans.pace_changed(from, server.name(), pace, out);
                    self.directory.mark([from]);
                    self.schedule_push(now, out);
                }
            }
            DirectoryToAgent::Pace { .. } => reject_message(from, out),
            DirectoryToAgent::CannotRun { function, why } => self.on_cannot_run(now, from, &function, &why, out),
            DirectoryToAgent::CanRun { function } => self.on_can_run(now, from, &function, out),
            DirectoryToAgent::Draining => self.on_drains(now, from, out),
            DirectoryToAgent::Subscribe => {
                if self.directory.has_pending() {
                    self.push_directory(out);
                }
                self.directory.subscribe(from, self.registry.signatures(), out);
            }
            DirectoryToAgent::Waits { waited_ns, waits } if self.has_role(from, Role::Client) => {
                self.program_waits.report(now, from, waited_ns, waits);
            }
            DirectoryToAgent::Waits { .. } => reject_message(from, out),
            DirectoryToAgent::GetWaits => {
                send(out, from, DirectoryToClient::WaitsKnown { programs: self.waits(now) });
            }
            DirectoryToAgent::Records(records) => self.on_records(now, from, records, out),
            DirectoryToAgent::GetUsage(query) => self.on_usage_query(now, from, query, out),
            DirectoryToAgent::GetLinks => {
                send(out, from, DirectoryToClient::LinksKnown { links: self.links.reports(now, &self.registry) });
            }
        }
    }

    /// Returns what programs wait for, the longest waits first.
    fn waits(&self, now: Time) -> Vec<ProgramWaits> {
        self.program_waits.longest(now, |client| Some(self.members.get(client)?.data.program.clone()))
    }

    fn log_waits(&self, now: Time, out: &mut Vec<Effect>) {
        let waits = self.waits(now);
        if waits.is_empty() {
            out.push(LogLine::new(Level::Info, Category::Agent, "no program waits").into());
        }
        for ProgramWaits { program, waited_ns, waits } in waits {
            let text = format!("a program has waited for {:.0} s without an event", ns_to_seconds(waited_ns));
            out.push(LogLine::new(Level::Info, Category::Agent, text).peer(program).why(waits.join("; ")).into());
        }
    }

    /// Handles a measurement of a new server: if there is nothing left to measure, plans can use the server.
    fn on_measured(&mut self, now: Time, node: NodeId, out: &mut Vec<Effect>) {
        if let Some(server) = self.registry.get(node).filter(|server| server.is_measured()) {
            self.plans.server_joined(node, server.name(), out);
        }
        self.map_waiting(now, out);
    }

    fn on_model(&mut self, now: Time, from: NodeId, function: &str, model: FunctionModel, out: &mut Vec<Effect>) {
        let Some(server) = self.registry.get(from).filter(|server| model.is_sane() && server.offers(function)) else {
            return;
        };
        let (name, processors) = (server.name(), &server.processors);
        let before = self.knowledge().host_models().of(processors, function);
        let speed = self.registry.speeds().get(processors).copied();
        let change = self.models.learn((processors, name), function, model, &before, speed);
        if !(1.0 / SURPRISE_FACTOR..SURPRISE_FACTOR).contains(&change) {
            let why = format!("'{function}' takes {change:.1} times as long on '{name}' as its model predicted");
            self.plans.servers_changed(self.registry.with_processors(processors), &why, out);
        }
        self.speed_changed(from);
        let factor = (pause_factor(self.registry.len()) / MODELS_PAUSE_LESS).max(1);
        self.directory.schedule(now + factor * MODELS_PAUSE_NS, out);
    }

    /// Records that a server's speed or models have changed, and with them what is guessed from these.
    fn speed_changed(&mut self, node: NodeId) {
        let Some(server) = self.registry.get(node) else { return };
        if self.models.are_guessed_from(&server.processors, self.registry.is_large()) {
            self.directory.mark_all();
        } else {
            self.directory.mark(self.registry.with_processors(&server.processors));
        }
    }

    /// Records that a server was added or is about to be removed.
    fn server_changed(&mut self, node: NodeId) {
        self.speed_changed(node);
        self.directory.mark(self.registry.unable().chain([node]));
        // Guesses are made in another way in large grids.
        if (SERVERS_MAPPED_ALL_MAX..=SERVERS_MAPPED_ALL_MAX + 1).contains(&self.registry.len()) {
            self.directory.mark_all();
        }
    }

    /// Schedules an update of all clients.
    fn schedule_push(&mut self, now: Time, out: &mut Vec<Effect>) {
        self.directory.schedule(now + pause_factor(self.registry.len()) * DIRECTORY_PAUSE_NS, out);
    }

    /// Schedules an update of all clients after servers were added or removed.
    fn schedule_servers_push(&mut self, now: Time, out: &mut Vec<Effect>) {
        self.directory.changed(now + pause_factor(self.registry.len()) * DIRECTORY_PAUSE_NS, out);
    }

    // ---- records of users

    fn on_records(&mut self, now: Time, from: NodeId, records: ServerRecords, out: &mut Vec<Effect>) {
        let ServerRecords { usage: users, audit, disk_bytes, links } = records;
        let is_valid = accounts::is_valid(&users)
            && disk_bytes.as_ref().is_none_or(|bytes| accounts::are_valid(bytes))
            && links.as_ref().is_none_or(|(_, uses)| link_uses::is_valid(uses));
        let Some(server) = self.registry.get(from).filter(|_| is_valid) else {
            return reject_message(from, out);
        };
        if let Some(bytes) = disk_bytes {
            self.disk_bytes.insert(from, bytes);
        }
        self.audit.on_server_records(now, server.name(), audit, out);
        if let Some((day, uses)) = links
            && self.link_uses.report(accounts::day_of(now), from, day, uses, &self.rules)
        {
            self.send_used_up_links(out);
        }
        if !users.is_empty() {
            let day = accounts::day_of(now);
            self.usage.report(day, from, &users);
            if self.config.is_shared {
                out.push(Effect::Emit(Event::UsageReported { day, server: from, users }));
            }
        }
    }

    /// Sends all servers the users who have used up links.
    fn send_used_up_links(&self, out: &mut Vec<Effect>) {
        let (day, used_up) = self.link_uses.used_up();
        for (server, _) in self.registry.iter() {
            send(out, server, DirectoryToServer::LinksUsedUp { day, used_up: used_up.clone() });
        }
    }

    fn on_usage_query(&self, now: Time, from: NodeId, query: UsageQuery, out: &mut Vec<Effect>) {
        let Some(peer) = self.members.get(from).filter(|peer| peer.data.role == Role::Client) else {
            return reject_message(from, out);
        };
        let answer = match self.config.is_shared {
            true => {
                let is_first = query.after.is_none();
                let stored_bytes = if is_first { self.names.stored_bytes() } else { Default::default() };
                let disk_bytes = if is_first { accounts::sum_of(&self.disk_bytes) } else { Default::default() };
                let origin = &peer.data.origin;
                self.usage.answer(origin, &query, &stored_bytes, &disk_bytes).map(|page| {
                    let user = query.user.as_deref().or((!origin.is_administrator).then_some(&*origin.user));
                    let links = if is_first { self.link_uses.of(accounts::day_of(now), user) } else { Vec::new() };
                    UsagePage { links, ..page }
                })
            }
            false => Err("servers without an agent keep no records of users; connect to an agent".into()),
        };
        send(out, from, DirectoryToClient::UsageKnown { query, answer });
    }

    fn push_directory(&mut self, out: &mut Vec<Effect>) {
        let Agent { directory, registry, models, links, plans, .. } = self;
        let knowledge = GridKnowledge { servers: registry, models, links, plans };
        let of = |node: &NodeId| registry.get(*node).map(|server| (*node, server));
        let views = |changed: Option<&BTreeSet<NodeId>>| match changed {
            Some(changed) => knowledge.views(changed.iter().filter_map(of)),
            None => knowledge.views(registry.iter()),
        };
        directory.push(views, || registry.signatures(), out);
    }

    fn knowledge(&self) -> GridKnowledge<'_> {
        GridKnowledge { servers: &self.registry, models: &self.models, links: &self.links, plans: &self.plans }
    }

    /// Returns the view of the grid that clients receive. It remains valid until something changes.
    #[cfg(test)]
    fn grid_view(&self, now: Time) -> GridView {
        self.knowledge().view(now, None)
    }

    fn set_rules(&mut self, now: Time, rules: Box<Rules>, out: &mut Vec<Effect>) {
        if rules == self.rules {
            return;
        }
        let count = self.registry.iter().count();
        let text = format!("the rules of the grid have changed; they are sent to {count} servers");
        out.push(LogLine::new(Level::Info, Category::Agent, text).into());
        self.rules = rules;
        let servers = self.registry.iter().map(|(node, _)| node);
        servers.for_each(|server| send(out, server, DirectoryToServer::RulesChanged { rules: self.rules.clone() }));
        self.link_uses.set_rules(&self.rules);
        self.send_used_up_links(out);
        if self.directory.has_pending() {
            self.push_directory(out);
        }
        let (names, grid) = self.names(now);
        names.rules_changed(grid, out);
    }

    // ---- plans

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
                    self.plans.group_ended(group);
                    self.requests.forget_group(group, out);
                }
            }
        }
    }

    // ---- shared data

    /// Returns the part that manages shared data, and the facts that it needs.
    fn names(&mut self, now: Time) -> (&mut Names, GridFacts<'_>) {
        let Agent { names, registry, links, members, rules, .. } = self;
        (names, GridFacts { now, servers: registry, links: links.models(), members, rules })
    }

    fn on_client_of_catalog(&mut self, now: Time, client: NodeId, message: ClientToCatalog, out: &mut Vec<Effect>) {
        if !self.has_role(client, Role::Client) {
            return reject_message(client, out);
        }
        self.audit.requested(client, &message);
        // The answer names servers that the client must already know: the server to which it sends the datum, or the
        // holders. A program may also place a datum that it has found on a server that was started just before.
        let names_servers = matches!(message, ClientToCatalog::Put { .. } | ClientToCatalog::Find { .. });
        if names_servers && self.directory.has_pending() {
            self.push_directory(out);
        }
        let (names, grid) = self.names(now);
        names.on_client_message(grid, client, message, out);
    }

    fn on_server_of_catalog(&mut self, now: Time, server: NodeId, message: ServerToCatalog, out: &mut Vec<Effect>) {
        if !self.registry.has(server) {
            return reject_message(server, out);
        }
        self.push_for_waiting(out);
        let (names, grid) = self.names(now);
        names.on_server_message(grid, server, message, out);
    }

    /// Handles messages that a server sends to the owner of data, for shared data.
    fn on_owner_message(&mut self, now: Time, server: NodeId, message: TaskToClient, out: &mut Vec<Effect>) {
        if !self.registry.has(server) {
            return reject_message(server, out);
        }
        let (names, grid) = self.names(now);
        names.on_owner_message(grid, server, message, out);
    }

    /// Sends clients the directory at once if the answer to a waiting request may name a server that they do not know yet.
    fn push_for_waiting(&mut self, out: &mut Vec<Effect>) {
        if self.names.has_waiting() && self.directory.has_pending() {
            self.push_directory(out);
        }
    }

    // ---- time and peers

    fn on_timer(&mut self, now: Time, timer: AgentTimer, out: &mut Vec<Effect>) {
        match timer {
            AgentTimer::Heartbeat => self.on_heartbeat(now, out),
            AgentTimer::TransfersSettled => self.on_transfers_settled(now, out),
            AgentTimer::Batches => {
                let (names, grid) = self.names(now);
                names.answer_batches(grid, out);
            }
            AgentTimer::MeasureTimeout => self.map_waiting(now, out),
            AgentTimer::Turns => self.links.end_overdue_turns(now, &self.registry, out),
            AgentTimer::Mapping => {
                self.requests.stop_late(now, out);
                self.map_waiting(now, out);
            }
            AgentTimer::DirectoryPush => self.push_directory(out),
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
        let moving = self.names.transfer_pairs().map(|nodes| self.pair(nodes)).collect();
        let planned = self.plans.transfers().cloned();
        self.links.request_probe(now, &self.registry, (moving, planned), out);
        self.push_for_waiting(out);
        let (names, grid) = self.names(now);
        names.on_heartbeat(grid, out);
        self.audit.begin_period(now, out);
        debug_assert_eq!(self.names.check(), Ok(()), "agent '{}'", self.config.name);
    }

    fn has_role(&self, peer: NodeId, role: Role) -> bool {
        self.members.get(peer).is_some_and(|peer| peer.data.role == role)
    }

    fn forget_server(&mut self, node: NodeId) -> Option<Registered> {
        self.server_changed(node);
        self.plans.server_lost(node);
        self.disk_bytes.remove(&node);
        self.registry.remove(node)
    }

    fn on_lost(&mut self, now: Time, node: NodeId, why: &str, out: &mut Vec<Effect>) {
        if let Some(peer) = self.members.remove(node).map(|peer| peer.data) {
            self.audit.left(&peer, why, out);
        }
        self.links.node_lost(now, &self.registry, node, out);
        self.directory.forget(node);
        self.requests.forget_client(node, out);
        self.program_waits.forget(node);
        self.plans.client_lost(node);
        self.forget_links(&node.to_string());
        let (names, grid) = self.names(now);
        names.node_lost(grid, node, why, out);
        self.registry.forget_links_to(node);
        self.links.forget_paths(node);
        if let Some(server) = self.forget_server(node) {
            let line = LogLine::new(Level::Warning, Category::Agent, "lost a server");
            out.push(line.peer(server.name()).address(server.address()).why(why).into());
            self.forget_links(server.host());
            self.schedule_servers_push(now, out);
            self.map_waiting(now, out);
        }
        let (names, grid) = self.names(now);
        names.send_updates(grid, out);
    }
}

impl Machine for Agent {
    type Input = Input;
    type Effect = Effect;

    fn handle(&mut self, now: Time, input: Input, out: &mut Vec<Effect>) {
        let before = out.len();
        match input {
            Input::Start => {
                self.names.begin(now);
                out.push(Effect::SetTimer { timer: AgentTimer::Heartbeat.into(), at: now + HEARTBEAT_NS });
            }
            Input::PeerUp { peer, role, name, origin, address, version } => {
                let program = origin.program(peer, &name);
                let info = PeerInfo { role, program, origin, version };
                self.audit.joined(&info, &address, out);
                self.members.add(now, peer, info);
            }
            Input::PeerLost { peer, why, .. } => self.on_lost(now, peer, &why, out),
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
            | Input::DataPath { .. }
            | Input::DatumBegun { .. }
            | Input::DatumBroken { .. }
            | Input::TaskEnded { .. }
            | Input::CallsBack(_)
            | Input::CallOutput(_)
            | Input::Paused { .. }
            | Input::SpeedMeasured { .. }
            | Input::MadeDurable { .. }
            | Input::DurableSynced { .. }
            | Input::OnDisk { .. } => {}
            Input::Command(Command::LogWaits) => self.log_waits(now, out),
            Input::Command(Command::SetRules { rules }) => self.set_rules(now, rules, out),
            Input::Command(_) => {}
        }
        let Agent { audit, members, .. } = self;
        audit.record_answers(|node| members.get(node).map(|peer| &peer.data), before, out);
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

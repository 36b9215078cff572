//! The agent: who is alive, which function is where, how fast, and the mapping of groups.
//!
//! Its knowledge is soft: servers register again with an agent that was started anew. It is on the path neither of data
//! nor of a running plan.

mod models;

use std::collections::{BTreeMap, BTreeSet};

use crate::base::limits::{
    HEARTBEAT_NS, MEASURE_WAIT_NS_MAX, PACE_MAX, PACE_MIN, SLOTS_MAX, STALE_FACTOR, SURPRISE_FACTOR,
};
use crate::base::time::ns_to_seconds;
use crate::base::{GroupId, Machine, NodeId, Time};
use crate::graph::Outline;
use crate::idl::Signature;
use crate::map::{MapBy, Seen};
use crate::member::Members;
use crate::node::message::{Message, Registration};
use crate::node::protocol::{Effect, Event, Input, TimerId};
use models::Models;

use crate::perf::{Curve, FunctionModel, GridView, LinkEstimate, ServerView, Size};

const HEARTBEAT: TimerId = TimerId(0);
const MEASURED: TimerId = TimerId(1);
const DIRECTORY: TimerId = TimerId(2);
/// Changes within this time are told to clients together.
const DIRECTORY_PAUSE_NS: u64 = 2_000_000;
/// Bytes per second within a host, at the least, whatever a probe says that was disturbed: memory, shared or through the
/// loopback device.
const SAME_HOST_BANDWIDTH_MIN: f64 = 1e9;
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

#[derive(Debug)]
struct MapRequest {
    client: NodeId,
    group: GroupId,
    round: u64,
    outline: Outline,
    heuristic: MapBy,
    plan_only: bool,
    client_links: Vec<(NodeId, LinkEstimate)>,
    without: Vec<NodeId>,
    busy: Vec<(NodeId, f64)>,
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
    version: u64,
    functions_version: u64,
    /// A change is to be told.
    telling: bool,
    /// Requests that wait for links and speeds that are still being measured.
    waiting: Vec<MapRequest>,
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
            version: 0,
            functions_version: 1,
            telling: false,
            waiting: Vec::new(),
        }
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
    pub fn leftovers(&self) -> [(&'static str, usize); 2] {
        let promised = self.servers.values().map(|server| server.promised.len()).sum();
        [("promises to groups", promised), ("requests for plans", self.waiting.len())]
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
            Message::LinkMeasured { to, link } => {
                if let (Some(server), true) = (self.servers.get_mut(&from), link.is_sane()) {
                    server.links.insert(to, Some(link));
                }
            }
            Message::LinkBroken { to } => {
                if let Some(server) = self.servers.get_mut(&from) {
                    server.links.insert(to, None);
                }
            }
            Message::LinksDone => {
                if let Some(server) = self.servers.get_mut(&from) {
                    server.links_done = true;
                    self.newly_usable(from, out);
                    self.map_waiting(now, out);
                }
            }
            Message::Model { function, model } => {
                if let Some(server) = self.servers.get(&from)
                    && server.registration.functions.iter().any(|known| known.name == function)
                    && model.is_sane()
                {
                    let (name, host) =
                        (server.registration.name.clone(), host_of(&server.registration.address).to_string());
                    let change = self.learned(&host, &name, &function, model);
                    if !(1.0 / SURPRISE_FACTOR..SURPRISE_FACTOR).contains(&change) {
                        let why = format!("'{function}' takes {change:.1} times as long on '{name}' as was known");
                        self.stale_at(&host, &why, out);
                    }
                    self.tell(now + MODELS_PAUSE_NS, out);
                }
            }
            Message::Pace { pace } if (PACE_MIN..=PACE_MAX).contains(&pace) => self.on_pace(now, from, pace, out),
            Message::Subscribe => {
                self.subscribers.insert(from, 0);
                self.send_directory(now, from, out);
            }
            Message::MapGroup { group, .. } if group.client != from => {
                log(out, format!("{from} asked for a plan of {group}, which is another client's"));
            }
            Message::MapGroup { group, round, outline, heuristic, plan_only, mut client_links, without, busy } => {
                client_links.retain(|(_, link)| link.is_sane());
                self.waiting.push(MapRequest {
                    client: from,
                    group,
                    round,
                    outline,
                    heuristic,
                    plan_only,
                    client_links,
                    without,
                    busy,
                });
                self.map_waiting(now, out);
            }
            Message::GroupEnded { group } => {
                if group.client == from {
                    self.waiting.retain(|request| request.group != group);
                    self.servers.values_mut().for_each(|server| {
                        server.promised.remove(&group);
                    });
                }
            }
            Message::ProbeArrived { .. }
            | Message::Registered { .. }
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
            | Message::Pace { .. }
            | Message::Cancel { .. }
            | Message::Release { .. }
            | Message::TasksEnded { .. }
            | Message::Dropped { .. }
            | Message::SupplyFailed { .. }
            | Message::Fetch { .. }
            | Message::FetchRefused { .. } => log(out, format!("{from} sent an agent what no agent takes")),
        }
    }

    /// Takes in a model; gives the factor by which the time of its largest call has changed on that host.
    fn learned(&mut self, host: &str, server: &str, function: &str, model: FunctionModel) -> f64 {
        let speeds = self.speeds();
        let speed = speeds.get(host).copied();
        let before = self.models.of(host, function, &speeds);
        let largest = |curve: &Curve, size: fn(f64) -> Size| curve.points.last().map(|point| size(point.size));
        let size = largest(&model.by_work, Size::Work).or(largest(&model.by_bytes, |bytes| Size::Bytes(bytes as u64)));
        let change = size.map_or(1.0, |size| model.seconds(size, speed) / before.seconds(size, speed));
        self.models.take(host, server, function, model);
        if change.is_finite() && change > 0.0 { change } else { 1.0 }
    }

    /// Tells the clients of groups on that host's servers that their plans rest on what has changed.
    fn stale_at(&self, host: &str, why: &str, out: &mut Vec<Effect>) {
        let there = self.servers.values().filter(|server| host_of(&server.registration.address) == host);
        let groups: BTreeSet<GroupId> = there.flat_map(|server| server.promised.keys().copied()).collect();
        for group in groups {
            send(out, group.client, Message::Stale { group, why: why.to_string() });
        }
    }

    fn on_pace(&mut self, now: Time, from: NodeId, pace: f64, out: &mut Vec<Effect>) {
        let Some(server) = self.servers.get_mut(&from) else { return };
        server.pace = pace;
        let name = &server.registration.name;
        for (group, promise) in &mut server.promised {
            let change = pace / promise.pace;
            if !(1.0 / STALE_FACTOR..STALE_FACTOR).contains(&change) {
                promise.pace = pace;
                let why = format!("calls on server '{name}' take {change:.1} times as long as when it was mapped");
                send(out, group.client, Message::Stale { group: *group, why });
            }
        }
        self.tell(now + DIRECTORY_PAUSE_NS, out);
    }

    /// A server can be mapped onto that was not there, or not known, before: plans under way could use it.
    fn newly_usable(&mut self, node: NodeId, out: &mut Vec<Effect>) {
        let Some(server) = self.servers.get(&node).filter(|s| s.links_done && s.speed_flops.is_some()) else { return };
        let why = format!("server '{}' has come", server.registration.name);
        let groups: BTreeSet<GroupId> = self.servers.values().flat_map(|s| s.promised.keys().copied()).collect();
        for group in groups.into_iter().filter(|group| !server.promised.contains_key(group)) {
            send(out, group.client, Message::Stale { group, why: why.clone() });
        }
    }

    fn on_register(&mut self, now: Time, from: NodeId, registration: Registration, out: &mut Vec<Effect>) {
        // Two cannot listen at one address: who is silent there is gone, though its connection has not broken yet.
        let same =
            |s: &Registered| !s.registration.address.is_empty() && s.registration.address == registration.address;
        let before: Vec<NodeId> =
            self.servers.iter().filter(|(n, s)| **n != from && same(s)).map(|(n, _)| *n).collect();
        if let Err((may_pass, why)) = self.check_registration(now, from, &registration, &before) {
            log(out, format!("refused server '{}': {why}", registration.name));
            send(out, from, Message::RegistrationRefused { why, may_pass });
            return;
        }
        for node in before {
            out.push(Effect::HangUp { peer: node });
            self.on_lost(now, node, "another server listens at its address", out);
        }
        self.forget_server(from);
        for signature in &registration.functions {
            self.functions.entry(signature.name.clone()).or_insert_with(|| (signature.clone(), 0)).1 += 1;
        }
        let peers = match registration.plain {
            true => Vec::new(),
            false => self
                .servers
                .iter()
                .filter(|(_, s)| !s.registration.plain)
                .map(|(n, s)| (*n, s.registration.address.clone()))
                .collect(),
        };
        log(
            out,
            format!(
                "server '{}' at {} offers {} functions",
                registration.name,
                registration.address,
                registration.functions.len()
            ),
        );
        self.servers.insert(
            from,
            Registered {
                links_done: registration.plain,
                registration,
                since: now,
                speed_flops: None,
                pace: 1.0,
                links: BTreeMap::new(),
                promised: BTreeMap::new(),
            },
        );
        send(out, from, Message::Registered { peers });
        self.changed(now, out);
    }

    /// Why a server is not taken, and whether that may pass. `before` had its address.
    fn check_registration(
        &self,
        now: Time,
        from: NodeId,
        registration: &Registration,
        before: &[NodeId],
    ) -> Result<(), (bool, String)> {
        let name = &registration.name;
        let for_good = |why: String| (false, why);
        if name.is_empty() || name.len() > crate::base::limits::NAME_BYTES_MAX {
            return Err(for_good(format!("a server's name has 1 to {} bytes", crate::base::limits::NAME_BYTES_MAX)));
        }
        if registration.slots > SLOTS_MAX {
            return Err(for_good(format!("it has {} slots, the limit is {SLOTS_MAX}", registration.slots)));
        }
        if registration.slots == 0 {
            return Err(for_good("it has no slots; start it with --slots of at least 1".into()));
        }
        let is_other = |node: &NodeId| *node != from && !before.contains(node);
        let is_alive = |node: &NodeId| self.members.silence_ns(now, *node).is_some_and(|ns| ns < 2 * HEARTBEAT_NS);
        if let Some(other) = before.iter().find(|node| is_alive(node)) {
            let (other, address) = (&self.servers[other].registration.name, &registration.address);
            let why = format!("server '{other}' answers at its address {address}; give each its own (--advertise)");
            return Err((true, why));
        }
        if let Some((_, other)) = self.servers.iter().find(|(node, s)| is_other(node) && s.registration.name == *name) {
            let address = &other.registration.address;
            return Err((true, format!("another server at {address} has the name '{name}'; choose one with --name")));
        }
        for signature in &registration.functions {
            signature.check().map_err(|why| for_good(format!("function '{}': {why}", signature.name)))?;
            // All servers that offer a function of that name agree on it: mostly it is enough to look at that.
            if self.functions.get(&signature.name).is_none_or(|(known, _)| known == signature) {
                continue;
            }
            let others = self.servers.iter().filter(|(node, _)| is_other(node));
            for (_, other) in others {
                let same = other.registration.functions.iter().find(|known| known.name == signature.name);
                if let Some(known) = same.filter(|known| known.hash() != signature.hash()) {
                    let why = format!(
                        "function '{}' is offered by server '{}' with another signature: '{known}' there, \
                         '{signature}' here; rename the function or its module",
                        signature.name, other.registration.name
                    );
                    // A server that comes back with a changed function may find itself, not yet noticed to be dead.
                    return Err((other.registration.name == *name, why));
                }
            }
        }
        Ok(())
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

    /// The grid as known, for a client with those links, leaving out what `group` itself was promised. Without a group,
    /// without the links between servers.
    fn grid_view(
        &self,
        now: Time,
        client_links: &[(NodeId, LinkEstimate)],
        without: &[NodeId],
        group: Option<GroupId>,
    ) -> GridView {
        let mut servers: Vec<(&NodeId, &Registered)> =
            self.servers.iter().filter(|(node, _)| !without.contains(node)).collect();
        servers.sort_by(|a, b| a.1.registration.name.cmp(&b.1.registration.name));
        let speeds = self.speeds();
        let hosts: Vec<&str> = servers.iter().map(|(_, server)| host_of(&server.registration.address)).collect();
        let links = if group.is_some() { self.links() } else { BTreeMap::new() };
        let mapped = if group.is_some() { servers.len() } else { 0 };
        let host = |node: &NodeId| self.servers.get(node).map(|s| host_of(&s.registration.address));
        let mut by_host: BTreeMap<&str, Vec<LinkEstimate>> = BTreeMap::new();
        for (node, link) in client_links {
            if let Some(host) = host(node) {
                by_host.entry(host).or_default().push(*link);
            }
        }
        let views = servers.iter().map(|(node, server)| {
            let r = &server.registration;
            let busy =
                server.promised.iter().filter(|(id, _)| Some(**id) != group).map(|(_, promise)| promise.end.since(now));
            let busy_s = ns_to_seconds(busy.max().unwrap_or(0));
            let host = host_of(&r.address);
            let speed_flops = speeds.get(host).copied();
            ServerView {
                node: **node,
                name: r.name.clone(),
                address: r.address.clone(),
                slots: r.slots,
                plain: r.plain,
                memory_bytes: r.memory_bytes,
                speed_flops,
                pace: server.pace,
                functions: r
                    .functions
                    .iter()
                    .map(|s| (s.name.clone(), self.models.of(host, &s.name, &speeds)))
                    .collect(),
                busy_s: vec![busy_s; r.slots as usize],
            }
        });
        let link = |from: usize, to: usize| {
            let (a, b) = (servers[from], servers[to]);
            if from == to || a.1.registration.plain || b.1.registration.plain {
                return None;
            }
            // A pair that was measured one way only is taken to be alike both ways.
            match (a.1.links.get(b.0), b.1.links.get(a.0)) {
                (Some(None), _) | (None, Some(None)) => None,
                (Some(Some(_)) | None, Some(Some(_)) | None) | (Some(Some(_)), Some(None)) => {
                    let (here, there) = (hosts[from], hosts[to]);
                    let link = links.get(&(here, there)).or_else(|| links.get(&(there, here)));
                    let mut link = link.copied().unwrap_or(LinkEstimate::UNMEASURED);
                    if here == there {
                        link.bandwidth = link.bandwidth.max(SAME_HOST_BANDWIDTH_MIN);
                    }
                    Some(link)
                }
            }
        };
        GridView {
            client_links: servers
                .iter()
                .map(|(_, server)| by_host.get(host_of(&server.registration.address)))
                .map(|links| links.map_or(LinkEstimate::UNMEASURED, |links| best_link(links)))
                .collect(),
            links: (0..mapped).map(|i| (0..mapped).map(|j| link(i, j)).collect()).collect(),
            servers: views.collect(),
        }
    }

    /// Mean speed of the servers of each host.
    fn speeds(&self) -> BTreeMap<&str, f64> {
        let known = self.servers.values().filter_map(|s| Some((host_of(&s.registration.address), s.speed_flops?)));
        means(known)
    }

    /// Best measured links between hosts, by name of sender and receiver.
    fn links(&self) -> BTreeMap<(&str, &str), LinkEstimate> {
        let mut sums: BTreeMap<(&str, &str), Vec<LinkEstimate>> = BTreeMap::new();
        for server in self.servers.values() {
            for (peer, link) in &server.links {
                if let (Some(link), Some(other)) = (link, self.servers.get(peer)) {
                    let hosts = (host_of(&server.registration.address), host_of(&other.registration.address));
                    sums.entry(hosts).or_default().push(*link);
                }
            }
        }
        sums.into_iter().map(|(hosts, links)| (hosts, best_link(&links))).collect()
    }

    /// Maps the groups that wait, unless servers that came a moment ago are still being measured.
    fn map_waiting(&mut self, now: Time, out: &mut Vec<Effect>) {
        if self.waiting.is_empty() {
            return;
        }
        let unmeasured = self
            .servers
            .values()
            .filter(|s| !s.links_done || s.speed_flops.is_none())
            .map(|s| s.since + MEASURE_WAIT_NS_MAX)
            .filter(|until| *until > now)
            .max();
        if let Some(until) = unmeasured {
            out.push(Effect::SetTimer { timer: MEASURED, at: until });
            return;
        }
        for request in std::mem::take(&mut self.waiting) {
            self.map_group(now, request, out);
        }
    }

    fn map_group(&mut self, now: Time, request: MapRequest, out: &mut Vec<Effect>) {
        let MapRequest { client, group, round, mut outline, heuristic, plan_only, client_links, without, busy } =
            request;
        let mut grid = self.grid_view(now, &client_links, &without, Some(group));
        occupy(&mut grid, &busy);
        // Holders that are not known here, or no longer: the client gets at what they hold, or has it made again.
        for datum in outline.data.iter_mut().filter(|datum| datum.producer.is_none()) {
            datum.at.retain(|node| *node == client || grid.server(*node).is_some());
            if datum.at.is_empty() {
                datum.at.push(client);
            }
        }
        match heuristic.map(&outline, &grid, client) {
            Ok(plan) => {
                let mut ends: BTreeMap<NodeId, f64> = BTreeMap::new();
                for task in &plan.tasks {
                    let end = ends.entry(task.server).or_default();
                    *end = end.max(task.end_s);
                }
                for (node, end_s) in ends.iter().filter(|_| !plan_only) {
                    let end = now + crate::base::time::seconds_to_ns(*end_s);
                    let server = self.servers.get_mut(node).expect("mapped onto a known server");
                    server.promised.insert(group, Promise { end, pace: server.pace });
                }
                let addresses =
                    grid.servers.iter().filter(|s| ends.contains_key(&s.node)).map(|s| (s.node, s.address.clone()));
                let addresses = addresses.collect();
                let seen = plan_only.then(|| Box::new(Seen::new(client, outline, grid)));
                send(out, client, Message::GroupMapped { group, round, plan, addresses, seen });
            }
            Err(why) => send(out, client, Message::GroupNotMapped { group, round, why: why.to_string() }),
        }
    }

    fn on_lost(&mut self, now: Time, node: NodeId, why: &str, out: &mut Vec<Effect>) {
        self.members.lost(node);
        self.subscribers.remove(&node);
        self.waiting.retain(|request| request.client != node);
        for server in self.servers.values_mut() {
            server.promised.retain(|group, _| group.client != node);
            server.links.remove(&node);
        }
        if let Some(server) = self.forget_server(node) {
            log(out, format!("lost server '{}': {why}", server.registration.name));
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
            }
            Input::Timer(MEASURED) => self.map_waiting(now, out),
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

/// Puts tasks that are under way on the slots that are free first.
fn occupy(grid: &mut GridView, busy: &[(NodeId, f64)]) {
    for (node, seconds) in busy.iter().filter(|(_, seconds)| seconds.is_finite() && *seconds > 0.0) {
        if let Some(at) = grid.server(*node) {
            let slots = &mut grid.servers[at].busy_s;
            if let Some(first) = slots.first_mut() {
                *first += seconds;
            }
            slots.sort_by(f64::total_cmp);
        }
    }
}

/// The host in an address: what stands before the last colon.
fn host_of(address: &str) -> &str {
    address.rsplit_once(':').map_or(address, |(host, _)| host)
}

fn means<'a>(values: impl Iterator<Item = (&'a str, f64)>) -> BTreeMap<&'a str, f64> {
    let mut sums: BTreeMap<&str, (f64, u32)> = BTreeMap::new();
    for (key, value) in values {
        let sum = sums.entry(key).or_default();
        *sum = (sum.0 + value, sum.1 + 1);
    }
    sums.into_iter().map(|(key, (sum, count))| (key, sum / f64::from(count))).collect()
}

/// The best latency and bandwidth seen between two hosts: whatever else goes on while a link is measured makes it look
/// worse, never better.
fn best_link(links: &[LinkEstimate]) -> LinkEstimate {
    LinkEstimate {
        latency_s: links.iter().map(|link| link.latency_s).fold(f64::INFINITY, f64::min),
        bandwidth: links.iter().map(|link| link.bandwidth).fold(0.0, f64::max),
    }
}

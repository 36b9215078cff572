//! An agent alone, whose servers are played by this process: what large grids cost the agent, without a simulated network.
//!
//! Each server measures its links as the agent requests, and answers pings. Servers of one site have links of 1 Gb/s, and those of
//! different sites links of 100 Mb/s.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use gridloom_base::{GroupId, Machine, NodeId, Origin, Time};
use gridloom_core::node::message::{
    DirectoryMessage, DirectoryToAgent, DirectoryToClient, DirectoryToServer, LinkMessage, LinkToAgent, LinkToProber,
    MapMessage, MapRequest, MapToAgent, MapToClient, Message, Purpose, Registration,
};
use gridloom_core::node::version::VERSIONS;
use gridloom_core::node::{Agent, AgentConfig, Effect, Input, Role, Timer};
use gridloom_idl::Signature;
use gridloom_map::{Outline, OutlineTask, Plan, Stop};
use gridloom_perf::{FunctionModel, Learner, LinkEstimate, LinkReport, Size};

const CLIENT: NodeId = NodeId(1 << 40);
/// Time between messages to the agent.
const MESSAGE_NS: u64 = 1_000;

/// See the module's documentation.
pub struct LoneAgent {
    agent: Agent,
    now: Time,
    /// Messages to the agent.
    messages: VecDeque<(NodeId, Message)>,
    timers: BTreeMap<Timer, Time>,
    /// Peers to which each server has yet to measure its link.
    unmeasured: BTreeMap<NodeId, BTreeSet<NodeId>>,
    signature: Signature,
    sites: u64,
    /// Number of messages that the agent has sent.
    pub sent: u64,
    /// Number of servers in the updates that were sent to the client.
    pub listed: u64,
    plan: Option<Plan>,
    links: Vec<LinkReport>,
}

impl LoneAgent {
    /// Creates an agent with one client. Servers belong to that many sites in turn.
    pub fn new(signature: Signature, sites: u64) -> LoneAgent {
        let config =
            AgentConfig { id: NodeId(0), name: "agent".into(), is_shared: true, identifier_key: Default::default() };
        let mut alone = LoneAgent {
            agent: Agent::new(config),
            now: Time(0),
            messages: VecDeque::new(),
            timers: BTreeMap::new(),
            unmeasured: BTreeMap::new(),
            signature,
            sites,
            sent: 0,
            listed: 0,
            plan: None,
            links: Vec::new(),
        };
        alone.input(Input::Start);
        alone.connect(CLIENT, Role::Client, "client".into(), String::new());
        alone.receive(CLIENT, DirectoryToAgent::Subscribe);
        alone
    }

    /// Adds a server that makes that many floating-point operations per second, and lets it measure its links.
    pub fn add_server(&mut self, number: u64, flops: f64) {
        let (node, name, address) = (NodeId(1 + number), format!("server-{number}"), format!("host-{number}:1"));
        self.connect(node, Role::Server, name.clone(), address.clone());
        let registration = Registration {
            name,
            address,
            slots: 1,
            is_stateless: false,
            memory_bytes: 1 << 30,
            is_durable: false,
            storage: None,
            slowdown: 1.0,
            functions: vec![self.signature.clone()],
            code_hashes: BTreeMap::from([(self.signature.name.clone(), 1)]),
            release: String::new(),
            was_registered: false,
        };
        self.messages.push_back((node, DirectoryToAgent::Register(registration).into()));
        self.messages.push_back((node, DirectoryToAgent::Speed { flops }.into()));
        self.run();
    }

    pub fn lose_server(&mut self, number: u64) {
        let (peer, why) = (NodeId(1 + number), "it ended".to_string());
        self.input(Input::PeerLost { peer, fault: gridloom_base::dial::ConnectionFault::Disconnected, why });
        self.run();
    }

    /// Has a server report the model of its function after a few calls of this work that took so long.
    pub fn report_model(&mut self, number: u64, work_flops: f64, seconds: f64) {
        let mut learner = Learner::default();
        (0..3).for_each(|_| learner.learn(Size::Work(work_flops), seconds, 1.0, false));
        let model: FunctionModel = learner.model();
        self.receive(NodeId(1 + number), DirectoryToAgent::Model { function: self.signature.name.clone(), model });
    }

    /// Maps a group of independent tasks.
    pub fn map(&mut self, tasks: usize, work_flops: f64) -> Plan {
        let task = OutlineTask {
            function: 0,
            work_flops: Some(work_flops),
            bound_to: None,
            inputs: Vec::new(),
            outputs: Vec::new(),
        };
        let outline =
            Outline { functions: vec![self.signature.name.clone()], tasks: vec![task; tasks], data: Vec::new() };
        let request = MapRequest {
            group: GroupId { client: CLIENT, serial: self.now.0 },
            round: 1,
            outline,
            heuristic: "auto".into(),
            purpose: Purpose::Run,
            client_links: Vec::new(),
            unmeasured: BTreeSet::new(),
            excluded_servers: Vec::new(),
            busy: Vec::new(),
        };
        self.receive(CLIENT, MapToAgent::MapGroup(Box::new(request)));
        self.plan.take().expect("the servers are measured")
    }

    /// Returns the links that the agent knows.
    pub fn links(&mut self) -> &[LinkReport] {
        self.receive(CLIENT, DirectoryToAgent::GetLinks);
        &self.links
    }

    /// Lets virtual time pass. All servers answer pings.
    pub fn pass(&mut self, ns: u64) {
        let until = self.now + ns;
        while let Some((timer, at)) = self.timers.iter().min_by_key(|(_, at)| **at).map(|(timer, at)| (*timer, *at)) {
            if at > until {
                break;
            }
            self.timers.remove(&timer);
            self.now = self.now.max(at);
            self.input(Input::Timer(timer));
            self.run();
        }
        self.now = self.now.max(until);
    }

    fn connect(&mut self, peer: NodeId, role: Role, name: String, address: String) {
        self.input(Input::PeerUp { peer, role, name, origin: Origin::default(), address, version: VERSIONS.1 });
    }

    fn receive(&mut self, from: NodeId, message: impl Into<Message>) {
        self.messages.push_back((from, message.into()));
        self.run();
    }

    /// Delivers messages to the agent until there are none.
    fn run(&mut self) {
        while let Some((from, message)) = self.messages.pop_front() {
            self.now = self.now + MESSAGE_NS;
            self.input(Input::Received { from, message });
        }
    }

    fn input(&mut self, input: Input) {
        let mut out = Vec::new();
        self.agent.handle(self.now, input, &mut out);
        for effect in out {
            match effect {
                Effect::Send { to, message } => {
                    self.sent += 1;
                    self.sent_to(to, message);
                }
                Effect::SetTimer { timer, at } => _ = self.timers.insert(timer, at),
                Effect::CancelTimer { timer } => _ = self.timers.remove(&timer),
                Effect::Map { number, job } => {
                    let outcome = job.map(Stop::NEVER);
                    self.input(Input::Mapped { number, outcome });
                }
                _ => {}
            }
        }
    }

    fn sent_to(&mut self, to: NodeId, message: Message) {
        match message {
            Message::Link(LinkMessage::Ping { token }) => self.answer(to, LinkMessage::Pong { token }),
            Message::Link(LinkMessage::ToProber(LinkToProber::Turn { to: peer, is_needed })) => {
                self.turn(to, peer, is_needed)
            }
            Message::Directory(DirectoryMessage::ToServer(message)) => match message {
                DirectoryToServer::Registered { peers, .. } => {
                    let peers: Vec<NodeId> = peers.into_iter().map(|(peer, _)| peer).collect();
                    self.unmeasured.insert(to, peers.iter().copied().collect());
                    peers.into_iter().for_each(|peer| self.answer(to, LinkToAgent::RequestTurn { to: peer }));
                    self.report_done(to);
                }
                DirectoryToServer::MeasureLink { to: peer, .. } => {
                    self.answer(to, LinkToAgent::RequestTurn { to: peer })
                }
                _ => {}
            },
            Message::Directory(DirectoryMessage::ToClient(DirectoryToClient::Update(update))) => {
                self.listed += update.servers.len() as u64;
            }
            Message::Directory(DirectoryMessage::ToClient(DirectoryToClient::LinksKnown { links })) => {
                self.links = links;
            }
            Message::Map(MapMessage::ToClient(MapToClient::GroupMapped { plan, .. })) => self.plan = Some(plan),
            _ => {}
        }
    }

    /// A server measures a link, if that is needed.
    fn turn(&mut self, prober: NodeId, peer: NodeId, is_needed: bool) {
        if is_needed {
            let is_near = prober.0 % self.sites == peer.0 % self.sites;
            let (latency_s, bandwidth) = if is_near { (5e-5, 1.25e8) } else { (5e-3, 1.25e7) };
            self.answer(prober, LinkToAgent::LinkMeasured { to: peer, link: LinkEstimate { latency_s, bandwidth } });
        }
        self.answer(prober, LinkToAgent::TurnOver { to: peer });
        if let Some(peers) = self.unmeasured.get_mut(&prober) {
            peers.remove(&peer);
            self.report_done(prober);
        }
    }

    fn report_done(&mut self, server: NodeId) {
        if self.unmeasured.get(&server).is_some_and(BTreeSet::is_empty) {
            self.unmeasured.remove(&server);
            self.answer(server, LinkToAgent::LinksDone);
        }
    }

    fn answer(&mut self, from: NodeId, message: impl Into<Message>) {
        self.messages.push_back((from, message.into()));
    }
}

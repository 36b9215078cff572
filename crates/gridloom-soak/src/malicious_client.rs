//! A malicious client with keys of the grid: it sends messages that no client sends, impersonates others, and fills stores.
//!
//! It belongs to another user than the other clients, and is not allowed to end their calls, or to replace or delete their
//! names. It does not do what it is allowed to do: read data whose names it knows. It learns shared data by listing names.

use std::collections::BTreeMap;

use gridloom_base::time::{MILLISECOND_NS, SECOND_NS};
use gridloom_base::{
    DatumId, Dtype, GroupId, METHODS, Machine, Meta, NamedDatum, NodeId, SplitMix64, StorageId, TaskError, TaskId,
    Time, full_name,
};
use gridloom_core::graph::{Argument, CallOptions, CopyLifetime, Output, Task, TaskKind};
use gridloom_core::node::message::{
    CatalogAnswer, CatalogMessage, CatalogToClient, CatalogToServer, ClientToCatalog, DamagedVersion, DataMessage,
    DirectoryToAgent, DirectoryToServer, LinkMessage, LinkToAgent, MapRequest, MapToAgent, Message, Purpose,
    Registration, ServerToCatalog, StoredVersion, Supply, TaskReport, TaskTimes, TaskToClient, TaskToServer,
};
use gridloom_core::node::{Effect, Input, Role, Timer};
use gridloom_map::{MappingMethod, Outline, OutlineDatum, OutlineTask};
use gridloom_perf::LinkEstimate;

use super::layout::AGENT_HOST;
use super::workload::{Hashes, MIX_NAME};
use crate::layout::USER;

/// Maximum number of messages that it sends, and the time in which it sends them.
const MESSAGES_MAX: u64 = 200;
const WITHIN_NS: u64 = 4 * SECOND_NS;
/// It stays this long, so that its data occupy the stores.
const STAYS_NS: u64 = 20 * SECOND_NS;
const SEND: Timer = Timer::Numbered(1);
const LEAVE: Timer = Timer::Numbered(2);

/// First number of its own data, and their count.
pub(crate) const OWN_FROM: u64 = 1 << 30;
pub(crate) const OWN_COUNT: u64 = 40;
/// Number of forged values that it stores under the names of the first victim's data.
pub(crate) const FORGED: u64 = 300;

/// The machine of the malicious client.
pub(crate) struct MaliciousClient {
    pub(crate) id: NodeId,
    pub(crate) random: SplitMix64,
    /// Addresses that it dials.
    pub(crate) addresses: Vec<String>,
    /// The clients that it impersonates.
    pub(crate) impersonated: Vec<NodeId>,
    pub(crate) elements: u64,
    pub(crate) hashes: Hashes,
    pub(crate) peers: BTreeMap<NodeId, Role>,
    /// Shared data that it has learned of.
    pub(crate) shared: Vec<NamedDatum>,
    pub(crate) next: u64,
}

impl Machine for MaliciousClient {
    type Input = Input;
    type Effect = Effect;

    fn handle(&mut self, now: Time, input: Input, out: &mut Vec<Effect>) {
        match input {
            Input::Start => {
                out.extend(self.addresses.iter().map(|address| Effect::Dial { address: address.clone() }));
                out.extend((0..MESSAGES_MAX).map(|number| {
                    let at = now + 10 * MILLISECOND_NS + self.random.below(WITHIN_NS);
                    Effect::SetTimer { timer: Timer::Numbered(MESSAGES_MAX + number), at }
                }));
                out.push(Effect::SetTimer { timer: LEAVE, at: now + STAYS_NS });
            }
            Input::PeerUp { peer, role, .. } => _ = self.peers.insert(peer, role),
            Input::PeerLost { peer, .. } => {
                self.peers.remove(&peer);
                // Peers disconnect it after some of its messages, and it reconnects.
                out.push(Effect::SetTimer { timer: SEND, at: now + 100 * MILLISECOND_NS });
            }
            Input::Timer(SEND) => {
                out.extend(self.addresses.iter().map(|address| Effect::Dial { address: address.clone() }))
            }
            Input::Timer(LEAVE) => out.push(Effect::Exit { why: "it has sent all its messages".into() }),
            Input::Timer(_) => self.speak(out),
            Input::Received { from, message: Message::Link(LinkMessage::Ping { token }) } => {
                out.push(Effect::Send { to: from, message: LinkMessage::Pong { token }.into() });
            }
            Input::Received { message: Message::Catalog(CatalogMessage::ToClient(message)), .. } => match message {
                CatalogToClient::Answer { answer: Ok(CatalogAnswer::Listed { names, .. }), .. } => {
                    self.shared = names.into_iter().map(|listed| listed.named).collect();
                }
                // The names of the other clients belong to another user, who shares none.
                CatalogToClient::Answer { answer: Ok(CatalogAnswer::Found { named, .. }), .. } => {
                    assert!(!named.name.starts_with('~'), "it has found {named:?}");
                }
                // A put of its own, for which it never sends the value.
                CatalogToClient::Place { named, .. } => self.shared.push(named),
                _ => {}
            },
            // It does not answer anything else.
            _ => {}
        }
    }
}

impl MaliciousClient {
    fn below(&mut self, bound: u64) -> u64 {
        self.random.below(bound)
    }

    fn speak(&mut self, out: &mut Vec<Effect>) {
        if self.peers.is_empty() {
            return;
        }
        let at = self.below(self.peers.len() as u64) as usize;
        let (to, role) = self.peers.iter().nth(at).map(|(peer, role)| (*peer, *role)).expect("counted above");
        if role == Role::Server && self.below(12) == 0 {
            // It has forged values of others in its store.
            let datum = match self.below(2) {
                0 => DatumId { client: self.impersonated[0], serial: self.below(FORGED) },
                _ => self.own(),
            };
            return out.push(Effect::SendDatum { to, datum });
        }
        let message = if role == Role::Agent { self.say_to_agent() } else { self.message_to_server() };
        out.push(Effect::Send { to, message });
    }

    // ---- names

    fn victim(&mut self) -> NodeId {
        self.impersonated[self.random.below(self.impersonated.len() as u64) as usize]
    }

    fn serial(&mut self) -> u64 {
        match self.below(2) {
            0 => self.below(2_200),
            _ => 1_000_000 + self.below(600),
        }
    }

    fn datum(&mut self) -> DatumId {
        DatumId { client: self.victim(), serial: self.serial() }
    }

    fn own(&mut self) -> DatumId {
        DatumId { client: self.id, serial: OWN_FROM + self.below(OWN_COUNT) }
    }

    fn task_id(&mut self) -> TaskId {
        TaskId { client: self.victim(), serial: self.serial() }
    }

    fn group(&mut self) -> GroupId {
        GroupId { client: self.victim(), serial: 1 + self.below(3) }
    }

    fn many<T>(&mut self, mut draw: impl FnMut(&mut MaliciousClient) -> T) -> Vec<T> {
        (0..1 + self.below(20)).map(|_| draw(self)).collect()
    }

    fn node(&mut self) -> NodeId {
        NodeId(self.below(12))
    }

    fn meta(&self) -> Meta {
        Meta::array(Dtype::Float64, &[self.elements])
    }

    fn supply(&mut self, datum: DatumId) -> Supply {
        let address = ["", "sim://host-0:1", "nowhere"][self.below(3) as usize].into();
        let from = if self.below(2) == 0 { self.id } else { self.node() };
        Supply {
            datum,
            meta: self.meta(),
            from,
            address,
            hops: 1 + self.below(3) as u16,
            by_storage: self.below(4) == 0,
        }
    }

    // ---- its messages

    fn message_to_server(&mut self) -> Message {
        match self.below(21) {
            0 => TaskToServer::Release { data: self.many(MaliciousClient::datum) }.into(),
            1 => TaskToServer::Cancel { tasks: self.many(MaliciousClient::task_id) }.into(),
            2 => TaskToServer::HasCopies { data: self.many(MaliciousClient::datum) }.into(),
            3 => TaskToServer::CannotCopy { data: self.many(MaliciousClient::datum) }.into(),
            4 => TaskToServer::CalledBack { task: self.task_id(), answer: Err("no".into()) }.into(),
            5 => {
                let group = if self.below(2) == 0 { Some(self.group()) } else { None };
                TaskToServer::Recall { group, tasks: self.many(MaliciousClient::task_id) }.into()
            }
            6 => {
                let supplies = self.many(|insider| {
                    let datum = insider.datum();
                    insider.supply(datum)
                });
                TaskToServer::Resupply { supplies }.into()
            }
            7 => DataMessage::Fetch { datum: self.datum(), hops: self.below(4) as u16, by_storage: self.below(2) == 0 }
                .into(),
            8 => DataMessage::FetchRefused { datum: self.datum(), why: "so".into() }.into(),
            9 => self.impersonate(),
            10 => {
                let outcome = Err(TaskError::Cancelled);
                let timing = TaskTimes { run_ns: u64::MAX, age_ns: u64::MAX };
                let reports = vec![TaskReport { task: self.task_id(), outcome, timing }];
                TaskToClient::TasksEnded { reports, transfers: Vec::new(), other_tasks: u32::MAX }.into()
            }
            11 => TaskToServer::Release { data: self.many(MaliciousClient::shared_datum) }.into(),
            12 => match self.below(5) {
                0 => CatalogToServer::Lost { datum: self.shared_datum(), why: "so".into() }.into(),
                1 => CatalogToServer::Expect { named: self.named(), client: self.id }.into(),
                2 => CatalogToServer::Superseded { datum: self.shared_datum() }.into(),
                3 if self.below(2) == 0 => CatalogToServer::Sync { number: u64::MAX }.into(),
                3 => CatalogToServer::LeaveSource { from: self.node() }.into(),
                _ => TaskToServer::HasCopies { data: self.many(MaliciousClient::shared_datum) }.into(),
            },
            13 | 14 => self.offer_forged(),
            15 => {
                let datum = self.shared_datum();
                TaskToServer::Resupply { supplies: vec![self.supply(datum)] }.into()
            }
            16 => self.taking_part(),
            17 | 18 => DirectoryToServer::EndTask { task: self.task_id() }.into(),
            _ => self.fill_store(),
        }
    }

    /// Returns an existing or an invented shared datum.
    fn named(&mut self) -> NamedDatum {
        let at = self.below(self.shared.len() as u64 + 1) as usize;
        let made_up = || NamedDatum {
            datum: DatumId { client: NodeId::CATALOG, serial: 7 },
            name: "mesh".into(),
            version: u64::MAX,
            meta: self.meta(),
            replicas: 2,
            is_durable: true,
            method: gridloom_base::Method::Auto,
            put_by: None,
            readers: Default::default(),
        };
        self.shared.get(at).cloned().unwrap_or_else(made_up)
    }

    fn shared_datum(&mut self) -> DatumId {
        self.named().datum
    }

    /// Offers one of its own forged values as a shared datum, or sends a malformed task.
    fn offer_forged(&mut self) -> Message {
        let mut named = self.named();
        if self.below(4) == 0 {
            named = NamedDatum { name: ["", "\n", "ab"][self.below(3) as usize].into(), ..named };
        }
        let mut task = self.task();
        let read = if self.below(4) == 0 { named.datum } else { self.own() };
        (task.kind, task.args) = (TaskKind::Publish(Box::new(named)), vec![Argument::Datum(read)]);
        if self.below(4) > 0 {
            task.outputs.clear();
        }
        let supplies = vec![self.supply(read)];
        TaskToServer::RunTasks { tasks: vec![task], supplies }.into()
    }

    /// Requests a slice of shared data or of its own data, usually beyond their size.
    fn taking_part(&mut self) -> Message {
        let mut task = self.task();
        let read = if self.below(2) == 0 { self.shared_datum() } else { self.own() };
        let from_byte = [0, 8, 1 << 20, u64::MAX][self.below(4) as usize];
        (task.kind, task.args) = (TaskKind::View { from_byte }, vec![Argument::Datum(read)]);
        if self.below(4) > 0 {
            task.outputs.truncate(1);
        }
        let supplies = vec![self.supply(read)];
        TaskToServer::RunTasks { tasks: vec![task], supplies }.into()
    }

    /// Sends a task under another client's identity, or with another's results or data.
    fn impersonate(&mut self) -> Message {
        let mut task = self.task();
        match self.below(3) {
            0 => task.id = self.task_id(),
            1 => task.outputs.iter_mut().for_each(|output| output.datum = self.datum()),
            _ => task.args = vec![Argument::Datum(self.datum()); task.args.len()],
        }
        let supplies: Vec<Supply> = task.inputs().map(|datum| self.supply(datum)).collect();
        TaskToServer::RunTasks { tasks: vec![task], supplies }.into()
    }

    /// Sends tasks of its own that fill the store: results that it never fetches, and permanent copies.
    fn fill_store(&mut self) -> Message {
        let mut task = self.task();
        if self.below(2) == 0 {
            task.kind = TaskKind::Replicate(if self.below(4) == 0 { CopyLifetime::Cached } else { CopyLifetime::Kept });
            task.args = vec![Argument::Datum(self.own())];
            task.outputs.clear();
        }
        let meta = self.meta();
        let supplies: Vec<Supply> =
            task.inputs().map(|datum| Supply::direct(datum, meta.clone(), self.id, String::new(), 1)).collect();
        TaskToServer::RunTasks { tasks: vec![task], supplies }.into()
    }

    /// Returns a task like those of the program's other clients.
    fn task(&mut self) -> Task {
        self.next += 1;
        let (x, y) = (self.own(), self.own());
        let n = (self.elements as i32).to_ne_bytes().to_vec();
        let meta = self.meta();
        Task {
            id: TaskId { client: self.id, serial: self.next },
            kind: TaskKind::call(MIX_NAME, self.hashes[0]),
            args: vec![
                Argument::Inline { meta: Meta::scalar(Dtype::Int32), bytes: n },
                Argument::Datum(x),
                Argument::Datum(y),
            ],
            outputs: vec![Output { datum: DatumId { client: self.id, serial: self.next }, meta }],
            work_flops: [None, Some(1e6), Some(f64::NAN), Some(-1.0)][self.below(4) as usize],
            options: CallOptions::default(),
        }
    }

    fn say_to_agent(&mut self) -> Message {
        let odd = [0.0, -1.0, f64::NAN, f64::INFINITY, 1e-300][self.below(5) as usize];
        let to = self.node();
        match self.below(18) {
            0 => MapToAgent::GroupEnded { group: self.group() }.into(),
            1 => LinkToAgent::LinkMeasured { to, link: LinkEstimate { latency_s: odd, bandwidth: odd } }.into(),
            2 => LinkToAgent::LinkBroken { to }.into(),
            3 => LinkToAgent::TurnOver { to }.into(),
            4 => LinkToAgent::RequestTurn { to }.into(),
            5 if self.below(2) == 0 => DirectoryToAgent::CanRun { function: MIX_NAME.into() }.into(),
            5 => DirectoryToAgent::CannotRun { function: MIX_NAME.into(), why: "so".into() }.into(),
            6 => DirectoryToAgent::Pace { pace: odd }.into(),
            7 => {
                let (name, address) = (format!("server-{}", 1 + self.below(4)), "nowhere".to_string());
                let (slots, memory_bytes, slowdown) = (u32::MAX, u64::MAX, odd);
                let (functions, codes) = (Vec::new(), BTreeMap::new());
                let plain = false;
                let new = Registration {
                    name,
                    address,
                    slots,
                    is_stateless: plain,
                    memory_bytes,
                    is_durable: true,
                    storage: Some(StorageId(AGENT_HOST.into())),
                    slowdown,
                    functions,
                    code_hashes: codes,
                    release: String::new(),
                    was_registered: true,
                };
                DirectoryToAgent::Register(new).into()
            }
            8 => DirectoryToAgent::ModelsReported { client: self.victim() }.into(),
            9..13 => self.invalid_names(),
            13 | 14 => {
                self.next += 1;
                let name = self.named().name;
                let name = if self.below(2) == 0 { full_name(USER, &name).into_owned() } else { name };
                ClientToCatalog::Delete { request: self.next, name }.into()
            }
            _ => self.slow_mapping(),
        }
    }

    /// Sends invalid requests about other clients' names, puts whose values it never sends, and many queries.
    fn invalid_names(&mut self) -> Message {
        self.next += 1;
        let ask = self.next;
        let name = ["mesh", "run/1", "", "\u{7}", "x/1"][self.below(5) as usize];
        let name = if self.below(2) == 0 { full_name(USER, name).into_owned() } else { name.to_string() };
        match self.below(13) {
            11 => ClientToCatalog::Find { request: ask, name, waits: self.below(2) == 0 }.into(),
            12 => ClientToCatalog::Share { request: ask, name, users: vec!["mallory".into()] }.into(),
            0 => ClientToCatalog::List { request: ask, prefix: String::new(), after: String::new() }.into(),
            1 => ClientToCatalog::Explain {
                request: ask,
                name,
                after: Some(self.node()).filter(|_| ask.is_multiple_of(2)),
            }
            .into(),
            2 => ServerToCatalog::Stored { datum: self.shared_datum(), client: self.id }.into(),
            3 => {
                ServerToCatalog::StoredVersions { data: vec![StoredVersion { named: self.named(), is_current: true }] }
                    .into()
            }
            4 if self.below(2) == 0 => {
                let damaged = DamagedVersion { named: self.named(), why: "x".repeat(self.below(4) as usize) };
                ServerToCatalog::Damaged { data: vec![damaged] }.into()
            }
            4 if self.below(2) == 0 => {
                ServerToCatalog::SourceSilent { from: self.node(), data: self.many(MaliciousClient::shared_datum) }
                    .into()
            }
            4 if self.below(4) == 0 => ServerToCatalog::Synced { number: u64::MAX }.into(),
            4 => ServerToCatalog::HasCopies { data: self.many(MaliciousClient::shared_datum) }.into(),
            5 => ClientToCatalog::Release { datum: self.shared_datum(), times: u64::MAX }.into(),
            6 => ClientToCatalog::Withdraw { datum: self.shared_datum() }.into(),
            7 if self.below(2) == 0 => ClientToCatalog::CheckPut { request: ask, datum: self.shared_datum() }.into(),
            7 => ClientToCatalog::Locate { datum: self.shared_datum() }.into(),
            8 => {
                let meta = [self.meta(), Meta::array(Dtype::Float64, &[u64::MAX, 3])][self.below(2) as usize].clone();
                let (replaces, at) = (self.below(2) == 0, self.many(MaliciousClient::node));
                let before = Some(self.shared_datum()).filter(|_| self.below(4) == 0);
                let refused = self.many(|insider| (insider.node(), "x".repeat(insider.below(4) as usize)));
                let replicas = [1, 1, 2, u16::MAX][self.below(4) as usize];
                let is_durable = self.below(2) == 0;
                let (method, made_by) = (METHODS[self.below(METHODS.len() as u64) as usize].method, None);
                ClientToCatalog::Put {
                    request: ask,
                    name,
                    meta,
                    replaces,
                    replicas,
                    is_durable,
                    method,
                    made_by,
                    holders: at,
                    earlier_attempt: before,
                    refused,
                }
                .into()
            }
            9 => {
                let data = self.many(|insider| (insider.shared_datum(), insider.below(4)));
                ClientToCatalog::Reads { data }.into()
            }
            _ => {
                let data = self.many(MaliciousClient::shared_datum);
                TaskToClient::Dropped { data }.into()
            }
        }
    }

    /// Requests the mapping of a group: under another identity, with tasks that do not exist, or of a kind that takes long.
    fn slow_mapping(&mut self) -> Message {
        let count = 1 + self.below(30) as u32;
        let wrong = if self.below(3) == 0 { 1_000 } else { 0 };
        let task = |number: u32| OutlineTask {
            function: if number == 0 { wrong } else { 0 },
            work_flops: Some(1e9),
            bound_to: None,
            inputs: if number == 0 { vec![] } else { vec![number - 1 + wrong] },
            outputs: vec![number],
        };
        let datum = |number: u32| OutlineDatum {
            size_bytes: u64::MAX >> (number % 40),
            producer: Some(number),
            at: Vec::new(),
            wanted: true,
            name: None,
            method: METHODS[number as usize % METHODS.len()].method,
        };
        let tasks = (0..count).map(task).collect();
        let outline = Outline { functions: vec![MIX_NAME.into()], tasks, data: (0..count).map(datum).collect() };
        let client = if self.below(3) == 0 { self.victim() } else { self.id };
        let request = MapRequest {
            group: GroupId { client, serial: 1 + self.below(3) },
            round: self.below(3),
            outline,
            heuristic: MappingMethod::Heuristic(
                ["auto[steps=3000]", "anneal[steps=2000]", "heft", "none"][self.below(4) as usize].into(),
            ),
            purpose: [Purpose::Run, Purpose::PlanOnly, Purpose::Reserve][self.below(3) as usize],
            client_links: vec![(self.node(), LinkEstimate { latency_s: f64::NAN, bandwidth: -1.0 })],
            unmeasured: Default::default(),
            excluded_servers: self.many(MaliciousClient::node),
            busy: vec![(self.node(), f64::NAN), (self.node(), f64::INFINITY)],
        };
        MapToAgent::MapGroup(Box::new(request)).into()
    }
}

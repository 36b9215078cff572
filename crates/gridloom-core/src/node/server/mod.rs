//! The server: runs tasks as their inputs arrive, keeps their results, and sends them to nodes that request them.
//!
//! A server is message-driven: no other node starts its tasks. It requests the inputs as soon as there is memory for
//! them (a standing request: the holder answers when it has the datum), runs ready tasks in the plan's order, and
//! answers standing requests for its own results as soon as they exist. Transfers therefore overlap with computation,
//! and two dependent tasks need no message through the client between them.
//!
//! Its parts have private state and do not know one another: registration, links, admission (tasks and data),
//! learning, reports, objects, outputs, calibration, accounts. The server routes messages to them and turns their outputs into
//! effects.

mod accounts;
mod admission;
mod calibration;
mod draining;
mod durable;
mod leak_check;
mod learning;
mod link_quotas;
mod links;
mod objects;
mod outputs;
mod pauses;
mod peers;
mod programs;
mod registration;
mod reports;
mod rules;
mod shared;
mod tasks;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::data::Requester;
use crate::exec::Separation;
use crate::member::Members;
use crate::node::data_paths::DataPaths;
use crate::node::message::{
    AuditEvent, CatalogMessage, DamagedVersion, DataMessage, DirectoryMessage, DirectoryToAgent, DirectoryToClient,
    DirectoryToServer, LinkMessage, LinkToAgent, LinkToProber, Message, Supply, SupplyFault, TaskMessage, TaskToClient,
    TaskToServer,
};
use crate::node::probing::Measurement;
use crate::node::protocol::{Command, Effect, Event, Input, Role};
use crate::node::{Category, LogLine, ServerTimer, Timer};
use accounts::Accounts;
use admission::{Admission, AdmissionOutput};
use calibration::Calibration;
pub use draining::DRAINED;
use gridloom_base::limits::{HEARTBEAT_NS, RATE_REPORT_NS};
use gridloom_base::time::ns_to_seconds;
use gridloom_base::{Level, Machine, NamedDatum, NodeId, StorageId, TaskId, Time};
use gridloom_idl::Signature;
use gridloom_perf::FunctionModel;
use learning::{Learning, LearningUpdate};
use link_quotas::LinkQuotas;
use links::Links;
use objects::Objects;
use outputs::{Outputs, Reader};
use pauses::Pauses;
use programs::Programs;
use registration::RegistrationState;
use reports::Reports;
use rules::KnownRules;
use shared::SharedData;

/// The configuration of a server.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    pub id: NodeId,
    pub name: String,
    /// The address at which other nodes can dial it.
    pub address: String,
    /// The agent's address; empty if the server has no agent and waits for clients that know its address.
    pub agent: String,
    /// Number of tasks that it runs at a time.
    pub slots: u32,
    /// Number of cores that its tasks share; 0 if it is not known.
    pub cores: u32,
    /// Number of very short tasks that the world accepts at a time for one slot.
    pub queue_depth: u32,
    /// A stateless server: it communicates with clients only. Each call contains its arguments, and its results are sent back.
    pub is_stateless: bool,
    /// Size limit of its store, bytes.
    pub memory_bytes: u64,
    /// The part of the store that is on disk: the world stores data there that do not fit into memory.
    pub disk_bytes: u64,
    /// Maximum number of data in its store. It is limited because each datum takes a file descriptor.
    pub data_max: u64,
    /// Factor by which its calls are deliberately slowed down.
    pub slowdown: f64,
    /// The functions whose workers serve one user each.
    pub separation: Separation,
    /// The functions that it offers.
    pub functions: Vec<Signature>,
    /// Fingerprints of the code of some functions, by name.
    pub code_hashes: BTreeMap<String, u64>,
    /// Models of the functions from earlier runs of the server, by name.
    pub models: BTreeMap<String, FunctionModel>,
    /// Shared data in the store that outlive the server; `None` if the server cannot make data durable.
    pub durable: Option<Vec<NamedDatum>>,
    /// Durable data of an earlier run whose files are damaged.
    pub damaged: Vec<DamagedVersion>,
    /// The storage that it shares with other servers; `None` if it shares none.
    pub storage: Option<StorageId>,
}

/// The state machine of a server.
#[derive(Debug)]
pub struct Server {
    config: Arc<ServerConfig>,
    /// Hashes of the offered signatures, by function name.
    functions: BTreeMap<String, u64>,
    /// Functions that declare the shared data that they use.
    uses_shared_data: BTreeSet<String>,
    members: Members<Role>,
    programs: Programs,
    rules: KnownRules,
    registering: RegistrationState,
    links: Links,
    paths: DataPaths,
    admission: Admission,
    learning: Learning,
    reports: Reports,
    objects: Objects,
    outputs: Outputs,
    calibration: Calibration,
    shared: SharedData,
    pauses: Pauses,
    accounts: Accounts,
    link_quotas: LinkQuotas,
    /// Tasks that were given to a worker and must end early.
    early_ends: BTreeMap<TaskId, EarlyEnd>,
}

/// The reason why a task in a worker must end early.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum EarlyEnd {
    /// Its client recalled it: unless it has begun, it runs on another server.
    Recalled,
    /// It was cancelled and runs nowhere.
    Cancelled,
}

impl Server {
    /// Returns a machine that has not started.
    pub fn new(config: ServerConfig) -> Server {
        let config = Arc::new(config);
        Server {
            functions: config.functions.iter().map(|s| (s.name.clone(), s.hash())).collect(),
            uses_shared_data: config.functions.iter().filter(|s| !s.uses.is_empty()).map(|s| s.name.clone()).collect(),
            members: Members::default(),
            programs: Programs::default(),
            rules: KnownRules::default(),
            registering: RegistrationState::new(config.clone()),
            links: Links::new(config.clone()),
            paths: DataPaths::default(),
            admission: Admission::new(config.clone()),
            learning: Learning::new(&config),
            reports: Reports::default(),
            objects: Objects::default(),
            outputs: Outputs::default(),
            calibration: Calibration::default(),
            shared: SharedData::default(),
            pauses: Pauses::default(),
            accounts: Accounts::default(),
            link_quotas: LinkQuotas::default(),
            early_ends: BTreeMap::new(),
            config,
        }
    }

    pub fn id(&self) -> NodeId {
        self.config.id
    }

    pub fn name(&self) -> &str {
        &self.config.name
    }

    /// Returns the number of known tasks and the bytes held, for invariants and status.
    pub fn load(&self) -> (usize, u64) {
        self.admission.load()
    }

    // ---- outputs of the parts

    fn admitting<T>(
        &mut self,
        now: Time,
        out: &mut Vec<Effect>,
        act: impl FnOnce(&mut Admission, &Members<Role>, &mut Vec<AdmissionOutput>) -> T,
    ) -> T {
        let mut outputs = Vec::new();
        let given = act(&mut self.admission, &self.members, &mut outputs);
        self.admission.end_unawaited_slices(now, &mut outputs);
        for output in outputs {
            match output {
                AdmissionOutput::Effect(Effect::DropDatum { datum }) => {
                    for datum in [datum].into_iter().chain(self.admission.part_dropped(now, datum)) {
                        self.shared.forget(datum, out);
                        out.push(Effect::DropDatum { datum });
                    }
                }
                AdmissionOutput::Effect(effect) => {
                    if let Effect::SendDatum { to, datum } | Effect::SendByStorage { to, datum } = effect {
                        self.count_sent(to, self.admission.own_bytes(datum));
                    }
                    out.push(effect);
                }
                AdmissionOutput::Evicted(datum) => {
                    self.reports.report_transfers(now, datum.client, self.admission.others(datum.client), out);
                    send(out, datum.client, TaskToClient::Dropped { data: vec![datum] });
                }
                AdmissionOutput::EvictedOverShare { client, data, bytes, share } => {
                    let text = "evicted data of a client above its share of the store, to make room for another client";
                    let why =
                        format!("{client}: evicted {} data of {bytes} bytes; the share is {share} bytes", data.len());
                    out.push(line(Level::Warning, text).why(why).into());
                    send(out, client, TaskToClient::Dropped { data });
                }
            }
        }
        given
    }

    fn send_link_report(&self, news: Option<LinkToAgent>, out: &mut Vec<Effect>) {
        if let Some(news) = news {
            self.registering.notify(news, out);
        }
    }

    fn report_learned(&self, now: Time, news: impl IntoIterator<Item = LearningUpdate>, out: &mut Vec<Effect>) {
        for news in news {
            match news {
                LearningUpdate::Model(function, model) => {
                    let told = DirectoryToAgent::Model { function: function.clone(), model: model.clone() };
                    self.registering.notify(told, out);
                    out.push(Effect::Emit(Event::ModelLearned { function, model }));
                }
                LearningUpdate::Pace(pace) => self.registering.notify(DirectoryToAgent::Pace { pace }, out),
                LearningUpdate::SetTimer => {
                    let at = now + RATE_REPORT_NS;
                    out.push(Effect::SetTimer { timer: ServerTimer::Models.into(), at });
                }
            }
        }
    }

    // ---- messages

    fn on_message(&mut self, now: Time, from: NodeId, message: Message, out: &mut Vec<Effect>) {
        match message {
            Message::Link(LinkMessage::Ping { token }) => send(out, from, LinkMessage::Pong { token }),
            Message::Link(LinkMessage::Pong { token }) => {
                if let Some(rtt_ns) = self.members.pong(now, from, token) {
                    self.links.answered(now, (from, rtt_ns), &mut self.members, out);
                }
            }
            Message::Link(LinkMessage::ToProber(message)) => self.on_link_message(now, from, message, out),
            Message::Directory(DirectoryMessage::ToServer(message)) => {
                self.on_directory_message(now, from, message, out);
            }
            Message::Task(TaskMessage::ToServer(message)) => {
                self.on_task_message(now, self.owner_for(from), message, out)
            }
            Message::Data(message) => self.on_data_message(now, from, message, out),
            Message::Catalog(CatalogMessage::ToServer(message)) => self.on_catalog_message(now, from, message, out),
            Message::Link(LinkMessage::ToAgent(_))
            | Message::Directory(DirectoryMessage::ToAgent(_) | DirectoryMessage::ToClient(_))
            | Message::Map(_)
            | Message::Task(TaskMessage::ToClient(_))
            | Message::Catalog(_) => reject_message(from, out),
        }
    }

    fn on_link_message(&mut self, now: Time, from: NodeId, message: LinkToProber, out: &mut Vec<Effect>) {
        match message {
            LinkToProber::Turn { to, is_needed } => {
                let news = self.links.turn(now, from, to, is_needed, &mut self.members, out);
                self.send_link_report(news, out);
            }
            LinkToProber::ProbeArrived { size_bytes } => {
                if let Some(measurement) = self.links.probe_arrived(now, from, size_bytes, out) {
                    if let Measurement::Measured(link) = measurement {
                        self.registering.notify(LinkToAgent::LinkMeasured { to: from, link }, out);
                    }
                    let news = self.links.end(from, out);
                    self.send_link_report(news, out);
                }
            }
        }
    }

    fn on_directory_message(&mut self, now: Time, from: NodeId, message: DirectoryToServer, out: &mut Vec<Effect>) {
        match message {
            DirectoryToServer::Registered { peers, differences, rules } => {
                // A client that maps by itself accepts registrations, too.
                if self.registering.agent() == Some(from) {
                    self.set_rules(now, *rules, out);
                }
                out.extend(differences.into_iter().map(|text| line(Level::Warning, text).into()));
                let models = self.learning.take_all_models(now);
                self.learning.forget_reported_pace();
                let pace = self.learning.take_pace(now);
                self.report_learned(now, models.into_iter().chain(pace), out);
                self.registering.accepted(from);
                if self.registering.agent() == Some(from) {
                    self.accounts.repeat(now);
                    self.link_quotas.repeat();
                    self.report_accounts(now, out);
                }
                self.report_shared(now, from, out);
                self.paths.reports().for_each(|path| self.registering.notify(path, out));
                let news = self.links.registered(from, peers, &self.members, out);
                self.send_link_report(news, out);
            }
            DirectoryToServer::MeasureLink { to, address } => {
                let is_awaited = self.admission.fetches.is_requested_from(to);
                self.links.measure(now, from, (to, address), is_awaited, &self.members, out);
            }
            DirectoryToServer::RegistrationRefused { why, is_temporary: may_pass } => {
                self.registering.refused(now, from, &why, may_pass, out);
            }
            DirectoryToServer::ReportModels => {
                let models = self.learning.take_all_models(now);
                self.report_learned(now, models, out);
                self.registering.notify(DirectoryToAgent::ModelsReported { client: from }, out);
            }
            DirectoryToServer::GetStatus => {
                let status = self.status(now);
                send(out, from, DirectoryToClient::Status { status });
            }
            DirectoryToServer::GetOutput(query) => {
                let Some(origin) = self.programs.origin(from) else { return reject_message(from, out) };
                match self.outputs.query(from, Reader::of(origin), query) {
                    Ok(Some(output)) => send(out, from, DirectoryToClient::Output(output)),
                    Ok(None) => {}
                    Err(()) => reject_message(from, out),
                }
            }
            DirectoryToServer::EndTask { task } => {
                let answer = self.end_task(now, from, task, out);
                let permitted = answer.as_ref().copied().map_err(String::as_str);
                self.record_request(from, AuditEvent::Cancel, &task.to_string(), permitted);
                send(out, from, DirectoryToClient::EndTaskAnswered { task, answer });
            }
            DirectoryToServer::Subscribe => self.registering.subscribe(from, out),
            DirectoryToServer::RulesChanged { rules } if self.registering.agent() == Some(from) => {
                self.set_rules(now, *rules, out);
            }
            DirectoryToServer::LinksUsedUp { day, used_up } if self.registering.agent() == Some(from) => {
                self.link_quotas.set_used_up(day, used_up);
            }
            DirectoryToServer::RulesChanged { .. } | DirectoryToServer::LinksUsedUp { .. } => reject_message(from, out),
        }
    }

    fn is_client(&self, peer: NodeId) -> bool {
        self.members.get(peer).is_some_and(|peer| peer.data == Role::Client)
    }

    fn on_task_message(&mut self, now: Time, from: NodeId, message: TaskToServer, out: &mut Vec<Effect>) {
        match message {
            // Only clients may send calls: the tasks of a client are forgotten when it is lost.
            TaskToServer::Call { .. } if !self.is_client(from) => reject_message(from, out),
            TaskToServer::RunTasks { .. } if !self.is_client(from) && from != NodeId::CATALOG => {
                reject_message(from, out)
            }
            TaskToServer::Call { task, supplies } => {
                let supplies = supplies
                    .into_iter()
                    .map(|(datum, meta)| Supply::direct(datum, meta, from, String::new(), 1))
                    .collect();
                if task.options.is_measuring {
                    self.on_calibration(now, from, task, supplies, out);
                } else {
                    self.disturb_calibration(now, out);
                    self.on_tasks(now, from, vec![task], supplies, true, out);
                }
            }
            TaskToServer::RunTasks { tasks, supplies } => {
                self.disturb_calibration(now, out);
                self.on_tasks(now, from, tasks, supplies, false, out);
            }
            TaskToServer::Resupply { supplies } => {
                self.admitting(now, out, |admission, members, out| {
                    admission.resupply(now, from, supplies, members, out);
                });
                self.pump(now, out);
            }
            TaskToServer::Release { data } => {
                for datum in data.into_iter().filter(|datum| datum.client == from) {
                    self.shared.forget(datum, out);
                    self.admitting(now, out, |admission, _, out| admission.release(datum, out));
                }
                self.pump(now, out);
            }
            TaskToServer::HasCopies { data } => self.written_back(now, from, data, true, out),
            TaskToServer::CannotCopy { data } => self.written_back(now, from, data, false, out),
            TaskToServer::Cancel { tasks } => {
                for task in tasks.into_iter().filter(|task| task.client == from) {
                    self.cancel(now, task, out);
                }
                self.pump(now, out);
            }
            TaskToServer::CalledBack { task, answer } if task.client == from => {
                self.admission.end_callback(task);
                self.learning.set_computing(now, self.admission.computing());
                out.push(Effect::AnswerTask { task, answer });
            }
            TaskToServer::Recall { group, tasks } => self.recall(now, from, group, &tasks, out),
            TaskToServer::CalledBack { .. } => reject_message(from, out),
        }
    }

    fn on_data_message(&mut self, now: Time, from: NodeId, message: DataMessage, out: &mut Vec<Effect>) {
        if let DataMessage::Fetch { datum, .. } = message
            && self.is_client(from)
            && !(datum.client == from || datum.is_shared())
        {
            return send(out, from, DataMessage::FetchRefused { datum, why: "it belongs to another program".into() });
        }
        self.admitting(now, out, |admission, _, out| match message {
            DataMessage::Fetch { datum, hops, by_storage } => {
                admission.fetch(now, datum, (Requester { peer: from, hops }, by_storage), out);
            }
            DataMessage::FetchRefused { datum, why } => admission.fetches.refused(from, datum, &why, out),
        });
    }

    // ---- timers

    fn on_timer(&mut self, now: Time, timer: ServerTimer, out: &mut Vec<Effect>) {
        match timer {
            ServerTimer::Heartbeat => self.on_heartbeat(now, out),
            ServerTimer::Models => {
                let news = self.learning.timer_fired(now);
                self.report_learned(now, news, out);
            }
            ServerTimer::OthersRunning => self.report_waits(now, out),
            ServerTimer::Pauses => self.report_pauses(now, out),
            ServerTimer::Transfers => {
                let news = self.reports.take_seen(now);
                self.send_link_report(news, out);
                self.reports.report_all_transfers(now, |client| self.admission.others(client), out);
            }
        }
    }

    fn on_start(&mut self, now: Time, out: &mut Vec<Effect>) {
        out.push(Effect::MeasureSpeed);
        self.registering.dial(out);
        self.shared.set_damaged(&self.config.damaged);
        self.restore_durable(now, out);
        out.push(Effect::SetTimer { timer: ServerTimer::Heartbeat.into(), at: now + HEARTBEAT_NS });
    }

    fn on_heartbeat(&mut self, now: Time, out: &mut Vec<Effect>) {
        out.push(Effect::SetTimer { timer: ServerTimer::Heartbeat.into(), at: now + HEARTBEAT_NS });
        self.registering.on_heartbeat(now, out);
        let beat = self.members.beat(now);
        for (peer, token) in beat.pings {
            send(out, peer, LinkMessage::Ping { token });
        }
        for (peer, silence_ns) in beat.silent {
            out.push(Effect::Disconnect { peer });
            self.on_peer_lost(now, peer, &format!("silent for {:.1} s", ns_to_seconds(silence_ns)), out);
        }
        self.report_silent_sources(out);
        self.resolve_stall(now, out);
        self.stop_disturbed_calibration(out);
        let pace = self.learning.take_pace(now);
        self.report_learned(now, pace, out);
        self.admitting(now, out, |admission, _, out| admission.expire(now, out));
        self.limit_agentless_wait(now, out);
        self.report_accounts_when_due(now, out);
        self.end_if_drained(now, out);
    }
}

impl Machine for Server {
    type Input = Input;
    type Effect = Effect;

    fn handle(&mut self, now: Time, input: Input, out: &mut Vec<Effect>) {
        let before = out.len();
        match input {
            Input::Start => self.on_start(now, out),
            Input::PeerUp { peer, role, name, origin, address, .. } => {
                let place = if role == Role::Client { origin.host.clone() } else { name.clone() };
                self.link_quotas.connected(peer, place);
                if role == Role::Client {
                    self.programs.connected(peer, &name, origin);
                }
                self.on_peer_up(now, peer, role, &address, out);
            }
            Input::PeerLost { peer, why, .. } => {
                self.link_quotas.forget(peer);
                self.on_peer_lost(now, peer, &why, out);
            }
            Input::DialFailed { address, why, .. } => self.on_dial_failed(now, &address, &why, out),
            Input::Received { from, message } => {
                if self.members.record_received(now, from) {
                    self.on_message(now, from, message, out);
                }
            }
            Input::DatumBegun { from, datum } => {
                let _ = self.members.record_received(now, from);
                self.admitting(now, out, |admission, _, out| admission.transfer_begun(datum, from, out));
            }
            Input::DatumArrived { from, datum, meta, duration_ns: took_ns } => {
                let _ = self.members.record_received(now, from);
                self.count_received(from, meta.size_bytes());
                self.count_over_links(now, from, datum, meta.size_bytes());
                self.on_arrived(now, from, datum, &meta, took_ns, out);
            }
            Input::DatumBroken { from, datum, no_memory, why } => {
                let fault = if no_memory { SupplyFault::NoMemory } else { SupplyFault::Broken };
                self.admitting(now, out, |admission, _, out| {
                    admission.fetches.transfer_broke(from, datum, fault, &why, out)
                });
            }
            Input::MadeDurable { datum, outcome } => self.made_durable(now, datum, outcome, out),
            Input::DurableSynced { number } => self.durable_synced(number, out),
            Input::OnDisk { clients } => self.admission.set_on_disk(clients),
            Input::DataPath { from, relay } => {
                if let Some(path) = self.paths.set(from, relay) {
                    self.registering.notify(path, out);
                }
            }
            Input::ProbeArrived { from, size_bytes } => send(out, from, LinkToProber::ProbeArrived { size_bytes }),
            Input::Timer(Timer::Server(timer)) => self.on_timer(now, timer, out),
            Input::Timer(_) | Input::Mapped { .. } => {}
            Input::TaskEnded { task, outcome, run_ns } => self.on_task_ended(now, task, outcome, run_ns, out),
            Input::CallsBack(call) => {
                self.admission.begin_callback(call.task);
                self.learning.set_computing(now, self.admission.computing());
                send(out, call.task.client, TaskToClient::CallsBack(call));
                self.pump(now, out);
            }
            Input::CallOutput(said) => self.on_output(now, said, out),
            Input::Paused { task, waits } => self.on_calling(now, task, waits, out),
            Input::SpeedMeasured { flops } => self.registering.speed_measured(flops, out),
            Input::Command(Command::Drain) => self.drain(now, out),
            Input::Command(Command::Stop) => self.stop(now, out),
            Input::Command(Command::LogWaits) => self.log_tasks(now, out),
            Input::Command(_) => {
                out.push(line(Level::Warning, "ignored a command that a server does not accept").into())
            }
        }
        self.refuse_over_links(now, before, out);
        self.limit_disk(out);
        self.redirect_to_agent(before, out);
        self.links.sent(now, &out[before..], &self.members);
        debug_assert_eq!(self.check(), Ok(()), "server '{}'", self.config.name);
    }
}

fn send(out: &mut Vec<Effect>, to: NodeId, message: impl Into<Message>) {
    out.push(Effect::Send { to, message: message.into() });
}

fn reject_message(from: NodeId, out: &mut Vec<Effect>) {
    out.push(line(Level::Warning, "ignored a message that a server does not accept").peer(from).into());
}

fn line(level: Level, text: impl Into<Cow<'static, str>>) -> LogLine {
    LogLine::new(level, Category::Server, text)
}

#[cfg(test)]
mod tests;

//! Shared names: the program's puts, finds and deletes at the catalog, which runs in the agent.
//!
//! A put is a task that sends a copy of the datum to the server that the catalog chose. A found datum is like any
//! other, except that this client knows its holders but no task that produces it: if the holders fail, the catalog is
//! asked for others.
//!
//! **Invariant:** each request of the program has one answer. Requests are repeated to an agent that reconnects.

mod agent;

use std::collections::{BTreeMap, BTreeSet};

use super::Client;
use super::following::PlannedPlace;
use super::graph::{DatumState, Status, TaskState};
use super::poison::{CatalogRequest, PendingRequests};
use super::puts::{Put, PutStage};
use crate::graph::{Argument, CallOptions, Group, Source, Task, TaskKind};
use crate::node::message::{CatalogAnswer, CatalogToClient, ClientToCatalog};
use crate::node::protocol::{Effect, Event, NameCommand};
use gridloom_base::limits::TASK_ATTEMPTS_MAX;
use gridloom_base::{DatumId, Method, NameError, NamedDatum, NodeId, TaskError, TaskId, Time};

#[derive(Debug, Default)]
pub(super) struct Names {
    /// The server that runs the program, if the program is a function.
    pub(super) local_server: Option<NodeId>,
    requests_by_number: BTreeMap<u64, NameRequest>,
    /// Requests that expire, with their deadlines.
    deadlines: BTreeSet<(Time, u64)>,
    /// Puts, by the tasks that send the copies.
    puts: BTreeMap<TaskId, u64>,
    /// Number of puts in progress of each datum.
    putting: BTreeMap<DatumId, u32>,
    /// Data being put that the program has released: they are kept until the puts end.
    released: BTreeSet<DatumId>,
    found: BTreeMap<DatumId, FoundDatum>,
    /// Data without a known holder, with the time since when.
    searched: BTreeMap<DatumId, Time>,
    pub(super) requests: PendingRequests,
}

/// A datum that was found.
#[derive(Debug, Default)]
struct FoundDatum {
    /// Number of finds that the program has not released.
    held: u64,
    /// Number of finds by this client that the catalog has recorded.
    reported: u64,
    /// How it is sent to servers.
    method: Method,
}

/// A request that is not answered.
#[derive(Debug)]
enum NameRequest {
    Put(Box<Put>),
    Find {
        name: String,
        waits: bool,
        /// True if the program no longer waits.
        is_forgotten: bool,
        /// When the request expires.
        deadline: Option<Time>,
        /// True if the found datum is fetched at once.
        fetches: bool,
    },
    Delete {
        name: String,
    },
    Share {
        name: String,
        users: Vec<String>,
    },
    List {
        prefix: String,
        after: String,
    },
    Explain {
        name: String,
        after: Option<NodeId>,
    },
}

impl NameRequest {
    fn message(&self, request: u64, at: Vec<NodeId>) -> ClientToCatalog {
        match self {
            NameRequest::Put(put) => put.message(request, at),
            NameRequest::Find { name, waits, .. } => {
                ClientToCatalog::Find { request, name: name.clone(), waits: *waits }
            }
            NameRequest::Delete { name } => ClientToCatalog::Delete { request, name: name.clone() },
            NameRequest::Share { name, users } => {
                ClientToCatalog::Share { request, name: name.clone(), users: users.clone() }
            }
            NameRequest::List { prefix, after } => {
                ClientToCatalog::List { request, prefix: prefix.clone(), after: after.clone() }
            }
            NameRequest::Explain { name, after } => {
                ClientToCatalog::Explain { request, name: name.clone(), after: *after }
            }
        }
    }

    /// Returns the request as text for an error.
    fn text(&self) -> String {
        match self {
            NameRequest::Put(put) => format!("to put '{}'", put.name),
            NameRequest::Find { name, .. } => format!("for '{name}'"),
            NameRequest::Delete { name } => format!("to delete '{name}'"),
            NameRequest::Share { name, .. } => format!("to share '{name}'"),
            NameRequest::List { prefix, .. } => format!("for names that begin with '{prefix}'"),
            NameRequest::Explain { name, .. } => format!("where '{name}' is"),
        }
    }
}

impl Names {
    /// Returns the numbers of remembered requests and data.
    pub(super) fn counts(&self) -> (usize, usize) {
        (self.requests_by_number.len(), self.found.len() + self.searched.len())
    }

    /// Describes the unanswered requests.
    pub(super) fn texts(&self) -> impl Iterator<Item = String> {
        self.requests_by_number.values().map(NameRequest::text)
    }

    fn insert(&mut self, request: u64, question: NameRequest) {
        match &question {
            NameRequest::Put(put) => {
                self.puts.insert(put.task, request);
                *self.putting.entry(put.datum).or_default() += 1;
            }
            NameRequest::Find { deadline: Some(deadline), .. } => _ = self.deadlines.insert((*deadline, request)),
            _ => {}
        }
        self.requests_by_number.insert(request, question);
    }

    /// Removes a request that was answered or needs no answer. Also returns a datum that must be released with it.
    fn remove(&mut self, request: u64) -> Option<(NameRequest, Option<DatumId>)> {
        let question = self.requests_by_number.remove(&request)?;
        self.requests.remove(CatalogRequest::Request(request));
        let mut released = None;
        match &question {
            NameRequest::Put(put) => {
                self.puts.remove(&put.task);
                let times = self.putting.get_mut(&put.datum).expect("counted when it was inserted");
                *times -= 1;
                if *times == 0 {
                    self.putting.remove(&put.datum);
                    released = self.released.take(&put.datum);
                }
            }
            NameRequest::Find { deadline: Some(deadline), .. } => _ = self.deadlines.remove(&(*deadline, request)),
            _ => {}
        }
        Some((question, released))
    }

    pub(super) fn next_deadline(&self) -> Option<Time> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// Handles the program's release of a datum. Returns true if it is being put and will be released after that.
    pub(super) fn defers_release(&mut self, datum: DatumId) -> bool {
        self.putting.contains_key(&datum) && {
            self.released.insert(datum);
            true
        }
    }

    fn put_mut(&mut self, request: u64) -> Option<&mut Put> {
        match self.requests_by_number.get_mut(&request) {
            Some(NameRequest::Put(put)) => Some(put),
            _ => None,
        }
    }

    /// Returns how a found datum is sent to servers.
    pub(super) fn method_of(&self, datum: DatumId) -> Method {
        self.found.get(&datum).map_or(Method::Auto, |found| found.method)
    }

    /// Handles the program's release of a datum. Returns true if that released its last find.
    pub(super) fn release(&mut self, datum: DatumId) -> bool {
        let Some(found) = self.found.get_mut(&datum) else { return true };
        found.held = found.held.saturating_sub(1);
        found.held == 0
    }

    /// Forgets a datum that nothing here reads. Returns the message for the catalog, if that has this client as a
    /// reader.
    pub(super) fn forget_found(&mut self, datum: DatumId) -> Option<ClientToCatalog> {
        self.not_sought(datum);
        let times = self.found.remove(&datum)?.reported;
        Some(ClientToCatalog::Release { datum, times })
    }

    /// Records that a datum has arrived here.
    pub(super) fn arrived(&mut self, datum: DatumId) {
        self.not_sought(datum);
    }

    pub(super) fn not_sought(&mut self, datum: DatumId) {
        self.searched.remove(&datum);
        self.requests.remove(CatalogRequest::Location(datum));
    }
}

impl Client {
    pub(super) fn on_name_command(&mut self, now: Time, request: u64, command: NameCommand, out: &mut Vec<Effect>) {
        let question = match command {
            NameCommand::Put { name, datum, meta, replaces, replicas, is_durable, method, made_by, task, group } => {
                let (stage, tried, attempts, refused) = (PutStage::Asked, None, 1, Vec::new());
                NameRequest::Put(Box::new(Put {
                    name,
                    datum,
                    meta,
                    replaces,
                    replicas,
                    is_durable,
                    method,
                    made_by,
                    task,
                    group,
                    stage,
                    tried,
                    attempts,
                    refused,
                    over_quota: None,
                }))
            }
            NameCommand::Find { name, waits } => {
                NameRequest::Find { name, waits, is_forgotten: false, deadline: None, fetches: false }
            }
            NameCommand::Await { name, limit_ns, gets_data: brings } => {
                let (waits, deadline) = (limit_ns != Some(0), limit_ns.filter(|ns| *ns > 0).map(|ns| now + ns));
                NameRequest::Find { name, waits, is_forgotten: false, deadline, fetches: brings }
            }
            NameCommand::Delete { name } => NameRequest::Delete { name },
            NameCommand::Share { name, users } => NameRequest::Share { name, users },
            NameCommand::List { prefix, after } => NameRequest::List { prefix, after },
            NameCommand::Explain { name, after } => NameRequest::Explain { name, after },
            NameCommand::CancelWait => return self.cancel_request(now, request, out),
        };
        self.names.insert(request, question);
        self.set_deadline(out);
        if self.contacts.agent_was_lost() && !self.contacts.expects_nodes(now) {
            return self.fail_requests(out);
        }
        self.ask_catalog(request, out);
    }

    fn cancel_request(&mut self, now: Time, request: u64, out: &mut Vec<Effect>) {
        match self.names.requests_by_number.get_mut(&request) {
            Some(NameRequest::Find { name, is_forgotten, deadline, .. }) => {
                *is_forgotten = true;
                deadline.take().into_iter().for_each(|deadline| _ = self.names.deadlines.remove(&(deadline, request)));
                let name = name.clone();
                match self.contacts.agent() {
                    // The agent answers with similar names.
                    Some(_) => self.contacts.send_to_agent(ClientToCatalog::CancelRequest { request, name }, out),
                    None => self.answer(request, Err(self.no_agent()), out),
                }
            }
            Some(NameRequest::Put(_)) => self.forget_put(now, request, out),
            _ => {}
        }
    }

    /// Cancels a put. Nobody is notified of its end.
    fn forget_put(&mut self, now: Time, request: u64, out: &mut Vec<Effect>) {
        let Some((NameRequest::Put(put), released)) = self.names.remove(request) else { return };
        match put.stage {
            // A location that is being assigned will be refused.
            PutStage::NotProduced | PutStage::Asked | PutStage::Failed => {}
            PutStage::Sending { named, .. } => {
                self.contacts.send_to_agent(ClientToCatalog::Withdraw { datum: named.datum }, out);
                self.on_cancel(now, vec![put.task], out);
            }
            PutStage::Stored { named, .. } => {
                self.contacts.send_to_agent(ClientToCatalog::Withdraw { datum: named.datum }, out);
            }
        }
        released.into_iter().for_each(|datum| self.release(datum, false, out));
    }

    /// Ends the requests whose deadline has passed.
    pub(super) fn expire_requests(&mut self, now: Time, out: &mut Vec<Effect>) {
        let requests: Vec<u64> = self
            .names
            .deadlines
            .iter()
            .take_while(|(deadline, _)| *deadline <= now)
            .map(|(_, request)| *request)
            .collect();
        requests.into_iter().for_each(|request| self.cancel_request(now, request, out));
    }

    fn ask_catalog(&mut self, request: u64, out: &mut Vec<Effect>) {
        let is_made = match self.names.requests_by_number.get(&request) {
            Some(NameRequest::Put(put)) => self.graph.is_made(put.datum),
            _ => true,
        };
        let Some(question) = self.names.requests_by_number.get_mut(&request) else { return };
        let mut at = Vec::new();
        if let NameRequest::Put(put) = question {
            if !is_made {
                put.stage = PutStage::NotProduced;
                return;
            }
            put.stage = PutStage::Asked;
            at.extend(self.graph.datum(put.datum).into_iter().flat_map(DatumState::holders));
            if at.is_empty() {
                at.extend(self.names.local_server);
            }
        }
        let message = question.message(request, at);
        if self.contacts.agent().is_some() {
            self.names.requests.sent(CatalogRequest::Request(request));
            self.contacts.send_to_agent(message, out);
        }
    }

    fn answer(&mut self, request: u64, answer: Result<CatalogAnswer, NameError>, out: &mut Vec<Effect>) {
        let Some((_, released)) = self.names.remove(request) else { return };
        out.push(Effect::Emit(Event::NameResult { request, answer }));
        released.into_iter().for_each(|datum| self.release(datum, false, out));
    }

    // ---- answers of the catalog

    pub(super) fn on_catalog_message(&mut self, now: Time, message: CatalogToClient, out: &mut Vec<Effect>) {
        match message {
            CatalogToClient::Place { request, named, server, address } => {
                self.contacts.learn_address(server, address);
                self.on_place(now, request, named, server, out);
            }
            CatalogToClient::Located { datum, holders, why } => self.on_located(now, datum, holders, &why, out),
            CatalogToClient::Replicating { request } => {
                if let Some(Put { stage: PutStage::Stored { since, .. }, .. }) = self.names.put_mut(request) {
                    *since = now;
                }
            }
            CatalogToClient::Answer { request, answer } => self.on_answer(now, request, answer, out),
        }
    }

    /// Sends a datum to that server, where it becomes that shared datum.
    fn on_place(&mut self, now: Time, request: u64, named: NamedDatum, server: NodeId, out: &mut Vec<Effect>) {
        let Some(put) = self.names.put_mut(request).filter(|put| put.stage == PutStage::Asked) else {
            return self.contacts.send_to_agent(ClientToCatalog::Withdraw { datum: named.datum }, out);
        };
        put.stage = PutStage::Sending { named: named.clone(), server };
        self.names.requests.remove(CatalogRequest::Request(request));
        let put = self.names.put_mut(request).expect("found above");
        put.tried = Some(named.datum);
        let (datum, source) = (put.datum, Source { meta: put.meta.clone(), at: Vec::new() });
        // Puts of calls precede requests of others, because calls may wait for them.
        let terms = CallOptions { depth: u16::from(named.put_by.is_some()), ..CallOptions::default() };
        let task = Task {
            id: put.task,
            kind: TaskKind::Publish(Box::new(named)),
            args: vec![Argument::Datum(datum)],
            outputs: Vec::new(),
            work_flops: None,
            options: terms,
        };
        let sources = [(datum, source)].into_iter().collect();
        let group = Group { id: put.group, tasks: vec![task], sources, wanted: Vec::new() };
        let placed = PlannedPlace { server, from: BTreeMap::new() };
        self.on_run(now, group, "auto".into(), (Some(placed), None), out);
    }

    fn on_answer(&mut self, now: Time, request: u64, answer: Result<CatalogAnswer, NameError>, out: &mut Vec<Effect>) {
        match (&answer, self.names.requests_by_number.get(&request)) {
            (Ok(CatalogAnswer::Found { named, .. }), None) => {
                let release = ClientToCatalog::Release { datum: named.datum, times: 1 };
                return self.contacts.send_to_agent(release, out);
            }
            // Also if the program has just stopped waiting: the name is not unknown.
            (Ok(CatalogAnswer::Found { named, holders }), Some(NameRequest::Find { fetches: brings, .. })) => {
                let brought = brings.then_some(named.datum);
                self.graph.found(named.datum, &named.meta, holders.iter().map(|(node, _)| *node));
                holders.iter().for_each(|(node, address)| self.contacts.learn_address(*node, address.clone()));
                let found = self.names.found.entry(named.datum).or_default();
                (found.held, found.reported, found.method) = (found.held + 1, found.reported + 1, named.method);
                self.answer(request, answer, out);
                return brought.into_iter().for_each(|datum| self.on_get(now, datum, out));
            }
            (Err(NameError::NotStored { .. }), Some(NameRequest::Put(_))) => {
                let Err(error) = answer else { unreachable!("matched above") };
                self.names.requests.remove(CatalogRequest::Request(request));
                self.give_up_place(now, request, &error, out);
                return self.put_again(request, error, out);
            }
            (Err(NameError::NoRoom { name, .. }), Some(NameRequest::Put(put))) if put.over_quota.is_some() => {
                let (server, why) = put.over_quota.clone().expect("seen just now");
                let name = name.clone();
                return self.answer(request, Err(NameError::QuotaExceeded { name, server, why }), out);
            }
            _ => {}
        }
        self.answer(request, answer, out);
    }

    // ---- putting

    /// Handles the end of a task: its results can be put now, preferably on the server that has them.
    pub(super) fn put_results(&mut self, task: &Task, out: &mut Vec<Effect>) {
        if !task.outputs.iter().any(|output| self.names.putting.contains_key(&output.datum)) {
            return;
        }
        let is_by_it =
            |put: &Put| put.stage == PutStage::NotProduced && task.outputs.iter().any(|it| it.datum == put.datum);
        let requests = self
            .names
            .requests_by_number
            .iter()
            .filter(|(_, request)| matches!(request, NameRequest::Put(put) if is_by_it(put)));
        for request in requests.map(|(request, _)| *request).collect::<Vec<_>>() {
            self.ask_catalog(request, out);
        }
    }

    /// Handles the end of the task that sends a datum to its server.
    pub(super) fn publish_ended(&mut self, now: Time, task: TaskId, out: &mut Vec<Effect>) {
        let Some(request) = self.names.puts.get(&task).copied() else { return };
        let failed = match self.graph.task(task).map(TaskState::status) {
            Some(Status::Failed(error)) => Some(error.clone()),
            _ => None,
        };
        let put = self.names.put_mut(request).expect("found above");
        let PutStage::Sending { named, server } = put.stage.clone() else { return };
        let put_name = put.name.clone();
        let Some(error) = failed else {
            put.stage = PutStage::Stored { named, server, since: now };
            return;
        };
        self.contacts.send_to_agent(ClientToCatalog::Withdraw { datum: named.datum }, out);
        let why = match &error {
            TaskError::StoreFailed { why, .. } | TaskError::QuotaExceeded { why, .. } => why.clone(),
            error => error.to_string(),
        };
        let name = self.contacts.name_of(server);
        match error {
            TaskError::ServerLost { .. } | TaskError::NotMapped { .. } => {
                self.put_again(request, NameError::NotStored { name: put_name, server: name, why }, out);
            }
            TaskError::StoreFailed { .. } | TaskError::StoreFull { .. } => {
                self.put_elsewhere(request, (server, why), out)
            }
            // Quotas are those of each server.
            TaskError::QuotaExceeded { .. } => {
                put.over_quota = Some((name, why.clone()));
                self.put_elsewhere(request, (server, why), out)
            }
            _ => self.answer(request, Err(NameError::NotStored { name: put_name, server: name, why }), out),
        }
    }

    /// Handles a server that cannot store a datum: the catalog names another one at once, or reports that there is
    /// none.
    fn put_elsewhere(&mut self, request: u64, refusal: (NodeId, String), out: &mut Vec<Effect>) {
        if let Some(put) = self.names.put_mut(request) {
            put.refused.push(refusal);
        }
        self.ask_catalog(request, out);
    }

    /// Handles the catalog's loss of the server to which a copy is being sent. This client may still be connected to
    /// it: the server must stop waiting for the copy.
    fn give_up_place(&mut self, now: Time, request: u64, error: &NameError, out: &mut Vec<Effect>) {
        let Some(put) = self.names.put_mut(request) else { return };
        let PutStage::Sending { server, .. } = std::mem::replace(&mut put.stage, PutStage::Failed) else { return };
        let task = put.task;
        let Some(function) = self.graph.task(task).map(|run| run.task().name().to_string()) else { return };
        let (server, why) = (self.contacts.name_of(server), error.to_string());
        self.fail_task(now, task, TaskError::ServerLost { function, server, why, is_bound: true }, out);
    }

    /// Retries a put that failed for a temporary reason.
    fn put_again(&mut self, request: u64, error: NameError, out: &mut Vec<Effect>) {
        let Some(put) = self.names.put_mut(request) else { return };
        if put.attempts >= TASK_ATTEMPTS_MAX {
            return self.answer(request, Err(error), out);
        }
        put.attempts += 1;
        put.stage = PutStage::Failed;
    }
}

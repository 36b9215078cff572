//! Placement of shared data: the agent chooses the servers with the most free memory, on different hosts if possible.
//! Servers that are draining are chosen last.
//!
//! To have a datum kept, the agent sends the server a task, like a client that puts a datum. A lost server is replaced.

use std::collections::{BTreeMap, BTreeSet};

use super::backoff::KeeperBackoff;
use super::{Agent, send};
use crate::data::Content;
use crate::graph::{Argument, Task, TaskKind};
use crate::node::message::{CatalogToClient, Registration, Supply, TaskReport, TaskToServer};
use crate::node::protocol::Effect;
use crate::node::{Category, LogLine};
use gridloom_base::limits::{KEEPERS_TRIED_MAX, REFUSAL_BYTES_MAX};
use gridloom_base::{DatumId, Fnv, Level, Meta, NameError, NodeId, TaskError, TaskId, Time};

/// Divisor for the part of a server's store that shared data may take. The rest is for calls, which could not run otherwise.
const SHARED_DIVISOR: u64 = 2;
/// Maximum number of versions that get another keeper at a time, because they share the links with the programs' transfers.
const PLACEMENTS_MAX: usize = 16;

/// Tasks that bring data to the servers that keep them.
#[derive(Debug, Default)]
pub(super) struct Placement {
    tasks: BTreeMap<TaskId, (DatumId, NodeId)>,
    places: BTreeMap<(DatumId, NodeId), TaskId>,
    /// The last version that was checked for missing keepers.
    last_checked: Option<DatumId>,
    pub(super) backoff: KeeperBackoff,
}

impl Placement {
    pub(super) fn len(&self) -> usize {
        self.tasks.len()
    }

    fn begin(&mut self, datum: DatumId, server: NodeId) -> TaskId {
        // Servers may still have tasks of a previous agent.
        let mut hash = Fnv::default();
        [datum.serial, server.0].into_iter().for_each(|number| hash.number(number));
        let task = TaskId { client: NodeId::CATALOG, serial: hash.0 };
        self.tasks.insert(task, (datum, server));
        self.places.insert((datum, server), task);
        task
    }

    fn end(&mut self, task: TaskId) -> Option<(DatumId, NodeId)> {
        let place = self.tasks.remove(&task)?;
        self.places.remove(&place);
        Some(place)
    }

    pub(super) fn server_lost(&mut self, server: NodeId) {
        let its = self.tasks.iter().filter(|(_, (_, at))| *at == server).map(|(task, _)| *task);
        its.collect::<Vec<_>>().into_iter().for_each(|task| _ = self.end(task));
        self.backoff.server_lost(server);
    }
}

/// A version that a client wants to put.
pub(super) struct PutRequest {
    pub(super) content: Content,
    pub(super) replaces: bool,
    pub(super) replicas: u16,
    /// Servers with a copy.
    pub(super) at: BTreeSet<NodeId>,
    /// Servers that could not take it, and the reasons.
    pub(super) refused: BTreeMap<NodeId, String>,
}

/// Returns a server's or client's reason why a server could not keep a datum, truncated to [`REFUSAL_BYTES_MAX`].
pub(super) fn refusal(why: &str) -> String {
    let end = (0..=why.len().min(REFUSAL_BYTES_MAX)).rev().find(|end| why.is_char_boundary(*end));
    why[..end.unwrap_or(0)].to_string()
}

/// A server that may keep a version. Better servers compare greater.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct PlacementCandidate {
    /// It is not draining.
    stays: bool,
    has_a_disk: bool,
    is_on_other_host: bool,
    has_copy: bool,
    room: u64,
    server: std::cmp::Reverse<NodeId>,
}

impl Agent {
    /// Returns the servers for a new version, one for each replica. The client sends the datum to the first one.
    pub(super) fn choose_keepers(&self, name: &str, wanted: &PutRequest) -> Result<Vec<NodeId>, NameError> {
        let (content, at, replicas) = (&wanted.content, &wanted.at, usize::from(wanted.replicas));
        let mut places = Vec::new();
        if wanted.refused.len() >= KEEPERS_TRIED_MAX {
            return Err(self.no_room(name, wanted, 0));
        }
        while places.len() < replicas {
            let has_copy = |server: NodeId| at.contains(&server);
            let has_refused = |server: NodeId| wanted.refused.contains_key(&server);
            match self.best_keeper((&content.meta, content.is_durable), &places, has_copy, has_refused) {
                Some(server) => places.push(server),
                None => return Err(self.no_room(name, wanted, places.len())),
            }
        }
        Ok(places)
    }

    /// Returns the best server to keep a version in addition to `keepers`.
    fn best_keeper(
        &self,
        (meta, is_durable): (&Meta, bool),
        keepers: &[NodeId],
        has_copy: impl Fn(NodeId) -> bool,
        has_refused: impl Fn(NodeId) -> bool,
    ) -> Option<NodeId> {
        let size_bytes = meta.checked_size_bytes().unwrap_or(u64::MAX);
        let hosts: BTreeSet<String> = keepers.iter().map(|server| Agent::location(self, *server)).collect();
        let all = self.free_bytes(is_durable).filter(|(server, _)| !keepers.contains(server) && !has_refused(*server));
        let fitting = all.filter(|(_, room)| *room >= size_bytes).map(|(server, room)| PlacementCandidate {
            stays: !self.servers[&server].is_draining,
            has_a_disk: !is_durable || !self.names.keeping.backoff.has_no_disk(server),
            is_on_other_host: !hosts.contains(&Agent::location(self, server)),
            has_copy: has_copy(server),
            room,
            server: std::cmp::Reverse(server),
        });
        fitting.max().map(|place| place.server.0)
    }

    /// Returns the servers that can keep shared data, with the bytes that each has left for them. For durable data,
    /// only servers with a directory for durable data are returned.
    fn free_bytes(&self, is_durable: bool) -> impl Iterator<Item = (NodeId, u64)> {
        let may =
            move |registration: &Registration| !registration.is_stateless && (registration.is_durable || !is_durable);
        let servers = self.servers.iter().filter(move |(_, server)| may(&server.registration));
        servers.map(|(id, server)| {
            let most = server.registration.memory_bytes / SHARED_DIVISOR;
            (*id, most.saturating_sub(self.names.catalog.placed_bytes(*id)))
        })
    }

    fn no_room(&self, name: &str, wanted: &PutRequest, found: usize) -> NameError {
        let PutRequest { content: Content { meta, is_durable, .. }, replicas, .. } = wanted;
        let size_bytes = meta.checked_size_bytes().unwrap_or(u64::MAX);
        if !wanted.refused.is_empty() {
            return self.all_refused((name, size_bytes, *is_durable), &wanted.refused);
        }
        let most = self.free_bytes(*is_durable).map(|(_, room)| room).max();
        let remedy = "delete some, or start servers with more --memory, or --disk";
        let why = match most {
            None if *is_durable => "no server keeps durable data; start some with --durable DIR".into(),
            None => "all servers are stateless (--plain) and keep no data; start one without --plain".into(),
            Some(_) if found > 0 => {
                let servers = if found == 1 { "1 server has" } else { &format!("{found} servers have") };
                format!(
                    "{replicas} replicas were requested, but only {servers} room for it; request fewer, or start more servers"
                )
            }
            Some(most) => {
                format!(
                    "no server has more than {most} bytes left for shared data (half of its store is reserved for them); {remedy}"
                )
            }
        };
        NameError::NoRoom { name: name.into(), size_bytes, why }
    }

    /// Returns the error for a datum that all servers with enough memory failed to keep.
    fn all_refused(
        &self,
        (name, size_bytes, is_durable): (&str, u64, bool),
        refused: &BTreeMap<NodeId, String>,
    ) -> NameError {
        let of = |(node, why): (&NodeId, &String)| match self.servers.get(node) {
            Some(server) => format!("server '{}': {why}", server.registration.name),
            None => format!("a server that is gone: {why}"),
        };
        let servers: Vec<String> = refused.iter().map(of).collect();
        let remedy = match is_durable {
            true => "make room on these disks, or start servers with --durable DIR on others",
            false => "delete some data, or start servers with more --memory, or --disk",
        };
        NameError::NoRoom { name: name.into(), size_bytes, why: format!("{}; {remedy}", servers.join("; ")) }
    }

    /// Has a server fetch and keep a version.
    pub(super) fn send_to_keeper(&mut self, now: Time, datum: DatumId, server: NodeId, out: &mut Vec<Effect>) {
        let (Some(named), Some(source)) =
            (self.names.catalog.named(datum).cloned(), self.source_for(now, datum, server, &BTreeMap::new()))
        else {
            if self.names.catalog.named(datum).is_some() {
                self.names.keeping.backoff.begin(now, server, Some(datum));
            }
            return self.names.catalog.refused(datum, server, "it has no source for the datum".into());
        };
        let task = Task {
            id: self.names.keeping.begin(datum, server),
            kind: TaskKind::Publish(Box::new(named.clone())),
            args: vec![Argument::Datum(datum)],
            outputs: Vec::new(),
            work_flops: None,
            options: Default::default(),
        };
        let (from, hops) = (source.node, source.hops);
        let address = self.servers[&from].registration.address.clone();
        let supplies = vec![Supply::direct(datum, named.meta, from, address, hops)];
        send(out, server, TaskToServer::RunTasks { tasks: vec![task], supplies });
    }

    /// Cancels the task of a server that was to keep a version that is dropped.
    pub(super) fn cancel_keeping(&mut self, datum: DatumId, server: NodeId, out: &mut Vec<Effect>) {
        self.names.searches.transfer_ended(datum, server);
        if let Some(task) = self.names.keeping.places.get(&(datum, server)).copied() {
            self.names.keeping.end(task);
            send(out, server, TaskToServer::Cancel { tasks: vec![task] });
        }
    }

    /// Handles the end of a task that brings a datum to a keeper. The server's holdings are reported separately.
    pub(super) fn keeper_task_ended(&mut self, now: Time, server: NodeId, report: TaskReport, out: &mut Vec<Effect>) {
        let is_its = self.names.keeping.tasks.get(&report.task).is_some_and(|(_, at)| *at == server);
        if let Some((datum, _)) = is_its.then(|| self.names.keeping.end(report.task)).flatten() {
            self.names.searches.transfer_ended(datum, server);
            if let Err(error) = report.outcome {
                let (is_of_disk, why) = match &error {
                    TaskError::StoreFailed { why, .. } => (true, refusal(why)),
                    error => (false, refusal(&error.to_string())),
                };
                self.begin_backoff(now, server, (!is_of_disk).then_some(datum), &why, out);
                self.names.catalog.refused(datum, server, why);
            }
        }
    }

    /// Starts a pause for a server that could not keep a datum, or any durable data.
    fn begin_backoff(&mut self, now: Time, server: NodeId, of: Option<DatumId>, why: &str, out: &mut Vec<Effect>) {
        let is_new = self.names.keeping.backoff.begin(now, server, of);
        if let Some(server) = self.servers.get(&server).filter(|_| is_new && of.is_none()) {
            let text =
                "a server cannot keep durable data; others are asked first, and this one again after increasing pauses";
            let line = LogLine::new(Level::Warning, Category::Agent, text);
            out.push(line.peer(&server.registration.name).address(&server.registration.address).why(why).into());
        }
    }

    /// Records a client's report of servers that could not take the datum that it puts.
    pub(super) fn record_refusals(&mut self, now: Time, wanted: &PutRequest, out: &mut Vec<Effect>) {
        for (server, why) in wanted.refused.iter().filter(|_| wanted.content.is_durable) {
            // The others were recorded before.
            if !self.names.keeping.backoff.has_no_disk(*server) {
                self.begin_backoff(now, *server, None, why, out);
            }
        }
    }

    /// Assigns further servers to a version that is being put and lacks keepers. If there are too few servers, the put fails.
    pub(super) fn add_missing_to_put(&mut self, now: Time, datum: DatumId, out: &mut Vec<Effect>) {
        while self.names.catalog.missing_keepers(datum) > 0 {
            if self.add_keeper(now, datum, out) {
                continue;
            }
            let refused = self.names.catalog.refusals(datum);
            let Some((question, named)) = self.names.catalog.put_failed(datum) else { return };
            let (servers, replicas) = (self.free_bytes(named.is_durable).count(), named.replicas);
            let (name, size_bytes) = (named.name, named.meta.size_bytes());
            let why = format!("{replicas} replicas were requested, but too few of the {servers} servers can keep it");
            let error = match refused.is_empty() {
                true => NameError::NoRoom { name, size_bytes, why },
                false => self.all_refused((&name, size_bytes, named.is_durable), &refused),
            };
            send(out, question.client, CatalogToClient::Answer { request: question.number, answer: Err(error) });
        }
    }

    /// Assigns one more keeper to a version. Returns false if no server is available.
    fn add_keeper(&mut self, now: Time, datum: DatumId, out: &mut Vec<Effect>) -> bool {
        let catalog = &self.names.catalog;
        let Some(named) = catalog.named(datum) else { return false };
        let keepers: Vec<NodeId> = catalog.keepers(datum).collect();
        let holders: BTreeSet<NodeId> = catalog.holders(datum).collect();
        let (is_coming, resting) = (catalog.is_being_put(datum), &self.names.keeping.backoff);
        // During a put, each server is asked once. Later, servers are asked repeatedly.
        let has_refused = |server| match is_coming {
            true => catalog.has_refused(datum, server),
            false => resting.is_paused(now, server, datum, named.is_durable),
        };
        let wanted = (&named.meta, named.is_durable);
        let Some(server) = self.best_keeper(wanted, &keepers, |server| holders.contains(&server), has_refused) else {
            return false;
        };
        self.names.catalog.keep_at(datum, server);
        // If there is no holder yet, the server is notified once the first one has the datum.
        if !holders.is_empty() {
            self.send_to_keeper(now, datum, server, out);
        }
        true
    }

    /// Assigns further keepers to current versions with too few of them, a limited number at a time.
    pub(super) fn add_missing_keepers(&mut self, now: Time, out: &mut Vec<Effect>) {
        let free = PLACEMENTS_MAX.saturating_sub(self.names.keeping.len());
        let after = self.names.keeping.last_checked;
        let mut lacking: Vec<DatumId> = self.names.catalog.lacking_keepers(after).take(free).collect();
        if lacking.len() < free {
            lacking.extend(self.names.catalog.lacking_keepers(None).take(free - lacking.len()));
        }
        for datum in lacking {
            self.names.keeping.last_checked = Some(datum);
            if self.names.catalog.missing_keepers(datum) > 0 {
                self.add_keeper(now, datum, out);
            }
        }
    }
}

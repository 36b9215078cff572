//! Placement of shared data: the agent chooses the servers with the most free memory, on different hosts if possible.
//! Servers that are draining are chosen last.
//!
//! To have a datum kept, the agent sends the server a task, like a client that puts a datum. A lost server is replaced.

use std::collections::{BTreeMap, BTreeSet};

use super::backoff::KeeperBackoff;
use super::registry::{Registered, Registry};
use super::send;
use super::sources::{DatumFacts, GridFacts};
use crate::data::{Catalog, Content, Source};
use crate::graph::{Argument, Task, TaskKind};
use crate::node::message::{Supply, TaskToServer};
use crate::node::protocol::Effect;
use crate::node::{Category, LogLine};
use gridloom_base::limits::{KEEPERS_TRIED_MAX, REFUSAL_BYTES_MAX};
use gridloom_base::{DatumId, Fnv, Level, Meta, NameError, NamedDatum, NodeId, TaskError, TaskId, truncated};

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
    backoff: KeeperBackoff,
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
    truncated(why, REFUSAL_BYTES_MAX).to_string()
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

    pub(super) fn forget_datum(&mut self, datum: DatumId) {
        self.backoff.forget_datum(datum);
    }

    pub(super) fn server_lost(&mut self, server: NodeId) {
        let its = self.tasks.iter().filter(|(_, (_, at))| *at == server).map(|(task, _)| *task);
        its.collect::<Vec<_>>().into_iter().for_each(|task| _ = self.end(task));
        self.backoff.server_lost(server);
    }

    /// Returns the servers for a new version, one for each replica. The client sends the datum to the first one.
    pub(super) fn choose(
        &self,
        facts: DatumFacts<'_>,
        name: &str,
        wanted: &PutRequest,
    ) -> Result<Vec<NodeId>, NameError> {
        let (content, at, replicas) = (&wanted.content, &wanted.at, usize::from(wanted.replicas));
        let mut places = Vec::new();
        if wanted.refused.len() >= KEEPERS_TRIED_MAX {
            return Err(no_room(facts, name, wanted, 0));
        }
        while places.len() < replicas {
            let has_copy = |server: NodeId| at.contains(&server);
            let has_refused = |server: NodeId| wanted.refused.contains_key(&server);
            match self.best_keeper(facts, (&content.meta, content.is_durable), &places, (&has_copy, &has_refused)) {
                Some(server) => places.push(server),
                None => return Err(no_room(facts, name, wanted, places.len())),
            }
        }
        Ok(places)
    }

    /// Returns the best server to keep a version in addition to `keepers`.
    fn best_keeper(
        &self,
        facts: DatumFacts<'_>,
        (meta, is_durable): (&Meta, bool),
        keepers: &[NodeId],
        (has_copy, has_refused): (&dyn Fn(NodeId) -> bool, &dyn Fn(NodeId) -> bool),
    ) -> Option<NodeId> {
        let servers = facts.grid.servers;
        let size_bytes = meta.checked_size_bytes().unwrap_or(u64::MAX);
        let hosts: BTreeSet<String> = keepers.iter().map(|server| servers.location(*server)).collect();
        let all = free_bytes(facts, is_durable).filter(|(node, ..)| !keepers.contains(node) && !has_refused(*node));
        let fitting = all.filter(|(.., room)| *room >= size_bytes).map(|(node, server, room)| PlacementCandidate {
            stays: !server.is_draining,
            has_a_disk: !is_durable || !self.backoff.has_no_disk(node),
            is_on_other_host: !hosts.contains(server.host()),
            has_copy: has_copy(node),
            room,
            server: std::cmp::Reverse(node),
        });
        fitting.max().map(|place| place.server.0)
    }

    /// Returns the best server to keep a version in addition to its keepers. During a put, each server is asked once.
    /// Later, servers are asked repeatedly.
    pub(super) fn next_keeper(&self, facts: DatumFacts<'_>, datum: DatumId) -> Option<NodeId> {
        let DatumFacts { grid, catalog } = facts;
        let named = catalog.named(datum)?;
        let keepers: Vec<NodeId> = catalog.keepers(datum).collect();
        let holders: BTreeSet<NodeId> = catalog.holders(datum).collect();
        let is_coming = catalog.is_being_put(datum);
        let has_refused = |server| match is_coming {
            true => catalog.has_refused(datum, server),
            false => self.backoff.is_paused(grid.now, server, datum, named.is_durable),
        };
        let has_copy = |server| holders.contains(&server);
        self.best_keeper(facts, (&named.meta, named.is_durable), &keepers, (&has_copy, &has_refused))
    }

    /// Has a server fetch and keep a version.
    pub(super) fn send(
        &mut self,
        servers: &Registry,
        server: NodeId,
        named: &NamedDatum,
        source: Source,
        out: &mut Vec<Effect>,
    ) {
        let task = Task {
            id: self.begin(named.datum, server),
            kind: TaskKind::Publish(Box::new(named.clone())),
            args: vec![Argument::Datum(named.datum)],
            outputs: Vec::new(),
            work_flops: None,
            options: Default::default(),
        };
        let (from, hops) = (source.node, source.hops);
        let supplies = vec![Supply::direct(named.datum, named.meta.clone(), from, servers.address(from), hops)];
        send(out, server, TaskToServer::RunTasks { tasks: vec![task], supplies });
    }

    /// Starts a pause for a server that was to keep a version but has no source for it.
    pub(super) fn has_no_source(&mut self, grid: GridFacts<'_>, server: NodeId, datum: DatumId) {
        self.backoff.begin(grid.now, server, Some(datum));
    }

    /// Cancels the task of a server that was to keep a version that is dropped.
    pub(super) fn cancel(&mut self, datum: DatumId, server: NodeId, out: &mut Vec<Effect>) {
        if let Some(task) = self.places.get(&(datum, server)).copied() {
            self.end(task);
            send(out, server, TaskToServer::Cancel { tasks: vec![task] });
        }
    }

    /// Handles the end of a task that brings a version to a server. Returns the version.
    pub(super) fn task_ended(&mut self, server: NodeId, task: TaskId) -> Option<DatumId> {
        self.tasks.get(&task).filter(|(_, at)| *at == server)?;
        self.end(task).map(|(datum, _)| datum)
    }

    /// Starts a pause for a server that failed to keep a version. Returns the reason.
    pub(super) fn failed(
        &mut self,
        grid: GridFacts<'_>,
        server: NodeId,
        datum: DatumId,
        error: &TaskError,
        out: &mut Vec<Effect>,
    ) -> String {
        let (is_of_disk, why) = match error {
            TaskError::StoreFailed { why, .. } => (true, refusal(why)),
            error => (false, refusal(&error.to_string())),
        };
        self.begin_backoff(grid, server, (!is_of_disk).then_some(datum), &why, out);
        why
    }

    /// Ends the pauses of a server that has kept a version.
    pub(super) fn kept(&mut self, server: NodeId, datum: DatumId, is_durable: bool) {
        self.backoff.kept(server, datum, is_durable);
    }

    /// Starts a pause for a server that could not keep a datum, or any durable data.
    fn begin_backoff(
        &mut self,
        grid: GridFacts<'_>,
        server: NodeId,
        of: Option<DatumId>,
        why: &str,
        out: &mut Vec<Effect>,
    ) {
        let is_new = self.backoff.begin(grid.now, server, of);
        if let Some(server) = grid.servers.get(server).filter(|_| is_new && of.is_none()) {
            let text =
                "a server cannot keep durable data; others are asked first, and this one again after increasing pauses";
            let line = LogLine::new(Level::Warning, Category::Agent, text);
            out.push(line.peer(server.name()).address(server.address()).why(why).into());
        }
    }

    /// Records a client's report of servers that could not take the datum that it puts.
    pub(super) fn record_refusals(&mut self, grid: GridFacts<'_>, wanted: &PutRequest, out: &mut Vec<Effect>) {
        for (server, why) in wanted.refused.iter().filter(|_| wanted.content.is_durable) {
            // The others were recorded before.
            if !self.backoff.has_no_disk(*server) {
                self.begin_backoff(grid, *server, None, why, out);
            }
        }
    }

    /// Returns the current versions with too few keepers that are to get another one now, a limited number at a time.
    pub(super) fn lacking(&self, catalog: &Catalog) -> Vec<DatumId> {
        let free = PLACEMENTS_MAX.saturating_sub(self.len());
        let mut lacking: Vec<DatumId> = catalog.lacking_keepers(self.last_checked).take(free).collect();
        if lacking.len() < free {
            lacking.extend(catalog.lacking_keepers(None).take(free - lacking.len()));
        }
        lacking
    }

    /// Records that this version was checked for missing keepers.
    pub(super) fn checked(&mut self, datum: DatumId) {
        self.last_checked = Some(datum);
    }
}

/// Returns the error for a put that too few servers can keep, or that all servers have refused for these reasons.
pub(super) fn too_few_keepers(
    facts: DatumFacts<'_>,
    named: NamedDatum,
    refused: &BTreeMap<NodeId, String>,
) -> NameError {
    let NamedDatum { name, meta, replicas, is_durable, .. } = named;
    let size_bytes = meta.size_bytes();
    if !refused.is_empty() {
        return all_refused(facts.grid.servers, (&name, size_bytes, is_durable), refused);
    }
    let servers = free_bytes(facts, is_durable).count();
    let why = match servers {
        0 => no_keeper(facts.grid.servers, is_durable).into(),
        _ => format!("{replicas} replicas were requested, but too few of the {servers} servers can keep it"),
    };
    NameError::NoRoom { name, size_bytes, why }
}

/// Returns the servers that can keep shared data, with the bytes that each has left for them. For durable data,
/// only servers with a directory for durable data are returned.
fn free_bytes<'a>(
    facts: DatumFacts<'a>,
    is_durable: bool,
) -> impl Iterator<Item = (NodeId, &'a Registered, u64)> + use<'a> {
    let may = move |server: &Registered| !server.is_stateless() && (server.registration.is_durable || !is_durable);
    facts.grid.servers.iter().filter(move |(_, server)| may(server)).map(move |(node, server)| {
        let most = server.registration.memory_bytes / SHARED_DIVISOR;
        (node, server, most.saturating_sub(facts.catalog.placed_bytes(node)))
    })
}

/// Returns the reason why no server can keep the shared data.
fn no_keeper(servers: &Registry, is_durable: bool) -> &'static str {
    let mut all = servers.iter().map(|(_, server)| server).peekable();
    if all.peek().is_none() {
        return "no server has registered with the agent; start one with `gridloom serve --agent HOST:PORT`, or see the servers' logs";
    }
    match all.all(Registered::is_stateless) {
        true => "all servers are stateless (--plain) and keep no data; start one without --plain",
        false if is_durable => "no server keeps durable data; start some with --durable DIR",
        false => "no server keeps data",
    }
}

fn no_room(facts: DatumFacts<'_>, name: &str, wanted: &PutRequest, found: usize) -> NameError {
    let PutRequest { content: Content { meta, is_durable, .. }, replicas, .. } = wanted;
    let size_bytes = meta.checked_size_bytes().unwrap_or(u64::MAX);
    if !wanted.refused.is_empty() {
        return all_refused(facts.grid.servers, (name, size_bytes, *is_durable), &wanted.refused);
    }
    let most = free_bytes(facts, *is_durable).map(|(.., room)| room).max();
    let remedy = "delete some, or start servers with more --memory, or --disk";
    let why = match most {
        None => no_keeper(facts.grid.servers, *is_durable).into(),
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
    servers: &Registry,
    (name, size_bytes, is_durable): (&str, u64, bool),
    refused: &BTreeMap<NodeId, String>,
) -> NameError {
    let of = |(node, why): (&NodeId, &String)| match servers.get(*node) {
        Some(server) => format!("server '{}': {why}", server.name()),
        None => format!("a server that is gone: {why}"),
    };
    let servers: Vec<String> = refused.iter().map(of).collect();
    let remedy = match is_durable {
        true => "make room on these disks, or start servers with --durable DIR on others",
        false => "delete some data, or start servers with more --memory, or --disk",
    };
    NameError::NoRoom { name: name.into(), size_bytes, why: format!("{}; {remedy}", servers.join("; ")) }
}

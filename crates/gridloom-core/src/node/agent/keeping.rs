//! Which servers keep shared data: those with most room, on hosts of their own where there are as many.
//!
//! To have a datum kept, the agent sends the server a task, as a client does that puts one. A server that is lost is replaced.

use std::collections::{BTreeMap, BTreeSet};

use super::{Agent, send};
use crate::data::Content;
use crate::graph::{Argument, Task, TaskKind};
use crate::node::message::{CatalogToClient, Registration, Supply, TaskReport, TaskToServer};
use crate::node::protocol::Effect;
use gridloom_base::{DatumId, Fnv, Meta, NameError, NodeId, TaskId, Time};

/// The part of a server's store that shared data may take: the rest is for calls, which could not run otherwise.
const SHARED_PART: u64 = 2;
/// Versions that get another keeper at a time: they share the links with what programs send.
const KEPT_AT_A_TIME_MAX: usize = 16;

/// Tasks that take data to servers which are to keep them.
#[derive(Debug, Default)]
pub(super) struct Keeping {
    tasks: BTreeMap<TaskId, (DatumId, NodeId)>,
    places: BTreeMap<(DatumId, NodeId), TaskId>,
    /// The last version that was looked after.
    looked_at: Option<DatumId>,
}

impl Keeping {
    pub(super) fn len(&self) -> usize {
        self.tasks.len()
    }

    fn begin(&mut self, datum: DatumId, server: NodeId) -> TaskId {
        // Tasks of an earlier agent may still be there.
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
    }
}

/// A version that is to be put.
pub(super) struct Wanted {
    pub(super) content: Content,
    pub(super) replaces: bool,
    pub(super) replicas: u16,
    /// Servers with a copy.
    pub(super) at: BTreeSet<NodeId>,
}

/// A server that may keep a version, best last.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    is_on_other_host: bool,
    has_copy: bool,
    room: u64,
    server: std::cmp::Reverse<NodeId>,
}

impl Agent {
    /// The servers for a new version: as many as it is to have replicas. The client takes it to the first.
    pub(super) fn places_for(&self, name: &str, wanted: &Wanted) -> Result<Vec<NodeId>, NameError> {
        let (content, at, replicas) = (&wanted.content, &wanted.at, usize::from(wanted.replicas));
        let mut places = Vec::new();
        while places.len() < replicas {
            let has_copy = |server: NodeId| at.contains(&server);
            match self.best_place((&content.meta, content.is_durable), &places, has_copy, |_| false) {
                Some(server) => places.push(server),
                None => return Err(self.no_room(name, wanted, places.len())),
            }
        }
        Ok(places)
    }

    /// The best server to keep a version that some keep already.
    fn best_place(
        &self,
        (meta, is_durable): (&Meta, bool),
        keepers: &[NodeId],
        has_copy: impl Fn(NodeId) -> bool,
        has_refused: impl Fn(NodeId) -> bool,
    ) -> Option<NodeId> {
        let size_bytes = meta.checked_size_bytes().unwrap_or(u64::MAX);
        let hosts: BTreeSet<String> = keepers.iter().map(|server| Agent::place(self, *server)).collect();
        let all = self.rooms(is_durable).filter(|(server, _)| !keepers.contains(server) && !has_refused(*server));
        let fitting = all.filter(|(_, room)| *room >= size_bytes).map(|(server, room)| Place {
            is_on_other_host: !hosts.contains(&Agent::place(self, server)),
            has_copy: has_copy(server),
            room,
            server: std::cmp::Reverse(server),
        });
        fitting.max().map(|place| place.server.0)
    }

    /// Servers that talk to others, and what each has left for shared data, bytes. If they are to be durable: servers that have a
    /// folder for such.
    fn rooms(&self, is_durable: bool) -> impl Iterator<Item = (NodeId, u64)> {
        let may = move |registration: &Registration| !registration.plain && (registration.is_durable || !is_durable);
        let servers = self.servers.iter().filter(move |(_, server)| may(&server.registration));
        servers.map(|(id, server)| {
            let most = server.registration.memory_bytes / SHARED_PART;
            (*id, most.saturating_sub(self.names.catalog.placed_bytes(*id)))
        })
    }

    fn no_room(&self, name: &str, wanted: &Wanted, found: usize) -> NameError {
        let Wanted { content: Content { meta, is_durable, .. }, replicas, .. } = wanted;
        let most = self.rooms(*is_durable).map(|(_, room)| room).max();
        let remedy = "delete some, or start servers with more --memory, or --disk";
        let why = match most {
            None if *is_durable => "no server keeps durable data; start some with --durable DIR".into(),
            None => "no server that talks to other servers is there".into(),
            Some(_) if found > 0 => {
                let servers = if found == 1 { "1 server has" } else { &format!("{found} servers have") };
                format!(
                    "{replicas} are to keep it, and {servers} room for it; ask for fewer replicas, or start servers"
                )
            }
            Some(most) => {
                format!(
                    "the most that one has left for shared data is {most} bytes (half of its store is for them); {remedy}"
                )
            }
        };
        NameError::NoRoom { name: name.into(), size_bytes: meta.checked_size_bytes().unwrap_or(u64::MAX), why }
    }

    /// Has a server get and keep a version.
    pub(super) fn have_kept(&mut self, now: Time, datum: DatumId, server: NodeId, out: &mut Vec<Effect>) {
        let (Some(named), Some(source)) =
            (self.names.catalog.named(datum).cloned(), self.source_for(now, datum, server, &BTreeMap::new()))
        else {
            return self.names.catalog.refused(datum, server);
        };
        let task = Task {
            id: self.names.keeping.begin(datum, server),
            kind: TaskKind::Publish(Box::new(named.clone())),
            args: vec![Argument::Datum(datum)],
            outputs: Vec::new(),
            work_flops: None,
            terms: Default::default(),
        };
        let (from, hops) = (source.node, source.hops);
        let address = self.servers[&from].registration.address.clone();
        let supplies = vec![Supply { datum, meta: named.meta, from, address, hops }];
        send(out, server, TaskToServer::RunTasks { tasks: vec![task], supplies });
    }

    /// A version is given up: a server that is to keep it is not to wait for it.
    pub(super) fn call_off(&mut self, datum: DatumId, server: NodeId, out: &mut Vec<Effect>) {
        self.names.searches.coming_no_more(datum, server);
        if let Some(task) = self.names.keeping.places.get(&(datum, server)).copied() {
            self.names.keeping.end(task);
            send(out, server, TaskToServer::Cancel { tasks: vec![task] });
        }
    }

    /// A server has taken what it is to keep, or could not. What it has it tells beside.
    pub(super) fn keeping_ended(&mut self, server: NodeId, report: TaskReport) {
        let is_its = self.names.keeping.tasks.get(&report.task).is_some_and(|(_, at)| *at == server);
        if let Some((datum, _)) = is_its.then(|| self.names.keeping.end(report.task)).flatten() {
            self.names.searches.coming_no_more(datum, server);
            if report.outcome.is_err() {
                self.names.catalog.refused(datum, server);
            }
        }
    }

    /// A version is being put, and lacks servers that keep it: others take their place, or it is not put.
    pub(super) fn complete_put(&mut self, now: Time, datum: DatumId, out: &mut Vec<Effect>) {
        while self.names.catalog.lacks(datum) > 0 {
            if self.one_more(now, datum, out) {
                continue;
            }
            let Some((question, named)) = self.names.catalog.not_put(datum) else { return };
            let (servers, replicas) = (self.rooms(named.is_durable).count(), named.replicas);
            let why = format!("{replicas} servers are to keep it, and of {servers} that are there too few can");
            let error = NameError::NoRoom { name: named.name, size_bytes: named.meta.size_bytes(), why };
            send(out, question.client, CatalogToClient::Answer { ask: question.ask, answer: Err(error) });
        }
    }

    /// One more server keeps a version. False if there is none.
    fn one_more(&mut self, now: Time, datum: DatumId, out: &mut Vec<Effect>) -> bool {
        let catalog = &self.names.catalog;
        let Some(named) = catalog.named(datum) else { return false };
        let keepers: Vec<NodeId> = catalog.keepers(datum).collect();
        let holders: BTreeSet<NodeId> = catalog.holders(datum).collect();
        let has_refused = |server| catalog.has_refused(datum, server);
        let wanted = (&named.meta, named.is_durable);
        let Some(server) = self.best_place(wanted, &keepers, |server| holders.contains(&server), has_refused) else {
            return false;
        };
        self.names.catalog.keep_at(datum, server);
        // Else it is told once the first has it.
        if !holders.is_empty() {
            self.have_kept(now, datum, server, out);
        }
        true
    }

    /// Current versions that too few servers keep get more, some at a time.
    pub(super) fn keep_more(&mut self, now: Time, out: &mut Vec<Effect>) {
        let free = KEPT_AT_A_TIME_MAX.saturating_sub(self.names.keeping.len());
        let after = self.names.keeping.looked_at;
        let mut lacking: Vec<DatumId> = self.names.catalog.lacking(after).take(free).collect();
        if lacking.len() < free {
            lacking.extend(self.names.catalog.lacking(None).take(free - lacking.len()));
        }
        for datum in lacking {
            self.names.keeping.looked_at = Some(datum);
            if self.names.catalog.lacks(datum) > 0 && !self.one_more(now, datum, out) {
                self.names.catalog.forget_refusals(datum);
            }
        }
    }
}

//! Shared names: the catalog, what clients ask it for, and what servers tell it.
//!
//! To servers the catalog is the owner of shared data. It names another source to one that cannot get a copy, and has copies given
//! up that nobody needs.
//!
//! **Invariant:** a server that asks where a datum is gets an answer within [`RETURN_NS_MAX`] and a heartbeat: until then a server
//! that was lost may come back.

use std::collections::BTreeMap;

use super::{Agent, not_taken, send};
use crate::data::{Catalog, Question, Source, Spread, Stored, Way};
use crate::node::message::{
    CatalogAnswer, CatalogToClient, CatalogToServer, ClientToCatalog, Listed, ServerToCatalog, Supply, TaskToClient,
    TaskToServer,
};
use crate::node::protocol::Effect;
use gridloom_base::limits::{HEARTBEAT_NS, RETURN_NS_MAX, SHARED_DATA_TOLD_MAX};
use gridloom_base::{DatumId, Meta, NameError, Named, NodeId, Time};
use gridloom_perf::{LinkEstimate, Tree};

/// The part of a server's store that shared data may take: the rest is for calls, which could not run otherwise.
const SHARED_PART: u64 = 2;
/// The way between servers that could not reach one another: taken if there is no other.
const BROKEN_WAY: Way = Way { bandwidth: 1.0, latency_s: 10.0 };
/// How long a server is given other sources of one datum before the tasks that read it fail.
const SEARCH_NS_MAX: u64 = 6 * RETURN_NS_MAX;

#[derive(Debug)]
pub(super) struct Names {
    catalog: Catalog,
    /// Whether clients share this agent. One that maps for a single client has no names to share.
    is_kept: bool,
    /// Since when it is there.
    since: Time,
    /// Servers that wait for a source of a datum.
    searches: BTreeMap<(DatumId, NodeId), Search>,
    /// Data on their way to servers.
    spreads: BTreeMap<DatumId, Spread>,
    /// What is expected of links between hosts, as of that time.
    links: Option<(Time, Tree<String>)>,
}

/// A server's search for a source.
#[derive(Clone, Copy, Debug)]
struct Search {
    since: Time,
    /// The source that failed last.
    failed: NodeId,
    /// When another was named.
    answered: Option<Time>,
}

impl Names {
    pub(super) fn new(agent: NodeId, is_kept: bool) -> Names {
        Names {
            catalog: Catalog::new(agent),
            is_kept,
            since: Time(0),
            searches: BTreeMap::new(),
            spreads: BTreeMap::new(),
            links: None,
        }
    }

    pub(super) fn begin(&mut self, now: Time) {
        self.since = now;
    }

    /// Whether servers that knew an earlier agent may not have registered yet.
    fn is_new(&self, now: Time) -> bool {
        now.since(self.since) < RETURN_NS_MAX
    }

    /// Versions, requests that wait, and searches.
    pub(super) fn counts(&self) -> [usize; 3] {
        [self.catalog.len(), self.catalog.waits(), self.searches.len() + self.spreads.len()]
    }

    /// A datum is at a server, or does not come there any more.
    fn coming_no_more(&mut self, datum: DatumId, server: NodeId) {
        self.searches.remove(&(datum, server));
        if let Some(spread) = self.spreads.get_mut(&datum) {
            spread.ended(server);
            if spread.is_empty() {
                self.spreads.remove(&datum);
            }
        }
    }

    pub(super) fn catalog(&self) -> &Catalog {
        &self.catalog
    }
}

impl Agent {
    // ---- clients

    pub(super) fn on_client_of_catalog(
        &mut self,
        now: Time,
        client: NodeId,
        message: ClientToCatalog,
        out: &mut Vec<Effect>,
    ) {
        if let Some(ask) = message.ask().filter(|_| !self.names.is_kept) {
            let why = "this session was given servers and maps by itself".into();
            let answer = CatalogToClient::Answer { ask, answer: Err(NameError::NoAgent { why }) };
            return send(out, client, answer);
        }
        let answered = match message {
            ClientToCatalog::Put { ask, name, meta, replaces, at } => {
                (ask, self.begin_put(Question { client, ask }, &name, meta, replaces, &at, out).map(|()| None))
            }
            ClientToCatalog::Find { ask, name, waits } => (ask, self.find(Question { client, ask }, &name, waits)),
            ClientToCatalog::Delete { ask, name } => (ask, self.delete(now, &name, out).map(Some)),
            ClientToCatalog::List { ask, prefix, after } => (ask, Ok(Some(self.list(&prefix, &after)))),
            ClientToCatalog::Forget { ask, name } => {
                let waited = self.names.catalog.forget_wait(Question { client, ask }, &name);
                (ask, if waited { Err(self.names.catalog.unknown(&name)) } else { Ok(None) })
            }
            ClientToCatalog::Withdraw { datum } => {
                if let Some(server) = self.names.catalog.withdraw(client, datum) {
                    send(out, server, TaskToServer::Release { data: vec![datum] });
                }
                return;
            }
            ClientToCatalog::Locate { datum } => {
                self.names.catalog.reads(client, datum);
                let holders = self.holders_of(datum);
                let why = self.why_lost(datum);
                return send(out, client, CatalogToClient::Located { datum, holders, why });
            }
            ClientToCatalog::Release { data } => {
                for datum in data {
                    if self.names.catalog.release(client, datum) {
                        self.give_up_version(datum, out);
                    }
                }
                return;
            }
        };
        match answered {
            (_, Ok(None)) => {}
            (ask, Ok(Some(answer))) => send(out, client, CatalogToClient::Answer { ask, answer: Ok(answer) }),
            (ask, Err(error)) => send(out, client, CatalogToClient::Answer { ask, answer: Err(error) }),
        }
    }

    /// Chooses the server where a new version of a name is put.
    fn begin_put(
        &mut self,
        question: Question,
        name: &str,
        meta: Meta,
        replaces: bool,
        at: &[NodeId],
        out: &mut Vec<Effect>,
    ) -> Result<(), NameError> {
        self.names.catalog.check_put(name, replaces)?;
        let (server, address) = self.place_for(name, &meta, at)?;
        let named = self.names.catalog.begin(question, name, meta, server).clone();
        // It is there before the client's copy, which takes another way.
        send(out, server, CatalogToServer::Expect { datum: named.datum, client: question.client });
        send(out, question.client, CatalogToClient::Place { ask: question.ask, named, server, address });
        Ok(())
    }

    /// The server with most room for a shared datum; one that has a copy comes first.
    fn place_for(&self, name: &str, meta: &Meta, at: &[NodeId]) -> Result<(NodeId, String), NameError> {
        let size_bytes = meta.checked_size_bytes().unwrap_or(u64::MAX);
        let refused = |why: String| NameError::NoRoom { name: name.into(), size_bytes, why };
        let room = |server: NodeId, memory_bytes: u64| {
            (memory_bytes / SHARED_PART).saturating_sub(self.names.catalog.placed_bytes(server))
        };
        let servers = self.servers.iter().filter(|(_, server)| !server.registration.plain);
        let rooms = servers.map(|(id, server)| (room(*id, server.registration.memory_bytes), *id));
        let most = rooms.clone().map(|(room, _)| room).max();
        let Some(most) = most else { return Err(refused("no server that talks to other servers is there".into())) };
        let fitting = rooms.filter(|(room, _)| *room >= size_bytes);
        let best = fitting.max_by_key(|(room, id)| (at.contains(id), *room, std::cmp::Reverse(*id)));
        let Some((_, server)) = best else {
            return Err(refused(format!(
                "the most that one has left for shared data is {most} bytes (half of its memory is for them); delete some, or \
                 start servers with more --memory"
            )));
        };
        Ok((server, self.servers[&server].registration.address.clone()))
    }

    fn find(&mut self, question: Question, name: &str, waits: bool) -> Result<Option<CatalogAnswer>, NameError> {
        let found = self.names.catalog.find(question, name, waits)?.cloned();
        Ok(found.map(|named| self.found(named)))
    }

    fn found(&self, named: Named) -> CatalogAnswer {
        CatalogAnswer::Found { holders: self.holders_of(named.datum), named }
    }

    fn list(&self, prefix: &str, after: &str) -> CatalogAnswer {
        let mut listed = self.names.catalog.list(prefix, after);
        let of = |(named, holders): (&Named, &std::collections::BTreeSet<NodeId>)| Listed {
            named: named.clone(),
            holders: holders.iter().copied().collect(),
        };
        let names = listed.by_ref().take(SHARED_DATA_TOLD_MAX).map(of).collect();
        CatalogAnswer::Listed { names, has_more: listed.next().is_some() }
    }

    fn delete(&mut self, now: Time, name: &str, out: &mut Vec<Effect>) -> Result<CatalogAnswer, NameError> {
        if let Some(datum) = self.names.catalog.delete(name)? {
            self.give_up_version(datum, out);
        }
        self.seek_again(now, out);
        Ok(CatalogAnswer::Deleted)
    }

    /// Servers with copies that can be reached.
    fn holders_of(&self, datum: DatumId) -> Vec<(NodeId, String)> {
        let holders = self.names.catalog.holders(datum);
        let known = holders.filter_map(|node| Some((node, self.servers.get(&node)?.registration.address.clone())));
        known.collect()
    }

    fn why_lost(&self, datum: DatumId) -> String {
        match self.names.catalog.named(datum) {
            Some(named) => format!("no server has '{}' any more", named.name),
            None => "it was deleted or replaced".into(),
        }
    }

    fn give_up_version(&mut self, datum: DatumId, out: &mut Vec<Effect>) {
        self.names.spreads.remove(&datum);
        for server in self.names.catalog.give_up(datum) {
            send(out, server, TaskToServer::Release { data: vec![datum] });
        }
    }

    // ---- servers

    pub(super) fn on_server_of_catalog(
        &mut self,
        now: Time,
        server: NodeId,
        message: ServerToCatalog,
        out: &mut Vec<Effect>,
    ) {
        if !self.servers.contains_key(&server) {
            return not_taken(server, out);
        }
        match message {
            ServerToCatalog::Stored { datum, client } => {
                let (stored, superseded) = self.names.catalog.stored(server, client, datum);
                superseded.into_iter().for_each(|datum| self.give_up_version(datum, out));
                match stored {
                    Stored::Whole { by, waiting } => {
                        let answer = CatalogToClient::Answer { ask: by.ask, answer: Ok(CatalogAnswer::Put) };
                        send(out, by.client, answer);
                        self.tell_found(datum, waiting, out);
                    }
                    Stored::Copy => {}
                    Stored::Unknown => send(out, server, TaskToServer::Release { data: vec![datum] }),
                }
            }
            ServerToCatalog::HasCopies { data } => {
                data.into_iter().for_each(|datum| self.copy_at(now, datum, server, out));
                self.seek_again(now, out);
            }
            ServerToCatalog::Holds { data } => {
                for named in data {
                    let datum = named.datum;
                    let (waiting, superseded) = self.names.catalog.told(server, named);
                    superseded.into_iter().for_each(|datum| self.give_up_version(datum, out));
                    self.tell_found(datum, waiting, out);
                }
                self.seek_again(now, out);
            }
        }
    }

    /// A server has a copy. Of what is unknown it drops it, unless the server that has the name may still register.
    fn copy_at(&mut self, now: Time, datum: DatumId, server: NodeId, out: &mut Vec<Effect>) {
        let is_kept = self.names.catalog.copied(datum, server)
            || self.names.is_new(now) && self.names.catalog.add_stray(datum, server);
        if datum.is_shared() && !is_kept {
            send(out, server, TaskToServer::Release { data: vec![datum] });
        }
    }

    /// Servers have had the time to register: copies of what none of them has named are dropped.
    pub(super) fn give_up_strays(&mut self, now: Time, out: &mut Vec<Effect>) {
        if !self.names.is_new(now) {
            for (datum, server) in self.names.catalog.take_strays() {
                send(out, server, TaskToServer::Release { data: vec![datum] });
            }
        }
    }

    fn tell_found(&self, datum: DatumId, waiting: Vec<Question>, out: &mut Vec<Effect>) {
        let Some(named) = self.names.catalog.named(datum) else { return };
        for Question { client, ask } in waiting {
            send(out, client, CatalogToClient::Answer { ask, answer: Ok(self.found(named.clone())) });
        }
    }

    /// What a server tells the owner of data, of shared ones.
    pub(super) fn on_owner_message(&mut self, now: Time, server: NodeId, message: TaskToClient, out: &mut Vec<Effect>) {
        if !self.servers.contains_key(&server) {
            return not_taken(server, out);
        }
        match message {
            TaskToClient::TasksEnded { transfers, .. } => {
                for report in transfers.iter().filter(|report| report.to == server) {
                    self.names.coming_no_more(report.datum, server);
                    self.copy_at(now, report.datum, server, out);
                }
                self.seek_again(now, out);
            }
            TaskToClient::Dropped { data } => {
                let why = format!("server '{}' dropped it", self.servers[&server].registration.name);
                data.into_iter().for_each(|datum| self.names.catalog.dropped(datum, server, &why));
            }
            TaskToClient::SupplyFailed { datum, from, .. } if datum.is_shared() => {
                let search = Search { since: now, failed: from, answered: None };
                let search = self.names.searches.entry((datum, server)).or_insert(search);
                (search.failed, search.answered) = (from, None);
                self.seek(now, datum, server, out);
            }
            _ => not_taken(server, out),
        }
    }

    /// Names a source to a server that waits for a datum, or says that there is none.
    fn seek(&mut self, now: Time, datum: DatumId, server: NodeId, out: &mut Vec<Effect>) {
        let Some(search) = self.names.searches.get(&(datum, server)).copied() else { return };
        let waited_ns = now.since(search.since);
        if let Some(answered) = search.answered {
            // It comes, or its task is gone.
            if now.since(answered) >= SEARCH_NS_MAX {
                self.names.coming_no_more(datum, server);
            }
            return;
        }
        let source = self.source_for(now, datum, server, search.failed);
        // The one that failed is tried again after the others, and not at once.
        let source = source.filter(|source| source.node != search.failed || waited_ns >= HEARTBEAT_NS);
        match (self.names.catalog.named(datum), &source) {
            (Some(named), Some(source)) if waited_ns < SEARCH_NS_MAX => {
                let (from, hops) = (source.node, source.hops);
                let address = self.servers[&from].registration.address.clone();
                let supplies = vec![Supply { datum, meta: named.meta.clone(), from, address, hops }];
                send(out, server, TaskToServer::Resupply { supplies });
                let search = self.names.searches.get_mut(&(datum, server)).expect("found above");
                search.answered = Some(now);
            }
            (Some(_), None) if waited_ns < RETURN_NS_MAX => {}
            _ => {
                self.names.coming_no_more(datum, server);
                let why = match source {
                    Some(_) => "it cannot reach the servers that have it".into(),
                    None => self.why_lost(datum),
                };
                send(out, server, CatalogToServer::Gone { datum, why });
            }
        }
    }

    /// From whom a server is to get a datum: a holder, or another server that gets it.
    fn source_for(&mut self, now: Time, datum: DatumId, server: NodeId, failed: NodeId) -> Option<Source> {
        let size_bytes = self.names.catalog.named(datum)?.meta.size_bytes();
        let holders: Vec<NodeId> = self.holders_of(datum).into_iter().map(|(node, _)| node).collect();
        if self.names.links.as_ref().is_none_or(|(at, _)| now.since(*at) >= HEARTBEAT_NS) {
            let known = self.links.estimates().map(|(pair, link)| (pair.clone(), link));
            self.names.links = Some((now, Tree::new(known, [])));
        }
        let mut spread = self.names.spreads.remove(&datum).unwrap_or_default();
        let source = spread.choose(now.seconds(), server, size_bytes, &holders, failed, |a, b| self.way(a, b));
        if !spread.is_empty() {
            self.names.spreads.insert(datum, spread);
        }
        source
    }

    /// What is expected of the way between two servers.
    fn way(&self, from: NodeId, to: NodeId) -> Way {
        let (a, b) = (Agent::place(self, from), Agent::place(self, to));
        if a == b {
            return Way { bandwidth: f64::INFINITY, latency_s: 0.0 };
        }
        let is_broken = |from, to| self.servers.get(from).is_some_and(|server| server.links.get(to) == Some(&None));
        if is_broken(&from, &to) || is_broken(&to, &from) {
            return BROKEN_WAY;
        }
        let tree = self.names.links.as_ref().map(|(_, tree)| tree);
        let link = tree.map_or(LinkEstimate::UNMEASURED, |tree| tree.link(tree.number(&a), tree.number(&b)));
        Way { bandwidth: link.bandwidth, latency_s: link.latency_s }
    }

    /// Copies have come to be, or time has passed: servers that wait for a source may get one.
    pub(super) fn seek_again(&mut self, now: Time, out: &mut Vec<Effect>) {
        for (datum, server) in self.names.searches.keys().copied().collect::<Vec<_>>() {
            self.seek(now, datum, server, out);
        }
    }

    // ---- nodes that are gone

    pub(super) fn names_lost(&mut self, node: NodeId, why: &str, out: &mut Vec<Effect>) {
        let searches: Vec<(DatumId, NodeId)> =
            self.names.searches.keys().filter(|(_, at)| *at == node).copied().collect();
        searches.into_iter().for_each(|(datum, server)| self.names.coming_no_more(datum, server));
        if let Some(server) = self.servers.get(&node) {
            let name = server.registration.name.clone();
            let coming = self.names.catalog.server_lost(node, &format!("server '{name}' is gone ({why})"));
            for (Question { client, ask }, named) in coming {
                let error =
                    NameError::NotStored { name: named.name, server: name.clone(), why: format!("it is gone ({why})") };
                send(out, client, CatalogToClient::Answer { ask, answer: Err(error) });
            }
        } else {
            for (datum, server) in self.names.catalog.not_put_by(node) {
                send(out, server, TaskToServer::Release { data: vec![datum] });
            }
            let unread = self.names.catalog.client_lost(node);
            unread.into_iter().for_each(|datum| self.give_up_version(datum, out));
        }
    }
}

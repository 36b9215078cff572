//! Shared names: the catalog, what clients ask it for, and what servers tell it.
//!
//! To servers the catalog is the owner of shared data. It has copies given up that nobody needs.

use super::searches::Searches;
use super::{Agent, not_taken, send};
use crate::data::{Catalog, News, Question, Stored};
use crate::node::message::{
    CatalogAnswer, CatalogToClient, CatalogToServer, ClientToCatalog, Held, Listed, ServerToCatalog, TaskToClient,
    TaskToServer,
};
use crate::node::protocol::{Effect, Role};
use gridloom_base::limits::{RETURN_NS_MAX, SHARED_DATA_TOLD_MAX};
use gridloom_base::{DatumId, Meta, NameError, Named, NodeId, Time};

/// The part of a server's store that shared data may take: the rest is for calls, which could not run otherwise.
const SHARED_PART: u64 = 2;

#[derive(Debug)]
pub(super) struct Names {
    pub(super) catalog: Catalog,
    /// Whether clients share this agent. One that maps for a single client has no names to share.
    is_kept: bool,
    /// Since when it is there.
    since: Time,
    pub(super) searches: Searches,
}

impl Names {
    pub(super) fn new(agent: NodeId, is_kept: bool) -> Names {
        Names { catalog: Catalog::new(agent), is_kept, since: Time(0), searches: Searches::default() }
    }

    pub(super) fn begin(&mut self, now: Time) {
        self.since = now;
    }

    /// Versions, requests that wait, and searches.
    pub(super) fn counts(&self) -> [usize; 3] {
        [self.catalog.len(), self.catalog.waits(), self.searches.len()]
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
        if self.members.get(client).is_none_or(|peer| peer.about != Role::Client) {
            return not_taken(client, out);
        }
        if let Some(ask) = message.ask().filter(|_| !self.names.is_kept) {
            let why = "this session was given servers and maps by itself".into();
            let answer = CatalogToClient::Answer { ask, answer: Err(NameError::NoAgent { why }) };
            return send(out, client, answer);
        }
        let answered = match message {
            ClientToCatalog::Put { ask, before: Some(datum), .. } if self.names.catalog.is_whole(datum) => {
                (ask, Ok(Some(CatalogAnswer::Put)))
            }
            ClientToCatalog::Put { ask, name, meta, replaces, at, .. } => {
                (ask, self.begin_put(Question { client, ask }, &name, meta, replaces, &at, out).map(|()| None))
            }
            ClientToCatalog::Find { ask, name, waits } => (ask, self.find(Question { client, ask }, &name, waits)),
            ClientToCatalog::Delete { ask, name } => {
                (ask, self.names.catalog.delete(&name).map(|()| Some(CatalogAnswer::Deleted)))
            }
            ClientToCatalog::List { ask, prefix, after } => (ask, Ok(Some(self.list(&prefix, &after)))),
            ClientToCatalog::Forget { ask, name } => {
                let waited = self.names.catalog.forget_wait(Question { client, ask });
                (ask, if waited { Err(self.names.catalog.unknown(&name)) } else { Ok(None) })
            }
            ClientToCatalog::Withdraw { datum } => {
                if let Some(server) = self.names.catalog.withdraw(client, datum) {
                    send(out, server, TaskToServer::Release { data: vec![datum] });
                }
                return;
            }
            ClientToCatalog::Locate { datum } => {
                let holders = self.holders_of(datum);
                let why = self.why_lost(datum);
                return send(out, client, CatalogToClient::Located { datum, holders, why });
            }
            ClientToCatalog::Reads { data } => {
                return data.into_iter().for_each(|(datum, times)| self.names.catalog.reads(client, datum, times));
            }
            ClientToCatalog::Release { datum, times } => {
                self.names.catalog.release(client, datum, times);
                return self.tell_news(now, out);
            }
        };
        match answered {
            (_, Ok(None)) => {}
            (ask, Ok(Some(answer))) => send(out, client, CatalogToClient::Answer { ask, answer: Ok(answer) }),
            (ask, Err(error)) => send(out, client, CatalogToClient::Answer { ask, answer: Err(error) }),
        }
        self.tell_news(now, out);
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
        send(out, server, CatalogToServer::Expect { named: named.clone(), client: question.client });
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

    /// Servers with copies that can be reached.
    pub(super) fn holders_of(&self, datum: DatumId) -> Vec<(NodeId, String)> {
        let holders = self.names.catalog.holders(datum);
        let known = holders.filter_map(|node| Some((node, self.servers.get(&node)?.registration.address.clone())));
        known.collect()
    }

    pub(super) fn why_lost(&self, datum: DatumId) -> String {
        match self.names.catalog.named(datum) {
            Some(named) => format!("no server has '{}' any more", named.name),
            None => "it was deleted or replaced".into(),
        }
    }

    /// Tells servers what has become of versions.
    fn tell_news(&mut self, now: Time, out: &mut Vec<Effect>) {
        for news in self.names.catalog.take_news() {
            match news {
                News::GivenUp { datum, holders } => {
                    self.names.searches.given_up(datum);
                    holders.iter().for_each(|to| send(out, *to, TaskToServer::Release { data: vec![datum] }));
                    self.seek_again(now, datum, out);
                }
                News::Former { datum, holders } => {
                    holders.iter().for_each(|to| send(out, *to, CatalogToServer::Former { datum }));
                }
            }
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
            ServerToCatalog::Stored { datum, client } => match self.names.catalog.stored(server, client, datum) {
                Stored::Whole { by, waiting } => {
                    let answer = CatalogToClient::Answer { ask: by.ask, answer: Ok(CatalogAnswer::Put) };
                    send(out, by.client, answer);
                    self.tell_found(datum, waiting, out);
                }
                Stored::Copy => {}
                Stored::Unknown => send(out, server, TaskToServer::Release { data: vec![datum] }),
            },
            ServerToCatalog::HasCopies { data } => {
                data.into_iter().for_each(|datum| self.copy_at(now, datum, server, out));
            }
            ServerToCatalog::Holds { data } => {
                for Held { named, is_current } in data {
                    let datum = named.datum;
                    let waiting = self.names.catalog.told(server, named, is_current);
                    self.tell_found(datum, waiting, out);
                    self.seek_again(now, datum, out);
                }
            }
        }
        self.tell_news(now, out);
    }

    /// A server has a copy. Of what is of no use it drops it.
    fn copy_at(&mut self, now: Time, datum: DatumId, server: NodeId, out: &mut Vec<Effect>) {
        if !datum.is_shared() {
            return;
        }
        if !self.names.catalog.copied(datum, server) {
            return send(out, server, TaskToServer::Release { data: vec![datum] });
        }
        self.seek_again(now, datum, out);
    }

    /// Once servers and clients have had the time to tell what they have, what none of them needs is dropped.
    pub(super) fn settle_names(&mut self, now: Time, out: &mut Vec<Effect>) {
        if now.since(self.names.since) >= RETURN_NS_MAX {
            for (datum, server) in self.names.catalog.settle() {
                send(out, server, TaskToServer::Release { data: vec![datum] });
            }
            self.tell_news(now, out);
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
                    self.names.searches.coming_no_more(report.datum, server);
                    self.copy_at(now, report.datum, server, out);
                }
            }
            TaskToClient::Dropped { data } => {
                let why = format!("server '{}' dropped it", self.servers[&server].registration.name);
                data.into_iter().for_each(|datum| self.names.catalog.dropped(datum, server, &why));
            }
            TaskToClient::SupplyFailed { datum, from, .. } if datum.is_shared() => {
                self.supply_failed(now, (datum, server, from), out);
            }
            _ => not_taken(server, out),
        }
    }

    // ---- nodes that are gone

    pub(super) fn names_lost(&mut self, now: Time, node: NodeId, why: &str, out: &mut Vec<Effect>) {
        self.names.searches.server_lost(node);
        if let Some(server) = self.servers.get(&node) {
            let name = server.registration.name.clone();
            let coming = self.names.catalog.server_lost(node, &format!("server '{name}' is gone ({why})"));
            for (Question { client, ask }, named) in coming {
                let error =
                    NameError::NotStored { name: named.name, server: name.clone(), why: format!("it is gone ({why})") };
                send(out, client, CatalogToClient::Answer { ask, answer: Err(error) });
            }
        } else {
            for (datum, server) in self.names.catalog.client_lost(node) {
                send(out, server, TaskToServer::Release { data: vec![datum] });
            }
            self.tell_news(now, out);
        }
    }
}

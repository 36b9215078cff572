//! Shared names: the catalog, requests from clients, and reports from servers.
//!
//! To servers, the catalog is the owner of shared data. It has servers drop copies that nobody needs.

use super::placement::{Placement, PutRequest, refusal};
use super::sources::SourceSearches;
use super::{Agent, reject_message, send};
use crate::data::{Catalog, CatalogUpdate, Content, RequestId, Stored};
use crate::node::message::{
    CatalogAnswer, CatalogToClient, CatalogToServer, ClientToCatalog, NameEntry, ServerToCatalog, StoredVersion,
    TaskToClient, TaskToServer,
};
use crate::node::protocol::{Effect, Role};
use gridloom_base::limits::{KEEPERS_TRIED_MAX, RECONNECT_NS_MAX, REPLICAS_MAX, SHARED_DATA_PER_MESSAGE};
use gridloom_base::{DatumId, NameError, NamedDatum, NodeId, Time};

#[derive(Debug)]
pub(super) struct Names {
    pub(super) catalog: Catalog,
    /// True if clients share this agent. An agent that maps for a single client has no names to share.
    is_shared: bool,
    /// Start time of the agent.
    since: Time,
    pub(super) searches: SourceSearches,
    pub(super) keeping: Placement,
}

impl Names {
    pub(super) fn new(agent: NodeId, is_shared: bool) -> Names {
        let (searches, keeping) = Default::default();
        Names { catalog: Catalog::new(agent), is_shared, since: Time(0), searches, keeping }
    }

    pub(super) fn begin(&mut self, now: Time) {
        self.since = now;
    }

    /// Returns the numbers of versions, of waiting requests, and of searches.
    pub(super) fn counts(&self) -> [usize; 3] {
        [self.catalog.len(), self.catalog.waits(), self.searches.len() + self.keeping.len()]
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
        if self.members.get(client).is_none_or(|peer| peer.data.role != Role::Client) {
            return reject_message(client, out);
        }
        if let Some(request) = message.request().filter(|_| !self.names.is_shared) {
            let why = "this session uses a list of servers and maps by itself".into();
            let answer = CatalogToClient::Answer { request, answer: Err(NameError::NoAgent { why }) };
            return send(out, client, answer);
        }
        let answered = match message {
            ClientToCatalog::Put { request, .. } => (request, self.on_put(now, client, message, out)),
            ClientToCatalog::CheckPut { request, datum } if self.names.catalog.is_complete(datum) => {
                (request, Ok(Some(CatalogAnswer::Put)))
            }
            ClientToCatalog::CheckPut { request, datum } => {
                if self.names.catalog.holders(datum).next().is_some() {
                    send(out, client, CatalogToClient::Replicating { request });
                }
                return;
            }
            ClientToCatalog::Find { request, name, waits } => {
                (request, self.find(RequestId { client, number: request }, &name, waits))
            }
            ClientToCatalog::Delete { request, name } => {
                (request, self.names.catalog.delete(&name).map(|()| Some(CatalogAnswer::Deleted)))
            }
            ClientToCatalog::List { request, prefix, after } => (request, Ok(Some(self.list(&prefix, &after)))),
            ClientToCatalog::Explain { request, name, after } => (request, self.explain(now, &name, after).map(Some)),
            ClientToCatalog::CancelRequest { request, name } => {
                let waited = self.names.catalog.forget_wait(RequestId { client, number: request });
                (request, if waited { Err(self.names.catalog.not_found(&name)) } else { Ok(None) })
            }
            ClientToCatalog::Withdraw { datum } => {
                self.names.catalog.withdraw(client, datum);
                return self.send_catalog_updates(now, out);
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
                return self.send_catalog_updates(now, out);
            }
        };
        match answered {
            (_, Ok(None)) => {}
            (request, Ok(Some(answer))) => send(out, client, CatalogToClient::Answer { request, answer: Ok(answer) }),
            (request, Err(error)) => send(out, client, CatalogToClient::Answer { request, answer: Err(error) }),
        }
        self.send_catalog_updates(now, out);
    }

    /// Handles a client's request where to put a datum.
    fn on_put(
        &mut self,
        now: Time,
        client: NodeId,
        message: ClientToCatalog,
        out: &mut Vec<Effect>,
    ) -> Result<Option<CatalogAnswer>, NameError> {
        let ClientToCatalog::Put {
            request,
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
        } = message
        else {
            return Ok(None);
        };
        if before.is_some_and(|datum| self.names.catalog.is_complete(datum)) {
            return Ok(Some(CatalogAnswer::Put));
        }
        let at = at.into_iter().filter(|node| self.servers.contains_key(node)).collect();
        let replicas = replicas.clamp(1, REPLICAS_MAX);
        let content = Content { meta, is_durable, method, made_by };
        let refused = refused.iter().take(KEEPERS_TRIED_MAX);
        let refused = refused.map(|(server, why)| (*server, refusal(why))).collect();
        let wanted = PutRequest { content, replaces, replicas, at, refused };
        self.record_refusals(now, &wanted, out);
        self.begin_put(now, RequestId { client, number: request }, &name, wanted, out)
    }

    /// Chooses the servers that keep a new version of a name. No servers are chosen if the call has already put it before.
    fn begin_put(
        &mut self,
        now: Time,
        question: RequestId,
        name: &str,
        wanted: PutRequest,
        out: &mut Vec<Effect>,
    ) -> Result<Option<CatalogAnswer>, NameError> {
        match self.names.catalog.has_put(name, &wanted.content, wanted.replicas) {
            Ok(true) => return Ok(Some(CatalogAnswer::Put)),
            Err(error) if !wanted.replaces => return Err(error),
            Ok(false) | Err(_) => {}
        }
        match self.names.catalog.join_put(question, name, &wanted.content, wanted.replicas) {
            Ok(true) => return Ok(None),
            Err(error) if !wanted.replaces => return Err(error),
            Ok(false) | Err(_) => {}
        }
        let broken_off = self.names.catalog.put_of_earlier_run(question, name, wanted.content.made_by);
        if let Some((former, _)) = broken_off.and_then(|datum| self.names.catalog.put_failed(datum)) {
            // If that run of the call still continues, this one has replaced it.
            let answer = Err(NameError::ContentDiffers { name: name.into() });
            send(out, former.client, CatalogToClient::Answer { request: former.number, answer });
            self.send_catalog_updates(now, out);
        }
        self.names.catalog.check_put(name, wanted.replaces)?;
        let places = self.choose_keepers(name, &wanted)?;
        let server = places[0];
        let address = self.servers[&server].registration.address.clone();
        let named = self.names.catalog.begin(question, name, wanted.content, &places).clone();
        for (server, why) in wanted.refused {
            self.names.catalog.refused(named.datum, server, why);
        }
        // This message arrives before the client's copy, which is sent over a different connection.
        send(out, server, CatalogToServer::Expect { named: named.clone(), client: question.client });
        send(out, question.client, CatalogToClient::Place { request: question.number, named, server, address });
        Ok(None)
    }

    fn find(&mut self, question: RequestId, name: &str, waits: bool) -> Result<Option<CatalogAnswer>, NameError> {
        let found = self.names.catalog.find(question, name, waits)?.cloned();
        Ok(found.map(|named| self.found(named)))
    }

    fn found(&self, named: NamedDatum) -> CatalogAnswer {
        CatalogAnswer::Found { holders: self.holders_of(named.datum), named }
    }

    fn list(&self, prefix: &str, after: &str) -> CatalogAnswer {
        let mut listed = self.names.catalog.list(prefix, after);
        let of = |(named, holders): (&NamedDatum, &std::collections::BTreeSet<NodeId>)| NameEntry {
            named: named.clone(),
            holders: holders.iter().copied().collect(),
        };
        let names = listed.by_ref().take(SHARED_DATA_PER_MESSAGE).map(of).collect();
        CatalogAnswer::Listed { names, has_more: listed.next().is_some() }
    }

    /// Returns the servers with copies, and their addresses.
    pub(super) fn holders_of(&self, datum: DatumId) -> Vec<(NodeId, String)> {
        let holders = self.names.catalog.holders(datum.whole());
        let known = holders.filter_map(|node| Some((node, self.servers.get(&node)?.registration.address.clone())));
        known.collect()
    }

    pub(super) fn why_lost(&self, datum: DatumId) -> String {
        match self.names.catalog.named(datum.whole()) {
            Some(named) => format!("no server has '{}' any more", named.name),
            None => "it was deleted or replaced".into(),
        }
    }

    /// Sends the catalog's pending updates to servers and clients.
    pub(super) fn send_catalog_updates(&mut self, now: Time, out: &mut Vec<Effect>) {
        // Handling one update may cause another.
        while let Some(news) = Some(self.names.catalog.take_updates()).filter(|news| !news.is_empty()) {
            news.into_iter().for_each(|news| self.send_catalog_update(now, news, out));
        }
    }

    fn send_catalog_update(&mut self, now: Time, news: CatalogUpdate, out: &mut Vec<Effect>) {
        match news {
            CatalogUpdate::Dropped { datum, holders } => {
                self.names.searches.forget_datum(datum);
                self.names.keeping.backoff.forget_datum(datum);
                for server in holders {
                    self.cancel_keeping(datum, server, out);
                    send(out, server, TaskToServer::Release { data: vec![datum] });
                }
                self.retry_searches_of(now, datum, out);
            }
            CatalogUpdate::Superseded { datum, holders } => {
                holders.iter().for_each(|to| send(out, *to, CatalogToServer::Superseded { datum }));
            }
            CatalogUpdate::Keep { datum, at } => {
                at.into_iter().for_each(|server| self.send_to_keeper(now, datum, server, out))
            }
            CatalogUpdate::Joined { name, place, joined, is_put } => {
                let server = self.servers.get(&place).map(|server| server.registration.name.clone());
                let why = "a concurrent put of the same value by the same call failed".into();
                let failed = NameError::NotStored { name, server: server.unwrap_or_default(), why };
                for RequestId { client, number: request } in joined {
                    let answer = if is_put { Ok(CatalogAnswer::Put) } else { Err(failed.clone()) };
                    send(out, client, CatalogToClient::Answer { request, answer });
                }
            }
            CatalogUpdate::KeeperMissing { datum } => self.add_missing_to_put(now, datum, out),
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
            return reject_message(server, out);
        }
        match message {
            ServerToCatalog::Stored { datum, client } => self.stored(server, client, datum, out),
            ServerToCatalog::HasCopies { data } => {
                data.into_iter().for_each(|datum| self.record_copy(now, datum, server, out));
            }
            ServerToCatalog::StoredVersions { data } => {
                for StoredVersion { named, is_current } in data {
                    let datum = named.datum;
                    if self.names.catalog.is_being_put(datum) {
                        // The server took the datum while this agent was not connected. Its report may have been lost.
                        self.stored(server, NodeId::CATALOG, datum, out);
                        continue;
                    }
                    let waiting = self.names.catalog.server_reported(server, named, is_current);
                    self.send_found(datum, waiting, out);
                    self.retry_searches_of(now, datum, out);
                }
            }
        }
        self.send_catalog_updates(now, out);
    }

    /// Handles a server's report that it has stored a version, which it was assigned to store or another server has
    /// stored in its place.
    fn stored(&mut self, server: NodeId, client: NodeId, datum: DatumId, out: &mut Vec<Effect>) {
        let is_durable = self.names.catalog.named(datum).is_some_and(|named| named.is_durable);
        self.names.keeping.backoff.kept(server, datum, is_durable);
        match self.names.catalog.stored(server, client, datum) {
            Stored::Whole { by, waiting } => {
                let answer = CatalogToClient::Answer { request: by.number, answer: Ok(CatalogAnswer::Put) };
                send(out, by.client, answer);
                self.send_found(datum, waiting, out);
            }
            Stored::Copy => {}
            Stored::Unknown => send(out, server, TaskToServer::Release { data: vec![datum] }),
        }
    }

    /// Handles a server's report of a copy. The server drops a copy that is not needed.
    fn record_copy(&mut self, now: Time, datum: DatumId, server: NodeId, out: &mut Vec<Effect>) {
        if !datum.is_shared() {
            return;
        }
        if !self.names.catalog.has_copy(datum, server) {
            return send(out, server, TaskToServer::Release { data: vec![datum] });
        }
        let waiting = self.names.catalog.take_waiting(datum);
        self.send_found(datum, waiting, out);
        self.retry_searches_of(now, datum, out);
    }

    /// Drops the data that nobody needs, once servers and clients have had time to report what they have.
    pub(super) fn settle_names(&mut self, now: Time, out: &mut Vec<Effect>) {
        self.names.catalog.forget_away(now);
        self.send_catalog_updates(now, out);
        if now.since(self.names.since) >= RECONNECT_NS_MAX {
            for (datum, server) in self.names.catalog.settle() {
                send(out, server, TaskToServer::Release { data: vec![datum] });
            }
            self.send_catalog_updates(now, out);
        }
    }

    fn send_found(&self, datum: DatumId, waiting: Vec<RequestId>, out: &mut Vec<Effect>) {
        let Some(named) = self.names.catalog.named(datum) else { return };
        for RequestId { client, number: request } in waiting {
            send(out, client, CatalogToClient::Answer { request, answer: Ok(self.found(named.clone())) });
        }
    }

    /// Handles messages that a server sends to the owner of data, for shared data.
    pub(super) fn on_owner_message(&mut self, now: Time, server: NodeId, message: TaskToClient, out: &mut Vec<Effect>) {
        if !self.servers.contains_key(&server) {
            return reject_message(server, out);
        }
        match message {
            TaskToClient::TasksEnded { reports, transfers, .. } => {
                let has_ended = !reports.is_empty();
                reports.into_iter().for_each(|report| self.keeper_task_ended(now, server, report, out));
                if has_ended {
                    self.add_missing_keepers(now, out);
                }
                for report in transfers.iter().filter(|report| report.to == server) {
                    self.names.searches.transfer_ended(report.datum, server);
                    if report.datum.slice().is_some() {
                        continue;
                    }
                    self.record_copy(now, report.datum, server, out);
                }
            }
            TaskToClient::Dropped { data } => {
                let why = format!("server '{}' dropped it", self.servers[&server].registration.name);
                data.into_iter().for_each(|datum| self.names.catalog.dropped(datum, server, &why));
            }
            TaskToClient::SupplyFailed { datum, from, .. } if datum.is_shared() => {
                self.supply_failed(now, (datum, server, from), out);
            }
            _ => reject_message(server, out),
        }
        self.send_catalog_updates(now, out);
    }

    // ---- lost nodes

    pub(super) fn names_lost(&mut self, now: Time, node: NodeId, why: &str, out: &mut Vec<Effect>) {
        self.names.searches.server_lost(node);
        if let Some(server) = self.servers.get(&node) {
            let name = server.registration.name.clone();
            let coming = self.names.catalog.server_lost(node, &format!("server '{name}' is gone ({why})"));
            for (RequestId { client, number: request }, named) in coming {
                let error =
                    NameError::NotStored { name: named.name, server: name.clone(), why: format!("it is gone ({why})") };
                send(out, client, CatalogToClient::Answer { request, answer: Err(error) });
            }
            self.names.keeping.server_lost(node);
        } else {
            self.names.catalog.client_lost(now, node);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::models::tests::{agent, register};
    use super::*;
    use std::collections::BTreeSet;

    use crate::node::message::{CatalogMessage, DirectoryToAgent, Message};
    use crate::node::protocol::Input;
    use crate::node::version::VERSIONS;
    use gridloom_base::{Dtype, Machine, Meta, Method};

    const CLIENT: NodeId = NodeId(9);

    fn receive(agent: &mut Agent, from: NodeId, message: impl Into<Message>) -> Vec<Effect> {
        let mut out = Vec::new();
        agent.handle(Time(20), Input::Received { from, message: message.into() }, &mut out);
        out
    }

    /// Returns an agent with servers 2, 3 and 4, and a client.
    fn with_three() -> Agent {
        let mut agent = agent();
        (2..=4).for_each(|node| register(&mut agent, node, &format!("host-{node}:1"), 1.0, 1.0));
        let (name, address) = ("client".into(), String::new());
        let up = Input::PeerUp { peer: CLIENT, role: Role::Client, name, address, version: VERSIONS.1 };
        agent.handle(Time(20), up, &mut Vec::new());
        agent
    }

    /// Puts ten numbers. Returns the version in the catalog, and the server that the client is assigned.
    fn put(agent: &mut Agent, name: &str, replicas: u16) -> (NamedDatum, NodeId) {
        let put = ClientToCatalog::Put {
            request: 1,
            name: name.into(),
            meta: Meta::array(Dtype::Float64, &[10]),
            replaces: false,
            replicas,
            is_durable: false,
            method: Method::Auto,
            made_by: None,
            holders: Vec::new(),
            earlier_attempt: None,
            refused: Vec::new(),
        };
        let placed = receive(agent, CLIENT, put).into_iter().find_map(|effect| match effect {
            Effect::Send {
                message: Message::Catalog(CatalogMessage::ToClient(CatalogToClient::Place { named, server, .. })),
                ..
            } => Some((named, server)),
            _ => None,
        });
        placed.expect("the client is assigned a server")
    }

    #[test]
    fn a_server_that_drains_keeps_new_data_only_if_no_other_can() {
        let mut agent = with_three();
        receive(&mut agent, NodeId(2), DirectoryToAgent::Draining);
        let mut keepers = |name: &str, replicas| {
            let (named, _) = put(&mut agent, name, replicas);
            agent.names.catalog.keepers(named.datum).collect::<BTreeSet<NodeId>>()
        };
        assert_eq!(keepers("two", 2), [3, 4].map(NodeId).into());
        assert_eq!(keepers("three", 3), [2, 3, 4].map(NodeId).into());
    }

    /// Found by the soak test (seed 445): a server was suspended when it was to store a replica, and another server
    /// was assigned in its place. When it resumed, it stored the datum and kept it forever.
    #[test]
    fn a_replaced_server_drops_a_late_replica() {
        let mut agent = with_three();
        let (named, first) = put(&mut agent, "mesh", 2);
        let datum = named.datum;
        let second = agent.names.catalog.keepers(datum).find(|server| *server != first).expect("there are two");
        receive(&mut agent, first, ServerToCatalog::Stored { datum, client: CLIENT });
        agent.handle(Time(21), Input::PeerLost { peer: second, why: "it sleeps".into() }, &mut Vec::new());
        let third = agent.names.catalog.keepers(datum).find(|server| *server != first).expect("there are two again");
        assert_ne!(second, third);
        register(&mut agent, second.0, &format!("host-{}:1", second.0), 1.0, 1.0);

        let holds = |named| ServerToCatalog::StoredVersions { data: vec![StoredVersion { named, is_current: true }] };
        let told = receive(&mut agent, second, holds(named.clone()));
        let release = Effect::Send { to: second, message: TaskToServer::Release { data: vec![datum] }.into() };
        assert_eq!(told, [release]);
        // A report by `Holds` also counts for a server that was assigned a replica.
        let told = receive(&mut agent, third, holds(named));
        let answer = CatalogToClient::Answer { request: 1, answer: Ok(CatalogAnswer::Put) };
        assert_eq!(told, [Effect::Send { to: CLIENT, message: answer.into() }]);
        assert!(agent.names.catalog.is_complete(datum));
    }
}

//! Shared names: the catalog, requests from clients, and reports from servers.
//!
//! To servers, the catalog is the owner of shared data. It has servers drop copies that nobody needs.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use super::explain::explain;
use super::name_rights::{NameRights, answer, complete_names};
use super::placement::{Placement, PutRequest, refusal, too_few_keepers};
use super::registry::Registered;
use super::removals::Removals;
use super::settling::Settling;
use super::sources::{GridFacts, SourceSearches};
use super::{reject_message, send};
use crate::data::{Catalog, CatalogUpdate, Content, IdentifierKey, RequestId, Stored};
use crate::node::message::{
    CatalogAnswer, CatalogToClient, CatalogToServer, ClientToCatalog, DamagedVersion, ServerToCatalog, StoredVersion,
    TaskReport, TaskToClient, TaskToServer,
};
use crate::node::protocol::Effect;
use gridloom_base::limits::{
    DATUM_NAME_BYTES_MAX, KEEPERS_TRIED_MAX, RECONNECT_NS_MAX, REPLICAS_MAX, SHARED_DATA_PER_MESSAGE,
};
use gridloom_base::{
    DatumId, NameError, NamedDatum, NodeId, Origin, Rules, Time, check_name, check_readers, full_name, truncated,
};
use gridloom_map::Outline;

/// The agent's part that manages shared data.
#[derive(Debug)]
pub(super) struct Names {
    catalog: Catalog,
    /// True if clients share this agent. An agent that maps for a single client has no names to share.
    is_shared: bool,
    /// Start time of the agent.
    since: Time,
    settling: Settling,
    searches: SourceSearches,
    keeping: Placement,
    removals: Removals,
}

impl Names {
    pub(super) fn new(key: IdentifierKey, is_shared: bool) -> Names {
        let (searches, keeping, settling, removals) = Default::default();
        Names { catalog: Catalog::new(key), is_shared, since: Time(0), settling, searches, keeping, removals }
    }

    pub(super) fn begin(&mut self, now: Time) {
        self.since = now;
        self.settling.begin(now);
    }

    /// Returns the numbers of versions, of waiting requests, and of searches.
    pub(super) fn counts(&self) -> [usize; 3] {
        [
            self.catalog.len(),
            self.catalog.waits() + self.settling.len() + self.removals.len(),
            self.searches.len() + self.keeping.len(),
        ]
    }

    fn rights<'a>(&'a self, rules: &'a Rules) -> NameRights<'a> {
        NameRights { catalog: &self.catalog, rules }
    }

    /// Returns the bytes of shared data that each user stores, in all copies.
    pub(super) fn stored_bytes(&self) -> BTreeMap<Cow<'_, str>, u64> {
        self.catalog.stored_bytes()
    }

    /// Returns the first invariant of the catalog that is violated.
    pub(super) fn check(&self) -> Result<(), String> {
        self.catalog.check()
    }

    /// Returns the senders and receivers of all transfers in progress.
    pub(super) fn transfer_pairs(&self) -> impl Iterator<Item = (NodeId, NodeId)> {
        self.searches.transfer_pairs()
    }

    /// Sets the locations and sizes of shared data that functions of a user's group read. Names that do not exist yet are left
    /// out, because no plan predicts how long a call waits for one.
    pub(super) fn set_locations(&self, user: &Origin, rules: &Rules, outline: &mut Outline) {
        let mut unknown = BTreeSet::new();
        for (index, datum) in outline.data.iter_mut().enumerate().filter(|(_, datum)| datum.producer.is_none()) {
            let Some(name) = &datum.name else { continue };
            let name = full_name(&user.user, name);
            match self.catalog.current(&name).filter(|_| self.rights(rules).may_read(user, &name)) {
                Some(named) => {
                    datum.size_bytes = named.meta.size_bytes();
                    datum.at = self.catalog.holders(named.datum).collect();
                    datum.method = named.method;
                }
                None => _ = unknown.insert(index as u32),
            }
        }
        if !unknown.is_empty() {
            outline.tasks.iter_mut().for_each(|task| task.inputs.retain(|input| !unknown.contains(input)));
        }
    }

    // ---- clients

    pub(super) fn on_client_message(
        &mut self,
        grid: GridFacts<'_>,
        client: NodeId,
        mut message: ClientToCatalog,
        out: &mut Vec<Effect>,
    ) {
        let Some(origin) = grid.origin(client) else { return };
        if let Some(request) = message.request() {
            let why = || "this session uses a list of servers and maps by itself".into();
            let is_valid = if self.is_shared { limit(&mut message) } else { Err(NameError::NoAgent { why: why() }) };
            if let Err(error) = is_valid {
                return send(out, client, CatalogToClient::Answer { request, answer: Err(error) });
            }
            complete_names(origin, &mut message);
        }
        self.settling.observe(grid.now);
        // A list is complete only once all servers have reported.
        let servers = grid.servers.len();
        if let ClientToCatalog::List { request, .. } = message
            && self.settling.is_unsettled(grid.now, servers)
        {
            if let Err(error) = self.settling.add(client, message) {
                answer(origin, RequestId { client, number: request }, Err(error), out);
            }
            return;
        }
        // A cancelled request is answered at once.
        let may_wait = !matches!(message, ClientToCatalog::CancelRequest { .. });
        let waiting = (may_wait && self.settling.may_return(grid.now, servers)).then(|| message.clone());
        let answered = match message {
            ClientToCatalog::Put { request, .. } => (request, self.on_put(grid, client, message, out)),
            ClientToCatalog::Share { request, name, users } => (request, self.share(grid, origin, &name, users, out)),
            ClientToCatalog::CheckPut { request, datum } if self.catalog.is_complete(datum) => {
                (request, Ok(Some(CatalogAnswer::Put)))
            }
            ClientToCatalog::CheckPut { request, datum } => {
                if self.catalog.holders(datum).next().is_some() {
                    send(out, client, CatalogToClient::Replicating { request });
                }
                return;
            }
            ClientToCatalog::Find { request, name, waits } => {
                (request, self.find(grid, origin, RequestId { client, number: request }, (&name, waits)))
            }
            ClientToCatalog::Delete { request, name } => {
                let may_delete = self.rights(grid.rules).check_writer(origin, &name);
                let has_room = || self.removals.check_room();
                let deleted = may_delete.and_then(|()| has_room()).and_then(|()| self.catalog.delete(&name));
                if deleted.is_ok() {
                    self.removals.wait(RequestId { client, number: request }, name);
                }
                (request, deleted.map(|()| None))
            }
            ClientToCatalog::List { request, prefix, after } => {
                (request, Ok(Some(self.rights(grid.rules).list(origin, &prefix, &after))))
            }
            ClientToCatalog::Explain { request, name, after } => {
                let explained =
                    self.rights(grid.rules).check_reader(origin, &name).and_then(|()| self.explain(grid, &name, after));
                (request, explained.map(Some))
            }
            ClientToCatalog::CancelRequest { request, name } => {
                let waited = self.settling.cancel(client, request)
                    | self.catalog.forget_wait(RequestId { client, number: request });
                (request, if waited { Err(self.rights(grid.rules).not_found(origin, &name)) } else { Ok(None) })
            }
            ClientToCatalog::Withdraw { datum } => {
                self.catalog.withdraw(client, datum);
                return self.send_updates(grid, out);
            }
            ClientToCatalog::Locate { datum } => {
                let facts = grid.with(&self.catalog);
                let (holders, why) = (facts.holders_with_addresses(datum), facts.why_lost(datum));
                return send(out, client, CatalogToClient::Located { datum, holders, why });
            }
            ClientToCatalog::Reads { data } => {
                return data.into_iter().for_each(|(datum, times)| self.catalog.reads(client, datum, times));
            }
            ClientToCatalog::Release { datum, times } => {
                self.catalog.release(client, datum, times);
                return self.send_updates(grid, out);
            }
        };
        match answered {
            (_, Ok(None)) => {}
            (request, Ok(Some(found))) => answer(origin, RequestId { client, number: request }, Ok(found), out),
            (request, Err(error)) => {
                let is_premature =
                    |message: &ClientToCatalog| self.settling.is_premature(grid.now, servers, message, &error);
                let error = match waiting.filter(is_premature) {
                    Some(message) => self.settling.add(client, message).err(),
                    None => Some(error),
                };
                if let Some(error) = error {
                    answer(
                        origin,
                        RequestId { client, number: request },
                        Err(self.rights(grid.rules).without_foreign(origin, error)),
                        out,
                    );
                }
            }
        }
        self.send_updates(grid, out);
    }

    /// Answers the waiting requests for names that their users may read from now on.
    pub(super) fn rules_changed(&mut self, grid: GridFacts<'_>, out: &mut Vec<Effect>) {
        for datum in self.catalog.waited_for() {
            let waiting = self.catalog.take_waiting(datum);
            self.send_found(grid, datum, waiting, out);
        }
        self.send_updates(grid, out);
    }

    /// Retries the waiting requests whose answers may have changed because a server has registered or time has passed.
    fn retry_waiting(&mut self, grid: GridFacts<'_>, out: &mut Vec<Effect>) {
        for datum in self.settling.take_short_puts() {
            self.add_missing_to_put(grid, datum, out);
        }
        for (client, message) in self.settling.take_due(grid.now, grid.servers.len()) {
            self.on_client_message(grid, client, message, out);
        }
    }

    /// Retries the requests that wait for returning servers and concern these names.
    fn retry_names(&mut self, grid: GridFacts<'_>, names: &BTreeSet<String>, out: &mut Vec<Effect>) {
        for (client, message) in names.iter().flat_map(|name| self.settling.take_of_name(name)).collect::<Vec<_>>() {
            self.on_client_message(grid, client, message, out);
        }
    }

    /// Answers the requests for data that are lost for good.
    fn end_hopeless_waits(&mut self, grid: GridFacts<'_>, out: &mut Vec<Effect>) {
        if self.settling.may_return(grid.now, grid.servers.len()) {
            return;
        }
        for (request, name) in self.catalog.take_hopeless_waits() {
            let Some(origin) = grid.origin(request.client) else { continue };
            match self.rights(grid.rules).may_read(origin, &name) {
                true => answer(origin, request, Err(self.rights(grid.rules).not_found(origin, &name)), out),
                // The answer would reveal that the name exists. The request returns to its place, so the limit on
                // waiting requests holds.
                false => _ = self.catalog.wait(request, &name),
            }
        }
    }

    /// True if requests wait for returning servers.
    pub(super) fn has_waiting(&self) -> bool {
        self.settling.len() > 0
    }

    /// Handles the registration of a server.
    pub(super) fn server_registered(
        &mut self,
        grid: GridFacts<'_>,
        server: NodeId,
        was_registered: bool,
        out: &mut Vec<Effect>,
    ) {
        // The connection may have been lost with the message, or with its answer.
        if let Some(number) = self.removals.server_returned(server) {
            send(out, server, CatalogToServer::Sync { number });
        }
        self.settling.observe(grid.now);
        self.settling.server_registered(was_registered);
        self.retry_waiting(grid, out);
    }

    /// Handles a client's request where to put a datum.
    fn on_put(
        &mut self,
        grid: GridFacts<'_>,
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
        grid.origin(client).map_or(Ok(()), |user| self.rights(grid.rules).check_writer(user, &name))?;
        if before.is_some_and(|datum| self.catalog.is_complete(datum)) {
            return Ok(Some(CatalogAnswer::Put));
        }
        let at = at.into_iter().filter(|node| grid.servers.has(*node)).collect();
        let replicas = replicas.clamp(1, REPLICAS_MAX);
        let content = Content { meta, is_durable, method, made_by };
        let refused = refused.into_iter().collect();
        let wanted = PutRequest { content, replaces, replicas, at, refused };
        self.keeping.record_refusals(grid, &wanted, out);
        self.begin_put(grid, RequestId { client, number: request }, &name, wanted, out)
    }

    /// Chooses the servers that keep a new version of a name. No servers are chosen if the call has already put it before.
    fn begin_put(
        &mut self,
        grid: GridFacts<'_>,
        question: RequestId,
        name: &str,
        wanted: PutRequest,
        out: &mut Vec<Effect>,
    ) -> Result<Option<CatalogAnswer>, NameError> {
        match self.catalog.has_put(name, &wanted.content, wanted.replicas) {
            Ok(true) => return Ok(Some(CatalogAnswer::Put)),
            Err(error) if !wanted.replaces => return Err(error),
            Ok(false) | Err(_) => {}
        }
        match self.catalog.join_put(question, name, &wanted.content, wanted.replicas) {
            Ok(true) => return Ok(None),
            Err(error) if !wanted.replaces => return Err(error),
            Ok(false) | Err(_) => {}
        }
        let broken_off = self.catalog.put_of_earlier_run(question, name, wanted.content.made_by);
        if let Some((former, _)) = broken_off.and_then(|datum| self.catalog.put_failed(datum)) {
            // If that run of the call still continues, this one has replaced it.
            self.answer(grid, former, Err(NameError::ContentDiffers { name: name.into() }), out);
            self.send_updates(grid, out);
        }
        self.catalog.check_put(name, wanted.replaces)?;
        let places = self.keeping.choose(grid.with(&self.catalog), name, &wanted)?;
        let server = places[0];
        let address = grid.servers.address(server);
        let named = self.catalog.begin(question, name, wanted.content, &places).clone();
        for (server, why) in wanted.refused {
            self.catalog.refused(named.datum, server, why);
        }
        // This message arrives before the client's copy, which is sent over a different connection.
        send(out, server, CatalogToServer::Expect { named: named.clone(), client: question.client });
        send(out, question.client, CatalogToClient::Place { request: question.number, named, server, address });
        Ok(None)
    }

    fn find(
        &mut self,
        grid: GridFacts<'_>,
        user: &Origin,
        question: RequestId,
        (name, waits): (&str, bool),
    ) -> Result<Option<CatalogAnswer>, NameError> {
        match self.rights(grid.rules).check_reader(user, name) {
            // The owner may share it later.
            Err(_) if waits => self.catalog.wait(question, name).map(|()| None),
            Err(error) => Err(error),
            Ok(()) => {
                let found = self.catalog.find(question, name, waits)?.cloned();
                Ok(found.map(|named| self.found(grid, named)))
            }
        }
    }

    /// Shares a name with users and groups, and answers their requests that waited for that.
    fn share(
        &mut self,
        grid: GridFacts<'_>,
        user: &Origin,
        name: &str,
        users: Vec<String>,
        out: &mut Vec<Effect>,
    ) -> Result<Option<CatalogAnswer>, NameError> {
        self.rights(grid.rules).check_writer(user, name)?;
        check_readers(name, &users, grid.rules)?;
        self.catalog.share(name, users)?;
        if let Some(datum) = self.catalog.current(name).map(|named| named.datum) {
            let waiting = self.catalog.take_waiting(datum);
            self.send_found(grid, datum, waiting, out);
        }
        Ok(Some(CatalogAnswer::Shared))
    }

    /// Returns the versions of a name, and how servers after `after` would get a copy of the current one.
    pub(super) fn explain(
        &mut self,
        grid: GridFacts<'_>,
        name: &str,
        after: Option<NodeId>,
    ) -> Result<CatalogAnswer, NameError> {
        explain(&mut self.searches, grid.with(&self.catalog), name, after)
    }

    fn found(&self, grid: GridFacts<'_>, named: NamedDatum) -> CatalogAnswer {
        CatalogAnswer::Found { holders: grid.with(&self.catalog).holders_with_addresses(named.datum), named }
    }

    /// Sends the catalog's pending updates to servers and clients.
    pub(super) fn send_updates(&mut self, grid: GridFacts<'_>, out: &mut Vec<Effect>) {
        // Handling one update may cause another.
        while let Some(news) = Some(self.catalog.take_updates()).filter(|news| !news.is_empty()) {
            news.into_iter().for_each(|news| self.send_update(grid, news, out));
        }
        for request in self.removals.take_complete() {
            self.answer(grid, request, Ok(CatalogAnswer::Deleted), out);
        }
    }

    fn send_update(&mut self, grid: GridFacts<'_>, news: CatalogUpdate, out: &mut Vec<Effect>) {
        match news {
            CatalogUpdate::Dropped { datum, holders } => {
                self.searches.forget_datum(datum);
                self.keeping.forget_datum(datum);
                for server in holders {
                    self.searches.transfer_ended(datum, server);
                    self.keeping.cancel(datum, server, out);
                    send(out, server, TaskToServer::Release { data: vec![datum] });
                }
                self.searches.retry_of(grid.with(&self.catalog), datum, out);
            }
            CatalogUpdate::Superseded { datum, holders } => {
                holders.iter().for_each(|to| send(out, *to, CatalogToServer::Superseded { datum }));
            }
            CatalogUpdate::Sync { name, holders } => {
                for server in holders.into_iter().filter(|server| grid.servers.has(*server)) {
                    let number = self.removals.begin(server, &name);
                    number.into_iter().for_each(|number| send(out, server, CatalogToServer::Sync { number }));
                }
            }
            CatalogUpdate::Readers { datum, at } => {
                let Some(readers) = self.catalog.named(datum).map(|named| &named.readers) else { return };
                at.iter().for_each(|to| send(out, *to, CatalogToServer::Readers { datum, readers: readers.clone() }));
            }
            CatalogUpdate::Keep { datum, at } => {
                at.into_iter().for_each(|server| self.send_to_keeper(grid, datum, server, out))
            }
            CatalogUpdate::Joined { name, place, joined, is_put } => {
                let server = grid.servers.get(place).map(|server| server.name().to_string());
                let why = "a concurrent put of the same value by the same call failed".into();
                let failed = NameError::NotStored { name, server: server.unwrap_or_default(), why };
                for request in joined {
                    let ended = if is_put { Ok(CatalogAnswer::Put) } else { Err(failed.clone()) };
                    self.answer(grid, request, ended, out);
                }
            }
            CatalogUpdate::KeeperMissing { datum } => self.add_missing_to_put(grid, datum, out),
        }
    }

    // ---- servers

    pub(super) fn on_server_message(
        &mut self,
        grid: GridFacts<'_>,
        server: NodeId,
        message: ServerToCatalog,
        out: &mut Vec<Effect>,
    ) {
        // Usually no request waits.
        let reported = if self.has_waiting() { self.names_of(&message) } else { BTreeSet::new() };
        match message {
            ServerToCatalog::Stored { datum, client } => self.stored(grid, (server, client), datum, out),
            ServerToCatalog::HasCopies { data } => {
                data.into_iter().for_each(|datum| self.record_copy(grid, datum, server, out));
            }
            ServerToCatalog::SourceSilent { from, data } => {
                let facts = grid.with(&self.catalog);
                let has_other = |datum: &DatumId| self.searches.has_other_source(facts, *datum, server, from);
                if !data.is_empty() && data.iter().all(has_other) {
                    send(out, server, CatalogToServer::LeaveSource { from });
                }
            }
            ServerToCatalog::Synced { number } => self.removals.confirmed(server, number),
            ServerToCatalog::Damaged { data } => {
                let name = grid.servers.get(server).map_or("", Registered::name);
                for DamagedVersion { named, why } in data {
                    self.catalog.damaged(server, named, refusal(&format!("server '{name}' found it damaged: {why}")));
                }
            }
            ServerToCatalog::StoredVersions { data } => {
                for StoredVersion { named, is_current } in data {
                    let datum = named.datum;
                    if self.catalog.is_being_put(datum) {
                        // The server took the datum while this agent was not connected. Its report may have been lost.
                        self.stored(grid, (server, NodeId::CATALOG), datum, out);
                        continue;
                    }
                    let waiting = self.catalog.server_reported(server, named, is_current);
                    self.send_found(grid, datum, waiting, out);
                    self.searches.retry_of(grid.with(&self.catalog), datum, out);
                }
            }
        }
        self.retry_names(grid, &reported, out);
        self.send_updates(grid, out);
    }

    /// Returns the names whose versions a server reports.
    fn names_of(&self, message: &ServerToCatalog) -> BTreeSet<String> {
        let of_datum = |datum: &DatumId| self.catalog.named(*datum).map(|named| named.name.clone());
        match message {
            ServerToCatalog::Stored { datum, .. } => of_datum(datum).into_iter().collect(),
            ServerToCatalog::HasCopies { data } => data.iter().filter_map(of_datum).collect(),
            ServerToCatalog::SourceSilent { .. } | ServerToCatalog::Synced { .. } => BTreeSet::new(),
            ServerToCatalog::Damaged { data } => data.iter().map(|damaged| damaged.named.name.clone()).collect(),
            ServerToCatalog::StoredVersions { data } => data.iter().map(|stored| stored.named.name.clone()).collect(),
        }
    }

    /// Handles a server's report that it has stored a version, which it was assigned to store or another server has
    /// stored in its place.
    fn stored(
        &mut self,
        grid: GridFacts<'_>,
        (server, client): (NodeId, NodeId),
        datum: DatumId,
        out: &mut Vec<Effect>,
    ) {
        let is_durable = self.catalog.named(datum).is_some_and(|named| named.is_durable);
        self.keeping.kept(server, datum, is_durable);
        match self.catalog.stored(server, client, datum) {
            Stored::Whole { by, waiting } => {
                self.answer(grid, by, Ok(CatalogAnswer::Put), out);
                self.send_found(grid, datum, waiting, out);
            }
            Stored::Copy => {}
            Stored::Unknown => send(out, server, TaskToServer::Release { data: vec![datum] }),
        }
    }

    /// Handles a server's report of a copy. The server drops a copy that is not needed.
    fn record_copy(&mut self, grid: GridFacts<'_>, datum: DatumId, server: NodeId, out: &mut Vec<Effect>) {
        if !datum.is_shared() {
            return;
        }
        if !self.catalog.has_copy(datum, server) {
            return send(out, server, TaskToServer::Release { data: vec![datum] });
        }
        let waiting = self.catalog.take_waiting(datum);
        self.send_found(grid, datum, waiting, out);
        self.searches.retry_of(grid.with(&self.catalog), datum, out);
    }

    /// Drops the data that nobody needs, once servers and clients have had time to report what they have.
    fn settle(&mut self, grid: GridFacts<'_>, out: &mut Vec<Effect>) {
        self.catalog.forget_away(grid.now);
        self.send_updates(grid, out);
        if grid.now.since(self.since) >= RECONNECT_NS_MAX {
            for (datum, server) in self.catalog.settle() {
                send(out, server, TaskToServer::Release { data: vec![datum] });
            }
            self.send_updates(grid, out);
        }
    }

    /// Sends a version to the clients that waited for it. Those whose users may not read it yet continue to wait.
    fn send_found(&mut self, grid: GridFacts<'_>, datum: DatumId, waiting: Vec<RequestId>, out: &mut Vec<Effect>) {
        let Some(named) = self.catalog.named(datum).cloned() else { return };
        for request in waiting {
            match grid.origin(request.client) {
                Some(user) if self.rights(grid.rules).may_read(user, &named.name) => {
                    answer(user, request, Ok(self.found(grid, named.clone())), out);
                }
                _ => self.catalog.wait_again(request, datum),
            }
        }
    }

    fn answer(
        &self,
        grid: GridFacts<'_>,
        request: RequestId,
        result: Result<CatalogAnswer, NameError>,
        out: &mut Vec<Effect>,
    ) {
        if let Some(user) = grid.origin(request.client) {
            answer(user, request, result, out);
        }
    }

    /// Handles messages that a server sends to the owner of data, for shared data.
    pub(super) fn on_owner_message(
        &mut self,
        grid: GridFacts<'_>,
        server: NodeId,
        message: TaskToClient,
        out: &mut Vec<Effect>,
    ) {
        match message {
            TaskToClient::TasksEnded { reports, transfers, .. } => {
                let has_ended = !reports.is_empty();
                reports.into_iter().for_each(|report| self.keeper_task_ended(grid, server, report, out));
                if has_ended {
                    self.add_missing_keepers(grid, out);
                }
                for report in transfers.iter().filter(|report| report.to == server) {
                    self.searches.transfer_ended(report.datum, server);
                    if report.datum.slice().is_some() {
                        continue;
                    }
                    self.record_copy(grid, report.datum, server, out);
                }
            }
            TaskToClient::Dropped { data } => {
                let why = format!("server '{}' dropped it", grid.servers.get(server).map_or("", Registered::name));
                data.into_iter().for_each(|datum| self.catalog.dropped(datum, server, &why));
            }
            TaskToClient::SupplyFailed { datum, from, .. } if datum.is_shared() => {
                self.searches.supply_failed(grid.with(&self.catalog), (datum, server, from), out);
            }
            _ => reject_message(server, out),
        }
        self.send_updates(grid, out);
    }

    // ---- lost nodes

    /// Handles the loss of a node. A server is still registered.
    pub(super) fn node_lost(&mut self, grid: GridFacts<'_>, node: NodeId, why: &str, out: &mut Vec<Effect>) {
        self.searches.server_lost(node);
        self.settling.observe(grid.now);
        if let Some(server) = grid.servers.get(node) {
            self.settling.server_lost(grid.now, grid.servers.len() - 1);
            self.removals.server_lost(grid.now, node);
            let name = server.name().to_string();
            let coming = self.catalog.server_lost(node, &format!("server '{name}' is gone ({why})"));
            for (request, named) in coming {
                let error =
                    NameError::NotStored { name: named.name, server: name.clone(), why: format!("it is gone ({why})") };
                self.answer(grid, request, Err(error), out);
            }
            self.keeping.server_lost(node);
        } else {
            self.settling.client_lost(node);
            self.removals.client_lost(node);
            self.catalog.client_lost(grid.now, node);
        }
    }

    // ---- keepers

    /// Has a server fetch and keep a version.
    fn send_to_keeper(&mut self, grid: GridFacts<'_>, datum: DatumId, server: NodeId, out: &mut Vec<Effect>) {
        let facts = grid.with(&self.catalog);
        let named = facts.catalog.named(datum);
        let source = self.searches.source_for(facts, datum, server);
        if let (Some(named), Some(source)) = (named, source) {
            return self.keeping.send(grid.servers, server, named, source, out);
        }
        if named.is_some() {
            self.keeping.has_no_source(grid, server, datum);
        }
        self.catalog.refused(datum, server, "it has no source for the datum".into());
    }

    /// Handles the end of a task that brings a datum to a keeper. The server's holdings are reported separately.
    fn keeper_task_ended(&mut self, grid: GridFacts<'_>, server: NodeId, report: TaskReport, out: &mut Vec<Effect>) {
        let Some(datum) = self.keeping.task_ended(server, report.task) else { return };
        self.searches.transfer_ended(datum, server);
        if let Err(error) = report.outcome {
            let why = self.keeping.failed(grid, server, datum, &error, out);
            self.catalog.refused(datum, server, why);
        }
    }

    /// Assigns further servers to a version that is being put and lacks keepers. If there are too few servers, the put fails.
    fn add_missing_to_put(&mut self, grid: GridFacts<'_>, datum: DatumId, out: &mut Vec<Effect>) {
        while self.catalog.missing_keepers(datum) > 0 {
            if self.add_keeper(grid, datum, out) {
                continue;
            }
            if self.settling.may_return(grid.now, grid.servers.len()) {
                return self.settling.add_short_put(datum);
            }
            let refused = self.catalog.refusals(datum);
            let Some((question, named)) = self.catalog.put_failed(datum) else { return };
            let error = too_few_keepers(grid.with(&self.catalog), named, &refused);
            self.answer(grid, question, Err(error), out);
        }
    }

    /// Assigns one more keeper to a version. Returns false if no server is available.
    fn add_keeper(&mut self, grid: GridFacts<'_>, datum: DatumId, out: &mut Vec<Effect>) -> bool {
        let Some(server) = self.keeping.next_keeper(grid.with(&self.catalog), datum) else { return false };
        let has_holders = self.catalog.holders(datum).next().is_some();
        self.catalog.keep_at(datum, server);
        // If there is no holder yet, the server is notified once the first one has the datum.
        if has_holders {
            self.send_to_keeper(grid, datum, server, out);
        }
        true
    }

    /// Assigns further keepers to current versions with too few of them, a limited number at a time.
    fn add_missing_keepers(&mut self, grid: GridFacts<'_>, out: &mut Vec<Effect>) {
        for datum in self.keeping.lacking(&self.catalog) {
            self.keeping.checked(datum);
            if self.catalog.missing_keepers(datum) > 0 {
                self.add_keeper(grid, datum, out);
            }
        }
    }

    // ---- time

    /// Assigns sources to the servers of batches that are due.
    pub(super) fn answer_batches(&mut self, grid: GridFacts<'_>, out: &mut Vec<Effect>) {
        self.searches.answer_batches(grid.with(&self.catalog), out);
    }

    pub(super) fn on_heartbeat(&mut self, grid: GridFacts<'_>, out: &mut Vec<Effect>) {
        self.settling.heartbeat(grid.now);
        self.searches.retry_all(grid.with(&self.catalog), out);
        self.retry_waiting(grid, out);
        self.end_hopeless_waits(grid, out);
        self.removals.expire(grid.now);
        self.settle(grid, out);
        self.add_missing_keepers(grid, out);
    }
}

/// Checks the names in a request and truncates its lists, to limit the memory of waiting requests.
fn limit(message: &mut ClientToCatalog) -> Result<(), NameError> {
    match message {
        ClientToCatalog::Put { name, refused, holders, .. } => {
            holders.sort_unstable();
            holders.dedup();
            holders.truncate(SHARED_DATA_PER_MESSAGE);
            refused.truncate(KEEPERS_TRIED_MAX);
            refused.iter_mut().for_each(|(_, why)| *why = refusal(why));
            check_name(name)
        }
        ClientToCatalog::Find { name, .. }
        | ClientToCatalog::CancelRequest { name, .. }
        | ClientToCatalog::Delete { name, .. }
        | ClientToCatalog::Share { name, .. }
        | ClientToCatalog::Explain { name, .. } => check_name(name),
        // The beginning of a name need not be a valid name. No name begins with a text that is longer than all names.
        ClientToCatalog::List { prefix, after, .. } => {
            for text in [prefix, after] {
                text.truncate(truncated(text, 2 * DATUM_NAME_BYTES_MAX).len());
            }
            Ok(())
        }
        ClientToCatalog::CheckPut { .. }
        | ClientToCatalog::Withdraw { .. }
        | ClientToCatalog::Locate { .. }
        | ClientToCatalog::Reads { .. }
        | ClientToCatalog::Release { .. } => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Agent;
    use super::super::models::tests::{agent, register};
    use super::*;
    use crate::node::message::{CatalogMessage, DirectoryToAgent, Message};
    use crate::node::protocol::{Input, Role};
    use crate::node::version::VERSIONS;
    use gridloom_base::dial::ConnectionFault;
    use gridloom_base::{Dtype, Machine, Meta, Method};

    impl Names {
        /// Returns the searches, to begin some in tests of other files.
        pub(in super::super) fn searches(&mut self) -> &mut SourceSearches {
            &mut self.searches
        }
    }

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
        connect_client(&mut agent);
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

    fn connect_client(agent: &mut Agent) {
        let (role, name, address, origin) = (Role::Client, "client".into(), String::new(), Origin::default());
        let up = Input::PeerUp { peer: CLIENT, role, name, origin, address, version: VERSIONS.1 };
        agent.handle(Time(20), up, &mut Vec::new());
    }

    /// Returns an agent without servers to which a client is connected.
    fn agent_with_client() -> Agent {
        let mut agent = agent();
        connect_client(&mut agent);
        agent
    }

    /// Found by the soak test (seed 4): the cancellation also waited, and was never answered.
    #[test]
    fn a_request_that_waits_for_servers_can_be_cancelled() {
        let mut agent = agent_with_client();
        let find = ClientToCatalog::Find { request: 1, name: "mesh".into(), waits: false };
        assert_eq!(receive(&mut agent, CLIENT, find), [], "no server has registered");
        let answer = Err(NameError::Unknown { name: "mesh".into(), near: Vec::new() });
        let told = Effect::Send { to: CLIENT, message: CatalogToClient::Answer { request: 1, answer }.into() };
        let cancel = ClientToCatalog::CancelRequest { request: 1, name: "mesh".into() };
        assert_eq!(receive(&mut agent, CLIENT, cancel.clone()), [told]);
        assert_eq!(receive(&mut agent, CLIENT, cancel), []);
        assert!(!agent.names.has_waiting());
    }

    /// Earlier, every report of a server retried all waiting requests, and the size of a request was not limited.
    #[test]
    fn a_waiting_request_is_answered_after_a_report_about_its_name() {
        let mut agent = agent_with_client();
        for (request, name) in [(1, "mesh"), (2, "field")] {
            let find = ClientToCatalog::Find { request, name: name.into(), waits: false };
            assert_eq!(receive(&mut agent, CLIENT, find), []);
        }
        let find = ClientToCatalog::Find { request: 3, name: "x".repeat(50 << 20), waits: false };
        let refused = format!("{:?}", receive(&mut agent, CLIENT, find));
        assert!(refused.contains("InvalidName") && refused.len() < 2000, "{refused}");
        agent.names.settling.server_registered(true);
        register(&mut agent, 2, "host-2:1", 1.0, 1.0);
        assert_eq!(agent.names.settling.len(), 2, "the other servers may return");

        let datum = DatumId { client: NodeId::CATALOG, serial: 5 };
        let (meta, method) = (Meta::array(Dtype::Float64, &[10]), Method::Auto);
        let (version, replicas, is_durable, put_by) = (1, 1, true, None);
        let named = NamedDatum {
            datum,
            name: "~/field".into(),
            version,
            meta,
            replicas,
            is_durable,
            method,
            put_by,
            readers: Default::default(),
        };
        let report = ServerToCatalog::StoredVersions { data: vec![StoredVersion { named, is_current: true }] };
        let sent = format!("{:?}", receive(&mut agent, NodeId(2), report));
        assert!(sent.contains("Found") && sent.contains("request: 2") && !sent.contains("request: 1"), "{sent}");
        assert_eq!(agent.names.settling.len(), 1);
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
        agent.handle(
            Time(21),
            Input::PeerLost { peer: second, fault: ConnectionFault::Disconnected, why: "it sleeps".into() },
            &mut Vec::new(),
        );
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
        assert_eq!(told[0], Effect::Send { to: CLIENT, message: answer.into() });
        assert!(agent.names.catalog.is_complete(datum));
    }
}

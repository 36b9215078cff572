//! The catalog: data with shared names, their versions, the locations of copies, and the clients that read or wait
//! for them.
//!
//! **Invariants**
//! - A version is immutable. A name that is put again gets a new version, and requests find the old one until the new
//!   one is complete.
//! - A version that is no longer current is dropped once no client reads it.
//! - Every current version has exactly one name. A version that is still being put is not found.
//! - A version is complete once as many servers keep it as its number of replicas.
//!
//! Its state is soft: servers report to a new agent what they hold, and clients what they read. Until all have had
//! time to do so ([`Catalog::settle`]), nothing that an earlier agent knew is dropped.
//!
//! What it does not do: move or store bytes, or choose servers. It queues updates for servers and clients as [`CatalogUpdate`].

mod absent_readers;
mod identifiers;
mod keepers;
mod lookup;
mod repeated_puts;
mod reports;
mod updates;
mod version;
mod waits;

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use absent_readers::AbsentReaders;
use gridloom_base::limits::{REPLICAS_MAX, SHARED_DATA_MAX};
use gridloom_base::{DatumId, Meta, Method, NameError, NamedDatum, NodeId, PutOrigin, Readers, check_name};
use identifiers::DatumIdentifiers;
pub use identifiers::IdentifierKey;
pub use reports::{VersionReport, VersionState};
pub use updates::{CatalogUpdate, RequestId, Stored};
use version::{Stage, Version};
use waits::WaitingRequests;
pub use waits::check_waits;

/// The contents of a put.
#[derive(Clone, PartialEq, Debug)]
pub struct Content {
    pub meta: Meta,
    pub is_durable: bool,
    pub method: Method,
    pub made_by: Option<PutOrigin>,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Catalog {
    identifiers: DatumIdentifiers,
    versions: BTreeMap<DatumId, Version>,
    current: BTreeMap<String, DatumId>,
    /// Names that are shared with other users.
    shared: BTreeSet<String>,
    /// All versions of each name.
    by_name: BTreeMap<String, BTreeSet<DatumId>>,
    /// Versions that each client reads or puts.
    by_client: BTreeSet<(NodeId, DatumId)>,
    /// Bytes that each server keeps or is assigned to keep.
    placed: BTreeMap<NodeId, u64>,
    /// Current versions that too few servers keep.
    lacking: BTreeSet<DatumId>,
    waits: WaitingRequests,
    /// True once every node that knew an earlier agent has had time to report to this one.
    is_settled: bool,
    /// Copies of data whose name no server has reported yet.
    unnamed_copies: BTreeSet<(DatumId, NodeId)>,
    /// Readers of data that no server has reported yet.
    early_readers: BTreeMap<(DatumId, NodeId), u64>,
    away: AbsentReaders,
    /// The most recently dropped data: a server that was away, or missed the update, may return with a copy.
    tombstones: BTreeSet<DatumId>,
    tombstones_in_order: VecDeque<DatumId>,
    updates: Vec<CatalogUpdate>,
}

impl Catalog {
    /// Creates an empty catalog.
    pub fn new(key: IdentifierKey) -> Catalog {
        Catalog {
            identifiers: DatumIdentifiers::new(key),
            versions: BTreeMap::new(),
            current: BTreeMap::new(),
            shared: BTreeSet::new(),
            by_name: BTreeMap::new(),
            by_client: BTreeSet::new(),
            placed: BTreeMap::new(),
            lacking: BTreeSet::new(),
            waits: WaitingRequests::default(),
            is_settled: false,
            unnamed_copies: BTreeSet::new(),
            early_readers: BTreeMap::new(),
            away: AbsentReaders::default(),
            tombstones: BTreeSet::new(),
            tombstones_in_order: VecDeque::new(),
            updates: Vec::new(),
        }
    }

    /// Returns the number of versions, including those being put.
    pub fn len(&self) -> usize {
        self.versions.len()
    }

    /// True if it has no versions.
    pub fn is_empty(&self) -> bool {
        self.versions.is_empty()
    }

    /// Returns the number of requests that wait for a name.
    pub fn waits(&self) -> usize {
        self.waits.len()
    }

    /// Returns the bytes that a server keeps or is assigned to keep.
    pub fn placed_bytes(&self, server: NodeId) -> u64 {
        self.placed.get(&server).copied().unwrap_or(0)
    }

    /// Returns the bytes of data that belong to each user, in all copies.
    pub fn stored_bytes(&self) -> BTreeMap<Cow<'_, str>, u64> {
        let mut stored = BTreeMap::new();
        for version in self.versions.values() {
            let bytes = version.named.meta.size_bytes().saturating_mul(version.holders.len() as u64);
            *stored.entry(version.named.owner()).or_default() += bytes;
        }
        stored
    }

    /// Returns the name and description of a datum.
    pub fn named(&self, datum: DatumId) -> Option<&NamedDatum> {
        self.versions.get(&datum).map(|version| &version.named)
    }

    /// True if that version has been put completely and has a copy, even if its name was deleted or put again since.
    pub fn is_complete(&self, datum: DatumId) -> bool {
        self.versions.get(&datum).is_some_and(|version| !version.is_being_put() && !version.holders.is_empty())
    }

    /// True if that version is being put.
    pub fn is_being_put(&self, datum: DatumId) -> bool {
        self.versions.get(&datum).is_some_and(Version::is_being_put)
    }

    /// Returns the servers with a copy.
    pub fn holders(&self, datum: DatumId) -> impl Iterator<Item = NodeId> {
        self.versions.get(&datum).into_iter().flat_map(|version| version.holders.iter().copied())
    }

    /// Returns the current version of a name, if a connected server has it.
    pub fn current(&self, name: &str) -> Option<&NamedDatum> {
        let version = &self.versions[self.current.get(name)?];
        (!version.holders.is_empty()).then_some(&version.named)
    }

    /// Returns the users with whom a name is shared, also while no server has its data.
    pub fn readers(&self, name: &str) -> Option<&Readers> {
        self.current.get(name).map(|datum| &self.versions[datum].named.readers)
    }

    /// Sets the users with whom a name is shared. Later versions are shared with them, too.
    ///
    /// # Errors
    /// If the name does not exist.
    pub fn share(&mut self, name: &str, users: Vec<String>) -> Result<(), NameError> {
        let current = self.current.get(name).ok_or_else(|| self.unknown(name))?;
        let revision = self.versions[current].named.readers.revision + 1;
        let readers = Readers { users, revision };
        let is_affected = |version: &&Version| version.stage != Stage::Former;
        let affected: Vec<DatumId> =
            self.versions_of(name).filter(is_affected).map(|version| version.named.datum).collect();
        affected.into_iter().for_each(|datum| self.set_readers(datum, readers.clone()));
        Ok(())
    }

    fn set_readers(&mut self, datum: DatumId, readers: Readers) {
        let version = self.versions.get_mut(&datum).expect("the caller has it");
        version.named.readers = readers;
        self.updates.push(CatalogUpdate::Readers { datum, at: version.places() });
        let name = version.named.name.clone();
        self.update_shared(&name);
    }

    /// Notes whether a name is shared, after its current version or the readers of this have changed.
    fn update_shared(&mut self, name: &str) {
        match self.has_readers(name) {
            true => _ = self.shared.insert(name.into()),
            false => _ = self.shared.remove(name),
        }
    }

    fn has_readers(&self, name: &str) -> bool {
        self.current.get(name).is_some_and(|datum| !self.versions[datum].named.readers.users.is_empty())
    }

    /// Removes and returns the queued updates.
    pub fn take_updates(&mut self) -> Vec<CatalogUpdate> {
        std::mem::take(&mut self.updates)
    }

    // ---- putting

    /// Checks that the name can be put. With `replaces` it may exist already.
    ///
    /// # Errors
    /// Why it cannot be put.
    pub fn check_put(&self, name: &str, replaces: bool) -> Result<(), NameError> {
        check_name(name)?;
        if self.versions.len() >= SHARED_DATA_MAX {
            return Err(NameError::TooMany { what: "shared data".into(), limit: SHARED_DATA_MAX });
        }
        if replaces {
            return Ok(());
        }
        let name = name.to_string();
        match self.current.get(&name).map(|datum| &self.versions[datum]) {
            Some(version) if !version.holders.is_empty() => Err(NameError::Exists { name }),
            _ if self.versions_of(&name).any(Version::is_being_put) => Err(NameError::BeingPut { name }),
            _ => Ok(()),
        }
    }

    /// Begins a new version of a checked name at these servers: the client sends it to the first, and the others fetch
    /// it from there.
    pub fn begin(&mut self, question: RequestId, name: &str, content: Content, places: &[NodeId]) -> &NamedDatum {
        let datum = self.identifiers.next();
        let former = self.versions_of(name).map(|version| version.named.version).max().unwrap_or(0);
        let replicas = places.len().try_into().unwrap_or(u16::MAX);
        let Content { meta, is_durable, method, made_by: put_by } = content;
        let version = former.saturating_add(1);
        let current = self.current.get(name).map(|datum| &self.versions[datum].named);
        let readers = current.map_or_else(Readers::default, |named| named.readers.clone());
        let name = name.to_string();
        let named = NamedDatum { datum, name, version, meta, replicas, is_durable, method, put_by, readers };
        self.insert(named, places[0], Stage::BeingPut(question), true);
        places.iter().for_each(|server| self.keep_at(datum, *server));
        self.by_client.insert((question.client, datum));
        &self.versions[&datum].named
    }

    fn insert(&mut self, named: NamedDatum, place: NodeId, stage: Stage, is_own: bool) {
        let datum = named.datum;
        self.by_name.entry(named.name.clone()).or_default().insert(datum);
        let of_it = (datum, NodeId(0))..=(datum, NodeId(u64::MAX));
        let holders: BTreeSet<NodeId> = self.unnamed_copies.range(of_it.clone()).map(|(_, server)| *server).collect();
        holders.iter().for_each(|server| _ = self.unnamed_copies.remove(&(datum, *server)));
        let (keepers, coming_to, refused, joined) = Default::default();
        let (readers, lost, damaged_at) = Default::default();
        let sent_revision = named.readers.revision;
        self.versions.insert(
            datum,
            Version {
                named,
                stage,
                is_own,
                holders,
                keepers,
                assigned: coming_to,
                refused,
                joined,
                place,
                readers,
                sent_revision,
                lost,
                damaged_at,
            },
        );
        let early: Vec<(NodeId, u64)> = self.early_readers.range(of_it).map(|((_, client), n)| (*client, *n)).collect();
        for (client, times) in early {
            self.early_readers.remove(&(datum, client));
            self.add_reader(datum, client, times);
        }
    }

    fn remove(&mut self, datum: DatumId) -> Option<Version> {
        let version = self.versions.remove(&datum)?;
        let name = &version.named.name;
        if let Some(all) = self.by_name.get_mut(name) {
            all.remove(&datum);
            if all.is_empty() {
                self.by_name.remove(name);
            }
        }
        version.clients().for_each(|client| _ = self.by_client.remove(&(client, datum)));
        for server in version.keepers.iter().chain(&version.assigned) {
            self.subtract_placed(*server, version.named.meta.size_bytes());
        }
        self.lacking.remove(&datum);
        Some(version)
    }

    /// Withdraws a version that the client was putting.
    pub fn withdraw(&mut self, client: NodeId, datum: DatumId) {
        let coming = self.versions.get(&datum).and_then(Version::put_request);
        if coming.is_some_and(|question| question.client == client) {
            self.put_failed(datum);
        }
    }

    /// Removes a version whose put failed. Returns the request that put it.
    pub fn put_failed(&mut self, datum: DatumId) -> Option<(RequestId, NamedDatum)> {
        let question = self.versions.get(&datum)?.put_request()?;
        let version = self.remove(datum)?;
        self.add_tombstone(datum);
        self.push_dropped(&version.named, version.places());
        self.updates.extend(version.joined_update(false));
        Some((question, version.named))
    }

    /// Handles the report of a registering server about a version, and whether it was current as far as the server
    /// knows. Returns the requests that waited for the version, if it is current.
    pub fn server_reported(&mut self, server: NodeId, mut named: NamedDatum, is_current: bool) -> Vec<RequestId> {
        let (datum, readers) = (named.datum, named.readers.clone());
        named.replicas = named.replicas.clamp(1, REPLICAS_MAX);
        if !datum.is_shared() || check_name(&named.name).is_err() {
            return Vec::new();
        }
        if self.tombstones.contains(&datum) {
            self.push_dropped(&named, vec![server]);
            return Vec::new();
        }
        let is_new = !self.versions.contains_key(&datum);
        if is_new && self.versions.len() >= SHARED_DATA_MAX {
            return Vec::new();
        }
        if is_new {
            self.insert(named, server, Stage::Former, false);
        }
        let version = self.versions.get_mut(&datum).expect("inserted above");
        if version.is_being_put() {
            return Vec::new();
        }
        // One of its keepers may be this same server before it restarted.
        let may_be_its = version.named.is_durable;
        if !version.keepers.contains(&server) && version.is_kept_by_all() && !may_be_its {
            // Other servers have replaced it while it was away.
            self.updates.push(CatalogUpdate::Dropped { datum, holders: vec![server] });
            return Vec::new();
        }
        version.lost = None;
        version.damaged_at.remove(&server);
        // Their owner may have changed them while this server, or another one, was away.
        match readers.revision.cmp(&version.named.readers.revision) {
            Ordering::Less => self.updates.push(CatalogUpdate::Readers { datum, at: vec![server] }),
            Ordering::Equal => {}
            Ordering::Greater => self.set_readers(datum, readers),
        }
        self.kept(datum, server);
        match (is_new, self.versions[&datum].stage) {
            (true, _) if is_current => self.supersede(datum),
            (true, _) => _ = self.give_up_if_unread(datum),
            (false, Stage::Former) if is_current => self.push_superseded(datum, vec![server]),
            (false, _) => {}
        }
        self.take_waiting(datum)
    }

    /// Handles the report of a registering server that found the file of a version damaged.
    pub fn damaged(&mut self, server: NodeId, mut named: NamedDatum, why: String) {
        let datum = named.datum;
        named.replicas = named.replicas.clamp(1, REPLICAS_MAX);
        if !datum.is_shared() || check_name(&named.name).is_err() {
            return;
        }
        if self.tombstones.contains(&datum) {
            return self.push_dropped(&named, vec![server]);
        }
        let is_new = !self.versions.contains_key(&datum);
        if is_new && self.versions.len() >= SHARED_DATA_MAX {
            return;
        }
        if is_new {
            self.insert(named, server, Stage::Former, false);
        }
        let version = self.versions.get_mut(&datum).expect("inserted above");
        if version.is_being_put() {
            return;
        }
        version.damaged_at.insert(server);
        if version.holders.is_empty() {
            version.lost = Some(why);
        }
        match version.stage {
            _ if is_new => self.supersede(datum),
            Stage::Former => self.push_superseded(datum, vec![server]),
            _ => {}
        }
    }

    /// Makes a complete version the current one of its name, unless the current one ranks higher.
    fn supersede(&mut self, datum: DatumId) {
        let version = &self.versions[&datum];
        let name = version.named.name.clone();
        let former = self.current.get(&name).copied();
        let is_highest = former.is_none_or(|former| version.rank() > self.versions[&former].rank());
        if is_highest {
            self.current.insert(name.clone(), datum);
            self.versions.get_mut(&datum).expect("found above").stage = Stage::Current;
            self.update_shared(&name);
            former.into_iter().for_each(|former| self.not_current(former));
            self.update_lacking(datum);
        } else {
            self.not_current(datum);
        }
    }

    /// Handles a version that was replaced or whose name was deleted.
    fn not_current(&mut self, datum: DatumId) {
        let version = self.versions.get_mut(&datum).expect("the caller has it");
        version.stage = Stage::Former;
        self.lacking.remove(&datum);
        let version = &self.versions[&datum];
        let holders = version.holders.union(&version.damaged_at).copied().collect();
        if !self.give_up_if_unread(datum) {
            self.push_superseded(datum, holders);
        }
    }

    fn push_dropped(&mut self, named: &NamedDatum, holders: Vec<NodeId>) {
        self.updates.push(CatalogUpdate::Dropped { datum: named.datum, holders: holders.clone() });
        self.push_sync(named, holders);
    }

    fn push_superseded(&mut self, datum: DatumId, holders: Vec<NodeId>) {
        self.updates.push(CatalogUpdate::Superseded { datum, holders: holders.clone() });
        let named = self.versions[&datum].named.clone();
        self.push_sync(&named, holders);
    }

    fn push_sync(&mut self, named: &NamedDatum, holders: Vec<NodeId>) {
        if named.is_durable && !holders.is_empty() {
            self.updates.push(CatalogUpdate::Sync { name: named.name.clone(), holders });
        }
    }

    // ---- deleting

    /// Deletes a name.
    ///
    /// # Errors
    /// If the name does not exist.
    pub fn delete(&mut self, name: &str) -> Result<(), NameError> {
        check_name(name)?;
        let datum = self.current.remove(name).ok_or_else(|| self.unknown(name))?;
        self.update_shared(name);
        self.not_current(datum);
        Ok(())
    }

    /// True if nobody needs a version. Versions known to an earlier agent are assumed to be needed until the catalog
    /// is settled.
    fn is_unread(&self, datum: DatumId) -> bool {
        let version = &self.versions[&datum];
        version.stage == Stage::Former && version.readers.is_empty() && (version.is_own || self.is_settled)
    }

    /// Removes a version if nobody needs it. Returns true if it was removed.
    fn give_up_if_unread(&mut self, datum: DatumId) -> bool {
        let is_unread = self.is_unread(datum);
        if is_unread {
            let version = self.remove(datum).expect("it is listed");
            self.add_tombstone(datum);
            self.push_dropped(&version.named, version.places());
        }
        is_unread
    }

    /// Remembers a dropped datum, so that a server that returns with a copy can be asked to drop it.
    fn add_tombstone(&mut self, datum: DatumId) {
        if self.tombstones.len() >= SHARED_DATA_MAX {
            self.tombstones_in_order.pop_front().map(|oldest| self.tombstones.remove(&oldest));
        }
        if self.tombstones.insert(datum) {
            self.tombstones_in_order.push_back(datum);
        }
    }

    /// Ends the time in which servers and clients report what an earlier agent knew. Returns the copies whose names no
    /// server reported.
    #[must_use]
    pub fn settle(&mut self) -> BTreeSet<(DatumId, NodeId)> {
        if !std::mem::replace(&mut self.is_settled, true) {
            self.early_readers.clear();
            let unread: Vec<DatumId> = self.versions.keys().copied().filter(|datum| self.is_unread(*datum)).collect();
            unread.into_iter().for_each(|datum| _ = self.give_up_if_unread(datum));
            self.versions.keys().copied().collect::<Vec<_>>().into_iter().for_each(|datum| self.update_lacking(datum));
        }
        std::mem::take(&mut self.unnamed_copies)
    }

    // ---- nodes

    /// Records that a server has a copy. Returns false if the copy is useless.
    #[must_use]
    pub fn has_copy(&mut self, datum: DatumId, server: NodeId) -> bool {
        if let Some(version) = self.versions.get_mut(&datum) {
            if !version.is_being_put() {
                version.holders.insert(server);
                version.lost = None;
                self.update_lacking(datum);
            }
            return true;
        }
        // Another server may report its name.
        let is_kept = !self.is_settled && datum.is_shared() && self.unnamed_copies.len() < SHARED_DATA_MAX;
        is_kept && !self.tombstones.contains(&datum) && {
            self.unnamed_copies.insert((datum, server));
            true
        }
    }

    /// Records that a server no longer has a copy.
    pub fn dropped(&mut self, datum: DatumId, server: NodeId, why: &str) {
        let Some(version) = self.versions.get_mut(&datum) else { return };
        if version.holders.remove(&server) && version.holders.is_empty() {
            version.lost = Some(why.into());
        }
        self.not_kept(datum, server);
    }

    /// Handles a lost server. Returns the requests that were putting data there.
    pub fn server_lost(&mut self, server: NodeId, why: &str) -> Vec<(RequestId, NamedDatum)> {
        let mut not_put = Vec::new();
        for datum in self.versions.keys().copied().collect::<Vec<_>>() {
            let version = self.versions.get_mut(&datum).expect("listed above");
            // It reports the damage again when it returns, as another node.
            version.damaged_at.remove(&server);
            if !version.holders.contains(&server) && !version.assigned.contains(&server) {
                continue;
            }
            if version.holders.remove(&server) && version.holders.is_empty() {
                version.lost = Some(why.into());
            }
            let is_put_there = version.is_being_put() && version.place == server;
            self.not_kept(datum, server);
            if is_put_there {
                not_put.extend(self.put_failed(datum));
            }
        }
        self.unnamed_copies.retain(|(_, at)| *at != server);
        not_put
    }

    fn versions_of(&self, name: &str) -> impl Iterator<Item = &Version> {
        self.by_name.get(name).into_iter().flatten().map(|datum| &self.versions[datum])
    }

    /// Checks the invariants that hold between inputs.
    ///
    /// # Errors
    /// The invariant that is violated.
    pub fn check(&self) -> Result<(), String> {
        for (name, datum) in &self.current {
            match self.versions.get(datum) {
                Some(version) if version.named.name == *name && version.stage == Stage::Current => {}
                _ => return Err(format!("'{name}' is {datum}, which is not listed as current under that name")),
            }
        }
        if !self.current.keys().filter(|name| self.has_readers(name)).eq(&self.shared) {
            return Err("the names listed as shared are not those with readers".into());
        }
        let current = self.versions.values().filter(|version| version.stage == Stage::Current).count();
        if current != self.current.len() {
            return Err(format!("{current} versions are current, of {} names", self.current.len()));
        }
        if let Some(unread) = self.versions.keys().find(|datum| self.is_unread(**datum)) {
            return Err(format!("{unread} is neither current nor read, and still listed"));
        }
        if self.by_name.values().map(BTreeSet::len).sum::<usize>() != self.versions.len() {
            return Err("the versions by name are not all versions".into());
        }
        let clients =
            self.versions.iter().flat_map(|(datum, version)| version.clients().map(|client| (client, *datum)));
        if clients.collect::<BTreeSet<_>>() != self.by_client {
            return Err("the versions by client are not those that clients read or put".into());
        }
        self.check_keeping()?;
        self.waits.check()
    }
}

#[cfg(test)]
mod tests;

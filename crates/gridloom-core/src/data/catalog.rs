//! The catalog: data with shared names, their versions, where copies are, and who reads or waits for them.
//!
//! **Invariants**
//! - A version is immutable. A name that is put again gets a new version, and requests see the old one until the new one is whole.
//! - A version that is not current any more is given up once no client reads it.
//! - Every current version is named once; a version that is still to come is not found.
//!
//! It is soft: servers tell a new agent what they hold. What it does not do: move or keep bytes, or choose servers.

use std::collections::{BTreeMap, BTreeSet};

use gridloom_base::limits::{NAME_WAITS_MAX, SHARED_DATA_MAX};
use gridloom_base::near::near_names;
use gridloom_base::{DatumId, Fnv, Meta, NameError, Named, NodeId, check_name};

/// A client, and its number for something that it asked for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Question {
    pub client: NodeId,
    pub ask: u64,
}

#[derive(Debug)]
struct Version {
    named: Named,
    /// Servers with a copy.
    holders: BTreeSet<NodeId>,
    /// Who puts it, until it is there.
    coming: Option<Question>,
    /// The server where it is put.
    place: NodeId,
    /// Clients that have found it and not released it.
    readers: BTreeSet<NodeId>,
    /// How its last copy was lost.
    lost: Option<String>,
}

/// What a server's news of a datum mean.
#[derive(Clone, PartialEq, Debug)]
pub enum Stored {
    /// The version is whole: who put it, and who waited for it.
    Whole { by: Question, waiting: Vec<Question> },
    /// One more copy.
    Copy,
    /// Nobody needs it: the server is to drop it.
    Unknown,
}

/// See the module.
#[derive(Debug)]
pub struct Catalog {
    /// Makes numbers of data differ from those of an earlier agent.
    seed: u64,
    serial: u64,
    versions: BTreeMap<DatumId, Version>,
    current: BTreeMap<String, DatumId>,
    /// All versions of each name.
    by_name: BTreeMap<String, BTreeSet<DatumId>>,
    /// Bytes that were put at each server.
    placed: BTreeMap<NodeId, u64>,
    waiting: BTreeMap<String, BTreeSet<Question>>,
    waits: usize,
    /// Copies of data of which no server has told the name yet.
    strays: BTreeSet<(DatumId, NodeId)>,
}

impl Catalog {
    /// An empty one of that agent.
    pub fn new(agent: NodeId) -> Catalog {
        Catalog {
            seed: agent.0,
            serial: 0,
            versions: BTreeMap::new(),
            current: BTreeMap::new(),
            by_name: BTreeMap::new(),
            placed: BTreeMap::new(),
            waiting: BTreeMap::new(),
            waits: 0,
            strays: BTreeSet::new(),
        }
    }

    /// Number of versions, those to come included.
    pub fn len(&self) -> usize {
        self.versions.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.versions.is_empty()
    }

    /// Requests that wait for a name.
    pub fn waits(&self) -> usize {
        self.waits
    }

    /// Bytes that were put at a server, or are on their way there.
    pub fn placed_bytes(&self, server: NodeId) -> u64 {
        self.placed.get(&server).copied().unwrap_or(0)
    }

    /// What that datum is.
    pub fn named(&self, datum: DatumId) -> Option<&Named> {
        self.versions.get(&datum).map(|version| &version.named)
    }

    /// Servers with a copy.
    pub fn holders(&self, datum: DatumId) -> impl Iterator<Item = NodeId> {
        self.versions.get(&datum).into_iter().flat_map(|version| version.holders.iter().copied())
    }

    // ---- putting

    /// Whether that name can be put; with `replaces` also one that exists.
    ///
    /// # Errors
    /// Why it cannot.
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
            _ if self.versions_of(&name).any(|version| version.coming.is_some()) => Err(NameError::BeingPut { name }),
            _ => Ok(()),
        }
    }

    /// A new version of a name is to come to a server. The name was checked.
    pub fn begin(&mut self, question: Question, name: &str, meta: Meta, place: NodeId) -> &Named {
        self.serial += 1;
        let mut hash = Fnv::default();
        [self.seed, self.serial].into_iter().for_each(|number| hash.number(number));
        let datum = DatumId { client: NodeId::CATALOG, serial: hash.0 };
        let version = 1 + self.versions_of(name).map(|version| version.named.version).max().unwrap_or(0);
        self.insert(Named { datum, name: name.into(), version, meta }, place, Some(question));
        &self.versions[&datum].named
    }

    fn insert(&mut self, named: Named, place: NodeId, coming: Option<Question>) {
        let datum = named.datum;
        *self.placed.entry(place).or_default() += named.meta.size_bytes();
        self.by_name.entry(named.name.clone()).or_default().insert(datum);
        let of_it = (datum, NodeId(0))..=(datum, NodeId(u64::MAX));
        let holders: BTreeSet<NodeId> = self.strays.range(of_it).map(|(_, server)| *server).collect();
        holders.iter().for_each(|server| _ = self.strays.remove(&(datum, *server)));
        let readers = BTreeSet::new();
        self.versions.insert(datum, Version { named, holders, coming, place, readers, lost: None });
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
        if let Some(bytes) = self.placed.get_mut(&version.place) {
            *bytes = bytes.saturating_sub(version.named.meta.size_bytes());
        }
        Some(version)
    }

    /// A version that was to come will not. Gives the server where it was to be put.
    pub fn withdraw(&mut self, client: NodeId, datum: DatumId) -> Option<NodeId> {
        let is_its = |version: &Version| version.coming.is_some_and(|question| question.client == client);
        self.versions.get(&datum).filter(|version| is_its(version))?;
        self.remove(datum).map(|version| version.place)
    }

    /// A client is gone: what it was about to put will not come. Gives the servers where it was to be put.
    #[must_use]
    pub fn not_put_by(&mut self, client: NodeId) -> Vec<(DatumId, NodeId)> {
        let is_its = |version: &&Version| version.coming.is_some_and(|question| question.client == client);
        let coming: Vec<DatumId> = self.versions.values().filter(is_its).map(|version| version.named.datum).collect();
        coming.into_iter().filter_map(|datum| Some((datum, self.withdraw(client, datum)?))).collect()
    }

    /// A server has a version that a client has put there.
    pub fn stored(&mut self, server: NodeId, client: NodeId, datum: DatumId) -> (Stored, Vec<DatumId>) {
        let Some(version) = self.versions.get_mut(&datum) else { return (Stored::Unknown, Vec::new()) };
        match version.coming {
            Some(question) if question.client == client && version.place == server => {
                version.coming = None;
                version.holders.insert(server);
                let superseded = self.supersede(datum);
                let waiting = self.take_waiting(datum);
                (Stored::Whole { by: question, waiting }, superseded)
            }
            Some(_) => (Stored::Unknown, Vec::new()),
            None => {
                version.holders.insert(server);
                (Stored::Copy, Vec::new())
            }
        }
    }

    /// A server that registers has a version. Gives who waited for it, if it is the newest; and those that are to be given up.
    pub fn told(&mut self, server: NodeId, named: Named) -> (Vec<Question>, Vec<DatumId>) {
        let (datum, is_sane) = (named.datum, named.datum.is_shared() && check_name(&named.name).is_ok());
        if !is_sane || self.versions.len() >= SHARED_DATA_MAX {
            return (Vec::new(), Vec::new());
        }
        if !self.versions.contains_key(&datum) {
            self.insert(named, server, None);
        }
        let version = self.versions.get_mut(&datum).expect("inserted above");
        if version.coming.is_some() {
            return (Vec::new(), Vec::new());
        }
        version.holders.insert(server);
        version.lost = None;
        let superseded = self.supersede(datum);
        (self.take_waiting(datum), superseded)
    }

    /// A whole version becomes the current one of its name, unless a newer one is. Gives those to be given up.
    fn supersede(&mut self, datum: DatumId) -> Vec<DatumId> {
        let Named { name, version, .. } = &self.versions[&datum].named;
        let rank = |datum: DatumId, version: u64| (version, datum);
        let former = self.current.get(name).copied();
        let is_newer = former.is_none_or(|former| {
            let other = &self.versions[&former];
            rank(datum, *version) > rank(former, other.named.version)
        });
        if former == Some(datum) {
            return Vec::new();
        }
        let old = if is_newer { self.current.insert(name.clone(), datum) } else { Some(datum) };
        old.into_iter().filter(|old| self.is_unread(*old)).collect()
    }

    /// Those that waited for the name of a datum, if it is current. They read it from now on.
    fn take_waiting(&mut self, datum: DatumId) -> Vec<Question> {
        let version = self.versions.get_mut(&datum).expect("the caller has it");
        if self.current.get(&version.named.name) != Some(&datum) {
            return Vec::new();
        }
        let waiting = self.waiting.remove(&version.named.name).unwrap_or_default();
        self.waits -= waiting.len();
        version.readers.extend(waiting.iter().map(|question| question.client));
        waiting.into_iter().collect()
    }

    // ---- finding

    /// The current version of a name, which the client reads from then on; or the client waits for it.
    ///
    /// # Errors
    /// If there is none, and the client does not wait; or if it is lost.
    pub fn find(&mut self, question: Question, name: &str, waits: bool) -> Result<Option<&Named>, NameError> {
        check_name(name)?;
        let found = self.current.get(name).copied();
        if let Some(datum) = found {
            let version = self.versions.get_mut(&datum).expect("what is current is listed");
            if !version.holders.is_empty() {
                version.readers.insert(question.client);
                return Ok(Some(&self.versions[&datum].named));
            }
        }
        if waits && self.waits >= NAME_WAITS_MAX {
            return Err(NameError::TooMany { what: "requests for names that wait".into(), limit: NAME_WAITS_MAX });
        }
        if waits {
            self.waits += usize::from(self.waiting.entry(name.into()).or_default().insert(question));
            return Ok(None);
        }
        match found.map(|datum| &self.versions[&datum]) {
            Some(version) => {
                let why = version.lost.clone().unwrap_or_default();
                Err(NameError::Lost { name: name.into(), why })
            }
            None => Err(self.unknown(name)),
        }
    }

    /// The error of a name that nobody has put.
    pub fn unknown(&self, name: &str) -> NameError {
        NameError::Unknown { name: name.into(), near: near_names(name, self.current.keys().map(String::as_str)) }
    }

    /// A client waits for that name no longer. True if it did.
    pub fn forget_wait(&mut self, question: Question, name: &str) -> bool {
        let Some(questions) = self.waiting.get_mut(name) else { return false };
        let waited = questions.remove(&question);
        if questions.is_empty() {
            self.waiting.remove(name);
        }
        self.waits -= usize::from(waited);
        waited
    }

    /// A client that has found a version reads it still.
    pub fn reads(&mut self, client: NodeId, datum: DatumId) {
        if let Some(version) = self.versions.get_mut(&datum).filter(|version| version.coming.is_none()) {
            version.readers.insert(client);
        }
    }

    /// A client reads a version no longer. True if it is to be given up.
    #[must_use]
    pub fn release(&mut self, client: NodeId, datum: DatumId) -> bool {
        let Some(version) = self.versions.get_mut(&datum) else { return false };
        version.readers.remove(&client) && self.is_unread(datum)
    }

    fn is_unread(&self, datum: DatumId) -> bool {
        let version = &self.versions[&datum];
        let is_current = self.current.get(&version.named.name) == Some(&datum);
        !is_current && version.coming.is_none() && version.readers.is_empty()
    }

    /// The current versions of names that begin so, after `after`, with their holders.
    pub fn list<'a>(&'a self, prefix: &'a str, after: &str) -> impl Iterator<Item = (&'a Named, &'a BTreeSet<NodeId>)> {
        let from = if after.is_empty() { prefix } else { after };
        let names = self.current.range(from.to_string()..).skip_while(move |(name, _)| !name.starts_with(prefix));
        let after = after.to_string();
        let named = names.take_while(move |(name, _)| name.starts_with(prefix)).filter(move |(name, _)| **name > after);
        named.map(|(_, datum)| (&self.versions[datum].named, &self.versions[datum].holders))
    }

    // ---- deleting

    /// A name is nobody's any more. Gives its datum, if it is to be given up at once.
    ///
    /// # Errors
    /// If there is none.
    pub fn delete(&mut self, name: &str) -> Result<Option<DatumId>, NameError> {
        check_name(name)?;
        let datum = self.current.remove(name).ok_or_else(|| self.unknown(name))?;
        Ok(self.is_unread(datum).then_some(datum))
    }

    /// Takes a version out that is to be given up. Gives the servers with copies.
    pub fn give_up(&mut self, datum: DatumId) -> Vec<NodeId> {
        let version = self.remove(datum).expect("the caller was told of it");
        version.holders.into_iter().collect()
    }

    // ---- nodes

    /// A server has a copy. False if the datum is unknown.
    #[must_use]
    pub fn copied(&mut self, datum: DatumId, server: NodeId) -> bool {
        let Some(version) = self.versions.get_mut(&datum) else { return false };
        if version.coming.is_none() {
            version.holders.insert(server);
        }
        true
    }

    /// A server has a copy of an unknown datum, of which another may tell the name. False if too many are there.
    #[must_use]
    pub fn add_stray(&mut self, datum: DatumId, server: NodeId) -> bool {
        let has_room = datum.is_shared() && self.strays.len() < SHARED_DATA_MAX;
        if has_room {
            self.strays.insert((datum, server));
        }
        has_room
    }

    /// Takes out the copies of data that are unknown still.
    pub fn take_strays(&mut self) -> BTreeSet<(DatumId, NodeId)> {
        std::mem::take(&mut self.strays)
    }

    /// A server has no copy any more.
    pub fn dropped(&mut self, datum: DatumId, server: NodeId, why: &str) {
        if let Some(version) = self.versions.get_mut(&datum)
            && version.holders.remove(&server)
            && version.holders.is_empty()
        {
            version.lost = Some(why.into());
        }
    }

    /// A server is gone. Gives who was about to put something there.
    pub fn server_lost(&mut self, server: NodeId, why: &str) -> Vec<(Question, Named)> {
        let at: Vec<DatumId> = self.versions.keys().copied().collect();
        at.iter().for_each(|datum| self.dropped(*datum, server, why));
        let at_it = self.versions.values().filter(|version| version.place == server);
        let coming: Vec<_> = at_it.filter_map(|version| Some((version.coming?, version.named.clone()))).collect();
        coming.iter().for_each(|(_, named)| drop(self.remove(named.datum)));
        self.strays.retain(|(_, at)| *at != server);
        self.placed.remove(&server);
        coming
    }

    /// A client is gone: it waits and reads no longer. Gives versions that are to be given up.
    pub fn client_lost(&mut self, client: NodeId) -> Vec<DatumId> {
        self.waiting.retain(|_, questions| {
            let before = questions.len();
            questions.retain(|question| question.client != client);
            self.waits -= before - questions.len();
            !questions.is_empty()
        });
        let read =
            self.versions.iter_mut().filter_map(|(datum, version)| version.readers.remove(&client).then_some(*datum));
        let read: Vec<DatumId> = read.collect();
        read.into_iter().filter(|datum| self.is_unread(*datum)).collect()
    }

    fn versions_of(&self, name: &str) -> impl Iterator<Item = &Version> {
        self.by_name.get(name).into_iter().flatten().map(|datum| &self.versions[datum])
    }

    /// What must hold between handlings.
    ///
    /// # Errors
    /// The sentence that does not hold.
    pub fn check(&self) -> Result<(), String> {
        for (name, datum) in &self.current {
            match self.versions.get(datum) {
                Some(version) if version.named.name == *name && version.coming.is_none() => {}
                _ => return Err(format!("'{name}' is {datum}, which is not listed whole under that name")),
            }
        }
        if let Some(unread) = self.versions.keys().find(|datum| self.is_unread(**datum)) {
            return Err(format!("{unread} is neither current nor read, and still listed"));
        }
        if self.by_name.values().map(BTreeSet::len).sum::<usize>() != self.versions.len() {
            return Err("the versions by name are not all versions".into());
        }
        if self.waits != self.waiting.values().map(BTreeSet::len).sum::<usize>() {
            return Err("the number of waiting requests is wrong".into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;

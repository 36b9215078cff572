//! Lookup: which version a name has, and who reads it from then on.

use std::collections::BTreeSet;
use std::ops::Bound;

use gridloom_base::limits::SHARED_DATA_MAX;
use gridloom_base::near::near_names;
use gridloom_base::{DatumId, NameError, NamedDatum, NodeId, check_name, plain_name};

use super::version::Stage;
use super::{Catalog, RequestId};

/// Number of names on each side of an unknown one, in alphabetical order, that are searched for similar ones.
const LOOKED_AT: usize = 256;

impl Catalog {
    /// Returns the current version of a name, which the client reads from then on. Returns `None` if the client waits
    /// for it.
    ///
    /// # Errors
    /// If the name does not exist and the client does not wait, or if its data are lost for good.
    pub fn find(&mut self, question: RequestId, name: &str, waits: bool) -> Result<Option<&NamedDatum>, NameError> {
        check_name(name)?;
        let found = self.current.get(name).copied();
        if let Some(datum) = found.filter(|datum| !self.versions[datum].holders.is_empty()) {
            self.add_reader(datum, question.client, 1);
            return Ok(Some(&self.versions[&datum].named));
        }
        if waits && !found.is_some_and(|datum| self.is_lost_for_good(datum)) {
            self.waits.add(question, name)?;
            return Ok(None);
        }
        Err(self.not_found(name))
    }

    /// Makes a client wait for a name, whether it exists or not.
    ///
    /// # Errors
    /// If too many requests wait.
    pub fn wait(&mut self, question: RequestId, name: &str) -> Result<(), NameError> {
        self.waits.add(question, name)
    }

    /// Puts back a request that was taken from the waiting ones, because its client may not read the version.
    pub fn wait_again(&mut self, question: RequestId, datum: DatumId) {
        let Some(name) = self.named(datum).map(|named| named.name.clone()) else { return };
        // The request returns to its place, so the limit on waiting requests holds.
        let _ = self.waits.add(question, &name);
        self.release(question.client, datum, 1);
    }

    /// Returns the current versions for which requests wait, because their users may not read them.
    pub fn waited_for(&self) -> Vec<DatumId> {
        self.waits.names().filter_map(|name| Some(self.current(name)?.datum)).collect()
    }

    /// True if all copies of a version were lost with their servers, and no program is putting its name again. Copies on
    /// disk may return with their servers, unless all of them were found damaged.
    fn is_lost_for_good(&self, datum: DatumId) -> bool {
        let version = &self.versions[&datum];
        let may_return = version.named.is_durable && version.damaged_at.len() < usize::from(version.named.replicas);
        let is_coming = || self.versions_of(&version.named.name).any(|other| other.is_being_put());
        version.lost.is_some() && version.holders.is_empty() && !may_return && !is_coming()
    }

    /// Removes and returns the requests that wait for names whose data are lost for good, with the names.
    pub fn take_hopeless_waits(&mut self) -> Vec<(RequestId, String)> {
        let is_hopeless = |name: &&str| self.current.get(*name).is_some_and(|datum| self.is_lost_for_good(*datum));
        let hopeless: Vec<String> = self.waits.names().filter(is_hopeless).map(Into::into).collect();
        let mut waiting = Vec::new();
        for name in hopeless {
            waiting.extend(self.waits.take(&name).into_iter().map(|request| (request, name.clone())));
        }
        waiting
    }

    /// Returns why the last copy of a version was lost.
    pub fn why_lost(&self, datum: DatumId) -> Option<&str> {
        self.versions.get(&datum)?.lost.as_deref()
    }

    /// Returns the error for a name without any copy.
    pub fn not_found(&self, name: &str) -> NameError {
        match self.current.get(name).map(|datum| &self.versions[datum]) {
            Some(version) => {
                let why = version.lost.clone().unwrap_or_default();
                NameError::Lost { name: name.into(), why }
            }
            None => self.unknown(name),
        }
    }

    /// Returns the error for a name that does not exist. In a large catalog only the neighbouring names are searched
    /// for similar ones.
    pub fn unknown(&self, name: &str) -> NameError {
        let before = self.current.range::<str, _>((Bound::Unbounded, Bound::Excluded(name))).rev().take(LOOKED_AT);
        let after = self.current.range::<str, _>((Bound::Excluded(name), Bound::Unbounded)).take(LOOKED_AT);
        // Names of the same user, compared without the user.
        let (user, plain) = name.split_at(name.len() - plain_name(name).len());
        let of_user = before.chain(after).filter_map(|(known, _)| known.strip_prefix(user));
        let near = near_names(plain, of_user).into_iter().map(|near| format!("{user}{near}")).collect();
        NameError::Unknown { name: name.into(), near }
    }

    /// Ends a client's wait for a name. Returns true if it was waiting.
    pub fn forget_wait(&mut self, question: RequestId) -> bool {
        self.waits.remove(question)
    }

    /// Handles the report of a new or returned client of how often it has found a version without releasing it.
    pub fn reads(&mut self, client: NodeId, datum: DatumId, times: u64) {
        match self.versions.get(&datum) {
            Some(version) if version.is_being_put() || times == 0 => {}
            Some(version) => {
                let known = version.readers.get(&client).copied().unwrap_or(0);
                // A client that reconnects reports its earlier finds again.
                let left = self.away.take(client, datum).min(known);
                self.add_reader(datum, client, times.saturating_sub(known - left));
                self.release(client, datum, left);
            }
            None if !self.is_settled && datum.is_shared() && self.early_readers.len() < SHARED_DATA_MAX => {
                self.early_readers.insert((datum, client), times);
            }
            None => {}
        }
    }

    pub(super) fn add_reader(&mut self, datum: DatumId, client: NodeId, times: u64) {
        let version = self.versions.get_mut(&datum).expect("the caller has it");
        let known = version.readers.entry(client).or_default();
        *known = known.saturating_add(times);
        self.by_client.insert((client, datum));
    }

    /// Releases `times` finds of a version by a client.
    pub fn release(&mut self, client: NodeId, datum: DatumId, times: u64) {
        let Some(version) = self.versions.get_mut(&datum) else {
            self.early_readers.remove(&(datum, client));
            return;
        };
        let Some(known) = version.readers.get_mut(&client) else { return };
        *known = known.saturating_sub(times);
        if *known == 0 {
            version.readers.remove(&client);
            self.by_client.remove(&(client, datum));
            self.give_up_if_unread(datum);
        }
    }

    /// Removes and returns the requests that waited for the name of a datum, if it is current. Their clients read it
    /// from now on.
    pub fn take_waiting(&mut self, datum: DatumId) -> Vec<RequestId> {
        let Some(version) = self.versions.get(&datum).filter(|version| version.stage == Stage::Current) else {
            return Vec::new();
        };
        let waiting = self.waits.take(&version.named.name);
        waiting.iter().for_each(|question| self.add_reader(datum, question.client, 1));
        waiting.into_iter().collect()
    }

    /// Like [`Catalog::list`], only those that are shared with other users.
    pub fn list_shared<'a>(
        &'a self,
        prefix: &'a str,
        after: &str,
    ) -> impl Iterator<Item = (&'a NamedDatum, &'a BTreeSet<NodeId>)> {
        let names = self.shared.range::<str, _>((first_name(prefix, after), Bound::Unbounded));
        let shared = names.take_while(move |name| name.starts_with(prefix));
        shared.map(|name| self.listed(self.current[name]))
    }

    /// Returns the current versions of names with that prefix, after `after`, with their holders.
    pub fn list<'a>(
        &'a self,
        prefix: &'a str,
        after: &str,
    ) -> impl Iterator<Item = (&'a NamedDatum, &'a BTreeSet<NodeId>)> {
        let names = self.current.range::<str, _>((first_name(prefix, after), Bound::Unbounded));
        let named = names.take_while(move |(name, _)| name.starts_with(prefix));
        named.map(|(_, datum)| self.listed(*datum))
    }

    fn listed(&self, datum: DatumId) -> (&NamedDatum, &BTreeSet<NodeId>) {
        let version = &self.versions[&datum];
        (&version.named, &version.holders)
    }
}

/// Returns where the names with that prefix that follow `after` begin.
fn first_name<'a>(prefix: &'a str, after: &'a str) -> Bound<&'a str> {
    if after < prefix { Bound::Included(prefix) } else { Bound::Excluded(after) }
}

//! Keepers: which servers keep each version, and how many more are needed.
//!
//! A version that is being put is complete once all its replicas are stored. Later, a lost server is replaced by
//! another one.

use std::collections::BTreeMap;

use gridloom_base::{DatumId, NodeId};

use super::version::Stage;
use super::{Catalog, CatalogUpdate, Stored};

impl Catalog {
    /// Assigns a version to a server, which is to keep it.
    pub fn keep_at(&mut self, datum: DatumId, server: NodeId) {
        let Some(version) = self.versions.get_mut(&datum) else { return };
        if !version.keepers.contains(&server) && version.assigned.insert(server) {
            *self.placed.entry(server).or_default() += version.named.meta.size_bytes();
        }
        self.update_lacking(datum);
    }

    /// Handles a server's report that it stores a version that a client put there or that the catalog assigned to it.
    pub fn stored(&mut self, server: NodeId, client: NodeId, datum: DatumId) -> Stored {
        let Some(version) = self.versions.get_mut(&datum) else { return Stored::Unknown };
        let is_awaited = version.assigned.contains(&server);
        if version.named.readers.revision > version.sent_revision {
            // The owner has changed them since the server was sent the description.
            self.updates.push(CatalogUpdate::Readers { datum, at: vec![server] });
        }
        match version.put_request() {
            Some(question) if is_awaited && (client == question.client || client == NodeId::CATALOG) => {
                let at = match server == version.place {
                    true => version.assigned.iter().copied().filter(|other| *other != server).collect(),
                    false => Vec::new(),
                };
                self.kept(datum, server);
                if !at.is_empty() {
                    self.updates.push(CatalogUpdate::Keep { datum, at });
                }
                if !self.versions[&datum].is_kept_by_all() {
                    return Stored::Copy;
                }
                self.by_client.remove(&(question.client, datum));
                let version = self.versions.get_mut(&datum).expect("found above");
                version.refused.clear();
                self.updates.extend(version.joined_update(true));
                version.joined.clear();
                self.supersede(datum);
                Stored::Whole { by: question, waiting: self.take_waiting(datum) }
            }
            Some(_) => Stored::Unknown,
            None if version.keepers.contains(&server) => Stored::Copy,
            // A former keeper has returned with its copy meanwhile.
            None if version.is_kept_by_all() => {
                self.not_kept(datum, server);
                Stored::Unknown
            }
            None => {
                self.kept(datum, server);
                Stored::Copy
            }
        }
    }

    /// Records that a server keeps a version from now on.
    pub(super) fn kept(&mut self, datum: DatumId, server: NodeId) {
        let version = self.versions.get_mut(&datum).expect("the caller has it");
        version.holders.insert(server);
        let is_new = version.keepers.insert(server);
        if !version.assigned.remove(&server) && is_new {
            *self.placed.entry(server).or_default() += version.named.meta.size_bytes();
        }
        self.update_lacking(datum);
    }

    /// Records that a server does not keep a version, or no longer.
    pub fn not_kept(&mut self, datum: DatumId, server: NodeId) {
        let Some(version) = self.versions.get_mut(&datum) else { return };
        let (was_keeper, was_to) = (version.keepers.remove(&server), version.assigned.remove(&server));
        if was_keeper || was_to {
            let size_bytes = version.named.meta.size_bytes();
            if version.is_being_put() {
                self.updates.push(CatalogUpdate::KeeperMissing { datum });
            }
            self.subtract_placed(server, size_bytes);
        }
        self.update_lacking(datum);
    }

    /// Records that a server could not store a version assigned to it. It is not tried again during this put.
    pub fn refused(&mut self, datum: DatumId, server: NodeId, why: String) {
        if let Some(version) = self.versions.get_mut(&datum).filter(|version| version.is_being_put()) {
            version.refused.insert(server, why);
        }
        self.not_kept(datum, server);
    }

    /// Returns the servers that could not store a version that is being put, with the reasons.
    pub fn refusals(&self, datum: DatumId) -> BTreeMap<NodeId, String> {
        self.versions.get(&datum).map(|version| version.refused.clone()).unwrap_or_default()
    }

    /// Returns how many more keepers a version needs.
    pub fn missing_keepers(&self, datum: DatumId) -> usize {
        self.versions.get(&datum).map_or(0, |version| version.lacks())
    }

    /// Returns the servers that keep a version or are assigned to keep it.
    pub fn keepers(&self, datum: DatumId) -> impl Iterator<Item = NodeId> {
        let version = self.versions.get(&datum).into_iter();
        version.flat_map(|version| version.keepers.iter().chain(&version.assigned).copied())
    }

    /// True if a server could not store a version that is being put.
    pub fn has_refused(&self, datum: DatumId, server: NodeId) -> bool {
        self.versions.get(&datum).is_some_and(|version| version.refused.contains_key(&server))
    }

    /// Returns the current versions with too few keepers, after a given one.
    pub fn lacking_keepers(&self, after: Option<DatumId>) -> impl Iterator<Item = DatumId> {
        let from = after.map_or(std::ops::Bound::Unbounded, std::ops::Bound::Excluded);
        self.lacking.range((from, std::ops::Bound::Unbounded)).copied()
    }

    /// Updates whether a version is listed as lacking keepers. A version without any copy is not listed, because it
    /// cannot get more.
    pub(super) fn update_lacking(&mut self, datum: DatumId) {
        let Some(version) = self.versions.get(&datum) else { return };
        let may_come_back = !version.is_own && !self.is_settled;
        let is_due = version.stage == Stage::Current && !version.holders.is_empty() && !may_come_back;
        match is_due && version.lacks() > 0 {
            true => self.lacking.insert(datum),
            false => self.lacking.remove(&datum),
        };
    }

    pub(super) fn subtract_placed(&mut self, server: NodeId, size_bytes: u64) {
        let bytes = self.placed.entry(server).or_default();
        *bytes = bytes.saturating_sub(size_bytes);
        if *bytes == 0 {
            self.placed.remove(&server);
        }
    }

    pub(super) fn check_keeping(&self) -> Result<(), String> {
        let mut placed: BTreeMap<NodeId, u64> = BTreeMap::new();
        for (datum, version) in &self.versions {
            let bytes = version.named.meta.size_bytes();
            let places = version.keepers.iter().chain(&version.assigned);
            places.for_each(|server| *placed.entry(*server).or_default() += bytes);
            if !version.keepers.is_subset(&version.holders) || !version.keepers.is_disjoint(&version.assigned) {
                return Err(format!(
                    "{datum} is listed as kept by a server that has no copy, or is still to receive it"
                ));
            }
        }
        placed.retain(|_, bytes| *bytes > 0);
        let known: BTreeMap<NodeId, u64> =
            self.placed.iter().filter(|(_, bytes)| **bytes > 0).map(|(server, bytes)| (*server, *bytes)).collect();
        if placed == known { Ok(()) } else { Err(format!("bytes are counted as {known:?}, and are {placed:?}")) }
    }
}

//! Quotas of disk: how many bytes of one user's data may be on the server's disk, if the rules of the grid limit it.
//!
//! Durable data of the user count, and so do data that do not fit into memory. The world chooses which data it moves to disk, among
//! those whose users have room there ([`Effect::LimitDisk`](crate::node::Effect::LimitDisk)). The others have to stay in memory. For a user who
//! holds `h` bytes of the store and may have `q` more bytes on disk, these are `max(0, h - q)` bytes. A task is admitted if their sum over all
//! users is at most the memory of the server; without a quota it never has to wait for this reason.
//!
//! A task beyond the quota is held like one beyond the [quota of memory](super::quotas). Memory that other users occupy becomes free
//! again, so it is refused only if its user's data alone do not fit, or if nothing else can run here.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Admission;
use super::quotas::own_inputs;
use crate::graph::Task;
use crate::node::DiskLimit;
use gridloom_base::size::size_text;
use gridloom_base::{NodeId, Rules};

/// The quotas of disk of the users who have or had data here.
#[derive(Debug, Default)]
pub(super) struct DiskQuotas {
    rules: Arc<Rules>,
    /// Bytes of durable data by owner.
    durable: BTreeMap<String, u64>,
    /// Bytes that data of each limited user may take on disk, in addition to durable data.
    left: BTreeMap<Arc<str>, u64>,
    /// True if the world does not know these limits yet.
    is_changed: bool,
    /// True if the rules have quotas of disk, and the server has a disk.
    are_set: bool,
    /// Bytes that the world has on disk, by client.
    on_disk: Vec<(NodeId, u64)>,
}

impl Admission {
    /// Returns the part of the store that is in memory.
    fn memory_bytes(&self) -> u64 {
        self.config.memory_bytes.saturating_sub(self.config.disk_bytes)
    }

    pub(super) fn have_disk_quotas(&self) -> bool {
        !self.disk.left.is_empty()
    }

    /// Records the bytes that the world has on disk, by client.
    pub(in super::super) fn set_on_disk(&mut self, clients: Vec<(NodeId, u64)>) {
        self.disk.on_disk = clients;
    }

    /// Returns the bytes that the world has on disk for each user, without durable data. A user may be listed more than once.
    pub(in super::super) fn on_disk(&self) -> impl Iterator<Item = (&Arc<str>, u64)> {
        let of_users = self.disk.on_disk.iter().map(|(client, bytes)| (self.user_of(*client), *bytes));
        of_users.filter(|(user, _)| !user.is_empty())
    }

    /// Sets the bytes of the durable data of an owner.
    pub(in super::super) fn set_durable(&mut self, owner: String, bytes: u64) {
        // An owner without clients here gets a quota with the first one.
        let user = self.disk.left.get_key_value(&*owner).map(|(user, _)| user.clone());
        match bytes {
            0 => _ = self.disk.durable.remove(&owner),
            bytes => _ = self.disk.durable.insert(owner, bytes),
        }
        user.iter().for_each(|user| self.update_disk_quota(user));
    }

    pub(super) fn set_disk_rules(&mut self, rules: Arc<Rules>) {
        self.disk.are_set = self.config.disk_bytes > 0 && rules.sections().any(|section| section.disk.is_some());
        self.disk.rules = rules;
        self.update_disk_quotas();
    }

    /// Determines the quotas of all users again.
    pub(super) fn update_disk_quotas(&mut self) {
        if !self.disk.are_set && self.disk.left.is_empty() {
            return;
        }
        let users: BTreeSet<Arc<str>> = self.users.values().cloned().collect();
        self.disk.is_changed |= !self.disk.left.is_empty();
        self.disk.left.clear();
        users.iter().for_each(|user| self.update_disk_quota(user));
    }

    /// Determines the quota of a user again, who has got another client or other durable data.
    pub(super) fn update_disk_quota(&mut self, user: &Arc<str>) {
        if !self.disk.are_set {
            return;
        }
        let Some(quota) = self.disk.rules.of(user).disk else { return };
        let durable = self.disk.durable.get(&**user).copied().unwrap_or(0);
        self.disk.left.insert(user.clone(), quota.of(self.config.memory_bytes).saturating_sub(durable));
        self.disk.is_changed = true;
    }

    /// Records that a client of a user is gone.
    pub(super) fn forget_client_of(&mut self, user: &Arc<str>) {
        if self.disk.left.contains_key(user) {
            self.disk.is_changed = true;
            if !self.users.values().any(|other| other == user) {
                self.disk.left.remove(user);
            }
        }
    }

    /// Returns the limits for the world, if they may have changed.
    pub(in super::super) fn take_disk_limits(&mut self) -> Option<Vec<DiskLimit>> {
        if !std::mem::take(&mut self.disk.is_changed) {
            return None;
        }
        let mut clients: BTreeMap<&Arc<str>, Vec<NodeId>> = BTreeMap::new();
        self.users.iter().for_each(|(client, user)| clients.entry(user).or_default().push(*client));
        let limit = |(user, bytes): (&Arc<str>, &u64)| DiskLimit {
            clients: clients.remove(user).unwrap_or_default(),
            bytes: *bytes,
        };
        Some(self.disk.left.iter().map(limit).collect())
    }

    /// Returns the bytes that have to stay in memory if a user holds `more` bytes than now.
    fn bytes_for_memory(&self, user: &Arc<str>, more: u64) -> u64 {
        let mut held: BTreeMap<&Arc<str>, u64> = BTreeMap::from([(user, more)]);
        for (client, bytes) in self.replicas.held_by_clients() {
            *held.entry(self.user_of(*client)).or_default() += bytes;
        }
        let stays = |(user, bytes): (&Arc<str>, u64)| Some(bytes.saturating_sub(*self.disk.left.get(user)?));
        held.into_iter().filter_map(stays).fold(0, u64::saturating_add)
    }

    /// Returns the bytes by which a user's `needed` bytes exceed the memory and the quota of disk; 0 if they fit.
    pub(super) fn bytes_over_disk(&self, user: &Arc<str>, needed: u64) -> u64 {
        if needed == 0 || !self.disk.left.contains_key(user) {
            return 0;
        }
        match (self.bytes_for_memory(user, 0), self.bytes_for_memory(user, needed)) {
            (before, after) if after == before => 0,
            (_, after) => after.saturating_sub(self.memory_bytes()),
        }
    }

    /// True if a task makes its user hold more data that have to stay in memory.
    pub(super) fn takes_memory(&self, task: &Task, user: &Arc<str>) -> bool {
        let needed = self.bytes_needed(task, &own_inputs(task));
        self.disk.left.contains_key(user) && self.bytes_for_memory(user, needed) > self.bytes_for_memory(user, 0)
    }

    /// Returns the bytes that the data of a user can take at most, alone on the server; `None` without a quota of disk.
    pub(super) fn disk_and_memory(&self, user: &str) -> Option<u64> {
        self.disk.left.get(user).map(|left| left.saturating_add(self.memory_bytes()))
    }

    /// Returns why a task exceeds the quota of disk of its user.
    pub(super) fn disk_exceeded(&self, task: &Task, user: &Arc<str>) -> String {
        let (needed, held) = (size_text(self.own_bytes_of(task)), size_text(self.held_of(user)));
        let quota = self.disk.rules.of(user).disk.map_or(0, |quota| quota.of(self.config.memory_bytes));
        let durable = self.disk.durable.get(&**user).copied().unwrap_or(0);
        let has_durable = match durable {
            0 => String::new(),
            bytes => format!(", of which durable data take {}", size_text(bytes)),
        };
        format!(
            "its arguments and results take {needed}, the data of '{user}' already take {held}, the memory of the server has {}, and the \
             rules of the grid allow {} on the server's disk{has_durable}; release results that are no longer needed, pass less data at a time, or \
             ask an administrator of the grid to change its rules",
            size_text(self.memory_bytes()),
            size_text(quota)
        )
    }
}

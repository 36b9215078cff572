//! Shared data: data that clients have put here under names, and the catalog's messages about them.
//!
//! To the rest of the server, the catalog is another owner of data, [`NodeId::CATALOG`]. It runs in the agent.
//! Messages to the catalog get the agent's address when they are sent, and messages from the agent about tasks and
//! data count as messages from the catalog.
//!
//! **Invariant:** the data listed here are in the store.

use std::collections::{BTreeMap, BTreeSet};

use super::admission::{Admission, SliceArrival};
use super::durable::{Durable, Writing};
use super::{Server, reject_message, send};
use crate::graph::{Task, TaskKind};
use crate::node::ServerTimer;

use crate::node::message::{CatalogToServer, DamagedVersion, ServerToCatalog, StoredVersion, TransferReport};
use crate::node::protocol::Effect;
use gridloom_base::limits::{RATE_REPORT_NS, RECONNECT_NS_MAX, SHARED_DATA_PER_MESSAGE};
use gridloom_base::{DatumId, NamedDatum, NodeId, Readers, TaskError, TaskId, Time, plain_name};

/// Shared data that were put here.
#[derive(Debug, Default)]
pub(super) struct SharedData {
    held: BTreeMap<DatumId, StoredVersion>,
    /// Versions of an earlier run whose files are damaged.
    damaged: BTreeMap<DatumId, DamagedVersion>,
    pub(super) durable: Durable,
    /// Bytes of durable data, with their sums by owner.
    durable_sums: DurableSums,
    /// Data that clients may put here, with the client of each.
    expected: BTreeMap<DatumId, (NamedDatum, NodeId)>,
    /// The agent that sent `expected`.
    expected_by: Option<NodeId>,
    /// Time at which the agent was first found missing; `None` while there is an agent.
    without_agent_since: Option<Time>,
}

/// Bytes of durable data on disk, and of those that are being written.
#[derive(Debug, Default)]
struct DurableSums {
    data: BTreeMap<DatumId, (String, u64)>,
    /// No sum is 0.
    of_owners: BTreeMap<String, u64>,
    /// Owners whose sums have changed.
    changed: BTreeSet<String>,
}

impl DurableSums {
    /// Sets the owner and the size of a datum; `None` if it is not durable, or no longer.
    fn set(&mut self, datum: DatumId, counted: Option<(String, u64)>) {
        let counted = counted.filter(|(_, size_bytes)| *size_bytes > 0);
        if self.data.get(&datum) == counted.as_ref() {
            return;
        }
        if let Some((owner, size_bytes)) = self.data.remove(&datum) {
            let sum = self.of_owners.get_mut(&owner).expect("the datum was counted");
            *sum -= size_bytes;
            if *sum == 0 {
                self.of_owners.remove(&owner);
            }
            self.changed.insert(owner);
        }
        if let Some((owner, size_bytes)) = counted {
            *self.of_owners.entry(owner.clone()).or_default() += size_bytes;
            self.changed.insert(owner.clone());
            self.data.insert(datum, (owner, size_bytes));
        }
    }
}

/// When a put counts as complete.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Published {
    Now,
    WhenDurable,
}

impl SharedData {
    pub(super) fn len(&self) -> usize {
        self.held.len()
    }

    /// True if a program could miss a datum after this server has exited. A copy of a datum that another server keeps is
    /// not missed. Nor is a durable datum, which is available again after a restart, if it is the current version of its
    /// name: former versions are not kept on disk.
    pub(super) fn would_be_missed(&self, datum: DatumId) -> bool {
        match self.held.get(&datum) {
            Some(held) => !(held.named.is_durable && held.is_current),
            None => !datum.is_shared(),
        }
    }

    /// Returns the bytes of durable data on disk, and of those that are being written, by owner.
    pub(super) fn durable_bytes(&self) -> &BTreeMap<String, u64> {
        &self.durable_sums.of_owners
    }

    /// Returns the owners whose [`SharedData::durable_bytes`] have changed since the last call, with these bytes.
    pub(super) fn take_changed_durable_bytes(&mut self) -> Vec<(String, u64)> {
        let DurableSums { of_owners, changed, .. } = &mut self.durable_sums;
        let bytes = |owner: &String| of_owners.get(owner).copied().unwrap_or(0);
        std::mem::take(changed).into_iter().map(|owner| (owner.clone(), bytes(&owner))).collect()
    }

    /// Returns the owner and the size of a datum if it counts as durable.
    fn counted_durable(&self, datum: DatumId) -> Option<(String, u64)> {
        let named = match self.held.get(&datum) {
            Some(held) => Some(&held.named).filter(|named| named.is_durable && held.is_current),
            None => self.durable.written(datum),
        };
        // Sums of these sizes do not overflow: each is at most the memory of a server when the datum is stored.
        named.map(|named| (named.owner().into_owned(), named.meta.size_bytes()))
    }

    /// Counts a durable datum again after a change.
    fn count_durable(&mut self, datum: DatumId) {
        let counted = self.counted_durable(datum);
        self.durable_sums.set(datum, counted);
    }

    /// Starts to write a datum that a task brought here.
    pub(super) fn begin_durable(&mut self, task: TaskId, named: &NamedDatum, out: &mut Vec<Effect>) {
        self.durable.begin(task, named, out);
        self.count_durable(named.datum);
    }

    /// Removes a datum from those that are being written.
    pub(super) fn end_durable(&mut self, datum: DatumId) -> Option<Writing> {
        let ended = self.durable.end(datum);
        self.count_durable(datum);
        ended
    }

    /// Marks a datum as a former version of its name.
    pub(super) fn set_superseded(&mut self, datum: DatumId, out: &mut Vec<Effect>) {
        if let Some(held) = self.held.get_mut(&datum) {
            held.is_current = false;
            out.extend(held.named.is_durable.then_some(Effect::MakeTransient { datum }));
        }
        self.count_durable(datum);
        self.forget_damage(datum, out);
    }

    /// Forgets the damage of a file, and the file's record.
    fn forget_damage(&mut self, datum: DatumId, out: &mut Vec<Effect>) {
        out.extend(self.damaged.remove(&datum).map(|_| Effect::MakeTransient { datum }));
    }

    /// Sets the users with whom a datum is shared.
    fn set_readers(&mut self, datum: DatumId, readers: &Readers, out: &mut Vec<Effect>) {
        self.durable.set_readers(datum, readers);
        let Some(StoredVersion { named, .. }) = self.held.get_mut(&datum) else { return };
        named.readers.clone_from(readers);
        if named.is_durable {
            out.push(Effect::UpdateDurable { named: Box::new(named.clone()) });
        }
    }

    /// Adds a shared datum that is stored here.
    pub(super) fn add(&mut self, held: StoredVersion) {
        let datum = held.named.datum;
        self.held.insert(datum, held);
        self.count_durable(datum);
    }

    /// Returns the number of data that clients may put here.
    pub(super) fn expected(&self) -> usize {
        self.expected.len()
    }

    /// Forgets the expected puts of a lost client.
    pub(super) fn forget_client(&mut self, client: NodeId) {
        self.expected.retain(|_, (_, by)| *by != client);
    }

    /// Records a put that the agent has announced. Announcements of a previous agent are void.
    fn expect(&mut self, agent: NodeId, named: NamedDatum, client: NodeId) {
        if self.expected_by.replace(agent) != Some(agent) {
            self.expected.clear();
        }
        self.expected.insert(named.datum, (named, client));
    }

    /// Discards the announcements of a lost agent.
    pub(super) fn peer_lost(&mut self, peer: NodeId) {
        if self.expected_by == Some(peer) {
            self.expected.clear();
        }
    }

    /// Sets the versions whose files were found damaged.
    pub(super) fn set_damaged(&mut self, damaged: &[DamagedVersion]) {
        self.damaged = damaged.iter().map(|version| (version.named.datum, version.clone())).collect();
    }

    /// Forgets a datum that the catalog does not use, and the damage of its file.
    pub(super) fn forget(&mut self, datum: DatumId, out: &mut Vec<Effect>) {
        self.forget_damage(datum, out);
        self.expected.remove(&datum);
        // Its bytes may still be read, and are dropped after that. The file must not outlive the process from now on.
        let held = self.held.remove(&datum).filter(|held| held.named.is_durable && held.is_current);
        out.extend(held.map(|_| Effect::MakeTransient { datum }));
        self.durable.mark_given_up(datum, out);
        self.count_durable(datum);
    }

    pub(super) fn check(&self, admission: &Admission) -> Result<(), String> {
        let mut data = self.held.keys().copied().chain(self.durable.data());
        let counts_of = |datum: DatumId| self.counted_durable(datum).filter(|(_, size_bytes)| *size_bytes > 0);
        if let Some(datum) = data.find(|datum| counts_of(*datum).as_ref() != self.durable_sums.data.get(datum)) {
            return Err(format!("{datum} is not counted as durable as it should be"));
        }
        match self.held.keys().find(|datum| !admission.is_here(**datum)) {
            Some(datum) => Err(format!("{datum} is listed as shared, but is not in the store")),
            None => Ok(()),
        }
    }
}

impl Server {
    /// Returns the owner in whose name a node sends messages about tasks and data. For the agent, that is the catalog.
    pub(super) fn owner_for(&self, node: NodeId) -> NodeId {
        if self.registering.agent() == Some(node) { NodeId::CATALOG } else { node }
    }

    /// Redirects messages for the catalog to the agent. Without an agent they are dropped, because a new agent
    /// receives a full report.
    pub(super) fn redirect_to_agent(&self, from: usize, out: &mut Vec<Effect>) {
        let is_for_catalog = |effect: &Effect| matches!(effect, Effect::Send { to: NodeId::CATALOG, .. });
        if !out[from..].iter().any(is_for_catalog) {
            return;
        }
        let agent = self.registering.agent();
        let new = out.split_off(from);
        out.extend(new.into_iter().filter_map(|effect| match (effect, agent) {
            (Effect::Send { to: NodeId::CATALOG, message }, Some(to)) => Some(Effect::Send { to, message }),
            (Effect::Send { to: NodeId::CATALOG, .. }, None) => None,
            (effect, _) => Some(effect),
        }));
    }

    /// Reports the shared data stored here to an agent that accepted the registration, and asks it for the locations
    /// of other shared data.
    pub(super) fn report_shared(&mut self, now: Time, agent: NodeId, out: &mut Vec<Effect>) {
        if self.registering.agent() != Some(agent) {
            return;
        }
        let held: Vec<StoredVersion> = self.shared.held.values().cloned().collect();
        for part in held.chunks(SHARED_DATA_PER_MESSAGE) {
            send(out, agent, ServerToCatalog::StoredVersions { data: part.to_vec() });
        }
        let copies = self.admission.shared_here().filter(|datum| !self.shared.held.contains_key(datum));
        for part in copies.collect::<Vec<_>>().chunks(SHARED_DATA_PER_MESSAGE) {
            send(out, agent, ServerToCatalog::HasCopies { data: part.to_vec() });
        }
        let damaged: Vec<DamagedVersion> = self.shared.damaged.values().cloned().collect();
        for part in damaged.chunks(SHARED_DATA_PER_MESSAGE) {
            send(out, agent, ServerToCatalog::Damaged { data: part.to_vec() });
        }
        self.admitting(now, out, |admission, _, out| admission.request_shared_sources(out));
    }

    pub(super) fn on_catalog_message(
        &mut self,
        now: Time,
        from: NodeId,
        message: CatalogToServer,
        out: &mut Vec<Effect>,
    ) {
        if self.owner_for(from) != NodeId::CATALOG {
            return reject_message(from, out);
        }
        match message {
            CatalogToServer::Expect { named, client } => self.shared.expect(from, named, client),
            CatalogToServer::Readers { datum, readers } => self.shared.set_readers(datum, &readers, out),
            CatalogToServer::Superseded { datum } => {
                self.shared.durable.set_former(datum, out);
                self.shared.set_superseded(datum, out);
            }
            CatalogToServer::Sync { number } => self.shared.durable.begin_sync(from, number, out),
            CatalogToServer::LeaveSource { from } => self.leave_silent_source(now, from, out),
            CatalogToServer::Lost { datum, why } => self.shared_gone(now, datum.whole(), &why, out),
        }
    }

    /// Handles the arrival of a slice of a shared datum.
    pub(super) fn on_slice_arrived(&mut self, now: Time, from: NodeId, slice: DatumId, out: &mut Vec<Effect>) {
        let arrived = self.admitting(now, out, |admission, _, out| admission.slice_arrived(now, slice, out));
        let (bytes, whole) = match arrived {
            SliceArrival::NotNeeded => return,
            SliceArrival::One { bytes } => (bytes, None),
            SliceArrival::Whole { bytes, meta } => (bytes, Some(meta)),
        };
        // Slices share their links, so the time of a single slice is no measure of a link.
        let report = TransferReport { datum: slice, from, to: self.config.id, size_bytes: bytes, run_ns: 0, age_ns: 0 };
        if self.reports.transferred(now, report, false) {
            out.push(Effect::SetTimer { timer: ServerTimer::Transfers.into(), at: now + RATE_REPORT_NS });
        }
        if let Some(meta) = whole {
            self.on_arrived(now, from, slice.whole(), &meta, 0, out);
        }
    }

    /// Fails the tasks that wait for a shared datum of which no copy exists.
    fn shared_gone(&mut self, now: Time, datum: DatumId, why: &str, out: &mut Vec<Effect>) {
        let is_reader = |task: &Task| task.inputs().any(|read| read == datum);
        let waiting = self.admission.tasks().filter(|entry| !entry.state.has_begun() && is_reader(&entry.task));
        let waiting: Vec<TaskId> = waiting.map(|entry| entry.task.id).collect();
        for id in waiting {
            self.end_with_error(now, id, TaskError::DatumLost { datum, why: why.into() }, out);
        }
        self.pump(now, out);
    }

    /// Limits how long tasks wait for shared data while there is no agent, which knows where they are stored: at most
    /// [`RECONNECT_NS_MAX`].
    pub(super) fn limit_agentless_wait(&mut self, now: Time, out: &mut Vec<Effect>) {
        if self.registering.agent().is_some() {
            self.shared.without_agent_since = None;
            return;
        }
        let since = *self.shared.without_agent_since.get_or_insert(now);
        if now.since(since) >= RECONNECT_NS_MAX {
            for datum in self.admission.unrequested_shared() {
                self.shared_gone(
                    now,
                    datum,
                    "the server has lost the agent, which knows where the datum is stored",
                    out,
                );
            }
        }
    }

    /// Ends a task whose copies are all here.
    pub(super) fn end_replicated(&mut self, now: Time, task: &Task, out: &mut Vec<Effect>) {
        let outcome = match &task.kind {
            TaskKind::Publish(named) => {
                let published = self.publish(now, task, named, out);
                if published == Ok(Published::WhenDurable) {
                    return self.admitting(now, out, |admission, _, out| admission.end_replicated(now, task, out));
                }
                published.map(|_| Vec::new())
            }
            TaskKind::View { from_byte } => {
                self.admitting(now, out, |admission, _, out| admission.take_part(now, task, *from_byte, out))
            }
            _ => Ok(Vec::new()),
        };
        self.admitting(now, out, |admission, _, out| {
            if outcome.is_err() {
                admission.results_not_made(now, task, out);
            }
            admission.end_replicated(now, task, out);
        });
        self.report(now, task.id.client, task.id, outcome, 0, out);
    }

    /// Turns the datum that a task brought here into a shared datum.
    fn publish(
        &mut self,
        now: Time,
        task: &Task,
        named: &NamedDatum,
        out: &mut Vec<Effect>,
    ) -> Result<Published, TaskError> {
        let datum = task.inputs().next().expect("checked when the task was accepted");
        let is_again = self.shared.held.get(&named.datum).is_some_and(|held| held.named == *named);
        let is_expected = self
            .shared
            .expected
            .get(&named.datum)
            .is_some_and(|(expected, client)| expected == named && *client == task.id.client);
        let is_of_catalog = task.id.client == NodeId::CATALOG;
        if !is_expected && !is_again && !is_of_catalog {
            // On this error, the client asks the agent again.
            let why = format!(
                "server '{}' does not expect '{}': the agent has not announced it",
                self.config.name,
                plain_name(&named.name)
            );
            return Err(TaskError::NotMapped { why });
        }
        if named.is_durable && self.config.durable.is_none() {
            let why = format!("server '{}' has no directory for durable data (serve --durable DIR)", self.config.name);
            return Err(TaskError::NotMapped { why });
        }
        if self.shared.durable.is_given_up(named.datum) {
            let why = format!("'{}' was deleted a moment ago", plain_name(&named.name));
            return Err(TaskError::NotMapped { why });
        }
        if named.is_durable && !is_again {
            self.check_durable(task, named)?;
        }
        let size_bytes = named.meta.checked_size_bytes().unwrap_or(u64::MAX);
        let own_bytes = self.admission.own_bytes(datum);
        if own_bytes != size_bytes {
            let why = format!("its description states {size_bytes} bytes, but {datum} has {own_bytes} bytes");
            let (function, server) = (task.name().to_string(), self.config.name.clone());
            return Err(TaskError::Refused { function, server, why });
        }
        self.admitting(now, out, |admission, _, out| {
            admission.name_datum(now, task, datum, (named.datum, size_bytes), out)
        })?;
        self.shared.expected.remove(&named.datum);
        if named.is_durable && !is_again {
            self.shared.begin_durable(task.id, named, out);
            return Ok(Published::WhenDurable);
        }
        self.published(task.id.client, named, out);
        Ok(Published::Now)
    }

    /// Records a shared datum as put, and reports that to the catalog.
    pub(super) fn published(&mut self, client: NodeId, named: &NamedDatum, out: &mut Vec<Effect>) {
        self.shared.damaged.remove(&named.datum);
        if !self.shared.held.contains_key(&named.datum) {
            self.shared.add(StoredVersion { named: named.clone(), is_current: true });
        }
        send(out, NodeId::CATALOG, ServerToCatalog::Stored { datum: named.datum, client });
    }
}

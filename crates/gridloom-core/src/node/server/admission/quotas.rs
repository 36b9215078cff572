//! Quotas of memory: the part of the store that the data of one user may take, if the rules of the grid limit it. [Quotas of
//! disk](super::disk_quotas) are applied at the same places.
//!
//! Arguments, results and placed data of all programs of the user count, with the memory reserved for them; shared data do
//! not. A task that exceeds the quota of its user is held, and tasks of other users pass it. When the user's data are
//! released, or their tasks end, it is admitted. In the meantime the server helps as it does when the whole store is full, but only
//! with the data of this user:
//!
//! 1. copies that exist elsewhere are evicted;
//! 2. if none of the user's tasks can run, results are written back to their clients, and waiting tasks are requeued;
//! 3. if nothing else is left, the task is refused.
//!
//! **Invariant:** while tasks of a user are held for the quota and none runs, a task is admitted, requeued or refused.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Admission, AdmissionOutput};
use crate::exec::State;
use crate::graph::Task;
use gridloom_base::limits::{CALLBACK_WAIT_NS_MAX, HEARTBEAT_NS};
use gridloom_base::size::size_text;
use gridloom_base::{DatumId, NodeId, TaskError, TaskId, Time};

impl Admission {
    /// Returns the user of a client that has or had tasks here.
    pub(super) fn user_of(&self, client: NodeId) -> &Arc<str> {
        self.users.get(&client).unwrap_or(&self.nobody)
    }

    /// Returns the quota of a user in bytes.
    fn memory_quota(&self, user: &str) -> Option<u64> {
        self.executor.memory_of(user).map(|quota| quota.of(self.replicas.limit_bytes()))
    }

    /// Returns the bytes that the data of a user take, including reservations.
    pub(super) fn held_of(&self, user: &Arc<str>) -> u64 {
        let held = self.replicas.held_by_clients().iter();
        held.filter(|(client, _)| self.user_of(**client) == user).map(|(_, bytes)| bytes).sum()
    }

    /// Returns the bytes by which a task exceeds the quotas of its user; 0 if it fits.
    fn bytes_over_quota(&self, task: &Task, user: &Arc<str>) -> u64 {
        let needed = self.bytes_needed(task, &own_inputs(task));
        self.bytes_over_memory(user, needed).max(self.bytes_over_disk(user, needed))
    }

    fn bytes_over_memory(&self, user: &Arc<str>, needed: u64) -> u64 {
        let Some(quota) = self.memory_quota(user) else { return 0 };
        if needed == 0 { 0 } else { self.held_of(user).saturating_add(needed).saturating_sub(quota) }
    }

    /// True if a task has to wait because data of users without room on disk fill the memory.
    fn waits_for_memory(&self, task: &Task, user: &Arc<str>) -> bool {
        self.have_disk_quotas() && self.bytes_over_disk(user, self.bytes_needed(task, &own_inputs(task))) > 0
    }

    fn have_quotas(&self) -> bool {
        self.executor.have_memory_quotas() || self.have_disk_quotas()
    }

    /// True if the data of a task exceed a quota of its user, whatever else is released.
    fn is_too_large(&self, task: &Task, user: &str) -> bool {
        let most = [self.memory_quota(user), self.disk_and_memory(user)].into_iter().flatten().min();
        most.is_some_and(|most| self.own_bytes_of(task) > most)
    }

    /// Returns held tasks of a client whose data exceed a quota of their user, whatever else is released. The caller refuses them.
    pub(in super::super) fn too_large(&self, client: NodeId) -> Vec<(TaskId, TaskError)> {
        if !self.have_quotas() {
            return Vec::new();
        }
        let held = self.executor.of_client(client).into_iter().filter_map(|id| self.executor.get(id));
        let held = held.filter(|entry| entry.state == State::Held);
        let too_large = held.filter(|entry| self.is_too_large(&entry.task, &entry.owner.user));
        too_large.map(|entry| (entry.task.id, self.quota_exceeded(&entry.task, &entry.owner.user))).collect()
    }

    pub(super) fn exceeds_quota(&self, task: TaskId) -> bool {
        self.executor.get(task).is_some_and(|entry| self.bytes_over_quota(&entry.task, &entry.owner.user) > 0)
    }

    /// Returns the held task that is admitted next, and the users who are passed over because of their quotas.
    pub(super) fn next_within_quotas(&mut self, out: &mut Vec<AdmissionOutput>) -> Option<(TaskId, Vec<Arc<str>>)> {
        if !self.have_quotas() {
            return self.executor.first_held().map(|entry| (entry.task.id, Vec::new()));
        }
        let (mut passed, mut is_memory_awaited) = (Vec::new(), false);
        for id in self.executor.first_held_of_users() {
            let entry = self.executor.get(id).expect("it is held");
            let (task, user) = (entry.task.clone(), entry.owner.user.clone());
            if self.bytes_over_quota(&task, &user) > 0 {
                self.evict_of_user(&task, &user, out);
            }
            // The memory for which one user waits is not given to others who have no room on disk either.
            let takes_memory = || is_memory_awaited && self.takes_memory(&task, &user);
            if self.bytes_over_quota(&task, &user) == 0 && !takes_memory() {
                return Some((id, passed));
            }
            is_memory_awaited |= self.waits_for_memory(&task, &user);
            passed.push(user);
        }
        None
    }

    /// Evicts copies of a user's data until a task fits into the quota, as far as possible.
    fn evict_of_user(&mut self, task: &Task, user: &Arc<str>, out: &mut Vec<AdmissionOutput>) {
        let inputs: BTreeSet<DatumId> = task.inputs().collect();
        let over = self.bytes_over_quota(task, user);
        let limit = self.replicas.used_bytes().saturating_sub(over);
        let is_others = |datum: DatumId| self.users.get(&datum.client) != Some(user);
        let evicted = self.replicas.evict_until(
            |replicas| replicas.used_bytes() <= limit,
            |datum| inputs.contains(&datum) || is_others(datum) || self.executor.makes(datum),
            |datum| self.executor.reads(datum),
        );
        self.record_evicted(evicted, out);
    }

    /// Frees memory of users whose next tasks exceed their quotas, to admit these tasks later. Returns a task that will never
    /// fit, which the caller refuses. Sets `is_changed` if tasks may be admitted now.
    pub(super) fn relieve_quotas(
        &mut self,
        now: Time,
        out: &mut Vec<AdmissionOutput>,
        is_changed: &mut bool,
    ) -> Option<(TaskId, TaskError)> {
        if !self.have_quotas() {
            return None;
        }
        for id in self.executor.first_held_of_users() {
            let entry = self.executor.get(id).expect("it is held");
            let (task, user) = (entry.task.clone(), entry.owner.user.clone());
            let (over, load) = (self.bytes_over_quota(&task, &user), self.executor.load_of(&user));
            if over == 0 {
                continue;
            }
            if self.is_too_large(&task, &user) {
                return Some((id, self.quota_exceeded(&task, &user)));
            }
            if load.is_busy {
                continue;
            }
            // Waiting tasks may occupy the memory that the tasks for which they wait need.
            let stuck = self.executor.waiting(true).into_iter();
            let stuck: Vec<TaskId> =
                stuck.filter(|id| self.executor.get(*id).is_some_and(|e| e.owner.user == user)).collect();
            if !stuck.is_empty() {
                self.requeue(now, stuck, out);
                *is_changed = true;
                return None;
            }
            if load.admitted == 0 && self.release_idle_reservations_of(now, &user) {
                *is_changed = true;
                return None;
            }
            let users = self.users.clone();
            let is_own = |datum: DatumId| users.get(&datum.client) == Some(&user);
            let has_asked = self.write_back_of(now, over, &own_inputs(&task), is_own, out);
            // Other users may occupy the memory. Their tasks end, and results of theirs can be written back.
            let needed = self.bytes_needed(&task, &own_inputs(&task));
            let is_others = self.bytes_over_memory(&user, needed) == 0
                && self.disk_and_memory(&user).is_some_and(|most| self.held_of(&user).saturating_add(needed) <= most);
            if is_others && !has_asked {
                let is_awaited = self.executor.admitted() > 0;
                if is_awaited || self.write_back_of(now, over, &own_inputs(&task), |_| true, out) {
                    continue;
                }
            }
            if !has_asked && load.admitted == 0 {
                return Some((id, self.quota_exceeded(&task, &user)));
            }
        }
        None
    }

    /// Resolves stalls of users whose tasks are held for their quotas while their other tasks wait: see
    /// [`Admission::resolve_stall`]. Returns a task that is refused.
    pub(super) fn resolve_stalls_of_users(
        &mut self,
        now: Time,
        out: &mut Vec<AdmissionOutput>,
        is_changed: &mut bool,
    ) -> Option<(TaskId, TaskError)> {
        if !self.have_quotas() {
            self.stalled.clear();
            return None;
        }
        let held = self.executor.first_held_of_users();
        let is_stalled = |id: &TaskId| self.exceeds_quota(*id) && !self.executor.load_of(self.owner_of(*id)).is_busy;
        let stalled: Vec<TaskId> = held.into_iter().filter(is_stalled).collect();
        let users: BTreeSet<Arc<str>> = stalled.iter().map(|id| self.owner_of(*id).clone()).collect();
        self.stalled.retain(|user, _| users.contains(user));
        for id in stalled {
            let user = self.owner_of(id).clone();
            let since = *self.stalled.entry(user.clone()).or_insert(now);
            let load = self.executor.load_of(&user);
            if load.paused > 0 && load.paused == load.admitted {
                if now.since(since) >= CALLBACK_WAIT_NS_MAX {
                    let task = self.executor.get(id).expect("it is held").task.clone();
                    return Some((id, self.quota_exceeded(&task, &user)));
                }
            } else if now.since(since) >= HEARTBEAT_NS {
                let waiting = self.executor.waiting(false).into_iter();
                let own: Vec<TaskId> = waiting.filter(|id| *self.owner_of(*id) == user).collect();
                *is_changed |= !own.is_empty();
                self.requeue(now, own, out);
                self.stalled.insert(user, now);
            }
        }
        None
    }

    fn owner_of(&self, task: TaskId) -> &Arc<str> {
        &self.executor.get(task).expect("the caller has seen it").owner.user
    }

    /// Releases the reservations of a user's data that did not arrive and whose readers were requeued. Returns true if there
    /// were any.
    fn release_idle_reservations_of(&mut self, now: Time, user: &Arc<str>) -> bool {
        let is_own = |datum: &DatumId| self.user_of(datum.client) == user;
        let places: Vec<DatumId> = self.replicas.idle_reservations().filter(is_own).collect();
        places.iter().for_each(|datum| _ = self.replicas.unreserve(*datum, now));
        !places.is_empty()
    }

    /// Returns the bytes of all inputs and results of a task, without shared data.
    pub(super) fn own_bytes_of(&self, task: &Task) -> u64 {
        let shared: BTreeSet<DatumId> = task.inputs().filter(|datum| datum.is_shared()).collect();
        let shared_bytes = shared.into_iter().map(|datum| self.bytes_of_input(datum)).fold(0, u64::saturating_add);
        self.bytes_of(task).saturating_sub(shared_bytes)
    }

    fn quota_exceeded(&self, task: &Task, user: &Arc<str>) -> TaskError {
        let (own_bytes, needed) = (self.own_bytes_of(task), self.bytes_needed(task, &own_inputs(task)));
        let exceeds_memory = |quota| own_bytes > quota || self.bytes_over_memory(user, needed) > 0;
        let (needed, held) = (size_text(own_bytes), size_text(self.held_of(user)));
        let why = match self.memory_quota(user) {
            Some(quota) if exceeds_memory(quota) => format!(
                "its arguments and results take {needed}, the data of '{user}' take {held} of the store, and the rules of the grid allow {}; \
                 release results that are no longer needed, pass less data at a time, or ask an administrator of the grid to change its rules",
                size_text(quota)
            ),
            _ => self.disk_exceeded(task, user),
        };
        let (function, server) = (task.name().to_string(), self.config.name.clone());
        TaskError::QuotaExceeded { function, server, why, is_temporary: false }
    }
}

/// Returns the inputs of a task that count for its user.
pub(super) fn own_inputs(task: &Task) -> BTreeSet<DatumId> {
    task.inputs().filter(|datum| !datum.is_shared()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{Argument, CopyLifetime, Output as Made, TaskKind};
    use crate::member::Members;
    use crate::node::message::{Message, Supply, TaskMessage, TaskToClient};
    use crate::node::protocol::{Effect, Role};
    use crate::node::server::ServerConfig;
    use crate::node::server::tests::offering_nothing;
    use gridloom_base::{Dtype, Meta, Quota, Rules, RulesSection};

    const ANNA: NodeId = NodeId(7);
    const BERT: NodeId = NodeId(8);

    fn store_bytes() -> u64 {
        offering_nothing().memory_bytes
    }

    fn datum(client: NodeId, serial: u64) -> DatumId {
        DatumId { client, serial }
    }

    fn bytes(size_bytes: u64) -> Meta {
        Meta::array(Dtype::Uint8, &[size_bytes])
    }

    fn task(client: NodeId, serial: u64, kind: TaskKind, reads: &[u64], makes: Option<u64>) -> Task {
        let outputs = makes.map(|size| Made { datum: datum(client, serial), meta: bytes(size) });
        Task {
            id: TaskId { client, serial },
            kind,
            args: reads.iter().map(|serial| Argument::Datum(datum(client, *serial))).collect(),
            outputs: outputs.into_iter().collect(),
            work_flops: None,
            options: Default::default(),
        }
    }

    fn call(client: NodeId, serial: u64, reads: &[u64], makes: u64) -> Task {
        task(client, serial, TaskKind::call("m/f", 0), reads, Some(makes))
    }

    struct Store(Admission, Members<Role>, Vec<AdmissionOutput>);

    impl Store {
        /// A store of which each user may use a half.
        fn new() -> Store {
            let mut members = Members::default();
            [ANNA, BERT].into_iter().for_each(|client| members.add(Time(0), client, Role::Client));
            let mut admission = Admission::new(Arc::new(ServerConfig { slots: 4, ..offering_nothing() }));
            let everybody = RulesSection { memory: Some(Quota::Percent(50)), ..Default::default() };
            admission.set_rules(Arc::new(Rules { everybody, ..Rules::default() }));
            Store(admission, members, Vec::new())
        }

        /// Adds tasks, and admits those that can be.
        fn add(&mut self, tasks: impl IntoIterator<Item = Task>) -> Option<(TaskId, TaskError)> {
            for task in tasks {
                let user = if task.id.client == ANNA { "anna" } else { "bert" };
                self.0.add(Time(0), task, &user.into(), false);
            }
            self.admit()
        }

        fn admit(&mut self) -> Option<(TaskId, TaskError)> {
            let refused = self.0.admit(Time(0), &self.1, &mut self.2);
            self.0.check().unwrap();
            refused
        }

        /// Starts the tasks that can run. Returns their numbers.
        fn start(&mut self) -> Vec<(NodeId, u64)> {
            let next = || self.0.next_start(|_| false).map(|task| (task.id.client, task.id.serial));
            std::iter::from_fn(next).collect()
        }

        /// Ends a task whose result stays here.
        fn end(&mut self, client: NodeId, serial: u64) {
            let entry = self.0.take_ended(Time(0), TaskId { client, serial }).unwrap();
            let results: Vec<(DatumId, Meta)> =
                entry.task.outputs.iter().map(|output| (output.datum, output.meta.clone())).collect();
            self.0.results_made(Time(0), &entry, &results, Some(client), &mut self.2);
            self.0.stop_reading(Time(0), &entry, &mut self.2);
        }

        /// Returns the data that clients are asked to fetch.
        fn asked(&mut self) -> Vec<DatumId> {
            let asked = |output| match output {
                AdmissionOutput::Effect(Effect::Send {
                    message: Message::Task(TaskMessage::ToClient(TaskToClient::MakeRoom { data })),
                    ..
                }) => data,
                _ => Vec::new(),
            };
            std::mem::take(&mut self.2).into_iter().flat_map(asked).collect()
        }
    }

    fn is_refused(refused: Option<(TaskId, TaskError)>, client: NodeId, serial: u64) -> bool {
        let Some((id, TaskError::QuotaExceeded { why, .. })) = refused else { return false };
        id == TaskId { client, serial } && why.contains("and the rules of the grid allow") && why.contains("release")
    }

    #[test]
    fn a_task_beyond_the_quota_waits_and_those_of_others_pass_it() {
        let quarter = store_bytes() / 4;
        let mut store = Store::new();
        let annas = (1..=3).map(|serial| call(ANNA, serial, &[], quarter));
        assert_eq!(store.add(annas), None);
        assert_eq!(store.add([call(BERT, 1, &[], quarter)]), None);
        let mut started = store.start();
        started.sort_unstable();
        assert_eq!(started, [(ANNA, 1), (ANNA, 2), (BERT, 1)]);
        store.end(ANNA, 1);
        assert_eq!((store.admit(), store.start()), (None, vec![]), "its result takes the memory");
        store.0.release(datum(ANNA, 1), &mut store.2);
        assert_eq!((store.admit(), store.start()), (None, vec![(ANNA, 3)]));
    }

    #[test]
    fn a_task_that_alone_exceeds_the_quota_is_refused() {
        let half = store_bytes() / 2;
        let mut store = Store::new();
        assert!(is_refused(store.add([call(ANNA, 1, &[], half + 1)]), ANNA, 1));
        store.0.remove_task(Time(0), TaskId { client: ANNA, serial: 1 }, &mut store.2);
        assert_eq!(store.add([call(ANNA, 2, &[], half), call(BERT, 1, &[], half)]), None);
        assert_eq!(store.start().len(), 2);
    }

    #[test]
    fn results_are_written_back_before_a_task_is_refused() {
        let quarter = store_bytes() / 4;
        let mut store = Store::new();
        for serial in [1, 2] {
            assert_eq!(store.add([call(ANNA, serial, &[], quarter)]), None);
            assert_eq!(store.start(), [(ANNA, serial)]);
            store.end(ANNA, serial);
        }
        assert_eq!(store.add([call(ANNA, 3, &[], quarter), call(BERT, 1, &[], quarter)]), None);
        assert_eq!(store.start(), [(BERT, 1)]);
        assert_eq!(store.asked(), [datum(ANNA, 1)], "one is enough, although the store is not full");
        store.0.written_back(datum(ANNA, 1), true);
        assert_eq!((store.admit(), store.start()), (None, vec![(ANNA, 3)]));
        assert!(!store.0.is_here(datum(ANNA, 1)) && store.0.is_here(datum(ANNA, 2)));
    }

    #[test]
    fn data_that_are_placed_count() {
        let quarter = store_bytes() / 4;
        let mut store = Store::new();
        for serial in [1, 2] {
            let kept = task(ANNA, serial, TaskKind::Replicate(CopyLifetime::Kept), &[serial], None);
            let (datum, meta) = (datum(ANNA, serial), bytes(quarter));
            store.0.add(Time(0), kept, &"anna".into(), false);
            store.0.expect(ANNA, vec![Supply::direct(datum, meta, ANNA, String::new(), 1)], false);
            assert_eq!(store.admit(), None);
            let (origin, _) = store.0.take_arrived(Time(0), datum, quarter, &mut store.2).unwrap();
            store.0.datum_available(Time(0), datum, quarter, origin, &mut store.2);
            let task = store.0.take_replicated().unwrap();
            store.0.end_replicated(Time(0), &task, &mut store.2);
        }
        assert!(is_refused(store.add([call(ANNA, 3, &[1], 1000)]), ANNA, 3));
        store.0.remove_task(Time(0), TaskId { client: ANNA, serial: 3 }, &mut store.2);
        // A larger quota applies at once.
        store.0.set_rules(Arc::default());
        assert_eq!(store.add([call(ANNA, 4, &[1], 1000)]), None);
        assert_eq!(store.start(), [(ANNA, 4)]);
    }
}

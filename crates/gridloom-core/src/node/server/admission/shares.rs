//! Shares of the store: the memory that a client may claim from clients that hold more than their share.
//!
//! A client may fill the store while no other client needs it. The *share* of a user is a part of the store: the user's weight
//! divided by the weights of all users with tasks or data here. The share of a client is that of its user divided by the number of the
//! user's clients here. If a task does not fit, its client gets memory from others:
//!
//! - if its user is within the share, from clients above their shares whose users are above theirs
//! - if the client is within its share, from other clients of the same user above theirs
//!
//! They lose:
//!
//! 1. copies that were kept here on request, and results that their client was asked to fetch but has not fetched within
//!    [`WRITE_BACK_NS_MAX`];
//! 2. reservations of tasks that wait.
//!
//! Running tasks are not disturbed. The owner of evicted data is notified, and computes them again if it needs them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{Admission, AdmissionOutput};
use crate::data::Origin;
use crate::graph::Task;
use crate::member::Members;
use crate::node::protocol::{Effect, Role};
use gridloom_base::limits::WRITE_BACK_NS_MAX;
use gridloom_base::{DatumId, NodeId, TaskId, Time};

/// Maximum number of held tasks that are checked for one that may claim memory.
pub(super) const CHECKED_TASKS_MAX: usize = 1024;

/// The bytes that clients and users hold, and their shares in bytes.
struct Shares {
    held: BTreeMap<NodeId, u64>,
    users_of: BTreeMap<NodeId, Arc<str>>,
    users: BTreeMap<Arc<str>, UserShare>,
}

struct UserShare {
    held: u64,
    share: u64,
    clients: u64,
}

impl Shares {
    fn held(&self, client: NodeId) -> u64 {
        self.held.get(&client).copied().unwrap_or(0)
    }

    fn user(&self, client: NodeId) -> Option<&UserShare> {
        self.users.get(self.users_of.get(&client)?)
    }

    /// Returns the share of a client.
    fn share(&self, client: NodeId) -> u64 {
        self.user(client).map_or(0, |user| user.share / user.clients.max(1))
    }

    /// True if a task may claim memory from others.
    fn has_room_for(&self, task: &Task, needed: u64) -> bool {
        let client = task.id.client;
        self.user_has_room_for(client, needed) || self.held(client).saturating_add(needed) <= self.share(client)
    }

    fn user_has_room_for(&self, client: NodeId, needed: u64) -> bool {
        self.user(client).is_some_and(|user| user.held.saturating_add(needed) <= user.share)
    }

    /// True if a client loses memory to a task.
    fn is_over(&self, client: NodeId, task: &Task, needed: u64) -> bool {
        let claimer = task.id.client;
        let is_over = self.held(client) > self.share(client);
        if self.users_of.get(&client) == self.users_of.get(&claimer) {
            // A client of the user that is within its own share.
            return is_over && self.held(claimer).saturating_add(needed) <= self.share(claimer);
        }
        is_over
            && self.user(client).is_some_and(|user| user.held > user.share)
            && self.user_has_room_for(claimer, needed)
    }

    /// Records that a client has lost a datum.
    fn subtract(&mut self, client: NodeId, bytes: u64) {
        *self.held.entry(client).or_default() -= bytes;
        if let Some(user) = self.users_of.get(&client).and_then(|user| self.users.get_mut(user)) {
            user.held -= bytes;
        }
    }
}

impl Admission {
    fn shares(&self) -> Shares {
        let mut held = self.replicas.held_by_clients().clone();
        self.executor.clients().for_each(|client| _ = held.entry(client).or_default());
        let mut users: BTreeMap<Arc<str>, UserShare> = BTreeMap::new();
        let users_of: BTreeMap<NodeId, Arc<str>> =
            held.keys().map(|client| (*client, self.user_of(*client).clone())).collect();
        for (client, bytes) in &held {
            let new = UserShare { held: 0, share: 0, clients: 0 };
            let user = users.entry(users_of[client].clone()).or_insert(new);
            user.held += bytes;
            user.clients += 1;
        }
        let weight = |user: &Arc<str>| u64::from(self.executor.weight_of(user));
        let weights: u64 = users.keys().map(weight).sum();
        for (name, user) in &mut users {
            let part = u128::from(self.replicas.limit_bytes()) * u128::from(weight(name));
            user.share = (part / u128::from(weights.max(1))) as u64;
        }
        Shares { held, users_of, users }
    }

    /// Admits tasks that have waited long for memory although their clients are within their shares. Returns true if
    /// there were any.
    pub(in super::super) fn admit_by_shares(
        &mut self,
        now: Time,
        members: &Members<Role>,
        out: &mut Vec<AdmissionOutput>,
    ) -> bool {
        if self.executor.first_held().is_none() || now.since(self.last_admitted) < WRITE_BACK_NS_MAX {
            return false;
        }
        let mut has_admitted = false;
        let held: Vec<Arc<Task>> =
            self.executor.held().take(CHECKED_TASKS_MAX).map(|entry| entry.task.clone()).collect();
        for task in held {
            if self.exceeds_quota(task.id) {
                continue;
            }
            let inputs: BTreeSet<DatumId> = task.inputs().collect();
            if self.claim_share(now, &task, &inputs, out) {
                self.admit_task(now, &task, inputs, members, out);
                // Gives its inputs time to arrive: it is not requeued at once.
                self.last_progress = now;
                has_admitted = true;
            } else if self.shares().has_room_for(&task, self.bytes_needed(&task, &inputs)) {
                // Results of ended tasks are written back to their clients, even while other tasks run.
                self.make_room(now, self.bytes_needed(&task, &inputs), &inputs, out);
                break;
            }
        }
        has_admitted
    }

    /// Makes room for a task by evicting data that clients hold beyond their shares. Returns true if the task fits then.
    pub(super) fn claim_share(
        &mut self,
        now: Time,
        task: &Task,
        inputs: &BTreeSet<DatumId>,
        out: &mut Vec<AdmissionOutput>,
    ) -> bool {
        let needed = self.bytes_needed(task, inputs);
        let mut shares = self.shares();
        if !shares.has_room_for(task, needed) {
            return false;
        }
        self.evict_idle(now, task, needed, &mut shares, out);
        if !self.replicas.fits(needed) {
            let waiting = self.executor.waiting(false).into_iter();
            let over: Vec<TaskId> = waiting.filter(|id| shares.is_over(id.client, task, needed)).collect();
            self.requeue(now, over, out);
            let is_over = |datum: &DatumId| shares.is_over(datum.client, task, needed) && !self.executor.makes(*datum);
            let places: Vec<DatumId> = self.replicas.idle_reservations().filter(is_over).collect();
            places.into_iter().for_each(|datum| _ = self.replicas.unreserve(datum, now));
            shares = self.shares();
            self.evict_idle(now, task, needed, &mut shares, out);
        }
        self.replicas.fits(needed)
    }

    /// Evicts data without readers here, of clients above their shares, until `needed` bytes fit.
    fn evict_idle(&mut self, now: Time, task: &Task, needed: u64, shares: &mut Shares, out: &mut Vec<AdmissionOutput>) {
        // Shared data that this server keeps may have no other copy.
        let gives_way = |datum: &DatumId| {
            !datum.is_shared() && (self.replicas.is_kept(*datum) || self.write_back.is_not_written_back(*datum, now))
        };
        let idle: Vec<DatumId> =
            self.replicas.idle().filter(|datum| shares.is_over(datum.client, task, needed)).filter(gives_way).collect();
        let mut gone: BTreeMap<NodeId, (Vec<DatumId>, u64)> = BTreeMap::new();
        for datum in idle {
            if self.replicas.fits(needed) {
                break;
            }
            if !shares.is_over(datum.client, task, needed) {
                continue;
            }
            let size_bytes = self.replicas.size_bytes(datum);
            shares.subtract(datum.client, size_bytes);
            self.write_back.forget(datum);
            self.replicas.discard(datum);
            out.push(Effect::DropDatum { datum }.into());
            let (data, bytes) = gone.entry(datum.client).or_default();
            data.push(datum);
            *bytes += size_bytes;
            if self.executor.reads(datum) {
                self.fetches.expect_of_owner(datum, size_bytes, Origin::Copied);
            }
        }
        let gave_way = |(client, (data, bytes))| AdmissionOutput::EvictedOverShare {
            client,
            data,
            bytes,
            share: shares.share(client),
        };
        out.extend(gone.into_iter().map(gave_way));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{Argument, CopyLifetime, Output as Made, TaskKind};
    use crate::node::message::Supply;
    use crate::node::server::tests::offering_nothing;
    use gridloom_base::{Dtype, Meta, TaskError};

    const HOG: NodeId = NodeId(7);
    const OTHER: NodeId = NodeId(8);

    fn datum(client: NodeId, serial: u64) -> DatumId {
        DatumId { client, serial }
    }

    fn bytes(size_bytes: u64) -> Meta {
        Meta::array(Dtype::Uint8, &[size_bytes])
    }

    fn task(client: NodeId, serial: u64, kind: TaskKind, reads: &[u64], makes: Option<(u64, u64)>) -> Task {
        Task {
            id: TaskId { client, serial },
            kind,
            args: reads.iter().map(|serial| Argument::Datum(datum(client, *serial))).collect(),
            outputs: makes
                .map(|(serial, size)| Made { datum: datum(client, serial), meta: bytes(size) })
                .into_iter()
                .collect(),
            work_flops: None,
            options: Default::default(),
        }
    }

    fn call(client: NodeId, serial: u64, makes: (u64, u64)) -> Task {
        task(client, serial, TaskKind::call("m/f", 0), &[], Some(makes))
    }

    struct Store(Admission, Members<Role>, Vec<AdmissionOutput>);

    impl Store {
        fn new() -> Store {
            let mut members = Members::default();
            [HOG, OTHER].into_iter().for_each(|client| members.add(Time(0), client, Role::Client));
            Store(Admission::new(Arc::new(offering_nothing())), members, Vec::new())
        }

        fn admit(&mut self, now: Time) -> Option<(TaskId, TaskError)> {
            let refused = self.0.admit(now, &self.1, &mut self.2);
            self.0.check().unwrap();
            refused
        }

        /// Keeps a datum of this size here for the hog.
        fn keep(&mut self, serial: u64, size_bytes: u64) {
            let admission = &mut self.0;
            let kept = task(HOG, serial, TaskKind::Replicate(CopyLifetime::Kept), &[serial], None);
            admission.add(Time(0), kept, &"user".into(), false);
            let (datum, meta) = (datum(HOG, serial), bytes(size_bytes));
            admission.expect(HOG, vec![Supply::direct(datum, meta, HOG, String::new(), 1)], false);
            assert_eq!(self.admit(Time(0)), None);
            let Store(admission, _, out) = self;
            let (origin, _) = admission.take_arrived(Time(0), datum, size_bytes, out).unwrap();
            admission.datum_available(Time(0), datum, size_bytes, origin, out);
            let task = admission.take_replicated().unwrap();
            admission.end_replicated(Time(0), &task, out);
        }

        /// Runs a task of the hog whose result stays here.
        fn make(&mut self, serial: u64, size_bytes: u64) {
            self.0.add(Time(0), call(HOG, serial, (serial, size_bytes)), &"user".into(), false);
            assert_eq!(self.admit(Time(0)), None);
            let id = self.0.next_start(|_| false).unwrap().id;
            let entry = self.0.take_ended(Time(0), id).unwrap();
            self.0.results_made(Time(0), &entry, &[(datum(HOG, serial), bytes(size_bytes))], Some(HOG), &mut self.2);
        }

        fn evicted(&mut self) -> Vec<DatumId> {
            let gave_way =
                |output| if let AdmissionOutput::EvictedOverShare { data, .. } = output { data } else { Vec::new() };
            std::mem::take(&mut self.2).into_iter().flat_map(gave_way).collect()
        }
    }

    #[test]
    fn kept_copies_are_evicted_down_to_the_share() {
        let quarter = offering_nothing().memory_bytes / 4;
        let mut store = Store::new();
        (1..=4).for_each(|serial| store.keep(serial, quarter));
        // A single client may fill the store, and is notified when it has.
        store.0.add(Time(1), call(HOG, 5, (5, 1)), &"user".into(), false);
        assert!(matches!(store.admit(Time(1)), Some((_, TaskError::StoreFull { .. }))));
        store.0.remove_task(Time(1), TaskId { client: HOG, serial: 5 }, &mut store.2);
        // The other client cannot claim more than a share.
        store.0.add(Time(1), call(OTHER, 1, (1, 2 * quarter + 1)), &"user".into(), false);
        assert!(matches!(store.admit(Time(1)), Some((_, TaskError::StoreFull { .. }))));
        store.0.remove_task(Time(1), TaskId { client: OTHER, serial: 1 }, &mut store.2);
        assert_eq!(store.evicted(), []);
        store.0.add(Time(1), call(OTHER, 2, (2, 2 * quarter)), &"user".into(), false);
        assert_eq!(store.admit(Time(1)), None);
        assert_eq!(store.0.next_start(|_| false).unwrap().id.client, OTHER);
        assert_eq!(store.evicted(), [datum(HOG, 1), datum(HOG, 2)]);
        assert_eq!(store.0.load().1, 4 * quarter);
    }

    #[test]
    fn results_that_their_client_does_not_fetch_are_evicted() {
        let half = offering_nothing().memory_bytes / 2;
        let mut store = Store::new();
        (1..=2).for_each(|serial| store.make(serial, half));
        store.0.add(Time(1), call(OTHER, 1, (1, half)), &"user".into(), false);
        assert_eq!(store.admit(Time(1)), None);
        assert_eq!(store.0.next_start(|_| false), None, "the hog is asked to fetch a result");
        for (now, is_admitted) in [(Time(1) + WRITE_BACK_NS_MAX / 2, false), (Time(1) + WRITE_BACK_NS_MAX, true)] {
            let Store(admission, members, out) = &mut store;
            assert_eq!(admission.admit_by_shares(now, members, out), is_admitted);
            assert_eq!(store.evicted().len(), usize::from(is_admitted));
        }
        assert_eq!(store.0.next_start(|_| false).unwrap().id.client, OTHER);
    }

    /// Found by the soak test (seeds 40042, 41870): a task admitted by its share was requeued in the same heartbeat,
    /// because there had been no progress for long, and so on each time.
    #[test]
    fn a_task_admitted_by_share_has_time_for_its_arguments_to_arrive() {
        let half = offering_nothing().memory_bytes / 2;
        let mut store = Store::new();
        store.make(1, half);
        store.0.add(Time(1), task(HOG, 2, TaskKind::call("m/f", 0), &[9], Some((2, half + 1))), &"user".into(), false);
        store.0.add(Time(1), task(OTHER, 1, TaskKind::call("m/f", 0), &[1], None), &"user".into(), false);
        let supply = Supply::direct(datum(OTHER, 1), bytes(half), OTHER, String::new(), 1);
        store.0.expect(OTHER, vec![supply], false);
        let Store(admission, members, out) = &mut store;
        let refused = admission.admit(Time(1), members, out);
        assert_eq!(refused, None, "the hog is asked to fetch its result");
        let now = Time(1) + WRITE_BACK_NS_MAX;
        assert!(admission.admit_by_shares(now, members, out));
        assert_eq!(admission.resolve_stall(now, out), None);
        assert_eq!(admission.state(TaskId { client: OTHER, serial: 1 }), Some(crate::exec::State::Waiting));
    }

    #[test]
    fn a_long_task_does_not_keep_others_from_their_share() {
        let half = offering_nothing().memory_bytes / 2;
        let mut store = Store::new();
        store.make(1, half);
        store.0.add(Time(0), call(HOG, 2, (2, half)), &"user".into(), false);
        assert_eq!(store.admit(Time(0)), None);
        assert_eq!(store.0.next_start(|_| false).unwrap().id.serial, 2, "it runs, and will not end");
        store.0.add(Time(1), call(HOG, 3, (3, half)), &"user".into(), false);
        store.0.add(Time(1), call(OTHER, 1, (1, half)), &"user".into(), false);
        assert_eq!(store.admit(Time(1)), None);
        let mut now = Time(1);
        for is_admitted in [false, true] {
            now = now + WRITE_BACK_NS_MAX;
            let Store(admission, members, out) = &mut store;
            assert_eq!(admission.admit_by_shares(now, members, out), is_admitted);
        }
        assert_eq!(store.evicted(), [datum(HOG, 1)]);
        assert_eq!(store.0.state(TaskId { client: OTHER, serial: 1 }), Some(crate::exec::State::Ready));
    }

    /// Users have shares by their weights, and a user with many programs has no larger one.
    #[test]
    fn users_have_shares_by_their_weights() {
        let quarter = offering_nothing().memory_bytes / 4;
        let mut store = Store::new();
        let weight = gridloom_base::RulesSection { weight: Some(3), ..Default::default() };
        let users = BTreeMap::from([("other".to_string(), weight)]);
        store.0.set_rules(Arc::new(gridloom_base::Rules { users, ..Default::default() }));
        (1..=4).for_each(|serial| store.keep(serial, quarter));
        let third = NodeId(9);
        store.1.add(Time(0), third, Role::Client);
        for (client, user) in [(OTHER, "other"), (third, "user")] {
            store.0.add(Time(1), call(client, 1, (1, 1)), &user.into(), false);
        }
        let shares = store.0.shares();
        // The hog shares a quarter with the other program of its user.
        assert_eq!([HOG, third, OTHER].map(|client| shares.share(client)), [quarter / 2, quarter / 2, 3 * quarter]);
        let task = call(OTHER, 2, (2, 3 * quarter));
        assert!(shares.has_room_for(&task, 3 * quarter) && !shares.has_room_for(&task, 3 * quarter + 1));
        assert!(shares.is_over(HOG, &task, 3 * quarter) && !shares.is_over(third, &task, 3 * quarter));
    }
}

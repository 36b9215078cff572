//! Requests for plans: those that wait, and those that the world is mapping ([`Effect::Map`]).
//!
//! ```text
//!        add            next            end
//! client ──▶ waiting ────────▶ running ────▶ (answered)
//!                                 │ stop: the time limit is exceeded, or the plan is no longer wanted
//! ```
//! Groups are mapped one after another, since each plan depends on the reservations of the earlier ones. A mapping
//! that takes long no longer keeps others waiting. Clients take turns.
//!
//! **Invariants:** at most [`MAPPINGS_MAX`] mappings run, and at most one wanted mapping for each client. A group has
//! at most one waiting request. Each mapping is stopped at the latest [`MAP_NS_MAX`] after its start.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::node::message::MapRequest;
use crate::node::protocol::{Effect, MapJob};
use gridloom_base::limits::{MAP_EXCLUSIVE_NS, MAP_NS_MAX, MAP_REQUESTS_MAX, MAPPINGS_MAX};
use gridloom_base::{GroupId, NodeId, Time};

/// The waiting and running requests. See the module.
#[derive(Debug, Default)]
pub(super) struct Requests {
    waiting: VecDeque<MapRequest>,
    running: BTreeMap<u64, RunningMapping>,
    /// Number of the last mapping of each client, which orders their turns.
    turns: BTreeMap<NodeId, u64>,
    /// Number of mappings that have started.
    begun: u64,
}

/// A running mapping.
#[derive(Debug)]
pub(super) struct RunningMapping {
    pub(super) job: Arc<MapJob>,
    since: Time,
    pub(super) stopped: Option<Stopped>,
}

/// The reason why a mapping was stopped.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Stopped {
    /// It exceeded its time limit.
    Late,
    /// Its group has ended or requested a new plan, or its client is gone.
    Unwanted,
}

impl Requests {
    /// Adds a request, which replaces an earlier one of its group. Returns the request as an error if too many
    /// requests of its client wait.
    pub(super) fn add(&mut self, request: MapRequest, out: &mut Vec<Effect>) -> Result<(), MapRequest> {
        self.forget_group(request.group, out);
        let client = request.group.client;
        if self.waiting.iter().filter(|other| other.group.client == client).count() >= MAP_REQUESTS_MAX {
            return Err(request);
        }
        self.waiting.push_back(request);
        Ok(())
    }

    /// Removes and returns the next request to map now, if there is one.
    pub(super) fn next(&mut self, now: Time) -> Option<MapRequest> {
        let is_alone = |mapping: &RunningMapping| mapping.stopped.is_none() && now < mapping.since + MAP_EXCLUSIVE_NS;
        if self.running.len() >= MAPPINGS_MAX || self.running.values().any(is_alone) {
            return None;
        }
        let is_mapping = |client| self.wanted().any(|mapping| mapping.job.request.group.client == client);
        let turn = |request: &MapRequest| self.turns.get(&request.group.client).copied().unwrap_or(0);
        let may_begin = self.waiting.iter().enumerate().filter(|(_, request)| !is_mapping(request.group.client));
        let (at, _) = may_begin.min_by_key(|(at, request)| (turn(request), *at))?;
        self.waiting.remove(at)
    }

    /// Records the start of a mapping. Returns its number.
    pub(super) fn begin(&mut self, now: Time, job: Arc<MapJob>) -> u64 {
        self.begun += 1;
        self.turns.insert(job.request.group.client, self.begun);
        self.running.insert(self.begun, RunningMapping { job, since: now, stopped: None });
        self.begun
    }

    /// Removes and returns a mapping that has ended.
    pub(super) fn end(&mut self, number: u64) -> Option<RunningMapping> {
        let ended = self.running.remove(&number)?;
        self.forget_turn(ended.job.request.group.client);
        Some(ended)
    }

    /// Stops the mappings that have exceeded their time limit.
    pub(super) fn stop_late(&mut self, now: Time, out: &mut Vec<Effect>) {
        self.stop(|mapping| now >= mapping.since + MAP_NS_MAX, Stopped::Late, out);
    }

    /// Drops the requests of a group that has ended or requests a new plan.
    pub(super) fn forget_group(&mut self, group: GroupId, out: &mut Vec<Effect>) {
        self.waiting.retain(|request| request.group != group);
        self.stop(|mapping| mapping.job.request.group == group, Stopped::Unwanted, out);
        self.forget_turn(group.client);
    }

    /// Drops the requests of a lost client.
    pub(super) fn forget_client(&mut self, client: NodeId, out: &mut Vec<Effect>) {
        self.waiting.retain(|request| request.group.client != client);
        self.stop(|mapping| mapping.job.request.group.client == client, Stopped::Unwanted, out);
        self.turns.remove(&client);
    }

    /// Returns the time at which the state must be checked again without an event: when other requests may start
    /// beside a mapping, or a mapping must be stopped.
    pub(super) fn next_check(&self, now: Time) -> Option<Time> {
        let dates = self.wanted().flat_map(|mapping| [mapping.since + MAP_EXCLUSIVE_NS, mapping.since + MAP_NS_MAX]);
        dates.filter(|at| *at > now).min()
    }

    /// Returns the number of waiting and running requests whose plans are wanted.
    pub(super) fn len(&self) -> usize {
        self.waiting.len() + self.wanted().count()
    }

    pub(super) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    fn wanted(&self) -> impl Iterator<Item = &RunningMapping> {
        self.running.values().filter(|mapping| mapping.stopped != Some(Stopped::Unwanted))
    }

    fn stop(&mut self, is_meant: impl Fn(&RunningMapping) -> bool, why: Stopped, out: &mut Vec<Effect>) {
        for (number, mapping) in self.running.iter_mut().filter(|(_, mapping)| is_meant(mapping)) {
            if mapping.stopped.is_none() {
                out.push(Effect::StopMapping { number: *number });
            }
            mapping.stopped = mapping.stopped.max(Some(why));
        }
    }

    fn forget_turn(&mut self, client: NodeId) {
        let is_its = |request: &MapRequest| request.group.client == client;
        if !self.waiting.iter().any(is_its) && !self.running.values().any(|mapping| is_its(&mapping.job.request)) {
            self.turns.remove(&client);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::message::Purpose;
    use gridloom_map::{MappingMethod, Outline};
    use gridloom_perf::GridView;
    use std::collections::BTreeSet;

    fn request(client: u64, serial: u64) -> MapRequest {
        MapRequest {
            group: GroupId { client: NodeId(client), serial },
            round: 1,
            outline: Outline::default(),
            heuristic: MappingMethod::from("heft"),
            purpose: Purpose::Run,
            client_links: Vec::new(),
            unmeasured: BTreeSet::new(),
            excluded_servers: Vec::new(),
            busy: Vec::new(),
        }
    }

    fn begin(requests: &mut Requests, now: Time) -> Option<(u64, u64, u64)> {
        let request = requests.next(now)?;
        let GroupId { client, serial } = request.group;
        let number = requests.begin(now, Arc::new(MapJob { request, grid: GridView::default() }));
        Some((number, client.0, serial))
    }

    fn of(added: &[(u64, u64)]) -> Requests {
        let mut requests = Requests::default();
        for (client, serial) in added {
            requests.add(request(*client, *serial), &mut Vec::new()).unwrap();
        }
        requests
    }

    #[test]
    fn groups_are_mapped_one_after_another_and_clients_take_turns() {
        let mut requests = of(&[(1, 1), (1, 2), (1, 3), (2, 1)]);
        let mut order = Vec::new();
        while let Some((number, client, serial)) = begin(&mut requests, Time(0)) {
            assert_eq!(begin(&mut requests, Time(0)), None);
            order.push((client, serial));
            assert!(requests.end(number).is_some());
        }
        assert_eq!(order, [(1, 1), (2, 1), (1, 2), (1, 3)]);
        assert!(requests.turns.is_empty() && requests.len() == 0);
    }

    #[test]
    fn a_long_mapping_does_not_block_others_and_is_stopped() {
        let mut requests = of(&[(1, 1), (1, 2), (2, 1)]);
        let (long, ..) = begin(&mut requests, Time(0)).unwrap();
        let later = requests.next_check(Time(0)).unwrap();
        assert_eq!(begin(&mut requests, later).map(|(_, client, _)| client), Some(2));
        assert_eq!(begin(&mut requests, later + MAP_EXCLUSIVE_NS), None, "each client has one");
        let (end, mut out) = (Time(0) + MAP_NS_MAX, Vec::new());
        requests.stop_late(end, &mut out);
        assert_eq!(out, [Effect::StopMapping { number: long }]);
        assert_eq!(requests.end(long).map(|mapping| mapping.stopped), Some(Some(Stopped::Late)));
        assert_eq!(begin(&mut requests, end), Some((3, 1, 2)));
    }

    #[test]
    fn an_unwanted_mapping_is_stopped_and_counted_until_it_ends() {
        let mut requests = Requests::default();
        let mut out = Vec::new();
        for client in 0..=MAPPINGS_MAX as u64 {
            requests.add(request(client, 1), &mut out).unwrap();
            if let Some((number, ..)) = begin(&mut requests, Time(0)) {
                requests.forget_client(NodeId(client), &mut out);
                assert_eq!(out.pop(), Some(Effect::StopMapping { number }));
            }
        }
        assert_eq!((requests.running.len(), requests.len()), (MAPPINGS_MAX, 1));
        assert_eq!(begin(&mut requests, Time(0)), None, "all threads are busy");
        assert_eq!(requests.end(1).map(|mapping| mapping.stopped), Some(Some(Stopped::Unwanted)));
        assert!(begin(&mut requests, Time(0)).is_some() && out.is_empty());
    }

    #[test]
    fn a_group_has_one_request_and_a_client_a_bounded_number() {
        let mut requests = of(&[(1, 1), (1, 1)]);
        assert_eq!(requests.len(), 1);
        for serial in 2..=MAP_REQUESTS_MAX as u64 {
            requests.add(request(1, serial), &mut Vec::new()).unwrap();
        }
        assert!(requests.add(request(1, 0), &mut Vec::new()).is_err());
        assert!(requests.add(request(2, 0), &mut Vec::new()).is_ok());
    }
}

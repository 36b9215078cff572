//! Room for the next task when nothing runs and the store is full.
//!
//! 1. A later task goes ahead that has all its inputs here and room for its results. It ends, and may end the need for its inputs.
//! 2. Results of which this is the only copy go to their client, so that they can make way. Those that no task here reads go first;
//!    what a task reads is fetched again.
//!
//! ```text
//! server ──MakeRoom──▶ client ──Fetch──▶ server ──datum──▶ client ──HasCopies──▶ server: it may evict its copies
//! ```
//! So a group whose largest task has room ends, however much its data are together. Data that were put here to stay do not go.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{Admission, Output, send};
use crate::graph::Task;
use crate::node::message::TaskToClient;
use gridloom_base::limits::TAKE_HOME_NS_MAX;
use gridloom_base::{DatumId, NodeId, Time};

/// How many held tasks are looked at for one that can go ahead.
const LOOKED_AT_MAX: usize = 1024;

/// Results that go to their clients.
#[derive(Debug, Default)]
pub(super) struct Homeward {
    /// And when they were asked to.
    asked: BTreeMap<DatumId, Time>,
    /// Their clients could not take them.
    refused: BTreeSet<DatumId>,
}

impl Homeward {
    pub(super) fn forget(&mut self, datum: DatumId) {
        self.asked.remove(&datum);
        self.refused.remove(&datum);
    }

    pub(super) fn forget_client(&mut self, client: NodeId) {
        self.asked.retain(|datum, _| datum.client != client);
        self.refused.retain(|datum| datum.client != client);
    }

    /// Its client cannot take it, or has not done so for long.
    pub(super) fn is_left_here(&self, datum: DatumId, now: Time) -> bool {
        let is_slow = |since: &Time| now.since(*since) >= TAKE_HOME_NS_MAX;
        self.refused.contains(&datum) || self.asked.get(&datum).is_some_and(is_slow)
    }

    pub(super) fn len(&self) -> usize {
        self.asked.len() + self.refused.len()
    }
}

impl Admission {
    /// A held task that can run at once: the one that leaves most room when it has ended.
    pub(super) fn may_go_ahead(&self) -> Option<Arc<Task>> {
        let mut best: Option<(i128, &Arc<Task>)> = None;
        for entry in self.executor.held().take(LOOKED_AT_MAX) {
            let task = &entry.task;
            let inputs: BTreeSet<DatumId> = task.inputs().collect();
            let is_here = inputs.iter().all(|datum| self.replicas.is_here(*datum));
            if task.object().is_some() || inputs.is_empty() || !is_here {
                continue;
            }
            let needed = self.room_needed(task, &inputs);
            if !self.replicas.fits(needed) {
                continue;
            }
            let is_freed = |datum: &&DatumId| self.executor.readers(**datum) == 1 && self.replicas.may_go(**datum);
            let freed = inputs.iter().filter(is_freed).map(|datum| i128::from(self.size_bytes(*datum)));
            let growth = i128::from(needed) - freed.sum::<i128>();
            if best.is_none_or(|(least, _)| growth < least) {
                best = Some((growth, task));
            }
        }
        best.map(|(_, task)| task.clone())
    }

    /// Gives up places of data that did not come, as the tasks that were to read them are held back. True if there were such places.
    pub(super) fn give_up_places(&mut self, now: Time) -> bool {
        let places: Vec<DatumId> = self.replicas.idle_places().collect();
        for datum in &places {
            self.replicas.unreserve(*datum, now);
        }
        !places.is_empty()
    }

    /// Has clients take copies of results, so that so many bytes find room. False if that cannot be.
    pub(super) fn make_room(
        &mut self,
        now: Time,
        needed: u64,
        kept: &BTreeSet<DatumId>,
        out: &mut Vec<Output>,
    ) -> bool {
        let free = self.replicas.limit_bytes().saturating_sub(self.replicas.used_bytes());
        let missing = needed.saturating_sub(free);
        self.homeward.asked.retain(|datum, _| self.replicas.is_only_copy(*datum));
        let mut coming: u64 = self.homeward.asked.keys().map(|datum| self.replicas.size_bytes(*datum)).sum();
        let may_go = |datum: &DatumId| {
            let Homeward { asked, refused } = &self.homeward;
            !kept.contains(datum) && !asked.contains_key(datum) && !refused.contains(datum)
        };
        let mut others: Vec<(DatumId, u64)> = self.replicas.only_copies().filter(|(datum, _)| may_go(datum)).collect();
        if coming.saturating_add(others.iter().map(|(_, size_bytes)| size_bytes).sum()) < missing {
            return false;
        }
        others.sort_by_key(|(datum, size_bytes)| (self.executor.reads(*datum), Reverse(*size_bytes), *datum));
        let mut asked: BTreeMap<NodeId, Vec<DatumId>> = BTreeMap::new();
        for (datum, size_bytes) in others {
            if coming >= missing {
                break;
            }
            coming += size_bytes;
            self.homeward.asked.insert(datum, now);
            asked.entry(datum.client).or_default().push(datum);
        }
        for (client, data) in asked {
            send(out, client, TaskToClient::MakeRoom { data });
        }
        true
    }

    /// A client has a copy of what it was to take, or cannot take it.
    pub fn taken_home(&mut self, datum: DatumId, has_copy: bool) {
        if self.homeward.asked.remove(&datum).is_none() {
            return;
        }
        if has_copy {
            self.replicas.copied(datum);
        } else if self.replicas.is_here(datum) {
            self.homeward.refused.insert(datum);
        }
    }
}

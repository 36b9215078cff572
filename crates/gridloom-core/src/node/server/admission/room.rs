//! Memory for the next task when nothing runs and the store is full.
//!
//! 1. A later task is admitted first, if all its inputs are here and there is memory for its results. When it ends,
//!    its inputs may no longer be needed.
//! 2. Results of which this is the only copy are written back to their client, so that they can be evicted here.
//!    Results without readers here are written back first; results with readers are fetched again.
//!
//! ```text
//! server ──MakeRoom──▶ client ──Fetch──▶ server ──datum──▶ client ──HasCopies──▶ server: it may evict its copies
//! ```
//! A group therefore completes if its largest task fits, whatever the total size of its data. Data that were put here
//! to be kept are not written back.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{Admission, Output, send};
use crate::graph::Task;
use crate::node::message::TaskToClient;
use gridloom_base::limits::TAKE_HOME_NS_MAX;
use gridloom_base::{DatumId, NodeId, Time};

/// Maximum number of held tasks that are checked for one that can be admitted first.
const LOOKED_AT_MAX: usize = 1024;

/// Results that are being written back to their clients.
#[derive(Debug, Default)]
pub(super) struct Homeward {
    /// Results that the clients were asked to fetch, with the time of the request.
    asked: BTreeMap<DatumId, Time>,
    /// Results that their clients could not take.
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

    /// True if a result's client cannot take it, or has not taken it within [`TAKE_HOME_NS_MAX`].
    pub(super) fn is_left_here(&self, datum: DatumId, now: Time) -> bool {
        let is_slow = |since: &Time| now.since(*since) >= TAKE_HOME_NS_MAX;
        self.refused.contains(&datum) || self.asked.get(&datum).is_some_and(is_slow)
    }

    pub(super) fn len(&self) -> usize {
        self.asked.len() + self.refused.len()
    }
}

impl Admission {
    /// Returns the held task that can run at once and leaves the most free memory when it has ended.
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

    /// Releases the reservations of data that did not arrive and whose readers were requeued. Returns true if there were any.
    pub(super) fn give_up_places(&mut self, now: Time) -> bool {
        let places: Vec<DatumId> = self.replicas.idle_places().collect();
        for datum in &places {
            self.replicas.unreserve(*datum, now);
        }
        !places.is_empty()
    }

    /// Asks clients to fetch copies of results, so that `needed` bytes will fit. Returns false if that is impossible.
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

    /// Handles a client's answer to `MakeRoom`: it has a copy of the datum, or cannot take one.
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

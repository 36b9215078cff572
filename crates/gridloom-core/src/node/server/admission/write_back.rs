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

use super::{Admission, AdmissionOutput, send};
use crate::graph::Task;
use crate::node::message::TaskToClient;
use gridloom_base::limits::WRITE_BACK_NS_MAX;
use gridloom_base::{DatumId, NodeId, Time};

/// Maximum number of held tasks that are checked for one that can be admitted first.
const CHECKED_TASKS_MAX: usize = 1024;

/// Results that are being written back to their clients.
#[derive(Debug, Default)]
pub(super) struct WriteBack {
    /// Results that the clients were asked to fetch, with the time of the request.
    asked: BTreeMap<DatumId, Time>,
    /// Results that their clients could not take.
    refused: BTreeSet<DatumId>,
}

impl WriteBack {
    pub(super) fn forget(&mut self, datum: DatumId) {
        self.asked.remove(&datum);
        self.refused.remove(&datum);
    }

    pub(super) fn forget_client(&mut self, client: NodeId) {
        self.asked.retain(|datum, _| datum.client != client);
        self.refused.retain(|datum| datum.client != client);
    }

    /// True if a result's client cannot take it, or has not taken it within [`WRITE_BACK_NS_MAX`].
    pub(super) fn is_not_written_back(&self, datum: DatumId, now: Time) -> bool {
        let is_slow = |since: &Time| now.since(*since) >= WRITE_BACK_NS_MAX;
        self.refused.contains(&datum) || self.asked.get(&datum).is_some_and(is_slow)
    }

    pub(super) fn len(&self) -> usize {
        self.asked.len() + self.refused.len()
    }
}

impl Admission {
    /// Returns the held task that can run at once and leaves the most free memory when it has ended.
    pub(super) fn next_out_of_order(&self) -> Option<Arc<Task>> {
        let mut best: Option<(i128, &Arc<Task>)> = None;
        for entry in self.executor.held().take(CHECKED_TASKS_MAX) {
            let task = &entry.task;
            let inputs: BTreeSet<DatumId> = task.inputs().collect();
            let is_here = inputs.iter().all(|datum| self.replicas.is_here(*datum));
            if task.object().is_some() || inputs.is_empty() || !is_here || self.exceeds_quota(task.id) {
                continue;
            }
            let needed = self.bytes_needed(task, &inputs);
            if !self.replicas.fits(needed) {
                continue;
            }
            let is_freed =
                |datum: &&DatumId| self.executor.readers(**datum) == 1 && self.replicas.is_droppable(**datum);
            let freed = inputs.iter().filter(is_freed).map(|datum| i128::from(self.size_bytes(*datum)));
            let growth = i128::from(needed) - freed.sum::<i128>();
            if best.is_none_or(|(least, _)| growth < least) {
                best = Some((growth, task));
            }
        }
        best.map(|(_, task)| task.clone())
    }

    /// Releases the reservations of data that did not arrive and whose readers were requeued. Returns true if there were any.
    pub(super) fn release_idle_reservations(&mut self, now: Time) -> bool {
        let places: Vec<DatumId> = self.replicas.idle_reservations().collect();
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
        out: &mut Vec<AdmissionOutput>,
    ) -> bool {
        let free = self.replicas.limit_bytes().saturating_sub(self.replicas.used_bytes());
        self.write_back_of(now, needed.saturating_sub(free), kept, |_| true, out)
    }

    /// Asks clients to fetch copies of results of which `is_one` returns true, so that `missing` bytes can be evicted. Returns
    /// false if that is impossible.
    pub(super) fn write_back_of(
        &mut self,
        now: Time,
        missing: u64,
        kept: &BTreeSet<DatumId>,
        is_one: impl Fn(DatumId) -> bool,
        out: &mut Vec<AdmissionOutput>,
    ) -> bool {
        self.write_back.asked.retain(|datum, _| self.replicas.is_only_copy(*datum));
        let asked = self.write_back.asked.keys().filter(|datum| is_one(**datum));
        let mut coming: u64 = asked.map(|datum| self.replicas.size_bytes(*datum)).sum();
        let may_go = |datum: &DatumId| {
            let WriteBack { asked, refused } = &self.write_back;
            is_one(*datum) && !kept.contains(datum) && !asked.contains_key(datum) && !refused.contains(datum)
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
            self.write_back.asked.insert(datum, now);
            asked.entry(datum.client).or_default().push(datum);
        }
        for (client, data) in asked {
            send(out, client, TaskToClient::MakeRoom { data });
        }
        true
    }

    /// Handles a client's answer to `MakeRoom`: it has a copy of the datum, or cannot take one.
    pub fn written_back(&mut self, datum: DatumId, has_copy: bool) {
        if self.write_back.asked.remove(&datum).is_none() {
            return;
        }
        if has_copy {
            self.replicas.mark_copied(datum);
        } else if self.replicas.is_here(datum) {
            self.write_back.refused.insert(datum);
        }
    }
}

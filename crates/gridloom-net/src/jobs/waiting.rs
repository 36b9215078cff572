//! Workers whose tasks are waiting. Meanwhile, they give up their slots.
//!
//! **Limit:** the number of workers that wait for a program's reply without a slot is at most the number of slots;
//! further ones keep theirs. All workers that wait for calls of their own give up their slots, because these calls
//! need slots.

use super::link::WaitReason;
use super::{Jobs, WorkerToken};

/// Maximum number of workers kept without a slot.
const SPARE_WORKERS_MAX: usize = 4;

impl Jobs {
    /// Updates the slot of a worker that sent a message. A worker whose task waits gives up its slot; an idle worker
    /// without a slot is kept as a spare.
    pub(super) fn update_slot(&mut self, token: WorkerToken) {
        let Some(link) = self.pool.get(token) else { return };
        let (waits, is_free) = (link.pause != WaitReason::None, link.is_idle() && link.end.since.is_none());
        let has_slot = self.slots.iter().flatten().any(|slot| *slot == Some(token));
        if has_slot && !waits {
            return;
        }
        if !has_slot && is_free {
            self.spare(token);
        }
        while let Some(asking) = self.next_to_release() {
            self.release_slot(asking);
        }
    }

    /// Returns a waiting worker that has a slot, if one more worker may give up its slot.
    fn next_to_release(&self) -> Option<WorkerToken> {
        let mut in_slots = self.slots.iter().flatten().flatten();
        if let Some(calling) = in_slots.find(|token| self.pool.link(**token).pause == WaitReason::Calls) {
            return Some(*calling);
        }
        let mut in_slots =
            self.slots.iter().flatten().flatten().filter(|token| self.pool.link(**token).pause == WaitReason::Answer);
        let next = in_slots.next().copied()?;
        let asking = self.pool.iter().filter(|(_, link)| link.pause == WaitReason::Answer).count();
        let outside = asking - 1 - in_slots.count();
        (outside < self.slots.len()).then_some(next)
    }

    /// Takes a worker's slot away. The tasks queued behind its running task go to other workers.
    fn release_slot(&mut self, token: WorkerToken) {
        self.slots.iter_mut().flatten().filter(|slot| **slot == Some(token)).for_each(|slot| *slot = None);
        let Some(link) = self.pool.get_mut(token) else { return };
        let mut kept = Vec::new();
        while link.tasks.len() > 1 {
            let Some(last) = link.tasks.pop_back() else { break };
            if last.stopped || !link.board().withdraw(last.serial) {
                kept.push(last);
            } else {
                self.backlog.push_front(last.pending);
            }
        }
        link.tasks.extend(kept.into_iter().rev());
    }

    fn spare(&mut self, token: WorkerToken) {
        let is_of_object = self.objects.values().any(|worker| *worker == token);
        if is_of_object || self.spare_workers.contains(&token) {
            return;
        }
        if self.spare_workers.len() < SPARE_WORKERS_MAX {
            return self.spare_workers.push(token);
        }
        self.pool.ask_to_end(token);
    }
}

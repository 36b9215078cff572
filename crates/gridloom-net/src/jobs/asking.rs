//! Workers whose tasks wait for what their programs say: they leave their slots to others meanwhile.
//!
//! **Limit:** as many as there are slots leave theirs at a time; others that ask keep theirs.

use std::time::Instant;

use super::{Jobs, WorkerToken};

/// Workers that are kept without a slot.
const SPARES_MAX: usize = 4;

impl Jobs {
    /// A worker was heard. Who asks leaves its slot; one without a slot that has nothing to do any more is kept for the next.
    pub(super) fn look_after_slot(&mut self, token: WorkerToken) {
        let Some(link) = self.links.get(&token) else { return };
        let (asks, is_free) = (link.asks, link.is_idle() && link.ending.is_none());
        let has_slot = self.slots.iter().flatten().any(|slot| *slot == Some(token));
        if has_slot && !asks {
            return;
        }
        if !has_slot && is_free {
            self.spare(token);
        }
        while let Some(asking) = self.next_to_leave() {
            self.leave_slot(asking);
        }
    }

    /// A worker that asks and has a slot, if one more may leave its own.
    fn next_to_leave(&self) -> Option<WorkerToken> {
        let mut in_slots = self.slots.iter().flatten().flatten().filter(|token| self.links[token].asks);
        let next = in_slots.next().copied()?;
        let asking = self.links.values().filter(|link| link.asks).count();
        let outside = asking - 1 - in_slots.count();
        (outside < self.slots.len()).then_some(next)
    }

    /// What is queued behind its task goes elsewhere.
    fn leave_slot(&mut self, token: WorkerToken) {
        self.slots.iter_mut().flatten().filter(|slot| **slot == Some(token)).for_each(|slot| *slot = None);
        let Some(link) = self.links.get_mut(&token) else { return };
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
        if is_of_object || self.spares.contains(&token) {
            return;
        }
        if self.spares.len() < SPARES_MAX {
            return self.spares.push(token);
        }
        if let Some(link) = self.links.get_mut(&token) {
            link.ending = Some(Instant::now());
            link.hang_up();
            self.ending.insert(token);
        }
    }
}

//! Workers whose tasks wait for what their programs say: they leave their slots to others meanwhile.

use std::time::Instant;

use super::{Jobs, WorkerToken};

/// Workers that are kept without a slot.
const SPARES_MAX: usize = 4;

impl Jobs {
    /// A worker was heard: it leaves its slot if its task asks, and what is queued behind that goes elsewhere; one without a
    /// slot that has nothing to do any more is kept for the next.
    pub(super) fn look_after_slot(&mut self, token: WorkerToken) {
        let Some(link) = self.links.get_mut(&token) else { return };
        let slot = self.slots.iter_mut().flatten().find(|slot| **slot == Some(token));
        match slot {
            Some(slot) if link.asks => {
                *slot = None;
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
            None if link.is_idle() && link.ending.is_none() => self.spare(token),
            Some(_) | None => {}
        }
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

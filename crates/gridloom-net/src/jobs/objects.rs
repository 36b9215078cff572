//! Objects: each a worker of its own, from its first method until it ends.

use std::time::Instant;

use gridloom_core::base::{ObjectId, TaskError};
use gridloom_core::idl::class_of;
use gridloom_core::idl::method::INITIALIZE;

use super::link::Pending;
use super::{END_GRACE, Jobs, WorkerToken};

impl Jobs {
    /// Ends an object's worker, which has time to end well unless it runs something. No effect on one that is not there.
    pub fn end_object(&mut self, object: ObjectId) {
        let Some(token) = self.objects.remove(&object) else { return };
        let Some(link) = self.links.get_mut(&token) else { return };
        match link.tasks.is_empty() {
            true => {
                link.ending = Some(Instant::now());
                link.hang_up();
                self.ending.insert(token);
            }
            false => link.kill(),
        }
    }

    /// Kills workers of objects that do not end by themselves.
    pub(super) fn end_the_slow(&mut self) {
        let links = &mut self.links;
        self.ending.retain(|token| {
            let Some(link) = links.get_mut(token) else { return false };
            let is_slow = link.ending.is_some_and(|since| since.elapsed() >= END_GRACE);
            if is_slow {
                link.kill();
            }
            !is_slow
        });
    }

    /// Whether as many tasks run as there are slots, those that wait behind others apart.
    pub(super) fn is_full(&self) -> bool {
        !self.objects.is_empty() && self.busy() >= self.slots.len()
    }

    fn busy(&self) -> usize {
        let with_tasks = self.links.values().filter(|link| !link.tasks.is_empty());
        let asking = self.links.values().filter(|link| link.asks).count();
        with_tasks.count() - asking.min(self.slots.len())
    }

    /// Whether a method of that object can be sent now, or is known to fail.
    pub(super) fn can_run_method(&self, object: ObjectId) -> bool {
        let is_free = |token: &WorkerToken| self.links.get(token).is_none_or(|link| link.has_room(1));
        self.busy() < self.slots.len() && self.objects.get(&object).is_none_or(is_free)
    }

    /// The worker of an object, a new one for a new object.
    ///
    /// # Errors
    /// If the object's worker has ended.
    pub(super) fn worker_of_object(
        &mut self,
        object: ObjectId,
        pending: &Pending,
    ) -> Result<std::io::Result<WorkerToken>, TaskError> {
        if let Some(token) = self.objects.get(&object) {
            return Ok(Ok(*token));
        }
        let function = &pending.task.function;
        if class_of(function).is_none_or(|(_, method)| method != INITIALIZE) {
            let (function, server) = (function.clone(), self.config.server_name.clone());
            let why = "its process has ended".to_string();
            return Err(TaskError::ObjectLost { function, server, why });
        }
        Ok(self.new_worker(pending.kind).inspect(|token| {
            self.objects.insert(object, *token);
        }))
    }
}

//! Objects: each has a worker of its own, from its first method call until it ends.

use gridloom_base::{ObjectId, TaskError};

use super::link::{Pending, WaitReason};
use super::{Jobs, WorkerToken};

impl Jobs {
    /// Ends an object's worker. If it is not running a method, it gets time to end by itself. Does nothing if the
    /// worker does not exist.
    pub fn end_object(&mut self, object: ObjectId) {
        let Some(token) = self.objects.remove(&object) else { return };
        let Some(link) = self.pool.get_mut(token) else { return };
        match link.tasks.is_empty() {
            true => self.pool.ask_to_end(token),
            false => link.kill(),
        }
    }

    /// Reports whether as many tasks run as there are slots, not counting tasks queued behind others.
    pub(super) fn is_full(&self) -> bool {
        !self.objects.is_empty() && self.busy() >= self.slots.len()
    }

    fn busy(&self) -> usize {
        let with_tasks = self.pool.iter().filter(|(_, link)| !link.tasks.is_empty());
        let paused = |pause| self.pool.iter().filter(|(_, link)| link.pause == pause).count();
        with_tasks.count() - paused(WaitReason::Calls) - paused(WaitReason::Answer).min(self.slots.len())
    }

    /// Reports whether a method of this object can be sent now, or is known to fail.
    pub(super) fn can_run_method(&self, object: ObjectId) -> bool {
        let is_free = |token: &WorkerToken| self.pool.get(*token).is_none_or(|link| link.has_room(1));
        self.busy() < self.slots.len() && self.objects.get(&object).is_none_or(is_free)
    }

    /// Returns the worker of an object, starting one for a new object.
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
        if pending.task.method().is_none_or(|(method, _)| !method.is_initialize()) {
            let (function, server) = (pending.task.name().to_string(), self.config.server_name.clone());
            let why = "its process has ended".to_string();
            return Err(TaskError::ObjectMissing { function, server, why });
        }
        let user = self.worker_user(pending);
        Ok(self.pool.spawn(pending.kind, pending.run_as.clone(), user.as_ref()).inspect(|token| {
            self.objects.insert(object, *token);
        }))
    }
}

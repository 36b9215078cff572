//! Objects: each a worker of its own, from its first method until it ends.

use gridloom_base::{ObjectId, TaskError};

use super::link::{Pause, Pending};
use super::{Jobs, WorkerToken};

impl Jobs {
    /// Ends an object's worker, which has time to end well unless it runs something. No effect on one that is not there.
    pub fn end_object(&mut self, object: ObjectId) {
        let Some(token) = self.objects.remove(&object) else { return };
        let Some(link) = self.pool.get_mut(token) else { return };
        match link.tasks.is_empty() {
            true => self.pool.tell_to_end(token),
            false => link.kill(),
        }
    }

    /// Whether as many tasks run as there are slots, those that wait behind others apart.
    pub(super) fn is_full(&self) -> bool {
        !self.objects.is_empty() && self.busy() >= self.slots.len()
    }

    fn busy(&self) -> usize {
        let with_tasks = self.pool.iter().filter(|(_, link)| !link.tasks.is_empty());
        let paused = |pause| self.pool.iter().filter(|(_, link)| link.pause == pause).count();
        with_tasks.count() - paused(Pause::Calls) - paused(Pause::Answer).min(self.slots.len())
    }

    /// Whether a method of that object can be sent now, or is known to fail.
    pub(super) fn can_run_method(&self, object: ObjectId) -> bool {
        let is_free = |token: &WorkerToken| self.pool.get(*token).is_none_or(|link| link.has_room(1));
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
        if pending.task.method().is_none_or(|(method, _)| !method.is_initialize()) {
            let (function, server) = (pending.task.name().to_string(), self.config.server_name.clone());
            let why = "its process has ended".to_string();
            return Err(TaskError::ObjectLost { function, server, why });
        }
        Ok(self.pool.spawn(pending.kind).inspect(|token| {
            self.objects.insert(object, *token);
        }))
    }
}

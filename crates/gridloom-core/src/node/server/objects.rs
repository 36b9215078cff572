//! Objects of classes at this server. Each has a process of its own, made by its first method. Its methods run one at
//! a time in the order of the calls (`exec/lines.rs`), and at most once.
//!
//! **Invariant:** a method runs only on an object with the state that all earlier methods produced. A method that is
//! interrupted (by a crash or a stop) loses the object, and the object's other methods fail.

use std::collections::BTreeMap;

use crate::graph::{Task, TaskKind};
use gridloom_base::limits::OBJECTS_MAX;
use gridloom_base::{NodeId, ObjectId, TaskError, TaskId};
use gridloom_idl::method_of;

#[derive(Debug, Default)]
pub(super) struct Objects(BTreeMap<ObjectId, Object>);

#[derive(Debug)]
struct Object {
    class: String,
    /// Its `_initialize` call.
    made_by: TaskId,
    /// The user of that call.
    user: Option<Box<str>>,
}

impl Objects {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Checks that a task is not a method, or is a method that may run. Adds a new object.
    /// `is_offered` states whether the server offers a function of that name.
    pub(super) fn check_and_add(
        &mut self,
        task: &Task,
        is_call: bool,
        is_offered: impl FnOnce(&str) -> bool,
        server: &str,
    ) -> Result<(), TaskError> {
        let (function, server) = (task.name().to_string(), server.to_string());
        let refused = |why: String| TaskError::Refused { function: function.clone(), server: server.clone(), why };
        let (method, object) = match &task.kind {
            TaskKind::Method { method, object, .. } => (method, *object),
            TaskKind::Replicate(_) | TaskKind::Publish(_) | TaskKind::View { .. } => return Ok(()),
            TaskKind::Call { function, .. } => match method_of(function, is_offered) {
                None => return Ok(()),
                Some((class, _)) => {
                    let why = format!("it is a method of class '{class}': make an object and call the method on it");
                    return Err(refused(why));
                }
            },
        };
        if !is_call || object.client != task.id.client {
            return Err(refused("only the client that made an object may call its methods, and not in a group".into()));
        }
        match self.0.get(&object) {
            None if method.is_initialize() && self.0.len() < OBJECTS_MAX => {
                let user = task.options.user.clone();
                self.0.insert(object, Object { class: method.class().to_string(), made_by: task.id, user });
                Ok(())
            }
            None if method.is_initialize() => Err(refused(format!(
                "the server has {OBJECTS_MAX} objects, the limit of a server; end some, or add a server"
            ))),
            // The process of an object serves one user.
            Some(known) if known.user != task.options.user => {
                Err(refused("the object belongs to another user, and only calls of its user may use it".into()))
            }
            Some(known) if known.class == method.class() && !method.is_initialize() => Ok(()),
            Some(known) => Err(refused(format!("the object already exists, with class '{}'", known.class))),
            None => {
                let why = "the object ended, or was lost with its process".to_string();
                Err(TaskError::ObjectMissing { function, server, why })
            }
        }
    }

    /// Removes an object without methods if the given call was to make it.
    pub(super) fn not_made(&mut self, object: ObjectId, task: TaskId) {
        if self.0.get(&object).is_some_and(|known| known.made_by == task) {
            self.0.remove(&object);
        }
    }

    /// Handles the end of a method. Returns its object if the object ends with it.
    #[must_use]
    pub(super) fn method_ended<T>(&mut self, task: &Task, outcome: &Result<T, TaskError>) -> Option<ObjectId> {
        let (method, object) = task.method()?;
        let goes_on = match outcome {
            _ if method.is_finalize() => false,
            Ok(_) => true,
            Err(_) if method.is_initialize() => false,
            Err(
                TaskError::Crashed { .. }
                | TaskError::MemoryExceeded { .. }
                | TaskError::ProcessesExceeded { .. }
                | TaskError::TimeExceeded { .. }
                | TaskError::Cancelled
                | TaskError::ObjectMissing { .. },
            ) => false,
            Err(_) => true,
        };
        if goes_on {
            return None;
        }
        self.0.remove(&object);
        Some(object)
    }

    /// Handles a client's cancellation of a call that has already ended here. Returns the object that the call made,
    /// which nobody uses.
    #[must_use]
    pub(super) fn remove_made_by(&mut self, task: TaskId) -> Option<ObjectId> {
        let made = self.0.iter().find(|(_, object)| object.made_by == task);
        let object = made.map(|(object, _)| *object)?;
        self.0.remove(&object);
        Some(object)
    }

    /// Handles a method that did not run. Returns its object if the object ends: it cannot exist without its
    /// `_initialize`, nor after its `_finalize`.
    #[must_use]
    pub(super) fn method_not_run(&mut self, task: &Task) -> Option<ObjectId> {
        let (method, object) = task.method()?;
        let ends = (method.is_initialize() || method.is_finalize()) && self.0.remove(&object).is_some();
        ends.then_some(object)
    }

    /// Removes and returns the objects of a lost client.
    pub(super) fn forget_client(&mut self, client: NodeId) -> Vec<ObjectId> {
        let (first, last) = (ObjectId { client, serial: 0 }, ObjectId { client, serial: u64::MAX });
        let gone: Vec<ObjectId> = self.0.range(first..=last).map(|(object, _)| *object).collect();
        self.0.retain(|object, _| object.client != client);
        gone
    }

    pub(super) fn check(&self) -> Result<(), String> {
        if self.0.len() > OBJECTS_MAX || self.0.iter().any(|(id, object)| id.client != object.made_by.client) {
            return Err(format!(
                "{} objects exist (the limit is {OBJECTS_MAX}), or one was made by another client",
                self.len()
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(serial: u64, method: &str) -> Task {
        let client = NodeId(7);
        Task {
            id: TaskId { client, serial },
            kind: TaskKind::method(&format!("m/c.{method}"), ObjectId { client, serial: 1 }, 0),
            args: Vec::new(),
            outputs: Vec::new(),
            work_flops: None,
            options: Default::default(),
        }
    }

    #[test]
    fn an_object_is_made_once_and_lost_with_an_interrupted_method() {
        let mut objects = Objects::default();
        let is_offered = |name: &str| name == "m/c._initialize";
        let lost = |refusal| matches!(refusal, Err(TaskError::ObjectMissing { .. }));
        assert!(lost(objects.check_and_add(&task(1, "add"), true, is_offered, "s")));
        objects.check_and_add(&task(2, "_initialize"), true, is_offered, "s").unwrap();
        assert!(matches!(
            objects.check_and_add(&task(3, "_initialize"), true, is_offered, "s"),
            Err(TaskError::Refused { .. })
        ));
        objects.check_and_add(&task(4, "add"), true, is_offered, "s").unwrap();
        assert_eq!(objects.method_ended(&task(4, "add"), &Ok(())), None);
        assert!(objects.method_ended::<()>(&task(5, "add"), &Err(TaskError::Cancelled)).is_some());
        assert!(lost(objects.check_and_add(&task(6, "add"), true, is_offered, "s")));
        objects.check().unwrap();
    }

    #[test]
    fn methods_are_called_on_objects_only() {
        let mut objects = Objects::default();
        let is_offered = |name: &str| name == "m/c._initialize";
        let call = |name: &str| Task { kind: TaskKind::call(name, 0), ..task(1, "add") };
        objects.check_and_add(&call("m/f"), false, is_offered, "s").unwrap();
        objects.check_and_add(&call("m/other.f"), true, is_offered, "s").unwrap();
        assert!(objects.check_and_add(&call("m/c.add"), true, is_offered, "s").is_err());
        assert!(objects.check_and_add(&task(1, "_initialize"), false, is_offered, "s").is_err(), "in a group");
    }
}

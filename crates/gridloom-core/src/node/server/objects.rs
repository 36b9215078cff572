//! Objects of classes: which are here. Each has a process of its own, made by the first method that runs there; its methods run
//! one at a time in the order of the calls ([`Executor`]), and at most once.
//!
//! **Invariant:** a method runs only on an object whose state is that of all its methods before: with whatever breaks one off
//! in its middle (a crash, a stop) the object is lost, and its other methods fail.

use crate::base::ObjectId;
use crate::base::limits::OBJECTS_MAX;
use crate::idl::class_of;
use crate::idl::method::{FINALIZE, INITIALIZE, runs_by_itself};

use super::*;

/// Those that are here.
#[derive(Debug, Default)]
pub(super) struct Objects(BTreeMap<ObjectId, Object>);

#[derive(Debug)]
struct Object {
    class: String,
    /// Its `_initialize`.
    made_by: TaskId,
}

impl Objects {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// A client is gone, and with it its objects.
    pub(super) fn forget_client(&mut self, client: NodeId) -> Vec<ObjectId> {
        let (first, last) = (ObjectId { client, serial: 0 }, ObjectId { client, serial: u64::MAX });
        let gone: Vec<ObjectId> = self.0.range(first..=last).map(|(object, _)| *object).collect();
        self.0.retain(|object, _| object.client != client);
        gone
    }
}

impl Server {
    /// Whether a task may run as the method that it is, or is none; a new object is entered.
    pub(super) fn check_object(&mut self, task: &Task, is_call: bool) -> Result<(), TaskError> {
        let (function, server) = (task.function.clone(), self.config.name.clone());
        let refused = |why: String| TaskError::Refused { function: function.clone(), server: server.clone(), why };
        let (object, class, method) = match (task.object, class_of(&task.function)) {
            (None, None) => return Ok(()),
            (Some(_), None) => return Err(refused("it is no method, and was called as one of an object".into())),
            (None, Some((class, _))) => {
                return Err(refused(format!("it is a method of class '{class}': make an object, and call it there")));
            }
            (Some(object), Some((class, method))) => (object, class, method),
        };
        if !is_call || object.client != task.id.client {
            return Err(refused("only its maker calls an object's methods, each by itself".into()));
        }
        match self.objects.0.get(&object) {
            None if method == INITIALIZE && self.objects.0.len() < OBJECTS_MAX => {
                self.objects.0.insert(object, Object { class: class.to_string(), made_by: task.id });
                Ok(())
            }
            None if method == INITIALIZE => Err(refused(format!(
                "it keeps {OBJECTS_MAX} objects, as many as a server may; end some, or add a server"
            ))),
            Some(known) if known.class == class && method != INITIALIZE => Ok(()),
            Some(known) => Err(refused(format!("the object is there, of class '{}'", known.class))),
            None => {
                let why = "it has ended, or was lost with its process".to_string();
                Err(TaskError::ObjectLost { function, server, why })
            }
        }
    }

    /// The call that was to make an object is none.
    pub(super) fn not_made(&mut self, object: ObjectId, task: TaskId) {
        let is_of = |known: &Object| known.made_by == task;
        if self.executor.of_object(object).is_empty() && self.objects.0.get(&object).is_some_and(is_of) {
            self.objects.0.remove(&object);
        }
    }

    /// A method has ended. Gives its object if that is no more.
    pub(super) fn after_method<T>(
        &mut self,
        task: &Task,
        outcome: &Result<T, TaskError>,
        out: &mut Vec<Effect>,
    ) -> Option<ObjectId> {
        let object = task.object?;
        let method = class_of(&task.function).map_or("", |(_, method)| method);
        let goes_on = match outcome {
            _ if method == FINALIZE => false,
            Ok(_) => true,
            Err(_) if method == INITIALIZE => false,
            Err(TaskError::Crashed { .. } | TaskError::Cancelled | TaskError::ObjectLost { .. }) => false,
            Err(_) => true,
        };
        if goes_on {
            return None;
        }
        self.objects.0.remove(&object);
        out.push(Effect::EndObject { object });
        Some(object)
    }

    /// A call is given up by its client, that has ended here before: an object that it has made is nobody's.
    pub(super) fn made_for_nobody(&mut self, now: Time, task: TaskId, out: &mut Vec<Effect>) {
        let made = self.objects.0.iter().find(|(_, object)| object.made_by == task);
        let Some(object) = made.map(|(object, _)| *object) else { return };
        self.objects.0.remove(&object);
        out.push(Effect::EndObject { object });
        self.object_lost(now, object, out);
    }

    /// A method did not run: without its beginning or its end an object is none.
    pub(super) fn method_given_up(&mut self, now: Time, task: &Task, out: &mut Vec<Effect>) {
        let Some((object, (_, method))) = task.object.zip(class_of(&task.function)) else { return };
        if runs_by_itself(method) && self.objects.0.remove(&object).is_some() {
            out.push(Effect::EndObject { object });
            self.object_lost(now, object, out);
        }
    }

    /// What still waits for its turn on an object that is no more fails.
    pub(super) fn object_lost(&mut self, now: Time, object: ObjectId, out: &mut Vec<Effect>) {
        for id in self.executor.of_object(object) {
            // One that runs ends with its process.
            let Some(entry) = self.executor.get(id).filter(|entry| entry.state != State::Running) else { continue };
            let (function, server) = (entry.task.function.clone(), self.config.name.clone());
            let why = "it ended, or was lost, in a call before this one".to_string();
            self.give_up(now, id, TaskError::ObjectLost { function, server, why }, out);
        }
    }
}

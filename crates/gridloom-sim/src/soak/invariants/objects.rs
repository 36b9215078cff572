//! Methods of an object run on the server where it was made, one at a time, in the order of the calls, each at most once; none
//! runs after its end, or after its server began anew.

use std::collections::BTreeMap;

use gridloom_core::base::{NodeId, ObjectId, TaskId, Time};
use gridloom_core::graph::Task;
use gridloom_core::idl::class_of;
use gridloom_core::idl::method::{FINALIZE, INITIALIZE};

use super::{Check, Invariant};
use crate::sighting::Sighting;
use crate::simulation::Simulation;
use crate::soak::ledger::Ledger;

pub(super) const INVARIANT: Invariant = Invariant {
    name: "objects keep their state",
    about: "methods of an object run where it was made, one at a time, in order, at most once, and not after its end",
    make: || Box::<Objects>::default(),
};

#[derive(Default)]
struct Objects {
    all: BTreeMap<ObjectId, Object>,
    methods: u64,
}

struct Object {
    at: NodeId,
    last: TaskId,
    is_running: bool,
    is_over: bool,
}

impl Objects {
    fn started(&mut self, node: NodeId, task: &Task, id: ObjectId) -> Result<(), String> {
        let method = class_of(&task.function).map_or("", |(_, method)| method);
        self.methods += 1;
        let Some(object) = self.all.get_mut(&id) else {
            let begun = Object { at: node, last: task.id, is_running: true, is_over: false };
            self.all.insert(id, begun);
            return if method == INITIALIZE { Ok(()) } else { Err(format!("{id} begins with {method}")) };
        };
        let what = match () {
            () if method == INITIALIZE => "begins once more",
            () if object.at != node => "runs elsewhere",
            () if object.is_over => "runs after its end",
            () if object.is_running => "runs two methods",
            () if object.last >= task.id => "runs a method late, or again",
            () => {
                (object.last, object.is_running, object.is_over) = (task.id, true, method == FINALIZE);
                return Ok(());
            }
        };
        Err(format!("{id} {what}: {} ({method}) on {node}, after {}", task.id, object.last))
    }
}

impl Check for Objects {
    fn see(&mut self, _: &Simulation, _: &Ledger, _: Time, sighting: &Sighting) -> Result<(), String> {
        match sighting {
            Sighting::Started { node, task } => match task.object {
                Some(object) => self.started(*node, task, object),
                None => Ok(()),
            },
            Sighting::Ended { node, task } => {
                let ended = self.all.values_mut().filter(|object| object.at == *node && object.last == *task);
                ended.for_each(|object| object.is_running = false);
                Ok(())
            }
            Sighting::Begins { node } => {
                self.all.values_mut().filter(|object| object.at == *node).for_each(|object| object.is_over = true);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn reached(&self) -> Vec<(&'static str, u64)> {
        vec![("objects were made", self.all.len() as u64), ("methods of objects ran", self.methods)]
    }
}

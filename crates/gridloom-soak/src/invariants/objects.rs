//! Methods of an object run on the server where it was created: one at a time, in call order, each at most once. None
//! runs after the object's end, or after its server restarted.

use std::collections::BTreeMap;

use gridloom_base::{NodeId, ObjectId, TaskId, Time};
use gridloom_core::graph::Task;
use gridloom_idl::MethodName;

use super::{Invariant, InvariantCheck};
use crate::ledger::Ledger;
use gridloom_sim::Simulation;
use gridloom_sim::inspect::SimEvent;

pub(crate) const INVARIANT: Invariant = Invariant {
    name: "objects keep their state",
    about: "an object's methods run where it was created, one at a time, in order, at most once, and not after its end",
    new_check: || Box::<Objects>::default(),
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
    fn started(&mut self, node: NodeId, task: &Task, method: &MethodName, id: ObjectId) -> Result<(), String> {
        self.methods += 1;
        let Some(object) = self.all.get_mut(&id) else {
            let begun = Object { at: node, last: task.id, is_running: true, is_over: false };
            self.all.insert(id, begun);
            return if method.is_initialize() { Ok(()) } else { Err(format!("{id} begins with {}", method.method())) };
        };
        let what = match () {
            () if method.is_initialize() => "begins again",
            () if object.at != node => "runs elsewhere",
            () if object.is_over => "runs after its end",
            () if object.is_running => "runs two methods",
            () if object.last >= task.id => "runs a method late or twice",
            () => {
                (object.last, object.is_running, object.is_over) = (task.id, true, method.is_finalize());
                return Ok(());
            }
        };
        Err(format!("{id} {what}: {} ({}) on {node}, after {}", task.id, method.method(), object.last))
    }
}

impl InvariantCheck for Objects {
    fn observe(&mut self, _: &Simulation, _: &Ledger, _: Time, event: &SimEvent) -> Result<(), String> {
        match event {
            SimEvent::Started { node, task } => match task.method() {
                Some((method, object)) => self.started(*node, task, method, object),
                None => Ok(()),
            },
            SimEvent::Ended { node, task } => {
                let ended = self.all.values_mut().filter(|object| object.at == *node && object.last == *task);
                ended.for_each(|object| object.is_running = false);
                Ok(())
            }
            SimEvent::Starts { node } => {
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

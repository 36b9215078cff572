//! Tasks that end or are returned before they run, and the handling of their data.

use std::collections::BTreeSet;

use super::{Admission, AdmissionOutput, send};
use crate::data::Origin;
use crate::exec::{State, TaskEntry};
use crate::graph::Task;
use crate::node::message::DataMessage;
use crate::node::protocol::Effect;
use gridloom_base::{DatumId, Meta, NodeId, TaskId, Time};

impl Admission {
    /// Removes and returns a task that has ended.
    pub fn take_ended(&mut self, now: Time, id: TaskId) -> Option<TaskEntry> {
        let entry = self.executor.remove(id)?;
        self.forget_sources(&entry.task);
        self.last_progress = now;
        Some(entry)
    }

    /// Stops awaiting the inputs of a removed task, except those that another task here reads.
    fn forget_sources(&mut self, task: &Task) {
        for datum in task.inputs() {
            if !self.executor.reads(datum) {
                self.fetches.forget(datum);
            }
        }
    }

    /// Handles the results of a task. They stay here if the client of the task's group is connected. Returns the
    /// results that did not fit.
    pub fn results_made(
        &mut self,
        now: Time,
        entry: &TaskEntry,
        results: &[(DatumId, Meta)],
        client: Option<NodeId>,
        out: &mut Vec<AdmissionOutput>,
    ) -> Vec<DatumId> {
        let mut dropped = Vec::new();
        for (datum, meta) in results {
            let datum = *datum;
            self.fetches.forget(datum);
            if entry.is_call || client.is_none() {
                // The reservation of a call's result is removed. A task that reads the result, which no correct client
                // sends, waits for a source.
                let (readers, _) = self.executor.waiting_for(datum);
                self.requeue(now, readers, out);
                out.extend(client.map(|to| Effect::SendDatum { to, datum }.into()));
                self.replicas.discard(datum);
                out.push(Effect::DropDatum { datum }.into());
            } else if !self.replicas.is_known(datum)
                && !self.replicas.fits(self.replicas.counted_bytes(meta.size_bytes()))
            {
                // A copy of it was here, and was dropped while its task ran again for another result.
                let waiting = self.replicas.refuse(datum);
                out.extend(waiting.into_iter().map(|to| Effect::SendDatum { to, datum }.into()));
                out.push(Effect::DropDatum { datum }.into());
                dropped.push(datum);
            } else {
                self.datum_available(now, datum, meta.size_bytes(), Origin::Made, out);
            }
        }
        dropped
    }

    /// Handles a failed task: its results will not be made.
    pub fn results_not_made(&mut self, now: Time, task: &Task, out: &mut Vec<AdmissionOutput>) {
        self.requeue_readers(now, task, out);
        for output in &task.outputs {
            self.cancel_result(now, output.datum, out);
        }
    }

    /// Removes a task that has ended from the readers of its inputs.
    pub fn stop_reading(&mut self, now: Time, entry: &TaskEntry, out: &mut Vec<AdmissionOutput>) {
        let inputs: BTreeSet<DatumId> = entry.task.inputs().collect();
        for datum in inputs {
            let is_done = self.replicas.remove_reader(datum, now);
            if is_done || (entry.is_call && self.replicas.release(datum)) {
                out.push(Effect::DropDatum { datum }.into());
            }
        }
    }

    /// Requeues the tasks that wait for results of a task that makes nothing here; they request the data when they are
    /// admitted again. The results may exist elsewhere, if the task ran again for another of them.
    pub fn requeue_readers(&mut self, now: Time, task: &Task, out: &mut Vec<AdmissionOutput>) {
        for output in &task.outputs {
            let (readers, _) = self.executor.waiting_for(output.datum);
            self.requeue(now, readers, out);
        }
    }

    fn cancel_result(&mut self, now: Time, datum: DatumId, out: &mut Vec<AdmissionOutput>) {
        for peer in self.replicas.refuse(datum) {
            let why = format!("the task that makes it failed on server '{}'", self.config.name);
            send(out, peer, DataMessage::FetchRefused { datum, why });
        }
        self.replicas.unreserve(datum, now);
    }

    /// Handles a datum that has not arrived and that no task here reads any more.
    fn cancel_awaited(&mut self, now: Time, datum: DatumId, out: &mut Vec<AdmissionOutput>) {
        if !self.fetches.is_awaited(datum) {
            for peer in self.replicas.refuse(datum) {
                self.refuse(datum, peer, "no longer waits for it", out);
            }
        }
        self.replicas.unreserve(datum, now);
    }

    /// Forgets a task that has not begun.
    pub fn remove_task(&mut self, now: Time, id: TaskId, out: &mut Vec<AdmissionOutput>) {
        let Some(entry) = self.executor.remove(id) else { return };
        self.forget_sources(&entry.task);
        if entry.is_call {
            for datum in entry.task.inputs() {
                self.release(datum, out);
            }
        }
        for output in &entry.task.outputs {
            self.cancel_result(now, output.datum, out);
        }
        let inputs: BTreeSet<DatumId> = entry.task.inputs().collect();
        self.remove_reader_of(now, &entry, inputs, out);
    }

    /// Removes a task that did not run from the readers of the given inputs.
    fn remove_reader_of(
        &mut self,
        now: Time,
        entry: &TaskEntry,
        inputs: BTreeSet<DatumId>,
        out: &mut Vec<AdmissionOutput>,
    ) {
        if entry.state == State::Held {
            return;
        }
        for datum in inputs {
            if self.replicas.remove_reader(datum, now) {
                out.push(Effect::DropDatum { datum }.into());
            }
            let is_to_come = self.replicas.is_known(datum) && !self.replicas.is_here(datum);
            if is_to_come && !self.executor.waits_for(datum) && !self.executor.makes(datum) {
                self.cancel_awaited(now, datum, out);
            }
        }
    }

    /// Drops the tasks of a lost client. Its data are dropped next; shared data that the tasks read stay.
    pub fn forget_tasks_of(&mut self, now: Time, client: NodeId, out: &mut Vec<AdmissionOutput>) {
        for id in self.executor.of_client(client) {
            if self.executor.get(id).is_some_and(|entry| entry.state.has_begun()) {
                // Its data are cleaned up when it ends.
                out.push(Effect::StopTask { task: id }.into());
            } else if let Some(entry) = self.executor.remove(id) {
                self.forget_sources(&entry.task);
                let shared = entry.task.inputs().filter(|datum| datum.is_shared()).collect();
                self.remove_reader_of(now, &entry, shared, out);
            }
        }
    }
}

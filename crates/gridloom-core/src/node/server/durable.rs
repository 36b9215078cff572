//! Durable data: shared data that outlive the server. A put of one is complete when the datum is on the server's disk.
//!
//! After a restart, the server has them in its store and reports them to the agent like all others.

use std::collections::BTreeMap;

use super::{Server, send};
use crate::data::Origin;
use crate::node::message::{StoredVersion, TaskToClient};
use crate::node::protocol::Effect;
use gridloom_base::{DatumId, NamedDatum, NodeId, Readers, TaskError, TaskId, Time};

/// Data that are being written.
#[derive(Debug, Default)]
pub(super) struct Durable {
    writing: BTreeMap<DatumId, Writing>,
}

#[derive(Debug)]
pub(super) struct Writing {
    named: NamedDatum,
    /// Tasks that brought the datum here. They end when it is written.
    tasks: Vec<TaskId>,
    is_given_up: bool,
    /// It is no longer the current version of its name.
    is_superseded: bool,
    /// Its readers have changed since the writing began.
    has_new_readers: bool,
}

impl Durable {
    pub(super) fn len(&self) -> usize {
        self.writing.len()
    }

    /// Returns the identifiers of the data that are being written.
    pub(super) fn data(&self) -> impl Iterator<Item = DatumId> {
        self.writing.keys().copied()
    }

    /// Returns a datum that is being written and is still needed.
    pub(super) fn written(&self, datum: DatumId) -> Option<&NamedDatum> {
        self.writing.get(&datum).filter(|writing| !writing.is_given_up).map(|writing| &writing.named)
    }

    /// Removes a datum from those that are being written.
    pub(super) fn end(&mut self, datum: DatumId) -> Option<Writing> {
        self.writing.remove(&datum)
    }

    /// Starts to write the datum that a task brought here.
    pub(super) fn begin(&mut self, task: TaskId, named: &NamedDatum, out: &mut Vec<Effect>) {
        let begun = self.writing.entry(named.datum).or_insert_with(|| {
            out.push(Effect::MakeDurable { named: Box::new(named.clone()) });
            let (tasks, named) = (Vec::new(), named.clone());
            Writing { named, tasks, is_given_up: false, is_superseded: false, has_new_readers: false }
        });
        begun.tasks.push(task);
    }

    /// True if the datum was deleted while it was being written.
    pub(super) fn is_given_up(&self, datum: DatumId) -> bool {
        self.writing.get(&datum).is_some_and(|writing| writing.is_given_up)
    }

    /// Sets the users with whom a datum that is being written is shared.
    pub(super) fn set_readers(&mut self, datum: DatumId, readers: &Readers) {
        if let Some(writing) = self.writing.get_mut(&datum) {
            writing.named.readers.clone_from(readers);
            writing.has_new_readers = true;
        }
    }

    /// Marks a datum as a former version of its name.
    pub(super) fn set_former(&mut self, datum: DatumId) {
        if let Some(writing) = self.writing.get_mut(&datum) {
            writing.is_superseded = true;
        }
    }

    /// Marks a datum as no longer needed here.
    pub(super) fn mark_given_up(&mut self, datum: DatumId) {
        if let Some(writing) = self.writing.get_mut(&datum) {
            writing.is_given_up = true;
        }
    }
}

impl Server {
    /// Restores the durable data of the server's previous run.
    pub(super) fn restore_durable(&mut self, now: Time, out: &mut Vec<Effect>) {
        let config = self.config.clone();
        for named in config.durable.iter().flatten() {
            let size_bytes = named.meta.size_bytes();
            self.admitting(now, out, |admission, _, out| {
                admission.datum_available(now, named.datum, size_bytes, Origin::Made, out);
            });
            self.shared.add(StoredVersion { named: named.clone(), is_current: true });
        }
    }

    /// Handles the result of writing a datum to disk.
    pub(super) fn made_durable(
        &mut self,
        now: Time,
        datum: DatumId,
        outcome: Result<(), String>,
        out: &mut Vec<Effect>,
    ) {
        let Some(Writing { named, tasks, is_given_up, is_superseded: is_former, has_new_readers }) =
            self.shared.end_durable(datum)
        else {
            return;
        };
        let outcome = match outcome {
            Ok(()) if is_given_up => Err("it was deleted meanwhile".to_string()),
            outcome => outcome,
        };
        if outcome.is_err() {
            self.admitting(now, out, |admission, _, out| admission.release(datum, out));
        }
        let is_of_catalog = tasks.iter().any(|task| task.client == NodeId::CATALOG);
        for task in tasks {
            let outcome = match &outcome {
                Ok(()) => {
                    self.published(task.client, &named, out);
                    Ok(Vec::new())
                }
                Err(why) => Err(TaskError::StoreFailed { server: self.config.name.clone(), why: why.clone() }),
            };
            self.report(now, task.client, task, outcome, 0, out);
        }
        if outcome.is_err() && is_of_catalog {
            // The catalog was notified of the copy.
            self.reports.report_transfers(now, NodeId::CATALOG, self.admission.others(NodeId::CATALOG), out);
            send(out, NodeId::CATALOG, TaskToClient::Dropped { data: vec![datum] });
        }
        if has_new_readers && outcome.is_ok() {
            out.push(Effect::UpdateDurable { named: Box::new(named.clone()) });
        }
        if is_former {
            self.shared.set_superseded(datum, out);
        }
        self.pump(now, out);
    }
}

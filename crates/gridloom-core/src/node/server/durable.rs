//! Durable data: shared data that outlive the server. A put of one is complete when the datum is on the server's disk.
//!
//! After a restart, the server has them in its store and reports them to the agent like all others.

use std::collections::BTreeMap;

use super::{Server, send};
use crate::data::Origin;
use crate::node::message::{ServerToCatalog, StoredVersion, TaskToClient};
use crate::node::protocol::Effect;
use gridloom_base::{DatumId, NamedDatum, NodeId, Readers, TaskError, TaskId, Time};

/// Data that are being written.
#[derive(Debug, Default)]
pub(super) struct Durable {
    writing: BTreeMap<DatumId, Writing>,
    /// Requests of agents to report when data are removed from the disk: the agent and its number, by the number of
    /// this server.
    syncs: BTreeMap<u64, (NodeId, u64)>,
    last_sync: u64,
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

    /// Marks a datum as a former version of its name. It is removed from the disk as soon as it is written, because the
    /// server may be killed before it learns that the writing has ended.
    pub(super) fn set_former(&mut self, datum: DatumId, out: &mut Vec<Effect>) {
        if let Some(writing) = self.writing.get_mut(&datum) {
            writing.is_superseded = true;
            out.push(Effect::MakeTransient { datum });
        }
    }

    /// Marks a datum as no longer needed here. It is removed from the disk as in [`Durable::set_former`].
    pub(super) fn mark_given_up(&mut self, datum: DatumId, out: &mut Vec<Effect>) {
        if let Some(writing) = self.writing.get_mut(&datum).filter(|writing| !writing.is_given_up) {
            writing.is_given_up = true;
            out.push(Effect::MakeTransient { datum });
        }
    }

    /// Begins to wait until the data that were removed so far are off the disk.
    pub(super) fn begin_sync(&mut self, agent: NodeId, number: u64, out: &mut Vec<Effect>) {
        self.last_sync += 1;
        self.syncs.insert(self.last_sync, (agent, number));
        out.push(Effect::SyncDurable { number: self.last_sync });
    }

    /// Returns the agent that waited, and its number.
    pub(super) fn end_sync(&mut self, number: u64) -> Option<(NodeId, u64)> {
        self.syncs.remove(&number)
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

    /// Reports to the agent that the data which it released are off the disk. Another agent did not ask for it.
    pub(super) fn durable_synced(&mut self, number: u64, out: &mut Vec<Effect>) {
        let asked = self.shared.durable.end_sync(number);
        if let Some((agent, number)) = asked.filter(|(agent, _)| self.registering.agent() == Some(*agent)) {
            send(out, agent, ServerToCatalog::Synced { number });
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

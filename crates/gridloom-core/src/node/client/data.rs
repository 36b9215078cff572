//! Data: fetched to the client, arrived here or at servers, written back, and released when nobody needs them.
//!
//! Write-back: if a server has no room for results, the client fetches copies, so that the server can evict its own.

use std::sync::Arc;

use super::Client;
use super::graph::{DatumState, Unneeded};
use super::recovery::not_received_error;
use super::stateless::ArgumentCopy;
use crate::graph::Task;
use crate::node::message::{DataMessage, Supply, SupplyFault, TaskToServer, TransferReport};
use crate::node::protocol::{Effect, Event};
use crate::node::{Category, LogLine};
use gridloom_base::{DatumId, Level, Meta, NodeId, Time};

impl Client {
    /// Returns the source of a datum for a server, with the number of hops from there.
    pub(super) fn supply(&self, datum: DatumId, from: NodeId, hops: u16) -> Supply {
        let address = match from == self.config.id {
            true => String::new(),
            false => self.contacts.address_of(from),
        };
        Supply::direct(datum, self.meta_of(datum), from, address, hops)
    }

    /// Returns the description of a datum that a task reads.
    pub(super) fn meta_of(&self, datum: DatumId) -> Meta {
        self.graph.datum(datum).expect("a datum is remembered while a task reads it").meta().clone()
    }

    /// Fetches a datum to the client. Returns false if its location is unknown.
    pub(super) fn fetch_here(&mut self, datum: DatumId, out: &mut Vec<Effect>) -> bool {
        let Some(run) = self.graph.datum(datum) else { return false };
        // A datum whose transfer to the client was interrupted is fetched again later, however often it is requested.
        if run.is_here() || run.sender().is_some() || self.supplies.is_interrupted(datum, self.config.id) {
            return true;
        }
        let is_there = |node: &NodeId| !self.contacts.is_lost(*node) && !self.is_stateless(*node);
        let near = self.names.local_server.filter(|node| run.holders().contains(node));
        let holders = near.into_iter().chain(run.holders().iter().copied()).filter(is_there);
        let holder = self.supplies.best_source(datum, self.config.id, holders);
        let Some(from) = holder.or_else(|| self.graph.producer_server(run)) else { return false };
        if self.is_stateless(from) {
            // The server sends it without a request.
            return true;
        }
        self.graph.fetch_begun(datum, from);
        self.contacts.post(from, DataMessage::Fetch { datum, hops: 1, by_storage: false }, out);
        true
    }

    // ---- arrivals

    pub(super) fn on_transfer_report(&mut self, now: Time, report: TransferReport, out: &mut Vec<Effect>) {
        if self.supplies.copies.get(report.datum).is_some() {
            let report = self.copy_arrived(now, report);
            return self.saw_transfer(now, report, out);
        }
        self.supplies.arrived(report.datum, report.to);
        // Servers drop arguments of plain calls by themselves.
        if self.calls.of_datum(report.datum).is_none() {
            self.copy_at(now, report.to, report.datum, out);
            self.data_arrived(now, report.datum, report.to);
        } else {
            self.argument_arrived(now, report.datum, report.to);
        }
        self.saw_transfer(now, report, out);
    }

    fn saw_transfer(&mut self, now: Time, report: TransferReport, out: &mut Vec<Effect>) {
        self.links.record_transfer(now, &report, out);
        let at = now - report.age_ns;
        out.push(Effect::Emit(Event::Transferred { at, report }));
    }

    pub(super) fn on_arrived(
        &mut self,
        now: Time,
        from: NodeId,
        datum: DatumId,
        (meta, took_ns): (Meta, u64),
        out: &mut Vec<Effect>,
    ) {
        let size_bytes = meta.size_bytes();
        let report = TransferReport { datum, from, to: self.config.id, size_bytes, run_ns: took_ns, age_ns: 0 };
        out.push(Effect::Emit(Event::Transferred { at: now, report }));
        self.links.record_transfer(now, &report, out);
        if self.calls.of_datum(datum).is_some() {
            if let Some(call) = self.calls.arrived(datum) {
                self.call_complete(now, call, out);
            }
            return;
        }
        let stateless = Some(from).filter(|from| self.is_stateless(*from));
        let Some(fetchers) = self.graph.arrived(datum, &meta, stateless) else {
            out.push(Effect::DropDatum { datum });
            return;
        };
        self.supplies.arrived(datum, self.config.id);
        self.names.arrived(datum);
        self.has_copy(datum, out);
        for server in fetchers {
            self.contacts.post_datum(server, datum, out);
        }
        self.send_copies(datum, out);
        self.supply_waiting(now, datum, out);
        if self.graph.answered(datum) {
            out.push(Effect::Emit(Event::DatumAvailable { datum, meta }));
        }
        self.tidy(datum, out);
    }

    // ---- write-back

    /// Handles a server's request that the client fetch copies of these data.
    pub(super) fn on_make_room(&mut self, from: NodeId, data: Vec<DatumId>, out: &mut Vec<Effect>) {
        for datum in data {
            let Some(is_here) = self.graph.datum(datum).map(DatumState::is_here) else {
                // The message that releases it is in transit.
                continue;
            };
            self.graph.copy_added(datum, from);
            if is_here {
                self.contacts.post(from, TaskToServer::HasCopies { data: vec![datum] }, out);
            } else {
                self.supplies.request_write_back(datum, from);
                self.fetch_here(datum, out);
            }
        }
    }

    /// Handles a server's report that it dropped copies: the client has others, or used more than its share of the
    /// store.
    pub(super) fn on_dropped(&mut self, from: NodeId, data: &[DatumId], out: &mut Vec<Effect>) {
        let mut last_ones = 0;
        for datum in data {
            last_ones += usize::from(self.graph.copy_removed(*datum, from));
        }
        if last_ones > 0 {
            let text = format!("a server dropped the last copies of {last_ones} data");
            let why = "other clients needed their shares of its store; data that are still read are recomputed";
            let line = LogLine::new(Level::Warning, Category::Client, text);
            out.push(line.peer(self.contacts.name_of(from)).why(why).into());
        }
    }

    /// Handles the arrival of a datum: servers that requested the write-back may evict their copies.
    pub(super) fn has_copy(&mut self, datum: DatumId, out: &mut Vec<Effect>) {
        for server in self.supplies.take_write_backs(datum) {
            self.contacts.post(server, TaskToServer::HasCopies { data: vec![datum] }, out);
        }
    }

    /// Handles a datum that cannot arrive.
    pub(super) fn has_no_copy(&mut self, datum: DatumId, out: &mut Vec<Effect>) {
        for server in self.supplies.take_write_backs(datum) {
            self.contacts.post(server, TaskToServer::CannotCopy { data: vec![datum] }, out);
        }
    }

    // ---- release

    /// Records that a server has a datum. Readers that wait for it can fetch it. If nobody needs the datum any more,
    /// the server is asked to drop it.
    pub(super) fn copy_at(&mut self, now: Time, server: NodeId, datum: DatumId, out: &mut Vec<Effect>) {
        match self.graph.datum(datum).is_some_and(|run| run.error().is_none()) {
            true => {
                self.graph.copy_added(datum, server);
                if self.is_needed_here(datum) {
                    self.fetch_here(datum, out);
                }
                self.supply_waiting(now, datum, out);
                self.tidy(datum, out);
            }
            false => self.contacts.post(server, TaskToServer::Release { data: vec![datum] }, out),
        }
    }

    /// Handles the program's release of a datum. With `is_fleeting` no copy may outlive its readers.
    pub(super) fn release(&mut self, datum: DatumId, is_fleeting: bool, out: &mut Vec<Effect>) {
        self.graph.released(datum, is_fleeting);
        self.tidy(datum, out);
    }

    /// Drops the copy at one node if there are others. Copies that are not kept may be evicted.
    pub(super) fn give_up(&mut self, datum: DatumId, at: NodeId, out: &mut Vec<Effect>) {
        match self.graph.give_up(datum, at) {
            Some(Unneeded::OwnCopy(datum)) => out.push(Effect::DropDatum { datum }),
            Some(_) => self.contacts.post(at, TaskToServer::Release { data: vec![datum] }, out),
            None => {}
        }
    }

    /// Drops everything that nobody needs any more, from this datum back to the data from which it was made.
    pub(super) fn tidy(&mut self, datum: DatumId, out: &mut Vec<Effect>) {
        let unneeded = self.graph.tidy(datum);
        self.drop_unneeded(unneeded, out);
    }

    /// Drops the copies of data that nobody needs, and what the rest of the client knows of them.
    pub(super) fn drop_unneeded(&mut self, unneeded: Vec<Unneeded>, out: &mut Vec<Effect>) {
        for one in unneeded {
            match one {
                Unneeded::OwnCopy(datum) => out.push(Effect::DropDatum { datum }),
                Unneeded::Copy(datum, holder) => {
                    if !self.contacts.is_lost(holder) && !datum.is_shared() && !self.is_stateless(holder) {
                        self.contacts.post(holder, TaskToServer::Release { data: vec![datum] }, out);
                    }
                }
                Unneeded::Datum(datum) => {
                    self.supplies.forget_datum(datum);
                    if let Some(release) = self.names.forget_found(datum) {
                        self.contacts.send_to_agent(release, out);
                    }
                }
                Unneeded::Group(group) => self.plans.forget(group),
            }
        }
    }

    // ---- arguments and results of stateless servers

    /// True if a server is stateless.
    pub(super) fn is_stateless(&self, node: NodeId) -> bool {
        self.directory.grid.server(node).is_some_and(|at| self.directory.grid.servers[at].stateless)
    }

    /// Sends tasks to a stateless server.
    pub(super) fn run_on_stateless(&mut self, server: NodeId, tasks: &[Arc<Task>], out: &mut Vec<Effect>) {
        let (mut sent, mut supplies) = (Vec::with_capacity(tasks.len()), Vec::new());
        for task in tasks {
            // The server refuses tasks that are not calls: they have nothing to copy.
            let (task, copies) = self.supplies.copies.begin(task, server);
            for (copy, datum) in copies {
                let meta = self.meta_of(datum);
                supplies.push(Supply::direct(copy, meta, self.config.id, String::new(), 1));
            }
            for output in &task.outputs {
                self.graph.fetch_begun(output.datum, server);
            }
            sent.push(task);
        }
        self.contacts.post(server, TaskToServer::RunTasks { tasks: sent, supplies }, out);
    }

    /// Handles a server's request for a copy: sends it at once, or when the datum has arrived.
    pub(super) fn on_fetch_copy(&mut self, now: Time, copy: DatumId, of: ArgumentCopy, out: &mut Vec<Effect>) {
        self.supplies.copies.ask(of.datum, copy);
        if self.graph.datum(of.datum).is_some_and(DatumState::is_here) {
            self.send_copies(of.datum, out);
        } else {
            self.recover_datum(now, of.datum, "no server holds it any more", out);
        }
    }

    /// Sends copies of a datum that has arrived to the servers that requested them.
    pub(super) fn send_copies(&mut self, datum: DatumId, out: &mut Vec<Effect>) {
        for copy in self.supplies.copies.take_asked(datum) {
            let Some(of) = self.supplies.copies.get(copy) else { continue };
            out.push(Effect::AliasDatum { datum, named: copy });
            self.contacts.post_datum(of.server, copy, out);
        }
    }

    /// Handles a copy that failed to arrive: it is resent later, unless there were too many failures.
    pub(super) fn copy_failed(
        &mut self,
        now: Time,
        (copy, of): (DatumId, ArgumentCopy),
        fault: SupplyFault,
        why: &str,
        out: &mut Vec<Effect>,
    ) {
        match fault {
            SupplyFault::Broken | SupplyFault::NoMemory
                if self.supplies.count_interruption(copy, (self.config.id, of.server)) =>
            {
                let name = self.contacts.name_of(of.server);
                let error = not_received_error(of.datum, Some(&name), (fault == SupplyFault::NoMemory, why));
                self.fail_task(now, of.task, error, out);
            }
            SupplyFault::Broken | SupplyFault::NoMemory => self.supplies.record_interrupted(copy, of.server),
            SupplyFault::Gone | SupplyFault::Unreachable => self.supply_copy(copy, of, out),
        }
    }

    /// Tells a server that this client is the source of a copy. The server then requests it, so that it can report
    /// another failure.
    pub(super) fn supply_copy(&mut self, copy: DatumId, of: ArgumentCopy, out: &mut Vec<Effect>) {
        let Some(run) = self.graph.datum(of.datum) else { return };
        let supply = Supply::direct(copy, run.meta().clone(), self.config.id, String::new(), 1);
        self.contacts.post(of.server, TaskToServer::Resupply { supplies: vec![supply] }, out);
    }

    /// Handles the arrival of a copy at its server. Returns the report as one about the original datum.
    pub(super) fn copy_arrived(&mut self, now: Time, report: TransferReport) -> TransferReport {
        let Some(of) = self.supplies.copies.get(report.datum) else { return report };
        self.supplies.arrived(report.datum, report.to);
        self.supplies.copies.arrived(report.datum);
        if self.queues.waits_for_data(of.task, of.server) {
            self.queue_if_ready(now, of.task);
        }
        TransferReport { datum: of.datum, ..report }
    }

    /// Handles a failed task on a stateless server: the server will not send the results, but other nodes may have
    /// them.
    pub(super) fn stop_awaiting(&mut self, task: &Task, server: NodeId, out: &mut Vec<Effect>) {
        for output in &task.outputs {
            let is_held = |run: &DatumState| !run.holders().is_empty();
            if self.graph.fetch_ended(output.datum, server)
                && self.graph.datum(output.datum).is_some_and(is_held)
                && self.is_needed_here(output.datum)
            {
                self.fetch_here(output.datum, out);
            }
        }
    }

    /// Handles the end of a task on a stateless server: needed results whose transfer was interrupted are recomputed.
    pub(super) fn recompute_interrupted(&mut self, now: Time, task: &Task, out: &mut Vec<Effect>) {
        for datum in task.outputs.iter().map(|output| output.datum) {
            if self.graph.datum(datum).is_some_and(|run| run.is_needed() && !run.has_copy()) {
                self.recover_datum(now, datum, "its transfer to the client was interrupted", out);
            }
        }
    }

    /// Drops the copies of tasks that have ended.
    pub(super) fn drop_copies(&mut self, out: &mut Vec<Effect>) {
        for copy in self.supplies.copies.take_over() {
            self.supplies.forget_datum(copy);
            out.push(Effect::DropDatum { datum: copy });
        }
    }
}

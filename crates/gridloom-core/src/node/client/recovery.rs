//! Recovery: recomputes elsewhere what a lost server ran or held.
//!
//! ```text
//!  server lost
//!    |- its unfinished tasks ------------------------------------------.
//!    |- results that only it held and that are still needed -----------+--> mapped again, among the remaining servers
//!    |     '- their inputs, if these are lost too (and so on) ---------'
//!    '- copies that other servers fetch from it: they report it (SupplyFailed) and get a new source
//! ```
//! So stateless tasks may run more than once. A datum is immutable, so whichever copy arrives first counts. A task
//! that only the lost server may run fails, and so does a result of such a task that is needed again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Client;
use super::graph::{DatumState, LostServer, ServerLoss, Status, TaskState, nested_error};
use crate::node::message::{DataMessage, SupplyFault, TaskToServer};
use crate::node::protocol::{Effect, Event};
use crate::node::{Category, LogLine};
use gridloom_base::{DatumId, GroupId, Level, NodeId, TaskError, TaskId, Time};

impl Client {
    pub(super) fn on_server_lost(&mut self, now: Time, server: NodeId, why: &str, out: &mut Vec<Effect>) {
        if !self.contacts.server_lost(now, server) {
            return;
        }
        let name = self.contacts.name_of(server);
        self.directory.unoffered.server_lost(&self.directory.grid, server, why);
        let grid = Arc::make_mut(&mut self.directory.grid);
        if let Some(index) = grid.server(server) {
            grid.servers.remove(index);
        }
        self.end_measuring(now, server, out);
        self.links.forget(server);
        self.queues.forget_server(server);
        self.backlog.servers_changed();
        self.calls_lost(now, server, why, out);
        self.supplies.forget_server(server);
        let lost = LostServer { node: server, name: name.clone(), why: why.to_string() };
        // A group may wait for a plan with calls bound to that server. Without these calls the plan differs.
        let ServerLoss { stopped, mut again, hopeless, mut unplanned, broken_off, unasked } =
            self.graph.server_lost(&lost);
        stopped.into_iter().for_each(|id| self.supplies.copies.end(id));
        for id in hopeless {
            // A task that read the result of an earlier one has failed, and been forgotten, with it.
            let Some(run) = self.graph.task(id) else { continue };
            let function = run.task().function_lost_with_server();
            let is_bound = run.task().is_bound();
            let error = TaskError::ServerLost { function, server: name.clone(), why: why.into(), is_bound };
            self.fail_task(now, id, error, out);
        }
        for datum in self.graph.gone() {
            self.revive(now, datum, &mut again, out);
        }
        for datum in broken_off {
            if self.is_needed_here(datum) {
                self.fetch_here(datum, out);
            }
        }
        // Inputs of restarted tasks that only the lost server held are in `gone`: these tasks are their pending
        // readers.
        if !again.is_empty() {
            out.push(Effect::Emit(Event::ServerLost { server, name, why: why.into(), rerun: again.clone() }));
        }
        unplanned.extend(self.graph.groups_of(&again));
        self.map_again(now, unplanned, out);
        self.recalls_lost(now, server, out);
        for datum in unasked {
            self.tidy(datum, out);
        }
    }

    /// Restarts the task that produces a lost datum, and those that produce its lost inputs. Appends them to `again`.
    fn revive(&mut self, now: Time, datum: DatumId, again: &mut Vec<TaskId>, out: &mut Vec<Effect>) {
        let mut work = vec![datum];
        while let Some(datum) = work.pop() {
            let Some(run) = self.graph.datum(datum) else { continue };
            if run.has_copy() {
                continue;
            }
            if let Some(error) = run.error().filter(|_| run.is_fleeting()).cloned() {
                self.datum_failed(now, datum, error, out);
                continue;
            }
            let Some(id) = run.producer() else {
                match run.error().cloned() {
                    Some(error) => self.datum_failed(now, datum, error, out),
                    None if datum.is_shared() => self.seek(now, datum, out),
                    None => self.datum_lost(now, datum, "the only copy was on a server that was lost", out),
                }
                continue;
            };
            let task = self.graph.task(id).expect("the producer of a datum is remembered");
            match task.status() {
                Status::Done
                    if task.task().options.bound_to.is_some_and(|only| self.directory.grid.server(only).is_none()) =>
                {
                    let error = self.bound_server_lost(id);
                    self.datum_failed(now, datum, error, out);
                    continue;
                }
                Status::Done => {}
                // It produced the datum once and failed when it ran again for another result.
                Status::Failed(error) => {
                    let error = error.clone();
                    self.datum_failed(now, datum, error, out);
                    continue;
                }
                Status::Unmapped | Status::Sent(_) => continue,
            }
            again.push(id);
            work.extend(self.graph.restarted(id));
        }
    }

    pub(super) fn map_again(&mut self, now: Time, groups: BTreeSet<GroupId>, out: &mut Vec<Effect>) {
        for group in groups.into_iter().filter(|group| self.plans.has(*group)).collect::<Vec<_>>() {
            // In the order of the calls, together with those that already wait for a plan.
            let tasks = self.graph.unmapped(group);
            self.request_map(now, group, tasks, out);
        }
    }

    /// True if the program requested a datum, a server is to fetch it from here, or a server has no room for it.
    pub(super) fn is_needed_here(&self, datum: DatumId) -> bool {
        self.graph.is_requested(datum) || self.supplies.needs_write_back(datum) || self.supplies.copies.awaits(datum)
    }

    /// Handles a datum that was not where it should be: finds another copy, or recomputes it.
    pub(super) fn recover_datum(&mut self, now: Time, datum: DatumId, why: &str, out: &mut Vec<Effect>) {
        // A copy here is useless for servers if this client must not send it.
        let is_here_alone = self.graph.datum(datum).is_some_and(|run| run.is_here() && run.holders().is_empty());
        if !(datum.is_shared() && is_here_alone) && self.fetch_here(datum, out) {
            return;
        }
        if !self.graph.is_made(datum) {
            return;
        }
        // The client knows why it is not available. A later refusal by a server is less specific.
        if let Some(error) = self.graph.datum(datum).and_then(|run| run.error().cloned()) {
            self.datum_failed(now, datum, error, out);
            return;
        }
        if self.graph.datum(datum).is_some_and(|run| run.producer().is_none()) {
            match datum.is_shared() {
                true => self.seek(now, datum, out),
                false => self.datum_lost(now, datum, why, out),
            }
            return;
        }
        let mut again = Vec::new();
        self.revive(now, datum, &mut again, out);
        self.report_losses(&again, out);
        self.map_again(now, self.graph.groups_of(&again), out);
    }

    /// Reports the servers with which the results of restarted tasks were lost earlier.
    fn report_losses(&self, again: &[TaskId], out: &mut Vec<Effect>) {
        let mut losses: BTreeMap<NodeId, (&LostServer, Vec<TaskId>)> = BTreeMap::new();
        for id in again {
            if let Some(lost) = self.graph.task(*id).and_then(TaskState::lost_with) {
                losses.entry(lost.node).or_insert_with(|| (lost, Vec::new())).1.push(*id);
            }
        }
        for (server, (LostServer { name, why, .. }, again)) in losses {
            let (name, why) = (name.clone(), why.clone());
            out.push(Effect::Emit(Event::ServerLost { server, name, why, rerun: again }));
        }
    }

    pub(super) fn datum_lost(&mut self, now: Time, datum: DatumId, why: &str, out: &mut Vec<Effect>) {
        self.datum_failed(now, datum, TaskError::DatumLost { datum, why: why.into() }, out);
    }

    /// Fails a datum that is finally lost, and its readers.
    fn datum_failed(&mut self, now: Time, datum: DatumId, error: TaskError, out: &mut Vec<Effect>) {
        let Some(run) = self.graph.datum(datum) else { return };
        let (consumers, producer) = (run.consumers().clone(), run.producer());
        self.refuse_all(datum, &error, out);
        let nested = nested_error(producer, error);
        for consumer in consumers {
            self.fail_task(now, consumer, nested.clone(), out);
        }
        self.tidy(datum, out);
    }

    /// Tells the program and the servers that wait for a datum that it will not arrive.
    pub(super) fn refuse_all(&mut self, datum: DatumId, error: &TaskError, out: &mut Vec<Effect>) {
        let waiters = self.graph.lost(datum, error);
        if waiters.program {
            out.push(Effect::Emit(Event::DatumLost { datum, error: error.clone() }));
        }
        for server in waiters.servers {
            let refusal = DataMessage::FetchRefused { datum, why: error.to_string() };
            self.contacts.post(server, refusal, out);
        }
    }

    #[allow(clippy::too_many_arguments)]
    pub(super) fn on_supply_failed(
        &mut self,
        now: Time,
        server: NodeId,
        datum: DatumId,
        source: NodeId,
        fault: SupplyFault,
        why: &str,
        out: &mut Vec<Effect>,
    ) {
        if self.calls.of_datum(datum).is_some() {
            self.argument_failed(now, server, datum, (fault == SupplyFault::NoMemory, why), out);
            return;
        }
        if let Some(of) = self.supplies.copies.get(datum) {
            return self.copy_failed(now, (datum, of), fault, why, out);
        }
        let name = self.contacts.name_of(server);
        let from = self.contacts.name_of(source);
        let Some(run) = self.graph.datum(datum) else { return };
        let line = LogLine::new(Level::Info, Category::Client, format!("a server cannot get {datum}"));
        let line = line.peer(&name).why(format!("from '{from}': {why}"));
        out.push(line.into());
        // A server that waits for it will not send it either, unless it is producing it by now.
        let makes_it = self.graph.producer_server(run) == Some(server);
        if !makes_it && self.graph.fetch_ended(datum, server) {
            self.graph.copy_removed(datum, server);
            if self.is_needed_here(datum) {
                self.fetch_here(datum, out);
            }
        }
        match fault {
            // The source reports that itself. It may have recomputed the datum since.
            SupplyFault::Gone => {}
            SupplyFault::Unreachable => {
                self.supplies.mark_unreachable(server, source);
            }
            SupplyFault::Broken | SupplyFault::NoMemory => {
                if self.supplies.count_interruption(datum, (source, server)) {
                    let error = not_received_error(datum, Some(&name), (fault == SupplyFault::NoMemory, why));
                    self.fail_readers_at(now, server, datum, &error, out);
                    return;
                }
                if fault == SupplyFault::NoMemory || !self.may_resend_at_once(datum, (source, server)) {
                    self.supplies.record_interrupted(datum, server);
                    return;
                }
            }
        }
        self.resupply(now, datum, server, Some(source), out);
    }

    /// True if a datum whose transfer between two nodes was interrupted is sent at once by a third: only after the
    /// first interruption. After another one, its cause may need time to go away.
    fn may_resend_at_once(&self, datum: DatumId, (from, place): (NodeId, NodeId)) -> bool {
        let is_third = |node: &NodeId| {
            ![from, place].contains(node)
                && !self.contacts.is_lost(*node)
                && !self.supplies.are_unreachable(place, *node)
        };
        let is_elsewhere = self.graph.datum(datum).is_some_and(|run| run.holders().iter().any(is_third));
        is_elsewhere && self.supplies.interruption_count(datum, place) == 1
    }

    /// Fails the tasks at a server that cannot receive a datum and that read it.
    fn fail_readers_at(&mut self, now: Time, server: NodeId, datum: DatumId, error: &TaskError, out: &mut Vec<Effect>) {
        for reader in self.graph.readers_of(datum, server) {
            self.fail_task(now, reader, error.clone(), out);
        }
    }

    /// Resends, fetches or recomputes data whose transfer was interrupted and that are nowhere else. Not at once,
    /// because the cause (no memory, no descriptors) may go away.
    pub(super) fn retry_interrupted(&mut self, now: Time, out: &mut Vec<Effect>) {
        for (datum, place) in self.supplies.take_interrupted() {
            if self.calls.of_datum(datum).is_some() {
                self.retry_argument(place, datum, out);
            } else if let Some(of) = self.supplies.copies.get(datum) {
                self.supply_copy(datum, of, out);
            } else if place != self.config.id {
                self.resupply(now, datum, place, None, out);
            } else if self.is_needed_here(datum) {
                self.recover_datum(now, datum, "its transfer to the client was interrupted", out);
            }
        }
    }

    /// Gives a server that waits for a datum a new source: another holder, else the client itself as a relay, else the
    /// server that produces it (again).
    pub(super) fn resupply(
        &mut self,
        now: Time,
        datum: DatumId,
        server: NodeId,
        failed: Option<NodeId>,
        out: &mut Vec<Effect>,
    ) {
        let Some(run) = self.graph.datum(datum) else { return };
        if self.contacts.is_lost(server) || run.error().is_some() {
            return;
        }
        let maker = self.graph.producer_server(run);
        if maker == Some(server) {
            // It will be there when that task has ended. If it is dropped before that, the server requests it here.
            self.supplies.wait(datum, server);
            return;
        }
        let usable = |node: &NodeId| {
            let together = !self.supplies.are_unreachable(server, *node);
            let may_send = !self.contacts.is_lost(*node) && !self.is_stateless(*node);
            *node != server && Some(*node) != failed && may_send && together
        };
        let holders = run.holders().iter().copied().filter(usable);
        let holder = self.supplies.best_source(datum, server, holders).or(maker.filter(usable));
        let reachable = |node: &NodeId| self.contacts.is_up(*node) && !self.contacts.is_lost(*node);
        // A client sends only its own data; those of the catalog belong to no client.
        let may_send = !datum.is_shared();
        let is_here = run.is_here() && may_send;
        let relay = is_here || run.holders().iter().any(reachable) || maker.as_ref().is_some_and(reachable);
        let is_broken_from_here = self.supplies.last_interrupted_source(datum, server) == Some(self.config.id);
        let from = match holder {
            Some(holder) if !is_here || is_broken_from_here => holder,
            _ if relay && may_send => self.config.id,
            _ => {
                self.supplies.wait(datum, server);
                // The server that produces it is being dialled: it is supplied when that server is connected.
                if maker.is_none() {
                    self.recover_datum(now, datum, "no copy is left", out);
                }
                return;
            }
        };
        let supplies = vec![self.supply(datum, from, 1)];
        self.supplies.set_hops(datum, server, 1);
        self.contacts.post(server, TaskToServer::Resupply { supplies }, out);
    }

    /// Handles a datum that has arrived at a node, or whose task was sent to one: servers that waited for a source
    /// get one.
    pub(super) fn supply_waiting(&mut self, now: Time, datum: DatumId, out: &mut Vec<Effect>) {
        for server in self.supplies.waiting_for(datum) {
            self.supplies.end_wait(datum, server);
            self.resupply(now, datum, server, None, out);
        }
    }

    pub(super) fn on_broken(
        &mut self,
        now: Time,
        from: NodeId,
        datum: DatumId,
        (no_memory, why): (bool, &str),
        out: &mut Vec<Effect>,
    ) {
        if let Some(call) = self.calls.of_datum(datum) {
            let error = match call.request.task.options.is_once && !no_memory {
                true => {
                    let why = format!(
                        "its transfer to the client was interrupted, and the call that produced it runs only once: {why}"
                    );
                    TaskError::DatumLost { datum, why }
                }
                false => not_received_error(datum, None, (no_memory, why)),
            };
            self.calls.result_broken(datum, from, error);
            return;
        }
        let Some(run) = self.graph.datum(datum) else { return };
        // Another node is sending it now.
        if run.sender().is_some_and(|sender| sender != from) {
            return;
        }
        self.graph.fetch_ended(datum, from);
        if self.is_stateless(from) {
            self.graph.copy_removed(datum, from);
        }
        let here = self.config.id;
        if !self.supplies.count_interruption(datum, (from, here)) {
            if no_memory || !self.may_resend_at_once(datum, (from, here)) || !self.is_needed_here(datum) {
                self.supplies.record_interrupted(datum, here);
            } else {
                self.fetch_here(datum, out);
            }
            return;
        }
        let error = not_received_error(datum, None, (no_memory, why));
        let is_fetched = self.graph.datum(datum).is_some_and(DatumState::has_fetchers);
        self.has_no_copy(datum, out);
        if !is_fetched {
            // Its copy stays where it is and may be requested again.
            if self.graph.answered(datum) {
                out.push(Effect::Emit(Event::DatumLost { datum, error }));
            }
            self.tidy(datum, out);
        } else {
            self.datum_failed(now, datum, error, out);
        }
    }
}

/// Returns the error of a datum that a server, or else this client, could not receive despite all retries.
pub(super) fn not_received_error(datum: DatumId, server: Option<&str>, (no_memory, why): (bool, &str)) -> TaskError {
    let place = |at: &str, here: &str| server.map_or(here.to_string(), |name| format!("{at} server '{name}'"));
    match no_memory {
        true => TaskError::OutOfMemory { datum, place: place("on", "in this program"), why: why.into() },
        false => {
            let way = place("to", "to the client");
            TaskError::DatumLost { datum, why: format!("its transfer {way} was interrupted again and again: {why}") }
        }
    }
}

//! Performs the effects of machines, and delivers finished transfers, tasks and mappings to them.

use std::sync::atomic::{AtomicU64, Ordering};

use gridloom_base::limits::{EAGER_BYTES_MAX, MAP_CHECKS_MAX};
use gridloom_base::{DatumId, NamedDatum, NodeId};
use gridloom_channel::WireVersion;
use gridloom_core::node::message::{DataMessage, Message};
use gridloom_core::node::{Effect, Input, Role};
use gridloom_flow::HostIndex;
use gridloom_idl::UseKind;
use gridloom_map::Stop;

use crate::kernel::{Kernel, ScheduledEvent};
use crate::network::{Cargo, Landed, Parcel, Progress};
use crate::observe::Observation;
use crate::scheduled_event::StartedTask;
use crate::simulation::Simulation;
use crate::store::StoredValue;
use crate::tasks::{ServerView, Tasks};
use crate::trace::{Interval, digest};

impl Simulation {
    fn make_durable(&mut self, node: NodeId, named: NamedDatum) {
        let (datum, state) = (named.datum, self.nodes.node(node));
        let Some(value) = state.store.value(datum).cloned() else { return };
        let now = self.kernel.now();
        let written = self.durable.write(now, (state.host, &state.name), named, value);
        let at = *written.as_ref().unwrap_or(&now);
        let input = Box::new(Input::MadeDurable { datum, outcome: written.map(drop) });
        self.kernel.push(at, ScheduledEvent::Deliver { node, input });
    }

    fn make_transient(&mut self, node: NodeId, datum: DatumId) {
        if datum.is_shared() {
            self.durable.remove(&self.nodes.node(node).name, datum);
        }
    }

    /// Performs one effect of a running node.
    pub(crate) fn perform(&mut self, node: NodeId, effect: Effect) {
        if let Effect::Send { to, message } = effect {
            if let Message::Data(DataMessage::Fetch { datum, .. }) = &message {
                self.links.announce_partial((node, to), *datum);
            }
            let mut bytes = Vec::new();
            WireVersion::CURRENT.append(&message, &mut bytes);
            let (size_bytes, digest) = (bytes.len() as u64, digest(&bytes));
            let effect = Effect::Send { to, message };
            self.kernel.record(|trace, now| trace.effect(now, node, &effect, digest));
            let Effect::Send { message, .. } = effect else { unreachable!("it was put together above") };
            let parcel = Parcel::Message { message, digest };
            self.links.send_frame(&mut self.kernel, &mut self.routes, (node, to), size_bytes, parcel);
            return;
        }
        self.kernel.record(|trace, now| trace.effect(now, node, &effect, 0));
        match effect {
            Effect::Send { .. } => unreachable!("performed above"),
            Effect::Dial { address } => self.dial(node, address),
            Effect::Disconnect { peer } => {
                self.links.hang_up(&mut self.kernel, &mut self.routes, (node, peer), "the peer hung up");
            }
            Effect::SendDatum { to, datum } => self.send_datum(node, to, datum),
            Effect::SendByStorage { to, datum } => self.store_datum(node, to, datum),
            Effect::SendProbe { to, size_bytes } => self.send_cargo(node, to, Cargo::Probe { size_bytes }),
            Effect::DropDatum { datum } => {
                self.nodes.node_mut(node).store.remove(datum);
                self.links.forget_partial(node, datum);
                self.make_transient(node, datum);
                self.remove_file(node, datum);
            }
            Effect::MakeDurable { named } => self.make_durable(node, *named),
            Effect::MakeTransient { datum } => self.make_transient(node, datum),
            Effect::AliasDatum { datum, named } => {
                let store = &mut self.nodes.node_mut(node).store;
                if let Some(value) = store.value(datum).cloned() {
                    store.put(named, value.clone());
                    self.kernel.record(|trace, now| trace.stored(now, node, named, &value));
                }
            }
            Effect::MakePart { datum, from_byte, part, meta } => {
                let store = &mut self.nodes.node_mut(node).store;
                if let Some(value) = store.value(datum).and_then(|whole| whole.part(from_byte, &meta)) {
                    store.put(part, value.clone());
                    self.kernel.record(|trace, now| trace.stored(now, node, part, &value));
                }
            }
            Effect::JoinSlices { datum, meta } => {
                let store = &mut self.nodes.node_mut(node).store;
                let slices: Option<Vec<StoredValue>> =
                    datum.slices().into_iter().map(|slice| store.value(slice).cloned()).collect();
                let value = StoredValue::joined(meta, &slices.expect("all slices are there"));
                store.put(datum, value.clone());
                self.kernel.record(|trace, now| trace.stored(now, node, datum, &value));
            }
            Effect::StartTask { task } => self.start_task(node, task),
            // A simulated slot takes one task at a time, so there is nothing to withdraw.
            Effect::WithdrawTask { .. } => {}
            Effect::StopTask { task } => {
                let ended = self.tasks.stop(&mut self.kernel, node, task);
                ended.into_iter().for_each(|input| self.kernel.deliver(node, input));
                self.shared_ended(node, task);
            }
            Effect::AnswerTask { task, answer } => {
                let heard = self.at(node, |tasks, kernel, place| tasks.answer(kernel, place, task, answer));
                heard.into_iter().for_each(|input| self.kernel.deliver(node, input));
            }
            Effect::EndObject { object } => self.tasks.end_object(object),
            Effect::SetTimer { timer, at } => {
                let sequence = self.kernel.push(at.max(self.now()), ScheduledEvent::Timer { node, timer });
                self.nodes.node_mut(node).timers.insert(timer, sequence);
            }
            Effect::CancelTimer { timer } => {
                self.nodes.node_mut(node).timers.remove(&timer);
            }
            // Mapping takes no virtual time.
            Effect::Map { number, job } => {
                let asked = AtomicU64::new(0);
                let stop = Stop::when(move || asked.fetch_add(1, Ordering::Relaxed) >= MAP_CHECKS_MAX);
                match self.mappings.begin(node, number, Input::Mapped { number, outcome: job.map(stop) }) {
                    Ok(mapped) => self.kernel.deliver(node, mapped),
                    Err(takes_ns) => {
                        self.kernel.push(self.now() + takes_ns, ScheduledEvent::Mapped { node, number });
                    }
                }
            }
            Effect::StopMapping { number } => self.end_mapping(node, number),
            Effect::MeasureSpeed => {
                let flops = self.hosts.measured_flops(self.node(node).host);
                self.kernel.deliver(node, Input::SpeedMeasured { flops });
            }
            Effect::Emit(event) => self.report(node, event),
            Effect::Exit { why } => self.end_node(node, &why),
        }
    }

    pub(crate) fn send_datum(&mut self, node: NodeId, to: NodeId, datum: DatumId) {
        if let Some(value) = self.node(node).store.value_to_send(datum) {
            if self.sessions.share_memory(node, to) {
                return self.hand_over(node, to, datum, value);
            }
            return self.send_cargo(node, to, Cargo::Datum { datum, value });
        }
        let (kernel, routes) = (&mut self.kernel, &mut self.routes);
        if let Some(value) = self.links.incoming(node, datum).cloned() {
            kernel.record(|trace, now| trace.forwarding_began(now));
            let may_pass = self.nodes.node(to).role == Role::Server;
            self.links.send_bulk(kernel, routes, (node, to), Cargo::Datum { datum, value }, (true, may_pass));
        } else {
            let name = &self.nodes.node(node).name;
            assert!(self.links.has_broken(node, datum), "'{name}' sends {datum}, which is not in its store");
            self.links.send_broken(kernel, routes, (node, to), datum);
        }
    }

    /// Hands a datum between a function and its server. They share their host's memory, whatever link the platform has
    /// within the host.
    fn hand_over(&mut self, from: NodeId, to: NodeId, datum: DatumId, value: StoredValue) {
        let meta = value.meta.clone();
        self.store_value(to, datum, value);
        self.kernel.deliver(to, Input::DatumArrived { from, datum, meta, duration_ns: 0 });
    }

    /// Sends cargo: small cargo with the messages, large cargo in bulk.
    fn send_cargo(&mut self, from: NodeId, to: NodeId, cargo: Cargo) {
        let (kernel, routes) = (&mut self.kernel, &mut self.routes);
        if cargo.size_bytes() <= EAGER_BYTES_MAX {
            self.links.send_small(kernel, routes, (from, to), cargo);
        } else {
            let may_pass = self.links.may_forward(cargo.size_bytes()) && self.nodes.node(to).role == Role::Server;
            self.links.send_bulk(kernel, routes, (from, to), cargo, (false, may_pass));
        }
    }

    /// Handles the arrival of a control frame.
    pub(crate) fn on_arrive(&mut self, from: NodeId, to: NodeId, connection: u64, parcel: Box<Parcel>) {
        match self.links.arrive(&mut self.kernel, &mut self.routes, (from, to), connection, parcel) {
            Some(Parcel::Message { message, digest }) => self.handle(to, Input::Received { from, message }, digest),
            Some(Parcel::Cargo { cargo, sent, transfer }) => {
                self.land((from, to), Landed { cargo, started: sent, transfer, had: None });
            }
            Some(Parcel::Broken { datum }) => {
                let why = "its transfer to the sender broke off".to_string();
                self.handle(to, Input::DatumBroken { from, datum, no_memory: false, why }, 0);
            }
            None => {}
        }
    }

    /// Handles the end of a flow of bulk cargo.
    pub(crate) fn on_bulk_done(&mut self, (from, to): (NodeId, NodeId), transfer: u64) {
        match self.links.bulk_done(&mut self.kernel, &mut self.routes, ((from, to), transfer)) {
            Some(Progress::Begun { datum, value }) => self.begin(from, to, datum, value),
            Some(Progress::Landed(landed)) => self.land((from, to), landed),
            None => {}
        }
    }

    /// Handles the first part of a datum. Nothing is reported if the datum has no room or is not expected.
    fn begin(&mut self, from: NodeId, to: NodeId, datum: DatumId, value: StoredValue) {
        let is_full = self.now() < self.node(to).full_until;
        let is_here = self.node(to).store.value(datum).is_some();
        let is_due = self.node(from).role.may_send(from, datum) && !is_full && !is_here;
        if is_due && self.links.begin((from, to), datum, value) {
            self.handle(to, Input::DatumBegun { from, datum }, 0);
        }
    }

    /// Handles cargo that has completely arrived.
    fn land(&mut self, (from, to): (NodeId, NodeId), landed: Landed) {
        let Landed { cargo, started: start, transfer, had } = landed;
        let Some(cargo) = self.as_sent((from, to), cargo) else { return };
        let (size_bytes, end) = (cargo.size_bytes(), self.now());
        if let Cargo::Datum { datum, .. } = &cargo {
            let is_whole = end >= self.node(to).full_until;
            self.links.on_arrival(&mut self.kernel, &mut self.routes, (from, to), *datum, is_whole);
        }
        let (datum, value) = match cargo {
            Cargo::Probe { .. } => return self.handle(to, Input::ProbeArrived { from, size_bytes }, 0),
            Cargo::Datum { datum, .. } if end < self.node(to).full_until => {
                let why = "no memory to store it".to_string();
                return self.handle(to, Input::DatumBroken { from, datum, no_memory: true, why }, 0);
            }
            Cargo::Datum { datum, .. } if !self.node(from).role.may_send(from, datum) => {
                let why = format!("it sent {datum}, which is another client's");
                self.links.hang_up(&mut self.kernel, &mut self.routes, (to, from), &why);
                return self.handle(to, Input::PeerLost { peer: from, why }, 0);
            }
            Cargo::Datum { datum, value } => (datum, value),
        };
        let had_bytes = had.as_ref().map_or(0, |had| had.bytes);
        let value = match had {
            Some(had) => had.complete(value),
            None => value,
        };
        let path = self.routes.path((self.node(from).host, self.node(to).host));
        self.kernel.record(|trace, _| {
            trace.count_datum(from, to, size_bytes - had_bytes, &path.links);
            trace.record_interval(Interval::Transfer { from, to, datum, size_bytes, start, end });
        });
        self.kernel.observe(|| Observation::DatumArrived { transfer, to, datum });
        let meta = value.meta.clone();
        self.links.forget_partial(to, datum);
        self.store_value(to, datum, value);
        // The time of the rest does not predict the time of the whole datum.
        let took_ns = if had_bytes > 0 { 0 } else { end.since(start) };
        self.handle(to, Input::DatumArrived { from, datum, meta, duration_ns: took_ns }, 0);
    }

    /// Returns the cargo if it equals the sent value. If a datum does not, its receiver is notified.
    fn as_sent(&mut self, (from, to): (NodeId, NodeId), cargo: Cargo) -> Option<Cargo> {
        let Cargo::Datum { datum, value } = cargo else { return Some(cargo) };
        let way = (self.node(from).host, self.node(to).host);
        let is_small = value.meta.size_bytes() <= EAGER_BYTES_MAX;
        let sent = value.clone();
        if let Some(value) = self.changes.receive(way, value) {
            return Some(Cargo::Datum { datum, value });
        }
        self.kernel.record(|trace, now| trace.corruption_rejected(now, is_small));
        let why = format!("the received bytes of {datum} differ from those that '{}' sent", self.node(from).name);
        if is_small {
            self.links.hang_up(&mut self.kernel, &mut self.routes, (to, from), &why);
            self.handle(to, Input::PeerLost { peer: from, why }, 0);
        } else {
            self.links.on_arrival(&mut self.kernel, &mut self.routes, (from, to), datum, false);
            // Treated as if it had changed in the middle.
            let left_bytes = sent.meta.size_bytes() / 2;
            self.links.keep_partial(self.kernel.now(), to, datum, sent, left_bytes);
            self.handle(to, Input::DatumBroken { from, datum, no_memory: false, why }, 0);
        }
        None
    }

    /// Handles the end of a task's file accesses.
    pub(crate) fn on_files_done(&mut self, started: StartedTask) {
        self.at(started.node, |tasks, kernel, place| tasks.files_done(kernel, &place, started));
    }

    /// Handles the end of a task's computation.
    pub(crate) fn on_task_done(&mut self, StartedTask { node, task }: StartedTask) {
        let puts = self.shared_names(&task, UseKind::puts);
        if !puts.is_empty() {
            self.tasks.wait_after(node, &task);
            return self.wait_for_shared(node, &task, puts);
        }
        let input = self.at(node, |tasks, kernel, place| tasks.computed(kernel, place, &task));
        self.shared_ended(node, task.id);
        self.handle(node, input, 0);
    }

    /// Ends a mapping, because its time has passed or because its agent stops it.
    pub(crate) fn end_mapping(&mut self, node: NodeId, number: u64) {
        let mapped = self.mappings.end(node, number);
        mapped.into_iter().for_each(|mapped| self.kernel.deliver(node, mapped));
    }

    /// Calls a function with the tasks of a server.
    pub(crate) fn at<T>(&mut self, node: NodeId, act: impl FnOnce(&mut Tasks, &mut Kernel, ServerView<'_>) -> T) -> T {
        let server = self.nodes.node_mut(node);
        let place = ServerView {
            node,
            name: &server.name,
            slots: server.slots,
            host: HostIndex(server.host.0),
            disk: self.hosts.disk(server.host),
            start_flops: self.hosts.start_flops(server.host),
            store: &mut server.store,
        };
        act(&mut self.tasks, &mut self.kernel, place)
    }
}

//! Performs the effects of machines.

use std::sync::atomic::{AtomicU64, Ordering};

use gridloom_base::limits::MAP_CHECKS_MAX;
use gridloom_base::{DatumId, NamedDatum, NodeId, Time};
use gridloom_channel::WireVersion;
use gridloom_core::node::message::{DataMessage, Message};
use gridloom_core::node::{Effect, Event, Input, Role};
use gridloom_map::Stop;

use super::Grid;
use super::connections::dial;
use crate::environment::Environment;
use crate::kernel::{Kernel, ScheduledEvent};
use crate::network::Cargo;
use crate::store::StoredValue;
use crate::trace::digest;

impl Grid {
    /// Performs one effect of a node, unless the node has ended. Returns the node if it is a client that has reported
    /// something to its program, or if it has ended.
    pub(crate) fn perform(&mut self, environment: &mut Environment, node: NodeId, effect: Effect) -> Option<NodeId> {
        if !self.nodes.is_running(node) {
            return None;
        }
        if let Effect::Send { to, message } = effect {
            self.send(environment, (node, to), message);
            return None;
        }
        let kernel = &mut environment.kernel;
        kernel.record(|trace, now| trace.effect(now, node, &effect, 0));
        match effect {
            Effect::Send { .. } => unreachable!("performed above"),
            Effect::Dial { address } => dial(environment, &self.nodes, node, address),
            Effect::Disconnect { peer } => self.connections.hang_up(environment, (node, peer), "the peer hung up"),
            Effect::SendDatum { to, datum } => self.send_datum(environment, (node, to), datum),
            Effect::SendByStorage { to, datum } => {
                let has_sent = !self.calls.share_memory(node, to)
                    && self.storages.send(environment, &self.nodes, (node, to), datum);
                if !has_sent {
                    self.send_datum(environment, (node, to), datum);
                }
            }
            Effect::SendProbe { to, size_bytes } => {
                self.connections.send_cargo(environment, &self.nodes, (node, to), Cargo::Probe { size_bytes });
            }
            Effect::DropDatum { datum } => {
                self.nodes.remove_value(node, datum);
                self.connections.forget_partial(node, datum);
                self.make_transient(kernel.now(), node, datum);
                self.storages.remove(kernel, &self.nodes, node, datum);
            }
            Effect::MakeDurable { named } => self.make_durable(kernel, node, *named),
            Effect::SyncDurable { number } => {
                let at = self.durable.removed_by(kernel.now(), &self.nodes.node(node).name);
                let input = Box::new(Input::DurableSynced { number });
                kernel.push(at, ScheduledEvent::Deliver { node, input });
            }
            Effect::UpdateDurable { named } => self.durable.update(&self.nodes.node(node).name, *named),
            Effect::MakeTransient { datum } => self.make_transient(kernel.now(), node, datum),
            Effect::AliasDatum { datum, named } => {
                if let Some(value) = self.nodes.node(node).store.value(datum).cloned() {
                    self.nodes.store_value(kernel, node, named, value);
                }
            }
            Effect::MakePart { datum, from_byte, part, meta } => {
                let whole = self.nodes.node(node).store.value(datum);
                if let Some(value) = whole.and_then(|whole| whole.part(from_byte, &meta)) {
                    self.nodes.store_value(kernel, node, part, value);
                }
            }
            Effect::JoinSlices { datum, meta } => {
                let store = &self.nodes.node(node).store;
                let slices: Option<Vec<StoredValue>> =
                    datum.slices().into_iter().map(|slice| store.value(slice).cloned()).collect();
                let value = StoredValue::joined(meta, &slices.expect("all slices are there"));
                self.nodes.store_value(kernel, node, datum, value);
            }
            Effect::LimitDisk { limits } => self.nodes.limit_disk(node, limits),
            Effect::StartTask { task } => {
                if self.calls.needs_session(node, &task) {
                    let client = self.add_session_client(environment, node);
                    self.calls.open_session(node, client);
                }
                let next = self.calls.start(environment, &mut self.nodes, node, task);
                if let Some(input) = self.advance(environment, node, next) {
                    environment.kernel.deliver(node, input);
                }
            }
            // A simulated slot takes one task at a time, so there is nothing to withdraw.
            Effect::WithdrawTask { .. } => {}
            Effect::StopTask { task } => {
                self.calls.stop(kernel, node, task);
                self.end_body_sessions(environment, node, Some(task), "its function was stopped");
            }
            Effect::AnswerTask { task, answer } => {
                let next = self.calls.answer(environment, &mut self.nodes, node, task, answer);
                if let Some(input) = self.advance(environment, node, next) {
                    environment.kernel.deliver(node, input);
                }
            }
            Effect::EndObject { object } => self.calls.end_object(object),
            Effect::SetTimer { timer, at } => {
                let sequence = kernel.push(at.max(kernel.now()), ScheduledEvent::Timer { node, timer });
                self.nodes.set_timer(node, timer, sequence);
            }
            Effect::CancelTimer { timer } => self.nodes.cancel_timer(node, timer),
            // Mapping takes no virtual time.
            Effect::Map { number, job } => {
                let asked = AtomicU64::new(0);
                let stop = Stop::when(move || asked.fetch_add(1, Ordering::Relaxed) >= MAP_CHECKS_MAX);
                match self.mappings.begin(node, number, Input::Mapped { number, outcome: job.map(stop) }) {
                    Ok(mapped) => kernel.deliver(node, mapped),
                    Err(takes_ns) => {
                        kernel.push(kernel.now() + takes_ns, ScheduledEvent::Mapped { node, number });
                    }
                }
            }
            Effect::StopMapping { number } => self.end_mapping(kernel, node, number),
            Effect::MeasureSpeed => {
                let flops = environment.hosts.measured_flops(self.nodes.node(node).host);
                kernel.deliver(node, Input::SpeedMeasured { flops });
            }
            Effect::Emit(event) => return self.report(environment, node, event),
            Effect::Exit { why } => return self.end(environment, node, &why).then_some(node),
        }
        if let Some(clients) = self.nodes.take_on_disk(node) {
            environment.kernel.deliver(node, Input::OnDisk { clients });
        }
        None
    }

    fn send(&mut self, environment: &mut Environment, (node, to): (NodeId, NodeId), message: Message) {
        if let Message::Data(DataMessage::Fetch { datum, .. }) = &message {
            self.connections.announce_partial((node, to), *datum);
        }
        let mut bytes = Vec::new();
        WireVersion::CURRENT.append(&message, &mut bytes);
        let (size_bytes, digest) = (bytes.len() as u64, digest(&bytes));
        let effect = Effect::Send { to, message };
        environment.kernel.record(|trace, now| trace.effect(now, node, &effect, digest));
        let Effect::Send { message, .. } = effect else { unreachable!("it was put together above") };
        self.connections.send_message(environment, (node, to), message, (size_bytes, digest));
    }

    fn send_datum(&mut self, environment: &mut Environment, (node, to): (NodeId, NodeId), datum: DatumId) {
        match self.nodes.node(node).store.value_to_send(datum) {
            Some(value) if self.calls.share_memory(node, to) => {
                self.hand_over(&mut environment.kernel, (node, to), datum, value);
            }
            Some(value) => {
                self.connections.send_cargo(environment, &self.nodes, (node, to), Cargo::Datum { datum, value });
            }
            None => self.connections.forward(environment, &self.nodes, (node, to), datum),
        }
    }

    /// Hands a datum between a function and its server. They share their host's memory, whatever link the platform has
    /// within the host.
    fn hand_over(&mut self, kernel: &mut Kernel, (from, to): (NodeId, NodeId), datum: DatumId, value: StoredValue) {
        let meta = value.meta.clone();
        self.nodes.store_value(kernel, to, datum, value);
        kernel.deliver(to, Input::DatumArrived { from, datum, meta, duration_ns: 0 });
    }

    fn make_durable(&mut self, kernel: &mut Kernel, node: NodeId, named: NamedDatum) {
        let (datum, state) = (named.datum, self.nodes.node(node));
        let Some(value) = state.store.value(datum).cloned() else { return };
        let now = kernel.now();
        let written = self.durable.write(now, (state.host, &state.name), named, value);
        let at = *written.as_ref().unwrap_or(&now);
        let input = Box::new(Input::MadeDurable { datum, outcome: written.map(drop) });
        kernel.push(at, ScheduledEvent::Deliver { node, input });
    }

    fn make_transient(&mut self, now: Time, node: NodeId, datum: DatumId) {
        if datum.is_shared() {
            self.durable.remove(now, &self.nodes.node(node).name, datum);
        }
    }

    /// Passes an event to the client's program, to its session or to the log. Returns the client if its program has to
    /// be notified.
    fn report(&mut self, environment: &mut Environment, node: NodeId, event: Event) -> Option<NodeId> {
        if self.calls.handle_session_event(environment, &mut self.nodes, node, &event) {
            return None;
        }
        if let Event::UsageReported { day, server, users } = &event {
            let name = self.nodes.node(node).name.clone();
            self.usage.entry(name).or_default().report(*day, *server, users);
        }
        match self.nodes.node(node).role {
            Role::Client => {
                self.nodes.add_event(node, event);
                self.body_sessions.wake(&mut environment.kernel, node);
                (!self.body_sessions.contains(node)).then_some(node)
            }
            Role::Agent | Role::Server => {
                let now = environment.kernel.now();
                environment.kernel.instruments_mut().log.push((now, node, event));
                None
            }
        }
    }
}

//! Data and probes that nodes send to one another over their connections: how they leave, arrive and break off.
//!
//! A datum that arrives results in at most one input for its receiver.

use gridloom_base::dial::ConnectionFault;
use gridloom_base::limits::EAGER_BYTES_MAX;
use gridloom_base::{DatumId, NodeId, Time};
use gridloom_core::node::{Input, Role};

use super::connections::Connections;
use super::nodes::Nodes;
use crate::environment::Environment;
use crate::network::{Cargo, Landed, Parcel, Path, Progress};
use crate::observe::Observation;
use crate::store::StoredValue;
use crate::trace::Interval;

/// A datum that was accepted by its receiver.
pub(super) struct Arrival<'a> {
    pub(super) from: NodeId,
    pub(super) to: NodeId,
    pub(super) datum: DatumId,
    pub(super) value: StoredValue,
    /// The transfer, when it began, its path, and the bytes that flowed.
    pub(super) transfer: u64,
    pub(super) start: Time,
    pub(super) path: &'a Path,
    pub(super) flowed_bytes: u64,
}

impl Connections {
    /// Sends cargo: small cargo with the messages, large cargo in bulk.
    pub(super) fn send_cargo(
        &mut self,
        Environment { kernel, routes, .. }: &mut Environment,
        nodes: &Nodes,
        (from, to): (NodeId, NodeId),
        cargo: Cargo,
    ) {
        if cargo.size_bytes() <= EAGER_BYTES_MAX {
            self.links.send_small(kernel, routes, (from, to), cargo);
        } else {
            let may_pass = self.links.may_forward(cargo.size_bytes()) && nodes.node(to).role == Role::Server;
            self.links.send_bulk(kernel, routes, (from, to), cargo, (false, may_pass));
        }
    }

    /// Forwards a datum that its sender is still receiving. If its transfer to the sender has broken off, the receiver
    /// is notified.
    pub(super) fn forward(
        &mut self,
        Environment { kernel, routes, .. }: &mut Environment,
        nodes: &Nodes,
        (from, to): (NodeId, NodeId),
        datum: DatumId,
    ) {
        if let Some(value) = self.links.incoming(from, datum).cloned() {
            kernel.record(|trace, now| trace.forwarding_began(now));
            let may_pass = nodes.node(to).role == Role::Server;
            self.links.send_bulk(kernel, routes, (from, to), Cargo::Datum { datum, value }, (true, may_pass));
        } else {
            let name = &nodes.node(from).name;
            assert!(self.links.has_broken(from, datum), "'{name}' sends {datum}, which is not in its store");
            self.links.send_broken(kernel, routes, (from, to), datum);
        }
    }

    /// Handles the arrival of a control frame. Returns the input for its receiver, and the digest of the message, if
    /// it is one.
    pub(super) fn on_arrive(
        &mut self,
        environment: &mut Environment,
        nodes: &mut Nodes,
        (from, to): (NodeId, NodeId),
        connection: u64,
        parcel: Box<Parcel>,
    ) -> Option<(Input, u64)> {
        let Environment { kernel, routes, .. } = environment;
        let input = match self.links.arrive(kernel, routes, (from, to), connection, parcel)? {
            Parcel::Message { message, digest } => return Some((Input::Received { from, message }, digest)),
            Parcel::Cargo { cargo, sent, transfer } => {
                let landed = Landed { cargo, started: sent, transfer, had: None };
                self.land(environment, nodes, (from, to), landed)
            }
            Parcel::Broken { datum } => {
                let why = "its transfer to the sender broke off".to_string();
                Input::DatumBroken { from, datum, no_memory: false, why }
            }
        };
        Some((input, 0))
    }

    /// Handles the end of a flow of bulk cargo. Returns the input for its receiver, if any.
    pub(super) fn on_bulk_done(
        &mut self,
        environment: &mut Environment,
        nodes: &mut Nodes,
        (from, to): (NodeId, NodeId),
        transfer: u64,
    ) -> Option<Input> {
        let Environment { kernel, routes, .. } = environment;
        match self.links.bulk_done(kernel, routes, ((from, to), transfer))? {
            Progress::Begun { datum, value } => self.begin(environment, nodes, (from, to), datum, value),
            Progress::Landed(landed) => Some(self.land(environment, nodes, (from, to), landed)),
        }
    }

    /// Handles the first part of a datum. Nothing is reported if the datum has no room or is not expected.
    fn begin(
        &mut self,
        environment: &Environment,
        nodes: &Nodes,
        (from, to): (NodeId, NodeId),
        datum: DatumId,
        value: StoredValue,
    ) -> Option<Input> {
        let receiver = nodes.node(to);
        let is_full = receiver.is_full(environment.kernel.now());
        let is_here = receiver.store.value(datum).is_some();
        let is_due = nodes.node(from).role.may_send(from, datum) && !is_full && !is_here;
        (is_due && self.links.begin((from, to), datum, value)).then_some(Input::DatumBegun { from, datum })
    }

    /// Handles cargo that has completely arrived. Returns the input for its receiver.
    fn land(
        &mut self,
        environment: &mut Environment,
        nodes: &mut Nodes,
        (from, to): (NodeId, NodeId),
        landed: Landed,
    ) -> Input {
        let Landed { cargo, started: start, transfer, had } = landed;
        let cargo = match self.as_sent(environment, nodes, (from, to), cargo) {
            Ok(cargo) => cargo,
            Err(input) => return input,
        };
        let Environment { kernel, routes, .. } = environment;
        let (size_bytes, is_full) = (cargo.size_bytes(), nodes.node(to).is_full(kernel.now()));
        if let Cargo::Datum { datum, .. } = &cargo {
            self.links.on_arrival(kernel, routes, (from, to), *datum, !is_full);
        }
        let (datum, value) = match cargo {
            Cargo::Probe { .. } => return Input::ProbeArrived { from, size_bytes },
            Cargo::Datum { datum, .. } if is_full => return no_memory(from, datum),
            Cargo::Datum { datum, .. } if !nodes.node(from).role.may_send(from, datum) => {
                let why = format!("it sent {datum}, which is another client's");
                self.links.hang_up(kernel, routes, (to, from), &why);
                return Input::PeerLost { peer: from, fault: ConnectionFault::Disconnected, why };
            }
            Cargo::Datum { datum, value } => (datum, value),
        };
        let had_bytes = had.as_ref().map_or(0, |had| had.bytes);
        let value = match had {
            Some(had) => had.complete(value),
            None => value,
        };
        let path = routes.path((nodes.node(from).host, nodes.node(to).host));
        let flowed_bytes = size_bytes - had_bytes;
        // The time of the rest does not predict the time of the whole datum.
        let duration_ns = if had_bytes > 0 { 0 } else { kernel.now().since(start) };
        let arrival = Arrival { from, to, datum, value, transfer, start, path: &path, flowed_bytes };
        self.accept(environment, nodes, arrival, duration_ns)
    }

    /// Puts a datum that has arrived into the store of its receiver. Returns the input for the receiver;
    /// `duration_ns` is the duration that it reports.
    pub(super) fn accept(
        &mut self,
        Environment { kernel, .. }: &mut Environment,
        nodes: &mut Nodes,
        arrival: Arrival<'_>,
        duration_ns: u64,
    ) -> Input {
        let Arrival { from, to, datum, value, transfer, start, path, flowed_bytes } = arrival;
        let (meta, size_bytes) = (value.meta.clone(), value.meta.size_bytes());
        kernel.record(|trace, end| {
            trace.count_datum(from, to, flowed_bytes, &path.links);
            trace.record_interval(Interval::Transfer { from, to, datum, size_bytes, start, end });
        });
        kernel.observe(|| Observation::DatumArrived { transfer, to, datum });
        self.links.forget_partial(to, datum);
        nodes.store_value(kernel, to, datum, value);
        Input::DatumArrived { from, datum, meta, duration_ns }
    }

    /// Returns the cargo if it equals the sent value, or else the input that notifies its receiver.
    fn as_sent(
        &mut self,
        Environment { kernel, routes, .. }: &mut Environment,
        nodes: &Nodes,
        (from, to): (NodeId, NodeId),
        cargo: Cargo,
    ) -> Result<Cargo, Input> {
        let Cargo::Datum { datum, value } = cargo else { return Ok(cargo) };
        let way = (nodes.node(from).host, nodes.node(to).host);
        let is_small = value.meta.size_bytes() <= EAGER_BYTES_MAX;
        let sent = value.clone();
        if let Some(value) = self.corruption.receive(way, value) {
            return Ok(Cargo::Datum { datum, value });
        }
        kernel.record(|trace, now| trace.corruption_rejected(now, is_small));
        let why = format!("the received bytes of {datum} differ from those that '{}' sent", nodes.node(from).name);
        if is_small {
            self.links.hang_up(kernel, routes, (to, from), &why);
            return Err(Input::PeerLost { peer: from, fault: ConnectionFault::Disconnected, why });
        }
        self.links.on_arrival(kernel, routes, (from, to), datum, false);
        // Treated as if it had changed in the middle.
        let left_bytes = sent.meta.size_bytes() / 2;
        self.links.keep_partial(kernel.now(), to, datum, sent, left_bytes);
        Err(Input::DatumBroken { from, datum, no_memory: false, why })
    }
}

/// Returns the input for a node that has no room for a datum.
pub(super) fn no_memory(from: NodeId, datum: DatumId) -> Input {
    Input::DatumBroken { from, datum, no_memory: true, why: "no memory to store it".to_string() }
}

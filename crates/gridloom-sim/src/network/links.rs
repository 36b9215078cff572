//! Connections between nodes and the traffic over them: control frames in sequence, and bulk data as flows.
//!
//! A connection has two *ends*, one in the view of each node. A frame of n bytes leaves an end when the frames before
//! it have left. It takes n / (bandwidth of the narrowest link) to leave and the route's latency to travel. It does
//! not share bandwidth with flows or with frames of other pairs. Bulk cargo is a flow with the latency of its route.
//! In each direction of a connection, one such flow follows another; only data that are forwarded while being received
//! flow concurrently. Cargo that has waited for other cargo follows it without a gap, because the route's latency
//! passes while it waits. For data that are forwarded while being received, see [`super::forwarding`].
//!
//! **Invariants.** An end exists from the node's `PeerUp` to its `PeerLost` (or until it hangs up itself). Both ends
//! of a connection have its number, so that traffic of an older connection is recognised and dropped.
//!
//! **Not modelled.** Control frames delayed by bulk data on the same links: they are small, and a real network's
//! queues favour short flows.

mod flows;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use gridloom_base::limits::FORWARDS_MAX;
use gridloom_base::time::ns_to_seconds;
use gridloom_base::{DatumId, NodeId, PartSizes, Time};
use gridloom_flow::ActionId;
use gridloom_platform::HostId;

pub(crate) use flows::is_crossed;
use flows::{begins, flow, stop};

use super::cargo::{Cargo, Parcel};
use super::forwarding::{BulkCargo, IncomingData};
use super::partials::{Partials, ReceivedPart};
use super::paths::Path;
use super::routes::{Route, Routes};
use crate::kernel::{Kernel, ScheduledEvent};
use crate::observe::Observation;
use crate::store::StoredValue;

/// One node's end of a connection.
#[derive(Debug)]
struct End {
    /// Number of the connection.
    connection: u64,
    /// The route from the node's host to the peer's.
    route: Route,
    /// When the last control frame has left.
    frames_until: Time,
    /// When the last control frame arrives. Frames must not overtake one another when a route gets shorter.
    frames_arrive: Time,
    /// The path to the other end, with the version of the paths from which it was computed.
    path: Option<(u64, Arc<Path>)>,
    /// Cargo waiting to be sent in bulk, with the time from which the route was available for it.
    bulk: VecDeque<(Option<Time>, BulkCargo)>,
    /// Cargo in transit: at most one that was complete when it began, and those that are forwarded while being received.
    in_transit: Vec<CargoInTransit>,
    /// True if the other end has forgotten the connection without notice.
    half_open: bool,
}

/// Cargo that flows, or waits for its last part.
#[derive(Debug)]
struct CargoInTransit {
    action: Option<ActionId>,
    started: Time,
    load: BulkCargo,
    /// Bytes that follow the current flow.
    left_bytes: u64,
    transfer: u64,
    /// The sender was still receiving the datum when the transfer began, so it does not delay other cargo.
    is_forwarded: bool,
}

/// The effect of a flow that has ended.
#[derive(Debug)]
pub(crate) enum Progress {
    /// The first part of a datum has arrived at its receiver.
    Begun { datum: DatumId, value: StoredValue },
    /// Cargo has completely arrived.
    Landed(Landed),
}

/// Cargo that has completely arrived at its receiver.
#[derive(Debug)]
pub(crate) struct Landed {
    pub(crate) cargo: Cargo,
    pub(crate) started: Time,
    pub(crate) transfer: u64,
    /// The part that the receiver already had, which was not sent again.
    pub(crate) had: Option<ReceivedPart>,
}

/// All ends of connections, by (owner, peer).
#[derive(Debug)]
pub(crate) struct Links {
    ends: BTreeMap<(NodeId, NodeId), End>,
    made: u64,
    pub(super) incoming: IncomingData,
    pub(super) partials: Partials,
    parts: PartSizes,
}

impl Links {
    /// Creates links without connections. Large data are sent in these parts.
    pub(crate) fn new(parts: PartSizes) -> Links {
        Links {
            ends: BTreeMap::new(),
            made: 0,
            incoming: IncomingData::default(),
            partials: Partials::default(),
            parts,
        }
    }

    /// Reports whether a datum is large enough to be forwarded while it is being received.
    pub(crate) fn may_forward(&self, size_bytes: u64) -> bool {
        self.parts.is_forwarded_early(size_bytes)
    }

    /// Connects two nodes on the given hosts.
    pub(crate) fn connect(&mut self, (a, host_a): (NodeId, HostId), (b, host_b): (NodeId, HostId)) {
        self.made += 1;
        for (pair, way) in [((a, b), (host_a, host_b)), ((b, a), (host_b, host_a))] {
            let end = End {
                connection: self.made,
                route: way,
                frames_until: Time::ZERO,
                frames_arrive: Time::ZERO,
                path: None,
                bulk: VecDeque::new(),
                in_transit: Vec::new(),
                half_open: false,
            };
            let before = self.ends.insert(pair, end);
            assert!(before.is_none(), "a connection is made only if there is none");
        }
    }

    /// Reports whether a node is connected to a peer, in its own view.
    pub(crate) fn is_connected(&self, owner: NodeId, peer: NodeId) -> bool {
        self.ends.contains_key(&(owner, peer))
    }

    /// Returns the peers to which a node is connected, in its own view.
    pub(crate) fn peers(&self, owner: NodeId) -> Vec<NodeId> {
        let all = (owner, NodeId(0))..=(owner, NodeId(u64::MAX));
        self.ends.range(all).map(|((_, peer), _)| *peer).collect()
    }

    fn end_mut(&mut self, owner: NodeId, peer: NodeId) -> Option<&mut End> {
        self.ends.get_mut(&(owner, peer))
    }

    /// Sends a frame. It is dropped if the peer is not connected.
    pub(crate) fn send_frame(
        &mut self,
        kernel: &mut Kernel,
        routes: &mut Routes,
        (from, to): (NodeId, NodeId),
        size_bytes: u64,
        parcel: Parcel,
    ) {
        let Some(end) = self.end_mut(from, to) else { return };
        let version = routes.version();
        let path = match &end.path {
            Some((known, path)) if *known == version => path.clone(),
            Some(_) | None => {
                let path = routes.path(end.route);
                end.path = Some((version, path.clone()));
                path
            }
        };
        let leaves_ns = path.frame_ns(size_bytes + routes.overhead_bytes());
        end.frames_until = end.frames_until.max(kernel.now()) + leaves_ns;
        let arrives = end.frames_arrive.max(end.frames_until + path.frame_latency_ns);
        end.frames_arrive = arrives;
        let (connection, parcel) = (end.connection, Box::new(parcel));
        kernel.push(arrives, ScheduledEvent::Arrive { from, to, connection, parcel });
    }

    /// Sends small cargo in a frame. It is dropped if the peer is not connected.
    pub(crate) fn send_small(
        &mut self,
        kernel: &mut Kernel,
        routes: &mut Routes,
        pair: (NodeId, NodeId),
        cargo: Cargo,
    ) {
        let Some(way) = self.ends.get(&pair).map(|end| end.route) else { return };
        let (size_bytes, sent) = (cargo.size_bytes(), kernel.now());
        let transfer = begins(kernel, routes, pair, way, (&cargo, size_bytes));
        self.send_frame(kernel, routes, pair, size_bytes, Parcel::Cargo { cargo, sent, transfer });
    }

    /// Handles the arrival of a frame. Returns its contents if the receiver may have them now.
    pub(crate) fn arrive(
        &mut self,
        kernel: &mut Kernel,
        routes: &mut Routes,
        (from, to): (NodeId, NodeId),
        connection: u64,
        parcel: Box<Parcel>,
    ) -> Option<Parcel> {
        let current = self.ends.get(&(to, from)).filter(|end| end.connection == connection);
        if let Some((there, here)) = current.map(|end| end.route)
            && routes.is_lost((here, there))
        {
            routes.hold_arrival((here, there), ScheduledEvent::Arrive { from, to, connection, parcel });
            return None;
        }
        let is_current = current.is_some();
        if let Parcel::Cargo { transfer, .. } = &*parcel {
            kernel.observe(|| Observation::TransferEnds { transfer: *transfer });
        }
        if !is_current {
            self.refuse(kernel, routes, from, to);
            return None;
        }
        Some(*parcel)
    }

    /// Sends cargo in bulk, behind the cargo already in transit. It is dropped if the peer is not connected.
    /// `is_coming` is true if the sender is still receiving it; `may_pass` is true if its receiver may forward it.
    pub(crate) fn send_bulk(
        &mut self,
        kernel: &mut Kernel,
        routes: &mut Routes,
        pair: (NodeId, NodeId),
        cargo: Cargo,
        (is_coming, may_pass): (bool, bool),
    ) {
        if let Some(end) = self.ends.get_mut(&pair) {
            let since = (!routes.is_lost(end.route)).then_some(kernel.now());
            let had = match &cargo {
                Cargo::Datum { datum, value } => self.partials.take(kernel.now(), pair, *datum, value),
                Cargo::Probe { .. } => None,
            };
            if had.is_some() {
                kernel.record(|trace, now| trace.transfer_continued(now));
            }
            end.bulk.push_back((since, BulkCargo { cargo, may_pass, is_incoming: is_coming, has_begun: false, had }));
            self.start_next(kernel, routes, pair);
        }
    }

    /// Starts the next flows of a direction if its route is open: one of the complete cargo, and up to
    /// [`FORWARDS_MAX`] that the sender is still receiving.
    fn start_next(&mut self, kernel: &mut Kernel, routes: &mut Routes, pair: (NodeId, NodeId)) {
        while self.start_one(kernel, routes, pair) {}
    }

    fn start_one(&mut self, kernel: &mut Kernel, routes: &mut Routes, pair: (NodeId, NodeId)) -> bool {
        let parts = self.parts;
        let Some(end) = self.ends.get_mut(&pair).filter(|end| !end.bulk.is_empty()) else { return false };
        let passed_on = end.in_transit.iter().filter(|moving| moving.is_forwarded).count();
        let is_free = passed_on == end.in_transit.len();
        let may_start = |load: &BulkCargo| if load.is_incoming { passed_on < FORWARDS_MAX } else { is_free };
        let Some(next) = end.bulk.iter().position(|(_, load)| may_start(load)) else { return false };
        if routes.is_lost(end.route) {
            return false;
        }
        let Some((since, load)) = end.bulk.remove(next) else { return false };
        let now = kernel.now();
        end.bulk.iter_mut().for_each(|(since, _)| *since = since.or(Some(now)));
        let under_way_s = since.map_or(0.0, |since| ns_to_seconds(now.since(since)));
        let size_bytes = load.flow_bytes();
        let flowing_bytes = load.stretch_bytes(size_bytes, parts);
        let transfer = begins(kernel, routes, pair, end.route, (&load.cargo, size_bytes));
        let of = (pair, transfer);
        let action = Some(flow(kernel, routes, of, end.route, &load.cargo, (flowing_bytes, under_way_s)));
        let (left_bytes, is_passed_on) = (size_bytes - flowing_bytes, load.is_incoming);
        end.in_transit.push(CargoInTransit {
            action,
            started: now,
            load,
            left_bytes,
            transfer,
            is_forwarded: is_passed_on,
        });
        true
    }

    /// Starts the next stretches of transfers whose previous stretch has ended, unless they must wait.
    fn continue_flows(&mut self, kernel: &mut Kernel, routes: &mut Routes, pair: (NodeId, NodeId)) {
        let Some(end) = self.ends.get_mut(&pair) else { return };
        for moving in end.in_transit.iter_mut().filter(|moving| moving.action.is_none()) {
            let stretch_bytes = moving.load.stretch_bytes(moving.left_bytes, self.parts);
            if stretch_bytes > 0 {
                let of = (pair, moving.transfer);
                let bytes = (stretch_bytes, f64::INFINITY);
                moving.action = Some(flow(kernel, routes, of, end.route, &moving.load.cargo, bytes));
                moving.left_bytes -= stretch_bytes;
            }
        }
    }

    /// Lets the forwarding of a datum finish, because the datum is complete at its sender.
    pub(super) fn allow_last_part(
        &mut self,
        kernel: &mut Kernel,
        routes: &mut Routes,
        pair: (NodeId, NodeId),
        datum: DatumId,
    ) {
        let Some(end) = self.ends.get_mut(&pair) else { return };
        let moving = end.in_transit.iter_mut().map(|moving| &mut moving.load);
        for load in moving.chain(end.bulk.iter_mut().map(|(_, load)| load)).filter(|load| load.is_forwarding(datum)) {
            load.is_incoming = false;
        }
        self.continue_flows(kernel, routes, pair);
        self.start_next(kernel, routes, pair);
    }

    /// Cancels the forwarding of a datum. Returns the number of cancelled transfers.
    pub(super) fn cancel_forwarding(
        &mut self,
        kernel: &mut Kernel,
        routes: &mut Routes,
        pair: (NodeId, NodeId),
        datum: DatumId,
    ) -> usize {
        let Some(end) = self.ends.get_mut(&pair) else { return 0 };
        let waiting = end.bulk.len();
        end.bulk.retain(|(_, load)| !load.is_forwarding(datum));
        let mut given_up = waiting - end.bulk.len();
        let broken: Vec<CargoInTransit> =
            end.in_transit.extract_if(.., |moving| moving.load.is_forwarding(datum)).collect();
        for moving in broken {
            given_up += 1;
            kernel.observe(|| Observation::TransferEnds { transfer: moving.transfer });
            self.break_transfer(kernel, pair.1, moving);
        }
        self.start_next(kernel, routes, pair);
        given_up
    }

    /// Starts waiting cargo on routes that have opened.
    pub(crate) fn start_waiting(&mut self, kernel: &mut Kernel, routes: &mut Routes, is_on: impl Fn(Route) -> bool) {
        let pairs: Vec<_> = self.ends.iter().filter(|(_, end)| is_on(end.route)).map(|(pair, _)| *pair).collect();
        pairs.into_iter().for_each(|pair| self.start_next(kernel, routes, pair));
    }

    /// Handles the end of a flow. Returns its effect at the receiver if the receiver's end exists.
    pub(crate) fn bulk_done(
        &mut self,
        kernel: &mut Kernel,
        routes: &mut Routes,
        ((from, to), transfer): ((NodeId, NodeId), u64),
    ) -> Option<Progress> {
        let is_there = self.is_connected(to, from);
        let end = self.end_mut(from, to).expect("a flow ends with its connection");
        let at = end.in_transit.iter().position(|moving| moving.transfer == transfer).expect("it was under way");
        let moving = &mut end.in_transit[at];
        moving.action = None;
        if moving.left_bytes > 0 {
            let begins = moving.load.may_pass && !std::mem::replace(&mut moving.load.has_begun, true);
            let begun = match &moving.load.cargo {
                Cargo::Datum { datum, value } if begins && is_there => Some((*datum, value.clone())),
                Cargo::Datum { .. } | Cargo::Probe { .. } => None,
            };
            self.continue_flows(kernel, routes, (from, to));
            return begun.map(|(datum, value)| Progress::Begun { datum, value });
        }
        let CargoInTransit { started, load: BulkCargo { cargo, had, .. }, .. } = end.in_transit.remove(at);
        kernel.observe(|| Observation::TransferEnds { transfer });
        self.start_next(kernel, routes, (from, to));
        // The receiver's end may be gone; then no machine waits for the cargo.
        if !is_there {
            self.refuse(kernel, routes, from, to);
            return None;
        }
        Some(Progress::Landed(Landed { cargo, started, transfer, had }))
    }

    /// Cancels all bulk cargo of a direction.
    fn clear_bulk(&mut self, kernel: &mut Kernel, from: NodeId, to: NodeId) {
        let Some(end) = self.end_mut(from, to) else { return };
        let (waiting, moving) = (std::mem::take(&mut end.bulk), std::mem::take(&mut end.in_transit));
        for (_, load) in waiting {
            if let (Cargo::Datum { datum, .. }, Some(had)) = (load.cargo, load.had) {
                self.partials.keep(kernel.now(), to, datum, had);
            }
        }
        for moving in moving {
            kernel.observe(|| Observation::TransferEnds { transfer: moving.transfer });
            self.break_transfer(kernel, to, moving);
        }
    }

    /// Breaks off a transfer to a node. The parts that have arrived are kept there.
    fn break_transfer(&mut self, kernel: &mut Kernel, to: NodeId, moving: CargoInTransit) {
        let rest = moving.action.map_or(0.0, |action| kernel.cancel_with_rest(action));
        let BulkCargo { cargo: Cargo::Datum { datum, value }, .. } = moving.load else { return };
        let left_bytes = moving.left_bytes + rest.ceil() as u64;
        self.keep_partial(kernel.now(), to, datum, value, left_bytes);
    }

    /// Keeps the received part of a datum whose transfer broke off with `left_bytes` missing.
    pub(crate) fn keep_partial(&mut self, now: Time, at: NodeId, datum: DatumId, value: StoredValue, left_bytes: u64) {
        let size_bytes = value.meta.size_bytes();
        let part_bytes = self.parts.part_bytes(size_bytes);
        let bytes = size_bytes.saturating_sub(left_bytes.max(1)) / part_bytes * part_bytes;
        self.partials.keep(now, at, datum, ReceivedPart { bytes, of: value });
    }

    /// Tells the peer which part of a datum the node has, before the node requests it.
    pub(crate) fn announce_partial(&mut self, (node, peer): (NodeId, NodeId), datum: DatumId) {
        self.partials.announce((peer, node), datum);
    }

    /// Drops a node's part of a datum, because the node no longer needs it.
    pub(crate) fn forget_partial(&mut self, node: NodeId, datum: DatumId) {
        self.partials.forget(node, datum);
    }

    /// Cancels all bulk cargo that a node sends.
    pub(crate) fn clear_all_bulk(&mut self, kernel: &mut Kernel, from: NodeId) {
        for to in self.peers(from) {
            self.clear_bulk(kernel, from, to);
        }
    }

    /// Stops the bulk cargo on some routes. It stays first in the queue.
    pub(crate) fn stop_bulk(&mut self, kernel: &mut Kernel, mut is_on: impl FnMut(Route) -> bool) {
        for end in self.ends.values_mut() {
            if end.in_transit.is_empty() || !is_on(end.route) {
                continue;
            }
            for moving in end.in_transit.drain(..).rev() {
                stop(kernel, &moving);
                end.bulk.push_front((None, moving.load));
            }
            end.bulk.iter_mut().for_each(|(since, _)| *since = None);
        }
    }

    /// Closes a node's end immediately. The peer notices once the data already sent has arrived.
    pub(crate) fn hang_up(
        &mut self,
        kernel: &mut Kernel,
        routes: &mut Routes,
        (node, peer): (NodeId, NodeId),
        why: &str,
    ) {
        let Some(end) = self.end_mut(node, peer) else { return };
        let (connection, way) = (end.connection, end.route);
        let (sent, arrived) = (end.frames_until.max(kernel.now()), end.frames_arrive);
        self.drop_end(kernel, routes, node, peer);
        self.clear_bulk(kernel, peer, node);
        let heard = arrived.max(sent + routes.path(way).frame_latency_ns);
        notify_lost(kernel, (peer, node), connection, heard, why);
    }

    /// Handles the notification that a node's peer has closed its end. Returns the reason if the node is notified now.
    pub(crate) fn lost(
        &mut self,
        kernel: &mut Kernel,
        routes: &mut Routes,
        (node, peer): (NodeId, NodeId),
        connection: u64,
        why: String,
    ) -> Option<String> {
        let (here, there) = self.ends.get(&(node, peer)).filter(|end| end.connection == connection)?.route;
        if routes.is_lost((there, here)) {
            routes.hold_arrival((there, here), ScheduledEvent::Lost { node, peer, connection, why });
            return None;
        }
        self.drop_end(kernel, routes, node, peer);
        Some(why)
    }

    /// Removes a node's end of a connection with all waiting cargo. Returns true if there was one.
    pub(crate) fn drop_end(&mut self, kernel: &mut Kernel, routes: &mut Routes, node: NodeId, peer: NodeId) -> bool {
        self.clear_bulk(kernel, node, peer);
        self.break_all(kernel, routes, (node, peer));
        self.partials.forget_told((node, peer));
        self.ends.remove(&(node, peer)).is_some()
    }

    /// Marks a node's end as half-open, because the other end has forgotten the connection without notice.
    pub(crate) fn leave_half_open(&mut self, keeps: NodeId, forgot: NodeId) {
        if let Some(end) = self.end_mut(keeps, forgot) {
            end.half_open = true;
        }
    }

    /// Notifies a peer that the node has forgotten their connection, after it received something over it.
    fn refuse(&mut self, kernel: &mut Kernel, routes: &mut Routes, from: NodeId, to: NodeId) {
        let Some(end) = self.ends.get(&(from, to)).filter(|end| end.half_open) else { return };
        let (there, here) = end.route;
        let heard = kernel.now() + routes.path((here, there)).frame_latency_ns;
        notify_lost(kernel, (from, to), end.connection, heard, "the peer refuses the connection");
    }
}

/// Notifies a node, after everything sent to it has arrived, that its connection to a peer is lost.
fn notify_lost(kernel: &mut Kernel, (node, peer): (NodeId, NodeId), connection: u64, behind: Time, why: &str) {
    kernel.push(behind, ScheduledEvent::Lost { node, peer, connection, why: why.to_string() });
}

#[cfg(test)]
mod tests;

//! What moves between nodes: control frames, one behind the other, and bulk data as flows.
//!
//! A frame of n bytes leaves when those before it have left, takes n / (bandwidth of the narrowest link) to leave and
//! the route's latency to travel; it shares nothing with flows or with frames of other pairs. Bulk cargo is a flow with
//! the latency of its route, one after another in each direction of a connection. One that has waited for others follows
//! them without a gap: the route's latency passes while it waits.
//!
//! **Not done.** Control frames slowed by bulk data on the same links: they are small, and a real network's queues
//! favour short flows.

use std::sync::Arc;

use gridloom_core::base::time::ns_to_seconds;
use gridloom_core::base::{NodeId, Time};
use gridloom_core::flow::Transfer;
use gridloom_core::node::{Input, Message};

use crate::links::{Cargo, End, Moving, Path};
use crate::observe::{Moved, Seen};
use crate::simulation::{Occurrence, Purpose, Simulation};
use crate::trace::Interval;

/// What a control frame carries.
#[derive(Debug)]
pub(crate) enum Parcel {
    Message { message: Message, digest: u64 },
    Cargo { cargo: Cargo, sent: Time, transfer: u64 },
}

impl Simulation {
    /// Sends a frame; to a peer that is not up, it vanishes.
    pub(crate) fn send_frame(&mut self, from: NodeId, to: NodeId, size_bytes: u64, parcel: Parcel) {
        let version = self.paths.version;
        let path = match self.connections.end(from, to) {
            None => return,
            Some(End { path: Some((known, path)), .. }) if *known == version => path.clone(),
            Some(_) => self.path(from, to),
        };
        let leaves_ns = path.frame_ns(size_bytes + self.config.message_overhead_bytes);
        let now = self.now;
        let end = self.connections.end_mut(from, to).expect("it was there a moment ago");
        end.frames_until = end.frames_until.max(now) + leaves_ns;
        let arrives = end.frames_arrive.max(end.frames_until + path.frame_latency_ns);
        end.frames_arrive = arrives;
        let connection = end.connection;
        if end.path.as_ref().is_none_or(|(known, _)| *known != version) {
            end.path = Some((version, path));
        }
        let parcel = Box::new(parcel);
        self.queue.push(arrives, Occurrence::Arrive { from, to, connection, parcel });
    }

    pub(crate) fn on_arrive(&mut self, from: NodeId, to: NodeId, connection: u64, parcel: Box<Parcel>) {
        let current = self.connections.end(to, from).is_some_and(|end| end.connection == connection);
        if current && self.is_lost(from, to) {
            return self.hold(from, to, Occurrence::Arrive { from, to, connection, parcel });
        }
        if let Parcel::Cargo { transfer, .. } = &*parcel {
            self.watch.see(self.now, || Seen::TransferEnds { transfer: *transfer });
        }
        if !current {
            return self.refuse(from, to);
        }
        match *parcel {
            Parcel::Message { message, digest } => self.handle(to, Input::Received { from, message }, digest),
            Parcel::Cargo { cargo, sent, transfer } => self.land(from, to, cargo, sent, transfer),
        }
    }

    /// Sends cargo in bulk, behind what is already under way; to a peer that is not up, it vanishes.
    pub(crate) fn send_bulk(&mut self, from: NodeId, to: NodeId, cargo: Cargo) {
        let since = (!self.is_lost(from, to)).then_some(self.now);
        if let Some(end) = self.connections.end_mut(from, to) {
            end.bulk.push_back((since, cargo));
            self.move_next(from, to);
        }
    }

    /// Starts the next flow of that direction, if none is under way and the way is there.
    pub(crate) fn move_next(&mut self, from: NodeId, to: NodeId) {
        if self.is_lost(from, to) {
            return;
        }
        let Some(end) = self.connections.end_mut(from, to).filter(|end| end.moving.is_none()) else { return };
        let Some((since, cargo)) = end.bulk.pop_front() else { return };
        let now = self.now;
        end.bulk.iter_mut().for_each(|(since, _)| *since = since.or(Some(now)));
        let under_way_s = since.map_or(0.0, |since| ns_to_seconds(now.since(since)));
        self.synchronise();
        let path = self.path(from, to);
        let size = cargo.size_bytes() as f64;
        let transfer =
            Transfer { way_back: &path.way_back, under_way_s, ..Transfer::new(&path.links, path.latency_s, size) };
        let action = self.engine.start_transfer(&transfer);
        let transfer = self.cargo_begins(from, to, &cargo);
        self.purposes.insert(action, Purpose::Bulk { from, to, cargo, transfer });
        let started = self.now;
        let end = self.connections.end_mut(from, to).expect("it was there a moment ago");
        end.moving = Some(Moving { action, started });
    }

    /// For who watches; the transfer's number.
    pub(crate) fn cargo_begins(&mut self, from: NodeId, to: NodeId, cargo: &Cargo) -> u64 {
        let moved = match cargo {
            Cargo::Datum { datum, .. } => Moved::Datum { datum: *datum, from, to },
            Cargo::Probe { .. } => Moved::Probe,
        };
        let path = self.path(from, to);
        self.begins(moved, cargo.size_bytes(), &path.links)
    }

    pub(crate) fn on_bulk_done(&mut self, from: NodeId, to: NodeId, cargo: Cargo, transfer: u64) {
        self.watch.see(self.now, || Seen::TransferEnds { transfer });
        let end = self.connections.end_mut(from, to).expect("a flow ends with its connection");
        let moving = end.moving.take().expect("a flow that ends was under way");
        self.move_next(from, to);
        // The receiver's end may not be there: then nobody waits for it.
        match self.connections.end(to, from) {
            Some(_) => self.land(from, to, cargo, moving.started, transfer),
            None => self.refuse(from, to),
        }
    }

    /// Cargo is whole at its receiver.
    fn land(&mut self, from: NodeId, to: NodeId, cargo: Cargo, start: Time, transfer: u64) {
        let size_bytes = cargo.size_bytes();
        match cargo {
            Cargo::Probe { .. } => self.handle(to, Input::ProbeArrived { from, size_bytes }, 0),
            Cargo::Datum { datum, .. } if self.is_full(to) => {
                let why = "no memory to take it in".to_string();
                self.handle(to, Input::DatumBroken { from, datum, why }, 0);
            }
            Cargo::Datum { datum, value } => {
                let path = self.path(from, to);
                self.trace.moved(from, to, size_bytes, &path.links);
                let end = self.now;
                self.watch.see(end, || Seen::DatumArrived { transfer, to, datum });
                self.trace.intervals.push(Interval::Transfer { from, to, datum, size_bytes, start, end });
                let meta = value.meta.clone();
                self.keep(to, datum, value);
                self.handle(to, Input::DatumArrived { from, datum, meta, took_ns: end.since(start) }, 0);
            }
        }
    }

    /// Gives up all bulk cargo of that direction.
    pub(crate) fn clear_bulk(&mut self, from: NodeId, to: NodeId) {
        let Some(end) = self.connections.end_mut(from, to) else { return };
        end.bulk.clear();
        if let Some(moving) = end.moving.take() {
            if let Some(Purpose::Bulk { transfer, .. }) = self.purposes.remove(&moving.action) {
                self.watch.see(self.now, || Seen::TransferEnds { transfer });
            }
            self.synchronise();
            self.engine.cancel(moving.action);
        }
    }

    /// Stops the bulk cargo that moves in that direction; it stays the first in line.
    pub(crate) fn stop_bulk(&mut self, from: NodeId, to: NodeId) {
        let Some(end) = self.connections.end_mut(from, to) else { return };
        let Some(moving) = end.moving.take() else { return };
        if let Some(Purpose::Bulk { cargo, .. }) = self.purposes.remove(&moving.action) {
            end.bulk.push_front((None, cargo));
        }
        end.bulk.iter_mut().for_each(|(since, _)| *since = None);
        self.synchronise();
        self.engine.cancel(moving.action);
    }

    /// The way between two nodes that are, or were, connected.
    pub(crate) fn path(&mut self, from: NodeId, to: NodeId) -> Arc<Path> {
        let (here, there) = (self.node(from).host, self.node(to).host);
        self.paths.between(here, there).expect("nodes connect only where there are routes both ways")
    }
}

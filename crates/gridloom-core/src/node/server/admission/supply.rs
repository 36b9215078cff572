//! Data that come, are asked for and are given up.

use std::collections::BTreeSet;

use super::fetches::Awaited;
use super::{Admission, Output, send};
use crate::data::{Asker, Fetch, Origin};
use crate::member::Members;
use crate::node::message::{DataMessage, Supply};
use crate::node::protocol::{Effect, Role};
use gridloom_base::limits::{EAGER_BYTES_MAX, FETCH_UNKNOWN_NS_MAX};
use gridloom_base::{DatumId, NodeId, Time};

impl Admission {
    /// The sources of what tasks read that have just been taken in.
    pub fn expect(&mut self, client: NodeId, supplies: Vec<Supply>, is_call: bool) {
        for Supply { datum, meta, from, address, hops, .. } in supplies {
            let is_its = datum.client == client || datum.is_shared();
            if is_its && self.executor.reads(datum) && !self.replicas.is_known(datum) {
                let size_bytes = meta.checked_size_bytes().unwrap_or(u64::MAX);
                let origin = if is_call || self.config.plain { Origin::Argument } else { Origin::Copied };
                let comes_unasked = is_call && size_bytes <= EAGER_BYTES_MAX;
                let awaited = Awaited::new(size_bytes, origin, (from, address, hops));
                self.fetches.expect(datum, Awaited { comes_unasked, ..awaited });
            }
        }
    }

    /// Other sources, of data that did not come from theirs.
    pub fn resupply(
        &mut self,
        now: Time,
        client: NodeId,
        supplies: Vec<Supply>,
        members: &Members<Role>,
        out: &mut Vec<Output>,
    ) {
        for supply in supplies {
            if supply.datum.slice().is_some() {
                self.expect_slice(now, client, supply, members, out);
                continue;
            }
            let Supply { datum, meta, from, address, hops, by_storage } = supply;
            let is_needed = self.executor.reads(datum) || self.fetches.is_awaited(datum);
            if datum.client != client || !is_needed || self.replicas.is_here(datum) {
                continue;
            }
            self.end_slices(now, datum, out);
            let size_bytes = meta.checked_size_bytes().unwrap_or(u64::MAX);
            let is_due = self.replicas.is_known(datum);
            let origin = self.fetches.get(datum).map_or(Origin::Copied, |awaited| awaited.origin);
            let awaited = Awaited::new(size_bytes, origin, (from, address, hops));
            self.fetches.expect(datum, Awaited { by_storage, ..awaited });
            if is_due {
                self.answer_askers(datum, out);
                if self.make_room_for(now, datum, size_bytes, out) {
                    self.fetches.ask(datum, members, out);
                }
            }
        }
    }

    /// Whether a datum that admitted tasks wait for can come. Its place may be too small for it, if it was made before its size was
    /// known: if there is no room for the rest, tasks behind them make way, or else they do. The first in order never does
    /// for another, so that two tasks cannot keep taking each other's room.
    pub(super) fn make_room_for(&mut self, now: Time, datum: DatumId, size_bytes: u64, out: &mut Vec<Output>) -> bool {
        let more_bytes = self.replicas.lacks_bytes(datum, size_bytes);
        let (readers, behind) = self.executor.waiting_for(datum);
        self.evict(more_bytes, &BTreeSet::new(), out);
        if !self.replicas.fits(more_bytes) {
            self.hold_back(now, behind, out);
            self.evict(more_bytes, &BTreeSet::new(), out);
        }
        let fits = self.replicas.fits(more_bytes);
        if fits {
            self.replicas.grow(datum, size_bytes);
        } else {
            self.hold_back(now, readers, out);
        }
        fits
    }

    /// Peers that ask for a datum which is to come here, and from elsewhere. They get it as it comes once it has begun to: what comes
    /// is in no circle of servers that wait for one another. Before that, those with no more hops than this server are refused:
    /// along a chain that waits the hops fall, so it is no circle. Their tasks may have been told of this server before the task
    /// that makes the datum was called back from here.
    pub(super) fn answer_askers(&mut self, datum: DatumId, out: &mut Vec<Output>) {
        let Some(awaited) = self.fetches.get(datum) else { return };
        if self.replicas.is_here(datum) || self.executor.makes(datum) {
            return;
        }
        let (from, hops, has_begun) = (awaited.from, awaited.hops, awaited.has_begun);
        let is_behind = |asker: &Asker| asker.peer != from && (has_begun || asker.hops > hops);
        for peer in self.replicas.take_askers(datum, |asker| !is_behind(asker)) {
            // The owner of the datum knows its holders.
            self.refuse(datum, peer, "waits for it itself", out);
        }
        if has_begun {
            let waiting = self.replicas.take_askers(datum, |_| true);
            out.extend(waiting.into_iter().map(|to| Effect::SendDatum { to, datum }.into()));
        }
    }

    /// A peer asks for a datum.
    pub fn fetch(&mut self, now: Time, datum: DatumId, (asker, by_storage): (Asker, bool), out: &mut Vec<Output>) {
        if datum.slice().is_some() && self.has_slice(now, datum) {
            return out.push(Effect::SendDatum { to: asker.peer, datum }.into());
        }
        if self.config.plain {
            if asker.peer == datum.client && self.executor.makes(datum) {
                // It goes there unasked.
                return;
            }
            let what = "is plain (serve --plain): it sends results to their client alone, when they are made";
            return self.refuse(datum, asker.peer, what, out);
        }
        match self.replicas.fetch(datum, asker, now) {
            Fetch::Now if by_storage && self.config.storage.is_some() => {
                out.push(Effect::StoreDatum { to: asker.peer, datum }.into());
            }
            Fetch::Now => out.push(Effect::SendDatum { to: asker.peer, datum }.into()),
            Fetch::Later => self.answer_askers(datum, out),
            Fetch::Gone => self.refuse(datum, asker.peer, "has dropped it", out),
        }
    }

    pub(super) fn refuse(&self, datum: DatumId, peer: NodeId, what: &str, out: &mut Vec<Output>) {
        let why = format!("server '{}' {what}", self.config.name);
        send(out, peer, DataMessage::FetchRefused { datum, why });
    }

    /// A datum has begun to come.
    pub fn begun(&mut self, datum: DatumId, from: NodeId, out: &mut Vec<Output>) {
        if self.fetches.begin(datum, from) {
            self.answer_askers(datum, out);
        }
    }

    /// A datum has come: what it is here for and over how many sends, or nothing if it is of no use and was dropped.
    pub fn take_arrived(
        &mut self,
        now: Time,
        datum: DatumId,
        size_bytes: u64,
        out: &mut Vec<Output>,
    ) -> Option<(Origin, u16)> {
        // A datum has no room yet while its source is being asked for.
        let has_room = self.replicas.is_known(datum) && self.fetches.is_awaited(datum);
        if !has_room && !self.replicas.fits(self.replicas.lacks_bytes(datum, size_bytes)) {
            // There is no room for it yet, or not any more.
            self.fetches.found_no_room(datum);
            out.push(Effect::DropDatum { datum }.into());
            return None;
        }
        let awaited = self.fetches.forget(datum);
        if awaited.is_none() && !self.executor.waits_for(datum) {
            // Its task was cancelled on the way, or it came twice.
            if !self.replicas.is_here(datum) {
                if !self.executor.makes(datum) {
                    let waiting = self.replicas.refuse(datum);
                    out.extend(waiting.into_iter().map(|to| Effect::SendDatum { to, datum }.into()));
                    self.replicas.unreserve(datum, now);
                }
                out.push(Effect::DropDatum { datum }.into());
            }
            return None;
        }
        Some(awaited.map_or((Origin::Copied, 1), |awaited| (awaited.origin, awaited.hops)))
    }

    /// A datum is in the store: the peers and the tasks that wait for it have it.
    pub fn datum_here(&mut self, now: Time, datum: DatumId, size_bytes: u64, origin: Origin, out: &mut Vec<Output>) {
        self.last_progress = now;
        self.reserve(datum, size_bytes, origin, now);
        for peer in self.replicas.arrived(datum, size_bytes, origin, now) {
            out.push(Effect::SendDatum { to: peer, datum }.into());
        }
        self.executor.datum_here(datum);
    }

    /// The owner of a datum no longer needs it.
    pub fn release(&mut self, datum: DatumId, out: &mut Vec<Output>) {
        self.homeward.forget(datum);
        if self.replicas.release(datum) {
            out.push(Effect::DropDatum { datum }.into());
        }
    }

    /// Refuses requests for data of which nothing is known for long.
    pub fn expire(&mut self, now: Time, out: &mut Vec<Output>) {
        let executor = &self.executor;
        let refused = self.replicas.expire(now, FETCH_UNKNOWN_NS_MAX, |datum| executor.makes(datum));
        for (datum, peer) in refused {
            self.refuse(datum, peer, "knows nothing of it", out);
        }
    }

    // ---- peers

    pub fn peer_lost(&mut self, peer: NodeId, why: &str, out: &mut Vec<Output>) {
        out.extend(self.replicas.forget_peer(peer).into_iter().map(|datum| Effect::DropDatum { datum }.into()));
        self.fetches.peer_lost(peer, why, out);
    }

    /// The data of a client that is gone.
    pub fn forget_data_of(&mut self, client: NodeId, out: &mut Vec<Output>) {
        self.fetches.forget_client(client);
        self.homeward.forget_client(client);
        for datum in self.replicas.of_client(client) {
            // Servers that can still reach the client are told of another source by it.
            for peer in self.replicas.refuse(datum) {
                self.refuse(datum, peer, "has dropped it: it lost the client", out);
            }
            if self.replicas.discard(datum) {
                out.push(Effect::DropDatum { datum }.into());
            }
        }
    }
}

//! Data that arrive, are requested and are released.

use std::collections::BTreeSet;

use super::fetches::AwaitedDatum;
use super::{Admission, AdmissionOutput, send};
use crate::data::{FetchAnswer, Origin, Requester};
use crate::member::Members;
use crate::node::message::{DataMessage, Supply};
use crate::node::protocol::{Effect, Role};
use gridloom_base::limits::{EAGER_BYTES_MAX, FETCH_UNKNOWN_NS_MAX};
use gridloom_base::{DatumId, NodeId, Time};

impl Admission {
    /// Records the sources of inputs of tasks that have just been added.
    pub fn expect(&mut self, client: NodeId, supplies: Vec<Supply>, is_call: bool) {
        for Supply { datum, meta, from, address, hops, .. } in supplies {
            let is_its = datum.client == client || datum.is_shared();
            if is_its && self.executor.reads(datum) && !self.replicas.is_known(datum) {
                let size_bytes = meta.checked_size_bytes().unwrap_or(u64::MAX);
                let origin = if is_call || self.config.is_stateless { Origin::Argument } else { Origin::Copied };
                // A client sends the small arguments of a call with it, but never shared data.
                let comes_unasked = is_call && !datum.is_shared() && size_bytes <= EAGER_BYTES_MAX;
                let awaited = AwaitedDatum::new(size_bytes, origin, (from, address, hops));
                self.fetches.expect(datum, AwaitedDatum { is_pushed: comes_unasked, ..awaited });
            }
        }
    }

    /// Replaces the sources of data that could not be obtained from theirs.
    pub fn resupply(
        &mut self,
        now: Time,
        client: NodeId,
        supplies: Vec<Supply>,
        members: &Members<Role>,
        out: &mut Vec<AdmissionOutput>,
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
            let awaited = AwaitedDatum::new(size_bytes, origin, (from, address, hops));
            self.fetches.expect(datum, AwaitedDatum { by_storage, ..awaited });
            if is_due {
                self.answer_waiting_peers(datum, out);
                if self.make_room_for(now, datum, size_bytes, out) {
                    self.fetches.request(datum, members, out);
                }
            }
        }
    }

    /// Makes room for a datum for which admitted tasks wait. Returns true if it can be received. Its reservation may
    /// be too small if it was made before the size was known. If the rest does not fit, later tasks are requeued, or
    /// else the tasks that wait for the datum. The first task in order is never requeued for another one, so that two
    /// tasks cannot keep taking each other's memory.
    pub(super) fn make_room_for(
        &mut self,
        now: Time,
        datum: DatumId,
        size_bytes: u64,
        out: &mut Vec<AdmissionOutput>,
    ) -> bool {
        let more_bytes = self.replicas.lacks_bytes(datum, size_bytes);
        let (readers, behind) = self.executor.waiting_for(datum);
        self.evict(more_bytes, &BTreeSet::new(), out);
        if !self.replicas.fits(more_bytes) {
            self.requeue(now, behind, out);
            self.evict(more_bytes, &BTreeSet::new(), out);
        }
        let fits = self.replicas.fits(more_bytes);
        if fits {
            self.replicas.grow(datum, size_bytes);
        } else {
            self.requeue(now, readers, out);
        }
        fits
    }

    /// Answers peers that request a datum that this server awaits from another node. Once the datum has begun to
    /// arrive, it is forwarded to them: such a transfer cannot be part of a cycle of servers that wait for one
    /// another. Before that, peers with no more hops than this server are refused: the hops decrease along a chain of
    /// waiting servers, so the chain is not a cycle. A peer's tasks may have been given this server as the source
    /// before the task that makes the datum was recalled from here.
    pub(super) fn answer_waiting_peers(&mut self, datum: DatumId, out: &mut Vec<AdmissionOutput>) {
        let Some(awaited) = self.fetches.get(datum) else { return };
        if self.replicas.is_here(datum) || self.executor.makes(datum) {
            return;
        }
        let (from, hops, has_begun) = (awaited.from, awaited.hops, awaited.has_begun);
        let is_behind = |asker: &Requester| asker.peer != from && (has_begun || asker.hops > hops);
        for peer in self.replicas.take_requesters(datum, |asker| !is_behind(asker)) {
            // The owner of the datum knows its holders.
            self.refuse(datum, peer, "is waiting for it itself", out);
        }
        if has_begun {
            let waiting = self.replicas.take_requesters(datum, |_| true);
            out.extend(waiting.into_iter().map(|to| Effect::SendDatum { to, datum }.into()));
        }
    }

    /// Handles a peer's request for a datum.
    pub fn fetch(
        &mut self,
        now: Time,
        datum: DatumId,
        (asker, by_storage): (Requester, bool),
        out: &mut Vec<AdmissionOutput>,
    ) {
        if datum.slice().is_some() && self.has_slice(now, datum) {
            return out.push(Effect::SendDatum { to: asker.peer, datum }.into());
        }
        if self.config.is_stateless {
            if asker.peer == datum.client && self.executor.makes(datum) {
                // The result is sent there without a request.
                return;
            }
            let what = "is stateless (serve --plain): it sends results only to their client, when they are made";
            return self.refuse(datum, asker.peer, what, out);
        }
        match self.replicas.fetch(datum, asker, now) {
            FetchAnswer::Now if by_storage && self.config.storage.is_some() => {
                out.push(Effect::SendByStorage { to: asker.peer, datum }.into());
            }
            FetchAnswer::Now => out.push(Effect::SendDatum { to: asker.peer, datum }.into()),
            FetchAnswer::Later => self.answer_waiting_peers(datum, out),
            FetchAnswer::Dropped => self.refuse(datum, asker.peer, "has dropped it", out),
        }
    }

    pub(super) fn refuse(&self, datum: DatumId, peer: NodeId, what: &str, out: &mut Vec<AdmissionOutput>) {
        let why = format!("server '{}' {what}", self.config.name);
        send(out, peer, DataMessage::FetchRefused { datum, why });
    }

    /// Handles the first bytes of a datum.
    pub fn transfer_begun(&mut self, datum: DatumId, from: NodeId, out: &mut Vec<AdmissionOutput>) {
        if self.fetches.begin(datum, from) {
            self.answer_waiting_peers(datum, out);
        }
    }

    /// Handles the arrival of a datum. Returns its origin and hops, or `None` if it is not needed and was dropped.
    pub fn take_arrived(
        &mut self,
        now: Time,
        datum: DatumId,
        size_bytes: u64,
        out: &mut Vec<AdmissionOutput>,
    ) -> Option<(Origin, u16)> {
        // A datum has no reservation while the owner is being asked for its source.
        let has_room = self.replicas.is_known(datum) && self.fetches.is_awaited(datum);
        if !has_room && !self.replicas.fits(self.replicas.lacks_bytes(datum, size_bytes)) {
            // There is no memory for the datum yet, or no longer.
            self.fetches.did_not_fit(datum);
            out.push(Effect::DropDatum { datum }.into());
            return None;
        }
        let awaited = self.fetches.forget(datum);
        if awaited.is_none() && !self.executor.waits_for(datum) {
            // Its task was cancelled during the transfer, or the datum arrived twice.
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

    /// Records that a datum is in the store. Sends it to waiting peers, and notifies waiting tasks.
    pub fn datum_available(
        &mut self,
        now: Time,
        datum: DatumId,
        size_bytes: u64,
        origin: Origin,
        out: &mut Vec<AdmissionOutput>,
    ) {
        self.last_progress = now;
        self.reserve(datum, size_bytes, origin, now);
        for peer in self.replicas.arrived(datum, size_bytes, origin, now) {
            out.push(Effect::SendDatum { to: peer, datum }.into());
        }
        self.executor.datum_arrived(datum);
    }

    /// Handles the release of a datum by its owner.
    pub fn release(&mut self, datum: DatumId, out: &mut Vec<AdmissionOutput>) {
        self.write_back.forget(datum);
        if self.replicas.release(datum) {
            out.push(Effect::DropDatum { datum }.into());
        }
    }

    /// Refuses requests for data that have been unknown for a long time.
    pub fn expire(&mut self, now: Time, out: &mut Vec<AdmissionOutput>) {
        let executor = &self.executor;
        let refused = self.replicas.expire(now, FETCH_UNKNOWN_NS_MAX, |datum| executor.makes(datum));
        for (datum, peer) in refused {
            self.refuse(datum, peer, "does not know it", out);
        }
    }

    // ---- peers

    pub fn peer_lost(&mut self, peer: NodeId, why: &str, out: &mut Vec<AdmissionOutput>) {
        out.extend(self.replicas.forget_peer(peer).into_iter().map(|datum| Effect::DropDatum { datum }.into()));
        self.fetches.peer_lost(peer, why, out);
    }

    /// Drops the data of a lost client.
    pub fn forget_data_of(&mut self, client: NodeId, out: &mut Vec<AdmissionOutput>) {
        self.fetches.forget_client(client);
        self.write_back.forget_client(client);
        if let Some(user) = self.users.remove(&client) {
            self.forget_client_of(&user);
        }
        for datum in self.replicas.of_client(client) {
            // Servers that can still reach the client receive another source from it.
            for peer in self.replicas.refuse(datum) {
                self.refuse(datum, peer, "has dropped it: it lost the client", out);
            }
            if self.replicas.discard(datum) {
                out.push(Effect::DropDatum { datum }.into());
            }
        }
    }
}

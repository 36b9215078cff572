//! Shared data that are received in slices, each from a different server.
//!
//! The complete datum has a reservation for its full size, and is not awaited from any node; its slices are. Each
//! slice is requested, forwarded and given another source like any datum, but its reservation takes no memory. The
//! datum is complete when all slices are here.
//!
//! **Invariant:** slices are awaited only while the complete datum has a reservation here, is awaited, and is not here.

use std::collections::BTreeMap;

use super::fetches::AwaitedDatum;
use super::{Admission, AdmissionOutput};
use crate::data::Origin;
use crate::member::Members;
use crate::node::message::Supply;
use crate::node::protocol::{Effect, Role};
use gridloom_base::{DatumId, Meta, NodeId, SLICES, Time, slice_bytes};

/// Data that are being received in slices.
#[derive(Debug, Default)]
pub(super) struct Slices(BTreeMap<DatumId, Sliced>);

#[derive(Debug)]
struct Sliced {
    /// Description of the complete datum.
    meta: Meta,
    is_reserved: [bool; SLICES],
    is_here: [bool; SLICES],
}

/// The result of the arrival of a slice.
#[derive(Clone, PartialEq, Debug)]
pub(in crate::node::server) enum SliceArrival {
    /// The slice is not needed and was dropped.
    NotNeeded,
    /// Other slices are still missing. `bytes` is the size of this one.
    One { bytes: u64 },
    /// All slices are here. `meta` describes the complete datum.
    Whole { bytes: u64, meta: Meta },
}

impl Admission {
    /// Records the source of a slice and requests the slice.
    pub(super) fn expect_slice(
        &mut self,
        now: Time,
        client: NodeId,
        supply: Supply,
        members: &Members<Role>,
        out: &mut Vec<AdmissionOutput>,
    ) {
        let Supply { datum: slice, meta, from, address, hops, .. } = supply;
        let (whole, Some(number), Some(size_bytes)) = (slice.whole(), slice.slice(), meta.checked_size_bytes()) else {
            return;
        };
        let is_needed = self.executor.reads(whole) || self.fetches.is_awaited(whole);
        // A datum without a reservation is requested again when its task is admitted.
        let is_due = is_needed && self.replicas.is_known(whole) && !self.replicas.is_here(whole);
        if client != NodeId::CATALOG || !is_due {
            return;
        }
        let origin = self.fetches.get(whole).map_or(Origin::Copied, |awaited| awaited.origin);
        // Records its size, which must be known from now on even if its tasks are requeued for lack of memory.
        self.fetches.expect(whole, AwaitedDatum::new(size_bytes, origin, (self.config.id, String::new(), 1)));
        if !self.make_room_for(now, whole, size_bytes, out) {
            return;
        }
        let new = Sliced { meta, is_reserved: [false; SLICES], is_here: [false; SLICES] };
        let sliced = self.slices.0.entry(whole).or_insert(new);
        if sliced.is_here[number] {
            return;
        }
        if !std::mem::replace(&mut sliced.is_reserved[number], true) {
            self.replicas.reserve(slice, 0, Origin::Copied, now);
            self.replicas.add_reader(slice, false);
        }
        let bytes = slice_bytes(size_bytes, number);
        let awaited = AwaitedDatum::new(bytes.end - bytes.start, Origin::Copied, (from, address, hops));
        self.fetches.expect(slice, awaited);
        self.answer_waiting_peers(slice, out);
        self.fetches.request(slice, members, out);
    }

    /// True if a slice can be sent, because the slice or the complete datum is here. Marks the complete datum as used now.
    pub(super) fn has_slice(&mut self, now: Time, slice: DatumId) -> bool {
        let (whole, number) = (slice.whole(), slice.slice().unwrap_or(0));
        if self.replicas.is_here(whole) {
            self.replicas.touch(whole, now);
            return true;
        }
        self.slices.0.get(&whole).is_some_and(|sliced| sliced.is_here[number])
    }

    /// Handles the arrival of a slice.
    pub(in crate::node::server) fn slice_arrived(
        &mut self,
        now: Time,
        slice: DatumId,
        out: &mut Vec<AdmissionOutput>,
    ) -> SliceArrival {
        let (whole, number) = (slice.whole(), slice.slice().unwrap_or(0));
        let is_awaited = self.fetches.forget(slice).is_some();
        let Some(sliced) = self.slices.0.get_mut(&whole).filter(|sliced| is_awaited && !sliced.is_here[number]) else {
            let has_it = self.slices.0.get(&whole).is_some_and(|sliced| sliced.is_here[number]);
            out.extend((!has_it).then_some(Effect::DropDatum { datum: slice }.into()));
            return SliceArrival::NotNeeded;
        };
        self.last_progress = now;
        sliced.is_here[number] = true;
        let bytes = slice_bytes(sliced.meta.size_bytes(), number);
        let bytes = bytes.end - bytes.start;
        let (is_whole, meta) = (sliced.is_here == [true; SLICES], sliced.meta.clone());
        let waiting = self.replicas.take_requesters(slice, |_| true);
        out.extend(waiting.into_iter().map(|to| Effect::SendDatum { to, datum: slice }.into()));
        if !is_whole {
            return SliceArrival::One { bytes };
        }
        out.push(Effect::JoinSlices { datum: whole, meta: meta.clone() }.into());
        SliceArrival::Whole { bytes, meta }
    }

    /// Drops the slices of data that are no longer received in slices.
    pub(in crate::node::server) fn end_unawaited_slices(&mut self, now: Time, out: &mut Vec<AdmissionOutput>) {
        let is_over = |whole: DatumId| {
            !self.replicas.is_known(whole) || self.replicas.is_here(whole) || !self.fetches.is_awaited(whole)
        };
        let over: Vec<DatumId> = self.slices.0.keys().copied().filter(|whole| is_over(*whole)).collect();
        over.into_iter().for_each(|whole| self.end_slices(now, whole, out));
    }

    /// Stops receiving a datum in slices, and drops its slices.
    pub(super) fn end_slices(&mut self, now: Time, whole: DatumId, out: &mut Vec<AdmissionOutput>) {
        let Some(sliced) = self.slices.0.remove(&whole) else { return };
        let is_here = self.replicas.is_here(whole);
        for (number, slice) in whole.slices().into_iter().enumerate() {
            self.fetches.forget(slice);
            for peer in self.replicas.refuse(slice) {
                match is_here {
                    true => out.push(Effect::SendDatum { to: peer, datum: slice }.into()),
                    false => self.refuse(slice, peer, "no longer receives it", out),
                }
            }
            if sliced.is_reserved[number] {
                let _ = self.replicas.remove_reader(slice, now);
                self.replicas.unreserve(slice, now);
            }
            // Also drops the received bytes of a slice that has only begun to arrive.
            out.push(Effect::DropDatum { datum: slice }.into());
        }
    }

    pub(super) fn check_slices(&self) -> Result<(), String> {
        for (whole, sliced) in &self.slices.0 {
            let has_place = self.replicas.is_known(*whole) && !self.replicas.is_here(*whole);
            if !has_place || !self.fetches.is_awaited(*whole) {
                return Err(format!("{whole} is received in slices, but has no reservation or is not awaited"));
            }
            let slices = whole.slices().into_iter().enumerate();
            for (number, slice) in slices.filter(|(number, _)| sliced.is_reserved[*number]) {
                if sliced.is_here[number] == self.fetches.is_awaited(slice) || !self.replicas.is_known(slice) {
                    return Err(format!("{slice} is both here and awaited, or neither, or has no reservation"));
                }
            }
        }
        Ok(())
    }
}

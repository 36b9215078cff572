//! Shared data that come in slices, each from another server.
//!
//! The whole has a place, with room for all of it, and is awaited of nobody: its slices are. Each of them is asked for, passed on and
//! named another source as any datum is; it has a place that takes no room. When all are here, the whole is.
//!
//! **Invariant:** slices are awaited only as long as the whole has a place here, is awaited and not here.

use std::collections::BTreeMap;

use super::fetches::Awaited;
use super::{Admission, Output};
use crate::data::Origin;
use crate::member::Members;
use crate::node::message::Supply;
use crate::node::protocol::{Effect, Role};
use gridloom_base::{DatumId, Meta, NodeId, SLICES, Time, slice_bytes};

/// Data that come in slices.
#[derive(Debug, Default)]
pub(super) struct Slices(BTreeMap<DatumId, Sliced>);

#[derive(Debug)]
struct Sliced {
    /// Of the whole.
    meta: Meta,
    has_place: [bool; SLICES],
    is_here: [bool; SLICES],
}

/// What became of a slice that has come.
#[derive(Clone, PartialEq, Debug)]
pub(in crate::node::server) enum Arrived {
    /// It is of no use, and was dropped.
    InVain,
    /// Others are still to come. So many bytes have.
    One { bytes: u64 },
    /// The whole is here: its description.
    Whole { bytes: u64, meta: Meta },
}

impl Admission {
    /// The source of a slice.
    pub(super) fn expect_slice(
        &mut self,
        now: Time,
        client: NodeId,
        supply: Supply,
        members: &Members<Role>,
        out: &mut Vec<Output>,
    ) {
        let Supply { datum: slice, meta, from, address, hops, .. } = supply;
        let (whole, Some(number), Some(size_bytes)) = (slice.whole(), slice.slice(), meta.checked_size_bytes()) else {
            return;
        };
        let is_needed = self.executor.reads(whole) || self.fetches.is_awaited(whole);
        // What has no place is asked for again when its task is let in.
        let is_due = is_needed && self.replicas.is_known(whole) && !self.replicas.is_here(whole);
        if client != NodeId::CATALOG || !is_due {
            return;
        }
        let origin = self.fetches.get(whole).map_or(Origin::Copied, |awaited| awaited.origin);
        // Its size is known from now on, also if its tasks are held back for lack of room.
        self.fetches.expect(whole, Awaited::new(size_bytes, origin, (self.config.id, String::new(), 1)));
        if !self.make_room_for(now, whole, size_bytes, out) {
            return;
        }
        let new = Sliced { meta, has_place: [false; SLICES], is_here: [false; SLICES] };
        let sliced = self.slices.0.entry(whole).or_insert(new);
        if sliced.is_here[number] {
            return;
        }
        if !std::mem::replace(&mut sliced.has_place[number], true) {
            self.replicas.reserve(slice, 0, Origin::Copied, now);
            self.replicas.add_reader(slice, false);
        }
        let bytes = slice_bytes(size_bytes, number);
        let awaited = Awaited::new(bytes.end - bytes.start, Origin::Copied, (from, address, hops));
        self.fetches.expect(slice, awaited);
        self.answer_askers(slice, out);
        self.fetches.ask(slice, members, out);
    }

    /// Whether a slice can be sent: it is here, or the whole is.
    pub(super) fn has_slice(&mut self, now: Time, slice: DatumId) -> bool {
        let (whole, number) = (slice.whole(), slice.slice().unwrap_or(0));
        if self.replicas.is_here(whole) {
            self.replicas.touch(whole, now);
            return true;
        }
        self.slices.0.get(&whole).is_some_and(|sliced| sliced.is_here[number])
    }

    /// A slice has come.
    pub(in crate::node::server) fn slice_arrived(
        &mut self,
        now: Time,
        slice: DatumId,
        out: &mut Vec<Output>,
    ) -> Arrived {
        let (whole, number) = (slice.whole(), slice.slice().unwrap_or(0));
        let is_awaited = self.fetches.forget(slice).is_some();
        let Some(sliced) = self.slices.0.get_mut(&whole).filter(|sliced| is_awaited && !sliced.is_here[number]) else {
            let has_it = self.slices.0.get(&whole).is_some_and(|sliced| sliced.is_here[number]);
            out.extend((!has_it).then_some(Effect::DropDatum { datum: slice }.into()));
            return Arrived::InVain;
        };
        self.last_progress = now;
        sliced.is_here[number] = true;
        let bytes = slice_bytes(sliced.meta.size_bytes(), number);
        let bytes = bytes.end - bytes.start;
        let (is_whole, meta) = (sliced.is_here == [true; SLICES], sliced.meta.clone());
        let waiting = self.replicas.take_askers(slice, |_| true);
        out.extend(waiting.into_iter().map(|to| Effect::SendDatum { to, datum: slice }.into()));
        if !is_whole {
            return Arrived::One { bytes };
        }
        out.push(Effect::JoinSlices { datum: whole, meta: meta.clone() }.into());
        Arrived::Whole { bytes, meta }
    }

    /// Slices of what does not come in slices any more are given up.
    pub(in crate::node::server) fn end_unawaited_slices(&mut self, now: Time, out: &mut Vec<Output>) {
        let is_over = |whole: DatumId| {
            !self.replicas.is_known(whole) || self.replicas.is_here(whole) || !self.fetches.is_awaited(whole)
        };
        let over: Vec<DatumId> = self.slices.0.keys().copied().filter(|whole| is_over(*whole)).collect();
        over.into_iter().for_each(|whole| self.end_slices(now, whole, out));
    }

    /// A datum comes in slices no longer.
    pub(super) fn end_slices(&mut self, now: Time, whole: DatumId, out: &mut Vec<Output>) {
        let Some(sliced) = self.slices.0.remove(&whole) else { return };
        let is_here = self.replicas.is_here(whole);
        for (number, slice) in whole.slices().into_iter().enumerate() {
            self.fetches.forget(slice);
            for peer in self.replicas.refuse(slice) {
                match is_here {
                    true => out.push(Effect::SendDatum { to: peer, datum: slice }.into()),
                    false => self.refuse(slice, peer, "does not get it any more", out),
                }
            }
            if sliced.has_place[number] {
                let _ = self.replicas.remove_reader(slice, now);
                self.replicas.unreserve(slice, now);
            }
            // Also of one that has only begun to come: what has come of it.
            out.push(Effect::DropDatum { datum: slice }.into());
        }
    }

    pub(super) fn check_slices(&self) -> Result<(), String> {
        for (whole, sliced) in &self.slices.0 {
            let has_place = self.replicas.is_known(*whole) && !self.replicas.is_here(*whole);
            if !has_place || !self.fetches.is_awaited(*whole) {
                return Err(format!("{whole} comes in slices, and has no place or is not awaited"));
            }
            let slices = whole.slices().into_iter().enumerate();
            for (number, slice) in slices.filter(|(number, _)| sliced.has_place[*number]) {
                if sliced.is_here[number] == self.fetches.is_awaited(slice) || !self.replicas.is_known(slice) {
                    return Err(format!("{slice} is here and awaited, or neither, or has no place"));
                }
            }
        }
        Ok(())
    }
}

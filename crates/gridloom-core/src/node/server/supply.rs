//! Where inputs come from: asked of their holders as soon as there is room, and of others when a holder fails.
//!
//! **Invariant:** what a holder will not give any more is told to the client that owns it, which names another source.

use super::*;
use crate::graph::KEEP;

impl Server {
    pub(super) fn on_resupply(&mut self, now: Time, from: NodeId, supplies: Vec<Supply>, out: &mut Vec<Effect>) {
        for supply in supplies {
            let datum = supply.datum;
            let needed = self.executor.reads(datum) || self.awaited.contains_key(&datum);
            if datum.client != from || !needed || self.replicas.is_here(datum) {
                continue;
            }
            let size_bytes = supply.meta.checked_size_bytes().unwrap_or(u64::MAX);
            let is_due = self.replicas.is_known(datum);
            let Supply { from, address, .. } = supply;
            let of_call = self.awaited.get(&datum).is_some_and(|awaited| awaited.of_call);
            let awaited = Awaited { from, address, size_bytes, asked: false, of_call, comes_unasked: false };
            self.awaited.insert(datum, awaited);
            if is_due {
                self.make_room_and_ask(now, datum, size_bytes, out);
            }
        }
        self.pump(now, out);
    }

    /// Asks for a datum that admitted tasks wait for. Its place may be too small for it, if it was made before its size was
    /// known: if there is no room for the rest, tasks behind them make way, or else they do. The first in order never does
    /// for another, so that two tasks cannot keep taking each other's room.
    fn make_room_and_ask(&mut self, now: Time, datum: DatumId, size_bytes: u64, out: &mut Vec<Effect>) {
        let more_bytes = self.replicas.lacks_bytes(datum, size_bytes);
        let (readers, behind) = self.executor.waiting_for(datum);
        self.evict(now, more_bytes, &BTreeSet::new(), out);
        if !self.replicas.fits(more_bytes) {
            self.hold_back(now, behind, out);
            self.evict(now, more_bytes, &BTreeSet::new(), out);
        }
        if self.replicas.fits(more_bytes) {
            self.replicas.grow(datum, size_bytes);
            self.ask(datum, out);
        } else {
            self.hold_back(now, readers, out);
        }
    }

    /// Asks the holder of an awaited datum for it, over a connection that stands or is made.
    pub(super) fn ask(&mut self, datum: DatumId, out: &mut Vec<Effect>) {
        let Some(awaited) = self.awaited.get_mut(&datum) else { return };
        if awaited.from == self.config.id {
            return self.ask_for_source(datum, out);
        }
        awaited.asked = true;
        if awaited.comes_unasked {
            return;
        }
        if self.members.is_up(awaited.from) {
            send(out, awaited.from, Message::Fetch { datum });
        } else if awaited.address.is_empty() {
            self.supply_failed(datum, SupplyFault::Unreachable, "its holder is not connected", out);
        } else {
            let waiting = self.dialling.entry(awaited.address.clone()).or_default();
            if waiting.is_empty() {
                out.push(Effect::Dial { address: awaited.address.clone() });
            }
            waiting.push(datum);
        }
    }

    /// Asks the owner of a datum where it is to come from.
    pub(super) fn ask_for_source(&self, datum: DatumId, out: &mut Vec<Effect>) {
        let why = format!("server '{}' was not told where it comes from", self.config.name);
        let (from, fault) = (self.config.id, SupplyFault::Gone);
        send(out, datum.client, Message::SupplyFailed { datum, from, fault, why });
    }

    /// Who was to have a datum has not: if it is asked for again before its owner has named another source, the owner is.
    pub(super) fn forget_source(&mut self, datum: DatumId) {
        if let Some(awaited) = self.awaited.get_mut(&datum) {
            (awaited.from, awaited.address) = (self.config.id, String::new());
        }
    }

    /// Whether a datum is to come here, and from elsewhere. Who asks for it here was told so before its task was called back
    /// from here: two that wait for one another's copy would wait for ever.
    pub(super) fn only_awaits(&self, datum: DatumId) -> bool {
        let is_to_come = self.awaited.contains_key(&datum) && self.replicas.is_known(datum);
        is_to_come && !self.replicas.is_here(datum) && !self.executor.makes(datum)
    }

    /// Its owner knows who has it.
    pub(super) fn refuse_awaited(&self, datum: DatumId, peer: NodeId, out: &mut Vec<Effect>) {
        let why = format!("server '{}' waits for it itself", self.config.name);
        send(out, peer, Message::FetchRefused { datum, why });
    }

    /// Tells the owner that a datum does not come from where it was to; a new source will be named.
    pub(super) fn supply_failed(&mut self, datum: DatumId, fault: SupplyFault, why: &str, out: &mut Vec<Effect>) {
        if let Some(awaited) = self.awaited.get_mut(&datum)
            && awaited.asked
        {
            let from = awaited.from;
            awaited.asked = false;
            send(out, datum.client, Message::SupplyFailed { datum, from, fault, why: why.into() });
        }
    }

    /// A datum broke off on its way here.
    pub(super) fn on_broken(&mut self, from: NodeId, datum: DatumId, why: &str, out: &mut Vec<Effect>) {
        if let Some(awaited) = self.awaited.get_mut(&datum).filter(|awaited| awaited.from == from) {
            awaited.comes_unasked = false;
            self.supply_failed(datum, SupplyFault::Broken, why, out);
        }
    }

    /// A task is gone: what it read is waited for only if another task here reads it.
    pub(super) fn wait_no_more(&mut self, task: &Task) {
        for datum in task.inputs() {
            if !self.executor.reads(datum) {
                self.awaited.remove(&datum);
            }
        }
    }

    pub(super) fn on_arrived(
        &mut self,
        now: Time,
        from: NodeId,
        datum: DatumId,
        meta: &Meta,
        took_ns: u64,
        out: &mut Vec<Effect>,
    ) {
        let size_bytes = meta.size_bytes();
        // A place whose datum's source is being asked for has no room yet.
        let has_room = self.replicas.is_known(datum) && self.awaited.contains_key(&datum);
        if !has_room && !self.replicas.fits(self.replicas.lacks_bytes(datum, size_bytes)) {
            // There is no room for it yet, or not any more: it is asked for (again) when its task is let in.
            if let Some(awaited) = self.awaited.get_mut(&datum) {
                awaited.comes_unasked = false;
            }
            out.push(Effect::DropDatum { datum });
            return;
        }
        let awaited = self.awaited.remove(&datum);
        if awaited.is_none() && !self.executor.waits_for(datum) {
            // Its task was cancelled on the way, or it came twice.
            if !self.replicas.is_here(datum) {
                if !self.executor.makes(datum) {
                    self.replicas.unreserve(datum, now);
                }
                out.push(Effect::DropDatum { datum });
            }
            return;
        }
        let report = TransferReport { datum, from, to: self.config.id, size_bytes, run_ns: took_ns, age_ns: 0 };
        self.transfers.entry(datum.client).or_default().push((report, now));
        self.saw_transfer(now, &report, out);
        let origin = if awaited.is_some_and(|a| a.of_call) { Origin::Argument } else { Origin::Copied };
        self.datum_here(now, datum, size_bytes, origin, out);
        self.pump(now, out);
    }

    /// Ends the tasks that were to bring data here, if these are here. True if there were such.
    pub(super) fn end_placements(&mut self, now: Time, out: &mut Vec<Effect>) -> bool {
        let mut has_ended = false;
        while let Some(task) = self.executor.take_placed() {
            has_ended = true;
            for datum in task.inputs().collect::<BTreeSet<DatumId>>() {
                if task.function == KEEP {
                    self.replicas.keep(datum);
                }
                if self.replicas.remove_reader(datum, now) {
                    out.push(Effect::DropDatum { datum });
                }
            }
            self.report(now, task.id.client, task.id, Ok(Vec::new()), 0, out);
        }
        has_ended
    }

    pub(super) fn datum_here(
        &mut self,
        now: Time,
        datum: DatumId,
        size_bytes: u64,
        origin: Origin,
        out: &mut Vec<Effect>,
    ) {
        self.last_progress = now;
        for peer in self.replicas.arrived(datum, size_bytes, origin, now) {
            out.push(Effect::SendDatum { to: peer, datum });
        }
        self.executor.datum_here(datum);
    }
}

//! Where inputs come from: asked of their holders as soon as there is room, and of others when a holder fails.
//!
//! **Invariant:** what a holder will not give any more is told to the client that owns it, which names another source.

use super::*;

impl Server {
    pub(super) fn on_resupply(&mut self, now: Time, from: NodeId, supplies: Vec<Supply>, out: &mut Vec<Effect>) {
        for supply in supplies {
            let datum = supply.datum;
            let needed = self.executor.waits_for(datum) || self.awaited.contains_key(&datum);
            if datum.client != from || !needed || self.replicas.is_here(datum) {
                continue;
            }
            let size_bytes = supply.meta.checked_size_bytes().unwrap_or(u64::MAX);
            let asked = self.replicas.is_known(datum);
            self.awaited
                .insert(datum, Awaited { from: supply.from, address: supply.address, size_bytes, asked: false });
            if asked {
                self.ask(datum, out);
            }
        }
        self.pump(now, out);
    }

    /// Asks the holder of an awaited datum for it, over a connection that stands or is made.
    pub(super) fn ask(&mut self, datum: DatumId, out: &mut Vec<Effect>) {
        let Some(awaited) = self.awaited.get_mut(&datum) else { return };
        awaited.asked = true;
        // Small data of a plain call come unasked.
        if awaited.from == datum.client && awaited.size_bytes <= EAGER_BYTES_MAX && awaited.address.is_empty() {
            let call = self.executor.first_held().is_some_and(|e| e.is_call && e.task.inputs().any(|i| i == datum));
            if call {
                return;
            }
        }
        if self.members.is_up(awaited.from) {
            send(out, awaited.from, Message::Fetch { datum });
        } else if awaited.address.is_empty() {
            self.supply_failed(datum, "its holder is not connected", out);
        } else {
            let waiting = self.dialling.entry(awaited.address.clone()).or_default();
            if waiting.is_empty() {
                out.push(Effect::Dial { address: awaited.address.clone() });
            }
            waiting.push(datum);
        }
    }

    /// Tells the owner that a datum does not come from where it was to; a new source will be named.
    pub(super) fn supply_failed(&mut self, datum: DatumId, why: &str, out: &mut Vec<Effect>) {
        if let Some(awaited) = self.awaited.get_mut(&datum)
            && awaited.asked
        {
            let from = awaited.from;
            awaited.asked = false;
            send(out, datum.client, Message::SupplyFailed { datum, from, why: why.into() });
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
        if size_bytes > EAGER_BYTES_MAX && !self.replicas.is_known(datum) && !self.replicas.fits(size_bytes) {
            // It was asked for when there was room, which has been given to others since: it is asked for again.
            out.push(Effect::DropDatum { datum });
            return;
        }
        let awaited = self.awaited.remove(&datum);
        if awaited.is_none() && !self.executor.waits_for(datum) {
            // Its task was cancelled on the way, or it came twice.
            if !self.replicas.is_here(datum) {
                self.replicas.unreserve(datum, now);
                out.push(Effect::DropDatum { datum });
            }
            return;
        }
        let report = TransferReport { datum, from, to: self.config.id, size_bytes, run_ns: took_ns, age_ns: 0 };
        self.transfers.entry(datum.client).or_default().push((report, now));
        self.datum_here(now, datum, size_bytes, Origin::Copied, out);
        self.pump(now, out);
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

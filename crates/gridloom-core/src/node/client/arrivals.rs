//! Data that have arrived here, or at servers that report it.

use super::Client;
use crate::node::message::TransferReport;
use crate::node::protocol::{Effect, Event};
use gridloom_base::{DatumId, Meta, NodeId, Time};

impl Client {
    pub(super) fn on_transfer_report(&mut self, now: Time, report: TransferReport, out: &mut Vec<Effect>) {
        if self.supplies.copies.get(report.datum).is_some() {
            let report = self.copy_arrived(now, report);
            return self.saw_transfer(now, report, out);
        }
        self.supplies.arrived(report.datum, report.to);
        // Servers drop arguments of plain calls by themselves.
        if self.calls.of_datum(report.datum).is_none() {
            self.copy_at(now, report.to, report.datum, out);
            self.data_there(now, report.datum, report.to);
        } else {
            self.argument_there(now, report.datum, report.to);
        }
        self.saw_transfer(now, report, out);
    }

    fn saw_transfer(&mut self, now: Time, report: TransferReport, out: &mut Vec<Effect>) {
        self.links.saw_transfer(now, &report, out);
        let at = now - report.age_ns;
        out.push(Effect::Emit(Event::Transferred { at, report }));
    }

    pub(super) fn on_arrived(
        &mut self,
        now: Time,
        from: NodeId,
        datum: DatumId,
        (meta, took_ns): (Meta, u64),
        out: &mut Vec<Effect>,
    ) {
        let size_bytes = meta.size_bytes();
        let report = TransferReport { datum, from, to: self.config.id, size_bytes, run_ns: took_ns, age_ns: 0 };
        out.push(Effect::Emit(Event::Transferred { at: now, report }));
        self.links.saw_transfer(now, &report, out);
        if self.calls.of_datum(datum).is_some() {
            if let Some(call) = self.calls.arrived(datum) {
                self.call_complete(now, call, out);
            }
            return;
        }
        // It was sent by a stateless server, which keeps nothing.
        let was_sent_home = self.is_plain(from);
        let Some(run) = self.data.get_mut(&datum) else {
            out.push(Effect::DropDatum { datum });
            return;
        };
        run.meta = meta.clone();
        run.here = true;
        run.fetching = None;
        if was_sent_home {
            run.holders.remove(&from);
        }
        self.supplies.arrived(datum, self.config.id);
        self.names.arrived(datum);
        let fetchers = std::mem::take(&mut run.fetchers);
        self.has_copy(datum, out);
        for server in fetchers {
            self.contacts.post_datum(server, datum, out);
        }
        self.send_copies(datum, out);
        self.supply_waiting(now, datum, out);
        if std::mem::take(&mut self.data.get_mut(&datum).expect("found above").wanted) {
            out.push(Effect::Emit(Event::DatumAvailable { datum, meta }));
        }
        self.tidy(datum, out);
    }
}

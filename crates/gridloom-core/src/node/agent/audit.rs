//! Records for the audit log: who joined and left, cancelled calls, used shared names, or was refused. The world writes them.
//!
//! The number of records per user and minute is limited. A user who exceeds it gets one record with the number of the others.

use std::collections::BTreeMap;

use super::PeerInfo;
use crate::node::message::{
    AuditEvent, AuditOutcome, AuditRecord, CatalogAnswer, CatalogMessage, CatalogToClient, ClientToCatalog, Message,
};
use crate::node::protocol::{Effect, Event};
use crate::node::record_limit::RecordLimit;
use gridloom_base::limits::{
    AUDIT_PER_REPORT, AUDIT_RECORDS_MAX, AUDIT_RECORDS_OF_SERVER_MAX, AUDIT_REQUESTS_MAX, DATUM_NAME_BYTES_MAX,
};
use gridloom_base::{NameError, NamedDatum, NodeId, Program, Time, full_name, truncated};

#[derive(Debug)]
pub(super) struct Audit {
    /// False for the agent of a single client: nobody reads its records.
    is_on: bool,
    /// Puts, deletions and the like without an answer, by client and request.
    requests: BTreeMap<NodeId, BTreeMap<u64, (AuditEvent, String)>>,
    limit: RecordLimit,
    limit_of_servers: RecordLimit,
}

impl Audit {
    pub(super) fn new(is_on: bool) -> Audit {
        let limit = RecordLimit::new(AUDIT_RECORDS_MAX);
        let limit_of_servers = RecordLimit::new(AUDIT_RECORDS_OF_SERVER_MAX);
        Audit { is_on, requests: BTreeMap::new(), limit, limit_of_servers }
    }

    fn record(&mut self, record: AuditRecord, out: &mut Vec<Effect>) {
        if self.is_on && self.limit.admit(&record.by.user) {
            emit(record, out);
        }
    }

    /// Records that a peer has connected.
    pub(super) fn joined(&mut self, peer: &PeerInfo, address: &str, out: &mut Vec<Effect>) {
        let record = AuditRecord::new(AuditEvent::Join, peer.program.clone(), peer.role.name());
        self.record(AuditRecord { address: address.into(), ..record }, out);
    }

    /// Records that a peer is gone.
    pub(super) fn left(&mut self, peer: &PeerInfo, why: &str, out: &mut Vec<Effect>) {
        self.requests.remove(&peer.program.client);
        let record = AuditRecord::new(AuditEvent::Leave, peer.program.clone(), peer.role.name());
        self.record(AuditRecord { why: why.into(), ..record }, out);
    }

    /// Records that the registration of a server was refused.
    pub(super) fn registration_refused(&mut self, peer: &PeerInfo, address: &str, why: &str, out: &mut Vec<Effect>) {
        let record = AuditRecord::new(AuditEvent::Join, peer.program.clone(), peer.role.name()).refused(why);
        self.record(AuditRecord { address: address.into(), ..record }, out);
    }

    /// Notes a client's request about a shared name, whose answer is recorded.
    pub(super) fn requested(&mut self, client: NodeId, message: &ClientToCatalog) {
        let (request, event, name) = match message {
            ClientToCatalog::Put { request, name, .. } => (*request, AuditEvent::Put, name),
            ClientToCatalog::Share { request, name, .. } => (*request, AuditEvent::Share, name),
            ClientToCatalog::Delete { request, name } => (*request, AuditEvent::Delete, name),
            ClientToCatalog::CheckPut { .. }
            | ClientToCatalog::Withdraw { .. }
            | ClientToCatalog::Find { .. }
            | ClientToCatalog::CancelRequest { .. }
            | ClientToCatalog::Locate { .. }
            | ClientToCatalog::Reads { .. }
            | ClientToCatalog::Release { .. }
            | ClientToCatalog::List { .. }
            | ClientToCatalog::Explain { .. } => return,
        };
        if self.is_on {
            let requests = self.requests.entry(client).or_default();
            requests.insert(request, (event, truncated(name, DATUM_NAME_BYTES_MAX).to_string()));
            // Puts may have been cancelled, and get no answer.
            if requests.len() > AUDIT_REQUESTS_MAX {
                let is_old_put = |(number, (event, _)): &(&u64, &(AuditEvent, String))| {
                    **number != request && *event == AuditEvent::Put
                };
                let evicted = requests.iter().find(is_old_put).map(|(number, _)| *number);
                evicted
                    .or_else(|| requests.keys().copied().find(|number| *number != request))
                    .map(|one| requests.remove(&one));
            }
        }
    }

    /// Records the answers to clients among effects that begin at this position.
    pub(super) fn record_answers<'a>(
        &mut self,
        peer: impl Fn(NodeId) -> Option<&'a PeerInfo>,
        from: usize,
        out: &mut Vec<Effect>,
    ) {
        if !self.is_on {
            return;
        }
        let mut records = Vec::new();
        for effect in &out[from..] {
            let Effect::Send { to, message: Message::Catalog(CatalogMessage::ToClient(message)) } = effect else {
                continue;
            };
            let CatalogToClient::Answer { request, answer } = message else { continue };
            let noted = self.requests.get_mut(to).and_then(|requests| requests.remove(request));
            let (event, name) = match (noted, answer) {
                // The client may have used the number of the request before.
                (Some(_), Ok(CatalogAnswer::Found { named: NamedDatum { name, .. }, .. })) => {
                    (AuditEvent::Find, name.clone())
                }
                (Some(noted), _) => noted,
                (None, Ok(CatalogAnswer::Found { named: NamedDatum { name, .. }, .. }))
                | (None, Err(NameError::NotShared { name, .. })) => (AuditEvent::Find, name.clone()),
                (None, _) => continue,
            };
            let Some(peer) = peer(*to) else { continue };
            let name = full_name(&peer.origin.user, &name);
            let record = AuditRecord::new(event, peer.program.clone(), name);
            records.push(match answer {
                Ok(_) => record,
                Err(error @ (NameError::NotOwner { .. } | NameError::NotShared { .. })) => {
                    record.refused(error.to_string())
                }
                Err(error) => AuditRecord { outcome: AuditOutcome::Failed, why: error.to_string(), ..record },
            });
        }
        records.into_iter().for_each(|record| self.record(record, out));
    }

    /// Passes on the records of a server. It has limited those of each user.
    pub(super) fn on_server_records(
        &mut self,
        now: Time,
        server: &str,
        records: Vec<AuditRecord>,
        out: &mut Vec<Effect>,
    ) {
        if !self.is_on {
            return;
        }
        self.begin_period(now, out);
        // No correct server reports more.
        for mut record in records.into_iter().take(3 * AUDIT_PER_REPORT) {
            if self.limit_of_servers.admit(server) {
                record.server = server.to_string();
                emit(record, out);
            }
        }
    }

    /// Records the numbers of suppressed records once a minute.
    pub(super) fn begin_period(&mut self, now: Time, out: &mut Vec<Effect>) {
        let limits = [(&mut self.limit, "records of the agent"), (&mut self.limit_of_servers, "records of a server")];
        for (limit, what) in limits {
            for (user, count) in limit.begin_period(now) {
                let (host, name) = Default::default();
                let by = Program { client: NodeId::CATALOG, user, host, name };
                emit(AuditRecord { count, ..AuditRecord::new(AuditEvent::Suppressed, by, what) }, out);
            }
        }
    }
}

fn emit(mut record: AuditRecord, out: &mut Vec<Effect>) {
    for text in [&mut record.what, &mut record.address, &mut record.why] {
        text.truncate(truncated(text, DATUM_NAME_BYTES_MAX).len());
    }
    let Program { user, host, name, .. } = &mut record.by;
    for text in [user, host, name, &mut record.server] {
        text.truncate(truncated(text, DATUM_NAME_BYTES_MAX).len());
    }
    out.push(Effect::Emit(Event::Audit(Box::new(record))));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::protocol::Role;
    use gridloom_base::Origin;

    fn peer(client: u64, user: &str) -> PeerInfo {
        let origin = Origin { user: user.into(), ..Origin::default() };
        PeerInfo { role: Role::Client, program: origin.program(NodeId(client), "train.py"), origin, version: 1 }
    }

    fn records(out: &[Effect]) -> Vec<&AuditRecord> {
        let of = |effect| match effect {
            &Effect::Emit(Event::Audit(ref record)) => Some(&**record),
            _ => None,
        };
        out.iter().filter_map(of).collect()
    }

    #[test]
    fn the_answer_to_a_request_is_recorded_with_its_name() {
        let (mut audit, anna) = (Audit::new(true), peer(3, "anna"));
        let client = NodeId(3);
        audit.requested(client, &ClientToCatalog::Delete { request: 7, name: "mesh".into() });
        let (name, owner, user) = ("mesh".to_string(), "bert".to_string(), "anna".to_string());
        let answer = Err(NameError::NotOwner { name, owner, user });
        let message = CatalogToClient::Answer { request: 7, answer }.into();
        let mut out = vec![Effect::Send { to: client, message }];
        audit.record_answers(|_| Some(&anna), 0, &mut out);
        audit.record_answers(|_| Some(&anna), 0, &mut out);
        let records = records(&out);
        let [record] = records[..] else { panic!("{records:?}") };
        assert_eq!(
            (record.event, &*record.what, record.outcome),
            (AuditEvent::Delete, "~anna/mesh", AuditOutcome::Refused)
        );
        assert!(record.why.contains("belongs to 'bert'") && record.by.user == "anna", "{record:?}");
    }

    #[test]
    fn a_user_who_connects_all_the_time_does_not_fill_the_log() {
        let (mut audit, mut out) = (Audit::new(true), Vec::new());
        audit.begin_period(Time(1), &mut out);
        for client in 0..1000 {
            audit.joined(&peer(client, "mallory"), "", &mut out);
        }
        audit.joined(&peer(2000, "anna"), "", &mut out);
        assert_eq!(records(&out).len(), AUDIT_RECORDS_MAX as usize + 1);
        out.clear();
        audit.begin_period(Time(1) + gridloom_base::limits::AUDIT_NS, &mut out);
        let records = records(&out);
        assert_eq!((records.len(), records[0].count), (1, 1000 - u64::from(AUDIT_RECORDS_MAX)));
        assert_eq!((records[0].event, &*records[0].by.user), (AuditEvent::Suppressed, "mallory"));
    }
}

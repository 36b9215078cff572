//! Peers that connect and disconnect, and addresses that cannot be reached.

use super::{Server, send};
use crate::node::message::{LinkToAgent, ServerToCatalog};
use crate::node::protocol::{Effect, Role};
use gridloom_base::limits::{SHARED_DATA_PER_MESSAGE, SOURCE_PINGS_MAX};
use gridloom_base::time::ns_to_seconds;
use gridloom_base::{NodeId, Time};

impl Server {
    pub(super) fn on_peer_up(&mut self, now: Time, peer: NodeId, role: Role, address: &str, out: &mut Vec<Effect>) {
        self.members.add(now, peer, role);
        match role {
            Role::Agent => self.registering.agent_up(peer, out),
            Role::Server => {
                self.registering.server_answers(address, out);
                self.links.ask_turns(&self.members, out);
            }
            Role::Client => {}
        }
        self.admitting(now, out, |admission, _, out| admission.fetches.peer_up(peer, role, address, out));
    }

    pub(super) fn on_dial_failed(&mut self, now: Time, address: &str, why: &str, out: &mut Vec<Effect>) {
        self.registering.dial_failed(address, why, out);
        let holders = self
            .admitting(now, out, |admission, members, out| admission.fetches.dial_failed(address, why, members, out));
        let to_measure = self.links.unreachable(address, &self.members);
        for to in holders {
            self.registering.notify(LinkToAgent::LinkBroken { to }, out);
        }
        for to in to_measure {
            self.registering.notify(LinkToAgent::LinkBroken { to }, out);
            let news = self.links.end(to, out);
            self.send_link_report(news, out);
        }
    }

    pub(super) fn on_peer_lost(&mut self, now: Time, peer: NodeId, why: &str, out: &mut Vec<Effect>) {
        let Some(lost) = self.members.remove(peer) else { return };
        let news = self.links.peer_lost(peer, out);
        self.send_link_report(news, out);
        self.shared.peer_lost(peer);
        self.registering.peer_lost(peer, why, out);
        self.outputs.forget_peer(peer);
        if lost.data == Role::Server {
            self.registering.notify(LinkToAgent::LinkBroken { to: peer }, out);
        }
        let news = self.links.measurer_lost(peer);
        self.send_link_report(news, out);
        if lost.data == Role::Client {
            self.forget_client(now, peer, out);
            self.programs.forget(peer);
        }
        self.admitting(now, out, |admission, _, out| admission.peer_lost(peer, why, out));
        self.pump(now, out);
    }

    /// Reports unresponsive servers that should send shared data to the catalog, long before they count as dead, because
    /// other servers may have the data. Data of clients have no other source, so their holders are kept.
    pub(super) fn report_silent_sources(&self, out: &mut Vec<Effect>) {
        let Some(agent) = self.registering.agent() else { return };
        for (from, data) in self.admission.fetches.sources_of_shared_data() {
            // The answer must hold for all of the data.
            if data.len() <= SHARED_DATA_PER_MESSAGE && self.members.is_unresponsive(from, SOURCE_PINGS_MAX) {
                send(out, agent, ServerToCatalog::SourceSilent { from, data });
            }
        }
    }

    /// Disconnects from an unresponsive server whose data another server has. A source that has
    /// answered since it was reported is kept.
    pub(super) fn leave_silent_source(&mut self, now: Time, from: NodeId, out: &mut Vec<Effect>) {
        let is_source = self.admission.fetches.sources_of_shared_data().contains_key(&from);
        if is_source && self.members.is_unresponsive(from, SOURCE_PINGS_MAX) {
            let silence_ns = self.members.silence_ns(now, from).unwrap_or(0);
            let why = format!("silent for {:.1} s instead of sending shared data", ns_to_seconds(silence_ns));
            out.push(Effect::Disconnect { peer: from });
            self.on_peer_lost(now, from, &why, out);
        }
    }

    /// Drops the tasks and data of a lost client.
    fn forget_client(&mut self, now: Time, client: NodeId, out: &mut Vec<Effect>) {
        self.admitting(now, out, |admission, _, out| admission.forget_tasks_of(now, client, out));
        let objects = self.objects.forget_client(client);
        out.extend(objects.into_iter().map(|object| Effect::EndObject { object }));
        self.reports.forget_client(client);
        self.shared.forget_client(client);
        self.admitting(now, out, |admission, _, out| admission.forget_data_of(client, out));
    }
}

//! Consequences of connections and directories: when the agent connects or sends a directory, and when nodes connect,
//! cannot be reached or are lost.

use std::sync::Arc;

use super::Client;
use super::contacts::Parcel;
use crate::node::message::{DirectoryUpdate, LinkMessage};
use crate::node::protocol::{Effect, Event, Role};
use gridloom_base::dial::DISCONNECTED;
use gridloom_base::{NodeId, Time};
use gridloom_perf::GridView;

impl Client {
    pub(super) fn on_peer_up(
        &mut self,
        now: Time,
        peer: NodeId,
        role: Role,
        name: String,
        address: String,
        out: &mut Vec<Effect>,
    ) {
        if role == Role::Agent {
            let known = self.directory.grid.servers.iter().map(|server| server.node).collect();
            self.contacts.agent_up(now, peer, known, out);
            self.names_agent_up(now, out);
            return;
        }
        if address == self.config.agent && self.contacts.agent().is_none() {
            self.on_agent_lost(now, &format!("'{name}' answers there, which is a server and not an agent"), out);
        }
        let waited = self.contacts.peer_up(now, peer, role, name, out);
        for other in self.contacts.expected_at(&address, peer) {
            self.on_server_lost(now, other, &format!("another node answers at {address}"), out);
        }
        self.ask_turns(out);
        if self.links.is_to_be_measured(peer)
            && let Some(token) = self.contacts.members_mut().ping(now, peer)
        {
            out.push(Effect::Send { to: peer, message: LinkMessage::Ping { token }.into() });
        }
        for parcel in waited {
            match parcel {
                Parcel::Message(message) => out.push(Effect::Send { to: peer, message: *message }),
                // Its call may have been cancelled while the connection was made.
                Parcel::Datum(datum) if self.is_here(datum) => out.push(Effect::SendDatum { to: peer, datum }),
                Parcel::Datum(_) => {}
            }
        }
    }

    pub(super) fn on_dial_failed(&mut self, now: Time, address: &str, why: &str, out: &mut Vec<Effect>) {
        if address == self.config.agent && self.contacts.agent().is_none() {
            self.on_agent_lost(now, why, out);
        }
        for node in self.contacts.unreached_at(address) {
            self.on_server_lost(now, node, why, out);
            self.contacts.dial_failed(node);
        }
    }

    pub(super) fn on_peer_lost(&mut self, now: Time, peer: NodeId, why: &str, out: &mut Vec<Effect>) {
        match self.contacts.peer_lost(now, peer) {
            Some(true) => {
                self.links.forget_turns();
                self.on_agent_lost(now, &format!("{DISCONNECTED} ({why})"), out);
                self.names_agent_lost(now, out);
            }
            Some(false) => self.on_server_lost(now, peer, why, out),
            None => {}
        }
    }

    fn on_agent_lost(&mut self, now: Time, why: &str, out: &mut Vec<Effect>) {
        if self.contacts.agent_lost(why) {
            let address = self.config.agent.clone();
            out.push(Effect::Emit(Event::AgentLost { address, why: why.into() }));
        }
        self.ask_anew(now, out);
        if !self.contacts.awaits_nodes(now) {
            self.end_waiting(now, out);
        }
    }

    pub(super) fn on_directory(&mut self, now: Time, news: DirectoryUpdate, out: &mut Vec<Effect>) {
        let functions = news.apply(&mut self.directory.told);
        let told = &self.directory.told;
        self.contacts.directory_has(|node| told.iter().any(|server| server.node == node));
        let servers = told.iter().filter(|server| !self.contacts.is_lost(server.node)).cloned().collect();
        let grid = GridView { servers, ..GridView::default() };
        for server in &grid.servers {
            self.contacts.learn_address(server.node, server.address.clone());
            self.contacts.learn_name(server.node, server.name.clone());
        }
        if let Some(functions) = functions {
            self.directory.functions = Arc::new(functions);
        }
        for gone in self.directory.grid.servers.iter().filter(|one| grid.server(one.node).is_none()) {
            self.directory.unoffered.server_lost(&self.directory.grid, gone.node, "it left the grid");
        }
        self.directory.grid = Arc::new(grid);
        self.directory.is_known = true;
        self.calls.clear_cannot_run();
        self.queues.look_again();
        self.links.probe_new_servers(&self.directory.grid, self.contacts.members(), out);
        self.ask_turns(out);
        out.push(Effect::Emit(Event::Directory {
            grid: self.directory.grid.clone(),
            functions: self.directory.functions.clone(),
        }));
        self.send_waiting(now, out);
        self.map_waiting(now, out);
    }
}

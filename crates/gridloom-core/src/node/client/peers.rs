//! Consequences of connections, directories and links: when the agent connects or sends a directory, when nodes connect,
//! cannot be reached or are lost, and when links are measured. Groups that waited for measurements are mapped then, and
//! plans based on other values become stale.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Client;
use super::contacts::QueuedItem;
use crate::node::message::{DirectoryUpdate, LinkMessage};
use crate::node::protocol::{Effect, Event, Role};
use gridloom_base::dial::{ConnectionError, ConnectionFault, DISCONNECTED};
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
        self.contacts.dials_succeeded(&address);
        if role == Role::Agent {
            self.quiet.agent_up();
            let known = self.directory.grid.servers.iter().map(|server| server.node).collect();
            self.contacts.agent_up(now, peer, known, out);
            self.links.report_paths(peer, out);
            self.names_agent_up(now, out);
            return;
        }
        if address == self.config.agent && self.contacts.agent().is_none() {
            let why = format!("'{name}' answers there, which is a server and not an agent");
            self.on_agent_lost(now, ConnectionError::new(ConnectionFault::WrongNode, why), out);
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
                QueuedItem::Message(message) => out.push(Effect::Send { to: peer, message: *message }),
                // Its call may have been cancelled while the connection was made.
                QueuedItem::Datum(datum) if self.is_here(datum) => out.push(Effect::SendDatum { to: peer, datum }),
                QueuedItem::Datum(_) => {}
            }
        }
    }

    pub(super) fn on_dial_failed(
        &mut self,
        now: Time,
        address: &str,
        (fault, why): (ConnectionFault, &str),
        out: &mut Vec<Effect>,
    ) {
        self.contacts.dial_ended(address);
        if address == self.config.agent && self.contacts.agent().is_none() {
            self.on_agent_lost(now, ConnectionError::new(fault, why), out);
        }
        for node in self.contacts.lost_at(address, out) {
            self.on_server_lost(now, node, why, out);
            self.contacts.dial_failed(node);
        }
    }

    pub(super) fn on_peer_lost(
        &mut self,
        now: Time,
        peer: NodeId,
        (fault, why): (ConnectionFault, &str),
        out: &mut Vec<Effect>,
    ) {
        match self.contacts.peer_lost(now, peer) {
            Some(true) => {
                self.links.forget_turns();
                self.on_agent_lost(now, ConnectionError::new(fault, format!("{DISCONNECTED} ({why})")), out);
                self.names_agent_lost(now, out);
            }
            Some(false) => self.on_server_lost(now, peer, why, out),
            None => {}
        }
    }

    fn on_agent_lost(&mut self, now: Time, error: ConnectionError, out: &mut Vec<Effect>) {
        let ConnectionError { fault, why } = error.clone();
        if self.contacts.agent_lost(error) {
            let address = self.config.agent.clone();
            out.push(Effect::Emit(Event::AgentLost { address, fault, why }));
        }
        self.repeat_requests(now, out);
        if !self.contacts.expects_nodes(now) {
            self.end_waiting(now, out);
        }
    }

    pub(super) fn on_directory(&mut self, now: Time, news: DirectoryUpdate, out: &mut Vec<Effect>) {
        let functions = news.apply(&mut self.directory.listed);
        let told = &self.directory.listed;
        let nodes: BTreeSet<NodeId> = told.iter().map(|server| server.node).collect();
        self.contacts.directory_has(|node| nodes.contains(&node));
        let servers = told.iter().filter(|server| !self.contacts.is_lost(server.node)).cloned().collect();
        let grid = GridView { servers, ..GridView::default() };
        for server in &grid.servers {
            self.contacts.learn_address(server.node, server.address.clone());
            self.contacts.learn_name(server.node, server.name.clone());
        }
        if let Some(functions) = functions {
            self.directory.functions = Arc::new(functions);
        }
        let usable: BTreeSet<NodeId> = grid.servers.iter().map(|server| server.node).collect();
        for gone in self.directory.grid.servers.iter().filter(|one| !usable.contains(&one.node)) {
            self.directory.unoffered.server_lost(&self.directory.grid, gone.node, "it left the grid");
        }
        self.directory.grid = Arc::new(grid);
        self.directory.is_known = true;
        self.calls.clear_cannot_run();
        self.queues.trigger_search();
        self.backlog.servers_changed();
        self.links.probe_new_servers(&self.directory.grid, self.contacts.members(), out);
        self.ask_turns(out);
        out.push(Effect::Emit(Event::Directory {
            grid: self.directory.grid.clone(),
            functions: self.directory.functions.clone(),
        }));
        self.send_waiting(now, out);
        self.map_waiting(now, out);
    }

    // ---- the client's own links

    pub(super) fn ask_turns(&mut self, out: &mut Vec<Effect>) {
        self.links.ask_turns(self.contacts.agent(), self.contacts.members(), out);
    }

    /// Handles a group that needs mapping: links are measured from now on.
    pub(super) fn want_links(&mut self, out: &mut Vec<Effect>) {
        if self.links.request_measuring() {
            self.links.probe_new_servers(&self.directory.grid, self.contacts.members(), out);
            self.ask_turns(out);
        }
    }

    pub(super) fn on_turn(&mut self, now: Time, to: NodeId, is_needed: bool, out: &mut Vec<Effect>) {
        let agent = self.contacts.agent();
        if self.links.on_turn(now, to, is_needed, self.contacts.members_mut(), agent, out) {
            self.end_measuring(now, to, out);
        }
    }

    pub(super) fn on_pong(&mut self, now: Time, from: NodeId, token: u64, out: &mut Vec<Effect>) {
        if self.contacts.agent() == Some(from) {
            self.agent_has_read(now, token, out);
        }
        let members = self.contacts.members_mut();
        if let Some(rtt_ns) = members.pong(now, from, token) {
            self.links.on_pong(now, (from, rtt_ns), members, out);
        }
    }

    pub(super) fn on_probe_arrived(&mut self, now: Time, from: NodeId, size_bytes: u64, out: &mut Vec<Effect>) {
        if self.links.on_probe_arrived(now, from, size_bytes, out) {
            self.link_changed(now, from, out);
            self.end_measuring(now, from, out);
        }
    }

    pub(super) fn end_measuring(&mut self, now: Time, peer: NodeId, out: &mut Vec<Effect>) {
        self.links.end_measuring(peer, self.contacts.agent(), out);
        if self.links.are_measured() {
            self.map_waiting(now, out);
        }
    }

    pub(super) fn on_links_timer(&mut self, now: Time, out: &mut Vec<Effect>) {
        self.links.end_wait(now);
        self.map_waiting(now, out);
    }

    pub(super) fn on_settled(&mut self, now: Time, out: &mut Vec<Effect>) {
        for peer in self.links.settle(now, self.contacts.agent(), out) {
            self.link_changed(now, peer, out);
        }
    }

    /// Marks plans in progress as stale that are based on other values of a link.
    fn link_changed(&mut self, now: Time, peer: NodeId, out: &mut Vec<Effect>) {
        let Some(model) = self.links.update_estimate(peer) else { return };
        for (group, change) in self.plans.link_changed(peer, model) {
            let name = self.contacts.name_of(peer);
            let why = format!("the link to server '{name}' is {change:.2} times as fast as when it was mapped");
            self.on_stale(now, group, &why, out);
        }
    }

    /// Probes one of the degraded links, while there are groups that could use it.
    pub(super) fn probe_fallen(&mut self, now: Time, out: &mut Vec<Effect>) {
        if self.plans.len().0 == 0 || !self.links.are_measured() {
            return;
        }
        let is_idle = |peer: NodeId| self.contacts.is_up(peer) && !self.graph.uses(peer);
        if let Some(peer) = self.links.degraded(now, is_idle) {
            self.links.probe_again(now, peer, self.contacts.address_of(peer));
            self.ask_turns(out);
        }
    }
}

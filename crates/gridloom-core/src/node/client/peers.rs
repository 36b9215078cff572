//! Who is there: the agent and its directory, servers that come, cannot be reached, or are lost.

use super::*;
use crate::base::dial::GONE;

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
        self.members.up(now, peer, role);
        if role == Role::Agent {
            self.agent = Some(peer);
            self.agent_was_lost = false;
            send(out, peer, Message::Subscribe);
            return;
        }
        if address == self.config.agent && self.agent.is_none() {
            self.on_agent_lost(now, &format!("'{name}' answers there, which is a server and no agent"), out);
        }
        if self.lost.remove(&peer).is_some()
            && let Some(agent) = self.agent
        {
            // It is not in the grid as known here any more: the directory comes again.
            send(out, agent, Message::Subscribe);
        }
        self.names.insert(peer, name);
        self.others_at(now, peer, &address, out);
        self.ask_turns(out);
        for parcel in self.outbox.remove(&peer).unwrap_or_default() {
            match parcel {
                Parcel::Message(message) => send(out, peer, message),
                // Its call may have been given up while the connection was made.
                Parcel::Datum(datum) if self.is_here(datum) => out.push(Effect::SendDatum { to: peer, datum }),
                Parcel::Datum(_) => {}
            }
        }
    }

    /// Whoever was expected at an address where another node answers is not there.
    fn others_at(&mut self, now: Time, peer: NodeId, address: &str, out: &mut Vec<Effect>) {
        let is_other = |node: &NodeId| *node != peer && self.addresses.get(node).is_some_and(|known| known == address);
        let others: Vec<NodeId> = self.outbox.keys().copied().filter(is_other).collect();
        for node in others {
            self.on_server_lost(now, node, &format!("another node answers at {address}"), out);
        }
    }

    pub(super) fn on_dial_failed(&mut self, now: Time, address: &str, why: &str, out: &mut Vec<Effect>) {
        if address == self.config.agent && self.agent.is_none() {
            self.on_agent_lost(now, why, out);
        }
        let nodes: Vec<NodeId> =
            self.addresses.iter().filter(|(_, known)| *known == address).map(|(node, _)| *node).collect();
        for node in nodes {
            if !self.members.is_up(node) {
                self.on_server_lost(now, node, why, out);
                if let Some(lost) = self.lost.get_mut(&node) {
                    lost.is_dialled = false;
                }
            }
        }
    }

    pub(super) fn on_peer_lost(&mut self, now: Time, peer: NodeId, why: &str, out: &mut Vec<Effect>) {
        if self.members.lost(peer).is_none() {
            return;
        }
        if self.agent == Some(peer) {
            self.agent = None;
            self.measuring.forget_turns();
            self.on_agent_lost(now, &format!("{GONE} ({why})"), out);
        } else {
            self.on_server_lost(now, peer, why, out);
        }
    }

    fn on_agent_lost(&mut self, now: Time, why: &str, out: &mut Vec<Effect>) {
        if !self.agent_was_lost {
            self.agent_was_lost = true;
            let address = self.config.agent.clone();
            out.push(Effect::Emit(Event::AgentLost { address, why: why.into() }));
        }
        // What still needs a plan cannot have one.
        let waiting: Vec<GroupId> =
            self.groups.iter().filter(|(_, group)| group.mapping.is_some()).map(|(id, _)| *id).collect();
        for group in waiting {
            let error = TaskError::AgentLost { address: self.config.agent.clone(), why: why.into() };
            self.mapping_failed(now, group, error, out);
        }
        for (group, heuristic, purpose) in std::mem::take(&mut self.early_plans) {
            self.plan_only(now, group, heuristic, purpose, out);
        }
        for command in std::mem::take(&mut self.early_calls) {
            if let Command::Call { task, sources, .. } = command {
                let error = TaskError::AgentLost { address: self.config.agent.clone(), why: why.into() };
                self.call_failed(now, &task, &sources, None, error, out);
            }
        }
    }

    pub(super) fn on_directory(
        &mut self,
        now: Time,
        mut grid: GridView,
        functions: Option<Vec<Signature>>,
        out: &mut Vec<Effect>,
    ) {
        // A server that was lost here may be in the directory still; once it has left it, it may come back.
        self.lost.retain(|node, lost| {
            let is_absent = !grid.servers.iter().any(|server| server.node == *node);
            let is_back = !is_absent && lost.was_absent;
            lost.was_absent |= is_absent;
            !is_back
        });
        grid.servers.retain(|server| !self.lost.contains_key(&server.node));
        grid.client_links.clear();
        for server in &grid.servers {
            self.addresses.insert(server.node, server.address.clone());
            self.names.insert(server.node, server.name.clone());
        }
        if let Some(functions) = functions {
            self.functions = Arc::new(functions);
        }
        self.grid = Arc::new(grid);
        self.has_directory = true;
        self.probe_new_servers(out);
        out.push(Effect::Emit(Event::Directory { grid: self.grid.clone(), functions: self.functions.clone() }));
        for command in std::mem::take(&mut self.early_calls) {
            self.on_command(now, command, out);
        }
        self.map_waiting(now, out);
    }

    /// Servers that the agent still knows, but to which the connection was lost, are tried again.
    pub(super) fn dial_lost(&mut self, out: &mut Vec<Effect>) {
        for (node, lost) in self.lost.iter_mut().filter(|(_, lost)| !lost.was_absent && !lost.is_dialled) {
            if let Some(address) = self.addresses.get(node).filter(|address| !address.is_empty()) {
                lost.is_dialled = true;
                out.push(Effect::Dial { address: address.clone() });
            }
        }
    }
}

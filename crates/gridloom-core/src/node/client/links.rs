//! Consequences of the client's own links: groups that waited for measurements are mapped, and plans based on other
//! values become stale.

use super::{Client, Status, TaskRun};
use crate::node::protocol::Effect;
use gridloom_base::{NodeId, Time};

impl Client {
    pub(super) fn ask_turns(&mut self, out: &mut Vec<Effect>) {
        self.links.ask_turns(self.contacts.agent(), self.contacts.members(), out);
    }

    /// Handles a group that needs mapping: links are measured from now on.
    pub(super) fn want_links(&mut self, out: &mut Vec<Effect>) {
        if self.links.want() {
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
        let Some(model) = self.links.estimate_anew(peer) else { return };
        let mut stale = Vec::new();
        for (group, run) in &mut self.groups {
            let Some(before) = run.remapping.links.get_mut(&peer) else { continue };
            if let Some(change) = model.change_from(*before) {
                *before *= change;
                stale.push((*group, change));
            }
        }
        for (group, change) in stale {
            let name = self.contacts.name_of(peer);
            let why = format!("the link to server '{name}' is {change:.2} times as fast as when it was mapped");
            self.on_stale(now, group, &why, out);
        }
    }

    /// Probes one of the degraded links, while there are groups that could use it.
    pub(super) fn probe_fallen(&mut self, now: Time, out: &mut Vec<Effect>) {
        if self.groups.is_empty() || !self.links.are_measured() {
            return;
        }
        let is_idle = |peer: NodeId| {
            let is_there = |run: &TaskRun| run.status == Status::Sent(peer);
            let is_busy =
                || self.tasks.values().any(is_there) || self.data.values().any(|run| run.fetching == Some(peer));
            self.contacts.is_up(peer) && !is_busy()
        };
        if let Some(peer) = self.links.fallen(now, is_idle) {
            self.links.probe_again(now, peer, self.contacts.address_of(peer));
            self.ask_turns(out);
        }
    }
}

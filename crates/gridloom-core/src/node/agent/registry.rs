//! Registration of servers: which servers are accepted, and the functions that they offer.

use super::directory::DIRECTORY_PAUSE_NS;
use super::{Agent, Registered, send};
use crate::node::message::DirectoryToServer;
use crate::node::message::Registration;
use crate::node::protocol::Effect;
use crate::node::version::VERSIONS;
use crate::node::{Category, LogLine};
use gridloom_base::limits::HEARTBEAT_NS;
use gridloom_base::limits::{PROBE_PEERS_MAX, SLOTS_MAX};
use gridloom_base::{Level, NodeId, Time};
use gridloom_idl::method::is_listed;
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of servers with different code that are reported to a new server.
const DIFFERENCES_MAX: usize = 4;

impl Agent {
    pub(super) fn on_register(&mut self, now: Time, from: NodeId, registration: Registration, out: &mut Vec<Effect>) {
        // Two servers cannot listen on one address. If the earlier server is silent, it has ended, even if its connection
        // has not broken yet.
        let same =
            |s: &Registered| !s.registration.address.is_empty() && s.registration.address == registration.address;
        let before: Vec<NodeId> =
            self.servers.iter().filter(|(n, s)| **n != from && same(s)).map(|(n, _)| *n).collect();
        if let Err((may_pass, why)) = self.check_registration(now, from, &registration, &before) {
            let line = LogLine::new(Level::Warning, Category::Agent, "refused a server");
            out.push(line.peer(&registration.name).address(&registration.address).why(&why).into());
            send(out, from, DirectoryToServer::RegistrationRefused { why, is_temporary: may_pass });
            return;
        }
        for node in before {
            out.push(Effect::Disconnect { peer: node });
            self.on_lost(now, node, "another server listens at its address", out);
        }
        self.turns_lost(now, from, out);
        self.forget_server(from);
        for signature in &registration.functions {
            self.models.offered(&signature.name, signature.hash());
            self.functions.entry(signature.name.clone()).or_insert_with(|| (signature.clone(), 0)).1 += 1;
        }
        let differences = self.differences_of_code(&registration);
        for text in &differences {
            let line = LogLine::new(Level::Warning, Category::Agent, text.clone());
            out.push(line.peer(&registration.name).address(&registration.address).into());
        }
        let peers = if registration.is_stateless { Vec::new() } else { self.peers_to_measure() };
        let listed = registration.functions.iter().filter(|signature| is_listed(&signature.name)).count();
        let line = LogLine::new(Level::Info, Category::Agent, format!("a server offers {listed} functions"));
        out.push(line.peer(&registration.name).address(&registration.address).into());
        let protocol = self.members.get(from).map_or(0, |peer| peer.data.version);
        if protocol < VERSIONS.1 {
            let text = format!(
                "a server supports protocol versions up to {protocol}, but this agent also supports {}; update the server",
                VERSIONS.1
            );
            let line = LogLine::new(Level::Info, Category::Agent, text);
            out.push(line.peer(&registration.name).address(&registration.address).into());
        }
        let number = self.servers.values().map(|server| server.number + 1).max().unwrap_or(0);
        self.servers.insert(
            from,
            Registered {
                links_done: registration.is_stateless,
                processors: registration.processors(),
                registration,
                protocol,
                since: now,
                number,
                speed_flops: None,
                pace: 1.0,
                cannot_run: BTreeSet::new(),
                is_draining: false,
                links: BTreeMap::new(),
                reservations: BTreeMap::new(),
            },
        );
        send(out, from, DirectoryToServer::Registered { peers, differences });
        self.directory_changed(now, out);
    }

    /// Returns one warning for each server on which functions have different code.
    fn differences_of_code(&self, registration: &Registration) -> Vec<String> {
        let others = self.servers.values().map(|server| &server.registration);
        let lines = others.filter(|other| other.name != registration.name).filter_map(|other| {
            let is_other =
                |(name, code): &(&String, &u64)| other.code_hashes.get(*name).is_some_and(|known| known != *code);
            let names: Vec<&String> = registration.code_hashes.iter().filter(is_other).map(|(name, _)| name).collect();
            let first = names.first()?;
            let (more, have) =
                if names.len() > 1 { (format!(" and {} more", names.len() - 1), "have") } else { ("".into(), "has") };
            let (here, there) = (&registration.name, &other.name);
            Some(format!("'{first}'{more} {have} different code on servers '{here}' and '{there}': results may differ"))
        });
        lines.take(DIFFERENCES_MAX).collect()
    }

    /// Handles a server that cannot run a function that it offers: calls are sent to other servers from now on.
    pub(super) fn on_cannot_run(
        &mut self,
        now: Time,
        from: NodeId,
        function: String,
        why: &str,
        out: &mut Vec<Effect>,
    ) {
        let Some(server) = self.servers.get_mut(&from) else { return };
        let is_offered = server.registration.functions.iter().any(|signature| signature.name == function);
        if !is_offered || !server.cannot_run.insert(function.clone()) {
            return;
        }
        let text = format!(
            "a server cannot run '{function}'; from now on, other servers that offer the function receive its calls"
        );
        let line = LogLine::new(Level::Warning, Category::Agent, text);
        out.push(line.peer(&server.registration.name).address(&server.registration.address).why(why).into());
        self.schedule_push(now + DIRECTORY_PAUSE_NS, out);
    }

    /// Handles a server that is draining: calls and new shared data are sent to other servers from now on.
    pub(super) fn on_drains(&mut self, now: Time, from: NodeId, out: &mut Vec<Effect>) {
        let Some(server) = self.servers.get_mut(&from) else { return };
        server.cannot_run = server.registration.functions.iter().map(|signature| signature.name.clone()).collect();
        server.is_draining = true;
        let text =
            "a server is draining; calls of its functions are sent to other servers that offer them, if there are any";
        let line = LogLine::new(Level::Info, Category::Agent, text);
        out.push(line.peer(&server.registration.name).address(&server.registration.address).into());
        self.schedule_push(now + DIRECTORY_PAUSE_NS, out);
    }

    /// Returns the functions that some servers cannot run and others can.
    pub(super) fn runnable_elsewhere(&self) -> BTreeSet<&str> {
        let unable = self.servers.values().flat_map(|server| server.cannot_run.iter().map(String::as_str));
        let is_able = |server: &Registered, name: &str| {
            !server.cannot_run.contains(name) && server.registration.functions.iter().any(|known| known.name == name)
        };
        let unable: BTreeSet<&str> = unable.collect();
        unable.into_iter().filter(|name| self.servers.values().any(|server| is_able(server, name))).collect()
    }

    /// Returns the servers to which a new server measures its links. These are the servers that registered most recently,
    /// so that no server is probed by all others.
    fn peers_to_measure(&self) -> Vec<(NodeId, String)> {
        let mut peers: Vec<(&NodeId, &Registered)> =
            self.servers.iter().filter(|(_, server)| !server.registration.is_stateless).collect();
        peers.sort_by_key(|(_, server)| std::cmp::Reverse(server.number));
        peers.truncate(PROBE_PEERS_MAX);
        peers.into_iter().map(|(node, server)| (*node, server.registration.address.clone())).collect()
    }

    /// Checks a registration. Returns the reason for a refusal, and whether the reason may be temporary. `before` contains
    /// the servers that were registered with the same address.
    fn check_registration(
        &self,
        now: Time,
        from: NodeId,
        registration: &Registration,
        before: &[NodeId],
    ) -> Result<(), (bool, String)> {
        let name = &registration.name;
        let for_good = |why: String| (false, why);
        if name.is_empty() || name.len() > gridloom_base::limits::NAME_BYTES_MAX {
            let (length, limit) = (name.len(), gridloom_base::limits::NAME_BYTES_MAX);
            return Err(for_good(format!(
                "its name has {length} bytes, but must have 1 to {limit}; choose another with --name"
            )));
        }
        if registration.release.len() > gridloom_base::limits::NAME_BYTES_MAX {
            let (length, limit) = (registration.release.len(), gridloom_base::limits::NAME_BYTES_MAX);
            return Err(for_good(format!("the name of its release has {length} bytes, the limit is {limit}")));
        }
        if registration.slots > SLOTS_MAX {
            return Err(for_good(format!("it has {} slots, the limit is {SLOTS_MAX}", registration.slots)));
        }
        if registration.slots == 0 {
            return Err(for_good("it has no slots; start it with --slots of at least 1".into()));
        }
        let is_other = |node: &NodeId| *node != from && !before.contains(node);
        let is_alive = |node: &NodeId| self.members.silence_ns(now, *node).is_some_and(|ns| ns < 2 * HEARTBEAT_NS);
        if let Some(other) = before.iter().find(|node| is_alive(node)) {
            let (other, address) = (&self.servers[other].registration.name, &registration.address);
            let why = format!(
                "server '{other}' already uses the address {address}; give each server an address of its own (--advertise)"
            );
            return Err((true, why));
        }
        if let Some((_, other)) = self.servers.iter().find(|(node, s)| is_other(node) && s.registration.name == *name) {
            let address = &other.registration.address;
            return Err((
                true,
                format!("another server at {address} has the name '{name}'; choose another with --name"),
            ));
        }
        for signature in &registration.functions {
            signature.check().map_err(|why| for_good(format!("function '{}': {why}", signature.name)))?;
            // All servers agree on the signature of a function, so it is usually enough to compare with the known one.
            if self.functions.get(&signature.name).is_none_or(|(known, _)| known == signature) {
                continue;
            }
            let others = self.servers.iter().filter(|(node, _)| is_other(node));
            for (_, other) in others {
                let same = other.registration.functions.iter().find(|known| known.name == signature.name);
                if let Some(known) = same.filter(|known| known.hash() != signature.hash()) {
                    let why = format!(
                        "function '{}' is offered by server '{}' with another signature: '{known}' there, \
                         '{signature}' here; rename the function or its module",
                        signature.name, other.registration.name
                    );
                    // A server that restarts with a changed function may conflict with its own previous run, whose end
                    // has not been
                    // noticed yet.
                    return Err((other.registration.name == *name, why));
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::models::tests::{agent, register};
    use super::*;
    use crate::node::message::{DirectoryMessage, DirectoryToAgent, Message};
    use crate::node::protocol::{Input, Role};
    use crate::node::version::RELEASE;
    use gridloom_base::Machine;

    #[test]
    fn a_server_is_notified_of_different_code() {
        let mut agent = agent();
        register(&mut agent, 2, "one:1", 1.0, 1.0);
        register(&mut agent, 3, "two:1", 1.0, 1.0);
        let again = |agent: &mut Agent, code: u64| {
            let mut registration = agent.servers[&NodeId(3)].registration.clone();
            registration.code_hashes.insert("m/f".into(), code);
            let (mut out, message) = (Vec::new(), DirectoryToAgent::Register(registration).into());
            agent.handle(Time(9), Input::Received { from: NodeId(3), message }, &mut out);
            let told = out.into_iter().find_map(|effect| match effect {
                Effect::Send { message: Message::Directory(DirectoryMessage::ToServer(message)), .. } => Some(message),
                _ => None,
            });
            let Some(DirectoryToServer::Registered { differences, .. }) = told else { panic!("{told:?}") };
            differences
        };
        let line = "'m/f' has different code on servers 'server-3' and 'server-2': results may differ";
        assert_eq!(again(&mut agent, 3), [line]);
        assert_eq!(again(&mut agent, 2), [""; 0]);
        for server in [2, 3] {
            let known = agent.servers.get_mut(&NodeId(server)).expect("it has registered");
            known.registration.code_hashes.insert("m/g".into(), server);
        }
        let line = "'m/f' and 1 more have different code on servers 'server-3' and 'server-2': results may differ";
        assert_eq!(again(&mut agent, 3), [line]);
    }

    #[test]
    fn a_server_of_the_last_release_is_accepted_and_logged() {
        let mut agent = agent();
        register(&mut agent, 2, "one:1", 1.0, 1.0);
        let registration = agent.servers[&NodeId(2)].registration.clone();
        let (peer, name, address, version) = (NodeId(3), "old".to_string(), "two:1".to_string(), VERSIONS.1 - 1);
        let old = Registration { name: name.clone(), address: address.clone(), release: String::new(), ..registration };
        let mut out = Vec::new();
        agent.handle(Time(9), Input::PeerUp { peer, role: Role::Server, name, address, version }, &mut out);
        let message = DirectoryToAgent::Register(old).into();
        agent.handle(Time(9), Input::Received { from: peer, message }, &mut out);
        let runs: Vec<String> =
            agent.grid_view(Time(9), None).servers.iter().map(|server| server.version_text()).collect();
        assert_eq!(runs, ["?/?".to_string(), format!("{RELEASE}/{}", VERSIONS.1)]);
        let said = format!("a server supports protocol versions up to {version}");
        let is_said = |effect: &Effect| format!("{effect:?}").contains(&said);
        assert_eq!(out.iter().filter(|effect| is_said(effect)).count(), 1);
    }
}

//! Registration of servers: a server is accepted or refused, and may later report functions that it cannot run.

use super::registry::Refusal;
use super::{Agent, send};
use crate::node::message::{DirectoryToServer, Registration};
use crate::node::protocol::Effect;
use crate::node::version::VERSIONS;
use crate::node::{Category, LogLine};
use gridloom_base::limits::HEARTBEAT_NS;
use gridloom_base::{Level, NodeId, Pattern, Time};
use gridloom_idl::method::is_listed;

impl Agent {
    pub(super) fn on_register(&mut self, now: Time, from: NodeId, registration: Registration, out: &mut Vec<Effect>) {
        let (name, address) = (registration.name.clone(), registration.address.clone());
        let log = |level, text: String, why: Option<&str>| {
            let line = LogLine::new(level, Category::Agent, text).peer(&name).address(&address);
            Effect::from(LogLine { why: why.map(str::to_string), ..line })
        };
        // Two servers cannot listen on one address. If the earlier server is silent, it has ended, even if its connection
        // has not broken yet.
        let before = self.registry.others_at(&address, from);
        let is_alive = |node| self.members.silence_ns(now, node).is_some_and(|ns| ns < 2 * HEARTBEAT_NS);
        let checked = self.registry.check(from, &registration, &before, is_alive);
        let checked = checked.and_then(|()| self.check_certificate(from, &registration));
        if let Err(Refusal { why, is_temporary }) = checked {
            out.push(log(Level::Warning, "refused a server".into(), Some(&why)));
            if let Some(peer) = self.members.get(from) {
                self.audit.registration_refused(&peer.data, &address, &why, out);
            }
            return send(out, from, DirectoryToServer::RegistrationRefused { why, is_temporary });
        }
        for node in before {
            out.push(Effect::Disconnect { peer: node });
            self.on_lost(now, node, "another server listens at its address", out);
        }
        self.links.node_lost(now, &self.registry, from, out);
        self.forget_server(from);
        for signature in &registration.functions {
            if self.models.offered(&signature.name, signature.hash()) {
                self.directory.mark_all();
            }
        }
        let differences = self.registry.differences_of_code(&registration);
        out.extend(differences.iter().map(|text| log(Level::Warning, text.clone(), None)));
        let peers = if registration.is_stateless { Vec::new() } else { self.registry.peers_to_measure() };
        let listed = registration.functions.iter().filter(|signature| is_listed(&signature.name)).count();
        out.push(log(Level::Info, format!("a server offers {listed} functions"), None));
        let protocol = self.members.get(from).map_or(0, |peer| peer.data.version);
        if protocol < VERSIONS.1 {
            let text = format!(
                "a server supports protocol versions up to {protocol}, but this agent also supports {}; update the server",
                VERSIONS.1
            );
            out.push(log(Level::Info, text, None));
        }
        let was_registered = registration.was_registered;
        self.registry.add(now, from, registration, protocol);
        self.server_changed(from);
        send(out, from, DirectoryToServer::Registered { peers, differences, rules: self.rules.clone() });
        let (day, used_up) = self.link_uses.used_up();
        if !used_up.is_empty() {
            send(out, from, DirectoryToServer::LinksUsedUp { day, used_up });
        }
        self.schedule_servers_push(now, out);
        self.push_for_waiting(out);
        let (names, grid) = self.names(now);
        names.server_registered(grid, from, was_registered, out);
    }

    /// Checks that a server's certificate names the functions that the server offers.
    fn check_certificate(&self, from: NodeId, registration: &Registration) -> Result<(), Refusal> {
        let Some(origin) = self.members.get(from).map(|peer| &peer.data.origin) else { return Ok(()) };
        let excess = registration.functions.iter().find(|signature| !origin.may_offer(&signature.name));
        excess.map_or(Ok(()), |signature| {
            let named: Vec<&str> = origin.functions.iter().map(Pattern::as_str).collect();
            Err(Refusal::permanent(format!(
                "its certificate names the functions {}, and not '{}'; offer only those, or request another certificate \
                 ('gridloom keys request --role server --functions')",
                named.join(", "),
                signature.name
            )))
        })
    }

    /// Handles a server that cannot run a function that it offers: calls are sent to other servers from now on.
    pub(super) fn on_cannot_run(&mut self, now: Time, from: NodeId, function: &str, why: &str, out: &mut Vec<Effect>) {
        let Some(server) = self.registry.cannot_run(from, function) else { return };
        let text = format!(
            "a server cannot run '{function}'; from now on, other servers that offer the function receive its calls"
        );
        let line = LogLine::new(Level::Warning, Category::Agent, text);
        out.push(line.peer(server.name()).address(server.address()).why(why).into());
        self.directory.mark(self.registry.unable().chain([from]));
        self.schedule_push(now, out);
    }

    /// Handles a server that offers a withdrawn function again.
    pub(super) fn on_can_run(&mut self, now: Time, from: NodeId, function: &str, out: &mut Vec<Effect>) {
        let Some(server) = self.registry.can_run(from, function) else { return };
        let text = format!("the server offers '{function}' again, and receives calls of this function");
        let line = LogLine::new(Level::Info, Category::Agent, text);
        out.push(line.peer(server.name()).address(server.address()).into());
        self.directory.mark(self.registry.unable().chain([from]));
        self.schedule_push(now, out);
    }

    /// Handles a server that is draining: calls and new shared data are sent to other servers from now on.
    pub(super) fn on_drains(&mut self, now: Time, from: NodeId, out: &mut Vec<Effect>) {
        let Some(server) = self.registry.drains(from) else { return };
        let text =
            "a server is draining; calls of its functions are sent to other servers that offer them, if there are any";
        let line = LogLine::new(Level::Info, Category::Agent, text);
        out.push(line.peer(server.name()).address(server.address()).into());
        self.directory.mark(self.registry.unable().chain([from]));
        self.schedule_push(now, out);
    }
}

#[cfg(test)]
mod tests {
    use super::super::models::tests::{agent, register};
    use super::*;
    use crate::node::message::{DirectoryMessage, DirectoryToAgent, Message};
    use crate::node::protocol::{Input, Role};
    use crate::node::version::RELEASE;
    use gridloom_base::{Machine, Origin};

    #[test]
    fn a_server_is_notified_of_different_code() {
        let mut agent = agent();
        register(&mut agent, 2, "one:1", 1.0, 1.0);
        register(&mut agent, 3, "two:1", 1.0, 1.0);
        let again = |agent: &mut Agent, code: u64| {
            let mut registration = agent.registry.get(NodeId(3)).unwrap().registration.clone();
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
    }

    #[test]
    fn a_server_offers_only_functions_that_its_certificate_names() {
        let mut agent = agent();
        register(&mut agent, 2, "one:1", 1.0, 1.0);
        let known = agent.registry.get(NodeId(2)).unwrap().registration.clone();
        let mut registered = |peer: u64, patterns: &[&str]| {
            let (peer, name, address) = (NodeId(peer), format!("of-{peer}"), format!("at-{peer}:1"));
            let functions = patterns.iter().map(|pattern| pattern.parse().unwrap()).collect();
            let origin = Origin { functions, ..Origin::default() };
            let registration = Registration { name: name.clone(), address: address.clone(), ..known.clone() };
            let (role, version) = (Role::Server, VERSIONS.1);
            let up = Input::PeerUp { peer, role, name, origin, address, version };
            agent.handle(Time(9), up, &mut Vec::new());
            let (mut out, message) = (Vec::new(), DirectoryToAgent::Register(registration).into());
            agent.handle(Time(9), Input::Received { from: peer, message }, &mut out);
            let refusal = out.into_iter().find_map(|effect| match effect {
                Effect::Send { message: Message::Directory(DirectoryMessage::ToServer(message)), .. } => Some(message),
                _ => None,
            });
            match refusal {
                Some(DirectoryToServer::RegistrationRefused { why, is_temporary: false }) => Err(why),
                Some(DirectoryToServer::Registered { .. }) => Ok(()),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(registered(3, &["linalg/*", "m/f"]), Ok(()));
        assert_eq!(registered(4, &["*"]), Ok(()));
        let why = registered(5, &["linalg/*", "m/g"]).unwrap_err();
        assert!(why.starts_with("its certificate names the functions linalg/*, m/g, and not 'm/f';"), "{why}");
    }

    #[test]
    fn a_server_of_the_last_release_is_accepted_and_logged() {
        let mut agent = agent();
        register(&mut agent, 2, "one:1", 1.0, 1.0);
        let registration = agent.registry.get(NodeId(2)).unwrap().registration.clone();
        let (peer, name, address, version) = (NodeId(3), "old".to_string(), "two:1".to_string(), VERSIONS.1 - 1);
        let old = Registration { name: name.clone(), address: address.clone(), release: String::new(), ..registration };
        let mut out = Vec::new();
        agent.handle(
            Time(9),
            Input::PeerUp { peer, role: Role::Server, name, origin: Origin::default(), address, version },
            &mut out,
        );
        let message = DirectoryToAgent::Register(old).into();
        agent.handle(Time(9), Input::Received { from: peer, message }, &mut out);
        let runs: Vec<String> = agent.grid_view(Time(9)).servers.iter().map(|server| server.version_text()).collect();
        assert_eq!(runs, ["?/?".to_string(), format!("{RELEASE}/{}", VERSIONS.1)]);
        let said = format!("a server supports protocol versions up to {version}");
        let is_said = |effect: &Effect| format!("{effect:?}").contains(&said);
        assert_eq!(out.iter().filter(|effect| is_said(effect)).count(), 1);
    }
}

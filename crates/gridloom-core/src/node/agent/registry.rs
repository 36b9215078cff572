//! The registered servers: their registrations, the functions that they offer, and their reports about themselves.
//!
//! Other files read the records. Only this one changes them.
//!
//! **Invariants:** no two servers have the same name or the same address. All servers that offer a function agree on its
//! signature.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Unbounded};

use crate::node::link_measurement::peers_to_measure;
use crate::node::message::Registration;
use gridloom_base::limits::{MEASURE_WAIT_NS_MAX, NAME_BYTES_MAX, SERVERS_MAPPED_ALL_MAX, SLOTS_MAX};
use gridloom_base::{NameKind, NodeId, Time};
use gridloom_idl::Signature;
use gridloom_perf::{LinkEstimate, host_of};

/// Maximum number of servers with different code that are reported to a new server.
const DIFFERENCES_MAX: usize = 4;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Registry {
    servers: BTreeMap<NodeId, Registered>,
    by_name: BTreeMap<String, NodeId>,
    by_host: BTreeMap<String, BTreeSet<NodeId>>,
    by_processors: BTreeMap<String, BTreeSet<NodeId>>,
    /// The servers that are not stateless by [`Registered::number`], so in the order of their registration.
    by_number: BTreeMap<u64, NodeId>,
    /// Number of registrations so far.
    registrations: u64,
    /// The registered functions: signature, and number of servers that offer the function.
    functions: BTreeMap<String, (Signature, u32)>,
    /// The servers that have reported code with that hash, by function.
    by_code: BTreeMap<String, BTreeMap<u64, BTreeSet<NodeId>>>,
    /// The mean speed of the servers with the same processors, by processors.
    speeds: BTreeMap<String, f64>,
    /// The servers that are not measured, with the times of their registration.
    unmeasured: BTreeSet<(Time, NodeId)>,
    /// The servers that cannot run some of the functions that they offer.
    unable: BTreeSet<NodeId>,
    /// The servers that have reported on their link to a node, by node.
    linked_from: BTreeMap<NodeId, BTreeSet<NodeId>>,
}

/// A registered server.
#[derive(Debug)]
pub(super) struct Registered {
    pub(super) registration: Registration,
    /// Version of the protocol that the server uses with this agent.
    pub(super) protocol: u16,
    /// Label of the servers that share models with this one. See [`Registration::processors`].
    pub(super) processors: String,
    since: Time,
    /// Increases with each registration: servers that registered later have higher numbers.
    number: u64,
    pub(super) speed_flops: Option<f64>,
    pub(super) links_done: bool,
    links: BTreeMap<NodeId, Option<LinkEstimate>>,
    pub(super) pace: f64,
    /// Functions that it offers but failed to run. It receives calls of them only while no other server can run them.
    pub(super) cannot_run: BTreeSet<String>,
    /// It is draining and will exit.
    pub(super) is_draining: bool,
}

/// The link from one server to another, as the first one has reported it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Reach {
    Unknown,
    Measured,
    Broken,
}

/// The reason why a registration is refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Refusal {
    pub(super) why: String,
    /// The reason may be temporary: the same registration may be accepted later.
    pub(super) is_temporary: bool,
}

impl Refusal {
    pub(super) fn permanent(why: impl Into<String>) -> Refusal {
        Refusal { why: why.into(), is_temporary: false }
    }

    fn temporary(why: String) -> Refusal {
        Refusal { why, is_temporary: true }
    }
}

impl Registered {
    pub(super) fn name(&self) -> &str {
        &self.registration.name
    }

    pub(super) fn address(&self) -> &str {
        &self.registration.address
    }

    pub(super) fn host(&self) -> &str {
        host_of(&self.registration.address)
    }

    pub(super) fn is_stateless(&self) -> bool {
        self.registration.is_stateless
    }

    pub(super) fn offers(&self, function: &str) -> bool {
        self.registration.functions.iter().any(|signature| signature.name == function)
    }

    /// True if its speed and its links are known.
    pub(super) fn is_measured(&self) -> bool {
        self.links_done && self.speed_flops.is_some()
    }

    /// Returns the state of its link to another node.
    pub(super) fn reach(&self, node: NodeId) -> Reach {
        match self.links.get(&node) {
            None => Reach::Unknown,
            Some(Some(_)) => Reach::Measured,
            Some(None) => Reach::Broken,
        }
    }

    /// Returns the nodes to which it has measured its link.
    pub(super) fn measured_peers(&self) -> impl Iterator<Item = NodeId> {
        self.links.iter().filter(|(_, link)| link.is_some()).map(|(peer, _)| *peer)
    }
}

impl Registry {
    // ---- queries

    pub(super) fn get(&self, node: NodeId) -> Option<&Registered> {
        self.servers.get(&node)
    }

    pub(super) fn has(&self, node: NodeId) -> bool {
        self.servers.contains_key(&node)
    }

    pub(super) fn len(&self) -> usize {
        self.servers.len()
    }

    /// True if not all servers of the grid are considered for each group.
    pub(super) fn is_large(&self) -> bool {
        self.servers.len() > SERVERS_MAPPED_ALL_MAX
    }

    /// Returns all servers, ordered by id.
    pub(super) fn iter(&self) -> impl Iterator<Item = (NodeId, &Registered)> {
        self.servers.iter().map(|(node, server)| (*node, server))
    }

    /// Returns the servers whose ids are greater than this one, or all servers if there is none.
    pub(super) fn after(&self, node: Option<NodeId>) -> impl Iterator<Item = (NodeId, &Registered)> {
        let range = (node.map_or(Unbounded, Excluded), Unbounded);
        self.servers.range(range).map(|(node, server)| (*node, server))
    }

    /// Returns the address of a registered server.
    ///
    /// # Panics
    /// If the server is not registered.
    pub(super) fn address(&self, node: NodeId) -> String {
        self.servers[&node].registration.address.clone()
    }

    /// Returns the location of a node for the link models: the host of a server, and a location of its own for any
    /// other node.
    pub(super) fn location(&self, node: NodeId) -> String {
        self.get(node).map_or_else(|| node.to_string(), |server| server.host().to_string())
    }

    /// Returns the first server on a host.
    pub(super) fn on_host(&self, host: &str) -> Option<NodeId> {
        self.all_on_host(host).next()
    }

    /// Returns all servers on a host.
    pub(super) fn all_on_host(&self, host: &str) -> impl Iterator<Item = NodeId> {
        self.by_host.get(host).into_iter().flatten().copied()
    }

    pub(super) fn is_on_host(&self, node: NodeId, host: &str) -> bool {
        self.get(node).is_some_and(|server| server.host() == host)
    }

    /// Returns the other servers that are registered with this address.
    pub(super) fn others_at(&self, address: &str, node: NodeId) -> Vec<NodeId> {
        let is_same = |other: &NodeId| *other != node && self.servers[other].address() == address;
        self.all_on_host(host_of(address)).filter(|other| !address.is_empty() && is_same(other)).collect()
    }

    /// Returns the signatures of all functions, ordered by name.
    pub(super) fn signatures(&self) -> Vec<Signature> {
        self.functions.values().map(|(signature, _)| signature.clone()).collect()
    }

    /// Returns the mean speed of the servers with the same processors, by processors.
    pub(super) fn speeds(&self) -> &BTreeMap<String, f64> {
        &self.speeds
    }

    /// Returns the servers with these processors.
    pub(super) fn with_processors(&self, processors: &str) -> impl Iterator<Item = NodeId> {
        self.by_processors.get(processors).into_iter().flatten().copied()
    }

    /// Returns the servers that cannot run some of the functions that they offer.
    pub(super) fn unable(&self) -> impl Iterator<Item = NodeId> {
        self.unable.iter().copied()
    }

    /// Returns the functions that some servers cannot run and others can.
    pub(super) fn runnable_elsewhere(&self) -> BTreeSet<&str> {
        let unable = self.unable.iter().flat_map(|node| self.servers[node].cannot_run.iter().map(String::as_str));
        let is_able = |server: &Registered, name: &str| !server.cannot_run.contains(name) && server.offers(name);
        let unable: BTreeSet<&str> = unable.collect();
        unable.into_iter().filter(|name| self.servers.values().any(|server| is_able(server, name))).collect()
    }

    /// Returns the time until which plans wait for the measurements of new servers.
    pub(super) fn measured_until(&self, now: Time) -> Option<Time> {
        let latest = self.unmeasured.last().map(|(since, _)| *since + MEASURE_WAIT_NS_MAX);
        latest.filter(|until| *until > now)
    }

    /// True if all servers share one storage.
    pub(super) fn share_one_storage(&self) -> bool {
        let storages: BTreeSet<_> = self.servers.values().map(|server| server.registration.storage).collect();
        storages.len() == 1 && storages.iter().all(Option::is_some)
    }

    /// Returns the servers to which a new server measures its links. These are the servers that registered most recently,
    /// so that no server is probed by all others.
    pub(super) fn peers_to_measure(&self) -> Vec<(NodeId, String)> {
        let latest = self.by_number.values().rev().take(peers_to_measure(self.servers.len()));
        latest.map(|node| (*node, self.servers[node].address().to_string())).collect()
    }

    /// Returns one warning for each server on which functions have different code.
    pub(super) fn differences_of_code(&self, registration: &Registration) -> Vec<String> {
        let of_function = |(name, code): (&String, &u64)| {
            let others = self.by_code.get(name).into_iter().flatten().filter(move |(other, _)| *other != code);
            // One of them may have the same name.
            others.flat_map(|(_, nodes)| nodes.iter().take(DIFFERENCES_MAX + 1)).collect::<Vec<_>>()
        };
        let others: BTreeSet<&NodeId> = registration.code_hashes.iter().flat_map(of_function).collect();
        let others = others.into_iter().map(|node| &self.servers[node].registration);
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

    /// Checks a registration. `before` contains the other servers that are registered with the same address.
    pub(super) fn check(
        &self,
        node: NodeId,
        registration: &Registration,
        before: &[NodeId],
        is_alive: impl Fn(NodeId) -> bool,
    ) -> Result<(), Refusal> {
        let name = &registration.name;
        NameKind::Server
            .check(name)
            .map_err(|error| Refusal::permanent(format!("{error}; choose another with --name")))?;
        if registration.release.len() > NAME_BYTES_MAX {
            let length = registration.release.len();
            let why = format!("the name of its release has {length} bytes, the limit is {NAME_BYTES_MAX}");
            return Err(Refusal::permanent(why));
        }
        if registration.slots > SLOTS_MAX {
            let why = format!("it has {} slots, the limit is {SLOTS_MAX}", registration.slots);
            return Err(Refusal::permanent(why));
        }
        if registration.slots == 0 {
            return Err(Refusal::permanent("it has no slots; start it with --slots of at least 1"));
        }
        if let Some(other) = before.iter().find(|node| is_alive(**node)) {
            let (other, address) = (self.servers[other].name(), &registration.address);
            return Err(Refusal::temporary(format!(
                "server '{other}' already uses the address {address}; give each server an address of its own (--advertise)"
            )));
        }
        let others = || self.iter().filter(|(other, _)| *other != node && !before.contains(other));
        let namesake = self.by_name.get(name).filter(|other| **other != node && !before.contains(other));
        if let Some(other) = namesake {
            let address = self.servers[other].address();
            let why = format!("another server at {address} has the name '{name}'; choose another with --name");
            return Err(Refusal::temporary(why));
        }
        for signature in &registration.functions {
            signature.check().map_err(|why| Refusal::permanent(format!("function '{}': {why}", signature.name)))?;
            // All servers agree on the signature of a function, so it is usually enough to compare with the known one.
            if self.functions.get(&signature.name).is_none_or(|(known, _)| known == signature) {
                continue;
            }
            for (_, other) in others() {
                let same = other.registration.functions.iter().find(|known| known.name == signature.name);
                if let Some(known) = same.filter(|known| known.hash() != signature.hash()) {
                    let why = format!(
                        "function '{}' is offered by server '{}' with another signature: '{known}' there, \
                         '{signature}' here; rename the function or its module",
                        signature.name,
                        other.name()
                    );
                    // A server that restarts with a changed function may conflict with its own previous run, whose end
                    // has not been noticed yet.
                    return Err(Refusal { why, is_temporary: other.name() == name });
                }
            }
        }
        Ok(())
    }

    // ---- changes

    /// Adds a server whose registration was checked, and which is not registered now.
    pub(super) fn add(&mut self, now: Time, node: NodeId, registration: Registration, protocol: u16) {
        for signature in &registration.functions {
            self.functions.entry(signature.name.clone()).or_insert_with(|| (signature.clone(), 0)).1 += 1;
        }
        let server = Registered {
            links_done: registration.is_stateless,
            processors: registration.processors(),
            registration,
            protocol,
            since: now,
            number: self.registrations,
            speed_flops: None,
            pace: 1.0,
            cannot_run: BTreeSet::new(),
            is_draining: false,
            links: BTreeMap::new(),
        };
        self.registrations += 1;
        self.by_name.insert(server.name().to_string(), node);
        self.by_host.entry(server.host().to_string()).or_default().insert(node);
        self.by_processors.entry(server.processors.clone()).or_default().insert(node);
        if !server.is_stateless() {
            self.by_number.insert(server.number, node);
        }
        for (function, code) in &server.registration.code_hashes {
            self.by_code.entry(function.clone()).or_default().entry(*code).or_default().insert(node);
        }
        self.unmeasured.insert((now, node));
        let before = self.servers.insert(node, server);
        debug_assert!(before.is_none(), "{node} is registered already");
    }

    /// Removes a server and its functions.
    pub(super) fn remove(&mut self, node: NodeId) -> Option<Registered> {
        let server = self.servers.remove(&node)?;
        self.by_name.remove(server.name());
        self.by_number.remove(&server.number);
        remove_from(&mut self.by_host, server.host(), node);
        remove_from(&mut self.by_processors, &server.processors, node);
        self.update_speed(&server.processors);
        for (function, code) in &server.registration.code_hashes {
            if let Some(by_code) = self.by_code.get_mut(function) {
                remove_from(by_code, code, node);
                if by_code.is_empty() {
                    self.by_code.remove(function);
                }
            }
        }
        self.unmeasured.remove(&(server.since, node));
        self.unable.remove(&node);
        server.links.keys().for_each(|peer| remove_from(&mut self.linked_from, peer, node));
        for signature in &server.registration.functions {
            if let Some((_, count)) = self.functions.get_mut(&signature.name) {
                *count -= 1;
                if *count == 0 {
                    self.functions.remove(&signature.name);
                }
            }
        }
        Some(server)
    }

    /// Updates the mean speed of the servers with these processors.
    fn update_speed(&mut self, processors: &str) {
        let known = self.with_processors(processors).filter_map(|node| self.servers[&node].speed_flops);
        let (sum, count) = known.fold((0.0, 0_u32), |(sum, count), flops| (sum + flops, count + 1));
        match count {
            0 => _ = self.speeds.remove(processors),
            _ => _ = self.speeds.insert(processors.to_string(), sum / f64::from(count)),
        }
    }

    /// Updates the sets that depend on a server's measurements and on the functions that it cannot run.
    fn changed(&mut self, node: NodeId) {
        let Some(server) = self.servers.get(&node) else { return };
        match server.is_measured() {
            true => _ = self.unmeasured.remove(&(server.since, node)),
            false => _ = self.unmeasured.insert((server.since, node)),
        }
        match server.cannot_run.is_empty() {
            true => _ = self.unable.remove(&node),
            false => _ = self.unable.insert(node),
        }
    }

    /// Forgets the links of all servers to a node that is gone.
    pub(super) fn forget_links_to(&mut self, node: NodeId) {
        for from in self.linked_from.remove(&node).unwrap_or_default() {
            if let Some(server) = self.servers.get_mut(&from) {
                server.links.remove(&node);
            }
        }
    }

    /// Records a server's measurement of its link to another node. Returns whether it had measured the link before, or
    /// `None` if it is not registered.
    pub(super) fn link_measured(&mut self, from: NodeId, to: NodeId, link: LinkEstimate) -> Option<bool> {
        let server = self.servers.get_mut(&from)?;
        self.linked_from.entry(to).or_default().insert(from);
        Some(matches!(server.links.insert(to, Some(link)), Some(Some(_))))
    }

    /// Records that a server could not reach another node.
    pub(super) fn link_broken(&mut self, from: NodeId, to: NodeId) {
        if let Some(server) = self.servers.get_mut(&from) {
            self.linked_from.entry(to).or_default().insert(from);
            server.links.insert(to, None);
        }
    }

    /// Records that a new server has measured its links. Returns false if it is not registered.
    pub(super) fn links_done(&mut self, node: NodeId) -> bool {
        let is_known = self.servers.get_mut(&node).map(|server| server.links_done = true).is_some();
        self.changed(node);
        is_known
    }

    /// Records a server's speed, which is unknown if it is not a positive number. Returns false if the server is not
    /// registered.
    pub(super) fn set_speed(&mut self, node: NodeId, flops: f64) -> bool {
        let Some(server) = self.servers.get_mut(&node) else { return false };
        server.speed_flops = (flops.is_finite() && flops > 0.0).then_some(flops);
        let processors = server.processors.clone();
        self.update_speed(&processors);
        self.changed(node);
        true
    }

    /// Records a server's pace. Returns the server.
    pub(super) fn set_pace(&mut self, node: NodeId, pace: f64) -> Option<&Registered> {
        let server = self.servers.get_mut(&node)?;
        server.pace = pace;
        Some(server)
    }

    /// Records that a server cannot run a function that it offers. Returns the server unless that was known.
    pub(super) fn cannot_run(&mut self, node: NodeId, function: &str) -> Option<&Registered> {
        let server = self.servers.get_mut(&node).filter(|server| server.offers(function))?;
        let is_new = server.cannot_run.insert(function.to_string());
        self.changed(node);
        self.get(node).filter(|_| is_new)
    }

    /// Records that a server can run a function again. Returns the server, or `None` if this was already recorded or the
    /// server is draining.
    pub(super) fn can_run(&mut self, node: NodeId, function: &str) -> Option<&Registered> {
        let server = self.servers.get_mut(&node).filter(|server| !server.is_draining)?;
        let was_recorded = server.cannot_run.remove(function);
        self.changed(node);
        self.get(node).filter(|_| was_recorded)
    }

    /// Records that a server is draining. Returns the server.
    pub(super) fn drains(&mut self, node: NodeId) -> Option<&Registered> {
        let server = self.servers.get_mut(&node)?;
        server.cannot_run = server.registration.functions.iter().map(|signature| signature.name.clone()).collect();
        server.is_draining = true;
        self.changed(node);
        self.get(node)
    }
}

/// Removes a node from one of these sets, and the set with its last node.
fn remove_from<K: Ord + Borrow<Q>, Q: Ord + ?Sized>(sets: &mut BTreeMap<K, BTreeSet<NodeId>>, key: &Q, node: NodeId) {
    if let Some(nodes) = sets.get_mut(key) {
        nodes.remove(&node);
        if nodes.is_empty() {
            sets.remove(key);
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::node::version::RELEASE;

    /// Returns the registration of a server that offers `m/f`, with the hashes of its code.
    pub(in super::super) fn registration(name: &str, address: &str, code: &[(&str, u64)]) -> Registration {
        let signature = gridloom_idl::parse("Module m; Define f() Calls f();", "t.idl").unwrap().remove(0).signature;
        Registration {
            name: name.into(),
            address: address.into(),
            slots: 1,
            is_stateless: false,
            memory_bytes: 1 << 20,
            is_durable: false,
            storage: None,
            slowdown: 1.0,
            functions: vec![signature],
            code_hashes: code.iter().map(|(name, hash)| ((*name).into(), *hash)).collect(),
            release: RELEASE.into(),
            was_registered: false,
        }
    }

    /// Servers 2 and 3 on hosts `one` and `two`.
    fn registry() -> Registry {
        let mut registry = Registry::default();
        registry.add(Time(0), NodeId(2), registration("a", "one:1", &[("m/f", 2), ("m/g", 2)]), 1);
        registry.add(Time(0), NodeId(3), registration("b", "two:1", &[("m/f", 3), ("m/g", 3)]), 1);
        registry
    }

    #[test]
    fn different_code_is_reported_once_for_each_server() {
        let registry = registry();
        let differences = |code: &[(&str, u64)]| registry.differences_of_code(&registration("c", "three:1", code));
        let line = |there| format!("'m/f' has different code on servers 'c' and '{there}': results may differ");
        assert_eq!(differences(&[("m/f", 2)]), [line("b")]);
        assert_eq!(differences(&[("m/f", 4)]), [line("a"), line("b")]);
        let both = "'m/f' and 1 more have different code on servers 'c' and 'b': results may differ";
        assert_eq!(differences(&[("m/f", 2), ("m/g", 2)]), [both]);
        let again = registry.differences_of_code(&registration("b", "two:1", &[("m/f", 2), ("m/g", 2)]));
        assert_eq!(again, [""; 0], "a server does not differ from its previous run");
    }

    #[test]
    fn names_and_addresses_are_unique() {
        let registry = registry();
        let check = |name, address, is_alive| {
            let before = registry.others_at(address, NodeId(4));
            let refused = registry.check(NodeId(4), &registration(name, address, &[]), &before, |_| is_alive);
            refused.err().map(|refusal| refusal.is_temporary)
        };
        assert_eq!(check("c", "three:1", true), None);
        assert_eq!(check("a", "three:1", true), Some(true));
        assert_eq!(check("c", "one:1", true), Some(true));
        assert_eq!(check("a", "one:1", false), None, "the silent server at the address has ended");
        assert_eq!(check("", "three:1", true), Some(false));
    }

    #[test]
    fn functions_are_forgotten_with_their_last_server() {
        let mut registry = registry();
        assert_eq!(registry.cannot_run(NodeId(2), "m/g").map(Registered::name), None, "it does not offer it");
        assert_eq!(registry.cannot_run(NodeId(2), "m/f").map(Registered::name), Some("a"));
        assert_eq!(registry.cannot_run(NodeId(2), "m/f").map(Registered::name), None, "that is known");
        assert_eq!(registry.can_run(NodeId(2), "m/f").map(Registered::name), Some("a"));
        assert_eq!(registry.can_run(NodeId(2), "m/f").map(Registered::name), None, "that is known");
        assert_eq!(registry.cannot_run(NodeId(2), "m/f").map(Registered::name), Some("a"), "it fails again");
        assert_eq!(registry.runnable_elsewhere(), ["m/f"].into());
        registry.remove(NodeId(3));
        assert_eq!((registry.runnable_elsewhere().len(), registry.signatures().len()), (0, 1));
        registry.remove(NodeId(2));
        assert_eq!((registry.signatures().len(), registry.len()), (0, 0));
    }

    #[test]
    fn plans_wait_for_measurements_of_new_servers() {
        let mut registry = registry();
        let until = Time(0) + MEASURE_WAIT_NS_MAX;
        for node in [NodeId(2), NodeId(3)] {
            assert_eq!(registry.measured_until(Time(1)), Some(until));
            assert!(registry.set_speed(node, 1e9) && registry.links_done(node));
        }
        assert_eq!(registry.measured_until(Time(1)), None);
        assert!(registry.set_speed(NodeId(2), f64::NAN));
        assert_eq!((registry.measured_until(Time(1)), registry.measured_until(until)), (Some(until), None));
    }
}

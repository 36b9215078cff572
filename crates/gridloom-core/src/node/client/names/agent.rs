//! Requests to the catalog over time, and as the agent connects and disconnects. Locations of shared data: the
//! catalog's answers when this client knows no server that has a copy.

use std::collections::btree_map::Entry;

use super::{NameRequest, PutStage};
use crate::node::client::Client;
use crate::node::client::graph::DatumState;
use crate::node::client::poison::CatalogRequest;
use crate::node::message::ClientToCatalog;
use crate::node::protocol::Effect;
use gridloom_base::limits::{HEARTBEAT_NS, RECONNECT_NS_MAX, SHARED_DATA_PER_MESSAGE, TASK_ATTEMPTS_MAX};
use gridloom_base::{DatumId, NameError, NodeId, Time};

/// How long to dial servers that have a datum which is needed here.
const SEARCH_NS_MAX: u64 = 3 * RECONNECT_NS_MAX;

impl Client {
    /// Repeats requests that have waited. Without an agent they fail after a short time.
    pub(in crate::node::client) fn names_heartbeat(&mut self, now: Time, out: &mut Vec<Effect>) {
        if self.contacts.agent().is_none() {
            if self.contacts.agent_was_lost() && !self.contacts.expects_nodes(now) {
                self.fail_requests(out);
                for datum in self.names.searched.keys().copied().collect::<Vec<_>>() {
                    self.names.not_sought(datum);
                    self.datum_lost(now, datum, "no known server has it, and the agent is not connected", out);
                }
                self.map_waiting(now, out);
            }
            return;
        }
        let (mut again, mut unsure) = (Vec::new(), Vec::new());
        for (request, question) in &self.names.requests_by_number {
            let NameRequest::Put(put) = question else { continue };
            match &put.stage {
                PutStage::Failed => again.push(*request),
                PutStage::Stored { named, server, since } if now.since(*since) >= RECONNECT_NS_MAX => {
                    let why = "the agent has forgotten it".into();
                    let server = self.contacts.name_of(*server);
                    let error = NameError::NotStored { name: put.name.clone(), server, why };
                    unsure.push((*request, named.datum, Some(error)));
                }
                PutStage::Stored { named, since, .. } if now.since(*since) >= HEARTBEAT_NS => {
                    unsure.push((*request, named.datum, None));
                }
                _ => {}
            }
        }
        again.into_iter().for_each(|request| self.ask_catalog(request, out));
        for (request, datum, error) in unsure {
            match error {
                Some(error) => {
                    self.contacts.send_to_agent(ClientToCatalog::Withdraw { datum }, out);
                    self.put_again(request, error, out);
                }
                None => self.contacts.send_to_agent(ClientToCatalog::CheckPut { request, datum }, out),
            }
        }
        for datum in self.names.searched.keys().copied().collect::<Vec<_>>() {
            if !self.names.requests.is_suspect(CatalogRequest::Location(datum)) {
                self.ask_place(datum, out);
            }
        }
        self.send_suspects(now, out);
    }

    /// Handles a connected agent: reports what is read here, and repeats the requests that no earlier agent answered.
    pub(in crate::node::client) fn names_agent_up(&mut self, now: Time, out: &mut Vec<Effect>) {
        let found: Vec<(DatumId, u64)> =
            self.names.found.iter().map(|(datum, found)| (*datum, found.reported)).collect();
        for data in found.chunks(SHARED_DATA_PER_MESSAGE) {
            self.contacts.send_to_agent(ClientToCatalog::Reads { data: data.to_vec() }, out);
        }
        for request in self.names.requests_by_number.keys().copied().collect::<Vec<_>>() {
            match &self.names.requests_by_number[&request] {
                NameRequest::Find { name, is_forgotten: true, .. } => {
                    let unknown = NameError::Unknown { name: name.clone(), near: Vec::new() };
                    self.answer(request, Err(unknown), out);
                }
                // It has a location, or is retried at the next heartbeat.
                NameRequest::Put(put) if put.stage != PutStage::Asked => {}
                _ if self.names.requests.is_suspect(CatalogRequest::Request(request)) => {}
                _ => self.ask_catalog(request, out),
            }
        }
        self.ask_suspects(now, out);
    }

    /// Asks the catalog for the location of a datum.
    pub(in crate::node::client) fn ask_place(&mut self, datum: DatumId, out: &mut Vec<Effect>) {
        if self.contacts.agent().is_some() {
            self.names.requests.sent(CatalogRequest::Location(datum));
            self.contacts.send_to_agent(ClientToCatalog::Locate { datum }, out);
        }
    }

    /// Repeats the requests that were lost with the agent, one at a time.
    pub(in crate::node::client) fn ask_suspects(&mut self, now: Time, out: &mut Vec<Effect>) {
        if self.contacts.agent().is_none() {
            return;
        }
        for asked in self.names.requests.waiting_suspects() {
            if self.awaits_suspect() {
                return;
            }
            match asked {
                CatalogRequest::Request(request) => self.ask_catalog(request, out),
                CatalogRequest::Location(datum) => self.ask_place(datum, out),
            }
            if let Some(token) = self.ping_agent(now, out) {
                self.names.requests.pinged(asked, token);
            }
        }
    }

    /// Handles the loss of the agent, which a request may have caused.
    pub(in crate::node::client) fn names_agent_lost(&mut self, now: Time, out: &mut Vec<Effect>) {
        for one in self.names.requests.lose() {
            match one {
                CatalogRequest::Request(request) => {
                    let Some(question) = self.names.requests_by_number.get(&request).map(NameRequest::text) else {
                        continue;
                    };
                    let error = self.agent_closes(question);
                    self.answer(request, Err(error), out);
                }
                CatalogRequest::Location(datum) => {
                    self.names.not_sought(datum);
                    let why = self.agent_closes("where the data are".into());
                    self.datum_lost(now, datum, &format!("no known server has it; {why}"), out);
                }
            }
        }
    }

    fn agent_closes(&self, asked: String) -> NameError {
        let (address, why) = (self.config.agent.clone(), self.contacts.why_agent_lost().to_string());
        NameError::AgentDisconnects { address, asked, times: TASK_ATTEMPTS_MAX, why }
    }

    pub(super) fn no_agent(&self) -> NameError {
        NameError::NoAgent { why: self.contacts.why_agent_lost().to_string() }
    }

    pub(super) fn fail_requests(&mut self, out: &mut Vec<Effect>) {
        let error = self.no_agent();
        let requests: Vec<u64> = self.names.requests_by_number.keys().copied().collect();
        requests.into_iter().for_each(|request| self.answer(request, Err(error.clone()), out));
    }

    // ---- locations of shared data

    /// Searches for a shared datum that is needed here or by a server and has no known copy.
    pub(in crate::node::client) fn seek(&mut self, now: Time, datum: DatumId, out: &mut Vec<Effect>) {
        if let Entry::Vacant(place) = self.names.searched.entry(datum) {
            place.insert(now);
            self.ask_place(datum, out);
        }
    }

    pub(in crate::node::client) fn on_located(
        &mut self,
        now: Time,
        datum: DatumId,
        holders: Vec<(NodeId, String)>,
        why: &str,
        out: &mut Vec<Effect>,
    ) {
        let why = if holders.is_empty() { why } else { "the servers that have it cannot be reached from here" };
        let reachable: Vec<(NodeId, String)> =
            holders.into_iter().filter(|(node, _)| !self.contacts.is_lost(*node)).collect();
        if self.graph.datum(datum).is_none() {
            return;
        }
        let is_found = self.graph.located(datum, reachable.iter().map(|(node, _)| *node));
        reachable.into_iter().for_each(|(node, address)| self.contacts.learn_address(node, address));
        let sought_ns = self.names.searched.get(&datum).map(|since| now.since(*since));
        if is_found {
            if self.is_needed_here(datum) {
                self.fetch_here(datum, out);
            }
            if !self.is_searched_here(datum) {
                self.names.not_sought(datum);
            } else if sought_ns.is_some_and(|ns| ns >= SEARCH_NS_MAX) {
                self.names.not_sought(datum);
                self.datum_lost(now, datum, why, out);
            }
            self.supply_waiting(now, datum, out);
        } else if sought_ns.is_some_and(|ns| ns >= RECONNECT_NS_MAX) {
            self.names.not_sought(datum);
            self.datum_lost(now, datum, why, out);
        }
        // Maps groups that needed its location.
        self.map_waiting(now, out);
    }

    /// True if a datum is needed here and no reachable server sends it.
    fn is_searched_here(&self, datum: DatumId) -> bool {
        let sender = self.graph.datum(datum).and_then(DatumState::sender);
        self.is_needed_here(datum) && !sender.is_some_and(|sender| self.contacts.is_up(sender))
    }
}

//! The directory: servers and functions, as reported by the agent.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use gridloom_base::near::near_names;
use gridloom_base::{NodeId, TaskError, TaskId};
use gridloom_core::node::Command;
use gridloom_core::node::message::ServerStatus;
use gridloom_idl::Signature;
use gridloom_map::MapError;
use gridloom_perf::{GridView, ServerView};

use crate::call::TransferLimits;
use crate::report::Setting;
use crate::{Error, Function, Grid};

/// Maximum number of lost servers that an error lists.
const LOST_NAMED_MAX: usize = 10;

/// Servers and functions reported by the agent.
#[derive(Default)]
pub(super) struct Directory {
    servers: Arc<GridView>,
    functions: Arc<Vec<Signature>>,
    is_known: bool,
    agent_lost: Option<TaskError>,
    /// Names of all nodes ever reported.
    names: BTreeMap<NodeId, String>,
    /// Slots of all servers ever reported.
    slots: BTreeMap<NodeId, u32>,
    /// Servers whose models were requested and not received yet.
    without_models: BTreeSet<NodeId>,
    /// Answers to the last request for the servers' status.
    statuses: BTreeMap<NodeId, ServerStatus>,
}

impl Directory {
    pub(super) fn on_directory(&mut self, servers: Arc<GridView>, functions: Arc<Vec<Signature>>, client: NodeId) {
        for server in &servers.servers {
            self.names.insert(server.node, server.name.clone());
            self.slots.insert(server.node, server.slots);
        }
        self.names.entry(client).or_insert_with(|| "client".to_string());
        (self.servers, self.functions) = (servers, functions);
        self.is_known = true;
        self.agent_lost = None;
    }

    pub(super) fn grid(&self) -> &GridView {
        &self.servers
    }

    pub(super) fn on_agent_lost(&mut self, error: TaskError) {
        self.agent_lost = Some(error);
    }

    pub(super) fn on_models(&mut self, server: NodeId) {
        self.without_models.remove(&server);
    }

    pub(super) fn on_status(&mut self, server: NodeId, status: ServerStatus) {
        self.statuses.insert(server, status);
    }

    pub(super) fn names(&self) -> &BTreeMap<NodeId, String> {
        &self.names
    }

    pub(super) fn setting<'a>(&'a self, clients: &'a [NodeId], is_simulated: bool) -> Setting<'a> {
        Setting { clients, names: &self.names, slots: &self.slots, is_simulated }
    }

    pub(super) fn take_slots(&mut self) -> BTreeMap<NodeId, u32> {
        std::mem::take(&mut self.slots)
    }

    pub(super) fn has(&self, server: NodeId) -> bool {
        self.servers.server(server).is_some()
    }

    pub(super) fn servers(&self) -> &Arc<GridView> {
        &self.servers
    }

    /// Lists the former servers, if none is left.
    fn lost_servers(&self) -> Option<String> {
        if !self.servers.servers.is_empty() || self.slots.is_empty() {
            return None;
        }
        let mut names: Vec<&str> =
            self.slots.keys().filter_map(|node| self.names.get(node)).map(String::as_str).collect();
        names.sort_unstable();
        let shown = &names[..names.len().min(LOST_NAMED_MAX)];
        let more =
            if names.len() > shown.len() { format!(" and {} more", names.len() - shown.len()) } else { "".into() };
        Some(format!("all servers were lost: {}{more}", shown.join(", ")))
    }

    /// Adds the names of lost servers to an error that reports that there are no servers.
    pub(super) fn with_lost_servers(&self, error: TaskError) -> TaskError {
        match (error, self.lost_servers()) {
            (TaskError::NoSuchFunction { function, near }, Some(lost)) if near.is_empty() => {
                TaskError::NoSuchFunction { function, near: format!("; {lost}") }
            }
            (TaskError::NotMapped { why }, Some(lost)) if why == MapError::EmptyGrid.to_string() => {
                TaskError::NotMapped { why: lost }
            }
            (error, _) => error,
        }
    }

    /// Returns whether the agent has answered; its loss is an error.
    pub(super) fn is_connected(&self) -> Option<Result<(), Error>> {
        match &self.agent_lost {
            Some(error) => Some(Err(Error::Connect(error.to_string()))),
            None => self.is_known.then_some(Ok(())),
        }
    }

    /// Returns the function of that full name, or of that name within the only module that has one.
    fn function(&self, name: &str) -> Result<&Signature, Error> {
        let unknown = |near: String| Error::UnknownFunction { name: name.to_string(), near };
        if let Some(exact) = self.functions.iter().find(|signature| signature.name == name) {
            return Ok(exact);
        }
        let short = self.functions.iter().filter(|signature| signature.name.rsplit('/').next() == Some(name));
        match short.collect::<Vec<_>>()[..] {
            [only] => Ok(only),
            [] => {
                let near = near_names(name, self.functions.iter().map(|signature| signature.name.as_str()));
                let none = || "no function is offered at all: start a server with 'gridloom serve'".to_string();
                Err(unknown(match (near.is_empty(), self.functions.is_empty()) {
                    (false, _) => format!("; did you mean {}?", near.join(" or ")),
                    (true, false) => "; 'gridloom functions' lists what is offered".to_string(),
                    (true, true) => format!("; {}", self.lost_servers().unwrap_or_else(none)),
                }))
            }
            ref several => {
                let all: Vec<String> = several.iter().map(|signature| format!("'{}'", signature.name)).collect();
                let all = all.join(" and ");
                Err(unknown(format!(" by that name alone; there are {all}: give the module, too")))
            }
        }
    }

    pub(super) fn check(&self) {
        let is_named = |server: &gridloom_perf::ServerView| self.names.contains_key(&server.node);
        assert!(self.servers.servers.iter().all(is_named), "every server has a name");
    }
}

impl Grid {
    /// Returns a function by name (`module/function`, or `function` alone if only one module has it).
    ///
    /// # Errors
    /// If no server offers it; the message lists similar names.
    pub fn function(&self, name: &str) -> Result<Function, Error> {
        self.absorb();
        let signature = Arc::new(self.state().directory.function(name)?.clone());
        let (hash, unwanted_files) = (signature.hash(), Vec::new());
        Ok(Function {
            grid: self.clone(),
            hash,
            signature,
            only: None,
            object: None,
            retry: None,
            repeats: None,
            unwanted_files,
            transfers: TransferLimits::default(),
            label: None,
            ranks: 0,
        })
    }

    /// Lists the former servers, if none is left.
    pub(crate) fn lost_servers(&self) -> Option<String> {
        self.state().directory.lost_servers()
    }

    /// Signatures of all offered functions, ordered by name.
    pub fn functions(&self) -> Arc<Vec<Signature>> {
        self.absorb();
        self.state().directory.functions.clone()
    }

    /// The known servers.
    pub fn servers(&self) -> Arc<GridView> {
        self.absorb();
        self.state().directory.servers.clone()
    }

    /// Returns the current status of each server, ordered by name; `None` for one that does not answer within `limit`.
    ///
    /// # Errors
    /// If the session is closed.
    pub fn statuses(&self, limit: Duration) -> Result<Vec<(ServerView, Option<ServerStatus>)>, Error> {
        let servers = self.servers();
        self.state().directory.statuses.clear();
        let questions = servers.servers.iter().map(|server| Command::Status { server: server.node });
        self.commands(questions.collect());
        let answered = self.wait(Some(limit), |state| {
            let directory = &state.directory;
            let is_awaited =
                |server: &ServerView| directory.has(server.node) && !directory.statuses.contains_key(&server.node);
            (!servers.servers.iter().any(is_awaited)).then_some(())
        });
        match answered {
            Ok(()) | Err(Error::TimedOut { .. }) => {}
            Err(error) => return Err(error),
        }
        let mut statuses = std::mem::take(&mut self.state().directory.statuses);
        Ok(servers.servers.iter().map(|server| (server.clone(), statuses.remove(&server.node))).collect())
    }

    /// Ends a task on a server, whoever owns it: its program receives a cancellation.
    pub fn end_task(&self, server: NodeId, task: TaskId) {
        self.command(Command::EndTask { server, task });
    }

    /// Waits until the models of all servers are known here, but no longer than `limit`. On a simulated grid models arrive with
    /// virtual time, and this does not wait.
    ///
    /// # Errors
    /// If the session is closed.
    pub fn learn_models(&self, limit: Duration) -> Result<(), Error> {
        let servers: Vec<NodeId> = self.servers().servers.iter().map(|server| server.node).collect();
        if self.is_simulated() || servers.is_empty() { Ok(()) } else { self.await_models(&servers, limit) }
    }

    /// Waits until the models of those servers are known to the agent, and here. Does not wait for servers that are gone.
    pub(crate) fn await_models(&self, servers: &[NodeId], limit: Duration) -> Result<(), Error> {
        self.state().directory.without_models.extend(servers);
        servers.iter().for_each(|server| self.command(Command::Models { server: *server }));
        let known = self.wait(Some(limit), |state| {
            let directory = &state.directory;
            let is_awaited = |server: &NodeId| directory.without_models.contains(server) && directory.has(*server);
            (directory.agent_lost.is_some() || !servers.iter().any(is_awaited)).then_some(())
        });
        let mut state = self.state();
        servers.iter().for_each(|server| state.directory.on_models(*server));
        match known {
            // The measured times are in the call's result; other nodes learn them later.
            Err(Error::TimedOut { .. }) => Ok(()),
            known => known,
        }
    }
}

//! The directory: servers and functions, as reported by the agent.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gridloom_base::dial::ConnectionFault;
use gridloom_base::near::near_names;
use gridloom_base::{NodeId, TaskError, TaskId};
use gridloom_core::node::message::{ProgramWaits, ServerStatus, UsagePage, UsageQuery};
use gridloom_idl::Signature;
use gridloom_map::MapError;
use gridloom_perf::{GridView, ServerView};

use crate::Error;
use crate::report::ReportContext;

/// Maximum number of lost servers that an error lists.
const LOST_NAMED_MAX: usize = 10;

/// Servers and functions reported by the agent.
#[derive(Default)]
pub(crate) struct Directory {
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
    /// The agent's last answer about waits, and the number of answers so far. The answer is kept, because several threads may
    /// wait for it.
    waits: (Vec<ProgramWaits>, u64),
    /// Answers about the usage of users that no thread has taken.
    usage: Vec<(UsageQuery, UsageAnswer)>,
    /// Answers to the requests to end tasks.
    end_task_answers: EndTaskAnswers,
}

/// For each server and task, whether the server ends the task, or why it does not.
pub type EndTaskAnswers = BTreeMap<(NodeId, TaskId), Result<(), String>>;

/// The usage of users, or why the agent does not report it.
pub(crate) type UsageAnswer = Result<UsagePage, String>;

/// Maximum number of answers about usage that wait for a thread: one that stopped waiting does not take its answer.
const USAGE_ANSWERS_MAX: usize = 16;

impl Directory {
    pub(crate) fn on_directory(&mut self, servers: Arc<GridView>, functions: Arc<Vec<Signature>>, client: NodeId) {
        for server in &servers.servers {
            self.names.insert(server.node, server.name.clone());
            self.slots.insert(server.node, server.slots);
        }
        self.names.entry(client).or_insert_with(|| "client".to_string());
        (self.servers, self.functions) = (servers, functions);
        self.is_known = true;
        self.agent_lost = None;
    }

    pub(crate) fn grid(&self) -> &GridView {
        &self.servers
    }

    pub(crate) fn on_agent_lost(&mut self, error: TaskError) {
        self.agent_lost = Some(error);
    }

    pub(crate) fn on_models(&mut self, server: NodeId) {
        self.without_models.remove(&server);
    }

    pub(crate) fn on_status(&mut self, server: NodeId, status: ServerStatus) {
        self.statuses.insert(server, status);
    }

    pub(crate) fn on_waits(&mut self, programs: Vec<ProgramWaits>) {
        self.waits = (programs, self.waits.1 + 1);
    }

    /// Returns the number of answers about waits so far.
    pub(crate) fn waits_answers(&self) -> u64 {
        self.waits.1
    }

    /// Returns the last answer about waits, if it is newer than answer number `answers`.
    pub(crate) fn waits_after(&self, answers: u64) -> Option<Vec<ProgramWaits>> {
        (self.waits.1 > answers).then(|| self.waits.0.clone())
    }

    pub(crate) fn on_usage(&mut self, query: UsageQuery, answer: UsageAnswer) {
        if self.usage.len() == USAGE_ANSWERS_MAX {
            _ = self.usage.remove(0);
        }
        self.usage.push((query, answer));
    }

    /// Takes the answer to a query about usage, if it has arrived.
    pub(crate) fn take_usage(&mut self, query: &UsageQuery) -> Option<UsageAnswer> {
        let at = self.usage.iter().position(|(answered, _)| answered == query)?;
        Some(self.usage.remove(at).1)
    }

    pub(crate) fn on_end_task(&mut self, server: NodeId, task: TaskId, answer: Result<(), String>) {
        self.end_task_answers.insert((server, task), answer);
    }

    /// True if all these requests to end tasks are answered.
    pub(crate) fn has_end_task_answers(&self, tasks: &[(NodeId, TaskId)]) -> bool {
        tasks.iter().all(|task| self.end_task_answers.contains_key(task))
    }

    pub(crate) fn take_end_task_answers(&mut self) -> EndTaskAnswers {
        std::mem::take(&mut self.end_task_answers)
    }

    pub(crate) fn names(&self) -> &BTreeMap<NodeId, String> {
        &self.names
    }

    pub(crate) fn report_context<'a>(&'a self, clients: &'a [NodeId], is_simulated: bool) -> ReportContext<'a> {
        ReportContext { clients, names: &self.names, slots: &self.slots, is_simulated }
    }

    pub(crate) fn take_slots(&mut self) -> BTreeMap<NodeId, u32> {
        std::mem::take(&mut self.slots)
    }

    pub(crate) fn has(&self, server: NodeId) -> bool {
        self.servers.server(server).is_some()
    }

    pub(crate) fn servers(&self) -> &Arc<GridView> {
        &self.servers
    }

    /// Lists the former servers, if none is left.
    pub(crate) fn lost_servers(&self) -> Option<String> {
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
    pub(crate) fn with_lost_servers(&self, error: TaskError) -> TaskError {
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

    /// Returns true if the agent has answered. The loss of the agent is an error unless `may_recover` accepts the fault.
    pub(crate) fn is_connected(&self, may_recover: impl Fn(ConnectionFault) -> bool) -> Option<Result<(), Error>> {
        match &self.agent_lost {
            Some(TaskError::AgentLost { fault, .. }) if may_recover(*fault) => None,
            Some(error) => Some(Err(Error::Connect(error.to_string()))),
            None => self.is_known.then_some(Ok(())),
        }
    }

    /// Returns the error of a lost agent.
    pub(crate) fn agent_lost(&self) -> Option<&TaskError> {
        self.agent_lost.as_ref()
    }

    /// Returns the function of that full name, or of that name within the only module that has one.
    pub(crate) fn function(&self, name: &str) -> Result<&Signature, Error> {
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

    /// True if a server offers a function of that full name.
    pub(crate) fn offers(&self, name: &str) -> bool {
        self.functions.iter().any(|signature| signature.name == name)
    }

    /// Signatures of all offered functions, ordered by name.
    pub(crate) fn functions(&self) -> &Arc<Vec<Signature>> {
        &self.functions
    }

    /// Begins to wait for the status of servers.
    pub(crate) fn begin_statuses(&mut self) {
        self.statuses.clear();
    }

    /// True if all of those servers that are still there have sent their status.
    pub(crate) fn has_statuses(&self, servers: &[ServerView]) -> bool {
        let is_awaited = |server: &ServerView| self.has(server.node) && !self.statuses.contains_key(&server.node);
        !servers.iter().any(is_awaited)
    }

    pub(crate) fn take_statuses(&mut self) -> BTreeMap<NodeId, ServerStatus> {
        std::mem::take(&mut self.statuses)
    }

    /// Begins to wait for the models of servers.
    pub(crate) fn begin_models(&mut self, servers: &[NodeId]) {
        self.without_models.extend(servers);
    }

    /// True if the models of those servers that are still there were received, or the agent is lost.
    pub(crate) fn has_models(&self, servers: &[NodeId]) -> bool {
        let is_awaited = |server: &NodeId| self.without_models.contains(server) && self.has(*server);
        self.agent_lost.is_some() || !servers.iter().any(is_awaited)
    }

    pub(crate) fn check(&self) {
        let is_named = |server: &gridloom_perf::ServerView| self.names.contains_key(&server.node);
        assert!(self.servers.servers.iter().all(is_named), "every server has a name");
    }
}

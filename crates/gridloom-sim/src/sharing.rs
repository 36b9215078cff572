//! Calls that get and put shared data: connects their sessions with the simulation.

use std::collections::VecDeque;
use std::sync::Arc;

use gridloom_base::{NameError, NodeId, TaskError, TaskId};
use gridloom_core::graph::Task;
use gridloom_core::node::{Event, Input, Role};
use gridloom_idl::{UseKind, UsedName};

use crate::sessions::Step;
use crate::simulation::Simulation;

impl Simulation {
    /// Returns the names that a task gets before it computes, or puts after that. Empty if task bodies do this themselves.
    pub(crate) fn shared_names(&self, task: &Task, does: impl Fn(UseKind) -> bool) -> VecDeque<UsedName> {
        if !self.tasks.simulates_sharing() {
            return VecDeque::new();
        }
        task.options.uses_matching(does).cloned().collect()
    }

    /// Makes a started task wait until it has processed these names.
    pub(crate) fn wait_for_shared(&mut self, server: NodeId, task: &Task, uses: VecDeque<UsedName>) {
        self.kernel.deliver(server, Input::Paused { task: task.id, waits: true });
        let client = self.session_of(server);
        let steps = self.sessions.begin(client, task, uses);
        self.take(client, steps);
    }

    /// Returns the client of a server's session. Opens one if there is none.
    fn session_of(&mut self, server: NodeId) -> NodeId {
        self.sessions.of_server(server).unwrap_or_else(|| {
            let (host, name) = (self.node(server).host, format!("functions of {}", self.node(server).name));
            let client = self.add_client(host, &name);
            self.sessions.open(server, client);
            client
        })
    }

    /// Returns the server of a client's session, if it is a session.
    pub fn session_server(&self, client: NodeId) -> Option<NodeId> {
        self.sessions.server_of(client)
    }

    /// Passes an event to the session of a server. Returns false if the client is not a session.
    pub(crate) fn handle_session_event(&mut self, client: NodeId, event: &Event) -> bool {
        let is_session = self.sessions.server_of(client).is_some();
        if is_session {
            let steps = self.sessions.on_event(client, event.clone());
            self.take(client, steps);
        }
        is_session
    }

    /// Ends the session's call for a task that has ended or was cancelled.
    pub(crate) fn shared_ended(&mut self, server: NodeId, task: TaskId) {
        if let Some(client) = self.sessions.of_server(server) {
            let steps = self.sessions.end(client, task);
            self.take(client, steps);
        }
    }

    /// Closes the session of a server that has ended.
    pub(crate) fn end_session(&mut self, server: NodeId) {
        if self.node(server).role == Role::Server
            && let Some(client) = self.sessions.close(server)
        {
            self.end_node(client, "its server has ended");
        }
    }

    fn take(&mut self, client: NodeId, steps: Vec<Step>) {
        let Some(server) = self.sessions.server_of(client) else { return };
        for step in steps {
            match step {
                Step::Command(command) => self.kernel.deliver(client, Input::Command(command)),
                Step::Keep(datum, meta, call) => {
                    let value = self.tasks.value_to_put(call, meta);
                    self.store_value(client, datum, value);
                }
                Step::Continue(task) => self.goes_on(server, task),
                Step::Fails(task, error) => {
                    let (kind, message) = (class_of(&error).to_string(), error.to_string());
                    let raised = |function, server| TaskError::Raised {
                        function,
                        server,
                        kind,
                        message,
                        traceback: String::new(),
                    };
                    self.fails(server, task, raised);
                }
                Step::DataMissing(task, error) => self.fails(server, task, |_, _| error),
            }
        }
    }

    fn goes_on(&mut self, server: NodeId, task: TaskId) {
        self.kernel.deliver(server, Input::Paused { task, waits: false });
        if let Some(ended) = self.at(server, |tasks, kernel, place| tasks.resume(kernel, place, task)) {
            self.kernel.deliver(server, ended);
            self.shared_ended(server, task);
        }
    }

    fn fails(&mut self, server: NodeId, task: TaskId, error: impl FnOnce(String, String) -> TaskError) {
        let failed = self.at(server, |tasks, kernel, place| {
            tasks.fail(kernel, &place, task, |function| error(function, place.name.to_string()))
        });
        failed.into_iter().for_each(|input| self.kernel.deliver(server, input));
    }

    /// Starts a task, which may have to wait for shared data first.
    pub(crate) fn start_task(&mut self, server: NodeId, task: Arc<Task>) {
        let gets = self.shared_names(&task, UseKind::gets);
        if !gets.is_empty() || !self.shared_names(&task, UseKind::puts).is_empty() {
            // Opens the session early, so that a call that only puts has it by then.
            self.session_of(server);
        }
        let waits = !gets.is_empty();
        self.at(server, |tasks, kernel, place| tasks.start(kernel, &place, task.clone(), waits));
        if waits {
            self.wait_for_shared(server, &task, gets);
        }
    }
}

/// Returns the name of the error's class in Python.
fn class_of(error: &NameError) -> &'static str {
    match error {
        NameError::Exists { .. } | NameError::BeingPut { .. } | NameError::ContentDiffers { .. } => "NameExists",
        NameError::Unknown { .. } => "UnknownName",
        NameError::NoRoom { .. } | NameError::TooMany { .. } => "NoRoomToShare",
        NameError::Lost { .. } => "SharedDataLost",
        _ => "SharedDataError",
    }
}

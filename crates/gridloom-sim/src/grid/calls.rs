//! Calls of functions on the servers: their tasks, and the sessions through which they get and put shared data.
//!
//! **Invariant:** a call that gets or puts shared data has a session of its server: the session is open before the
//! call starts.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use gridloom_base::{NameError, NodeId, ObjectId, RaisedCause, TaskError, TaskId};
use gridloom_core::call::CallbackAnswer;
use gridloom_core::graph::Task;
use gridloom_core::node::{Event, Input, SessionAnswer};
use gridloom_idl::{UseKind, UsedName};

use super::disk::Files;
use super::nodes::Nodes;
use super::sessions::{FunctionSessions, Step};
use super::tasks::{Bodies, NextStep, Tasks};
use crate::environment::Environment;
use crate::kernel::Kernel;
use crate::scheduled_event::StartedTask;

/// The tasks and sessions of all servers.
pub(crate) struct Calls {
    tasks: Tasks,
    sessions: FunctionSessions,
}

impl Calls {
    /// Creates them without a call. `efficiencies` are the fractions of a host's speed that functions use.
    pub(crate) fn new(efficiencies: BTreeMap<String, f64>) -> Calls {
        Calls { tasks: Tasks::new(efficiencies), sessions: FunctionSessions::default() }
    }

    /// Sets the bodies of tasks, which are run when the tasks end.
    pub(crate) fn set_bodies(&mut self, bodies: Box<dyn Bodies>) {
        self.tasks.set_bodies(bodies);
    }

    /// Sets the file parameters of a function.
    pub(crate) fn set_files(&mut self, function: &str, files: Files) {
        self.tasks.set_files(function, files);
    }

    /// Sets the file parameters from a function's description, unless they were set already.
    pub(crate) fn describe_files(&mut self, function: &str, files: Files) {
        self.tasks.describe_files(function, files);
    }

    /// Reports whether a server must open a session before it starts this task.
    pub(crate) fn needs_session(&self, server: NodeId, task: &Task) -> bool {
        let shares = |does: fn(UseKind) -> bool| !self.shared_names(task, does).is_empty();
        self.sessions.of_server(server).is_none() && (shares(UseKind::gets) || shares(UseKind::puts))
    }

    /// Opens the session of a server. Its client is that node.
    pub(crate) fn open_session(&mut self, server: NodeId, client: NodeId) {
        self.sessions.open(server, client);
    }

    /// Closes the session of a server that has ended. Returns its client.
    pub(crate) fn close_session(&mut self, server: NodeId) -> Option<NodeId> {
        self.sessions.close(server)
    }

    /// Returns the server of a client's session, if it is a session.
    pub(crate) fn session_server(&self, client: NodeId) -> Option<NodeId> {
        self.sessions.server_of(client)
    }

    /// Reports whether one node is the session of the other.
    pub(crate) fn share_memory(&self, one: NodeId, other: NodeId) -> bool {
        self.sessions.share_memory(one, other)
    }

    /// Starts a task, which may have to wait for shared data first.
    pub(crate) fn start(
        &mut self,
        environment: &mut Environment,
        nodes: &mut Nodes,
        server: NodeId,
        task: Arc<Task>,
    ) -> NextStep {
        let gets = self.shared_names(&task, UseKind::gets);
        let waits = !gets.is_empty();
        let view = nodes.server_view(&environment.hosts, server);
        let next = self.tasks.start(&mut environment.kernel, view, task.clone(), waits);
        if waits {
            self.wait_for_shared(environment, nodes, server, &task, gets);
        }
        next
    }

    /// Handles the notification of a server that a task waits or has resumed.
    pub(crate) fn set_known_to_wait(&mut self, server: NodeId, task: TaskId, waits: bool) {
        self.tasks.set_known_to_wait(server, task, waits);
    }

    /// Handles the end of a task's file accesses.
    pub(crate) fn files_done(
        &mut self,
        environment: &mut Environment,
        nodes: &mut Nodes,
        started: &StartedTask,
    ) -> NextStep {
        let view = nodes.server_view(&environment.hosts, started.node);
        self.tasks.files_done(&mut environment.kernel, view, &started.task)
    }

    /// Handles the end of a task's paging.
    pub(crate) fn paged(&mut self, environment: &mut Environment, nodes: &mut Nodes, started: StartedTask) {
        let view = nodes.server_view(&environment.hosts, started.node);
        self.tasks.paged(&mut environment.kernel, &view, started.task);
    }

    /// Handles the end of a task's computation. It may have to put shared data first.
    pub(crate) fn computed(
        &mut self,
        environment: &mut Environment,
        nodes: &mut Nodes,
        StartedTask { node, task }: StartedTask,
    ) -> NextStep {
        let puts = self.shared_names(&task, UseKind::puts);
        if !puts.is_empty() {
            self.tasks.wait_after(node, &task);
            self.wait_for_shared(environment, nodes, node, &task, puts);
            return NextStep::None;
        }
        let view = nodes.server_view(&environment.hosts, node);
        let next = self.tasks.computed(&mut environment.kernel, view, &task);
        if matches!(next, NextStep::Input(_)) {
            self.end_shared(&mut environment.kernel, node, task.id);
        }
        next
    }

    /// Stops a task. Its machine is notified if it still ran.
    pub(crate) fn stop(&mut self, kernel: &mut Kernel, server: NodeId, task: TaskId) {
        let ended = self.tasks.stop(kernel, server, task);
        ended.into_iter().for_each(|input| kernel.deliver(server, input));
        self.end_shared(kernel, server, task);
    }

    /// Passes the program's answer to a task that called it back.
    pub(crate) fn answer(
        &mut self,
        environment: &mut Environment,
        nodes: &mut Nodes,
        server: NodeId,
        task: TaskId,
        answer: CallbackAnswer,
    ) -> NextStep {
        let view = nodes.server_view(&environment.hosts, server);
        self.tasks.answer(&mut environment.kernel, view, task, answer)
    }

    /// Passes an answer to a task that has made a request to its session.
    pub(crate) fn answer_session(
        &mut self,
        environment: &mut Environment,
        nodes: &mut Nodes,
        (server, task): (NodeId, TaskId),
        answer: (SessionAnswer, &[u8]),
    ) -> NextStep {
        let view = nodes.server_view(&environment.hosts, server);
        self.tasks.answer_session(&mut environment.kernel, view, task, answer)
    }

    /// Discards the state of an object that has ended.
    pub(crate) fn end_object(&mut self, object: ObjectId) {
        self.tasks.end_object(object);
    }

    /// Removes the tasks of a node that has ended.
    pub(crate) fn end_tasks(&mut self, kernel: &mut Kernel, node: NodeId) {
        self.tasks.end_all(kernel, node);
    }

    /// Passes an event to the session of a server. Returns false if the client is not a session.
    pub(crate) fn handle_session_event(
        &mut self,
        environment: &mut Environment,
        nodes: &mut Nodes,
        client: NodeId,
        event: &Event,
    ) -> bool {
        let is_session = self.sessions.server_of(client).is_some();
        if is_session {
            let steps = self.sessions.on_event(client, event.clone());
            self.take_steps(environment, nodes, client, steps);
        }
        is_session
    }

    /// Reports whether a server runs no task.
    pub(crate) fn is_idle(&self, server: NodeId) -> bool {
        self.tasks.is_idle(server)
    }

    /// Panics if an invariant does not hold.
    pub(crate) fn check(&self, kernel: &Kernel) {
        self.tasks.check(kernel);
    }

    /// Returns the names that a task gets before it computes, or puts after that. Empty if task bodies do this themselves.
    fn shared_names(&self, task: &Task, does: impl Fn(UseKind) -> bool) -> VecDeque<UsedName> {
        if !self.tasks.simulates_sharing() {
            return VecDeque::new();
        }
        task.options.uses_matching(does).cloned().collect()
    }

    /// Makes a started task wait until it has processed these names.
    fn wait_for_shared(
        &mut self,
        environment: &mut Environment,
        nodes: &mut Nodes,
        server: NodeId,
        task: &Task,
        uses: VecDeque<UsedName>,
    ) {
        environment.kernel.deliver(server, Input::Paused { task: task.id, waits: true });
        let client = self.sessions.of_server(server).expect("the session was opened before the task started");
        let steps = self.sessions.begin(client, task, uses);
        self.take_steps(environment, nodes, client, steps);
    }

    /// Performs the actions that a session requests.
    fn take_steps(&mut self, environment: &mut Environment, nodes: &mut Nodes, client: NodeId, steps: Vec<Step>) {
        let Some(server) = self.sessions.server_of(client) else { return };
        for step in steps {
            match step {
                Step::Command(command) => environment.kernel.deliver(client, Input::Command(command)),
                Step::Keep(datum, meta, call) => {
                    let value = self.tasks.value_to_put(call, meta);
                    nodes.store_value(&mut environment.kernel, client, datum, value);
                }
                Step::Continue(task) => self.resume(environment, nodes, server, task),
                Step::Fails(task, error) => {
                    let (kind, message) = (class_of(&error).to_string(), error.to_string());
                    let raised = |function, server| TaskError::Raised {
                        function,
                        server,
                        kind,
                        message,
                        traceback: String::new(),
                        cause: RaisedCause::Function,
                    };
                    self.fail(environment, nodes, server, task, raised);
                }
                Step::DataMissing(task, error) => self.fail(environment, nodes, server, task, |_, _| error),
            }
        }
    }

    /// Resumes a task that has its shared data.
    fn resume(&mut self, environment: &mut Environment, nodes: &mut Nodes, server: NodeId, task: TaskId) {
        environment.kernel.deliver(server, Input::Paused { task, waits: false });
        let view = nodes.server_view(&environment.hosts, server);
        match self.tasks.resume(&mut environment.kernel, view, task) {
            NextStep::None => {}
            NextStep::Input(ended) => {
                environment.kernel.deliver(server, ended);
                self.end_shared(&mut environment.kernel, server, task);
            }
            NextStep::Session(..) => unreachable!("bodies that open sessions move shared data themselves"),
        }
    }

    /// Ends a task that waits for shared data with an error.
    fn fail(
        &mut self,
        environment: &mut Environment,
        nodes: &mut Nodes,
        server: NodeId,
        task: TaskId,
        error: impl FnOnce(String, String) -> TaskError,
    ) {
        let view = nodes.server_view(&environment.hosts, server);
        let name = view.name.to_string();
        let failed = self.tasks.fail(&mut environment.kernel, &view, task, |function| error(function, name));
        failed.into_iter().for_each(|input| environment.kernel.deliver(server, input));
    }

    /// Ends the session's call for a task that has ended or was cancelled.
    fn end_shared(&mut self, kernel: &mut Kernel, server: NodeId, task: TaskId) {
        let Some(client) = self.sessions.of_server(server) else { return };
        for step in self.sessions.end(client, task) {
            let Step::Command(command) = step else { unreachable!("a call that has ended waits for nothing") };
            kernel.deliver(client, Input::Command(command));
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

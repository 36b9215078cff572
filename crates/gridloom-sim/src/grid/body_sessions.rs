//! Sessions that the bodies of functions open: each is a client on the host of the function's server.
//!
//! A body runs in no virtual time. When it waits, its slot is free, and it continues at the time of the client's next
//! event.
//!
//! **Invariant:** a client ends with its server, and with the worker of the body that used it last.

use std::collections::BTreeMap;
use std::sync::Arc;

use gridloom_base::{NodeId, TaskError, TaskId};
use gridloom_core::graph::Task;
use gridloom_core::node::{Event, Input, SessionAction, SessionAnswer, SessionRequest, SessionResult};

use super::Grid;
use super::tasks::NextStep;
use crate::environment::Environment;
use crate::kernel::{Kernel, ScheduledEvent};
use crate::store::StoredValue;

/// The sessions, by client.
#[derive(Debug, Default)]
pub(super) struct BodySessions {
    all: BTreeMap<NodeId, BodySession>,
    last_wait: u64,
}

#[derive(Debug)]
struct BodySession {
    server: NodeId,
    /// The task that has used it last.
    task: TaskId,
    /// The number of the wait in progress.
    wait: Option<u64>,
}

impl BodySessions {
    /// Lets the function that waits for this client continue now.
    pub(super) fn wake(&self, kernel: &mut Kernel, client: NodeId) {
        if let Some(wait) = self.all.get(&client).and_then(|session| session.wait) {
            kernel.push(kernel.now(), ScheduledEvent::SessionDue { client, wait });
        }
    }

    /// Reports whether a body has opened this client's session.
    pub(super) fn contains(&self, client: NodeId) -> bool {
        self.all.contains_key(&client)
    }

    /// Returns the clients of a server, or those that one of its tasks has used last.
    fn clients(&self, server: NodeId, task: Option<TaskId>) -> Vec<NodeId> {
        let is_its = |session: &BodySession| session.server == server && task.is_none_or(|task| session.task == task);
        self.all.iter().filter(|(_, session)| is_its(session)).map(|(client, _)| *client).collect()
    }
}

impl Grid {
    /// Continues a task of a server until its body ends or waits. Returns the input for the server's machine, if any.
    pub(super) fn advance(
        &mut self,
        environment: &mut Environment,
        server: NodeId,
        mut next: NextStep,
    ) -> Option<Input> {
        loop {
            let (task, request, bytes) = match next {
                NextStep::None => return None,
                NextStep::Input(input) => {
                    if let Input::TaskEnded { task, outcome: Err(TaskError::Crashed { .. }), .. } = &input {
                        self.end_body_sessions(
                            environment,
                            server,
                            Some(*task),
                            "the worker of its function has ended",
                        );
                    }
                    return Some(input);
                }
                NextStep::Session(task, request, bytes) => (task, request, bytes),
            };
            let (result, value) = self.serve_body(environment, server, &task, *request, bytes)?;
            let answer = SessionAnswer { now: environment.kernel.now(), result };
            let bytes = value.and_then(|value| value.bytes).unwrap_or_default();
            next = self.calls.answer_session(environment, &mut self.nodes, (server, task.id), (answer, &bytes));
        }
    }

    /// Serves a request. Returns `None` if the answer is sent later.
    fn serve_body(
        &mut self,
        environment: &mut Environment,
        server: NodeId,
        task: &Arc<Task>,
        SessionRequest { client, removed, action }: SessionRequest,
        bytes: Vec<u8>,
    ) -> Option<(SessionResult, Option<StoredValue>)> {
        let Some(client) = client else {
            let client = self.add_session_client(environment, server);
            self.body_sessions.all.insert(client, BodySession { server, task: task.id, wait: None });
            return Some((SessionResult::Opened { client }, None));
        };
        let ended = |why: &str| Some((SessionResult::Ended { why: why.to_string() }, None));
        let Some(session) = self.body_sessions.all.get_mut(&client) else { return ended("the session is closed") };
        session.task = task.id;
        if self.nodes.is_dead(client) {
            return ended(&self.why_ended(client));
        }
        removed.into_iter().for_each(|datum| self.nodes.remove_value(client, datum));
        let result = match action {
            SessionAction::Open => SessionResult::Opened { client },
            SessionAction::Put { datum, meta } => {
                let value = StoredValue { meta, bytes: Some(bytes.into()) };
                self.nodes.store_value(&mut environment.kernel, client, datum, value);
                SessionResult::Done
            }
            SessionAction::Value { datum } => {
                let value = self.nodes.node(client).store.value(datum).cloned();
                return Some((SessionResult::Value(value.as_ref().map(|value| value.meta.clone())), value));
            }
            SessionAction::Commands(commands) => {
                let deliver = |command| environment.kernel.deliver(client, Input::Command(command));
                commands.into_iter().for_each(deliver);
                SessionResult::Done
            }
            SessionAction::Wait { limit_ns } => {
                let events = self.take_events(client);
                if !events.is_empty() || limit_ns == Some(0) {
                    return Some((SessionResult::Events(events), None));
                }
                self.body_sessions.last_wait += 1;
                let wait = self.body_sessions.last_wait;
                self.body_sessions.all.get_mut(&client).expect("found above").wait = Some(wait);
                if let Some(limit_ns) = limit_ns {
                    let at = environment.kernel.now() + limit_ns;
                    environment.kernel.push(at, ScheduledEvent::SessionDue { client, wait });
                }
                environment.kernel.deliver(server, Input::Paused { task: task.id, waits: true });
                return None;
            }
            SessionAction::Close => {
                self.body_sessions.all.remove(&client);
                self.end(environment, client, "the session was closed");
                SessionResult::Done
            }
        };
        Some((result, None))
    }

    /// Continues a function whose client has events, or whose wait has reached its limit.
    pub(crate) fn on_session_due(
        &mut self,
        environment: &mut Environment,
        client: NodeId,
        wait: u64,
    ) -> Option<super::MachineInput> {
        let session = self.body_sessions.all.get_mut(&client).filter(|session| session.wait == Some(wait))?;
        session.wait = None;
        let (server, task) = (session.server, session.task);
        environment.kernel.deliver(server, Input::Paused { task, waits: false });
        let result = match self.nodes.is_dead(client) {
            true => SessionResult::Ended { why: self.why_ended(client) },
            false => SessionResult::Events(self.take_events(client)),
        };
        let answer = SessionAnswer { now: environment.kernel.now(), result };
        let next = self.calls.answer_session(environment, &mut self.nodes, (server, task), (answer, &[]));
        let input = self.advance(environment, server, next)?;
        Some(super::MachineInput::new(server, input))
    }

    /// Ends the sessions of a server whose functions have ended: all of them, or those that a task has used last.
    pub(super) fn end_body_sessions(
        &mut self,
        environment: &mut Environment,
        server: NodeId,
        task: Option<TaskId>,
        why: &str,
    ) {
        for client in self.body_sessions.clients(server, task) {
            self.body_sessions.all.remove(&client);
            self.end(environment, client, why);
        }
    }

    fn why_ended(&self, client: NodeId) -> String {
        self.nodes.node(client).end.clone().unwrap_or_default()
    }

    fn take_events(&mut self, client: NodeId) -> Vec<Event> {
        std::iter::from_fn(|| self.nodes.take_event(client)).collect()
    }
}

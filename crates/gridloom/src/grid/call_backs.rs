//! Callbacks of GridRPC: functions that run for the program call the program.
//!
//! On a real grid a thread of the session runs the callbacks, one at a time, as long as there are calls that may call back. In a
//! simulation the waiting thread runs them, since virtual time stands still while none waits.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use gridloom_base::{Meta, NodeId, TaskId};
use gridloom_core::call::{Callback, CallbackAnswer};
use gridloom_core::node::Command;
use gridloom_net::payload::Payload;
use gridloom_net::threads;

use super::State;
use crate::{Error, Grid, Value};

/// Runs a callback. It receives the call's task, the number of the callback, and the values of the callback's
/// `IN` and `INOUT` parameters. It returns the values of its `OUT` and `INOUT` parameters, or an error text.
pub type Callee = Arc<dyn Fn(TaskId, u32, Vec<Value>) -> Result<Vec<Value>, String> + Send + Sync>;

/// A request from a gang's callback, which waits for [`Grid::answer`].
#[derive(Clone, PartialEq, Debug)]
pub struct Asking {
    pub server: NodeId,
    pub task: TaskId,
    /// The number of the callback.
    pub callback: u32,
    /// The text of the request.
    pub text: Vec<u8>,
}

/// Interval at which the thread checks whether it is still needed: a session that ends does not notify it.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// State of callbacks.
#[derive(Default)]
pub(super) struct CallBacks {
    /// Callees of calls in progress.
    callees: BTreeMap<TaskId, Callee>,
    /// Gangs in progress: their requests are sent there, and answered later.
    gangs: BTreeMap<TaskId, Sender<Asking>>,
    /// Received callbacks that are not run yet.
    waiting: VecDeque<(NodeId, Callback)>,
    /// True while the thread runs callbacks, until it finds no callee.
    is_served: bool,
    thread: Option<JoinHandle<()>>,
}

impl CallBacks {
    pub(super) fn on_call(&mut self, server: NodeId, call: Callback) {
        if let Some(gang) = self.gangs.get(&call.task) {
            let text = call.values.into_iter().next().map_or(Vec::new(), |(_, bytes)| bytes);
            // The program may have dropped the receiver.
            let _ = gang.send(Asking { server, task: call.task, callback: call.callback, text });
        } else if self.callees.contains_key(&call.task) {
            self.waiting.push_back((server, call));
        }
    }

    pub(super) fn on_end(&mut self, task: TaskId) {
        self.gangs.remove(&task);
        if self.callees.remove(&task).is_some() {
            self.waiting.retain(|(_, call)| call.task != task);
        }
    }

    /// Returns the next callback to run, with its callee.
    pub(super) fn take(&mut self) -> Option<(NodeId, Callback, Callee)> {
        let (server, call) = self.waiting.pop_front()?;
        let callee = self.callees.get(&call.task).expect("what comes for others is not kept").clone();
        Some((server, call, callee))
    }

    pub(super) fn check(&self) {
        assert!(self.waiting.iter().all(|(_, call)| self.callees.contains_key(&call.task)), "what waits has a callee");
    }
}

impl Grid {
    /// Registers the callee of a call that is about to be sent.
    pub(crate) fn expect_call_backs(&self, task: TaskId, callee: Callee) -> Result<(), Error> {
        let mut state = self.state();
        state.call_backs.callees.insert(task, callee);
        if self.is_simulated() || state.call_backs.is_served {
            return Ok(());
        }
        let grid = self.clone();
        let thread = thread::Builder::new().name("callbacks".into());
        let thread = threads::spawn(thread, move || grid.serve_call_backs());
        let thread = thread.map_err(|error| {
            state.call_backs.callees.remove(&task);
            Error::Usage(format!("no thread for callbacks can be started: {error}"))
        })?;
        state.call_backs.is_served = true;
        state.call_backs.thread = Some(thread);
        Ok(())
    }

    /// Registers where requests of a gang that is about to be sent are delivered.
    pub(crate) fn expect_asking(&self, task: TaskId, to: Sender<Asking>) {
        self.state().call_backs.gangs.insert(task, to);
    }

    /// Answers a gang's request, so that it continues.
    pub fn answer(&self, asking: &Asking, text: Vec<u8>) {
        let answer = Ok(vec![(Meta::Text { size_bytes: text.len() as u64 }, text)]);
        self.command(Command::CalledBack { server: asking.server, task: asking.task, answer });
    }

    /// Stops running callbacks, and waits for the end of one in progress, unless that callback itself calls this.
    pub fn end_call_backs(&self) {
        let thread = {
            let mut state = self.state();
            state.call_backs.callees.clear();
            state.call_backs.waiting.clear();
            state.call_backs.thread.take()
        };
        if let Some(thread) = thread.filter(|thread| thread.thread().id() != thread::current().id()) {
            // The panic of a callback was already printed.
            let _ = thread.join();
        }
    }

    fn serve_call_backs(&self) {
        loop {
            let next = self.wait(Some(LOOK_AGAIN), |state: &mut State| match state.call_backs.take() {
                Some(call) => Some(Some(call)),
                None if state.call_backs.callees.is_empty() => {
                    state.call_backs.is_served = false;
                    Some(None)
                }
                None => None,
            });
            match next {
                Ok(Some((server, call, callee))) => self.run_call_back(server, call, &callee),
                Err(Error::TimedOut { .. }) => {}
                Ok(None) => return,
                Err(_) => {
                    self.state().call_backs.is_served = false;
                    return;
                }
            }
        }
    }

    /// Runs a callback and sends its result.
    pub(super) fn run_call_back(&self, server: NodeId, call: Callback, callee: &Callee) {
        let Callback { task, callback, values } = call;
        let value = |(meta, bytes): (_, Vec<u8>)| Value::new(meta, Payload::Inline(bytes.into()));
        let values: Result<Vec<Value>, Error> = values.into_iter().map(value).collect();
        let answer: CallbackAnswer = values.map_err(|error| error.to_string()).and_then(|values| {
            let answer = callee(task, callback, values)?;
            let bytes = |value: Value| (value.meta().clone(), value.inline_bytes().unwrap_or_default());
            Ok(answer.into_iter().map(bytes).collect())
        });
        self.command(Command::CalledBack { server, task, answer });
    }
}

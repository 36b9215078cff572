//! Callbacks that the program has to run, and requests of gangs that it has to answer.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;

use gridloom_base::{NodeId, TaskId};
use gridloom_core::call::Callback;

use crate::Value;

/// Runs a callback. It receives the call's task, the number of the callback, and the values of the callback's
/// `IN` and `INOUT` parameters. It returns the values of its `OUT` and `INOUT` parameters, or an error text.
pub type CallbackHandler = Arc<dyn Fn(TaskId, u32, Vec<Value>) -> Result<Vec<Value>, String> + Send + Sync>;

/// A request from a gang's callback, which waits for [`Grid::answer`](crate::Grid::answer).
#[derive(Clone, PartialEq, Debug)]
pub struct GangCallback {
    pub server: NodeId,
    pub task: TaskId,
    /// The number of the callback.
    pub callback: u32,
    /// The text of the request.
    pub text: Vec<u8>,
}

/// State of callbacks.
#[derive(Default)]
pub(crate) struct CallBacks {
    /// Callees of calls in progress.
    callees: BTreeMap<TaskId, CallbackHandler>,
    /// Gangs in progress: their requests are sent there, and answered later.
    gangs: BTreeMap<TaskId, Sender<GangCallback>>,
    /// Received callbacks that are not run yet.
    waiting: VecDeque<(NodeId, Callback)>,
    /// True while the thread runs callbacks, until it finds no callee.
    is_served: bool,
    thread: Option<JoinHandle<()>>,
}

/// The next step of the thread that runs callbacks.
pub(crate) enum Next {
    Run(NodeId, Callback, CallbackHandler),
    /// No call is left that may call back: the thread ends.
    End,
}

impl CallBacks {
    /// Registers the callee of a call that is about to be sent.
    pub(crate) fn expect(&mut self, task: TaskId, callee: CallbackHandler) {
        self.callees.insert(task, callee);
    }

    /// Registers where requests of a gang that is about to be sent are delivered.
    pub(crate) fn expect_gang_requests(&mut self, task: TaskId, to: Sender<GangCallback>) {
        self.gangs.insert(task, to);
    }

    pub(crate) fn is_served(&self) -> bool {
        self.is_served
    }

    /// Notes the thread that runs callbacks.
    pub(crate) fn begin_serving(&mut self, thread: JoinHandle<()>) {
        self.is_served = true;
        self.thread = Some(thread);
    }

    /// Notes that no thread runs callbacks any more.
    pub(crate) fn end_serving(&mut self) {
        self.is_served = false;
    }

    /// Returns the next step of the thread that runs callbacks; `None` while it has to wait.
    pub(crate) fn next(&mut self) -> Option<Next> {
        match self.take() {
            Some((server, call, callee)) => Some(Next::Run(server, call, callee)),
            None if self.callees.is_empty() => {
                self.is_served = false;
                Some(Next::End)
            }
            None => None,
        }
    }

    /// Discards all callees and callbacks. Returns the thread that runs them.
    pub(crate) fn clear(&mut self) -> Option<JoinHandle<()>> {
        self.callees.clear();
        self.waiting.clear();
        self.thread.take()
    }

    /// Removes the callee of a call that was not sent.
    pub(crate) fn forget(&mut self, task: TaskId) {
        self.callees.remove(&task);
    }

    pub(crate) fn on_call(&mut self, server: NodeId, call: Callback) {
        if let Some(gang) = self.gangs.get(&call.task) {
            let text = call.values.into_iter().next().map_or(Vec::new(), |(_, bytes)| bytes);
            // The program may have dropped the receiver.
            let _ = gang.send(GangCallback { server, task: call.task, callback: call.callback, text });
        } else if self.callees.contains_key(&call.task) {
            self.waiting.push_back((server, call));
        }
    }

    pub(crate) fn on_end(&mut self, task: TaskId) {
        self.gangs.remove(&task);
        if self.callees.remove(&task).is_some() {
            self.waiting.retain(|(_, call)| call.task != task);
        }
    }

    /// Returns the next callback to run, with its callee.
    pub(crate) fn take(&mut self) -> Option<(NodeId, Callback, CallbackHandler)> {
        let (server, call) = self.waiting.pop_front()?;
        let callee = self.callees.get(&call.task).expect("what comes for others is not kept").clone();
        Some((server, call, callee))
    }

    pub(crate) fn check(&self) {
        assert!(self.waiting.iter().all(|(_, call)| self.callees.contains_key(&call.task)), "what waits has a callee");
    }
}

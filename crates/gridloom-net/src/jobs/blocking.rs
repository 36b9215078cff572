//! Runs one task at a time and waits for it: real function bodies under simulated time. Other tasks may meanwhile wait
//! for their programs.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use gridloom_base::{DatumId, Meta, NodeId, ObjectId, TaskError, TaskId};
use gridloom_core::call::CallbackAnswer;
use gridloom_core::graph::Task;
use gridloom_core::node::{SessionAnswer, WorkerEvent};
use rustix::event::{Timespec, epoll};

use super::pool::CANCEL_GRACE;
use super::{JobEvent, Jobs, JobsConfig, WorkerToken};
use crate::store::Store;

/// The outcome of a task.
type Outcome = Result<Vec<(DatumId, Meta)>, TaskError>;

/// The point at which a task stops or ends; at its end its results are in the store.
pub type Halt = WorkerEvent<Vec<(DatumId, Meta)>>;

/// Slots driven by their caller.
pub struct BlockingJobs {
    jobs: Jobs,
    epoll: OwnedFd,
    /// Outcomes of tasks that nobody waited for: their workers died while their programs were being called back.
    ended: BTreeMap<TaskId, Outcome>,
    stopped: BTreeSet<TaskId>,
}

impl BlockingJobs {
    /// Creates the slots. A worker starts with the first task of its slot.
    ///
    /// # Errors
    /// If no descriptor is available.
    pub fn new(config: JobsConfig) -> io::Result<BlockingJobs> {
        let (ended, stopped) = Default::default();
        Ok(BlockingJobs { jobs: Jobs::new(config), epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?, ended, stopped })
    }

    /// Runs a task of that server whose inputs are in the store. Waits until it halts; at its end its results are in the
    /// store.
    pub fn run(&mut self, server: NodeId, task: Arc<Task>, store: &Store) -> Halt {
        // A run of the same task that was stopped must not be taken for this one.
        while self.take_events(None).is_none() && self.stopped.contains(&task.id) {
            if self.await_workers(store).is_err() {
                break;
            }
        }
        self.jobs.start_at(Some(server), task.clone(), store);
        self.wait(&task, store)
    }

    /// Passes the program's reply to a task that has called it back, and waits again.
    pub fn answer(&mut self, task: &Task, answer: CallbackAnswer, store: &Store) -> Halt {
        self.jobs.reply(task.id, answer);
        self.wait(task, store)
    }

    /// Answers the request of a task to its session, and waits again.
    pub fn answer_session(&mut self, task: &Task, answer: SessionAnswer, bytes: &[u8], store: &Store) -> Halt {
        self.jobs.answer_session(task.id, answer, bytes);
        self.wait(task, store)
    }

    /// Ends an object.
    pub fn end_object(&mut self, object: ObjectId) {
        self.jobs.end_object(object);
    }

    /// Kills a task that has called its program back.
    pub fn stop(&mut self, task: TaskId) {
        if self.ended.remove(&task).is_none() {
            self.stopped.insert(task);
            self.jobs.stop(task);
        }
    }

    fn wait(&mut self, task: &Task, store: &Store) -> Halt {
        let cannot = |error: io::Error| {
            let (function, server, why) = (task.name().to_string(), "here".into(), error.to_string());
            Halt::Ended(Err(TaskError::CannotRun { function, server, why }))
        };
        loop {
            if let Some(outcome) = self.ended.remove(&task.id) {
                return Halt::Ended(outcome);
            }
            match self.take_events(Some(task.id)) {
                Some(halt) => return halt,
                None => {
                    if let Err(error) = self.await_workers(store) {
                        return cannot(error);
                    }
                }
            }
        }
    }

    /// Handles the events of workers. Returns the one of this task, if there is one.
    fn take_events(&mut self, task: Option<TaskId>) -> Option<Halt> {
        let mut found = None;
        self.jobs.flush();
        for event in self.jobs.take_events() {
            match event {
                JobEvent::Ended { task: ended, .. } if self.stopped.remove(&ended) => {}
                JobEvent::Ended { task: ended, outcome, .. } if Some(ended) == task => {
                    found = Some(Halt::Ended(outcome))
                }
                JobEvent::Ended { task: other, outcome, .. } => _ = self.ended.insert(other, outcome),
                JobEvent::CallsBack(call) if Some(call.task) == task => found = Some(Halt::Callback(call)),
                JobEvent::Session { task: of, request, bytes } if Some(of) == task => {
                    found = Some(Halt::Session(request, bytes));
                }
                // Events of a stopped task, and events that a simulation ignores: it knows itself when a task waits.
                JobEvent::CallsBack(_) | JobEvent::Session { .. } | JobEvent::Calling { .. } | JobEvent::Output(_) => {}
            }
        }
        found
    }

    fn await_workers(&mut self, store: &Store) -> io::Result<()> {
        self.jobs.register_with(self.epoll.as_fd(), |token| token.0)?;
        let mut events = Vec::with_capacity(4);
        // A stopped task that checks for its cancellation is killed by a later flush.
        let limit = Timespec::try_from(CANCEL_GRACE).expect("it is short");
        let limit = (!self.stopped.is_empty()).then_some(&limit);
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), limit) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        for event in &events {
            self.jobs.on_ready(WorkerToken(event.data.u64()), store);
        }
        Ok(())
    }

    /// Ends the workers.
    pub fn shutdown(self) {
        self.jobs.shutdown();
    }
}

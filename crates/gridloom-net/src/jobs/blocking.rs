//! Runs one task at a time and waits for it: real function bodies under simulated time. Other tasks may meanwhile wait
//! for their programs.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use gridloom_base::{DatumId, Meta, ObjectId, TaskError, TaskId};
use gridloom_core::call::{self, CallbackAnswer};
use gridloom_core::graph::Task;
use rustix::event::epoll;

use super::{JobEvent, Jobs, JobsConfig, WorkerToken};
use crate::store::Store;

/// The outcome of a task.
type Outcome = Result<Vec<(DatumId, Meta)>, TaskError>;

/// The point at which a task stops or ends; at its end its results are in the store.
pub type Halt = call::WorkerEvent<Vec<(DatumId, Meta)>>;

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

    /// Runs a task whose inputs are in the store. Waits until it ends or calls its program back; at its end its
    /// results are in the store.
    pub fn run(&mut self, task: Arc<Task>, store: &Store) -> Halt {
        self.jobs.start(task.clone(), store);
        self.wait(&task, store)
    }

    /// Passes the program's reply to a task that has called it back, and waits again.
    pub fn answer(&mut self, task: &Task, answer: CallbackAnswer, store: &Store) -> Halt {
        self.jobs.reply(task.id, answer);
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
        let cannot = |why: String| {
            Halt::Ended(Err(TaskError::CannotRun { function: task.name().to_string(), server: "here".into(), why }))
        };
        let mut events = Vec::with_capacity(4);
        loop {
            if let Some(outcome) = self.ended.remove(&task.id) {
                return Halt::Ended(outcome);
            }
            self.jobs.flush();
            if let Err(error) = self.jobs.register_with(self.epoll.as_fd(), |token| token.0) {
                return cannot(error.to_string());
            }
            for event in self.jobs.take_events() {
                match event {
                    JobEvent::Ended { task: ended, outcome, .. } if ended == task.id => return Halt::Ended(outcome),
                    JobEvent::CallsBack(call) if call.task == task.id => return Halt::Callback(call),
                    JobEvent::Ended { task: other, outcome, .. } => {
                        if !self.stopped.remove(&other) {
                            self.ended.insert(other, outcome);
                        }
                    }
                    // Events of a stopped task. Functions make no calls in a simulation, and their output is ignored.
                    JobEvent::CallsBack(_) | JobEvent::Calling { .. } | JobEvent::Output(_) => {}
                }
            }
            events.clear();
            match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return cannot(error.to_string()),
            }
            for event in &events {
                self.jobs.on_ready(WorkerToken(event.data.u64()), store);
            }
        }
    }

    /// Ends the workers.
    pub fn shutdown(self) {
        self.jobs.shutdown();
    }
}

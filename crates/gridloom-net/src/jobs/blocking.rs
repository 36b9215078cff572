//! One task at a time, waited for: real bodies under simulated time. Others may wait for their programs meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use gridloom_base::{DatumId, Meta, ObjectId, TaskError, TaskId};
use gridloom_core::call::{self, CallBackAnswer};
use gridloom_core::graph::Task;
use rustix::event::epoll;

use super::{JobEvent, Jobs, JobsConfig, WorkerToken};
use crate::store::Store;

/// A task's end.
type Outcome = Result<Vec<(DatumId, Meta)>, TaskError>;

/// How far a task has come; its results are in the store at its end.
pub type Halt = call::Halt<Vec<(DatumId, Meta)>>;

/// Slots that are driven by their caller.
pub struct BlockingJobs {
    jobs: Jobs,
    epoll: OwnedFd,
    /// Ends of tasks that were not waited for: their workers died while their programs were asked.
    ended: BTreeMap<TaskId, Outcome>,
    stopped: BTreeSet<TaskId>,
}

impl BlockingJobs {
    /// The slots; a worker starts with the first task of its slot.
    ///
    /// # Errors
    /// If there is no descriptor left.
    pub fn new(config: JobsConfig) -> io::Result<BlockingJobs> {
        let (ended, stopped) = Default::default();
        Ok(BlockingJobs { jobs: Jobs::new(config), epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?, ended, stopped })
    }

    /// Runs a task that has its inputs in the store. Waits for its end or for it to call its program back; its results
    /// are in the store at its end.
    pub fn run(&mut self, task: Arc<Task>, store: &Store) -> Halt {
        self.jobs.start(task.clone(), store);
        self.wait(&task, store)
    }

    /// Tells a task that has called its program back what that says, and waits again.
    pub fn answer(&mut self, task: &Task, answer: CallBackAnswer, store: &Store) -> Halt {
        self.jobs.answer(task.id, answer);
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
                    JobEvent::CallsBack(call) if call.task == task.id => return Halt::CallsBack(call),
                    JobEvent::Ended { task: other, outcome, .. } => {
                        if !self.stopped.remove(&other) {
                            self.ended.insert(other, outcome);
                        }
                    }
                    // Of a task that was stopped; nothing is called from inside a simulation's functions, and they say nothing.
                    JobEvent::CallsBack(_) | JobEvent::Calling { .. } | JobEvent::Said(_) => {}
                }
            }
            events.clear();
            match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return cannot(error.to_string()),
            }
            for event in &events {
                self.jobs.ready(WorkerToken(event.data.u64()), store);
            }
        }
    }

    /// Ends the worker.
    pub fn shutdown(self) {
        self.jobs.shutdown();
    }
}

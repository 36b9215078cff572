//! One task at a time, waited for: real bodies under simulated time.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use gridloom_core::base::{DatumId, Meta, TaskError};
use gridloom_core::graph::Task;
use rustix::event::epoll;

use super::{JobEvent, Jobs, JobsConfig, WorkerToken};
use crate::store::Store;

/// A slot that is driven by its caller.
pub struct Alone {
    jobs: Jobs,
    epoll: OwnedFd,
}

impl Alone {
    /// A slot; its worker starts with the first task.
    ///
    /// # Errors
    /// If there is no descriptor left.
    pub fn new(config: JobsConfig) -> io::Result<Alone> {
        Ok(Alone { jobs: Jobs::new(config), epoll: epoll::create(epoll::CreateFlags::CLOEXEC)? })
    }

    /// Runs a task whose inputs are in the store and waits for its end; its results are in the store then.
    ///
    /// # Errors
    /// What the task failed with.
    pub fn run(&mut self, task: Arc<Task>, store: &Store) -> Result<Vec<(DatumId, Meta)>, TaskError> {
        let cannot = |why: String| TaskError::CannotRun { function: task.function.clone(), server: "here".into(), why };
        self.jobs.start(task.clone(), store);
        let mut events = Vec::with_capacity(4);
        loop {
            self.jobs.flush();
            self.jobs.register_with(self.epoll.as_fd(), |token| token.0).map_err(|e| cannot(e.to_string()))?;
            for JobEvent::Ended { task: ended, outcome, .. } in self.jobs.take_events() {
                if ended == task.id {
                    return outcome;
                }
            }
            events.clear();
            match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(cannot(error.to_string())),
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

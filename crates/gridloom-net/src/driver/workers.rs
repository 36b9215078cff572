//! The slots of a node as its event loop sees them, if it has any, and the speed of one slot.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use gridloom_base::{ObjectId, Origin, TaskError, TaskId};
use gridloom_core::call::CallbackAnswer;
use gridloom_core::graph::Task;
use gridloom_core::node::Input;
use mio::Registry;

use crate::jobs::{JobEvent, Jobs, JobsConfig, WorkerToken, measure_speed};
use crate::store::Store;
use crate::threads::STACK_BYTES;
use crate::transport::notice::{Inbox, Notice};

pub(super) struct Workers {
    server: String,
    jobs: Option<Jobs>,
    /// Factor by which calls take longer on this node than they need.
    slowdown: f64,
    /// Configured speed of one slot, if any.
    speed_flops: Option<f64>,
    registry: Registry,
    first_token: usize,
}

impl Workers {
    /// Creates the slots of this server, if it has any, with their workers. The tokens of workers begin at `first_token`.
    pub(super) fn new(
        server: String,
        config: Option<JobsConfig>,
        speed_flops: Option<f64>,
        registry: Registry,
        first_token: usize,
    ) -> Workers {
        let slowdown = config.as_ref().map_or(1.0, |config| config.slowdown);
        let mut jobs = config.map(Jobs::new);
        if let Some(jobs) = &mut jobs {
            jobs.prestart();
        }
        Workers { server, jobs, slowdown, speed_flops, registry, first_token }
    }

    /// Starts a task. Returns an input for the state machine if the task cannot be started.
    pub(super) fn start(&mut self, task: Arc<Task>, store: &Store) -> Option<Input> {
        if let Some(jobs) = &mut self.jobs {
            jobs.start(task, store);
            return None;
        }
        let (server, function) = (self.server.clone(), task.name().to_string());
        let error = TaskError::CannotRun { server, function, why: "it has no slots".into() };
        Some(Input::TaskEnded { task: task.id, outcome: Err(error), run_ns: 0 })
    }

    /// Records the rights of the user of a client.
    pub(super) fn client_up(&mut self, origin: &Origin) {
        if let Some(jobs) = &mut self.jobs {
            jobs.set_rights(origin);
        }
    }

    pub(super) fn stop(&mut self, task: TaskId) {
        if let Some(jobs) = &mut self.jobs {
            jobs.stop(task);
        }
    }

    pub(super) fn withdraw(&mut self, task: TaskId) {
        if let Some(jobs) = &mut self.jobs {
            let _ = jobs.withdraw(task);
        }
    }

    pub(super) fn answer(&mut self, task: TaskId, answer: CallbackAnswer) {
        if let Some(jobs) = &mut self.jobs {
            jobs.reply(task, answer);
        }
    }

    pub(super) fn end_object(&mut self, object: ObjectId) {
        if let Some(jobs) = &mut self.jobs {
            jobs.end_object(object);
        }
    }

    /// Handles a worker's ready descriptor.
    pub(super) fn on_ready(&mut self, token: usize, store: &Store) {
        if let Some(jobs) = &mut self.jobs {
            jobs.on_ready(WorkerToken((token - self.first_token) as u64), store);
        }
    }

    /// Returns the time by which the workers must be processed even if no event occurs.
    pub(super) fn wake_at(&self) -> Option<Instant> {
        self.jobs.as_ref()?.wake_at()
    }

    /// Writes what the slots have batched, updates the watched descriptors, and hands over what has ended.
    ///
    /// # Errors
    /// If a worker cannot be watched.
    pub(super) fn turn(&mut self, inputs: &mut impl Extend<Input>) -> std::io::Result<()> {
        let Some(jobs) = &mut self.jobs else { return Ok(()) };
        jobs.flush();
        // The workers' descriptors are level-triggered, unlike mio's own. mio treats the data of any event of its
        // epoll as a token, whatever registered it.
        let first = self.first_token as u64;
        let watched = jobs.register_with(self.registry.as_fd(), |token| first + token.0);
        inputs.extend(jobs.take_events().into_iter().map(|event| match event {
            JobEvent::Ended { task, outcome, run_ns } => Input::TaskEnded { task, outcome, run_ns },
            JobEvent::CallsBack(call) => Input::CallsBack(call),
            JobEvent::Output(said) => Input::CallOutput(said),
            JobEvent::Calling { task, waits } => Input::Paused { task, waits },
            JobEvent::Session { .. } => unreachable!("only simulated servers have such tasks"),
        }));
        watched
    }

    /// Measures the speed of a slot on a thread that posts the result. If the speed is configured, posts it at once.
    ///
    /// # Errors
    /// If the system cannot start a thread.
    pub(super) fn measure_speed(&self, inbox: Arc<Inbox>) -> std::io::Result<()> {
        if let Some(flops) = self.speed_flops {
            inbox.post(Notice::Speed { flops });
            return Ok(());
        }
        let slowdown = self.slowdown;
        let threads = inbox.threads.clone();
        let measure = move || inbox.post(Notice::Speed { flops: measure_speed() / slowdown });
        threads.spawn(thread::Builder::new().name("speed".into()).stack_size(STACK_BYTES), measure)
    }

    /// Ends and reaps all workers.
    pub(super) fn shut_down(&mut self) {
        if let Some(jobs) = self.jobs.take() {
            jobs.shutdown();
        }
    }
}

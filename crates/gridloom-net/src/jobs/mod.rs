//! The slots of a server: worker processes, and the tasks that run in them.
//!
//! ```text
//!            start                       send                 answer
//!  machine --------> backlog (in order) ------> worker's queue ------> events
//!              ^                                     |
//!              '------- the worker died: what had not started
//! ```
//! A slot runs one task at a time. It has at most one worker for native and one for Python functions, each started
//! with the first task for it, and only one of them has tasks. A worker holds up to `queue_depth` tasks, so that short
//! ones need not wait for a message between them. An object's methods run in a worker of its own, and take a slot while
//! they do. A worker whose task has called its program back, and waits for the answer, leaves its slot to another: the
//! program may call functions for it.
//!
//! **Invariants.** A started task ends in exactly one event. Only the task that ran when its worker died fails; those
//! behind it go to another worker. Results are in the store before their event is seen.
//!
//! **Not done here.** No thread and no waiting: the caller polls the descriptors of [`Jobs::take_registrations`], calls
//! [`Jobs::ready`] for each event (level-triggered), and [`Jobs::flush`] before it waits again. Call everything from
//! the thread that lives as long as the server: the kernel ends the workers with the thread that started them.

pub mod alone;
mod answer;
mod asking;
mod config;
mod link;
mod objects;
mod scratch;
pub mod speed;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use gridloom_core::base::limits::{EAGER_BYTES_MAX, TASK_ATTEMPTS_MAX};
use gridloom_core::base::{DatumId, Meta, ObjectId, TaskError, TaskId};
use gridloom_core::call::CallBackAnswer;
use gridloom_core::graph::{Argument, Task};
use gridloom_core::idl::near::{did_you_mean, near_names};
use gridloom_core::idl::{Body, Definition};
use rustix::process::Pid;

use self::link::{Kind, Link, Pending, PendingOutput, Sent};
use crate::payload::Payload;
use crate::segment::raise_descriptor_limit;
use crate::store::Store;
use crate::worker::channel::Received;
use crate::worker::protocol::{Progress, TASKS_PER_WORKER_MAX, ToWorker};
use crate::worker::{relabelled, wanted_order};

pub use alone::Alone;
pub use config::{JobEvent, JobsConfig, Registration, WorkerToken};
pub use speed::{measure_speed, processor_time};

/// Time that an idle worker has to end by itself: when the server ends, or its object.
const END_GRACE: Duration = Duration::from_millis(500);

/// The slots.
pub struct Jobs {
    config: JobsConfig,
    depth: usize,
    functions: BTreeMap<String, u32>,
    links: BTreeMap<WorkerToken, Link>,
    /// Workers of each slot: native, Python.
    slots: Vec<[Option<WorkerToken>; 2]>,
    /// Workers without a slot that may take one: their tasks called their programs back, and have ended.
    spares: Vec<WorkerToken>,
    objects: BTreeMap<ObjectId, WorkerToken>,
    /// Workers of objects that were told to end.
    ending: BTreeSet<WorkerToken>,
    backlog: VecDeque<Pending>,
    next_token: u64,
    registrations: Vec<Registration>,
    events: Vec<JobEvent>,
}

impl Jobs {
    /// Slots without workers.
    pub fn new(config: JobsConfig) -> Jobs {
        raise_descriptor_limit();
        let names = config.definitions.iter().enumerate();
        let functions = names.map(|(index, definition)| (definition.signature.name.clone(), index as u32)).collect();
        Jobs {
            depth: (config.queue_depth as usize).clamp(1, TASKS_PER_WORKER_MAX / 2),
            slots: vec![[None; 2]; config.slots.max(1) as usize],
            functions,
            spares: Vec::new(),
            objects: BTreeMap::new(),
            ending: BTreeSet::new(),
            links: BTreeMap::new(),
            backlog: VecDeque::new(),
            next_token: 0,
            registrations: Vec::new(),
            events: Vec::new(),
            config,
        }
    }

    /// Starts every slot's worker of each kind that is offered now, so that the first tasks need not wait for them. A
    /// worker that cannot be started is tried again with the first task, which then fails with the reason.
    pub fn prestart(&mut self) {
        for kind in [Kind::Native, Kind::Python] {
            if self.config.definitions.iter().any(|definition| kind_of(definition) == kind) {
                for slot in 0..self.slots.len() {
                    let _ = self.worker_of(slot, kind);
                }
            }
        }
        self.flush();
    }

    /// Process numbers of the workers that live, for those who look after them.
    pub fn worker_pids(&self) -> Vec<Pid> {
        self.links.values().filter_map(Link::pid).collect()
    }

    /// Runs a task, as soon as a slot is free; its inputs are in the store. Ends in exactly one event.
    pub fn start(&mut self, task: Arc<Task>, store: &Store) {
        match self.fetch(&task, store) {
            Ok(pending) => {
                self.backlog.push_back(pending);
                self.dispatch();
            }
            Err(error) => self.end(task.id, Err(error), 0),
        }
    }

    /// Kills a started task: its event says that it was cancelled. No effect on one that has ended.
    pub fn stop(&mut self, task: TaskId) {
        if let Some(at) = self.backlog.iter().position(|pending| pending.task.id == task) {
            self.backlog.remove(at);
            self.end(task, Err(TaskError::Cancelled), 0);
            return;
        }
        for link in self.links.values_mut() {
            let Some(at) = link.tasks.iter().position(|sent| sent.pending.task.id == task) else { continue };
            let serial = link.tasks[at].serial;
            if !link.dying && link.board().withdraw(serial) {
                link.tasks.remove(at);
                self.end(task, Err(TaskError::Cancelled), 0);
                self.dispatch();
                return;
            }
            link.tasks[at].stopped = true;
            // One that has ended is let be: its answer is on the way.
            if link.board().progress(serial) == Progress::Running {
                link.kill();
            }
            return;
        }
    }

    /// Tells a task that has called its program back what the program says. No effect on one that has ended.
    pub fn answer(&mut self, task: TaskId, answer: CallBackAnswer) {
        for link in self.links.values_mut() {
            let Some(sent) = link.tasks.iter().find(|sent| sent.pending.task.id == task) else { continue };
            let answer = ToWorker::CalledBack { serial: sent.serial, answer };
            link.asks = false;
            if let Err(error) = link.outbox.push(&answer, std::iter::empty()) {
                // The task would wait for ever.
                link.fault = Some(format!("it cannot be told what its program says: {error}"));
                link.kill();
            }
            return;
        }
    }

    /// Changes of what is to be watched, in order.
    pub fn take_registrations(&mut self) -> Vec<Registration> {
        std::mem::take(&mut self.registrations)
    }

    /// Makes the changes of [`Jobs::take_registrations`] in an epoll; an event of a worker carries what `data` makes of
    /// its token.
    ///
    /// # Errors
    /// If the epoll refuses a descriptor.
    pub fn register_with(&mut self, epoll: BorrowedFd<'_>, data: impl Fn(WorkerToken) -> u64) -> std::io::Result<()> {
        use rustix::event::epoll::{EventData, EventFlags, add, delete, modify};
        for change in std::mem::take(&mut self.registrations) {
            let (Registration::Add(fd, token) | Registration::Writable(fd, token, _) | Registration::Remove(fd, token)) =
                change;
            // The descriptors of a worker that is gone are closed, and have left the epoll by that.
            let Some(link) = self.links.get(&token) else { continue };
            let source = if link.fds()[0] == fd { link.socket.as_fd() } else { link.process.as_fd() };
            let data = EventData::new_u64(data(token));
            match change {
                Registration::Add(..) => add(epoll, source, data, EventFlags::IN)?,
                Registration::Writable(_, _, true) => modify(epoll, source, data, EventFlags::IN | EventFlags::OUT)?,
                Registration::Writable(_, _, false) => modify(epoll, source, data, EventFlags::IN)?,
                Registration::Remove(..) => delete(epoll, source)?,
            }
        }
        Ok(())
    }

    /// A worker's descriptor is readable or writable. An unknown token is one whose worker is gone: no effect.
    pub fn ready(&mut self, token: WorkerToken, store: &Store) {
        let Some(link) = self.links.get_mut(&token) else { return };
        match answer::read(link, store, &self.config.server_name, &mut self.events) {
            Ok(Received::Some) => {}
            Ok(Received::Nothing) => self.look_after(token, false),
            Ok(Received::Closed) => self.look_after(token, true),
            Err(error) => {
                link.fault = Some(format!("its worker failed: {error}"));
                self.look_after(token, true);
            }
        }
        self.write(token);
        self.look_after_slot(token);
        self.dispatch();
        self.balance();
    }

    /// Writes what `start` and `ready` have batched.
    pub fn flush(&mut self) {
        self.end_the_slow();
        let tokens: Vec<WorkerToken> = self.links.keys().copied().collect();
        tokens.into_iter().for_each(|token| self.write(token));
    }

    /// What happened since the last call.
    pub fn take_events(&mut self) -> Vec<JobEvent> {
        std::mem::take(&mut self.events)
    }

    /// Ends and reaps all workers. Idle ones end by themselves, others are killed.
    pub fn shutdown(mut self) {
        self.links.values().for_each(Link::hang_up);
        let until = Instant::now() + END_GRACE;
        let left_ms = || until.saturating_duration_since(Instant::now()).as_millis() as i64;
        std::mem::take(&mut self.links).into_values().for_each(|link| link.end(left_ms()));
    }

    /// Gathers what a task needs.
    fn fetch(&self, task: &Arc<Task>, store: &Store) -> Result<Pending, TaskError> {
        let (name, server) = (&task.function, &self.config.server_name);
        let function = *self.functions.get(name).ok_or_else(|| {
            let near = near_names(name, self.functions.keys().map(String::as_str));
            TaskError::NoSuchFunction { function: name.clone(), near: did_you_mean(&near) }
        })?;
        let no_memory = |error: std::io::Error| TaskError::CannotRun {
            function: name.clone(),
            server: server.clone(),
            why: format!("no shared memory: {error}"),
        };
        let definition = &self.config.definitions[function as usize];
        let params = definition.signature.params.iter();
        let mut inputs = Vec::with_capacity(task.args.len());
        for arg in &task.args {
            inputs.push(match arg {
                Argument::Inline { .. } => None,
                Argument::Datum(datum) => {
                    let lost = || TaskError::DatumLost { datum: *datum, why: format!("it is not in '{server}'") };
                    let (meta, payload) = store.get(datum).ok_or_else(lost)?;
                    if payload.size_bytes() <= EAGER_BYTES_MAX {
                        Some((meta, payload))
                    } else {
                        let found = store.segment_of(datum).map_err(no_memory)?.ok_or_else(lost)?;
                        let (meta, segment, offset, size_bytes) = found;
                        Some((meta, Payload::Segment { segment, offset, size_bytes }))
                    }
                }
            });
        }
        let mut outputs = Vec::with_capacity(task.outputs.len());
        for (output, param) in task.outputs.iter().zip(params.filter(|param| param.is_output())) {
            let meta = relabelled(&output.meta, wanted_order(param));
            let is_text = matches!(meta, Meta::Text { .. } | Meta::Bytes { .. });
            let memory = match meta.checked_size_bytes() {
                Some(size_bytes) if is_text || size_bytes <= EAGER_BYTES_MAX => None,
                size_bytes => Some(store.pool().allocate(size_bytes.unwrap_or(u64::MAX)).map_err(no_memory)?),
            };
            outputs.push(PendingOutput { datum: output.datum, meta, memory });
        }
        if outputs.len() != task.outputs.len() {
            let why = format!("it gives {} results, the call asks for {}", outputs.len(), task.outputs.len());
            return Err(TaskError::Refused { function: name.clone(), server: server.clone(), why });
        }
        Ok(Pending { task: task.clone(), function, kind: kind_of(definition), inputs, outputs, attempts: 0 })
    }

    /// Gives tasks of the backlog to slots, in order, while there is room. A task for one kind of worker does not pass
    /// one for the other kind that has to wait.
    fn dispatch(&mut self) {
        while let Some(front) = self.backlog.front() {
            let (kind, object) = (front.kind, front.task.object);
            let place = match object {
                None => self.slot_for(kind).map(Place::Slot),
                Some(object) => self.can_run_method(object).then_some(Place::Object(object)),
            };
            let Some(place) = place else { return };
            let pending = self.backlog.pop_front().expect("its front was just looked at");
            let worker = match place {
                Place::Slot(slot) => self.worker_of(slot, kind),
                Place::Object(object) => match self.worker_of_object(object, &pending) {
                    Ok(worker) => worker,
                    Err(lost) => {
                        self.end(pending.task.id, Err(lost), 0);
                        continue;
                    }
                },
            };
            match worker {
                Ok(token) => self.send(token, pending),
                Err(error) => {
                    let error = self.cannot_run(&pending, error.to_string());
                    self.end(pending.task.id, Err(error), 0);
                }
            }
        }
    }

    /// Gives half of the longest queue to a slot that has nothing to do: what was queued as short may wait behind
    /// something long.
    fn balance(&mut self) {
        if !self.backlog.is_empty() || self.slots.len() < 2 {
            return;
        }
        let queues = self.links.iter().filter(|(_, link)| !link.dying && link.tasks.len() > 1);
        let Some((&token, longest)) = queues.max_by_key(|(_, link)| link.tasks.len()) else { return };
        let Some(kind) = longest.tasks.back().map(|sent| sent.pending.kind) else { return };
        let idle = |slot: &[Option<WorkerToken>; 2]| slot.iter().flatten().all(|token| self.links[token].is_idle());
        if !self.slots.iter().any(|slot| slot[kind as usize].is_some() && idle(slot)) {
            return;
        }
        let Some(longest) = self.links.get_mut(&token) else { return };
        for _ in 0..longest.tasks.len() / 2 {
            let Some(last) = longest.tasks.pop_back() else { break };
            if last.stopped || !longest.board().withdraw(last.serial) {
                longest.tasks.push_back(last);
                break;
            }
            self.backlog.push_front(last.pending);
        }
        self.dispatch();
    }

    fn send(&mut self, token: WorkerToken, pending: Pending) {
        let definition = &self.config.definitions[pending.function as usize];
        let link = self.links.get_mut(&token).expect("a slot's worker is in the table until it is buried");
        if let Err((pending, error)) = link.send(pending, definition) {
            // The stream may hold half of it; the worker is useless, the task at fault.
            link.kill();
            let error = self.cannot_run(&pending, error.to_string());
            self.end(pending.task.id, Err(error), 0);
        }
    }

    /// The slot with the fewest tasks that can take one more of that kind; one that has its worker already wins a tie.
    fn slot_for(&self, kind: Kind) -> Option<usize> {
        let is_full = self.is_full();
        let load = |slot: &[Option<WorkerToken>; 2]| {
            let [own, other] = [kind, kind.other()].map(|kind| slot[kind as usize].map(|token| &self.links[&token]));
            if other.is_some_and(|link| !link.tasks.is_empty()) {
                return None;
            }
            match own {
                // Methods of objects take its place.
                None if is_full => None,
                Some(link) if is_full && link.tasks.is_empty() => None,
                None => Some((0, true)),
                Some(link) => link.has_room(self.depth).then_some((link.tasks.len(), false)),
            }
        };
        let loads = self.slots.iter().enumerate().filter_map(|(index, slot)| Some((load(slot)?, index)));
        loads.min().map(|(_, index)| index)
    }

    fn worker_of(&mut self, slot: usize, kind: Kind) -> std::io::Result<WorkerToken> {
        if let Some(token) = self.slots[slot][kind as usize] {
            return Ok(token);
        }
        let spare = self.spares.iter().position(|token| {
            let link = &self.links[token];
            link.kind == kind && link.is_idle() && link.ending.is_none()
        });
        let token = match spare {
            Some(at) => self.spares.swap_remove(at),
            None => self.new_worker(kind)?,
        };
        self.slots[slot][kind as usize] = Some(token);
        Ok(token)
    }

    fn new_worker(&mut self, kind: Kind) -> std::io::Result<WorkerToken> {
        let link = Link::start(kind, &self.config)?;
        self.next_token += 1;
        let token = WorkerToken(self.next_token);
        self.registrations.extend(link.fds().map(|fd| Registration::Add(fd, token)));
        self.links.insert(token, link);
        Ok(token)
    }

    fn write(&mut self, token: WorkerToken) {
        let Some(link) = self.links.get_mut(&token) else { return };
        if link.dying {
            return;
        }
        let sent = link.forget_destroyed().and_then(|()| match link.outbox.is_empty() {
            true => Ok(true),
            false => link.outbox.send(link.socket.as_fd(), false),
        });
        // A socket that broke is that of a worker that died: its process tells how.
        let blocked = matches!(sent, Ok(false));
        if blocked != link.watched_for_writing {
            link.watched_for_writing = blocked;
            self.registrations.push(Registration::Writable(link.fds()[0], token, blocked));
        }
    }

    /// Looks whether a worker that said nothing has ended; sees to it that one whose socket is `closed` does.
    fn look_after(&mut self, token: WorkerToken, closed: bool) {
        let Some(link) = self.links.get_mut(&token) else { return };
        match link.try_wait() {
            Ok(Some(status)) => self.bury(token, &link::describe(status)),
            Ok(None) if closed && !link.closed => {
                // It is ending, or has closed its socket for reasons of its own. Its exit will be noticed.
                link.closed = true;
                if link.ending.is_none() {
                    link.kill();
                }
                self.registrations.push(Registration::Remove(link.fds()[0], token));
            }
            Ok(None) => {}
            Err(error) => self.bury(token, &format!("its end was lost: {error}")),
        }
    }

    /// A worker has ended: its running task fails, the others wait for another worker.
    fn bury(&mut self, token: WorkerToken, how: &str) {
        let Some(mut link) = self.links.remove(&token) else { return };
        self.slots.iter_mut().flatten().filter(|slot| **slot == Some(token)).for_each(|slot| *slot = None);
        self.objects.retain(|_, worker| *worker != token);
        self.spares.retain(|worker| *worker != token);
        let [socket, process] = link.fds();
        if !link.closed {
            self.registrations.push(Registration::Remove(socket, token));
        }
        self.registrations.push(Registration::Remove(process, token));
        let tasks = std::mem::take(&mut link.tasks);
        let mut again = Vec::new();
        let mut blamed = false;
        for Sent { serial, mut pending, stopped } in tasks {
            let progress = link.board().progress(serial);
            if stopped {
                self.end(pending.task.id, Err(TaskError::Cancelled), 0);
            } else if !link.ready {
                let why = link.fault.clone().unwrap_or_else(|| format!("its worker ended before it was ready ({how})"));
                let error = self.cannot_run(&pending, why);
                self.end(pending.task.id, Err(error), 0);
            } else if progress == Progress::Running || (link.fault.is_some() && !blamed) {
                blamed = true;
                let how = link.fault.clone().unwrap_or_else(|| how.to_string());
                let error = self.crashed(&pending, how);
                self.end(pending.task.id, Err(error), 0);
            } else if pending.attempts + 1 >= TASK_ATTEMPTS_MAX {
                let error =
                    self.crashed(&pending, format!("{TASK_ATTEMPTS_MAX} workers ended before it, the last by {how}"));
                self.end(pending.task.id, Err(error), 0);
            } else {
                pending.attempts += 1;
                again.push(pending);
            }
        }
        again.into_iter().rev().for_each(|pending| self.backlog.push_front(pending));
    }

    fn end(&mut self, task: TaskId, outcome: Result<Vec<(DatumId, Meta)>, TaskError>, run_ns: u64) {
        self.events.push(JobEvent::Ended { task, outcome, run_ns });
    }

    fn cannot_run(&self, pending: &Pending, why: String) -> TaskError {
        let function = pending.task.function.clone();
        TaskError::CannotRun { function, server: self.config.server_name.clone(), why }
    }

    fn crashed(&self, pending: &Pending, how: String) -> TaskError {
        let function = pending.task.function.clone();
        TaskError::Crashed { function, server: self.config.server_name.clone(), how }
    }
}

/// Where a task runs.
enum Place {
    Slot(usize),
    Object(ObjectId),
}

impl Drop for Jobs {
    fn drop(&mut self) {
        std::mem::take(&mut self.links).into_values().for_each(|link| link.end(0));
    }
}

fn kind_of(definition: &Definition) -> Kind {
    match definition.body {
        Body::Native { .. } => Kind::Native,
        Body::Python { .. } => Kind::Python,
    }
}

//! The slots of a server: worker processes, and the tasks that run in them.
//!
//! ```text
//!            start                       send                 answer
//!  machine --------> backlog (in order) ------> worker's queue ------> events
//!              ^                                     |
//!              '------- the worker died: tasks that had not started
//! ```
//! A slot runs one task at a time. It has at most one worker for native and one for Python functions. Each worker is
//! started with the first task for it, and only one of the two has tasks. A worker holds up to `queue_depth` tasks, so
//! that short tasks need not wait for a message between them. An object's methods run in the object's own worker and
//! occupy a slot while they run. Workers of different users stay apart ([`gridloom_core::exec`]): if no worker of a
//! slot may run a task, an idle one is ended and replaced. A worker gives up its slot while its task has called the program back and waits for
//! the reply: the program may call functions to produce it.
//!
//! **Invariants.** A started task ends with exactly one event. Only the task that ran when its worker died may fail;
//! the tasks queued behind it go to another worker. Results are in the store before their event is visible.
//!
//! **Not done here.** This module never waits; threads measure workers (`watch`) and look up accounts (`accounts`). The caller polls the
//! descriptors of [`Jobs::register_with`], calls [`Jobs::on_ready`] for each event (level-triggered), and calls [`Jobs::flush`]
//! before it waits again. Call everything from a thread that lives as long as the server: the kernel ends the workers
//! with the thread that started them. The `pool` manages the processes; the contract of a worker is documented at
//! [`gridloom_core::node::WorkerEvent`].

mod accounts;
mod after_death;
pub mod blocking;
mod call_clock;
mod config;
mod confinement;
mod environment;
mod fetch;
mod kind;
mod link;
mod memory;
mod objects;
mod orphans;
mod pool;
mod processes;
mod reply;
mod scratch;
pub mod speed;
mod system_users;
mod waiting;
mod watch;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Instant;

use gridloom_base::{DatumId, Meta, NodeId, ObjectId, Origin, Pattern, TaskError, TaskId};
use gridloom_core::call::CallbackAnswer;
use gridloom_core::exec::{UserCall, WorkerPlace, WorkerStep, choose};
use gridloom_core::graph::Task;
use gridloom_core::node::SessionAnswer;
use gridloom_idl::Definition;
use rustix::process::Pid;

use self::accounts::{Account, Accounts};
use self::after_death::TaskDisposition;
use self::kind::Kind;
use self::link::{Pending, WaitReason};
use self::pool::Pool;
use self::watch::{Excess, LimitWatch};
use crate::descriptors::raise_descriptor_limit;
use crate::store::Store;
use crate::worker::channel::Received;
use crate::worker::initial::initialiser_of;
use crate::worker::protocol::{Progress, TASKS_PER_WORKER_MAX, ToWorker};

pub use blocking::BlockingJobs;
pub use config::{
    FunctionKeyFolders, HeldKeys, Interpreter, JobEvent, JobsConfig, Registration, WorkerLimits, WorkerToken,
    WorkerUser, shared_threads, store_bytes_default,
};
pub use confinement::{CONFINED_VARIABLE, Confinement, ConfinementError, PermittedFiles};
pub use speed::measure_speed;
pub use system_users::{RunAs, SystemUserError, SystemUsers, UserMapping};

fn watch_of(limits: WorkerLimits) -> Option<LimitWatch> {
    if limits.memory_bytes.is_none() && limits.processes.is_none() {
        return None;
    }
    let no_thread = |error: &io::Error| {
        gridloom_base::stderr_line!(
            "gridloom: memory and processes of workers are not limited, because no thread can be started: {error}"
        );
    };
    LimitWatch::new(limits).inspect_err(no_thread).ok()
}

/// The token of the descriptor that reports accounts. Tokens of workers begin at 1.
const ACCOUNTS: WorkerToken = WorkerToken(0);

/// Maximum number of users that are remembered.
const USERS_MAX: usize = 4096;

/// Workers of a slot, at most one of each kind.
type Slot = [Option<WorkerToken>; Kind::ALL.len()];

/// The slots; they assign tasks to the workers of the pool.
pub struct Jobs {
    config: Arc<JobsConfig>,
    depth: usize,
    functions: BTreeMap<String, u32>,
    /// For each function, the function that initialises its module.
    initialisers: Vec<Option<u32>>,
    pool: Pool,
    slots: Vec<Slot>,
    /// Workers without a slot that may take one: their tasks called their programs back and have ended.
    spare_workers: Vec<WorkerToken>,
    objects: BTreeMap<ObjectId, WorkerToken>,
    backlog: VecDeque<Pending>,
    /// The functions that users may call, from their programs' certificates.
    rights: BTreeMap<Box<str>, Vec<Pattern>>,
    accounts: Accounts,
    /// Tasks whose users' accounts are being looked up, in order.
    without_account: BTreeMap<Box<str>, Vec<Pending>>,
    events: Vec<JobEvent>,
    watch: Option<LimitWatch>,
    /// Time of the next reading of the clocks of calls.
    next_reading: Instant,
}

impl Jobs {
    /// Creates the slots, without workers.
    pub fn new(config: JobsConfig) -> Jobs {
        raise_descriptor_limit();
        let names = config.definitions.iter().enumerate();
        let functions: BTreeMap<String, u32> =
            names.map(|(index, definition)| (definition.signature.name.clone(), index as u32)).collect();
        let initialiser =
            |definition: &Definition| functions.get(&initialiser_of(&definition.signature.name)?).copied();
        let initialisers = config.definitions.iter().map(initialiser).collect();
        let config = Arc::new(config);
        Jobs {
            depth: (config.queue_depth as usize).clamp(1, TASKS_PER_WORKER_MAX / 2),
            slots: vec![Slot::default(); config.slots.max(1) as usize],
            functions,
            initialisers,
            pool: Pool::new(config.clone()),
            spare_workers: Vec::new(),
            objects: BTreeMap::new(),
            backlog: VecDeque::new(),
            rights: BTreeMap::new(),
            accounts: Accounts::new(config.system_users.clone()),
            without_account: BTreeMap::new(),
            events: Vec::new(),
            watch: watch_of(config.limits),
            next_reading: Instant::now(),
            config,
        }
    }

    /// Starts each slot's worker of every offered kind now, so that the first tasks need not wait for them. A worker
    /// that cannot be started is retried with the first task, which fails with the reason if that fails too.
    pub fn prestart(&mut self) {
        if self.config.function_keys.is_some() || self.config.system_users.are_per_user() {
            return;
        }
        for kind in Kind::ALL {
            if self.config.definitions.iter().any(|definition| Kind::of(definition) == kind) {
                for slot in 0..self.slots.len() {
                    let _ = self.start_worker(slot, kind, None);
                }
            }
        }
        self.flush();
    }

    /// Returns the pids of the live workers.
    pub fn worker_pids(&self) -> Vec<Pid> {
        self.pool.pids()
    }

    /// Runs a task as soon as a slot is free. Its inputs must be in the store. Ends with exactly one event.
    pub fn start(&mut self, task: Arc<Task>, store: &Store) {
        self.start_at(None, task, store);
    }

    /// Like [`Jobs::start`], for a task that this server runs in a simulation.
    fn start_at(&mut self, simulated_at: Option<NodeId>, task: Arc<Task>, store: &Store) {
        let user = task.options.user.as_deref().unwrap_or_default();
        let account = self.accounts.of(user, Instant::now());
        if let Account::Known(Err(why)) = account {
            return self.refuse(&task, why);
        }
        match (fetch::fetch(&self.config, &self.functions, &task, store), account) {
            (Ok(pending), Account::Known(account)) => {
                self.backlog.push_back(Pending { simulated_at, run_as: account.unwrap_or_default(), ..pending });
                self.dispatch();
            }
            (Ok(pending), Account::Awaited) => self.without_account.entry(user.into()).or_default().push(pending),
            (Err(error), _) => self.end(task.id, Err(error), 0),
        }
    }

    /// Runs tasks whose users' accounts have been found.
    fn on_accounts(&mut self) {
        let now = Instant::now();
        for user in self.accounts.take_found(now) {
            for pending in self.without_account.remove(&user).unwrap_or_default() {
                match self.accounts.of(&user, now) {
                    Account::Known(Ok(run_as)) => self.backlog.push_back(Pending { run_as, ..pending }),
                    Account::Known(Err(why)) => self.refuse(&pending.task, why),
                    Account::Awaited => self.without_account.entry(user.clone()).or_default().push(pending),
                }
            }
        }
        self.dispatch();
    }

    fn refuse(&mut self, task: &Task, why: String) {
        let (function, server) = (task.name().to_string(), self.config.server_name.clone());
        self.end(task.id, Err(TaskError::NotPermitted { function, server, why }), 0);
    }

    /// Records the rights of a user whose program has connected. The rights of the latest program apply.
    pub fn set_rights(&mut self, origin: &Origin) {
        if self.config.function_keys.is_none() || origin.acts_for_all() {
            return;
        }
        let code = origin.is_administrator.then(Pattern::of_code);
        let functions = origin.functions.iter().cloned().chain(code).collect();
        if self.rights.len() < USERS_MAX || self.rights.contains_key(origin.user.as_str()) {
            self.rights.insert(origin.user.as_str().into(), functions);
        }
    }

    /// Returns the user whom a new worker serves, if it serves one.
    fn worker_user(&self, pending: &Pending) -> Option<WorkerUser> {
        self.config.function_keys.as_ref()?;
        let name = pending.task.options.user.clone().unwrap_or_default();
        let functions = match self.rights.get(&name) {
            Some(functions) => functions.clone(),
            // The table is full, so the rights of this user may have been stated and not kept.
            None if self.rights.len() >= USERS_MAX => Vec::new(),
            // A function elsewhere calls for a user who has not been here: permit all functions except `python/*`.
            None => vec![Pattern::all()],
        };
        Some(WorkerUser { name, functions, group: pending.run_as.as_ref().map(|run_as| run_as.group) })
    }

    /// Kills a started task; a task that checks for cancellation first gets a short time to end by itself. Its event
    /// reports it as cancelled. Does nothing if the task has ended.
    pub fn stop(&mut self, task: TaskId) {
        if self.withdraw(task) {
            return;
        }
        let found = self.pool.iter_mut().find_map(|(token, link)| {
            let sent = link.tasks.iter_mut().find(|sent| sent.pending.task.id == task)?;
            sent.stopped = true;
            Some((token, sent.serial))
        });
        let Some((token, serial)) = found else { return };
        let link = self.pool.get_mut(token).expect("found above");
        if link.board().cancel(serial) {
            self.pool.kill_after_grace(token, serial);
        } else if link.board().progress(serial) == Progress::Running {
            link.kill();
        }
        // A task that has ended is left alone: its reply is already on the socket.
    }

    /// Ends a started task as cancelled if its function has not begun. Returns true if it did.
    pub fn withdraw(&mut self, task: TaskId) -> bool {
        if let Some(at) = self.backlog.iter().position(|pending| pending.task.id == task) {
            self.backlog.remove(at);
            self.end(task, Err(TaskError::Cancelled), 0);
            return true;
        }
        if self.withdraw_without_account(task) {
            self.end(task, Err(TaskError::Cancelled), 0);
            return true;
        }
        for link in self.pool.links_mut() {
            let Some(at) = link.tasks.iter().position(|sent| sent.pending.task.id == task) else { continue };
            if link.end.dying || !link.board().withdraw(link.tasks[at].serial) {
                return false;
            }
            link.tasks.remove(at);
            self.end(task, Err(TaskError::Cancelled), 0);
            self.dispatch();
            return true;
        }
        false
    }

    /// Removes a task whose user's account is being looked up. Returns false if it is none.
    fn withdraw_without_account(&mut self, task: TaskId) -> bool {
        self.without_account.values_mut().any(|waiting| {
            let at = waiting.iter().position(|pending| pending.task.id == task);
            at.map(|at| waiting.remove(at)).is_some()
        })
    }

    /// Passes the program's reply to a task that has called it back. Does nothing if the task has ended.
    pub fn reply(&mut self, task: TaskId, answer: CallbackAnswer) {
        for link in self.pool.links_mut() {
            let Some(sent) = link.tasks.iter().find(|sent| sent.pending.task.id == task) else { continue };
            let answer = ToWorker::CalledBack { serial: sent.serial, answer };
            link.pause = WaitReason::None;
            if let Err(error) = link.outbox.push(&answer, std::iter::empty()) {
                // The task would otherwise wait forever.
                link.end.fault = Some(format!("its program's reply cannot be sent: {error}"));
                link.kill();
            }
            return;
        }
    }

    /// Answers the request that a task has made to its session. Does nothing if the task has ended.
    pub fn answer_session(&mut self, task: TaskId, answer: SessionAnswer, bytes: &[u8]) {
        for link in self.pool.links_mut() {
            let Some(sent) = link.tasks.iter().find(|sent| sent.pending.task.id == task) else { continue };
            let serial = sent.serial;
            link.asks_session = None;
            let pushed = link.outbox.push_bytes(bytes).and_then(|(bytes, inline)| {
                link.outbox.push(&ToWorker::Session { serial, answer, bytes }, inline.into_iter())
            });
            if let Err(error) = pushed {
                // The task would otherwise wait forever.
                link.end.fault = Some(format!("the answer to its session cannot be sent: {error}"));
                link.kill();
            }
            return;
        }
    }

    /// Applies the changes to the watched descriptors to an epoll. Events carry the value that `data` returns for the token.
    ///
    /// # Errors
    /// If the epoll rejects a descriptor.
    pub fn register_with(&mut self, epoll: BorrowedFd<'_>, data: impl Fn(WorkerToken) -> u64) -> std::io::Result<()> {
        self.accounts.register_with(epoll, data(ACCOUNTS))?;
        self.pool.register_with(epoll, data)
    }

    /// Handles a readable or writable descriptor. Does nothing if its worker no longer exists.
    pub fn on_ready(&mut self, token: WorkerToken, store: &Store) {
        if token == ACCOUNTS {
            return self.on_accounts();
        }
        let Some(link) = self.pool.get_mut(token) else { return };
        match reply::read(link, store, &self.config.server_name, &mut self.events) {
            Ok(Received::Some) => {}
            Ok(Received::Nothing) => self.handle_worker_end(token, false),
            Ok(Received::Closed) => self.handle_worker_end(token, true),
            Err(error) => {
                link.end.fault = Some(format!("its worker failed: {error}"));
                self.handle_worker_end(token, true);
            }
        }
        self.pool.write(token);
        self.update_slot(token);
        self.dispatch();
        self.balance();
    }

    /// Writes the messages batched by `start` and `ready`. Kills workers that exceed a limit.
    pub fn flush(&mut self) {
        self.pool.flush();
        if let Some(watch) = &mut self.watch {
            let exceeding = watch.check(|| self.pool.measured());
            self.pool.kill_exceeding(exceeding);
        }
        if let Some(limit) = self.config.limits.call_time {
            let now = Instant::now();
            if now >= self.next_reading {
                self.next_reading = now + call_clock::INTERVAL;
                self.pool.kill_slow_calls(now, limit);
            }
        }
    }

    /// Returns the time by which [`Jobs::flush`] must be called even if nothing is batched.
    pub fn wake_at(&self) -> Option<Instant> {
        let reads_clocks = self.config.limits.call_time.is_some() && self.pool.has_tasks();
        let reading = reads_clocks.then_some(self.next_reading);
        self.watch.as_ref().map(LimitWatch::next).into_iter().chain(reading).min()
    }

    /// Returns the events since the last call.
    pub fn take_events(&mut self) -> Vec<JobEvent> {
        std::mem::take(&mut self.events)
    }

    /// Ends and reaps all workers. Idle workers end by themselves, the others are killed.
    pub fn shutdown(mut self) {
        self.pool.shut_down();
    }

    /// Assigns tasks of the backlog to slots, in order, while there is room. A task for one kind of worker does not
    /// overtake a task for the other kind that has to wait.
    fn dispatch(&mut self) {
        while let Some(front) = self.backlog.front() {
            let (kind, object) = (front.kind, front.task.object());
            let place = match object {
                None => self.slot_for(kind, self.config.separation.call_of(&front.task)),
                Some(object) => self.can_run_method(object).then_some(TaskPlace::Object(object)),
            };
            let Some(place) = place else { return };
            let pending = self.backlog.pop_front().expect("its front was just looked at");
            let worker = match place {
                TaskPlace::Slot(slot, step) => self.worker_of(slot, kind, step, &pending),
                TaskPlace::Object(object) => match self.worker_of_object(object, &pending) {
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

    /// Moves half of the longest queue to an idle slot: tasks queued as short may be waiting behind a long one.
    fn balance(&mut self) {
        if !self.backlog.is_empty() || self.slots.len() < 2 {
            return;
        }
        let queues = self.pool.iter().filter(|(_, link)| !link.end.dying && link.tasks.len() > 1);
        let Some((token, longest)) = queues.max_by_key(|(_, link)| link.tasks.len()) else { return };
        let Some(kind) = longest.tasks.back().map(|sent| sent.pending.kind) else { return };
        let idle = |slot: &Slot| slot.iter().flatten().all(|token| self.pool.link(*token).is_idle());
        if !self.slots.iter().any(|slot| slot[kind as usize].is_some() && idle(slot)) {
            return;
        }
        let Some(longest) = self.pool.get_mut(token) else { return };
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
        let definition = |function: u32| &self.config.definitions[function as usize];
        let first = self.initialisers[pending.function as usize].map(|function| (function, definition(function)));
        let definition = definition(pending.function);
        let link = self.pool.get_mut(token).expect("a slot's worker is in the pool until it is buried");
        link.used.record(self.config.separation.call_of(&pending.task));
        if let Err((pending, error)) = link.send(pending, definition, first) {
            // The stream may contain half of the message: the worker is unusable, and the task is the cause.
            link.kill();
            let error = self.cannot_run(&pending, error.to_string());
            self.end(pending.task.id, Err(error), 0);
        }
    }

    /// Returns the slot that takes a call of this kind, as [`choose`] decides.
    fn slot_for(&self, kind: Kind, call: UserCall<'_>) -> Option<TaskPlace> {
        let is_full = self.is_full();
        let place = |slot: &Slot| {
            let link = |kind: Kind| slot[kind as usize].map(|token| self.pool.link(token));
            let mut others = Kind::ALL.into_iter().filter(|other| *other != kind).filter_map(link);
            if others.any(|other| !other.tasks.is_empty()) {
                return None;
            }
            let own = link(kind);
            match own {
                // Methods of objects occupy its place.
                None if is_full => None,
                Some(link) if is_full && link.tasks.is_empty() => None,
                None => Some(WorkerPlace { tasks: 0, worker: None }),
                Some(link) => link
                    .has_room(self.depth)
                    .then_some(WorkerPlace { tasks: link.tasks.len(), worker: Some(&link.used) }),
            }
        };
        let places = self.slots.iter().enumerate().filter_map(|(index, slot)| Some((index, place(slot)?)));
        choose(places, call).map(|(index, step)| TaskPlace::Slot(index, step))
    }

    fn worker_of(
        &mut self,
        slot: usize,
        kind: Kind,
        step: WorkerStep,
        pending: &Pending,
    ) -> std::io::Result<WorkerToken> {
        let worker = self.slots[slot][kind as usize];
        match (step, worker) {
            (WorkerStep::Reuse, Some(token)) => Ok(token),
            (WorkerStep::Reuse | WorkerStep::Start, _) => self.start_worker(slot, kind, Some(pending)),
            (WorkerStep::Replace, _) => {
                worker.into_iter().for_each(|token| self.pool.ask_to_end(token));
                self.start_worker(slot, kind, Some(pending))
            }
        }
    }

    /// Gives a slot a worker for a task, a spare one if possible, or one for any task.
    fn start_worker(&mut self, slot: usize, kind: Kind, pending: Option<&Pending>) -> std::io::Result<WorkerToken> {
        self.slots[slot][kind as usize] = None;
        let call = pending.map(|pending| self.config.separation.call_of(&pending.task));
        let spare = self.spare_workers.iter().position(|token| {
            let link = self.pool.link(*token);
            let fits = call.is_none_or(|call| link.used.admits(call));
            link.kind == kind && link.is_idle() && link.end.since.is_none() && fits
        });
        let token = match spare {
            Some(at) => self.spare_workers.swap_remove(at),
            None => {
                let user = pending.and_then(|pending| self.worker_user(pending));
                self.pool.spawn(kind, self.run_as_of(pending), user.as_ref())?
            }
        };
        self.slots[slot][kind as usize] = Some(token);
        Ok(token)
    }

    /// Returns the system user of a worker for a task, or for any task.
    fn run_as_of(&self, pending: Option<&Pending>) -> Option<Arc<RunAs>> {
        match (pending, &self.config.system_users) {
            (Some(pending), _) => pending.run_as.clone(),
            (None, SystemUsers::One(run_as)) => Some(run_as.clone()),
            (None, SystemUsers::Own | SystemUsers::PerUser(_)) => None,
        }
    }

    /// Checks whether a worker has ended. [`after_death::disposition`] decides what happens to its tasks.
    fn handle_worker_end(&mut self, token: WorkerToken, closed: bool) {
        let Some((mut link, death)) = self.pool.reap(token, closed) else { return };
        self.slots.iter_mut().flatten().filter(|slot| **slot == Some(token)).for_each(|slot| *slot = None);
        self.objects.retain(|_, worker| *worker != token);
        self.spare_workers.retain(|worker| *worker != token);
        let tasks = std::mem::take(&mut link.tasks);
        let progress: Vec<Progress> = tasks.iter().map(|sent| link.board().progress(sent.serial)).collect();
        // The time of a call is that of the first task, whatever the worker has reported.
        let culprit = match link.end.excess {
            Some(Excess::CallTime) => (!progress.is_empty()).then_some(0),
            _ => after_death::culprit(&progress, link.end.fault.is_some(), &death),
        };
        let mut again = Vec::new();
        for (at, mut sent) in tasks.into_iter().enumerate() {
            let is_culprit = culprit == Some(at);
            if sent.stopped {
                self.end(sent.pending.task.id, Err(TaskError::Cancelled), 0);
            } else if !link.ready {
                let how = || format!("its worker ended before it was ready ({})", death.how);
                let error = self.cannot_run(&sent.pending, link.end.fault.clone().unwrap_or_else(how));
                self.end(sent.pending.task.id, Err(error), 0);
            } else {
                match after_death::disposition(&mut sent, progress[at], is_culprit, culprit.is_some(), &death) {
                    TaskDisposition::Retry => again.push(sent.pending),
                    TaskDisposition::Crashed(how) => {
                        let how = link.end.fault.clone().filter(|_| is_culprit).unwrap_or(how);
                        let error = match link.end.excess.filter(|_| is_culprit) {
                            Some(excess) => self.limit_exceeded(&sent.pending, excess),
                            // The worker maps arguments on disk, and the file may have been truncated meanwhile.
                            None => match sent.pending.check_inputs(&self.config.server_name) {
                                Err(damaged) => damaged,
                                Ok(()) => self.crashed(&sent.pending, how),
                            },
                        };
                        self.end(sent.pending.task.id, Err(error), 0);
                    }
                }
            }
        }
        again.into_iter().rev().for_each(|pending| self.backlog.push_front(pending));
    }

    fn end(&mut self, task: TaskId, outcome: Result<Vec<(DatumId, Meta)>, TaskError>, run_ns: u64) {
        self.events.push(JobEvent::Ended { task, outcome, run_ns });
    }

    fn cannot_run(&self, pending: &Pending, why: String) -> TaskError {
        let function = pending.task.name().to_string();
        TaskError::CannotRun { function, server: self.config.server_name.clone(), why }
    }

    fn limit_exceeded(&self, pending: &Pending, excess: Excess) -> TaskError {
        let (function, server) = (pending.task.name().to_string(), self.config.server_name.clone());
        let limits = &self.config.limits;
        match excess {
            Excess::Memory { used_bytes } => {
                let limit_bytes = limits.memory_bytes.unwrap_or(0);
                TaskError::MemoryExceeded { function, server, used_bytes, limit_bytes }
            }
            Excess::Processes { count } => {
                TaskError::ProcessesExceeded { function, server, count, limit: limits.processes.unwrap_or(0) }
            }
            Excess::CallTime => {
                let limit_seconds = limits.call_time.unwrap_or_default().as_secs_f64();
                TaskError::TimeExceeded { function, server, limit_seconds }
            }
        }
    }

    fn crashed(&self, pending: &Pending, how: String) -> TaskError {
        let function = pending.task.name().to_string();
        TaskError::Crashed { function, server: self.config.server_name.clone(), how }
    }
}

/// Where a task runs.
enum TaskPlace {
    Slot(usize, WorkerStep),
    Object(ObjectId),
}

//! Running tasks on the servers of a simulation: their files, their time, their bodies.
//!
//! All file accesses of a task happen at once, before it computes, and so does its paging ([`crate::memory`]). When its time has
//! passed, its body runs, if bodies are set, and its results are put into the server's store. A body takes no virtual time
//! except for waits in its session.
//!
//! A body that gets shared data begins before the computation, whose time passes when the body ends, calls its program back
//! or publishes results, whichever is first.
//!
//! **Invariant:** a started task ends once: with an input for its machine, or with its server.

use std::collections::BTreeMap;
use std::sync::Arc;

use gridloom_base::limits::WORK_FLOPS_DEFAULT;
use gridloom_base::{DatumId, Meta, NodeId, ObjectId, TaskError, TaskId, Time};
use gridloom_core::call::CallbackAnswer;
use gridloom_core::graph::{Argument, Task};
use gridloom_core::node::{Input, SessionAnswer, SessionRequest};
use gridloom_flow::{ActionId, Transfer};
use gridloom_perf::is_work;

use super::disk::{Files, KeptFiles};
use super::nodes::ServerView;
use super::workers::Workers;
use crate::kernel::{Kernel, Purpose};
use crate::memory::Hold;
use crate::observe::Observation;
use crate::scheduled_event::StartedTask;
use crate::store::StoredValue;
use crate::trace::Interval;

/// The point at which a body halts or ends, with the values of its results.
pub type Halt = gridloom_core::node::WorkerEvent<Vec<(Meta, Vec<u8>)>>;

/// Runs the bodies of tasks, for programs that need real results from simulated machines.
pub trait Bodies: Send {
    /// Runs a body. `inputs` are the values of all arguments in order; the results are those of all outputs in order.
    ///
    /// # Errors
    /// The error with which the function fails.
    fn run(&mut self, task: &Task, inputs: &[(Meta, Arc<[u8]>)]) -> Result<Vec<(Meta, Vec<u8>)>, TaskError>;

    /// Like [`Bodies::run`], for a body on that server that may call its program back or open a session.
    fn begin(&mut self, _server: NodeId, task: &Task, inputs: &[(Meta, Arc<[u8]>)]) -> Halt {
        Halt::Ended(self.run(task, inputs))
    }

    /// Continues a body that has called its program back.
    fn go_on(&mut self, task: &Task, _answer: CallbackAnswer) -> Halt {
        unreachable!("{} has not called its program back", task.id)
    }

    /// Reports whether the body of a task begins before the task computes, because it gets shared data.
    fn begins_first(&self, _task: &Task) -> bool {
        false
    }

    /// Continues a body that has made a request to its session. The answer may have the bytes of a value.
    fn answer_session(&mut self, task: &Task, _answer: SessionAnswer, _bytes: &[u8]) -> Halt {
        unreachable!("{} has no session", task.id)
    }

    /// Cancels a body that has halted.
    fn give_up(&mut self, _task: TaskId) {}

    /// Discards the state of an object that has ended.
    fn end_object(&mut self, _object: ObjectId) {}

    /// Reports whether the simulation moves the shared data that functions declare. Otherwise the bodies do so.
    fn uses_simulated_sharing(&self) -> bool {
        false
    }

    /// Returns the bytes that the call puts under a name, with that description, if the simulation moves shared data.
    fn value_to_put(&self, _call: TaskId, _meta: &Meta) -> Option<Arc<[u8]>> {
        None
    }
}

/// The tasks of all servers.
#[derive(Default)]
pub(crate) struct Tasks {
    running: BTreeMap<(NodeId, TaskId), Running>,
    workers: Workers,
    bodies: Option<Box<dyn Bodies>>,
    /// Functions with file parameters, by name.
    files: BTreeMap<String, Files>,
    kept_files: KeptFiles,
    /// Fraction of the host's speed that a function uses, by function name; others use all of it.
    efficiencies: BTreeMap<String, f64>,
}

#[derive(Debug)]
struct Running {
    started: Time,
    stage: TaskStage,
    /// True if its server knows that it waits for shared data, and so may start another task in its slot.
    is_known_to_wait: bool,
    has_computed: bool,
    /// The point at which its body has halted, while the task computes.
    halted: Option<Halt>,
    /// The memory of its results from the beginning of its computation, if the host pages.
    results: Option<Hold>,
}

#[derive(Debug)]
enum TaskStage {
    /// An action is running: its file accesses, its paging, or its computation.
    Active(ActionId),
    /// It waits for shared data, before its file accesses and its computation, or after.
    WaitsForShared { task: Arc<Task>, has_computed: bool },
    /// Its body runs, or waits for an answer in its session.
    InBody(Arc<Task>),
    /// Its time has passed, and its body waits for its program's answer.
    CallsBack(Arc<Task>),
}

/// The next step of a task whose body has halted.
#[expect(clippy::large_enum_variant, reason = "a step is taken at once and never stored")]
#[derive(Debug)]
pub(crate) enum NextStep {
    /// It continues later.
    None,
    /// Its machine gets an input.
    Input(Input),
    /// Its body has made a request to its session, which may have the bytes of a value.
    Session(Arc<Task>, Box<SessionRequest>, Vec<u8>),
}

impl Running {
    /// Reports whether its server counts it as occupying a slot. A task that waits for its program does not.
    fn takes_slot(&self) -> bool {
        !self.is_known_to_wait && !matches!(self.stage, TaskStage::CallsBack(_))
    }
}

/// The actual descriptions of the results.
type Outcome = Result<Vec<(DatumId, Meta)>, TaskError>;

impl Tasks {
    pub(crate) fn new(efficiencies: BTreeMap<String, f64>) -> Tasks {
        Tasks { efficiencies, ..Tasks::default() }
    }

    pub(crate) fn set_bodies(&mut self, bodies: Box<dyn Bodies>) {
        self.bodies = Some(bodies);
    }

    /// Sets the file parameters of a function.
    pub(crate) fn set_files(&mut self, function: &str, files: Files) {
        if files.is_empty() {
            self.files.remove(function);
        } else {
            self.files.insert(function.to_string(), files);
        }
    }

    /// Sets the file parameters from a function's description, unless they were set already.
    pub(crate) fn describe_files(&mut self, function: &str, files: Files) {
        if !self.files.contains_key(function) {
            self.set_files(function, files);
        }
    }

    /// Reports whether the simulation moves the shared data that functions declare.
    pub(crate) fn simulates_sharing(&self) -> bool {
        self.bodies.as_ref().is_none_or(|bodies| bodies.uses_simulated_sharing())
    }

    /// Returns the value that a call puts under a name, with bytes if there are any.
    pub(crate) fn value_to_put(&self, call: TaskId, meta: Meta) -> StoredValue {
        let bytes = self.bodies.as_ref().and_then(|bodies| bodies.value_to_put(call, &meta));
        StoredValue { meta, bytes }
    }

    /// Starts a task. If it `waits`, it continues when it has its shared data.
    ///
    /// # Panics
    /// If the server has no slot for it, already runs it, or lacks one of its inputs.
    pub(crate) fn start(
        &mut self,
        kernel: &mut Kernel,
        place: ServerView<'_>,
        task: Arc<Task>,
        waits: bool,
    ) -> NextStep {
        let (name, slots, node, id) = (place.name, place.slots, place.node, task.id);
        let taken = self.of(node).filter(|(_, running)| running.takes_slot()).count();
        assert!((taken as u64) < u64::from(slots), "'{name}' starts {id} with {taken} of {slots} slots taken");
        assert!(!self.running.contains_key(&(node, id)), "'{name}' starts {id} twice");
        for datum in task.inputs() {
            assert!(place.store.value(datum).is_some(), "'{name}' starts {id} without its input {datum}");
        }
        kernel.observe(|| Observation::TaskBegins { node, task: &task });
        self.workers.begin(node, slots, &task);
        let started = kernel.now();
        let stage = match waits {
            true => TaskStage::WaitsForShared { task: task.clone(), has_computed: false },
            false => TaskStage::InBody(task.clone()),
        };
        let (halted, results) = (None, None);
        let running = Running { started, stage, is_known_to_wait: false, has_computed: false, halted, results };
        self.running.insert((node, id), running);
        if waits { NextStep::None } else { self.start_files(kernel, place, task) }
    }

    /// Handles the notification of a server that a task waits or has resumed. The task has resumed earlier, and other
    /// inputs of its server may have been handled in between.
    pub(crate) fn set_known_to_wait(&mut self, node: NodeId, task: TaskId, waits: bool) {
        if let Some(running) = self.running.get_mut(&(node, task)) {
            running.is_known_to_wait = waits;
        }
    }

    /// Starts a task's file accesses; without any, its computation.
    fn start_files(&mut self, kernel: &mut Kernel, place: ServerView<'_>, task: Arc<Task>) -> NextStep {
        let size_bytes = match self.files.get(task.name()) {
            Some(files) => self.kept_files.begin(place.node, place.slots, files, &task, place.store),
            None => 0,
        };
        if size_bytes == 0 {
            return self.start_first(kernel, place, &task);
        }
        let key = (place.node, task.id);
        let purpose = Purpose::Files(StartedTask { node: place.node, task });
        let action = kernel.start_execution(place.disk, size_bytes as f64, purpose);
        self.running.get_mut(&key).expect("it was started").stage = TaskStage::Active(action);
        NextStep::None
    }

    /// Starts the computation of a task, or its body if that begins first.
    fn start_first(&mut self, kernel: &mut Kernel, place: ServerView<'_>, task: &Arc<Task>) -> NextStep {
        if self.bodies.as_ref().is_some_and(|bodies| bodies.begins_first(task)) {
            return self.start_body(kernel, place, task);
        }
        self.compute(kernel, &place, task.clone());
        NextStep::None
    }

    /// Starts the body of a task; without bodies, the task ends.
    fn start_body(&mut self, kernel: &mut Kernel, place: ServerView<'_>, task: &Arc<Task>) -> NextStep {
        let Some(bodies) = &mut self.bodies else { return NextStep::Input(self.end(kernel, place, task, None)) };
        let halt = match arguments(&place, task) {
            Ok(inputs) => bodies.begin(place.node, task, &inputs),
            Err(error) => Halt::Ended(Err(error)),
        };
        self.on_halt(kernel, place, task, halt)
    }

    /// Makes a task that has computed wait until it has put its shared data.
    pub(crate) fn wait_after(&mut self, node: NodeId, task: &Arc<Task>) {
        let running = self.running.get_mut(&(node, task.id)).expect("a task that has computed was started");
        running.stage = TaskStage::WaitsForShared { task: task.clone(), has_computed: true };
    }

    /// Resumes a task that has its shared data.
    pub(crate) fn resume(&mut self, kernel: &mut Kernel, place: ServerView<'_>, id: TaskId) -> NextStep {
        let Some(running) = self.running.get_mut(&(place.node, id)) else { return NextStep::None };
        let TaskStage::WaitsForShared { task, has_computed } = &running.stage else { return NextStep::None };
        let (task, has_computed) = (task.clone(), *has_computed);
        if has_computed {
            return self.computed(kernel, place, &task);
        }
        running.stage = TaskStage::InBody(task.clone());
        self.start_files(kernel, place, task)
    }

    /// Ends a task that waits for shared data with an error.
    pub(crate) fn fail(
        &mut self,
        kernel: &mut Kernel,
        place: &ServerView<'_>,
        id: TaskId,
        error: impl FnOnce(String) -> TaskError,
    ) -> Option<Input> {
        let key = (place.node, id);
        let TaskStage::WaitsForShared { task, .. } = &self.running.get(&key)?.stage else { return None };
        let error = error(task.name().to_string());
        let run_ns = kernel.now().since(self.running.remove(&key)?.started);
        self.workers.end(place.node, place.slots, id);
        kernel.observe(|| Observation::TaskEnds { node: place.node, task: id });
        Some(Input::TaskEnded { task: id, outcome: Err(error), run_ns })
    }

    /// Continues a task whose file accesses are done.
    pub(crate) fn files_done(&mut self, kernel: &mut Kernel, place: ServerView<'_>, task: &Arc<Task>) -> NextStep {
        let running = self.running.get_mut(&(place.node, task.id)).expect("a task with files was started");
        running.stage = TaskStage::InBody(task.clone());
        self.start_first(kernel, place, task)
    }

    /// Starts the computation of a task, after its paging.
    fn compute(&mut self, kernel: &mut Kernel, place: &ServerView<'_>, task: Arc<Task>) {
        let Some(memory) = place.memory else { return self.execute(kernel, place, task) };
        let results_bytes = task.outputs.iter().map(|output| output.meta.size_bytes()).sum();
        let running = self.running.get_mut(&(place.node, task.id)).expect("a task that computes was started");
        running.results = Some(memory.held.hold(results_bytes));
        let paged_bytes = memory.outside(0) * (argument_bytes(place, &task) + results_bytes) as f64;
        if paged_bytes == 0.0 {
            return self.execute(kernel, place, task);
        }
        let purpose = Purpose::Paging(StartedTask { node: place.node, task });
        let action = kernel.start_transfer(&Transfer::new(&[memory.swap], 0.0, paged_bytes), purpose);
        running.stage = TaskStage::Active(action);
    }

    /// Continues a task whose paging is done.
    pub(crate) fn paged(&mut self, kernel: &mut Kernel, place: &ServerView<'_>, task: Arc<Task>) {
        self.execute(kernel, place, task);
    }

    fn execute(&mut self, kernel: &mut Kernel, place: &ServerView<'_>, task: Arc<Task>) {
        let efficiency = self.efficiencies.get(task.name()).copied().unwrap_or(1.0);
        let work_flops = task.work_flops.filter(|work| is_work(*work)).unwrap_or(WORK_FLOPS_DEFAULT) / efficiency;
        let is_program = self.files.get(task.name()).is_some_and(|files| files.runs_program);
        let starts_process = is_program || self.workers.is_replacement(place.node, task.id);
        let start_flops = if starts_process { place.start_flops } else { 0.0 };
        let running = self.running.get_mut(&(place.node, task.id)).expect("a task that computes was started");
        let purpose = Purpose::Task(StartedTask { node: place.node, task });
        running.stage = TaskStage::Active(kernel.start_execution(place.host, start_flops + work_flops, purpose));
    }

    /// Stops a task. Returns an input for its machine. A task that has already ended has had its `TaskEnded`.
    pub(crate) fn stop(&mut self, kernel: &mut Kernel, node: NodeId, task: TaskId) -> Option<Input> {
        let running = self.running.remove(&(node, task))?;
        self.workers.kill(node, task);
        let run_ns = kernel.now().since(running.started);
        self.abandon(kernel, task, running);
        kernel.observe(|| Observation::TaskEnds { node, task });
        Some(Input::TaskEnded { task, outcome: Err(TaskError::Cancelled), run_ns })
    }

    /// Removes the tasks of a server that has ended.
    pub(crate) fn end_all(&mut self, kernel: &mut Kernel, node: NodeId) {
        self.kept_files.forget(node);
        self.workers.forget(node);
        let here: Vec<TaskId> = self.of(node).map(|(task, _)| task).collect();
        for task in here {
            let running = self.running.remove(&(node, task)).expect("it was there a moment ago");
            self.abandon(kernel, task, running);
        }
    }

    fn abandon(&mut self, kernel: &mut Kernel, task: TaskId, running: Running) {
        let has_halted = match &running.stage {
            TaskStage::Active(action) => {
                kernel.cancel(*action);
                matches!(running.halted, Some(Halt::Callback(_) | Halt::Session(..)))
            }
            TaskStage::CallsBack(_) | TaskStage::InBody(_) => true,
            TaskStage::WaitsForShared { .. } => false,
        };
        if let Some(bodies) = self.bodies.as_mut().filter(|_| has_halted) {
            bodies.give_up(task);
        }
    }

    /// Continues a task whose computation has ended.
    pub(crate) fn computed(&mut self, kernel: &mut Kernel, place: ServerView<'_>, task: &Arc<Task>) -> NextStep {
        let running = self.running.get_mut(&(place.node, task.id)).expect("a task that has computed was started");
        running.has_computed = true;
        match running.halted.take() {
            Some(halt) => self.on_halt(kernel, place, task, halt),
            None => self.start_body(kernel, place, task),
        }
    }

    /// Passes the program's answer to a task that called it back.
    pub(crate) fn answer(
        &mut self,
        kernel: &mut Kernel,
        place: ServerView<'_>,
        task: TaskId,
        answer: CallbackAnswer,
    ) -> NextStep {
        let Some(running) = self.running.get_mut(&(place.node, task)) else { return NextStep::None };
        let (TaskStage::CallsBack(task), Some(bodies)) = (&running.stage, &mut self.bodies) else {
            return NextStep::None;
        };
        let task = task.clone();
        running.stage = TaskStage::InBody(task.clone());
        let halt = bodies.go_on(&task, answer);
        self.on_halt(kernel, place, &task, halt)
    }

    /// Passes an answer to a task that has made a request to its session.
    pub(crate) fn answer_session(
        &mut self,
        kernel: &mut Kernel,
        place: ServerView<'_>,
        task: TaskId,
        (answer, bytes): (SessionAnswer, &[u8]),
    ) -> NextStep {
        let Some(running) = self.running.get(&(place.node, task)) else { return NextStep::None };
        let (TaskStage::InBody(task), Some(bodies)) = (&running.stage, &mut self.bodies) else {
            return NextStep::None;
        };
        let task = task.clone();
        let halt = bodies.answer_session(&task, answer, bytes);
        self.on_halt(kernel, place, &task, halt)
    }

    /// Discards the state of an object that has ended.
    pub(crate) fn end_object(&mut self, object: ObjectId) {
        if let Some(bodies) = &mut self.bodies {
            bodies.end_object(object);
        }
    }

    /// Continues a task whose body has halted.
    fn on_halt(&mut self, kernel: &mut Kernel, place: ServerView<'_>, task: &Arc<Task>, halt: Halt) -> NextStep {
        let running = self.running.get_mut(&(place.node, task.id)).expect("a task with a body was started");
        let computes_first = match &halt {
            Halt::Session(request, _) => request.action.shows_results(),
            Halt::Callback(_) | Halt::Ended(_) => true,
        };
        if computes_first && !running.has_computed {
            running.halted = Some(halt);
            self.compute(kernel, &place, task.clone());
            return NextStep::None;
        }
        match halt {
            Halt::Session(request, bytes) => {
                running.stage = TaskStage::InBody(task.clone());
                NextStep::Session(task.clone(), request, bytes)
            }
            Halt::Callback(call) => {
                running.stage = TaskStage::CallsBack(task.clone());
                NextStep::Input(Input::CallsBack(call))
            }
            Halt::Ended(results) => NextStep::Input(self.end(kernel, place, task, Some(results))),
        }
    }

    /// Ends a task, with the results of its body. Returns the input for its machine.
    fn end(&mut self, kernel: &mut Kernel, place: ServerView<'_>, task: &Arc<Task>, results: Option<Results>) -> Input {
        let (node, key) = (place.node, (place.node, task.id));
        let running = self.running.remove(&key).expect("a task that ends was started");
        self.workers.end(node, place.slots, task.id);
        let (start, end) = (running.started, kernel.now());
        kernel.observe(|| Observation::TaskEnds { node, task: task.id });
        let function = task.name().to_string();
        kernel.record(|trace, _| trace.record_interval(Interval::Task { node, task: task.id, function, start, end }));
        // From here on its results count in the store.
        drop(running);
        let outcome = keep_results(kernel, place, task, results);
        Input::TaskEnded { task: task.id, outcome, run_ns: end.since(start) }
    }

    fn of(&self, node: NodeId) -> impl Iterator<Item = (TaskId, &Running)> {
        let (first, last) = (NodeId(0), NodeId(u64::MAX));
        let all = (node, TaskId { client: first, serial: 0 })..=(node, TaskId { client: last, serial: u64::MAX });
        self.running.range(all).map(|((_, task), running)| (*task, running))
    }

    /// Reports whether a server runs no task.
    pub(crate) fn is_idle(&self, node: NodeId) -> bool {
        self.of(node).next().is_none()
    }

    /// Panics if an invariant does not hold.
    pub(crate) fn check(&self, kernel: &Kernel) {
        for ((node, task), Running { started, stage, .. }) in &self.running {
            assert!(*started <= kernel.now(), "{task} has started at {started}, in the future");
            let TaskStage::Active(action) = stage else { continue };
            let purpose = kernel.purpose(*action);
            let Some(Purpose::Files(of) | Purpose::Paging(of) | Purpose::Task(of)) = purpose else {
                panic!("{task} runs in an action with the purpose {purpose:?}");
            };
            let is_its = of.node == *node && of.task.id == *task;
            assert!(is_its, "{task} runs in an action with the purpose {purpose:?}");
        }
    }
}

/// The results of a body.
type Results = Result<Vec<(Meta, Vec<u8>)>, TaskError>;

/// Puts a task's results into the store: those of its body, or values of the predicted sizes.
fn keep_results(kernel: &mut Kernel, place: ServerView<'_>, task: &Task, results: Option<Results>) -> Outcome {
    let values: Vec<StoredValue> = match results {
        None => task.outputs.iter().map(|output| StoredValue { meta: output.meta.clone(), bytes: None }).collect(),
        Some(results) => {
            let results = results.map_err(|error| error.with_names(task.name(), place.name))?;
            if results.len() != task.outputs.len() {
                let why = format!("{} results, expected {}", results.len(), task.outputs.len());
                let (function, server) = (task.name().to_string(), place.name.to_string());
                return Err(TaskError::WrongResult { function, server, why });
            }
            results.into_iter().map(|(meta, bytes)| StoredValue { meta, bytes: Some(bytes.into()) }).collect()
        }
    };
    let named = task.outputs.iter().map(|output| output.datum).zip(values);
    Ok(named
        .map(|(datum, value)| {
            let meta = value.meta.clone();
            kernel.record(|trace, now| trace.stored(now, place.node, datum, &value));
            place.store.put(datum, value);
            (datum, meta)
        })
        .collect())
}

/// Returns the size of a task's arguments.
fn argument_bytes(place: &ServerView<'_>, task: &Task) -> u64 {
    let size = |argument: &Argument| match argument {
        Argument::Inline { meta, .. } => meta.size_bytes(),
        Argument::Datum(datum) => place.store.value(*datum).map_or(0, |value| value.meta.size_bytes()),
    };
    task.args.iter().map(size).sum()
}

/// Values with their descriptions.
type Arguments = Vec<(Meta, Arc<[u8]>)>;

/// Returns the values of a task's arguments.
fn arguments(place: &ServerView<'_>, task: &Task) -> Result<Arguments, TaskError> {
    let argument = |argument: &Argument| match argument {
        Argument::Inline { meta, bytes } => Ok((meta.clone(), Arc::from(bytes.as_slice()))),
        Argument::Datum(datum) => {
            let value = place.store.value(*datum);
            let whole = value.and_then(|value| Some((value.meta.clone(), value.bytes.clone()?)));
            whole.ok_or_else(|| TaskError::CannotRun {
                function: task.name().to_string(),
                server: place.name.to_string(),
                why: format!("the simulation has no bytes for its input {datum}; provide them with the value"),
            })
        }
    };
    task.args.iter().map(argument).collect()
}

#[cfg(test)]
mod tests {
    use gridloom_core::graph::TaskKind;
    use gridloom_flow::{FlowEngine, HostIndex, NetworkModel, Resources, Timeline};

    use super::*;
    use crate::instruments::Instruments;
    use crate::kernel::KernelEvent;
    use crate::store::Store;

    struct Returns;

    impl Bodies for Returns {
        fn run(&mut self, _: &Task, _: &[(Meta, Arc<[u8]>)]) -> Result<Vec<(Meta, Vec<u8>)>, TaskError> {
            Ok(Vec::new())
        }
    }

    fn task(serial: u64) -> Arc<Task> {
        Arc::new(Task {
            id: TaskId { client: NodeId(9), serial },
            kind: TaskKind::call("m/f", 0),
            args: Vec::new(),
            outputs: Vec::new(),
            work_flops: Some(1e9),
            options: Default::default(),
        })
    }

    fn kernel() -> Kernel {
        let mut resources = Resources::new();
        resources.add_host(1e9, 1);
        resources.add_host(1e9, 1);
        Kernel::new(FlowEngine::new(resources, NetworkModel::default()), Timeline::new(), Instruments::new(0, 0))
    }

    fn place(store: &mut Store) -> ServerView<'_> {
        let (host, disk) = (HostIndex(0), HostIndex(1));
        ServerView { node: NodeId(2), name: "s", slots: 2, host, disk, start_flops: 5e8, memory: None, store }
    }

    #[test]
    fn tasks_share_their_host_and_each_ends_once() {
        let (mut kernel, mut tasks, mut store) =
            (kernel(), Tasks::new(BTreeMap::from([("m/f".into(), 0.5)])), Store::default());
        tasks.set_bodies(Box::new(Returns));
        for serial in [1, 2] {
            tasks.start(&mut kernel, place(&mut store), task(serial), false);
        }
        tasks.check(&kernel);
        let Some(KernelEvent::Ended(ended)) = kernel.next() else { panic!() };
        assert_eq!((kernel.now(), ended.len()), (Time(4_000_000_000), 2));
        for action in ended {
            let Some(Purpose::Task(started)) = kernel.take_purpose(action) else { panic!() };
            let next = tasks.computed(&mut kernel, place(&mut store), &started.task);
            let has_ended =
                matches!(next, NextStep::Input(Input::TaskEnded { outcome: Ok(_), run_ns: 4_000_000_000, .. }));
            assert!(has_ended, "{next:?}");
        }
        assert!(tasks.is_idle(NodeId(2)) && tasks.stop(&mut kernel, NodeId(2), task(1).id).is_none());
    }

    #[test]
    fn a_program_has_to_be_started() {
        let (mut kernel, mut tasks, mut store) = (kernel(), Tasks::default(), Store::default());
        tasks.set_files("m/f", Files { outputs: vec![0], runs_program: true, ..Files::default() });
        tasks.start(&mut kernel, place(&mut store), task(1), false);
        assert!(matches!(kernel.next(), Some(KernelEvent::Ended(_))) && kernel.now() == Time(1_500_000_000));
    }

    #[test]
    #[should_panic(expected = "with 2 of 2 slots taken")]
    fn a_server_that_starts_more_tasks_than_it_has_slots_is_broken() {
        let (mut kernel, mut tasks, mut store) = (kernel(), Tasks::default(), Store::default());
        for serial in [1, 2, 3] {
            tasks.start(&mut kernel, place(&mut store), task(serial), false);
        }
    }

    /// Regression test for soak seed 67637: another task ended before the server was notified that the first had resumed.
    #[test]
    fn a_task_that_continues_takes_its_slot_when_its_server_is_notified() {
        let (mut kernel, mut tasks, mut store) = (kernel(), Tasks::default(), Store::default());
        let (node, first) = (NodeId(2), task(1).id);
        let taken = |tasks: &Tasks| tasks.of(node).filter(|(_, running)| running.takes_slot()).count();
        tasks.start(&mut kernel, place(&mut store), task(1), true);
        assert_eq!(taken(&tasks), 1, "the server has not heard yet that it waits");
        tasks.set_known_to_wait(node, first, true);
        tasks.start(&mut kernel, place(&mut store), task(2), false);
        assert!(matches!(tasks.resume(&mut kernel, place(&mut store), first), NextStep::None));
        tasks.start(&mut kernel, place(&mut store), task(3), false);
        assert_eq!(taken(&tasks), 2);
        tasks.set_known_to_wait(node, first, false);
        assert_eq!(taken(&tasks), 3, "what goes on asks for no slot");
        tasks.check(&kernel);
    }

    #[test]
    fn a_task_that_is_stopped_leaves_its_host_to_others() {
        let (mut kernel, mut tasks, mut store) = (kernel(), Tasks::default(), Store::default());
        tasks.start(&mut kernel, place(&mut store), task(1), false);
        tasks.start(&mut kernel, place(&mut store), task(2), false);
        let input = tasks.stop(&mut kernel, NodeId(2), task(1).id);
        assert!(matches!(input, Some(Input::TaskEnded { outcome: Err(TaskError::Cancelled), .. })));
        assert!(matches!(kernel.next(), Some(KernelEvent::Ended(_))) && kernel.now() == Time(1_000_000_000));
        tasks.end_all(&mut kernel, NodeId(2));
        tasks.check(&kernel);
    }
}

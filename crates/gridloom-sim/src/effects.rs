//! What each effect of a machine does: tasks and timers here, connections and transfers in files of their own.

use std::sync::Arc;

use gridloom_core::base::limits::{EAGER_BYTES_MAX, WORK_FLOPS_DEFAULT};
use gridloom_core::base::{DatumId, Meta, NodeId, TaskError, TaskId};
use gridloom_core::call::CallBackAnswer;
use gridloom_core::flow::{ActionId, Execution, HostIndex};
use gridloom_core::graph::{Argument, Task};
use gridloom_core::node::{Effect, Input};

use crate::links::Cargo;
use crate::node::Running;
use crate::observe::Seen;
use crate::simulation::{Bodies, Halt, Occurrence, Purpose, Simulation};
use crate::store::Value;
use crate::trace::{Interval, digest};
use crate::transfer::Parcel;

/// What a body gives: descriptions and bytes.
type Made = Vec<(Meta, Vec<u8>)>;
/// Results' true descriptions.
type Outcome = Result<Vec<(DatumId, Meta)>, TaskError>;

/// Value of an argument.
type Argued = (Meta, Arc<[u8]>);

impl Simulation {
    /// Performs one effect of a running node.
    pub(crate) fn perform(&mut self, node: NodeId, effect: Effect) {
        if let Effect::Send { to, message } = effect {
            let bytes = postcard::to_stdvec(&message).expect("postcard into a vector fails for no type of ours");
            let (size_bytes, digest) = (bytes.len() as u64, digest(&bytes));
            let effect = Effect::Send { to, message };
            self.trace.effect(self.now, node, &effect, digest);
            let Effect::Send { message, .. } = effect else { unreachable!("it was put together above") };
            self.send_frame(node, to, size_bytes, Parcel::Message { message, digest });
            return;
        }
        self.trace.effect(self.now, node, &effect, 0);
        match effect {
            Effect::Send { .. } => unreachable!("performed above"),
            Effect::Dial { address } => self.dial(node, address),
            Effect::HangUp { peer } => self.hang_up(node, peer, "the peer hung up"),
            Effect::SendDatum { to, datum } => self.send_datum(node, to, datum),
            Effect::SendProbe { to, size_bytes } => self.send_cargo(node, to, Cargo::Probe { size_bytes }),
            Effect::DropDatum { datum } => self.node_mut(node).store.remove(datum),
            Effect::StartTask { task } => self.start_task(node, task),
            Effect::StopTask { task } => self.stop_task(node, task),
            Effect::AnswerTask { task, answer } => self.answer_task(node, task, answer),
            Effect::EndObject { object } => {
                if let Some(bodies) = &mut self.bodies {
                    bodies.end_object(object);
                }
            }
            Effect::SetTimer { timer, at } => {
                let sequence = self.queue.push(at.max(self.now), Occurrence::Timer { node, timer });
                self.node_mut(node).timers.insert(timer, sequence);
            }
            Effect::CancelTimer { timer } => {
                self.node_mut(node).timers.remove(&timer);
            }
            Effect::MeasureSpeed => {
                let host = self.node(node).host;
                // Who measures while the host stands still has what it is described as.
                let scale = Some(self.speed_scale(host)).filter(|scale| *scale > 0.0).unwrap_or(1.0);
                let flops = scale * self.platform.hosts()[host.0 as usize].speed_flops;
                self.deliver(node, Input::SpeedMeasured { flops });
            }
            Effect::Emit(event) => self.emit(node, event),
            Effect::Exit { why } => self.end(node, &why),
        }
    }

    fn send_datum(&mut self, node: NodeId, to: NodeId, datum: DatumId) {
        let name = &self.node(node).name;
        let value = self.node(node).store.value(datum).cloned();
        let value = value.unwrap_or_else(|| panic!("'{name}' sends {datum}, which is not in its store"));
        self.send_cargo(node, to, Cargo::Datum { datum, value });
    }

    /// Small cargo goes with the messages, large in bulk.
    fn send_cargo(&mut self, node: NodeId, to: NodeId, cargo: Cargo) {
        let size_bytes = cargo.size_bytes();
        if size_bytes <= EAGER_BYTES_MAX {
            let transfer = match self.connections.end(node, to) {
                Some(_) => self.cargo_begins(node, to, &cargo),
                None => return,
            };
            self.send_frame(node, to, size_bytes, Parcel::Cargo { cargo, sent: self.now, transfer });
        } else {
            self.send_bulk(node, to, cargo);
        }
    }

    fn start_task(&mut self, node: NodeId, task: Arc<Task>) {
        let state = self.node(node);
        // Who waits for its program takes no slot.
        let started = state.tasks.values().filter(|running| running.asking.is_none()).count();
        let (name, slots) = (&state.name, state.slots);
        assert!(
            (started as u64) < u64::from(slots),
            "'{name}' starts {} with {started} of {slots} slots taken",
            task.id
        );
        assert!(!state.tasks.contains_key(&task.id), "'{name}' starts {} twice", task.id);
        for datum in task.inputs() {
            assert!(state.store.value(datum).is_some(), "'{name}' starts {} without its input {datum}", task.id);
        }
        self.synchronise();
        let (id, started) = (task.id, self.now);
        self.watch.see(self.now, || Seen::TaskBegins { node, task: &task });
        let files = self.begin_files(node, &task);
        let action = files.unwrap_or_else(|| self.begin_execution(node, task));
        self.node_mut(node).tasks.insert(id, Running { action, started, asking: None });
    }

    /// A task begins to compute.
    pub(crate) fn begin_execution(&mut self, node: NodeId, task: Arc<Task>) -> ActionId {
        let host = HostIndex(self.node(node).host.0);
        let efficiency = self.config.efficiencies.get(&task.function).copied().unwrap_or(1.0);
        let work_flops = task.work_flops.unwrap_or(WORK_FLOPS_DEFAULT) / efficiency;
        let action = self.engine.start_execution(&Execution::new(host, work_flops));
        self.purposes.insert(action, Purpose::Task { node, task });
        action
    }

    /// A task that has ended already has had its `TaskEnded`.
    fn stop_task(&mut self, node: NodeId, task: TaskId) {
        let Some(running) = self.node_mut(node).tasks.remove(&task) else { return };
        self.synchronise();
        self.abandon(task, &running);
        self.watch.see(self.now, || Seen::TaskEnds { node, task });
        let run_ns = self.now.since(running.started);
        self.deliver(node, Input::TaskEnded { task, outcome: Err(TaskError::Cancelled), run_ns });
    }

    /// Nothing more comes of a task.
    pub(crate) fn abandon(&mut self, task: TaskId, running: &Running) {
        if running.asking.is_some() {
            if let Some(bodies) = &mut self.bodies {
                bodies.give_up(task);
            }
        } else {
            self.engine.cancel(running.action);
            self.purposes.remove(&running.action);
        }
    }

    /// A task's time is over: its body runs, and it ends unless it calls its program back.
    pub(crate) fn on_task_done(&mut self, node: NodeId, task: &Arc<Task>) {
        let halt = self.with_bodies(|bodies, simulation| match simulation.arguments(node, task) {
            Ok(inputs) => bodies.begin(task, &inputs),
            Err(error) => Halt::Ended(Err(error)),
        });
        let input = self.halted(node, task, halt);
        self.handle(node, input, 0);
    }

    fn answer_task(&mut self, node: NodeId, task: TaskId, answer: CallBackAnswer) {
        let asking = self.node_mut(node).tasks.get_mut(&task).and_then(|running| running.asking.take());
        let Some(task) = asking else { return };
        let halt = self.with_bodies(|bodies, _| bodies.go_on(&task, answer));
        let input = self.halted(node, &task, halt);
        self.deliver(node, input);
    }

    fn with_bodies(&mut self, run: impl FnOnce(&mut dyn Bodies, &Simulation) -> Halt) -> Option<Halt> {
        let mut bodies = self.bodies.take()?;
        let halt = run(&mut *bodies, self);
        self.bodies = Some(bodies);
        Some(halt)
    }

    /// What a machine hears of a task where its body has come to, or ended for want of bodies.
    fn halted(&mut self, node: NodeId, task: &Arc<Task>, halt: Option<Halt>) -> Input {
        let results = match halt {
            Some(Halt::CallsBack(call)) => {
                let running = self.node_mut(node).tasks.get_mut(&task.id).expect("a task that calls back was started");
                running.asking = Some(task.clone());
                return Input::CallsBack(call);
            }
            Some(Halt::Ended(results)) => Some(results),
            None => None,
        };
        let running = self.node_mut(node).tasks.remove(&task.id).expect("a task that ends was started");
        let (start, end) = (running.started, self.now);
        self.watch.see(end, || Seen::TaskEnds { node, task: task.id });
        let function = task.function.clone();
        self.trace.intervals.push(Interval::Task { node, task: task.id, function, start, end });
        let outcome = self.results(node, task, results);
        Input::TaskEnded { task: task.id, outcome, run_ns: end.since(start) }
    }

    /// Puts a task's results into the store: what its body gives, or values of the sizes foreseen.
    fn results(&mut self, node: NodeId, task: &Task, results: Option<Result<Made, TaskError>>) -> Outcome {
        let values: Vec<Value> = match results {
            None => task.outputs.iter().map(|output| Value { meta: output.meta.clone(), bytes: None }).collect(),
            Some(results) => {
                let results = results.map_err(|error| error.named(&task.function, &self.node(node).name))?;
                if results.len() != task.outputs.len() {
                    let why = format!("{} results where {} are due", results.len(), task.outputs.len());
                    let (function, server) = (task.function.clone(), self.node(node).name.clone());
                    return Err(TaskError::WrongResult { function, server, why });
                }
                results.into_iter().map(|(meta, bytes)| Value { meta, bytes: Some(bytes.into()) }).collect()
            }
        };
        let named = task.outputs.iter().map(|output| output.datum).zip(values);
        Ok(named
            .map(|(datum, value)| {
                let meta = value.meta.clone();
                self.keep(node, datum, value);
                (datum, meta)
            })
            .collect())
    }

    fn arguments(&self, node: NodeId, task: &Task) -> Result<Vec<Argued>, TaskError> {
        let argument = |argument: &Argument| match argument {
            Argument::Inline { meta, bytes } => Ok((meta.clone(), Arc::from(bytes.as_slice()))),
            Argument::Datum(datum) => {
                let value = self.node(node).store.value(*datum);
                let whole = value.and_then(|value| Some((value.meta.clone(), value.bytes.clone()?)));
                whole.ok_or_else(|| TaskError::CannotRun {
                    function: task.function.clone(),
                    server: self.node(node).name.clone(),
                    why: format!("the simulation has no bytes for its input {datum}; give them with the value"),
                })
            }
        };
        task.args.iter().map(argument).collect()
    }
}

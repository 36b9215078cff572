//! Machines that follow a script, and short names for effects and inputs.
#![allow(dead_code)]

use std::sync::{Arc, Mutex};

use gridloom_base::{DatumId, Machine, Meta, NodeId, TaskId, Time};
use gridloom_core::graph::{Argument, Output, Task, TaskKind};
use gridloom_core::node::message::{DataMessage, LinkMessage, Message};
use gridloom_core::node::{Effect, Input, Role, Timer};
use gridloom_platform::{Platform, PlatformBuilder, Sharing};
use gridloom_sim::{SimConfig, Simulation};

/// First number of script timers.
const SCRIPT: u64 = 1_000_000;

type Heard = Arc<Mutex<Vec<(Time, Input)>>>;

/// Performs each effect at its time, in milliseconds, and records every input except its own script's timers.
struct Scripted {
    script: Vec<(u64, Effect)>,
    /// The node to which it forwards data as soon as their first part arrives.
    passes_to: Option<NodeId>,
    heard: Heard,
}

impl Machine for Scripted {
    type Input = Input;
    type Effect = Effect;

    fn handle(&mut self, now: Time, input: Input, effects: &mut Vec<Effect>) {
        match &input {
            Input::Timer(Timer::Numbered(number)) if *number >= SCRIPT => {
                return effects.push(self.script[(number - SCRIPT) as usize].1.clone());
            }
            Input::Start => effects.extend(self.script.iter().enumerate().map(|(number, (at, _))| Effect::SetTimer {
                timer: Timer::Numbered(SCRIPT + number as u64),
                at: Time(ms(*at)),
            })),
            Input::DatumBegun { datum, .. } => effects.extend(self.passes_to.map(|to| send_datum(to, *datum))),
            _ => {}
        }
        self.heard.lock().unwrap().push((now, input));
    }
}

/// A simulation of scripted machines.
pub struct Grid {
    pub sim: Simulation,
    heard: Vec<Heard>,
}

impl Grid {
    pub fn new() -> Grid {
        Grid::on(platform())
    }

    pub fn on(platform: Platform) -> Grid {
        Grid::with(platform, SimConfig::default())
    }

    pub fn with(platform: Platform, config: SimConfig) -> Grid {
        Grid { sim: Simulation::new(Arc::new(platform), config), heard: Vec::new() }
    }

    pub fn node(&mut self, host: &str, script: Vec<(u64, Effect)>) -> NodeId {
        self.node_of(Role::Server, host, script)
    }

    pub fn node_of(&mut self, role: Role, host: &str, script: Vec<(u64, Effect)>) -> NodeId {
        self.passing(role, host, script, None)
    }

    /// Adds a node that forwards data as soon as their first part arrives.
    pub fn passing(&mut self, role: Role, host: &str, script: Vec<(u64, Effect)>, passes_to: Option<NodeId>) -> NodeId {
        let at = self.sim.platform().host(host).unwrap();
        let heard = Heard::default();
        self.heard.push(heard.clone());
        self.sim.add_machine(at, role, host, 8, |_, _| Box::new(Scripted { script, passes_to, heard }))
    }

    pub fn put(&mut self, node: NodeId, datum: DatumId, size_bytes: u64) {
        self.sim.put(node, datum, Meta::Bytes { size_bytes }, None);
    }

    pub fn run(&mut self) {
        while self.sim.step() {}
    }

    pub fn heard(&self, node: NodeId) -> Vec<(Time, Input)> {
        self.heard[node.0 as usize - 1].lock().unwrap().clone()
    }

    /// Returns when a node received inputs with that short form, nanoseconds.
    pub fn when(&self, node: NodeId, what: &str) -> Vec<u64> {
        self.heard(node).into_iter().filter(|(_, input)| short(input) == what).map(|(at, _)| at.0).collect()
    }
}

/// Hosts a, b and c with one core of 1 Gflop/s, on one shared link of 1 MB/s and 1 ms; an island without routes.
pub fn platform() -> Platform {
    let mut builder = PlatformBuilder::new();
    let hosts = ["a", "b", "c", "island"].map(|name| builder.add_host(name, 1e9, 1).unwrap());
    let link = builder.add_link("wire", 1e6, 1e-3, Sharing::Shared).unwrap();
    for (from, to) in [(0, 1), (0, 2), (1, 2)] {
        builder.add_route(hosts[from], hosts[to], &[link], true).unwrap();
    }
    builder.build().unwrap()
}

pub fn ms(milliseconds: u64) -> u64 {
    milliseconds * 1_000_000
}

/// Returns the ID of a grid's second node, before it is created.
pub fn second() -> NodeId {
    NodeId(2)
}

pub fn datum(serial: u64) -> DatumId {
    DatumId { client: NodeId(9), serial }
}

pub fn task_id(serial: u64) -> TaskId {
    TaskId { client: NodeId(9), serial }
}

/// Returns a task that produces datum 100 + its number, of 8 bytes.
pub fn task(serial: u64, work_flops: f64, inputs: &[DatumId]) -> Task {
    let output = Output { datum: datum(100 + serial), meta: Meta::Bytes { size_bytes: 8 } };
    let args = inputs.iter().map(|datum| Argument::Datum(*datum)).collect();
    let (id, kind, outputs) = (task_id(serial), TaskKind::call("m/f", 0), vec![output]);
    Task { id, kind, args, outputs, work_flops: Some(work_flops), options: Default::default() }
}

pub fn start(serial: u64, work_flops: f64) -> Effect {
    Effect::StartTask { task: Arc::new(task(serial, work_flops, &[])) }
}

pub fn stop(serial: u64) -> Effect {
    Effect::StopTask { task: task_id(serial) }
}

pub fn dial(host: &str, node: NodeId) -> Effect {
    Effect::Dial { address: format!("sim://{host}:{}", node.0) }
}

pub fn ping(to: NodeId, token: u64) -> Effect {
    Effect::Send { to, message: LinkMessage::Ping { token }.into() }
}

/// A message that takes about 20 ms to send.
pub fn long_message(to: NodeId) -> Effect {
    Effect::Send { to, message: DataMessage::FetchRefused { datum: datum(0), why: "x".repeat(20_000) }.into() }
}

pub fn send_datum(to: NodeId, datum: DatumId) -> Effect {
    Effect::SendDatum { to, datum }
}

pub fn hang_up(peer: NodeId) -> Effect {
    Effect::Disconnect { peer }
}

pub fn exit() -> Effect {
    Effect::Exit { why: "done".into() }
}

/// Returns the short form of an input.
pub fn short(input: &Input) -> String {
    match input {
        Input::Start => "start".into(),
        Input::MadeDurable { .. } => "durable".into(),
        Input::DurableSynced { .. } => "synced".into(),
        Input::OnDisk { .. } => "on disk".into(),
        Input::PeerUp { .. } => "up".into(),
        Input::PeerLost { .. } => "lost".into(),
        Input::DialFailed { .. } => "failed".into(),
        Input::Received { message: Message::Link(LinkMessage::Ping { token }), .. } => format!("ping {token}"),
        Input::Received { message: Message::Data(DataMessage::FetchRefused { .. }), .. } => "refused".into(),
        Input::Received { .. } => "message".into(),
        Input::DatumBegun { datum, .. } => format!("d{} begins", datum.serial),
        Input::DatumArrived { datum, .. } => format!("d{}", datum.serial),
        Input::DatumBroken { .. } => "broken".into(),
        Input::ProbeArrived { .. } => "probe".into(),
        Input::DataPath { .. } => "path".into(),
        Input::Timer(Timer::Numbered(number)) => format!("timer {number}"),
        Input::Timer(timer) => format!("{timer:?}"),
        Input::TaskEnded { task, .. } => format!("t{}", task.serial),
        Input::CallsBack(call) => format!("t{} calls back", call.task.serial),
        Input::CallOutput(said) => format!("t{} says", said.task.serial),
        Input::Paused { task, .. } => format!("t{} calls", task.serial),
        Input::SpeedMeasured { .. } => "speed".into(),
        Input::Mapped { number, .. } => format!("mapped {number}"),
        Input::Command(_) => "command".into(),
    }
}

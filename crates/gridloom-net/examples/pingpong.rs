//! Measures round trips of a command: client machine, control connection, server machine and back as an event,
//! compared with a raw blocking TCP ping-pong of the same number of bytes in the same run. Then measures the same with
//! a null call in a worker process at the server. Each server is a separate process.
//!
//! `cargo run --release -p gridloom-net --example pingpong [rounds] [--tcp]`, after `cargo build --release -p
//! gridloom-net` for the worker program. Needs `cc`.

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command as Process, Stdio};
use std::time::Instant;

use gridloom_base::{Level, Machine, NodeId, TaskId, Time};
use gridloom_core::graph::{Task, TaskKind};
use gridloom_core::node::message::{LinkMessage, Message};
use gridloom_core::node::{Category, Command, Effect, Input, LogLine, Role};
use gridloom_idl::{Body, Definition, Language, Signature};
use gridloom_net::driver::{NetConfig, NetNode};
use gridloom_net::jobs::JobsConfig;

use support::{keys, receive_keys, send_keys};

#[derive(Default)]
struct Echo {
    server: Option<NodeId>,
    dial: Option<String>,
    token: u64,
    /// Task that the server runs before it replies.
    task: Option<Task>,
}

impl Machine for Echo {
    type Input = Input;
    type Effect = Effect;

    fn handle(&mut self, _now: Time, input: Input, effects: &mut Vec<Effect>) {
        match input {
            Input::Start => effects.extend(self.dial.take().map(|address| Effect::Dial { address })),
            Input::PeerUp { peer, .. } => {
                self.server = Some(peer);
                effects.push(said("up"));
            }
            Input::Command(_) => {
                self.token += 1;
                let to = self.server.expect("commands come after the connection");
                effects.push(Effect::Send { to, message: LinkMessage::Ping { token: self.token }.into() });
            }
            Input::Received { from, message: Message::Link(LinkMessage::Ping { token }) } => {
                self.server = Some(from);
                match &self.task {
                    Some(task) => effects.push(Effect::StartTask { task: task.clone().into() }),
                    None => effects.push(Effect::Send { to: from, message: LinkMessage::Pong { token }.into() }),
                }
            }
            Input::TaskEnded { outcome, .. } => {
                outcome.expect("the null function does not fail");
                let to = self.server.expect("it asked");
                effects.push(Effect::Send { to, message: LinkMessage::Pong { token: 0 }.into() });
            }
            Input::Received { .. } => effects.push(said("pong")),
            Input::PeerLost { .. } => effects.push(Effect::Exit { why: "the client left".into() }),
            _ => {}
        }
    }
}

/// Returns the log line by which a machine reports to this program.
fn said(text: &'static str) -> Effect {
    LogLine::new(Level::Info, Category::Client, text).into()
}

fn main() {
    match std::env::args().nth(1).as_deref() {
        Some("serve-raw") => serve_raw(),
        Some("serve-node") => serve_node(None),
        Some("serve-calls") => serve_node(Some(null_function())),
        rounds => measure(rounds.map_or(20_000, |rounds| rounds.parse().expect("a number of rounds"))),
    }
}

fn measure(rounds: usize) {
    let pause = std::time::Duration::from_millis(5);
    for _ in 0..2 {
        let (mut server, address) = spawn("serve-raw");
        let mut stream = TcpStream::connect(address).expect("it listens");
        stream.set_nodelay(true).expect("a socket takes options");
        let mut buffer = [0; 64];
        report("raw blocking TCP", rounds, || {
            stream.write_all(&buffer).expect("it reads");
            stream.read_exact(&mut buffer).expect("it answers");
        });
        drop(stream);
        server.wait().expect("it ends");

        for (role, what) in [("serve-node", "command to event"), ("serve-calls", "null call in worker")] {
            let (mut server, address) = spawn(role);
            let machine = Box::new(Echo { dial: Some(address), ..Echo::default() });
            let shared_memory = !std::env::args().any(|word| word == "--tcp");
            let config = NetConfig { shared_memory, ..NetConfig::new(keys()) };
            let node = NetNode::start_with(config, |_, _| (Role::Client, "client".into(), machine)).expect("starts");
            node.wait(None, |events| events.pop_front()).expect("it connects");
            report(what, rounds, || call(&node));
            // With pauses between calls, the background thread has taken over and is asked to step aside each time.
            report("  after 5 ms idle", rounds / 100, || {
                std::thread::sleep(pause);
                CLOCK.set(Some(Instant::now()));
                call(&node);
            });
            drop(node);
            server.wait().expect("it ends");
        }
    }
}

thread_local! {
    static CLOCK: std::cell::Cell<Option<Instant>> = const { std::cell::Cell::new(None) };
}

fn call(node: &NetNode) {
    node.command(Command::Release { data: Vec::new() });
    node.wait(None, |events| events.pop_front()).expect("it answers");
}

fn report(what: &str, rounds: usize, mut round: impl FnMut()) {
    (0..rounds / 10).for_each(|_| round());
    let mut times: Vec<_> = (0..rounds)
        .map(|_| {
            let start = Instant::now();
            round();
            CLOCK.take().unwrap_or(start).elapsed()
        })
        .collect();
    times.sort_unstable();
    println!("{what:20} p50 {:?} p99 {:?}", times[rounds / 2], times[rounds * 99 / 100]);
}

fn spawn(role: &str) -> (Child, String) {
    let program = std::env::current_exe().expect("this program has a file");
    let mut command = Process::new(program);
    let mut child = command.arg(role).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
    if role != "serve-raw" {
        send_keys(&mut child);
    }
    let mut address = String::new();
    BufReader::new(child.stdout.take().expect("piped")).read_line(&mut address).expect("it says where it listens");
    (child, address.trim().to_string())
}

fn serve_raw() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    println!("{}", listener.local_addr().expect("it is bound"));
    let (mut stream, _) = listener.accept().expect("the client comes");
    stream.set_nodelay(true).expect("a socket takes options");
    let mut buffer = [0; 64];
    while stream.read_exact(&mut buffer).is_ok() {
        stream.write_all(&buffer).expect("the client reads");
    }
}

fn serve_node(jobs: Option<JobsConfig>) {
    let id = TaskId { client: NodeId(1), serial: 1 };
    let task = Task {
        id,
        kind: TaskKind::call("k/null_call", 0),
        args: vec![],
        outputs: vec![],
        work_flops: None,
        options: Default::default(),
    };
    let machine = Box::new(Echo { task: jobs.is_some().then_some(task), ..Echo::default() });
    let config = NetConfig { listen: Some(([127, 0, 0, 1], 0).into()), jobs, ..NetConfig::new(receive_keys()) };
    let node = NetNode::start_with(config, |_, _| (Role::Server, "server".into(), machine)).expect("starts");
    println!("{}", node.address());
    node.run_with(|_| ());
}

fn null_function() -> JobsConfig {
    let library = std::env::temp_dir().join(format!("null-call-{}.so", std::process::id()));
    let mut compiler = Process::new("cc");
    compiler.args(["-shared", "-fPIC", "-x", "c", "-", "-o"]).arg(&library).stdin(Stdio::piped());
    let mut compiler = compiler.spawn().expect("there is a C compiler");
    let mut source = compiler.stdin.take().expect("piped");
    source.write_all(b"void null_call(void) {}").expect("the compiler reads");
    drop(source);
    assert!(compiler.wait().expect("it ends").success());
    let signature = Signature {
        name: "k/null_call".into(),
        params: vec![],
        callbacks: vec![],
        work: None,
        uses: vec![],
        about: String::new(),
    };
    let body = Body::Native { language: Language::C, symbol: "null_call".into(), args: vec![], result: None };
    let program = std::env::current_exe().expect("this program has a file");
    JobsConfig {
        server_name: "server".into(),
        slots: 1,
        definitions: vec![Definition { signature, body }],
        libraries: vec![library],
        worker_program: program.ancestors().nth(2).expect("it lies in a target folder").join("gridloom-worker"),
        python: "python3".into(),
        modules: vec![],
        queue_depth: 4,
        env: vec![],
        pass_env: Vec::new(),
        system_users: Default::default(),
        function_keys: None,
        slowdown: 1.0,
        limits: Default::default(),
        separation: Default::default(),
        worker_group: None,
        confinement: None,
    }
}

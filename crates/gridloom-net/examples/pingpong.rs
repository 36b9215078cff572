//! Round trips of a command: client machine, control connection, server machine and back as an event, beside a raw
//! blocking TCP ping-pong of as many bytes in the same run. Each server is a process of its own.
//!
//! `cargo run --release -p gridloom-net --example pingpong [rounds]`

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command as Process, Stdio};
use std::time::Instant;

use gridloom_core::base::{Machine, NodeId, Time};
use gridloom_core::node::{Command, Effect, Event, Input, Message, Role};
use gridloom_net::driver::{NetConfig, NetNode};

#[derive(Default)]
struct Echo {
    server: Option<NodeId>,
    dial: Option<String>,
    token: u64,
}

impl Machine for Echo {
    type Input = Input;
    type Effect = Effect;

    fn handle(&mut self, _now: Time, input: Input, effects: &mut Vec<Effect>) {
        match input {
            Input::Start => effects.extend(self.dial.take().map(|address| Effect::Dial { address })),
            Input::PeerUp { peer, .. } => {
                self.server = Some(peer);
                effects.push(Effect::Emit(Event::Log("up".into())));
            }
            Input::Command(_) => {
                self.token += 1;
                let to = self.server.expect("commands come after the connection");
                effects.push(Effect::Send { to, message: Message::Ping { token: self.token } });
            }
            Input::Received { from, message: Message::Ping { token } } => {
                effects.push(Effect::Send { to: from, message: Message::Pong { token } });
            }
            Input::Received { .. } => effects.push(Effect::Emit(Event::Log(String::new()))),
            Input::PeerLost { .. } => effects.push(Effect::Exit { why: "the client left".into() }),
            _ => {}
        }
    }
}

fn main() {
    match std::env::args().nth(1).as_deref() {
        Some("serve-raw") => serve_raw(),
        Some("serve-node") => serve_node(),
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

        let (mut server, address) = spawn("serve-node");
        let machine = Echo { dial: Some(address), ..Echo::default() };
        let config = NetConfig::default();
        let node = NetNode::start_with(config, |_, _| (Role::Client, "client".into(), Box::new(machine))).expect("starts");
        node.wait(None, |events| events.pop_front()).expect("it connects");
        report("command to event", rounds, || call(&node));
        // With pauses between, the background has taken over and is asked to step aside each time.
        report("  after 5 ms idle", rounds / 100, || {
            std::thread::sleep(pause);
            CLOCK.set(Some(Instant::now()));
            call(&node);
        });
        drop(node);
        server.wait().expect("it ends");
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
    println!("{what:18} p50 {:?} p99 {:?}", times[rounds / 2], times[rounds * 99 / 100]);
}

fn spawn(role: &str) -> (Child, String) {
    let program = std::env::current_exe().expect("this program has a file");
    let mut child = Process::new(program).arg(role).stdout(Stdio::piped()).spawn().expect("it starts");
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

fn serve_node() {
    let config = NetConfig { listen: Some(([127, 0, 0, 1], 0).into()), ..NetConfig::default() };
    let machine = Box::new(Echo::default());
    let node = NetNode::start_with(config, |_, _| (Role::Server, "server".into(), machine)).expect("starts");
    println!("{}", node.address());
    node.run_with(|_| ());
}

//! Measures sending 256 MiB from node to node over TCP bulk and by shared memory, compared with blocking sockets into
//! a warm buffer. The sender is a separate process. Then measures small round trips during a bulk transfer over TCP.
//!
//! `cargo run --release -p gridloom-net --example bulk [MiB]`

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command as Process, Stdio};
use std::time::Instant;

use gridloom_base::{DatumId, Dtype, Level, Machine, Meta, NodeId, Time};
use gridloom_core::node::message::{DataMessage, LinkMessage, Message};
use gridloom_core::node::{Category, Command, Effect, Event, Input, LogLine, Role};
use gridloom_net::driver::{NetConfig, NetNode};
use gridloom_net::payload::Payload;

use support::{keys, receive_keys, send_keys};

const DATUM: DatumId = DatumId { client: NodeId(0), serial: 0 };
const ROUNDS: usize = 7;

/// Sends its datum to each node that pings; requests it at each command, after dropping its copy.
#[derive(Default)]
struct Mover {
    server: Option<NodeId>,
    dial: Option<String>,
}

impl Machine for Mover {
    type Input = Input;
    type Effect = Effect;

    fn handle(&mut self, _now: Time, input: Input, effects: &mut Vec<Effect>) {
        match input {
            Input::Start => effects.extend(self.dial.take().map(|address| Effect::Dial { address })),
            Input::PeerUp { peer, .. } => {
                self.server = Some(peer);
                effects.push(said("up"));
            }
            Input::Command(Command::Cancel { .. }) => {
                let to = self.server.expect("commands come after the connection");
                effects.push(Effect::Send { to, message: LinkMessage::Ping { token: 0 }.into() });
            }
            Input::Received { from, message: Message::Link(LinkMessage::Ping { token }) } => {
                effects.push(Effect::Send { to: from, message: LinkMessage::Pong { token }.into() });
            }
            Input::Received { message: Message::Link(LinkMessage::Pong { .. }), .. } => {
                effects.push(said("pong"));
            }
            Input::Command(_) => {
                let to = self.server.expect("commands come after the connection");
                effects.push(Effect::DropDatum { datum: DATUM });
                effects.push(Effect::Send {
                    to,
                    message: DataMessage::Fetch { datum: DATUM, hops: 1, by_storage: false }.into(),
                });
            }
            Input::Received { from, .. } => effects.push(Effect::SendDatum { to: from, datum: DATUM }),
            Input::DatumArrived { .. } => effects.push(said("here")),
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
    let arg = |at| std::env::args().nth(at).map(|text: String| text.parse::<usize>().expect("a size in MiB"));
    match std::env::args().nth(1).as_deref() {
        Some("serve-raw") => serve_raw(arg(2).expect("size") << 20),
        Some("serve-tcp") => serve_node(arg(2).expect("size") << 20, false),
        Some("serve-shm") => serve_node(arg(2).expect("size") << 20, true),
        _ => measure(arg(1).unwrap_or(256)),
    }
}

fn measure(mib: usize) {
    let (mut server, address) = spawn("serve-raw", mib);
    let mut stream = TcpStream::connect(address).expect("it listens");
    let mut buffer = vec![1; mib << 20];
    report("blocking sockets, warm buffer", mib, || {
        stream.write_all(&[1]).expect("it reads");
        stream.read_exact(&mut buffer).expect("it sends");
    });
    drop(stream);
    server.wait().expect("it ends");
    for (role, what, shared_memory) in
        [("serve-tcp", "TCP bulk", false), ("serve-shm", "shared memory, handed over", true)]
    {
        let (mut server, address) = spawn(role, mib);
        let machine = Mover { dial: Some(address), ..Mover::default() };
        let config = NetConfig { shared_memory, ..NetConfig::new(keys()) };
        let make = |_, _: &str| (Role::Client, "client".into(), Box::new(machine) as _);
        let node = NetNode::start_with(config, make).expect("starts");
        node.wait(None, |events| events.pop_front()).expect("it connects");
        let fetch = || {
            node.command(Command::Release { data: Vec::new() });
            node.wait(None, |events| events.pop_front()).expect("it arrives");
        };
        report(what, mib, fetch);
        if !shared_memory {
            round_trips_under_load(&node);
        }
        if shared_memory {
            report("  and every page looked at", mib, || {
                fetch();
                let payload = node.store().get(&DATUM).expect("it is here").1;
                assert_eq!(payload.bytes().iter().step_by(4096).filter(|byte| **byte == 1).count(), mib << 8);
            });
        }
        drop(node);
        server.wait().expect("it ends");
    }
}

/// Measures small round trips during incoming transfers, one after another.
fn round_trips_under_load(node: &NetNode) {
    let is = |event: &Event, what: &str| matches!(event, Event::Log(line) if line.text == what);
    let mut times = Vec::new();
    for _ in 0..4 {
        node.command(Command::Release { data: Vec::new() });
        let mut here = false;
        while !here {
            let start = Instant::now();
            node.command(Command::Cancel { tasks: Vec::new() });
            node.wait(None, |events| {
                here |= events.iter().any(|event| is(event, "here"));
                events.drain(..).any(|event| is(&event, "pong")).then_some(())
            });
            times.push(start.elapsed());
        }
    }
    times.sort_unstable();
    let (half, most) = (times[times.len() / 2], times[times.len() * 99 / 100]);
    println!("  round trips meanwhile: {} with p50 {half:?} p99 {most:?}", times.len());
}

fn report(what: &str, mib: usize, mut round: impl FnMut()) {
    let mut times: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            round();
            start.elapsed().as_secs_f64()
        })
        .collect();
    let first = times[0];
    times.sort_by(f64::total_cmp);
    let rate = |seconds: f64| mib as f64 / 1024.0 / seconds;
    println!(
        "{what:30} median {:7.2} GiB/s ({:8.3} ms), first {:7.2}, best {:7.2}",
        rate(times[ROUNDS / 2]),
        times[ROUNDS / 2] * 1e3,
        rate(first),
        rate(times[0])
    );
}

fn spawn(role: &str, mib: usize) -> (Child, String) {
    let program = std::env::current_exe().expect("this program has a file");
    let args = [role, &mib.to_string()];
    let mut command = Process::new(program);
    let mut child = command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
    if role != "serve-raw" {
        send_keys(&mut child);
    }
    let mut address = String::new();
    BufReader::new(child.stdout.take().expect("piped")).read_line(&mut address).expect("it says where it listens");
    (child, address.trim().to_string())
}

fn serve_raw(size: usize) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let data = vec![1u8; size];
    println!("{}", listener.local_addr().expect("it is bound"));
    let (mut stream, _) = listener.accept().expect("the client comes");
    while stream.read_exact(&mut [0]).is_ok() {
        stream.write_all(&data).expect("the client reads");
    }
}

fn serve_node(size: usize, shared_memory: bool) {
    let config =
        NetConfig { listen: Some(([127, 0, 0, 1], 0).into()), shared_memory, ..NetConfig::new(receive_keys()) };
    let machine = Box::new(Mover::default());
    let node = NetNode::start_with(config, |_, _| (Role::Server, "server".into(), machine)).expect("starts");
    let mut memory = node.store().pool().allocate(size as u64).expect("there is memory");
    memory.bytes_mut().fill(1);
    node.store().put(DATUM, Meta::array(Dtype::Uint8, &[size as u64]), Payload::segment(memory.freeze()));
    println!("{}", node.address());
    node.run_with(|_| ());
}

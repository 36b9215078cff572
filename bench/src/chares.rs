//! Message-driven objects: a message within an element and between two processes, and a million chares.

use std::process::Command;
use std::time::Instant;

use gridloom::Message;
use gridloom::chares::{self, AsyncContext, Callback, Chare, Context, Contribution, Job, Placement, Value};

use crate::Figure;
use crate::limits::Peer;
use crate::stats::Samples;

const ROUNDS: usize = 7;
/// Messages per round between two chares of one element.
const LOCAL: u32 = 4_000_000;
/// Round trips per round between two processes.
const TRIPS: u32 = 10_000;
/// Messages per round with a timeline, which has room for a million.
const TRACED: u32 = 1_000_000;
const MILLION: usize = 1_000_000;

pub(crate) fn figures() -> Vec<Figure> {
    vec![within_an_element(), awaited_within_an_element(), with_a_timeline(), between_processes(), million()]
}

#[derive(Clone, Message)]
enum PlayerMessage {
    Ball { left: u32 },
    Count,
}

/// Sends a ball back.
struct Player {
    began: f64,
}

impl Chare for Player {
    type Message = PlayerMessage;

    fn entry(&mut self, message: PlayerMessage, cx: &mut Context<'_, Player>) {
        let PlayerMessage::Ball { left } = message else { return };
        if self.began == 0.0 {
            self.began = cx.now();
        }
        match left {
            0 => cx.exit(cx.now() - self.began),
            _ => {
                let other = 1 - cx.index()[0];
                cx.send(cx.array().at(other), PlayerMessage::Ball { left: left - 1 });
            }
        }
    }
}

fn play(messages: u32) -> impl Fn(&mut Job<'_>) -> Result<(), gridloom::Error> {
    move |job| {
        let players = job.array(2, Placement::Blocks, |_| Player { began: 0.0 })?;
        job.start(|cx| cx.send(players.at(0), PlayerMessage::Ball { left: messages }));
        Ok(())
    }
}

/// Waits for the ball, and sends it back.
struct Waiter;

impl Chare for Waiter {
    type Message = PlayerMessage;

    fn entry(&mut self, ask: PlayerMessage, cx: &mut Context<'_, Waiter>) {
        cx.keep(ask);
    }
}

impl Waiter {
    async fn run(cx: AsyncContext<Waiter>) {
        let own = cx.index()[0];
        let other = cx.array().at(1 - own);
        if own == 0 {
            cx.send(other.clone(), PlayerMessage::Ball { left: LOCAL });
        }
        let began = cx.now();
        while let PlayerMessage::Ball { left } = cx.receive().await {
            match left {
                0 => cx.exit(cx.now() - began),
                _ => cx.send(other.clone(), PlayerMessage::Ball { left: left - 1 }),
            }
        }
    }
}

/// Nanoseconds per message of a program that reports its seconds.
fn each(program: impl Fn(&mut Job<'_>) -> Result<(), gridloom::Error> + Send + Sync + 'static) -> f64 {
    let ended = chares::run(program).expect("it ends");
    ended.value.float().expect("seconds") * 1e9 / f64::from(LOCAL)
}

fn awaited_within_an_element() -> Figure {
    let waiting = |job: &mut Job<'_>| {
        let waiters = job.array(2, Placement::Blocks, |_| Waiter)?;
        job.spawn(waiters, Waiter::run);
        Ok(())
    };
    let both = (0..ROUNDS).map(|_| (each(waiting), each(play(LOCAL))));
    let (awaited, plain): (Vec<f64>, Vec<f64>) = both.unzip();
    Figure {
        name: "awaited message between two chares of an element, ns",
        ours: format!("{:.0}", Samples::new(awaited.clone()).median()),
        limit: format!("{:.0} (plain)", Samples::new(plain.clone()).median()),
        ratios: awaited.iter().zip(&plain).map(|(awaited, plain)| awaited / plain).collect(),
        aim: "",
    }
}

fn within_an_element() -> Figure {
    let ns: Vec<f64> = (0..ROUNDS).map(|_| each(play(LOCAL))).collect();
    Figure {
        name: "message between two chares of an element, ns",
        ours: format!("{:.0}", Samples::new(ns.clone()).median()),
        limit: "300".into(),
        ratios: ns.iter().map(|ns| ns / 300.0).collect(),
        aim: "below 1",
    }
}

/// A message within an element started by `gridloom chares run`, with and without `--trace`.
fn with_a_timeline() -> Figure {
    let file = std::env::temp_dir().join(format!("gridloom-bench-{}.json", std::process::id()));
    let trace = file.display().to_string();
    let round = |options: &[&str]| seconds_of(options, TRACED) * 1e9 / f64::from(TRACED);
    let (mut plain, mut traced) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        plain.push(round(&["-n", "1"]));
        traced.push(round(&["-n", "1", "--trace", &trace]));
    }
    std::fs::remove_file(file).expect("the timeline was written");
    Figure {
        name: "message within an element with --trace, ns",
        ours: format!("{:.0}", Samples::new(traced.clone()).median()),
        limit: format!("{:.0} (without)", Samples::new(plain.clone()).median()),
        ratios: traced.iter().zip(&plain).map(|(traced, plain)| traced / plain).collect(),
        aim: "",
    }
}

/// Seconds of a program with that many messages, under `gridloom chares run`.
fn seconds_of(options: &[&str], messages: u32) -> f64 {
    let own = std::env::current_exe().expect("this program");
    let mut command = Command::new(gridloom::program_path(None));
    command.args(["chares", "run"]).args(options).arg("--").arg(&own).args(["--chares", &messages.to_string()]);
    let out = command.output().expect("gridloom is built beside this program");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let seconds = text.trim().rsplit(' ').next().and_then(|word| word.parse::<f64>().ok());
    seconds.expect("seconds")
}

/// A program of elements, started by `seconds_of`.
pub fn child(messages: Option<u32>) {
    let ended = chares::run(play(messages.expect("how many messages"))).expect("it ends");
    if ended.is_first {
        println!("seconds {}", ended.value.float().expect("seconds"));
    }
}

fn between_processes() -> Figure {
    let round = || seconds_of(&["-n", "2"], 2 * TRIPS) * 1e6 / f64::from(TRIPS);
    let (mut ours, mut limits, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let mut peer = Peer::start();
        let trips = peer.round_trips(TRIPS as usize);
        let limit = trips.iter().sum::<f64>() / trips.len() as f64;
        drop(peer);
        let our = round();
        ours.push(our);
        limits.push(limit);
        ratios.push(our / limit);
    }
    Figure {
        name: "round trip of two chares in two processes, mean, us",
        ours: format!("{:.1}", Samples::new(ours).median()),
        limit: format!("{:.1} (TCP ping-pong)", Samples::new(limits).median()),
        ratios,
        aim: "at most 2",
    }
}

/// Eight bytes of state.
struct Small {
    count: u64,
}

impl Chare for Small {
    type Message = PlayerMessage;

    fn entry(&mut self, _: PlayerMessage, cx: &mut Context<'_, Small>) {
        self.count += 1;
        cx.contribute(Contribution::sum(self.count as i64), Callback::exit());
    }
}

fn million() -> Figure {
    let mut seconds = Vec::new();
    let (mut bytes_each, mut all_ns) = (0.0, Vec::new());
    for _ in 0..ROUNDS {
        let (before, began) = (resident_bytes(), Instant::now());
        let made = std::sync::Arc::new(std::sync::Mutex::new((0.0, 0.0)));
        let noted = made.clone();
        let ended = chares::run(move |job| {
            let small = job.array(MILLION, Placement::Blocks, |_| Small { count: 0 })?;
            let bytes = (resident_bytes() - before) / MILLION as f64;
            *noted.lock().expect("one thread") = (began.elapsed().as_secs_f64(), bytes);
            job.start(|cx| cx.send(small.all(), PlayerMessage::Count));
            Ok(())
        });
        assert_eq!(ended.expect("it ends").value, Value::from(MILLION as i64));
        let (made_s, bytes) = *made.lock().expect("one thread");
        all_ns.push((began.elapsed().as_secs_f64() - made_s) * 1e9 / MILLION as f64);
        // Later rounds reuse the memory of earlier ones.
        bytes_each = f64::max(bytes_each, bytes);
        seconds.push(made_s);
    }
    let (made_ms, all_ns) = (Samples::new(seconds.clone()).median() * 1e3, Samples::new(all_ns).median());
    Figure {
        name: "1,000,000 chares of 8 bytes are made, ms",
        ours: format!("{made_ms:.1}; {bytes_each:.0} bytes each, {all_ns:.0} ns to reach and sum"),
        limit: "1000".into(),
        ratios: seconds,
        aim: "below 1",
    }
}

fn resident_bytes() -> f64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: f64 = text.split_whitespace().nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0.0);
    pages * 4096.0
}

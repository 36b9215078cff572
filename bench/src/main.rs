//! Gridloom's figures compared with the limits of the machine, measured in one run: `make bench`.
//!
//! With arguments (`start`, `null`, `grpc`, `calls`, `bulk`, `mapping`, `layout`, `chares`, `sim`), measures only those
//! figures. `tls`, `pipelined`, `sim-long`, `sim-big` and `scale-N`, a grid of N servers, are measured only if they are named.
//!
//! Prints a table and writes `out/bench/figures.json`. Each figure is the median over several rounds in which the limit
//! is measured too; the spread is the range from the smallest to the largest of the rounds' ratios.

mod chares;
mod grpc;
mod layout;
mod limits;
mod lone_agent;
mod scale;
mod simulation;
mod stats;
mod tls;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use gridloom::{Function, Grid, LocalConfig, Value};
use gridloom_base::{Dtype, Meta, NodeId};
use gridloom_map::{Outline, OutlineDatum, OutlineTask, map_group};
use gridloom_net::payload::Payload;
use gridloom_perf::{FunctionModel, GridView, LinkEstimate, ServerView};
use limits::Peer;
use serde_json::{Value as Json, json};
use stats::Samples;

const ROUNDS: usize = 7;
const CALLS: usize = 4_000;
const BULK_BYTES: u64 = 256 << 20;

struct Figure {
    name: &'static str,
    ours: String,
    limit: String,
    ratios: Vec<f64>,
    aim: &'static str,
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if arguments.get(1).map(String::as_str) == Some("--peer") {
        limits::peer(&arguments[2]);
        return;
    }
    if arguments.get(1).map(String::as_str) == Some("--simulation") {
        simulation::child(&arguments[2]);
        return;
    }
    if arguments.get(1).map(String::as_str) == Some("--chares") {
        chares::child(arguments.get(2).and_then(|number| number.parse().ok()));
        return;
    }
    if arguments.get(1).map(String::as_str) == Some("--frames") {
        layout::print_frames();
        return;
    }
    let out = PathBuf::from("out/bench");
    std::fs::create_dir_all(&out).expect("out/bench can be made");
    let simulations_only = arguments.len() > 1
        && arguments[1..].iter().all(|argument| argument.starts_with("sim") || argument.starts_with("scale"));
    let config = if simulations_only { LocalConfig::default() } else { build_kernels(&out) };
    let wanted = |part: &str| arguments.len() < 2 || arguments[1..].iter().any(|argument| argument == part);
    let named = |part: &str| arguments[1..].iter().any(|argument| argument == part);
    let mut figures = Vec::new();
    if wanted("start") {
        figures.extend([start_up(&config), idle_memory(&config)]);
    }
    if wanted("null") || wanted("grpc") || named("tls") {
        let all = rustix::thread::sched_getaffinity(None).expect("this thread has processors");
        let mut one = rustix::thread::CpuSet::new();
        let first = (0..rustix::thread::CpuSet::MAX_CPU).find(|cpu| all.is_set(*cpu));
        one.set(first.expect("this thread has processors"));
        // Processes inherit the processors that this thread may use. On one processor the scheduler has no choice to
        // make, so Gridloom's figure and the limit can be compared; on several, each may be placed differently.
        rustix::thread::sched_setaffinity(None, &one).expect("the processor was just listed");
        if wanted("grpc") {
            figures.push(grpc::null_call(&out, "null grpc_call from C, one core, p50, us"));
        }
        if wanted("null") {
            figures.push(null_call(&config, "null call, one outstanding, one core, p50, us"));
            let tcp = LocalConfig { shared_memory: false, ..config.clone() };
            figures.push(null_call(&tcp, "null call over TCP, one core, p50, us"));
        }
        if named("tls") {
            figures.extend(tls::on_one_core(&config));
        }
        rustix::thread::sched_setaffinity(None, &all).expect("as before");
        if wanted("null") {
            figures.push(null_call(&config, "null call, one outstanding, all cores, p50, us"));
        }
        if wanted("grpc") {
            figures.push(grpc::outstanding(&out));
        }
    }
    if named("tls") {
        figures.push(tls::bulk(&config));
    }
    if wanted("calls") {
        figures.extend([pipelined_calls(&config), under_bulk_calls(&config)]);
    }
    if named("pipelined") {
        figures.push(pipelined_calls(&config));
    }
    if wanted("bulk") {
        figures.extend([bulk(&config, false), bulk(&config, true), server_to_server(&config)]);
    }
    if wanted("mapping") {
        figures.push(mapping());
    }
    if wanted("layout") {
        figures.extend(layout::figures());
    }
    if wanted("chares") {
        figures.extend(chares::figures());
    }
    for servers in arguments[1..].iter().filter_map(|argument| argument.strip_prefix("scale-")?.parse().ok()) {
        figures.extend(scale::figures(servers));
    }
    figures.extend(simulation::figures(|part| if part == "sim" { wanted(part) } else { named(part) }));
    println!("{:<46} {:>22} {:>22} {:>16}  aim", "figure (median)", "Gridloom", "limit", "ratio (spread)");
    for figure in &figures {
        let ratios = Samples::new(figure.ratios.clone());
        let (least, middle, most) = (ratios.quantile(0.0), ratios.median(), ratios.quantile(1.0));
        // NaN if there is nothing to compare with.
        let known = !middle.is_nan();
        let ratio = if known { format!("{middle:.2} ({least:.2}..{most:.2})") } else { String::new() };
        println!("{:<46} {:>22} {:>22} {ratio:>16}  {}", figure.name, figure.ours, figure.limit, figure.aim);
    }
    let json: Vec<Json> = figures
        .iter()
        .map(|f| json!({"name": f.name, "ours": f.ours, "limit": f.limit, "ratios": f.ratios, "aim": f.aim}))
        .collect();
    let path = out.join("figures.json");
    std::fs::write(&path, serde_json::to_string_pretty(&json).expect("plain values")).expect("out/bench is writable");
    println!("written to {}", path.display());
}

fn build_kernels(out: &Path) -> LocalConfig {
    let (source, library, idl) = (out.join("kernels.c"), out.join("libkernels.so"), out.join("kernels.idl"));
    std::fs::write(&source, include_str!("kernels.c")).expect("out/bench is writable");
    std::fs::write(&idl, include_str!("kernels.idl")).expect("out/bench is writable");
    let status = Command::new("cc").args(["-O2", "-shared", "-fPIC", "-o"]).arg(&library).arg(&source).status();
    assert!(status.expect("a C compiler").success(), "the kernels compile");
    let library = library.canonicalize().expect("just compiled");
    LocalConfig { servers: 1, functions: vec![idl], libraries: vec![library], ..LocalConfig::default() }
}

fn local(config: &LocalConfig) -> Grid {
    Grid::local(config.clone()).expect("the local grid starts")
}

fn start_up(config: &LocalConfig) -> Figure {
    let config = LocalConfig { servers: 4, ..config.clone() };
    let seconds: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            let grid = local(&config);
            grid.function("bench/null").expect("offered").call(()).expect("it runs");
            start.elapsed().as_secs_f64()
        })
        .collect();
    let median = Samples::new(seconds.clone()).median();
    Figure {
        name: "start of agent and 4 servers to first result, s",
        ours: format!("{median:.3}"),
        limit: "0.5".into(),
        ratios: seconds.iter().map(|s| s / 0.5).collect(),
        aim: "below 1",
    }
}

fn idle_memory(config: &LocalConfig) -> Figure {
    let config = LocalConfig { servers: 4, ..config.clone() };
    let grid = local(&config);
    let children = children_of(std::process::id());
    let mib: f64 = children.iter().map(|pid| proportional_memory_kib(*pid)).sum::<f64>() / 1024.0;
    drop(grid);
    Figure {
        name: "idle memory of agent and 4 servers, MiB (PSS)",
        ours: format!("{mib:.1}"),
        limit: "80".into(),
        ratios: vec![mib / 80.0],
        aim: "below 1",
    }
}

fn children_of(pid: u32) -> Vec<u32> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    text.split_whitespace().filter_map(|child| child.parse().ok()).collect()
}

fn proportional_memory_kib(pid: u32) -> f64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("Pss:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).unwrap_or(0.0)
}

fn null_call(config: &LocalConfig, name: &'static str) -> Figure {
    let grid = local(config);
    let null = grid.function("bench/null").expect("offered");
    against_ping_pong(name, || one_by_one(|| drop(null.call(()).expect("it runs")), CALLS))
}

/// The median of the times that `round` measures, in microseconds, compared with a ping-pong over TCP.
fn against_ping_pong(name: &'static str, mut round: impl FnMut() -> Vec<f64>) -> Figure {
    let mut peer = Peer::start();
    let (mut ours, mut limits, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let limit = Samples::new(peer.round_trips(CALLS)).median();
        let our = Samples::new(round()).median();
        ours.push(our);
        limits.push(limit);
        ratios.push(our / limit);
    }
    Figure {
        name,
        ours: format!("{:.1}", Samples::new(ours).median()),
        limit: format!("{:.1} (TCP ping-pong)", Samples::new(limits).median()),
        ratios,
        aim: "at most 3",
    }
}

fn pipelined_calls(config: &LocalConfig) -> Figure {
    let grid = local(config);
    let null = grid.function("bench/null").expect("offered");
    let rates: Vec<f64> = (0..ROUNDS).map(|_| pipelined(&null, 100_000, 512)).collect();
    Figure {
        name: "pipelined null calls, 1/s",
        ours: format!("{:.0}", Samples::new(rates.clone()).median()),
        limit: "150000".into(),
        ratios: rates.iter().map(|rate| rate / 150_000.0).collect(),
        aim: "at least 1",
    }
}

fn under_bulk_calls(config: &LocalConfig) -> Figure {
    let grid = local(config);
    let null = grid.function("bench/null").expect("offered");
    let mut peer = Peer::start();
    let (mut p99s, mut limits, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let limit = under_bulk_limit(&mut peer);
        let ours = under_bulk(&grid, &null);
        p99s.push(ours);
        limits.push(limit);
        ratios.push(ours / limit);
    }
    Figure {
        name: "null call under bulk, p99, us",
        ours: format!("{:.0}", Samples::new(p99s).median()),
        limit: format!("{:.0} (two TCP)", Samples::new(limits).median()),
        ratios,
        aim: "at most 3",
    }
}

fn one_by_one(mut call: impl FnMut(), count: usize) -> Vec<f64> {
    (0..count)
        .map(|_| {
            let start = Instant::now();
            call();
            start.elapsed().as_secs_f64() * 1e6
        })
        .collect()
}

fn pipelined(null: &Function, count: usize, outstanding: usize) -> f64 {
    let start = Instant::now();
    let mut window = std::collections::VecDeque::with_capacity(outstanding);
    for _ in 0..count {
        if window.len() == outstanding {
            let oldest: gridloom::PendingCall = window.pop_front().expect("the window is full");
            oldest.wait().expect("it runs");
        }
        window.push_back(null.submit((), &[], None).expect("it fits"));
    }
    for call in window {
        call.wait().expect("it runs");
    }
    count as f64 / start.elapsed().as_secs_f64()
}

fn under_bulk_limit(peer: &mut Peer) -> f64 {
    let mut bulk = peer.bulk();
    let done = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let stop = done.clone();
    let busy = std::thread::spawn(move || {
        use std::io::{Read, Write};
        let data = vec![1u8; 64 << 20];
        while !stop.load(std::sync::atomic::Ordering::Relaxed) {
            bulk.write_all(&(data.len() as u64).to_le_bytes()).expect("the peer lives");
            bulk.write_all(&data).expect("the peer lives");
            bulk.read_exact(&mut [0]).expect("the peer lives");
        }
    });
    let p99 = Samples::new(peer.round_trips(CALLS)).quantile(0.99);
    done.store(true, std::sync::atomic::Ordering::Relaxed);
    busy.join().expect("the bulk thread ends");
    p99
}

fn under_bulk(grid: &Grid, null: &Function) -> f64 {
    let done = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let stop = done.clone();
    let touch = grid.function("bench/touch").expect("offered");
    let busy = std::thread::spawn(move || {
        let data: std::sync::Arc<[u8]> = vec![1u8; 64 << 20].into();
        let meta = Meta::array(Dtype::Float64, &[8 << 20]);
        while !stop.load(std::sync::atomic::Ordering::Relaxed) {
            let value = Value::new(meta.clone(), Payload::Inline(data.clone())).expect("it fits");
            touch.call([value]).expect("it runs");
        }
    });
    let p99 = Samples::new(one_by_one(|| drop(null.call(()).expect("it runs")), CALLS)).quantile(0.99);
    done.store(true, std::sync::atomic::Ordering::Relaxed);
    busy.join().expect("the bulk thread ends");
    p99
}

/// Measures the transfer of an array from client to server, in GiB/s, from the call to its return.
fn bulk(config: &LocalConfig, shared_memory: bool) -> Figure {
    let grid = local(&LocalConfig { shared_memory, ..config.clone() });
    let touch = grid.function("bench/touch").expect("offered");
    let mut peer = Peer::start();
    let data: std::sync::Arc<[u8]> = vec![1u8; BULK_BYTES as usize].into();
    let gib = BULK_BYTES as f64 / f64::from(1 << 30);
    peer.send(&data);
    let mut segment = grid.allocate(BULK_BYTES).expect("memory");
    segment.bytes_mut().fill(1);
    let shared = Payload::segment(segment.freeze());
    let (mut ours, mut limits, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        let limit = gib / peer.send(&data);
        let meta = Meta::array(Dtype::Float64, &[BULK_BYTES / 8]);
        let payload = if shared_memory { shared.clone() } else { Payload::Inline(data.clone()) };
        let value = Value::new(meta, payload).expect("it fits");
        let start = Instant::now();
        touch.call([value]).expect("it runs");
        let rate = gib / start.elapsed().as_secs_f64();
        // The first round only warms the receiving memory, as in the measurement of the limit.
        if round > 0 {
            ours.push(rate);
            limits.push(limit);
            ratios.push(rate / limit);
        }
    }
    Figure {
        name: match shared_memory {
            true => "256 MiB client to server, shared memory, GiB/s",
            false => "256 MiB client to server, TCP, GiB/s",
        },
        ours: format!("{:.2}", Samples::new(ours).median()),
        limit: format!("{:.2} (blocking TCP)", Samples::new(limits).median()),
        ratios,
        aim: if shared_memory { "above 1" } else { "at least 0.7" },
    }
}

/// A result that is sent from server to server over TCP, by the times of the report's transfers.
fn server_to_server(config: &LocalConfig) -> Figure {
    let grid = local(&LocalConfig { servers: 2, shared_memory: false, ..config.clone() });
    let keep = grid.function("bench/keep").expect("offered");
    let mut peer = Peer::start();
    let data: std::sync::Arc<[u8]> = vec![1u8; BULK_BYTES as usize / 2].into();
    let elements = BULK_BYTES / 16;
    let gib = data.len() as f64 / f64::from(1 << 30);
    peer.send(&data);
    let (mut ours, mut limits, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        let limit = gib / peer.send(&data);
        let group = grid.group("round-robin");
        let meta = Meta::array(Dtype::Float64, &[elements]);
        let value = Value::new(meta, Payload::Inline(data.clone())).expect("it fits");
        let first = group.call(&keep, [value]).expect("it fits").one().expect("one result");
        let second = group.call(&keep, [&first]).expect("it fits").one().expect("one result");
        let report = group.report().expect("the session lives");
        drop(second);
        let moved = report.transfers.iter().find(|t| t.from.starts_with("server") && t.to.starts_with("server"));
        let moved = moved.expect("round-robin gives the two calls to two servers");
        let rate = gib / (moved.end_seconds - moved.start_seconds);
        if round > 0 {
            ours.push(rate);
            limits.push(limit);
            ratios.push(rate / limit);
        }
    }
    Figure {
        name: "128 MiB server to server, TCP, GiB/s",
        ours: format!("{:.2}", Samples::new(ours).median()),
        limit: format!("{:.2} (blocking TCP)", Samples::new(limits).median()),
        ratios,
        aim: "at least 0.7",
    }
}

/// Maps a layered graph of 10,000 tasks onto 16 servers by heft.
fn mapping() -> Figure {
    let (tasks, servers) = (10_000u32, 16u64);
    let mut outline = Outline { functions: vec!["m/f".into()], ..Outline::default() };
    for number in 0..tasks {
        let inputs = match number {
            0..=99 => vec![],
            _ => {
                let mut inputs = vec![number - 100, (number - 100) / 100 * 100 + (number * 7 + 3) % 100];
                inputs.sort_unstable();
                inputs.dedup();
                inputs
            }
        };
        let work_flops = Some(1e8 * f64::from(1 + number % 17));
        outline.tasks.push(OutlineTask { function: 0, work_flops, inputs, outputs: vec![number], bound_to: None });
        outline.data.push(OutlineDatum {
            size_bytes: 1 << 20,
            producer: Some(number),
            at: vec![],
            wanted: false,
            name: None,
            method: Default::default(),
        });
    }
    let link = LinkEstimate { latency_s: 1e-4, bandwidth: 1e9 };
    let grid = GridView {
        servers: (0..servers)
            .map(|number| ServerView {
                node: NodeId(number + 1),
                name: format!("server-{number:02}"),
                address: String::new(),
                slots: 1,
                stateless: false,
                memory_bytes: 1 << 40,
                speed_flops: Some(1e9 * (1 + number % 4) as f64),
                pace: 1.0,
                functions: [("m/f".to_string(), FunctionModel::default())].into(),
                busy_s: vec![0.0],
                release: String::new(),
                protocol: 0,
            })
            .collect(),
        client_links: vec![link; servers as usize],
        links: (0..servers).map(|i| (0..servers).map(|j| (i != j).then_some(link)).collect()).collect(),
        bottlenecks: Vec::new(),
    };
    let seconds: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            map_group("heft", &outline, &grid, NodeId(1000)).expect("it can be mapped");
            start.elapsed().as_secs_f64()
        })
        .collect();
    Figure {
        name: "heft, 10,000 tasks onto 16 servers, s",
        ours: format!("{:.4}", Samples::new(seconds.clone()).median()),
        limit: "0.1".into(),
        ratios: seconds.iter().map(|s| s / 0.1).collect(),
        aim: "below 1",
    }
}

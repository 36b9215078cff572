//! Measures the round trip of a null call through a worker process, calls per second with a queue, and large results per second.
//!
//! `cargo run --release -p gridloom-net --example worker_latency -- target/release/gridloom-worker`

#[path = "../tests/common/mod.rs"]
mod common;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use common::*;
use gridloom_base::{Dtype, Meta};
use gridloom_idl::Mode;
use gridloom_idl::expr::Expr;
use gridloom_net::jobs::measure_speed;

const CALLS: usize = 20_000;
const BYTES: u64 = 64 << 20;

fn main() {
    let worker = std::env::args().nth(1).expect("the path of gridloom-worker");
    let fill = vec![
        scalar("n", Mode::In, Dtype::Int64),
        scalar("value", Mode::In, Dtype::Float64),
        array("out", Mode::Out, Dtype::Float64, vec![Expr::Param(0)]),
    ];
    let add = vec![
        scalar("a", Mode::In, Dtype::Float64),
        scalar("b", Mode::In, Dtype::Float64),
        scalar("sum", Mode::Out, Dtype::Float64),
    ];
    let definitions = vec![native("null_call", vec![]), native("add", add), native("fill", fill)];
    let mut bench = Bench::with(1, 64, definitions, vec![library()], PathBuf::from(worker));

    for (name, args, awake_us) in [("null", 0, 0), ("add", 2, 0), ("null", 0, 100), ("add", 2, 100)] {
        bench.awake = Duration::from_micros(awake_us);
        let mut times: Vec<Duration> = Vec::with_capacity(CALLS);
        for _ in 0..CALLS {
            let begin = Instant::now();
            let (symbol, outs) =
                if args == 0 { ("null_call", vec![]) } else { ("add", vec![Meta::scalar(Dtype::Float64)]) };
            let task = bench.start(symbol, (0..args).map(|_| number(1.0)).collect(), outs);
            bench.wait(&task).expect("the call succeeds");
            times.push(begin.elapsed());
            for output in &task.outputs {
                bench.store.remove(&output.datum);
            }
        }
        times.sort();
        println!(
            "{name} call, poller awake {awake_us} us: p50 {:?}, p99 {:?}",
            times[CALLS / 2],
            times[CALLS * 99 / 100]
        );
    }

    bench.awake = Duration::ZERO;
    let begin = Instant::now();
    let mut ended = 0;
    let mut started = 0;
    while ended < CALLS {
        while started < CALLS && started - ended < 64 {
            bench.start("null_call", vec![], vec![]);
            started += 1;
        }
        bench.turn();
        ended += std::mem::take(&mut bench.ended).len();
    }
    println!("null calls, 64 in flight: {:.0} calls/s", CALLS as f64 / begin.elapsed().as_secs_f64());

    let n = BYTES / 8;
    for round in ["cold", "warm", "warm"] {
        let begin = Instant::now();
        let meta = vec![Meta::array(Dtype::Float64, &[n])];
        let task = bench.start("fill", vec![count(n as i64), number(1.0)], meta);
        bench.wait(&task).expect("the call succeeds");
        let taken = begin.elapsed().as_secs_f64();
        println!("result of 64 MiB, {round} memory: {:.2} GiB/s", BYTES as f64 / taken / f64::from(1 << 30));
        bench.store.remove(&task.outputs[0].datum);
    }
    println!("speed of one core: {:.2} Gflop/s", measure_speed() / 1e9);
}

//! Calls and transfers over TCP compared with rustls over blocking sockets, and handshakes.

use std::sync::Arc;
use std::time::Instant;

use gridloom::{LocalConfig, Value};
use gridloom_base::{Dtype, Meta};
use gridloom_net::payload::Payload;

use crate::limits::Rustls;
use crate::stats::Samples;
use crate::{BULK_BYTES, CALLS, Figure, ROUNDS, local, one_by_one};

/// Handshakes of a round.
const HANDSHAKES: usize = 300;

/// Calls and handshakes, of processes that share a processor.
pub(crate) fn on_one_core(config: &LocalConfig) -> Vec<Figure> {
    vec![null_call(config), handshake("full", f64::NAN), handshake("resumed", 1000.0)]
}

fn null_call(config: &LocalConfig) -> Figure {
    let grid = local(&LocalConfig { shared_memory: false, ..config.clone() });
    let null = grid.function("bench/null").expect("offered");
    let mut rustls = Rustls::start();
    let round = || {
        let limit = rustls.measure("ping", CALLS);
        let our = Samples::new(one_by_one(|| drop(null.call(()).expect("it runs")), CALLS)).median();
        (our, limit)
    };
    figure("null call over TCP, one core, p50, us", round, "at most 1.2")
}

/// Measures handshakes of rustls with the configurations of nodes. `limit` is the time that they may take, in microseconds.
fn handshake(kind: &'static str, limit: f64) -> Figure {
    let mut rustls = Rustls::start();
    let times: Vec<f64> = (0..ROUNDS).map(|_| rustls.measure(kind, HANDSHAKES)).collect();
    let has_limit = !limit.is_nan();
    Figure {
        name: if kind == "full" { "full handshake, one core, us" } else { "resumed handshake, one core, us" },
        ours: format!("{:.0}", Samples::new(times.clone()).median()),
        limit: if has_limit { format!("{limit}") } else { String::new() },
        ratios: times.iter().map(|time| time / limit).collect(),
        aim: if has_limit { "below 1" } else { "" },
    }
}

/// Measures the transfer of an array from client to server, in GiB/s, from the call to its return.
pub(crate) fn bulk(config: &LocalConfig) -> Figure {
    let grid = local(&LocalConfig { shared_memory: false, ..config.clone() });
    let touch = grid.function("bench/touch").expect("offered");
    let mut rustls = Rustls::start();
    let data: Arc<[u8]> = vec![1u8; BULK_BYTES as usize].into();
    let gib = BULK_BYTES as f64 / f64::from(1 << 30);
    let mut round = || {
        let limit = gib / rustls.measure("bulk", BULK_BYTES as usize);
        let meta = Meta::array(Dtype::Float64, &[BULK_BYTES / 8]);
        let value = Value::new(meta, Payload::Inline(data.clone())).expect("it fits");
        let start = Instant::now();
        touch.call([value]).expect("it runs");
        (gib / start.elapsed().as_secs_f64(), limit)
    };
    // Warms the receiving memory on both sides.
    round();
    figure("256 MiB client to server, TCP, GiB/s", round, "at least 0.9")
}

/// Measures pairs of our value and the limit.
fn figure(name: &'static str, round: impl FnMut() -> (f64, f64), aim: &'static str) -> Figure {
    let (ours, limits): (Vec<f64>, Vec<f64>) = std::iter::repeat_with(round).take(ROUNDS).unzip();
    let ratios = ours.iter().zip(&limits).map(|(our, limit)| our / limit).collect();
    let middle = |values: Vec<f64>| Samples::new(values).median();
    Figure { name, ours: format!("{:.2}", middle(ours)), limit: format!("{:.2} (rustls)", middle(limits)), ratios, aim }
}

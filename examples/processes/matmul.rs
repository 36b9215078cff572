//! A client asks a server to multiply matrices: the program of section 4 of the report on GRAS (INRIA RR-5789), in Rust.
//! `matmul.py` is the same in Python, and a client of one language can use a server of the other.
//!
//! ```text
//! cargo build --release -p gridloom --example matmul
//! gridloom simulate -p examples/two-sites.toml -d examples/processes/deployment.toml -- target/release/examples/matmul
//! gridloom deploy -d examples/processes/deployment.toml -- target/release/examples/matmul
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;

use gridloom::process::{Level, Main, Measure, Process, StackKind, run};
use gridloom::{Error, Message};

const PORT: u16 = 4002;
const SIZE: usize = 64;

#[derive(Message)]
struct Multiply {
    m: usize,
    k: usize,
    n: usize,
    #[message(length = "m * k")]
    a: Vec<f64>,
    #[message(length = "k * n")]
    b: Vec<f64>,
}

#[derive(Message)]
struct Product {
    m: usize,
    n: usize,
    #[message(length = "m * n")]
    c: Vec<f64>,
}

#[derive(Message)]
struct Done;

fn server(mut me: Process) -> Result<(), Error> {
    me.listen(PORT)?;
    me.on(|me, client, Multiply { m, k, n, a, b }| {
        let product = me.measure("multiply", Measure::Once, |_| multiply(&a, &b, k, n))?;
        me.send(client, &Product { m, n, c: product.expect("it is always run") })
    });
    let done = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let told = done.clone();
    me.on(move |_, _, Done| {
        told.store(true, std::sync::atomic::Ordering::Relaxed);
        Ok(())
    });
    while !done.load(std::sync::atomic::Ordering::Relaxed) {
        me.handle(None)?;
    }
    me.log(Level::Info, "program", "done");
    Ok(())
}

fn client(mut me: Process) -> Result<(), Error> {
    let [host, rounds] = me.spec().arguments.as_slice() else {
        return Err(Error::Usage("client: expected a host and a number of rounds".into()));
    };
    let (host, rounds) = (host.clone(), rounds.parse::<usize>().map_err(|error| Error::Usage(error.to_string()))?);
    let worker = me.connect(&host, PORT, 10.0)?;
    for round in 0..rounds {
        // Small integers: every order of summation gives the same result.
        let matrix = |factor: usize| (0..SIZE * SIZE).map(|n| ((n * factor + round) % 17) as f64).collect::<Vec<_>>();
        let (a, b) = (matrix(7), matrix(11));
        let expected = multiply(&a, &b, SIZE, SIZE);
        me.send(worker, &Multiply { m: SIZE, k: SIZE, n: SIZE, a, b })?;
        let (_, product) = me.wait::<Product>(Some(worker), Some(60.0))?;
        assert!((product.m, product.n) == (SIZE, SIZE) && product.c == expected, "round {round}");
    }
    println!("{rounds} products are right");
    me.send(worker, &Done)?;
    Ok(())
}

/// The product of an m x k and a k x n matrix, both row-major.
fn multiply(a: &[f64], b: &[f64], k: usize, n: usize) -> Vec<f64> {
    let mut c = Vec::with_capacity(a.len() / k.max(1) * n);
    for row in a.chunks_exact(k.max(1)) {
        c.extend(
            (0..n).map(|column| row.iter().zip(b.iter().skip(column).step_by(n)).map(|(a, b)| a * b).sum::<f64>()),
        );
    }
    c
}

fn main() -> Result<(), Error> {
    let mains = BTreeMap::from([
        ("server".to_string(), Arc::new(server) as Main),
        ("client".to_string(), Arc::new(client) as Main),
    ]);
    run(&mains, StackKind::Coroutine).map(drop)
}

//! Probes: processes on every host that measure round trips and rates with TCP, for a check of the testbed.
//!
//! ```text
//!  check ── unix socket in the testbed's folder ──▶ probe on host a ══ TCP over the emulated network ══▶ probe on b
//! ```
//!
//! The unix socket is outside the emulated network, so that requests do not disturb the measurement.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::error::Error;

/// A measurement.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum Measure {
    /// This many round trips of one byte.
    RoundTrips(usize),
    /// The rate of one connection over this many seconds.
    Rate(f64),
}

/// The result of a measurement.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum ProbeResult {
    /// Seconds, in ascending order.
    RoundTrips(Vec<f64>),
    /// Bytes of payload per second at the receiver, after the connection's start phase.
    Rate(f64),
    /// Why it failed.
    Failed(String),
}

/// Port on which probes listen.
const PORT: u16 = 5001;
const PING: u8 = b'p';
const DRAIN: u8 = b'd';
/// Fraction of a rate measurement that is not counted, in which the connection finds its rate.
const START_PART: f64 = 0.4;
const READ_TIMEOUT: Duration = Duration::from_secs(60);

/// Runs the probe of a host: prints a line when it listens, and serves until it is killed.
///
/// # Errors
/// If it cannot listen.
pub fn serve(folder: &Path, host: usize, address: Ipv4Addr) -> Result<(), Error> {
    let network = TcpListener::bind(SocketAddrV4::new(address, PORT)).map_err(Error::system("a probe's port"))?;
    let asked = UnixListener::bind(socket(folder, host)).map_err(Error::system("a probe's socket"))?;
    writeln!(std::io::stdout(), "probe {host} listens").map_err(Error::system("a probe's output"))?;
    std::thread::spawn(move || {
        for stream in network.incoming().flatten() {
            std::thread::spawn(move || serve_peer(stream));
        }
    });
    for stream in asked.incoming().flatten() {
        std::thread::spawn(move || serve_check(&stream));
    }
    Ok(())
}

/// Asks the probe of host `from` to measure the path to `to`.
///
/// # Errors
/// If it does not reply or cannot reach the other host.
pub fn ask(folder: &Path, from: usize, to: Ipv4Addr, measure: Measure) -> Result<ProbeResult, Error> {
    let failed = || Error::system(format!("the probe of host {from}"));
    let mut stream = UnixStream::connect(socket(folder, from)).map_err(failed())?;
    stream.set_read_timeout(Some(READ_TIMEOUT)).map_err(failed())?;
    let request = serde_json::to_string(&(to, measure)).expect("an address and numbers");
    writeln!(stream, "{request}").map_err(failed())?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).map_err(failed())?;
    match serde_json::from_str(&line).map_err(|error| Error::Usage(format!("the probe of host {from}: {error}")))? {
        ProbeResult::Failed(why) => Err(Error::Usage(format!("the probe of host {from} could not measure: {why}"))),
        measured => Ok(measured),
    }
}

fn socket(folder: &Path, host: usize) -> PathBuf {
    folder.join(format!("probe-{host}"))
}

fn serve_check(stream: &UnixStream) -> io::Result<()> {
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    let (to, measure): (Ipv4Addr, Measure) = serde_json::from_str(&line)?;
    let measured = match measure {
        Measure::RoundTrips(count) => round_trips(to, count).map(ProbeResult::RoundTrips),
        Measure::Rate(seconds) => rate(to, seconds).map(ProbeResult::Rate),
    };
    let measured = measured.unwrap_or_else(|error| ProbeResult::Failed(error.to_string()));
    let text = serde_json::to_string(&measured)?;
    writeln!(&mut &*stream, "{text}")
}

fn connect(to: Ipv4Addr, purpose: u8) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect(SocketAddrV4::new(to, PORT))?;
    stream.set_nodelay(true)?;
    stream.write_all(&[purpose])?;
    Ok(stream)
}

fn round_trips(to: Ipv4Addr, count: usize) -> io::Result<Vec<f64>> {
    let mut stream = connect(to, PING)?;
    let mut seconds = Vec::new();
    for _ in 0..count {
        let start = Instant::now();
        stream.write_all(b"x")?;
        stream.read_exact(&mut [0])?;
        seconds.push(start.elapsed().as_secs_f64());
    }
    seconds.sort_by(f64::total_cmp);
    Ok(seconds)
}

fn rate(to: Ipv4Addr, seconds: f64) -> io::Result<f64> {
    let mut stream = connect(to, DRAIN)?;
    stream.write_all(&seconds.to_le_bytes())?;
    let block = vec![0; BLOCK_BYTES];
    let start = Instant::now();
    while start.elapsed().as_secs_f64() < seconds {
        stream.write_all(&block)?;
    }
    stream.shutdown(std::net::Shutdown::Write)?;
    let mut rate = [0; 8];
    stream.read_exact(&mut rate)?;
    Ok(f64::from_le_bytes(rate))
}

fn serve_peer(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut purpose = [0];
    stream.read_exact(&mut purpose)?;
    match purpose[0] {
        PING => {
            let mut byte = [0];
            while stream.read(&mut byte)? > 0 {
                stream.write_all(&byte)?;
            }
            Ok(())
        }
        _ => drain(stream),
    }
}

/// Reads to the end. The rate is measured between two reads, the first after the connection's start phase and the last
/// before the sender stopped.
fn drain(mut stream: TcpStream) -> io::Result<()> {
    let mut seconds = [0; 8];
    stream.read_exact(&mut seconds)?;
    let seconds = f64::from_le_bytes(seconds);
    let mut block = vec![0; BLOCK_BYTES];
    let start = Instant::now();
    let (mut bytes, mut first, mut last) = (0_u64, None, (0.0, 0));
    loop {
        let length = stream.read(&mut block)?;
        if length == 0 {
            break;
        }
        bytes += length as u64;
        let now = start.elapsed().as_secs_f64();
        if now >= seconds * START_PART {
            first.get_or_insert((now, bytes));
        }
        if now <= seconds {
            last = (now, bytes);
        }
    }
    let rate = match first {
        Some((from, before)) if last.0 > from => (last.1 - before) as f64 / (last.0 - from),
        _ => bytes as f64 / start.elapsed().as_secs_f64(),
    };
    stream.write_all(&rate.to_le_bytes())
}

const BLOCK_BYTES: usize = 1 << 16;

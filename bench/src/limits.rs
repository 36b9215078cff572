//! Measures blocking sockets on this machine, plain and with rustls: the limits with which the other figures are compared. The
//! peer is a separate process, as a server is.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

const MESSAGE_BYTES: usize = 64;

/// A peer process that echoes on one connection and discards bulk data on another.
pub struct Peer {
    child: Child,
    echo: TcpStream,
    bulk: TcpStream,
}

impl Peer {
    pub fn start() -> Peer {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let address = listener.local_addr().expect("it is bound").to_string();
        let child = Command::new(std::env::current_exe().expect("this program"))
            .args(["--peer", &address])
            .stdin(Stdio::null())
            .spawn()
            .expect("this program runs");
        let echo = listener.accept().expect("the peer dials").0;
        let bulk = listener.accept().expect("the peer dials").0;
        echo.set_nodelay(true).expect("a TCP option");
        Peer { child, echo, bulk }
    }

    /// Measures `count` round trips of 64 bytes. Returns the microseconds of each.
    pub fn round_trips(&mut self, count: usize) -> Vec<f64> {
        let mut buffer = [0; MESSAGE_BYTES];
        (0..count)
            .map(|_| {
                let start = Instant::now();
                self.echo.write_all(&buffer).expect("the peer lives");
                self.echo.read_exact(&mut buffer).expect("the peer lives");
                start.elapsed().as_secs_f64() * 1e6
            })
            .collect()
    }

    /// Sends `bytes` and waits for a confirmation. Returns the seconds that this took.
    pub fn send(&mut self, bytes: &[u8]) -> f64 {
        let start = Instant::now();
        self.bulk.write_all(&(bytes.len() as u64).to_le_bytes()).expect("the peer lives");
        self.bulk.write_all(bytes).expect("the peer lives");
        self.bulk.read_exact(&mut [0]).expect("the peer lives");
        start.elapsed().as_secs_f64()
    }

    /// Returns another handle to the bulk connection, for a thread that keeps it busy.
    pub fn bulk(&self) -> TcpStream {
        self.bulk.try_clone().expect("a descriptor")
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Two processes with rustls over blocking sockets: the example `rustls` of `gridloom-net`.
pub struct Rustls {
    child: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Rustls {
    pub fn start() -> Rustls {
        let own = std::env::current_exe().expect("this program");
        let program = own.with_file_name("examples").join("rustls");
        let started = Command::new(&program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = started.unwrap_or_else(|error| {
            let build = "cargo build --release -p gridloom-net --example rustls";
            panic!("{}: {error}; build it: {build}", program.display())
        });
        let (requests, answers) = (child.stdin.take().expect("a pipe"), child.stdout.take().expect("a pipe"));
        Rustls { child, requests, answers: BufReader::new(answers) }
    }

    /// Measures `ping`, `bulk`, `full` or `resumed`: the example describes them.
    pub fn measure(&mut self, what: &str, count: usize) -> f64 {
        writeln!(self.requests, "{what} {count}").expect("the example runs");
        let mut answer = String::new();
        self.answers.read_line(&mut answer).expect("the example runs");
        answer.trim().parse().expect("a number")
    }
}

impl Drop for Rustls {
    fn drop(&mut self) {
        // Its own peer ends with it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn peer(address: &str) {
    let mut echo = TcpStream::connect(address).expect("the parent listens");
    let mut bulk = TcpStream::connect(address).expect("the parent listens");
    echo.set_nodelay(true).expect("a TCP option");
    std::thread::spawn(move || {
        let mut warm = Vec::new();
        let mut length = [0; 8];
        while bulk.read_exact(&mut length).is_ok() {
            warm.resize(u64::from_le_bytes(length) as usize, 0);
            if bulk.read_exact(&mut warm).is_err() || bulk.write_all(&[1]).is_err() {
                return;
            }
        }
    });
    let mut buffer = [0; MESSAGE_BYTES];
    while echo.read_exact(&mut buffer).is_ok() && echo.write_all(&buffer).is_ok() {}
}

//! Measures blocking sockets on this machine: the limit with which the other figures are compared. The peer is a separate
//! process, as a server is.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
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

//! Measures TLS as rustls does it over blocking sockets between two processes, with the configurations that nodes use: the limit with
//! which `gridloom-bench tls` compares calls and transfers.
//!
//! Each line of the input is a request, and each answer a number: `ping COUNT` for the median round trip of 64 bytes in microseconds,
//! `bulk BYTES` for the seconds that a transfer takes, `full COUNT` and `resumed COUNT` for the median time of a handshake with the
//! connection of its socket in microseconds.

use std::io::{BufRead, Read, Write, stdin};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use gridloom_keys::{Authority, Bundle, Grant, Identity, Memberships, Role, UnixTime};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, HandshakeKind, ServerConfig, ServerConnection, StreamOwned};

const PROTOCOL: &[u8] = b"gridloom/1";
const MESSAGE_BYTES: usize = 64;

type ServerStream = StreamOwned<ServerConnection, TcpStream>;
type ClientStream = StreamOwned<ClientConnection, TcpStream>;

fn main() {
    match std::env::args().nth(1).as_deref() {
        Some("peer") => peer(&std::env::args().nth(2).expect("the address of the parent")),
        _ => measure(),
    }
}

fn configs(bundle: &Bundle) -> (Arc<ClientConfig>, Arc<ServerConfig>) {
    let memberships = Memberships::from(bundle.membership().expect("it was just issued"));
    let mut server = memberships.server_config(&[PROTOCOL], &Role::NODES);
    server.send_tls13_tickets = 1;
    (Arc::new(memberships.client_config(&[PROTOCOL], &Role::NODES)), Arc::new(server))
}

fn accept(listener: &TcpListener, config: &Arc<ServerConfig>) -> ServerStream {
    let (socket, _) = listener.accept().expect("the peer dials");
    socket.set_nodelay(true).expect("a TCP option");
    StreamOwned::new(ServerConnection::new(config.clone()).expect("random numbers"), socket)
}

fn dial(address: &str, config: &Arc<ClientConfig>, name: &str) -> ClientStream {
    let socket = TcpStream::connect(address).expect("the other process listens");
    socket.set_nodelay(true).expect("a TCP option");
    let name = ServerName::try_from(name.to_string()).expect("a name of the DNS");
    StreamOwned::new(ClientConnection::new(config.clone(), name).expect("random numbers"), socket)
}

fn measure() {
    let authority = Authority::new("bench", UnixTime::now()).expect("random numbers");
    let identity = Identity::new("bench", Role::Client, "bench").expect("a name");
    let bundle = authority.issue_bundle(&Grant::new(identity), UnixTime::now()).expect("it can be issued");
    let (client, server) = configs(&bundle);
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let address = listener.local_addr().expect("it is bound").to_string();
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .args(["peer", &address])
        .stdin(Stdio::piped())
        .spawn()
        .expect("this program runs");
    let mut input = child.stdin.take().expect("a pipe");
    input.write_all(bundle.to_pem().as_bytes()).expect("the peer reads");
    drop(input);
    let _ended = Ended(child);
    let mut echo = accept(&listener, &server);
    let mut bulk = accept(&listener, &server);
    let mut door = String::new();
    std::io::BufReader::new(accept(&listener, &server)).read_line(&mut door).expect("where the peer listens");
    let door = door.trim().to_string();
    let mut names = 0;
    for line in stdin().lock().lines() {
        let line = line.expect("text");
        let (what, count) = line.split_once(' ').expect("what, and how much");
        let count: usize = count.parse().expect("a number");
        let answer = match what {
            "ping" => median((0..count).map(|_| round_trip(&mut echo)).collect()),
            "bulk" => transfer(&mut bulk, count),
            "full" => median((0..count).map(|_| handshake(&door, &client, &mut names, HandshakeKind::Full)).collect()),
            "resumed" => {
                handshake(&door, &client, &mut names, HandshakeKind::Full);
                let resumed = |_| handshake(&door, &client, &mut names, HandshakeKind::Resumed);
                median((0..count).map(resumed).collect())
            }
            other => panic!("'{other}' cannot be measured"),
        };
        println!("{answer}");
    }
}

fn median(mut microseconds: Vec<f64>) -> f64 {
    microseconds.sort_by(f64::total_cmp);
    microseconds[microseconds.len() / 2]
}

fn round_trip(echo: &mut ServerStream) -> f64 {
    let mut buffer = [0; MESSAGE_BYTES];
    let start = Instant::now();
    echo.write_all(&buffer).expect("the peer lives");
    echo.read_exact(&mut buffer).expect("the peer lives");
    start.elapsed().as_secs_f64() * 1e6
}

/// Sends bytes and waits for the confirmation.
fn transfer(bulk: &mut ServerStream, size_bytes: usize) -> f64 {
    let data = vec![1u8; size_bytes];
    let start = Instant::now();
    bulk.write_all(&(size_bytes as u64).to_le_bytes()).expect("the peer lives");
    bulk.write_all(&data).expect("the peer lives");
    bulk.flush().expect("the peer lives");
    bulk.read_exact(&mut [0]).expect("the peer lives");
    start.elapsed().as_secs_f64()
}

/// Measures from the connection of the socket to the end of the handshake. A full handshake is with a new name, and the next one with
/// that name resumes its session.
fn handshake(door: &str, client: &Arc<ClientConfig>, names: &mut u32, kind: HandshakeKind) -> f64 {
    *names += u32::from(kind == HandshakeKind::Full);
    let start = Instant::now();
    let mut stream = dial(door, client, &format!("n{names}.bench"));
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock).expect("the peer accepts");
    }
    let took = start.elapsed().as_secs_f64() * 1e6;
    assert_eq!(stream.conn.handshake_kind(), Some(kind));
    // The ticket arrives before this byte.
    stream.read_exact(&mut [0]).expect("the peer lives");
    let _ = stream.sock.shutdown(Shutdown::Both);
    took
}

struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn peer(address: &str) {
    let mut pem = Vec::new();
    stdin().lock().read_to_end(&mut pem).expect("the parent sends keys");
    let (client, server) = configs(&Bundle::from_pem(&pem).expect("keys"));
    let mut echo = dial(address, &client, "echo.bench");
    let mut bulk = dial(address, &client, "bulk.bench");
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let mut third = dial(address, &client, "door.bench");
    std::thread::spawn(move || {
        let mut warm = Vec::new();
        let mut length = [0; 8];
        while bulk.read_exact(&mut length).is_ok() {
            warm.resize(u64::from_le_bytes(length) as usize, 0);
            if bulk.read_exact(&mut warm).is_err() || bulk.write_all(&[1]).and_then(|()| bulk.flush()).is_err() {
                return;
            }
        }
    });
    third.write_all(format!("{}\n", listener.local_addr().expect("it is bound")).as_bytes()).expect("the parent lives");
    third.flush().expect("the parent lives");
    std::thread::spawn(move || {
        loop {
            let mut stream = accept(&listener, &server);
            // The dialler may leave at any time.
            let _ = stream.write_all(&[1]).and_then(|()| stream.read(&mut [0]).map(drop));
        }
    });
    let mut buffer = [0; MESSAGE_BYTES];
    while echo.read_exact(&mut buffer).is_ok() && echo.write_all(&buffer).is_ok() {}
}

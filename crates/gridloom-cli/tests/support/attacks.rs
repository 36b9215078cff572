//! Peers that attack a node or a relay of a grid from another process: strangers, and valid members that turn hostile. The
//! benchmark `hostile` uses them, too.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use gridloom_base::NodeId;
use gridloom_base::address::{RelayPath, RelayTarget};
use gridloom_core::node::Role;
use gridloom_keys::{Authority, Role as CertifiedRole, UnixTime};
use gridloom_net::identity::{Credentials, IssuedKeys, Keys};
use gridloom_net::transport::handshake::{Handshake, Hello, Purpose, Verdict, run_blocking};
use gridloom_net::transport::relay;
use gridloom_net::transport::stripes::Stripe;
use gridloom_net::transport::tls::TlsStream;

/// Time in which a target has to close a hostile connection.
const CLOSE_LIMIT: Duration = Duration::from_secs(20);
/// Threads of an attack.
const THREADS: usize = 4;
/// Messages of a client that reads no answers, for each connection.
const PINGS: usize = 100;

/// What each connection of an attack does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Attack {
    /// Sends random bytes instead of TLS.
    Noise,
    /// Sends a part of the first record of TLS, and closes the connection.
    HalfHello,
    /// Shows the certificate of another grid with the same name.
    Stranger,
    /// A member that states a length of 4 GiB in the handshake.
    LongHello,
    /// A valid client that then sends frames that break the rules.
    BadFrames,
    /// A valid client that then sends messages whose parts state lengths of up to 2^64 bytes.
    SizeBombs,
    /// A valid client that then sends requests and reads no answers.
    Flood,
    /// A member that asks a relay for nodes that do not exist.
    UnknownNodes,
    /// A member that sends random bytes to a node through a relay.
    RelayedNoise,
}

impl Attack {
    /// Attacks on nodes that listen.
    pub const ON_NODES: [Attack; 7] = [
        Attack::Noise,
        Attack::HalfHello,
        Attack::Stranger,
        Attack::LongHello,
        Attack::BadFrames,
        Attack::SizeBombs,
        Attack::Flood,
    ];
    /// Attacks on relays.
    pub const ON_RELAYS: [Attack; 5] =
        [Attack::Noise, Attack::HalfHello, Attack::Stranger, Attack::UnknownNodes, Attack::RelayedNoise];
}

/// How the connections of an attack ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Outcome {
    /// The target refused or closed them.
    pub refused: usize,
    /// The target accepted what no member may do, or did not close the connection.
    pub got_in: usize,
    /// The connections that do nothing forbidden.
    pub served: usize,
}

enum End {
    Refused,
    GotIn,
    Served,
}

/// Attackers of one target, with keys of a member and of a stranger.
pub struct Attackers {
    target: SocketAddr,
    member: Keys,
    stranger: Keys,
    /// The first bytes of a dialler.
    hello: Vec<u8>,
    /// The node to which [`Attack::RelayedNoise`] leads.
    behind: Option<RelayTarget>,
}

impl Attackers {
    /// `member` are keys of a client of the target's grid. `behind` is a node that is registered if the target is a relay.
    pub fn new(target: SocketAddr, member: Keys, behind: Option<RelayTarget>) -> Attackers {
        let grid = member.identity().expect("a member has an identity").grid().to_string();
        let other = Authority::new(&grid, UnixTime::now()).expect("the system has random numbers");
        let issued = IssuedKeys::by_authority(&other, CertifiedRole::Client, "stranger").expect("it can be issued");
        let stranger = issued.keys().expect("they were just issued");
        let mut recorded = Recorder::default();
        let mut tls =
            TlsStream::dial(&mut recorded, &credentials(&member).tls, &target.into()).expect("random numbers");
        // The answer is missing.
        let _ = tls.complete_handshake();
        Attackers { target, member, stranger, hello: recorded.0, behind }
    }

    /// Makes that many hostile connections.
    pub fn run(&self, attack: Attack, count: usize) -> Outcome {
        let next = AtomicUsize::new(0);
        let ends = |_| {
            let mut outcome = Outcome::default();
            // Connections of one dialler resume its session.
            let (member, stranger) = (credentials(&self.member), credentials(&self.stranger));
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= count {
                    return outcome;
                }
                match self.connection(attack, number, (&member, &stranger)) {
                    Ok(End::GotIn) => outcome.got_in += 1,
                    Ok(End::Served) => outcome.served += 1,
                    Ok(End::Refused) | Err(_) => outcome.refused += 1,
                }
            }
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS).map(|number| scope.spawn(move || ends(number))).collect();
            threads.into_iter().map(|thread| thread.join().expect("it does not panic")).fold(
                Outcome::default(),
                |all, one| Outcome {
                    refused: all.refused + one.refused,
                    got_in: all.got_in + one.got_in,
                    served: all.served + one.served,
                },
            )
        })
    }

    /// An error means that the target has closed the connection early.
    fn connection(
        &self,
        attack: Attack,
        number: usize,
        (member, stranger): (&Credentials, &Credentials),
    ) -> io::Result<End> {
        match attack {
            Attack::Noise => {
                let mut socket = self.connect()?;
                // The target may close the connection before everything is written.
                let _ = socket.write_all(&noise(number, 300));
                closed(&mut socket)
            }
            Attack::HalfHello => {
                let mut socket = self.connect()?;
                socket.write_all(&self.hello[..number % self.hello.len()])?;
                socket.shutdown(Shutdown::Write)?;
                closed(&mut socket)
            }
            Attack::Stranger if self.behind.is_some() => self.relayed(stranger, RelayTarget::Agent).map(|_| End::GotIn),
            Attack::Stranger => self.shake(stranger).map(|_| End::GotIn),
            Attack::LongHello => {
                let mut stream = TlsStream::dial(self.connect()?, &member.tls, &self.target.into())?;
                stream.set_blocking();
                stream.complete_handshake()?;
                stream.write_all(&frame_header(u32::MAX, 0, 3))?;
                closed(&mut stream)
            }
            Attack::BadFrames => {
                let (mut stream, first) = self.shake(member)?;
                let bodies: [(u64, &[u8]); 5] =
                    [(1, &[0xff; 40]), (9, &[]), (2, &[0xff; 40]), (3, &[0xff; 40]), (1, &[0, 0])];
                let (kind, body) = bodies[number % bodies.len()];
                // The last one is well formed, and is sent again.
                let once = frame(first, kind, body);
                stream.write_all(&[&once[..], &once].concat())?;
                closed(&mut stream)
            }
            Attack::SizeBombs => {
                let (mut stream, first) = self.shake(member)?;
                let bytes = match number % 8 {
                    0 => frame_header(u32::MAX, first, 1),
                    1 => frame(first, 2, &[&[1, 1][..], &[0xff; 9], &[1]].concat()),
                    which => {
                        let tags = [(which % 6) as u8, (number / 8 % 24) as u8];
                        frame(first, 1, &[&tags[..], &[[0xff; 9].as_slice(), &[1]].concat().repeat(6)].concat())
                    }
                };
                stream.write_all(&bytes)?;
                // Nothing in the message may be what a client sends, so that the connection is closed.
                stream.write_all(&frame(first, 9, &[]))?;
                closed(&mut stream)
            }
            Attack::Flood => {
                let (mut stream, first) = self.shake(member)?;
                let pings = (first..).take(PINGS).flat_map(|sequence| frame(sequence, 1, &[0, 0, 7]));
                stream.write_all(&pings.collect::<Vec<u8>>())?;
                Ok(End::Served)
            }
            Attack::UnknownNodes => {
                let unknown = RelayTarget::Node { node: NodeId(number as u64), host: "nowhere".into() };
                self.relayed(member, unknown).map(|_| End::GotIn)
            }
            Attack::RelayedNoise => {
                let mut socket = self.relayed(member, self.behind.clone().expect("a node is registered"))?;
                socket.set_read_timeout(Some(CLOSE_LIMIT))?;
                let _ = socket.write_all(&noise(number, 300));
                closed(&mut socket)
            }
        }
    }

    fn connect(&self) -> io::Result<TcpStream> {
        let socket = TcpStream::connect(self.target)?;
        socket.set_read_timeout(Some(CLOSE_LIMIT))?;
        socket.set_nodelay(true)?;
        Ok(socket)
    }

    /// Returns a connection after the handshake, and the number of its next frame.
    fn shake(&self, credentials: &Credentials) -> io::Result<(TlsStream<TcpStream>, u32)> {
        let own = Hello {
            purpose: Purpose::Control,
            node: credentials.id(),
            role: Role::Client,
            name: "attacker".into(),
            address: String::new(),
            host: String::new(),
            machine: String::new(),
            stream: 0,
            stripe: Stripe::ONE,
            nonce: [0; 32],
            number: [0; 16],
            pass: None,
        };
        loop {
            let mut stream = TlsStream::dial(self.connect()?, &credentials.tls, &self.target.into())?;
            stream.set_blocking();
            let (handshake, first) = Handshake::dial(credentials.clone(), own.clone())?;
            let (peer, verdict, _) = run_blocking(&mut stream, handshake, Some(first), |_| Ok(Verdict::Welcome))?;
            // The target may not have noticed yet that the previous connection is closed.
            if verdict == Verdict::Welcome {
                // The side with the larger identifier has sent the verdict.
                return Ok((stream, if credentials.id() > peer.node { 2 } else { 1 }));
            }
        }
    }

    fn relayed(&self, credentials: &Credentials, target: RelayTarget) -> io::Result<TcpStream> {
        relay::dial::connect(&RelayPath { relay: self.target.to_string(), target }, credentials, CLOSE_LIMIT)
    }

    /// Holds that many connections, which send a byte now and then. Closed ones are replaced.
    pub fn slow(&self, count: usize) -> SlowConnections {
        let stop = Arc::new(AtomicBool::new(false));
        let (target, hello, stopped) = (self.target, self.hello.clone(), stop.clone());
        let (ready, is_ready) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let open = || -> io::Result<(TcpStream, usize)> {
                let socket = TcpStream::connect(target)?;
                socket.set_nonblocking(true)?;
                Ok((socket, 0))
            };
            let mut held: Vec<_> = (0..count).filter_map(|_| open().ok()).collect();
            let _ = ready.send(());
            while !stopped.load(Ordering::Relaxed) {
                for connection in &mut held {
                    let (socket, sent) = connection;
                    let written = socket.write(&hello[*sent % hello.len()..][..1]);
                    let has_ended = socket.read(&mut [0; 64]).is_ok();
                    match written {
                        Ok(_) if !has_ended => *sent += 1,
                        Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                        _ => {
                            if let Ok(again) = open() {
                                *connection = again;
                            }
                        }
                    }
                }
                std::thread::sleep(Duration::from_millis(100));
            }
        });
        is_ready.recv().expect("the thread runs");
        SlowConnections { stop, thread: Some(thread) }
    }
}

/// Slow connections, until this is dropped.
pub struct SlowConnections {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for SlowConnections {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().into_iter().for_each(|thread| _ = thread.join());
    }
}

/// Returns the resident memory of a process in KiB.
pub fn resident_kib(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).unwrap_or(0)
}

/// Records what a dialler sends; nothing is received.
#[derive(Default)]
struct Recorder(Vec<u8>);

impl Read for &mut Recorder {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Ok(0)
    }
}

impl Write for &mut Recorder {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn credentials(keys: &Keys) -> Credentials {
    Credentials::new(keys.clone()).expect("the system has random numbers")
}

/// Waits until the target has closed the connection.
fn closed(stream: &mut impl Read) -> io::Result<End> {
    let mut into = [0; 4096];
    loop {
        match stream.read(&mut into) {
            Ok(0) => return Ok(End::Refused),
            Ok(_) => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => return Ok(End::GotIn),
            Err(_) => return Ok(End::Refused),
        }
    }
}

fn noise(seed: usize, length: usize) -> Vec<u8> {
    let mut random = seed as u64 + 88_172_645_463_325_252;
    std::iter::repeat_with(|| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random as u8
    })
    .take(length)
    .collect()
}

fn frame_header(length: u32, sequence: u32, kind: u64) -> Vec<u8> {
    [&length.to_le_bytes()[..], &sequence.to_le_bytes(), &kind.to_le_bytes()].concat()
}

fn frame(sequence: u32, kind: u64, body: &[u8]) -> Vec<u8> {
    [&frame_header(body.len() as u32, sequence, kind)[..], body].concat()
}

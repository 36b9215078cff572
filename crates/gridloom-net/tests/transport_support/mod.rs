//! Nodes with scripted state machines: every input is reported, effects are defined by the test, and messages may be answered.
#![allow(dead_code)]

use std::cell::RefCell;
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, LazyLock, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use gridloom_base::dial::ConnectionError;
use gridloom_base::{DatumId, Dtype, Level, Machine, Meta, NodeId, Time};
use gridloom_core::node::message::{LinkMessage, Message};
use gridloom_core::node::{Category, Command, Effect, Input, LogLine, Role};
use gridloom_keys::{Authority, Role as CertifiedRole, UnixTime};
use gridloom_net::driver::{NetConfig, NetNode};
use gridloom_net::identity::{Credentials, IssuedKeys, Keys};
use gridloom_net::payload::Payload;
use gridloom_net::transport::handshake::{Handshake, Hello, Pass, Purpose, Verdict, run_blocking};
use gridloom_net::transport::stripes::Stripe;
use gridloom_net::transport::tls::TlsStream;

pub const PATIENCE: Duration = Duration::from_secs(20);

/// Token of a ping that is answered with the datum [`ANSWER`].
pub const LONG_ANSWER: u64 = u64::MAX;
pub const ANSWER: DatumId = DatumId { client: NodeId(7), serial: 7 };

pub struct Scripted {
    inputs: Sender<(Time, Input)>,
    todo: Arc<Mutex<Vec<Effect>>>,
}

impl Machine for Scripted {
    type Input = Input;
    type Effect = Effect;

    fn handle(&mut self, now: Time, input: Input, effects: &mut Vec<Effect>) {
        match &input {
            Input::Command(_) => return effects.append(&mut self.todo.lock().unwrap()),
            // A short request with a long answer.
            Input::Received { from, message: Message::Link(LinkMessage::Ping { token: LONG_ANSWER }) } => {
                return effects.push(Effect::SendDatum { to: *from, datum: ANSWER });
            }
            Input::Received { from, message: Message::Link(LinkMessage::Ping { token }) } => {
                effects.push(Effect::Send { to: *from, message: LinkMessage::Pong { token: *token }.into() });
            }
            Input::Received { message: Message::Link(LinkMessage::Pong { token }), .. } => {
                effects.push(pong(*token).into());
            }
            _ => {}
        }
        // The test may have ended and dropped the receiver.
        let _ = self.inputs.send((now, input));
    }
}

/// Returns the log line by which a scripted machine reports a pong to its test.
pub fn pong(token: u64) -> LogLine {
    LogLine::new(Level::Info, Category::Client, format!("pong {token}"))
}

pub struct TestNode {
    pub node: Arc<NetNode>,
    inputs: Mutex<Receiver<(Time, Input)>>,
    todo: Arc<Mutex<Vec<Effect>>>,
    main: Option<JoinHandle<String>>,
}

/// The authority of the tests' grid.
pub fn authority() -> &'static Authority {
    static AUTHORITY: LazyLock<Authority> = LazyLock::new(|| Authority::new("tests", UnixTime::now()).unwrap());
    &AUTHORITY
}

/// Returns keys of a client of the tests' grid.
pub fn keys() -> Keys {
    keys_of(authority(), CertifiedRole::Client)
}

pub fn keys_of(authority: &Authority, role: CertifiedRole) -> Keys {
    IssuedKeys::by_authority(authority, role, "test").unwrap().keys().unwrap()
}

/// Returns the credentials of raw connections.
pub fn raw_credentials() -> Credentials {
    static RAW: LazyLock<Credentials> = LazyLock::new(|| Credentials::new(keys()).unwrap());
    RAW.clone()
}

/// Returns the node id of raw connections.
pub fn raw_id() -> NodeId {
    raw_credentials().id()
}

pub fn listening() -> NetConfig {
    NetConfig { listen: Some("127.0.0.1:0".parse().unwrap()), ..NetConfig::new(keys()) }
}

/// Starts a node with a certificate for its role.
pub fn start(role: Role, config: NetConfig) -> TestNode {
    let certified = match role {
        Role::Agent => CertifiedRole::Agent,
        Role::Server => CertifiedRole::Server,
        Role::Client => CertifiedRole::Client,
    };
    start_as_is(role, NetConfig { keys: keys_of(authority(), certified), ..config })
}

/// Starts a node with the keys in `config`.
pub fn start_as_is(role: Role, config: NetConfig) -> TestNode {
    let (sender, inputs) = mpsc::channel();
    let todo = Arc::new(Mutex::new(Vec::new()));
    let machine = Scripted { inputs: sender, todo: todo.clone() };
    let node = NetNode::start_with(config, |_, _| (role, format!("{role:?}"), Box::new(machine))).unwrap();
    let main = (role != Role::Client).then(|| {
        let node = node.clone();
        thread::spawn(move || node.run_with(|_| ()))
    });
    TestNode { node, inputs: Mutex::new(inputs), todo, main }
}

pub fn server() -> TestNode {
    start(Role::Server, listening())
}

pub fn client() -> TestNode {
    start(Role::Client, NetConfig::new(keys()))
}

impl TestNode {
    pub fn id(&self) -> NodeId {
        self.node.id()
    }

    pub fn perform(&self, effects: impl IntoIterator<Item = Effect>) {
        self.todo.lock().unwrap().extend(effects);
        self.node.command(Command::Release { data: Vec::new() });
    }

    pub fn say(&self, to: NodeId, token: u64) {
        self.perform([Effect::Send { to, message: LinkMessage::Pong { token }.into() }]);
    }

    /// Waits for the first input that `is` accepts, skipping others.
    pub fn expect<R>(&self, what: &str, mut is: impl FnMut(&Input) -> Option<R>) -> R {
        let mut seen = Vec::new();
        loop {
            match self.inputs.lock().unwrap().recv_timeout(PATIENCE) {
                Ok((_, input)) => match is(&input) {
                    Some(found) => return found,
                    None => seen.push(format!("{input:?}")),
                },
                Err(_) => panic!("{what} did not come; there were {seen:?}"),
            }
        }
    }

    pub fn next(&self) -> (Time, Input) {
        self.inputs.lock().unwrap().recv_timeout(PATIENCE).expect("an input comes")
    }

    pub fn dial(&self, to: &TestNode) {
        self.perform([Effect::Dial { address: to.node.address().to_string() }]);
        let id = to.id();
        self.expect("PeerUp at the dialler", |i| matches!(i, Input::PeerUp { peer, .. } if *peer == id).then_some(()));
        let id = self.id();
        to.expect("PeerUp at the acceptor", |i| matches!(i, Input::PeerUp { peer, .. } if *peer == id).then_some(()));
    }

    pub fn expect_lost(&self, id: NodeId) -> String {
        self.expect_loss(id).why
    }

    /// Waits for the loss of a peer, and returns its reason.
    pub fn expect_loss(&self, id: NodeId) -> ConnectionError {
        self.expect("PeerLost", |input| match input {
            Input::PeerLost { peer, fault, why } if *peer == id => Some(ConnectionError::new(*fault, why.clone())),
            _ => None,
        })
    }

    /// Waits for a failed dial, and returns its reason.
    pub fn expect_failed_dial(&self) -> ConnectionError {
        self.expect("DialFailed", |input| match input {
            Input::DialFailed { fault, why, .. } => Some(ConnectionError::new(*fault, why.clone())),
            Input::PeerUp { .. } => panic!("it is connected"),
            _ => None,
        })
    }

    pub fn expect_datum(&self, name: DatumId) -> Payload {
        self.expect("DatumArrived", |input| match input {
            Input::DatumArrived { datum, .. } if *datum == name => Some(()),
            Input::DatumBroken { why, .. } => panic!("broken: {why}"),
            _ => None,
        });
        self.node.store().get(&name).expect("it is in the store by then").1
    }

    /// Puts a datum of this size into shared memory.
    pub fn put(&self, serial: u64, size_bytes: u64) -> DatumId {
        let datum = DatumId { client: self.id(), serial };
        let mut memory = self.node.store().pool().allocate(size_bytes).unwrap();
        memory.bytes_mut().copy_from_slice(&pattern(serial, size_bytes));
        let meta = Meta::array(Dtype::Uint8, &[size_bytes]);
        assert!(self.node.store().put(datum, meta, Payload::segment(memory.freeze())));
        datum
    }

    /// Asserts that the node still serves: a new client exchanges messages with it.
    pub fn still_serves(&self) {
        let other = client();
        other.perform([Effect::Dial { address: self.node.address().to_string() }]);
        let peer = self.id();
        other.expect("PeerUp", |i| matches!(i, Input::PeerUp { peer: p, .. } if *p == peer).then_some(()));
        other.perform([Effect::Send { to: peer, message: LinkMessage::Ping { token: 99 }.into() }]);
        let pong = LinkMessage::Pong { token: 99 }.into();
        other.expect("Pong", |i| matches!(i, Input::Received { message, .. } if *message == pong).then_some(()));
    }
}

impl Drop for TestNode {
    fn drop(&mut self) {
        self.node.stop();
        if let Some(main) = self.main.take() {
            main.join().unwrap();
        }
    }
}

pub fn pattern(serial: u64, size_bytes: u64) -> Vec<u8> {
    (0..size_bytes).map(|at| (at.wrapping_mul(31) ^ serial) as u8).collect()
}

/// Returns a stranger's hello, with the smallest identifier, so that the node decides.
pub fn hello(purpose: Purpose, stream: u64) -> Hello {
    Hello {
        purpose,
        node: raw_id(),
        role: Role::Client,
        name: "raw".into(),
        address: String::new(),
        host: String::new(),
        stream,
        stripe: Stripe::ONE,
        nonce: [0; 32],
        number: [0; 16],
        pass: None,
        machine: String::new(),
    }
}

/// A blocking connection of a test to a node.
pub type RawStream = TlsStream<TcpStream>;

pub fn connect(node: &TestNode) -> RawStream {
    let address: SocketAddr = node.node.address().parse().unwrap();
    let mut stream = TlsStream::dial(connect_tcp(node), &raw_credentials().tls, &address.into()).unwrap();
    stream.set_blocking();
    stream
}

/// Connects without TLS.
pub fn connect_tcp(node: &TestNode) -> TcpStream {
    let address: SocketAddr = node.node.address().parse().unwrap();
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

thread_local! {
    /// Pass of the last raw control connection of this test; bulk connections begin with it.
    static PASS: RefCell<Option<Pass>> = const { RefCell::new(None) };
}

/// Returns the hello of a raw bulk connection of this test.
pub fn bulk_hello(purpose: Purpose, stream: u64) -> Hello {
    let mut own = hello(purpose, stream);
    own.pass = PASS.with_borrow(|pass| pass.as_ref().map(|pass| pass.of(own.node, purpose, stream)));
    own
}

/// Returns the number of the next frame of a raw control connection to this node. The one of the two with the larger
/// identifier has sent the verdict.
pub fn next_number(node: &TestNode) -> u32 {
    if raw_id() > node.id() { 2 } else { 1 }
}

/// Returns a raw connection after the handshake; its next frame has the number [`next_number`].
pub fn shaken(node: &TestNode, purpose: Purpose, stream: u64) -> RawStream {
    let mut socket = connect(node);
    let (handshake, first) = Handshake::dial(raw_credentials(), bulk_hello(purpose, stream)).unwrap();
    let shaken = run_blocking(&mut socket, handshake, Some(first), |_| Ok(Verdict::Welcome));
    let (_, verdict, session) = shaken.unwrap();
    assert_eq!(verdict, Verdict::Welcome);
    if purpose == Purpose::Control {
        PASS.set(Some(session.pass));
    }
    socket
}

pub fn raw_frame(sequence: u32, kind: u64, body: &[u8]) -> Vec<u8> {
    let mut bytes = (body.len() as u32).to_le_bytes().to_vec();
    bytes.extend_from_slice(&sequence.to_le_bytes());
    bytes.extend_from_slice(&kind.to_le_bytes());
    bytes.extend_from_slice(body);
    bytes
}

//! Initial inputs of the targets: `seeds ROOT` writes `ROOT/fuzz/corpus/` from the interface descriptions, platforms and recorded
//! messages of the repository at `ROOT`.

#[allow(dead_code, reason = "seeds are only written")]
#[path = "../../crates/gridloom-net/src/transport/relay/protocol.rs"]
mod relay;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gridloom_base::address::RelayTarget;
use gridloom_base::dial::ConnectionFault;
use gridloom_base::{DatumId, Dtype, Meta, Method, NamedDatum, NodeId, TaskId, Time};
use gridloom_channel::WireVersion;
use gridloom_channel::frame::{Encoder, Kind};
use gridloom_core::graph::{Argument, CopyLifetime, Output, Task, TaskKind};
use gridloom_core::node::message::{DataMessage, DirectoryToClient, DirectoryUpdate, Message, Supply, TaskToServer};
use gridloom_core::node::{Role as NodeRole, UsageTable};
use gridloom_idl::parse;
use gridloom_keys::{Authority, Grant, Identity, KeysFolder, Patterns, Revoked, Role, UnixTime};
use gridloom_net::identity::{Credentials, Keys};
use gridloom_net::transport::handshake::{Handshake, Hello, Purpose, refusal};
use gridloom_net::transport::stripes::Stripe;
use gridloom_net::transport::{Cargo, CargoHeader, WorldMessage};
use gridloom_perf::{Curve, FunctionModel, Point};
use gridloom_process::filter::{FilterChain, PeerPair};

fn main() {
    let root = PathBuf::from(std::env::args().nth(1).expect("the repository's folder"));
    let corpus = root.join("fuzz/corpus");
    let write = |target: &str, name: &str, bytes: &[u8]| {
        fs::create_dir_all(corpus.join(target)).expect("the corpus can be written");
        fs::write(corpus.join(target).join(name), bytes).expect("the corpus can be written");
    };
    for (at, file) in files(&root, "idl").into_iter().enumerate() {
        let text = fs::read_to_string(&file).expect("it can be read");
        write("idl", &format!("file-{at}"), text.as_bytes());
        // Templates are not complete descriptions and are skipped.
        for (number, definition) in parse(&text, "t.idl").into_iter().flatten().enumerate() {
            write("idl", &format!("definition-{at}-{number}"), definition.to_string().as_bytes());
            let bytes = postcard::to_stdvec(&definition).expect("a definition is written");
            write("signature", &format!("definition-{at}-{number}"), &bytes);
            let functions = Some(vec![definition.signature]);
            let message: Message =
                DirectoryToClient::Update(DirectoryUpdate { is_full: false, servers: vec![], removed: vec![], functions })
                    .into();
            let mut frame = Vec::new();
            Encoder::default().message(Kind::Message, &message, &mut frame).expect("it is short");
            write("frames", &format!("functions-{at}-{number}"), &frame);
        }
    }
    for (name, kind, text) in key_texts() {
        write("keys", name, &[&[kind], text.as_bytes()].concat());
    }
    for (at, steps) in conversations().into_iter().enumerate() {
        // With a server as the machine.
        let bytes = std::iter::once(0).chain(steps.iter().flat_map(Step::bytes));
        write("machines", &format!("conversation-{at}"), &bytes.collect::<Vec<u8>>());
    }
    for (at, file) in files(&root, "hex").into_iter().enumerate() {
        let text = fs::read_to_string(&file).expect("it can be read");
        let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
        let digit = |digit: u8| char::from(digit).to_digit(16).expect("it is one") as u8;
        let bytes: Vec<u8> = digits.chunks_exact(2).map(|pair| digit(pair[0]) * 16 + digit(pair[1])).collect();
        write("messages", &format!("recorded-{at}"), &bytes);
    }
    for (at, text) in ADDRESSES.into_iter().enumerate() {
        write("addresses", &format!("text-{at}"), text.as_bytes());
    }
    for (at, text) in RULES.into_iter().chain(PLATFORMS).enumerate() {
        write("platform", &format!("text-{at}"), text.as_bytes());
    }
    for (at, file) in files(&root, "toml").into_iter().chain(files(&root, "xml")).enumerate() {
        write("platform", &format!("file-{at}"), &fs::read(file).expect("it can be read"));
    }
    for (at, text) in WORKFLOWS.into_iter().enumerate() {
        write("workflows", &format!("text-{at}"), text.as_bytes());
    }
    for (at, bytes) in transport().into_iter().enumerate() {
        write("transport", &format!("seed-{at}"), &bytes);
    }
    for (at, bytes) in processes().into_iter().enumerate() {
        write("processes", &format!("seed-{at}"), &bytes);
    }
    for (at, bytes) in stored().into_iter().enumerate() {
        write("stored", &format!("seed-{at}"), &bytes);
    }
    for (at, file) in files(&root, "h").into_iter().enumerate() {
        write("messages", &format!("header-{at}"), &fs::read(file).expect("it can be read"));
    }
}

const ADDRESSES: [&str; 9] = [
    "10.0.0.5:7711+vpn.lab:7711+relay.org:443/n3f21@lab7",
    "[::1]:7711",
    "relay.lab.org:443/agent",
    "linalg/*",
    "~anna/climate/*",
    "8GiB",
    "data/field.bin",
    "jitter=2ms",
    "compress",
];
const RULES: [&str; 1] = [r#"[groups]
students = ["anna", "guest-*"]
[everybody]
functions = ["linalg/*"]
run-code = false
slots = "50%"
[group.students]
slots = 4
memory = "8GiB"
[user.anna]
cancel = ["bert", "group:students"]
write-names = ["~climate/*"]
"#];
const PLATFORMS: [&str; 2] = [
    r#"<?xml version='1.0'?><!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd"><platform version="4.1">
<zone id="all" routing="Full"><cluster id="c" prefix="c-" radical="0-3" suffix="" speed="1Gf" bw="125MBps" lat="50us"/>
<zone id="z" routing="Floyd"><host id="a" speed="1Gf" speed_file="profile"/><host id="b" speed="2Gf" core="4"/>
<link id="l" bandwidth="1MBps" latency="1ms"/><route src="a" dst="b"><link_ctn id="l"/></route></zone></zone></platform>"#,
    r#"<?xml version='1.0'?><platform version="4.1"><zone id="d" routing="None">
<actor host="a" function="f" start_time="1.5"><argument value="3"/></actor></zone></platform>"#,
];
const WORKFLOWS: [&str; 5] = [
    "{\"tasks\": [{\"id\": \"a\", \"work_seconds\": 1, \"inputs\": [\"in\"], \"outputs\": [\"x\"]}, \
     {\"id\": \"b\", \"work_seconds\": 2, \"inputs\": [\"x\"], \"outputs\": []}], \"files\": {\"in\": 5, \"x\": 10}}\0\
     {\"speed\": [1, 2], \"client_bytes_per_s\": [1e6, 2e6], \"direct_bytes_per_s\": {\"0-1\": 1e7}}\0\
     {\"assignment\": {\"a\": 0, \"b\": 1}, \"start_seconds\": {\"a\": 0, \"b\": 1}, \"sources\": {\"x\": {\"1\": 0}}}",
    "{\"format\": \"gridloom plan 1\", \"heuristic\": \"heft\", \"makespan_seconds\": 1, \"lower_bound_seconds\": 1, \
     \"map_seconds\": 0, \"client_bytes\": 0, \"server_bytes\": 0, \"hash\": \"00\", \"tasks_hash\": \"00\", \"tasks\": \
     [{\"number\": 0, \"name\": \"t\", \"function\": \"m/f\", \"server\": \"s\", \"order\": 0, \"start_seconds\": 0, \
     \"end_seconds\": 1}], \"transfers\": []}",
    "{\"format\": \"gridloom graph 1\", \"inputs\": [{\"name\": \"x\", \"type\": \"float64\", \"shape\": [3]}], \
     \"calls\": [{\"name\": \"c\", \"function\": \"m/f\", \"args\": [3, \"x\"]}], \"wanted\": [\"c\"]}",
    "at 1.5s kill server-2\nat 2s cut host-1 host-2 for 2s\nat 1s corrupt host-1 host-2 0.1 for 2s\nrandom 3 within 2s\n",
    "{\"model\": \"LV08\", \"crosstraffic\": true, \"platform\": {\"hosts\": [{\"name\": \"a\", \"speed\": 1e9, \"cores\": 1}], \
     \"links\": [{\"name\": \"l\", \"bandwidth\": 1e6, \"latency\": 0.01, \"policy\": \"SPLITDUPLEX\"}], \"routes\": [], \
     \"profiles\": []}, \"activities\": [{\"name\": \"e\", \"type\": \"exec\", \"host\": \"a\", \"flops\": 1e9, \"start\": 0}]}",
];

/// Bodies of handshakes, messages of worlds, headers of large data and messages of relays.
fn transport() -> Vec<Vec<u8>> {
    let authority = Authority::new("lab", UnixTime::now()).expect("it has random numbers");
    let identity = Identity::new("lab", Role::Server, "peer").expect("it is a name");
    let bundle = authority.issue_bundle(&Grant::new(identity), UnixTime::now()).expect("it can be issued");
    let keys = Keys::new(bundle.membership().expect("it was just issued"));
    let peer = Credentials::new(keys).expect("it has random numbers");
    let hello = |role, purpose| Hello {
        purpose,
        node: peer.id(),
        number: [0; 16],
        role,
        name: "peer".into(),
        address: "10.0.0.5:7711".into(),
        host: "h/1".into(),
        machine: "m".into(),
        stream: 1,
        stripe: Stripe::ONE,
        nonce: [0; 32],
        pass: None,
    };
    let framed = |bodies: &[Vec<u8>]| {
        let framed = |body: &Vec<u8>| [&(body.len() as u16).to_le_bytes()[..], body].concat();
        std::iter::once(0).chain(bodies.iter().flat_map(framed)).collect::<Vec<u8>>()
    };
    let mut all = vec![framed(&[refusal(ConnectionFault::WrongGrid, "it is of another grid")])];
    for (role, purpose) in [
        (NodeRole::Server, Purpose::Control),
        (NodeRole::Client, Purpose::Control),
        (NodeRole::Agent, Purpose::Control),
        (NodeRole::Server, Purpose::BulkSend),
        (NodeRole::Client, Purpose::Process),
    ] {
        let (_, first) = Handshake::dial(peer.clone(), hello(role, purpose)).expect("it has random numbers");
        all.push(framed(&[first, vec![3, 0]]));
    }
    let datum = DatumId { client: NodeId(3), serial: 1 };
    for message in [
        WorldMessage::OpenBulk { stream: 1 },
        WorldMessage::Released { retired: true, serials: vec![1, 2] },
        WorldMessage::Stored { datum, meta: Meta::scalar(Dtype::Int32), digest: [1; 32] },
        WorldMessage::Revocations { lines: "{}\n".into() },
    ] {
        let mut body = vec![1];
        WireVersion::CURRENT.append(&message, &mut body);
        all.push(body);
    }
    let cargo = Cargo::Datum { datum, meta: Meta::array(Dtype::Float64, &[2]) };
    let mut header = Vec::new();
    WireVersion::CURRENT.append(&CargoHeader { serial: 1, cargo, size_bytes: 16, resume: None }, &mut header);
    all.push([&[2][..], &(header.len() as u32).to_le_bytes(), &header].concat());
    let target = RelayTarget::Node { node: NodeId(3), host: "h".into() };
    let register = relay::Request::Register { version: relay::VERSION, number: [1; 16], is_agent: false };
    let requests = [register, relay::Request::connect(&target), relay::Request::Accept { token: [2; 16] }];
    all.push(std::iter::once(3).chain(requests.iter().flat_map(relay::encoded)).collect());
    let replies = [relay::Reply::Registered, relay::Reply::Incoming { token: [1; 16] }, relay::Reply::refused("no")];
    all.push(std::iter::once(3).chain(replies.iter().flat_map(relay::encoded)).collect());
    all
}

fn processes() -> Vec<Vec<u8>> {
    let specs: Vec<_> =
        ["compress", "stripe=3", "delay=1ms"].iter().map(|text| text.parse().expect("it is a filter")).collect();
    let mut chain = FilterChain::new(&specs, PeerPair { from: 0, to: 1 });
    let (filtered, _) = chain.send(Time(1), [&b"some text, some text, some text"[..], &[0; 8]].concat());
    let write = |word: u16, value: u64| [&word.to_le_bytes()[..], &value.to_le_bytes()].concat();
    // A run of nine bytes, and its end.
    let ring = [write(24, 9), write(25, 0x0102), write(26, 3), write(0, 3)].concat();
    vec![
        [&[0][..], &filtered].concat(),
        b"\x01payload kind\x04".to_vec(),
        [&[2][..], &[0; 97]].concat(),
        [&[3][..], &ring].concat(),
    ]
}

fn stored() -> Vec<Vec<u8>> {
    let point =
        |number: u32| Point { size: 1e6 * f64::from(number), seconds: f64::from(number), spread_s: 0.1, calls: 3 };
    let model = FunctionModel { by_work: Curve::new((1..4).map(point).collect()), ..FunctionModel::default() };
    let named = NamedDatum {
        datum: DatumId { client: NodeId::CATALOG, serial: 1 },
        name: "~anna/field".into(),
        version: 2,
        meta: Meta::array(Dtype::Float64, &[3]),
        replicas: 1,
        is_durable: true,
        method: Method::default(),
        put_by: None,
        readers: Default::default(),
    };
    vec![
        [&[0][..], serde_json::to_string(&model).expect("it is written").as_bytes()].concat(),
        [&[1][..], serde_json::to_string(&UsageTable::default()).expect("it is written").as_bytes()].concat(),
        [&[2][..], &postcard::to_stdvec(&named).expect("it is written")].concat(),
    ]
}

/// An event at a server, encoded for the target `machines`.
enum Step {
    /// Its first client sends this message.
    Received(Message),
    /// A datum of that client arrives.
    Arrives(DatumId, Meta),
    /// The agent announces that the client puts a shared datum here; the client's datum 1 becomes the shared one.
    PutAnnounced,
    PutArrives,
}

impl Step {
    fn bytes(&self) -> Vec<u8> {
        match self {
            Step::Received(message) => {
                std::iter::once(0x19).chain(postcard::to_stdvec(message).expect("it is written")).collect()
            }
            Step::Arrives(datum, meta) => {
                std::iter::once(0x14).chain(postcard::to_stdvec(&(datum, meta)).expect("it is written")).collect()
            }
            Step::PutAnnounced => vec![0x07, 0, 0],
            Step::PutArrives => vec![0x17, 1, 0],
        }
    }
}

/// Texts of the target `keys`, with the kind that it reads from the first byte.
fn key_texts() -> Vec<(&'static str, u8, String)> {
    let now = UnixTime::since_unix_epoch(Duration::from_secs(1_800_000_000));
    let folder = std::env::temp_dir().join(format!("gridloom-fuzz-keys-{}", std::process::id()));
    let alice = Identity::new("lab", Role::Client, "alice").expect("it is a name");
    let grid = KeysFolder::at(&folder).create(&alice, now).expect("it is new");
    let request = grid.request(Role::Client, "bob", &Patterns::all(), false, now).expect("it is new");
    let issued = fs::read_to_string(grid.path().join("issued")).expect("it was written");
    let own = grid.own().expect("it was made");
    grid.revoke(&[Revoked::Identity(alice.clone())], "left", now).expect("the authority is there");
    let revoked = grid.revocations().expect("they were written").to_text();
    fs::remove_dir_all(folder).expect("it can be removed");
    vec![
        ("identity", 0, alice.uri()),
        ("pattern", 0, "linalg/*".into()),
        ("request", 1, request.to_pem()),
        ("revoked", 2, revoked),
        ("issued", 3, issued),
        ("certificates", 5, own.issued.to_pem()),
        ("bundle", 5, own.to_pem()),
    ]
}

/// Sequences of messages from clients to servers.
fn conversations() -> Vec<Vec<Step>> {
    let client = NodeId(3);
    let datum = |serial| DatumId { client, serial };
    let (task, meta) = (TaskId { client, serial: 1 }, Meta::array(Dtype::Float64, &[1]));
    let n = Argument::Inline { meta: Meta::scalar(Dtype::Int32), bytes: 1i32.to_ne_bytes().to_vec() };
    let one = Task {
        id: task,
        kind: TaskKind::call("m/f", 0),
        args: vec![n, Argument::Datum(datum(1))],
        outputs: vec![Output { datum: datum(2), meta: meta.clone() }],
        work_flops: Some(1.0),
        options: Default::default(),
    };
    let placed = Task {
        kind: TaskKind::Replicate(CopyLifetime::Kept),
        args: vec![Argument::Datum(datum(1))],
        outputs: Vec::new(),
        ..one.clone()
    };
    let supply = Supply::direct(datum(1), meta.clone(), client, String::new(), 1);
    let run = |task: &Task| {
        Step::Received(TaskToServer::RunTasks { tasks: vec![task.clone()], supplies: vec![supply.clone()] }.into())
    };
    let received = |message: TaskToServer| Step::Received(message.into());
    let arrives = || Step::Arrives(datum(1), meta.clone());
    vec![
        vec![run(&one), received(TaskToServer::Recall { group: None, tasks: vec![task] })],
        vec![run(&one), arrives(), received(TaskToServer::Cancel { tasks: vec![task] })],
        vec![run(&placed), arrives(), received(TaskToServer::Release { data: vec![datum(1)] })],
        vec![
            run(&one),
            arrives(),
            Step::Received(DataMessage::Fetch { datum: datum(2), hops: 1, by_storage: false }.into()),
        ],
        vec![run(&one), arrives(), received(TaskToServer::HasCopies { data: vec![datum(2)] })],
        vec![received(TaskToServer::Call { task: one.clone(), supplies: vec![(datum(1), meta.clone())] }), arrives()],
        vec![Step::PutAnnounced, Step::PutArrives, arrives()],
    ]
}

/// The source files with that ending, in order.
fn files(root: &Path, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders: Vec<PathBuf> = ["bench", "crates", "examples", "tests"].map(|name| root.join(name)).into();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            match path.is_dir() {
                true => folders.push(path),
                false => found.extend(path.extension().is_some_and(|own| own == ending).then_some(path)),
            }
        }
    }
    found.sort();
    found
}

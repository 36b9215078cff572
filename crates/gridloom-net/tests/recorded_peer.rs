//! Compatibility with the previous version: each kind of message as the bytes that it had then, and a recorded
//! conversation that is replayed to current nodes.
//!
//! `tests/recorded/VERSION` contains what nodes of that version sent. A line of `messages.jsonl` has the bytes of one
//! message, together with its content. `enums.json` has the variants of each enum. `conversation.jsonl` has what a
//! server and a client of that version sent to an agent and to a server, and what they received. Replies are compared
//! by content, because times differ.
//!
//! `GRIDLOOM_RECORD=47 cargo test -p gridloom-net --test recorded_peer` records the current nodes as version 47. They
//! send the content of the previous record. Before recording, add lines without `bytes` for new kinds of messages.

mod common;
mod old_peer;
mod transport_support;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use gridloom_base::{ByteOrder, Dtype, Meta, Method, NameError, NodeId, Order, TaskError};
use gridloom_channel::frame::{self, DataHeader};
use gridloom_core::call::Saying;
use gridloom_core::data::{Standing, Verdict};
use gridloom_core::graph::{Argument, Copies, TaskKind};
use gridloom_core::node::message::{
    Basis, CatalogAnswer, CatalogMessage, CatalogToClient, CatalogToServer, ClientToCatalog, DataMessage,
    DirectoryMessage, DirectoryToAgent, DirectoryToClient, DirectoryToServer, LinkMessage, LinkToAgent, LinkToProber,
    MapMessage, MapToAgent, MapToClient, Message, Purpose, ServerToCatalog, Stage, SupplyFault, TaskMessage,
    TaskToClient, TaskToServer,
};
use gridloom_core::node::version::VERSIONS;
use gridloom_core::node::{Agent, AgentConfig, Node, Role, Server, ServerConfig};
use gridloom_idl::expr::postfix::Token;
use gridloom_idl::expr::{BinaryOp, UnaryOp};
use gridloom_idl::{ArrayOrder, BaseType, Does, Mode, NamePart, Values};
use gridloom_map::{Guess, MapBy};
use gridloom_net::driver::{NetConfig, NetNode};
use gridloom_net::transport::handshake::{Hello, dialect};
use gridloom_net::transport::local::GrantHeader;
use gridloom_net::transport::{Aside, Cargo, CargoHeader};
use old_peer::OldPeer;
use serde::de::value::Error;
use serde::de::{DeserializeOwned, Error as _, Visitor};
use serde::{Deserializer, Serialize};
use serde_json::{Value, json};
use transport_support::{listening, raw_frame};

/// The recorded version.
const RECORDED: u16 = 46;
const SECRET: &[u8] = b"of the tests";

fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    let mut bytes = Vec::new();
    dialect(version()).append(value, &mut bytes);
    bytes
}

fn decode<T: DeserializeOwned>(bytes: &[u8]) -> T {
    dialect(version()).parse(bytes).unwrap()
}

// ---- messages

/// Checks a message in both directions; returns its current bytes.
fn check<T: Serialize + DeserializeOwned + PartialEq + Debug>(says: &Value, bytes: &[u8]) -> Vec<u8> {
    let says: T = serde_json::from_value(says.clone()).unwrap_or_else(|error| panic!("{error}: {says}"));
    if !bytes.is_empty() && !is_recording() {
        assert_eq!(decode::<T>(bytes), says);
    }
    encode(&says)
}

fn check_line(line: &Value) -> Vec<u8> {
    let (says, bytes) = (&line["says"], bytes_of(line));
    match line["is"].as_str().unwrap() {
        "Message" => check::<Message>(says, &bytes),
        "Aside" => check::<Aside>(says, &bytes),
        "CargoHeader" => check::<CargoHeader>(says, &bytes),
        "GrantHeader" => check::<GrantHeader>(says, &bytes),
        "DataHeader" => check::<DataHeader>(says, &bytes),
        "Hello" => check::<Hello>(says, &bytes),
        kind => panic!("no kind of message is called {kind}"),
    }
}

#[test]
fn messages_of_the_last_version_say_the_same_in_the_same_bytes() {
    let mut lines = read_lines("messages.jsonl");
    for line in &mut lines {
        let now = hex(&check_line(line));
        if is_recording() {
            line["bytes"] = now.into();
        } else {
            assert_eq!(now, line["bytes"], "{}", line["says"]);
        }
    }
    write_lines("messages.jsonl", &lines);
}

/// Builds a table of the variants of enums, and of the paths of messages with these enums.
macro_rules! variants {
    ($($type:ident $(at $path:literal)?),* $(,)?) => {
        [$((stringify!($type), variants::<$type>(), [$($path)?].first().copied())),*]
    };
}

#[test]
fn variants_are_added_at_the_end_and_all_kinds_of_messages_are_recorded() {
    let lines = read_lines("messages.jsonl");
    let (mut paths, mut names) = (BTreeSet::new(), BTreeSet::new());
    for line in &lines {
        paths.insert(path(&line["says"]));
        collect_names(&line["says"], &mut names);
    }
    let table = variants![
        Message at "", LinkMessage at "Link.", LinkToProber at "Link.ToProber.", LinkToAgent at "Link.ToAgent.",
        DirectoryMessage at "Directory.", DirectoryToAgent at "Directory.ToAgent.", DirectoryToServer at "Directory.ToServer.",
        DirectoryToClient at "Directory.ToClient.", MapMessage at "Map.", MapToAgent at "Map.ToAgent.", MapToClient at "Map.ToClient.",
        TaskMessage at "Task.", TaskToServer at "Task.ToServer.", TaskToClient at "Task.ToClient.", DataMessage at "Data.",
        CatalogMessage at "Catalog.", ClientToCatalog at "Catalog.FromClient.", ServerToCatalog at "Catalog.FromServer.",
        CatalogToClient at "Catalog.ToClient.", CatalogToServer at "Catalog.ToServer.", Aside at "", CatalogAnswer, Cargo, Role, Purpose,
        Basis, Stage, SupplyFault, Verdict, Standing, Saying, TaskKind, Copies, Argument, TaskError, NameError, Meta, Dtype, ByteOrder, Order,
        Method, MapBy, Guess, Mode, BaseType, ArrayOrder, Values, Does, NamePart, Token, UnaryOp, BinaryOp,
    ];
    if is_recording() {
        let all: BTreeMap<_, _> = table.iter().map(|(name, variants, _)| (name, variants)).collect();
        fs::write(file("enums.json", true), serde_json::to_string_pretty(&all).unwrap() + "\n").unwrap();
        return;
    }
    let recorded: BTreeMap<String, Vec<String>> =
        serde_json::from_slice(&fs::read(file("enums.json", false)).unwrap()).unwrap();
    for (name, variants, at) in &table {
        let Some(recorded) = recorded.get(*name) else { continue };
        assert!(
            variants.starts_with(recorded),
            "{name} had {recorded:?}, and has {variants:?}: add variants at the end"
        );
        for variant in at.iter().flat_map(|_| recorded) {
            let path = format!("{}{variant}", at.unwrap());
            let is_recorded = paths.iter().any(|recorded| recorded.starts_with(&path));
            assert!(is_recorded, "no message {path} is recorded");
        }
    }
    assert!(recorded.keys().all(|name| table.iter().any(|(known, _, _)| known == name)), "an enum is checked no more");
    for name in ["TaskError", "NameError", "Meta", "TaskKind"] {
        assert!(recorded[name].iter().all(|variant| names.contains(variant)), "{name} is not recorded in full");
    }
}

/// Returns the variants of an enum, in order.
fn variants<T: DeserializeOwned>() -> Vec<String> {
    struct Ask;
    impl<'de> Deserializer<'de> for Ask {
        type Error = Error;
        fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Error> {
            Err(Error::custom("no enum"))
        }
        fn deserialize_enum<V: Visitor<'de>>(
            self,
            _: &'static str,
            variants: &'static [&'static str],
            _: V,
        ) -> Result<V::Value, Error> {
            Err(Error::custom(variants.join(" ")))
        }
        serde::forward_to_deserialize_any! {
            bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf option unit unit_struct newtype_struct seq tuple
            tuple_struct map struct identifier ignored_any
        }
    }
    let names = T::deserialize(Ask).err().expect("nothing was given").to_string();
    names.split(' ').map(str::to_string).collect()
}

/// Returns the variants that lead to a message, such as `Task.ToServer.Call`.
fn path(says: &Value) -> String {
    let mut names = Vec::new();
    let mut at = says;
    while names.len() < 3 {
        match at {
            Value::Object(fields) if fields.len() == 1 => {
                let (name, inner) = fields.iter().next().unwrap();
                names.push(name.as_str());
                at = inner;
            }
            Value::String(name) => {
                names.push(name);
                break;
            }
            _ => break,
        }
    }
    names.join(".")
}

fn collect_names(says: &Value, names: &mut BTreeSet<String>) {
    match says {
        Value::Object(fields) => {
            names.extend(fields.keys().cloned());
            fields.values().for_each(|value| collect_names(value, names));
        }
        Value::Array(values) => values.iter().for_each(|value| collect_names(value, names)),
        Value::String(name) => _ = names.insert(name.clone()),
        _ => {}
    }
}

// ---- the conversation

/// A running agent or server of the current version.
struct Running {
    node: Arc<NetNode>,
    main: Option<JoinHandle<String>>,
}

impl Running {
    fn start(config: NetConfig, make: impl FnOnce(NodeId, &str) -> Node) -> Running {
        let node = NetNode::start(make, NetConfig { speed_flops: Some(1e9), ..config }).unwrap();
        let main = node.clone();
        Running { node, main: Some(thread::spawn(move || main.run_with(|_| ()))) }
    }

    fn agent() -> Running {
        let make =
            |id, _: &str| Node::Agent(Box::new(Agent::new(AgentConfig { id, name: "agent".into(), is_shared: true })));
        Running::start(listening(), make)
    }

    /// Starts a server that adds two numbers.
    fn server() -> Running {
        let number = |name, mode| common::scalar(name, mode, Dtype::Float64);
        let add = common::native("add", vec![number("a", Mode::In), number("b", Mode::In), number("sum", Mode::Out)]);
        let functions = vec![add.signature.clone()];
        let program = env!("CARGO_BIN_EXE_gridloom-worker").into();
        let jobs = common::config(1, 4, vec![add], vec![common::library()], program);
        let make = |id, address: &str| {
            Node::Server(Box::new(Server::new(ServerConfig {
                id,
                name: "new".into(),
                address: address.into(),
                agent: String::new(),
                slots: 1,
                queue_depth: 4,
                plain: false,
                memory_bytes: 1 << 30,
                data_max: 1000,
                slowdown: 1.0,
                functions,
                codes: BTreeMap::new(),
                models: BTreeMap::new(),
                durable: None,
                storage: None,
            })))
        };
        Running::start(NetConfig { jobs: Some(jobs), ..listening() }, make)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.node.stop();
        self.main.take().map(JoinHandle::join);
    }
}

#[test]
fn a_server_and_a_client_of_the_last_version_work_with_nodes_of_now() {
    let (agent, server) = (Running::agent(), Running::server());
    let mut peers: BTreeMap<String, OldPeer> = BTreeMap::new();
    let mut lines = read_lines("conversation.jsonl");
    for line in &mut lines {
        let on = line["on"].as_str().unwrap().to_string();
        match line["does"].as_str().unwrap() {
            "dials" => {
                let hello = if is_recording() { hello_now(&line["says"]) } else { bytes_of(line) };
                line["bytes"] = hex(&hello).into();
                let (to, seed) = (
                    if on.ends_with("agent") { &agent } else { &server },
                    if on.starts_with("client") { 64 } else { 46 },
                );
                peers.insert(on, OldPeer::dial(to.node.address(), SECRET, [seed; 32], version(), &hello));
            }
            "sends" => {
                let (kind, says) = (kind_of(line), line["says"].clone());
                let now = body(kind, &says);
                if is_recording() {
                    line["bytes"] = hex(&now).into();
                }
                peers.get_mut(&on).unwrap().send(kind, &bytes_of(line));
            }
            "hears" => {
                let (kind, due) = (kind_of(line), path(&line["says"]));
                // What a server has reported reaches a client with the functions, or in later updates of that server.
                let (bytes, heard) = loop {
                    let (came, bytes) = peers.get_mut(&on).unwrap().receive();
                    let heard = (came == kind).then(|| says(kind, &bytes)).filter(|heard| path(heard) == due);
                    let Some(heard) = heard else { continue };
                    let is_it = || {
                        let recorded = without_what_differs(says(kind, &bytes_of(line)));
                        let heard = without_what_differs(heard.clone());
                        let of_servers = |says: &Value| says.pointer("/Directory/ToClient/News/servers").cloned();
                        heard == recorded
                            || (of_servers(&heard).is_some() && of_servers(&heard) == of_servers(&recorded))
                    };
                    if is_recording() || is_it() {
                        break (bytes, heard);
                    }
                    eprintln!("on {on}: not what was recorded, {heard}");
                };
                if is_recording() {
                    (line["bytes"], line["says"]) = (hex(&bytes).into(), heard);
                }
            }
            does => panic!("nobody {does}"),
        }
    }
    write_lines("conversation.jsonl", &lines);
}

#[test]
fn versions_without_one_in_common_are_named_on_both_sides() {
    let agent = Running::agent();
    let lines = read_lines("conversation.jsonl");
    let mut hello = bytes_of(&lines[0]);
    let (low, high) = (RECORDED - 7, RECORDED - 1);
    hello[5..7].copy_from_slice(&low.to_le_bytes());
    hello[7..9].copy_from_slice(&high.to_le_bytes());
    use std::io::{Read, Write};
    let mut socket = std::net::TcpStream::connect(agent.node.address()).unwrap();
    socket.set_read_timeout(Some(transport_support::PATIENCE)).unwrap();
    socket.write_all(&raw_frame(0, 3, &hello)).unwrap();
    let mut said = Vec::new();
    socket.read_to_end(&mut said).unwrap();
    let (said, (lowest, highest)) = (String::from_utf8_lossy(&said).into_owned(), VERSIONS);
    for part in [format!("{low} to {high}"), format!("{lowest} to {highest}"), "update".into()] {
        assert!(said.contains(&part), "{said}");
    }
}

/// Such a peer does not know `Aside::Refused`.
#[test]
fn nothing_is_said_to_a_peer_of_the_last_version_whose_messages_cannot_be_read() {
    let node = transport_support::server();
    let mut peer =
        OldPeer::dial(node.node.address(), SECRET, [46; 32], RECORDED, &bytes_of(&read_lines("conversation.jsonl")[0]));
    peer.send(1, &[0xff; 40]);
    assert!(peer.rest().is_empty());
}

/// Returns the body of a current first frame.
fn hello_now(says: &Value) -> Vec<u8> {
    let version = version().to_le_bytes();
    [&[1][..], b"GRLM", &version, &version, &check::<Hello>(says, &[])].concat()
}

fn kind_of(line: &Value) -> u64 {
    match line["kind"].as_str().unwrap() {
        "Message" => 1,
        "Data" => 2,
        kind => panic!("no frame is of kind {kind}"),
    }
}

/// Returns the body of a frame with this content.
fn body(kind: u64, says: &Value) -> Vec<u8> {
    if kind == 1 {
        return check::<Message>(says, &[]);
    }
    let header = check::<DataHeader>(says, &[]);
    [&(header.len() as u32).to_le_bytes()[..], &header, &from_hex(says["payload"].as_str().unwrap())].concat()
}

/// Returns the content of a frame's body.
fn says(kind: u64, bytes: &[u8]) -> Value {
    if kind == 1 {
        return serde_json::to_value(decode::<Message>(bytes)).unwrap();
    }
    let (header, payload) = frame::parse_data(bytes, dialect(version())).unwrap();
    json!({ "datum": header.datum, "meta": header.meta, "payload": hex(payload) })
}

/// Removes values that differ from run to run: times, and the identifier of the server to which data are sent.
fn without_what_differs(mut says: Value) -> Value {
    match &mut says {
        Value::Object(fields) => {
            for (name, value) in fields {
                *value = if name.ends_with("_ns") || name == "to" {
                    Value::Null
                } else {
                    without_what_differs(value.take())
                };
            }
        }
        Value::Array(values) => values.iter_mut().for_each(|value| *value = without_what_differs(value.take())),
        _ => {}
    }
    says
}

// ---- files

fn is_recording() -> bool {
    std::env::var_os("GRIDLOOM_RECORD").is_some()
}

/// Returns the version that peers use.
fn version() -> u16 {
    std::env::var("GRIDLOOM_RECORD").map_or(RECORDED, |version| version.parse().unwrap())
}

fn file(name: &str, writes: bool) -> PathBuf {
    let version = if writes { version() } else { RECORDED };
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/recorded/{version}/{name}"))
}

fn read_lines(name: &str) -> Vec<Value> {
    let text = fs::read_to_string(file(name, false)).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn write_lines(name: &str, lines: &[Value]) {
    if is_recording() {
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        fs::create_dir_all(file(name, true).parent().unwrap()).unwrap();
        fs::write(file(name, true), text).unwrap();
    }
}

fn bytes_of(line: &Value) -> Vec<u8> {
    from_hex(line["bytes"].as_str().unwrap_or_default())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Vec<u8> {
    let digits = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
    (0..text.len()).step_by(2).map(digits).collect()
}

//! The conformance suite in the real world: agent and servers are processes, the client is a node of this process.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command as Process, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use gridloom_base::{DatumId, Meta, NodeId, Time};
use gridloom_conformance::grid::{C_SOURCE, IDL, cases};
use gridloom_core::node::world::ServerSpec;
use gridloom_core::node::{Client, ClientConfig, Command, Event, Node, World};
use gridloom_keys::KeysFolder;
use gridloom_net::driver::{NetConfig, NetNode};
use gridloom_net::identity::Keys;
use gridloom_net::payload::Payload;

/// First number for the processes: their own identifiers are not known here. Clients keep theirs.
const FIRST_PROCESS: u64 = 1 << 62;

struct RealWorld {
    folder: PathBuf,
    shared_memory: bool,
    agent: String,
    processes: Vec<Child>,
    clients: Vec<Arc<NetNode>>,
}

impl RealWorld {
    fn new(folder: &Path, shared_memory: bool) -> RealWorld {
        let folder = folder.to_path_buf();
        RealWorld { folder, shared_memory, agent: String::new(), processes: Vec::new(), clients: Vec::new() }
    }

    fn spawn(&mut self, arguments: &[&str]) -> (NodeId, String) {
        let mut child = Process::new(env!("CARGO_BIN_EXE_gridloom"))
            .args(arguments)
            .args(["--json", "--until-stdin-closes"])
            .env("GRIDLOOM_KEYS", crate::support::keys())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let ready: serde_json::Value = serde_json::from_str(&line).unwrap();
        self.processes.push(child);
        let node = NodeId(FIRST_PROCESS + self.processes.len() as u64 - 1);
        (node, ready["address"].as_str().unwrap().to_string())
    }

    fn durable_folder(&self) -> PathBuf {
        self.folder.join(self.agent.replace(':', "-"))
    }

    fn client(&self, node: NodeId) -> &Arc<NetNode> {
        self.clients.iter().find(|client| client.id() == node).unwrap()
    }

    fn signal(&self, node: NodeId, signal: &str) {
        let pid = self.processes[(node.0 - FIRST_PROCESS) as usize].id().to_string();
        assert!(Process::new("kill").args([signal, &pid]).status().unwrap().success());
    }
}

impl World for RealWorld {
    fn start_agent(&mut self) -> NodeId {
        let (node, address) = self.spawn(&["agent", "--listen", "127.0.0.1:0"]);
        self.agent = address;
        node
    }

    fn start_server(&mut self, spec: ServerSpec) -> NodeId {
        let (idl, library) = (self.folder.join("suite.idl"), self.folder.join("libsuite.so"));
        let (slots, memory, agent) = (spec.slots.to_string(), format!("{}B", spec.memory_bytes), self.agent.clone());
        let mut arguments = vec!["serve", idl.to_str().unwrap(), "--library", library.to_str().unwrap()];
        arguments.extend(["--agent", &agent, "--name", &spec.name, "--slots", &slots, "--memory", &memory]);
        let durable = self.durable_folder().join(&spec.name);
        let storage = self.folder.join("storage");
        match spec.is_stateless {
            true => arguments.push("--plain"),
            false => arguments.extend(["--durable", durable.to_str().unwrap(), "--storage", storage.to_str().unwrap()]),
        }
        if !self.shared_memory {
            arguments.push("--no-shared-memory");
        }
        self.spawn(&arguments).0
    }

    fn start_client(&mut self, name: &str) -> NodeId {
        let (name, agent) = (name.to_string(), self.agent.clone());
        let make =
            |id, _: &str| Node::Client(Box::new(Client::new(ClientConfig { id, name, agent, is_in_call: false })));
        let own = KeysFolder::at(crate::support::keys()).existing(None).and_then(|grid| grid.membership()).unwrap();
        let config = NetConfig { shared_memory: self.shared_memory, ..NetConfig::new(Keys::new(own)) };
        let client = NetNode::start(make, config).unwrap();
        self.clients.push(client.clone());
        client.id()
    }

    fn put(&mut self, client: NodeId, datum: DatumId, meta: Meta, bytes: Option<Vec<u8>>) {
        self.client(client).store().put(datum, meta, Payload::Inline(bytes.unwrap().into()));
    }

    fn value(&mut self, client: NodeId, datum: DatumId) -> Option<(Meta, Option<Vec<u8>>)> {
        let (meta, payload) = self.client(client).store().get(&datum)?;
        Some((meta, Some(payload.bytes().to_vec())))
    }

    fn command(&mut self, client: NodeId, command: Command) {
        self.client(client).command(command);
    }

    fn next_event(&mut self, client: NodeId, patience_ns: u64) -> Option<Event> {
        let deadline = Instant::now() + Duration::from_nanos(patience_ns);
        self.client(client).wait(Some(deadline), |events| events.pop_front())
    }

    fn now(&mut self) -> Time {
        self.clients[0].now()
    }

    fn kill(&mut self, node: NodeId) {
        // Clients are nodes of this process.
        if let Some(client) = self.clients.iter().find(|client| client.id() == node) {
            return client.stop();
        }
        self.signal(node, "-KILL");
        // A process with the same name may start now.
        self.processes[(node.0 - FIRST_PROCESS) as usize].wait().unwrap();
    }

    fn hang(&mut self, node: NodeId) {
        self.signal(node, "-STOP");
    }
}

impl Drop for RealWorld {
    fn drop(&mut self) {
        for client in &self.clients {
            client.stop();
        }
        for child in &mut self.processes {
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = std::fs::remove_dir_all(self.durable_folder());
    }
}

fn conforms(shared_memory: bool) {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("conformance-{shared_memory}"));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("suite.idl"), IDL).unwrap();
    std::fs::write(folder.join("suite.c"), C_SOURCE).unwrap();
    let compiled = Process::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-o", "libsuite.so", "suite.c"])
        .current_dir(&folder)
        .status()
        .unwrap();
    assert!(compiled.success());
    for (name, case) in cases() {
        println!("{name}");
        case(&mut RealWorld::new(&folder, shared_memory));
    }
}

#[test]
fn the_real_world_conforms_over_shared_memory() {
    conforms(true);
}

#[test]
fn the_real_world_conforms_over_tcp() {
    conforms(false);
}

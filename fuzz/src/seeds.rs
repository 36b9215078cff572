//! Initial inputs of the targets: `seeds ROOT` writes `ROOT/fuzz/corpus/` from the interface descriptions and recorded messages
//! of the repository at `ROOT`.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gridloom_base::{DatumId, Dtype, Meta, NodeId, TaskId};
use gridloom_channel::frame::{Encoder, Kind};
use gridloom_core::graph::{Argument, CopyLifetime, Output, Task, TaskKind};
use gridloom_core::node::message::{DataMessage, DirectoryToClient, DirectoryUpdate, Message, Supply, TaskToServer};
use gridloom_idl::parse;
use gridloom_keys::{Identity, KeysFolder, Patterns, Revoked, Role, UnixTime};

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
                DirectoryToClient::Update(DirectoryUpdate { functions, ..DirectoryUpdate::between(&[], &[], None) })
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
    for (at, file) in files(&root, "h").into_iter().enumerate() {
        write("messages", &format!("header-{at}"), &fs::read(file).expect("it can be read"));
    }
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

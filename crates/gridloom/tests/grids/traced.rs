//! Traces of simulations for viewers: they parse, are complete, and show messages decoded.

use crate::support;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gridloom::base::{Dtype, Meta};
use gridloom::process::{Main, Measure, Process, ProcessError, StackKind, simulate};
use gridloom::{Error, Grid, Message, SimulateConfig, Value};
use serde_json::{Value as Json, json};

const PLATFORM: &str = "
[[host]]
name = 'a'
speed = '1Gf'
[[host]]
name = 'b'
speed = '1Gf'
[[link]]
name = 'wire'
bandwidth = '100MBps'
latency = '1ms'
[[route]]
from = 'a'
to = 'b'
links = ['wire']
";

#[derive(Message)]
struct Scale {
    m: usize,
    n: usize,
    factor: f64,
    name: String,
    #[message(length = "m * n")]
    data: Vec<f64>,
}

fn scale(m: usize, name: &str) -> Scale {
    Scale { m, n: 2, factor: 0.5, name: name.into(), data: (0..2 * m).map(|number| number as f64).collect() }
}

fn server(mut me: Process) -> Result<(), ProcessError> {
    me.listen(1)?;
    for _ in 0..3 {
        me.wait::<Scale>(None, None)?;
    }
    let (client, _) = me.wait_for("raw", None, None)?;
    me.sleep(0.25)?;
    me.compute(5e8)?;
    me.measure("check", Measure::Always, |_| ())?;
    me.send(client, &scale(100, "reply"))
}

fn client(mut me: Process) -> Result<(), ProcessError> {
    let server = me.connect("a", 1, 10.0)?;
    for number in 1..4 {
        me.send(server, &scale(number, "request"))?;
    }
    me.send_bytes(server, "raw", b"\x01two".to_vec())?;
    me.wait::<Scale>(Some(server), None).map(drop)
}

fn folder(test: &str) -> PathBuf {
    support::folder(test, &[("platform.toml", PLATFORM)])
}

/// Runs the processes; returns the trace's hash.
fn run(folder: &Path, trace: Option<PathBuf>) -> Result<Option<String>, Error> {
    let deployment = "[[process]]\nhost = 'a'\nfunction = 'server'\n[[process]]\nhost = 'b'\nfunction = 'client'\n\
                      arguments = ['one', 'two']\n";
    std::fs::write(folder.join("deployment.toml"), deployment).unwrap();
    std::fs::write(folder.join("measures"), "gridloom-measures 1\n1\t\"server@a\"\t\"check\"\t1\t0.125\t125000000.0\n")
        .unwrap();
    let config = SimulateConfig {
        platform: folder.join("platform.toml"),
        deployment: Some(folder.join("deployment.toml")),
        replay: Some(folder.join("measures")),
        trace,
        ..SimulateConfig::default()
    };
    let mains = BTreeMap::from([
        ("server".to_string(), Arc::new(|me| server(me).map_err(Error::from)) as Main),
        ("client".to_string(), Arc::new(|me| client(me).map_err(Error::from)) as Main),
    ]);
    simulate(&config, &mains, StackKind::Coroutine).map(|report| report.trace_hash)
}

/// A trace in Chrome's format.
struct Trace {
    events: Vec<Json>,
    names: BTreeMap<u64, String>,
}

impl Trace {
    /// Reads the trace, and checks that activities on a track end in reverse order, and that every arrow arrives.
    fn read(path: &Path) -> Trace {
        let events: Vec<Json> = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        let mut names = BTreeMap::new();
        let mut open: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
        let (mut left, mut arrived) = (BTreeSet::new(), BTreeSet::new());
        for event in &events {
            let (track, at) = (event["tid"].as_u64().unwrap(), event["ts"].as_f64().unwrap());
            match event["ph"].as_str().unwrap() {
                "M" if event["name"] == "thread_name" => {
                    assert!(names.insert(track, event["args"]["name"].as_str().unwrap().to_string()).is_none());
                }
                "M" | "X" => {}
                "B" => {
                    assert!(names.contains_key(&track), "a track has a name: {event}");
                    open.entry(track).or_default().push(at);
                }
                "E" => assert!(open.get_mut(&track).unwrap().pop().unwrap() <= at, "{event}"),
                "s" => assert!(left.insert(event["id"].to_string()), "{event}"),
                "f" => assert!(arrived.insert(event["id"].to_string()), "{event}"),
                other => panic!("{other}"),
            }
        }
        assert!(open.values().all(Vec::is_empty));
        assert_eq!(left, arrived);
        Trace { events, names }
    }

    /// Names and details of events of that kind, with the names of their tracks.
    fn of(&self, kind: &str) -> Vec<(&str, &str, &Json)> {
        let of_kind = self.events.iter().filter(|event| event["ph"] == kind);
        let name = |event: &Json| self.names[&event["tid"].as_u64().unwrap()].as_str();
        of_kind.map(|event| (name(event), event["name"].as_str().unwrap(), &event["args"])).collect()
    }
}

#[test]
fn processes_have_states_and_messages_with_their_values() {
    let folder = folder("traced");
    let file = folder.join("trace.json");
    let hash = run(&folder, Some(file.clone())).unwrap();
    assert_eq!(hash, run(&folder, None).unwrap(), "a trace changes nothing");
    let trace = Trace::read(&file);
    let sent: Vec<_> = trace.of("X").into_iter().filter(|(_, name, _)| name.starts_with("send")).collect();
    let short = json!({ "m": 1, "n": 2, "factor": 0.5, "name": "request", "data": [0.0, 1.0] });
    assert_eq!((sent[0].0, sent[0].1), ("client@b one two: messages", "send Scale"));
    assert_eq!((&sent[0].2["to"], &sent[0].2["message"]), (&json!("server@a"), &short));
    // All messages of the same instant are shown with their values; the second one has no declaration of its own.
    assert_eq!(sent[1].2["message"]["data"], json!([0.0, 1.0, 2.0, 3.0]));
    assert_eq!((sent[3].1, &sent[3].2["message"]), ("send raw", &json!({ "bytes": 4, "first": "\\x01two" })));
    let first: Vec<f64> = (0..8).map(f64::from).collect();
    let long = json!({ "dtype": "float64", "shape": [100, 2], "first": first });
    assert_eq!((sent[4].0, &sent[4].2["message"]["data"]), ("server@a: messages", &long));
    assert_eq!(sent.len(), 5);
    assert_eq!(trace.of("s").len(), 5);

    let server: Vec<_> = trace.of("B").into_iter().filter(|(track, ..)| *track == "server@a").collect();
    let states: Vec<&str> = server.iter().map(|(_, name, _)| *name).collect();
    assert!(
        states.starts_with(&["waiting"]) && states.ends_with(&["sleeping", "computing", "computing"]),
        "{states:?}"
    );
    assert_eq!(server[0].2, &json!({ "for": "a message 'Scale'" }));
    assert_eq!(server.last().unwrap().2, &json!({ "block": "check", "flops": 125_000_000.0 }));
    let on_links = trace.of("B").iter().filter(|(track, ..)| track.starts_with("transfer")).count();
    assert_eq!(on_links, 5, "each message is on the link, those of one time side by side");
    let groups = trace.events.iter().filter(|event| event["name"] == "process_name");
    let groups: BTreeSet<&str> = groups.map(|event| event["args"]["name"].as_str().unwrap()).collect();
    assert_eq!(groups, BTreeSet::from(["host a", "host b", "link wire"]));
}

#[test]
fn a_grid_has_tasks_on_servers_and_data_on_links() {
    let folder = folder("traced-grid");
    std::fs::write(folder.join("kernels.idl"), support::PRODUCT).unwrap();
    let hash = |trace: Option<PathBuf>| {
        let config = SimulateConfig {
            platform: folder.join("platform.toml"),
            functions: vec![folder.join("kernels.idl")],
            trace,
            ..SimulateConfig::default()
        };
        let grid = Grid::simulate(config).unwrap();
        let product = grid.function("product").unwrap();
        let matrix = || Value::placeholder(Meta::array(Dtype::Float64, &[300, 300]));
        let group = grid.group("heft");
        let first = group.call(&product, (matrix(), matrix())).unwrap().one().unwrap();
        let second = group.call(&product, (&first, matrix())).unwrap().one().unwrap();
        second.get().unwrap();
        grid.simulation().unwrap().trace_hash
    };
    let file = folder.join("trace.json");
    assert_eq!(hash(Some(file.clone())), hash(None), "a trace changes nothing");
    let trace = Trace::read(&file);
    let begun = trace.of("B");
    let tasks: Vec<_> = begun.iter().filter(|(track, ..)| *track == "b: slot 1").collect();
    assert_eq!(tasks.iter().map(|task| task.1).collect::<Vec<_>>(), ["kernels/product"; 2]);
    assert_eq!(tasks[0].2["flops"], 5.4e7);
    let data: Vec<_> = begun.iter().filter(|(_, name, _)| name.starts_with("datum")).collect();
    let ways: Vec<_> = data.iter().map(|datum| (datum.2["from"].as_str(), datum.2["to"].as_str())).collect();
    assert_eq!(ways.iter().filter(|way| **way == (Some("client"), Some("b"))).count(), 3, "{ways:?}");
    assert!(ways.contains(&(Some("b"), Some("client"))) && data.iter().all(|datum| datum.2["bytes"] == 720_000));
    assert_eq!(trace.of("s").len(), data.len(), "an arrow for each datum");
}

#[test]
fn pajes_format_is_whole_too() {
    let folder = folder("traced-paje");
    let file = folder.join("trace.paje");
    run(&folder, Some(file.clone())).unwrap();
    let text = std::fs::read_to_string(&file).unwrap();
    let (mut last, mut states, mut links) = (0.0, BTreeMap::<&str, i32>::new(), BTreeMap::<&str, i32>::new());
    // Definitions of types have no time.
    let has_time =
        |line: &&str| !line.starts_with('%') && !["0 ", "1 ", "2 ", "9 "].iter().any(|kind| line.starts_with(kind));
    for line in text.lines().filter(has_time) {
        let words: Vec<&str> = line.split(' ').collect();
        let at: f64 = words[1].parse().unwrap();
        assert!(at >= last, "time goes back: {line}");
        last = at;
        match words[0] {
            "5" => *states.entry(words[3]).or_default() += 1,
            "6" => *states.entry(words[3]).or_default() -= 1,
            "7" => *links.entry(words.last().unwrap()).or_default() += 1,
            "8" => *links.entry(words.last().unwrap()).or_default() -= 1,
            other => assert!(["3", "4"].contains(&other), "{line}"),
        }
    }
    assert!(states.len() >= 3 && states.values().all(|open| *open == 0), "{states:?}");
    assert!(links.len() == 5 && links.values().all(|open| *open == 0), "{links:?}");
    assert!(text.contains("'factor':0.5") && text.ends_with(" all Picture\n"), "{text}");
}

#[test]
fn a_disk_without_room_is_an_error() {
    let error = run(&folder("traced-full"), Some("/dev/full".into())).unwrap_err().to_string();
    assert!(error.contains("cannot write the trace to /dev/full"), "{error}");
}

#[test]
fn a_deadlock_reports_the_cycle_and_leaves_a_whole_trace() {
    let folder = folder("traced-deadlock");
    let file = folder.join("trace.json");
    let deployment = "[[process]]\nhost = 'a'\nfunction = 'server'\n[[process]]\nhost = 'b'\nfunction = 'idle'\n";
    std::fs::write(folder.join("deployment.toml"), deployment).unwrap();
    let config = SimulateConfig {
        platform: folder.join("platform.toml"),
        deployment: Some(folder.join("deployment.toml")),
        trace: Some(file.clone()),
        ..SimulateConfig::default()
    };
    // A process's own error, or a panic, does not hide the deadlock.
    let idle = |mut me: Process| {
        me.wait_for("never", None, None).map(drop).map_err(|error| Error::Input(format!("it did not come: {error}")))
    };
    let mains = BTreeMap::from([
        ("server".to_string(), Arc::new(|me| server(me).map_err(Error::from)) as Main),
        ("idle".to_string(), Arc::new(idle) as Main),
    ]);
    let error = simulate(&config, &mains, StackKind::Coroutine).unwrap_err().to_string();
    for who in ["server on a waits for a message 'Scale'", "idle on b waits for a message 'never'"] {
        assert!(error.contains(who), "{error}");
    }
    assert_eq!(Trace::read(&file).of("B").len(), 2);
}

//! Simulated processes that use the grid besides their messages: on both kinds of stack.

use crate::support;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use gridloom::base::{Dtype, Meta};
use gridloom::process::{Main, Process, RunReport, StackKind, simulate};
use gridloom::{Error, Grid, LocalConfig, SimulateConfig, SimulationReport, Value};

const PLATFORM: &str = r#"
[[host]]
name = "a"
speed = "1Gf"
[[host]]
name = "b"
speed = "1Gf"
properties = { role = "none" }
[[host]]
name = "server-1"
speed = "10Gf"
[[host]]
name = "server-2"
speed = "10Gf"
[[star]]
name = "lan"
hosts = ["a", "b", "server-1", "server-2"]
bandwidth = "100MBps"
latency = "1ms"
"#;

type Notes = Arc<Mutex<Vec<String>>>;

/// A deployment with these processes: host, function and further lines.
fn config(test: &str, processes: &[(&str, &str, &str)]) -> SimulateConfig {
    let process = |(host, function, more): &(&str, &str, &str)| {
        format!("[[process]]\nhost = '{host}'\nfunction = '{function}'\n{more}\n")
    };
    let deployment: String = processes.iter().map(process).collect();
    let folder = support::folder(test, &[("deployment.toml", &deployment)]);
    SimulateConfig {
        deployment: Some(folder.join("deployment.toml")),
        report: Some(folder.join("report.json")),
        reference_flops: Some(1e9),
        ..support::simulation(test, PLATFORM, support::SQUARE, &[])
    }
}

type Body = fn(&mut Process, &Notes) -> Result<(), Error>;

fn run(config: &SimulateConfig, kind: StackKind, mains: &[(&str, Body)]) -> (Result<RunReport, Error>, Vec<String>) {
    let notes = Notes::default();
    let main = |body: Body| -> Main {
        let notes = notes.clone();
        Arc::new(move |mut process| body(&mut process, &notes))
    };
    let mains: BTreeMap<String, Main> = mains.iter().map(|(name, body)| (name.to_string(), main(*body))).collect();
    let report = simulate(config, &mains, kind);
    let notes = notes.lock().unwrap().clone();
    (report, notes)
}

fn reported(config: &SimulateConfig) -> SimulationReport {
    serde_json::from_str(&std::fs::read_to_string(config.report.as_ref().unwrap()).unwrap()).unwrap()
}

fn matrix(n: u64) -> Value {
    Value::placeholder(Meta::array(Dtype::Float64, &[n, n]))
}

/// Two products, of which the first stays on the servers.
fn work(grid: &Grid) -> Result<f64, Error> {
    let product = grid.function("product")?;
    let group = grid.group("heft");
    let first = group.call(&product, [&matrix(1000)])?.one()?;
    let second = group.call(&product, [&first])?.one()?;
    second.get()?;
    Ok(group.report()?.measured_seconds)
}

fn worker(me: &mut Process, notes: &Notes) -> Result<(), Error> {
    let peer = me.connect("b", 1, 10.0)?;
    let grid = Grid::connect("agent.example.org:7711")?;
    me.send_bytes(peer, "begins", vec![0; 1_000_000])?;
    let seconds = work(&grid)?;
    notes.lock().unwrap().push(format!("{} {seconds:.3}", me.spec().host));
    drop(grid);
    // Another session of the same process.
    let grid = Grid::local(LocalConfig::default())?;
    assert_eq!(grid.servers().servers.len(), 2);
    let before = grid.now();
    grid.advance(1.0);
    assert!((grid.now() - before - 1.0).abs() < 1e-9);
    me.send_bytes(peer, "done", Vec::new())?;
    Ok(())
}

fn collector(me: &mut Process, notes: &Notes) -> Result<(), Error> {
    me.listen(1)?;
    for kind in ["begins", "begins", "done", "done"] {
        let (from, _) = me.wait_for(kind, None, None)?;
        notes.lock().unwrap().push(format!("{kind} {}", me.describe(from)));
    }
    Ok(())
}

#[test]
fn several_processes_are_clients_of_one_grid_and_talk() {
    let mut all = Vec::new();
    for (name, kind) in
        [("grids-c", StackKind::Coroutine), ("grids-t", StackKind::Thread), ("grids-u", StackKind::Thread)]
    {
        let config = config(name, &[("a", "worker", ""), ("b", "worker", ""), ("b", "collector", "")]);
        let (report, mut notes) = run(&config, kind, &[("worker", worker), ("collector", collector)]);
        let hash = report.unwrap().trace_hash;
        notes.sort();
        let told = reported(&config);
        assert_eq!(told.groups.len(), 2, "{told:?}");
        assert!(told.bytes_by_pair.keys().any(|pair| pair.starts_with("worker@a -> server-")), "{told:?}");
        assert!(told.bytes_by_pair.keys().any(|pair| pair.starts_with("worker@b -> server-")), "{told:?}");
        all.push((hash, notes, told));
    }
    assert_eq!(all[0], all[1]);
    assert_eq!(all[1], all[2]);
    let heard = ["begins worker@a", "begins worker@b", "done worker@a", "done worker@b"];
    assert!(heard.iter().all(|line| all[0].1.contains(&line.to_string())), "{:?}", all[0].1);
}

#[test]
fn a_client_goes_with_its_process() {
    // It is killed in the middle of its group; then nobody keeps its data.
    fn killed(_: &mut Process, notes: &Notes) -> Result<(), Error> {
        let grid = Grid::connect("x:1")?;
        let error = (0..1000).find_map(|_| work(&grid).err()).unwrap();
        notes.lock().unwrap().push(error.to_string());
        assert!(matches!(error, Error::Process(_)));
        Err(error)
    }
    // This one leaks its session.
    fn forgets(_: &mut Process, _: &Notes) -> Result<(), Error> {
        let grid = Grid::connect("x:1")?;
        work(&grid)?;
        std::mem::forget(grid);
        Ok(())
    }
    fn last(me: &mut Process, notes: &Notes) -> Result<(), Error> {
        me.sleep(30.0)?;
        let grid = Grid::connect("x:1")?;
        let seconds = work(&grid)?;
        notes.lock().unwrap().push(format!("{seconds:.1}"));
        Ok(())
    }
    let processes = [("a", "killed", "kill_time = 5"), ("b", "forgets", ""), ("a", "last", "")];
    for (name, kind) in [("gone-c", StackKind::Coroutine), ("gone-t", StackKind::Thread)] {
        let config = config(name, &processes);
        let mains: [(&str, Body); 3] = [("killed", killed), ("forgets", forgets), ("last", last)];
        let (report, notes) = run(&config, kind, &mains);
        let report = report.unwrap();
        assert_eq!(notes, ["the process was killed", "0.6"], "{report:?}");
        assert!(report.seconds < 40.0);
    }
}

#[test]
fn a_deadlock_beside_a_grid_is_reported_immediately() {
    fn waits(me: &mut Process, _: &Notes) -> Result<(), Error> {
        let _grid = Grid::connect("x:1")?;
        me.wait_for("nothing", None, None)?;
        Ok(())
    }
    let config = config("grid-deadlock", &[("a", "waits", "")]);
    let (report, _) = run(&config, StackKind::Coroutine, &[("waits", waits)]);
    let error = report.unwrap_err().to_string();
    assert!(error.contains("waits on a waits for a message 'nothing'"), "{error}");
}

#[test]
fn a_session_is_used_in_its_process_only() {
    static KEPT: Mutex<Option<Grid>> = Mutex::new(None);
    fn gives(me: &mut Process, _: &Notes) -> Result<(), Error> {
        *KEPT.lock().unwrap() = Some(Grid::connect("x:1")?);
        me.sleep(10.0)?;
        Ok(())
    }
    fn takes(me: &mut Process, notes: &Notes) -> Result<(), Error> {
        me.sleep(5.0)?;
        let grid = KEPT.lock().unwrap().take().unwrap();
        notes.lock().unwrap().push(work(&grid).unwrap_err().to_string());
        Ok(())
    }
    let config = config("grid-foreign", &[("a", "gives", ""), ("b", "takes", "")]);
    let (report, notes) = run(&config, StackKind::Coroutine, &[("gives", gives), ("takes", takes)]);
    report.unwrap();
    assert_eq!(notes, ["a simulated process can wait only on its own thread: this is not the thread of gives on a"]);
}

#[test]
fn faults_hit_the_grid_that_processes_use() {
    let mut config = config("grid-faults", &[("a", "worker", ""), ("b", "worker", ""), ("b", "collector", "")]);
    let file = config.platform.with_file_name("scenario.faults");
    std::fs::write(&file, "at 0.7s kill server-1\nat 20s kill worker@a\n").unwrap();
    config.faults = Some(file.clone());
    let (report, notes) = run(&config, StackKind::Coroutine, &[("worker", worker), ("collector", collector)]);
    let error = report.err().map(|error| error.to_string());
    assert!(notes.iter().filter(|line| line.starts_with("begins")).count() == 2, "{notes:?} {error:?}");
    std::fs::write(&file, "at 1s kill worker@c\n").unwrap();
    let error = run(&config, StackKind::Coroutine, &[("worker", worker), ("collector", collector)]).0.unwrap_err();
    assert!(error.to_string().contains("no node is called 'worker@c'; there are agent, server-1, server-2, worker@a"));
}

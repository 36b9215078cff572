//! Failures in a worker process stay there, are described in the error, and affect only the task that caused them.

use std::path::PathBuf;

use crate::common::*;
use gridloom_base::{Dtype, Meta, TaskError};
use gridloom_core::node::version::VERSIONS;
use gridloom_idl::expr::Expr;
use gridloom_idl::{Body, CallArgument, Definition, Mode};
use gridloom_net::worker::SERVER_PROTOCOL_VARIABLE;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process};

fn definitions() -> Vec<Definition> {
    let n = || Expr::Param(0);
    vec![
        native("null_call", vec![]),
        native("print", vec![]),
        native("segfault", vec![]),
        native("end_by_abort", vec![]),
        native("spin", vec![]),
        native("no_such_symbol", vec![]),
        native("leave", vec![scalar("status", Mode::In, Dtype::Int32)]),
        native("start_process", vec![text("path", Mode::In), scalar("then", Mode::In, Dtype::Int32)]),
        native("wait_for_file", vec![text("path", Mode::In)]),
        native_with(
            "write_input",
            vec![scalar("n", Mode::In, Dtype::Int64), array("x", Mode::In, Dtype::Float64, vec![n()])],
            vec![CallArgument::Param(1)],
            None,
            gridloom_idl::Language::C,
        ),
        native(
            "fill",
            vec![
                scalar("n", Mode::In, Dtype::Int64),
                scalar("value", Mode::In, Dtype::Float64),
                array("out", Mode::Out, Dtype::Float64, vec![n()]),
            ],
        ),
        native(
            "sum",
            vec![
                scalar("n", Mode::In, Dtype::Int64),
                array("x", Mode::In, Dtype::Float64, vec![n()]),
                scalar("out", Mode::Out, Dtype::Float64),
            ],
        ),
        native_with(
            "pid",
            vec![scalar("out", Mode::Out, Dtype::Int64)],
            vec![],
            Some((Dtype::Int64, 0)),
            gridloom_idl::Language::C,
        ),
    ]
}

fn crash(bench: &mut Bench, symbol: &str, args: Vec<Arg>) -> String {
    match bench.call(symbol, args, vec![]).unwrap_err() {
        TaskError::Crashed { how, server, function } => {
            assert_eq!((server, function), ("bench".into(), format!("k/{symbol}")));
            how
        }
        other => panic!("{other}"),
    }
}

fn pid(bench: &mut Bench) -> i64 {
    let out = bench.call("pid", vec![], vec![out_scalar(Dtype::Int64)]).unwrap();
    i64::from_ne_bytes(out[0][..].try_into().unwrap())
}

/// Returns the path of a file that does not exist until the test lets `wait_for_file` return.
fn gate(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("gridloom-gate-{}-{name}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    path
}

#[test]
fn each_crash_is_reported_in_words_and_the_next_call_works() {
    let mut bench = Bench::new(1, 4, definitions());
    let first = pid(&mut bench);
    assert_eq!(crash(&mut bench, "segfault", vec![]), "signal 11 (SIGSEGV)");
    assert_ne!(pid(&mut bench), first);
    assert_eq!(crash(&mut bench, "leave", vec![small(3)]), "exit status 3");
    assert_eq!(crash(&mut bench, "leave", vec![small(0)]), "exit status 0");
    assert_eq!(crash(&mut bench, "end_by_abort", vec![]), "signal 6 (SIGABRT)");
    bench.call("null_call", vec![], vec![]).unwrap();
}

#[test]
fn a_function_cannot_write_on_shared_input() {
    let mut bench = Bench::new(1, 4, definitions());
    let values = vec![5.0; 10_000];
    let x = bench.put_doubles(&values);
    let Arg::Datum(datum) = x else { unreachable!() };
    assert_eq!(crash(&mut bench, "write_input", vec![count(10_000), x]), "signal 11 (SIGSEGV)");
    assert_eq!(doubles(bench.store.get(&datum).unwrap().1.bytes()), values);
}

#[test]
fn tasks_queued_behind_a_crash_run_in_another_worker() {
    let mut bench = Bench::new(1, 32, definitions());
    let gate = gate("queue");
    let before = bench.start("wait_for_file", vec![string(gate.to_str().unwrap())], vec![]);
    let crash = bench.start("segfault", vec![], vec![]);
    let meta = || vec![Meta::array(Dtype::Float64, &[10_000])];
    let behind: Vec<_> =
        (0..20).map(|i| bench.start("fill", vec![count(10_000), number(f64::from(i))], meta())).collect();
    bench.jobs.flush();
    std::fs::write(&gate, "").unwrap();
    bench.wait(&before).unwrap();
    assert!(matches!(bench.wait(&crash), Err(TaskError::Crashed { .. })));
    for (i, task) in behind.iter().enumerate() {
        let made = bench.wait(task).unwrap();
        let bytes = bench.store.get(&made[0].0).unwrap().1;
        assert_eq!(doubles(bytes.bytes()), vec![i as f64; 10_000]);
    }
    std::fs::remove_file(gate).unwrap();
}

#[test]
fn a_task_of_which_workers_are_killed_runs_again_up_to_three_times() {
    let mut bench = Bench::new(1, 8, definitions());
    pid(&mut bench);
    let running = bench.start("spin", vec![], vec![]);
    let queued = bench.start("pid", vec![], vec![out_scalar(Dtype::Int64)]);
    let mut workers: Vec<Pid> = Vec::new();
    while workers.len() < 3 {
        bench.jobs.flush();
        let Some(worker) = bench.jobs.worker_pids().first().copied().filter(|worker| !workers.contains(worker)) else {
            bench.turn();
            continue;
        };
        workers.push(worker);
        // A second task, for which there is no room, could not start before this one, so its start would prove
        // nothing: ask the process.
        wait_until_paused(worker.as_raw_nonzero().get());
        kill_process(worker, Signal::KILL).unwrap();
    }
    match bench.wait(&running) {
        Err(TaskError::Crashed { how, .. }) => {
            assert!(how.starts_with("3 workers were killed while they ran it, the last by signal 9 (SIGKILL"), "{how}");
        }
        other => panic!("{other:?}"),
    }
    bench.wait(&queued).unwrap();
    // An idle worker that dies affects nothing else.
    kill_process(bench.jobs.worker_pids()[0], Signal::KILL).unwrap();
    bench.call("null_call", vec![], vec![]).unwrap();
}

/// Waits until a process is inside pause(2), according to its entry in /proc.
fn wait_until_paused(pid: i32) {
    let pause = if cfg!(target_arch = "x86_64") { "34" } else { "73" };
    loop {
        let call = std::fs::read_to_string(format!("/proc/{pid}/syscall")).unwrap();
        if call.split(' ').next() == Some(pause) {
            return;
        }
        std::thread::yield_now();
    }
}

#[test]
fn stop_kills_what_runs_and_takes_back_what_waits() {
    let mut bench = Bench::new(1, 4, definitions());
    let first = pid(&mut bench);
    let running = bench.start("spin", vec![], vec![]);
    let queued = bench.start("null_call", vec![], vec![]);
    let survivor = bench.start("pid", vec![], vec![out_scalar(Dtype::Int64)]);
    let waiting: Vec<_> = (0..3).map(|_| bench.start("null_call", vec![], vec![])).collect();
    bench.jobs.flush();
    wait_until_paused(first as i32);
    bench.jobs.stop(queued.id);
    bench.jobs.stop(waiting[2].id);
    assert_eq!(bench.wait(&queued), Err(TaskError::Cancelled));
    assert_eq!(bench.wait(&waiting[2]), Err(TaskError::Cancelled));
    assert_eq!(bench.jobs.worker_pids()[0].as_raw_nonzero().get() as i64, first, "nothing had to be killed yet");
    bench.jobs.stop(running.id);
    assert_eq!(bench.wait(&running), Err(TaskError::Cancelled));
    let made = bench.wait(&survivor).unwrap();
    assert_ne!(bench.store.get(&made[0].0).unwrap().1.bytes(), first.to_ne_bytes());
    bench.wait(&waiting[0]).unwrap();
    bench.wait(&waiting[1]).unwrap();
    bench.jobs.stop(running.id);
    bench.call("null_call", vec![], vec![]).unwrap();
}

/// Values of `then` for `start_process`.
const RETURNS: i32 = 0;
const STAYS: i32 = 1;
const CRASHES: i32 = 2;

#[test]
fn what_a_function_started_ends_with_its_worker() {
    for then in [RETURNS, STAYS, CRASHES] {
        let mut bench = Bench::new(1, 4, definitions());
        let path = gate(&format!("process-{then}"));
        let task = bench.start("start_process", vec![string(path.to_str().unwrap()), small(then)], vec![]);
        bench.jobs.flush();
        let pid = loop {
            match std::fs::read_to_string(&path) {
                Ok(pid) => break pid.parse().unwrap(),
                Err(_) => std::thread::yield_now(),
            }
        };
        std::fs::remove_file(path).unwrap();
        let open = |pid| rustix::process::pidfd_open(Pid::from_raw(pid).unwrap(), PidfdFlags::empty());
        let process = open(pid);
        if then == STAYS {
            bench.jobs.stop(task.id);
        }
        match (then, bench.wait(&task)) {
            // Its worker keeps serving, and the process lives until the server ends.
            (RETURNS, Ok(_)) => drop(bench.call("null_call", vec![], vec![]).unwrap()),
            (STAYS, Err(TaskError::Cancelled)) | (CRASHES, Err(TaskError::Crashed { .. })) => {}
            (_, other) => panic!("{other:?}"),
        }
        bench.jobs.shutdown();
        // A pid that cannot be opened belongs to a process that has ended already.
        if let Ok(process) = process {
            let mut watched = [PollFd::new(&process, PollFlags::IN)];
            let limit = Timespec { tv_sec: 30, tv_nsec: 0 };
            let ended = poll(&mut watched, Some(&limit));
            // Leaves nothing behind if the test fails. This call fails if the process has ended, which is the goal.
            let _ = rustix::process::pidfd_send_signal(&process, Signal::KILL);
            assert_eq!(ended, Ok(1), "the process lives on (case {then})");
        }
    }
}

#[test]
fn a_worker_prints_on_standard_error_only() {
    let mut bench = Bench::new(1, 4, definitions());
    let worker = pid(&mut bench);
    let target = |path: String| std::fs::read_link(path).unwrap();
    assert_eq!(target(format!("/proc/{worker}/fd/1")), target("/proc/self/fd/2".into()));
    assert_eq!(target(format!("/proc/{worker}/fd/0")), PathBuf::from("/dev/null"));
}

#[test]
fn slots_run_at_the_same_time() {
    let mut bench = Bench::new(2, 4, definitions());
    let gate = gate("slots");
    let held = bench.start("wait_for_file", vec![string(gate.to_str().unwrap())], vec![]);
    for _ in 0..10 {
        bench.call("null_call", vec![], vec![]).unwrap();
    }
    std::fs::write(&gate, "").unwrap();
    bench.wait(&held).unwrap();
    assert_eq!(bench.jobs.worker_pids().len(), 2);
    std::fs::remove_file(gate).unwrap();
}

#[test]
fn what_waits_behind_something_long_goes_to_an_idle_slot() {
    let mut bench = Bench::new(2, 8, definitions());
    bench.jobs.prestart();
    let gates = [gate("long"), gate("short")];
    let args = |i: usize| vec![string(gates[i].to_str().unwrap())];
    let long = bench.start("wait_for_file", args(0), vec![]);
    let short = bench.start("wait_for_file", args(1), vec![]);
    let queued: Vec<_> = (0..8).map(|_| bench.start("pid", vec![], vec![out_scalar(Dtype::Int64)])).collect();
    bench.jobs.flush();
    std::fs::write(&gates[1], "").unwrap();
    bench.wait(&short).unwrap();
    for task in queued {
        bench.wait(&task).unwrap();
    }
    std::fs::write(&gates[0], "").unwrap();
    bench.wait(&long).unwrap();
    gates.iter().for_each(|gate| std::fs::remove_file(gate).unwrap());
}

#[test]
fn one_slot_has_workers_of_both_kinds() {
    let python = Definition {
        signature: native("in_python", vec![]).signature,
        body: Body::Python { module: "m".into(), function: "f".into() },
    };
    let worker = env!("CARGO_BIN_EXE_gridloom-worker");
    let mut config = config(1, 8, vec![native("null_call", vec![]), python], vec![library()], worker.into());
    // Not Python: a worker that is started like a Python one, and reports that it is not one.
    config.python = worker.into();
    let mut bench = Bench::of(config);
    for _ in 0..3 {
        let tasks: Vec<_> =
            ["null_call", "in_python", "null_call"].map(|symbol| bench.start(symbol, vec![], vec![])).into();
        bench.wait(&tasks[0]).unwrap();
        let error = bench.wait(&tasks[1]).unwrap_err();
        assert!(matches!(&error, TaskError::CannotRun { why, .. } if why.contains("not a native function")), "{error}");
        bench.wait(&tasks[2]).unwrap();
    }
    assert_eq!(bench.jobs.worker_pids().len(), 2);
}

/// Not a test of its own: a server that another test kills.
#[test]
#[ignore = "run by no_worker_outlives_its_server"]
fn server_to_be_killed() {
    let mut bench = Bench::new(1, 4, definitions());
    let worker = pid(&mut bench);
    let spinning = bench.start("spin", vec![], vec![]);
    bench.jobs.flush();
    wait_until_paused(worker as i32);
    eprintln!("worker {worker}");
    let _ = bench.wait(&spinning);
}

#[test]
fn no_worker_outlives_its_server() {
    use std::io::{BufRead, BufReader};
    let mut server = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "worker_failures::server_to_be_killed", "--nocapture"])
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(server.stderr.take().unwrap()).lines().map(Result::unwrap);
    let worker = lines.find_map(|line| line.strip_prefix("worker ").map(str::to_owned)).unwrap();
    let pid = rustix::process::Pid::from_raw(worker.parse().unwrap()).unwrap();
    let worker = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).unwrap();
    server.kill().unwrap();
    server.wait().unwrap();
    // The worker holds the other end of this pipe as its standard error.
    assert_eq!(lines.count(), 0);
    // The worker's descriptor becomes readable when the worker has ended.
    let mut watched = [rustix::event::PollFd::new(&worker, rustix::event::PollFlags::IN)];
    assert_eq!(rustix::event::poll(&mut watched, None), Ok(1));
}

#[test]
fn what_cannot_run_says_what_is_missing() {
    let mut bench = Bench::new(1, 4, definitions());
    let error = bench.call("no_such_symbol", vec![], vec![]).unwrap_err().to_string();
    assert!(error.contains("no_such_symbol") && error.contains("libkernels"), "{error}");
    bench.call("null_call", vec![], vec![]).unwrap();
    let error = bench.call("unknown", vec![], vec![]).unwrap_err();
    assert!(matches!(error, TaskError::NoSuchFunction { .. }), "{error}");
    let missing = datum();
    let error = bench.call("sum", vec![count(1), Arg::Datum(missing)], vec![out_scalar(Dtype::Float64)]).unwrap_err();
    assert!(matches!(error, TaskError::DatumLost { datum, .. } if datum == missing));

    let worker: PathBuf = env!("CARGO_BIN_EXE_gridloom-worker").into();
    let mut bench = Bench::with(1, 4, definitions(), vec!["/no/lib.so".into(), library()], worker.clone());
    bench.call("null_call", vec![], vec![]).unwrap();
    let mut bench = Bench::with(1, 4, definitions(), vec!["/no/lib.so".into()], worker);
    let error = bench.call("null_call", vec![], vec![]).unwrap_err().to_string();
    assert!(error.contains("null_call") && error.contains("/no/lib.so"), "{error}");

    let mut bench = Bench::with(1, 4, definitions(), vec![], "/no/worker".into());
    let error = bench.call("null_call", vec![], vec![]).unwrap_err();
    assert!(matches!(&error, TaskError::CannotRun { why, .. } if why.contains("/no/worker")), "{error}");
    let mut bench = Bench::with(1, 4, definitions(), vec![], "/bin/false".into());
    let error = bench.call("null_call", vec![], vec![]).unwrap_err();
    assert!(matches!(&error, TaskError::CannotRun { why, .. } if why.contains("exit status 1")), "{error}");
}

#[test]
fn a_worker_of_another_version_than_its_server_names_both() {
    let worker = env!("CARGO_BIN_EXE_gridloom-worker").into();
    let mut config = config(1, 4, definitions(), vec![library()], worker);
    // Sent like this by a server of an earlier version.
    config.env = vec![(SERVER_PROTOCOL_VARIABLE.into(), (VERSIONS.1 - 1).to_string().into())];
    let error = Bench::of(config).call("null_call", vec![], vec![]).unwrap_err();
    let says =
        [format!("protocol version {}, and its worker {}", VERSIONS.1 - 1, VERSIONS.1), "restart the server".into()];
    let is_told = |why: &str| says.iter().all(|part| why.contains(part));
    assert!(matches!(&error, TaskError::CannotRun { why, .. } if is_told(why)), "{error}");
}

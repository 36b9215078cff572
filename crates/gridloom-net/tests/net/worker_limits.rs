//! What a worker and the processes that it has started may use.

use std::time::{Duration, Instant};

use crate::common::*;
use gridloom_base::{Dtype, TaskError};
use gridloom_idl::{Definition, Language, Mode};
use gridloom_net::jobs::{JobsConfig, WorkerLimits};

fn definitions() -> Vec<Definition> {
    let returned =
        |name, dtype| native_with(name, vec![scalar("out", Mode::Out, dtype)], vec![], Some((dtype, 0)), Language::C);
    vec![
        native("null_call", vec![]),
        native("spin", vec![]),
        native("wait_with_processes", vec![scalar("count", Mode::In, Dtype::Int32)]),
        returned("files_left", Dtype::Int32),
        returned("pid", Dtype::Int64),
    ]
}

fn bench(limits: WorkerLimits) -> Bench {
    let program = option_env!("CARGO_BIN_EXE_gridloom-worker").unwrap_or("").into();
    Bench::of(JobsConfig { limits, ..config(1, 4, definitions(), vec![library()], program) })
}

fn pid(bench: &mut Bench) -> i64 {
    let out = bench.call("pid", vec![], vec![out_scalar(Dtype::Int64)]).unwrap();
    i64::from_ne_bytes(out[0][..].try_into().unwrap())
}

#[test]
fn a_call_that_runs_too_long_fails_and_its_slot_is_free() {
    let limit = Duration::from_millis(300);
    let mut bench = bench(WorkerLimits { call_time: Some(limit), ..WorkerLimits::default() });
    let (first, begin) = (pid(&mut bench), Instant::now());
    // The second call is queued behind the first one, and does not pay for its time.
    let (long, queued) = (bench.start("spin", vec![], vec![]), bench.start("null_call", vec![], vec![]));
    let error = bench.wait(&long).unwrap_err();
    assert!(begin.elapsed() >= limit);
    assert!(matches!(error, TaskError::TimeExceeded { limit_seconds: 0.3, .. }), "{error}");
    let text = error.to_string();
    assert!(
        text.contains("server 'bench' ended the call of 'k/spin'") && text.contains("larger --worker-time"),
        "{text}"
    );
    bench.wait(&queued).unwrap();
    assert_ne!(pid(&mut bench), first);
}

#[test]
fn a_worker_with_too_many_processes_is_killed_with_them() {
    let mut bench = bench(WorkerLimits { processes: Some(4), ..WorkerLimits::default() });
    let worker = pid(&mut bench);
    let error = bench.call("wait_with_processes", vec![small(6)], vec![]).unwrap_err();
    assert!(matches!(error, TaskError::ProcessesExceeded { count: 5..=7, limit: 4, .. }), "{error}");
    assert!(error.to_string().contains("the limit is 4; start fewer processes at a time"), "{error}");
    let group = rustix::process::Pid::from_raw(worker as i32).unwrap();
    while rustix::process::test_kill_process_group(group).is_ok() {
        std::thread::yield_now();
    }
    // As many as the limit allows, with the worker itself.
    let waiting = bench.start("wait_with_processes", vec![small(3)], vec![]);
    let checks = Instant::now() + Duration::from_secs(1);
    while Instant::now() < checks {
        bench.turn();
    }
    assert!(!bench.ended.contains_key(&waiting.id));
    bench.jobs.stop(waiting.id);
    assert_eq!(bench.wait(&waiting), Err(TaskError::Cancelled));
}

#[test]
fn the_open_files_of_a_worker_are_limited() {
    let left = |limits| {
        let out = bench(limits).call("files_left", vec![], vec![out_scalar(Dtype::Int32)]).unwrap();
        i32::from_ne_bytes(out[0][..].try_into().unwrap())
    };
    let limited = left(WorkerLimits { files: Some(100), ..WorkerLimits::default() });
    assert!((10..100).contains(&limited), "{limited}");
    assert!(left(WorkerLimits::default()) > limited);
}

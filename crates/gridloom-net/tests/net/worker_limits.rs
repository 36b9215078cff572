//! What a worker and the processes that it has started may use.

use std::time::{Duration, Instant};

use crate::common::*;
use gridloom_base::{Dtype, TaskError};
use gridloom_idl::{CallArgument, Definition, Language, Mode};
use gridloom_net::jobs::{JobsConfig, WorkerLimits};

fn definitions() -> Vec<Definition> {
    let returned =
        |name, dtype| native_with(name, vec![scalar("out", Mode::Out, dtype)], vec![], Some((dtype, 0)), Language::C);
    vec![
        native("null_call", vec![]),
        native("spin", vec![]),
        native("wait_with_processes", vec![scalar("count", Mode::In, Dtype::Int32)]),
        native("pretend_to_have_ended", vec![scalar("running_to_ended", Mode::In, Dtype::Int32)]),
        native_with(
            "join_group",
            vec![scalar("group", Mode::In, Dtype::Int64), scalar("out", Mode::Out, Dtype::Int32)],
            vec![CallArgument::Param(0)],
            Some((Dtype::Int32, 1)),
            Language::C,
        ),
        returned("leave_session", Dtype::Int64),
        returned("files_left", Dtype::Int32),
        returned("pid", Dtype::Int64),
    ]
}

/// Difference between the words of a running call and of one that has ended; a queued one has the word before.
const PROGRESS_STEP: i32 = 1;

fn bench(limits: WorkerLimits) -> Bench {
    bench_with(1, limits)
}

fn bench_with(slots: u32, limits: WorkerLimits) -> Bench {
    let program = option_env!("CARGO_BIN_EXE_gridloom-worker").unwrap_or("").into();
    Bench::of(JobsConfig { limits, ..config(slots, 4, definitions(), vec![library()], program) })
}

fn pid(bench: &mut Bench) -> i64 {
    number_of(bench, "pid")
}

fn number_of(bench: &mut Bench, function: &str) -> i64 {
    let out = bench.call(function, vec![], vec![out_scalar(Dtype::Int64)]).unwrap();
    i64::from_ne_bytes(out[0][..].try_into().unwrap())
}

#[test]
fn a_process_that_has_left_the_session_of_its_worker_ends_with_a_call_that_runs_too_long() {
    let call_time = Some(Duration::from_millis(300));
    let mut bench = bench(WorkerLimits { call_time, ..WorkerLimits::default() });
    let left = number_of(&mut bench, "leave_session") as i32;
    let process = rustix::process::Pid::from_raw(left).unwrap();
    let process = rustix::process::pidfd_open(process, rustix::process::PidfdFlags::empty()).unwrap();
    let error = bench.call("spin", vec![], vec![]).unwrap_err();
    assert!(matches!(error, TaskError::TimeExceeded { .. }), "{error}");
    let mut watched = [rustix::event::PollFd::new(&process, rustix::event::PollFlags::IN)];
    let limit = rustix::event::Timespec { tv_sec: 30, tv_nsec: 0 };
    assert_eq!(rustix::event::poll(&mut watched, Some(&limit)), Ok(1), "the process {left} is alive");
}

#[test]
fn a_call_that_falsifies_its_progress_does_not_escape_the_limit_of_its_time() {
    let call_time = Some(Duration::from_millis(1000));
    let mut bench = bench(WorkerLimits { call_time, ..WorkerLimits::default() });
    for running_to_ended in [PROGRESS_STEP, -PROGRESS_STEP] {
        let error = bench.call("pretend_to_have_ended", vec![small(running_to_ended)], vec![]).unwrap_err();
        assert!(matches!(error, TaskError::TimeExceeded { .. }), "{error}");
    }
}

#[test]
fn a_process_cannot_join_the_process_group_of_another_worker() {
    let mut bench = bench_with(2, WorkerLimits::default());
    let first = pid(&mut bench);
    let spinning = bench.start("spin", vec![], vec![]);
    let out = bench.call("join_group", vec![count(first)], vec![out_scalar(Dtype::Int32)]).unwrap();
    let error = i32::from_ne_bytes(out[0][..].try_into().unwrap());
    assert_ne!(pid(&mut bench), first, "that worker is busy");
    assert_eq!(error, rustix::io::Errno::PERM.raw_os_error());
    bench.jobs.stop(spinning.id);
    assert_eq!(bench.wait(&spinning), Err(TaskError::Cancelled));
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

//! Workers of different users stay apart.

use crate::common::*;
use gridloom_base::Dtype;
use gridloom_core::exec::Separation;
use gridloom_idl::{Language, Mode};
use gridloom_net::jobs::JobsConfig;

fn bench(slots: u32, separation: Separation) -> Bench {
    let pid =
        native_with("pid", vec![scalar("out", Mode::Out, Dtype::Int64)], vec![], Some((Dtype::Int64, 0)), Language::C);
    let gate = native("wait_for_file", vec![text("path", Mode::In)]);
    let program = option_env!("CARGO_BIN_EXE_gridloom-worker").unwrap_or("").into();
    let usual = config(slots, 64, vec![pid, gate], vec![library()], program);
    Bench::of(JobsConfig { separation, ..usual })
}

/// Calls a function for a user, and returns the number of the worker's process.
fn pid(bench: &mut Bench, user: &'static str) -> i64 {
    bench.user = user;
    let out = bench.call("pid", vec![], vec![out_scalar(Dtype::Int64)]).unwrap();
    i64::from_ne_bytes(out[0][..].try_into().unwrap())
}

#[test]
fn a_worker_serves_one_user_and_is_replaced_for_another() {
    let mut bench = bench(1, Separation::AllFunctions);
    let anna = pid(&mut bench, "anna");
    assert_eq!(pid(&mut bench, "anna"), anna);
    let bert = pid(&mut bench, "bert");
    assert!(bert != anna && pid(&mut bench, "bert") == bert);
    let again = pid(&mut bench, "anna");
    assert!(again != anna && again != bert);
    let is_alive = |pid: &i64| std::path::Path::new(&format!("/proc/{pid}")).exists();
    while is_alive(&anna) || is_alive(&bert) {
        bench.turn();
    }
    assert_eq!(bench.jobs.worker_pids().len(), 1);
}

#[test]
fn users_keep_their_workers_while_there_are_slots() {
    let mut bench = bench(2, Separation::AllFunctions);
    let pids = ["anna", "bert", "anna", "bert"].map(|user| pid(&mut bench, user));
    assert!(pids[0] != pids[1] && pids[..2] == pids[2..], "{pids:?}");
}

#[test]
fn short_calls_of_a_user_run_while_one_of_another_user_waits_for_a_worker() {
    let mut bench = bench(1, Separation::AllFunctions);
    let path = std::env::temp_dir().join(format!("gridloom-gate-{}-users", std::process::id()));
    let _ = std::fs::remove_file(&path);
    bench.user = "anna";
    let long = bench.start("wait_for_file", vec![string(path.to_str().unwrap())], vec![]);
    let queued = bench.start("pid", vec![], vec![out_scalar(Dtype::Int64)]);
    bench.user = "bert";
    let other = bench.start("pid", vec![], vec![out_scalar(Dtype::Int64)]);
    std::fs::write(&path, []).unwrap();
    for task in [long, queued, other] {
        bench.wait(&task).unwrap();
    }
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn users_share_workers_of_functions_that_the_server_offers() {
    let mut bench = bench(1, Separation::SentCode);
    assert_eq!(pid(&mut bench, "anna"), pid(&mut bench, "bert"));
}

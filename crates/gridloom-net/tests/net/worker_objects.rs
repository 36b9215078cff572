//! Objects: each has a process of its own, which occupies a slot while a method runs, and ends with the object.

use crate::common::*;
use gridloom_base::{Dtype, NodeId, ObjectId, TaskError};
use gridloom_idl::{Definition, Language, Mode};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};

/// Returns a class with these functions as methods.
fn definitions() -> Vec<Definition> {
    let method = |name: &str, mut definition: Definition| {
        definition.signature.name = format!("k/c.{name}");
        definition
    };
    let pid = || {
        native_with("pid", vec![scalar("out", Mode::Out, Dtype::Int64)], vec![], Some((Dtype::Int64, 0)), Language::C)
    };
    vec![
        method("_initialize", native("null_call", vec![])),
        method("pid", pid()),
        method("leave", native("leave", vec![scalar("status", Mode::In, Dtype::Int32)])),
        method("spin", native("spin", vec![])),
        method("stay_at_exit", native("stay_at_exit", vec![])),
        pid(),
    ]
}

fn object(serial: u64) -> Option<ObjectId> {
    Some(ObjectId { client: NodeId(1), serial })
}

fn made(bench: &mut Bench, serial: u64) -> Pid {
    let task = bench.start_on(object(serial), "c._initialize", vec![], vec![]);
    bench.wait(&task).unwrap();
    pid(bench, serial).unwrap()
}

/// Returns the process in which its methods run.
fn pid(bench: &mut Bench, serial: u64) -> Result<Pid, TaskError> {
    let task = bench.start_on(object(serial), "c.pid", vec![], vec![out_scalar(Dtype::Int64)]);
    let results = bench.wait(&task)?;
    let (_, value) = bench.store.get(&results[0].0).unwrap();
    let number = i64::from_ne_bytes(value.bytes().try_into().unwrap());
    Ok(Pid::from_raw(number as i32).unwrap())
}

/// Waits until its process has ended, which is an event of its own.
fn await_end(bench: &mut Bench, process: Pid) {
    while test_kill_process(process).is_ok() {
        bench.turn();
    }
}

#[test]
fn an_object_is_a_process_from_its_making_to_its_end() {
    let mut bench = Bench::new(2, 1, definitions());
    let (first, second) = (made(&mut bench, 1), made(&mut bench, 2));
    assert_ne!(first, second);
    assert_eq!((pid(&mut bench, 1).unwrap(), pid(&mut bench, 2).unwrap()), (first, second));
    bench.jobs.end_object(object(1).unwrap());
    await_end(&mut bench, first);
    assert!(matches!(pid(&mut bench, 1), Err(TaskError::ObjectMissing { .. })));
    assert_eq!(pid(&mut bench, 2).unwrap(), second);
}

#[test]
fn a_method_takes_a_slot_while_it_runs() {
    let mut bench = Bench::new(1, 1, definitions());
    let process = made(&mut bench, 1);
    let spins = bench.start_on(object(1), "c.spin", vec![], vec![]);
    let waits = bench.start("pid", vec![], vec![out_scalar(Dtype::Int64)]);
    for _ in 0..3 {
        bench.jobs.flush();
    }
    assert!(bench.ended.is_empty() && bench.jobs.worker_pids().len() == 1, "no worker is begun for what waits");
    kill_process(process, Signal::KILL).unwrap();
    // The method may not have begun.
    assert!(matches!(bench.wait(&spins), Err(TaskError::Crashed { .. } | TaskError::ObjectMissing { .. })));
    bench.wait(&waits).unwrap();
    assert!(matches!(pid(&mut bench, 1), Err(TaskError::ObjectMissing { .. })));
}

#[test]
fn a_crash_loses_the_object_and_no_other() {
    let mut bench = Bench::new(2, 1, definitions());
    let (_, second) = (made(&mut bench, 1), made(&mut bench, 2));
    let leaves = bench.start_on(object(1), "c.leave", vec![small(3)], vec![]);
    assert!(matches!(bench.wait(&leaves), Err(TaskError::Crashed { .. })));
    assert!(matches!(pid(&mut bench, 1), Err(TaskError::ObjectMissing { .. })));
    assert_eq!(pid(&mut bench, 2).unwrap(), second);
}

#[test]
fn a_process_that_does_not_end_by_itself_is_killed() {
    let mut bench = Bench::new(1, 1, definitions());
    let process = made(&mut bench, 1);
    let stays = bench.start_on(object(1), "c.stay_at_exit", vec![], vec![]);
    bench.wait(&stays).unwrap();
    bench.jobs.end_object(object(1).unwrap());
    // A server flushes at every heartbeat.
    while test_kill_process(process).is_ok() {
        let work = bench.start("pid", vec![], vec![out_scalar(Dtype::Int64)]);
        bench.wait(&work).unwrap();
    }
}

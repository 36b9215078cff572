//! Custom heuristics that take long, or call their own session, on a simulated grid.

use crate::support;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use gridloom::base::{Dtype, Meta};
use gridloom::map::{MapError, Plan, Problem, Schedule};
use gridloom::{Arg, Error, Grid, Group, Handle, Mapping, Regroup, Value};

fn grid(test: &str) -> Grid {
    let hosts = [("client", "1Gf"), ("near", "10Gf"), ("far", "10Gf")];
    let star = support::star(&hosts, "1GBps", "50us");
    Grid::simulate(support::simulation(test, &star, support::PRODUCT, &[])).unwrap()
}

fn record(grid: &Grid, group: &Group, read: Option<&Handle>) -> Handle {
    let matrix = || Arg::from(Value::placeholder(Meta::array(Dtype::Float64, &[500, 500])));
    let product = grid.function("kernels/product").unwrap();
    group.call(&product, (read.map_or_else(matrix, Arg::from), matrix())).unwrap().one().unwrap()
}

fn all_on_first(problem: &Problem) -> Plan {
    let mut schedule = Schedule::new(problem);
    (0..problem.task_count()).for_each(|task| schedule.place(task, 0));
    schedule.finish()
}

/// A heuristic that reports when it runs, and waits until it is released.
fn held_up() -> (Mapping, Receiver<()>, std::sync::mpsc::Sender<()>) {
    let ((runs, is_running), (go, goes)) = (channel(), channel());
    let goes = Mutex::new(goes);
    let heuristic = move |problem: &Problem| {
        runs.send(()).unwrap();
        // It also continues when the test has ended.
        let _ = goes.lock().unwrap().recv();
        Ok(all_on_first(problem))
    };
    (Mapping::custom("held-up", heuristic), is_running, go)
}

#[test]
fn a_heuristic_that_never_returns_is_abandoned() {
    let grid = grid("own-budget");
    let (mapping, _is_running, _go) = held_up();
    let mapping = mapping.map_timeout(Some(Duration::from_millis(20)));
    let group = grid.group(mapping.clone());
    let result = record(&grid, &group, None);
    let error = group.launch().unwrap_err().to_string();
    let expected =
        "heuristic 'held-up': it returned no plan within 0.02 s; make it faster, or allow more time with map_timeout";
    assert!(error.contains(expected), "{error}");
    assert!(matches!(result.get(), Err(Error::Discarded { .. })));
    // The same for the mapping of a plan and of a loop.
    assert!(grid.group("heft").plan(mapping.clone()).is_err());
    let rounds = grid.regrouped(mapping, Regroup::Fixed(1)).unwrap();
    let body = rounds.group();
    let _result = record(&grid, &body, None);
    assert!(body.finish().unwrap_err().to_string().contains(expected));
    record(&grid, &grid.group("heft"), None).get().unwrap();
}

#[test]
fn others_launch_while_a_heuristic_runs_and_who_needs_its_group_waits() {
    let grid = grid("own-others");
    let (mapping, is_running, go) = held_up();
    let group = grid.group(mapping.map_timeout(None));
    let result = record(&grid, &group, None);
    thread::scope(|scope| {
        let launched = scope.spawn(|| group.launch());
        is_running.recv().unwrap();
        record(&grid, &grid.group("heft"), None).get().unwrap();
        // Neither of these is refused, or finds that its group was never launched.
        let waiting = [scope.spawn(|| result.get().map(drop)), scope.spawn(|| group.wait()), {
            let reader = grid.group("heft");
            let read = record(&grid, &reader, Some(&result));
            scope.spawn(move || reader.launch().and_then(|()| read.get().map(drop)))
        }];
        go.send(()).unwrap();
        launched.join().unwrap().unwrap();
        waiting.into_iter().for_each(|thread| thread.join().unwrap().unwrap());
    });
    assert_eq!(group.report().unwrap().plans.len(), 1);
}

#[test]
fn a_group_that_reads_what_could_not_be_mapped_never_runs() {
    let grid = grid("own-readers");
    let none = |_: &Problem| Err(MapError::Failed { why: "not today".into() });
    let group = grid.group(Mapping::custom("none", none));
    let result = record(&grid, &group, None);
    let reader = grid.group("heft");
    let read = record(&grid, &reader, Some(&result));
    assert!(read.get().unwrap_err().to_string().contains("not today"));
    for result in [result, read] {
        let error = result.get().unwrap_err();
        assert!(matches!(&error, Error::Discarded { why, .. } if why.contains("not today")), "{error}");
    }
}

#[test]
fn a_heuristic_that_calls_its_own_session_gets_an_error() {
    let grid = grid("own-inside");
    for limit in [None, Some(Duration::from_secs(30))] {
        let (session, told) = (grid.clone(), Arc::new(Mutex::new(Vec::new())));
        let (kept, own) = (told.clone(), Arc::new(Mutex::new(None::<Handle>)));
        let result = own.clone();
        let mapping = Mapping::custom("nosy", move |problem: &Problem| {
            let tell =
                |outcome: Result<(), Error>| told.lock().unwrap().push(outcome.map_err(|error| error.to_string()));
            let group = session.group("heft");
            let recorded = record(&session, &group, None);
            tell(group.plan("heft").map(drop));
            tell(group.plan(Mapping::custom("first", |problem: &Problem| Ok(all_on_first(problem)))).map(drop));
            tell(group.launch());
            tell(recorded.get().map(drop));
            tell(own.lock().unwrap().as_ref().unwrap().get().map(drop));
            group.discard();
            tell(session.function("kernels/product").map(drop));
            Ok(all_on_first(problem))
        });
        let group = grid.group(mapping.map_timeout(limit));
        let recorded = record(&grid, &group, None);
        *result.lock().unwrap() = Some(recorded.clone());
        group.launch().unwrap();
        recorded.get().unwrap();
        let told = kept.lock().unwrap();
        let is_told: Vec<bool> = told.iter().map(Result::is_ok).collect();
        assert_eq!(is_told, [true, false, false, false, false, true], "{told:?}");
        for why in told[2..5].iter().filter_map(|told| told.as_ref().err()) {
            assert!(why.contains("a heuristic cannot launch groups of the session for which it maps"), "{why}");
        }
        *result.lock().unwrap() = None;
    }
}

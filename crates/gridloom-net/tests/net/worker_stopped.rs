//! Functions of simulated grids, which run one at a time (`BlockingJobs`).

use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use crate::common::*;
use gridloom_base::{Dtype, NodeId, TaskId};
use gridloom_core::graph::{CallOptions, Task, TaskKind};
use gridloom_idl::expr::Expr;
use gridloom_idl::{CallArgument, Callback, Definition, Language, Mode};
use gridloom_net::jobs::{BlockingJobs, blocking};
use gridloom_net::segment::Pool;
use gridloom_net::store::Store;

/// Returns the definition of a function that checks for its cancellation and then calls its program back.
fn checking() -> Definition {
    let one = |extent| vec![Expr::Number(extent)];
    let params =
        vec![array("round", Mode::In, Dtype::Int32, one(1.0)), array("said", Mode::InOut, Dtype::Float64, one(2.0))];
    let mut definition = native_with("check_and_ask", vec![], vec![CallArgument::Callback(0)], None, Language::C);
    definition.signature.callbacks = vec![Callback { name: "program".into(), params }];
    definition
}

#[test]
fn a_stopped_call_that_checked_for_its_cancellation_runs_again() {
    let worker = option_env!("CARGO_BIN_EXE_gridloom-worker").unwrap_or("").into();
    let config = config(2, 1, vec![checking()], vec![library()], worker);
    let id = TaskId { client: NodeId(1), serial: datum().serial };
    let kind = TaskKind::call("k/check_and_ask".to_string(), 0);
    let options = CallOptions::default();
    let task = Arc::new(Task { id, kind, args: vec![], outputs: vec![], work_flops: None, options });
    let (done, ran) = mpsc::channel();
    std::thread::spawn(move || {
        let (mut jobs, store) = (BlockingJobs::new(config).unwrap(), Store::new(Pool::new(1 << 20)));
        for _ in 0..2 {
            let halt = jobs.run(NodeId(2), task.clone(), &store);
            done.send(matches!(halt, blocking::Halt::Callback(_))).unwrap();
            jobs.stop(id);
        }
        jobs.shutdown();
    });
    let calls_back = || ran.recv_timeout(Duration::from_secs(30)).expect("the call runs");
    assert!(calls_back() && calls_back());
}

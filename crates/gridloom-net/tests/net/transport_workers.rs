//! Tasks in real worker processes under a node's loop: each ends once, with its results in the store by then.

use crate::common;
use crate::transport_support::*;
use gridloom_base::{DatumId, Dtype, Meta, NodeId, TaskError, TaskId};
use gridloom_core::graph::{Argument, Output, Task, TaskKind};
use gridloom_core::node::{Effect, Input, Role};
use gridloom_idl::Mode;
use gridloom_net::driver::NetConfig;

fn task(serial: u64, symbol: &str, values: &[f64]) -> Task {
    let meta = Meta::scalar(Dtype::Float64);
    let inline = |value: &f64| Argument::Inline { meta: meta.clone(), bytes: value.to_ne_bytes().to_vec() };
    let client = NodeId(1);
    let outputs = match values {
        [] => vec![],
        _ => vec![Output { datum: DatumId { client, serial }, meta: meta.clone() }],
    };
    Task {
        id: TaskId { client, serial },
        kind: TaskKind::call(format!("k/{symbol}"), 0),
        args: values.iter().map(inline).collect(),
        outputs,
        work_flops: None,
        options: Default::default(),
    }
}

#[test]
fn tasks_end_once_with_their_results_and_a_crash_hurts_one() {
    let number = |name, mode| common::scalar(name, mode, Dtype::Float64);
    let add = vec![number("a", Mode::In), number("b", Mode::In), number("sum", Mode::Out)];
    let definitions = vec![common::native("add", add), common::native("end_by_abort", vec![])];
    let program = env!("CARGO_BIN_EXE_gridloom-worker").into();
    let jobs = common::config(2, 4, definitions, vec![common::library()], program);
    let server = start(Role::Server, NetConfig { jobs: Some(jobs), ..listening() });
    let mut tasks: Vec<Task> = (0..200).map(|serial| task(serial, "add", &[serial as f64, 0.5])).collect();
    tasks.insert(100, task(1000, "end_by_abort", &[]));
    // The machine never has more tasks started than slots times depth.
    let mut left = tasks.into_iter();
    server.perform(left.by_ref().take(8).map(|task| Effect::StartTask { task: task.into() }));
    let mut crashed = 0;
    for _ in 0..201 {
        let (id, outcome) = server.expect("TaskEnded", |input| match input {
            Input::TaskEnded { task, outcome, .. } => Some((*task, outcome.clone())),
            _ => None,
        });
        match outcome {
            Ok(made) => {
                assert_eq!(made.len(), 1);
                let sum = server.node.store().get(&made[0].0).expect("it is in the store by then").1;
                assert_eq!(sum.bytes(), (id.serial as f64 + 0.5).to_ne_bytes());
            }
            Err(TaskError::Crashed { .. }) => crashed += 1,
            Err(error) => panic!("{error}"),
        }
        server.perform(left.by_ref().take(1).map(|task| Effect::StartTask { task: task.into() }));
    }
    assert_eq!(crashed, 1);
}

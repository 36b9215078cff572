//! Stateless servers: none, some or all of a grid. They store nothing and communicate with clients only.

use std::collections::BTreeSet;

use gridloom_base::limits::STORE_BYTES_DEFAULT;
use gridloom_base::{DatumId, Meta, NodeId, TaskError};
use gridloom_core::graph::Task;
use gridloom_core::node::World;
use gridloom_core::node::world::ServerSpec;

use super::test_grid::TestGrid;
use super::{Case, ELEMENTS, spec};

pub(super) const CASES: &[Case] = &[
    ("a tree of calls moves data directly between servers that are not stateless", |world| tree(world, 0)),
    ("a tree of calls runs on servers of which some are stateless", |world| tree(world, 2)),
    ("a tree of calls moves data through the client if all servers are stateless", |world| tree(world, SERVERS)),
    ("a stateless server keeps nothing", keeps_nothing),
    ("a killed stateless server's part runs elsewhere, and results that it had sent to the client are kept", killed),
];

const SERVERS: u32 = 4;

/// Returns the specs of the servers, of which the first `plain` are stateless.
fn specs(plain: u32) -> Vec<ServerSpec> {
    (1..=SERVERS)
        .map(|number| ServerSpec { is_stateless: number <= plain, ..spec(number, STORE_BYTES_DEFAULT) })
        .collect()
}

fn plain_nodes(stage: &TestGrid<'_>, plain: u32) -> BTreeSet<NodeId> {
    (0..plain as usize).map(|place| stage.node_of(place)).collect()
}

/// Sums eight arrays pairwise.
fn tree(world: &mut dyn World, plain: u32) {
    let mut stage = TestGrid::with_specs(world, specs(plain));
    let sources: Vec<(DatumId, Meta)> = (0..8).map(|_| stage.array()).collect();
    let mut level: Vec<DatumId> = sources.iter().map(|(datum, _)| *datum).collect();
    let mut tasks = Vec::new();
    while level.len() > 1 {
        let sum = |pair: &[DatumId]| stage.task("sum", &[ELEMENTS as i32], pair, 1);
        let sums: Vec<Task> = level.chunks(2).map(sum).collect();
        level = sums.iter().map(|task| task.outputs[0].datum).collect();
        tasks.extend(sums);
    }
    let group = stage.run(tasks, &sources);
    stage.group_end(group);
    stage.expect(level[0], |i| 8.0 * i);
    let (client, plain_nodes) = (stage.name, plain_nodes(&stage, plain));
    let of_client = stage.moved.iter().filter(|moved| moved.from == client || moved.to == client).count();
    match plain {
        // Each array is sent, and the last sum is received.
        0 => assert_eq!(of_client, 9, "{:?}", stage.moved),
        // Two arguments and one result for each of seven calls.
        SERVERS => assert_eq!((of_client, stage.moved.len()), (21, 21), "{:?}", stage.moved),
        _ => {}
    }
    for moved in stage.moved.iter().filter(|moved| moved.from != client && moved.to != client) {
        assert!(!plain_nodes.contains(&moved.from) && !plain_nodes.contains(&moved.to), "{moved:?}");
    }
}

fn keeps_nothing(world: &mut dyn World) {
    let mut stage = TestGrid::with_specs(world, specs(1));
    let (x, meta) = stage.array();
    let mut results = Vec::new();
    for _ in 0..2 {
        let task = stage.task("double_all", &[ELEMENTS as i32], &[x], 1);
        results.push(task.outputs[0].datum);
        let group = stage.follow(task, 0, (x, meta.clone()), None);
        stage.group_end(group);
    }
    for datum in &results {
        // The result is sent without a request: it has arrived or will arrive.
        stage.expect(*datum, |i| 2.0 * i);
    }
    let plain = stage.node_of(0);
    let taken = stage.moved.iter().filter(|moved| moved.datum == x && moved.to == plain).count();
    assert_eq!(taken, 2, "each call brings its argument: {:?}", stage.moved);
    let kept = stage.copying(x);
    let id = kept.id;
    stage.follow(kept, 0, (x, meta), None);
    match stage.end_of(id) {
        Err(TaskError::Refused { why, .. }) => {
            assert!(why.contains("it is a stateless server (serve --plain)"), "{why}")
        }
        other => panic!("a stateless server was asked to keep a copy: {other:?}"),
    }
}

fn killed(world: &mut dyn World) {
    let mut stage = TestGrid::with_specs(world, specs(SERVERS));
    let (group, first, last) = super::chains(&mut stage);
    let server = stage.server_of(first);
    assert!(stage.end_of(first).is_ok());
    stage.world.kill(stage.servers[server]);
    stage.group_end(group);
    for datum in &last {
        stage.expect(*datum, |i| i);
    }
    let lost = stage.lost.len();
    for place in (0..SERVERS as usize).filter(|place| *place != server) {
        stage.world.kill(stage.servers[place]);
    }
    for datum in last {
        stage.expect(datum, |i| i);
    }
    assert_eq!(stage.lost.len(), lost, "results at the client are not recomputed");
}

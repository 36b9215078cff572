//! Tests of priorities: they order the calls of one user, and other users do not notice.

use std::collections::BTreeMap;

use gridloom_base::time::SECOND_NS;
use gridloom_base::{NodeId, Priority, SplitMix64, TaskId, Time};
use gridloom_core::graph::CallOptions;
use gridloom_core::node::Event;

use crate::users::{Stage, user};

fn with_priority(number: i32) -> CallOptions {
    CallOptions { priority: Priority(number), ..CallOptions::default() }
}

/// Waits until these calls have ended. Returns them in the order of their ends, with the times.
fn ends(stage: &mut Stage, calls: &[TaskId]) -> Vec<(TaskId, Time)> {
    let mut ended = Vec::new();
    let clients: std::collections::BTreeSet<NodeId> = calls.iter().map(|call| call.client).collect();
    while ended.len() < calls.len() {
        assert!(stage.sim.now() < Time(100_000 * SECOND_NS), "{} of {} calls have ended", ended.len(), calls.len());
        stage.sim.advance(SECOND_NS / 4);
        for client in &clients {
            while let Some(event) = stage.sim.take_event(*client) {
                if let Event::TaskEnded { report, .. } = event {
                    assert_eq!(report.outcome.map(drop), Ok(()));
                    ended.push((report.task, stage.sim.now()));
                }
            }
        }
    }
    ended
}

#[test]
fn the_calls_of_a_user_start_by_priority() {
    let mut stage = Stage::with_slots(1);
    let programs = [stage.program("train.py", user("anna")), stage.program("again.py", user("anna"))];
    // Keeps the slot until the others have arrived.
    let first = stage.call(programs[0], 0);
    stage.sim.advance(SECOND_NS / 4);
    let priorities = [0, 3, -2, 0, 7, -2, 1, 0];
    let mut calls = BTreeMap::from([(first, i32::MIN)]);
    for (number, priority) in priorities.into_iter().enumerate() {
        calls.insert(stage.call_with(programs[number % 2], 0, with_priority(priority)), priority);
    }
    stage.sim.advance(SECOND_NS / 4);
    let status = stage.status(programs[0]);
    let shown: BTreeMap<TaskId, i32> = status.tasks.iter().map(|task| (task.task, task.priority.0)).collect();
    let expected = calls.iter().map(|(task, priority)| (*task, if *task == first { 0 } else { *priority }));
    assert_eq!(shown, expected.collect());
    let all: Vec<TaskId> = calls.keys().copied().collect();
    let order: Vec<i32> = ends(&mut stage, &all).into_iter().map(|(task, _)| calls[&task]).collect();
    assert_eq!(order, [i32::MIN, -2, -2, 0, 0, 0, 1, 3, 7]);
}

#[test]
fn the_priorities_of_a_user_change_nothing_for_others() {
    // The times at which the calls of another user end, if the calls of the first have these priorities.
    let of_bert = |seed: u64, priority: fn(&mut SplitMix64) -> i32| {
        let mut stage = Stage::with_slots(2);
        let mut random = SplitMix64::new(seed);
        let annas = [stage.program("train.py", user("anna")), stage.program("again.py", user("anna"))];
        let bert = stage.program("sweep", user("bert"));
        let (mut all, mut berts) = (Vec::new(), Vec::new());
        for _ in 0..40 {
            let client = annas[random.below(2) as usize];
            all.push(stage.call_with(client, 0, with_priority(priority(&mut random))));
            if random.below(2) == 0 {
                berts.push(stage.call(bert, 0));
            }
            stage.sim.advance(random.below(SECOND_NS));
        }
        all.extend(&berts);
        let times = ends(&mut stage, &all).into_iter().filter(|(task, _)| task.client == bert);
        times.map(|(_, at)| at).collect::<Vec<Time>>()
    };
    for seed in 0..8 {
        // Each draws a number, so that the rest of the run is the same, and all are encoded in as many bytes.
        let plain = of_bert(seed, |random| i32::from(random.below(9) > 9));
        assert_eq!(of_bert(seed, |random| random.below(9) as i32 - 4), plain, "seed {seed}");
        assert_eq!(of_bert(seed, |random| random.below(9) as i32 * -7), plain, "seed {seed}");
    }
}

#[test]
fn a_deferred_call_of_a_higher_priority_is_sent_before_others() {
    let mut stage = Stage::with_slots(1);
    let anna = stage.program("train.py", user("anna"));
    let mut calls: Vec<TaskId> = (0..4).map(|_| stage.deferred_call(anna)).collect();
    let urgent = stage.deferred_call_with(anna, with_priority(-1));
    calls.push(urgent);
    let order: Vec<TaskId> = ends(&mut stage, &calls).into_iter().map(|(task, _)| task).collect();
    assert_eq!(order, [calls[0], urgent, calls[1], calls[2], calls[3]]);
}

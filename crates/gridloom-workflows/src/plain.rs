//! Plain GridRPC on recorded workflows: the baseline for groups.
//!
//! A call is issued when the client has all its inputs. Calls that are ready first are issued first, with ties in the order of
//! the file. A call is sent to the server that would complete it first if it were alone: input bytes over the client's link,
//! then work, then output bytes over the client's link, without contention. The client then has its results.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use crate::Case;
use crate::plan::RecordedPlan;

/// Returns the plan and its end without contention, seconds.
pub(super) fn plan(case: &Case<'_>) -> (RecordedPlan, f64) {
    let (workflow, servers) = (case.workflow, case.servers);
    let tasks = &workflow.tasks;
    let bytes = |files: &[u32]| files.iter().map(|file| workflow.files[*file as usize].size_bytes as f64).sum::<f64>();
    let makers = |task: usize| tasks[task].inputs.iter().filter_map(|file| workflow.files[*file as usize].producer);
    let mut waits_for: Vec<usize> = (0..tasks.len()).map(|task| makers(task).count()).collect();
    let mut ready_s = vec![0.0f64; tasks.len()];
    let mut free_s = vec![0.0f64; servers.len()];
    let mut plan = RecordedPlan {
        servers: vec![0; tasks.len()],
        start_s: vec![0.0; tasks.len()],
        sources: BTreeMap::new(),
        is_stateless: true,
    };
    // Bits of times that are not negative are ordered like their values.
    let entry = |task: usize, ready_s: f64| Reverse((ready_s.to_bits(), tasks[task].place, task));
    let mut ready: BinaryHeap<_> = (0..tasks.len()).filter(|t| waits_for[*t] == 0).map(|t| entry(t, 0.0)).collect();
    let (mut makespan_s, mut order) = (0.0f64, Vec::with_capacity(tasks.len()));
    while let Some(Reverse((_, _, task))) = ready.pop() {
        let (input_bytes, output_bytes) = (bytes(&tasks[task].inputs), bytes(&tasks[task].outputs));
        let on = |server: usize| {
            let start_s = free_s[server].max(ready_s[task] + input_bytes / servers.client(server));
            let end_s = start_s + servers.task_s(server, tasks[task].work_s);
            (end_s + output_bytes / servers.client(server), server, start_s, end_s)
        };
        let best = (0..servers.len()).map(on).min_by(|a, b| a.0.total_cmp(&b.0));
        let (done_s, server, start_s, end_s) = best.expect("there are servers");
        (plan.servers[task], plan.start_s[task], free_s[server]) = (server as u32, start_s, end_s);
        order.push(task as u32);
        makespan_s = makespan_s.max(done_s);
        for output in &tasks[task].outputs {
            for reader in &workflow.files[*output as usize].readers {
                let reader = *reader as usize;
                ready_s[reader] = ready_s[reader].max(done_s);
                waits_for[reader] -= 1;
                if waits_for[reader] == 0 {
                    ready.push(entry(reader, ready_s[reader]));
                }
            }
        }
    }
    plan.separate_starts(&order, workflow);
    (plan, makespan_s)
}

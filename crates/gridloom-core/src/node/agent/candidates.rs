//! The servers of a large grid that may be useful to a group: mapping considers only these, because its time and memory
//! grow with the square of their number.
//!
//! If all tasks of a function were independent, and each as large as the largest, the servers together would need some time
//! for them. A server that needs longer for one task is not useful. Dependences and smaller tasks make slow servers no more useful.

use std::collections::{BTreeMap, BTreeSet};

use super::registry::Registered;
use super::view::GridKnowledge;
use crate::node::message::MapRequest;
use gridloom_base::limits::{SERVERS_MAPPED_ALL_MAX, SERVERS_MAPPED_MAX};
use gridloom_base::time::ns_to_seconds;
use gridloom_base::{NodeId, Time};
use gridloom_map::{Outline, OutlineTask};
use gridloom_perf::Size;

/// Number of servers per function that are considered because they have enough memory for its largest task.
const LARGE_SERVERS_MIN: usize = 16;

/// A server that offers a function.
#[derive(Clone, Copy, Debug)]
struct Offer {
    node: NodeId,
    memory_bytes: u64,
    /// Predicted seconds of one task.
    task_s: f64,
    /// Seconds until it is free.
    busy_s: f64,
    slots: u32,
}

impl GridKnowledge<'_> {
    /// Returns the servers among these that a plan may use.
    pub(super) fn candidates<'b>(
        &self,
        now: Time,
        request: &MapRequest,
        servers: Vec<(NodeId, &'b Registered)>,
    ) -> Vec<(NodeId, &'b Registered)> {
        let outline = &request.outline;
        if servers.len() <= SERVERS_MAPPED_ALL_MAX || !is_consistent(outline) {
            return servers;
        }
        let mut useful: BTreeSet<NodeId> = outline.tasks.iter().filter_map(|task| task.bound_to).collect();
        useful.extend(outline.data.iter().flat_map(|datum| datum.at.iter().copied()));
        useful.extend(request.busy.iter().map(|(node, _)| *node));
        let mut tasks: BTreeMap<u32, Vec<&OutlineTask>> = BTreeMap::new();
        for task in outline.tasks.iter().filter(|task| task.bound_to.is_none()) {
            tasks.entry(task.function).or_default().push(task);
        }
        let speeds = self.servers.speeds();
        let mut models = self.host_models();
        let mut offers_of = |(function, tasks): (&u32, &Vec<&OutlineTask>)| {
            let name = &outline.functions[*function as usize];
            let largest =
                tasks.iter().map(|task| outline.size_of(task)).max_by(|a, b| amount(*a).total_cmp(&amount(*b)));
            let mut seconds: BTreeMap<&str, f64> = BTreeMap::new();
            let offer = |(node, server): &(NodeId, &'b Registered)| {
                let processors = server.processors.as_str();
                let task_s = seconds.entry(processors).or_insert_with(|| {
                    let model = models.of(processors, name);
                    largest.map_or(0.0, |size| model.seconds(size, speeds.get(processors).copied()))
                });
                let busy_s = ns_to_seconds(self.plans.busy_ns(now, *node, request.group));
                (server.offers(name) && !server.cannot_run.contains(name)).then_some(Offer {
                    node: *node,
                    memory_bytes: server.registration.memory_bytes,
                    task_s: *task_s * server.pace,
                    busy_s,
                    slots: server.registration.slots,
                })
            };
            let mut offers: Vec<Offer> = servers.iter().filter_map(offer).collect();
            offers.sort_by(|a, b| (a.busy_s + a.task_s).total_cmp(&(b.busy_s + b.task_s)).then(a.node.cmp(&b.node)));
            offers
        };
        let mut of_function = |(function, tasks): (&u32, &Vec<&OutlineTask>)| {
            let needed_bytes = tasks.iter().map(|task| bytes_of(outline, task)).max().unwrap_or(0);
            (offers_of((function, tasks)), tasks.len(), needed_bytes)
        };
        let offers: Vec<(Vec<Offer>, usize, u64)> = tasks.iter().map(&mut of_function).collect();
        // The functions compete for the servers.
        let limit_s: f64 = offers.iter().map(|(offers, tasks, _)| needed_s(offers, *tasks)).sum();
        for (offers, _, needed_bytes) in &offers {
            let in_time =
                offers.iter().take(SERVERS_MAPPED_MAX).take_while(|offer| offer.busy_s + offer.task_s <= limit_s);
            useful.extend(in_time.map(|offer| offer.node));
            // The fastest servers may have too little memory for the largest tasks.
            let large = offers.iter().filter(|offer| offer.memory_bytes >= *needed_bytes).take(LARGE_SERVERS_MIN);
            useful.extend(large.map(|offer| offer.node));
        }
        servers.into_iter().filter(|(node, _)| useful.contains(node)).collect()
    }
}

/// Reports whether the tasks name only functions and data of the outline. It comes from a client; mapping reports what is
/// wrong with it.
fn is_consistent(outline: &Outline) -> bool {
    let has_datum = |datum: &u32| (*datum as usize) < outline.data.len();
    outline.tasks.iter().all(|task| {
        let mut data = task.inputs.iter().chain(&task.outputs);
        (task.function as usize) < outline.functions.len() && data.all(has_datum)
    })
}

/// Returns the bytes of a task's arguments and results, for which a server needs memory.
fn bytes_of(outline: &Outline, task: &OutlineTask) -> u64 {
    let data = task.inputs.iter().chain(&task.outputs).map(|datum| &outline.data[*datum as usize]);
    data.filter(|datum| datum.name.is_none()).map(|datum| datum.size_bytes).fold(0, u64::saturating_add)
}

/// Returns the work of a task or its bytes, whichever its function states. It is the same for all tasks of a function.
fn amount(size: Size) -> f64 {
    match size {
        Size::Work(flops) => flops,
        Size::Bytes(bytes) => bytes as f64,
    }
}

/// Returns the seconds that these servers need for that many independent tasks.
fn needed_s(offers: &[Offer], tasks: usize) -> f64 {
    let done_by = |limit_s: f64| {
        let of_slot = |offer: &Offer| ((limit_s - offer.busy_s) / offer.task_s.max(1e-9)).floor().max(0.0);
        offers.iter().map(|offer| of_slot(offer) * f64::from(offer.slots)).sum::<f64>()
    };
    let Some(first) = offers.first() else { return 0.0 };
    // The first server alone takes at most this long.
    let (mut low, mut high) = (0.0, first.busy_s + first.task_s * tasks as f64 + 1e-9);
    for _ in 0..40 {
        let middle = (low + high) / 2.0;
        if done_by(middle) >= tasks as f64 { high = middle } else { low = middle }
    }
    high
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offers(all: &[(f64, f64, u32)]) -> Vec<Offer> {
        let offer = |(node, (task_s, busy_s, slots)): (usize, &(f64, f64, u32))| Offer {
            node: NodeId(node as u64),
            memory_bytes: 0,
            task_s: *task_s,
            busy_s: *busy_s,
            slots: *slots,
        };
        all.iter().enumerate().map(offer).collect()
    }

    #[test]
    fn servers_share_the_tasks_and_start_when_they_are_free() {
        let is_near = |a: f64, b: f64| (a - b).abs() < 1e-6;
        assert!(is_near(needed_s(&offers(&[(1.0, 0.0, 1)]), 5), 5.0));
        // Within 4 s the first server runs 4 tasks, the second 4 (two slots, 2 s each), and the third 1 (free after 3 s).
        assert!(is_near(needed_s(&offers(&[(1.0, 0.0, 1), (2.0, 0.0, 2), (1.0, 3.0, 1)]), 9), 4.0));
        assert_eq!(needed_s(&[], 3), 0.0);
    }
}

//! A simplified problem: one datum for each pair of tasks, direct links, no contention.
//!
//! Data shared by two tasks are sent from one to the other separately, even if other tasks read them too. Servers that cannot
//! talk have a link as slow as the route through the client. So [`crate::pairs::PairsEvaluator`], which is fast, can evaluate it. The
//! simplification ignores that data stay where they were sent and that copies share links: the judge of the resulting plan
//! accounts for that.

use std::collections::BTreeMap;

use gridloom_base::Method;

use super::{Datum, LinkEstimate, NO_LINK, Problem, Task};

impl Problem {
    /// Returns the same tasks on the same servers in pairs. With `with_client`, data that the client holds are sent
    /// from there, and wanted data are sent there.
    pub(crate) fn in_pairs(&self, with_client: bool) -> Problem {
        let count = self.task_count();
        let mut made = Made { data: Vec::new(), holders: Vec::new() };
        let (mut inputs, mut outputs) = (vec![Vec::new(); count], vec![Vec::new(); count]);
        for (task, inputs) in inputs.iter_mut().enumerate() {
            let mut from: BTreeMap<u32, u64> = BTreeMap::new();
            let mut held: BTreeMap<&[u32], u64> = BTreeMap::new();
            for datum in self.inputs(task) {
                let Datum { size_bytes, producer, .. } = self.data[*datum as usize];
                let sum = match producer {
                    Some(producer) => from.entry(producer).or_default(),
                    None => held.entry(self.holders(*datum as usize)).or_default(),
                };
                *sum = sum.saturating_add(size_bytes);
            }
            for (producer, size_bytes) in from {
                outputs[producer as usize].push(made.datum(size_bytes, Some(producer), false, &[]));
                inputs.push(made.data.len() as u32 - 1);
            }
            for (holders, size_bytes) in held.into_iter().filter(|_| with_client) {
                inputs.push(made.datum(size_bytes, None, false, holders));
            }
        }
        for (task, outputs) in outputs.iter_mut().enumerate() {
            let wanted =
                self.outputs(task).iter().map(|datum| &self.data[*datum as usize]).filter(|datum| datum.wanted);
            let size_bytes = wanted.map(|datum| datum.size_bytes).fold(0, u64::saturating_add);
            if with_client && size_bytes > 0 {
                outputs.push(made.datum(size_bytes, Some(task as u32), true, &[]));
            }
        }
        let mut arguments = Vec::new();
        let mut tasks = Vec::with_capacity(count);
        for (task, (inputs, outputs)) in inputs.iter().zip(&outputs).enumerate() {
            let first = arguments.len() as u32;
            arguments.extend_from_slice(inputs);
            let middle = arguments.len() as u32;
            arguments.extend_from_slice(outputs);
            tasks.push(Task {
                inputs: first..middle,
                outputs: middle..arguments.len() as u32,
                ..self.tasks[task].clone()
            });
        }
        Problem {
            bottlenecks: Vec::new(),
            client: self.client,
            places: self.places.clone(),
            servers: self.servers.clone(),
            functions: self.functions.clone(),
            costs: self.costs.clone(),
            tasks,
            data: made.data,
            arguments,
            holders: made.holders,
            links: self.straight_links(),
            complete: true,
            has_contention: false,
            has_exact_figures: self.has_exact_figures,
            stop: self.stop.clone(),
        }
    }

    fn straight_links(&self) -> Vec<LinkEstimate> {
        let (client, places) = (self.client(), self.client() + 1);
        let mut links = self.links.clone();
        for from in 0..client {
            for to in 0..client {
                if links[from * places + to] == NO_LINK {
                    let (up, down) = (self.links[from * places + client], self.links[client * places + to]);
                    links[from * places + to] = LinkEstimate {
                        latency_s: up.latency_s + down.latency_s,
                        bandwidth: 1.0 / (1.0 / up.bandwidth + 1.0 / down.bandwidth),
                    };
                }
            }
        }
        links
    }
}

struct Made {
    data: Vec<Datum>,
    holders: Vec<u32>,
}

impl Made {
    fn datum(&mut self, size_bytes: u64, producer: Option<u32>, wanted: bool, holders: &[u32]) -> u32 {
        let first = self.holders.len() as u32;
        self.holders.extend_from_slice(holders);
        let (readers, holders) = (u32::from(!wanted), first..self.holders.len() as u32);
        let method = Method::Auto;
        self.data.push(Datum { size_bytes, producer, readers, wanted, name: None, method, holders });
        self.data.len() as u32 - 1
    }
}

//! Reads an outline and a grid into a problem and checks them. Each broken invariant is an error that names it.

use super::{Cost, Datum, NO_LINK, Problem, SECONDS_MAX, SELF_LINK, Server, Task};
use crate::error::MapError;
use crate::outline::{Outline, OutlineDatum, OutlineTask};
use gridloom_base::limits::{PACE_MAX, PACE_MIN};
use gridloom_perf::{GridView, LinkEstimate, ServerView, Size, is_work};

impl Problem {
    pub(super) fn read_servers(&mut self, grid: &GridView, tasks: usize) -> Result<(), MapError> {
        self.places.insert(self.client, grid.servers.len());
        for (index, server) in grid.servers.iter().enumerate() {
            if self.places.insert(server.node, index).is_some() {
                return Err(MapError::SameNode { node: server.node });
            }
            if server.slots == 0 {
                return Err(bad_server(server, "it has 0 slots".into()));
            }
            if let Some(busy) = server.busy_s.iter().find(|busy| !(busy.is_finite() && **busy <= SECONDS_MAX)) {
                return Err(bad_server(server, format!("a slot is busy for {busy} s")));
            }
            // The group can use no more slots than it has tasks: those that are free first. So memory stays bounded,
            // whatever number of slots a server states. Adding 0 turns -0 into 0: the bits of -0 would sort last.
            let stated = server.busy_s.iter().take(server.slots as usize).map(|busy| busy.max(0.0) + 0.0);
            let mut busy_s: Vec<f64> = stated.collect();
            let slots = server.slots.min(tasks.max(1) as u32);
            let idle = (server.slots as usize - busy_s.len()).min(slots as usize);
            busy_s.resize(busy_s.len() + idle, 0.0);
            busy_s.sort_by(f64::total_cmp);
            let mut beside_s = busy_s.split_off((slots as usize).min(busy_s.len()));
            beside_s.retain(|busy| *busy > 0.0);
            self.servers.push(Server {
                node: server.node,
                name: server.name.clone(),
                slots,
                busy_s,
                other_busy_s: beside_s,
                memory_bytes: server.memory_bytes,
                is_stateless: server.stateless,
            });
        }
        Ok(())
    }

    /// `bytes` is an upper bound on the size of any transfer, even of several data at once.
    pub(super) fn read_links(&mut self, grid: &GridView, bytes: f64) -> Result<(), MapError> {
        let count = grid.servers.len();
        if grid.client_links.len() != count || grid.links.len() != count || grid.links.iter().any(|l| l.len() != count)
        {
            let why = format!("the tables must have one entry for each of the {count} servers");
            return Err(MapError::BadEstimate { subject: "the links".into(), why });
        }
        for (from, sender) in grid.servers.iter().enumerate() {
            for (to, receiver) in grid.servers.iter().enumerate() {
                let link = if sender.stateless || receiver.stateless {
                    NO_LINK
                } else if from == to {
                    SELF_LINK
                } else if let Some(link) = grid.links[from][to] {
                    check_link(link, bytes, &sender.name, &receiver.name)?
                } else {
                    NO_LINK
                };
                self.complete &= link != NO_LINK;
                self.links.push(link);
            }
            self.links.push(check_link(grid.client_links[from], bytes, "the client", &sender.name)?);
        }
        self.links.extend_from_slice(&grid.client_links);
        self.links.push(SELF_LINK);
        for (number, one) in grid.bottlenecks.iter().enumerate() {
            let is_link = |(from, to): &(usize, usize)| *from <= count && *to <= count && from != to;
            if !(one.bandwidth.is_finite() && one.bandwidth > 0.0 && one.pairs.iter().all(is_link)) {
                let why = format!("{} bytes/s for the links {:?} of {count} servers", one.bandwidth, one.pairs);
                return Err(MapError::BadEstimate { subject: format!("bottleneck {number}"), why });
            }
        }
        Ok(())
    }

    pub(super) fn read_costs(&mut self, grid: &GridView) -> Result<(), MapError> {
        for function in &self.functions {
            for server in &grid.servers {
                let Some(model) = server.functions.get(function) else {
                    self.costs.push(None);
                    continue;
                };
                if !model.is_sane() {
                    return Err(bad_server(server, format!("the model of '{function}' is not an ascending curve")));
                }
                if !(PACE_MIN..=PACE_MAX).contains(&server.pace) {
                    return Err(bad_server(
                        server,
                        format!("its calls take {} times as long as its models predict", server.pace),
                    ));
                }
                if let Some(flops) = server.speed_flops.filter(|flops| flops.is_nan() || *flops <= 0.0) {
                    return Err(bad_server(server, format!("its speed is {flops} flop/s")));
                }
                self.costs.push(Some(Cost {
                    model: model.clone(),
                    speed_flops: server.speed_flops,
                    pace: server.pace,
                    tasks: 1.0,
                }));
            }
        }
        Ok(())
    }

    pub(super) fn read_datum(&mut self, number: usize, datum: &OutlineDatum) -> Result<(), MapError> {
        let first = self.holders.len();
        if datum.producer.is_none() {
            // Results of a stateless server are on their way to the client.
            let kept_at = |place: usize| if self.is_stateless(place) { self.client() } else { place };
            let known = datum.at.iter().filter_map(|node| self.places.get(node));
            let mut holders: Vec<u32> = known.map(|place| kept_at(*place) as u32).collect();
            holders.sort_unstable();
            holders.dedup();
            if holders.is_empty() {
                return Err(MapError::Unreachable { datum: number });
            }
            self.holders.append(&mut holders);
        }
        self.data.push(Datum {
            size_bytes: datum.size_bytes,
            producer: datum.producer,
            readers: 0,
            wanted: datum.wanted,
            name: datum.name.clone(),
            method: datum.method,
            holders: first as u32..self.holders.len() as u32,
        });
        Ok(())
    }

    pub(super) fn read_task(&mut self, number: usize, task: &OutlineTask) -> Result<(), MapError> {
        let Some(function) = self.functions.get(task.function as usize) else {
            return Err(malformed(format!("task {number} calls function number {}", task.function)));
        };
        if let Some(work_flops) = task.work_flops.filter(|work| !is_work(*work)) {
            return Err(MapError::BadWork { task: number, function: function.clone(), work_flops });
        }
        let first = self.arguments.len();
        let mut size_bytes = 0u64;
        for input in &task.inputs {
            let datum = *input as usize;
            let Some(facts) = self.data.get_mut(datum) else {
                return Err(malformed(format!("task {number} reads datum {datum}, and there is none")));
            };
            if let Some(producer) = facts.producer.filter(|producer| *producer as usize >= number) {
                return Err(MapError::NotInOrder { task: number, datum, producer: producer as usize });
            }
            facts.readers += 1;
            size_bytes = size_bytes.saturating_add(facts.argument_bytes());
        }
        self.arguments.extend_from_slice(&task.inputs);
        self.arguments[first..].sort_unstable();
        if self.arguments[first..].windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(malformed(format!("task {number} lists an input twice")));
        }
        let middle = self.arguments.len();
        for output in &task.outputs {
            let Some(facts) = self.data.get(*output as usize).filter(|facts| facts.producer == Some(number as u32))
            else {
                return Err(malformed(format!(
                    "task {number} makes datum {output}, which does not name it as its maker"
                )));
            };
            size_bytes = size_bytes.saturating_add(facts.argument_bytes());
        }
        self.arguments.extend_from_slice(&task.outputs);
        let place = |node| self.place(node).filter(|place| *place < self.client()).map(|place| place as u32);
        let only = match task.bound_to.map(|node| (node, place(node))) {
            Some((server, None)) => {
                return Err(MapError::NoSuchServer {
                    task: number,
                    function: self.functions[task.function as usize].clone(),
                    server,
                });
            }
            found => found.and_then(|(_, place)| place),
        };
        self.tasks.push(Task {
            function: task.function,
            work_flops: task.work_flops,
            bound_server: only,
            size_bytes,
            inputs: first as u32..middle as u32,
            outputs: middle as u32..self.arguments.len() as u32,
        });
        Ok(())
    }

    /// Checks that every datum that names a maker is listed by it exactly once.
    pub(super) fn check_makers(&self, outline: &Outline) -> Result<(), MapError> {
        let mut makers = vec![0u32; self.data.len()];
        outline.tasks.iter().flat_map(|task| &task.outputs).for_each(|output| makers[*output as usize] += 1);
        match (0..makers.len()).find(|datum| makers[*datum] != u32::from(self.data[*datum].producer.is_some())) {
            Some(datum) => {
                Err(malformed(format!("the task that datum {datum} names as its maker does not list it once")))
            }
            None => Ok(()),
        }
    }

    /// Estimates the load of servers before anything is mapped: the group's mean width, distributed evenly over all slots.
    pub(super) fn expect_loads(&mut self) {
        if !(0..self.servers.len()).any(|server| self.is_perturbed(server)) {
            return;
        }
        let mut levels = vec![0u32; self.tasks.len()];
        for task in 0..self.tasks.len() {
            let makers = self.inputs(task).iter().filter_map(|input| self.data[*input as usize].producer);
            levels[task] = makers.map(|maker| levels[maker as usize] + 1).max().unwrap_or(0);
        }
        let depth = levels.into_iter().max().map_or(1, |last| last + 1);
        let slots: f64 = self.servers.iter().map(|server| f64::from(server.slots)).sum();
        let part = (self.tasks.len() as f64 / f64::from(depth) / slots).min(1.0);
        let load = |server: &Server| (part * f64::from(server.slots)).max(1.0) + server.other_busy_s.len() as f64;
        let loads: Vec<f64> = self.servers.iter().map(load).collect();
        for (index, cost) in self.costs.iter_mut().enumerate() {
            cost.iter_mut().for_each(|cost| cost.tasks = loads[index % loads.len()]);
        }
    }

    pub(super) fn check_runnable(&self) -> Result<(), MapError> {
        let by_function: Vec<Option<u64>> = (0..self.functions.len()).map(|f| self.widest(f)).collect();
        let mut most_work = vec![None; self.functions.len()];
        for (number, task) in self.tasks.iter().enumerate() {
            let function = || self.function(number).to_owned();
            if let Some(server) = self.bound_server(number).filter(|server| self.seconds(number, *server).is_none()) {
                let why = self.cannot_run(number, server);
                return Err(MapError::Unfit { subject: "the group has a task that is bound to a server".into(), why });
            }
            let Some(limit_bytes) = by_function[task.function as usize] else {
                return Err(MapError::NoSuchFunction { function: function(), task: number });
            };
            if task.size_bytes > limit_bytes {
                let needed_bytes = task.size_bytes;
                return Err(MapError::TooLarge { task: number, function: function(), needed_bytes, limit_bytes });
            }
            let most: &mut Option<(f64, usize)> = &mut most_work[task.function as usize];
            if let Some(work_flops) = task.work_flops
                && most.is_none_or(|(most, _)| work_flops > most)
            {
                *most = Some((work_flops, number));
            }
        }
        // Times never decrease with work: if the largest task has a finite time everywhere, all tasks have.
        for (function, most) in most_work.into_iter().enumerate() {
            let Some((work_flops, task)) = most else { continue };
            let mut costs = self.costs_of(function).iter().flatten();
            if costs.any(|cost| !is_duration(cost.seconds(Size::Work(work_flops)))) {
                return Err(MapError::BadWork { task, function: self.functions[function].clone(), work_flops });
            }
        }
        Ok(())
    }

    /// Size of the largest store among the servers that offer a function; `None` if none does.
    fn widest(&self, function: usize) -> Option<u64> {
        let offered = self.costs_of(function).iter().zip(&self.servers).filter(|(cost, _)| cost.is_some());
        offered.map(|(_, server)| server.memory_bytes).max()
    }
}

/// True if it is a finite, non-negative time.
fn is_duration(value: f64) -> bool {
    (0.0..=SECONDS_MAX).contains(&value)
}

fn check_link(link: LinkEstimate, bytes: f64, from: &str, to: &str) -> Result<LinkEstimate, MapError> {
    if is_duration(link.latency_s) && link.bandwidth > 0.0 && is_duration(bytes / link.bandwidth) {
        return Ok(link);
    }
    let LinkEstimate { latency_s, bandwidth } = link;
    let why = format!(
        "latency {latency_s} s, bandwidth {bandwidth} bytes/s; both must be positive, and the group's {bytes:.0} bytes must be movable in \
         {SECONDS_MAX:.0e} s"
    );
    Err(MapError::BadEstimate { subject: format!("the link between '{from}' and '{to}'"), why })
}

fn bad_server(server: &ServerView, why: String) -> MapError {
    MapError::BadEstimate { subject: format!("server '{}'", server.name), why }
}

fn malformed(why: String) -> MapError {
    MapError::Malformed { why }
}

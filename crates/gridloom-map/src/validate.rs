//! Checks any plan from scratch. Used on untrusted plans, and in tests.
//!
//! It shares nothing with [`super::schedule`] except the [`Problem`], so an error there is not repeated here. It
//! does not check whether the plan is good: tasks and transfers may start later than they could.

use std::collections::BTreeMap;

use super::plan::{Plan, Transfer};
use super::problem::Problem;

/// Tolerance for comparing times, as a fraction of the makespan: they are sums of rounded numbers.
const TOLERANCE: f64 = 1e-9;

impl Plan {
    /// Checks that the plan can be executed on the problem: see the invariants of [`Plan`].
    ///
    /// # Errors
    /// The first violation, in words.
    pub fn validate(&self, problem: &Problem) -> Result<(), String> {
        let check = Check { plan: self, problem, tolerance_s: TOLERANCE * self.makespan_s.max(1.0) };
        let servers = check.tasks()?;
        check.slots(&servers)?;
        let there_s = check.transfers(&servers)?;
        check.inputs(&servers, &there_s)?;
        check.plain(&servers)?;
        check.totals(&there_s)
    }
}

/// The places that have each datum, the time since which each has it, and the time since which each can forward it.
type Holders = Vec<Vec<(usize, f64, f64)>>;

struct Check<'a> {
    plan: &'a Plan,
    problem: &'a Problem,
    tolerance_s: f64,
}

impl Check<'_> {
    /// Checks that each task runs, for its time, on a server that can run it; returns the servers.
    fn tasks(&self) -> Result<Vec<usize>, String> {
        let Check { plan, problem, tolerance_s } = self;
        if plan.tasks.len() != problem.task_count() {
            return Err(format!("it has {} tasks, the group has {}", plan.tasks.len(), problem.task_count()));
        }
        let mut servers = Vec::with_capacity(plan.tasks.len());
        for (number, task) in plan.tasks.iter().enumerate() {
            let Some(server) = problem.place(task.server).filter(|place| *place < problem.client()) else {
                return Err(format!("task {number} is on {}, which is not a server of the grid", task.server));
            };
            let Some(seconds) = problem.alone_seconds(number, server) else {
                let (function, name) = (problem.function(number), problem.name(server));
                return Err(format!("task {number} is on server '{name}', which cannot run its '{function}'"));
            };
            if !(task.start_s >= 0.0 && task.end_s.is_finite()) {
                return Err(format!("task {number} runs from {} s to {} s", task.start_s, task.end_s));
            }
            let beside = problem.perturbation(number, server, problem.servers()[server].tasks_max());
            let given_s = task.end_s - task.start_s;
            if given_s < seconds - *tolerance_s || given_s > seconds * beside + *tolerance_s {
                let most = if beside > 1.0 { format!(" to {} s", seconds * beside) } else { String::new() };
                return Err(format!("task {number} takes {seconds} s{most} and was given {given_s} s"));
            }
            servers.push(server);
        }
        Ok(servers)
    }

    /// Checks that no server runs more tasks at a time than it has free slots.
    fn slots(&self, servers: &[usize]) -> Result<(), String> {
        let mut events = vec![Vec::new(); self.problem.client()];
        for (server, events) in self.problem.servers().iter().zip(&mut events) {
            events.extend(server.busy_s.iter().flat_map(|busy| [(0.0, 1i64), (*busy, -1)]));
        }
        for (task, server) in self.plan.tasks.iter().zip(servers) {
            // Shortened so that a task that starts when another ends does not overlap it by rounding.
            let end_s = (task.end_s - self.tolerance_s).max(task.start_s);
            events[*server].extend([(task.start_s, 1), (end_s, -1)]);
        }
        for (server, mut events) in events.into_iter().enumerate() {
            events.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
            let slots = i64::from(self.problem.servers()[server].slots);
            let mut taken = 0;
            for (time_s, change) in events {
                taken += change;
                if taken > slots {
                    let name = self.problem.name(server);
                    return Err(format!("server '{name}' with {slots} slots runs {taken} tasks at {time_s} s"));
                }
            }
        }
        Ok(())
    }

    /// Checks that each transfer starts from a place that has the datum, over a link, and takes its time; returns where data are.
    fn transfers(&self, servers: &[usize]) -> Result<Holders, String> {
        let Check { plan, problem, .. } = self;
        let mut there_s: Holders = (0..problem.data().len())
            .map(|datum| problem.holders(datum).iter().map(|place| (*place as usize, 0.0, 0.0)).collect())
            .collect();
        for (number, server) in servers.iter().enumerate() {
            for output in problem.outputs(number) {
                let end_s = plan.tasks[number].end_s;
                there_s[*output as usize].push((*server, end_s, end_s));
            }
        }
        let mut before_s = 0.0;
        for transfer in &plan.transfers {
            if transfer.start_s < before_s {
                return Err(format!("transfers are not in order of start, at {} s", transfer.start_s));
            }
            before_s = transfer.start_s;
            let Some(there_s) = there_s.get_mut(transfer.datum as usize) else {
                return Err(format!("datum {} is moved, and there is none", transfer.datum));
            };
            let Transfer { datum, from, to, .. } = transfer;
            let to =
                self.transfer(transfer, there_s).map_err(|why| format!("datum {datum} from {from} to {to}: {why}"))?;
            let begun_s = self.begun_s(transfer, to);
            there_s.push((to, transfer.end_s, begun_s));
        }
        Ok(there_s)
    }

    fn transfer(&self, transfer: &Transfer, there_s: &[(usize, f64, f64)]) -> Result<usize, String> {
        let (problem, tolerance_s) = (self.problem, self.tolerance_s);
        let Transfer { datum, from, to, size_bytes, start_s, end_s, .. } = *transfer;
        let (Some(from), Some(to)) = (problem.place(from), problem.place(to)) else {
            return Err("one of them is not of the grid".into());
        };
        let size = problem.data()[datum as usize].size_bytes;
        if size_bytes != size {
            return Err(format!("it has {size} bytes, not {size_bytes}"));
        }
        let seconds = problem.link_seconds(from, to, size);
        if from == to || seconds == f64::INFINITY {
            return Err("they have no link".into());
        }
        if !(end_s.is_finite() && end_s - start_s >= seconds - tolerance_s) {
            return Err(format!("it takes {seconds} s and was given {} s", end_s - start_s));
        }
        let at_sender =
            |(place, _, passed_s): &&(usize, f64, f64)| *place == from && *passed_s <= start_s + tolerance_s;
        let Some((_, since_s, _)) = there_s.iter().find(at_sender) else {
            return Err(format!("the sender does not have it at {start_s} s"));
        };
        if *since_s > start_s + tolerance_s {
            let last_s = since_s + problem.part_bytes(datum as usize) as f64 / problem.links_from(from)[to].bandwidth;
            if end_s < last_s - tolerance_s {
                return Err(format!("it ends at {end_s} s, and its last part leaves the sender by {last_s} s"));
            }
        }
        // Only plain GridRPC sends a datum twice, and only from the client.
        if from != problem.client() && there_s.iter().any(|(place, ..)| *place == to) {
            return Err("the receiver has it already".into());
        }
        Ok(to)
    }

    /// Time since which a place can forward a datum that it receives.
    fn begun_s(&self, transfer: &Transfer, to: usize) -> f64 {
        let Some(from) = self.problem.place(transfer.from) else { return transfer.end_s };
        match self.problem.forwards_while_receiving(transfer.datum as usize, to) {
            true => {
                transfer.start_s + self.problem.link_seconds(from, to, self.problem.part_bytes(transfer.datum as usize))
            }
            false => transfer.end_s,
        }
    }

    /// Checks that the inputs of each task are there when it starts.
    fn inputs(&self, servers: &[usize], there_s: &Holders) -> Result<(), String> {
        for (number, server) in servers.iter().enumerate() {
            let start_s = self.plan.tasks[number].start_s + self.tolerance_s;
            for input in self.problem.inputs(number) {
                if !there_s[*input as usize].iter().any(|(place, since_s, _)| place == server && *since_s <= start_s) {
                    let name = self.problem.name(*server);
                    return Err(format!("datum {input} is not at server '{name}' when task {number} starts"));
                }
            }
        }
        Ok(())
    }

    /// Checks stateless servers: the client sends them each input for each task, and receives each result.
    fn plain(&self, servers: &[usize]) -> Result<(), String> {
        let Check { plan, problem, tolerance_s } = self;
        let mut arrivals_s: BTreeMap<(u32, usize), Vec<f64>> = BTreeMap::new();
        for moved in &plan.transfers {
            let to = problem.place(moved.to).filter(|to| *to == problem.client() || problem.is_stateless(*to));
            to.into_iter().for_each(|to| arrivals_s.entry((moved.datum, to)).or_default().push(moved.end_s));
        }
        let mut starts_s: BTreeMap<(u32, usize), Vec<f64>> = BTreeMap::new();
        for (number, server) in servers.iter().enumerate().filter(|(_, server)| problem.is_stateless(**server)) {
            for input in problem.inputs(number) {
                starts_s.entry((*input, *server)).or_default().push(plan.tasks[number].start_s);
            }
            let stays = |output: &&u32| !arrivals_s.contains_key(&(**output, problem.client()));
            if let Some(output) = problem.outputs(number).iter().find(stays) {
                return Err(format!("datum {output} stays at stateless server '{}'", problem.name(*server)));
            }
        }
        for ((datum, server), mut starts_s) in starts_s {
            let mut copies_s = arrivals_s.remove(&(datum, server)).unwrap_or_default();
            starts_s.sort_by(f64::total_cmp);
            copies_s.sort_by(f64::total_cmp);
            let is_late =
                |(number, start_s): (usize, &f64)| copies_s.get(number).is_none_or(|at| *at > start_s + tolerance_s);
            if starts_s.iter().enumerate().any(is_late) {
                let name = problem.name(server);
                return Err(format!(
                    "datum {datum} is not sent to stateless server '{name}' for each task that reads it"
                ));
            }
        }
        Ok(())
    }

    /// Checks that the client receives all wanted data, and that the makespan is the end of everything and not below the bound.
    fn totals(&self, there_s: &Holders) -> Result<(), String> {
        let Check { plan, problem, tolerance_s } = self;
        for (datum, facts) in problem.data().iter().enumerate() {
            if facts.wanted && !there_s[datum].iter().any(|(place, ..)| *place == problem.client()) {
                return Err(format!("datum {datum} is wanted and does not reach the client"));
            }
        }
        let ends = plan.tasks.iter().map(|task| task.end_s).chain(plan.transfers.iter().map(|moved| moved.end_s));
        let end_s = ends.fold(0.0, f64::max);
        if (end_s - plan.makespan_s).abs() > *tolerance_s {
            return Err(format!("its makespan is {end_s} s, not {} s", plan.makespan_s));
        }
        if plan.lower_bound_s.is_nan() || plan.lower_bound_s > plan.makespan_s + tolerance_s {
            return Err(format!("its makespan {} s is below the bound {} s", plan.makespan_s, plan.lower_bound_s));
        }
        Ok(())
    }
}

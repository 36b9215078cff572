//! A plan as text: its makespan and the distance to the bound, the work of each server, and the traffic of each link.

use std::collections::BTreeMap;
use std::fmt;

use super::lanes::{Span, lanes};
use super::record::{NotMeasured, PlanRecord, bytes};

/// Maximum number of task numbers listed per server.
const TASKS_SHOWN: usize = 12;
/// Reported for a plan that was changed and has no basis from which to compute its times.
pub(super) const NO_TIMES: &str = "its times are not known, since it was changed, and the plan does not include its \
     basis (the 'problem' in its file)";
/// Maximum number of servers and links listed: the busiest ones.
const ROWS_SHOWN: usize = 40;

impl fmt::Display for PlanRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut servers: BTreeMap<&str, (f64, Vec<usize>)> = BTreeMap::new();
        for number in self.order() {
            let task = &self.tasks[number as usize];
            let (busy_s, tasks) = servers.entry(&task.server).or_default();
            *busy_s += task.end_seconds - task.start_seconds;
            tasks.push(number as usize);
        }
        let mut links: BTreeMap<(&str, &str), (usize, u64, f64)> = BTreeMap::new();
        for moved in &self.transfers {
            let (count, size_bytes, seconds) = links.entry((&moved.from, &moved.to)).or_default();
            *count += 1;
            *size_bytes = size_bytes.saturating_add(moved.size_bytes);
            *seconds += moved.end_seconds - moved.start_seconds;
        }
        let (tasks, on) = (count(self.tasks.len(), "task"), count(servers.len(), "server"));
        if !self.has_times() {
            writeln!(f, "plan by {}: {tasks} on {on}; {NO_TIMES}", self.heuristic)?;
            for (server, (_, tasks)) in servers.iter().take(ROWS_SHOWN) {
                writeln!(f, "  {server}: {}: {}", count(tasks.len(), "task"), numbers(tasks))?;
            }
            return match servers.len().saturating_sub(ROWS_SHOWN) {
                0 => Ok(()),
                more => writeln!(f, "  and {} more", count(more, "server")),
            };
        }
        writeln!(f, "plan by {}: {tasks} on {on}, {}", self.heuristic, count(self.transfers.len(), "transfer"))?;
        let (makespan_s, bound_s) = (self.makespan_seconds, self.lower_bound_seconds);
        write!(f, "makespan {makespan_s:.4} s, lower bound {bound_s:.4} s")?;
        match bound_s > 0.0 {
            true => writeln!(f, ": {:.2} times the bound", makespan_s / bound_s)?,
            false => writeln!(f)?,
        }
        write!(f, "{}", NotMeasured(&self.not_measured))?;
        if let Some(memory) = self.client_memory() {
            write!(f, "{memory}")?;
        }
        let slots = self.slots();
        let mut rows: Vec<_> = servers.into_iter().collect();
        let more = keep_busiest(&mut rows, |(_, (busy_s, _))| *busy_s);
        for (server, (busy_s, tasks)) in rows {
            let slots = f64::from(*slots.get(server).unwrap_or(&1));
            let busy = if makespan_s > 0.0 { 100.0 * busy_s / (slots * makespan_s) } else { 0.0 };
            writeln!(f, "  {server}: {}, busy {busy:.0} %: {}", count(tasks.len(), "task"), numbers(&tasks))?;
        }
        if more > 0 {
            writeln!(f, "  and {} less busy", count(more, "server"))?;
        }
        let mut rows: Vec<_> = links.into_iter().collect();
        let more = keep_busiest(&mut rows, |(_, (_, _, seconds))| *seconds);
        for ((from, to), (number, size_bytes, seconds)) in rows {
            writeln!(f, "  {from} -> {to}: {}, {}, {seconds:.4} s", count(number, "transfer"), bytes(size_bytes))?;
        }
        if more > 0 {
            writeln!(f, "  and {} less busy", count(more, "link"))?;
        }
        Ok(())
    }
}

impl PlanRecord {
    /// Returns the slots of its servers; if the plan's grid is not known, the largest number of simultaneous tasks.
    fn slots(&self) -> BTreeMap<&str, u32> {
        if let Some(basis) = self.basis.as_deref() {
            let servers = basis.mapper_input.grid.servers.iter();
            return servers.map(|server| (server.name.as_str(), server.slots.max(1))).collect();
        }
        let tasks = self.tasks.iter();
        let spans: Vec<Span<'_>> = tasks.map(|t| (t.server.as_str(), t.start_seconds, t.end_seconds)).collect();
        let mut slots = BTreeMap::new();
        for ((server, ..), lane) in spans.iter().zip(lanes(&spans)) {
            let known = slots.entry(*server).or_insert(1);
            *known = (*known).max(lane as u32 + 1);
        }
        slots
    }
}

/// Lists the first numbers.
fn numbers(tasks: &[usize]) -> String {
    let shown: Vec<String> = tasks.iter().take(TASKS_SHOWN).map(usize::to_string).collect();
    let left = tasks.len() - shown.len();
    let left = if left > 0 { format!(" and {left} more") } else { String::new() };
    shown.join(", ") + &left
}

/// Keeps only the rows to show, in their order, and returns the number of omitted rows.
fn keep_busiest<T>(rows: &mut Vec<T>, busy: impl Fn(&T) -> f64) -> usize {
    if rows.len() <= ROWS_SHOWN {
        return 0;
    }
    let mut all: Vec<f64> = rows.iter().map(&busy).collect();
    all.sort_by(|a, b| b.total_cmp(a));
    let (least, before) = (all[ROWS_SHOWN - 1], rows.len());
    rows.retain(|row| busy(row) >= least);
    rows.truncate(ROWS_SHOWN);
    before - rows.len()
}

pub(super) fn count(number: usize, one: &str) -> String {
    format!("{number} {one}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TaskRecord;

    #[test]
    fn a_plan_of_a_report_is_never_busier_than_its_makespan() {
        let task = |start_seconds: f64| TaskRecord {
            task: String::new(),
            function: "m/f".into(),
            server: "s".into(),
            start_seconds,
            end_seconds: start_seconds + 1.0,
            error: None,
        };
        let plan = PlanRecord {
            heuristic: "heft".into(),
            makespan_seconds: 2.0,
            lower_bound_seconds: 1.0,
            map_seconds: 0.0,
            not_measured: ["f on s", "link s -> t", "a on s", "b on s", "c on s"].map(String::from).to_vec(),
            client_bytes: 0,
            server_bytes: 0,
            client_memory_bytes: None,
            tasks: [0.0, 0.0, 0.0, 1.0].map(task).to_vec(),
            transfers: Vec::new(),
            hash: String::new(),
            basis: None,
        };
        // Four of the six seconds that three slots have.
        assert!(plan.to_string().contains("  s: 4 tasks, busy 67 %"), "{plan}");
        let guessed = "guessed, as not measured yet: f on s, link s -> t, a on s, b on s and 1 more\n";
        assert!(plan.to_string().contains(guessed), "{plan}");
    }
}

//! Draws tasks and transfers over time: slots of servers above, links below, time to the right.
//!
//! **Invariants:** the file stays below about 10 MB, however long the plan is. Bars that are closer than the chart can show are
//! drawn as one, labelled with their number. Only the busiest rows are drawn. Simultaneous activities in a row have separate
//! lanes.

mod drawing;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use drawing::{Bar, Drawing, Lane};

use super::lanes::{Span, lanes};
use super::record::{PlanRecord, TaskRecord, TransferRecord, bytes};
use super::text::{NO_TIMES, count};
use crate::Error;
use crate::chart::{COLOURS, EDGE, FAILED};

/// Maximum numbers of rows drawn: of servers' slots, and of links.
const SLOTS_MAX: usize = 300;
const LINKS_MAX: usize = 150;
/// The colour of transfers.
const TRANSFER: &str = "#777777";

impl PlanRecord {
    /// Draws the plan as SVG: a row for each slot of a server, a row for each link, and hover text for each bar. Tasks
    /// and transfers on the critical path have a dark edge, if the basis of the plan is known.
    ///
    /// # Errors
    /// If its times are not known.
    pub fn gantt_svg(&self) -> Result<String, Error> {
        if !self.has_times() {
            return Err(Error::Usage(format!("the plan cannot be drawn: {NO_TIMES}")));
        }
        let title = format!(
            "{} by {}: {:.4} s, at least {:.4} s",
            count(self.tasks.len(), "task"),
            self.heuristic,
            self.makespan_seconds,
            self.lower_bound_seconds
        );
        Ok(gantt_svg(&title, &self.tasks, &self.transfers, &self.critical_tasks()))
    }
}

/// Checks that a drawing may be written to a file of that name: drawings are SVG, and another extension would mislead.
///
/// # Errors
/// If the name has another extension.
pub fn check_svg_name(path: &Path) -> Result<(), Error> {
    let Some(ending) = path.extension() else { return Ok(()) };
    if ending.eq_ignore_ascii_case("svg") {
        return Ok(());
    }
    let (name, ending, other) = (path.display(), ending.to_string_lossy(), path.with_extension("svg"));
    let why = format!("drawings are SVG, not {ending}: name the file {}, which browsers show", other.display());
    Err(Error::Usage(format!("{name}: {why}")))
}

/// Draws tasks and transfers over time as SVG. `critical` has the numbers of tasks that get a dark edge.
pub fn gantt_svg(
    title: &str,
    tasks: &[TaskRecord],
    transfers: &[TransferRecord],
    critical: &BTreeSet<usize>,
) -> String {
    let colours = colours(tasks);
    Gantt { title, tasks, transfers, critical, colours: &colours, number_of: &|at| at, end_s: 0.0 }.svg()
}

/// Assigns a colour to each function.
pub(crate) fn colours(tasks: &[TaskRecord]) -> BTreeMap<&str, &'static str> {
    let functions: BTreeSet<&str> = tasks.iter().map(|task| task.function.as_str()).collect();
    functions.into_iter().zip(COLOURS.iter().copied().cycle()).collect()
}

/// The content of a drawing.
pub(crate) struct Gantt<'a> {
    /// May be empty.
    pub(crate) title: &'a str,
    pub(crate) tasks: &'a [TaskRecord],
    pub(crate) transfers: &'a [TransferRecord],
    /// Tasks that get a dark edge, as indices into `tasks`.
    pub(crate) critical: &'a BTreeSet<usize>,
    /// Colours of functions.
    pub(crate) colours: &'a BTreeMap<&'a str, &'static str>,
    /// Returns the call's number for an index into `tasks`.
    pub(crate) number_of: &'a dyn Fn(usize) -> usize,
    /// Minimum end of the axis.
    pub(crate) end_s: f64,
}

impl Gantt<'_> {
    pub(crate) fn svg(&self) -> String {
        let (slots, slots_left) = busiest(self.slots(), SLOTS_MAX);
        let (links, links_left) = busiest(self.links(), LINKS_MAX);
        let mut legend: Vec<(&str, &str)> =
            self.colours.iter().map(|(function, colour)| (*function, *colour)).collect();
        if self.tasks.iter().any(|task| task.error.is_some() && !task.server.is_empty()) {
            legend.push(("failed", FAILED));
        }
        if !self.critical.is_empty() {
            legend.push(("critical path", EDGE));
        }
        if !links.is_empty() {
            legend.push(("transfer", TRANSFER));
        }
        let not_drawn = match slots_left + links_left {
            0 => String::new(),
            _ => {
                let (slots, links) = (count(slots_left, "less busy slot"), count(links_left, "less busy link"));
                format!("not drawn: {slots}, {links}")
            }
        };
        Drawing { title: self.title, legend, slots, links, not_drawn: &not_drawn, end_s: self.end_s }.svg()
    }

    /// Slots with their tasks, ordered by server.
    fn slots(&self) -> Vec<Vec<Lane>> {
        let spans = self.tasks.iter().map(|task| (task.server.as_str(), task.start_seconds, task.end_seconds));
        let lanes = lanes(&spans.collect::<Vec<_>>());
        let mut slots: BTreeMap<(&str, usize), Vec<Bar>> = BTreeMap::new();
        for (at, lane) in lanes.into_iter().enumerate().filter(|(at, _)| !self.tasks[*at].server.is_empty()) {
            slots.entry((self.tasks[at].server.as_str(), lane)).or_default().push(self.task(at));
        }
        slots.into_iter().map(|((server, _), bars)| vec![Lane { name: server.to_string(), bars }]).collect()
    }

    fn task(&self, at: usize) -> Bar {
        let (task, number) = (&self.tasks[at], (self.number_of)(at));
        // Tasks of groups have numbers only.
        let name = match task.task.parse::<u64>() {
            Err(_) if !task.task.is_empty() => format!(" '{}',", task.task),
            _ => String::new(),
        };
        let error = task.error.as_ref().map(|error| format!(", failed: {error}")).unwrap_or_default();
        let colour = self.colours.get(task.function.as_str()).copied().unwrap_or(COLOURS[0]);
        Bar {
            start_s: task.start_seconds,
            end_s: task.end_seconds,
            colour: if error.is_empty() { colour } else { FAILED },
            label: number.to_string(),
            title: format!(
                "task {number}{name} {} on {}: {:.4} s to {:.4} s{error}",
                task.function, task.server, task.start_seconds, task.end_seconds
            ),
            is_critical: self.critical.contains(&at),
        }
    }

    /// Links, each with as many lanes as it has simultaneous transfers.
    fn links(&self) -> Vec<Vec<Lane>> {
        let names: Vec<String> =
            self.transfers.iter().map(|moved| format!("{} \u{2192} {}", moved.from, moved.to)).collect();
        let spans = self.transfers.iter().zip(&names);
        let spans: Vec<Span<'_>> =
            spans.map(|(moved, name)| (name.as_str(), moved.start_seconds, moved.end_seconds)).collect();
        let mut links: BTreeMap<&str, Vec<Lane>> = BTreeMap::new();
        for ((moved, name), lane) in self.transfers.iter().zip(&names).zip(lanes(&spans)) {
            let TransferRecord { datum, from, to, size_bytes, start_seconds, end_seconds } = moved;
            let link = links.entry(name).or_default();
            link.resize_with(link.len().max(lane + 1), || Lane { name: name.clone(), bars: Vec::new() });
            link[lane].bars.push(Bar {
                start_s: *start_seconds,
                end_s: *end_seconds,
                colour: TRANSFER,
                label: String::new(),
                title: format!(
                    "datum {datum} {from} to {to}: {}, {start_seconds:.4} s to {end_seconds:.4} s",
                    bytes(*size_bytes)
                ),
                is_critical: false,
            });
        }
        links.into_values().collect()
    }
}

/// Returns the busiest rows in their order, and the number of omitted rows.
fn busiest(mut rows: Vec<Vec<Lane>>, limit: usize) -> (Vec<Vec<Lane>>, usize) {
    let bars = |row: &[Lane]| row.iter().flat_map(|lane| &lane.bars).map(|bar| bar.end_s - bar.start_s).sum::<f64>();
    for lane in rows.iter_mut().flatten() {
        lane.bars.sort_by(|a, b| a.start_s.total_cmp(&b.start_s).then(a.end_s.total_cmp(&b.end_s)));
    }
    let left = rows.len().saturating_sub(limit);
    if left > 0 {
        let mut order: Vec<(usize, f64)> = rows.iter().map(|row| bars(row)).enumerate().collect();
        order.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        let kept: BTreeSet<usize> = order[..limit].iter().map(|(number, _)| *number).collect();
        let mut number = 0;
        rows.retain(|_| {
            number += 1;
            kept.contains(&(number - 1))
        });
    }
    (rows, left)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(server: &str, start_seconds: f64, end_seconds: f64) -> TaskRecord {
        let (task, function, server) = (String::new(), "m/f".to_string(), server.to_string());
        TaskRecord { task, function, server, start_seconds, end_seconds, error: None }
    }

    fn moved(datum: &str, start_seconds: f64, end_seconds: f64) -> TransferRecord {
        let (from, to) = ("a<b".to_string(), "c".to_string());
        TransferRecord { datum: datum.into(), from, to, size_bytes: 8_000_000, start_seconds, end_seconds }
    }

    /// Returns the number after `name` in each rectangle.
    fn numbers(svg: &str, name: &str) -> Vec<f64> {
        let rectangles = svg.split("<rect").filter(|rectangle| rectangle.contains("<title>datum"));
        let value = |rectangle: &str| rectangle.split_once(name)?.1.split('"').next()?.parse().ok();
        rectangles.filter_map(value).collect()
    }

    #[test]
    fn slots_and_links_have_rows_with_hover_texts() {
        let tasks = [task("a<b", 0.0, 2.0), task("a<b", 1.0, 3.0), task("c", 2.0, 3.0)];
        let svg = gantt_svg("t", &tasks, &[moved("7", 0.5, 2.0)], &BTreeSet::from([1]));
        assert_eq!(svg.matches("<title>task ").count(), 3);
        assert!(svg.contains("task 1 m/f on a&lt;b: 1.0000 s to 3.0000 s"));
        assert!(svg.contains("datum 7 a&lt;b to c: 8.0 MB, 0.5000 s to 2.0000 s"));
        assert_eq!(svg.matches("stroke=\"#000\"").count(), 2, "of the bar, and in the legend");
        assert!(svg.contains("time from the start (s)"));
    }

    #[test]
    fn transfers_at_a_time_over_one_link_are_drawn_in_parallel() {
        let transfers = [moved("1", 0.0, 2.0), moved("2", 1.0, 3.0), moved("3", 1.5, 4.0), moved("4", 2.0, 4.0)];
        let svg = gantt_svg("t", &[task("c", 0.0, 4.0)], &transfers, &BTreeSet::new());
        let (tops, heights) = (numbers(&svg, " y=\""), numbers(&svg, " height=\""));
        let mut lanes: Vec<(f64, f64)> = tops.into_iter().zip(heights).collect();
        assert_eq!(lanes.len(), 4);
        lanes.sort_by(|a, b| a.0.total_cmp(&b.0));
        lanes.dedup();
        assert_eq!(lanes.len(), 3, "the fourth follows the first");
        assert!(lanes.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0), "{lanes:?}");
    }

    #[test]
    fn a_long_plan_stays_small() {
        let tasks: Vec<TaskRecord> = (0..200_000)
            .map(|number| {
                task(&format!("s{}", number % 1000), f64::from(number / 1000), f64::from(number / 1000) + 0.9)
            })
            .collect();
        let svg = gantt_svg("t", &tasks, &[], &BTreeSet::new());
        assert!(svg.len() < 10_000_000, "{} bytes", svg.len());
        assert!(svg.contains("not drawn: 700 less busy slots, 0 less busy links"));
    }

    #[test]
    fn concurrent_activities_have_lanes_of_their_own() {
        let spans = [("a", 0.0, 2.0), ("a", 1.0, 3.0), ("b", 0.0, 9.0), ("a", 2.0, 4.0), ("a", 2.5, 2.6)];
        assert_eq!(lanes(&spans), [0, 1, 0, 0, 2]);
    }
}

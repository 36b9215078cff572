//! A group's course as a page that a browser opens: a Gantt chart of tasks and transfers, predicted above measured.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use svg::node::element::{Line, Rectangle, Text, Title};
use svg::{Document, Node};

use crate::report::{Report, TaskRecord, TransferRecord, bytes};

const WIDTH: f64 = 960.0;
const LEFT: f64 = 150.0;
/// Height of what runs in one slot, and of one of the transfers that go on at a time.
const TASK_LANE: f64 = 15.0;
const TRANSFER_LANE: f64 = 6.0;
const GAP: f64 = 5.0;
pub(crate) const COLOURS: [&str; 8] =
    ["#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#997700", "#44aa99"];

/// The page: one chart for the plan (if the group had one plan), one for what was measured, on the same scale.
pub fn timeline_html(title: &str, report: &Report) -> String {
    let planned_end = report.plans.iter().map(|plan| plan.makespan_seconds).sum::<f64>();
    let end = report.measured_seconds.max(planned_end).max(1e-9);
    let mut page = String::new();
    let title = match report.heuristic.as_str() {
        "" => escape(title),
        heuristic => escape(&format!("{title}, mapped by {heuristic}")),
    };
    let _ = write!(
        page,
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title}</title>\n<style>\n\
         body {{ font: 14px/1.4 system-ui, sans-serif; margin: 2em; max-width: 75em; color: #222 }}\n\
         pre {{ background: #f4f4f4; padding: 1em; overflow-x: auto }}\n\
         svg {{ display: block; margin: .5em 0 1.5em }} svg text {{ font-size: 11px }}\n\
         </style></head><body>\n<h1>{title}</h1>\n<pre>{}</pre>\n",
        escape(&report.to_string())
    );
    let functions = colours(report);
    let _ = write!(page, "<p>");
    for (function, colour) in &functions {
        let _ = write!(page, "<span style=\"color:{colour}\">&#9632;</span> {} &nbsp; ", escape(function));
    }
    let _ = writeln!(page, "<span style=\"color:#888\">&#9644;</span> transfer (drawn in the receiver's row)</p>");
    for (number, plan) in report.plans.iter().enumerate() {
        let again = if number == 0 { "" } else { ", mapped later" };
        let _ =
            writeln!(page, "<h2>Predicted by {}{again}: {:.4} s</h2>", escape(&plan.heuristic), plan.makespan_seconds);
        let _ = writeln!(page, "{}", chart(&plan.tasks, &plan.transfers, end, &functions));
    }
    let _ = writeln!(page, "<h2>Measured: {:.4} s</h2>", report.measured_seconds);
    let _ = writeln!(page, "{}\n</body></html>", chart(&report.tasks, &report.transfers, end, &functions));
    page
}

fn colours(report: &Report) -> BTreeMap<&str, &'static str> {
    let names: std::collections::BTreeSet<&str> = report.tasks.iter().map(|task| task.function.as_str()).collect();
    names.into_iter().zip(COLOURS.iter().copied().cycle()).collect()
}

fn chart(
    tasks: &[TaskRecord],
    transfers: &[TransferRecord],
    end_s: f64,
    functions: &BTreeMap<&str, &'static str>,
) -> Document {
    let lanes = Lanes::of(tasks, transfers);
    let mut rows: Vec<&str> = tasks.iter().map(|task| task.server.as_str()).collect();
    rows.extend(transfers.iter().flat_map(|transfer| [transfer.from.as_str(), transfer.to.as_str()]));
    rows.retain(|name| !name.is_empty());
    rows.sort_unstable();
    rows.dedup();
    let heights: Vec<f64> = rows.iter().map(|row| lanes.height(row)).collect();
    let place = |name: &str| heights[..rows.iter().position(|row| *row == name).unwrap_or(0)].iter().sum::<f64>();
    let x = |seconds: f64| LEFT + seconds.clamp(0.0, end_s) / end_s * (WIDTH - LEFT - 10.0);
    let height: f64 = heights.iter().sum();
    let mut svg = Document::new().set("width", WIDTH).set("height", height + 24.0).set("role", "img");
    for row in &rows {
        let y = place(row);
        svg.append(Text::new(*row).set("x", 4).set("y", tenths(y + 16.0)));
        let low = tenths(y + lanes.height(row) - 1.0);
        let line = Line::new().set("x1", LEFT).set("x2", WIDTH).set("y1", low.as_str()).set("y2", low);
        svg.append(line.set("stroke", "#ddd"));
    }
    let bar = |seconds: (f64, f64), y: f64, title: String| {
        let (from, to) = (x(seconds.0), x(seconds.1));
        let title = format!("{title}{:.4} s to {:.4} s", seconds.0, seconds.1);
        let shape =
            Rectangle::new().set("x", tenths(from)).set("y", tenths(y)).set("width", tenths((to - from).max(1.0)));
        (shape, title)
    };
    for (number, task) in tasks.iter().enumerate().filter(|(_, task)| !task.server.is_empty()) {
        let colour =
            if task.error.is_some() { "#bb0000" } else { functions.get(task.function.as_str()).unwrap_or(&"#777") };
        let y = place(&task.server) + 2.0 + lanes.tasks[number] as f64 * TASK_LANE;
        let title = format!("task {} {} on {}: ", task.task, task.function, task.server);
        let (shape, title) = bar((task.start_seconds, task.end_seconds), y, title);
        let failed = task.error.as_ref().map(|error| format!(" failed: {error}")).unwrap_or_default();
        let shape = shape.set("height", 13).set("fill", colour).set("rx", 2);
        svg.append(shape.add(Title::new(format!("{title}{failed}"))));
    }
    for (number, moved) in transfers.iter().enumerate() {
        let y = place(&moved.to) + lanes.transfers_from(&moved.to) + lanes.transfers[number] as f64 * TRANSFER_LANE;
        let title = format!("{} {} to {}: {}, ", moved.datum, moved.from, moved.to, bytes(moved.size_bytes));
        let (shape, title) = bar((moved.start_seconds, moved.end_seconds), y, title);
        svg.append(shape.set("height", 5).set("fill", "#888").add(Title::new(title)));
    }
    for tick in 0..=4 {
        let seconds = end_s * f64::from(tick) / 4.0;
        let text = Text::new(format!("{seconds:.3} s")).set("x", tenths(x(seconds))).set("y", tenths(height + 16.0));
        svg.append(text.set("text-anchor", if tick == 4 { "end" } else { "middle" }));
    }
    svg
}

/// A number of pixels.
pub(crate) fn tenths(value: f64) -> String {
    format!("{value:.1}")
}

/// Which of the lanes of its server's row each task and each transfer has, so that none lies on another.
#[derive(Debug)]
struct Lanes<'a> {
    tasks: Vec<usize>,
    transfers: Vec<usize>,
    /// How many of both each row has.
    counts: BTreeMap<&'a str, [usize; 2]>,
}

impl<'a> Lanes<'a> {
    fn of(tasks: &'a [TaskRecord], transfers: &'a [TransferRecord]) -> Lanes<'a> {
        let mut counts: BTreeMap<&str, [usize; 2]> = BTreeMap::new();
        let spans: Vec<Span<'a>> =
            tasks.iter().map(|task| (task.server.as_str(), task.start_seconds, task.end_seconds)).collect();
        let moves: Vec<Span<'a>> =
            transfers.iter().map(|moved| (moved.to.as_str(), moved.start_seconds, moved.end_seconds)).collect();
        let [tasks, transfers] = [(0, spans), (1, moves)].map(|(what, spans)| {
            let lanes = lanes(&spans);
            for ((row, ..), lane) in spans.iter().zip(&lanes) {
                let count = &mut counts.entry(row).or_default()[what];
                *count = (*count).max(lane + 1);
            }
            lanes
        });
        Lanes { tasks, transfers, counts }
    }

    /// Where transfers begin below the tasks of a row.
    fn transfers_from(&self, row: &str) -> f64 {
        let tasks = self.counts.get(row).map_or(0, |counts| counts[0]);
        2.0 + tasks.max(1) as f64 * TASK_LANE
    }

    fn height(&self, row: &str) -> f64 {
        let transfers = self.counts.get(row).map_or(0, |counts| counts[1]);
        self.transfers_from(row) + transfers.max(1) as f64 * TRANSFER_LANE + GAP
    }
}

/// Row, start and end.
pub(crate) type Span<'a> = (&'a str, f64, f64);

/// The first lane of its row that is free when each begins, in order of start.
pub(crate) fn lanes(spans: &[Span<'_>]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..spans.len()).collect();
    order.sort_by(|a, b| spans[*a].1.total_cmp(&spans[*b].1).then(a.cmp(b)));
    let mut free: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    let mut lanes = vec![0; spans.len()];
    for number in order {
        let (row, start, end) = spans[number];
        let ends = free.entry(row).or_default();
        let lane = ends.iter().position(|until| *until <= start + SAME_S).unwrap_or(ends.len());
        match ends.get_mut(lane) {
            Some(until) => *until = end,
            None => ends.push(end),
        }
        lanes[number] = lane;
    }
    lanes
}

/// What begins so soon before another ends follows it: dates are measured by two clocks.
const SAME_S: f64 = 1e-9;

/// Text in the page, outside of its drawings.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_on_at_a_time_has_lanes_of_its_own() {
        let spans = [("a", 0.0, 2.0), ("a", 1.0, 3.0), ("b", 0.0, 9.0), ("a", 2.0, 4.0), ("a", 2.5, 2.6)];
        assert_eq!(lanes(&spans), [0, 1, 0, 0, 2]);
    }
}

//! A plan as a drawing: slots of servers above, links below, time to the right.
//!
//! **Invariants:** the file stays below about 10 MB, however long the plan. Bars that lie closer than the chart can show are
//! drawn as one, which tells how many they are. Only the busiest rows are drawn.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use svg::node::element::{Group, Line, Rectangle, Text, Title};
use svg::{Document, Node};

use super::text::{NO_TIMES, count};
use crate::report::bytes;
use crate::timeline::{COLOURS, Span, lanes, tenths};
use crate::{Error, PlanRecord, TaskRecord, TransferRecord};

const WIDTH: f64 = 1200.0;
const LEFT: f64 = 190.0;
const RIGHT: f64 = 20.0;
const ROW: f64 = 17.0;
const TOP: f64 = 46.0;
/// Rows drawn of servers' slots, and of links.
const SLOTS_MAX: usize = 300;
const LINKS_MAX: usize = 150;
/// Bars drawn: at some 200 bytes each.
const BARS_MAX: f64 = 40_000.0;
const FUNCTIONS_SHOWN: usize = 8;
/// Pixels of a figure in a bar.
const DIGIT: f64 = 7.0;

impl PlanRecord {
    /// It as SVG: a row for each slot of a server, a row for each link, what each bar is as its hover text. Tasks and transfers
    /// of the critical path have a dark edge, if what the plan was made of is known.
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

/// Whether a drawing may be written to a file of that name: all are SVG, and a name that ends otherwise would mislead.
///
/// # Errors
/// If it ends like another kind of file.
pub fn check_svg_name(path: &Path) -> Result<(), Error> {
    let Some(ending) = path.extension() else { return Ok(()) };
    if ending.eq_ignore_ascii_case("svg") {
        return Ok(());
    }
    let (name, ending, other) = (path.display(), ending.to_string_lossy(), path.with_extension("svg"));
    let why = format!("drawings are SVG, not {ending}: name the file {}, which browsers show", other.display());
    Err(Error::Usage(format!("{name}: {why}")))
}

/// Tasks and transfers over time as SVG. `critical` are numbers of tasks that get a dark edge.
pub fn gantt_svg(
    title: &str,
    tasks: &[TaskRecord],
    transfers: &[TransferRecord],
    critical: &BTreeSet<usize>,
) -> String {
    let functions: BTreeSet<&str> = tasks.iter().map(|task| task.function.as_str()).collect();
    let colours: BTreeMap<&str, &str> = functions.into_iter().zip(COLOURS.iter().copied().cycle()).collect();
    let (mut slots, slots_left) = slots(tasks, &colours, critical);
    let (links, links_left) = links(transfers);
    let end_s = slots.iter().chain(&links).flat_map(|row| &row.bars).map(|bar| bar.end_s).fold(0.0, f64::max);
    let first_link = slots.len();
    slots.extend(links);
    let chart = Chart::new(end_s, slots.len());
    let height = TOP + (slots.len() + 1) as f64 * ROW + 40.0;
    let mut svg = Document::new().set("width", WIDTH).set("height", height);
    svg.assign("viewBox", format!("0 0 {WIDTH} {height}"));
    svg.assign("font-family", "system-ui, sans-serif");
    svg.assign("font-size", 11);
    svg.append(Rectangle::new().set("width", "100%").set("height", "100%").set("fill", "#fff"));
    svg.append(Text::new(title).set("x", 4).set("y", 16).set("font-size", 14));
    svg.append(legend(&colours));
    svg.append(chart.axis(height));
    let mut before = "";
    for (number, row) in slots.iter().enumerate() {
        // Links are set off from slots.
        let y = TOP + number as f64 * ROW + if number >= first_link { ROW / 2.0 } else { 0.0 };
        if row.name != before {
            let name = Text::new(shortened(&row.name)).add(Title::new(row.name.as_str()));
            svg.append(name.set("x", 4).set("y", tenths(y + 12.0)));
        }
        before = &row.name;
        svg.append(chart.row(row, y));
    }
    if slots_left + links_left > 0 {
        let (slots, links) = (count(slots_left, "less busy slot"), count(links_left, "less busy link"));
        let text = Text::new(format!("not drawn: {slots}, {links}")).set("x", 4).set("y", tenths(height - 24.0));
        svg.append(text.set("fill", "#777"));
    }
    format!("{svg}\n")
}

struct Row {
    name: String,
    bars: Vec<Bar>,
}

struct Bar {
    start_s: f64,
    end_s: f64,
    colour: &'static str,
    label: String,
    title: String,
    is_critical: bool,
}

/// Slots with their tasks, in order of server.
fn slots(
    tasks: &[TaskRecord],
    colours: &BTreeMap<&str, &'static str>,
    critical: &BTreeSet<usize>,
) -> (Vec<Row>, usize) {
    let spans: Vec<Span<'_>> = tasks.iter().map(|t| (t.server.as_str(), t.start_seconds, t.end_seconds)).collect();
    let mut rows: BTreeMap<(&str, usize), Vec<usize>> = BTreeMap::new();
    for (number, lane) in lanes(&spans).into_iter().enumerate().filter(|(number, _)| !tasks[*number].server.is_empty())
    {
        rows.entry((tasks[number].server.as_str(), lane)).or_default().push(number);
    }
    let bar = |number: usize| {
        let task = &tasks[number];
        // Tasks of groups have numbers only.
        let name = match task.task.parse::<u64>() {
            Err(_) if !task.task.is_empty() => format!(" '{}',", task.task),
            _ => String::new(),
        };
        let error = task.error.as_ref().map(|error| format!(", failed: {error}")).unwrap_or_default();
        Bar {
            start_s: task.start_seconds,
            end_s: task.end_seconds,
            colour: if error.is_empty() { colours[task.function.as_str()] } else { "#bb0000" },
            label: number.to_string(),
            title: format!(
                "task {number}{name} {} on {}: {:.4} s to {:.4} s{error}",
                task.function, task.server, task.start_seconds, task.end_seconds
            ),
            is_critical: critical.contains(&number),
        }
    };
    let rows = rows
        .into_iter()
        .map(|((server, _), numbers)| Row { name: server.to_string(), bars: numbers.into_iter().map(bar).collect() });
    busiest(rows.collect(), SLOTS_MAX)
}

fn links(transfers: &[TransferRecord]) -> (Vec<Row>, usize) {
    let mut rows: BTreeMap<(&str, &str), Vec<Bar>> = BTreeMap::new();
    for moved in transfers {
        let TransferRecord { datum, from, to, size_bytes, start_seconds, end_seconds } = moved;
        rows.entry((from, to)).or_default().push(Bar {
            start_s: *start_seconds,
            end_s: *end_seconds,
            colour: "#888888",
            label: String::new(),
            title: format!(
                "datum {datum} {from} to {to}: {}, {start_seconds:.4} s to {end_seconds:.4} s",
                bytes(*size_bytes)
            ),
            is_critical: false,
        });
    }
    let rows = rows.into_iter().map(|((from, to), bars)| Row { name: format!("{from} \u{2192} {to}"), bars });
    busiest(rows.collect(), LINKS_MAX)
}

/// The busiest rows in their order, and how many were left out.
fn busiest(mut rows: Vec<Row>, limit: usize) -> (Vec<Row>, usize) {
    let busy = |row: &Row| row.bars.iter().map(|bar| bar.end_s - bar.start_s).sum::<f64>();
    for row in &mut rows {
        row.bars.sort_by(|a, b| a.start_s.total_cmp(&b.start_s).then(a.end_s.total_cmp(&b.end_s)));
    }
    let left = rows.len().saturating_sub(limit);
    if left > 0 {
        let mut order: Vec<(usize, f64)> = rows.iter().map(busy).enumerate().collect();
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

/// Seconds to pixels.
struct Chart {
    end_s: f64,
    /// Bars closer than this, and shorter, are drawn as one; pixels.
    resolution: f64,
}

impl Chart {
    fn new(end_s: f64, rows: usize) -> Chart {
        let resolution = (rows as f64 * (WIDTH - LEFT - RIGHT) / BARS_MAX).max(0.5);
        Chart { end_s: if end_s > 0.0 { end_s } else { 1.0 }, resolution }
    }

    fn x(&self, seconds: f64) -> f64 {
        LEFT + seconds.clamp(0.0, self.end_s) / self.end_s * (WIDTH - LEFT - RIGHT)
    }

    fn axis(&self, height: f64) -> Group {
        let low = height - 44.0;
        let mut axis = Group::new();
        for (tick, anchor) in ["start", "middle", "middle", "middle", "middle", "end"].into_iter().enumerate() {
            let seconds = self.end_s * tick as f64 / 5.0;
            let x = tenths(self.x(seconds));
            let line = Line::new().set("x1", x.as_str()).set("x2", x.as_str()).set("y1", TOP).set("y2", tenths(low));
            axis.append(line.set("stroke", "#eee"));
            let text = Text::new(format!("{seconds:.4} s")).set("x", x).set("y", tenths(low + 14.0));
            axis.append(text.set("text-anchor", anchor).set("fill", "#777"));
        }
        axis
    }

    fn row(&self, row: &Row, y: f64) -> Group {
        let mut bars = Group::new();
        let mut at = 0;
        while at < row.bars.len() {
            let (count, end_s) = self.together(&row.bars[at..]);
            let (bar, x) = (&row.bars[at], self.x(row.bars[at].start_s));
            let width = (self.x(end_s) - x).max(self.resolution);
            let title = match count {
                1 => bar.title.clone(),
                _ => format!("{count} on {}: {:.4} s to {end_s:.4} s", row.name, bar.start_s),
            };
            let mut shape = Rectangle::new().set("x", tenths(x)).set("y", tenths(y + 2.0)).set("width", tenths(width));
            shape = shape.set("height", 13).set("fill", bar.colour).set("fill-opacity", ".8").add(Title::new(title));
            if count == 1 && bar.is_critical {
                shape.assign("stroke", "#000");
            }
            bars.append(shape);
            if count == 1 && width > DIGIT * bar.label.len() as f64 + 4.0 && !bar.label.is_empty() {
                let text = Text::new(bar.label.as_str()).set("x", tenths(x + 3.0)).set("y", tenths(y + 12.0));
                bars.append(text.set("fill", "#fff").set("pointer-events", "none"));
            }
            at += count;
        }
        bars
    }

    /// How many bars from the first are drawn as one, and where that ends.
    fn together(&self, bars: &[Bar]) -> (usize, f64) {
        let is_short = |bar: &Bar| self.x(bar.end_s) - self.x(bar.start_s) < self.resolution;
        let mut end_s = bars[0].end_s;
        if !is_short(&bars[0]) {
            return (1, end_s);
        }
        let mut count = 1;
        for bar in &bars[1..] {
            if !is_short(bar) || self.x(bar.start_s) - self.x(end_s) >= self.resolution {
                break;
            }
            end_s = end_s.max(bar.end_s);
            count += 1;
        }
        (count, end_s)
    }
}

fn legend(colours: &BTreeMap<&str, &str>) -> Group {
    let mut legend = Group::new();
    let mut x = LEFT;
    for (function, colour) in colours.iter().take(FUNCTIONS_SHOWN) {
        let name = shortened(function);
        let square = Rectangle::new().set("x", tenths(x)).set("y", 25).set("width", 10).set("height", 10);
        legend.append(square.set("fill", *colour));
        legend.append(Text::new(name.as_str()).set("x", tenths(x + 14.0)).set("y", 34));
        x += 30.0 + DIGIT * name.chars().count() as f64;
    }
    legend
}

/// As much of a name as its column holds.
fn shortened(name: &str) -> String {
    const CHARACTERS: usize = 28;
    if name.chars().count() <= CHARACTERS {
        return name.to_string();
    }
    name.chars().take(CHARACTERS - 1).chain(['\u{2026}']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(server: &str, start_seconds: f64, end_seconds: f64) -> TaskRecord {
        let (task, function, server) = (String::new(), "m/f".to_string(), server.to_string());
        TaskRecord { task, function, server, start_seconds, end_seconds, error: None }
    }

    #[test]
    fn slots_and_links_have_rows_with_hover_texts() {
        let tasks = [task("a<b", 0.0, 2.0), task("a<b", 1.0, 3.0), task("c", 2.0, 3.0)];
        let (from, to) = ("a<b".to_string(), "c".to_string());
        let moved =
            TransferRecord { datum: "7".into(), from, to, size_bytes: 8_000_000, start_seconds: 0.5, end_seconds: 2.0 };
        let svg = gantt_svg("t", &tasks, &[moved], &BTreeSet::from([1]));
        assert_eq!(svg.matches("<title>task ").count(), 3);
        assert!(svg.contains("task 1 m/f on a&lt;b: 1.0000 s to 3.0000 s"));
        assert!(svg.contains("datum 7 a&lt;b to c: 8.0 MB, 0.5000 s to 2.0000 s"));
        assert_eq!(svg.matches("stroke=\"#000\"").count(), 1);
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
}

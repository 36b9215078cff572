//! Draws lanes of bars over time as SVG.

use svg::node::element::{Group, Line, Rectangle, Style, Text, Title};
use svg::{Document, Node};

use crate::chart::{MUTED, WIDE, ink_on, short, time_ticks};

const WIDTH: f64 = 1200.0;
const RIGHT: f64 = 20.0;
const MARGIN: f64 = 4.0;
/// Height of a row with one lane; `LANE` is the height of a lane in a row with several.
const ROW: f64 = 17.0;
const LANE: f64 = 8.5;
/// Maximum height of a row; lanes become thinner to fit.
const LANES: f64 = 120.0;
const LINE: f64 = 16.0;
/// Space below the rows for the numbers and the title of the axis.
const BELOW: f64 = 38.0;
/// Maximum number of bars, which take about 200 bytes each.
const BARS_MAX: f64 = 40_000.0;
const LEGEND_MAX: usize = 24;
const TICKS_MAX: u32 = 11;
const NAME_CHARS_MAX: usize = 37;
/// Width of a character in pixels, rather overestimated.
const CHARACTER: f64 = 6.6;

/// Marks a legend entry that has a dark edge instead of a colour.
pub(super) const EDGE: &str = "#ffffff";

pub(super) struct Lane {
    pub(super) name: String,
    pub(super) bars: Vec<Bar>,
}

pub(super) struct Bar {
    pub(super) start_s: f64,
    pub(super) end_s: f64,
    pub(super) colour: &'static str,
    pub(super) label: String,
    pub(super) title: String,
    pub(super) is_critical: bool,
}

pub(super) struct Drawing<'a> {
    pub(super) title: &'a str,
    /// Texts and colours.
    pub(super) legend: Vec<(&'a str, &'a str)>,
    /// Rows with their lanes.
    pub(super) slots: Vec<Vec<Lane>>,
    pub(super) links: Vec<Vec<Lane>>,
    /// Note on what is omitted.
    pub(super) not_drawn: &'a str,
    /// Minimum end of the axis.
    pub(super) end_s: f64,
}

impl Drawing<'_> {
    pub(super) fn svg(&self) -> String {
        let rows = || self.slots.iter().chain(&self.links);
        let bars = rows().flatten().flat_map(|lane| &lane.bars);
        let end_s = bars.map(|bar| bar.end_s).fold(self.end_s, f64::max);
        let names = rows().flatten().map(|lane| shortened(&lane.name).chars().count()).max().unwrap_or(0);
        let left = 5.0 * MARGIN + CHARACTER * names as f64;
        let chart = Chart::new(left, end_s, rows().map(Vec::len).sum());
        let mut svg = Document::new().add(Style::new(WIDE));
        svg.append(Rectangle::new().set("width", "100%").set("height", "100%").set("fill", "#fff"));
        let mut y = 0.0;
        if !self.title.is_empty() {
            svg.append(Text::new(self.title).set("x", MARGIN).set("y", 16).set("font-size", 14));
            y = 24.0;
        }
        y = self.legend(&mut svg, y) + 6.0;
        let first_link = self.slots.len();
        let links_gap = if self.slots.is_empty() || self.links.is_empty() { 0.0 } else { ROW / 2.0 };
        let low = y + links_gap + rows().map(|row| height_of(row)).sum::<f64>();
        svg.append(chart.axis(y, low));
        let mut before = "";
        for (number, row) in rows().enumerate() {
            y += if number == first_link { links_gap } else { 0.0 };
            let name = row.first().map_or("", |lane| lane.name.as_str());
            if name != before {
                let line = Line::new().set("x1", 0).set("x2", WIDTH).set("y1", tenths(y)).set("y2", tenths(y));
                svg.append(line.set("stroke", "#ddd"));
                let text = Text::new(shortened(name)).add(Title::new(name));
                svg.append(text.set("x", MARGIN).set("y", tenths(y + 12.5)));
            }
            before = name;
            let lane_height = height_of(row) / row.len() as f64;
            for lane in row {
                svg.append(chart.lane(lane, y, lane_height));
                y += lane_height;
            }
        }
        let mut height = low + BELOW;
        if !self.not_drawn.is_empty() {
            height += LINE;
            let text = Text::new(self.not_drawn).set("x", MARGIN).set("y", tenths(height - 6.0));
            svg.append(text.set("fill", MUTED));
        }
        let svg =
            svg.set("viewBox", format!("0 0 {WIDTH} {}", tenths(height))).set("width", WIDTH).set("height", height);
        format!("{}\n", svg.set("font-family", "system-ui, sans-serif").set("font-size", 11))
    }

    /// Draws names and colours in as many lines as they need, and returns the bottom edge.
    fn legend(&self, svg: &mut Document, top: f64) -> f64 {
        let (mut x, mut y) = (MARGIN, top);
        for (name, colour) in self.legend.iter().take(LEGEND_MAX) {
            let name = shortened(name);
            let width = 30.0 + CHARACTER * name.chars().count() as f64;
            if x + width > WIDTH - RIGHT {
                (x, y) = (MARGIN, y + LINE);
            }
            let square =
                Rectangle::new().set("x", tenths(x)).set("y", tenths(y + 3.0)).set("width", 10).set("height", 10);
            let edge = if *colour == EDGE { "#000" } else { colour };
            svg.append(square.set("fill", *colour).set("stroke", edge));
            svg.append(Text::new(name).set("x", tenths(x + 14.0)).set("y", tenths(y + 12.0)));
            x += width;
        }
        let more = self.legend.len().saturating_sub(LEGEND_MAX);
        if more > 0 {
            svg.append(Text::new(format!("and {more} more")).set("x", MARGIN).set("y", tenths(y + LINE + 12.0)));
            y += LINE;
        }
        y + LINE
    }
}

/// Height of a row.
fn height_of(row: &[Lane]) -> f64 {
    if row.len() == 1 { ROW } else { (row.len() as f64 * LANE).min(LANES) }
}

/// The scale from seconds to pixels.
struct Chart {
    /// Left end of the axis, pixels.
    left: f64,
    end_s: f64,
    /// Shorter bars that are closer than this are drawn as one; pixels.
    resolution: f64,
}

impl Chart {
    fn new(left: f64, end_s: f64, lanes: usize) -> Chart {
        let resolution = (lanes as f64 * (WIDTH - left - RIGHT) / BARS_MAX).max(0.5);
        Chart { left, end_s: if end_s > 0.0 { end_s } else { 1.0 }, resolution }
    }

    fn x(&self, seconds: f64) -> f64 {
        self.left + seconds.clamp(0.0, self.end_s) / self.end_s * (WIDTH - self.left - RIGHT)
    }

    fn axis(&self, top: f64, low: f64) -> Group {
        let mut axis = Group::new();
        let (ticks, unit) = time_ticks(self.end_s, TICKS_MAX);
        for (seconds, text) in ticks {
            let x = tenths(self.x(seconds));
            let line = Line::new().set("x1", x.as_str()).set("x2", x.as_str());
            axis.append(line.set("y1", tenths(top)).set("y2", tenths(low + 3.0)).set("stroke", "#ddd"));
            let text = Text::new(text).set("x", x).set("y", tenths(low + 14.0));
            axis.append(text.set("text-anchor", "middle").set("fill", MUTED));
        }
        let title = Text::new(format!("time from the start ({unit})")).set("text-anchor", "middle").set("fill", MUTED);
        axis.append(title.set("x", tenths((self.left + WIDTH - RIGHT) / 2.0)).set("y", tenths(low + 30.0)));
        axis
    }

    /// Draws one lane. Lanes thinner than a row have narrow gaps and no labels.
    fn lane(&self, lane: &Lane, y: f64, height: f64) -> Group {
        let (gap, is_row) = if height >= ROW { (2.0, true) } else { (height * 0.1, false) };
        let mut bars = Group::new();
        let mut at = 0;
        while at < lane.bars.len() {
            let (count, end_s) = self.together(&lane.bars[at..]);
            let (bar, x) = (&lane.bars[at], self.x(lane.bars[at].start_s));
            let width = (self.x(end_s) - x).max(self.resolution);
            let title = match count {
                1 => bar.title.clone(),
                _ => format!("{count} on {}: {:.4} s to {end_s:.4} s", lane.name, bar.start_s),
            };
            // A gap separates a bar from the next.
            let drawn = if width > 3.0 { width - 0.7 } else { width };
            let mut shape = Rectangle::new().set("x", tenths(x)).set("y", tenths(y + gap)).set("width", tenths(drawn));
            shape = shape.set("height", tenths(height - 2.0 * gap)).set("fill", bar.colour).add(Title::new(title));
            if count == 1 && bar.is_critical {
                shape.assign("stroke", "#000");
            }
            bars.append(shape);
            if count == 1 && is_row && width > CHARACTER * bar.label.len() as f64 + 4.0 && !bar.label.is_empty() {
                let text = Text::new(bar.label.as_str()).set("x", tenths(x + 2.0)).set("y", tenths(y + 12.5));
                bars.append(text.set("fill", ink_on(bar.colour)).set("pointer-events", "none"));
            }
            at += count;
        }
        bars
    }

    /// Returns how many of the bars, from the first, are drawn as one, and where that bar ends.
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

/// Formats a number of pixels.
fn tenths(value: f64) -> String {
    format!("{value:.1}")
}

/// Shortens a name to fit its column; of a link, both ends equally.
fn shortened(name: &str) -> String {
    const ARROW: &str = " \u{2192} ";
    match name.split_once(ARROW) {
        None => short(name, NAME_CHARS_MAX),
        Some((from, to)) => {
            let most = (NAME_CHARS_MAX - 3) / 2;
            // Room that one end does not need is available to the other.
            let (from_chars, to_chars) = (from.chars().count(), to.chars().count());
            let free = |chars: usize| most + most.saturating_sub(chars);
            format!("{}{ARROW}{}", short(from, free(to_chars)), short(to, free(from_chars)))
        }
    }
}

//! Draws lanes of bars over time as SVG.

use crate::chart::{Anchor, Area, BELOW, CHARACTER, Canvas, GRID, MARGIN, MUTED, ink_on, names_width, time_ticks};

const WIDTH: f64 = 1200.0;
const RIGHT: f64 = 20.0;
/// Height of a row with one lane; `LANE` is the height of a lane in a row with several.
const ROW: f64 = 17.0;
const LANE: f64 = 8.5;
/// Maximum height of a row; lanes become thinner to fit.
const LANES: f64 = 120.0;
const LINE: f64 = 16.0;
/// Maximum number of bars, which take about 200 bytes each.
const BARS_MAX: f64 = 40_000.0;
const TICKS_MAX: u32 = 11;

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
        let left = 5.0 * MARGIN + names_width(rows().flatten().map(|lane| lane.name.as_str()));
        let chart = Chart::new(left, end_s, rows().map(Vec::len).sum());
        let mut canvas = Canvas::new(WIDTH, self.title);
        let mut y = canvas.legend(&self.legend) + 6.0;
        let first_link = self.slots.len();
        let links_gap = if self.slots.is_empty() || self.links.is_empty() { 0.0 } else { ROW / 2.0 };
        let low = y + links_gap + rows().map(|row| height_of(row)).sum::<f64>();
        chart.axis(&mut canvas, y, low);
        let mut before = "";
        for (number, row) in rows().enumerate() {
            y += if number == first_link { links_gap } else { 0.0 };
            let name = row.first().map_or("", |lane| lane.name.as_str());
            if name != before {
                canvas.line((0.0, y), (WIDTH, y), GRID);
                canvas.name((MARGIN, y + 12.5), name);
            }
            before = name;
            let lane_height = height_of(row) / row.len() as f64;
            for lane in row {
                chart.lane(&mut canvas, lane, y, lane_height);
                y += lane_height;
            }
        }
        let mut height = low + BELOW;
        if !self.not_drawn.is_empty() {
            height += LINE;
            canvas.text((MARGIN, height - 6.0), Anchor::Start, MUTED, self.not_drawn);
        }
        canvas.finish(height)
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

    fn axis(&self, canvas: &mut Canvas, top: f64, bottom: f64) {
        let (ticks, unit) = time_ticks(self.end_s, TICKS_MAX);
        let ticks: Vec<(f64, String)> = ticks.into_iter().map(|(seconds, text)| (self.x(seconds), text)).collect();
        let area = Area { left: self.left, right: WIDTH - RIGHT, top, bottom };
        canvas.x_axis(area, &ticks, &format!("time from the start ({unit})"));
    }

    /// Draws one lane. Lanes thinner than a row have narrow gaps and no labels.
    fn lane(&self, canvas: &mut Canvas, lane: &Lane, y: f64, height: f64) {
        let (gap, is_row) = if height >= ROW { (2.0, true) } else { (height * 0.1, false) };
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
            let edge = (count == 1 && bar.is_critical).then_some("#000");
            canvas.rectangle((x, y + gap), (drawn, height - 2.0 * gap), bar.colour, edge, &title);
            if count == 1 && is_row && width > CHARACTER * bar.label.len() as f64 + 4.0 && !bar.label.is_empty() {
                canvas.text((x + 2.0, y + 12.5), Anchor::Start, ink_on(bar.colour), &bar.label);
            }
            at += count;
        }
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

//! Times of a function against problem size, for `gridloom models --plot`. Both axes are logarithmic. Points are
//! measurements with bars for their spread, and lines are interpolations.

use gridloom::chart::{COLOURS, log_ticks, round_above, round_below};
use gridloom_perf::{Curve, Point};

use super::block::{Block, SMALL, short, width_of};
use crate::quantities::scaled;

/// Size of the area of the axes, in pixels.
const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 360.0;
const LEFT: f64 = 90.0;
const TOP: f64 = 76.0;
const BOTTOM: f64 = 56.0;
const MARGIN: f64 = 20.0;
/// Half of the length of the line at each end of a spread's bar.
const CAP: f64 = 4.0;
/// Maximum number of ticks on the horizontal and the vertical axis.
const TICKS_MAX: [usize; 2] = [9, 14];

const STYLE: &str = "text{font-family:Helvetica,Arial,'Liberation Sans',sans-serif;font-size:12px;fill:#1d2733}
.mid{text-anchor:middle}.end{text-anchor:end}.small{font-size:10.5px;fill:#445060}.head{font-size:17px;font-weight:bold}
.page{fill:#fff}";

/// A logarithmic axis between round numbers.
struct Axis {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Axis {
    fn new(values: impl Iterator<Item = f64> + Clone, from: f64, to: f64) -> Axis {
        let values = values.filter(|value| *value > 0.0);
        let low = values.clone().fold(f64::INFINITY, f64::min);
        let high = values.fold(0.0, f64::max);
        let (low, high) = if low.is_finite() { (round_below(low), round_above(high)) } else { (1.0, 10.0) };
        // A single size is put in the middle.
        let (low, high) = if low < high { (low, high) } else { (round_below(low / 2.0), round_above(high * 2.0)) };
        Axis { low, high, from, to }
    }

    fn at(&self, value: f64) -> f64 {
        let part = (value.max(self.low) / self.low).ln() / (self.high / self.low).ln();
        self.from + part * (self.to - self.from)
    }

    fn ticks(&self, most: usize) -> Vec<f64> {
        log_ticks(self.low, self.high, most)
    }
}

/// Returns the known spread of calls around the time of the point.
fn spread_s(point: &Point) -> f64 {
    if point.calls > 1 { point.spread_s } else { 0.0 }
}

/// Returns the text of an SVG file; each line has a server, a curve, and the unit of its sizes.
pub fn draw(function: &str, lines: &[(&str, &Curve, &str)]) -> String {
    let points = || lines.iter().flat_map(|(_, curve, _)| &curve.points);
    let x = Axis::new(points().map(|point| point.size), LEFT, LEFT + WIDTH);
    // A bar that reaches 0 or nearly 0 ends at the axis: it is enough that the axis extends to a tenth of the shortest time.
    let shortest_s = points().map(|point| point.seconds).filter(|seconds| *seconds > 0.0).fold(f64::INFINITY, f64::min);
    let ends = points().flat_map(|point| {
        let spread_s = spread_s(point);
        [(point.seconds - spread_s).max(shortest_s / 10.0), point.seconds, point.seconds + spread_s]
    });
    let y = Axis::new(ends, TOP + HEIGHT, TOP);
    let names = lines.iter().map(|(server, ..)| width_of(&short(server), SMALL)).fold(0.0, f64::max);
    let right = LEFT + WIDTH + MARGIN;
    let size = (right + 28.0 + names + MARGIN, (TOP + HEIGHT + BOTTOM).max(TOP + 20.0 * lines.len() as f64 + MARGIN));
    let mut page = Block::new(size.0, size.1);
    page.rectangle((0.0, 0.0), size, "page");
    page.text((MARGIN, 34.0), "head", function);
    let unit = lines.first().map_or("flop", |(_, _, unit)| *unit);
    for size in x.ticks(TICKS_MAX[0]) {
        page.line((x.at(size), TOP), (x.at(size), TOP + HEIGHT), "grid");
        page.text((x.at(size), TOP + HEIGHT + 16.0), "small mid", &scaled(size, unit));
    }
    for seconds in y.ticks(TICKS_MAX[1]) {
        page.line((LEFT, y.at(seconds)), (LEFT + WIDTH, y.at(seconds)), "grid");
        page.text((LEFT - 8.0, y.at(seconds) + 4.0), "small end", &scaled(seconds, "s"));
    }
    let size_title = if unit == "flop" { "work (flop)" } else { "size of the arguments and results (B)" };
    page.text((LEFT + WIDTH / 2.0, TOP + HEIGHT + 38.0), "small mid", size_title);
    let has_spread = points().any(|point| spread_s(point) > 0.0);
    let bars = if has_spread { "; bars: median distance of the calls" } else { "" };
    page.text((MARGIN, TOP - 16.0), "small", &format!("time of a call (s){bars}"));
    for (number, (server, curve, _)) in lines.iter().enumerate() {
        let class = format!("c{}", number % COLOURS.len());
        let places: Vec<(f64, f64)> =
            curve.points.iter().map(|point| (x.at(point.size), y.at(point.seconds))).collect();
        places.windows(2).for_each(|pair| page.line(pair[0], pair[1], &class));
        for (place, point) in places.iter().zip(&curve.points) {
            let spread_s = spread_s(point);
            if spread_s > 0.0 {
                let (low, high) = (y.at(point.seconds - spread_s), y.at(point.seconds + spread_s));
                page.line((place.0, low), (place.0, high), &class);
                for end in [low, high] {
                    page.line((place.0 - CAP, end), (place.0 + CAP, end), &class);
                }
            }
            let mut dot = Block::new(6.0, 6.0);
            dot.rectangle((0.0, 0.0), (6.0, 6.0), &format!("{class} dot"));
            let (size, seconds) = (scaled(point.size, unit), scaled(point.seconds, "s"));
            let spread = if spread_s > 0.0 { format!(" \u{b1} {}", scaled(spread_s, "s")) } else { String::new() };
            dot.tip(&format!("{server}: {size} in {seconds}{spread}, {} calls", point.calls));
            page.put(&dot, place.0 - 3.0, place.1 - 3.0);
        }
        let at = TOP + 20.0 * number as f64 + 4.0;
        page.line((right, at), (right + 20.0, at), &class);
        page.text((right + 28.0, at + 4.0), "small", &short(server));
    }
    let mut style = format!("{}.grid{{stroke:#ddd;fill:none}}", STYLE);
    for (number, colour) in COLOURS.iter().enumerate() {
        style += &format!(".c{number}{{stroke:{colour};stroke-width:1.5;fill:none}}.c{number}.dot{{fill:{colour}}}");
    }
    page.document(&style, &format!("{function}: time against size"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_of_several_calls_have_bars_of_their_spread() {
        let point = |size, seconds, calls| Point { size, seconds, spread_s: 0.1 * seconds, calls };
        let curve = Curve { points: vec![point(1e6, 0.01, 1), point(1e9, 2.0, 5)] };
        let svg = draw("m/f", &[("server", &curve, "flop")]);
        // A line between the points, one in the legend, and one bar with two ends.
        assert_eq!(svg.matches("class=\"c0\"").count(), 2 + 3);
        assert!(svg.contains("1 Gflop in 2 s \u{b1} 200 ms, 5 calls") && svg.contains("1 Mflop in 10 ms, 1 calls"));
        assert!(svg.contains("work (flop)") && svg.contains("time of a call (s); bars"));
    }
}

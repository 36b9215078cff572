//! Times of a function against problem size, for `gridloom models --plot`. Both axes are logarithmic. Points are
//! measurements with bars for their spread, and lines are interpolations.

use gridloom::chart::{Area, BELOW, COLOURS, Canvas, log_ticks, round_above, round_below};
use gridloom_perf::{Curve, Point};

use crate::quantities::scaled;

/// Size of the area between the axes, and its distance from the left and right edges of the drawing.
const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 360.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 40.0;
/// Space below the legend for the title of the vertical axis.
const ABOVE: f64 = 30.0;
/// Half of the length of the line at each end of a spread's bar.
const CAP: f64 = 4.0;
/// Size of the square at a point.
const DOT: f64 = 6.0;
/// Maximum number of ticks on the horizontal and the vertical axis.
const TICKS_MAX: [usize; 2] = [9, 14];

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

    /// Returns positions and texts of its ticks.
    fn ticks(&self, most: usize, unit: &str) -> Vec<(f64, String)> {
        let ticks = log_ticks(self.low, self.high, most);
        ticks.into_iter().map(|value| (self.at(value), scaled(value, unit))).collect()
    }
}

/// Returns the known spread of calls around the time of the point.
fn spread_s(point: &Point) -> f64 {
    if point.calls > 1 { point.spread_s } else { 0.0 }
}

/// Returns the text of an SVG file; each line has a server, a curve, and the unit of its sizes.
pub fn draw(function: &str, lines: &[(&str, &Curve, &str)]) -> String {
    let colours = COLOURS.iter().cycle();
    let mut canvas = Canvas::new(LEFT + WIDTH + RIGHT, function);
    let legend: Vec<(&str, &str)> = lines.iter().zip(colours.clone()).map(|((server, ..), c)| (*server, *c)).collect();
    let top = canvas.legend(&legend) + ABOVE;
    let area = Area { left: LEFT, right: LEFT + WIDTH, top, bottom: top + HEIGHT };
    let points = || lines.iter().flat_map(|(_, curve, _)| &curve.points);
    let x = Axis::new(points().map(|point| point.size), area.left, area.right);
    // A bar that reaches 0 or nearly 0 ends at the axis: it is enough that the axis extends to a tenth of the shortest time.
    let shortest_s = points().map(|point| point.seconds).filter(|seconds| *seconds > 0.0).fold(f64::INFINITY, f64::min);
    let ends = points().flat_map(|point| {
        let spread_s = spread_s(point);
        [(point.seconds - spread_s).max(shortest_s / 10.0), point.seconds, point.seconds + spread_s]
    });
    let y = Axis::new(ends, area.bottom, area.top);
    let unit = lines.first().map_or("flop", |(_, _, unit)| *unit);
    let size_title = if unit == "flop" { "work (flop)" } else { "size of the arguments and results (B)" };
    canvas.x_axis(area, &x.ticks(TICKS_MAX[0], unit), size_title);
    let has_spread = points().any(|point| spread_s(point) > 0.0);
    let bars = if has_spread { "; bars: median distance of the calls" } else { "" };
    canvas.y_axis(area, &y.ticks(TICKS_MAX[1], "s"), &format!("time of a call (s){bars}"));
    for ((server, curve, _), colour) in lines.iter().zip(colours) {
        let places: Vec<(f64, f64)> =
            curve.points.iter().map(|point| (x.at(point.size), y.at(point.seconds))).collect();
        canvas.curve(&places, colour);
        for (place, point) in places.iter().zip(&curve.points) {
            let spread_s = spread_s(point);
            if spread_s > 0.0 {
                let (low, high) = (y.at(point.seconds - spread_s), y.at(point.seconds + spread_s));
                canvas.line((place.0, low), (place.0, high), colour);
                for end in [low, high] {
                    canvas.line((place.0 - CAP, end), (place.0 + CAP, end), colour);
                }
            }
            let (size, seconds) = (scaled(point.size, unit), scaled(point.seconds, "s"));
            let spread = if spread_s > 0.0 { format!(" \u{b1} {}", scaled(spread_s, "s")) } else { String::new() };
            let tooltip = format!("{server}: {size} in {seconds}{spread}, {} calls", point.calls);
            canvas.rectangle((place.0 - DOT / 2.0, place.1 - DOT / 2.0), (DOT, DOT), colour, None, &tooltip);
        }
    }
    canvas.finish(area.bottom + BELOW)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_of_several_calls_have_bars_of_their_spread() {
        let point = |size, seconds, calls| Point { size, seconds, spread_s: 0.1 * seconds, calls };
        let curve = Curve { points: vec![point(1e6, 0.01, 1), point(1e9, 2.0, 5)] };
        let svg = draw("m/f", &[("server", &curve, "flop")]);
        let of_colour = format!("stroke=\"{}\"", COLOURS[0]);
        // The curve, its square in the legend, and one bar with two ends.
        assert_eq!((svg.matches("<polyline").count(), svg.matches(&of_colour).count()), (1, 1 + 1 + 3));
        assert!(svg.contains("1 Gflop in 2 s \u{b1} 200 ms, 5 calls") && svg.contains("1 Mflop in 10 ms, 1 calls"));
        assert!(svg.contains("work (flop)") && svg.contains("time of a call (s); bars"));
    }
}

//! Times of a function against problem size, for `gridloom models --plot`: both axes logarithmic, points as measured, lines
//! as they are interpolated.

use gridloom_perf::Curve;

use super::block::Block;
use super::boxes;
use super::words::scaled;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 90.0;
const TOP: f64 = 56.0;
const BOTTOM: f64 = 52.0;
const RIGHT: f64 = 170.0;
const COLOURS: [&str; 8] = ["#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#999933", "#555555"];

/// One axis: logarithmic, from power of ten to power of ten.
struct Axis {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Axis {
    fn new(values: impl Iterator<Item = f64> + Clone, from: f64, to: f64) -> Axis {
        let logs = values.filter(|value| *value > 0.0).map(f64::log10);
        let low = logs.clone().fold(f64::INFINITY, f64::min).floor();
        let high = logs.fold(f64::NEG_INFINITY, f64::max).ceil();
        let (low, high) = if low.is_finite() { (low, high.max(low + 1.0)) } else { (0.0, 1.0) };
        Axis { low, high, from, to }
    }

    fn at(&self, value: f64) -> f64 {
        let part = (value.max(f64::MIN_POSITIVE).log10() - self.low) / (self.high - self.low);
        self.from + part.max(0.0) * (self.to - self.from)
    }

    fn ticks(&self) -> impl Iterator<Item = f64> {
        let step = ((self.high - self.low) / 8.0).ceil().max(1.0);
        let count = ((self.high - self.low) / step).floor() as u32;
        let low = self.low;
        (0..=count).map(move |number| 10f64.powf(low + f64::from(number) * step))
    }
}

/// The text of an SVG file; each line has a server, a curve, and the unit of its sizes.
pub fn draw(function: &str, lines: &[(&str, &Curve, &str)]) -> String {
    let points = || lines.iter().flat_map(|(_, curve, _)| &curve.points);
    let x = Axis::new(points().map(|point| point.size), LEFT, WIDTH - RIGHT);
    let y = Axis::new(points().map(|point| point.seconds), HEIGHT - BOTTOM, TOP);
    let height = HEIGHT.max(TOP + 20.0 * lines.len() as f64 + 20.0);
    let mut page = Block::new(WIDTH, height);
    page.rectangle((0.0, 0.0), (WIDTH, height), "page");
    page.text((20.0, 34.0), "head", function);
    let unit = lines.first().map_or("flop", |(_, _, unit)| *unit);
    for size in x.ticks() {
        page.line((x.at(size), TOP), (x.at(size), HEIGHT - BOTTOM), "grid");
        page.text((x.at(size), HEIGHT - BOTTOM + 16.0), "small mid", &scaled(size, unit));
    }
    for seconds in y.ticks() {
        page.line((LEFT, y.at(seconds)), (WIDTH - RIGHT, y.at(seconds)), "grid");
        page.text((20.0, y.at(seconds) + 4.0), "small", &scaled(seconds, "s"));
    }
    for (number, (server, curve, _)) in lines.iter().enumerate() {
        let class = format!("c{}", number % COLOURS.len());
        let places: Vec<(f64, f64)> =
            curve.points.iter().map(|point| (x.at(point.size), y.at(point.seconds))).collect();
        places.windows(2).for_each(|pair| page.line(pair[0], pair[1], &class));
        for (place, point) in places.iter().zip(&curve.points) {
            let mut dot = Block::new(6.0, 6.0);
            dot.rectangle((0.0, 0.0), (6.0, 6.0), &format!("{class} dot"));
            let (size, seconds) = (scaled(point.size, unit), scaled(point.seconds, "s"));
            dot.tip(&format!("{server}: {size} in {seconds}, {} calls", point.calls));
            page.put(&dot, place.0 - 3.0, place.1 - 3.0);
        }
        let at = TOP + 20.0 * number as f64;
        page.line((WIDTH - RIGHT + 16.0, at), (WIDTH - RIGHT + 36.0, at), &class);
        page.text((WIDTH - RIGHT + 42.0, at + 4.0), "small", &super::block::short(server));
    }
    let mut style = format!("{}.grid{{stroke:#ddd;fill:none}}", boxes::STYLE);
    for (number, colour) in COLOURS.iter().enumerate() {
        style += &format!(".c{number}{{stroke:{colour};stroke-width:1.5;fill:none}}.c{number}.dot{{fill:{colour}}}");
    }
    page.document(&style, &format!("{function}: time against size"))
}

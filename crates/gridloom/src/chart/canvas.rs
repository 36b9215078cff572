//! An SVG drawing: shapes with tooltips, text, axes and a legend. All coordinates are pixels, from the upper left corner.
//!
//! The width of text is estimated, since fonts differ.

use svg::node::element::{Line, Polyline, Rectangle, Style, Text, Title};
use svg::{Document, Node};

use super::{MUTED, short};

/// Width of a character, rather overestimated.
pub const CHARACTER: f64 = 6.6;
/// Distance of text from the left edge.
pub const MARGIN: f64 = 4.0;
/// Colour of the lines behind a chart.
pub const GRID: &str = "#ddd";
/// Marks a legend entry that has a dark edge instead of a colour.
pub const EDGE: &str = "#ffffff";

/// Space below a chart for the texts and the title of its horizontal axis.
pub const BELOW: f64 = 38.0;
/// Space below the title of a drawing, and of a line of its legend.
const HEAD: f64 = 24.0;
const LINE: f64 = 16.0;
const LEGEND_MAX: usize = 24;
const NAME_CHARS_MAX: usize = 37;

/// Style of a drawing that a browser shows alone: as wide as the window. In a page, the page sets the width. Programs that
/// convert drawings use its size in pixels.
const WIDE: &str = "@media screen{svg:root{width:100%;height:auto}}";

/// The point of a text that its position determines: its left end, middle or right end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anchor {
    Start,
    Middle,
    End,
}

/// The area between the axes of a chart.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Area {
    pub left: f64,
    pub right: f64,
    pub top: f64,
    pub bottom: f64,
}

/// A drawing in progress. Later shapes cover earlier ones.
#[derive(Debug)]
pub struct Canvas {
    document: Document,
    width: f64,
    /// Bottom edge of the title and the legend.
    head: f64,
}

impl Canvas {
    /// Begins a drawing of that width; an empty title takes no space.
    pub fn new(width: f64, title: &str) -> Canvas {
        let background = Rectangle::new().set("width", "100%").set("height", "100%").set("fill", "#fff");
        let document = Document::new().add(Style::new(WIDE)).add(background);
        let mut canvas = Canvas { document, width, head: 0.0 };
        if !title.is_empty() {
            canvas.document.append(Text::new(valid(title)).set("x", MARGIN).set("y", 16).set("font-size", 14));
            canvas.head = HEAD;
        }
        canvas
    }

    /// Draws texts and their colours below the title, in as many lines as they need, and returns the bottom edge.
    pub fn legend(&mut self, entries: &[(&str, &str)]) -> f64 {
        let (mut x, mut y) = (MARGIN, self.head);
        for (name, colour) in entries.iter().take(LEGEND_MAX) {
            let name = shortened(name);
            let width = 30.0 + CHARACTER * name.chars().count() as f64;
            if x + width > self.width - MARGIN {
                (x, y) = (MARGIN, y + LINE);
            }
            self.rectangle((x, y + 3.0), (10.0, 10.0), colour, Some(if *colour == EDGE { "#000" } else { colour }), "");
            self.text((x + 14.0, y + 12.0), Anchor::Start, "#000", &name);
            x += width;
        }
        let more = entries.len().saturating_sub(LEGEND_MAX);
        if more > 0 {
            y += LINE;
            self.text((MARGIN, y + 12.0), Anchor::Start, "#000", &format!("and {more} more"));
        }
        self.head = y + LINE;
        self.head
    }

    /// Draws a horizontal axis below the area: ticks with their texts, and its title with the unit.
    pub fn x_axis(&mut self, area: Area, ticks: &[(f64, String)], title: &str) {
        for (x, text) in ticks {
            self.line((*x, area.top), (*x, area.bottom + 3.0), GRID);
            self.text((*x, area.bottom + 14.0), Anchor::Middle, MUTED, text);
        }
        let middle = (area.left + area.right) / 2.0;
        self.text((middle, area.bottom + 30.0), Anchor::Middle, MUTED, title);
    }

    /// Draws a vertical axis to the left of the area, with its title above.
    pub fn y_axis(&mut self, area: Area, ticks: &[(f64, String)], title: &str) {
        for (y, text) in ticks {
            self.line((area.left - 3.0, *y), (area.right, *y), GRID);
            self.text((area.left - 6.0, y + 4.0), Anchor::End, MUTED, text);
        }
        self.text((MARGIN, area.top - 8.0), Anchor::Start, MUTED, title);
    }

    /// Draws a filled rectangle; the tooltip may be empty.
    pub fn rectangle(&mut self, at: (f64, f64), size: (f64, f64), fill: &str, edge: Option<&str>, tooltip: &str) {
        let mut shape = Rectangle::new().set("x", tenths(at.0)).set("y", tenths(at.1)).set("width", tenths(size.0));
        shape = shape.set("height", tenths(size.1)).set("fill", fill);
        if let Some(edge) = edge {
            shape.assign("stroke", edge);
        }
        if !tooltip.is_empty() {
            shape.append(Title::new(valid(tooltip)));
        }
        self.document.append(shape);
    }

    pub fn line(&mut self, from: (f64, f64), to: (f64, f64), colour: &str) {
        let line = Line::new().set("x1", tenths(from.0)).set("y1", tenths(from.1));
        self.document.append(line.set("x2", tenths(to.0)).set("y2", tenths(to.1)).set("stroke", colour));
    }

    /// Draws lines from point to point.
    pub fn curve(&mut self, points: &[(f64, f64)], colour: &str) {
        let points: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let line = Polyline::new().set("points", points.join(" ")).set("fill", "none");
        self.document.append(line.set("stroke", colour).set("stroke-width", 1.5));
    }

    /// Draws text with its base line at that height. The mouse reaches the shape behind it.
    pub fn text(&mut self, at: (f64, f64), anchor: Anchor, colour: &str, text: &str) {
        let mut text = Text::new(valid(text)).set("x", tenths(at.0)).set("y", tenths(at.1));
        match anchor {
            Anchor::Start => {}
            Anchor::Middle => text.assign("text-anchor", "middle"),
            Anchor::End => text.assign("text-anchor", "end"),
        }
        self.document.append(text.set("fill", colour).set("pointer-events", "none"));
    }

    /// Draws a name, shortened to fit its column; the tooltip has the whole name.
    pub fn name(&mut self, at: (f64, f64), name: &str) {
        let text = Text::new(valid(&shortened(name))).add(Title::new(valid(name)));
        self.document.append(text.set("x", tenths(at.0)).set("y", tenths(at.1)));
    }

    /// Returns the text of an SVG file of that height.
    pub fn finish(self, height: f64) -> String {
        let size = format!("0 0 {} {}", self.width, tenths(height));
        let document = self.document.set("viewBox", size).set("width", self.width).set("height", height);
        format!("{}\n", document.set("font-family", "system-ui, sans-serif").set("font-size", 11))
    }
}

/// Width of the column that these names need.
pub fn names_width<'a>(names: impl Iterator<Item = &'a str>) -> f64 {
    CHARACTER * names.map(|name| shortened(name).chars().count()).max().unwrap_or(0) as f64
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

/// Replaces characters that XML cannot represent.
fn valid(text: &str) -> String {
    let is_invalid = |c: char| (c.is_control() && !matches!(c, '\n' | '\t')) || matches!(c, '\u{fffe}' | '\u{ffff}');
    text.replace(is_invalid, "\u{fffd}")
}

/// Formats a number of pixels.
fn tenths(value: f64) -> String {
    format!("{value:.1}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped_and_control_characters_are_replaced() {
        let svg = Canvas::new(10.0, "<b> & \"c\"\u{1}").finish(10.0).replace('\n', "");
        assert!(svg.contains(">&lt;b&gt; &amp; \"c\"\u{fffd}</text>"), "{svg}");
    }
}

//! Pieces of a drawing: blocks with a size, which can contain other blocks.
//!
//! The crate `svg` writes and escapes; a drawing has a style sheet of its own, no scripts and no references. The width
//! of a text is estimated, since fonts differ. The estimate is generous, so that labels stay in their boxes.

use svg::node::element::{Group, Path, Rectangle, Style, Text, Title};
use svg::{Document, Node};

/// Longer names are shortened in the middle.
const NAME_CHARS_MAX: usize = 30;

/// Size of text, in pixels.
pub const SMALL: f64 = 10.5;

/// A drawn rectangle with its upper left corner at 0, 0.
#[derive(Clone, Debug)]
pub struct Block {
    pub width: f64,
    pub height: f64,
    body: Group,
}

impl Block {
    pub fn new(width: f64, height: f64) -> Block {
        Block { width, height, body: Group::new() }
    }

    /// Draws another block at that position.
    pub fn put(&mut self, block: &Block, x: f64, y: f64) {
        let place = format!("translate({},{})", number(x), number(y));
        self.body.append(block.body.clone().set("transform", place));
    }

    pub fn rectangle(&mut self, at: (f64, f64), size: (f64, f64), class: &str) {
        let ((x, y), (w, h)) = (at, size);
        let radius = if class.starts_with("pill") { (h / 2.0).min(12.0) } else { 5.0 };
        let shape = Rectangle::new().set("x", number(x)).set("y", number(y)).set("width", number(w));
        self.body.append(shape.set("height", number(h)).set("rx", number(radius)).set("class", class));
    }

    pub fn line(&mut self, from: (f64, f64), to: (f64, f64), class: &str) {
        let path = format!("M{} {}L{} {}", number(from.0), number(from.1), number(to.0), number(to.1));
        self.body.append(Path::new().set("d", path).set("class", class));
    }

    /// Draws a text with its base line at that point, or with its middle there if the class specifies this (`mid`).
    pub fn text(&mut self, at: (f64, f64), class: &str, text: &str) {
        let text = Text::new(valid(text)).set("x", number(at.0)).set("y", number(at.1));
        self.body.append(text.set("class", class));
    }

    /// Sets the text that a viewer shows when the mouse is over the block.
    pub fn tip(&mut self, text: &str) {
        self.body.append(Title::new(valid(text)));
    }

    /// Returns the whole file.
    pub fn document(&self, classes: &str, title: &str) -> String {
        let (w, h) = (number(self.width.ceil()), number(self.height.ceil()));
        // A browser that shows only this file uses its whole width, up to twice the size.
        let wide = format!("{}svg:root{{max-width:{}px}}", gridloom::chart::WIDE, number(2.0 * self.width.ceil()));
        let classes = format!("{classes}{wide}");
        let document = Document::new().set("viewBox", format!("0 0 {w} {h}")).set("width", w).set("height", h);
        let document = document.add(Title::new(valid(title))).add(Style::new(classes)).add(self.body.clone());
        format!("{document}\n")
    }
}

/// Returns an upper estimate of the width of a text of that size.
pub fn width_of(text: &str, size: f64) -> f64 {
    let em = |c: char| match c {
        'i' | 'j' | 'l' | '.' | ',' | ':' | ';' | '\'' | '|' | '!' | 'I' | ' ' | '(' | ')' | 't' | 'f' | 'r' => 0.36,
        'm' | 'w' | 'M' | 'W' | '@' | '%' => 0.95,
        'A'..='Z' => 0.72,
        c if c.is_ascii() => 0.6,
        '·' | '…' | '–' | 'µ' | '×' | '↑' | '↓' => 0.8,
        _ => 1.0,
    };
    text.chars().map(em).sum::<f64>() * size * 1.04
}

/// Shortens a name that is too long.
pub fn short(name: &str) -> String {
    gridloom::chart::short(name, NAME_CHARS_MAX)
}

/// Replaces characters that XML cannot represent.
fn valid(text: &str) -> String {
    let is_invalid = |c: char| (c.is_control() && !matches!(c, '\n' | '\t')) || matches!(c, '\u{fffe}' | '\u{ffff}');
    text.replace(is_invalid, "\u{fffd}")
}

/// Formats a coordinate: tenths of a pixel are enough.
fn number(value: f64) -> String {
    let rounded = (value * 10.0).round() / 10.0;
    if rounded == 0.0 { "0".to_owned() } else { rounded.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped_and_control_characters_are_replaced() {
        let mut block = Block::new(1.0, 1.0);
        block.text((0.0, 0.0), "a", "<b> & \"c\"\u{1}");
        assert!(block.document("", "").replace('\n', "").contains(">&lt;b&gt; &amp; \"c\"\u{fffd}</text>"));
    }
}

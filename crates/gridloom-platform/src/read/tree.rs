//! XML as a tree of elements that know their position in the file.
//!
//! It is deliberately small: no namespaces, no DTD, no entities other than the predefined ones; comments and processing
//! instructions are dropped. Depth and size are bounded, so that no file can exhaust the stack.

use quick_xml::events::{BytesStart, Event};
use quick_xml::{Reader, XmlVersion};

use crate::element::Sharing;
use crate::error::{PlatformError, Position};

/// Index of the lines of a text, and of the number of characters before parts of it: a file may be one long line.
pub(crate) struct Lines<'a> {
    text: &'a str,
    starts: Vec<usize>,
    /// Number of characters before every [`PART_BYTES`] bytes.
    characters: Vec<usize>,
}

const PART_BYTES: usize = 256;

impl<'a> Lines<'a> {
    pub(crate) fn new(text: &'a str) -> Lines<'a> {
        let starts = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        let parts = text.as_bytes().chunks(PART_BYTES);
        let characters = parts.scan(0, |before, part| Some(std::mem::replace(before, *before + characters_of(part))));
        Lines { text, starts, characters: characters.collect() }
    }

    /// Line and column (in characters) of a byte.
    pub(crate) fn place(&self, offset: usize) -> Position {
        let offset = offset.min(self.text.len());
        let line = self.starts.partition_point(|start| *start <= offset) - 1;
        let column = self.characters_before(offset) - self.characters_before(self.starts[line]);
        (line as u32 + 1, column as u32 + 1)
    }

    fn characters_before(&self, offset: usize) -> usize {
        let part = (offset / PART_BYTES).min(self.characters.len().saturating_sub(1));
        let before = self.characters.get(part).copied().unwrap_or(0);
        before + characters_of(&self.text.as_bytes()[part * PART_BYTES..offset])
    }
}

/// Number of characters that begin in these bytes of a text.
fn characters_of(bytes: &[u8]) -> usize {
    bytes.iter().filter(|byte| (**byte & 0xc0) != 0x80).count()
}

#[derive(Clone, Debug)]
pub(crate) struct Element {
    pub name: String,
    pub attributes: Vec<(String, String)>,
    pub children: Vec<Element>,
    /// All text directly inside, joined.
    pub text: String,
    pub place: Position,
}

/// Maximum nesting of elements.
const DEPTH_MAX: usize = 200;
/// Maximum number of characters of unexpected text that are shown.
const TEXT_SHOWN_MAX: usize = 40;

impl Element {
    pub(crate) fn get(&self, attribute: &str) -> Option<&str> {
        self.attributes.iter().find(|(name, _)| name == attribute).map(|(_, value)| value.as_str())
    }

    pub(crate) fn need(&self, attribute: &str) -> Result<&str, PlatformError> {
        self.get(attribute)
            .ok_or_else(|| self.error(format!("element '{}' lacks the attribute '{attribute}'", self.name)))
    }

    /// Rejects attributes that the element does not have.
    pub(crate) fn allow(&self, known: &[&str]) -> Result<(), PlatformError> {
        match self.attributes.iter().find(|(name, _)| !known.contains(&name.as_str())) {
            None => Ok(()),
            Some((name, _)) => Err(self.error(format!(
                "element '{}' has no attribute '{name}'; it has: {}",
                self.name,
                known.join(", ")
            ))),
        }
    }

    /// Returns the attribute as read by `parse`, or `default` if it is missing.
    pub(crate) fn number<T>(
        &self,
        attribute: &str,
        default: Option<T>,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Result<T, PlatformError> {
        match (self.get(attribute), default) {
            (None, Some(default)) => Ok(default),
            _ => parse(self.need(attribute)?).map_err(|why| self.error(format!("attribute '{attribute}': {why}"))),
        }
    }

    /// Rejects children and text of an element that has none, as left by a misspelt name or a forgotten bracket.
    pub(crate) fn refuse_content(&self) -> Result<(), PlatformError> {
        let children: &[&str] = match self.name.as_str() {
            "link" | "router" | "backbone" | "host_link" => &["prop"],
            // The other elements check their children themselves; a trace may have its profile as text.
            _ => return if self.name == "trace" { Ok(()) } else { self.refuse_text() },
        };
        match self.children.iter().find(|child| !children.contains(&child.name.as_str())) {
            Some(child) => Err(child.error(format!("element '{}' is unknown in a {}", child.name, self.name))),
            None => self.refuse_text(),
        }
    }

    pub(crate) fn refuse_text(&self) -> Result<(), PlatformError> {
        let text = self.text.trim();
        if text.is_empty() {
            return Ok(());
        }
        let shown: String = text.chars().take(TEXT_SHOWN_MAX).collect();
        Err(self.error(format!("there is text in element '{}', which has none: '{shown}'; remove it", self.name)))
    }

    pub(crate) fn error(&self, message: impl Into<String>) -> PlatformError {
        PlatformError::new(message).at("", self.place)
    }

    /// Adds this element's position to an error, unless it has one.
    pub(crate) fn located<T>(&self, result: Result<T, PlatformError>) -> Result<T, PlatformError> {
        result.map_err(|error| error.at("", self.place))
    }
}

/// The root element of a document.
pub(crate) fn parse(text: &str) -> Result<Element, PlatformError> {
    let lines = Lines::new(text);
    let mut reader = Reader::from_str(text);
    let mut open: Vec<Element> = Vec::new();
    let mut root: Option<Element> = None;
    loop {
        let place = lines.place(reader.buffer_position() as usize);
        let wrong = |why: String| PlatformError::new(why).at("", place);
        let event = reader.read_event().map_err(|error| {
            let place = lines.place(reader.error_position() as usize);
            PlatformError::new(format!("malformed XML: {error}")).at("", place)
        })?;
        let mut closed = None;
        match event {
            Event::Start(tag) => {
                if open.len() >= DEPTH_MAX {
                    return Err(wrong(format!("elements are nested deeper than {DEPTH_MAX}")));
                }
                if open.is_empty() && root.is_some() {
                    return Err(wrong("malformed XML: a second root element".to_owned()));
                }
                open.push(element(&tag, place)?);
            }
            Event::Empty(tag) => closed = Some(element(&tag, place)?),
            Event::End(_) => closed = open.pop(),
            Event::Text(piece) => append(&mut open, &piece.xml10_content(), place)?,
            Event::CData(piece) => append(&mut open, &piece.xml10_content(), place)?,
            Event::GeneralRef(name) => {
                let character = match name.resolve_char_ref() {
                    Ok(Some(character)) => character.to_string(),
                    _ => quick_xml::escape::resolve_predefined_entity(&name.xml10_content())
                        .ok_or_else(|| wrong(format!("malformed XML: unknown entity '&{};'", name.xml10_content())))?
                        .to_owned(),
                };
                append(&mut open, &character, place)?;
            }
            Event::Decl(_) | Event::PI(_) | Event::Comment(_) | Event::DocType(_) => {}
            Event::Eof => {
                if let Some(unclosed) = open.last() {
                    let why = format!("malformed XML: element '{}' is not closed", unclosed.name);
                    return Err(unclosed.error(why));
                }
                return root.ok_or_else(|| wrong("malformed XML: there is no element".to_owned()));
            }
        }
        match (closed, open.last_mut()) {
            (Some(element), Some(parent)) => parent.children.push(element),
            (Some(element), None) if root.is_none() => root = Some(element),
            (Some(_), None) => return Err(wrong("malformed XML: a second root element".to_owned())),
            (None, _) => {}
        }
    }
}

fn append(open: &mut [Element], piece: &str, place: Position) -> Result<(), PlatformError> {
    match open.last_mut() {
        Some(element) => element.text.push_str(piece),
        None if piece.trim_matches(['\u{feff}', ' ', '\t', '\r', '\n']).is_empty() => {}
        None => return Err(PlatformError::new("malformed XML: text outside of the root element").at("", place)),
    }
    Ok(())
}

fn element(tag: &BytesStart<'_>, place: Position) -> Result<Element, PlatformError> {
    let name = tag.name().as_ref().to_owned();
    let wrong = |why: String| PlatformError::new(format!("malformed XML: element '{name}': {why}")).at("", place);
    let mut attributes = Vec::new();
    for attribute in tag.attributes() {
        let attribute = attribute.map_err(|error| wrong(error.to_string()))?;
        let value = attribute.normalized_value(XmlVersion::Implicit1_0).map_err(|error| wrong(error.to_string()))?;
        attributes.push((attribute.key.as_ref().to_owned(), value.into_owned()));
    }
    Ok(Element { name, attributes, children: Vec::new(), text: String::new(), place })
}

/// Returns the sharing of a link for SimGrid's name.
pub(crate) fn sharing(element: &Element, policy: &str) -> Result<Sharing, PlatformError> {
    match policy {
        "SHARED" => Ok(Sharing::Shared),
        "FATPIPE" => Ok(Sharing::Fatpipe),
        "WIFI" => Err(element.error("sharing policy WIFI is not supported yet")),
        other => Err(element.error(format!("sharing policy '{other}' is unknown; use SHARED, SPLITDUPLEX or FATPIPE"))),
    }
}

/// A whole number.
pub(crate) fn count(text: &str) -> Result<u32, String> {
    text.trim().parse().map_err(|_| format!("'{text}' is not a whole number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_know_their_place() {
        let root = parse("<?xml version='1.0'?>\n<!-- c -->\n<a x='1&amp;2'>\n é<b/> t&lt; </a>\n").unwrap();
        assert_eq!((root.place, root.get("x")), ((3, 1), Some("1&2")));
        assert_eq!(root.children[0].place, (4, 3));
        assert_eq!(root.text.trim(), "é t<");
    }

    #[test]
    fn malformed_text_is_refused_with_its_place() {
        for (text, line) in [("<a>\n<b>\n</a>", 3), ("<a>", 1), ("", 1), ("<a/>\n<b/>", 2), ("<a x=1/>", 1), ("<a", 1)]
        {
            let error = parse(text).unwrap_err();
            assert!(error.message.contains("malformed XML"), "{error}");
            assert_eq!(error.line, line, "{text:?}: {error}");
        }
        assert!(parse(&"<a>".repeat(10_000)).unwrap_err().message.contains("nested deeper"));
    }
}

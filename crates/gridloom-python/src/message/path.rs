//! Positions in a message, and paths into an object, as errors name them.

/// A position in a message, and in the scratch memory that becomes part of it.
#[derive(Clone, Copy)]
pub(super) struct At {
    pub(super) scratch: usize,
    pub(super) position: u64,
}

impl At {
    pub(super) fn plus(self, offset: u64) -> At {
        At { scratch: self.scratch + offset as usize, position: self.position + offset }
    }
}

/// The path of a value within an object; converted to text only for errors.
pub(super) enum Path<'a> {
    Of(&'a str),
    Field(&'a Path<'a>, &'a str),
    Element(&'a Path<'a>, usize),
}

/// Maximum length of a path's text. Longer ones lose their beginning: a path through a long list is of no use.
const PATH_BYTES_MAX: usize = 120;

impl Path<'_> {
    pub(super) fn text(&self) -> String {
        let text = match self {
            Path::Of(text) => (*text).to_string(),
            Path::Field(outer, name) => {
                let outer = outer.text();
                if outer.is_empty() { (*name).to_string() } else { format!("{outer}.{name}") }
            }
            Path::Element(outer, index) => format!("{}[{index}]", outer.text()),
        };
        match text.len() > PATH_BYTES_MAX {
            true => format!("…{}", &text[text.rfind('.').unwrap_or(0)..]),
            false => text,
        }
    }
}

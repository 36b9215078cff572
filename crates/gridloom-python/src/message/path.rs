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

/// Where in the object something stands; put into words for errors only.
pub(super) enum Path<'a> {
    Of(&'a str),
    Field(&'a Path<'a>, &'a str),
    Element(&'a Path<'a>, usize),
}

/// Longer paths are cut at their beginning: those through a long list are of no use.
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

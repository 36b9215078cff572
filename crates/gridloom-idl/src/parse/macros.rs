//! Names that a file `#define`s: the C preprocessor's constants, which interface descriptions use in extents.
//!
//! They apply to the whole file, wherever their line is. A name is not replaced if it takes parameters or is a word of
//! the language, nor if it has two definitions or is undefined somewhere, since conditions are not evaluated. For compiled
//! C, the C preprocessor itself defines all of them.

use std::collections::BTreeMap;

use crate::names::is_name_character;
use crate::type_words::is_type_word;

/// Replacements by name.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Macros(BTreeMap<String, String>);

impl Macros {
    /// Returns the replacements that these directives define.
    pub(crate) fn of(directives: &[&str]) -> Macros {
        let mut found: BTreeMap<&str, Option<String>> = BTreeMap::new();
        for line in directives {
            let Some((name, text)) = defined(line) else { continue };
            let differs = found.get(name).is_some_and(|known| *known != text);
            found.insert(name, text.filter(|_| !differs));
        }
        let plain: BTreeMap<String, String> =
            found.into_iter().filter_map(|(name, text)| Some((name.to_string(), text?))).collect();
        let whole = plain.iter().filter_map(|(name, text)| Some((name.clone(), replaced(text, name, &plain, 0)?)));
        Macros(whole.collect())
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }
}

/// Returns the name that a line defines or undefines, and its text, if it can replace the name. `None` for other directives.
fn defined(line: &str) -> Option<(&str, Option<String>)> {
    let (define, rest) = match (line.strip_prefix("#define"), line.strip_prefix("#undef")) {
        (Some(rest), _) => (true, rest),
        (None, Some(rest)) => (false, rest),
        (None, None) => return None,
    };
    let rest = rest.trim_start();
    let name = &rest[..rest.find(|c| !is_name_character(c)).unwrap_or(rest.len())];
    let behind = &rest[name.len()..];
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let usable = define && !behind.starts_with('(') && !WORDS.contains(&name) && !is_type_word(name);
    Some((name, usable.then(|| without_comments(behind))))
}

fn without_comments(text: &str) -> String {
    let mut rest = text.split("//").next().unwrap_or_default();
    let mut plain = String::new();
    while let Some((before, behind)) = rest.split_once("/*") {
        plain.push_str(before);
        rest = behind.split_once("*/").map_or("", |(_, behind)| behind);
    }
    plain.push_str(rest);
    plain.replace("\\\r\n", " ").replace("\\\n", " ").trim().to_string()
}

/// Replaces the names in the text recursively; `None` if that does not end, or the result is long.
fn replaced(text: &str, own: &str, all: &BTreeMap<String, String>, depth: usize) -> Option<String> {
    let mut whole = String::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = match is_name_character(first) {
            true => rest.find(|c| !is_name_character(c)).unwrap_or(rest.len()),
            false => first.len_utf8(),
        };
        let (part, behind) = rest.split_at(length);
        match all.get(part).filter(|_| part != own) {
            Some(_) if depth == DEPTH_MAX => return None,
            Some(text) => whole.push_str(&replaced(text, own, all, depth + 1)?),
            None => whole.push_str(part),
        }
        if whole.len() > BYTES_MAX {
            return None;
        }
        rest = behind;
    }
    Some(whole)
}

/// Limits of a constant's replacement: nesting and length.
const DEPTH_MAX: usize = 8;
const BYTES_MAX: usize = 1024;

/// Words that are not replaced.
const WORDS: [&str; 46] = [
    "mode_in",
    "mode_out",
    "mode_inout",
    "mode_work",
    "broadcast",
    "allocate",
    "IN",
    "OUT",
    "INOUT",
    "WORK",
    "VAROUT",
    "Module",
    "Globals",
    "Define",
    "DefClass",
    "DefState",
    "DefMethod",
    "Library",
    "Compiler",
    "Linker",
    "CompileOptions",
    "FortranFormat",
    "FortranStringConvention",
    "Required",
    "CalcOrder",
    "Gets",
    "Puts",
    "Replaces",
    "Language",
    "Shrink",
    "Backend",
    "Calls",
    "SUBROUTINE",
    "FUNCTION",
    "LANGUAGE",
    "MAJOR",
    "LIBS",
    "COMPLEXITY",
    "SYMBOL",
    "PROBLEM",
    "ROUTINE",
    "MOVEABLE",
    "NONMOVEABLE",
    "pow",
    "sqrt",
    "void",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::lexer::Lexer;

    #[test]
    fn constants_replace_names() {
        let text = "#define N 10 /* of them */\n#define M (2*N) // twice\nGlobals {\n#define K M + \\\n 1\n}\n#define F(x) x\n\
                    #define OUT 5\n#define TWO 1\n#define TWO 2\n#define GONE 1\n#undef GONE\n#define A B\n#define B A\n#define S S";
        let macros = Macros::of(&Lexer::directives(text));
        let get = |name| macros.get(name);
        assert_eq!(
            (get("N"), get("M"), get("K"), get("S")),
            (Some("10"), Some("(2*10)"), Some("(2*10) +   1"), Some("S"))
        );
        assert_eq!([get("F"), get("OUT"), get("TWO"), get("GONE")], [None; 4]);
        let long: String = (0..9).map(|at| format!("#define L{at} L{0} L{0} L{0} L{0}\n", at + 1)).collect();
        assert_eq!(Macros::of(&Lexer::directives(&long)).get("L0"), None);
    }
}

//! The words of C text: names and marks, without comments, literals, numbers and the names of included files. For the few questions that the generated
//! source depends on; the compiler does everything else.
//!
//! **Not done:** macros are not expanded.

use crate::names::{is_name_character, is_name_start};

/// A name, or a mark of one character.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Word<'a> {
    Name(&'a str),
    Mark(char),
}

/// Reports whether a body uses a variable that it does not declare: its name is there, not as a function that is called or a
/// part of a structure, and not behind a type where it first occurs.
pub(crate) fn uses_variable(body: &str, name: &str) -> bool {
    let words = words(body);
    let before = |at: usize| at.checked_sub(1).map(|before| words[before]);
    let is_variable = |at: usize| {
        let is_part = before(at) == Some(Word::Mark('.'))
            || (before(at) == Some(Word::Mark('>')) && at > 1 && words[at - 2] == Word::Mark('-'));
        words[at] == Word::Name(name) && !is_part && words.get(at + 1) != Some(&Word::Mark('('))
    };
    let Some(first) = (0..words.len()).find(|at| is_variable(*at)) else { return false };
    match before(first) {
        Some(Word::Name(word)) => BEFORE_VALUES.contains(&word),
        _ => true,
    }
}

/// Reports whether a name occurs.
pub(crate) fn mentions(text: &str, name: &str) -> bool {
    words(text).contains(&Word::Name(name))
}

/// Reports whether C or C++ text defines a type of that name: by `typedef`, by `using`, or, in C++, as a structure.
pub fn defines_type(text: &str, name: &str) -> bool {
    let words = words(text);
    // Depth of braces in the open `typedef`, if there is one.
    let mut typedef: Option<usize> = None;
    for (at, word) in words.iter().enumerate() {
        let next = words.get(at + 1);
        match (word, typedef) {
            (Word::Name("typedef"), None) => typedef = Some(0),
            (Word::Mark('{'), Some(depth)) => typedef = Some(depth + 1),
            (Word::Mark('}'), Some(depth)) => typedef = Some(depth.saturating_sub(1)),
            (Word::Mark(';'), Some(0)) => typedef = None,
            (Word::Name(found), Some(0)) if *found == name && ends_declarator(next) => return true,
            (Word::Name("using"), None)
                if next == Some(&Word::Name(name)) && words.get(at + 2) == Some(&Word::Mark('=')) =>
            {
                return true;
            }
            (Word::Name("struct" | "class" | "union"), None)
                if next == Some(&Word::Name(name))
                    && matches!(words.get(at + 2), Some(Word::Mark('{' | ':' | ';'))) =>
            {
                return true;
            }
            _ => {}
        }
    }
    false
}

fn ends_declarator(next: Option<&Word>) -> bool {
    matches!(next, Some(Word::Mark(';' | ',' | '[')))
}

/// Words of C behind which a value follows, in contrast to types.
const BEFORE_VALUES: [&str; 6] = ["return", "case", "else", "do", "sizeof", "not"];

fn words(text: &str) -> Vec<Word<'_>> {
    let mut words = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => rest[2..].find("*/").map_or(rest.len(), |end| end + 4),
            '"' | '\'' => literal_length(rest, first),
            '#' if rest[1..].trim_start().starts_with("include") => rest.find('\n').unwrap_or(rest.len()),
            _ if is_name_start(first) => {
                let length = rest.find(|c| !is_name_character(c)).unwrap_or(rest.len());
                words.push(Word::Name(&rest[..length]));
                length
            }
            // With its suffix and exponent.
            _ if first.is_ascii_digit() => rest.find(|c: char| !is_name_character(c) && c != '.').unwrap_or(rest.len()),
            _ => {
                if !first.is_whitespace() {
                    words.push(Word::Mark(first));
                }
                first.len_utf8()
            }
        };
        rest = &rest[length..];
    }
    words
}

/// Length of the literal that a text begins with, in bytes. It ends at the end of its line if it is not closed.
fn literal_length(text: &str, quote: char) -> usize {
    let mut is_escaped = false;
    for (at, character) in text.char_indices().skip(1) {
        match character {
            '\n' if !is_escaped => return at,
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            _ if character == quote => return at + 1,
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_is_used_where_it_is_not_declared() {
        for body in
            ["f(&error);", "if (error) return;", "int n; error = n; f(error);", "return error;", "x = a->n - error;"]
        {
            assert!(uses_variable(body, "error"), "{body}");
        }
        for body in [
            "",
            "int error = 0; f(&error);",
            "grpc_error_t error; f(&error);",
            "error(1, 0, \"none\");",
            "puts(\"error\"); /* error */ // error",
            "s.error = 1; t->error = 2;",
            "c = '\"'; errors = 1e5error;",
        ] {
            assert!(!uses_variable(body, "error"), "{body}");
        }
    }

    #[test]
    fn literals_end_where_those_of_c_end() {
        assert!(uses_variable("puts(\"a\\\"\\\\\"); f(error);", "error"));
        assert!(uses_variable("#error don't\nf(error);", "error"));
        assert!(mentions("#define error 1", "error") && !mentions("errors = \"error\";", "error"));
        assert!(!mentions("# include <error.h>\nint n;", "error"));
    }

    #[test]
    fn types_are_defined_in_all_ways() {
        for text in [
            "typedef struct { double re, im; } dcomplex;",
            "typedef struct dcomplex { double v[2]; struct { int x; } y; } dcomplex, *pointer;",
            "extern \"C\" { typedef double dcomplex[2]; }",
            "struct dcomplex { double re, im; };",
            "struct dcomplex : base { };",
            "using dcomplex = std::complex<double>;",
            "typedef double _Complex dcomplex;",
        ] {
            assert!(defines_type(text, "dcomplex"), "{text}");
        }
        for text in [
            "",
            "typedef dcomplex mine;",
            "typedef struct { dcomplex z; } mine; dcomplex a;",
            "dcomplex a, dcomplex_of(int n); struct dcomplex *b;",
            "typedef dcomplex (*function)(dcomplex *);",
            "using namespace dcomplex;",
        ] {
            assert!(!defines_type(text, "dcomplex"), "{text}");
        }
    }
}

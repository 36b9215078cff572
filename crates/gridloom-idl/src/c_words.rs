//! The words of C text: names and marks, without comments, literals, numbers and the names of included files. They
//! answer the few questions on which the generated source depends; the compiler does everything else.
//!
//! **Not done:** macros are not expanded.

use crate::names::{is_name_character, is_name_start};

/// A name, or a mark of one character.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Word<'a> {
    Name(&'a str),
    Mark(char),
}

/// Reports whether a body uses a variable that it does not declare: the name occurs other than as a called function or
/// a part of a structure, and its first occurrence does not follow a type.
pub(crate) fn uses_variable(body: &str, name: &str) -> bool {
    let words = words(body);
    let Some(first) = (0..words.len()).find(|at| is_value(&words, *at, name)) else { return false };
    match first.checked_sub(1).map(|before| words[before]) {
        Some(Word::Name(word)) => BEFORE_VALUES.contains(&word),
        _ => !is_declared(&words[..first]),
    }
}

/// Reports whether a name occurs.
pub fn has_name(text: &str, name: &str) -> bool {
    words(text).contains(&Word::Name(name))
}

/// Reports whether a name occurs other than as a function or a part of a structure.
pub fn has_value(text: &str, name: &str) -> bool {
    let words = words(text);
    (0..words.len()).any(|at| is_value(&words, at, name))
}

fn is_value(words: &[Word], at: usize, name: &str) -> bool {
    let is_part = matches!(words[..at], [.., Word::Mark('.')] | [.., Word::Mark('-'), Word::Mark('>')]);
    words[at] == Word::Name(name) && !is_part && words.get(at + 1) != Some(&Word::Mark('('))
}

/// True if words end in a type with `*` or `&` at the beginning of a statement: a declaration follows. `a * b` would have
/// no effect there.
fn is_declared(words: &[Word]) -> bool {
    let is_in_type = |word: &Word| matches!(word, Word::Name(_) | Word::Mark(':' | '*' | '&'));
    let begin = words.iter().rposition(|word| !is_in_type(word)).map_or(0, |last| last + 1);
    let (before, declared) = words.split_at(begin);
    let is_at_start =
        matches!(before, [] | [.., Word::Mark(';' | '{' | '}')] | [.., Word::Name("for"), Word::Mark('(')]);
    let is_value = |word: &Word| matches!(word, Word::Name(name) if BEFORE_VALUES.contains(name));
    is_at_start && matches!(declared, [Word::Name(_), .., Word::Mark('*' | '&')]) && !declared.iter().any(is_value)
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
    matches!(next, Some(Word::Mark(';' | ',' | '[') | Word::Name("__attribute__")))
}

/// Words of C that a value may follow. A name after any other word is declared there, with that word as its type.
const BEFORE_VALUES: [&str; 10] = ["return", "case", "else", "do", "sizeof", "not", "and", "or", "throw", "delete"];

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
            _ if first.is_ascii_digit() => number_length(rest),
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

/// Length of the number that a text begins with, in bytes, with its suffix, its exponent and the `'` between digits of C++.
fn number_length(text: &str) -> usize {
    let mut characters = text.char_indices().peekable();
    while let Some((at, character)) = characters.next() {
        let is_separator = character == '\'' && characters.peek().is_some_and(|(_, next)| next.is_ascii_alphanumeric());
        if !is_name_character(character) && character != '.' && !is_separator {
            return at;
        }
    }
    text.len()
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
        for body in [
            "f(&error);",
            "if (error) return;",
            "int n; error = n; f(error);",
            "return error;",
            "x = a->n - error;",
            "x = a & error;",
            "if (a & error) return;",
            "return a * error;",
            "x = c ? b : *error;",
            "*error = 1;",
        ] {
            assert!(uses_variable(body, "error"), "{body}");
        }
        for body in [
            "",
            "int error = 0; f(&error);",
            "grpc_error_t error; f(&error);",
            "error(1, 0, \"none\");",
            "puts(\"error\"); /* error */ // error",
            "s.error = 1; t->error = 2;",
            "char *error = dlerror(); puts(error);",
            "n = 1; const struct a *const *error = b;",
            "for (auto &error : all) f(error);",
            "if (n) { std::string &error = b; }",
            "c = '\"'; errors = 1e5error;",
        ] {
            assert!(!uses_variable(body, "error"), "{body}");
        }
    }

    #[test]
    fn literals_end_where_those_of_c_end() {
        assert!(uses_variable("puts(\"a\\\"\\\\\"); f(error);", "error"));
        assert!(uses_variable("#error don't\nf(error);", "error"));
        assert!(has_name("#define error 1", "error") && !has_name("errors = \"error\";", "error"));
        assert!(!has_name("# include <error.h>\nint n;", "error"));
        assert!(has_name("n = 1'000; error = 2'0;", "error") && !has_name("n = 1'000 + 'a'; s = \"error\";", "error"));
        assert!(has_name("void error(int);", "error") && !has_value("void error(int);", "error"));
        assert!(has_value("enum { error = 9 };", "error") && has_value("extern int error;", "error"));
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
            "typedef struct { double re, im; } dcomplex __attribute__((aligned(16)));",
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

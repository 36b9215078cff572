//! Reads JSON files that people write. Error messages use JSON's terms and have a line and column. A name that appears
//! twice in an object is refused, since one of the two values would be ignored. A list in place of an object is
//! refused too.

mod strict_structs;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use thiserror::Error;

use strict_structs::StrictStructs;

/// An error in a text that should be JSON of a given shape.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("line {line}, column {column}: {why}")]
pub struct JsonError {
    /// The line, counted from 1.
    pub line: usize,
    /// The column, counted from 1.
    pub column: usize,
    pub why: String,
}

/// Parses a text as JSON.
///
/// # Errors
/// If it is not JSON, repeats a name in an object, or does not have the expected shape.
pub fn read<T: DeserializeOwned>(text: &str) -> Result<T, JsonError> {
    serde_json::from_str::<UniqueKeys>(text).map_err(|error| json_error(&error, not_json_text))?;
    // The text is valid JSON: any further error concerns its shape.
    let mut reader = serde_json::Deserializer::from_str(text);
    T::deserialize(StrictStructs(&mut reader)).map_err(|error| json_error(&error, shape_error_text))
}

fn json_error(error: &serde_json::Error, in_words: fn(&str) -> String) -> JsonError {
    let (line, column) = (error.line(), error.column());
    let why = error.to_string();
    let why = why.strip_suffix(&format!(" at line {line} column {column}")).unwrap_or(&why);
    // serde_json reports column 0 before the first character of a line.
    JsonError { line, column: column.max(1), why: in_words(why) }
}

/// Returns the names at the top level of a text that is an object, even if the object has other errors.
pub fn names(text: &str) -> Option<BTreeSet<String>> {
    let object: BTreeMap<String, serde::de::IgnoredAny> = serde_json::from_str(text).ok()?;
    Some(object.into_keys().collect())
}

/// True if the text is an object with that name at its top level.
pub fn has_name(text: &str, name: &str) -> bool {
    names(text).is_some_and(|names| names.contains(name))
}

/// Returns the string under that name at the top level of an object, if it is a string.
pub fn string_at(text: &str, name: &str) -> Option<String> {
    let mut names: BTreeMap<String, serde_json::Value> = serde_json::from_str(text).ok()?;
    names.remove(name).and_then(|value| value.as_str().map(str::to_string))
}

/// Any value in which no object repeats a name.
struct UniqueKeys;

impl<'de> Deserialize<'de> for UniqueKeys {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<UniqueKeys, D::Error> {
        deserializer.deserialize_any(Anything)
    }
}

struct Anything;

impl<'de> Visitor<'de> for Anything {
    type Value = UniqueKeys;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<UniqueKeys, E> {
        Ok(UniqueKeys)
    }

    fn visit_bool<E>(self, _: bool) -> Result<UniqueKeys, E> {
        Ok(UniqueKeys)
    }

    fn visit_i64<E>(self, _: i64) -> Result<UniqueKeys, E> {
        Ok(UniqueKeys)
    }

    fn visit_u64<E>(self, _: u64) -> Result<UniqueKeys, E> {
        Ok(UniqueKeys)
    }

    fn visit_f64<E>(self, _: f64) -> Result<UniqueKeys, E> {
        Ok(UniqueKeys)
    }

    fn visit_str<E>(self, _: &str) -> Result<UniqueKeys, E> {
        Ok(UniqueKeys)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<UniqueKeys, A::Error> {
        while list.next_element::<UniqueKeys>()?.is_some() {}
        Ok(UniqueKeys)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<UniqueKeys, A::Error> {
        let mut names = BTreeSet::new();
        while let Some(name) = object.next_key::<String>()? {
            if names.contains(&name) {
                return Err(A::Error::custom(format!("'{name}' appears twice in one object; remove one of them")));
            }
            object.next_value::<UniqueKeys>()?;
            names.insert(name);
        }
        Ok(UniqueKeys)
    }
}

/// Rewords why a text is not JSON or repeats a name. The library's messages refer to the program's types; these do not.
fn not_json_text(why: &str) -> String {
    match why {
        "EOF while parsing a value" | "EOF while parsing a list" | "EOF while parsing an object" => {
            "the file ends in the middle of its JSON".into()
        }
        "EOF while parsing a string" => "the file ends in the middle of a string".into(),
        "number out of range" => "the number is out of range".into(),
        "recursion limit exceeded" => "lists and objects are nested too deeply".into(),
        _ if is_own(why) => why.to_string(),
        _ => format!("invalid JSON: {}", quoted(why)),
    }
}

/// True if the text was written by our own deserializers and not by the JSON library.
fn is_own(why: &str) -> bool {
    why.starts_with('\'')
}

/// Rewords why JSON does not have the expected shape.
fn shape_error_text(why: &str) -> String {
    if let Some(field) = why.strip_prefix("missing field ") {
        return format!("{} is missing", quoted(field));
    }
    for kind in ["unknown field ", "unknown variant "] {
        if let Some(name) = why.strip_prefix(kind) {
            return unknown(name);
        }
    }
    if let Some(what) = why.strip_prefix("duplicate field ") {
        return format!("{} appears twice in one object; remove one of them", quoted(what));
    }
    if let Some((length, expected)) = why.strip_prefix("invalid length ").and_then(|why| why.split_once(", expected "))
    {
        let many = if length == "1" { "value" } else { "values" };
        return format!("expected {}, found a list of {length} {many}", expected_words(expected));
    }
    for kind in ["invalid type: ", "invalid value: "] {
        if let Some((found, expected)) = why.strip_prefix(kind).and_then(|rest| rest.rsplit_once(", expected ")) {
            return format!("expected {}, found {}", expected_words(expected), found_words(found));
        }
    }
    match why {
        // The library's message where it expects the name of a variant.
        "expected value" => "expected one of the known words, as a string".into(),
        "trailing characters" => "the list has more values than expected".into(),
        "invalid value: expected key to be a number in quotes" => "expected a name that is a whole number".into(),
        _ => quoted(why),
    }
}

/// Rewords the error for an unknown name.
fn unknown(why: &str) -> String {
    match why.rsplit_once(", expected ") {
        Some((name, known)) => {
            let known = known.strip_prefix("one of ").unwrap_or(known);
            format!("{} is unknown here; known are {}", quoted(name), quoted(known))
        }
        None => {
            format!("{} is unknown here", quoted(why.rsplit_once(", there are no ").map_or(why, |(name, _)| name)))
        }
    }
}

fn quoted(text: &str) -> String {
    text.replace('`', "'")
}

fn found_words(found: &str) -> String {
    let (kind, value) = found.split_once(' ').unwrap_or((found, ""));
    let value = value.trim_start_matches("point ").replace('`', "");
    match kind {
        "string" => format!("the string {value}"),
        "integer" | "floating" => format!("the number {value}"),
        "boolean" => value,
        "map" => "an object".into(),
        "sequence" => "a list".into(),
        "null" | "unit" | "Option" => "null".into(),
        _ => quoted(found),
    }
}

fn expected_words(expected: &str) -> String {
    match expected {
        "f64" | "f32" => "a number".into(),
        "u64" | "u32" | "usize" | "u16" | "u8" | "a nonnegative integer" => "a whole number from 0".into(),
        "i64" | "i32" => "a whole number".into(),
        "a JSON number" => "a number".into(),
        "a string" | "a borrowed string" | "string" => "a string".into(),
        "a boolean" => "true or false".into(),
        "a sequence" => "a list".into(),
        "a map" => "an object".into(),
        "unit" => "null".into(),
        _ if expected.starts_with("struct ") => "an object".into(),
        _ if expected.starts_with("enum ") => "one of the known words".into(),
        _ if expected.starts_with("tuple struct ") || expected.starts_with("tuple variant ") => {
            expected.split_once(" with ").map_or("a list".into(), |(_, count)| format!("a list of {count}"))
        }
        _ => match ["a tuple of size ", "an array of length "].iter().find_map(|kind| expected.strip_prefix(kind)) {
            Some("1") => "a list of 1 value".into(),
            Some(count) => format!("a list of {count} values"),
            None => quoted(expected),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Shape {
        #[allow(dead_code, reason = "only what is wrong is looked at")]
        name: String,
        #[allow(dead_code, reason = "only what is wrong is looked at")]
        sizes: BTreeMap<String, f64>,
        #[serde(default)]
        #[allow(dead_code, reason = "only what is wrong is looked at")]
        many: Vec<u64>,
        #[serde(default)]
        #[allow(dead_code, reason = "only what is wrong is looked at")]
        pairs: Vec<(u64, Pair)>,
        #[serde(default)]
        #[allow(dead_code, reason = "only what is wrong is looked at")]
        order: Option<Order>,
        #[serde(default)]
        #[allow(dead_code, reason = "only what is wrong is looked at")]
        by_number: BTreeMap<u64, u64>,
    }

    #[derive(Debug, Deserialize)]
    struct Pair {
        #[allow(dead_code, reason = "only what is wrong is looked at")]
        a: u64,
        #[serde(default)]
        #[allow(dead_code, reason = "only what is wrong is looked at")]
        b: u64,
    }

    #[derive(Debug, Deserialize)]
    enum Order {
        Rows,
        Columns,
        Tiles {
            #[allow(dead_code, reason = "only what is wrong is looked at")]
            size: u64,
        },
    }

    #[test]
    fn errors_are_reported_in_terms_of_json() {
        for (text, why) in [
            (r#"{"name": 3, "sizes": {}}"#, "expected a string, found the number 3"),
            (r#"{"name": "a", "sizes": {"x": "long"}}"#, "expected a number, found the string \"long\""),
            (r#"{"name": "a", "sizes": []}"#, "expected an object, found a list"),
            (r#"{"name": "a", "sizes": {}, "many": {}}"#, "expected a list, found an object"),
            (r#"{"name": "a", "sizes": {}, "many": [-1]}"#, "expected a whole number from 0, found the number -1"),
            (r#"{"name": "a", "sizes": {}, "many": [1.5]}"#, "expected a whole number from 0, found the number 1.5"),
            (r#"{"name": null, "sizes": {}}"#, "expected a string, found null"),
            (r#"{"name": "a"}"#, "'sizes' is missing"),
            (r#"{"name": "a", "siezs": {}}"#, "'siezs' is unknown here; known are 'name', 'sizes', 'many'"),
            (r#"{"name": "a", "name": "b", "sizes": {}}"#, "'name' appears twice in one object; remove one of them"),
            (r#"{"name": "a", "sizes": {"x": 1, "x": 2}}"#, "'x' appears twice in one object"),
            (r#""text""#, "expected an object, found the string \"text\""),
            (r#"{"name": "a""#, "the file ends in the middle of its JSON"),
            (r#"{"name" "a"}"#, "invalid JSON: expected ':'"),
            (r#"{"name": "a", "sizes": {"x": 1e999}}"#, "the number is out of range"),
        ] {
            let said = read::<Shape>(text).unwrap_err();
            assert!(said.why.contains(why), "{text}: {said}");
            assert!(!said.to_string().contains('`'), "{said}");
            assert_eq!(said.line, 1);
        }
        assert!(read::<Shape>(r#"{"name": "a", "sizes": {"x": 1}}"#).is_ok());
    }

    #[test]
    fn what_is_json_is_never_called_none() {
        for (text, why) in [
            (r#""pairs": [["a"]]"#, "expected a whole number from 0, found the string \"a\""),
            (r#""pairs": [[1]]"#, "expected a list of 2 values, found a list of 1 value"),
            (r#""pairs": [[]]"#, "expected a list of 2 values, found a list of 0 values"),
            (r#""pairs": [[1, {"a": 1}, 3]]"#, "the list has more values than expected"),
            (r#""pairs": [[1, {"b": 1}]]"#, "'a' is missing"),
            (r#""pairs": {"a": 1}"#, "expected a list, found an object"),
            (r#""order": "Heaps""#, "'Heaps' is unknown here; known are 'Rows', 'Columns', 'Tiles'"),
            (r#""order": 3"#, "expected one of the known words, as a string"),
            (r#""order": {"Rows": 3}"#, "expected null, found the number 3"),
            (r#""by_number": {"x": 1}"#, "expected a name that is a whole number"),
            // Structs as lists by position, at any depth.
            (r#""pairs": [[1, [2, 3]]]"#, "expected an object, found a list"),
            (r#""order": {"Tiles": [3]}"#, "expected an object, found a list"),
        ] {
            let said = read::<Shape>(&format!(r#"{{"name": "a", "sizes": {{}}, {text}}}"#)).unwrap_err();
            assert_eq!(said.why, why, "{text}");
        }
        let said = read::<Shape>(r#"["a", {}, [1], [], null, {}]"#).unwrap_err();
        assert_eq!(said.to_string(), "line 1, column 1: expected an object, found a list");
        let good = r#"{"name": "a", "sizes": {}, "many": [1], "pairs": [[1, {"a": 2}]], "by_number": {"4": 5},
            "order": {"Tiles": {"size": 3}}}"#;
        let shape: Shape = read(good).unwrap();
        assert!(matches!(shape.order, Some(Order::Tiles { size: 3 })), "{shape:?}");
        let shape: Shape = read(&good.replace(r#"{"Tiles": {"size": 3}}"#, r#""Rows""#)).unwrap();
        assert!(matches!(shape.order, Some(Order::Rows)), "{shape:?}");
    }
}

//! TOML tables that know their position in the file and reject unknown keys.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::tree::Lines;
use crate::error::{PlatformError, Position};
use gridloom_base::near::{did_you_mean, near_names};

/// A table of the file.
#[derive(Clone, Copy)]
pub(crate) struct Table<'a> {
    lines: &'a Lines<'a>,
    table: &'a DeTable<'a>,
    what: &'a str,
    pub place: Position,
}

/// A value of the file.
#[derive(Clone, Copy)]
pub(crate) struct TomlValue<'a> {
    lines: &'a Lines<'a>,
    value: &'a Spanned<DeValue<'a>>,
    key: &'a str,
}

/// Parses a document and passes its root table to `read`.
pub(crate) fn with_document<T>(
    text: &str,
    read: impl FnOnce(Table<'_>) -> Result<T, PlatformError>,
) -> Result<T, PlatformError> {
    let lines = Lines::new(text);
    let document = DeTable::parse(text).map_err(|error| {
        let place = lines.place(error.span().map_or(0, |span| span.start));
        PlatformError::new(format!("malformed TOML: {}", error.message())).at("", place)
    })?;
    read(Table { lines: &lines, table: document.get_ref(), what: "file", place: (1, 1) })
}

impl<'a> Table<'a> {
    pub(crate) fn error(&self, message: impl Into<String>) -> PlatformError {
        PlatformError::new(message).at("", self.place)
    }

    /// Adds this table's position to the error of `result`, unless it has one.
    pub(crate) fn located<T>(&self, result: Result<T, PlatformError>) -> Result<T, PlatformError> {
        result.map_err(|error| error.at("", self.place))
    }

    /// Rejects keys that are not among `known`.
    pub(crate) fn allow(&self, known: &[&str]) -> Result<(), PlatformError> {
        let wrong = self.table.iter().filter(|(key, _)| !known.contains(&key.get_ref().as_ref()));
        match wrong.min_by_key(|(key, _)| key.span().start) {
            None => Ok(()),
            Some((key, _)) => {
                let near = did_you_mean(&near_names(key.get_ref(), known.iter().copied()));
                let known = known.join(", ");
                let why = format!("unknown key '{}' in {}; it has: {known}{near}", key.get_ref(), self.what);
                Err(PlatformError::new(why).at("", self.lines.place(key.span().start)))
            }
        }
    }

    pub(crate) fn get(&self, key: &'a str) -> Option<TomlValue<'a>> {
        let value = self.table.get(key)?;
        Some(TomlValue { lines: self.lines, value, key })
    }

    pub(crate) fn need(&self, key: &'a str) -> Result<TomlValue<'a>, PlatformError> {
        self.get(key).ok_or_else(|| self.error(format!("{} lacks the key '{key}'", self.what)))
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = (&'a str, TomlValue<'a>)> + use<'a> {
        let lines = self.lines;
        self.table.iter().map(move |(key, value)| {
            let key = key.get_ref().as_ref();
            (key, TomlValue { lines, value, key })
        })
    }

    /// Returns the tables of `[[key]]`, none if the key is missing.
    pub(crate) fn tables(&self, key: &'a str) -> Result<Vec<Table<'a>>, PlatformError> {
        match self.get(key) {
            None => Ok(Vec::new()),
            Some(value) => value.items()?.into_iter().map(|item| item.table(key)).collect(),
        }
    }
}

impl<'a> TomlValue<'a> {
    pub(crate) fn place(&self) -> Position {
        self.lines.place(self.value.span().start)
    }

    pub(crate) fn error(&self, message: impl Into<String>) -> PlatformError {
        PlatformError::new(message).at("", self.place())
    }

    fn wrong(&self, expected: &str) -> PlatformError {
        let found = self.value.get_ref().type_str();
        self.error(format!("'{}' must be {expected}, not of type {found}", self.key))
    }

    pub(crate) fn text(&self) -> Result<&'a str, PlatformError> {
        self.value.get_ref().as_str().ok_or_else(|| self.wrong("a string"))
    }

    pub(crate) fn flag(&self) -> Result<bool, PlatformError> {
        self.value.get_ref().as_bool().ok_or_else(|| self.wrong("true or false"))
    }

    pub(crate) fn items(&self) -> Result<Vec<TomlValue<'a>>, PlatformError> {
        let array = self.value.get_ref().as_array().ok_or_else(|| self.wrong("an array"))?;
        Ok(array.iter().map(|value| TomlValue { value, ..*self }).collect())
    }

    pub(crate) fn table(&self, what: &'a str) -> Result<Table<'a>, PlatformError> {
        let table = self.value.get_ref().as_table().ok_or_else(|| self.wrong("a table"))?;
        Ok(Table { lines: self.lines, table, what, place: self.lines.place(self.value.span().start) })
    }

    /// A string, or an array of strings.
    pub(crate) fn texts(&self) -> Result<Vec<(&'a str, TomlValue<'a>)>, PlatformError> {
        match self.value.get_ref() {
            DeValue::String(_) => Ok(vec![(self.text()?, *self)]),
            _ => self.items()?.into_iter().map(|item| Ok((item.text()?, item))).collect(),
        }
    }

    /// A plain number, or a string that `parse` reads (units).
    pub(crate) fn quantity(&self, parse: fn(&str) -> Result<f64, String>) -> Result<f64, PlatformError> {
        match self.value.get_ref() {
            DeValue::String(text) => parse(text).map_err(|why| self.error(why)),
            _ => self.number(),
        }
    }

    pub(crate) fn number(&self) -> Result<f64, PlatformError> {
        match self.value.get_ref() {
            DeValue::Integer(_) => Ok(self.integer()? as f64),
            DeValue::Float(float) => float.as_str().parse().map_err(|_| self.wrong("a number")),
            _ => Err(self.wrong("a number")),
        }
    }

    pub(crate) fn integer(&self) -> Result<i64, PlatformError> {
        let integer = self.value.get_ref().as_integer().ok_or_else(|| self.wrong("a whole number"))?;
        i64::from_str_radix(integer.as_str(), integer.radix()).map_err(|_| self.error("the number is too large"))
    }

    /// Any scalar, as it is written in the file.
    pub(crate) fn scalar(&self) -> Result<String, PlatformError> {
        match self.value.get_ref() {
            DeValue::String(text) => Ok(text.to_string()),
            DeValue::Integer(_) => self.integer().map(|integer| integer.to_string()),
            DeValue::Float(float) => Ok(float.as_str().to_owned()),
            DeValue::Boolean(flag) => Ok(flag.to_string()),
            DeValue::Datetime(_) | DeValue::Array(_) | DeValue::Table(_) => Err(self.wrong("a string or a number")),
        }
    }
}

//! Specs that select a heuristic and its parameters: `heft`, `heft[insertion=no]`, `anneal[from=heft[slack=0.05],seed=3]`.
//!
//! ```text
//! spec   =  name [ "[" name "=" value { "," name "=" value } "]" ]
//! value  =  text without brackets and commas, or a spec
//! ```
//!
//! **Invariants:** a [`Spec`] names a heuristic of the table and parameters that it has, each once, in the order in
//! which they are declared; printing and parsing it gives the same spec. A heuristic is printed by its name in the table.

use std::fmt;

use super::error::MapError;
use super::{ALIASES, HEURISTICS, Heuristic, HeuristicEntry};
use gridloom_base::limits::SPEC_DEPTH_MAX;

/// A parameter of a heuristic.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    pub name: &'static str,
    /// Description and accepted values.
    pub about: &'static str,
    /// Default value.
    pub default: &'static str,
}

/// A heuristic with parameters.
#[derive(Clone, Debug)]
pub struct Spec {
    entry: &'static HeuristicEntry,
    /// The given value of each declared parameter.
    given: Vec<Option<String>>,
}

impl Spec {
    /// Reads a spec.
    ///
    /// # Errors
    /// If it is malformed, or names a heuristic or parameter that is not in the table: the message lists those that are.
    pub fn parse(text: &str) -> Result<Spec, MapError> {
        let bad = |why: &str| MapError::BadSpec { spec: text.into(), why: why.into() };
        let (name, inside) = match text.trim().split_once('[') {
            None => (text.trim(), ""),
            Some((name, rest)) => (name.trim(), rest.strip_suffix(']').ok_or_else(|| bad("the ']' is missing"))?),
        };
        if name.is_empty() {
            return Err(bad("the name is missing"));
        }
        let called = ALIASES.iter().find(|(alias, _)| *alias == name).map_or(name, |(_, called)| called);
        let entry = HEURISTICS.iter().find(|entry| entry.name == called).ok_or_else(|| {
            let known: Vec<&str> = HEURISTICS.iter().map(|entry| entry.name).collect();
            MapError::UnknownHeuristic { name: name.into(), known: known.join(", ") }
        })?;
        let mut given = vec![None; entry.parameters.len()];
        let items = split_outside_brackets(inside).map_err(bad)?;
        for item in items.into_iter().filter(|_| !inside.trim().is_empty()) {
            let (parameter, value) = item.split_once('=').ok_or_else(|| bad("a parameter is written name=value"))?;
            let (parameter, value) = (parameter.trim(), value.trim());
            let Some(at) = entry.parameters.iter().position(|known| known.name == parameter) else {
                return Err(unknown_parameter(entry, parameter));
            };
            if value.is_empty() {
                return Err(bad("a parameter is written name=value"));
            }
            if given[at].replace(value.to_owned()).is_some() {
                return Err(bad("a parameter is given twice"));
            }
        }
        Ok(Spec { entry, given })
    }

    /// Its line in the table.
    pub fn entry(&self) -> &'static HeuristicEntry {
        self.entry
    }

    /// Builds the heuristic.
    ///
    /// # Errors
    /// If the value of a parameter is not accepted.
    pub fn heuristic(&self) -> Result<Box<dyn Heuristic>, MapError> {
        (self.entry.make)(&Values { spec: self })
    }
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.entry.name)?;
        let mut opened = false;
        for (parameter, value) in self.entry.parameters.iter().zip(&self.given) {
            if let Some(value) = value {
                write!(f, "{}{}={value}", if opened { "," } else { "[" }, parameter.name)?;
                opened = true;
            }
        }
        f.write_str(if opened { "]" } else { "" })
    }
}

/// Values of a heuristic's parameters, read when the heuristic is built.
#[derive(Clone, Copy, Debug)]
pub struct Values<'s> {
    spec: &'s Spec,
}

impl Values<'_> {
    /// Reads a parameter that is `yes` or `no`.
    ///
    /// # Errors
    /// If it is anything else.
    pub fn yes(&self, name: &str) -> Result<bool, MapError> {
        self.read(name, "give yes or no", |value| match value {
            "yes" => Some(true),
            "no" => Some(false),
            _ => None,
        })
    }

    /// Reads a parameter that is one of some words; returns the index of the word.
    ///
    /// # Errors
    /// If it is anything else.
    pub fn one_of(&self, name: &str, expected: &str, words: &[&str]) -> Result<usize, MapError> {
        self.read(name, expected, |value| words.iter().position(|word| *word == value))
    }

    /// Reads a parameter that is a whole number.
    ///
    /// # Errors
    /// If it is anything else.
    pub fn whole(&self, name: &str) -> Result<u64, MapError> {
        self.read(name, "give a whole number", |value| value.parse().ok())
    }

    /// Reads a parameter that is a number from 0 to 1.
    ///
    /// # Errors
    /// If it is anything else.
    pub fn fraction(&self, name: &str) -> Result<f64, MapError> {
        let parse = |value: &str| value.parse().ok().filter(|value| (0.0..=1.0).contains(value));
        self.read(name, "give a number from 0 to 1", parse)
    }

    /// Reads a parameter that is a heuristic.
    ///
    /// # Errors
    /// Those of [`Spec::parse`] and [`Spec::heuristic`].
    pub fn heuristic(&self, name: &str) -> Result<Box<dyn Heuristic>, MapError> {
        Spec::parse(self.value(name))?.heuristic()
    }

    fn value(&self, name: &str) -> &str {
        let Spec { entry, given } = self.spec;
        let declared = entry.parameters.iter().position(|known| known.name == name);
        let at = declared.expect("a maker reads what its entry declares");
        given[at].as_deref().unwrap_or(entry.parameters[at].default)
    }

    fn read<T>(&self, name: &str, expected: &str, parse: impl Fn(&str) -> Option<T>) -> Result<T, MapError> {
        let value = self.value(name);
        parse(value).ok_or_else(|| MapError::BadParameter {
            heuristic: self.spec.entry.name.into(),
            parameter: name.into(),
            value: value.into(),
            expected: expected.into(),
        })
    }
}

/// Splits at commas that are outside of brackets.
fn split_outside_brackets(text: &str) -> Result<Vec<&str>, &'static str> {
    let (mut parts, mut depth, mut from) = (Vec::new(), 0usize, 0);
    for (at, character) in text.char_indices() {
        match character {
            '[' => depth += 1,
            ']' => depth = depth.checked_sub(1).ok_or("a ']' is too many")?,
            ',' if depth == 0 => {
                parts.push(&text[from..at]);
                from = at + 1;
            }
            _ => {}
        }
        if depth >= SPEC_DEPTH_MAX {
            return Err("heuristics are nested too deep");
        }
    }
    parts.push(&text[from..]);
    if depth == 0 { Ok(parts) } else { Err("a ']' is missing") }
}

fn unknown_parameter(entry: &HeuristicEntry, parameter: &str) -> MapError {
    let known: Vec<&str> = entry.parameters.iter().map(|known| known.name).collect();
    let known = if known.is_empty() { "it has none".to_owned() } else { format!("known: {}", known.join(", ")) };
    MapError::UnknownParameter { heuristic: entry.name.into(), parameter: parameter.into(), known }
}

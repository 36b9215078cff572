//! Reads the values of a scenario's objects. A missing value, or one of a wrong type, is recorded as a problem and
//! replaced by a harmless one, so that reading continues.

use std::fmt;

use gridloom_base::near::{did_you_mean, near_names};
use serde_json::{Map, Value};

/// The valid range of a number. Results computed from numbers in these ranges are finite.
#[derive(Clone, Copy)]
pub(super) struct Range {
    least: f64,
    most: f64,
    or_zero: bool,
}

/// Latencies and dates, seconds. The maximum is about 30,000 years.
pub(super) const TIME: Range = Range { least: 0.0, most: 1e12, or_zero: true };
/// Bytes and operations.
pub(super) const AMOUNT: Range = Range { least: 0.0, most: 1e30, or_zero: true };
/// Bytes and operations per second.
pub(super) const RATE: Range = Range { least: 1e-9, most: 1e30, or_zero: false };
/// Value of a speed, bandwidth or state in a profile.
pub(super) const LEVEL: Range = Range { or_zero: true, ..RATE };
/// Weight of a share.
pub(super) const PRIORITY: Range = Range { least: 1e-9, most: 1e9, or_zero: false };

impl Range {
    pub(super) fn has(self, number: f64) -> bool {
        (self.least..=self.most).contains(&number) || self.or_zero && number == 0.0
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Range { least, most, or_zero } = self;
        match (*or_zero, *least > 0.0) {
            (true, true) => write!(f, "0, or a number from {least:e} to {most:e}"),
            (true, false) => write!(f, "a number, 0 or more, at most {most:e}"),
            (false, _) => write!(f, "a number above 0, from {least:e} to {most:e}"),
        }
    }
}

/// The problems found so far.
#[derive(Default)]
pub(super) struct ProblemList {
    problems: Vec<String>,
}

impl ProblemList {
    pub(super) fn note(&mut self, problem: String) {
        self.problems.push(problem);
    }

    pub(super) fn problems(&self) -> usize {
        self.problems.len()
    }

    pub(super) fn into_problems(self) -> Vec<String> {
        self.problems
    }

    /// Records a problem for each unknown key of an object.
    pub(super) fn allow(&mut self, object: &Map<String, Value>, place: &str, known: &[&str]) {
        for key in object.keys().filter(|key| !known.contains(&key.as_str())) {
            let hint = did_you_mean(&near_names(key, known.iter().copied()));
            self.note(format!("{place}: unknown key '{key}'{hint}; it has: {}", known.join(", ")));
        }
    }

    pub(super) fn object(&mut self, root: &Map<String, Value>, key: &str) -> Map<String, Value> {
        root.get(key).and_then(Value::as_object).cloned().unwrap_or_else(|| {
            self.note(format!("{key}: expected an object"));
            Map::new()
        })
    }

    /// Returns the objects of a list, each with its path.
    pub(super) fn list(
        &mut self,
        parent: &Map<String, Value>,
        parent_place: &str,
        key: &str,
        required: bool,
    ) -> Vec<(String, Map<String, Value>)> {
        let place = if parent_place.is_empty() { key.to_string() } else { format!("{parent_place}.{key}") };
        let Some(list) = parent.get(key).and_then(Value::as_array) else {
            if required || parent.contains_key(key) {
                self.note(format!("{place}: expected a list"));
            }
            return Vec::new();
        };
        let mut objects = Vec::with_capacity(list.len());
        for (at, value) in list.iter().enumerate() {
            match value.as_object() {
                Some(object) => objects.push((format!("{place}[{at}]"), object.clone())),
                None => self.note(format!("{place}[{at}]: expected an object")),
            }
        }
        objects
    }

    pub(super) fn name(&mut self, object: &Map<String, Value>, place: &str) -> String {
        let name = object.get("name").and_then(Value::as_str).unwrap_or_default();
        if name.is_empty() {
            self.note(format!("{place}.name: expected a name"));
        }
        name.to_string()
    }

    pub(super) fn number(
        &mut self,
        object: &Map<String, Value>,
        place: &str,
        key: &str,
        range: Range,
        default: Option<f64>,
    ) -> f64 {
        let found = match object.get(key) {
            None => {
                return default.unwrap_or_else(|| {
                    self.note(format!("{place}.{key}: missing; expected {range}"));
                    1.0
                });
            }
            Some(found) => found,
        };
        match found.as_f64() {
            Some(number) if range.has(number) => number,
            _ => {
                self.note(format!("{place}.{key}: {found}; expected {range}"));
                1.0
            }
        }
    }

    pub(super) fn count(&mut self, object: &Map<String, Value>, place: &str, key: &str) -> u32 {
        let Some(found) = object.get(key) else { return 1 };
        let count = found.as_u64().and_then(|count| u32::try_from(count).ok()).filter(|count| *count > 0);
        count.unwrap_or_else(|| {
            self.note(format!("{place}.{key}: {found}; expected a whole number of 1 or more"));
            1
        })
    }
}

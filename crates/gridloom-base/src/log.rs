//! Log levels, and the selection of log lines by category and level.
//!
//! The logs of agents, servers and testbeds (categories `gridloom.…`) and the categories of process programs use the
//! same syntax.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// Severity of a log line.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum Level {
    /// Details for debugging.
    Debug,
    /// Events for following a run.
    Info,
    /// Something is odd.
    Warning,
    /// Something is wrong.
    Error,
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Level::Debug => "debug",
            Level::Info => "info",
            Level::Warning => "warning",
            Level::Error => "error",
        })
    }
}

/// The lines to log. `None` in place of a level turns a category off.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogLevels {
    minimum: Option<Level>,
    /// Levels by category. Each also applies to subcategories.
    by_category: BTreeMap<String, Option<Level>>,
}

impl Default for LogLevels {
    fn default() -> LogLevels {
        LogLevels::DEFAULT
    }
}

impl LogLevels {
    /// The default selection.
    pub const DEFAULT: LogLevels = LogLevels { minimum: Some(Level::Info), by_category: BTreeMap::new() };

    /// Parses `warning,matmul=debug`.
    ///
    /// # Errors
    /// If a level is unknown.
    pub fn read(text: &str) -> Result<LogLevels, String> {
        let mut levels = LogLevels::default();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            match part.split_once('=') {
                Some((category, level)) => {
                    levels.by_category.insert(category.trim().to_string(), read_level(level.trim())?);
                }
                None => levels.minimum = read_level(part)?,
            }
        }
        Ok(levels)
    }

    /// Returns the lowest level that is logged for categories without a level of their own.
    pub fn minimum(&self) -> Option<Level> {
        self.minimum
    }

    /// Returns the named categories, each with the lowest level that is logged.
    pub fn categories(&self) -> impl Iterator<Item = (&str, Option<Level>)> {
        self.by_category.iter().map(|(category, level)| (category.as_str(), *level))
    }

    /// True if a line of that category and level is logged.
    pub fn enables(&self, level: Level, category: &str) -> bool {
        let mut name = category;
        let least = loop {
            if let Some(least) = self.by_category.get(name) {
                break *least;
            }
            match name.rsplit_once('.') {
                Some((above, _)) => name = above,
                None => break self.minimum,
            }
        };
        least.is_some_and(|least| level >= least)
    }
}

fn read_level(text: &str) -> Result<Option<Level>, String> {
    Ok(match text {
        "debug" => Some(Level::Debug),
        "info" => Some(Level::Info),
        "warning" | "warn" => Some(Level::Warning),
        "error" => Some(Level::Error),
        "off" => None,
        _ => return Err(format!("'{text}' is not a log level; levels are debug, info, warning, error, off")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_category_counts_for_those_below_it() {
        let levels = LogLevels::read("warning, matmul=debug,matmul.server=error").unwrap();
        assert!(levels.enables(Level::Debug, "matmul") && levels.enables(Level::Debug, "matmul.client.row"));
        assert!(!levels.enables(Level::Warning, "matmul.server") && levels.enables(Level::Error, "matmul.server"));
        assert!(!levels.enables(Level::Info, "other") && levels.enables(Level::Warning, "matmulx"));
        assert!(!LogLevels::default().enables(Level::Debug, "a") && LogLevels::default().enables(Level::Info, "a"));
        assert!(LogLevels::read("loud").unwrap_err().contains("levels are debug"));
    }

    #[test]
    fn a_category_can_be_off() {
        let levels = LogLevels::read("off, matmul = warn, matmul.server=off").unwrap();
        assert!(!levels.enables(Level::Error, "other") && !levels.enables(Level::Error, "matmul.server"));
        assert!(levels.enables(Level::Warning, "matmul") && !levels.enables(Level::Info, "matmul"));
    }
}

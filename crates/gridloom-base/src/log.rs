//! Levels of the log, and which lines of it are wanted: by category and level.
//!
//! The same words hold for the logs of agent, servers and testbeds (categories `gridloom.…`) and for the categories of
//! programs of processes.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// How much a line of the log matters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum Level {
    /// For debugging.
    Debug,
    /// For following a run.
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

/// Which lines are wanted. No level means none.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Levels {
    least: Option<Level>,
    /// By category, which counts for those below it too.
    of: BTreeMap<String, Option<Level>>,
}

impl Default for Levels {
    fn default() -> Levels {
        Levels::EVERYDAY
    }
}

impl Levels {
    /// What is wanted if nothing is said.
    pub const EVERYDAY: Levels = Levels { least: Some(Level::Info), of: BTreeMap::new() };

    /// Reads `warning,matmul=debug`.
    ///
    /// # Errors
    /// If a level is none.
    pub fn read(text: &str) -> Result<Levels, String> {
        let mut levels = Levels::default();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            match part.split_once('=') {
                Some((category, level)) => {
                    levels.of.insert(category.trim().to_string(), read_level(level.trim())?);
                }
                None => levels.least = read_level(part)?,
            }
        }
        Ok(levels)
    }

    /// The level from which on lines of no named category are wanted.
    pub fn least(&self) -> Option<Level> {
        self.least
    }

    /// The named categories, and the level from which on their lines are wanted.
    pub fn categories(&self) -> impl Iterator<Item = (&str, Option<Level>)> {
        self.of.iter().map(|(category, level)| (category.as_str(), *level))
    }

    /// Whether a line of that category is wanted.
    pub fn wants(&self, level: Level, category: &str) -> bool {
        let mut name = category;
        let least = loop {
            if let Some(least) = self.of.get(name) {
                break *least;
            }
            match name.rsplit_once('.') {
                Some((above, _)) => name = above,
                None => break self.least,
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
        _ => return Err(format!("'{text}' is no level of the log; levels are debug, info, warning, error, off")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_category_counts_for_those_below_it() {
        let levels = Levels::read("warning, matmul=debug,matmul.server=error").unwrap();
        assert!(levels.wants(Level::Debug, "matmul") && levels.wants(Level::Debug, "matmul.client.row"));
        assert!(!levels.wants(Level::Warning, "matmul.server") && levels.wants(Level::Error, "matmul.server"));
        assert!(!levels.wants(Level::Info, "other") && levels.wants(Level::Warning, "matmulx"));
        assert!(!Levels::default().wants(Level::Debug, "a") && Levels::default().wants(Level::Info, "a"));
        assert!(Levels::read("loud").unwrap_err().contains("levels are debug"));
    }

    #[test]
    fn a_category_can_be_off() {
        let levels = Levels::read("off, matmul = warn, matmul.server=off").unwrap();
        assert!(!levels.wants(Level::Error, "other") && !levels.wants(Level::Error, "matmul.server"));
        assert!(levels.wants(Level::Warning, "matmul") && !levels.wants(Level::Info, "matmul"));
    }
}

//! The log: categories and levels.

use std::collections::BTreeMap;
use std::ffi::{c_char, c_int};

use gridloom::process::Level;

use crate::config;
use crate::current::with;
use crate::declare::text;

/// Which lines are wanted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Levels {
    least: Level,
    /// By category, which counts for those below it too.
    of: BTreeMap<String, Level>,
}

impl Default for Levels {
    fn default() -> Levels {
        Levels { least: Level::Info, of: BTreeMap::new() }
    }
}

impl Levels {
    /// Reads `warning,matmul=debug`.
    pub(crate) fn read(text: &str) -> Result<Levels, String> {
        let mut levels = Levels::default();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            match part.split_once('=') {
                Some((category, level)) => {
                    levels.of.insert(category.trim().to_string(), read_level(level)?);
                }
                None => levels.least = read_level(part)?,
            }
        }
        Ok(levels)
    }

    fn wants(&self, level: Level, category: &str) -> bool {
        let mut name = category;
        loop {
            if let Some(least) = self.of.get(name) {
                return level >= *least;
            }
            match name.rsplit_once('.') {
                Some((above, _)) => name = above,
                None => return level >= self.least,
            }
        }
    }
}

fn read_level(text: &str) -> Result<Level, String> {
    let levels = [Level::Debug, Level::Info, Level::Warning, Level::Error];
    let found = levels.into_iter().find(|level| level.to_string() == text.trim());
    found.ok_or_else(|| format!("'{}' is no level of the log; levels are debug, info, warning, error", text.trim()))
}

fn level_of(level: c_int) -> Level {
    match level {
        ..=0 => Level::Debug,
        1 => Level::Info,
        2 => Level::Warning,
        _ => Level::Error,
    }
}

/// See `gridloom.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn gridloom_log_wants(level: c_int, category: *const c_char) -> c_int {
    // SAFETY: a text, as the header asks.
    let category = unsafe { text(category) }.unwrap_or_default();
    c_int::from(config::with_levels(|levels| levels.wants(level_of(level), &category)))
}

/// See `gridloom.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn gridloom_log_text(level: c_int, category: *const c_char, line: *const c_char) {
    // SAFETY: texts, as the header asks.
    let (category, line) = unsafe { (text(category).unwrap_or_default(), text(line).unwrap_or_default()) };
    // Outside of a process there is nobody to name.
    let _ = with(|process, _| {
        process.log(level_of(level), &category, &line);
        Ok(())
    });
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
}

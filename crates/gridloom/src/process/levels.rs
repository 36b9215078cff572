//! Which lines of the log are wanted: by category and level.

use std::collections::BTreeMap;

use super::Level;

/// Which lines are wanted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Levels {
    least: Level,
    /// By category, which counts for those below it too.
    of: BTreeMap<String, Level>,
}

impl Default for Levels {
    fn default() -> Levels {
        Levels::EVERYDAY
    }
}

impl Levels {
    /// What is wanted if nothing is said.
    pub(super) const EVERYDAY: Levels = Levels { least: Level::Info, of: BTreeMap::new() };

    /// Reads `warning,matmul=debug`.
    ///
    /// # Errors
    /// If a level is none.
    pub fn read(text: &str) -> Result<Levels, String> {
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

    /// Whether a line of that category is wanted.
    pub fn wants(&self, level: Level, category: &str) -> bool {
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

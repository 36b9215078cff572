//! Files with one JSON value per line.

use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;

/// A wrong line.
#[derive(Debug, Error)]
#[error("line {line}: {why}")]
pub(crate) struct LineError {
    /// Number of the line, from 1.
    pub(crate) line: usize,
    pub(crate) why: String,
}

/// Returns the values with the numbers of their lines. Blank lines are skipped.
pub(crate) fn parse<T: DeserializeOwned>(text: &str) -> Result<Vec<(usize, T)>, LineError> {
    let mut values = Vec::new();
    for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let read = gridloom_base::json::read(line);
        let value =
            read.map_err(|error| LineError { line: at + 1, why: format!("column {}: {}", error.column, error.why) })?;
        values.push((at + 1, value));
        if values.len() > LINES_MAX {
            return Err(LineError {
                line: at + 1,
                why: format!("there are more than {LINES_MAX} lines, which is the limit"),
            });
        }
    }
    Ok(values)
}

pub(crate) fn to_text(values: impl IntoIterator<Item = impl Serialize>) -> String {
    let line = |value| serde_json::to_string(&value).expect("the values have only names as keys") + "\n";
    values.into_iter().map(line).collect()
}

/// Maximum number of lines: certificates of a large grid for some years.
const LINES_MAX: usize = 100_000;

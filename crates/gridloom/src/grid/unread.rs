//! Errors of calls in groups that the program did not read: they are told at the end.

use std::fmt;

use crate::report::GroupRecord;

/// Errors of calls in groups that the program did not read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Unread {
    /// How many calls failed.
    pub count: usize,
    /// The first of their errors, in a line each.
    pub first: Vec<String>,
}

impl Unread {
    pub(super) fn add(&mut self, record: &mut GroupRecord) {
        for line in record.untold() {
            self.count += 1;
            // A group that was not mapped says the same of each of its calls.
            if self.first.len() < LINES_MAX && !self.first.contains(&line) {
                self.first.push(line);
            }
        }
        record.is_told = true;
    }
}

impl fmt::Display for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Unread { count, first } = self;
        write!(f, "{count} call{} in groups failed, and nobody read why", if *count == 1 { "" } else { "s" })?;
        first.iter().try_for_each(|line| write!(f, "\n  {line}"))?;
        if *count > first.len() { write!(f, "\n  and {} more", count - first.len()) } else { Ok(()) }
    }
}

/// Errors that are told; the others are counted.
const LINES_MAX: usize = 10;

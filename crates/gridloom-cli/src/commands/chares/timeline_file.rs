//! `--trace FILE`: the file for the timeline of a run of elements.

use std::path::{Path, PathBuf};

use anyhow::Result;
use gridloom::chares::{Records, keep_record, monotonic_ns, write_element_trace};
use gridloom_base::limits::CHARE_EVENTS_MAX;
use gridloom_base::stderr_line;

use super::super::absolute;
use crate::commands::OwnFolder;
use crate::commands::simulate::claim;

/// The file, and the records that elements leave for it.
pub struct TimelineFile {
    file: PathBuf,
    folder: OwnFolder,
    began_ns: u64,
}

impl TimelineFile {
    /// # Errors
    /// If the file cannot be written.
    pub fn claim(file: &Path) -> Result<TimelineFile> {
        claim(file)?;
        Ok(TimelineFile { file: file.into(), folder: OwnFolder::new("timeline")?, began_ns: monotonic_ns() })
    }

    /// Returns where the elements of the first run write their records.
    pub fn records(&self) -> Result<Records> {
        Ok(Records { folder: absolute(&self.folder.0)?, ..Records::default() })
    }

    /// Stores the record that an element on a server has left of that run; an empty record is ignored.
    pub fn keep(&self, run: u32, element: usize, record: &[u8]) -> Result<()> {
        if record.is_empty() {
            return Ok(());
        }
        Ok(keep_record(&self.folder.0, run, element as u32, record)?)
    }

    /// Writes the records of the elements into the file; `elements` has the number of elements of each run.
    pub fn write(&self, elements: &[u32]) -> Result<()> {
        let lacks = write_element_trace(&self.file, &self.folder.0, elements, self.began_ns)?;
        let file = self.file.display();
        if lacks.events > 0 {
            stderr_line!(
                "gridloom: {file} lacks the last {} events, of elements with more than {CHARE_EVENTS_MAX}",
                lacks.events
            );
        }
        let elements: Vec<String> = lacks.elements.iter().map(|(_, element)| element.to_string()).collect();
        if !elements.is_empty() {
            stderr_line!(
                "gridloom: {file} lacks elements that left no record, for example because they were killed: {}",
                elements.join(", ")
            );
        }
        Ok(())
    }
}

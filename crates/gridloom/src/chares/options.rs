//! Options of a run of chares: its possible numbers of elements, and where checkpoints are kept.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The possible numbers of elements of a run, with the reasons for the limits.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ElementLimits {
    pub least: u32,
    pub most: u32,
    pub why_least: String,
    pub why_most: String,
}

impl ElementLimits {
    /// Checks a number of elements.
    ///
    /// # Errors
    /// If there are too few or too many.
    pub fn check(&self, elements: u32) -> Result<(), String> {
        if elements < self.least {
            return Err(format!("{} or more are possible, since {}", self.least, self.why_least));
        }
        if elements > self.most {
            return Err(format!("{} or fewer are possible, since {}", self.most, self.why_most));
        }
        Ok(())
    }
}

/// How the command and the elements communicate changes of the number of elements.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Resizing {
    #[serde(with = "gridloom_base::path_bytes")]
    pub folder: PathBuf,
    pub bounds: ElementLimits,
}

/// Where checkpoints are kept, and which of those that the program requests.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct CheckpointOptions {
    #[serde(with = "gridloom_base::path_bytes")]
    pub folder: PathBuf,
    /// Keep one of this many requested checkpoints.
    pub every: u64,
    /// Identifies the run: one random number for all starts by one command.
    pub run: u64,
    /// All earlier checkpoints have smaller numbers, as far as other readers of the folder can see.
    pub next: u64,
}

/// A checkpoint from which a program resumes.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Restart {
    #[serde(with = "gridloom_base::path_bytes")]
    pub folder: PathBuf,
    /// The checkpoint's number in the folder; `None` for the last complete one.
    #[serde(default)]
    pub number: Option<u64>,
}

/// Options for checkpoints in memory.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct InMemory {
    /// Keep one of this many checkpoints that the program requests.
    pub every: u64,
}

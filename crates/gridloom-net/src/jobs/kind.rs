//! Kinds of workers: which functions each runs, and by which program. A further kind is one more variant here.

use std::process::Command;

use gridloom_idl::{Body, Definition};

use super::JobsConfig;

/// What a worker can run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Kind {
    Native,
    Python,
}

impl Kind {
    /// All kinds, in the order of their numbers.
    pub(super) const ALL: [Kind; 2] = [Kind::Native, Kind::Python];

    /// The kind that runs a function.
    pub(super) fn of(definition: &Definition) -> Kind {
        match definition.body {
            Body::Native { .. } | Body::Program { .. } => Kind::Native,
            Body::Python { .. } => Kind::Python,
        }
    }

    /// The program that serves it.
    pub(super) fn command(self, config: &JobsConfig) -> Command {
        match self {
            Kind::Native => {
                let mut command = Command::new(&config.worker_program);
                command.arg("worker");
                command
            }
            Kind::Python => {
                let mut command = Command::new(&config.python);
                command.args(["-m", "gridloom.worker"]);
                command
            }
        }
    }
}

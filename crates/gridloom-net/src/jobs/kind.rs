//! Kinds of workers: the functions that each runs, and its program. To add a kind, add a variant here.

use std::process::Command;

use gridloom_idl::{Body, Definition};

use super::JobsConfig;

/// The kind of a worker.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Kind {
    Native,
    Python,
}

impl Kind {
    /// All kinds, in the order of their discriminants.
    pub(super) const ALL: [Kind; 2] = [Kind::Native, Kind::Python];

    /// Returns the kind of worker that runs a function.
    pub(super) fn of(definition: &Definition) -> Kind {
        match definition.body {
            Body::Native { .. } | Body::Program { .. } => Kind::Native,
            Body::Python { .. } => Kind::Python,
        }
    }

    /// Returns the command that starts a worker of this kind.
    pub(super) fn command(self, config: &JobsConfig) -> Command {
        match self {
            Kind::Native => {
                let mut command = Command::new(&config.worker_program);
                command.arg("worker");
                command
            }
            Kind::Python => config.python.command("gridloom.worker"),
        }
    }
}

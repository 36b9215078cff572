//! Output that functions have printed at servers, for operators of a grid.

use std::collections::BTreeMap;
use std::time::Duration;

use gridloom_base::NodeId;
use gridloom_core::node::Command;
use gridloom_core::node::message::{OutputPage, OutputQuery};

use crate::{Error, Grid};

/// Answers that have not been taken yet.
#[derive(Default)]
pub(super) struct Outputs {
    answers: BTreeMap<NodeId, OutputPage>,
}

impl Outputs {
    pub(super) fn on_answer(&mut self, server: NodeId, output: OutputPage) {
        self.answers.insert(server, output);
    }
}

impl Grid {
    /// Requests the output of functions from a server. Repeat the request after [`Grid::take_output`] has returned the
    /// answer, or if none arrives: a server whose connection is lost forgets the request.
    pub fn ask_output(&self, server: NodeId, query: OutputQuery) {
        self.command(Command::Output { server, query });
    }

    /// Takes the received answers; waits for at least one, but no longer than `limit`.
    ///
    /// # Errors
    /// If the session is closed.
    pub fn take_output(&self, limit: Duration) -> Result<BTreeMap<NodeId, OutputPage>, Error> {
        let come = self.wait(Some(limit), |state| {
            let answers = &mut state.outputs.answers;
            (!answers.is_empty()).then(|| std::mem::take(answers))
        });
        match come {
            Err(Error::TimedOut { .. }) => Ok(BTreeMap::new()),
            come => come,
        }
    }
}

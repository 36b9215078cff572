//! Output that functions have printed at servers, for operators of a grid.

use std::collections::BTreeMap;

use gridloom_base::NodeId;
use gridloom_core::node::message::OutputPage;

/// Answers that have not been taken yet.
#[derive(Default)]
pub(crate) struct Outputs {
    answers: BTreeMap<NodeId, OutputPage>,
}

impl Outputs {
    pub(crate) fn on_answer(&mut self, server: NodeId, output: OutputPage) {
        self.answers.insert(server, output);
    }

    /// Takes the answers, if there are any.
    pub(crate) fn take(&mut self) -> Option<BTreeMap<NodeId, OutputPage>> {
        (!self.answers.is_empty()).then(|| std::mem::take(&mut self.answers))
    }
}

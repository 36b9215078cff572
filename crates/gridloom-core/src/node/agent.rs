//! The agent: who is alive, which function is where, how fast, and the mapping of groups.

use crate::base::{Machine, NodeId, Time};
use crate::node::protocol::{Effect, Input};

/// How it is set up.
#[derive(Clone, Debug)]
pub struct AgentConfig {
    /// Its identifier.
    pub id: NodeId,
    /// Its name.
    pub name: String,
}

/// The machine.
#[derive(Debug)]
pub struct Agent {
    config: AgentConfig,
}

impl Agent {
    /// A machine that has not started.
    pub fn new(config: AgentConfig) -> Agent {
        Agent { config }
    }

    /// Its identifier.
    pub fn id(&self) -> NodeId {
        self.config.id
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.config.name
    }
}

impl Machine for Agent {
    type Input = Input;
    type Effect = Effect;

    fn handle(&mut self, _now: Time, _input: Input, _effects: &mut Vec<Effect>) {}
}

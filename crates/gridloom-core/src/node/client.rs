//! The client: records and follows groups, owns the names of their data.

use crate::base::{Machine, NodeId, Time};
use crate::node::protocol::{Effect, Input};

/// How it is set up.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// Its identifier.
    pub id: NodeId,
    /// Its name.
    pub name: String,
    /// Where its agent is.
    pub agent: String,
}

/// The machine.
#[derive(Debug)]
pub struct Client {
    config: ClientConfig,
}

impl Client {
    /// A machine that has not started.
    pub fn new(config: ClientConfig) -> Client {
        Client { config }
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

impl Machine for Client {
    type Input = Input;
    type Effect = Effect;

    fn handle(&mut self, _now: Time, _input: Input, _effects: &mut Vec<Effect>) {}
}

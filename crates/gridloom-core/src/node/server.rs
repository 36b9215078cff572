//! The server: runs tasks as their inputs come, keeps their results, sends them on.

use crate::base::{Machine, NodeId, Time};
use crate::idl::Signature;
use crate::node::protocol::{Effect, Input};

/// How it is set up.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Its identifier.
    pub id: NodeId,
    /// Its name.
    pub name: String,
    /// Where it can be dialled.
    pub address: String,
    /// Where its agent is.
    pub agent: String,
    /// Tasks that it runs at a time.
    pub slots: u32,
    /// Tasks that may wait inside the world behind a running one of the same slot, when they are very short.
    pub queue_depth: u32,
    /// It talks to clients only.
    pub plain: bool,
    /// Bound on its store, bytes.
    pub memory_bytes: u64,
    /// What it offers.
    pub functions: Vec<Signature>,
}

/// The machine.
#[derive(Debug)]
pub struct Server {
    config: ServerConfig,
}

impl Server {
    /// A machine that has not started.
    pub fn new(config: ServerConfig) -> Server {
        Server { config }
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

impl Machine for Server {
    type Input = Input;
    type Effect = Effect;

    fn handle(&mut self, _now: Time, _input: Input, _effects: &mut Vec<Effect>) {}
}

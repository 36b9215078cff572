//! The state machines of a grid (agent, server, client), the messages that they exchange, and the world in which they run.

pub mod agent;
pub mod client;
mod client_with_agent;
mod data_paths;
mod link_measurement;
mod log;
pub mod message;
mod probing;
pub mod protocol;
mod record_limit;
pub mod server;
mod timer;
mod unreported;
pub mod version;
mod worker;
pub mod world;

pub use agent::{Agent, AgentConfig, UsageTable};
pub use client::{Client, ClientConfig};
pub use client_with_agent::{ClientWithAgent, ClientWithAgentConfig};
pub use log::{Category, LogLine};
pub use message::{MapRequest, Message};
pub use protocol::{Command, DiskLimit, Effect, Event, Input, MapJob, NameCommand, Role};
pub use server::{DRAINED, Server, ServerConfig};
pub use timer::{AgentTimer, ClientTimer, ServerTimer, Timer};
pub use worker::{SessionAction, SessionAnswer, SessionRequest, SessionResult, WorkerEvent};
pub use world::World;

use gridloom_base::{Machine, NodeId, Time};

/// Any of the state machines. A world runs one for each node.
#[derive(Debug)]
pub enum Node {
    /// Tracks live nodes and maps groups.
    Agent(Box<Agent>),
    /// Runs tasks.
    Server(Box<Server>),
    /// Submits groups and tracks their execution.
    Client(Box<Client>),
}

impl Node {
    pub fn id(&self) -> NodeId {
        match self {
            Node::Agent(agent) => agent.id(),
            Node::Server(server) => server.id(),
            Node::Client(client) => client.id(),
        }
    }

    pub fn name(&self) -> &str {
        match self {
            Node::Agent(agent) => agent.name(),
            Node::Server(server) => server.name(),
            Node::Client(client) => client.name(),
        }
    }

    pub fn role(&self) -> Role {
        match self {
            Node::Agent(_) => Role::Agent,
            Node::Server(_) => Role::Server,
            Node::Client(_) => Role::Client,
        }
    }
}

impl Machine for Node {
    type Input = Input;
    type Effect = Effect;

    fn handle(&mut self, now: Time, input: Input, effects: &mut Vec<Effect>) {
        match self {
            Node::Agent(agent) => agent.handle(now, input, effects),
            Node::Server(server) => server.handle(now, input, effects),
            Node::Client(client) => client.handle(now, input, effects),
        }
    }
}

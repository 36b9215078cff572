//! The world as a test or a session uses it: starting nodes, commanding clients, waiting for events, and injecting failures.

use crate::node::protocol::{Command, Event};
use gridloom_base::{DatumId, Meta, NodeId, Time};
use gridloom_idl::Definition;

/// A server to start.
#[derive(Clone, Debug)]
pub struct ServerSpec {
    pub name: String,
    /// Number of tasks that it runs at a time.
    pub slots: u32,
    /// A stateless server: it communicates with clients only, and keeps nothing between calls.
    pub is_stateless: bool,
    /// Size limit of its store, bytes.
    pub memory_bytes: u64,
    /// The part of the store that is on disk, bytes.
    pub disk_bytes: u64,
    /// The functions that it offers.
    pub functions: Vec<Definition>,
}

/// A world in which a grid can be started: the real one (processes or threads and sockets on this machine) or the
/// simulated one. The conformance suite is written against this trait and runs on both.
pub trait World {
    /// Starts the grid's agent.
    fn start_agent(&mut self) -> NodeId;
    /// Starts a server of that agent.
    fn start_server(&mut self, spec: ServerSpec) -> NodeId;
    /// Starts a client of that agent.
    fn start_client(&mut self, name: &str) -> NodeId;
    /// Puts a value into a client's store. `None` stands for a value without bytes (simulation only).
    fn put(&mut self, client: NodeId, datum: DatumId, meta: Meta, bytes: Option<Vec<u8>>);
    /// Returns a value from a client's store.
    fn value(&mut self, client: NodeId, datum: DatumId) -> Option<(Meta, Option<Vec<u8>>)>;
    /// Sends a command to a client.
    fn command(&mut self, client: NodeId, command: Command);
    /// Returns the client's next event. Waits (or steps the simulation) for at most `patience_ns` of the world's time.
    fn next_event(&mut self, client: NodeId, patience_ns: u64) -> Option<Event>;
    /// Returns the world's time.
    fn now(&mut self) -> Time;
    /// Ends a node without warning: its connections break.
    fn kill(&mut self, node: NodeId);
    /// Stops a node from reacting, while its connections stay up.
    fn hang(&mut self, node: NodeId);
}

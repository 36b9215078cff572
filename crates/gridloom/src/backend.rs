//! The layer under a session: a client node, of a real grid ([`net`]), of a simulation ([`simulated`]), or of a simulation in
//! another process, whose function runs here ([`function`]).

mod function;
mod net;
mod simulated;

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use gridloom_base::address::{NodeAddress, check_place};
use gridloom_base::{DatumId, NodeId, Time};
use gridloom_core::node::{Command, Event};
use gridloom_net::segment::SegmentMut;
use gridloom_net::transfers::TransferProgress;

use crate::{Error, Value};
pub(crate) use function::FunctionBackend;
pub(crate) use net::NetBackend;
pub(crate) use simulated::{SimBackend, simulated_host_of};

/// A client node with its store. The session sends it commands and processes its events.
pub(crate) trait Backend: Send + Sync {
    /// The id of the node.
    fn client(&self) -> NodeId;

    /// The user of the call for which this client acts, if it is a function.
    fn caller(&self) -> Option<Box<str>>;

    /// In a simulation: the server that runs the function that opened the session.
    fn own_server(&self) -> Option<NodeId> {
        None
    }

    /// The grid's time.
    fn now(&self) -> Time;

    /// True if the bodies of functions run, so that the content of values matters.
    fn has_content(&self) -> bool;

    /// True if time is virtual.
    fn is_simulated(&self) -> bool {
        self.simulated().is_some()
    }

    /// Advances virtual time, as if the program computed and accessed these bytes of its memory once. Does nothing on a real
    /// grid.
    fn advance(&self, ns: u64, accessed_bytes: u64);

    /// Sets the bytes that the program holds itself, besides the values of its calls. Does nothing on a real grid.
    fn hold_memory(&self, _size_bytes: u64) {}

    /// The memory that the program can use: that of its simulated host, or what is available to this process.
    fn memory_bytes(&self) -> Option<u64>;

    /// Speed of the client's host, operations per second; `None` on a real grid.
    fn client_flops(&self) -> Option<f64>;

    /// Allocates memory for a value, which servers on this machine can map.
    fn allocate(&self, size_bytes: u64) -> io::Result<SegmentMut>;

    /// Puts a value into the client's store.
    fn put(&self, datum: DatumId, value: &Value);

    /// Returns a value in the client's store, without removing it.
    fn value(&self, datum: DatumId) -> Option<Value>;

    /// Large values in transfer to or from the client. A simulation has none, since no real time passes in it.
    fn transfers(&self) -> Vec<TransferProgress>;

    /// Removes a value from the client's store.
    fn remove(&self, datum: DatumId);

    /// Sends commands to the client's machine.
    fn commands(&self, commands: Vec<Command>);

    /// Passes `take` the queue of events, immediately and then whenever there are new ones, until it returns `true`. It
    /// removes the events that it has processed, and must not call the backend except for [`Backend::remove`].
    ///
    /// # Errors
    /// [`Error::TimedOut`] at the limit, which is virtual time in a simulation; also if no event can arrive any more.
    fn wait_until(
        &self,
        limit: Option<Duration>,
        take: &mut dyn FnMut(&mut VecDeque<Event>) -> bool,
    ) -> Result<(), Error>;

    /// Wakes waiting threads to check again, even without events.
    fn wake(&self);

    /// Ends the node.
    fn close(&self);

    /// The simulation to which it belongs, if that is in this process.
    fn simulated(&self) -> Option<&SimBackend>;
}

/// Checks that a text can be the address of an agent, on a real grid and in a simulation alike.
///
/// # Errors
/// The reason as text, with the expected form.
pub fn check_address(address: &str) -> Result<(), String> {
    check_address_of("an agent", address)
}

fn check_address_of(role: &str, address: &str) -> Result<(), String> {
    match address.parse::<NodeAddress>() {
        Ok(_) => Ok(()),
        Err(_) if check_place(address).is_err() && !address.contains(['+', '/']) => {
            Err(format!("'{address}' is not an address of {role}; expected HOST:PORT, such as 127.0.0.1:7711"))
        }
        Err(error) => Err(error.to_string()),
    }
}

fn timed_out(limit: Option<Duration>) -> Error {
    Error::TimedOut { limit_seconds: limit.unwrap_or_default().as_secs_f64() }
}

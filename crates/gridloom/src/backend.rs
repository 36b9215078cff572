//! What is under a session: a client node, of a real grid ([`net`]) or of a simulation ([`simulated`]).

mod net;
mod simulated;

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use gridloom_base::{DatumId, NodeId, Time};
use gridloom_core::node::{Command, Event};
use gridloom_net::moving::OnTheWay;
use gridloom_net::segment::SegmentMut;

use crate::{Error, Value};
pub(crate) use net::NetBackend;
pub(crate) use simulated::SimBackend;

/// A client node with its store. The session gives it commands and takes its events.
pub(crate) trait Backend: Send + Sync {
    /// The node's name.
    fn client(&self) -> NodeId;

    /// The grid's time.
    fn now(&self) -> Time;

    /// Whether functions' bodies run, so that the content of values matters.
    fn has_content(&self) -> bool;

    /// The program computes for so long: virtual time passes. On a real grid nothing happens.
    fn advance(&self, ns: u64);

    /// Speed of the client's host, operations per second. A real grid does not know it.
    fn client_flops(&self) -> Option<f64>;

    /// Memory for a value, which servers on this machine can map.
    fn allocate(&self, size_bytes: u64) -> io::Result<SegmentMut>;

    /// Puts a value into the client's store.
    fn put(&self, datum: DatumId, value: &Value);

    /// A value of the client's store, where it stays.
    fn value(&self, datum: DatumId) -> Option<Value>;

    /// Large values that are on their way to or from the client now. A simulation has none: no real time passes on it.
    fn moving(&self) -> Vec<OnTheWay>;

    /// Removes a value from the client's store.
    fn forget(&self, datum: DatumId);

    /// Gives the client's machine commands.
    fn commands(&self, commands: Vec<Command>);

    /// Shows `take` the queue of events, at once and then whenever there are new ones, until it gives `true`. It removes what it
    /// has taken in, and must not call the backend but for [`Backend::forget`].
    ///
    /// # Errors
    /// [`Error::TimedOut`] at the limit, which is virtual time in a simulation; if no event can come any more.
    fn wait_until(
        &self,
        limit: Option<Duration>,
        take: &mut dyn FnMut(&mut VecDeque<Event>) -> bool,
    ) -> Result<(), Error>;

    /// Has threads that wait look again, though nothing has come.
    fn stir(&self);

    /// Ends the node.
    fn close(&self);

    /// The simulation that it is part of, if it is.
    fn simulated(&self) -> Option<&SimBackend>;
}

/// Refuses what cannot be an address of an agent, on a real grid and in a simulation alike.
///
/// # Errors
/// In words, with what is expected.
pub fn check_address(address: &str) -> Result<(), String> {
    check_address_of("an agent", address)
}

fn check_address_of(role: &str, address: &str) -> Result<(), String> {
    let port = address.rsplit_once(':').filter(|(host, _)| !host.is_empty()).map(|(_, port)| port.parse::<u16>());
    match port {
        Some(Ok(port)) if port > 0 => Ok(()),
        _ => Err(format!("'{address}' is no address of {role}; expected HOST:PORT, such as 127.0.0.1:7711")),
    }
}

fn timed_out(limit: Option<Duration>) -> Error {
    Error::TimedOut { limit_seconds: limit.unwrap_or_default().as_secs_f64() }
}

//! A client of a real grid.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gridloom_base::{DatumId, NodeId, Time};
use gridloom_core::node::{Client, ClientConfig, ClientWithAgent, ClientWithAgentConfig, Command, Event, Node, Role};
use gridloom_net::descriptors::describe;
use gridloom_net::driver::{BoxMachine, NetConfig, NetNode};
use gridloom_net::identity::Keys;
use gridloom_net::payload::Payload;
use gridloom_net::segment::SegmentMut;
use gridloom_net::transfers::TransferProgress;
use gridloom_net::transport::emulated_sites::Site;
use gridloom_net::worker::nested;
use gridloom_resources::Memory;

use super::{Backend, SimBackend, check_address, check_address_of, timed_out};
use crate::program_name::program_name;
use crate::{Error, Value};

/// A client node in this process.
pub(crate) struct NetBackend {
    node: Arc<NetNode>,
    acts_for_callers: bool,
}

impl NetBackend {
    /// Connects a client to the agent at that address, with the keys of the user or of the function that runs here. If there
    /// are keys of several grids, the search for the right ones takes at most as long as the limit.
    pub(crate) fn connect(address: &str, limit: Duration) -> Result<NetBackend, Error> {
        check_address(address).map_err(Error::Connect)?;
        NetBackend::connect_with(address, &keys_for(&[address], limit)?, None)
    }

    /// Connects a client in that site, or else in the one that the environment names.
    pub(crate) fn connect_with(address: &str, keys: &Keys, site: Option<Site>) -> Result<NetBackend, Error> {
        check_address(address).map_err(Error::Connect)?;
        let agent = address.to_string();
        let is_in_call = nested::depth() > 0;
        let client = |id| ClientConfig { id, name: program_name().into(), agent, is_in_call };
        let make = |id, _: &str| Node::Client(Box::new(Client::new(client(id))));
        let node = NetNode::start(make, config(keys.clone(), site)?);
        NetBackend::new(node, keys)
    }

    /// Connects a client with its own agent to those servers. The limit is that of [`NetBackend::connect`].
    pub(crate) fn connect_servers(servers: &[String], limit: Duration) -> Result<NetBackend, Error> {
        for address in servers {
            check_address_of("a server", address).map_err(Error::Connect)?;
        }
        let keys = keys_for(&servers.iter().map(String::as_str).collect::<Vec<_>>(), limit)?;
        let make = |id, _: &str| {
            let config = ClientWithAgentConfig { id, name: program_name().into(), servers: servers.to_vec() };
            (Role::Client, program_name().into(), Box::new(ClientWithAgent::new(config)) as BoxMachine)
        };
        let node = NetNode::start_with(config(keys.clone(), None)?, make);
        NetBackend::new(node, &keys)
    }

    fn new(node: io::Result<Arc<NetNode>>, keys: &Keys) -> Result<NetBackend, Error> {
        let node = node.map_err(|error| Error::Connect(describe(&error)))?;
        Ok(NetBackend { node, acts_for_callers: keys.acts_for_callers() })
    }
}

impl Backend for NetBackend {
    fn client(&self) -> NodeId {
        self.node.id()
    }

    fn caller(&self) -> Option<Box<str>> {
        nested::user().filter(|_| self.acts_for_callers)
    }

    fn now(&self) -> Time {
        self.node.now()
    }

    fn has_content(&self) -> bool {
        true
    }

    fn advance(&self, _ns: u64, _accessed_bytes: u64) {}

    fn memory_bytes(&self) -> Option<u64> {
        Memory::find().available_bytes
    }

    fn client_flops(&self) -> Option<f64> {
        None
    }

    fn allocate(&self, size_bytes: u64) -> io::Result<SegmentMut> {
        self.node.store().pool().allocate(size_bytes)
    }

    fn put(&self, datum: DatumId, value: &Value) {
        let zeros = || Payload::Inline(vec![0; value.meta.size_bytes() as usize].into());
        self.node.store().put(datum, value.meta.clone(), value.payload.clone().unwrap_or_else(zeros));
    }

    fn value(&self, datum: DatumId) -> Option<Value> {
        self.node.store().get(&datum).map(|(meta, payload)| Value::from_checked(meta, payload))
    }

    fn transfers(&self) -> Vec<TransferProgress> {
        self.node.store().transfers().list()
    }

    fn remove(&self, datum: DatumId) {
        self.node.store().remove(&datum);
    }

    fn commands(&self, commands: Vec<Command>) {
        self.node.commands(commands);
    }

    fn wait_until(
        &self,
        limit: Option<Duration>,
        take: &mut dyn FnMut(&mut VecDeque<Event>) -> bool,
    ) -> Result<(), Error> {
        // A limit beyond the clock's range means no limit.
        let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
        let found = self.node.wait(deadline, |events| take(events).then_some(()));
        found.ok_or_else(|| match (self.node.is_forked(), self.node.is_closed()) {
            (true, _) => Error::Usage("the session belongs to the process that forked this one; open another".into()),
            // A poll without waiting has to report this too.
            (false, true) => Error::Connect("the session is closed".into()),
            (false, false) => timed_out(limit),
        })
    }

    fn wake(&self) {
        self.node.wake_waiters();
    }

    fn close(&self) {
        self.node.stop();
    }

    fn simulated(&self) -> Option<&SimBackend> {
        None
    }
}

/// Returns the keys for the grid of these nodes.
fn keys_for(addresses: &[&str], limit: Duration) -> Result<Keys, Error> {
    Keys::find(addresses, limit).map_err(|error| Error::Connect(error.to_string()))
}

fn config(keys: Keys, site: Option<Site>) -> Result<NetConfig, Error> {
    let site = site.map_or_else(Site::of_environment, |site| Ok(Some(site))).map_err(Error::Usage)?;
    Ok(NetConfig { pool_keep_bytes: POOL_KEEP_BYTES, site, ..NetConfig::new(keys) })
}

/// Memory that a client's buffer pool keeps.
const POOL_KEEP_BYTES: u64 = 1 << 30;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_poll_reports_that_the_session_is_closed() {
        // No agent is there, which the backend notices only after a while.
        let backend = NetBackend::connect_with("127.0.0.1:1", &Keys::missing("a test"), None).unwrap();
        let look = || backend.wait_until(Some(Duration::ZERO), &mut |_| false).unwrap_err();
        assert!(matches!(look(), Error::TimedOut { .. }));
        backend.close();
        assert!(matches!(look(), Error::Connect(why) if why.contains("closed")));
    }
}

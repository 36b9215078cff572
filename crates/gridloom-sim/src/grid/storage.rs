//! Storages: files of shared data on a host that several servers use, such as a cluster's file system.
//!
//! A server writes a datum to the host of its storage once, and the others read it from there. Each access is a flow
//! over the route to that host, which shares links with all other flows.
//!
//! **Not modelled.** The storage's disk; the notification of readers that a file exists, which takes no time; cuts,
//! which do not delay files.

use std::collections::BTreeMap;
use std::sync::Arc;

use gridloom_base::limits::EAGER_BYTES_MAX;
use gridloom_base::{DatumId, NodeId, StorageId, Time};
use gridloom_core::node::Input;
use gridloom_flow::{ActionId, LinkIndex, Transfer};
use gridloom_platform::HostId;

use super::nodes::Nodes;
use crate::environment::Environment;
use crate::kernel::{Kernel, Purpose};
use crate::network::{Path, Route};
use crate::observe::{Observation, TransferContents};
use crate::store::StoredValue;

/// The storages, with the transfers to and from them.
#[derive(Debug, Default)]
pub(crate) struct Storages {
    /// The host of the storage that the servers of a host use, by host of the servers.
    hosts: BTreeMap<HostId, HostId>,
    /// Files, by the server that writes or has written them.
    files: BTreeMap<(NodeId, DatumId), File>,
    transfers: BTreeMap<u64, FileTransfer>,
    begun: u64,
}

#[derive(Debug, Default)]
struct File {
    is_complete: bool,
    /// Servers that wait until it is complete.
    readers: Vec<NodeId>,
}

#[derive(Debug)]
struct FileTransfer {
    action: ActionId,
    transfer: u64,
    started: Time,
    way: Route,
    holder: NodeId,
    /// The reading server; `None` while the file is being written.
    reader: Option<NodeId>,
    datum: DatumId,
    value: StoredValue,
}

/// A file that was completely read.
#[derive(Debug)]
pub(crate) struct ReadFile {
    pub(crate) holder: NodeId,
    pub(crate) reader: NodeId,
    pub(crate) datum: DatumId,
    pub(crate) value: StoredValue,
    pub(crate) transfer: u64,
    pub(crate) started: Time,
    pub(crate) path: Arc<Path>,
}

impl Storages {
    pub(crate) fn new(hosts: BTreeMap<HostId, HostId>) -> Storages {
        Storages { hosts, ..Storages::default() }
    }

    /// Returns the storage that servers of a host share.
    pub(crate) fn of(&self, host: HostId) -> Option<StorageId> {
        self.hosts.get(&host).map(|host| StorageId(host.0.into()))
    }

    /// Sends a datum of a server to another by their storage. Returns false if it must be sent over their connection:
    /// it is small or missing, or there is no storage that the server can reach.
    pub(crate) fn send(
        &mut self,
        environment: &mut Environment,
        nodes: &Nodes,
        (holder, to): (NodeId, NodeId),
        datum: DatumId,
    ) -> bool {
        let server = nodes.node(holder);
        let (Some(value), Some(storage)) = (server.store.value(datum), self.hosts.get(&server.host)) else {
            return false;
        };
        let way = (server.host, *storage);
        if value.meta.size_bytes() <= EAGER_BYTES_MAX || environment.routes.between(way).is_err() {
            return false;
        }
        match self.files.get_mut(&(holder, datum)) {
            Some(file) if file.is_complete => self.read(environment, nodes, holder, to, datum, value.clone()),
            Some(file) => file.readers.push(to),
            None => {
                self.files.insert((holder, datum), File { is_complete: false, readers: vec![to] });
                self.move_file(environment, (holder, None), datum, value.clone(), way);
            }
        }
        true
    }

    fn read(
        &mut self,
        environment: &mut Environment,
        nodes: &Nodes,
        holder: NodeId,
        to: NodeId,
        datum: DatumId,
        value: StoredValue,
    ) {
        let host = nodes.node(to).host;
        let way = self.hosts.get(&host).map(|storage| (*storage, host));
        match way.filter(|way| environment.routes.between(*way).is_ok()) {
            Some(way) => self.move_file(environment, (holder, Some(to)), datum, value, way),
            None => {
                let why = "the storage cannot be reached".into();
                environment.kernel.deliver(to, Input::DatumBroken { from: holder, datum, no_memory: false, why });
            }
        }
    }

    fn move_file(
        &mut self,
        Environment { kernel, routes, .. }: &mut Environment,
        (holder, reader): (NodeId, Option<NodeId>),
        datum: DatumId,
        value: StoredValue,
        way: Route,
    ) {
        let (bytes, path) = (value.meta.size_bytes(), routes.path(way));
        let moved = TransferContents::Datum { datum, from: holder, to: reader.unwrap_or(holder) };
        let transfer = kernel.begin_transfer(moved, bytes, &path.links);
        self.begun += 1;
        let number = self.begun;
        let links: Vec<LinkIndex> = path.links.iter().copied().chain(routes.upload(way)).collect();
        let flow = Transfer { return_links: &path.return_links, ..Transfer::new(&links, path.latency_s, bytes as f64) };
        let action = kernel.start_transfer(&flow, Purpose::Storage(number));
        let moving = FileTransfer { action, transfer, started: kernel.now(), way, holder, reader, datum, value };
        self.transfers.insert(number, moving);
    }

    /// Handles a file that was completely written or read. Returns it if it was read.
    pub(crate) fn on_moved(&mut self, environment: &mut Environment, nodes: &Nodes, number: u64) -> Option<ReadFile> {
        let moving = self.transfers.remove(&number).expect("a transfer that ends has begun");
        let FileTransfer { transfer, started, way, holder, reader, datum, value, .. } = moving;
        let path = environment.routes.path(way);
        environment.kernel.observe(|| Observation::TransferEnds { transfer });
        if let Some(reader) = reader {
            return Some(ReadFile { holder, reader, datum, value, transfer, started, path });
        }
        environment.kernel.record(|trace, _| trace.count_bytes(value.meta.size_bytes(), &path.links));
        let file = self.files.get_mut(&(holder, datum)).expect("it stops with its file");
        file.is_complete = true;
        for to in std::mem::take(&mut file.readers) {
            self.read(environment, nodes, holder, to, datum, value.clone());
        }
        None
    }

    /// Removes the file of a datum that a server no longer has. Reads in progress continue.
    pub(crate) fn remove(&mut self, kernel: &mut Kernel, nodes: &Nodes, holder: NodeId, datum: DatumId) {
        let Some(file) = self.files.remove(&(holder, datum)) else { return };
        self.stop(kernel, |moving| moving.reader.is_none() && (moving.holder, moving.datum) == (holder, datum));
        for to in file.readers {
            let why = format!("{} no longer has it", nodes.node(holder).name);
            kernel.deliver(to, Input::DatumBroken { from: holder, datum, no_memory: false, why });
        }
    }

    /// Removes the files and transfers of a node that has ended.
    pub(crate) fn end_node(&mut self, kernel: &mut Kernel, node: NodeId) {
        self.files.retain(|(holder, _), _| *holder != node);
        self.files.values_mut().for_each(|file| file.readers.retain(|reader| *reader != node));
        self.stop(kernel, |moving| moving.holder == node || moving.reader == Some(node));
    }

    fn stop(&mut self, kernel: &mut Kernel, is_one: impl Fn(&FileTransfer) -> bool) {
        let stopped: Vec<u64> =
            self.transfers.iter().filter(|(_, moving)| is_one(moving)).map(|(number, _)| *number).collect();
        for number in stopped {
            let moving = self.transfers.remove(&number).expect("just seen");
            kernel.cancel(moving.action);
            kernel.observe(|| Observation::TransferEnds { transfer: moving.transfer });
        }
    }

    /// Panics if a file exists whose datum its server does not have.
    pub(crate) fn check(&self, nodes: &Nodes) {
        for (holder, datum) in self.files.keys() {
            let has_it = !nodes.is_dead(*holder) && nodes.node(*holder).store.value(*datum).is_some();
            assert!(has_it, "{holder} has no datum for its file of {datum}");
        }
    }
}

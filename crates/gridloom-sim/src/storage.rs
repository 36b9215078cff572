//! Storages: files of shared data on a host that several servers use, such as a cluster's file system.
//!
//! A server writes a datum to the host of its storage once, and the others read it from there. Each access is a flow
//! over the route to that host, which shares links with all other flows.
//!
//! **Not modelled.** The storage's disk; the notification of readers that a file exists, which takes no time; cuts,
//! which do not delay files.

use std::collections::BTreeMap;

use gridloom_base::{DatumId, NodeId, StorageId, Time};
use gridloom_flow::ActionId;
use gridloom_platform::HostId;

use crate::network::Route;
use crate::store::StoredValue;

/// The storages, with the transfers to and from them.
#[derive(Debug, Default)]
pub(crate) struct Storages {
    /// The host of the storage that the servers of a host use, by host of the servers.
    pub(crate) hosts: BTreeMap<HostId, HostId>,
    /// Files, by the server that writes or has written them.
    pub(crate) files: BTreeMap<(NodeId, DatumId), File>,
    pub(crate) transfers: BTreeMap<u64, FileTransfer>,
    pub(crate) begun: u64,
}

#[derive(Debug, Default)]
pub(crate) struct File {
    pub(crate) is_complete: bool,
    /// Servers that wait until it is complete.
    pub(crate) readers: Vec<NodeId>,
}

#[derive(Debug)]
pub(crate) struct FileTransfer {
    pub(crate) action: ActionId,
    pub(crate) transfer: u64,
    pub(crate) started: Time,
    pub(crate) way: Route,
    pub(crate) holder: NodeId,
    /// The reading server; `None` while the file is being written.
    pub(crate) reader: Option<NodeId>,
    pub(crate) datum: DatumId,
    pub(crate) value: StoredValue,
}

impl Storages {
    pub(crate) fn new(hosts: BTreeMap<HostId, HostId>) -> Storages {
        Storages { hosts, ..Storages::default() }
    }

    /// Returns the storage that servers of a host share.
    pub(crate) fn of(&self, host: HostId) -> Option<StorageId> {
        self.hosts.get(&host).map(|host| StorageId(host.0.into()))
    }
}

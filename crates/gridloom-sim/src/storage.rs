//! Storages: files of shared data on a host that several servers use, as that of a cluster's file system.
//!
//! A server writes a datum to the host of its storage once, and the others read it from there: each is a flow over their way to that
//! host. It shares links with all other flows.
//!
//! **Not done.** The storage's disk; what tells a reader that a file is there takes no time; cut ways hold up no file.

use std::collections::BTreeMap;

use gridloom_base::{DatumId, NodeId, StorageId, Time};
use gridloom_flow::ActionId;
use gridloom_platform::HostId;

use crate::network::HostPair;
use crate::store::StoredValue;

/// The storages, and what moves to and from them.
#[derive(Debug, Default)]
pub(crate) struct Storages {
    /// Of the servers of each host.
    pub(crate) hosts: BTreeMap<HostId, HostId>,
    /// By the server that writes, or has written.
    pub(crate) files: BTreeMap<(NodeId, DatumId), File>,
    pub(crate) moving: BTreeMap<u64, Moving>,
    pub(crate) begun: u64,
}

#[derive(Debug, Default)]
pub(crate) struct File {
    pub(crate) is_whole: bool,
    /// Servers that wait for it to be whole.
    pub(crate) readers: Vec<NodeId>,
}

#[derive(Debug)]
pub(crate) struct Moving {
    pub(crate) action: ActionId,
    pub(crate) transfer: u64,
    pub(crate) started: Time,
    pub(crate) way: HostPair,
    pub(crate) holder: NodeId,
    /// `None`: it is being written.
    pub(crate) reader: Option<NodeId>,
    pub(crate) datum: DatumId,
    pub(crate) value: StoredValue,
}

impl Storages {
    pub(crate) fn new(hosts: BTreeMap<HostId, HostId>) -> Storages {
        Storages { hosts, ..Storages::default() }
    }

    /// What servers of a host share.
    pub(crate) fn of(&self, host: HostId) -> Option<StorageId> {
        self.hosts.get(&host).map(|host| StorageId(host.0.into()))
    }
}

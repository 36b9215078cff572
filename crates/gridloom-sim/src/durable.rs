//! Durable data: what a server writes to its disk is there when it starts again under its name.
//!
//! Writing takes size by the rate of the host's disk, as if nothing else used that.

use std::collections::BTreeMap;

use gridloom_base::time::SECOND_NS;
use gridloom_base::{DatumId, Named, Time};
use gridloom_platform::HostId;

use crate::hosts::DISK_RATE_DEFAULT;
use crate::store::StoredValue;

/// The disks of all servers, by name.
#[derive(Debug, Default)]
pub(crate) struct Durable {
    /// Bytes per second; others have the default.
    rates: BTreeMap<HostId, f64>,
    disks: BTreeMap<String, BTreeMap<DatumId, Written>>,
}

#[derive(Clone, Debug)]
struct Written {
    /// From then on it is whole.
    whole_at: Time,
    named: Named,
    value: StoredValue,
}

impl Durable {
    pub(crate) fn new(rates: BTreeMap<HostId, f64>) -> Durable {
        Durable { rates, disks: BTreeMap::new() }
    }

    /// A server begins to write a datum. Gives when it is whole.
    pub(crate) fn write(
        &mut self,
        now: Time,
        (host, server): (HostId, &str),
        named: Named,
        value: StoredValue,
    ) -> Time {
        let rate = self.rates.get(&host).copied().unwrap_or(DISK_RATE_DEFAULT);
        let ns = value.meta.size_bytes() as f64 / rate * SECOND_NS as f64;
        let whole_at = now + ns.ceil() as u64;
        self.disks.entry(server.into()).or_default().insert(named.datum, Written { whole_at, named, value });
        whole_at
    }

    /// A datum is not to outlive that server.
    pub(crate) fn remove(&mut self, server: &str, datum: DatumId) {
        self.disks.get_mut(server).map(|disk| disk.remove(&datum));
    }

    /// What is whole on the disk of a server that starts. What is not is gone.
    pub(crate) fn start(&mut self, now: Time, server: &str) -> Vec<(Named, StoredValue)> {
        let Some(disk) = self.disks.get_mut(server) else { return Vec::new() };
        disk.retain(|_, written| written.whole_at <= now);
        disk.values().map(|written| (written.named.clone(), written.value.clone())).collect()
    }
}

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
    /// Disks that are full, and until when.
    full: BTreeMap<String, Time>,
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
        Durable { rates, disks: BTreeMap::new(), full: BTreeMap::new() }
    }

    /// Nothing can be written on a server's disk until then.
    pub(crate) fn fill(&mut self, server: &str, until: Time) {
        let known = self.full.entry(server.into()).or_default();
        *known = until.max(*known);
    }

    /// A server begins to write a datum. Gives when it is whole, or why it cannot be written.
    pub(crate) fn write(
        &mut self,
        now: Time,
        (host, server): (HostId, &str),
        named: Named,
        value: StoredValue,
    ) -> Result<Time, String> {
        if self.full.get(server).is_some_and(|until| *until > now) {
            return Err(format!("the disk of host {} is full", host.0));
        }
        let rate = self.rates.get(&host).copied().unwrap_or(DISK_RATE_DEFAULT);
        let ns = value.meta.size_bytes() as f64 / rate * SECOND_NS as f64;
        let whole_at = now + ns.ceil() as u64;
        self.disks.entry(server.into()).or_default().insert(named.datum, Written { whole_at, named, value });
        Ok(whole_at)
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

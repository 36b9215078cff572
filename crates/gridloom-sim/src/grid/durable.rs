//! Durable data: data that a server writes to its disk are still there when the server restarts under its name.
//!
//! Writing takes size divided by the rate of the host's disk, as if nothing else used the disk. Removals take place one
//! after the other, each after [`REMOVAL_NS`], and those that have not begun when the server is killed do not take
//! place.

use std::collections::BTreeMap;

use gridloom_base::time::{MILLISECOND_NS, SECOND_NS};
use gridloom_base::{DatumId, NamedDatum, Time};
use gridloom_core::node::message::DamagedVersion;
use gridloom_platform::HostId;

use crate::hosts::DISK_RATE_DEFAULT;
use crate::store::StoredValue;

/// The disks of all servers, by name.
#[derive(Debug, Default)]
pub(crate) struct Durable {
    /// Bytes per second; hosts not listed have the default rate.
    rates: BTreeMap<HostId, f64>,
    disks: BTreeMap<String, BTreeMap<DatumId, Written>>,
    /// Disks that are full, with the time until which they are.
    full: BTreeMap<String, Time>,
    /// Time at which all removals so far are complete.
    removed_by: BTreeMap<String, Time>,
}

/// Duration of a removal: two writes that reach the disk, as of a database.
const REMOVAL_NS: u64 = 2 * MILLISECOND_NS;

#[derive(Clone, Debug)]
struct Written {
    /// When the datum is completely written.
    complete_at: Time,
    /// When the datum is removed.
    removed_at: Time,
    named: NamedDatum,
    value: StoredValue,
    is_damaged: bool,
}

impl Durable {
    pub(crate) fn new(rates: BTreeMap<HostId, f64>) -> Durable {
        Durable { rates, disks: BTreeMap::new(), full: BTreeMap::new(), removed_by: BTreeMap::new() }
    }

    /// Makes a server's disk full until the given time.
    pub(crate) fn fill(&mut self, server: &str, until: Time) {
        let known = self.full.entry(server.into()).or_default();
        *known = until.max(*known);
    }

    /// Starts writing a datum. Returns the time at which it is complete, or the reason why it cannot be written.
    pub(crate) fn write(
        &mut self,
        now: Time,
        (host, server): (HostId, &str),
        named: NamedDatum,
        value: StoredValue,
    ) -> Result<Time, String> {
        if self.full.get(server).is_some_and(|until| *until > now) {
            return Err(format!("the disk of host {} is full", host.0));
        }
        let rate = self.rates.get(&host).copied().unwrap_or(DISK_RATE_DEFAULT);
        let ns = value.meta.size_bytes() as f64 / rate * SECOND_NS as f64;
        let whole_at = now + ns.ceil() as u64;
        self.disks.entry(server.into()).or_default().insert(
            named.datum,
            Written { complete_at: whole_at, removed_at: Time::NEVER, named, value, is_damaged: false },
        );
        Ok(whole_at)
    }

    /// Damages all data on a server's disk.
    pub(crate) fn damage(&mut self, server: &str) {
        self.disks.entry(server.into()).or_default().values_mut().for_each(|written| written.is_damaged = true);
    }

    /// Replaces the description of a datum, if it is on disk.
    pub(crate) fn update(&mut self, server: &str, named: NamedDatum) {
        if let Some(written) = self.disks.get_mut(server).and_then(|disk| disk.get_mut(&named.datum)) {
            written.named = named;
        }
    }

    /// Begins to remove a datum that must not outlive the server. Removals follow the writes that have begun before.
    pub(crate) fn remove(&mut self, now: Time, server: &str, datum: DatumId) {
        let Some(disk) = self.disks.get_mut(server) else { return };
        disk.retain(|_, written| written.removed_at > now);
        let Some(written) = disk.get_mut(&datum) else { return };
        if written.removed_at == Time::NEVER {
            let earlier = self.removed_by.get(server).copied().unwrap_or(now);
            written.removed_at = now.max(earlier).max(written.complete_at) + REMOVAL_NS;
            self.removed_by.insert(server.into(), written.removed_at);
        }
    }

    /// Returns the time at which all removals so far are complete.
    pub(crate) fn removed_by(&self, now: Time, server: &str) -> Time {
        self.removed_by.get(server).map_or(now, |until| now.max(*until))
    }

    /// Ends the work of a disk at this time, because its server is killed.
    pub(crate) fn kill(&mut self, now: Time, server: &str) {
        self.removed_by.remove(server);
        let Some(disk) = self.disks.get_mut(server) else { return };
        disk.retain(|_, written| written.complete_at <= now && written.removed_at > now);
        disk.values_mut().for_each(|written| written.removed_at = Time::NEVER);
    }

    /// Returns the complete and the damaged data on the disk of a starting server. Incomplete data are deleted.
    pub(crate) fn start(&mut self, now: Time, server: &str) -> (Vec<(NamedDatum, StoredValue)>, Vec<DamagedVersion>) {
        self.kill(now, server);
        let Some(disk) = self.disks.get_mut(server) else { return Default::default() };
        let (damaged, intact): (Vec<&Written>, Vec<_>) = disk.values().partition(|written| written.is_damaged);
        let damage = |written: &Written| DamagedVersion { named: written.named.clone(), why: "it was changed".into() };
        let found = intact.into_iter().map(|written| (written.named.clone(), written.value.clone()));
        (found.collect(), damaged.into_iter().map(damage).collect())
    }
}

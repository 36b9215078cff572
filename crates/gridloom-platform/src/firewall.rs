//! Hosts behind firewalls: they can connect to other hosts, but only hosts behind the same firewall can connect to them.
//!
//! Two hosts of which at least one accepts connections exchange data directly, whichever of them connects. If neither
//! does, the data pass through the relay of the receiver's firewall.

use std::collections::BTreeMap;

use crate::element::HostId;

/// The firewalls of a platform.
#[derive(Clone, Debug, Default)]
pub(crate) struct Firewalls {
    /// The relay of each firewall.
    relays: Vec<HostId>,
    /// Index of the firewall that each host is behind.
    behind: BTreeMap<HostId, usize>,
}

impl Firewalls {
    /// Adds a firewall.
    ///
    /// # Errors
    /// The first of its hosts that is behind another firewall.
    pub(crate) fn add(&mut self, hosts: &[HostId], relay: HostId) -> Result<(), HostId> {
        if let Some(taken) = hosts.iter().find(|host| self.behind.contains_key(host)) {
            return Err(*taken);
        }
        self.behind.extend(hosts.iter().map(|host| (*host, self.relays.len())));
        self.relays.push(relay);
        Ok(())
    }

    /// Returns a relay that is behind a firewall itself, so that nobody could connect to it.
    pub(crate) fn hidden_relay(&self) -> Option<HostId> {
        self.relays.iter().copied().find(|relay| self.behind.contains_key(relay))
    }

    /// Returns the relay through which data pass from `src` to `dst`, if neither can connect to the other.
    pub(crate) fn relay(&self, src: HostId, dst: HostId) -> Option<HostId> {
        let (from, to) = (self.behind.get(&src)?, self.behind.get(&dst)?);
        (from != to).then(|| self.relays[*to])
    }

    /// Returns the relay of each firewall and the hosts behind it.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (HostId, Vec<HostId>)> + '_ {
        self.relays.iter().enumerate().map(|(number, relay)| {
            let hosts = self.behind.iter().filter(|(_, behind)| **behind == number).map(|(host, _)| *host);
            (*relay, hosts.collect())
        })
    }
}

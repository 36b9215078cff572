//! Applies the platform's profiles while programs run. Times count from the moment when the testbed is up and its
//! program starts.
//!
//! | profile | effect |
//! |---|---|
//! | bandwidth, latency of a link | everything sent from then on has the new value; a bandwidth of 0 loses all packets |
//! | state of a link | *off*: it is cut; *on*: it is restored |
//! | speed of a host | its servers' quota of processor time changes, where speeds are emulated by quota |
//!
//! States of hosts, and speeds without a quota, are not applied; [`not_followed`] lists them. If the testbed runs
//! slower than the platform, the times of the changes are multiplied by the same factor. A link that was cut manually
//! is restored by its profile, and vice versa: the last change wins.

use std::thread;
use std::time::{Duration, Instant};

use gridloom_flow::{HostIndex, LinkIndex, Quantity, Timeline};
use gridloom_platform::{Platform, ProfileKind, ProfileTarget};

use crate::model::Ns;
use crate::model::topology::Topology;

/// Changes closer than this are made together.
const STEP: Duration = Duration::from_millis(1);

/// A change of a link, by its number in the topology, or of a host, by its number in the platform.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Change {
    /// New bandwidth, bytes per second.
    Bandwidth(usize, f64),
    /// New latency, nanoseconds.
    Latency(usize, Ns),
    /// True if the link carries traffic.
    State(usize, bool),
    /// Factor of a host's speed.
    Speed(usize, f64),
}

/// The changes of all profiles, in chronological order.
#[derive(Debug)]
pub struct ProfileSchedule {
    timeline: Timeline,
    slower: f64,
}

impl ProfileSchedule {
    /// Collects the changes of links that some route crosses, and of hosts for which `has_quota` is true.
    pub fn new(
        platform: &Platform,
        topology: &Topology,
        slower: f64,
        has_quota: impl Fn(usize) -> bool,
    ) -> ProfileSchedule {
        let mut timeline = Timeline::new();
        for profile in platform.profiles() {
            let quantity = match (profile.target, profile.kind) {
                (ProfileTarget::Host(host), ProfileKind::Speed) if has_quota(host.0 as usize) => {
                    Quantity::Speed(HostIndex(host.0))
                }
                (ProfileTarget::Host(_), _) => continue,
                (ProfileTarget::Link(link), kind) => {
                    let Some(place) = topology.ids.iter().position(|id| *id == link) else { continue };
                    let place = LinkIndex(place as u32);
                    match kind {
                        ProfileKind::State => Quantity::LinkState(place),
                        ProfileKind::Latency => Quantity::Latency(place),
                        _ => Quantity::Bandwidth(place),
                    }
                }
            };
            timeline.add(quantity, profile.events.clone(), profile.loop_after_s);
        }
        ProfileSchedule { timeline, slower }
    }

    /// Returns the time of the next change, in seconds from the start.
    pub fn next_s(&self) -> Option<f64> {
        self.timeline.next_s().map(|next_s| next_s * self.slower)
    }

    /// Takes the next change that is due at `elapsed_s` seconds after the start.
    pub fn take_due(&mut self, elapsed_s: f64) -> Option<Change> {
        let (quantity, value) = self.timeline.take_due(elapsed_s / self.slower)?;
        Some(match quantity {
            Quantity::Bandwidth(link) => Change::Bandwidth(link.0 as usize, value / self.slower),
            Quantity::Latency(link) => Change::Latency(link.0 as usize, value * 1e9 * self.slower),
            Quantity::LinkState(link) => Change::State(link.0 as usize, value > 0.0),
            Quantity::Speed(host) => Change::Speed(host.0 as usize, value),
            Quantity::HostState(_) => unreachable!("states of hosts are not applied"),
        })
    }

    /// Applies the changes when they are due, and returns after the last one.
    pub fn follow(mut self, mut change: impl FnMut(Change)) {
        let began = Instant::now();
        while let Some(next_s) = self.next_s() {
            // A time beyond the range of the clock is never reached.
            let Some(next) = Duration::try_from_secs_f64(next_s).ok().and_then(|next| began.checked_add(next)) else {
                return;
            };
            thread::sleep(next.saturating_duration_since(Instant::now()).max(STEP));
            let elapsed_s = began.elapsed().as_secs_f64();
            while let Some(due) = self.take_due(elapsed_s) {
                change(due);
            }
        }
    }
}

/// Lists the profiles that a testbed does not apply, except those of hosts for which `has_quota` is true.
pub fn not_followed(platform: &Platform, has_quota: impl Fn(usize) -> bool) -> Vec<String> {
    let named = platform.profiles().iter().filter_map(|profile| match (profile.target, profile.kind) {
        (ProfileTarget::Link(_), _) => None,
        (ProfileTarget::Host(host), ProfileKind::Speed) if has_quota(host.0 as usize) => None,
        (ProfileTarget::Host(host), kind) => {
            let what = if kind == ProfileKind::State { "state" } else { "speed" };
            Some(format!("{what} of host '{}'", platform.hosts()[host.0 as usize].name))
        }
    });
    let mut named: Vec<String> = named.collect();
    named.dedup();
    named
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::topology::Tuning;

    const PLATFORM: &str = "[[host]]\nname = 'a'\nspeed = 1\n[[host]]\nname = 'b'\nspeed = 1\n\
        [[link]]\nname = 'unused'\nbandwidth = 1\n[[link]]\nname = 'l'\nbandwidth = '8Mbps'\nlatency = '1ms'\n\
        [[route]]\nfrom = 'a'\nto = 'b'\nlinks = ['l']\n\
        [[profile]]\nlink = 'unused'\nkind = 'bandwidth'\nevents = [[0.5, 1]]\n\
        [[profile]]\nlink = 'l'\nkind = 'bandwidth'\nevents = [[1, '4Mbps'], [2, '8Mbps']]\nloop_after = 1\n\
        [[profile]]\nlink = 'l'\nkind = 'latency'\nevents = [[1.5, '2ms']]\n\
        [[profile]]\nlink = 'l'\nkind = 'state'\nevents = [[3, 0]]\n\
        [[profile]]\nhost = 'a'\nkind = 'speed'\nevents = [[0.1, 0.5]]\n\
        [[profile]]\nhost = 'b'\nkind = 'speed'\nevents = [[0.2, 0.5]]\n\
        [[profile]]\nhost = 'b'\nkind = 'state'\nevents = [[0.2, 0]]\n";

    #[test]
    fn changes_come_at_their_dates_and_what_cannot_be_followed_is_named() {
        let platform = Platform::parse(PLATFORM, "p.toml", &mut |name| Err(name.into())).unwrap();
        let topology = Topology::new(&platform, &Tuning { slower: 2.0, ..Tuning::default() }).unwrap();
        let mut course = ProfileSchedule::new(&platform, &topology, 2.0, |host| host == 0);
        let mut seen = Vec::new();
        while let Some(next_s) = course.next_s().filter(|next_s| *next_s < 9.0) {
            assert_eq!(course.take_due(next_s - 1e-6), None);
            while let Some(change) = course.take_due(next_s) {
                seen.push((next_s, change));
            }
        }
        let expected = [
            (0.2, Change::Speed(0, 0.5)),
            (2.0, Change::Bandwidth(0, 0.25e6)),
            (3.0, Change::Latency(0, 4e6)),
            (4.0, Change::Bandwidth(0, 0.5e6)),
            (6.0, Change::State(0, false)),
            (8.0, Change::Bandwidth(0, 0.25e6)),
        ];
        assert_eq!(seen, expected);
        assert_eq!(not_followed(&platform, |host| host == 0), ["speed of host 'b'", "state of host 'b'"]);
    }
}

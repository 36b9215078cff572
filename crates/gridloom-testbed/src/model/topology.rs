//! A platform as an emulated network: the links that some route crosses, and a path for each pair of hosts.
//!
//! A flow is marked when its waiting bytes reach the bandwidth-delay product of the longest round trip that crosses
//! the link, so that one TCP flow can fill it, and waiting hardly more than doubles that round trip. The threshold is
//! never less than what the link sends in [`QUEUE_S_MIN`] (of that, at most [`QUEUE_BYTES_OF_TIME_MAX`]), nor than
//! [`QUEUE_BYTES_MIN`]. The queue holds [`QUEUE_OF_MARK`] times as much: the data that arrive until the sender has
//! received the mark, even if it doubles its rate each round trip.
//!
//! Bandwidth, latency and sharing of links, and routes, are taken from the platform, as they are before any profile
//! changes them. Traffic within a host does not cross the emulated network.

use gridloom_flow::solver::{Policy, Solver};
use gridloom_platform::{HostId, LinkId, Platform, Sharing};
use serde::{Deserialize, Serialize};

use super::Ns;
use super::link::{Link, LinkShape};
use super::network::{Network, Path};
use crate::error::Error;

/// Maximum number of hosts. A machine cannot run processes for more, and routes are stored for each pair.
pub const HOSTS_MAX: usize = 64;
/// Minimum queue size, for a burst of a few packets on a path of any length: the first window of a TCP flow, and a train.
pub const QUEUE_BYTES_MIN: f64 = 96.0 * 1024.0;
/// Minimum queue time, for the trains of two hosts that send at once, and for moments in which a host's processes are
/// not scheduled.
pub const QUEUE_S_MIN: f64 = 2e-3;
/// Limit of the queue size that results from [`QUEUE_S_MIN`]: switches of fast links have no more.
pub const QUEUE_BYTES_OF_TIME_MAX: f64 = 1024.0 * 1024.0;
/// Ratio of the queue size to the marking threshold; see the module documentation.
pub const QUEUE_OF_MARK: f64 = 4.0;
/// Maximum queue size, so that a queue cannot take all memory on a long and fast path.
pub const QUEUE_BYTES_MAX: f64 = 64.0 * 1024.0 * 1024.0;

/// Settings that the platform file does not have.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tuning {
    /// Factor by which everything is slower: bandwidths are divided by it, latencies multiplied.
    pub slower: f64,
    /// Jitter of every link, as a fraction of its latency.
    pub jitter: f64,
    /// Seed of the jitter.
    pub seed: u64,
}

impl Default for Tuning {
    fn default() -> Tuning {
        Tuning { slower: 1.0, jitter: 0.0, seed: 0 }
    }
}

/// The emulated network of a platform, before anything is sent.
#[derive(Clone, Debug)]
pub struct Topology {
    /// Names of the hosts.
    pub hosts: Vec<String>,
    /// Names of the links that some route crosses.
    pub link_names: Vec<String>,
    /// Their ids in the platform, in the same order.
    pub ids: Vec<LinkId>,
    /// The links, in the same order.
    pub links: Vec<Link>,
    /// Longest round trips that cross them, in seconds.
    round_trips_s: Vec<f64>,
    /// Paths by source times number of hosts plus destination; `None` from a host to itself and where there is no route.
    pub paths: Vec<Option<Path>>,
}

impl Topology {
    /// Creates the network of all hosts of the platform.
    ///
    /// # Errors
    /// If there are more than [`HOSTS_MAX`] hosts, or a link on a route has no bandwidth.
    pub fn new(platform: &Platform, tuning: &Tuning) -> Result<Topology, Error> {
        let hosts = platform.hosts();
        if hosts.len() > HOSTS_MAX {
            return Err(Error::Platform(format!(
                "the platform has {} hosts; a testbed on one machine has at most {HOSTS_MAX}: simulate it instead",
                hosts.len()
            )));
        }
        let count = hosts.len();
        let mut place: Vec<Option<usize>> = vec![None; platform.links().len()];
        let mut used: Vec<LinkId> = Vec::new();
        let mut paths: Vec<Option<Path>> = vec![None; count * count];
        for (index, path) in paths.iter_mut().enumerate() {
            let (src, dst) = (index / count, index % count);
            let Ok(route) = platform.route(HostId(src as u32), HostId(dst as u32)) else { continue };
            if src == dst {
                continue;
            }
            let own: f64 = route.links.iter().map(|link| platform.links()[link.0 as usize].latency_s).sum();
            let links = route.links.iter().map(|link| {
                *place[link.0 as usize].get_or_insert_with(|| {
                    used.push(*link);
                    used.len() - 1
                })
            });
            *path = Some(Path {
                links: links.collect(),
                extra_ns: ((route.latency_s - own) * 1e9 * tuning.slower).max(0.0),
            });
        }
        let mut topology = Topology {
            hosts: hosts.iter().map(|host| host.name.clone()).collect(),
            link_names: Vec::new(),
            ids: Vec::new(),
            links: Vec::new(),
            round_trips_s: Vec::new(),
            paths,
        };
        topology.round_trips_s = topology.longest_round_trips(platform, &used, tuning.slower);
        for (number, id) in used.iter().enumerate() {
            let link = &platform.links()[id.0 as usize];
            if link.bandwidth <= 0.0 {
                return Err(Error::Platform(format!(
                    "link '{}' has a bandwidth of 0, so nothing can cross it",
                    link.name
                )));
            }
            let (latency_ns, bandwidth) = (link.latency_s * 1e9 * tuning.slower, link.bandwidth / tuning.slower);
            let mark_bytes = topology.mark_bytes(number, bandwidth);
            let shape = LinkShape {
                bandwidth,
                latency_ns,
                jitter_ns: latency_ns * tuning.jitter,
                queue_bytes: mark_bytes * QUEUE_OF_MARK,
                mark_bytes,
                sharing: link.sharing,
            };
            topology.link_names.push(link.name.clone());
            topology.ids.push(*id);
            topology.links.push(Link::new(shape, tuning.seed.wrapping_mul(1_000_003).wrapping_add(number as u64)));
        }
        Ok(topology)
    }

    /// Returns the marking threshold of a flow at the link, for this bandwidth.
    pub fn mark_bytes(&self, link: usize, bandwidth: f64) -> f64 {
        (bandwidth * self.round_trips_s[link])
            .max((bandwidth * QUEUE_S_MIN).min(QUEUE_BYTES_OF_TIME_MAX))
            .clamp(QUEUE_BYTES_MIN, QUEUE_BYTES_MAX / QUEUE_OF_MARK)
    }

    /// Returns the idle network.
    pub fn network<P>(&self) -> Network<P> {
        Network::new(self.links.clone(), self.hosts.len(), self.paths.clone())
    }

    /// Returns the links of this name; `NAME` means both directions of a split-duplex link.
    pub fn links_named(&self, name: &str) -> Vec<usize> {
        let is_meant = |own: &str| {
            own == name || own.strip_prefix(name).is_some_and(|direction| matches!(direction, "_UP" | "_DOWN"))
        };
        (0..self.link_names.len()).filter(|link| is_meant(&self.link_names[*link])).collect()
    }

    /// Returns the lowest bandwidth on the path, in bytes per second; `None` without a route.
    pub fn bandwidth(&self, src: usize, dst: usize) -> Option<f64> {
        let path = self.paths[src * self.hosts.len() + dst].as_ref()?;
        Some(path.links.iter().map(|link| self.links[*link].shape().bandwidth).fold(f64::INFINITY, f64::min))
    }

    /// Returns the delay of the path, without waiting; `None` without a route.
    pub fn latency_ns(&self, src: usize, dst: usize) -> Option<Ns> {
        let path = self.paths[src * self.hosts.len() + dst].as_ref()?;
        Some(path.extra_ns + path.links.iter().map(|link| self.links[*link].shape().latency_ns).sum::<Ns>())
    }

    /// Returns the time that a packet of this size takes on the path, without waiting.
    pub fn packet_ns(&self, src: usize, dst: usize, bytes: f64) -> Option<Ns> {
        let path = self.paths[src * self.hosts.len() + dst].as_ref()?;
        let sending: f64 = path.links.iter().map(|link| bytes * 1e9 / self.links[*link].shape().bandwidth).sum();
        Some(sending + self.latency_ns(src, dst)?)
    }

    /// Returns the max-min fair rates of connections between these pairs, in bytes per second.
    pub fn fair_rates(&self, pairs: &[(usize, usize)]) -> Vec<f64> {
        let mut solver = Solver::new();
        let constraints: Vec<_> = self
            .links
            .iter()
            .map(|link| {
                let policy = match link.shape().sharing {
                    Sharing::Shared => Policy::Shared,
                    Sharing::Fatpipe => Policy::FatPipe,
                };
                solver.add_constraint(link.shape().bandwidth, policy)
            })
            .collect();
        let flows: Vec<_> = pairs
            .iter()
            .map(|(src, dst)| {
                let crossed = self.paths[src * self.hosts.len() + dst].iter().flat_map(|path| &path.links);
                solver.add_variable(1.0, 0.0, crossed.map(|link| (constraints[*link], 1.0)))
            })
            .collect();
        solver.solve();
        flows.into_iter().map(|flow| solver.value(flow)).collect()
    }

    fn longest_round_trips(&self, platform: &Platform, used: &[LinkId], slower: f64) -> Vec<f64> {
        let count = self.hosts.len();
        let latency = |src: usize, dst: usize| {
            let path = self.paths[src * count + dst].as_ref()?;
            let links = path.links.iter().map(|link| platform.links()[used[*link].0 as usize].latency_s);
            Some(links.sum::<f64>() * slower + path.extra_ns / 1e9)
        };
        let mut longest = vec![0.0_f64; used.len()];
        for (index, path) in self.paths.iter().enumerate() {
            let (Some(path), (src, dst)) = (path, (index / count, index % count)) else { continue };
            let Some(there) = latency(src, dst) else { continue };
            let round_trip = there + latency(dst, src).unwrap_or(there);
            for link in &path.links {
                longest[*link] = longest[*link].max(round_trip);
            }
        }
        longest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO_SITES: &str = include_str!("../../../../examples/two-sites.toml");

    fn topology(text: &str) -> Topology {
        let platform = Platform::parse(text, "test.toml", &mut |name| Err(name.into())).unwrap();
        Topology::new(&platform, &Tuning::default()).unwrap()
    }

    #[test]
    fn two_sites_share_their_wide_link() {
        let topology = topology(TWO_SITES);
        assert_eq!(topology.hosts, ["laptop", "desk", "cluster-1", "cluster-2"]);
        let wan = topology.links_named("wan")[0];
        let over_wan = |src: usize, dst: usize| {
            topology.paths[src * 4 + dst].as_ref().is_some_and(|path| path.links.contains(&wan))
        };
        assert!(over_wan(0, 2) && over_wan(3, 1) && !over_wan(0, 1) && !over_wan(2, 3));
        assert_eq!(topology.links[wan].shape().sharing, Sharing::Shared);
        assert_eq!(topology.bandwidth(0, 2), Some(50e6 / 8.0));
        let latency = topology.latency_ns(0, 2).unwrap();
        assert!((latency - 20.15e6).abs() < 1.0, "{latency}");
        // 50 Mbit/s for 40.3 ms.
        let mark = topology.links[wan].shape().mark_bytes;
        assert!((mark - 50e6 / 8.0 * 0.0403).abs() < 1.0, "{mark}");
        assert!(topology.paths[5].is_none(), "nothing of a host to itself crosses the network");
    }

    #[test]
    fn a_name_means_both_directions() {
        let text = "<platform version=\"4.1\"><zone id=\"z\" routing=\"Full\"><host id=\"a\" speed=\"1Gf\"/>\
            <host id=\"b\" speed=\"1Gf\"/><link id=\"l\" bandwidth=\"1MBps\" latency=\"1ms\" \
            sharing_policy=\"SPLITDUPLEX\"/><route src=\"a\" dst=\"b\"><link_ctn id=\"l\" direction=\"UP\"/></route>\
            </zone></platform>";
        let topology = topology(text);
        assert_eq!(topology.links_named("l").len(), 2);
        assert_eq!(topology.links_named("l_UP").len(), 1);
        assert!(topology.links_named("x").is_empty());
        assert_ne!(topology.paths[1], topology.paths[2], "each direction has a queue of its own");
    }
}

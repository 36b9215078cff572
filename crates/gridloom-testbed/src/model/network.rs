//! All links and routes, and the packets under way: a queue of events in the order of time.
//!
//! A train crosses the links of its route one after the other, and each link sees trains in the order in which they
//! reach it, so that flows of different routes share a link as they would.
//!
//! **Invariant:** what is offered comes out once, of [`Network::advance`], or is dropped once. Ties are broken by the
//! order in which trains were offered.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use super::Ns;
use super::link::{Link, Passage, Train};

/// The way from one host to another.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Path {
    /// Links in order, by their place in [`Network::links`].
    pub links: Vec<usize>,
    /// Delay beside that of the links: the distance in a zone with coordinates.
    pub extra_ns: Ns,
}

/// Links, routes, and the trains under way with what they carry.
#[derive(Debug)]
pub struct Network<P> {
    links: Vec<Link>,
    hosts: usize,
    /// By source and destination; `None` where the platform has no route.
    paths: Vec<Option<Path>>,
    events: BinaryHeap<Reverse<Event<P>>>,
    serial: u64,
    unroutable: u64,
}

#[derive(Debug)]
struct Event<P> {
    at: Ns,
    serial: u64,
    /// How many links of the route are behind it.
    hop: usize,
    path: usize,
    train: Train,
    passage: Passage,
    cargo: P,
}

impl<P> Network<P> {
    /// A network of so many hosts; `paths` by source times `hosts` plus destination.
    pub fn new(links: Vec<Link>, hosts: usize, paths: Vec<Option<Path>>) -> Network<P> {
        assert_eq!(paths.len(), hosts * hosts, "one path for each pair");
        let known = |path: &Path| path.links.iter().all(|link| *link < links.len());
        assert!(paths.iter().flatten().all(known), "paths name links that exist");
        Network { links, hosts, paths, events: BinaryHeap::new(), serial: 0, unroutable: 0 }
    }

    /// The links.
    pub fn links(&self) -> &[Link] {
        &self.links
    }

    /// A link, to be changed.
    pub fn link_mut(&mut self, link: usize) -> &mut Link {
        &mut self.links[link]
    }

    /// Trains that no route could take.
    pub fn unroutable(&self) -> u64 {
        self.unroutable
    }

    /// A train leaves host `src` for host `dst`.
    pub fn offer(&mut self, now: Ns, src: usize, dst: usize, train: Train, cargo: P) {
        let path = src * self.hosts + dst;
        if self.paths[path].is_none() {
            self.unroutable += 1;
            return;
        }
        let passage = Passage { head: now, tail: now };
        self.serial += 1;
        let serial = self.serial;
        self.events.push(Reverse(Event { at: now, serial, hop: 0, path, train, passage, cargo }));
    }

    /// When something happens next.
    pub fn next_due(&self) -> Option<Ns> {
        self.events.peek().map(|Reverse(event)| event.at)
    }

    /// Lets time pass until `now`: `deliver` gets host and cargo of all that arrives.
    pub fn advance(&mut self, now: Ns, mut deliver: impl FnMut(usize, P, Ns)) {
        while self.next_due().is_some_and(|due| due <= now) {
            let Reverse(mut event) = self.events.pop().expect("one is due");
            let path = self.paths[event.path].as_ref().expect("offered on a path");
            if event.hop > path.links.len() {
                deliver(event.path % self.hosts, event.cargo, event.at);
                continue;
            }
            if let Some(link) = path.links.get(event.hop) {
                let Some(passage) = self.links[*link].pass(&event.train, event.passage) else { continue };
                event.passage = passage;
            }
            event.hop += 1;
            event.at = event.passage.head;
            // Behind the last link, the whole train is handed over when its tail is there.
            if event.hop >= path.links.len() {
                event.hop = path.links.len() + 1;
                event.at = event.passage.tail + path.extra_ns;
            }
            self.events.push(Reverse(event));
        }
    }

    /// Trains under way.
    pub fn under_way(&self) -> usize {
        self.events.len()
    }
}

impl<P> PartialEq for Event<P> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<P> Eq for Event<P> {}

impl<P> PartialOrd for Event<P> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<P> Ord for Event<P> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.at.total_cmp(&other.at).then(self.serial.cmp(&other.serial))
    }
}

#[cfg(test)]
mod tests {
    use gridloom_core::platform::Sharing;

    use super::*;
    use crate::model::link::LinkShape;

    fn link(bandwidth: f64, latency_ns: Ns) -> Link {
        let sharing = Sharing::Shared;
        Link::new(LinkShape { bandwidth, latency_ns, jitter_ns: 0.0, queue_bytes: 1e9, sharing }, 1)
    }

    fn path(links: &[usize]) -> Option<Path> {
        Some(Path { links: links.to_vec(), extra_ns: 0.0 })
    }

    /// Hosts 0 and 1 reach host 2 over links of their own, far and near, and one that they share.
    fn two_sources() -> Network<u32> {
        let links = vec![link(1e9, 10e6), link(1e9, 1e6), link(1e6, 0.0)];
        let mut paths = vec![None; 9];
        paths[2] = path(&[0, 2]);
        paths[5] = path(&[1, 2]);
        paths[6] = path(&[2, 0]);
        Network::new(links, 3, paths)
    }

    fn packet(flow: u64) -> Train {
        Train { bytes: 1000.0, packet_bytes: 1000.0, flow }
    }

    fn all<P>(network: &mut Network<P>) -> Vec<(usize, P, Ns)> {
        let mut out = Vec::new();
        network.advance(1e18, |host, cargo, at| out.push((host, cargo, at)));
        out
    }

    #[test]
    fn a_shared_link_serves_in_the_order_of_arrival_there() {
        let mut network = two_sources();
        network.offer(0.0, 0, 2, packet(1), 10);
        network.offer(5.0, 1, 2, packet(2), 11);
        // The second left later and reaches the shared link first.
        assert_eq!(all(&mut network), [(2, 11, 5.0 + 1e3 + 1e6 + 1e6), (2, 10, 1e3 + 10e6 + 1e6)]);
        assert_eq!(network.under_way(), 0);
    }

    #[test]
    fn both_directions_share_a_shared_link() {
        let mut network = two_sources();
        network.offer(0.0, 0, 2, packet(1), 1);
        network.offer(1e3 + 10e6, 2, 0, packet(2), 2);
        let times: Vec<Ns> = all(&mut network).iter().map(|(_, _, at)| *at).collect();
        assert_eq!(times, [1e3 + 11e6, 1e3 + 12e6 + 1e3 + 10e6]);
    }

    #[test]
    fn nothing_comes_before_its_time() {
        let mut network = two_sources();
        network.offer(0.0, 0, 2, packet(1), 1);
        assert_eq!(network.next_due(), Some(0.0));
        let mut count = 0;
        network.advance(11e6, |_, _, _| count += 1);
        assert_eq!((count, network.next_due()), (0, Some(1e3 + 11e6)));
        network.advance(1e3 + 11e6, |_, _, _| count += 1);
        assert_eq!((count, network.next_due()), (1, None));
    }

    #[test]
    fn two_flows_get_half_each() {
        let mut network = two_sources();
        for index in 0..1000 {
            network.offer(0.0, 0, 2, packet(1), index);
            network.offer(9e6, 1, 2, packet(2), index);
        }
        let out = all(&mut network);
        let half = &out[..1000];
        let first: usize = half.iter().filter(|(_, cargo, _)| *cargo < 500).count();
        assert!((990..=1000).contains(&first), "{first}");
        assert_eq!(out.len(), 2000);
        assert_eq!(network.links()[2].counters().bytes, 2e6);
    }

    #[test]
    fn without_a_route_it_is_counted_and_gone() {
        let mut network = two_sources();
        network.offer(0.0, 0, 1, packet(1), 1);
        assert_eq!((network.unroutable(), network.under_way()), (1, 0));
    }

    #[test]
    fn a_cut_link_stops_what_has_to_cross_it() {
        let mut network = two_sources();
        network.link_mut(2).set_up(false);
        network.offer(0.0, 0, 2, packet(1), 1);
        assert!(all(&mut network).is_empty());
        assert_eq!(network.links()[2].counters().dropped_cut, 1);
    }
}

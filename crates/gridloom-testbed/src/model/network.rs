//! All links and routes, and the packets in flight: an event queue in the order of time.
//!
//! A train crosses the links of its route one after another. Each link receives trains in the order in which they
//! reach it and serves their flows in turn, so that flows of different routes share a link realistically.
//!
//! **Invariant:** each offered train is either delivered once by [`Network::advance`], or dropped once. Ties are
//! broken by the order in which trains were offered.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BinaryHeap};

use gridloom_platform::Sharing;

use super::Ns;
use super::fair::FairQueue;
use super::link::{Link, Train, TrainTimes};

/// The route from one host to another.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Path {
    /// Links in order, as indices into [`Network::links`].
    pub links: Vec<usize>,
    /// Delay in addition to that of the links: the distance in a zone with coordinates.
    pub extra_ns: Ns,
}

/// Links, routes, and the trains in flight with their payloads.
#[derive(Debug)]
pub struct Network<P> {
    links: Vec<Link>,
    /// Waiting trains by link and, on a fatpipe, by flow: there each flow has the whole link.
    queues: BTreeMap<(usize, u64), FairQueue<Flight<P>>>,
    hosts: usize,
    /// Routes by source and destination; `None` where the platform has no route.
    paths: Vec<Option<Path>>,
    events: BinaryHeap<Reverse<Event<P>>>,
    serial: u64,
    unroutable: u64,
}

/// A train that has arrived.
#[derive(Debug, PartialEq)]
pub struct Delivery<P> {
    /// Destination host.
    pub host: usize,
    /// The payload of the train.
    pub cargo: P,
    /// Arrival time of its last packet.
    pub at: Ns,
    /// True if its flow should slow down.
    pub is_marked: bool,
}

/// A train in flight.
#[derive(Debug)]
struct Flight<P> {
    serial: u64,
    /// Number of links already crossed.
    hop: usize,
    path: usize,
    train: Train,
    times: TrainTimes,
    cargo: P,
}

#[derive(Debug)]
struct Event<P> {
    at: Ns,
    serial: u64,
    what: EventKind<P>,
}

#[derive(Debug)]
enum EventKind<P> {
    /// It reaches the next link, or the destination.
    Arrives(Flight<P>),
    /// The link has finished sending, and a train waits in this queue.
    Free(usize, u64),
}

impl<P> Network<P> {
    /// Creates a network of `hosts` hosts; `paths` is indexed by source times `hosts` plus destination.
    pub fn new(links: Vec<Link>, hosts: usize, paths: Vec<Option<Path>>) -> Network<P> {
        assert_eq!(paths.len(), hosts * hosts, "one path for each pair");
        let known = |path: &Path| path.links.iter().all(|link| *link < links.len());
        assert!(paths.iter().flatten().all(known), "paths name links that exist");
        let (queues, events) = (BTreeMap::new(), BinaryHeap::new());
        Network { links, queues, hosts, paths, events, serial: 0, unroutable: 0 }
    }

    /// Returns the links.
    pub fn links(&self) -> &[Link] {
        &self.links
    }

    /// Returns a link for modification.
    pub fn link_mut(&mut self, link: usize) -> &mut Link {
        &mut self.links[link]
    }

    /// Returns the number of trains without a route.
    pub fn unroutable(&self) -> u64 {
        self.unroutable
    }

    /// Sends a train from host `src` to host `dst`.
    pub fn offer(&mut self, now: Ns, src: usize, dst: usize, train: Train, cargo: P) {
        let path = src * self.hosts + dst;
        let Some(way) = &self.paths[path] else {
            self.unroutable += 1;
            return;
        };
        let passage = TrainTimes { head: now, tail: now };
        let first = if way.links.is_empty() { now + way.extra_ns } else { now };
        self.serial += 1;
        let flight = Flight { serial: self.serial, hop: 0, path, train, times: passage, cargo };
        self.events.push(Reverse(Event { at: first, serial: self.serial, what: EventKind::Arrives(flight) }));
    }

    /// Returns the time of the next event.
    pub fn next_due(&self) -> Option<Ns> {
        self.events.peek().map(|Reverse(event)| event.at)
    }

    /// Advances time to `now`; `deliver` receives all arriving trains.
    pub fn advance(&mut self, now: Ns, mut deliver: impl FnMut(Delivery<P>)) {
        while self.next_due().is_some_and(|due| due <= now) {
            let Reverse(Event { at, what, .. }) = self.events.pop().expect("one is due");
            match what {
                EventKind::Free(link, lane) => self.serve(link, lane),
                EventKind::Arrives(flight) => {
                    let path = self.paths[flight.path].as_ref().expect("offered on a path");
                    match path.links.get(flight.hop) {
                        Some(link) => self.arrive(*link, flight),
                        None => deliver(Delivery {
                            host: flight.path % self.hosts,
                            cargo: flight.cargo,
                            at,
                            is_marked: flight.train.is_marked,
                        }),
                    }
                }
            }
        }
    }

    /// Returns the number of trains in flight.
    pub fn in_flight(&self) -> usize {
        let flying = self.events.iter().filter(|Reverse(event)| matches!(event.what, EventKind::Arrives(_))).count();
        flying + self.queues.values().map(FairQueue::len).sum::<usize>()
    }

    fn plan_free(&mut self, at: Ns, number: usize, lane: u64) {
        self.serial += 1;
        self.events.push(Reverse(Event { at, serial: self.serial, what: EventKind::Free(number, lane) }));
    }

    /// Handles a train that reaches a link: it is sent, queued, or dropped.
    fn arrive(&mut self, number: usize, flight: Flight<P>) {
        let link = &mut self.links[number];
        let flow = flight.train.flow;
        let lane = if link.shape().sharing == Sharing::Fatpipe { flow } else { 0 };
        let queue = self.queues.get_mut(&(number, lane));
        if !link.admits(&flight.train, queue.as_ref().map_or(0.0, |queue| queue.bytes_of(flow))) {
            return;
        }
        let free_at = link.free_at(flow);
        match queue {
            Some(queue) => queue.push(flow, flight.train.bytes, flight),
            None if free_at <= flight.times.head => self.send(number, flight, 0.0),
            None => {
                self.queues.entry((number, lane)).or_default().push(flow, flight.train.bytes, flight);
                self.plan_free(free_at, number, lane);
            }
        }
    }

    /// Sends the next waiting train on a free link. A queue exists as long as a train waits in it.
    fn serve(&mut self, number: usize, lane: u64) {
        let queue = self.queues.get_mut(&(number, lane)).expect("something waits");
        let flight = queue.pop().expect("something waits");
        let (flow, waiting_bytes, is_last) = (flight.train.flow, queue.bytes_of(flight.train.flow), queue.is_empty());
        if is_last {
            self.queues.remove(&(number, lane));
        }
        if self.links[number].admits(&flight.train, 0.0) {
            self.send(number, flight, waiting_bytes);
        }
        if !is_last {
            let free_at = self.links[number].free_at(flow);
            self.plan_free(free_at, number, lane);
        }
    }

    fn send(&mut self, number: usize, mut flight: Flight<P>, waiting_bytes: f64) {
        flight.times = self.links[number].send(&mut flight.train, flight.times, waiting_bytes);
        flight.hop += 1;
        let path = self.paths[flight.path].as_ref().expect("offered on a path");
        // After the last link, the whole train is delivered when its tail arrives.
        let is_over = flight.hop == path.links.len();
        let at = if is_over { flight.times.tail + path.extra_ns } else { flight.times.head };
        self.events.push(Reverse(Event { at, serial: flight.serial, what: EventKind::Arrives(flight) }));
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
    use gridloom_platform::Sharing;

    use super::*;
    use crate::model::link::LinkShape;

    fn link(bandwidth: f64, latency_ns: Ns) -> Link {
        let sharing = Sharing::Shared;
        Link::new(LinkShape { bandwidth, latency_ns, jitter_ns: 0.0, queue_bytes: 1e9, mark_bytes: 1e6, sharing }, 1)
    }

    fn path(links: &[usize]) -> Option<Path> {
        Some(Path { links: links.to_vec(), extra_ns: 0.0 })
    }

    /// Hosts 0 and 1 reach host 2 over one link each, far and near, followed by one that they share.
    fn two_sources() -> Network<u32> {
        let links = vec![link(1e9, 10e6), link(1e9, 1e6), link(1e6, 0.0)];
        let mut paths = vec![None; 9];
        paths[2] = path(&[0, 2]);
        paths[5] = path(&[1, 2]);
        paths[6] = path(&[2, 0]);
        Network::new(links, 3, paths)
    }

    fn packet(flow: u64) -> Train {
        Train { bytes: 1000.0, packet_bytes: 1000.0, flow, is_marked: false }
    }

    fn all<P>(network: &mut Network<P>) -> Vec<(usize, P, Ns)> {
        let mut out = Vec::new();
        network.advance(1e18, |delivery| out.push((delivery.host, delivery.cargo, delivery.at)));
        out
    }

    #[test]
    fn a_shared_link_serves_in_the_order_of_arrival_there() {
        let mut network = two_sources();
        network.offer(0.0, 0, 2, packet(1), 10);
        network.offer(5.0, 1, 2, packet(2), 11);
        // The second train left later but reaches the shared link first.
        assert_eq!(all(&mut network), [(2, 11, 5.0 + 1e3 + 1e6 + 1e6), (2, 10, 1e3 + 10e6 + 1e6)]);
        assert_eq!(network.in_flight(), 0);
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
    fn nothing_happens_before_its_time() {
        let mut network = two_sources();
        network.offer(0.0, 0, 2, packet(1), 1);
        assert_eq!(network.next_due(), Some(0.0));
        let mut count = 0;
        network.advance(11e6, |_| count += 1);
        assert_eq!((count, network.next_due()), (0, Some(1e3 + 11e6)));
        network.advance(1e3 + 11e6, |_| count += 1);
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
    fn one_that_sends_little_does_not_wait_behind_the_queue_of_another() {
        let mut network = two_sources();
        for index in 0..100 {
            network.offer(0.0, 0, 2, packet(1), index);
        }
        network.offer(20e6, 0, 2, packet(2), 1000);
        // Its packet waits for the one in service when it arrived, and for nothing else.
        let place = all(&mut network).iter().position(|(_, cargo, _)| *cargo == 1000);
        assert!(place.is_some_and(|place| (20..=22).contains(&place)), "{place:?}");
    }

    #[test]
    fn a_flow_is_notified_before_it_loses_anything() {
        let mut network = two_sources();
        let shape = LinkShape { mark_bytes: 10e3, queue_bytes: 50e3, ..network.links()[2].shape().clone() };
        network.links[2] = Link::new(shape, 1);
        for index in 0..100 {
            network.offer(0.0, 0, 2, packet(1), index);
        }
        network.offer(0.0, 1, 2, packet(2), 1000);
        let mut marked = Vec::new();
        let mut out = 0;
        network.advance(1e18, |delivery| {
            out += 1;
            marked.extend(delivery.is_marked.then_some(delivery.cargo));
        });
        // One train in service, 50 waiting, and the other flow's; more than 10 waited behind 39 of them.
        let counters = network.links()[2].counters();
        assert_eq!((out, counters.dropped_full, counters.marked, marked.len()), (52, 49, 39, 39));
        assert!(!marked.contains(&1000));
    }

    #[test]
    fn without_a_route_it_is_counted_and_gone() {
        let mut network = two_sources();
        network.offer(0.0, 0, 1, packet(1), 1);
        assert_eq!((network.unroutable(), network.in_flight()), (1, 0));
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

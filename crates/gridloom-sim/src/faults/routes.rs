//! Routes between hosts that are cut off.
//!
//! Arrivals on such a route are held, see [`crate::network`]. Bulk cargo and messages in transit start over.

use gridloom_flow::LinkIndex;
use gridloom_platform::HostId;

use crate::network::{Route, is_crossed};
use crate::simulation::Simulation;

impl Simulation {
    /// Blocks all traffic between two hosts, in both directions.
    pub fn cut(&mut self, a: HostId, b: HostId) {
        self.block_route(a, b);
        self.block_route(b, a);
    }

    /// Unblocks traffic between two hosts and releases the held arrivals.
    pub fn heal(&mut self, a: HostId, b: HostId) {
        self.restore((a, b));
        self.restore((b, a));
    }

    /// Blocks all traffic from one host to another. The return path stays open.
    pub fn block_route(&mut self, from: HostId, to: HostId) {
        self.kernel.record(|trace, now| trace.route_changed(now, from.0, to.0, "lost"));
        self.routes.lose((from, to));
        self.links.stop_bulk(&mut self.kernel, |way| way == (from, to));
        self.sockets.stop_messages(&mut self.kernel, &mut self.routes, |way, _| way == (from, to));
    }

    /// Makes a fraction of the data between two hosts, in either direction, arrive with one bit changed.
    pub fn corrupt(&mut self, a: HostId, b: HostId, fraction: f64) {
        for (from, to) in [(a, b), (b, a)] {
            self.kernel.record(|trace, now| trace.route_changed(now, from.0, to.0, "changes data"));
            self.changes.set((from, to), fraction);
        }
    }

    /// Unblocks all traffic everywhere, and ends all data changes.
    pub fn heal_all(&mut self) {
        self.changes.end_all();
        self.routes.lost().into_iter().for_each(|way| self.restore(way));
    }

    fn restore(&mut self, way: Route) {
        if !self.routes.restore(way) {
            return;
        }
        self.kernel.record(|trace, now| trace.route_changed(now, way.0.0, way.1.0, "healed"));
        self.release(way);
        self.links.start_waiting(&mut self.kernel, &mut self.routes, |waiting| waiting == way);
        self.sockets.start_messages(&mut self.kernel, &mut self.routes);
    }

    /// Releases the arrivals held on a route. Those that cannot pass yet are held again.
    fn release(&mut self, way: Route) {
        for occurrence in self.routes.take_held(way, self.kernel.now()) {
            self.occur(0, occurrence);
        }
    }

    /// Stops transfers over a link that is off. They start over when their route is open again.
    pub(crate) fn close_routes(&mut self, link: LinkIndex) {
        self.links.stop_bulk(&mut self.kernel, |way| is_crossed(&mut self.routes, way, link));
        let crosses = |_, path: &crate::network::Path| path.crossed().any(|crossed| *crossed == link);
        self.sockets.stop_messages(&mut self.kernel, &mut self.routes, crosses);
    }

    /// Releases the held arrivals on all routes that are open again.
    pub(crate) fn open_routes(&mut self) {
        for way in self.routes.open_ways() {
            self.release(way);
        }
        self.links.start_waiting(&mut self.kernel, &mut self.routes, |_| true);
        self.sockets.start_messages(&mut self.kernel, &mut self.routes);
    }
}

//! Ways between hosts on which nothing passes.
//!
//! What arrives there is held, as [`crate::network`] says; bulk cargo and letters that were moving start again.

use gridloom_flow::LinkIndex;
use gridloom_platform::HostId;

use crate::network::{HostPair, is_crossed};
use crate::simulation::Simulation;

impl Simulation {
    /// Lets nothing pass any more between two hosts, in either direction.
    pub fn cut(&mut self, a: HostId, b: HostId) {
        self.lose(a, b);
        self.lose(b, a);
    }

    /// Lets pass again what a cut or a loss between two hosts has held.
    pub fn heal(&mut self, a: HostId, b: HostId) {
        self.restore((a, b));
        self.restore((b, a));
    }

    /// Lets nothing pass any more from one host to another; the way back stays.
    pub fn lose(&mut self, from: HostId, to: HostId) {
        self.kernel.note(|trace, now| trace.way(now, from.0, to.0, "lost"));
        self.routes.lose((from, to));
        self.links.stop_bulk(&mut self.kernel, |way| way == (from, to));
        self.sockets.stop_letters(&mut self.kernel, &mut self.routes, |way, _| way == (from, to));
    }

    /// From now on that fraction of the data that pass between two hosts, in either direction, have a bit changed on their way.
    pub fn corrupt(&mut self, a: HostId, b: HostId, fraction: f64) {
        for (from, to) in [(a, b), (b, a)] {
            self.kernel.note(|trace, now| trace.way(now, from.0, to.0, "changes data"));
            self.changes.set((from, to), fraction);
        }
    }

    /// Lets everything pass again everywhere, as it is sent.
    pub fn heal_all(&mut self) {
        self.changes.end_all();
        self.routes.lost().into_iter().for_each(|way| self.restore(way));
    }

    fn restore(&mut self, way: HostPair) {
        if !self.routes.restore(way) {
            return;
        }
        self.kernel.note(|trace, now| trace.way(now, way.0.0, way.1.0, "healed"));
        self.release(way);
        self.links.move_on(&mut self.kernel, &mut self.routes, |waiting| waiting == way);
        self.sockets.move_letters(&mut self.kernel, &mut self.routes);
    }

    /// Lets arrive what a way has held; what it cannot carry yet is held again.
    fn release(&mut self, way: HostPair) {
        for occurrence in self.routes.heal(way, self.kernel.now()) {
            self.occur(0, occurrence);
        }
    }

    /// What moves over a link that is off stops, and begins anew when its way is open again.
    pub(crate) fn ways_close(&mut self, link: LinkIndex) {
        self.links.stop_bulk(&mut self.kernel, |way| is_crossed(&mut self.routes, way, link));
        let crosses = |_, path: &crate::network::Path| path.crossed().any(|crossed| *crossed == link);
        self.sockets.stop_letters(&mut self.kernel, &mut self.routes, crosses);
    }

    /// Something passes again over links where nothing did.
    pub(crate) fn ways_open(&mut self) {
        for way in self.routes.open_ways() {
            self.release(way);
        }
        self.links.move_on(&mut self.kernel, &mut self.routes, |_| true);
        self.sockets.move_letters(&mut self.kernel, &mut self.routes);
    }
}

//! Applies faults: finds the nodes and hosts that they name and breaks or repairs them.

use gridloom_base::NodeId;
use gridloom_platform::HostId;

use super::{Fault, ScheduledFault};
use crate::kernel::ScheduledEvent;
use crate::observe::Observation;
use crate::simulation::Simulation;

impl Simulation {
    /// Schedules faults at their times.
    pub fn schedule(&mut self, strikes: impl IntoIterator<Item = ScheduledFault>) {
        for ScheduledFault { at, fault } in strikes {
            self.environment.kernel.push(at.max(self.now()), ScheduledEvent::Strike(fault));
        }
    }

    /// Applies a fault now. Names that do not exist (not yet, or hosts of another platform) are ignored.
    pub fn apply_fault(&mut self, fault: &Fault) {
        self.environment.kernel.observe(|| Observation::Fault { fault });
        self.strike_processes(fault);
        let node = |name: &String| self.node_named(name);
        let host = |name: &String| self.host_named(name);
        match fault {
            Fault::Kill(name) => node(name).map(|node| self.kill(node)),
            Fault::Restart(name) => node(name).and_then(|node| self.restart(node)).map(|_| ()),
            Fault::Hang(name) => node(name).map(|node| self.hang(node)),
            Fault::Pause(name) => node(name).map(|node| self.pause(node)),
            Fault::Resume(name) => node(name).map(|node| self.resume(node)),
            Fault::Cut(a, b) => host(a).zip(host(b)).map(|(a, b)| self.cut(a, b)),
            Fault::Heal(a, b) => host(a).zip(host(b)).map(|(a, b)| self.heal(a, b)),
            Fault::Lose { from, to } => host(from).zip(host(to)).map(|(from, to)| self.block_route(from, to)),
            Fault::Corrupt { a, b, fraction } => host(a).zip(host(b)).map(|(a, b)| self.corrupt(a, b, *fraction)),
            Fault::Reset(a, b) => node(a).zip(node(b)).map(|(a, b)| self.reset(a, b)),
            Fault::HalfOpen { forgets, keeps } => node(forgets).zip(node(keeps)).map(|(a, b)| self.half_open(a, b)),
            Fault::Slow { host: name, factor } => host(name).map(|host| self.slow(host, *factor)),
            Fault::SlowDisk { host: name, factor } => host(name).map(|host| self.slow_disk(host, *factor)),
            Fault::Off(name) => host(name).map(|host| self.turn_off(host)),
            Fault::On(name) => host(name).map(|host| self.turn_on(host)),
            Fault::FullDisk { server, for_ns } => node(server).map(|node| self.fill_disk(node, *for_ns)),
            Fault::Full { node: name, for_ns } => node(name).map(|node| self.fill(node, *for_ns)),
        };
    }

    /// Applies a fault to the processes that it names, in addition to their clients of the grid.
    fn strike_processes(&mut self, fault: &Fault) {
        let (Fault::Kill(name) | Fault::Restart(name) | Fault::Hang(name) | Fault::Pause(name) | Fault::Resume(name)) =
            fault
        else {
            return;
        };
        for process in self.programs.named(name) {
            match fault {
                Fault::Kill(_) => self.kill_process(process, "the process was killed"),
                Fault::Restart(_) => self.restart_process(process),
                Fault::Resume(_) => self.programs.resume(&mut self.environment.kernel, process),
                _ => self.programs.stop(process),
            }
        }
    }

    /// Returns the host with a name, or the host of the node with that name.
    fn host_named(&self, name: &str) -> Option<HostId> {
        let host_of = |node| self.grid.nodes().node(node).host;
        self.platform().host(name).or_else(|| self.node_named(name).map(host_of))
    }

    /// Makes a node stop reacting. Its connections stay up.
    pub fn hang(&mut self, node: NodeId) {
        self.grid.hang(&mut self.environment.kernel, node);
    }

    /// Makes a node stop reacting for a while. Its inputs wait until [`Simulation::resume`].
    pub fn pause(&mut self, node: NodeId) {
        self.grid.pause(&mut self.environment.kernel, node);
    }

    /// Resumes a paused node, which then handles the inputs that waited.
    pub fn resume(&mut self, node: NodeId) {
        if self.grid.resume(&mut self.environment.kernel, node) {
            while let Some(input) = self.grid.take_waiting_input(node) {
                self.handle(input);
            }
        }
    }

    /// Blocks all traffic between two hosts, in both directions.
    pub fn cut(&mut self, a: HostId, b: HostId) {
        self.close_route((a, b));
        self.close_route((b, a));
    }

    /// Unblocks traffic between two hosts and releases the held arrivals.
    pub fn heal(&mut self, a: HostId, b: HostId) {
        self.open_route((a, b));
        self.open_route((b, a));
    }

    /// Blocks all traffic from one host to another. The return path stays open.
    pub fn block_route(&mut self, from: HostId, to: HostId) {
        self.close_route((from, to));
    }

    /// Makes a fraction of the data between two hosts, in either direction, arrive with one bit changed.
    pub fn corrupt(&mut self, a: HostId, b: HostId, fraction: f64) {
        self.grid.corrupt(&mut self.environment.kernel, a, b, fraction);
    }

    /// Unblocks all traffic everywhere, and ends all data changes.
    pub fn heal_all(&mut self) {
        self.grid.end_corruption();
        self.environment.routes.lost().into_iter().for_each(|way| self.open_route(way));
    }

    /// Breaks the connection between two nodes, if there is one. They may reconnect.
    pub fn reset(&mut self, a: NodeId, b: NodeId) {
        for (node, peer) in [(a, b), (b, a)] {
            self.grid.forget_connection(&mut self.environment, node, peer);
        }
    }

    /// Makes one node forget a connection, if there is one. The other notices when data that it sends is refused, when
    /// it is dialled again, or when it gives up after a silence.
    pub fn half_open(&mut self, forgets: NodeId, keeps: NodeId) {
        self.grid.half_open(&mut self.environment, forgets, keeps);
    }

    /// Sets a host's speed to `factor` times its described speed: 0.1 for a tenth. Machines still react without delay.
    ///
    /// # Panics
    /// If the factor is not a positive number.
    pub fn slow(&mut self, host: HostId, factor: f64) {
        self.environment.hosts.slow(&mut self.environment.kernel, host, factor);
    }

    /// Sets the rate of a host's disk to `factor` times its described rate: 0.1 for a tenth.
    ///
    /// # Panics
    /// If the factor is not a positive number.
    pub fn slow_disk(&mut self, host: HostId, factor: f64) {
        self.environment.hosts.slow_disk(&mut self.environment.kernel, host, factor);
    }

    /// Makes a node reject data for `for_ns`, like a node without memory or descriptors: each datum that arrives is
    /// reported to it as broken. Its tasks still produce their results, for which it has reserved room.
    pub fn fill(&mut self, node: NodeId, for_ns: u64) {
        self.grid.fill(&mut self.environment.kernel, node, for_ns);
    }

    /// Prevents a server from writing durable data for `for_ns`, even after a restart.
    pub fn fill_disk(&mut self, node: NodeId, for_ns: u64) {
        self.grid.fill_disk(&mut self.environment.kernel, node, for_ns);
    }

    /// Damages the durable data on a server's disk. The server detects the damage when it restarts.
    pub fn damage_disk(&mut self, node: NodeId) {
        self.grid.damage_disk(&mut self.environment.kernel, node);
    }
}

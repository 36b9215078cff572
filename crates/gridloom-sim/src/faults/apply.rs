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
            self.kernel.push(at.max(self.now()), ScheduledEvent::Strike(fault));
        }
    }

    /// Applies a fault now. Names that do not exist (not yet, or hosts of another platform) are ignored.
    pub fn apply_fault(&mut self, fault: &Fault) {
        self.kernel.observe(|| Observation::Fault { fault });
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
        for process in self.processes.named(name) {
            match fault {
                Fault::Kill(_) => self.kill_process(process, "the process was killed"),
                Fault::Restart(_) => self.restart_process(process),
                Fault::Resume(_) => self.processes.resume(&mut self.kernel, process),
                _ => self.processes.stop(process),
            }
        }
    }

    /// Returns the names of all nodes, in start order.
    pub fn names(&self) -> Vec<String> {
        self.nodes.iter().map(|(_, node)| node.name.clone()).collect()
    }

    /// Returns the last node that was started under a name.
    pub fn node_named(&self, name: &str) -> Option<NodeId> {
        self.nodes.named(name)
    }

    /// Returns the host with a name, or the host of the node with that name.
    fn host_named(&self, name: &str) -> Option<HostId> {
        self.platform.host(name).or_else(|| self.node_named(name).map(|node| self.node(node).host))
    }
}

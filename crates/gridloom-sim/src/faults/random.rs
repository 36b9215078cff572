//! Random faults that leave the grid able to do its work. The last server is never killed, hung, stopped for long, or
//! cut off from the agent or a client. The first client is never killed. The agent and the clients are never silent
//! long enough for their peers to consider them dead.

use gridloom_base::limits::SILENCE_NS_MAX;
use gridloom_base::time::{MILLISECOND_NS, SECOND_NS};
use gridloom_base::{SplitMix64, Time};

use super::fault::{Fault, ScheduledFault};

/// Maximum time for which an agent or client is stopped.
const SHORT_STOP_NS: u64 = 8 * SILENCE_NS_MAX / 10;
/// Maximum time for which a server is stopped, and until a cut is healed: twice the time after which peers give up.
const LONG_NS: u64 = 2 * SILENCE_NS_MAX;
/// Maximum time for which a store is full. It is short enough that most refused data succeed in a later attempt.
const FULL_NS: u64 = 2 * SECOND_NS;

/// The targets of random faults: names of nodes with the names of their hosts.
#[derive(Clone, Debug, Default)]
pub struct FaultTargets {
    pub agent: (String, String),
    /// The servers; the last one is spared. Empty if there is no grid; faults then affect processes.
    pub servers: Vec<(String, String)>,
    /// The clients, or processes; the first is never killed.
    pub clients: Vec<(String, String)>,
}

impl FaultTargets {
    /// Draws `count` faults that begin within `within_ns` of `from`, with their later repairs.
    ///
    /// # Panics
    /// If there are neither servers nor clients.
    pub fn draw(&self, random: &mut SplitMix64, count: u64, from: Time, within_ns: u64) -> Vec<ScheduledFault> {
        let mut strikes = Vec::new();
        for _ in 0..count {
            let at = from + random.below(within_ns.max(1));
            let (fault, mend) = self.draw_fault(random);
            strikes.push(ScheduledFault { at, fault });
            strikes.extend(mend.map(|(after_ns, fault)| ScheduledFault { at: at + after_ns, fault }));
        }
        strikes.sort_by_key(|strike| strike.at);
        strikes
    }

    /// Reports whether a host runs a node that must not be lost: the agent, a client, or the last server.
    fn is_spared(&self, host: &str) -> bool {
        let last = self.servers.last();
        self.agent.1 == host || self.clients.iter().chain(last).any(|(_, of_spared)| of_spared == host)
    }

    /// Draws a fault of processes and their hosts, for runs without a grid. The host of the first process is spared.
    fn fault_of_processes(&self, random: &mut SplitMix64) -> (Fault, Option<(u64, Fault)>) {
        let mut pick = || self.clients[random.below(self.clients.len() as u64) as usize].clone();
        let ((name, host), (_, other)) = (pick(), pick());
        let may_end = host != self.clients[0].1;
        let after_ns = MILLISECOND_NS + random.below(LONG_NS);
        match random.below(7) {
            0 if may_end => (Fault::Kill(name), None),
            1 if may_end => (Fault::Restart(name), None),
            2 if may_end => (Fault::Off(host.clone()), Some((after_ns, Fault::On(host)))),
            3 if host != other => (Fault::Cut(host.clone(), other.clone()), Some((after_ns, Fault::Heal(host, other)))),
            4 if host != other => {
                let lose = Fault::Lose { from: host.clone(), to: other.clone() };
                (lose, Some((after_ns, Fault::Heal(host, other))))
            }
            5 => (Fault::Pause(name.clone()), Some((after_ns, Fault::Resume(name)))),
            _ => {
                let slow = |factor| Fault::Slow { host: host.clone(), factor };
                (slow([0.05, 0.2, 0.5][random.below(3) as usize]), Some((after_ns, slow(1.0))))
            }
        }
    }

    /// Draws a fault, and possibly its repair with the delay in nanoseconds.
    fn draw_fault(&self, random: &mut SplitMix64) -> (Fault, Option<(u64, Fault)>) {
        if self.servers.is_empty() {
            return self.fault_of_processes(random);
        }
        let (agent, agent_host) = self.agent.clone();
        let (any_server, any_host) = self.servers[random.below(self.servers.len() as u64) as usize].clone();
        let (client, client_host) = self.clients[random.below(self.clients.len() as u64) as usize].clone();
        let (victim, victim_host) = match self.servers.len() {
            1 => (None, None),
            all => {
                let (name, host) = self.servers[random.below(all as u64 - 1) as usize].clone();
                (Some(name), Some(host))
            }
        };
        let short_ns = MILLISECOND_NS + random.below(SHORT_STOP_NS);
        let long_ns = MILLISECOND_NS + random.below(LONG_NS);
        let is_mended = random.below(2) == 0;
        let mended = |after_ns, fault| is_mended.then_some((after_ns, fault));
        let (one_way, other_way) = if random.below(2) == 0 { (0, 1) } else { (1, 0) };
        let kind = random.below(24);
        let victims = victim.zip(victim_host);
        match (kind, victims) {
            (0 | 1, Some((victim, _))) => (Fault::Kill(victim.clone()), mended(long_ns, Fault::Restart(victim))),
            (2, Some((victim, _))) => (Fault::Hang(victim.clone()), mended(long_ns, Fault::Restart(victim))),
            (3, Some((victim, _))) => (Fault::Restart(victim), None),
            (4, Some((victim, _))) => (Fault::Pause(victim.clone()), Some((long_ns, Fault::Resume(victim)))),
            // Cuts the server off from a client, from another server, or from the agent.
            (5, Some((_, host))) if host != client_host => {
                (Fault::Cut(host.clone(), client_host.clone()), mended(long_ns, Fault::Heal(host, client_host)))
            }
            (6, Some((_, host))) if host != any_host => {
                (Fault::Cut(host.clone(), any_host.clone()), mended(long_ns, Fault::Heal(host, any_host)))
            }
            (7, Some((_, host))) if host != agent_host => {
                (Fault::Cut(host.clone(), agent_host.clone()), mended(long_ns, Fault::Heal(host, agent_host)))
            }
            (8, Some((_, host))) if host != client_host => {
                let ends = [host, client_host];
                let (from, to) = (ends[one_way].clone(), ends[other_way].clone());
                (Fault::Lose { from: from.clone(), to: to.clone() }, mended(long_ns, Fault::Heal(from, to)))
            }
            (9, Some((_, host))) if host != any_host => {
                let ends = [host, any_host];
                let (from, to) = (ends[one_way].clone(), ends[other_way].clone());
                (Fault::Lose { from: from.clone(), to: to.clone() }, mended(long_ns, Fault::Heal(from, to)))
            }
            // The time is short, because the transfer of a datum must not fail too many times.
            (22, Some((_, a))) if a != client_host => {
                let b = if random.below(2) == 0 || a == any_host { client_host } else { any_host };
                let corrupt = |fraction| Fault::Corrupt { a: a.clone(), b: b.clone(), fraction };
                (corrupt([0.05, 0.3, 0.9][random.below(3) as usize]), Some((short_ns, corrupt(0.0))))
            }
            (10, Some((victim, _))) if victim != any_server => (Fault::Reset(victim, any_server), None),
            (11, Some((victim, _))) if victim != any_server => {
                let ends = [victim, any_server];
                let (forgets, keeps) = (ends[one_way].clone(), ends[other_way].clone());
                (Fault::HalfOpen { forgets, keeps }, None)
            }
            (12, _) => {
                let ends = [client, any_server];
                let (forgets, keeps) = (ends[one_way].clone(), ends[other_way].clone());
                (Fault::HalfOpen { forgets, keeps }, None)
            }
            (13, _) => (Fault::Restart(agent), None),
            (14, _) => (Fault::Kill(agent.clone()), Some((short_ns, Fault::Restart(agent)))),
            (15, _) => (Fault::Pause(agent.clone()), Some((short_ns, Fault::Resume(agent)))),
            (16, _) => (Fault::Pause(client.clone()), Some((short_ns, Fault::Resume(client)))),
            (17, _) if client != self.clients[0].0 => (Fault::Kill(client), None),
            (20, Some((victim, host))) if !self.is_spared(&host) => match random.below(3) {
                0 => (Fault::Off(victim.clone()), None),
                _ => (Fault::Off(victim.clone()), Some((long_ns, Fault::On(victim)))),
            },
            (21, _) => {
                let factor = [0.001, 0.02, 0.2][random.below(3) as usize];
                let slow = Fault::SlowDisk { host: any_host.clone(), factor };
                (slow, mended(long_ns, Fault::SlowDisk { host: any_host, factor: 1.0 }))
            }
            (18, _) => {
                let slow = Fault::Slow { host: any_host.clone(), factor: [0.05, 0.2, 0.5][random.below(3) as usize] };
                (slow, mended(long_ns, Fault::Slow { host: any_host, factor: 1.0 }))
            }
            (19, _) => {
                let node = if random.below(4) == 0 { client } else { any_server };
                (Fault::Full { node, for_ns: short_ns.min(FULL_NS) }, None)
            }
            (23, _) => (Fault::FullDisk { server: any_server, for_ns: long_ns }, None),
            _ => (Fault::Reset(client, any_server), None),
        }
    }
}

//! Requests that the agent may be lost for: one that cannot read a message closes the connection, and would at each try.
//!
//! A request that was lost with the agent is sent again with a ping behind it. The answer to that ping says that the agent has read the
//! request. What was lost [`TASK_ATTEMPTS_MAX`] times in a row before that is asked no more.

use std::collections::BTreeMap;

use super::{Client, send};
use crate::node::message::LinkMessage;
use crate::node::protocol::Effect;
use gridloom_base::limits::TASK_ATTEMPTS_MAX;
use gridloom_base::{DatumId, NodeId, Time};

/// How often the agent was lost with a request in a row.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct VainLosses {
    count: u32,
    /// Which agent has it, or had it last.
    agent: Option<NodeId>,
    /// What was sent behind it.
    ping: Option<u64>,
    is_read: bool,
}

impl VainLosses {
    /// It is sent to that agent. False if it is not to be: it was lost too often.
    ///
    /// If an agent that had read it is there again, only the connection was lost. Another one is there for an agent that died, perhaps of it.
    #[must_use]
    pub(super) fn asks(&mut self, agent: NodeId) -> bool {
        let was_cut_off = std::mem::take(&mut self.is_read) && self.agent == Some(agent);
        if was_cut_off {
            self.count = 0;
        }
        (self.agent, self.ping) = (Some(agent), None);
        self.count < TASK_ATTEMPTS_MAX
    }

    /// The agent is lost with it. True if that was once too often.
    pub(super) fn lose(&mut self) -> bool {
        self.count += 1;
        self.count >= TASK_ATTEMPTS_MAX && !self.is_read
    }

    /// The agent has answered a ping, and with it those before.
    fn answer(&mut self, token: u64) {
        self.is_read |= self.ping.is_some_and(|ping| ping <= token);
    }

    pub(super) fn count(&self) -> u32 {
        self.count
    }
}

/// What the catalog is asked.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Asked {
    Question(u64),
    Place(DatumId),
}

/// What the catalog was asked when the agent was lost, and has not read since.
#[derive(Debug, Default)]
pub(super) struct Suspects(BTreeMap<Asked, VainLosses>);

impl Suspects {
    pub(super) fn remove(&mut self, asked: Asked) {
        self.0.remove(&asked);
    }

    /// The agent is lost with it. True if that was once too often.
    pub(super) fn lose(&mut self, asked: Asked) -> bool {
        self.0.entry(asked).or_default().lose()
    }

    pub(super) fn count(&self, asked: Asked) -> u32 {
        self.0.get(&asked).map_or(0, VainLosses::count)
    }

    /// It is sent again, and a ping behind it.
    pub(super) fn pinged(&mut self, asked: Asked, token: u64) {
        if let Some(vain) = self.0.get_mut(&asked) {
            vain.ping = Some(token);
        }
    }

    /// The catalog deals with a request as soon as it is read: what happens to the agent later is not its fault.
    fn answer(&mut self, token: u64) {
        self.0.retain(|_, vain| {
            vain.answer(token);
            !vain.is_read
        });
    }
}

/// Requests in the order in which they are sent again: first those that were not lost; the others in turn from the first and from the last,
/// so that what stands before or behind one that cannot be read is read.
pub(super) fn in_turn<T: Copy>(requests: impl Iterator<Item = (T, u32)>) -> Vec<T> {
    let (lost, fresh): (Vec<_>, Vec<_>) = requests.partition(|(_, count)| *count > 0);
    let is_reversed = lost.iter().map(|(_, count)| *count).max().is_some_and(|count| count % 2 == 0);
    let mut order: Vec<T> = lost.into_iter().map(|(request, _)| request).collect();
    if is_reversed {
        order.reverse();
    }
    fresh.into_iter().map(|(request, _)| request).chain(order).collect()
}

impl Client {
    /// A ping behind what was just sent to the agent.
    pub(super) fn ping_agent(&mut self, now: Time, out: &mut Vec<Effect>) -> Option<u64> {
        let agent = self.contacts.agent()?;
        let token = self.contacts.members_mut().ping(now, agent)?;
        send(out, agent, LinkMessage::Ping { token });
        Some(token)
    }

    /// A request for a plan was sent: if it was lost before, it is to be known whether it is read.
    pub(super) fn follow_with_ping(&mut self, now: Time, mut vain: VainLosses, out: &mut Vec<Effect>) -> VainLosses {
        if vain.count > 0 {
            vain.ping = self.ping_agent(now, out);
        }
        vain
    }

    /// The agent has answered a ping: it has read what was sent before.
    pub(super) fn agent_has_read(&mut self, token: u64) {
        self.names.suspects.answer(token);
        for mapping in self.groups.values_mut().filter_map(|run| run.mapping.as_mut()) {
            mapping.vain.answer(token);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AGENT: NodeId = NodeId(1);

    fn lost(vain: &mut VainLosses, agent: NodeId, is_read: bool) -> bool {
        assert!(vain.asks(agent));
        vain.ping = Some(7);
        if is_read {
            vain.answer(6);
            assert!(!vain.is_read);
            vain.answer(8);
        }
        vain.lose()
    }

    #[test]
    fn losses_before_it_is_read_are_counted() {
        let mut vain = VainLosses::default();
        let ends = [(); TASK_ATTEMPTS_MAX as usize].map(|()| lost(&mut vain, AGENT, false));
        assert_eq!(ends.iter().position(|is_end| *is_end), Some(TASK_ATTEMPTS_MAX as usize - 1));
    }

    #[test]
    fn losses_of_the_connection_alone_are_not() {
        let mut vain = VainLosses::default();
        assert!((0..3 * TASK_ATTEMPTS_MAX).all(|_| !lost(&mut vain, AGENT, true)));
        assert!(vain.asks(AGENT));
    }

    #[test]
    fn an_agent_that_dies_of_it_is_counted() {
        let mut vain = VainLosses::default();
        for agent in 1..=u64::from(TASK_ATTEMPTS_MAX) {
            assert!(!lost(&mut vain, NodeId(agent), true), "it may be there again");
        }
        assert!(!vain.asks(NodeId(99)));
    }

    #[test]
    fn what_was_lost_is_asked_last_and_from_both_ends() {
        assert_eq!(in_turn([('a', 1), ('b', 0), ('c', 1)].into_iter()), ['b', 'a', 'c']);
        assert_eq!(in_turn([('a', 2), ('b', 0), ('c', 2)].into_iter()), ['b', 'c', 'a']);
    }
}

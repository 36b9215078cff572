//! A state machine with which a standby agent monitors whether the agent answers.
//!
//! It is a client of the agent. It reports only by log lines, and the standby reacts to their texts.

use gridloom_base::limits::HEARTBEAT_NS;
use gridloom_base::{Level, Machine, NodeId, Time};
use gridloom_core::member::Members;
use gridloom_core::node::message::{LinkMessage, Message};
use gridloom_core::node::{Category, Effect, Input, LogLine, Role, Timer};

/// Log line for an agent that has not answered for [`TAKES_OVER_NS`].
pub const PRIMARY_LOST: &str = "the agent does not answer; the standby takes over";
/// Log line for an agent that answers again.
pub const PRIMARY_BACK: &str = "the agent is back; the standby steps down";
/// Time without a connection after which a standby takes over. An agent that is restarted at once is back sooner.
const TAKES_OVER_NS: u64 = 2 * HEARTBEAT_NS;

const HEARTBEAT: Timer = Timer::Numbered(0);

/// See the module's documentation.
pub struct AgentWatch {
    /// Address of the agent.
    address: String,
    /// The agent, while it is connected.
    members: Members<()>,
    /// Since when no agent is connected.
    missing_since: Time,
    is_lost: bool,
    /// The last reason why it could not be reached.
    why: String,
}

impl AgentWatch {
    pub fn new(address: &str) -> AgentWatch {
        AgentWatch {
            address: address.into(),
            members: Members::default(),
            missing_since: Time::ZERO,
            is_lost: false,
            why: String::new(),
        }
    }

    fn line(&self, level: Level, text: &'static str) -> LogLine {
        LogLine::new(level, Category::Agent, text).address(&self.address)
    }

    fn on_heartbeat(&mut self, now: Time, out: &mut Vec<Effect>) {
        out.push(Effect::SetTimer { timer: HEARTBEAT, at: now + HEARTBEAT_NS });
        let beat = self.members.beat(now);
        for (peer, token) in beat.pings {
            out.push(Effect::Send { to: peer, message: LinkMessage::Ping { token }.into() });
        }
        for (peer, _) in beat.silent {
            out.push(Effect::Disconnect { peer });
            self.lost(now, peer, "it is silent");
        }
        if self.members.iter().next().is_none() {
            out.push(Effect::Dial { address: self.address.clone() });
            if !self.is_lost && now.since(self.missing_since) >= TAKES_OVER_NS {
                self.is_lost = true;
                out.push(self.line(Level::Warning, PRIMARY_LOST).why(&self.why).into());
            }
        }
    }

    fn lost(&mut self, now: Time, peer: NodeId, why: &str) {
        if self.members.remove(peer).is_some() {
            self.missing_since = now;
            self.why = why.into();
        }
    }
}

impl Machine for AgentWatch {
    type Input = Input;
    type Effect = Effect;

    fn handle(&mut self, now: Time, input: Input, out: &mut Vec<Effect>) {
        match input {
            Input::Start => {
                self.missing_since = now;
                self.on_heartbeat(now, out);
            }
            Input::Timer(HEARTBEAT) => self.on_heartbeat(now, out),
            Input::PeerUp { peer, role: Role::Agent, .. } => {
                self.members.add(now, peer, ());
                if std::mem::take(&mut self.is_lost) {
                    out.push(self.line(Level::Warning, PRIMARY_BACK).into());
                }
            }
            Input::PeerUp { peer, .. } => {
                out.push(self.line(Level::Error, "the node at this address is not an agent").into());
                out.push(Effect::Disconnect { peer });
            }
            Input::PeerLost { peer, why, .. } => self.lost(now, peer, &why),
            Input::DialFailed { why, .. } => self.why = why,
            Input::Received { from, message } => {
                let is_connected = self.members.record_received(now, from);
                if let (true, Message::Link(LinkMessage::Ping { token })) = (is_connected, message) {
                    out.push(Effect::Send { to: from, message: LinkMessage::Pong { token }.into() });
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use gridloom_base::Origin;
    use gridloom_base::dial::ConnectionFault;
    use gridloom_base::limits::SILENCE_NS_MAX;

    use super::*;

    const AGENT: NodeId = NodeId(7);

    struct Watch(AgentWatch, Time);

    impl Watch {
        fn new() -> Watch {
            let mut watch = Watch(AgentWatch::new("head:7711"), Time(5));
            assert_eq!(watch.give(Input::Start), [] as [&str; 0]);
            watch
        }

        /// Returns the texts of log lines.
        fn give(&mut self, input: Input) -> Vec<String> {
            let mut out = Vec::new();
            self.0.handle(self.1, input, &mut out);
            let line = |effect: Effect| match effect {
                Effect::Emit(gridloom_core::node::Event::Log(line)) => Some(line.text.to_string()),
                _ => None,
            };
            out.into_iter().filter_map(line).collect()
        }

        fn beat(&mut self) -> Vec<String> {
            self.1 = self.1 + HEARTBEAT_NS;
            self.give(Input::Timer(HEARTBEAT))
        }

        fn up(&mut self) -> Vec<String> {
            let (role, name, address) = (Role::Agent, "agent".into(), "head:7711".into());
            self.give(Input::PeerUp { peer: AGENT, role, name, origin: Origin::default(), address, version: 1 })
        }
    }

    #[test]
    fn an_agent_that_was_never_there_is_replaced() {
        let mut watch = Watch::new();
        assert!(watch.beat().is_empty());
        assert_eq!(watch.beat(), [PRIMARY_LOST]);
        assert!(watch.beat().is_empty(), "it is reported once");
        assert_eq!(watch.up(), [PRIMARY_BACK]);
        assert!(watch.beat().is_empty());
    }

    #[test]
    fn an_agent_that_restarts_at_once_is_not_replaced() {
        let mut watch = Watch::new();
        assert!(watch.up().is_empty());
        assert!(
            watch
                .give(Input::PeerLost { peer: AGENT, fault: ConnectionFault::Disconnected, why: "closed".into() })
                .is_empty()
        );
        assert!(watch.beat().is_empty());
        assert!(watch.up().is_empty());
        watch.give(Input::PeerLost { peer: AGENT, fault: ConnectionFault::Disconnected, why: "closed".into() });
        assert!(watch.beat().is_empty());
        assert_eq!(watch.beat(), [PRIMARY_LOST]);
    }

    #[test]
    fn an_agent_that_hangs_is_replaced() {
        let mut watch = Watch::new();
        watch.up();
        let mut beats = 0;
        while watch.beat() != [PRIMARY_LOST] {
            beats += 1;
            assert!(beats < 20, "it is not noticed");
        }
        assert!(beats as u64 >= SILENCE_NS_MAX / HEARTBEAT_NS, "{beats}");
        // Another program at the address does not count.
        let other = Input::PeerUp {
            peer: NodeId(9),
            role: Role::Server,
            name: "s".into(),
            origin: Origin::default(),
            address: "head:7711".into(),
            version: 1,
        };
        assert_eq!(watch.give(other), ["the node at this address is not an agent"]);
    }
}

//! A server machine that logs when the agent has registered it, and that ends if the agent will never do so.
//!
//! The process that starts a server waits for this line. An agent that cannot be reached may start later: the server
//! keeps trying to connect. But the agent may refuse a server that was never registered, or the node may not be an
//! agent. Trying again would not help: the user has to correct the address or the keys. Nor does it help after the
//! certificate of the server has been revoked.

use gridloom_base::dial::ConnectionFault;
use gridloom_base::{Level, Machine, NodeId, Time};
use gridloom_core::node::message::{DirectoryMessage, DirectoryToServer, Message};
use gridloom_core::node::{Category, Effect, Input, LogLine, Role, Server};

/// The line's text.
pub const REGISTERED: &str = "registered with the agent";

/// The machine. Its effects are those of the server, a log line at each registration, and the end.
pub struct RegistrationWatch {
    server: Server,
    agent: String,
    was_registered: bool,
    /// The agent's node, if connected: clients that map by themselves register this server, too.
    node: Option<NodeId>,
}

impl RegistrationWatch {
    /// Returns a machine for the agent at that address.
    pub fn new(server: Server, agent: String) -> RegistrationWatch {
        RegistrationWatch { server, agent, was_registered: false, node: None }
    }

    /// Returns why trying again cannot help, if that is so.
    fn hopeless(&self, input: &Input) -> Option<String> {
        let is_hopeless = |fault: ConnectionFault| match self.was_registered {
            true => fault == ConnectionFault::Revoked,
            false => fault.is_permanent(),
        };
        let why = match input {
            Input::DialFailed { address, fault, why, .. } if *address == self.agent && is_hopeless(*fault) => {
                why.clone()
            }
            Input::PeerLost { peer, fault: ConnectionFault::Revoked, why } if Some(*peer) == self.node => why.clone(),
            Input::PeerUp { role: role @ (Role::Server | Role::Client), name, address, .. }
                if *address == self.agent && !self.was_registered =>
            {
                let what = if *role == Role::Server { "server" } else { "client" };
                format!("'{name}' answers there, which is a {what}; give the agent's address")
            }
            _ => return None,
        };
        Some(format!("cannot use the agent at {}: {why}", self.agent))
    }
}

impl Machine for RegistrationWatch {
    type Input = Input;
    type Effect = Effect;

    fn handle(&mut self, now: Time, input: Input, effects: &mut Vec<Effect>) {
        if let Input::PeerUp { peer, role: Role::Agent, .. } = &input {
            self.node = Some(*peer);
        }
        let is_registered = matches!(&input, Input::Received { from, message: Message::Directory(DirectoryMessage::ToServer(DirectoryToServer::Registered { .. })) }
            if Some(*from) == self.node);
        let hopeless = self.hopeless(&input);
        self.was_registered |= is_registered;
        self.server.handle(now, input, effects);
        if is_registered {
            effects.push(LogLine::new(Level::Info, Category::Server, REGISTERED).address(&self.agent).into());
        }
        effects.extend(hopeless.map(|why| Effect::Exit { why }));
    }
}

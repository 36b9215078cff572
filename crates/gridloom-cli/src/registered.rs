//! A server machine that also tells when the agent has registered it, which whoever starts servers waits for.

use gridloom_core::base::{Machine, Time};
use gridloom_core::node::{Effect, Event, Input, Message, Server};

/// The machine. Its effects are the server's, and a line for the log at each registration.
pub struct Registering {
    server: Server,
    line: String,
}

impl Registering {
    /// Logs `line` at each registration.
    pub fn new(server: Server, line: String) -> Registering {
        Registering { server, line }
    }
}

impl Machine for Registering {
    type Input = Input;
    type Effect = Effect;

    fn handle(&mut self, now: Time, input: Input, effects: &mut Vec<Effect>) {
        let is_registered = matches!(&input, Input::Received { message: Message::Registered { .. }, .. });
        self.server.handle(now, input, effects);
        if is_registered {
            effects.push(Effect::Emit(Event::Log(self.line.clone())));
        }
    }
}

//! The trait of all state machines: inputs in, effects out.

use super::time::Time;

/// State plus one entry point. A machine has no clock, socket, thread, file, lock or entropy of its own: what it
/// knows of the outside comes as an input, and what it wants of the outside goes out as an effect. The same machine
/// therefore runs on sockets and in virtual time, and its conversations can be recorded and replayed.
pub trait Machine {
    /// What can happen to the machine.
    type Input;
    /// What the machine can ask for.
    type Effect;

    /// Handles one input at time `now` and appends what shall be done to `effects`, in order.
    fn handle(&mut self, now: Time, input: Self::Input, effects: &mut Vec<Self::Effect>);
}

//! The trait of all state machines: inputs in, effects out.

use super::time::Time;

/// State plus one entry point. A machine has no clock, socket, thread, file, lock or source of entropy of its own. It
/// receives inputs from the outside and requests actions by returning effects. The same machine therefore runs on
/// sockets and in virtual time, and its conversations can be recorded and replayed.
pub trait Machine {
    /// An event that the machine handles.
    type Input;
    /// An action that the machine requests.
    type Effect;

    /// Handles one input at time `now` and appends the requested actions to `effects`, in order.
    fn handle(&mut self, now: Time, input: Self::Input, effects: &mut Vec<Self::Effect>);
}

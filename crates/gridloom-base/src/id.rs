//! Identifiers. A client names its tasks, data and groups by its own identifier and a serial number. So it need not ask
//! a server or the agent for a name, and a crash of theirs touches no name.

use std::fmt;

use serde::{Deserialize, Serialize};

/// An agent, a server or a client. Drawn at random by the real world, numbered by the simulated one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct NodeId(pub u64);

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "n{:x}", self.0)
    }
}

macro_rules! client_named {
    ($(#[$doc:meta])* $name:ident, $letter:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
        pub struct $name {
            /// The client that made it.
            pub client: NodeId,
            /// Its number among those the client made.
            pub serial: u64,
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($letter, "{}@{}"), self.serial, self.client)
            }
        }
    };
}

client_named!(
    /// One value, immutable: an in-place update makes a new datum.
    DatumId,
    "d"
);
client_named!(
    /// One call of a function.
    TaskId,
    "t"
);
client_named!(
    /// An object of a class: state on a server that methods share.
    ObjectId,
    "o"
);
client_named!(
    /// Calls that are mapped together.
    GroupId,
    "g"
);

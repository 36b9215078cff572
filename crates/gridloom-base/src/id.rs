//! Identifiers. A client names its tasks, data and groups by its own identifier and a serial number. So it need not
//! request names from a server or the agent, and names stay valid if one of these crashes.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// An agent, a server or a client. The real world draws the identifier at random; the simulated world counts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct NodeId(pub u64);

impl NodeId {
    /// The catalog, wherever it runs: the owner of data with shared names. No node has this identifier.
    pub const CATALOG: NodeId = NodeId(u64::MAX);
}

/// A folder that several servers share. The real world draws the identifier at random.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct StorageId(pub u64);

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
            /// The client that created it.
            pub client: NodeId,
            /// Serial number at that client.
            pub serial: u64,
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($letter, "{}@{}"), self.serial, self.client)
            }
        }

        impl FromStr for $name {
            type Err = String;

            /// Parses the `Display` form.
            fn from_str(text: &str) -> Result<$name, String> {
                let parts = || {
                    let (serial, client) = text.strip_prefix($letter)?.split_once("@n")?;
                    let client = NodeId(u64::from_str_radix(client, 16).ok()?);
                    Some($name { client, serial: serial.parse().ok()? })
                };
                parts().ok_or_else(|| {
                    format!(concat!("'{}' is not a name such as ", $letter, "17@n2f3a90"), text)
                })
            }
        }
    };
}

client_named!(
    /// One immutable value. An update in place creates a new datum.
    DatumId,
    "d"
);
impl DatumId {
    /// True if the datum has a shared name: it belongs to the catalog and not to a client.
    pub fn is_shared(self) -> bool {
        self.client == NodeId::CATALOG
    }
}

client_named!(
    /// One call of a function.
    TaskId,
    "t"
);
client_named!(
    /// An object of a class: state on a server that its methods share.
    ObjectId,
    "o"
);
client_named!(
    /// A group of calls that are mapped together.
    GroupId,
    "g"
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_printed() {
        let task = TaskId { client: NodeId(0x2f_3a90), serial: 17 };
        assert_eq!((task.to_string(), task.to_string().parse()), ("t17@n2f3a90".to_string(), Ok(task)));
        for wrong in ["", "t17", "d17@n2f", "t17@n", "tx@n1", "t1@nxyz", "t1@2f"] {
            assert!(wrong.parse::<TaskId>().unwrap_err().starts_with(&format!("'{wrong}' is not a name such as t17@")));
        }
    }
}

//! What moves over the network, in the words of its kinds: cargo of nodes, control frames, letters of processes.

use gridloom_base::{DatumId, Time};
use gridloom_core::node::Message;

use crate::observe::LetterName;
use crate::store::StoredValue;

/// What moves besides messages.
#[derive(Clone, Debug)]
pub(crate) enum Cargo {
    Datum { datum: DatumId, value: StoredValue },
    Probe { size_bytes: u64 },
}

impl Cargo {
    pub(crate) fn size_bytes(&self) -> u64 {
        match self {
            Cargo::Datum { value, .. } => value.meta.size_bytes(),
            Cargo::Probe { size_bytes } => *size_bytes,
        }
    }
}

/// What a control frame carries.
#[derive(Debug)]
pub(crate) enum Parcel {
    Message {
        message: Message,
        digest: u64,
    },
    Cargo {
        cargo: Cargo,
        sent: Time,
        transfer: u64,
    },
    /// That datum will not come.
    Broken {
        datum: DatumId,
    },
}

/// The letter behind a flow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LetterFlow {
    pub(crate) name: LetterName,
    pub(crate) transfer: u64,
}

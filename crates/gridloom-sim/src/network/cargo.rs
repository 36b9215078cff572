//! The kinds of traffic on the network: cargo of nodes, control frames, messages of processes.

use std::fmt;

use gridloom_base::{DatumId, Time};
use gridloom_core::node::Message;

use crate::observe::MessageName;
use crate::store::StoredValue;

/// Traffic between nodes other than messages.
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

/// The contents of a control frame.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "most parcels are messages")]
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
    /// The datum will not arrive.
    Broken {
        datum: DatumId,
    },
}

impl Parcel {
    /// Returns the kind of the message or data in the parcel, such as `Turn`.
    pub(crate) fn kind(&self) -> String {
        match self {
            Parcel::Message { message, .. } => variant_name(message),
            Parcel::Cargo { cargo: Cargo::Datum { .. }, .. } => "a datum".into(),
            Parcel::Cargo { cargo: Cargo::Probe { .. }, .. } => "a probe".into(),
            Parcel::Broken { .. } => "a broken datum".into(),
        }
    }
}

/// Returns the name of the innermost variant, such as `Turn` of `Link(ToProber(Turn { to: … }))`.
pub(crate) fn variant_name(value: &dyn fmt::Debug) -> String {
    let text = format!("{value:?}");
    let path = &text[..text.find([' ', ',', ')', '[']).unwrap_or(text.len())];
    let path = path.trim_end_matches(|letter: char| letter == '(' || letter.is_ascii_digit());
    path.rsplit('(').next().unwrap_or(path).to_string()
}

/// The process message that a flow carries.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MessageFlow {
    pub(crate) name: MessageName,
    pub(crate) transfer: u64,
}

//! Versions of the protocol: which ones this build speaks, and how they differ. No other file states a difference.
//!
//! Two nodes speak the highest version that both speak. Messages are encoded by postcard: fields by position, variants by number. Therefore
//! - a *field* is added at the end of its struct, with `#[serde(default)]`, and is listed in [`fields_unknown_to`]. It is not sent to an older peer,
//!   and has its default in messages from one. A variant with fields of its own gets a struct around them first, which changes no byte;
//! - a *variant* is added at the end of its enum. A machine sends it only to peers whose `PeerUp` states a version that has it;
//! - nothing is removed, renumbered or given another type or meaning while a version that has it is spoken.
//!
//! The first release speaks version 1 alone. Each later release speaks the version of the release before it as well, so that a grid can be
//! updated one node at a time. `docs/decisions/versions.md` has the steps.

/// Lowest and highest version that this build speaks.
pub const VERSIONS: (u16, u16) = (1, 1);

/// The release of this build, which servers report.
pub const RELEASE: &str = env!("CARGO_PKG_VERSION");

/// Fields, each as the name of its struct and its own name.
pub type Fields = &'static [(&'static str, &'static str)];

/// The fields that a peer of this version does not know.
pub fn fields_unknown_to(_version: u16) -> Fields {
    &[]
}

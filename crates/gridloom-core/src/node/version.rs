//! Versions of the protocol: those that this build supports, and the differences between them. Differences are defined only here.
//!
//! Two nodes use the highest version that both support. Messages are encoded with postcard: fields by position,
//! variants by number. Therefore:
//! - A new *field* is added at the end of its struct, with `#[serde(default)]`, and is listed in [`unknown_to`]. It is
//!   not sent to an older peer, and has its default in messages from one. If a variant has named fields, they are
//!   moved to a struct first, which changes no byte.
//! - A new *variant* is added at the end of its enum. A machine does not send it to a peer whose `PeerUp` has an older version.
//! - Nothing is removed, renumbered or given another type or meaning. Items that are no longer sent stay until their
//!   version is no longer supported.
//!
//! These changes raise the highest version by one for each release. The lowest version is that of the last release.
//! `docs/decisions/versions.md` has the steps, and describes how a peer of an old version is tested.

/// Lowest and highest version that this build supports.
pub const VERSIONS: (u16, u16) = (46, 47);

/// The release of this build. Servers report it.
pub const RELEASE: &str = env!("CARGO_PKG_VERSION");

/// Fields as pairs of struct name and field name.
pub type Fields = &'static [(&'static str, &'static str)];

/// The servers' releases, methods for sending shared data to their readers, and slots for gangs.
const SINCE_47: Fields = &[
    ("Registration", "release"),
    ("ServerView", "release"),
    ("ServerView", "protocol"),
    ("OutlineDatum", "method"),
    ("Terms", "gang"),
    ("Kept", "method"),
    ("Transfer", "method"),
];

/// Returns the fields that a peer of that version does not know.
pub fn unknown_to(version: u16) -> Fields {
    match version {
        ..47 => SINCE_47,
        47.. => &[],
    }
}

//! Versions of the protocol: which ones this build speaks, and in what they differ. The one place where a difference is written.
//!
//! Two nodes speak the highest version that both speak. Messages are postcard: fields by position, variants by number. So
//! - a *field* is added at the end of its struct, with `#[serde(default)]`, and stands in [`unknown_to`]. For an older peer it is left out,
//!   and has its default in what comes from one. A variant with fields of its own gets a struct around them first, which changes no byte;
//! - a *variant* is added at the end of its enum. A machine sends it to no peer whose `PeerUp` says an older version;
//! - nothing is removed, renumbered or given another type or meaning. What is not sent any more stays until its version is spoken no more.
//!
//! With each of these the highest version rises by one, once for all that a release brings. The lowest one is the last release's. The
//! steps, and what a peer of an old version is tested with, stand in `docs/decisions/versions.md`.

/// Lowest and highest version that this build speaks.
pub const VERSIONS: (u16, u16) = (46, 47);

/// The release that this build is of. Servers tell it.
pub const RELEASE: &str = env!("CARGO_PKG_VERSION");

/// Fields, by the names of their structs and their own.
pub type Fields = &'static [(&'static str, &'static str)];

/// What servers run, how shared data get to those that read them, and slots for gangs.
const SINCE_47: Fields = &[
    ("Registration", "release"),
    ("ServerView", "release"),
    ("ServerView", "protocol"),
    ("OutlineDatum", "method"),
    ("Terms", "gang"),
    ("Kept", "method"),
    ("Transfer", "method"),
];

/// The fields that a peer of that version does not know.
pub fn unknown_to(version: u16) -> Fields {
    match version {
        ..47 => SINCE_47,
        47.. => &[],
    }
}

//! Management modes of data: how a copy that was placed on a server may be handled.
//!
//! Source: the proposal GFD.186 for data management in GridRPC; the modes have its names.

use std::fmt;

/// How a server, and others, may handle a copy that was placed on that server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// The server evicts the copy when others need the room.
    Volatile,
    /// The datum has no other copy and is erased once the first call that reads it has ended.
    StrictlyVolatile,
    /// The server keeps the copy until the datum is freed; other copies may be made.
    Sticky,
    /// The server keeps the copy, and the datum has no other.
    UniqueSticky,
    /// Some server keeps the datum; it may move and be copied.
    Persistent,
}

impl Mode {
    /// All modes, in the order of their numbers in C.
    pub const ALL: [Mode; 5] =
        [Mode::Volatile, Mode::StrictlyVolatile, Mode::Sticky, Mode::UniqueSticky, Mode::Persistent];

    /// Returns the standard's name.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Volatile => "GRPC_VOLATILE",
            Mode::StrictlyVolatile => "GRPC_STRICTLY_VOLATILE",
            Mode::Sticky => "GRPC_STICKY",
            Mode::UniqueSticky => "GRPC_UNIQUE_STICKY",
            Mode::Persistent => "GRPC_PERSISTENT",
        }
    }

    /// Returns the mode with that name.
    pub fn named(name: &str) -> Option<Mode> {
        Mode::ALL.into_iter().find(|mode| mode.name() == name)
    }

    /// True if the server never evicts the copy while the datum exists.
    pub fn is_kept(self) -> bool {
        match self {
            Mode::Sticky | Mode::UniqueSticky | Mode::StrictlyVolatile => true,
            Mode::Volatile | Mode::Persistent => false,
        }
    }

    /// True if the datum has only one copy: calls that read it must run where it is stored.
    pub fn is_single(self) -> bool {
        match self {
            Mode::UniqueSticky | Mode::StrictlyVolatile => true,
            Mode::Volatile | Mode::Sticky | Mode::Persistent => false,
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_one_copy_is_kept() {
        for mode in Mode::ALL {
            assert_eq!(Mode::named(mode.name()), Some(mode));
            assert!(mode.is_kept() || !mode.is_single(), "{mode}");
        }
        assert_eq!(Mode::named("GRPC_END_LIST"), None);
    }
}

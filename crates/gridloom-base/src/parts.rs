//! Parts in which large data are read and written: what has come whole of a datum, its receiver may pass on.

/// How large parts are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts {
    pub least_bytes: u64,
    pub most_bytes: u64,
}

/// Parts of a datum, between the bounds: each server of a chain is a part behind the one before it.
const PARTS: u64 = 256;
/// Parts of the least size that a datum has, if it is passed on while it comes.
const PARTS_MIN: u64 = 64;

impl Parts {
    /// Of a datum of that size.
    pub const fn of(self, size_bytes: u64) -> u64 {
        let part_bytes = size_bytes / PARTS;
        // `clamp` is not const.
        if part_bytes < self.least_bytes {
            self.least_bytes
        } else if part_bytes > self.most_bytes {
            self.most_bytes
        } else {
            part_bytes
        }
    }

    /// Whether a datum of that size is passed on while it comes. A smaller one would gain less than the messages cost.
    pub const fn passes_on(self, size_bytes: u64) -> bool {
        size_bytes >= self.passed_on_bytes_min()
    }

    /// The size from which on data are passed on while they come.
    pub const fn passed_on_bytes_min(self) -> u64 {
        PARTS_MIN * self.least_bytes
    }
}

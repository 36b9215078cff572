//! Parts in which large data are read and written. A receiver may forward the parts that it has received completely.

/// Bounds on the size of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartSizes {
    pub least_bytes: u64,
    pub most_bytes: u64,
}

/// Number of parts of a datum, if the bounds on their size allow it. Each server of a chain is one part behind its
/// predecessor.
const PARTS: u64 = 256;
/// Smallest number of parts, of the least size, of a datum that is forwarded while it is received.
const PARTS_MIN: u64 = 64;

impl PartSizes {
    /// Returns the size of the parts of a datum of `size_bytes`, in bytes.
    pub const fn part_bytes(self, size_bytes: u64) -> u64 {
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

    /// True if a datum of that size is forwarded while it is received. A smaller one would gain less than the
    /// messages cost.
    pub const fn is_forwarded_early(self, size_bytes: u64) -> bool {
        size_bytes >= self.forwarded_bytes_min()
    }

    /// Returns the smallest size of data that are forwarded while they are received.
    pub const fn forwarded_bytes_min(self) -> u64 {
        PARTS_MIN * self.least_bytes
    }
}

//! Leaves all chares where they are.

use super::{Balancer, Loads, longest_ns};

pub(super) const ENTRY: Balancer = Balancer {
    name: "none",
    about: "leaves all chares where they are",
    source: "baseline for comparisons",
    places: Loads::placement,
    cost_ns: longest_ns,
};

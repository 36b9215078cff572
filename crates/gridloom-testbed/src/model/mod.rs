//! The emulated network as pure state: packets are offered, cross links one after another, and are delivered.
//!
//! Nothing here reads a clock or uses a socket: time is passed in as nanoseconds since the start, so that rates and
//! delays are tested exactly.

pub mod fair;
pub mod link;
pub mod network;
pub mod random;
pub mod topology;

/// Nanoseconds since the testbed started. A float, so that a packet's share of a fast link is not rounded: after an
/// hour it still resolves a thousandth of a nanosecond.
pub type Ns = f64;

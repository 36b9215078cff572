//! Frames and codec of control connections, and the native data representation of typed messages.

pub mod frame;
pub mod layout;

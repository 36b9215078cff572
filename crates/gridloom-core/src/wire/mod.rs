//! Frames and codec of control connections.

pub mod frame;

//! The chart of `gridloom models --plot`.

mod block;
pub mod curves;

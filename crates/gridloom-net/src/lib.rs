//! gridloom-net

pub mod jobs;
pub mod payload;
pub mod segment;
pub mod store;
pub mod worker;

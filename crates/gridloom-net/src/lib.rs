//! Gridloom on real processes and networks: nodes, their transports, worker processes, shared memory and storage.

pub mod children;
mod cold_data;
pub mod descriptors;
mod disk_use;
pub mod driver;
pub mod durable;
pub mod filling;
pub mod identity;
pub mod jobs;
pub mod log;
pub mod partials;
pub mod payload;
mod pid;
pub mod process;
pub mod processor_clock;
pub mod segment;
pub mod signals;
mod sliced;
mod spilling;
mod spin;
pub mod storage;
pub mod store;
pub mod threads;
pub mod transfers;
pub mod transport;
pub mod uploads;
pub mod worker;

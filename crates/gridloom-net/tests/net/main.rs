//! Tests with real sockets and worker processes. They are one binary, because each separate test file would link the
//! same crates again.

mod channel_conformance;
#[path = "../common/mod.rs"]
mod common;
mod process_conformance;
mod through_relays;
mod transport_bulk;
mod transport_contract;
mod transport_forwarding;
mod transport_hostile;
mod transport_relay;
mod transport_resume;
mod transport_revocations;
mod transport_sites;
mod transport_stripes;
#[path = "../transport_support/mod.rs"]
mod transport_support;
mod transport_uploads;
mod transport_workers;
mod worker_failures;
mod worker_limits;
mod worker_objects;
mod worker_stopped;
mod worker_users;
mod worker_values;

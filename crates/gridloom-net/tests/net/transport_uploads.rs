//! Tests of the limit on the rate at which a node sends bulk data.

use std::time::{Duration, Instant};

use crate::transport_support::*;
use gridloom_base::DatumId;
use gridloom_core::node::{Effect, Role};
use gridloom_net::driver::NetConfig;

const SIZE_BYTES: u64 = 4 << 20;
/// Low enough that the time of a busy machine adds little to that of the limit.
const BYTES_PER_SECOND: f64 = 2e6;

/// Returns the time that sending data to two peers at once takes.
fn sent_to_two(upload_limit: Option<f64>, shared_memory: bool) -> Duration {
    let server = start(Role::Server, NetConfig { shared_memory, upload_limit, ..listening() });
    let readers = [1, 2].map(|_| {
        let reader = start(Role::Server, NetConfig { shared_memory, ..listening() });
        reader.dial(&server);
        reader
    });
    let begun = Instant::now();
    for (serial, reader) in (1..).zip(&readers) {
        let datum = server.put(serial, SIZE_BYTES);
        server.perform([Effect::SendDatum { to: reader.id(), datum }]);
    }
    for (serial, reader) in (1..).zip(&readers) {
        let payload = reader.expect_datum(DatumId { client: server.id(), serial });
        assert!(payload.bytes() == pattern(serial, SIZE_BYTES));
    }
    begun.elapsed()
}

#[test]
fn all_streams_together_stay_below_the_limit() {
    let takes = Duration::from_secs_f64(2.0 * SIZE_BYTES as f64 / BYTES_PER_SECOND);
    let limited = sent_to_two(Some(BYTES_PER_SECOND), false);
    assert!(limited > takes.mul_f64(0.95) && limited < takes * 3, "took {limited:?}; at the limit it takes {takes:?}");
}

#[test]
fn what_stays_on_the_host_has_no_limit() {
    let takes = Duration::from_secs_f64(2.0 * SIZE_BYTES as f64 / 1e5);
    assert!(sent_to_two(Some(1e5), true) < takes / 4);
}

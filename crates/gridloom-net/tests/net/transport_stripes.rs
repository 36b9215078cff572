//! Large data over several connections of one stream.

use crate::transport_support::*;
use gridloom_base::DatumId;
use gridloom_core::node::{Effect, Input, Role};
use gridloom_net::driver::NetConfig;

const STRIPES: u8 = 4;
const LARGE: u64 = 8 << 20;

/// Returns the number of established connections to a port of this machine.
fn connections_to(port: u16) -> usize {
    let table = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
    let is_one = |line: &&str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        fields[2].ends_with(&format!(":{port:04X}")) && fields[3] == "01"
    };
    table.lines().skip(1).filter(is_one).count()
}

#[test]
fn data_of_all_sizes_come_whole_over_several_connections() {
    let config = || NetConfig { shared_memory: false, stripes: Some(STRIPES), ..listening() };
    let (one, other) = (start(Role::Server, config()), start(Role::Server, config()));
    one.dial(&other);
    let sizes = || (0..12).map(|serial| (serial, LARGE / (serial + 1) + serial));
    for (serial, size_bytes) in sizes() {
        for (from, to) in [(&one, &other), (&other, &one)] {
            let datum = from.put(serial, size_bytes);
            from.perform([Effect::SendDatum { to: to.id(), datum }]);
        }
    }
    for (serial, size_bytes) in sizes() {
        for (from, to) in [(&one, &other), (&other, &one)] {
            let payload = to.expect_datum(DatumId { client: from.id(), serial });
            assert!(payload.bytes() == pattern(serial, size_bytes), "{size_bytes} bytes");
        }
    }
    let port = |node: &TestNode| node.node.address().rsplit_once(':').unwrap().1.parse().unwrap();
    // One of the two nodes has the control connection, too.
    let all = connections_to(port(&one)) + connections_to(port(&other));
    assert_eq!(all, 1 + 2 * usize::from(STRIPES));
    for size_bytes in [100_000, 4 << 20] {
        one.perform([Effect::SendProbe { to: other.id(), size_bytes }]);
        let from = one.id();
        other.expect("ProbeArrived", |i: &Input| (*i == Input::ProbeArrived { from, size_bytes }).then_some(()));
    }
}

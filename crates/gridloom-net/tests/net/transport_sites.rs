//! Emulated distant sites on one machine: traffic between them arrives complete, in order, and not before its time.

use std::time::{Duration, Instant};

use crate::transport_support::*;
use gridloom_base::{DatumId, Dtype, Meta};
use gridloom_core::node::message::LinkMessage;
use gridloom_core::node::{Effect, Input, Role};
use gridloom_net::driver::NetConfig;
use gridloom_net::payload::Payload;
use gridloom_net::transport::emulated_sites::Site;

const DELAY: Duration = Duration::from_millis(20);

fn at(site: &str, filters: &[&str], config: NetConfig) -> NetConfig {
    let filters = filters.iter().map(|text| text.parse().unwrap()).collect();
    NetConfig { site: Some(Site::new(site, filters).unwrap()), ..config }
}

fn two(filters: &[&str]) -> (TestNode, TestNode) {
    let server = start(Role::Server, at("2", filters, listening()));
    let client = start(Role::Client, at("1", filters, NetConfig::new(keys())));
    client.dial(&server);
    (client, server)
}

fn await_pong(node: &TestNode, token: u64) {
    let pong = LinkMessage::Pong { token }.into();
    node.expect("Pong", |i| matches!(i, Input::Received { message, .. } if *message == pong).then_some(()));
}

#[test]
fn messages_and_large_data_are_delayed_by_the_latency_of_the_path() {
    let (client, server) = two(&["rate=10MB/s", "delay=20ms"]);
    let begun = Instant::now();
    client.perform([Effect::Send { to: server.id(), message: LinkMessage::Ping { token: 1 }.into() }]);
    await_pong(&client, 1);
    assert!(begun.elapsed() >= 2 * DELAY, "{:?} there and back", begun.elapsed());
    let size_bytes = 1 << 20;
    for (from, to) in [(&client, &server), (&server, &client)] {
        let datum = from.put(2, size_bytes);
        let begun = Instant::now();
        from.perform([Effect::SendDatum { to: to.id(), datum }]);
        assert!(to.expect_datum(datum).bytes() == pattern(2, size_bytes));
        let least = DELAY + Duration::from_secs_f64(size_bytes as f64 / 10e6);
        assert!(begun.elapsed() >= least, "{:?} and {least:?}", begun.elapsed());
    }
}

#[test]
fn nodes_of_one_site_are_not_delayed() {
    // The longest possible delay: if it applied, the dials alone would not finish in time.
    let filters = ["rate=100kB/s", "delay=2s"];
    let server = start(Role::Server, at("1", &filters, listening()));
    let client = start(Role::Client, at("1", &filters, NetConfig::new(keys())));
    client.dial(&server);
    let begun = Instant::now();
    let datum = client.put(1, 4 << 20);
    client.perform([Effect::SendDatum { to: server.id(), datum }]);
    server.expect_datum(datum);
    assert!(begun.elapsed() < PATIENCE / 2);
}

#[test]
fn messages_beyond_the_limit_in_flight_wait_and_arrive_in_order() {
    let (client, server) = two(&["rate=20MB/s", "delay=20ms", "jitter=5ms"]);
    // Small data are sent with messages: some four times as many bytes as may be delayed.
    let (count, bytes) = (200, [7; 30_000]);
    let mut effects = Vec::new();
    for serial in 0..count {
        let datum = DatumId { client: client.id(), serial };
        client.node.store().put(datum, Meta::array(Dtype::Uint8, &[30_000]), Payload::copied(&bytes));
        effects.push(Effect::SendDatum { to: server.id(), datum });
        effects.push(Effect::Send { to: server.id(), message: LinkMessage::Pong { token: serial }.into() });
    }
    client.perform(effects);
    for serial in 0..count {
        let came = |input: &Input| matches!(input, Input::DatumArrived { datum, .. } if datum.serial == serial);
        server.expect("DatumArrived", |input| {
            let is_other = matches!(input, Input::DatumArrived { .. }) && !came(input);
            assert!(!is_other, "{input:?} before datum {serial}");
            came(input).then_some(())
        });
        await_pong(&server, serial);
        let last = DatumId { client: client.id(), serial };
        assert!(server.node.store().get(&last).unwrap().1.bytes() == bytes);
    }
}

#[test]
fn a_node_ends_though_much_waits_and_says_its_last_word_at_once() {
    let (client, server) = two(&["rate=100kB/s", "delay=2s"]);
    let begun = Instant::now();
    // Sending either would take minutes.
    let datum = client.put(1, 32 << 20);
    client.perform([
        Effect::SendDatum { to: server.id(), datum },
        Effect::Send { to: server.id(), message: LinkMessage::Pong { token: 1 }.into() },
        Effect::Disconnect { peer: server.id() },
    ]);
    await_pong(&server, 1);
    server.expect_lost(client.id());
    drop((client, server));
    assert!(begun.elapsed() < PATIENCE);
}

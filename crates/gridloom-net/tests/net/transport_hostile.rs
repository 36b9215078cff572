//! Garbage from strangers and from peers: at worst their own connection is closed.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::time::{Duration, Instant};

use crate::transport_support::*;
use gridloom_base::dial::ConnectionFault;
use gridloom_base::{DatumId, Dtype, Meta, NodeId};
use gridloom_channel::frame::Encoder;
use gridloom_channel::{Kind, WireVersion};
use gridloom_core::node::message::{LinkMessage, Message};
use gridloom_core::node::version::VERSIONS;
use gridloom_core::node::{Effect, Input, Role};
use gridloom_net::driver::NetConfig;
use gridloom_net::identity::Credentials;
use gridloom_net::payload::Payload;
use gridloom_net::transport::handshake::{Handshake, Hello, Purpose, Verdict, framed, run_blocking};
use gridloom_net::transport::{REFUSAL_CHARS_MAX, WorldMessage};

/// Waits until the node closes the connection. Returns the bytes that it sent before.
fn expect_closed(stream: &mut impl Read) -> Vec<u8> {
    let mut said = Vec::new();
    // A reset also closes the connection.
    let _ = stream.read_to_end(&mut said).inspect_err(|error| assert!(error.kind() != std::io::ErrorKind::WouldBlock));
    said
}

#[test]
fn strangers_who_talk_garbage_are_turned_away() {
    let server = server();
    let mut random = 88172645463325252u64;
    let garbage: Vec<u8> = std::iter::repeat_with(|| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random as u8
    })
    .take(100_000)
    .collect();
    for cut in [1, 9, 10, 100, 5000, 100_000] {
        let mut stream = connect_tcp(&server);
        // The connection may be closed before everything is written.
        let _ = stream.write_all(&garbage[..cut]);
        let _ = stream.shutdown(Shutdown::Write);
        expect_closed(&mut stream);
    }
    server.still_serves();
}

#[test]
fn oversized_and_untimely_frames_of_strangers_are_turned_away() {
    let server = server();
    let too_long = [&[0x01, 0x20, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0][..], &[0; 100]].concat();
    let message = raw_frame(0, 1, &[0, 0]);
    let data = raw_frame(0, 2, &[0; 20]);
    let replayed = raw_frame(1, 3, &[1]);
    let empty = raw_frame(0, 3, &[]);
    let verdict_first = raw_frame(0, 3, &[3, 0]);
    let hello_garbage = raw_frame(0, 3, b"\x01GRLM\x01\x00\x01\x00garbage");
    for bytes in [too_long, message, data, replayed, empty, verdict_first, hello_garbage] {
        let mut stream = connect(&server);
        stream.write_all(&bytes).unwrap();
        expect_closed(&mut stream);
    }
    server.still_serves();
}

#[test]
fn older_and_newer_versions_are_refused_in_words() {
    let server = server();
    for (low, high, outdated) in
        [(VERSIONS.1 + 1, VERSIONS.1 + 2, "this node"), (0, VERSIONS.0 - 1, "the node that offered them")]
    {
        let mut stream = connect(&server);
        let offer = [&b"\x01GRLM"[..], &low.to_le_bytes(), &high.to_le_bytes()].concat();
        stream.write_all(&raw_frame(0, 3, &offer)).unwrap();
        let said = String::from_utf8_lossy(&expect_closed(&mut stream)).into_owned();
        assert!(said.contains(&format!("the peer offers protocol versions {low} to {high}")), "{said}");
        assert!(said.contains(&format!("update {outdated}")), "{said}");
    }
    server.still_serves();
}

#[test]
fn a_node_that_claims_another_identity_is_refused() {
    let server = server();
    let mut stream = connect(&server);
    let own = Hello { node: NodeId(7), ..hello(Purpose::Control, 0) };
    let (_, first) = Handshake::dial(raw_credentials(), own).unwrap();
    stream.write_all(&framed(&mut Encoder::default(), &first)).unwrap();
    let said = String::from_utf8_lossy(&expect_closed(&mut stream)).into_owned();
    assert!(said.contains("somebody is using the identifier of another node"), "{said}");
    server.still_serves();
}

#[test]
fn peers_that_break_the_rules_are_lost_with_the_reason() {
    let server = server();
    let first = next_number(&server);
    let message = Message::from(LinkMessage::Pong { token: 1 });
    let mut good = Vec::new();
    let mut encoder = Encoder::default();
    (0..first).for_each(|_| encoder.message(Kind::Hello, &0u8, &mut Vec::new()).unwrap());
    encoder.message(Kind::Message, &message, &mut good).unwrap();
    let twice = format!("frame number {first} where {} was due", first + 1);
    let cases: [(Vec<u8>, &str); 6] = [
        (good, &twice),
        (raw_frame(first, 1, &[0xff; 40]), "malformed"),
        (raw_frame(first, 9, &[]), "unknown frame kind 9"),
        (raw_frame(first, 2, &[0xff; 40]), "malformed"),
        (raw_frame(first, 3, &[0xff; 40]), "malformed"),
        (vec![0xff; 16], "exceeds the limit"),
    ];
    for (bytes, part) in cases {
        let mut stream = shaken(&server, Purpose::Control, 0);
        stream.write_all(&[&bytes[..], &bytes].concat()).unwrap();
        let why = server.expect_lost(raw_id());
        assert!(why.contains(part), "{part}: {why}");
        // The peer receives the reason, too.
        let said = String::from_utf8_lossy(&expect_closed(&mut stream)).into_owned();
        assert!(said.contains(part), "{part}: {said}");
    }
    server.still_serves();
}

#[test]
fn a_node_receives_the_reason_when_its_peer_closes_the_connection() {
    let (server, client) = (server(), client());
    client.dial(&server);
    let datum = DatumId { client: NodeId(7), serial: 1 };
    assert!(client.node.store().put(datum, Meta::array(Dtype::Uint8, &[3]), Payload::copied(&[1, 2, 3])));
    client.perform([Effect::SendDatum { to: server.id(), datum }]);
    let why = client.expect_lost(server.id());
    assert!(
        why.starts_with("the peer rejected a message of this node: it sent") && why.ends_with("another client's"),
        "{why}"
    );
    server.still_serves();
}

#[test]
fn the_reason_of_a_peer_is_cut() {
    let server = server();
    let mut body = Vec::new();
    WireVersion::CURRENT
        .append(&WorldMessage::Refused { fault: ConnectionFault::NotANode, why: "é".repeat(1 << 20) }, &mut body);
    let bytes = raw_frame(next_number(&server), 3, &body);
    shaken(&server, Purpose::Control, 0).write_all(&bytes).unwrap();
    let why = server.expect_lost(raw_id());
    assert_eq!(why, format!("the peer rejected a message of this node: {}", "é".repeat(REFUSAL_CHARS_MAX)));
}

#[test]
fn a_truncated_frame_and_a_sudden_end_are_a_loss() {
    let server = server();
    let mut stream = shaken(&server, Purpose::Control, 0);
    stream.write_all(&[1, 0]).unwrap();
    drop(stream);
    server.expect_lost(raw_id());
    server.still_serves();
}

#[test]
fn bulk_of_a_stranger_is_refused() {
    let server = server();
    let mut stream = connect(&server);
    let (handshake, first) =
        gridloom_net::transport::handshake::Handshake::dial(raw_credentials(), hello(Purpose::BulkSend, 1)).unwrap();
    let done =
        gridloom_net::transport::handshake::run_blocking(&mut stream, handshake, Some(first), |_| unreachable!());
    assert!(done.unwrap_err().to_string().contains("without a control connection"));
    server.still_serves();
}

#[test]
fn a_flood_of_half_handshakes_leaves_the_node_serving_its_peers() {
    let server = server();
    let peer = client();
    peer.dial(&server);
    let half: Vec<_> = (0..400).map(|_| connect_tcp(&server)).collect();
    peer.perform([gridloom_core::node::Effect::Send {
        to: server.id(),
        message: LinkMessage::Ping { token: 5 }.into(),
    }]);
    peer.expect("Pong", |i| matches!(i, Input::Received { .. }).then_some(()));
    drop(half);
}

/// Opens as many half-open connections as this process has descriptors for: each takes two, since the server is in
/// this process too.
fn flood(server: &TestNode) -> Vec<std::net::TcpStream> {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(100_000);
    let count = (limit.saturating_sub(1000) / 2).min(4000);
    assert!(count > 1500, "at least one more than fit: {limit} descriptors");
    (0..count).map(|_| connect_tcp(server)).collect()
}

#[test]
fn a_newcomer_gets_in_through_a_flood_and_who_is_in_is_served() {
    let over_tcp = |config| NetConfig { shared_memory: false, ..config };
    let server = start(Role::Server, over_tcp(listening()));
    let inside = start(Role::Client, over_tcp(NetConfig::new(keys())));
    inside.dial(&server);
    let half = flood(&server);
    // A bulk connection of a known peer.
    let datum = inside.put(1, 3 << 20);
    inside.perform([Effect::SendDatum { to: server.id(), datum }]);
    assert!(server.expect_datum(datum).bytes() == pattern(1, 3 << 20));
    let newcomer = start(Role::Client, over_tcp(NetConfig::new(keys())));
    newcomer.dial(&server);
    inside.perform([Effect::Send { to: server.id(), message: LinkMessage::Ping { token: 5 }.into() }]);
    inside.expect("Pong", |i| matches!(i, Input::Received { .. }).then_some(()));
    drop(half);
}

#[test]
fn a_bulk_connection_without_the_pass_of_a_peer_is_refused_at_its_first_frame() {
    let server = server();
    let _control = shaken(&server, Purpose::Control, 0);
    let mut stream = connect(&server);
    let (_, first) = Handshake::dial(raw_credentials(), hello(Purpose::BulkSend, 1)).unwrap();
    stream.write_all(&framed(&mut Encoder::default(), &first)).unwrap();
    let said = String::from_utf8_lossy(&expect_closed(&mut stream)).into_owned();
    assert!(said.contains("a bulk connection without a control connection"), "{said}");
    let _bulk = shaken(&server, Purpose::BulkSend, 1);
    server.still_serves();
}

/// Resident memory of this process, bytes.
fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
}

/// Connects a member of its own, and sends this many requests with long answers, none of which it reads. Ends when the
/// node takes no more requests.
fn ask_without_reading(node: &TestNode, requests: usize) -> (NodeId, RawStream) {
    let credentials = Credentials::new(keys()).unwrap();
    let own = Hello { node: credentials.id(), ..hello(Purpose::Control, 0) };
    let address: SocketAddr = node.node.address().parse().unwrap();
    let mut stream = RawStream::dial(connect_tcp(node), &credentials.tls, &address.into()).unwrap();
    stream.set_blocking();
    let (id, mut encoder) = (credentials.id(), Encoder::default());
    let (handshake, first) = Handshake::dial(credentials, own).unwrap();
    run_blocking(&mut stream, handshake, Some(first), |_| Ok(Verdict::Welcome)).unwrap();
    (0..if id > node.id() { 2 } else { 1 }).for_each(|_| encoder.message(Kind::Hello, &0u8, &mut Vec::new()).unwrap());
    stream.get().set_write_timeout(Some(Duration::from_secs(5))).unwrap();
    for _ in 0..requests / 1000 {
        let mut bytes = Vec::new();
        let request = Message::from(LinkMessage::Ping { token: LONG_ANSWER });
        (0..1000).for_each(|_| encoder.message(Kind::Message, &request, &mut bytes).unwrap());
        if stream.write_all(&bytes).is_err() {
            break;
        }
    }
    (id, stream)
}

/// Earlier, up to 256 MiB of answers waited for each of them.
#[test]
fn the_answers_for_members_that_do_not_read_are_limited_and_they_are_disconnected() {
    const MEMBERS: usize = 24;
    const ANSWER_BYTES: u64 = 32 << 10;
    let agent = start(Role::Agent, listening());
    let meta = Meta::array(Dtype::Uint8, &[ANSWER_BYTES]);
    assert!(agent.node.store().put(ANSWER, meta, Payload::copied(&vec![7; ANSWER_BYTES as usize])));
    let other = client();
    other.dial(&agent);
    let exchange = || {
        let began = Instant::now();
        for token in 0..100 {
            other.perform([Effect::Send { to: agent.id(), message: LinkMessage::Ping { token }.into() }]);
            let pong = LinkMessage::Pong { token }.into();
            other.expect("Pong", |input| {
                matches!(input, Input::Received { message, .. } if *message == pong).then_some(())
            });
        }
        began.elapsed() / 100
    };
    let (before, alone) = (resident_bytes(), exchange());
    let members: Vec<_> = std::thread::scope(|scope| {
        let ask = || scope.spawn(|| ask_without_reading(&agent, 20_000));
        let asking: Vec<_> = (0..MEMBERS).map(|_| ask()).collect();
        asking.into_iter().map(|one| one.join().unwrap()).collect()
    });
    let grown_bytes = resident_bytes().saturating_sub(before);
    assert!(grown_bytes < MEMBERS * (8 << 20), "{grown_bytes} bytes for {MEMBERS} members");
    // Others are served meanwhile.
    let beside = exchange();
    println!(
        "{MEMBERS} members: {} KiB each; exchange of another: {alone:?} before, {beside:?} now",
        grown_bytes / MEMBERS / 1024
    );
    for _ in &members {
        let why = agent.expect("the loss of a member", |input| match input {
            Input::PeerLost { peer, why, .. } if members.iter().any(|(id, _)| id == peer) => Some(why.clone()),
            _ => None,
        });
        assert!(why.contains("it does not read its answers"), "{why}");
    }
    agent.still_serves();
}

/// A member with a slow link reads its answers in the end, although many wait for it.
#[test]
fn a_member_that_reads_late_gets_all_its_answers() {
    const ANSWER_BYTES: u64 = 32 << 10;
    const REQUESTS: usize = 2000;
    let agent = start(Role::Agent, listening());
    let meta = Meta::array(Dtype::Uint8, &[ANSWER_BYTES]);
    assert!(agent.node.store().put(ANSWER, meta, Payload::copied(&vec![7; ANSWER_BYTES as usize])));
    let (_, mut stream) = ask_without_reading(&agent, REQUESTS);
    let (mut left, mut buffer) = (REQUESTS as u64 * ANSWER_BYTES, vec![0; 1 << 20]);
    while left > 0 {
        let length = stream.read(&mut buffer).unwrap();
        assert!(length > 0, "{left} bytes are missing");
        left = left.saturating_sub(length as u64);
    }
}

//! Large data in both directions, over TCP and by shared memory, and what happens when transfers break off.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use crate::transport_support::*;
use gridloom_base::limits::PARTS;
use gridloom_base::{DatumId, Dtype, Meta};
use gridloom_channel::{WireVersion, frame};
use gridloom_core::node::message::LinkMessage;
use gridloom_core::node::{Effect, Input, Role};
use gridloom_net::driver::NetConfig;
use gridloom_net::identity::HostId;
use gridloom_net::payload::Payload;
use gridloom_net::transfers::{TransferProgress, Transfers};
use gridloom_net::transport::bulk::decode_header;
use gridloom_net::transport::handshake::{Handshake, Hello, Purpose, Verdict, run_blocking};
use gridloom_net::transport::host::HostSockets;
use gridloom_net::transport::sink::{Sink, encode_header};
use gridloom_net::transport::tls::TlsStream;
use gridloom_net::transport::{CORRUPTED_IN_A_ROW_MAX, Cargo, CargoHeader, LOCAL_HANDSHAKES_MAX, WorldMessage};

const LARGE: u64 = 3 << 20;

fn pair(shared_memory: bool) -> (TestNode, TestNode) {
    let server = start(Role::Server, NetConfig { shared_memory, ..listening() });
    let client = start(Role::Client, NetConfig { shared_memory, ..NetConfig::new(keys()) });
    client.dial(&server);
    (server, client)
}

/// Sends data of several sizes in both directions, interleaved. A client cannot be dialled, so this also covers the
/// connection that a peer is asked to open.
fn data_pass_both_ways(shared_memory: bool) {
    let (server, client) = pair(shared_memory);
    for serial in 0..20 {
        let size_bytes = LARGE / (serial + 1) + serial;
        for (from, to) in [(&server, &client), (&client, &server)] {
            let datum = from.put(serial, size_bytes);
            from.perform([Effect::SendDatum { to: to.id(), datum }]);
        }
    }
    for serial in 0..20 {
        for (from, to) in [(&server, &client), (&client, &server)] {
            let payload = to.expect_datum(DatumId { client: from.id(), serial });
            assert!(payload.bytes() == pattern(serial, LARGE / (serial + 1) + serial));
        }
    }
}

#[test]
fn data_pass_in_both_directions_over_tcp() {
    data_pass_both_ways(false);
}

#[test]
fn data_pass_in_both_directions_by_shared_memory() {
    data_pass_both_ways(true);
}

#[test]
fn probes_arrive_each_way_and_size() {
    for shared_memory in [false, true] {
        let (server, client) = pair(shared_memory);
        for size in [0, 1000, 4 << 20] {
            for (from, to) in [(&server, &client), (&client, &server)] {
                from.perform([Effect::SendProbe { to: to.id(), size_bytes: size }]);
                let from = from.id();
                let is = |i: &Input| (*i == Input::ProbeArrived { from, size_bytes: size }).then_some(());
                to.expect("ProbeArrived", is);
            }
        }
    }
}

#[test]
fn shared_memory_returns_to_its_owner_when_the_reader_lets_go() {
    let (server, client) = pair(true);
    let datum = server.put(1, LARGE);
    let key = match server.node.store().get(&datum).unwrap().1 {
        Payload::Segment { segment, .. } => segment.key(),
        other => panic!("{other:?}"),
    };
    server.perform([Effect::SendDatum { to: client.id(), datum }]);
    let held = client.expect_datum(datum);
    server.perform([Effect::DropDatum { datum }]);
    client.perform([Effect::DropDatum { datum }]);
    assert_eq!(server.node.store().pool().kept_bytes(), 0, "the reader still holds it");
    drop(held);
    // The release is sent on the control connection, so later messages cannot have overtaken it.
    while server.node.store().pool().kept_bytes() == 0 {
        client.perform([Effect::Send { to: server.id(), message: LinkMessage::Ping { token: 1 }.into() }]);
        client.expect("Pong", |i| matches!(i, Input::Received { .. }).then_some(()));
    }
    let again = server.node.store().pool().allocate(LARGE).unwrap();
    assert_eq!(again.segment().key(), key, "the same memory, warm");
}

#[test]
fn memory_of_a_lost_reader_is_abandoned_not_reused() {
    let (server, client) = pair(true);
    let datum = server.put(1, LARGE);
    server.perform([Effect::SendDatum { to: client.id(), datum }]);
    let held = client.expect_datum(datum);
    client.node.stop();
    server.expect_lost(client.id());
    server.perform([Effect::DropDatum { datum }]);
    assert_eq!(server.node.store().pool().kept_bytes(), 0);
    assert!(held.bytes() == pattern(1, LARGE));
}

#[test]
fn a_datum_that_is_there_is_not_replaced() {
    let (server, client) = pair(false);
    let datum = server.put(1, LARGE);
    client.node.store().put(datum, Meta::array(Dtype::Uint8, &[1]), Payload::copied(&[9]));
    server.perform([Effect::SendDatum { to: client.id(), datum }]);
    assert_eq!(client.expect_datum(datum).bytes(), [9]);
}

#[test]
fn a_datum_that_the_sender_does_not_have_is_broken() {
    let (server, client) = pair(true);
    let datum = DatumId { client: client.id(), serial: 77 };
    server.perform([Effect::SendDatum { to: client.id(), datum }]);
    client.expect("DatumBroken", |i| matches!(i, Input::DatumBroken { datum: d, .. } if *d == datum).then_some(()));
}

#[test]
fn a_datum_without_room_is_broken_and_the_next_one_comes() {
    let server = start(Role::Server, NetConfig { shared_memory: false, datum_bytes_max: LARGE, ..listening() });
    let client = start(Role::Client, NetConfig { shared_memory: false, ..NetConfig::new(keys()) });
    client.dial(&server);
    let (large, fits) = (client.put(1, LARGE + 1), client.put(2, LARGE));
    client.perform([large, fits].map(|datum| Effect::SendDatum { to: server.id(), datum }));
    let why = server.expect("DatumBroken", |i| match i {
        Input::DatumBroken { datum, why, .. } if *datum == large => Some(why.clone()),
        _ => None,
    });
    assert!(why.contains("no room"), "{why}");
    server.expect_datum(fits);
}

fn header(serial: u64, size_bytes: u64) -> CargoHeader {
    let datum = DatumId { client: raw_id(), serial };
    let cargo = Cargo::Datum { datum, meta: Meta::array(Dtype::Uint8, &[size_bytes]) };
    CargoHeader { serial, cargo, size_bytes, resume: None }
}

/// Sends a datum with this number.
fn send(bulk: &mut RawStream, number: u64) {
    let bytes = pattern(number, 100_000);
    Sink::new(bulk).datum(&header(number, 100_000), &Payload::copied(&bytes), &Transfers::default()).unwrap();
}

#[test]
fn a_client_that_vanishes_in_mid_transfer_leaves_nothing() {
    let server = server();
    let control = shaken(&server, Purpose::Control, 0);
    let mut bulk = shaken(&server, Purpose::BulkSend, 1);
    send(&mut bulk, 1);
    let arrived = DatumId { client: raw_id(), serial: 1 };
    server.expect_datum(arrived);
    bulk.write_all(&encode_header(&header(2, LARGE), WireVersion::CURRENT)).unwrap();
    bulk.write_all(&[0; 1000]).unwrap();
    drop((control, bulk));
    server.expect_lost(raw_id());
    // The partly filled memory returns to the pool once its thread has noticed.
    while server.node.store().pool().kept_bytes() < LARGE {
        std::thread::yield_now();
    }
    server.still_serves();
}

#[test]
fn progress_of_a_large_datum_is_reported_at_both_ends() {
    const SIZE_BYTES: u64 = 64 << 20;
    let server = server();
    let _control = shaken(&server, Purpose::Control, 0);
    let mut bulk = shaken(&server, Purpose::BulkSend, 1);
    let header = header(1, SIZE_BYTES);
    bulk.write_all(&encode_header(&header, WireVersion::CURRENT)).unwrap();
    for part in vec![7; 3 << 20].chunks(PARTS.part_bytes(SIZE_BYTES) as usize) {
        bulk.write_all(part).unwrap();
    }
    let datum = DatumId { client: raw_id(), serial: 1 };
    let come = |done_bytes| TransferProgress { number: 1, datum, is_sent: false, size_bytes: SIZE_BYTES, done_bytes };
    while server.node.store().transfers().list() != [come(3 << 20)] {
        std::thread::yield_now();
    }
    drop(bulk);
    while !server.node.store().transfers().list().is_empty() {
        std::thread::yield_now();
    }

    // A reader that takes two parts and no more; the rest fills the buffers between both ends.
    let moving = std::sync::Arc::new(Transfers::default());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut stream = TlsStream::plain(TcpStream::connect(listener.local_addr().unwrap()).unwrap());
    let (mut reader, _) = listener.accept().unwrap();
    let told = moving.clone();
    let writer = std::thread::spawn(move || {
        Sink::new(&mut stream).datum(&header, &Payload::copied(&vec![7; SIZE_BYTES as usize]), &told)
    });
    reader.read_exact(&mut vec![0; 2 << 20]).unwrap();
    let gone = || moving.list().first().map_or(0, |one| one.done_bytes);
    while gone() < 1 << 20 {
        std::thread::yield_now();
    }
    assert!(moving.list()[0].is_sent && gone() < SIZE_BYTES, "{:?}", moving.list());
    drop(reader);
    assert!(writer.join().unwrap().is_err() && moving.list().is_empty());
}

#[test]
fn a_broken_stream_is_reported_and_a_new_one_taken() {
    let server = server();
    let mut control = shaken(&server, Purpose::Control, 0);
    let mut bulk = shaken(&server, Purpose::BulkSend, 1);
    bulk.write_all(&encode_header(&header(1, LARGE), WireVersion::CURRENT)).unwrap();
    drop(bulk);
    // The control connection is still up: on it the server reports how much it received, and it accepts another stream.
    let mut said = [0; 9];
    control.read_exact(&mut said).unwrap();
    assert_eq!(said[8], 3, "an aside");
    let mut bulk = shaken(&server, Purpose::BulkSend, 2);
    send(&mut bulk, 2);
    server.expect_datum(DatumId { client: raw_id(), serial: 2 });
}

#[test]
fn a_bulk_header_that_lies_ends_the_peer() {
    for bad in [
        encode_header(&CargoHeader { size_bytes: 5, ..header(1, 9) }, WireVersion::CURRENT),
        encode_header(&header(0, 100), WireVersion::CURRENT),
        encode_header(&"what is this", WireVersion::CURRENT),
    ] {
        let server = server();
        let _control = shaken(&server, Purpose::Control, 0);
        let mut bulk = shaken(&server, Purpose::BulkSend, 1);
        bulk.write_all(&bad).unwrap();
        server.expect_lost(raw_id());
        server.still_serves();
    }
}

/// Reads the parts of a datum of `LARGE` bytes after its header.
fn read_parts(bulk: &mut RawStream) -> Vec<u8> {
    let mut bytes = vec![0; LARGE as usize];
    bulk.read_exact(&mut bytes).unwrap();
    bytes
}

/// Bytes change on their way, in a header or in a part: the server names the peer, and accepts the datum when it is sent
/// again.
#[test]
fn a_changed_part_is_not_taken_and_the_datum_comes_again() {
    let server = server();
    let _control = shaken(&server, Purpose::Control, 0);
    let (first, whole) = (header(1, LARGE), pattern(1, LARGE));
    let datum = DatumId { client: raw_id(), serial: 1 };
    for (stream, intact) in [(1, 0), (2, 100), (3, LARGE as usize - 100)] {
        let mut bulk = shaken(&server, Purpose::BulkSend, stream);
        if intact > 0 {
            bulk.write_all(&encode_header(&first, WireVersion::CURRENT)).unwrap();
            bulk.write_all(&whole[..intact]).unwrap();
        }
        // A record that the key of the connection has not encrypted.
        bulk.get_mut().write_all(&[&[23, 3, 3, 0, 100][..], &[7; 100]].concat()).unwrap();
        if intact > 0 {
            let why = server.expect("DatumBroken", |input| match input {
                Input::DatumBroken { from, datum: d, why, .. } if (*from, *d) == (raw_id(), datum) => Some(why.clone()),
                Input::DatumArrived { .. } => panic!("a changed datum has arrived"),
                _ => None,
            });
            assert!(why.contains("are not those that 'raw' sent"), "{why}");
        }
        while bulk.read(&mut [0]).is_ok_and(|read| read > 0) {}
        assert!(server.node.store().get(&datum).is_none());
    }
    let mut bulk = shaken(&server, Purpose::BulkSend, 5);
    Sink::new(&mut bulk).datum(&first, &Payload::copied(&whole), &Transfers::default()).unwrap();
    assert!(server.expect_datum(datum).bytes() == whole);
}

#[test]
fn a_path_that_corrupts_everything_is_abandoned() {
    let server = server();
    let _control = shaken(&server, Purpose::Control, 0);
    for stream in 1..=u64::from(CORRUPTED_IN_A_ROW_MAX) {
        let mut bulk = shaken(&server, Purpose::BulkSend, stream);
        bulk.get_mut().write_all(&[0xff; 64]).unwrap();
        while bulk.read(&mut [0]).is_ok_and(|read| read > 0) {}
    }
    let why = server.expect_lost(raw_id());
    assert!(why.contains("8 times in a row"), "{why}");
    server.still_serves();
}

#[test]
fn where_shared_memory_fails_tcp_is_taken() {
    let server = server();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    // The peer claims to run on this host but listens on no local socket, as a peer from another namespace would appear.
    let own = Hello { address, host: HostId::here().0, ..hello(Purpose::Control, 0) };
    let mut control = connect(&server);
    let (handshake, first) = Handshake::dial(raw_credentials(), own.clone()).unwrap();
    run_blocking(&mut control, handshake, Some(first), |_| Ok(Verdict::Welcome)).unwrap();
    server.expect("PeerUp", |i| matches!(i, Input::PeerUp { .. }).then_some(()));
    let datum = server.put(1, LARGE);
    server.perform([Effect::SendDatum { to: own.node, datum }]);
    let mut bulk = TlsStream::accept(listener.accept().unwrap().0, &raw_credentials().tls).unwrap();
    bulk.set_blocking();
    let handshake = Handshake::accept(raw_credentials(), own).unwrap();
    let (peer, ..) = run_blocking(&mut bulk, handshake, None, |_| Ok(Verdict::Welcome)).unwrap();
    assert_eq!((peer.node, peer.purpose), (server.id(), Purpose::BulkSend));
    let mut length = [0; 4];
    bulk.read_exact(&mut length).unwrap();
    let header: CargoHeader = decode_header(length, &mut bulk, WireVersion::CURRENT).unwrap();
    assert!(header.serial > 0 && header.size_bytes == LARGE, "{header:?}");
    assert!(read_parts(&mut bulk) == pattern(1, LARGE));
}

#[test]
fn who_finds_no_place_at_the_local_door_sends_over_tcp() {
    let (server, client) = pair(true);
    let sockets = HostSockets::open().unwrap();
    // They send nothing, and precede the client's connection in the queue.
    let idle: Vec<_> = (0..LOCAL_HANDSHAKES_MAX).map(|_| sockets.connect_node(server.id()).unwrap()).collect();
    let datum = client.put(1, LARGE);
    client.perform([Effect::SendDatum { to: server.id(), datum }]);
    assert!(server.expect_datum(datum).bytes() == pattern(1, LARGE));
    drop(idle);
    server.still_serves();
}

#[test]
fn only_the_requested_stream_is_accepted_and_only_once() {
    let server = server();
    let mut control = shaken(&server, Purpose::Control, 0);
    let datum = server.put(1, LARGE);
    let peer = raw_id();
    server.expect("PeerUp", |i| matches!(i, Input::PeerUp { .. }).then_some(()));
    server.perform([Effect::SendDatum { to: peer, datum }]);
    // The peer has no address, so it is asked to open the stream.
    let mut head = [0; frame::HEADER_BYTES];
    control.read_exact(&mut head).unwrap();
    let mut body = vec![0; u32::from_le_bytes(head[..4].try_into().unwrap()) as usize];
    control.read_exact(&mut body).unwrap();
    let WorldMessage::OpenBulk { stream } = frame::parse(&body, WireVersion::CURRENT).unwrap() else {
        panic!("{body:?}")
    };
    let refused = |stream| {
        let mut socket = connect(&server);
        let (handshake, first) = Handshake::dial(raw_credentials(), bulk_hello(Purpose::BulkReceive, stream)).unwrap();
        let error = run_blocking(&mut socket, handshake, Some(first), |_| unreachable!()).unwrap_err();
        assert!(error.to_string().contains("not requested"), "{error}");
    };
    (stream + 1..stream + 20).for_each(refused);
    let mut bulk = shaken(&server, Purpose::BulkReceive, stream);
    // The thread has the stream once the first bytes arrive.
    let mut length = [0; 4];
    bulk.read_exact(&mut length).unwrap();
    refused(stream);
    assert_eq!(decode_header::<CargoHeader>(length, &mut bulk, WireVersion::CURRENT).unwrap().size_bytes, LARGE);
    assert!(read_parts(&mut bulk) == pattern(1, LARGE));
    server.still_serves();
}

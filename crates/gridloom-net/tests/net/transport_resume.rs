//! Broken transfers resume where they stopped, from the same source or from another one with the same bytes.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use crate::transport_support::*;
use gridloom_base::{DatumId, Dtype, Meta, NodeId};
use gridloom_core::node::message::{DataMessage, Message};
use gridloom_core::node::{Effect, Input, Role};
use gridloom_net::driver::NetConfig;
use gridloom_net::payload::Payload;

const MIB: u64 = 1 << 20;
const SIZE_BYTES: u64 = 16 * MIB;
/// Bytes after which the connection is cut. TLS adds about 0.14 %.
const CUT_AT: u64 = 10 * MIB + 50_000;
/// Allowance for headers, TLS and messages.
const MORE_BYTES: u64 = 100_000;

/// Forwards connections to a node, counts the bytes sent there, and cuts the connection that exceeds a limit.
struct Relay {
    address: String,
    passed: Arc<AtomicU64>,
    cut_at: Arc<AtomicU64>,
}

impl Relay {
    fn to(node: &TestNode) -> Relay {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let there = node.node.address().to_string();
        let (passed, cut_at) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(u64::MAX)));
        let (counted, limit) = (passed.clone(), cut_at.clone());
        thread::spawn(move || {
            for near in listener.incoming() {
                let (near, far) = (near.unwrap(), TcpStream::connect(&there).unwrap());
                let back = (far.try_clone().unwrap(), near.try_clone().unwrap());
                let (counted, limit) = (counted.clone(), limit.clone());
                thread::spawn(move || pass((near, far), &counted, &limit));
                thread::spawn(move || pass(back, &AtomicU64::new(0), &AtomicU64::new(u64::MAX)));
            }
        });
        Relay { address, passed, cut_at }
    }

    fn passed(&self) -> u64 {
        self.passed.load(Ordering::SeqCst)
    }
}

fn pass((mut from, mut to): (TcpStream, TcpStream), passed: &AtomicU64, cut_at: &AtomicU64) {
    let mut piece = vec![0; 64 << 10];
    while let Ok(length @ 1..) = from.read(&mut piece) {
        let left = cut_at.load(Ordering::SeqCst).saturating_sub(passed.load(Ordering::SeqCst));
        let length = length.min(usize::try_from(left).unwrap_or(usize::MAX));
        passed.fetch_add(length as u64, Ordering::SeqCst);
        if to.write_all(&piece[..length]).is_err() || length as u64 == left {
            cut_at.store(u64::MAX, Ordering::SeqCst);
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}

fn over_tcp() -> TestNode {
    start(Role::Server, NetConfig { shared_memory: false, ..listening() })
}

fn datum() -> DatumId {
    DatumId { client: NodeId::CATALOG, serial: 1 }
}

fn meta() -> Meta {
    Meta::array(Dtype::Uint8, &[SIZE_BYTES])
}

/// Returns a server with a datum of this pattern, which sends to the reader through a relay.
fn source(reader: &TestNode, kind: u64) -> (TestNode, Relay) {
    let (source, relay) = (over_tcp(), Relay::to(reader));
    assert!(source.node.store().put(datum(), meta(), Payload::copied(&pattern(kind, SIZE_BYTES))));
    source.perform([Effect::Dial { address: relay.address.clone() }]);
    source.expect("PeerUp", |i| matches!(i, Input::PeerUp { .. }).then_some(()));
    reader.expect("PeerUp", |i| matches!(i, Input::PeerUp { .. }).then_some(()));
    (source, relay)
}

/// The reader requests the datum, and the source receives the request.
fn ask(reader: &TestNode, source: &TestNode) {
    let fetch = Message::Data(DataMessage::Fetch { datum: datum(), hops: 1, by_storage: false });
    reader.perform([Effect::Send { to: source.id(), message: fetch.clone() }]);
    source.expect("Fetch", |i| matches!(i, Input::Received { message, .. } if *message == fetch).then_some(()));
    source.perform([Effect::SendDatum { to: reader.id(), datum: datum() }]);
}

fn expect_broken(reader: &TestNode) -> String {
    reader.expect("DatumBroken", |input| match input {
        Input::DatumBroken { no_memory: false, why, .. } => Some(why.clone()),
        Input::DatumArrived { .. } => panic!("it has arrived"),
        _ => None,
    })
}

/// Starts a transfer from the source that breaks off.
fn begin(reader: &TestNode, source: &TestNode, relay: &Relay) {
    relay.cut_at.store(relay.passed() + CUT_AT, Ordering::SeqCst);
    ask(reader, source);
    expect_broken(reader);
    assert_eq!(reader.node.store().partials().bytes_of(datum()), Some(10 * MIB));
    assert!(reader.node.store().get(&datum()).is_none());
}

#[test]
fn a_datum_that_broke_off_continues_from_its_source() {
    let reader = over_tcp();
    let (source, relay) = source(&reader, 1);
    begin(&reader, &source, &relay);
    let before = relay.passed();
    ask(&reader, &source);
    assert!(reader.expect_datum(datum()).bytes() == pattern(1, SIZE_BYTES));
    let passed = relay.passed() - before;
    assert!((6 * MIB..6 * MIB + MORE_BYTES).contains(&passed), "{passed} bytes were sent");
    assert_eq!(reader.node.store().partials().bytes_of(datum()), None);
}

#[test]
fn a_datum_whose_source_is_lost_continues_from_another() {
    let reader = over_tcp();
    let (first, relay) = source(&reader, 1);
    let (second, other_relay) = source(&reader, 1);
    begin(&reader, &first, &relay);
    first.node.stop();
    reader.expect_lost(first.id());
    let before = other_relay.passed();
    ask(&reader, &second);
    assert!(reader.expect_datum(datum()).bytes() == pattern(1, SIZE_BYTES));
    let passed = other_relay.passed() - before;
    assert!((6 * MIB..6 * MIB + MORE_BYTES).contains(&passed), "{passed} bytes were sent");
}

#[test]
fn a_datum_that_was_made_again_otherwise_is_sent_from_its_first_byte() {
    let reader = over_tcp();
    let (first, relay) = source(&reader, 1);
    let (second, _other) = source(&reader, 2);
    begin(&reader, &first, &relay);
    ask(&reader, &second);
    let why = expect_broken(&reader);
    assert!(why.contains("differ from those of its sender"), "{why}");
    ask(&reader, &second);
    assert!(reader.expect_datum(datum()).bytes() == pattern(2, SIZE_BYTES));
}

#[test]
fn what_is_kept_of_a_datum_is_dropped_with_it_and_all_is_sent_then() {
    let reader = over_tcp();
    let (source, relay) = source(&reader, 1);
    begin(&reader, &source, &relay);
    reader.perform([Effect::DropDatum { datum: datum() }]);
    ask(&reader, &source);
    assert!(reader.expect_datum(datum()).bytes() == pattern(1, SIZE_BYTES));
    assert!(relay.passed() > CUT_AT + SIZE_BYTES);
}

//! An attacker between two ends: its changes are detected.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::transport_support::*;
use gridloom_core::node::message::LinkMessage;
use gridloom_core::node::{Effect, Input, Role};
use gridloom_net::driver::NetConfig;

const LARGE: u64 = 3 << 20;
/// The error reported for the cut connection.
const CHANGED: &str = "the received bytes differ from those that were sent";

/// Forwards connections to a node, and changes one byte on the way there.
struct Relay {
    address: String,
    /// The next chunk of at least this many bytes to the node is changed.
    changes_from: Arc<AtomicUsize>,
}

impl Relay {
    fn to(node: &TestNode) -> Relay {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (there, changes_from) = (node.node.address().to_string(), Arc::new(AtomicUsize::new(usize::MAX)));
        let change = changes_from.clone();
        thread::spawn(move || {
            for near in listener.incoming() {
                let (near, far) = (near.unwrap(), TcpStream::connect(&there).unwrap());
                let (back, forth) = ((far.try_clone().unwrap(), near.try_clone().unwrap()), (near, far));
                let change = change.clone();
                thread::spawn(move || pass(forth, &change));
                thread::spawn(move || pass(back, &AtomicUsize::new(usize::MAX)));
            }
        });
        Relay { address, changes_from }
    }

    fn change_from(&self, bytes: usize) {
        self.changes_from.store(bytes, Ordering::SeqCst);
    }
}

fn pass((mut from, mut to): (TcpStream, TcpStream), changes_from: &AtomicUsize) {
    let mut piece = vec![0; 64 << 10];
    while let Ok(length @ 1..) = from.read(&mut piece) {
        if length >= changes_from.load(Ordering::SeqCst) {
            changes_from.store(usize::MAX, Ordering::SeqCst);
            piece[length - 17] ^= 1;
        }
        if to.write_all(&piece[..length]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}

fn over_tcp(config: NetConfig) -> NetConfig {
    NetConfig { shared_memory: false, ..config }
}

/// Returns a server, a client that has dialled it through the relay, and the relay.
fn through_relay() -> (TestNode, TestNode, Relay) {
    let server = start(Role::Server, over_tcp(listening()));
    let client = start(Role::Client, over_tcp(NetConfig::new(keys())));
    let relay = Relay::to(&server);
    client.perform([Effect::Dial { address: relay.address.clone() }]);
    client.expect("PeerUp", |i| matches!(i, Input::PeerUp { .. }).then_some(()));
    (server, client, relay)
}

#[test]
fn a_message_that_a_relay_changes_is_not_taken_and_the_connection_is_cut() {
    let (server, client, relay) = through_relay();
    let ping = |token| Effect::Send { to: server.id(), message: LinkMessage::Ping { token }.into() };
    client.perform([ping(1)]);
    client.expect("Pong", |i| matches!(i, Input::Received { .. }).then_some(()));
    relay.change_from(1);
    client.perform([ping(2)]);
    let why = server.expect_lost(client.id());
    assert!(why.contains(CHANGED), "{why}");
    server.still_serves();
}

#[test]
fn a_datum_that_a_relay_changes_is_not_taken_and_comes_when_it_is_sent_again() {
    let (server, client, relay) = through_relay();
    let datum = client.put(1, LARGE);
    client.perform([Effect::SendDatum { to: server.id(), datum }]);
    assert!(server.expect_datum(datum).bytes() == pattern(1, LARGE), "a relay that changes nothing");
    let datum = client.put(2, LARGE);
    relay.change_from(16 << 10);
    client.perform([Effect::SendDatum { to: server.id(), datum }]);
    let why = server.expect("DatumBroken", |input| match input {
        Input::DatumBroken { datum: d, why, .. } if *d == datum => Some(why.clone()),
        Input::DatumArrived { .. } => panic!("a changed datum has arrived"),
        _ => None,
    });
    assert!(why.contains("are not those that 'Client' sent"), "{why}");
    assert!(server.node.store().get(&datum).is_none());
    // Like a server that requests the datum again, after the notice that the stream has ended.
    server.perform([Effect::Send { to: client.id(), message: LinkMessage::Ping { token: 3 }.into() }]);
    client.expect("Ping", |i| matches!(i, Input::Received { .. }).then_some(()));
    client.perform([Effect::SendDatum { to: server.id(), datum }]);
    assert!(server.expect_datum(datum).bytes() == pattern(2, LARGE));
}

//! Data that a server forwards while receiving them: the far end gets the parts that have arrived, and never a
//! complete datum from a broken transfer.

use std::io::Write;
use std::net::Shutdown;

use crate::transport_support::*;
use gridloom_base::limits;
use gridloom_base::{DatumId, Dtype, Meta};
use gridloom_channel::WireVersion;
use gridloom_core::node::{Effect, Input, Role};
use gridloom_net::driver::NetConfig;
use gridloom_net::transport::handshake::Purpose;
use gridloom_net::transport::sink::encode_header;
use gridloom_net::transport::{Cargo, CargoHeader};

const SIZE_BYTES: u64 = 2 * limits::PARTS.forwarded_bytes_min();
const PART_BYTES: u64 = limits::PARTS.part_bytes(SIZE_BYTES);
const PARTS: u64 = SIZE_BYTES / PART_BYTES;

fn datum() -> DatumId {
    DatumId { client: raw_id(), serial: 1 }
}

/// A raw client that sends a datum to a server, which forwards it to a second one, and that to a third.
struct Chain {
    servers: [TestNode; 3],
    _control: RawStream,
    bulk: RawStream,
    bytes: Vec<u8>,
    sent: usize,
}

impl Chain {
    fn new(shared_memory: bool) -> Chain {
        let servers = [(); 3].map(|()| start(Role::Server, NetConfig { shared_memory, ..listening() }));
        servers[0].dial(&servers[1]);
        servers[1].dial(&servers[2]);
        let control = shaken(&servers[0], Purpose::Control, 0);
        let bulk = shaken(&servers[0], Purpose::BulkSend, 1);
        let bytes = pattern(1, SIZE_BYTES);
        Chain { servers, _control: control, bulk, bytes, sent: 0 }
    }

    /// Returns a chain in which the first part has arrived at the second server.
    fn passing() -> Chain {
        let mut chain = Chain::new(false);
        chain.begin();
        chain.send(1);
        chain.expect_begun(0);
        chain.pass_on(0);
        chain.expect_begun(1);
        chain
    }

    fn pass_on(&self, from: usize) {
        self.servers[from].perform([Effect::SendDatum { to: self.servers[from + 1].id(), datum: datum() }]);
    }

    /// Sends the header.
    fn begin(&mut self) {
        let meta = Meta::array(Dtype::Uint8, &[SIZE_BYTES]);
        let cargo = Cargo::Datum { datum: datum(), meta };
        let header = CargoHeader { serial: 1, cargo, size_bytes: SIZE_BYTES, resume: None };
        self.bulk.write_all(&encode_header(&header, WireVersion::CURRENT)).unwrap();
    }

    /// Sends the next `parts` parts; each server but the last forwards what it receives.
    fn send(&mut self, parts: u64) {
        for _ in 0..parts {
            let part = &self.bytes[self.sent..self.sent + PART_BYTES as usize];
            self.bulk.write_all(part).unwrap();
            self.sent += PART_BYTES as usize;
        }
    }

    /// Sends the header and `parts` parts; each server but the last forwards them to the next.
    fn begin_and_pass_on(&mut self, parts: u64) {
        self.begin();
        self.send(parts);
        let last = self.servers.len() - 1;
        for at in 0..=last {
            self.expect_begun(at);
            if at < last {
                self.pass_on(at);
            }
        }
    }

    fn expect_begun(&self, at: usize) {
        let begun = |input: &Input| matches!(input, Input::DatumBegun { datum: d, .. } if *d == datum()).then_some(());
        self.servers[at].expect("DatumBegun", begun);
    }

    fn expect_broken(&self, at: usize) {
        let broken = |input: &Input| match input {
            Input::DatumBroken { datum: d, no_memory: false, .. } if *d == datum() => Some(()),
            Input::DatumArrived { .. } => panic!("a datum that broke off has arrived"),
            _ => None,
        };
        self.servers[at].expect("DatumBroken", broken);
    }

    fn expect_nothing(&self) {
        for server in &self.servers {
            let store = server.node.store();
            assert!(store.get(&datum()).is_none() && store.held_bytes() == 0);
            // Its threads release the memory once they have noticed. The received part is kept for a while.
            while store.pool().kept_bytes() < SIZE_BYTES || store.incoming(&datum()).is_some() {
                store.partials().forget(datum());
                std::thread::yield_now();
            }
            server.still_serves();
        }
    }
}

#[test]
fn each_server_has_the_first_part_before_the_last_is_sent_and_all_get_every_byte() {
    let mut chain = Chain::new(false);
    chain.begin_and_pass_on(2);
    chain.send(PARTS - 3);
    let last = chain.bytes[chain.sent..].to_vec();
    let (end, before) = last.split_last().unwrap();
    chain.bulk.write_all(before).unwrap();
    for server in &chain.servers {
        assert!(server.node.store().get(&datum()).is_none(), "its last byte was not sent yet");
    }
    chain.bulk.write_all(&[*end]).unwrap();
    for server in &chain.servers {
        assert!(server.expect_datum(datum()).bytes() == chain.bytes);
    }
}

#[test]
fn what_comes_slowly_holds_nothing_up() {
    let mut chain = Chain::passing();
    let whole = chain.servers[0].put(5, SIZE_BYTES);
    chain.servers[0].perform([Effect::SendDatum { to: chain.servers[1].id(), datum: whole }]);
    assert!(chain.servers[1].expect_datum(whole).bytes() == pattern(5, SIZE_BYTES));
    chain.send(PARTS - 1);
    assert!(chain.servers[1].expect_datum(datum()).bytes() == chain.bytes);
}

#[test]
fn a_node_of_the_same_host_gets_what_comes_when_it_is_whole() {
    let mut chain = Chain::new(true);
    chain.begin();
    chain.send(1);
    chain.expect_begun(0);
    chain.pass_on(0);
    chain.send(PARTS - 1);
    assert!(chain.servers[0].expect_datum(datum()).bytes() == chain.bytes);
    assert!(chain.servers[1].expect_datum(datum()).bytes() == chain.bytes);
}

#[test]
fn what_breaks_off_breaks_off_at_all_and_leaves_nothing() {
    let mut chain = Chain::new(false);
    chain.begin_and_pass_on(3);
    chain.bulk.get().shutdown(Shutdown::Both).unwrap();
    chain.expect_broken(1);
    chain.expect_broken(2);
    chain.expect_nothing();
    // The connections between them still carry data.
    let next = chain.servers[0].put(5, SIZE_BYTES);
    chain.servers[0].perform([Effect::SendDatum { to: chain.servers[1].id(), datum: next }]);
    assert!(chain.servers[1].expect_datum(next).bytes() == pattern(5, SIZE_BYTES));
}

#[test]
fn a_changed_part_is_not_forwarded() {
    let mut chain = Chain::new(false);
    chain.begin_and_pass_on(2);
    // The bytes have arrived at the first server, and at no other.
    let done = |server: &TestNode, is_sent| {
        let moving = server.node.store().transfers().list();
        moving.iter().filter(|one| one.is_sent == is_sent).map(|one| one.done_bytes).max()
    };
    while done(&chain.servers[2], false) != Some(2 * PART_BYTES) {
        std::thread::yield_now();
    }
    chain.bulk.write_all(&vec![7; PART_BYTES as usize / 2]).unwrap();
    assert_eq!(done(&chain.servers[0], true), Some(2 * PART_BYTES));
    // A record that the key of the connection has not encrypted.
    chain.bulk.get_mut().write_all(&[&[23, 3, 3, 0, 100][..], &[7; 100]].concat()).unwrap();
    chain.expect_broken(0);
    chain.expect_broken(1);
    chain.expect_broken(2);
    chain.expect_nothing();
}

#[test]
fn a_broken_transfer_within_one_host_is_reported_too() {
    let mut chain = Chain::new(true);
    chain.begin();
    chain.send(1);
    chain.expect_begun(0);
    chain.pass_on(0);
    chain.bulk.get().shutdown(Shutdown::Both).unwrap();
    chain.expect_broken(1);
}

#[test]
fn a_lost_receiver_holds_nothing_up() {
    let mut chain = Chain::passing();
    chain.servers[1].node.stop();
    chain.servers[0].expect_lost(chain.servers[1].id());
    chain.send(PARTS - 1);
    assert!(chain.servers[0].expect_datum(datum()).bytes() == chain.bytes);
}

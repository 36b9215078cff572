//! Connections that end while they delay outgoing frames.

use mio::net::UnixStream;
use mio::{Poll, Waker};

use gridloom_core::node::Role;

use super::*;
use crate::identity::keys::tests::keys;
use crate::transport::emulated_sites::Site;
use crate::transport::stripes::Stripe;

fn contacts(poll: &Poll) -> Connections {
    let credentials = Credentials::new(keys(gridloom_keys::Role::Client)).unwrap();
    let own = Hello {
        purpose: Purpose::Control,
        node: credentials.id(),
        number: [0; 16],
        role: Role::Client,
        name: String::new(),
        address: String::new(),
        host: String::new(),
        stream: 0,
        stripe: Stripe::ONE,
        nonce: [0; 32],
        pass: None,
        machine: String::new(),
    };
    let registry = poll.registry().try_clone().unwrap();
    let inbox = Inbox::new(Waker::new(&registry, Token(0)).unwrap());
    Connections::new(own, credentials, registry, Arc::new(inbox), None, (None, Arc::default()), Arc::default())
}

/// Adds a connection to another site with a delayed frame. Returns its token and the peer's end.
fn holding(contacts: &mut Connections) -> (usize, UnixStream) {
    let (stream, end) = UnixStream::pair().unwrap();
    let token = contacts.next_token;
    let handshake = Handshake::accept(contacts.credentials.clone(), contacts.own.clone()).unwrap();
    let stage = Stage::Up(NodeId(token as u64));
    let contact = contacts
        .add(TlsStream::plain(DelayedStream::new(Stream::Unix(stream))), stage, handshake, None, Time::NEVER)
        .unwrap();
    let apart = EmulatedLinks::new(Some(Site::new("1", vec!["delay=2s".parse().unwrap()]).unwrap()));
    contact.channel.stream_mut().get_mut().delay(apart.link_to("").unwrap().delays(0));
    contact.queue_handshake_frame(b"held back");
    contacts.open.dirty.insert(token);
    (token, end)
}

#[test]
fn nothing_is_due_when_the_last_connection_that_held_something_is_lost() {
    let poll = Poll::new().unwrap();
    let mut contacts = contacts(&poll);
    let (first, _first_end) = holding(&mut contacts);
    contacts.flush();
    let due = contacts.due().expect("the first waits");
    let (second, _second_end) = holding(&mut contacts);
    contacts.flush();
    assert_eq!(contacts.due(), Some(due));
    contacts.lose(first, "a test");
    contacts.flush();
    assert!(contacts.due().is_some_and(|later| later > due), "the second waits");
    contacts.lose(second, "a test");
    contacts.flush();
    assert_eq!(contacts.due(), None);
}

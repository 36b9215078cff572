//! Handshakes, and their refusals.

use std::os::unix::net::UnixStream;

use super::*;
use crate::identity::Secret;

fn credentials() -> Credentials {
    Credentials::new(Secret::from_bytes(b"test")).unwrap()
}

fn hello(purpose: Purpose) -> Hello {
    Hello {
        purpose,
        node: NodeId(1),
        key: [0; 32],
        role: Role::Client,
        name: String::new(),
        address: String::new(),
        host: String::new(),
        stream: 1,
        stripe: Stripe::ONE,
        nonce: [0; 32],
        pass: None,
        ticket: None,
    }
}

/// Runs a handshake in which a node with the credentials `of` claims to own the key of `says`. Returns the acceptor's result.
fn accepted(of: &Credentials, says: &Credentials) -> Result<(), HandshakeError> {
    let own = Hello { node: says.key.id(), ..hello(Purpose::Process) };
    let (mut dialler, _) = Handshake::dial(of.clone(), own).unwrap();
    dialler.own.key = says.key.public();
    dialler.own_body = hello_body(&dialler.own);
    let server = credentials();
    let own = Hello { node: server.key.id(), ..hello(Purpose::Process) };
    let mut acceptor = Handshake::accept(server, own).unwrap();
    let welcome = |_: &Hello| Ok(Verdict::Welcome);
    let (mut to_dialler, mut to_acceptor) = (Vec::new(), vec![dialler.own_body.clone()]);
    while !to_acceptor.is_empty() {
        for body in std::mem::take(&mut to_acceptor) {
            acceptor.on_frame(&body, &mut to_dialler, welcome)?;
        }
        for body in std::mem::take(&mut to_dialler) {
            dialler.on_frame(&body, &mut to_acceptor, welcome)?;
        }
    }
    Ok(())
}

#[test]
fn who_shows_the_public_key_of_another_node_cannot_sign_with_it() {
    let (insider, victim) = (credentials(), credentials());
    accepted(&insider, &insider).unwrap();
    let error = accepted(&insider, &victim).unwrap_err();
    assert!(matches!(&error, HandshakeError::Unacceptable(why) if why.contains(OTHER_NODE)), "{error}");
}

#[test]
fn both_sides_speak_the_highest_version_that_both_know() {
    let (lowest, highest) = VERSIONS;
    assert_eq!(negotiated_version((lowest, highest)), Some(highest));
    assert_eq!(negotiated_version((lowest - 1, lowest)), Some(lowest));
    assert_eq!(negotiated_version((highest, highest + 1)), Some(highest));
    assert_eq!(negotiated_version((0, lowest - 1)), None);
    assert_eq!(negotiated_version((highest + 1, highest + 2)), None);
    assert_eq!(negotiated_version((highest + 1, lowest)), None, "no range");
}

/// Returns an acceptor's reply to a first frame that offers these versions and has extra bytes after the hello.
fn answer(purpose: Purpose, (low, high): (u16, u16), behind: &[u8]) -> Result<Session, HandshakeError> {
    let of = credentials();
    let own = Hello { node: of.key.id(), key: of.key.public(), ..hello(purpose) };
    let mut first = hello_body(&own);
    first[5..7].copy_from_slice(&low.to_le_bytes());
    first[7..9].copy_from_slice(&high.to_le_bytes());
    first.extend_from_slice(behind);
    let server = credentials();
    let mut acceptor = Handshake::accept(server.clone(), Hello { node: server.key.id(), ..own }).unwrap();
    acceptor.on_frame(&first, &mut Vec::new(), |_| unreachable!("no proof has come"))?;
    Ok(acceptor.take_session().expect("both hellos were there"))
}

#[test]
fn extra_bytes_after_the_hello_of_a_newer_peer_are_ignored_and_an_older_one_sends_none() {
    let (lowest, highest) = VERSIONS;
    assert_eq!(answer(Purpose::Control, (highest, highest + 1), b"new").unwrap().version, highest);
    assert_eq!(answer(Purpose::Control, (lowest, lowest), b"").unwrap().version, lowest);
    let error = answer(Purpose::Control, (lowest, highest), b"new").unwrap_err();
    assert!(matches!(&error, HandshakeError::Malformed(_)), "{error}");
}

#[test]
fn processes_of_two_releases_refuse_each_other_in_words() {
    let (lowest, highest) = VERSIONS;
    answer(Purpose::Process, (lowest, highest), b"").unwrap();
    let error = answer(Purpose::Process, (highest, highest + 1), b"").unwrap_err().to_string();
    assert!(error.contains("install the same release on both sides"), "{error}");
}

#[test]
fn a_stranger_who_sends_a_byte_now_and_then_is_abandoned_at_the_deadline() {
    let (here, mut there) = UnixStream::pair().unwrap();
    let mut here = TlsStream::plain(here);
    let own = hello(Purpose::Local);
    let drip = std::thread::spawn(move || {
        // The first four bytes announce the length of the frame.
        let mut bytes = (HANDSHAKE_BYTES_MAX as u32).to_le_bytes().into_iter().chain(std::iter::repeat(0));
        while there.write_all(&[bytes.next().expect("it has no end")]).is_ok() {
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    let handshake = Handshake::accept(credentials(), own).unwrap();
    let limit = Duration::from_millis(50);
    let error = run_within(limit, &mut here, handshake, None, |_| Ok(Verdict::Welcome)).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    drop(here);
    drip.join().unwrap();
}

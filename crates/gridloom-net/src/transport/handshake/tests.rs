//! Handshakes, and their refusals.

use std::os::unix::net::UnixStream;

use super::*;
use crate::identity::keys::tests::{certificate, keys};

fn credentials() -> Credentials {
    Credentials::new(keys(CertifiedRole::Client)).unwrap()
}

fn hello(of: &Credentials, purpose: Purpose) -> Hello {
    Hello {
        purpose,
        node: of.id(),
        number: [0; 16],
        role: Role::Client,
        name: String::new(),
        address: String::new(),
        host: String::new(),
        stream: 1,
        stripe: Stripe::ONE,
        nonce: [0; 32],
        pass: None,
        machine: String::new(),
    }
}

/// Returns an acceptor's answer to a dialler with this certificate.
fn answer_to(first: &[u8], shown: Result<Option<Certificate>, ConnectionError>) -> Result<Session, HandshakeError> {
    let server = credentials();
    let mut acceptor = Handshake::accept(server.clone(), hello(&server, Purpose::Control)).unwrap();
    acceptor.certificate = shown;
    acceptor.on_frame(first, &mut Vec::new(), |_| Ok(Verdict::Welcome))?;
    Ok(acceptor.take_session().expect("both hellos were there"))
}

#[test]
fn the_role_in_the_certificate_decides_what_a_user_may() {
    let of = |role, name| origin_of(&certificate(role, name), "laptop");
    let anna = of(CertifiedRole::Client, "anna");
    assert_eq!((&*anna.user, &*anna.host, anna.is_administrator, anna.is_functions), ("anna", "laptop", false, false));
    assert!(anna.may_call("m/f") && !anna.may_call("python/run") && !anna.may_change("bert"));
    assert!(of(CertifiedRole::Administrator, "carol").is_administrator);
    // A server or agent is not the user of its name, and its functions act for the programs that call them.
    for (role, user) in [
        (CertifiedRole::Functions, "functions of anna"),
        (CertifiedRole::Server, "server anna"),
        (CertifiedRole::Agent, "agent anna"),
    ] {
        let origin = of(role, "anna");
        assert_eq!((&*origin.user, origin.is_functions), (user, true));
        assert!(origin.may_call("python/run") && origin.may_change("bert"));
    }
}

#[test]
fn the_certificate_decides_who_a_node_is() {
    let of = credentials();
    let own = certificate(CertifiedRole::Client, "test");
    let first = Handshake::dial(of.clone(), hello(&of, Purpose::Control)).unwrap().1;
    answer_to(&first, Ok(Some(own.clone()))).unwrap();
    let refused = |shown| match answer_to(&first, shown).unwrap_err() {
        HandshakeError::Unacceptable(error) => error,
        error => panic!("{error:?}"),
    };
    let error = |fault, why: &str| ConnectionError::new(fault, why);
    assert_eq!(refused(Ok(None)), error(ConnectionFault::NoCertificate, "it has shown no certificate"));
    let revoked = error(ConnectionFault::Revoked, "it was revoked");
    assert_eq!(refused(Err(revoked.clone())), revoked);
    let other = refused(Ok(Some(certificate(CertifiedRole::Client, "another"))));
    assert!(other.fault == ConnectionFault::WrongIdentity && other.why.contains(OTHER_NODE), "{other}");
    let of_server = Hello { role: Role::Server, ..hello(&of, Purpose::Control) };
    let first = Handshake::dial(of.clone(), of_server).unwrap().1;
    let error = answer_to(&first, Ok(Some(own))).unwrap_err().to_string();
    assert!(error.contains("does not allow it to be a server"), "{error}");
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
    let mut first = Handshake::dial(of.clone(), hello(&of, purpose)).unwrap().1;
    first[5..7].copy_from_slice(&low.to_le_bytes());
    first[7..9].copy_from_slice(&high.to_le_bytes());
    first.extend_from_slice(behind);
    answer_to(&first, Ok(Some(certificate(CertifiedRole::Client, "test"))))
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
    let of = credentials();
    let own = hello(&of, Purpose::Control);
    let drip = std::thread::spawn(move || {
        // The first four bytes announce the length of the frame.
        let mut bytes = (HANDSHAKE_BYTES_MAX as u32).to_le_bytes().into_iter().chain(std::iter::repeat(0));
        while there.write_all(&[bytes.next().expect("it has no end")]).is_ok() {
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    let handshake = Handshake::accept(of, own).unwrap();
    let limit = Duration::from_millis(50);
    let error = run_within(limit, &mut here, handshake, None, |_| Ok(Verdict::Welcome)).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    drop(here);
    drip.join().unwrap();
}

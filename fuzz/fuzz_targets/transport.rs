//! Connections between nodes: the handshake on both sides, with and without a certificate of the peer, messages of worlds, headers of
//! large data, and the messages of relays. No bytes make them panic, and only a peer with the identity of its identifier gets in.

#![no_main]

#[allow(dead_code, reason = "one direction of each message is used")]
#[path = "../../crates/gridloom-net/src/transport/relay/protocol.rs"]
mod relay;

use std::sync::LazyLock;

use gridloom_channel::WireVersion;
use gridloom_channel::frame::parse;
use gridloom_core::node::Role;
use gridloom_core::node::version::{VERSIONS, fields_unknown_to};
use gridloom_keys::{Authority, Bundle, Grant, Identity, Role as CertifiedRole, UnixTime};
use gridloom_net::identity::{Credentials, Keys};
use gridloom_net::transport::bulk::{check_header, decode_header};
use gridloom_net::transport::handshake::{HANDSHAKE_BYTES_MAX, Handshake, Hello, Purpose, Verdict};
use gridloom_net::transport::stripes::Stripe;
use gridloom_net::transport::{CargoHeader, WorldMessage};
use libfuzzer_sys::fuzz_target;

static AUTHORITY: LazyLock<Authority> =
    LazyLock::new(|| Authority::new("lab", UnixTime::now()).expect("it has random numbers"));
/// The peer has the identity of the seeds.
static PEER: LazyLock<Bundle> = LazyLock::new(|| bundle(CertifiedRole::Server, "peer"));
static OWN: LazyLock<Credentials> = LazyLock::new(|| {
    let membership = bundle(CertifiedRole::Client, "own").membership().expect("it was just issued");
    Credentials::new(Keys::new(membership)).expect("it has random numbers")
});

fn bundle(role: CertifiedRole, name: &str) -> Bundle {
    let identity = Identity::new("lab", role, name).expect("it is a name");
    AUTHORITY.issue_bundle(&Grant::new(identity), UnixTime::now()).expect("it can be issued")
}

fuzz_target!(|bytes: &[u8]| {
    let Some((kind, bytes)) = bytes.split_first() else { return };
    match kind % 4 {
        0 => handshakes(bytes),
        1 => {
            for version in [WireVersion::CURRENT, WireVersion::without(fields_unknown_to(VERSIONS.0))] {
                if let Ok(message) = parse::<WorldMessage>(bytes, version) {
                    let _ = format!("{message:?}");
                }
            }
        }
        2 => {
            let Some((length, mut rest)) = bytes.split_first_chunk::<4>() else { return };
            if let Ok(header) = decode_header::<CargoHeader>(*length, &mut rest, WireVersion::CURRENT) {
                let _ = check_header(&header, 0);
            }
        }
        _ => {
            let mut requests = bytes.to_vec();
            while let Ok(Some(request)) = relay::take::<relay::Request>(&mut requests) {
                let again = relay::take(&mut relay::encoded(&request)).expect("it was written");
                assert_eq!(again, Some(request));
            }
            let mut replies = bytes.to_vec();
            while let Ok(Some(_)) = relay::take::<relay::Reply>(&mut replies) {}
        }
    }
});

/// The bodies of frames, each after its length of two bytes.
fn handshakes(bytes: &[u8]) {
    for dials in [false, true] {
        for is_known in [false, true] {
            let own = Hello {
                purpose: Purpose::Control,
                node: OWN.id(),
                number: [0; 16],
                role: Role::Client,
                name: "own".into(),
                address: String::new(),
                host: String::new(),
                machine: String::new(),
                stream: 0,
                stripe: Stripe::ONE,
                nonce: [0; 32],
                pass: None,
            };
            let mut handshake = match dials {
                true => Handshake::dial(OWN.clone(), own).expect("it has random numbers").0,
                false => Handshake::accept(OWN.clone(), own).expect("it has random numbers"),
            };
            if is_known {
                handshake.identify(Some(std::slice::from_ref(&PEER.issued.certificate.der)));
            }
            let mut rest = bytes;
            while let Some((length, after)) = rest.split_first_chunk::<2>() {
                let (body, after) = after.split_at(usize::from(u16::from_le_bytes(*length)).min(after.len()));
                rest = after;
                if body.len() > HANDSHAKE_BYTES_MAX {
                    return;
                }
                let mut out = Vec::new();
                let done = handshake.on_frame(body, &mut out, |_| Ok(Verdict::Welcome));
                assert!(out.iter().all(|body| body.len() <= HANDSHAKE_BYTES_MAX));
                match done {
                    Ok(None) => {}
                    Ok(Some((peer, _))) => {
                        assert!(is_known && peer.role != Role::Agent, "{peer:?}");
                        let session = handshake.take_session().expect("both hellos were there");
                        assert_eq!(session.certificate.identity, PEER.issued.certificate.identity);
                        break;
                    }
                    Err(_) => break,
                }
            }
        }
    }
}

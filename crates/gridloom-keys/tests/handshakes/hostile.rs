//! Peers that break the rules of TLS on purpose: older versions, records that are sent again, a second handshake, data before the
//! end of the handshake, and certificates of others.

use std::io::{Read, Write};
use std::sync::Arc;

use gridloom_base::dial::ConnectionFault;
use gridloom_keys::{Authority, Memberships, Role, refusal_of};
use rcgen::KeyPair;
use rustls::crypto::aws_lc_rs::sign::any_ecdsa_type;
use rustls::crypto::cipher::{OutboundChunks, OutboundPlainMessage};
use rustls::sign::CertifiedKey;
use rustls::{
    CertificateError, ClientConfig, ClientConnection, ConnectionTrafficSecrets, ContentType, Error, HandshakeKind,
    ProtocolVersion, ServerConfig, ServerConnection,
};
use rustls_pki_types::{PrivatePkcs8KeyDer, ServerName};

use super::{Pair, configs, grant, member, now};

/// A client and a server of one grid.
fn two() -> (Authority, Memberships, Memberships) {
    let authority = Authority::new("lab", now()).unwrap();
    let (client, server) = (member(&authority, Role::Client, "alice"), member(&authority, Role::Agent, "head"));
    (authority, client, server)
}

fn received(server: &mut ServerConnection, mut bytes: &[u8]) -> Result<(), Error> {
    while !bytes.is_empty() {
        server.read_tls(&mut bytes).unwrap();
        server.process_new_packets()?;
    }
    Ok(())
}

fn written(client: &mut ClientConnection) -> Vec<u8> {
    let mut bytes = Vec::new();
    while client.wants_write() {
        client.write_tls(&mut bytes).unwrap();
    }
    bytes
}

/// Returns the record of a `ClientHello` (RFC 5246, 7.4.1.2) with these extensions.
fn client_hello(extensions: &[u8]) -> Vec<u8> {
    let mut hello = vec![3, 3];
    hello.extend_from_slice(&[7; 32]);
    // No session, ECDHE-ECDSA-AES128-GCM-SHA256 and TLS_AES_128_GCM_SHA256, no compression.
    hello.extend_from_slice(&[0, 0, 4, 0xc0, 0x2b, 0x13, 0x01, 1, 0]);
    hello.extend_from_slice(&(extensions.len() as u16).to_be_bytes());
    hello.extend_from_slice(extensions);
    let handshake = [&[1, 0][..], &(hello.len() as u16).to_be_bytes(), &hello].concat();
    [&[22, 3, 1][..], &(handshake.len() as u16).to_be_bytes(), &handshake].concat()
}

#[test]
fn a_client_that_speaks_only_tls_1_2_or_older_is_refused() {
    let (_, client, server) = two();
    let (_, server_config) = configs(&client, &server);
    // Groups x25519 and P-256, and signatures with ECDSA.
    let usual = [&[0, 10, 0, 6, 0, 4, 0, 29, 0, 23][..], &[0, 13, 0, 4, 0, 2, 4, 3]].concat();
    let offering = |versions: &[u8]| {
        let list = [&[versions.len() as u8][..], versions].concat();
        [&usual[..], &[0, 43], &(list.len() as u16).to_be_bytes(), &list].concat()
    };
    for extensions in [usual.clone(), offering(&[3, 3]), offering(&[3, 3, 3, 2, 3, 1]), offering(&[3, 0])] {
        let mut acceptor = ServerConnection::new(server_config.clone()).unwrap();
        let error = received(&mut acceptor, &client_hello(&extensions)).unwrap_err();
        assert!(matches!(error, Error::PeerIncompatible(_)), "{error:?}");
        let mut alert = Vec::new();
        acceptor.write_tls(&mut alert).unwrap();
        // A fatal alert: protocol_version.
        assert_eq!((alert[0], &alert[5..7]), (21, &[2, 70][..]));
        assert!(acceptor.is_handshaking());
    }
}

#[test]
fn records_that_are_sent_again_or_in_another_order_end_the_connection() {
    let (_, client, server) = two();
    let (client_config, server_config) = configs(&client, &server);
    for order in [&[0, 0][..], &[1, 0], &[0, 1, 0]] {
        let mut pair = Pair::new(&client_config, &server_config).shake().unwrap();
        let records: Vec<Vec<u8>> = [b"first", b"later"]
            .iter()
            .map(|text| {
                pair.client.writer().write_all(*text).unwrap();
                written(&mut pair.client)
            })
            .collect();
        let all: Vec<Result<(), Error>> = order.iter().map(|at| received(&mut pair.server, &records[*at])).collect();
        assert!(all.last().unwrap() == &Err(Error::DecryptError), "{order:?}: {all:?}");
    }
}

#[test]
fn a_recorded_connection_cannot_be_replayed() {
    let (_, client, server) = two();
    let (client_config, server_config) = configs(&client, &server);
    let mut dialler = ClientConnection::new(client_config, ServerName::try_from("n1.gridloom").unwrap()).unwrap();
    let mut acceptor = ServerConnection::new(server_config.clone()).unwrap();
    let hello = written(&mut dialler);
    received(&mut acceptor, &hello).unwrap();
    let mut answer = Vec::new();
    while acceptor.wants_write() {
        acceptor.write_tls(&mut answer).unwrap();
    }
    dialler.read_tls(&mut &answer[..]).unwrap();
    dialler.process_new_packets().unwrap();
    dialler.writer().write_all(b"delete all data").unwrap();
    let rest = written(&mut dialler);
    received(&mut acceptor, &rest).unwrap();
    let mut text = [0; 15];
    acceptor.reader().read_exact(&mut text).unwrap();
    assert_eq!(&text, b"delete all data");
    // The server answers the same first record with another key.
    let mut again = ServerConnection::new(server_config).unwrap();
    received(&mut again, &hello).unwrap();
    assert_eq!(received(&mut again, &rest), Err(Error::DecryptError));
    assert!(again.is_handshaking());
}

/// TLS 1.3 has no renegotiation: a client that begins another handshake within its connection is refused, with the keys of the
/// connection and without.
#[test]
fn a_second_handshake_within_a_connection_is_refused() {
    let (_, client, server) = two();
    let (client_config, server_config) = configs(&client, &server);
    let mut extracting = (*client_config).clone();
    extracting.enable_secret_extraction = true;
    let extracting = Arc::new(extracting);
    let second = client_hello(&[]);
    let mut pair = Pair::new(&extracting, &server_config).shake().unwrap();
    let suite = pair.client.negotiated_cipher_suite().unwrap().tls13().unwrap();
    let (sequence, secrets) = pair.client.dangerous_extract_secrets().unwrap().tx;
    let ConnectionTrafficSecrets::Aes128Gcm { key, iv } = secrets else { panic!("another cipher was chosen") };
    let payload = OutboundChunks::Single(&second[5..]);
    let message = OutboundPlainMessage { typ: ContentType::Handshake, version: ProtocolVersion::TLSv1_2, payload };
    let record = suite.aead_alg.encrypter(key, iv).encrypt(message, sequence).unwrap().encode();
    let error = received(&mut pair.server, &record).unwrap_err();
    assert!(matches!(error, Error::InappropriateHandshakeMessage { .. } | Error::PeerMisbehaved(_)), "{error:?}");
    let mut pair = Pair::new(&client_config, &server_config).shake().unwrap();
    let error = received(&mut pair.server, &second).unwrap_err();
    assert!(!pair.server.is_handshaking(), "{error:?}");
}

#[test]
fn data_before_the_end_of_the_handshake_are_not_accepted() {
    let (_, client, server) = two();
    let (client_config, server_config) = configs(&client, &server);
    let early = |config: &Arc<ClientConfig>| {
        let mut config = (**config).clone();
        config.enable_early_data = true;
        Arc::new(config)
    };
    // Our tickets do not permit early data.
    let usual = early(&client_config);
    Pair::new(&usual, &server_config).shake().unwrap();
    assert!(Pair::new(&usual, &server_config).client.early_data().is_none());
    // The ticket of a server that does, and that has the same sessions.
    let mut permitting: ServerConfig = (*server_config).clone();
    permitting.max_early_data_size = 1000;
    let hostile = early(&configs(&client, &server).0);
    Pair::new(&hostile, &Arc::new(permitting)).shake().unwrap();
    let mut pair = Pair::new(&hostile, &server_config);
    pair.client.early_data().expect("the ticket permits it").write_all(b"delete all data").unwrap();
    match pair.shake() {
        Ok(mut pair) => {
            assert_eq!(pair.client.handshake_kind(), Some(HandshakeKind::Resumed));
            assert!(!pair.client.is_early_data_accepted() && pair.server.early_data().is_none());
            let mut text = [0; 15];
            assert!(pair.server.reader().read(&mut text).is_err(), "no data have arrived");
        }
        Err((side, error)) => assert_eq!(side, "server", "{error}"),
    }
}

/// A certificate that is shown by a node without its private key.
#[derive(Debug)]
struct Borrowed(Arc<CertifiedKey>);

impl Borrowed {
    fn new(authority: &Authority, role: Role, name: &str) -> Arc<Borrowed> {
        let victim = authority.issue_bundle(&grant("lab", role, name), now()).unwrap().issued.certificate.der;
        let own = KeyPair::generate().unwrap().serialize_der();
        let key = any_ecdsa_type(&PrivatePkcs8KeyDer::from(own).into()).unwrap();
        Arc::new(Borrowed(Arc::new(CertifiedKey::new(vec![victim], key))))
    }
}

impl rustls::client::ResolvesClientCert for Borrowed {
    fn resolve(&self, _: &[&[u8]], _: &[rustls::SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(self.0.clone())
    }

    fn has_certs(&self) -> bool {
        true
    }
}

impl rustls::server::ResolvesServerCert for Borrowed {
    fn resolve(&self, _: rustls::server::ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.clone())
    }
}

#[test]
fn the_certificate_of_another_node_is_of_no_use_without_its_key() {
    let (authority, client, server) = two();
    let (client_config, server_config) = configs(&client, &server);
    let mut false_client = (*client_config).clone();
    false_client.client_auth_cert_resolver = Borrowed::new(&authority, Role::Client, "bob");
    let mut false_server = (*server_config).clone();
    false_server.cert_resolver = Borrowed::new(&authority, Role::Agent, "head");
    for (client_config, server_config, finds) in
        [(Arc::new(false_client), server_config.clone(), "server"), (client_config, Arc::new(false_server), "client")]
    {
        let (side, error) = Pair::new(&client_config, &server_config).shake().err().unwrap();
        assert_eq!((side, &error), (finds, &Error::InvalidCertificate(CertificateError::BadSignature)));
        assert_eq!(refusal_of(&error).unwrap().fault, ConnectionFault::Refused);
    }
}

//! Real handshakes of rustls in memory: both sides show identities of a grid, and each refusal is named.

#[path = "handshakes/hostile.rs"]
mod hostile;

use std::sync::Arc;
use std::time::Duration;

use gridloom_base::dial::{ConnectionError, ConnectionFault};
use gridloom_keys::{
    Authority, Bundle, DAY, Grant, HOUR, Identity, Issued, Membership, Memberships, Patterns, Refusal, Revocation,
    Revocations, Revoked, Role, Trust, UnixTime, refusal_of,
};
use proptest::prelude::*;
use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, Issuer, KeyPair, SanType, SerialNumber};
use rustls::{
    AlertDescription, ClientConfig, ClientConnection, Connection, Error, HandshakeKind, NamedGroup, ProtocolVersion,
    ServerConfig, ServerConnection,
};
use rustls_pki_types::ServerName;

const PROTOCOL: &[u8] = b"gridloom/1";

fn now() -> UnixTime {
    UnixTime::now()
}

fn later(duration: Duration) -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_secs(now().as_secs()) + duration)
}

fn earlier(duration: Duration) -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_secs(now().as_secs()) - duration)
}

fn grant(grid: &str, role: Role, name: &str) -> Grant {
    Grant::new(Identity::new(grid, role, name).unwrap())
}

fn member(authority: &Authority, role: Role, name: &str) -> Memberships {
    let bundle = authority.issue_bundle(&grant(authority.grid(), role, name), now()).unwrap();
    bundle.membership().unwrap().into()
}

/// A client and a server in one process, connected by memory.
struct Pair {
    client: ClientConnection,
    server: ServerConnection,
}

impl Pair {
    fn new(client: &Arc<ClientConfig>, server: &Arc<ServerConfig>) -> Pair {
        let name = ServerName::try_from("n1.gridloom").unwrap();
        Pair {
            client: ClientConnection::new(client.clone(), name).unwrap(),
            server: ServerConnection::new(server.clone()).unwrap(),
        }
    }

    /// Exchanges bytes until both are silent. An error has the side that found it.
    fn shake(mut self) -> Result<Pair, (&'static str, Error)> {
        loop {
            let (mut to_server, mut to_client) = (Vec::new(), Vec::new());
            while self.client.wants_write() {
                self.client.write_tls(&mut to_server).unwrap();
            }
            let mut bytes = &to_server[..];
            while !bytes.is_empty() {
                self.server.read_tls(&mut bytes).unwrap();
                let found = self.server.process_new_packets();
                if let Err(error) = found {
                    return Err((self.alerted(), error));
                }
            }
            while self.server.wants_write() {
                self.server.write_tls(&mut to_client).unwrap();
            }
            let mut bytes = &to_client[..];
            while !bytes.is_empty() {
                self.client.read_tls(&mut bytes).unwrap();
                self.client.process_new_packets().map_err(|error| ("client", error))?;
            }
            if to_server.is_empty() && to_client.is_empty() {
                assert!(!self.client.is_handshaking() && !self.server.is_handshaking());
                return Ok(self);
            }
        }
    }

    /// After the server has refused: returns the words in which the client learns why.
    fn alerted(&mut self) -> &'static str {
        let mut bytes = Vec::new();
        while self.server.wants_write() {
            self.server.write_tls(&mut bytes).unwrap();
        }
        self.client.read_tls(&mut &bytes[..]).unwrap();
        let error = self.client.process_new_packets().unwrap_err();
        // A wrong signature has no words of its own.
        let is_signature = error == Error::AlertReceived(AlertDescription::DecryptError);
        assert!(is_signature || refusal_of(&error).is_some(), "{error}");
        "server"
    }
}

fn configs(client: &Memberships, server: &Memberships) -> (Arc<ClientConfig>, Arc<ServerConfig>) {
    let from_clients = [Role::Client, Role::Administrator, Role::Server];
    let client = client.client_config(&[PROTOCOL], &[Role::Agent]);
    (Arc::new(client), Arc::new(server.server_config(&[PROTOCOL], &from_clients)))
}

fn shake(client: &Memberships, server: &Memberships) -> Result<Pair, (&'static str, Error)> {
    let (client, server) = configs(client, server);
    Pair::new(&client, &server).shake()
}

#[test]
fn both_sides_know_each_other_and_exchange_keys_that_quantum_computers_do_not_break() {
    let authority = Authority::new("lab", now()).unwrap();
    let (client, server) = (member(&authority, Role::Client, "alice (2)"), member(&authority, Role::Agent, "head"));
    let pair = shake(&client, &server).unwrap();
    let group = |connection: &Connection| connection.negotiated_key_exchange_group().unwrap().name();
    let (accepted, name) = ([Role::Agent], "head");
    let peer = client.peer(pair.client.peer_certificates(), &accepted, now()).unwrap();
    assert_eq!((peer.identity.role(), peer.identity.name()), (Role::Agent, name));
    let peer = server.peer(pair.server.peer_certificates(), &[Role::Client], now()).unwrap();
    assert_eq!(peer.identity, Identity::new("lab", Role::Client, "alice (2)").unwrap());
    assert!(peer.functions.permit("a/b") && peer.not_after > later(89 * DAY));
    assert_eq!(pair.server.alpn_protocol(), Some(PROTOCOL));
    for connection in [Connection::from(pair.client), Connection::from(pair.server)] {
        assert_eq!(group(&connection), NamedGroup::X25519MLKEM768);
        assert_eq!(connection.protocol_version(), Some(ProtocolVersion::TLSv1_3));
        assert_eq!(connection.handshake_kind(), Some(HandshakeKind::Full));
    }
}

#[test]
fn sessions_are_resumed_and_the_peer_is_known_again() {
    let authority = Authority::new("lab", now()).unwrap();
    let (client, server) = (member(&authority, Role::Client, "alice"), member(&authority, Role::Agent, "head"));
    let (client_config, server_config) = configs(&client, &server);
    Pair::new(&client_config, &server_config).shake().unwrap();
    let pair = Pair::new(&client_config, &server_config).shake().unwrap();
    assert_eq!(pair.client.handshake_kind(), Some(HandshakeKind::Resumed));
    assert_eq!(server.peer(pair.server.peer_certificates(), &[Role::Client], now()).unwrap().identity.name(), "alice");
    assert_eq!(client.peer(pair.client.peer_certificates(), &[Role::Agent], now()).unwrap().identity.name(), "head");
    // TLS verifies nothing when it resumes a session. The check after the handshake does.
    let expired = |found: Result<_, Refusal>| assert!(matches!(found.map(drop), Err(Refusal::Expired { .. })));
    expired(server.peer(pair.server.peer_certificates(), &[Role::Client], later(91 * DAY)));
    expired(client.peer(pair.client.peer_certificates(), &[Role::Agent], later(91 * DAY)));
    let wrong = server.peer(pair.server.peer_certificates(), &[Role::Server], now()).unwrap_err();
    assert!(
        wrong.to_string().contains("client 'alice' of the grid 'lab' cannot do this: it takes a server"),
        "{wrong}"
    );
    assert_eq!(server.peer(None, &[Role::Client], now()), Err(Refusal::NoCertificate));
}

fn revoke(memberships: &Memberships, revoked: Revoked, at: UnixTime) {
    let mut revocations = Revocations::default();
    revocations.add(Revocation::new(revoked, at, "laptop stolen").unwrap());
    memberships.iter().for_each(|membership| _ = membership.trust.add_revocations(&revocations));
}

#[test]
fn a_revoked_peer_cannot_resume_its_session() {
    let authority = Authority::new("lab", now()).unwrap();
    let (client, server) = (member(&authority, Role::Client, "alice"), member(&authority, Role::Agent, "head"));
    let (client_config, server_config) = configs(&client, &server);
    let live = Pair::new(&client_config, &server_config).shake().unwrap();
    let peer = server.peer(live.server.peer_certificates(), &[Role::Client], now()).unwrap();
    revoke(&server, Revoked::Certificate(peer.serial), now());
    // The handshake ends, so that the server can send the reason. An alert would not contain it.
    let pair = Pair::new(&client_config, &server_config).shake().unwrap();
    assert_eq!(pair.server.handshake_kind(), Some(HandshakeKind::Full));
    let found =
        ConnectionError::from(server.peer(pair.server.peer_certificates(), &[Role::Client], now()).unwrap_err());
    assert_eq!(found.fault, ConnectionFault::Revoked);
    assert!(found.why.starts_with("certificate revoked: client 'alice' of the grid 'lab', at "), "{found}");
    // A client that knows of the revocation of a server refuses it in the handshake.
    let of_server = client.peer(live.client.peer_certificates(), &[Role::Agent], now()).unwrap();
    revoke(&client, Revoked::Certificate(of_server.serial), now());
    let (side, error) = Pair::new(&client_config, &server_config).shake().err().unwrap();
    assert_eq!((side, refusal_of(&error).unwrap().fault), ("client", ConnectionFault::Revoked));
    // Live connections are the caller's to close.
    let trust = &server.iter().next().unwrap().trust;
    let refusal = trust.check(&peer, now()).unwrap_err();
    assert!(refusal.to_string().ends_with(": laptop stolen"), "{refusal}");
    let after_handshake = server.peer(live.server.peer_certificates(), &[Role::Client], now());
    assert!(matches!(after_handshake, Err(Refusal::Revoked { .. })));
}

#[test]
fn a_revoked_identity_gets_a_new_certificate() {
    let authority = Authority::new("lab", now()).unwrap();
    let server = member(&authority, Role::Agent, "head");
    let alice = grant("lab", Role::Client, "alice");
    let certificate = |at| authority.issue_bundle(&alice, at).unwrap().issued.certificate.der;
    let (old, new) = (certificate(now()), certificate(later(Duration::from_secs(1))));
    revoke(&server, Revoked::Identity(alice.identity.clone()), now());
    let peer = |der| server.peer(Some(&[der]), &[Role::Client], now());
    assert!(matches!(peer(old), Err(Refusal::Revoked { .. })));
    assert!(peer(new).is_ok());
}

#[test]
fn credentials_are_renewed_while_connections_are_open() {
    let authority = Authority::new("lab", now()).unwrap();
    let issue = |role, name: &str, at| authority.issue_bundle(&grant("lab", role, name), at).unwrap();
    let half = 45 * DAY;
    let client: Memberships = issue(Role::Client, "alice", earlier(half)).membership().unwrap().into();
    let server: Memberships = issue(Role::Agent, "head", earlier(half)).membership().unwrap().into();
    let (client_config, server_config) = configs(&client, &server);
    let mut live = Pair::new(&client_config, &server_config).shake().unwrap();
    for memberships in [&client, &server] {
        let credentials = &memberships.iter().next().unwrap().credentials;
        assert!(credentials.due_for_renewal(later(HOUR)) && !credentials.due_for_renewal(earlier(HOUR)));
        let (old, other) = (credentials.certificate(), issue(Role::Client, "bob", now()));
        let error = credentials.replace(&other).unwrap_err().to_string();
        assert!(error.contains("certificate is for the client 'bob'"), "{error}");
        credentials.replace(&issue(old.identity.role(), old.identity.name(), now())).unwrap();
        assert!(!credentials.due_for_renewal(later(HOUR)) && credentials.certificate().serial != old.serial);
        // Sessions with the old certificate would be refused when it expires.
        let new = Pair::new(&client_config, &server_config).shake().unwrap();
        assert_eq!(new.client.handshake_kind(), Some(HandshakeKind::Full));
        let resumed = Pair::new(&client_config, &server_config).shake().unwrap();
        assert_eq!(resumed.client.handshake_kind(), Some(HandshakeKind::Resumed));
    }
    let shown = Pair::new(&client_config, &server_config).shake().unwrap();
    let at = later(60 * DAY);
    assert!(client.peer(shown.client.peer_certificates(), &[Role::Agent], at).is_ok());
    assert!(server.peer(shown.server.peer_certificates(), &[Role::Client], at).is_ok());
    // The connection from before still works.
    use std::io::{Read, Write};
    let (mut bytes, mut text) = (Vec::new(), [0; 5]);
    live.client.writer().write_all(b"hello").unwrap();
    live.client.write_tls(&mut bytes).unwrap();
    live.server.read_tls(&mut &bytes[..]).unwrap();
    live.server.process_new_packets().unwrap();
    live.server.reader().read_exact(&mut text).unwrap();
    assert_eq!(&text, b"hello");
}

#[test]
fn a_client_of_several_grids_shows_the_certificate_of_the_agents_grid() {
    let (lab, home) = (Authority::new("lab", now()).unwrap(), Authority::new("home", now()).unwrap());
    let member_of = |authority: &Authority, role, name| {
        let bundle = authority.issue_bundle(&grant(authority.grid(), role, name), now()).unwrap();
        Arc::new(bundle.membership().unwrap())
    };
    let client = Memberships::new([
        member_of(&lab, Role::Client, "alice"),
        member_of(&home, Role::Administrator, "alice at home"),
    ]);
    for (authority, name) in [(&home, "alice at home"), (&lab, "alice")] {
        let server = Memberships::new([member_of(authority, Role::Agent, "head")]);
        let pair = shake(&client, &server).unwrap();
        let accepted = [Role::Client, Role::Administrator];
        assert_eq!(server.peer(pair.server.peer_certificates(), &accepted, now()).unwrap().identity.name(), name);
        let agent = client.peer(pair.client.peer_certificates(), &[Role::Agent], now()).unwrap();
        assert_eq!(agent.identity.grid(), authority.grid());
    }
}

/// Returns the refusal of a certificate that was made by hand, with the key of the authority or another.
fn refusal_by_hand(
    trust: &Trust,
    change: impl FnOnce(&mut CertificateParams),
    issuer: &Issuer<'_, KeyPair>,
) -> Refusal {
    let mut params = CertificateParams::default();
    (params.not_before, params.not_after) = (in_days(-1), in_days(1));
    params.serial_number = Some(SerialNumber::from_slice(&[0x41; 16]));
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    params.subject_alt_names = vec![uri("gridloom://lab/client/alice")];
    change(&mut params);
    let certificate = params.signed_by(&KeyPair::generate().unwrap(), issuer).unwrap();
    trust.verify(&[certificate.der().clone()], now()).unwrap_err()
}

fn in_days(days: i64) -> time::OffsetDateTime {
    let now = i64::try_from(now().as_secs()).unwrap();
    time::OffsetDateTime::from_unix_timestamp(now + days * 24 * 3600).unwrap()
}

fn uri(text: &str) -> SanType {
    SanType::URI(text.try_into().unwrap())
}

#[test]
fn certificates_that_the_authority_would_not_issue_are_refused() {
    let folder = std::env::temp_dir().join(format!("gridloom-keys-by-hand-{}", std::process::id()));
    let keys = gridloom_keys::KeysFolder::at(&folder);
    keys.create(&Identity::new("lab", Role::Administrator, "a").unwrap(), now()).unwrap();
    let text = |name: &str| std::fs::read(folder.join("lab").join(name)).unwrap();
    let authority = Authority::from_pem(&text("authority.pem"), &text("authority.key")).unwrap();
    let trust = authority.trust();
    let mut name = CertificateParams::default();
    name.distinguished_name = rcgen::DistinguishedName::new();
    for (kind, value) in [
        (rcgen::DnType::OrganizationName, "lab".to_string()),
        (rcgen::DnType::OrganizationalUnitName, authority.fingerprint().to_string()),
        (rcgen::DnType::CommonName, "gridloom authority".to_string()),
    ] {
        name.distinguished_name.push(kind, value);
    }
    let key = KeyPair::from_pem(std::str::from_utf8(&text("authority.key")).unwrap()).unwrap();
    let (own, other) = (Issuer::from_params(&name, key), Issuer::from_params(&name, KeyPair::generate().unwrap()));
    std::fs::remove_dir_all(folder).unwrap();

    let refused = |change: fn(&mut CertificateParams)| refusal_by_hand(&trust, change, &own);
    let no_usage = refused(|params| params.extended_key_usages.clear());
    assert_eq!(no_usage, Refusal::WrongUsage("another purpose"));
    let one_usage = refused(|params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth]);
    assert_eq!(one_usage, Refusal::WrongUsage("another purpose"));
    let authority = refused(|params| params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained));
    assert_eq!(authority, Refusal::WrongUsage("an authority"));
    assert!(matches!(
        refused(|params| params.subject_alt_names = vec![uri("gridloom://other/client/alice")]),
        Refusal::WrongGrid(_)
    ));
    for (wrong, why) in [
        (vec![], "it has no identity"),
        (vec![SanType::DnsName("example.org".try_into().unwrap())], "it has no identity"),
        (vec![uri("gridloom://lab")], "three parts"),
        (vec![uri("gridloom://lab/root/alice")], "'root' is not a role"),
        (vec![uri("gridloom://lab/client/a%0Ab")], "control character"),
        (vec![uri("gridloom://lab/client/alice"), uri("gridloom://lab/client/bob")], "an unknown name"),
        (vec![uri("gridloom://lab/client/alice"), uri("gridloom://lab/function/a")], "an unknown name"),
        (vec![uri("gridloom://lab/client/alice"), uri("gridloom://other/function/%2A")], "an unknown name"),
        (vec![uri("https://lab/client/alice")], "begin with gridloom://"),
    ] {
        let refusal = refusal_by_hand(&trust, |params| params.subject_alt_names = wrong, &own);
        assert!(matches!(&refusal, Refusal::Malformed(text) if text.contains(why)), "{refusal}");
    }
    let serial = refused(|params| params.serial_number = Some(SerialNumber::from(7)));
    assert!(matches!(&serial, Refusal::Malformed(text) if text.contains("16 bytes")), "{serial}");
    let curve = {
        let key = KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
        let mut params = CertificateParams::default();
        params.not_after = in_days(1);
        params.serial_number = Some(SerialNumber::from_slice(&[0x41; 16]));
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        params.subject_alt_names = vec![uri("gridloom://lab/client/alice")];
        trust.verify(&[params.signed_by(&key, &own).unwrap().der().clone()], now()).unwrap_err()
    };
    assert!(matches!(&curve, Refusal::Malformed(text) if text.contains("P-256")), "{curve}");
    // The same name, but another key.
    assert!(matches!(refusal_by_hand(&trust, |_| (), &other), Refusal::WrongGrid(_)));
    for garbage in [vec![], vec![0x30], vec![0; 100], vec![0x30; 9000]] {
        assert!(matches!(trust.verify(&[garbage.into()], now()), Err(Refusal::Malformed(_))));
    }
    assert_eq!(trust.verify(&[], now()), Err(Refusal::NoCertificate));
}

#[test]
fn each_refusal_is_named_on_both_sides() {
    let authority = Authority::new("lab", earlier(200 * DAY)).unwrap();
    let other = Authority::new("lab", now()).unwrap();
    let server = member(&authority, Role::Agent, "head");
    let at = |role, when| -> Memberships {
        authority.issue_bundle(&grant("lab", role, "alice"), when).unwrap().membership().unwrap().into()
    };
    let refused = |client: &Memberships, server: &Memberships| {
        let (side, error) = shake(client, server).err().unwrap();
        (side, refusal_of(&error).unwrap_or_else(|| panic!("{error}")))
    };
    // The server refuses the client, although the client would accept the server.
    for (client, fault, why) in [
        (at(Role::Client, earlier(100 * DAY)), ConnectionFault::Expired, "has expired: it was valid until "),
        (at(Role::Client, later(2 * DAY)), ConnectionFault::Expired, "the clock of this machine says "),
        (
            at(Role::Agent, now()),
            ConnectionFault::WrongRole,
            "the agent 'alice' of the grid 'lab' cannot do this: it takes a client",
        ),
    ] {
        let (side, refusal) = refused(&client, &server);
        assert!(side == "server" && refusal.fault == fault && refusal.why.contains(why), "{side}: {refusal:?}");
    }
    // The client refuses the server, whose grid has the same name or another.
    let elsewhere = Authority::new("elsewhere", now()).unwrap();
    let both = |grid: &str, of_peer: &Authority| {
        let (of_peer, own) = (of_peer.fingerprint(), authority.fingerprint());
        format!(
            "the peer's certificate is of the grid '{grid}' (authority {of_peer}), this node belongs to the grid 'lab' \
             (authority {own})"
        )
    };
    let client = at(Role::Client, now());
    let is_server = "the server 'alice' of the grid 'lab' cannot do this: it takes an agent";
    let wrong_grid = ConnectionFault::WrongGrid;
    for (server, fault, why) in [
        (at(Role::Agent, earlier(100 * DAY)), ConnectionFault::Expired, "has expired: it was valid until "),
        (at(Role::Agent, later(2 * DAY)), ConnectionFault::Expired, "the clock of this machine says "),
        (at(Role::Server, now()), ConnectionFault::WrongRole, is_server),
        (member(&other, Role::Agent, "head"), wrong_grid, both("lab", &other).as_str()),
        (member(&elsewhere, Role::Agent, "head"), wrong_grid, both("elsewhere", &elsewhere).as_str()),
    ] {
        let (side, refusal) = refused(&client, &server);
        assert!(side == "client" && refusal.fault == fault && refusal.why.contains(why), "{side}: {refusal:?}");
    }
    // A client that trusts two authorities, with a certificate of one of them.
    let trusting = Bundle::from_pem(
        authority.issue_bundle(&grant("lab", Role::Agent, "head"), now()).unwrap().to_pem().as_bytes(),
    );
    assert!(trusting.is_ok());
}

#[test]
fn clients_without_a_certificate_and_older_protocols_are_refused() {
    let authority = Authority::new("lab", now()).unwrap();
    let server = member(&authority, Role::Agent, "head");
    let (client, server_config) = configs(&member(&authority, Role::Client, "alice"), &server);
    let mut bare = (*client).clone();
    bare.client_auth_cert_resolver = Arc::new(NoCertificate);
    let (side, error) = Pair::new(&Arc::new(bare), &server_config).shake().err().unwrap();
    assert_eq!((side, error), ("server", Error::NoCertificatesPresented));
    let mut older = (*client).clone();
    older.alpn_protocols = vec![b"gridloom/0".to_vec()];
    let (side, error) = Pair::new(&Arc::new(older), &server_config).shake_without_words();
    assert_eq!((side, error), ("server", Error::NoApplicationProtocol));
}

impl Pair {
    /// Like `shake`, for errors that have nothing to do with certificates.
    fn shake_without_words(mut self) -> (&'static str, Error) {
        let mut bytes = Vec::new();
        self.client.write_tls(&mut bytes).unwrap();
        self.server.read_tls(&mut &bytes[..]).unwrap();
        ("server", self.server.process_new_packets().unwrap_err())
    }
}

#[derive(Debug)]
struct NoCertificate;

impl rustls::client::ResolvesClientCert for NoCertificate {
    fn resolve(&self, _: &[&[u8]], _: &[rustls::SignatureScheme]) -> Option<Arc<rustls::sign::CertifiedKey>> {
        None
    }

    fn has_certs(&self) -> bool {
        false
    }
}

#[test]
fn lifetimes_and_grids_are_limited() {
    let authority = Authority::new("lab", now()).unwrap();
    let issue = |grant: Grant, at| authority.issue_bundle(&grant, at).map(|bundle| bundle.issued.certificate);
    let alice = || grant("lab", Role::Client, "alice");
    for lifetime in [Duration::ZERO, 3651 * DAY] {
        let error = issue(Grant { lifetime, ..alice() }, now()).unwrap_err().to_string();
        assert!(error.contains("use at least 1 s and at most 3650 days"), "{error}");
    }
    let error = issue(grant("other", Role::Client, "alice"), now()).unwrap_err().to_string();
    assert!(error.contains("of the grid 'lab' cannot certify the client 'alice' of the grid 'other'"), "{error}");
    let short = issue(Grant { lifetime: 2 * HOUR, ..alice() }, now()).unwrap();
    assert!(short.not_after <= later(2 * HOUR) && short.not_before <= earlier(HOUR));
    // No certificate outlives its authority, and after it nothing is accepted.
    let last = issue(alice(), later(3640 * DAY)).unwrap();
    assert_eq!(last.not_after, authority.not_after());
    assert!(issue(alice(), later(3651 * DAY)).unwrap_err().to_string().contains("has expired"));
    let some = Grant { functions: Patterns::new(["linalg/*".parse().unwrap()]).unwrap(), ..alice() };
    let some = issue(some, now()).unwrap();
    assert!(some.functions.permit("linalg/dgemm") && !some.functions.permit("fft/plan"));
}

#[test]
fn a_bundle_is_passed_as_text_and_keys_are_not_printed() {
    let authority = Authority::new("lab", now()).unwrap();
    let bundle = authority.issue_bundle(&grant("lab", Role::Server, "node 7"), now()).unwrap();
    let text = bundle.to_pem();
    let read = Bundle::from_pem(text.as_bytes()).unwrap();
    assert_eq!(read.issued.certificate, bundle.issued.certificate);
    let membership = read.membership().unwrap();
    let secret = text.split("PRIVATE KEY-----\n").nth(1).unwrap().lines().next().unwrap();
    for shown in [format!("{bundle:?}"), format!("{membership:?}"), format!("{authority:?}")] {
        assert!(!shown.contains(secret) && !shown.to_lowercase().contains("private"), "{shown}");
    }
    let other = authority.issue_bundle(&grant("lab", Role::Server, "node 8"), now()).unwrap();
    let (own, key) = text.split_at(text.find("-----BEGIN PRIVATE").unwrap());
    let mixed = other.issued.to_pem() + key;
    for (wrong, why) in [
        (own.to_string(), "expected one private key, and there are 0"),
        (key.to_string(), "expected a certificate and that of its authority, and there are 0"),
        (mixed, "the private key does not belong to the certificate"),
    ] {
        let error = Bundle::from_pem(wrong.as_bytes()).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
    let foreign = Authority::new("lab", now()).unwrap().issue_bundle(&grant("lab", Role::Server, "node 7"), now());
    let mixed = text.replace(&bundle.issued.certificate.to_pem(), &foreign.unwrap().issued.certificate.to_pem());
    let error = Bundle::from_pem(mixed.as_bytes()).unwrap_err().to_string();
    assert!(error.contains("this node belongs to the grid 'lab'"), "{error}");
    let _: Membership = membership;
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn each_valid_identity_is_certified_and_read_back(
        role in 0..4usize, name in "\\PC{1,60}", modules in proptest::collection::vec("[a-zä.]{1,9}/[a-z*]{1,9}", 0..5),
    ) {
        let Ok(identity) = Identity::new("lab-1.x", Role::ALL[role], &name) else { return Ok(()) };
        let functions = Patterns::new(modules.iter().filter_map(|module| module.parse().ok())).unwrap();
        let authority = Authority::new("lab-1.x", now()).unwrap();
        let grant = Grant { functions, ..Grant::new(identity) };
        let certificate = authority.issue_bundle(&grant, now()).unwrap().issued.certificate;
        let read = authority.trust().verify(std::slice::from_ref(&certificate.der), now()).unwrap();
        prop_assert_eq!((&read.identity, &read.functions), (&grant.identity, &grant.functions));
        prop_assert_eq!(read, certificate);
    }

    #[test]
    fn a_changed_certificate_is_refused(at in any::<proptest::sample::Index>(), bit in 0..8u32, end in any::<proptest::sample::Index>()) {
        let authority = Authority::new("lab", now()).unwrap();
        let bundle = authority.issue_bundle(&grant("lab", Role::Client, "alice"), now()).unwrap();
        let (trust, der) = (authority.trust(), bundle.issued.certificate.der);
        let mut changed = der.to_vec();
        changed[at.index(der.len())] ^= 1 << bit;
        prop_assert!(trust.verify(&[changed.into()], now()).is_err());
        prop_assert!(trust.verify(&[der[..end.index(der.len())].to_vec().into()], now()).is_err());
    }
}

#[test]
fn only_certificates_of_functions_name_a_user_and_a_revoked_user_has_none() {
    let authority = Authority::new("lab", now()).unwrap();
    let for_anna = |role, name: &str| Grant { user: Some("anna".into()), ..grant("lab", role, name) };
    let issued = authority.issue_bundle(&for_anna(Role::Functions, "s1"), now()).unwrap().issued;
    assert_eq!(issued.certificate.user.as_deref(), Some("anna"));
    let read = Issued::from_pem(issued.to_pem().as_bytes()).unwrap().certificate;
    assert_eq!(
        (&read.user, &read.functions, &read.identity),
        (&issued.certificate.user, &Patterns::all(), &issued.certificate.identity)
    );
    for role in [Role::Client, Role::Server, Role::Administrator] {
        let error = authority.issue_bundle(&for_anna(role, "s1"), now()).unwrap_err().to_string();
        assert!(error.contains(&format!("a certificate for the role {role} names a user")), "{error}");
    }
    let nobody = Grant { user: Some("a\nb".into()), ..grant("lab", Role::Functions, "s1") };
    assert!(authority.issue_bundle(&nobody, now()).is_err());

    let revocation_of = |role, name: &str, at| {
        let revoked = Revoked::Identity(Identity::new("lab", role, name).unwrap());
        let mut all = Revocations::default();
        all.add(Revocation::new(revoked, at, "left").unwrap());
        all
    };
    for (role, name, applies) in [
        (Role::Client, "anna", true),
        (Role::Administrator, "anna", true),
        (Role::Client, "bert", false),
        (Role::Functions, "s1", true),
    ] {
        assert_eq!(revocation_of(role, name, now()).of(&read).is_some(), applies, "{role} {name}");
    }
    let earlier = UnixTime::since_unix_epoch(Duration::from_secs(now().as_secs() - 7200));
    assert!(revocation_of(Role::Client, "anna", earlier).of(&read).is_none(), "the certificate is newer");
}

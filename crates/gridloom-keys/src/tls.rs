//! TLS 1.3 between members: configurations for rustls.
//!
//! - Key exchange prefers the post-quantum group X25519MLKEM768.
//! - Both sides show certificates, which are checked against the authority of the grid, never by a DNS name.
//! - Sessions are resumed from tickets that refer to memory of the server, of bounded size. There is no ticket key that
//!   could leak. When credentials or revocations change, all sessions are forgotten.

use std::cell::RefCell;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use gridloom_base::dial::{ConnectionError, ConnectionFault, REVOKED};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ClientSessionMemoryCache, ClientSessionStore, ResolvesClientCert, Resumption};
use rustls::client::{Tls12ClientSessionValue, Tls13ClientSessionValue};
use rustls::crypto::verify_tls13_signature;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ClientHello, ResolvesServerCert, ServerSessionMemoryCache, StoresServerSessions};
use rustls::sign::CertifiedKey;
use rustls::version::TLS13;
use rustls::{
    AlertDescription, CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, NamedGroup,
    PeerMisbehaved, ServerConfig, SignatureScheme,
};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};

use crate::identity::Role;
use crate::membership::Memberships;
use crate::provider::{SCHEME, SIGNATURES, provider};
use crate::refusal::Refusal;

impl Memberships {
    /// Returns the configuration for connections to peers with one of these roles, which must select one of the
    /// protocols. The process shows the certificate of the peer's grid. The name of the server is not checked; it
    /// chooses the session to resume, so use one name per peer. After the handshake, call [`Memberships::peer`].
    /// Clones of a configuration, for example with other protocols, share its sessions.
    pub fn client_config(&self, protocols: &[&[u8]], accepted: &[Role]) -> ClientConfig {
        let builder = ClientConfig::builder_with_provider(provider().clone());
        let builder = builder.with_protocol_versions(&[&TLS13]).expect("the provider has suites of TLS 1.3");
        let builder = builder.dangerous().with_custom_certificate_verifier(Arc::new(Verifier::new(
            self,
            accepted,
            Revoked::Refused,
        )));
        let mut config = builder.with_client_cert_resolver(Arc::new(Shown(self.clone())));
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        config.enable_sni = false;
        config.resumption = Resumption::store(Arc::new(Sessions::new(self, ClientSessionMemoryCache::new)));
        config
    }

    /// Returns the configuration for connections from peers with one of these roles, in the first of the grids. After
    /// the handshake, call [`Memberships::peer`]. Clones of a configuration share its sessions.
    ///
    /// A peer whose certificate is revoked completes the handshake, because an alert of TLS cannot contain when and why
    /// it was revoked: [`Memberships::peer`] refuses it, and the caller sends it the reason.
    pub fn server_config(&self, protocols: &[&[u8]], accepted: &[Role]) -> ServerConfig {
        let first = Memberships::new(self.iter().take(1).cloned());
        let builder = ServerConfig::builder_with_provider(provider().clone());
        let builder = builder.with_protocol_versions(&[&TLS13]).expect("the provider has suites of TLS 1.3");
        let builder = builder.with_client_cert_verifier(Arc::new(Verifier::new(&first, accepted, Revoked::Later)));
        let mut config = builder.with_cert_resolver(Arc::new(Shown(first.clone())));
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        config.session_storage = Arc::new(Sessions::new(&first, server_cache));
        config
    }
}

thread_local! {
    /// The last refusal of a peer by a [`Verifier`] on this thread, for which the errors of TLS have no room.
    static REFUSAL: RefCell<Option<Refusal>> = const { RefCell::new(None) };
}

/// Explains an error of a handshake whose cause is a certificate: ours, refused by the peer, or the peer's. Call it on
/// the thread that has processed the records, before it processes others.
pub fn refusal_of(error: &Error) -> Option<ConnectionError> {
    use AlertDescription as A;
    use ConnectionFault as F;
    let (fault, why) = match error {
        Error::NoCertificatesPresented => return Some(Refusal::NoCertificate.into()),
        Error::InvalidCertificate(_) => match REFUSAL.take() {
            Some(Refusal::WrongGrid(mismatch)) => (F::WrongGrid, format!("the peer's certificate {mismatch}")),
            Some(refusal) => return Some(refusal.into()),
            // Its signature of the handshake is wrong.
            None => (F::Refused, "the peer's certificate is malformed".into()),
        },
        Error::AlertReceived(alert) => match alert {
            A::CertificateExpired => (
                F::Expired,
                "the peer says that this side's certificate has expired, or is not valid yet: 'gridloom keys list' shows its \
                 dates; renew it with 'gridloom keys renew', or set the clocks of both machines"
                    .into(),
            ),
            A::CertificateRevoked => (F::Revoked, format!("{REVOKED}the peer no longer accepts the certificate of this side")),
            A::UnknownCA => (
                F::WrongGrid,
                "the peer belongs to another grid than this side's certificate; 'gridloom keys list' on both machines shows \
                 the grids and their authorities"
                    .into(),
            ),
            A::CertificateRequired => (
                F::NoCertificate,
                "this side has no certificate for the peer's grid; 'gridloom keys request' makes a request for one".into(),
            ),
            A::AccessDenied => (F::WrongRole, "this side's certificate is for another role".into()),
            A::BadCertificate | A::UnsupportedCertificate | A::CertificateUnknown => {
                (F::Refused, "the peer does not accept this side's certificate".into())
            }
            _ => return None,
        },
        _ => return None,
    };
    Some(ConnectionError { fault, why })
}

impl From<Refusal> for Error {
    /// The kind decides which alert the peer receives.
    fn from(refusal: Refusal) -> Error {
        use CertificateError as C;
        let kind = match refusal {
            Refusal::NoCertificate => return Error::NoCertificatesPresented,
            Refusal::Malformed(_) => C::BadEncoding,
            Refusal::Expired { not_after, now, .. } | Refusal::AuthorityExpired { not_after, now, .. } => {
                C::ExpiredContext { time: now, not_after }
            }
            Refusal::NotYetValid { not_before, now, .. } => C::NotValidYetContext { time: now, not_before },
            Refusal::Revoked { .. } => C::Revoked,
            Refusal::WrongUsage(_) => C::InvalidPurpose,
            Refusal::WrongGrid(_) => C::UnknownIssuer,
            Refusal::WrongRole { .. } => C::ApplicationVerificationFailure,
        };
        Error::InvalidCertificate(kind)
    }
}

/// When a peer with a revoked certificate is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Revoked {
    /// In the handshake of TLS.
    Refused,
    /// After it, by [`Memberships::peer`].
    Later,
}

/// Verifies peers by the authorities of the grids.
#[derive(Debug)]
struct Verifier {
    memberships: Memberships,
    accepted: Vec<Role>,
    revoked: Revoked,
    authorities: Vec<DistinguishedName>,
}

impl Verifier {
    fn new(memberships: &Memberships, accepted: &[Role], revoked: Revoked) -> Verifier {
        let authorities = memberships.iter().map(|membership| membership.trust.distinguished_name()).collect();
        Verifier { memberships: memberships.clone(), accepted: accepted.into(), revoked, authorities }
    }

    fn verify(&self, certificate: &CertificateDer<'_>, now: UnixTime) -> Result<(), Error> {
        let verified = self.memberships.peer(Some(std::slice::from_ref(certificate)), &self.accepted, now);
        REFUSAL.set(verified.as_ref().err().cloned());
        match verified {
            // The revocation is checked after all the rest, so that the certificate is one of the grid.
            Err(Refusal::Revoked { .. }) if self.revoked == Revoked::Later => Ok(()),
            verified => Ok(verified.map(drop)?),
        }
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.verify(end_entity, now).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(PeerMisbehaved::SignedHandshakeWithUnadvertisedSigScheme.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &SIGNATURES)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        SIGNATURES.supported_schemes()
    }
}

impl ClientCertVerifier for Verifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.authorities
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.verify(end_entity, now).map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(PeerMisbehaved::SignedHandshakeWithUnadvertisedSigScheme.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &SIGNATURES)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        SIGNATURES.supported_schemes()
    }
}

/// The certificate that the process shows: the current one of the grid that the peer belongs to.
#[derive(Debug)]
struct Shown(Memberships);

impl ResolvesClientCert for Shown {
    fn resolve(&self, authorities: &[&[u8]], schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        let is_of_peer = |name: DistinguishedName| authorities.contains(&name.as_ref());
        let found = self.0.iter().find(|membership| is_of_peer(membership.trust.distinguished_name()))?;
        schemes.contains(&SCHEME).then(|| found.credentials.certified_key())
    }

    fn has_certs(&self) -> bool {
        true
    }
}

impl ResolvesServerCert for Shown {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.iter().next().map(|membership| membership.credentials.certified_key())
    }
}

/// Sessions to resume, until credentials or revocations change.
struct Sessions<Cache> {
    memberships: Memberships,
    new: fn(usize) -> Cache,
    /// The sessions, and the number of changes at which they began.
    current: Mutex<(u64, Arc<Cache>)>,
}

impl<Cache> Sessions<Cache> {
    fn new(memberships: &Memberships, new: fn(usize) -> Cache) -> Sessions<Cache> {
        let current = Mutex::new((memberships.changes(), Arc::new(new(SESSIONS_MAX))));
        Sessions { memberships: memberships.clone(), new, current }
    }

    fn current(&self) -> Arc<Cache> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let changes = self.memberships.changes();
        if current.0 != changes {
            *current = (changes, Arc::new((self.new)(SESSIONS_MAX)));
        }
        current.1.clone()
    }
}

impl<Cache> fmt::Debug for Sessions<Cache> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sessions(..)")
    }
}

fn server_cache(sessions_max: usize) -> Arc<ServerSessionMemoryCache> {
    ServerSessionMemoryCache::new(sessions_max)
}

impl StoresServerSessions for Sessions<Arc<ServerSessionMemoryCache>> {
    fn put(&self, key: Vec<u8>, value: Vec<u8>) -> bool {
        self.current().put(key, value)
    }

    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.current().get(key)
    }

    fn take(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.current().take(key)
    }

    fn can_cache(&self) -> bool {
        true
    }
}

impl ClientSessionStore for Sessions<ClientSessionMemoryCache> {
    fn set_kx_hint(&self, server: ServerName<'static>, group: NamedGroup) {
        self.current().set_kx_hint(server, group);
    }

    fn kx_hint(&self, server: &ServerName<'_>) -> Option<NamedGroup> {
        self.current().kx_hint(server)
    }

    fn set_tls12_session(&self, _server: ServerName<'static>, _session: Tls12ClientSessionValue) {}

    fn tls12_session(&self, _server: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        None
    }

    fn remove_tls12_session(&self, _server: &ServerName<'static>) {}

    fn insert_tls13_ticket(&self, server: ServerName<'static>, ticket: Tls13ClientSessionValue) {
        self.current().insert_tls13_ticket(server, ticket);
    }

    fn take_tls13_ticket(&self, server: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        self.current().take_tls13_ticket(server)
    }
}

/// Sessions that a node remembers, about 2 KiB each.
const SESSIONS_MAX: usize = 4096;

//! The certificate of a process, for TLS: a key that it makes when it starts.

use std::io;
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, ServerConfig, SignatureScheme};

/// Number of sessions that a process remembers, to resume them without certificates.
const SESSIONS_MAX: usize = 1024;
/// Protocol inside of TLS (RFC 7301).
const PROTOCOL: &[u8] = b"gridloom/1";

/// The certificate of a process, and what it accepts of others.
#[derive(Clone, Debug)]
pub struct TlsIdentity {
    pub(crate) client: Arc<ClientConfig>,
    pub(crate) server: Arc<ServerConfig>,
    /// Hash of the certificate.
    pub(crate) certificate: Arc<[u8; 32]>,
}

impl TlsIdentity {
    /// Makes a key and a certificate for this process.
    ///
    /// # Errors
    /// If the system has no random bytes.
    pub(crate) fn new() -> io::Result<TlsIdentity> {
        let made = rcgen::generate_simple_self_signed(vec!["gridloom".into()]).map_err(io::Error::other)?;
        let certificate = made.cert.der().clone();
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
        let hash = *blake3::hash(&certificate).as_bytes();
        let provider = Arc::new(provider());
        let versions = &[&rustls::version::TLS13];
        let verifier = Arc::new(KeyOnly(provider.clone()));
        let client = ClientConfig::builder_with_provider(provider.clone()).with_protocol_versions(versions);
        let mut client = client
            .map_err(io::Error::other)?
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_no_client_auth();
        client.alpn_protocols = vec![PROTOCOL.into()];
        client.resumption = Resumption::in_memory_sessions(SESSIONS_MAX);
        let server = ServerConfig::builder_with_provider(provider).with_protocol_versions(versions);
        let mut server = server
            .map_err(io::Error::other)?
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)
            .map_err(io::Error::other)?;
        server.alpn_protocols = vec![PROTOCOL.into()];
        server.session_storage = rustls::server::ServerSessionMemoryCache::new(SESSIONS_MAX);
        server.send_tls13_tickets = 1;
        Ok(TlsIdentity { client: Arc::new(client), server: Arc::new(server), certificate: Arc::new(hash) })
    }
}

/// Returns the cryptography: hybrid post-quantum key exchange is preferred, and the cipher that costs least.
fn provider() -> CryptoProvider {
    use aws_lc_rs::cipher_suite::{TLS13_AES_128_GCM_SHA256, TLS13_AES_256_GCM_SHA384, TLS13_CHACHA20_POLY1305_SHA256};
    let mut provider = aws_lc_rs::default_provider();
    provider.cipher_suites = vec![TLS13_AES_128_GCM_SHA256, TLS13_AES_256_GCM_SHA384, TLS13_CHACHA20_POLY1305_SHA256];
    provider.kx_groups = vec![aws_lc_rs::kx_group::X25519MLKEM768, aws_lc_rs::kx_group::X25519];
    provider
}

/// Verifies that the peer has the key of its certificate, and nothing else. The handshake inside of TLS does the rest.
#[derive(Debug)]
struct KeyOnly(Arc<CryptoProvider>);

impl ServerCertVerifier for KeyOnly {
    fn verify_server_cert(
        &self,
        _certificate: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::PeerIncompatible(rustls::PeerIncompatible::Tls12NotOffered))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

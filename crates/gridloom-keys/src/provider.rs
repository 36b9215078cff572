//! The cryptography of all connections.

use std::sync::{Arc, LazyLock};

use rustls::SignatureScheme;
use rustls::crypto::aws_lc_rs::{cipher_suite, default_provider};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms};
use webpki::aws_lc_rs::ECDSA_P256_SHA256;

use crate::certificate::ALGORITHMS;

/// The only kind of signature in handshakes, as in certificates.
pub(crate) const SCHEME: SignatureScheme = SignatureScheme::ECDSA_NISTP256_SHA256;
pub(crate) const SIGNATURES: WebPkiSupportedAlgorithms =
    WebPkiSupportedAlgorithms { all: ALGORITHMS, mapping: &[(SCHEME, &[ECDSA_P256_SHA256])] };

/// Returns the cipher suites, groups of key exchange, and signatures.
pub(crate) fn provider() -> &'static Arc<CryptoProvider> {
    static PROVIDER: LazyLock<Arc<CryptoProvider>> = LazyLock::new(|| {
        Arc::new(CryptoProvider {
            // AES-128 first: it is the fastest where processors have instructions for AES.
            cipher_suites: vec![
                cipher_suite::TLS13_AES_128_GCM_SHA256,
                cipher_suite::TLS13_AES_256_GCM_SHA384,
                cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
            ],
            signature_verification_algorithms: SIGNATURES,
            // Its first group of key exchange is X25519MLKEM768.
            ..default_provider()
        })
    });
    &PROVIDER
}

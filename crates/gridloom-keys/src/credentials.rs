//! The certificate and the private key of a member, replaceable while connections are open.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use rustls::sign::CertifiedKey;
use rustls_pki_types::UnixTime;

use crate::authority::Bundle;
use crate::certificate::Certificate;
use crate::error::KeysError;
use crate::provider::provider;

/// The certificate that a member shows to its peers, and its key. Each handshake uses the current certificate; live connections keep theirs.
pub struct Credentials {
    current: RwLock<Current>,
    /// Number of replacements.
    changes: AtomicU64,
}

#[derive(Clone)]
struct Current {
    certificate: Arc<Certificate>,
    certified: Arc<CertifiedKey>,
}

impl Credentials {
    /// # Errors
    /// If the cryptographic library does not accept the key.
    pub fn new(bundle: &Bundle) -> Result<Credentials, KeysError> {
        Ok(Credentials { current: RwLock::new(Current::new(bundle)?), changes: AtomicU64::new(0) })
    }

    /// Replaces certificate and key. The next handshake uses the new ones, and no session of the old ones is resumed.
    ///
    /// # Errors
    /// If they are for another identity, or the cryptographic library does not accept the key.
    pub fn replace(&self, bundle: &Bundle) -> Result<(), KeysError> {
        let new = Current::new(bundle)?;
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        let (own, other) = (&current.certificate.identity, &new.certificate.identity);
        if own != other {
            return Err(KeysError::invalid(format!("the certificate is for the {other}, and this is the {own}")));
        }
        *current = new;
        self.changes.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    pub fn certificate(&self) -> Arc<Certificate> {
        self.current().certificate
    }

    /// True from the middle of the certificate's life.
    pub fn due_for_renewal(&self, now: UnixTime) -> bool {
        now >= self.renewal_due_at()
    }

    /// Returns the middle of the certificate's life.
    pub fn renewal_due_at(&self) -> UnixTime {
        self.certificate().renewal_due_at()
    }

    pub(crate) fn certified_key(&self) -> Arc<CertifiedKey> {
        self.current().certified
    }

    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::SeqCst)
    }

    fn current(&self) -> Current {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Current {
    fn new(bundle: &Bundle) -> Result<Current, KeysError> {
        let certificate = &bundle.issued.certificate;
        let chain = vec![certificate.der.clone()];
        let certified = CertifiedKey::from_der(chain, bundle.key().into(), provider()).map_err(KeysError::library)?;
        Ok(Current { certificate: Arc::new(certificate.clone()), certified: Arc::new(certified) })
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("identity", &self.certificate().identity).finish_non_exhaustive()
    }
}

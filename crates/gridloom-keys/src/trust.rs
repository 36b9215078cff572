//! Whom a member of a grid trusts: the grid's authority, and its list of revocations.

use std::cell::Cell;
use std::slice;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use rustls_pki_types::{CertificateDer, TrustAnchor, UnixTime};
use webpki::{ExtendedKeyUsageValidator, KeyPurposeIdIter, KeyUsage};

use crate::certificate::{ALGORITHMS, Certificate, Fingerprint, PublicKey, dates, parse};
use crate::error::KeysError;
use crate::identity::grid_of_uri;
use crate::pem;
use crate::refusal::Refusal;
use crate::revocations::Revocations;

/// The authority of a grid as its members know it, and the revocations, which can be replaced at any time.
#[derive(Debug)]
pub struct Trust {
    grid: String,
    certificate: CertificateDer<'static>,
    anchor: TrustAnchor<'static>,
    public_key: PublicKey,
    not_after: UnixTime,
    revocations: RwLock<Arc<Revocations>>,
    /// Number of replacements of the revocations.
    changes: AtomicU64,
}

impl Trust {
    /// Reads the certificate of an authority.
    ///
    /// # Errors
    /// If it is not one.
    pub fn from_der(certificate: &CertificateDer<'_>) -> Result<Trust, KeysError> {
        let wrong = |why: String| KeysError::invalid(format!("it is not the certificate of an authority: {why}"));
        let parsed = parse(certificate).map_err(wrong)?;
        let grid = match parsed.valid_uri_names().collect::<Vec<_>>()[..] {
            [uri] => grid_of_uri(uri),
            _ => None,
        };
        let anchor = webpki::anchor_from_trusted_cert(certificate).map_err(|error| wrong(error.to_string()))?;
        Ok(Trust {
            grid: grid.ok_or_else(|| wrong("it has no name of a grid, gridloom://GRID".into()))?,
            certificate: certificate.clone().into_owned(),
            anchor: anchor.to_owned(),
            public_key: PublicKey::of(&parsed).map_err(wrong)?,
            not_after: dates(&parsed).map_err(wrong)?.1,
            revocations: RwLock::default(),
            changes: AtomicU64::new(0),
        })
    }

    /// Reads a PEM text with the certificate of an authority.
    ///
    /// # Errors
    /// If it is not one.
    pub fn from_pem(text: &[u8]) -> Result<Trust, KeysError> {
        match &pem::sections(text)?.certificates[..] {
            [certificate] => Trust::from_der(certificate),
            all => Err(KeysError::invalid(format!("expected one certificate, and there are {}", all.len()))),
        }
    }

    pub fn to_pem(&self) -> String {
        pem::certificate(&self.certificate)
    }

    pub fn grid(&self) -> &str {
        &self.grid
    }

    pub fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    pub fn fingerprint(&self) -> Fingerprint {
        self.public_key.fingerprint()
    }

    pub fn not_after(&self) -> UnixTime {
        self.not_after
    }

    /// Replaces the revocations: the next verification uses them. Live connections are the caller's: see
    /// [`Trust::check`].
    pub fn set_revocations(&self, revocations: Revocations) {
        *self.revocations.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(revocations);
        self.changes.fetch_add(1, Ordering::SeqCst);
    }

    pub fn revocations(&self) -> Arc<Revocations> {
        self.revocations.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::SeqCst)
    }

    /// Returns the name of the authority in the form of TLS, by which clients choose among their certificates.
    pub(crate) fn distinguished_name(&self) -> rustls::DistinguishedName {
        rustls::DistinguishedName::in_sequence(&self.anchor.subject)
    }

    /// Verifies the certificate of a peer: its signature, dates and usage, and that it is not revoked. Call it after
    /// each handshake: for a resumed one, TLS verifies nothing.
    ///
    /// # Errors
    /// Why the peer is refused.
    pub fn verify(&self, chain: &[CertificateDer<'_>], now: UnixTime) -> Result<Certificate, Refusal> {
        let der = chain.first().ok_or(Refusal::NoCertificate)?;
        let parsed = parse(der).map_err(Refusal::Malformed)?;
        let (not_before, _) = dates(&parsed).map_err(Refusal::Malformed)?;
        let usage = RecordedUsage::default();
        // At a time at which it is valid, so that errors of other kinds are found first.
        let anchors = slice::from_ref(&self.anchor);
        let issued = parsed.verify_for_usage(ALGORITHMS, anchors, &[], not_before, &usage, None, None);
        if let Err(error) = issued.map(drop) {
            return Err(self.refusal(&error, der));
        }
        let certificate = Certificate::read(der).map_err(Refusal::Malformed)?;
        if !usage.is_for_connections() {
            return Err(Refusal::WrongUsage("another purpose"));
        }
        if certificate.identity.grid() != self.grid {
            return Err(Refusal::WrongGrid { identity: certificate.identity, grid: self.grid.clone() });
        }
        self.check(&certificate, now)?;
        Ok(certificate)
    }

    /// Checks that a verified certificate has neither expired nor been revoked since. Call it for all live connections
    /// after [`Trust::set_revocations`], and at the `not_after` of each.
    ///
    /// # Errors
    /// Why the peer is refused.
    pub fn check(&self, certificate: &Certificate, now: UnixTime) -> Result<(), Refusal> {
        let identity = || certificate.identity.clone();
        let (not_before, not_after) = (certificate.not_before, certificate.not_after);
        if now < not_before {
            return Err(Refusal::NotYetValid { identity: identity(), not_before, now });
        }
        if now > not_after {
            return Err(Refusal::Expired { identity: identity(), not_after, now });
        }
        if now > self.not_after {
            return Err(Refusal::AuthorityExpired { grid: self.grid.clone(), not_after: self.not_after, now });
        }
        match self.revocations().of(certificate) {
            None => Ok(()),
            Some(found) => Err(Refusal::Revoked { identity: identity(), at: found.at, reason: found.reason.clone() }),
        }
    }

    fn refusal(&self, error: &webpki::Error, der: &CertificateDer<'_>) -> Refusal {
        use webpki::Error as E;
        match error {
            E::CaUsedAsEndEntity => Refusal::WrongUsage("an authority"),
            E::UnknownIssuer
            | E::InvalidSignatureForPublicKey
            | E::UnsupportedSignatureAlgorithmContext(_)
            | E::UnsupportedSignatureAlgorithmForPublicKeyContext(_) => match Certificate::read(der) {
                Ok(Certificate { identity, .. }) if identity.grid() != self.grid => {
                    Refusal::WrongGrid { identity, grid: self.grid.clone() }
                }
                _ => Refusal::WrongAuthority { grid: self.grid.clone(), fingerprint: self.fingerprint() },
            },
            error => Refusal::Malformed(error.to_string()),
        }
    }
}

/// Accepts all usages and records whether a certificate is for both ends of a connection: each node of a grid may
/// accept connections, and its role decides for what.
#[derive(Default)]
struct RecordedUsage {
    of_server: Cell<bool>,
    of_client: Cell<bool>,
}

impl RecordedUsage {
    fn is_for_connections(&self) -> bool {
        self.of_server.get() && self.of_client.get()
    }
}

impl ExtendedKeyUsageValidator for RecordedUsage {
    fn validate(&self, usages: KeyPurposeIdIter<'_, '_>) -> Result<(), webpki::Error> {
        for usage in usages {
            match &usage?.to_decoded_oid()[..] {
                KeyUsage::SERVER_AUTH_REPR => self.of_server.set(true),
                KeyUsage::CLIENT_AUTH_REPR => self.of_client.set(true),
                _ => {}
            }
        }
        Ok(())
    }
}

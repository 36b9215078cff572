//! Whom a member of a grid trusts: the grid's authority, and its list of revocations.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};
use std::{fmt, slice};

use rustls_pki_types::{CertificateDer, TrustAnchor, UnixTime};
use webpki::{ExtendedKeyUsageValidator, KeyPurposeIdIter, KeyUsage};

use crate::certificate::{ALGORITHMS, Certificate, Fingerprint, PublicKey, claimed_authority, dates, parse};
use crate::error::KeysError;
use crate::identity::grid_of_uri;
use crate::pem;
use crate::refusal::{GridMismatch, Refusal};
use crate::revocations::{Revocation, Revocations};

/// The authority of a grid as its members know it, and the revocations, which are never removed.
#[derive(Debug)]
pub struct Trust {
    grid: String,
    certificate: CertificateDer<'static>,
    anchor: TrustAnchor<'static>,
    public_key: PublicKey,
    not_after: UnixTime,
    revocations: RwLock<Arc<Revocations>>,
    /// Number of changes of the revocations.
    changes: AtomicU64,
    observers: Observers,
}

/// Called after each change of the revocations, as long as their owners exist.
#[derive(Default)]
struct Observers(Mutex<Vec<Weak<Observer>>>);

/// Called after each change of the revocations. It must not block.
pub type Observer = dyn Fn() + Send + Sync;

impl fmt::Debug for Observers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Observers(..)")
    }
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
            observers: Observers::default(),
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

    /// Adds revocations from a file of the user, signed or not: the next verification uses them, and the observers close live
    /// connections. Returns whether there was a new one.
    pub fn add_revocations(&self, new: &Revocations) -> bool {
        let mut current = self.revocations.write().unwrap_or_else(PoisonError::into_inner);
        let new = new.without(&current);
        if new.is_empty() {
            return false;
        }
        let mut all = (**current).clone();
        new.iter().for_each(|one| all.add(one.clone()));
        *current = Arc::new(all);
        drop(current);
        self.changes.fetch_add(1, Ordering::SeqCst);
        let observers: Vec<Arc<Observer>> =
            self.observers.0.lock().unwrap_or_else(PoisonError::into_inner).iter().filter_map(Weak::upgrade).collect();
        observers.iter().for_each(|observer| observer());
        true
    }

    /// Adds revocations that another node has sent. Returns whether there was a new one.
    ///
    /// # Errors
    /// If the authority has not signed one of them; then none is added.
    pub fn add_signed_revocations(&self, new: &Revocations) -> Result<bool, KeysError> {
        let new = new.without(&self.revocations());
        new.iter().try_for_each(|one| self.check_signature(one))?;
        Ok(self.add_revocations(&new))
    }

    fn check_signature(&self, revocation: &Revocation) -> Result<(), KeysError> {
        let authority = parse(&self.certificate).expect("it was read before");
        let bytes = revocation.signed_bytes(&self.grid);
        let is_signed = revocation.signature.as_ref().is_some_and(|signature| {
            ALGORITHMS.iter().any(|algorithm| authority.verify_signature(*algorithm, &bytes, &signature.0).is_ok())
        });
        match is_signed {
            true => Ok(()),
            false => Err(KeysError::Invalid(format!(
                "a revocation is not signed by the authority of the grid '{}' ({})",
                self.grid,
                self.fingerprint()
            ))),
        }
    }

    /// Calls `observer` after each change of the revocations, as long as it exists. It then calls [`Trust::check_revoked`] for all
    /// live connections.
    pub fn observe_revocations(&self, observer: &Arc<Observer>) {
        let mut observers = self.observers.0.lock().unwrap_or_else(PoisonError::into_inner);
        // A program may open one session after another with these keys.
        observers.retain(|one| one.strong_count() > 0);
        observers.push(Arc::downgrade(observer));
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
            return Err(self.wrong_grid(der));
        }
        self.check(&certificate, now)?;
        Ok(certificate)
    }

    /// Checks that a verified certificate has neither expired nor been revoked since.
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
        self.check_revoked(certificate)
    }

    /// Checks that a verified certificate has not been revoked since.
    ///
    /// # Errors
    /// [`Refusal::Revoked`].
    pub fn check_revoked(&self, certificate: &Certificate) -> Result<(), Refusal> {
        match self.revocations().of(certificate) {
            None => Ok(()),
            Some(Revocation { at, reason, .. }) => {
                let identity = certificate.identity.clone();
                Err(Refusal::Revoked { identity, at: *at, reason: reason.clone() })
            }
        }
    }

    fn refusal(&self, error: &webpki::Error, der: &CertificateDer<'_>) -> Refusal {
        use webpki::Error as E;
        match error {
            E::CaUsedAsEndEntity => Refusal::WrongUsage("an authority"),
            E::UnknownIssuer
            | E::InvalidSignatureForPublicKey
            | E::UnsupportedSignatureAlgorithmContext(_)
            | E::UnsupportedSignatureAlgorithmForPublicKeyContext(_) => self.wrong_grid(der),
            error => Refusal::Malformed(error.to_string()),
        }
    }

    fn wrong_grid(&self, der: &CertificateDer<'_>) -> Refusal {
        Refusal::WrongGrid(GridMismatch {
            identity: Certificate::read(der).ok().map(|certificate| certificate.identity),
            authority: parse(der).ok().and_then(|parsed| claimed_authority(&parsed)),
            own_grid: self.grid.clone(),
            own_authority: self.fingerprint(),
        })
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

//! The authority of a grid: it issues the certificates of all members.

use std::fmt;
use std::time::Duration;

use gridloom_base::NameKind;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, SanType, SerialNumber, SigningKey,
};
use rustls_pki_types::{CertificateDer, PrivatePkcs8KeyDer, UnixTime};

use crate::certificate::{BACKDATED, Certificate, Fingerprint, PublicKey, Serial};
use crate::error::KeysError;
use crate::identity::{Identity, check_acts_for_user, check_grid, grid_uri, user_uri};
use crate::patterns::Patterns;
use crate::pem;
use crate::revocations::{Revocation, Signature};
use crate::time::{DAY, after, before, calendar, date};
use crate::trust::Trust;

/// The key and the certificate of a grid's authority. It may exist only in memory.
pub struct Authority {
    trust: Trust,
    issuer: Issuer<'static, KeyPair>,
}

/// The identity, functions and lifetime that an authority certifies.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Grant {
    pub identity: Identity,
    /// The only user for whom functions act.
    pub user: Option<String>,
    pub functions: Patterns,
    pub lifetime: Duration,
}

impl Grant {
    /// Default lifetime of certificates.
    pub const LIFETIME: Duration = Duration::from_secs(90 * DAY.as_secs());
    /// Lifetime of certificates of processes that cannot get another one while they run.
    pub const LIFETIME_OF_PROCESS: Duration = Duration::from_secs(365 * DAY.as_secs());
    /// Limits of the lifetime.
    pub const LIFETIME_MIN: Duration = Duration::from_secs(1);
    pub const LIFETIME_MAX: Duration = Duration::from_secs(3650 * DAY.as_secs());

    /// A certificate of the default lifetime for all functions.
    pub fn new(identity: Identity) -> Grant {
        Grant { identity, user: None, functions: Patterns::all(), lifetime: Grant::LIFETIME }
    }
}

/// A certificate and that of its authority.
#[derive(Clone, Debug)]
pub struct Issued {
    pub certificate: Certificate,
    pub authority: CertificateDer<'static>,
}

impl Issued {
    pub fn to_pem(&self) -> String {
        self.certificate.to_pem() + &pem::certificate(&self.authority)
    }

    /// Reads a PEM text with a certificate and that of its authority, in any order.
    ///
    /// # Errors
    /// If the text has something else, or the authority has not issued the certificate.
    pub fn from_pem(text: &[u8]) -> Result<Issued, KeysError> {
        let found = pem::sections(text)?;
        match found.keys.is_empty() {
            true => Issued::from_certificates(&found.certificates),
            false => Err(KeysError::invalid("the text has a private key; never send one to others")),
        }
    }

    fn from_certificates(certificates: &[CertificateDer<'static>]) -> Result<Issued, KeysError> {
        let [one, other] = certificates else {
            let count = certificates.len();
            let why = format!("expected a certificate and that of its authority, and there are {count} certificates");
            return Err(KeysError::Invalid(why));
        };
        let (trust, own) = match Trust::from_der(other) {
            Ok(trust) => (trust, one),
            Err(error) => (Trust::from_der(one).map_err(|_| error)?, other),
        };
        let certificate = Certificate::read(own).map_err(KeysError::Invalid)?;
        // At that time it is valid; whether it still is, its user finds out.
        trust.verify(std::slice::from_ref(own), certificate.not_before)?;
        Ok(Issued { certificate, authority: trust.certificate().clone() })
    }
}

/// A certificate, that of its authority, and the private key: all that a member needs.
#[derive(Clone)]
pub struct Bundle {
    pub issued: Issued,
    /// Private key in the form PKCS #8.
    key: Vec<u8>,
}

impl Bundle {
    /// # Errors
    /// If the key does not belong to the certificate.
    pub(crate) fn new(issued: Issued, key: &[u8]) -> Result<Bundle, KeysError> {
        match PublicKey::of_pair(&key_pair(key)?)? == issued.certificate.public_key {
            true => Ok(Bundle { issued, key: key.into() }),
            false => Err(KeysError::invalid("the private key does not belong to the certificate")),
        }
    }

    /// Returns all of it, with the private key, to be passed to another process of the user through a pipe.
    pub fn to_pem(&self) -> String {
        self.issued.to_pem() + &self.key_to_pem()
    }

    /// Reads the text of [`Bundle::to_pem`].
    ///
    /// # Errors
    /// If it is not complete, or its parts do not belong together.
    pub fn from_pem(text: &[u8]) -> Result<Bundle, KeysError> {
        let found = pem::sections(text)?;
        let [key] = &found.keys[..] else {
            return Err(KeysError::invalid(format!("expected one private key, and there are {}", found.keys.len())));
        };
        Bundle::new(Issued::from_certificates(&found.certificates)?, key)
    }

    pub(crate) fn key(&self) -> PrivatePkcs8KeyDer<'static> {
        self.key.clone().into()
    }

    pub(crate) fn key_to_pem(&self) -> String {
        pem::private_key(&self.key)
    }
}

impl fmt::Debug for Bundle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bundle").field("issued", &self.issued).finish_non_exhaustive()
    }
}

impl Authority {
    /// How long an authority is valid.
    pub const LIFETIME: Duration = Duration::from_secs(3650 * DAY.as_secs());

    /// Makes the authority of a new grid.
    ///
    /// # Errors
    /// If the name is not that of a grid, or the system has no random bytes.
    pub fn new(grid: &str, now: UnixTime) -> Result<Authority, KeysError> {
        check_grid(grid)?;
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(KeysError::library)?;
        let mut params = params(now, after(now, Authority::LIFETIME), &[grid_uri(grid)])?;
        params.distinguished_name = authority_name(grid, &PublicKey::of_pair(&key)?);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let certificate = params.self_signed(&key).map_err(KeysError::library)?;
        Authority::from_parts(certificate.der(), key)
    }

    /// Reads an authority from its certificate and its key, both PEM.
    ///
    /// # Errors
    /// If they are not those of an authority, or do not belong together.
    pub fn from_pem(certificate: &[u8], key: &[u8]) -> Result<Authority, KeysError> {
        let trust = Trust::from_pem(certificate)?;
        let found = pem::sections(key)?;
        let [key] = &found.keys[..] else {
            return Err(KeysError::invalid(format!("expected one private key, and there are {}", found.keys.len())));
        };
        Authority::from_parts(trust.certificate(), key_pair(key)?)
    }

    fn from_parts(certificate: &CertificateDer<'_>, key: KeyPair) -> Result<Authority, KeysError> {
        let trust = Trust::from_der(certificate)?;
        let public = PublicKey::of_pair(&key)?;
        if public.fingerprint() != trust.fingerprint() {
            return Err(KeysError::invalid("the private key does not belong to the certificate of the authority"));
        }
        let mut params = CertificateParams::default();
        params.distinguished_name = authority_name(trust.grid(), &public);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        Ok(Authority { issuer: Issuer::new(params, key), trust })
    }

    pub fn grid(&self) -> &str {
        self.trust.grid()
    }

    pub fn fingerprint(&self) -> Fingerprint {
        self.trust.fingerprint()
    }

    pub fn not_after(&self) -> UnixTime {
        self.trust.not_after()
    }

    /// Returns the authority as its members know it, without revocations.
    pub fn trust(&self) -> Trust {
        Trust::from_der(self.trust.certificate()).expect("it was read before")
    }

    pub fn certificate_to_pem(&self) -> String {
        self.trust.to_pem()
    }

    /// Returns the private key, to be stored in a file with mode 0600.
    pub(crate) fn key_to_pem(&self) -> String {
        self.issuer.key().serialize_pem()
    }

    /// Issues a certificate for a key, valid from an hour before `now`, and not longer than the authority itself.
    ///
    /// # Errors
    /// If the identity is of another grid, the lifetime is out of bounds, or the authority has expired.
    pub fn issue(&self, key: &PublicKey, grant: &Grant, now: UnixTime) -> Result<Issued, KeysError> {
        let Grant { identity, user, functions, lifetime } = grant;
        if identity.grid() != self.grid() {
            let why = format!("the authority of the grid '{}' cannot certify the {identity}", self.grid());
            return Err(KeysError::Invalid(why));
        }
        if !(Grant::LIFETIME_MIN..=Grant::LIFETIME_MAX).contains(lifetime) {
            let days = lifetime.as_secs_f64() / DAY.as_secs_f64();
            let why = format!("a lifetime of {days} days is out of bounds; use at least 1 s and at most 3650 days");
            return Err(KeysError::Invalid(why));
        }
        if now > self.not_after() {
            let why = format!("the authority of the grid '{}' has expired at {}", self.grid(), date(self.not_after()));
            return Err(KeysError::Invalid(why));
        }
        if let Some(user) = user {
            check_acts_for_user(identity)?;
            NameKind::User.check(user).map_err(|error| KeysError::Invalid(error.to_string()))?;
        }
        let not_after = after(now, *lifetime).min(self.not_after());
        let user = user.iter().map(|user| user_uri(identity.grid(), user));
        let uris: Vec<String> =
            std::iter::once(identity.uri()).chain(user).chain(functions.uris(identity.grid())).collect();
        let mut params = params(now, not_after, &uris)?;
        params.distinguished_name = member_name(identity);
        params.is_ca = IsCa::ExplicitNoCa;
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let certificate = params.signed_by(key, &self.issuer).map_err(KeysError::library)?;
        Ok(Issued {
            certificate: Certificate::read(certificate.der()).map_err(KeysError::Invalid)?,
            authority: self.trust.certificate().clone(),
        })
    }

    /// Signs a revocation, so that nodes accept it from each other.
    ///
    /// # Errors
    /// If the cryptographic library fails.
    pub fn sign(&self, revocation: Revocation) -> Result<Revocation, KeysError> {
        let bytes = revocation.signed_bytes(self.grid());
        let signature = self.issuer.key().sign(&bytes).map_err(KeysError::library)?;
        Ok(Revocation { signature: Some(Signature(signature)), ..revocation })
    }

    /// Makes a key and issues a certificate for it.
    ///
    /// # Errors
    /// As [`Authority::issue`].
    pub fn issue_bundle(&self, grant: &Grant, now: UnixTime) -> Result<Bundle, KeysError> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(KeysError::library)?;
        let issued = self.issue(&PublicKey::of_pair(&key)?, grant, now)?;
        Bundle::new(issued, key.serialized_der())
    }
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authority").field("grid", &self.grid()).finish_non_exhaustive()
    }
}

/// Parameters that all certificates share: serial number, dates and names.
pub(crate) fn params(now: UnixTime, not_after: UnixTime, uris: &[String]) -> Result<CertificateParams, KeysError> {
    let calendar =
        |at| calendar(at).ok_or_else(|| KeysError::invalid(format!("the date {} is out of bounds", date(at))));
    let uri = |uri: &String| uri.as_str().try_into().map(SanType::URI).map_err(KeysError::library);
    let mut params = CertificateParams::default();
    params.not_before = calendar(before(now, BACKDATED))?;
    params.not_after = calendar(not_after)?;
    params.serial_number = Some(SerialNumber::from_slice(Serial::random()?.as_bytes()));
    params.subject_alt_names = uris.iter().map(uri).collect::<Result<_, _>>()?;
    Ok(params)
}

fn key_pair(pkcs8: &[u8]) -> Result<KeyPair, KeysError> {
    KeyPair::from_pkcs8_der_and_sign_algo(&pkcs8.into(), &PKCS_ECDSA_P256_SHA256)
        .map_err(|error| KeysError::invalid(format!("it is not a private key of the curve P-256 ({error})")))
}

/// Returns the name of an authority in X.509. It contains the fingerprint, since two grids may have one name.
fn authority_name(grid: &str, key: &PublicKey) -> DistinguishedName {
    names([
        (DnType::OrganizationName, grid.into()),
        (DnType::OrganizationalUnitName, key.fingerprint().to_string()),
        (DnType::CommonName, "gridloom authority".into()),
    ])
}

/// Returns the name of a member in X.509. Only other programs show it.
pub(crate) fn member_name(identity: &Identity) -> DistinguishedName {
    names([
        (DnType::OrganizationName, identity.grid().into()),
        (DnType::OrganizationalUnitName, identity.role().to_string()),
        (DnType::CommonName, identity.name().chars().take(COMMON_NAME_CHARACTERS_MAX).collect()),
    ])
}

fn names<const N: usize>(parts: [(DnType, String); N]) -> DistinguishedName {
    let mut names = DistinguishedName::new();
    parts.into_iter().for_each(|(kind, value)| names.push(kind, value));
    names
}

/// Limit of X.509.
const COMMON_NAME_CHARACTERS_MAX: usize = 64;

//! Certificates as they are read: identity, functions, serial number, dates and public key. Reading does not check who
//! signed a certificate; [`Trust::verify`](crate::Trust::verify) does.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use rcgen::{CertificateParams, PKCS_ECDSA_P256_SHA256, PublicKeyData, SignatureAlgorithm};
use rustls_pki_types::{CertificateDer, SignatureVerificationAlgorithm, UnixTime};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use webpki::aws_lc_rs::ECDSA_P256_SHA256;
use webpki::{EndEntityCert, ExtendedKeyUsageValidator, KeyPurposeIdIter};

use crate::identity::{Identity, is_user_uri, user_of_uri};
use crate::invalid::Invalid;
use crate::patterns::{Pattern, Patterns};
use crate::time::{HOUR, after, seconds};

/// The only kind of signature in certificates and handshakes. Every implementation of TLS accepts the curve P-256, also
/// in certificates of clients. Ed25519 would save 30 µs of a handshake's 700 µs.
pub(crate) const ALGORITHMS: &[&dyn SignatureVerificationAlgorithm] = &[ECDSA_P256_SHA256];

/// A certificate of a member of a grid.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Certificate {
    pub identity: Identity,
    /// The only user of the grid for whom the holder acts; `None` if it is not restricted. Functions may have one.
    pub user: Option<String>,
    pub functions: Patterns,
    pub serial: Serial,
    pub not_before: UnixTime,
    pub not_after: UnixTime,
    pub public_key: PublicKey,
    pub der: CertificateDer<'static>,
}

impl Certificate {
    /// Reads a certificate.
    ///
    /// # Errors
    /// If it is not a certificate of Gridloom: the reason, without a subject.
    pub fn read(der: &CertificateDer<'_>) -> Result<Certificate, String> {
        let parsed = parse(der)?;
        let (not_before, not_after) = dates(&parsed)?;
        let (identity, user, functions) = names(&parsed)?;
        Ok(Certificate {
            identity,
            user,
            functions,
            serial: Serial::from_bytes(parsed.serial()).ok_or("its serial number does not have 16 bytes")?,
            not_before,
            not_after,
            public_key: PublicKey::of(&parsed)?,
            der: der.clone().into_owned(),
        })
    }
}

impl Certificate {
    /// Returns the time at which the certificate was issued, by the clock of its authority.
    pub fn issued_at(&self) -> UnixTime {
        after(self.not_before, BACKDATED)
    }

    /// Returns the middle of the certificate's life, from which it should be renewed.
    pub fn renewal_due_at(&self) -> UnixTime {
        let life_s = self.not_after.as_secs().saturating_sub(self.issued_at().as_secs());
        after(self.issued_at(), Duration::from_secs(life_s / 2))
    }

    /// Returns the certificate as PEM.
    pub fn to_pem(&self) -> String {
        crate::pem::certificate(&self.der)
    }
}

pub(crate) fn parse<'a>(der: &'a CertificateDer<'a>) -> Result<EndEntityCert<'a>, String> {
    if der.len() > CERTIFICATE_BYTES_MAX {
        return Err(format!("it has {} bytes, and the limit is {CERTIFICATE_BYTES_MAX}", der.len()));
    }
    EndEntityCert::try_from(der).map_err(|error| format!("it is not an X.509 certificate ({error})"))
}

/// Returns the fingerprint of the authority that a certificate names, which nobody has verified. It is in the name of the
/// issuer, since two authorities may have one name.
pub(crate) fn claimed_authority(parsed: &EndEntityCert<'_>) -> Option<Fingerprint> {
    // The attribute has the type OrganizationalUnitName, 2.5.4.11; a byte for the kind of text; and one for its length.
    const UNIT: &[u8] = &[0x06, 0x03, 0x55, 0x04, 0x0b];
    let name = parsed.issuer();
    let at = name.windows(UNIT.len()).position(|bytes| bytes == UNIT)?;
    let (&[_, length], text) = name.get(at + UNIT.len()..)?.split_first_chunk()?;
    std::str::from_utf8(text.get(..usize::from(length))?).ok()?.parse().ok()
}

/// Returns the dates between which a certificate is valid. The library reports them only in errors.
pub(crate) fn dates(parsed: &EndEntityCert<'_>) -> Result<(UnixTime, UnixTime), String> {
    let at = |time| {
        let found = parsed.verify_for_usage(ALGORITHMS, &[], &[], seconds(time), AnyUsage, None, None);
        found.map(drop).expect_err("without an authority nothing is valid")
    };
    match (at(0), at(u64::MAX)) {
        (webpki::Error::CertNotValidYet { not_before, .. }, webpki::Error::CertExpired { not_after, .. }) => {
            Ok((not_before, not_after))
        }
        (error, _) => Err(format!("its dates are wrong ({error})")),
    }
}

fn names(parsed: &EndEntityCert<'_>) -> Result<(Identity, Option<String>, Patterns), String> {
    let mut uris = parsed.valid_uri_names().peekable();
    let first = uris.next().ok_or("it has no identity, gridloom://GRID/ROLE/NAME")?;
    let identity = Identity::from_uri(first).map_err(|error| error.to_string())?;
    let user = uris.next_if(|uri| is_user_uri(identity.grid(), uri));
    let user = user.map(|uri| user_of_uri(&identity, uri)).transpose().map_err(|error| error.to_string())?;
    let pattern = |uri: &str| -> Result<Pattern, String> {
        let shown: String = uri.chars().take(SHOWN_CHARACTERS_MAX).collect();
        let unknown = || format!("it has an unknown name, '{}'", gridloom_base::EscapedLine(&shown));
        Patterns::of_uri(identity.grid(), uri).ok_or_else(unknown)
    };
    let patterns = uris.map(pattern).collect::<Result<Vec<Pattern>, String>>()?;
    Ok((identity.clone(), user, Patterns::new(patterns).map_err(|error| error.to_string())?))
}

/// Permits certificates of any usage.
pub(crate) struct AnyUsage;

impl ExtendedKeyUsageValidator for AnyUsage {
    fn validate(&self, _: KeyPurposeIdIter<'_, '_>) -> Result<(), webpki::Error> {
        Ok(())
    }
}

/// The number of a certificate, unique in its grid: 16 bytes, of which 126 bits are random.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Serial([u8; 16]);

impl Serial {
    pub(crate) fn random() -> Result<Serial, getrandom::Error> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes)?;
        // A positive number of always 16 bytes.
        bytes[0] = bytes[0] & 0x3f | 0x40;
        Ok(Serial(bytes))
    }

    fn from_bytes(bytes: &[u8]) -> Option<Serial> {
        let bytes: [u8; 16] = bytes.try_into().ok()?;
        (bytes[0] & 0xc0 == 0x40).then_some(Serial(bytes))
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for Serial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(f, &self.0)
    }
}

impl fmt::Debug for Serial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(f, &self.0)
    }
}

impl FromStr for Serial {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Serial, Invalid> {
        let wrong = || {
            let text: String = text.chars().take(64).collect();
            let text = gridloom_base::EscapedLine(&text);
            Invalid::new(format!("'{text}' is not a serial number: expected 32 hexadecimal digits"))
        };
        from_hex(text).and_then(|bytes| Serial::from_bytes(&bytes)).ok_or_else(wrong)
    }
}

impl Serialize for Serial {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Serial {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Serial, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// A public key of the curve P-256.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PublicKey([u8; POINT_BYTES]);

impl PublicKey {
    pub(crate) fn of(parsed: &EndEntityCert<'_>) -> Result<PublicKey, String> {
        let info = parsed.subject_public_key_info();
        let point = info.strip_prefix(P256_PREFIX).and_then(|point| point.try_into().ok());
        Ok(PublicKey(point.ok_or("its key is not of the curve P-256")?))
    }

    pub(crate) fn of_pair(key: &rcgen::KeyPair) -> Result<PublicKey, Invalid> {
        let point = key.public_key_raw().try_into();
        point.map(PublicKey).map_err(|_| Invalid::new("the private key is not of the curve P-256"))
    }

    /// Returns a short text by which two people compare keys.
    pub fn fingerprint(&self) -> Fingerprint {
        let digest = CertificateParams::default().key_identifier(self);
        Fingerprint(digest.try_into().expect("the library's digest has 20 bytes"))
    }
}

impl PublicKeyData for PublicKey {
    fn der_bytes(&self) -> &[u8] {
        &self.0
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &PKCS_ECDSA_P256_SHA256
    }
}

/// The first 20 bytes of the SHA-256 of a public key (of its SubjectPublicKeyInfo), as in RFC 7093.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fingerprint([u8; 20]);

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(f, &self.0)
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(f, &self.0)
    }
}

impl FromStr for Fingerprint {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Fingerprint, Invalid> {
        let wrong = || {
            let text: String = text.chars().take(64).collect();
            let text = gridloom_base::EscapedLine(&text);
            Invalid::new(format!("'{text}' is not a fingerprint: expected 40 hexadecimal digits"))
        };
        from_hex(text).and_then(|bytes| bytes.try_into().ok()).map(Fingerprint).ok_or_else(wrong)
    }
}

impl Serialize for Fingerprint {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Fingerprint {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Fingerprint, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

pub(crate) fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn write_hex(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

pub(crate) fn from_hex(text: &str) -> Option<Vec<u8>> {
    let is_hex = text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
    let pairs = || text.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).expect("they are ASCII"));
    (is_hex && text.len().is_multiple_of(2))
        .then(|| pairs().map(|pair| u8::from_str_radix(pair, 16).expect("they are digits")).collect())
}

/// Certificates are valid from this long before they are issued, because the clocks of other machines may be slow.
pub(crate) const BACKDATED: Duration = HOUR;
/// Maximum size of a certificate. One with the longest names and functions has 6 KiB.
const CERTIFICATE_BYTES_MAX: usize = 8192;
/// Maximum number of characters of a wrong name that its error shows.
const SHOWN_CHARACTERS_MAX: usize = 120;
/// Size of an uncompressed point of the curve.
const POINT_BYTES: usize = 65;
/// The bytes before the point in the SubjectPublicKeyInfo of a key of the curve P-256.
const P256_PREFIX: &[u8] = &[
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce,
    0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];

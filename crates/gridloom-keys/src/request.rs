//! Requests for a certificate: a text that a new machine or user sends to an administrator, by mail for example.
//!
//! A request is a certificate that its own key has signed, with the wanted identity and functions. The signature proves
//! that the sender has the private key.

use std::time::Duration;

use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256};
use rustls_pki_types::UnixTime;

use crate::authority::{member_name, params};
use crate::certificate::{ALGORITHMS, AnyUsage, Certificate, Fingerprint, PublicKey, dates, parse};
use crate::error::KeysError;
use crate::identity::Identity;
use crate::patterns::Patterns;
use crate::pem;
use crate::time::{DAY, after, date};

/// A request whose signature has been verified.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request(Certificate);

/// The private key of a request, in the form PKCS #8.
pub(crate) struct RequestKey(pub(crate) Vec<u8>);

impl Request {
    /// How long a request can be approved.
    pub const LIFETIME: Duration = Duration::from_secs(30 * DAY.as_secs());

    /// Makes a key, and a request for a certificate of it.
    ///
    /// # Errors
    /// If the system has no random bytes.
    pub(crate) fn new(
        identity: &Identity,
        functions: &Patterns,
        now: UnixTime,
    ) -> Result<(Request, RequestKey), KeysError> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(KeysError::library)?;
        let uris: Vec<String> = std::iter::once(identity.uri()).chain(functions.uris(identity.grid())).collect();
        let mut params = params(now, after(now, Request::LIFETIME), &uris)?;
        params.distinguished_name = member_name(identity);
        let signed = params.self_signed(&key).map_err(KeysError::library)?;
        let request = Certificate::read(signed.der()).map_err(KeysError::Invalid)?;
        Ok((Request(request), RequestKey(key.serialized_der().into())))
    }

    /// Reads a request and verifies its signature and dates.
    ///
    /// # Errors
    /// If the text is not a request, or the request has expired.
    pub fn from_pem(text: &[u8], now: UnixTime) -> Result<Request, KeysError> {
        let request = Request::from_pem_of_any_time(text)?;
        let Certificate { not_before, not_after, .. } = request.0;
        if now < not_before || now > not_after {
            let (from, to, now) = (date(not_before), date(not_after), date(now));
            let why = format!("the request is valid from {from} until {to}, and it is {now}; make a new one");
            return Err(KeysError::Invalid(why));
        }
        Ok(request)
    }

    pub(crate) fn from_pem_of_any_time(text: &[u8]) -> Result<Request, KeysError> {
        let wrong = |why: String| KeysError::Invalid(format!("it is not a request for a certificate: {why}"));
        let found = pem::sections(text)?;
        if !found.keys.is_empty() {
            return Err(wrong("it has a private key; never send one to others".into()));
        }
        let [der] = &found.certificates[..] else {
            return Err(wrong(format!("expected one section CERTIFICATE, and there are {}", found.certificates.len())));
        };
        let parsed = parse(der).map_err(wrong)?;
        let (not_before, _) = dates(&parsed).map_err(wrong)?;
        // Its own key is the only one that must have signed it.
        let own = [webpki::anchor_from_trusted_cert(der).map_err(|error| wrong(error.to_string()))?];
        let signed = parsed.verify_for_usage(ALGORITHMS, &own, &[], not_before, AnyUsage, None, None);
        signed.map(drop).map_err(|error| wrong(format!("it is not signed by its own key ({error})")))?;
        Certificate::read(der).map(Request).map_err(wrong)
    }

    /// Returns the request as a text to be sent, with lines for people at its beginning.
    pub fn to_pem(&self) -> String {
        let Certificate { identity, functions, public_key, .. } = &self.0;
        let fingerprint = public_key.fingerprint();
        let pem = self.0.to_pem();
        format!(
            "Request for a certificate of the {identity}\nFunctions: {functions}\nFingerprint: {fingerprint}\n{pem}"
        )
    }

    /// The wanted identity.
    pub fn identity(&self) -> &Identity {
        &self.0.identity
    }

    /// The wanted functions.
    pub fn functions(&self) -> &Patterns {
        &self.0.functions
    }

    pub(crate) fn has_expired(&self, now: UnixTime) -> bool {
        now > self.0.not_after
    }

    pub fn public_key(&self) -> &PublicKey {
        &self.0.public_key
    }

    pub fn fingerprint(&self) -> Fingerprint {
        self.0.public_key.fingerprint()
    }
}

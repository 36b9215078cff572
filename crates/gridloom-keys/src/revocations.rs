//! The certificates that a grid has revoked: a file of JSON lines.
//!
//! A revocation names a certificate by its serial number, or an identity. The latter applies to all certificates that
//! the identity has got until then, so that its holder can get a new one.
//!
//! The authority signs each revocation, so that any node can pass it on and none can make one. Revocations are never
//! withdrawn: a node that receives old ones keeps the newer ones that it has.

use std::collections::BTreeMap;

use gridloom_base::escaped::is_printable;
use rustls_pki_types::UnixTime;
use serde::{Deserialize, Serialize};

use crate::certificate::{Certificate, Serial, from_hex, to_hex};
use crate::error::KeysError;
use crate::identity::{Identity, Role};
use crate::json_lines::{self, LineError};
use crate::time::as_seconds;

/// A certificate or an identity that is revoked.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Revoked {
    Certificate(Serial),
    /// All certificates of an identity that were issued before or at the time of the revocation.
    Identity(Identity),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Revocation {
    pub revoked: Revoked,
    pub at: UnixTime,
    pub reason: String,
    /// Signature of the authority. Revocations in a file of the user may have none.
    pub(crate) signature: Option<Signature>,
}

/// A signature of the authority, ECDSA in DER.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Signature(pub(crate) Vec<u8>);

/// All revocations of a grid.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Revocations(BTreeMap<Revoked, Revocation>);

impl Revocation {
    /// # Errors
    /// If the reason is blank, too long or has control characters.
    pub fn new(revoked: Revoked, at: UnixTime, reason: &str) -> Result<Revocation, KeysError> {
        check_reason(reason).map_err(KeysError::Invalid)?;
        Ok(Revocation { revoked, at, reason: reason.into(), signature: None })
    }

    /// Returns the bytes that the authority of a grid signs. No certificate begins like that.
    pub(crate) fn signed_bytes(&self, grid: &str) -> Vec<u8> {
        let line = Line::from(&Revocation { signature: None, ..self.clone() });
        format!("gridloom 2026 revocation v1\n{grid}\n{}", json_lines::to_text([line])).into_bytes()
    }
}

impl Revocations {
    /// Adds a revocation. Of two for one identity, the later applies.
    pub fn add(&mut self, revocation: Revocation) {
        if self.lacks(&revocation) {
            self.0.insert(revocation.revoked.clone(), revocation);
        }
    }

    /// Reports whether adding a revocation changes something.
    pub(crate) fn lacks(&self, revocation: &Revocation) -> bool {
        let order = |one: &Revocation| (one.at, one.signature.is_some());
        self.0.get(&revocation.revoked).is_none_or(|found| order(found) < order(revocation))
    }

    /// Returns those that the authority has signed.
    pub fn signed(&self) -> Revocations {
        let is_signed = |(_, revocation): &(&Revoked, &Revocation)| revocation.signature.is_some();
        Revocations(self.0.iter().filter(is_signed).map(|(revoked, one)| (revoked.clone(), one.clone())).collect())
    }

    /// Returns those that others do not have.
    pub fn without(&self, others: &Revocations) -> Revocations {
        let is_new = |(_, revocation): &(&Revoked, &Revocation)| others.lacks(revocation);
        Revocations(self.0.iter().filter(is_new).map(|(revoked, one)| (revoked.clone(), one.clone())).collect())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the revocation that applies to a certificate. One of a user also applies to functions that act for this user.
    pub fn of(&self, certificate: &Certificate) -> Option<&Revocation> {
        let Certificate { serial, identity, user, .. } = certificate;
        let of_user = |role| {
            let user = Identity::new(identity.grid(), role, user.as_deref()?).ok()?;
            self.of_identity(&user).filter(|revocation| certificate.issued_at() <= revocation.at)
        };
        let of_users = || [Role::Client, Role::Administrator].into_iter().find_map(of_user);
        self.of_issued(*serial, identity, certificate.issued_at()).or_else(of_users)
    }

    pub(crate) fn of_issued(&self, serial: Serial, identity: &Identity, issued_at: UnixTime) -> Option<&Revocation> {
        let by_identity = || self.of_identity(identity).filter(|revocation| issued_at <= revocation.at);
        self.0.get(&Revoked::Certificate(serial)).or_else(by_identity)
    }

    /// Returns the latest revocation of an identity.
    pub fn of_identity(&self, identity: &Identity) -> Option<&Revocation> {
        // Most grids have none, and then nothing is copied.
        (!self.is_empty()).then(|| self.0.get(&Revoked::Identity(identity.clone())))?
    }

    pub fn iter(&self) -> impl Iterator<Item = &Revocation> {
        self.0.values()
    }

    /// Returns the revocations as JSON lines.
    pub fn to_text(&self) -> String {
        json_lines::to_text(self.0.values().map(Line::from))
    }

    /// Parses JSON lines.
    ///
    /// # Errors
    /// With the number of the wrong line.
    pub fn from_text(text: &str) -> Result<Revocations, KeysError> {
        Revocations::parse(text).map_err(|error| KeysError::Invalid(error.to_string()))
    }

    pub(crate) fn parse(text: &str) -> Result<Revocations, LineError> {
        let mut all = Revocations::default();
        for (number, line) in json_lines::parse::<Line>(text)? {
            all.add(Revocation::try_from(line).map_err(|why| LineError { line: number, why })?);
        }
        Ok(all)
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    serial: Option<Serial>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    identity: Option<Identity>,
    #[serde(with = "as_seconds")]
    at: UnixTime,
    reason: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    signature: Option<String>,
}

impl From<&Revocation> for Line {
    fn from(revocation: &Revocation) -> Line {
        let (serial, identity) = match revocation.revoked.clone() {
            Revoked::Certificate(serial) => (Some(serial), None),
            Revoked::Identity(identity) => (None, Some(identity)),
        };
        let signature = revocation.signature.as_ref().map(|signature| to_hex(&signature.0));
        Line { serial, identity, at: revocation.at, reason: revocation.reason.clone(), signature }
    }
}

impl TryFrom<Line> for Revocation {
    type Error = String;

    fn try_from(line: Line) -> Result<Revocation, String> {
        let revoked = match (line.serial, line.identity) {
            (Some(serial), None) => Revoked::Certificate(serial),
            (None, Some(identity)) => Revoked::Identity(identity),
            _ => return Err("expected either a serial or an identity".into()),
        };
        check_reason(&line.reason)?;
        let bytes = |text: String| from_hex(&text).ok_or("the signature is not hexadecimal");
        let signature = line.signature.map(bytes).transpose()?.map(Signature);
        Ok(Revocation { revoked, at: line.at, reason: line.reason, signature })
    }
}

fn check_reason(reason: &str) -> Result<(), String> {
    if reason.trim().is_empty() || reason.len() > REASON_BYTES_MAX {
        return Err(format!("the reason has {} bytes; write 1 to {REASON_BYTES_MAX}, not only blanks", reason.len()));
    }
    match reason.chars().find(|character| !is_printable(*character)) {
        Some(wrong) => Err(format!("the reason has the control character '{}'", wrong.escape_default())),
        None => Ok(()),
    }
}

/// Maximum size of a reason: it is part of errors and log lines.
const REASON_BYTES_MAX: usize = 255;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::time::seconds;

    fn identity(name: &str) -> Identity {
        Identity::new("lab", Role::Client, name).unwrap()
    }

    proptest! {
        #[test]
        fn texts_are_read_back(entries in proptest::collection::vec(("[a-c]", 0..100u64, "[a-z]{1,5}", any::<bool>()), 0..8)) {
            let mut all = Revocations::default();
            for (name, at, reason, is_serial) in entries {
                let revoked = match is_serial {
                    true => Revoked::Certificate(Serial::random().unwrap()),
                    false => Revoked::Identity(identity(&name)),
                };
                let signature = (at % 2 == 0).then(|| Signature(vec![at as u8; 70]));
                all.add(Revocation { signature, ..Revocation::new(revoked, seconds(at), &reason).unwrap() });
            }
            prop_assert_eq!(Revocations::from_text(&all.to_text()).unwrap(), all);
        }
    }

    #[test]
    fn wrong_lines_are_named() {
        let good = r#"{"identity":"gridloom://lab/client/a","at":1,"reason":"left"}"#;
        assert_eq!(Revocations::from_text(&format!("{good}\n\n{good}\n")).unwrap().iter().count(), 1);
        for (line, why) in [
            ("{", "line 2"),
            ("[1]", "line 2"),
            (r#"{"at":1,"reason":"x"}"#, "line 2: expected either a serial or an identity"),
            (r#"{"serial":"12","at":1,"reason":"x"}"#, "line 2"),
            (r#"{"identity":"gridloom://lab/root/a","at":1,"reason":"x"}"#, "'root' is not a role"),
            (r#"{"identity":"gridloom://lab/client/a","at":-1,"reason":"x"}"#, "line 2"),
            (r#"{"identity":"gridloom://lab/client/a","at":1,"reason":" "}"#, "not only blanks"),
            (r#"{"identity":"gridloom://lab/client/a","at":1,"reason":"\u001b"}"#, "control character"),
            (r#"{"identity":"gridloom://lab/client/a","at":1,"at":1,"reason":"x"}"#, "line 2"),
            (r#"{"identity":"gridloom://lab/client/a","at":1,"reason":"x","more":1}"#, "more"),
            (r#"{"identity":"gridloom://lab/client/a","at":1,"reason":"x","signature":"xy"}"#, "not hexadecimal"),
        ] {
            let error = Revocations::from_text(&format!("{good}\n{line}\n{good}\n")).unwrap_err().to_string();
            assert!(error.contains(why) && error.contains("line 2"), "{line}: {error}");
        }
    }
}

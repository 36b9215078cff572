//! The membership of a process in a grid: whom it trusts, and what it shows to its peers. A process may be a member of
//! several grids; it learns from an agent's certificate which of them it has dialled.

use std::sync::Arc;

use rustls_pki_types::{CertificateDer, UnixTime};

use crate::authority::Bundle;
use crate::certificate::Certificate;
use crate::credentials::Credentials;
use crate::error::KeysError;
use crate::identity::Role;
use crate::refusal::Refusal;
use crate::trust::Trust;

/// Membership in one grid.
#[derive(Debug)]
pub struct Membership {
    pub trust: Trust,
    pub credentials: Credentials,
}

/// Memberships in several grids, with different names.
#[derive(Clone, Debug)]
pub struct Memberships(Arc<[Arc<Membership>]>);

impl Membership {
    /// # Errors
    /// If the cryptographic library does not accept the key.
    pub fn new(bundle: &Bundle) -> Result<Membership, KeysError> {
        let trust = Trust::from_der(&bundle.issued.authority)?;
        Ok(Membership { trust, credentials: Credentials::new(bundle)? })
    }

    /// Number of replacements of the credentials and of the revocations.
    fn changes(&self) -> u64 {
        self.trust.changes() + self.credentials.changes()
    }
}

impl Memberships {
    pub fn new(all: impl IntoIterator<Item = Arc<Membership>>) -> Memberships {
        Memberships(all.into_iter().collect())
    }

    pub fn iter(&self) -> impl Iterator<Item = &Arc<Membership>> {
        self.0.iter()
    }

    /// Returns the membership in a grid.
    pub fn of_grid(&self, grid: &str) -> Option<&Arc<Membership>> {
        self.iter().find(|membership| membership.trust.grid() == grid)
    }

    /// Verifies a peer. Call it after each handshake with `peer_certificates()` of the connection, also after those
    /// that resume a session, for which TLS verifies nothing.
    ///
    /// # Errors
    /// Why the peer is refused.
    pub fn peer(
        &self,
        certificates: Option<&[CertificateDer<'_>]>,
        accepted: &[Role],
        now: UnixTime,
    ) -> Result<Certificate, Refusal> {
        let chain = certificates.filter(|chain| !chain.is_empty()).ok_or(Refusal::NoCertificate)?;
        let named = Certificate::read(&chain[0]).ok();
        let named = named.and_then(|certificate| self.of_grid(certificate.identity.grid()));
        // Whom no grid here can have certified, the first one refuses.
        let first =
            || self.iter().next().ok_or_else(|| Refusal::Malformed("this program has no keys of a grid".into()));
        let membership = named.map_or_else(first, Ok)?;
        let certificate = membership.trust.verify(chain, now)?;
        match accepted.contains(&certificate.identity.role()) {
            true => Ok(certificate),
            false => Err(Refusal::WrongRole { identity: certificate.identity, accepted: accepted.into() }),
        }
    }

    /// Checks that a peer that [`Memberships::peer`] has verified has not been revoked since.
    ///
    /// # Errors
    /// [`Refusal::Revoked`].
    pub fn check_revoked(&self, peer: &Certificate) -> Result<(), Refusal> {
        let membership = self.of_grid(peer.identity.grid()).expect("it has verified the peer");
        membership.trust.check_revoked(peer)
    }

    /// Number of replacements in all memberships.
    pub(crate) fn changes(&self) -> u64 {
        self.iter().map(|membership| membership.changes()).sum()
    }
}

impl From<Membership> for Memberships {
    fn from(membership: Membership) -> Memberships {
        Memberships::new([Arc::new(membership)])
    }
}

impl Bundle {
    /// Returns what a node needs for its connections.
    ///
    /// # Errors
    /// If the cryptographic library does not accept the key.
    pub fn membership(&self) -> Result<Membership, KeysError> {
        Membership::new(self)
    }
}

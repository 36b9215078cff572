//! Why a certificate is not accepted.

use std::fmt;

use gridloom_base::dial::{ConnectionError, ConnectionFault, REVOKED};
use rustls_pki_types::UnixTime;
use thiserror::Error;

use crate::certificate::Fingerprint;
use crate::identity::{Identity, Role};
use crate::time::date;

/// Why the certificate of a peer is not accepted.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum Refusal {
    #[error("the peer has no certificate; 'gridloom keys request' on its machine makes a request for one")]
    NoCertificate,
    #[error("the certificate is malformed: {0}")]
    Malformed(String),
    #[error("the certificate {0}")]
    WrongGrid(GridMismatch),
    #[error("the certificate of the {identity} has expired: it was valid until {}, and it is {}; 'gridloom keys renew' \
             on its machine makes a request for a new one", date(*.not_after), date(*.now))]
    Expired { identity: Identity, not_after: UnixTime, now: UnixTime },
    #[error("the certificate of the {identity} is not valid yet: it is valid from {}, and the clock of this machine says {}; \
             set the clocks of both machines", date(*.not_before), date(*.now))]
    NotYetValid { identity: Identity, not_before: UnixTime, now: UnixTime },
    #[error("the authority of the grid '{grid}' has expired: it was valid until {}, and it is {}; 'gridloom keys init' \
             makes a new one", date(*.not_after), date(*.now))]
    AuthorityExpired { grid: String, not_after: UnixTime, now: UnixTime },
    #[error("{REVOKED}{identity}, at {}: {reason}", date(*.at))]
    Revoked { identity: Identity, at: UnixTime, reason: String },
    #[error("the certificate is not for connections, but for {0}")]
    WrongUsage(&'static str),
    #[error("the {identity} cannot do this: it takes {}", roles_in_words(.accepted))]
    WrongRole { identity: Identity, accepted: Vec<Role> },
}

impl Refusal {
    /// Returns its kind.
    pub fn fault(&self) -> ConnectionFault {
        match self {
            Refusal::NoCertificate => ConnectionFault::NoCertificate,
            Refusal::Malformed(_) | Refusal::WrongUsage(_) => ConnectionFault::Refused,
            Refusal::WrongGrid(_) => ConnectionFault::WrongGrid,
            Refusal::Expired { .. } | Refusal::NotYetValid { .. } | Refusal::AuthorityExpired { .. } => {
                ConnectionFault::Expired
            }
            Refusal::Revoked { .. } => ConnectionFault::Revoked,
            Refusal::WrongRole { .. } => ConnectionFault::WrongRole,
        }
    }
}

impl From<Refusal> for ConnectionError {
    fn from(refusal: Refusal) -> ConnectionError {
        ConnectionError::new(refusal.fault(), refusal.to_string())
    }
}

/// The grid and the authority that a certificate names, which nobody has verified, and those of this node. Two grids may
/// have one name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GridMismatch {
    pub identity: Option<Identity>,
    pub authority: Option<Fingerprint>,
    pub own_grid: String,
    pub own_authority: Fingerprint,
}

impl fmt::Display for GridMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.identity {
            Some(identity) => write!(f, "is of the grid '{}'", identity.grid())?,
            None => f.write_str("is of another grid")?,
        }
        if let Some(authority) = self.authority {
            write!(f, " (authority {authority})")?;
        }
        write!(
            f,
            ", this node belongs to the grid '{}' (authority {}); 'gridloom keys list' on both machines shows the \
             authorities",
            self.own_grid, self.own_authority
        )
    }
}

fn roles_in_words(roles: &[Role]) -> String {
    let with_article = |role: &Role| match role {
        Role::Agent | Role::Administrator => format!("an {role}"),
        Role::Server | Role::Client | Role::Relay => format!("a {role}"),
        Role::Functions => "functions of a server".into(),
    };
    roles.iter().map(with_article).collect::<Vec<_>>().join(" or ")
}

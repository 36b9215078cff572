//! Identities and certificates of a grid.
//!
//! Each grid has an [`Authority`]: a key and a certificate that it signs itself. The authority issues certificates
//! to agents, servers, clients and administrators. A certificate contains an [`Identity`], `gridloom://GRID/ROLE/NAME`,
//! and [`Patterns`] of the functions that a server may offer or a client may call.
//!
//! ```text
//!   new machine                                   machine of the authority
//!   Request::new ── request.pem ────────────────▶ Authority::issue ── issued, revoked: JSON lines
//!   GridFolder::install ◀── certificate.pem ─────
//!
//!   Membership = Trust (authority, revocations) + Credentials (own certificate and key, replaceable)
//!   Memberships::client_config / server_config ──▶ rustls; after each handshake: Memberships::peer
//! ```
//!
//! **Guarantees:** a private key is never printed and leaves the process only into a file with mode 0600, or through
//! [`Bundle::to_pem`]. Certificates are checked against the authority of their grid and never by DNS name. All
//! signatures are ECDSA with the curve P-256.
//!
//! **Not here:** sockets, and the decision which functions an identity may call.

#![forbid(unsafe_code)]

mod authority;
mod certificate;
mod credentials;
mod defaults;
mod error;
mod folder;
mod identity;
mod invalid;
mod json_lines;
mod membership;
mod patterns;
mod pem;
mod percent;
mod provider;
mod refusal;
mod request;
mod revocations;
mod time;
mod tls;
mod trust;

pub use authority::{Authority, Bundle, Grant, Issued};
pub use certificate::{Certificate, Fingerprint, PublicKey, Serial};
pub use credentials::Credentials;
pub use defaults::{default_grid, default_name};
pub use error::KeysError;
pub use folder::{FileVersions, GRID_VARIABLE, GridFolder, KEYS_VARIABLE, KeysFolder, Record, chosen_grid};
pub use identity::{Identity, Role};
pub use invalid::Invalid;
pub use membership::{Membership, Memberships};
pub use patterns::{Pattern, Patterns};
pub use refusal::{GridMismatch, Refusal};
pub use request::Request;
pub use revocations::{Revocation, Revocations, Revoked};
pub use rustls_pki_types::{CertificateDer, UnixTime};
pub use time::{DAY, HOUR, date};
pub use tls::refusal_of;
pub use trust::{Observer, Trust};

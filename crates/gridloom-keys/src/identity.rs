//! Who a node or user is: grid, role and name. In a certificate it is a URI, `gridloom://GRID/ROLE/NAME`, whose
//! parts are percent-encoded. Each identity has exactly one URI.

use std::fmt;
use std::str::FromStr;

use gridloom_base::{EscapedLine, NameKind};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::invalid::Invalid;
use crate::percent;

/// The scheme of all URIs in a grid's certificates.
pub(crate) const SCHEME: &str = "gridloom://";

/// The part that the holder of a certificate may play in its grid.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Role {
    Agent,
    Server,
    Client,
    /// The functions of a server, which has their name: a client that acts for the programs whose calls it runs.
    Functions,
    /// A client that may also approve requests, revoke certificates, and cancel the calls of others.
    Administrator,
    /// Forwards connections between nodes that cannot reach each other, and is no node itself.
    Relay,
}

impl Role {
    pub const ALL: [Role; 6] =
        [Role::Agent, Role::Server, Role::Client, Role::Functions, Role::Administrator, Role::Relay];
    /// The roles of nodes.
    pub const NODES: [Role; 5] = [Role::Agent, Role::Server, Role::Client, Role::Functions, Role::Administrator];

    pub fn name(self) -> &'static str {
        match self {
            Role::Agent => "agent",
            Role::Server => "server",
            Role::Client => "client",
            Role::Functions => "functions",
            Role::Administrator => "administrator",
            Role::Relay => "relay",
        }
    }

    fn name_kind(self) -> NameKind {
        match self {
            Role::Agent | Role::Server | Role::Functions | Role::Relay => NameKind::Server,
            Role::Client | Role::Administrator => NameKind::User,
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Role {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Role, Invalid> {
        let unknown = || {
            let text: String = text.chars().take(SHOWN_CHARACTERS_MAX).collect();
            Invalid::new(format!(
                "'{}' is not a role; use agent, server, client, administrator or relay",
                EscapedLine(&text)
            ))
        };
        Role::ALL.into_iter().find(|role| role.name() == text).ok_or_else(unknown)
    }
}

/// A member of a grid. The fields are valid names.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Identity {
    grid: String,
    role: Role,
    name: String,
}

impl Identity {
    /// # Errors
    /// If the grid or the name is not a valid name.
    pub fn new(grid: &str, role: Role, name: &str) -> Result<Identity, Invalid> {
        check_grid(grid)?;
        role.name_kind().check(name).map_err(Invalid::new)?;
        Ok(Identity { grid: grid.into(), role, name: name.into() })
    }

    pub fn grid(&self) -> &str {
        &self.grid
    }

    pub fn role(&self) -> Role {
        self.role
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the URI that stands for this identity in certificates.
    pub fn uri(&self) -> String {
        format!("{}/{}/{}", grid_uri(&self.grid), self.role, percent::encode(&self.name))
    }

    /// Parses the URI of an identity.
    ///
    /// # Errors
    /// If the text is not the URI of an identity.
    pub fn from_uri(uri: &str) -> Result<Identity, Invalid> {
        let wrong = |why: &str| {
            let uri: String = uri.chars().take(SHOWN_CHARACTERS_MAX).collect();
            let uri = EscapedLine(&uri);
            Invalid::new(format!("'{uri}' is not an identity, gridloom://GRID/ROLE/NAME: {why}"))
        };
        let rest = uri.strip_prefix(SCHEME).ok_or_else(|| wrong("it does not begin with gridloom://"))?;
        let mut parts = rest.split('/');
        let (Some(grid), Some(role), Some(name), None) = (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(wrong("it does not have three parts"));
        };
        let decoded = |part| percent::decode(part).ok_or_else(|| wrong("a part is not percent-encoded UTF-8"));
        let role = role.parse().map_err(|error: Invalid| wrong(&error.to_string()))?;
        Identity::new(&decoded(grid)?, role, &decoded(name)?).map_err(|error| wrong(&error.to_string()))
    }
}

/// Returns the URI that restricts functions to one user.
pub(crate) fn user_uri(grid: &str, user: &str) -> String {
    format!("{}/{USER}/{}", grid_uri(grid), percent::encode(user))
}

/// True if a URI has the form of [`user_uri`].
pub(crate) fn is_user_uri(grid: &str, uri: &str) -> bool {
    let rest = uri.strip_prefix(&grid_uri(grid)).and_then(|rest| rest.strip_prefix('/'));
    rest.and_then(|rest| rest.strip_prefix(USER)).is_some_and(|rest| rest.starts_with('/'))
}

/// Returns the user in a URI of that form.
///
/// # Errors
/// If it is no name of a user, or the certificate is not one of functions.
pub(crate) fn user_of_uri(identity: &Identity, uri: &str) -> Result<String, Invalid> {
    check_acts_for_user(identity)?;
    let rest = uri.rsplit_once('/').map_or("", |(_, name)| name);
    let user = percent::decode(rest).ok_or_else(|| Invalid::new("the user is not percent-encoded UTF-8"))?;
    NameKind::User.check(&user).map_err(Invalid::new)?;
    Ok(user)
}

/// # Errors
/// If a certificate of this identity may not name a user.
pub(crate) fn check_acts_for_user(identity: &Identity) -> Result<(), Invalid> {
    match identity.role {
        Role::Functions => Ok(()),
        role => Err(Invalid::new(format!(
            "a certificate for the role {role} names a user for whom its holder acts; only a certificate of functions may"
        ))),
    }
}

/// In a URI, the word in the place of a role.
const USER: &str = "user";

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = if self.role == Role::Functions { " of the server" } else { "" };
        write!(f, "{}{of} '{}' of the grid '{}'", self.role, self.name, self.grid)
    }
}

impl Serialize for Identity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.uri())
    }
}

impl<'de> Deserialize<'de> for Identity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Identity, D::Error> {
        Identity::from_uri(&String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

/// Returns the URI of a grid, which the certificate of its authority contains.
pub(crate) fn grid_uri(grid: &str) -> String {
    format!("{SCHEME}{}", percent::encode(grid))
}

/// Parses the URI of a grid.
pub(crate) fn grid_of_uri(uri: &str) -> Option<String> {
    let grid = percent::decode(uri.strip_prefix(SCHEME)?)?;
    check_grid(&grid).is_ok().then_some(grid)
}

/// Checks the name of a grid, which is also the name of a folder.
///
/// # Errors
/// With the rule that it violates.
pub(crate) fn check_grid(grid: &str) -> Result<(), Invalid> {
    NameKind::Grid.check(grid).map_err(Invalid::new)?;
    match grid.starts_with('.') {
        true => Err(Invalid::new(format!("'{grid}' cannot be the name of a grid: it begins with a dot"))),
        false => Ok(()),
    }
}

/// Maximum number of characters of an invalid text that its error shows.
const SHOWN_CHARACTERS_MAX: usize = 120;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn an_identity_and_its_uri_belong_together(grid in "[a-z0-9._-]{1,20}", role in 0..Role::ALL.len(), name in "\\PC{1,30}") {
            if let Ok(identity) = Identity::new(&grid, Role::ALL[role], &name) {
                prop_assert_eq!(Identity::from_uri(&identity.uri()).unwrap(), identity.clone());
                let json = serde_json::to_string(&identity).unwrap();
                prop_assert_eq!(serde_json::from_str::<Identity>(&json).unwrap(), identity);
            }
        }

        #[test]
        fn no_two_uris_are_one_identity(uri in "gridloom://[a-zA-Z%2F.]{1,6}/(agent|server|client|root)/[a%41C3E4\u{e4} ]{1,8}") {
            if let Ok(identity) = Identity::from_uri(&uri) {
                prop_assert_eq!(identity.uri(), uri);
            }
        }
    }

    #[test]
    fn uris_are_percent_encoded() {
        let identity = Identity::new("lab", Role::Server, "node 7 (rack 2)/ä").unwrap();
        assert_eq!(identity.uri(), "gridloom://lab/server/node%207%20%28rack%202%29%2F%C3%A4");
        assert_eq!(identity.to_string(), "server 'node 7 (rack 2)/ä' of the grid 'lab'");
    }

    #[test]
    fn wrong_names_are_refused_with_the_rule() {
        let long = "x".repeat(100_000);
        for (grid, name, why) in [
            ("lab", "a\x1b[2J", "control character"),
            ("lab", "a\nb", "control character"),
            ("lab", "a\u{202e}b", "control character"),
            ("lab", "", "it is empty"),
            ("lab", " a", "begins or ends with a blank"),
            ("lab", long.as_str(), "the limit is 255"),
            ("", "a", "it is empty"),
            (".", "a", "begins with a dot"),
            ("..", "a", "begins with a dot"),
            (".hidden", "a", "begins with a dot"),
            ("a/b", "a", "'/' is not allowed"),
            ("a\0", "a", "is not allowed"),
            (long.as_str(), "a", "the limit is 64"),
        ] {
            let error = Identity::new(grid, Role::Client, name).unwrap_err().to_string();
            assert!(error.contains(why) && error.len() < 400, "{error}");
        }
    }

    #[test]
    fn other_uris_are_refused() {
        for (uri, why) in [
            ("https://lab/client/a", "begin with gridloom://"),
            ("gridloom://lab/client", "three parts"),
            ("gridloom://lab/client/a/b", "three parts"),
            ("gridloom://lab/root/a", "'root' is not a role"),
            ("gridloom://lab/Client/a", "'Client' is not a role"),
            ("gridloom://lab/client/%61", "percent-encoded"),
            ("gridloom://lab/client/%ED%A0%80", "percent-encoded"),
            ("gridloom://lab/client/a%0Ab", "control character"),
            ("gridloom://../client/a", "begins with a dot"),
            ("gridloom:///client/a", "it is empty"),
            (&"x".repeat(1_000_000), "begin with gridloom://"),
        ] {
            let error = Identity::from_uri(uri).unwrap_err().to_string();
            assert!(error.contains(why) && error.len() < 600, "{error}");
        }
    }
}

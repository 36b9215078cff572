//! The users of this system as whom workers run.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;

use crate::children;

/// Users with lower numbers belong to the system, not to people (`UID_MIN` of `login.defs`).
const PEOPLE_BEGIN: u32 = 1000;

/// Longest time of a lookup.
const LOOKUP_MAX: Duration = Duration::from_secs(10);

/// Exit status of `getent` if there is no such entry.
const NOT_FOUND: i32 = 2;

/// A user of this system.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RunAs {
    pub name: String,
    pub user: u32,
    pub group: u32,
    pub home: PathBuf,
}

/// Reason why no user was found.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum SystemUserError {
    #[error("there is no such user")]
    Unknown,
    #[error("'getent' cannot be run: {0}")]
    NoTool(String),
    #[error("'getent' failed ({0}): the directory of accounts does not answer")]
    NoAnswer(String),
    #[error("the directory of accounts has not answered for {} s, which is the limit", LOOKUP_MAX.as_secs())]
    Slow,
}

impl RunAs {
    /// Looks up an account with `getent`, which also queries LDAP and other sources.
    ///
    /// # Errors
    /// If there is no user of this name. A number is no name.
    pub fn named(name: &str) -> Result<RunAs, SystemUserError> {
        let mut command = Command::new("getent");
        let output = children::output_within(command.args(["passwd", "--", name]), LOOKUP_MAX);
        let output = output.map_err(|error| SystemUserError::NoTool(error.to_string()))?;
        let output = output.ok_or(SystemUserError::Slow)?;
        match output.status.code() {
            Some(0) => {}
            Some(NOT_FOUND) => return Err(SystemUserError::Unknown),
            _ => return Err(SystemUserError::NoAnswer(output.status.to_string())),
        }
        let line = String::from_utf8_lossy(&output.stdout).into_owned();
        let [found, _, user, group, _, home, _] = line.trim_end().split(':').collect::<Vec<_>>()[..] else {
            return Err(SystemUserError::Unknown);
        };
        match (user.parse(), group.parse()) {
            (Ok(user), Ok(group)) if found == name => Ok(RunAs { name: name.into(), user, group, home: home.into() }),
            _ => Err(SystemUserError::Unknown),
        }
    }
}

/// The users as whom workers run.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum SystemUsers {
    /// The user of this process.
    #[default]
    Own,
    /// One user.
    One(Arc<RunAs>),
    /// A system user for each user of the grid. Each worker then serves one user.
    PerUser(UserMapping),
}

/// The system users of the users of the grid.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct UserMapping {
    /// System users by the name of the user of the grid.
    pub named: BTreeMap<String, Arc<RunAs>>,
    /// True if the other users of the grid run as the system user of the same name, where there is one.
    pub same_names: bool,
    /// The system user of all remaining users of the grid.
    pub others: Option<Arc<RunAs>>,
}

impl SystemUsers {
    /// Returns the system user of all workers, if they have one that is not the user of this process.
    pub fn common(&self) -> Option<&RunAs> {
        match self {
            SystemUsers::One(run_as) => Some(run_as),
            SystemUsers::Own | SystemUsers::PerUser(_) => None,
        }
    }

    pub fn are_per_user(&self) -> bool {
        matches!(self, SystemUsers::PerUser(_))
    }

    /// Returns the system user for a user of the grid, if it is known without looking up an account: `Ok(None)` is the user of this process,
    /// and an error says why there is none, with the remedy.
    pub(super) fn known(&self, user: &str) -> Option<Result<Option<Arc<RunAs>>, String>> {
        match self {
            SystemUsers::Own => Some(Ok(None)),
            SystemUsers::One(run_as) => Some(Ok(Some(run_as.clone()))),
            SystemUsers::PerUser(mapping) => match mapping.named.get(user) {
                Some(run_as) => Some(Ok(Some(run_as.clone()))),
                None if mapping.same_names => None,
                None => Some(mapping.unnamed(user, None).map(Some)),
            },
        }
    }

    /// Returns the system user for a user of the grid whose account was looked up.
    ///
    /// # Errors
    /// If there is none, with the remedy.
    pub(super) fn found(
        &self,
        user: &str,
        found: Result<RunAs, SystemUserError>,
    ) -> Result<Option<Arc<RunAs>>, String> {
        match self {
            SystemUsers::PerUser(mapping) => mapping.unnamed(user, Some(found)).map(Some),
            SystemUsers::Own | SystemUsers::One(_) => Ok(self.common().cloned().map(Arc::new)),
        }
    }
}

impl UserMapping {
    /// Returns the system user for a user whom `named` does not have. `found`: the account of the same name, if it may be used.
    fn unnamed(&self, user: &str, found: Option<Result<RunAs, SystemUserError>>) -> Result<Arc<RunAs>, String> {
        let why = match found {
            Some(Ok(found)) if found.user >= PEOPLE_BEGIN => return Ok(Arc::new(found)),
            Some(Ok(found)) => {
                format!("'{user}' is a system account (UID {}; accounts of people start at {PEOPLE_BEGIN})", found.user)
            }
            Some(Err(SystemUserError::Unknown)) => format!("its machine has no account '{user}'"),
            // The user may have an account, so the one of all others would be wrong.
            Some(Err(error)) => {
                return Err(format!("the account of '{user}' cannot be looked up: {error}; try again later"));
            }
            None => format!("no account is assigned to '{user}'"),
        };
        self.others.clone().ok_or_else(|| {
            format!(
                "this server runs the functions of each user under a Unix account of their own, and {why}; the operator can \
                 assign one with --run-as-user '{user}=ACCOUNT', or a default with --run-as"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn system_user(name: &str, user: u32) -> RunAs {
        RunAs { name: name.into(), user, group: user, home: "/".into() }
    }

    #[test]
    fn users_have_the_named_system_user_or_the_one_of_the_same_name_or_that_of_all_others() {
        let find = |name: &str| match name {
            "bert" => Ok(system_user("bert", 1001)),
            "daemon" => Ok(system_user("daemon", 1)),
            _ => Err(SystemUserError::Unknown),
        };
        let named = BTreeMap::from([("anna".to_string(), Arc::new(system_user("games", 5)))]);
        let mut mapping = UserMapping { named, same_names: false, others: None };
        let of = |mapping: &UserMapping, user: &str| {
            let users = SystemUsers::PerUser(mapping.clone());
            let run_as = users.known(user).unwrap_or_else(|| users.found(user, find(user)))?;
            Ok::<u32, String>(run_as.expect("each user has an own account").user)
        };
        assert_eq!(of(&mapping, "anna"), Ok(5));
        let why = of(&mapping, "bert").unwrap_err();
        assert!(why.contains("assigned to 'bert'") && why.contains("--run-as-user 'bert=ACCOUNT'"), "{why}");
        mapping.same_names = true;
        assert_eq!((of(&mapping, "anna"), of(&mapping, "bert")), (Ok(5), Ok(1001)));
        let why = of(&mapping, "daemon").unwrap_err();
        assert!(why.contains("'daemon' is a system account (UID 1; "), "{why}");
        assert!(of(&mapping, "carol").unwrap_err().contains("its machine has no account 'carol'"));
        mapping.others = Some(Arc::new(system_user("nobody", 65534)));
        assert_eq!(["bert", "daemon", "carol"].map(|user| of(&mapping, user)), [Ok(1001), Ok(65534), Ok(65534)]);
    }

    #[test]
    fn a_number_is_no_name() {
        assert_eq!(RunAs::named("root").unwrap().user, 0);
        assert_eq!(RunAs::named("0"), Err(SystemUserError::Unknown));
        assert_eq!(RunAs::named("no such user"), Err(SystemUserError::Unknown));
    }
}

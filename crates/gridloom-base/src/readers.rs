//! The users and groups with whom shared data are shared. The rules of the grid state who belongs to a group.

use crate::limits::{READERS_BYTES_MAX, READERS_MAX};
use crate::name::{ALL_USERS, NameError, Readers};
use crate::near::{did_you_mean, near_names};
use crate::rules::GROUP_PREFIX;
use crate::{InvalidName, NameKind, Rules, truncated};

impl Readers {
    /// True if a user is among them. The rules state who belongs to a group now.
    pub fn contain(&self, user: &str, rules: &Rules) -> bool {
        self.users.iter().any(|reader| match reader.strip_prefix(GROUP_PREFIX) {
            Some(group) => rules.has_member(group, user),
            None => reader == ALL_USERS || reader == user,
        })
    }
}

/// Checks the users and groups with whom data are to be shared.
///
/// # Errors
/// For an invalid name of a user, a group that the rules do not define, or too many users.
pub fn check_readers(name: &str, users: &[String], rules: &Rules) -> Result<(), NameError> {
    if users.len() > READERS_MAX {
        return Err(NameError::TooManyReaders { name: name.into(), count: users.len(), limit: READERS_MAX });
    }
    let size_bytes: usize = users.iter().map(String::len).sum();
    if size_bytes > READERS_BYTES_MAX {
        let limit = READERS_BYTES_MAX;
        let why = format!(
            "the names of all users have {size_bytes} bytes, and the limit is {limit}; '*' stands for all users"
        );
        return Err(NameError::InvalidReader { name: truncated(&users[0], 64).into(), why });
    }
    for user in users {
        NameKind::User.check(user).map_err(|InvalidName { name, why, .. }| NameError::InvalidReader { name, why })?;
        if let Some(group) = user.strip_prefix(GROUP_PREFIX).filter(|group| rules.group(group).is_none()) {
            let near = near_names(group, rules.groups.iter().map(|group| group.name.as_str()));
            let remedy = match near[..] {
                [] => "; ask an administrator of the grid for it".to_string(),
                _ => did_you_mean(&near),
            };
            let why = format!("the rules of the grid define no group '{group}'{remedy}");
            return Err(NameError::InvalidReader { name: truncated(user, 64).into(), why });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RulesGroup;

    #[test]
    fn a_group_of_readers_is_that_of_the_rules() {
        let group = |name: &str, member: &str| RulesGroup {
            name: name.into(),
            members: vec![member.parse().unwrap()],
            section: Default::default(),
        };
        let rules = Rules { groups: vec![group("climate", "anna")], ..Rules::default() };
        let readers = |user: &str| Readers { users: vec![user.into()], revision: 1 };
        let climate = readers("group:climate");
        assert!(climate.contain("anna", &rules) && !climate.contain("bert", &rules));
        assert!(!climate.contain("anna", &Rules::default()), "nobody belongs to a group that is not defined");
        assert!(!climate.contain("group:climate", &rules), "a user who is named like a group is not its member");
        assert!(readers("bert").contain("bert", &rules) && readers("*").contain("bert", &rules));

        let check = |user: &str, rules: &Rules| check_readers("mesh", &[user.to_string()], rules);
        assert_eq!(check("group:climate", &rules), Ok(()));
        for (user, rules, why) in [
            ("group:climat", &rules, "the rules of the grid define no group 'climat'; did you mean 'climate'?"),
            ("group:", &rules, "the rules of the grid define no group ''; ask an administrator of the grid for it"),
            (
                "group:climate",
                &Rules::default(),
                "the rules of the grid define no group 'climate'; ask an administrator",
            ),
        ] {
            let error = check(user, rules).unwrap_err().to_string();
            assert!(error.contains(why), "{user}: {error}");
        }
    }
}

//! Patterns of the full names of shared data, which state what a user may read and write.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::EscapedLine;
use crate::name::check_name;
use crate::pattern::matches_with_stars;

/// Full names of shared data, `~USER/NAME`. `*` is any sequence of characters within the user or within the name: `~climate/*` is
/// every name of `climate`, and `~*/public/*` all names of all users that begin with `public/`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NamePattern(String);

impl NamePattern {
    /// True if the pattern includes a full name.
    pub fn matches(&self, full_name: &str) -> bool {
        match (parts(&self.0), parts(full_name)) {
            (Some((users, names)), Some((user, name))) => {
                matches_with_stars(users, user) && matches_with_stars(names, name)
            }
            _ => false,
        }
    }

    /// Returns the text with which all names of the pattern begin.
    pub fn beginning(&self) -> &str {
        self.0.split('*').next().unwrap_or_default()
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Returns the user, as the full name states it, and the name.
fn parts(full_name: &str) -> Option<(&str, &str)> {
    full_name.strip_prefix('~')?.split_once('/')
}

impl FromStr for NamePattern {
    type Err = String;

    fn from_str(text: &str) -> Result<NamePattern, String> {
        let wrong = |why: &str| {
            let shown: String = text.chars().take(64).collect();
            format!("'{}' is not a pattern of shared names: {why}", EscapedLine(&shown))
        };
        if parts(text).is_none() {
            return Err(wrong(
                "it states no user; use the form ~USER/NAME, such as '~climate/*', or '~*/*' for all names",
            ));
        }
        // A pattern may have a star wherever a name has characters.
        check_name(&text.replace('*', "x")).map_err(|error| wrong(&error.to_string()))?;
        Ok(NamePattern(text.into()))
    }
}

impl fmt::Display for NamePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for NamePattern {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for NamePattern {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<NamePattern, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stays_within_the_user_or_within_the_name() {
        for (pattern, name, is_included) in [
            ("~climate/*", "~climate/mesh", true),
            ("~climate/*", "~climate/run/1", true),
            ("~climate/*", "~climate2/mesh", false),
            ("~climate/*", "mesh", false),
            ("~climate/mesh", "~climate/mesh", true),
            ("~*/public/*", "~anna/public/mesh", true),
            ("~*/public/*", "~anna/private/public/mesh", false),
            ("~a*/m*h", "~anna/mesh", true),
            ("~a*/m*h", "~bert/mesh", false),
            ("~*/*", "~anna/mesh", true),
        ] {
            assert_eq!(pattern.parse::<NamePattern>().unwrap().matches(name), is_included, "{pattern} {name}");
        }
        assert_eq!("~climate/run-*/mesh".parse::<NamePattern>().unwrap().beginning(), "~climate/run-");
    }

    #[test]
    fn a_pattern_without_a_user_is_refused_with_the_remedy() {
        for (text, why) in [
            ("", "it states no user; use the form ~USER/NAME"),
            ("*", "or '~*/*' for all names"),
            ("climate/*", "such as '~climate/*'"),
            ("~climate", "it states no user"),
            ("~climate/", "cannot name shared data"),
            ("~cli\nmate/*", "cannot name shared data"),
        ] {
            let error = text.parse::<NamePattern>().unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
        let long = format!("~a/{}", "x".repeat(5000)).parse::<NamePattern>().unwrap_err();
        assert!(long.contains("limit") && long.len() < 500, "{long}");
    }
}

//! The rules of a grid: what each user may do, and how much of each server they get when users compete.
//!
//! A section of the rules sets some of the settings. Those of a user precede those of the groups to which the user belongs, and
//! these precede those for everybody, setting by setting. If a user belongs to several groups, the first one that
//! has the setting decides. Names of shared data are an exception: a user may read and write those of all these sections. Rules
//! without sections change nothing.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::limits::WEIGHT_MAX;
use crate::name_pattern::NamePattern;
use crate::naming::NameKind;
use crate::origin::CODE_MODULE;
use crate::pattern::{Pattern, matches_with_stars};

/// Begins the name of a group where users are named, too.
pub const GROUP_PREFIX: &str = "group:";

/// The rules of a grid.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Rules {
    pub everybody: RulesSection,
    /// In the order in which they are considered.
    pub groups: Vec<RulesGroup>,
    pub users: BTreeMap<String, RulesSection>,
    /// Links with quotas, in the order of their names.
    #[serde(default)]
    pub links: Vec<RulesLink>,
}

/// A link between nodes whose names match two patterns, in both directions. `*` is any sequence of characters.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct RulesLink {
    pub name: String,
    /// Patterns of the names of servers and of the hosts of programs.
    pub between: [String; 2],
}

impl RulesLink {
    /// True if data from one of these places to the other pass over the link.
    pub fn joins(&self, one: &str, other: &str) -> bool {
        let [first, second] = &self.between;
        let joins = |a, b| matches_with_stars(first, a) && matches_with_stars(second, b);
        joins(one, other) || joins(other, one)
    }
}

/// A group of users with its section.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct RulesGroup {
    pub name: String,
    pub members: Vec<UserPattern>,
    pub section: RulesSection,
}

/// The settings of a section; `None` or empty where it has none.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct RulesSection {
    /// Functions that may be called, apart from those that run code of the program.
    pub functions: Option<Vec<Pattern>>,
    /// True if functions that run code of the program may be called.
    pub runs_code: Option<bool>,
    pub weight: Option<u32>,
    /// Slots of a server that calls may occupy at a time.
    pub slots: Option<Quota>,
    /// Bytes of a server's store.
    pub memory: Option<Quota>,
    /// Bytes on the disk of a server, as a part of its store: data that do not fit into memory, and durable data.
    pub disk: Option<Quota>,
    /// Number of calls that may wait at a server.
    pub queue: Option<u64>,
    /// Users whose calls may be cancelled.
    pub cancels: Option<Vec<Users>>,
    /// Names of shared data that may be read, apart from those that the certificate and the owners permit.
    pub read_names: Vec<NamePattern>,
    /// Names of shared data that may be read, put, shared and deleted, likewise.
    pub write_names: Vec<NamePattern>,
    /// Bytes per day over links, by their names.
    #[serde(default)]
    pub links: BTreeMap<String, u64>,
}

/// A quota of something that a server has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Quota {
    Amount(u64),
    /// A part of what the server has, in percent.
    Percent(u8),
}

/// Users that a rule names.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Users {
    Matching(UserPattern),
    OfGroup(String),
}

/// Names of users: `*` is any sequence of characters.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UserPattern(String);

/// The rules for one user.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UserRules {
    /// `None`: those of the certificate.
    pub functions: Option<Vec<Pattern>>,
    /// `None`: as the certificate states.
    pub runs_code: Option<bool>,
    /// A user of weight 2 gets twice as many turns as one of weight 1 when both wait.
    pub weight: u32,
    pub slots: Option<Quota>,
    pub memory: Option<Quota>,
    pub disk: Option<Quota>,
    pub queue: Option<u64>,
    pub cancels: Vec<UserPattern>,
    /// Names that may be read, in addition to those of `write_names`.
    pub read_names: Vec<NamePattern>,
    pub write_names: Vec<NamePattern>,
    /// Bytes per day over links, by their names.
    pub links: BTreeMap<String, u64>,
}

impl Default for UserRules {
    fn default() -> UserRules {
        let (functions, runs_code, slots, memory, disk, queue) = Default::default();
        let (cancels, read_names, write_names, links) = Default::default();
        UserRules {
            functions,
            runs_code,
            weight: 1,
            slots,
            memory,
            disk,
            queue,
            cancels,
            read_names,
            write_names,
            links,
        }
    }
}

impl Rules {
    /// Returns the rules for a user. Tasks without a user, such as those of the catalog, have no rules.
    pub fn of(&self, user: &str) -> UserRules {
        if user.is_empty() {
            return UserRules::default();
        }
        let groups = self.groups_of(user).map(|group| &group.section);
        let sections: Vec<&RulesSection> =
            self.users.get(user).into_iter().chain(groups).chain([&self.everybody]).collect();
        UserRules {
            functions: first(&sections, |section| section.functions.clone()),
            runs_code: first(&sections, |section| section.runs_code),
            weight: first(&sections, |section| section.weight).unwrap_or(1).clamp(1, WEIGHT_MAX),
            slots: first(&sections, |section| section.slots),
            memory: first(&sections, |section| section.memory),
            disk: first(&sections, |section| section.disk),
            queue: first(&sections, |section| section.queue),
            cancels: first(&sections, |section| section.cancels.as_ref())
                .into_iter()
                .flatten()
                .flat_map(|users| self.patterns(users))
                .collect(),
            read_names: self.names(user, |section| &section.read_names).cloned().collect(),
            write_names: self.names(user, |section| &section.write_names).cloned().collect(),
            links: self
                .links
                .iter()
                .filter_map(|link| {
                    let allowed = first(&sections, |section| section.links.get(&link.name).copied())?;
                    Some((link.name.clone(), allowed))
                })
                .collect(),
        }
    }

    /// Returns the bytes per day that a user may receive over a link; `None` without a quota.
    pub fn allowed_over_link(&self, user: &str, link: &str) -> Option<u64> {
        if user.is_empty() || !self.links.iter().any(|one| one.name == link) {
            return None;
        }
        let groups = self.groups_of(user).map(|group| &group.section);
        let mut sections = self.users.get(user).into_iter().chain(groups).chain([&self.everybody]);
        sections.find_map(|section| section.links.get(link).copied())
    }

    /// Returns patterns of all names of other users that a user may read.
    pub fn readable_names(&self, user: &str) -> impl Iterator<Item = &NamePattern> {
        let read = self.names(user, |section| &section.read_names);
        read.chain(self.names(user, |section| &section.write_names))
    }

    /// True if a user may put, share and delete a full name of another user.
    pub fn may_write_name(&self, user: &str, name: &str) -> bool {
        self.names(user, |section| &section.write_names).any(|pattern| pattern.matches(name))
    }

    /// Returns the patterns of all sections that apply to a user. Names without a user have no rules.
    fn names(&self, user: &str, of: fn(&RulesSection) -> &Vec<NamePattern>) -> impl Iterator<Item = &NamePattern> {
        // Most groups have no names, so their members are not compared.
        let is_its = move |group: &&RulesGroup| !of(&group.section).is_empty() && group.has(user);
        let groups = self.groups.iter().filter(is_its).map(|group| &group.section);
        let sections = self.users.get(user).into_iter().chain(groups).chain([&self.everybody]);
        sections.filter(move |_| !user.is_empty()).flat_map(of)
    }

    pub fn group(&self, name: &str) -> Option<&RulesGroup> {
        self.groups.iter().find(|group| group.name == name)
    }

    /// True if the group exists and the user belongs to it.
    pub fn has_member(&self, group: &str, user: &str) -> bool {
        !user.is_empty() && self.group(group).is_some_and(|group| group.has(user))
    }

    /// Returns the groups to which a user belongs.
    pub fn groups_of(&self, user: &str) -> impl Iterator<Item = &RulesGroup> {
        self.groups.iter().filter(move |group| group.has(user))
    }

    fn patterns(&self, users: &Users) -> Vec<UserPattern> {
        match users {
            Users::Matching(pattern) => vec![pattern.clone()],
            Users::OfGroup(name) => self.group(name).map_or_else(Vec::new, |group| group.members.clone()),
        }
    }

    /// True if no section has a setting.
    pub fn is_empty(&self) -> bool {
        self.sections().all(|section| *section == RulesSection::default())
    }

    /// Returns all sections.
    pub fn sections(&self) -> impl Iterator<Item = &RulesSection> {
        let sections = self.groups.iter().map(|group| &group.section).chain(self.users.values());
        sections.chain([&self.everybody])
    }
}

/// Returns the setting of the first section that has it.
fn first<'a, T>(sections: &[&'a RulesSection], setting: impl Fn(&'a RulesSection) -> Option<T>) -> Option<T> {
    sections.iter().find_map(|section| setting(section))
}

impl RulesGroup {
    fn has(&self, user: &str) -> bool {
        self.members.iter().any(|pattern| pattern.matches(user))
    }
}

impl UserRules {
    /// True if the rules do not refuse the function, `module/function`. The certificate may.
    pub fn may_call(&self, function: &str) -> bool {
        match function.starts_with(CODE_MODULE) {
            true => self.runs_code.unwrap_or(true),
            false => self.functions.as_ref().is_none_or(|some| some.iter().any(|one| one.matches(function))),
        }
    }

    /// True if the rules permit the user to cancel calls of another one.
    pub fn may_cancel(&self, owner: &str) -> bool {
        !owner.is_empty() && self.cancels.iter().any(|pattern| pattern.matches(owner))
    }
}

impl Quota {
    /// Returns the quota of a server that has `whole`, at least 1.
    pub fn of(self, whole: u64) -> u64 {
        match self {
            Quota::Amount(amount) => amount.max(1),
            Quota::Percent(percent) => ((u128::from(whole) * u128::from(percent.min(100)) / 100) as u64).max(1),
        }
    }
}

impl UserPattern {
    pub fn matches(&self, user: &str) -> bool {
        matches_with_stars(&self.0, user)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for UserPattern {
    type Err = String;

    fn from_str(text: &str) -> Result<UserPattern, String> {
        // A pattern may have a star wherever a name has characters.
        match NameKind::User.check(&text.replace('*', "x")) {
            Ok(()) => Ok(UserPattern(text.into())),
            Err(_) => NameKind::User.check(text).map(|()| UserPattern(text.into())).map_err(|error| error.to_string()),
        }
    }
}

impl fmt::Display for UserPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for UserPattern {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for UserPattern {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<UserPattern, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules() -> Rules {
        let group = |name: &str, members: &[&str], section| {
            let members = members.iter().map(|member| member.parse().unwrap()).collect();
            RulesGroup { name: name.into(), members, section }
        };
        let none = RulesSection::default;
        let anna = RulesSection {
            weight: Some(2),
            cancels: Some(vec![Users::OfGroup("guests".into()), Users::Matching("bert".parse().unwrap())]),
            ..none()
        };
        Rules {
            everybody: RulesSection {
                functions: Some(vec!["linalg/*".parse().unwrap()]),
                runs_code: Some(false),
                slots: Some(Quota::Percent(50)),
                ..none()
            },
            groups: vec![
                group("students", &["anna", "guest-*"], RulesSection { slots: Some(Quota::Amount(4)), ..none() }),
                group(
                    "guests",
                    &["guest-*"],
                    RulesSection { slots: Some(Quota::Amount(1)), queue: Some(10), weight: Some(5), ..none() },
                ),
            ],
            users: BTreeMap::from([("anna".to_string(), anna)]),
            links: Vec::new(),
        }
    }

    #[test]
    fn links_join_places_in_both_directions_and_a_user_precedes_everybody() {
        let mut rules = rules();
        let between = ["uni-*", "cloud-*"].map(String::from);
        rules.links = vec![RulesLink { name: "wan".into(), between }];
        let joins = |one, other| rules.links[0].joins(one, other);
        assert!(joins("uni-1", "cloud-1") && joins("cloud-1", "uni-1"));
        assert!(!joins("uni-1", "uni-2") && !joins("uni-1", "home") && !joins("", "cloud-1"));
        let links = |bytes| BTreeMap::from([("wan".to_string(), bytes)]);
        assert_eq!(rules.allowed_over_link("anna", "wan"), None);
        rules.everybody.links = links(5);
        rules.users.get_mut("anna").unwrap().links = links(9);
        let allowed = |user, link| rules.allowed_over_link(user, link);
        assert_eq!((allowed("anna", "wan"), allowed("bert", "wan"), allowed("", "wan")), (Some(9), Some(5), None));
        assert_eq!(allowed("anna", "lan"), None, "the rules do not define it");
        assert_eq!((rules.of("anna").links, rules.of("bert").links), (links(9), links(5)));
    }

    #[test]
    fn a_user_precedes_the_groups_and_these_everybody() {
        let rules = rules();
        let (anna, guest, carol) = (rules.of("anna"), rules.of("guest-7"), rules.of("carol"));
        assert_eq!((anna.weight, anna.slots, anna.queue), (2, Some(Quota::Amount(4)), None));
        assert_eq!((guest.weight, guest.slots, guest.queue), (5, Some(Quota::Amount(4)), Some(10)));
        assert_eq!((carol.weight, carol.slots, carol.queue), (1, Some(Quota::Percent(50)), None));
        assert_eq!(rules.of(""), UserRules::default(), "the catalog has no rules");
        assert!(!rules.is_empty() && Rules::default().is_empty());
    }

    #[test]
    fn rules_refuse_functions_and_permit_cancelling() {
        let (anna, none) = (rules().of("anna"), UserRules::default());
        assert!(anna.may_call("linalg/dgemm") && !anna.may_call("fft/c2c") && !anna.may_call("python/run"));
        assert!(none.may_call("fft/c2c") && none.may_call("python/run"));
        assert!(anna.may_cancel("bert") && anna.may_cancel("guest-1") && !anna.may_cancel("carol"));
        assert!(!none.may_cancel("bert") && !anna.may_cancel(""));
    }

    #[test]
    fn names_of_all_sections_of_a_user_add_up() {
        let names = |patterns: &[&str]| patterns.iter().map(|pattern| pattern.parse().unwrap()).collect();
        let mut rules = rules();
        rules.everybody.read_names = names(&["~public/*"]);
        rules.groups[0].section.write_names = names(&["~climate/*"]);
        rules.groups[1].section.read_names = names(&["~climate/*", "~ocean/*"]);
        rules.users.get_mut("anna").unwrap().read_names = names(&["~bert/mesh"]);
        let may = |user: &str, name: &str| {
            let reads = rules.readable_names(user).any(|pattern| pattern.matches(name));
            (reads, rules.may_write_name(user, name))
        };
        for (user, name, expected) in [
            ("anna", "~public/mesh", (true, false)),
            ("anna", "~climate/mesh", (true, true)),
            ("anna", "~ocean/mesh", (false, false)),
            ("anna", "~bert/mesh", (true, false)),
            ("guest-7", "~climate/mesh", (true, true)),
            ("guest-7", "~ocean/mesh", (true, false)),
            ("carol", "~climate/mesh", (false, false)),
            ("carol", "~public/mesh", (true, false)),
            ("", "~public/mesh", (false, false)),
        ] {
            assert_eq!(may(user, name), expected, "{user} {name}");
        }
        assert_eq!(rules.of("anna").read_names, names(&["~bert/mesh", "~public/*"]));
        assert_eq!(rules.of("guest-7").write_names, names(&["~climate/*"]));
    }

    #[test]
    fn a_user_belongs_to_the_groups_that_the_rules_define() {
        let rules = rules();
        assert!(rules.has_member("guests", "guest-1") && !rules.has_member("guests", "anna"));
        assert!(!rules.has_member("invented", "anna") && !rules.has_member("guests", ""));
    }

    #[test]
    fn a_quota_is_at_least_one() {
        assert_eq!([1, 3, 8].map(|slots| Quota::Percent(50).of(slots)), [1, 1, 4]);
        assert_eq!((Quota::Amount(0).of(8), Quota::Percent(200).of(8)), (1, 8));
        assert_eq!(Quota::Percent(100).of(u64::MAX), u64::MAX);
    }

    #[test]
    fn patterns_of_users_are_names_with_stars() {
        assert!("*".parse::<UserPattern>().unwrap().matches("anna"));
        assert!("guest-*".parse::<UserPattern>().is_ok_and(|pattern| !pattern.matches("guest")));
        for wrong in ["", " anna", "a\nb"] {
            assert!(wrong.parse::<UserPattern>().unwrap_err().contains("cannot be the name of a user"), "{wrong:?}");
        }
    }
}

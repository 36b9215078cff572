//! The rules of a grid, read from TOML: what each user may do, and how much of each server they get.
//!
//! ```toml
//! [groups]
//! students = ["anna", "guest-*"]
//!
//! [everybody]
//! functions = ["linalg/*"]
//! run-code = false
//! slots = "50%"
//!
//! [group.students]
//! slots = 4
//!
//! [link.wan]
//! between = ["uni-*", "cloud-*"]
//!
//! [user.anna]
//! links = { wan = "100GiB" }
//! cancel = ["bert", "group:students"]
//! write-names = ["~climate/*"]
//! ```
//! `docs/rules.md` describes the settings to users. Errors name the place and the values that would have been right.

use std::collections::BTreeMap;

use gridloom_base::limits::{RULES_BYTES_MAX, RULES_LINKS_MAX, SLOTS_MAX, WEIGHT_MAX};
use gridloom_base::near::{did_you_mean, near_names};
use gridloom_base::size::parse_size;
use gridloom_base::{
    GROUP_PREFIX, NameKind, NamePattern, Pattern, Quota, Rules, RulesGroup, RulesLink, RulesSection, UserPattern, Users,
};

use crate::error::PlatformError;
use crate::read::toml_tree::{Table, TomlValue, with_document};

/// The settings of a section.
const SETTINGS: [&str; 11] = [
    "functions",
    "run-code",
    "weight",
    "slots",
    "memory",
    "disk",
    "links",
    "queue",
    "cancel",
    "read-names",
    "write-names",
];

/// Names that a file defines and sections use.
struct Names {
    groups: Vec<String>,
    links: Vec<String>,
}

/// Reads the rules of a grid.
///
/// # Errors
/// The first mistake in the file, with its position.
pub fn parse(text: &str, file_name: &str) -> Result<Rules, PlatformError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.len() as u64 > RULES_BYTES_MAX {
        let why = format!("the file has {} bytes, and the limit is {RULES_BYTES_MAX}", text.len());
        return Err(PlatformError::new(why).at(file_name, (0, 0)));
    }
    with_document(text, rules).map_err(|error| error.at(file_name, (0, 0)))
}

fn rules(file: Table<'_>) -> Result<Rules, PlatformError> {
    file.allow(&["groups", "everybody", "group", "user", "link"])?;
    let links = links(&file)?;
    let mut groups = Vec::new();
    if let Some(listed) = file.get("groups") {
        // The order of the file decides which group precedes.
        let mut entries: Vec<_> = listed.table("groups")?.entries().collect();
        entries.sort_by_key(|(_, members)| members.place());
        for (name, members) in entries {
            NameKind::User.check(name).map_err(|error| members.error(format!("group '{name}': {error}")))?;
            let members = members.texts()?.into_iter().map(|(text, value)| pattern(text, value));
            let members = members.collect::<Result<_, PlatformError>>()?;
            groups.push(RulesGroup { name: name.to_string(), members, section: RulesSection::default() });
        }
    }
    let names = Names {
        groups: groups.iter().map(|group| group.name.clone()).collect(),
        links: links.iter().map(|link| link.name.clone()).collect(),
    };
    let everybody = match file.get("everybody") {
        Some(value) => section(value.table("[everybody]")?, &names)?,
        None => RulesSection::default(),
    };
    if let Some(sections) = file.get("group") {
        for (name, value) in sections.table("group")?.entries() {
            let Some(group) = groups.iter_mut().find(|group| group.name == name) else {
                return Err(value.error(unknown_group(name, &names.groups)));
            };
            group.section = section(value.table("a section of a group")?, &names)?;
        }
    }
    let mut users = BTreeMap::new();
    if let Some(sections) = file.get("user") {
        for (name, value) in sections.table("user")?.entries() {
            NameKind::User.check(name).map_err(|error| value.error(error.to_string()))?;
            if name.contains('*') {
                let why = format!("'{name}' is a pattern, and a section is for one user; name the pattern in [groups]");
                return Err(value.error(why));
            }
            users.insert(name.to_string(), section(value.table("a section of a user")?, &names)?);
        }
    }
    Ok(Rules { everybody, groups, users, links })
}

/// Reads the links with quotas, in the order of their names.
fn links(file: &Table<'_>) -> Result<Vec<RulesLink>, PlatformError> {
    let Some(tables) = file.get("link") else { return Ok(Vec::new()) };
    let mut links = Vec::new();
    for (name, value) in tables.table("link")?.entries() {
        NameKind::User.check(name).map_err(|error| value.error(format!("link '{name}': {error}")))?;
        let table = value.table("a link")?;
        table.allow(&["between"])?;
        let Some(between) = table.get("between") else {
            return Err(
                value.error(format!("link '{name}' has no 'between'; write between = [\"uni-*\", \"cloud-*\"]"))
            );
        };
        let patterns: Vec<String> = between.texts()?.into_iter().map(|(text, _)| text.to_string()).collect();
        let count = patterns.len();
        let Ok(patterns) = <[String; 2]>::try_from(patterns) else {
            let why = format!("'between' has {count} patterns; write 2, of names of servers and hosts of programs");
            return Err(between.error(why));
        };
        links.push(RulesLink { name: name.to_string(), between: patterns });
    }
    if links.len() > RULES_LINKS_MAX {
        let why = format!("the rules name {} links, and the limit is {RULES_LINKS_MAX}; name fewer", links.len());
        return Err(tables.error(why));
    }
    links.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(links)
}

/// Reads bytes per day by link.
fn link_bytes(value: TomlValue<'_>, links: &[String]) -> Result<BTreeMap<String, u64>, PlatformError> {
    let one = |(name, value): (&str, TomlValue<'_>)| {
        if !links.iter().any(|link| link == name) {
            let near = did_you_mean(&near_names(name, links.iter().map(String::as_str)));
            let why = format!("unknown link '{name}'; define it in [link.{name}] with between = [\"…\", \"…\"]{near}");
            return Err(value.error(why));
        }
        let bytes = parse_size(&value.scalar()?).map_err(|why| value.error(format!("'{name}': {why}")))?;
        Ok((name.to_string(), bytes))
    };
    value.table("links")?.entries().map(one).collect()
}

fn section(table: Table<'_>, names: &Names) -> Result<RulesSection, PlatformError> {
    table.allow(&SETTINGS)?;
    let set = |key: &'static str| table.get(key);
    Ok(RulesSection {
        functions: set("functions").map(functions).transpose()?,
        runs_code: set("run-code").map(|value| value.flag()).transpose()?,
        weight: set("weight")
            .map(|value| whole(value, "weight", u64::from(WEIGHT_MAX)))
            .transpose()?
            .map(|it| it as u32),
        slots: set("slots").map(|value| quota(value, "slots", slots)).transpose()?,
        memory: set("memory").map(|value| quota(value, "memory", size)).transpose()?,
        disk: set("disk").map(|value| quota(value, "disk", size)).transpose()?,
        links: set("links").map(|value| link_bytes(value, &names.links)).transpose()?.unwrap_or_default(),
        queue: set("queue").map(|value| whole(value, "queue", QUEUE_MAX)).transpose()?,
        cancels: set("cancel").map(|value| users(value, &names.groups)).transpose()?,
        read_names: set("read-names").map(name_patterns).transpose()?.unwrap_or_default(),
        write_names: set("write-names").map(name_patterns).transpose()?.unwrap_or_default(),
    })
}

/// Largest limit of waiting calls. Larger ones limit nothing.
const QUEUE_MAX: u64 = 1_000_000_000;

fn functions(value: TomlValue<'_>) -> Result<Vec<Pattern>, PlatformError> {
    let one = |(text, value): (&str, TomlValue<'_>)| {
        let pattern: Pattern = text.parse().map_err(|why: String| value.error(why))?;
        if text.starts_with(CODE) {
            let why = format!("'{text}' runs functions that programs send; write run-code = true or false instead");
            return Err(value.error(why));
        }
        Ok(pattern)
    };
    value.texts()?.into_iter().map(one).collect()
}

/// The module of the functions that run code of the program.
const CODE: &str = "python/";

fn users(value: TomlValue<'_>, groups: &[String]) -> Result<Vec<Users>, PlatformError> {
    let one = |(text, value): (&str, TomlValue<'_>)| match text.strip_prefix(GROUP_PREFIX) {
        Some(name) if groups.iter().any(|group| group == name) => Ok(Users::OfGroup(name.to_string())),
        Some(name) => Err(value.error(unknown_group(name, groups))),
        None => pattern(text, value).map(Users::Matching),
    };
    value.texts()?.into_iter().map(one).collect()
}

fn name_patterns(value: TomlValue<'_>) -> Result<Vec<NamePattern>, PlatformError> {
    let one = |(text, value): (&str, TomlValue<'_>)| text.parse().map_err(|why: String| value.error(why));
    value.texts()?.into_iter().map(one).collect()
}

fn pattern(text: &str, value: TomlValue<'_>) -> Result<UserPattern, PlatformError> {
    text.parse().map_err(|why: String| value.error(why))
}

fn unknown_group(name: &str, groups: &[String]) -> String {
    let near = did_you_mean(&near_names(name, groups.iter().map(String::as_str)));
    match groups {
        [] => format!("unknown group '{name}'; define it in [groups]"),
        _ => format!("unknown group '{name}'; define it in [groups], which has: {}{near}", groups.join(", ")),
    }
}

/// Reads a whole number from 1 to `most`.
fn whole(value: TomlValue<'_>, key: &str, most: u64) -> Result<u64, PlatformError> {
    match value.integer()? {
        number if number >= 1 && number as u64 <= most => Ok(number as u64),
        number => Err(value.error(format!("'{key}' is {number}; use a whole number from 1 to {most}"))),
    }
}

/// Reads a percentage, or what `amount` reads.
fn quota(value: TomlValue<'_>, key: &str, amount: fn(&str) -> Result<u64, String>) -> Result<Quota, PlatformError> {
    let text = value.scalar()?;
    match text.trim().strip_suffix('%') {
        Some(number) => match number.trim().parse() {
            Ok(percent @ 1..=100) => Ok(Quota::Percent(percent)),
            _ => Err(value.error(format!("'{key}' is '{text}'; use a whole percentage from 1% to 100%"))),
        },
        None => amount(&text).map(Quota::Amount).map_err(|why| value.error(format!("'{key}': {why}"))),
    }
}

fn slots(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(number) if (1..=u64::from(SLOTS_MAX)).contains(&number) => Ok(number),
        _ => Err(format!("'{text}' is not a number of slots; use 1 to {SLOTS_MAX}, or a percentage such as '50%'")),
    }
}

fn size(text: &str) -> Result<u64, String> {
    parse_size(text).map_err(|why| format!("{why}; a percentage such as '25%' is also possible"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"
[groups]
students = ["anna", "bert", "guest-*"]
admins = "carol"

[everybody]
functions = ["linalg/*", "fft/*"]
run-code = false
weight = 1
slots = "50%"
memory = "25%"
disk = "40%"
queue = 10000

[group.students]
slots = 4
memory = "2GiB"
disk = "10GiB"
write-names = "~climate/*"

[user.anna]
weight = 2
cancel = ["bert", "group:students", "*"]
read-names = ["~bert/*", "~*/public/*"]

[user."dr. dora"]
functions = "*"
links.wan = "2GiB"

[link.wan]
between = ["uni-*", "cloud-*"]
"#;

    #[test]
    fn a_file_is_read_with_all_settings() {
        let rules = parse(FILE, "rules.toml").unwrap();
        assert_eq!(rules.groups.iter().map(|group| group.name.as_str()).collect::<Vec<_>>(), ["students", "admins"]);
        let (anna, dora) = (rules.of("anna"), rules.of("dr. dora"));
        assert_eq!((anna.weight, anna.slots, anna.memory), (2, Some(Quota::Amount(4)), Some(Quota::Amount(2 << 30))));
        assert_eq!((anna.queue, anna.runs_code, anna.cancels.len()), (Some(10000), Some(false), 5));
        assert!(dora.may_call("sort/quick") && !dora.may_call("python/run") && !anna.may_call("sort/quick"));
        assert_eq!((dora.slots, dora.memory), (Some(Quota::Percent(50)), Some(Quota::Percent(25))));
        assert_eq!((anna.disk, dora.disk), (Some(Quota::Amount(10 << 30)), Some(Quota::Percent(40))));
        let shown = |patterns: &[NamePattern]| patterns.iter().map(NamePattern::to_string).collect::<Vec<_>>();
        assert_eq!(shown(&anna.read_names), ["~bert/*", "~*/public/*"]);
        assert_eq!((shown(&anna.write_names), shown(&dora.write_names)), (vec!["~climate/*".to_string()], vec![]));
        assert_eq!((dora.links.get("wan"), anna.links.len()), (Some(&(2 << 30)), 0));
        assert!(rules.links.len() == 1 && rules.links[0].joins("cloud-7", "uni-1"));
        assert!(parse("", "rules.toml").unwrap().is_empty());
        let order = "[groups]\nz = ['x']\na = ['x']\n[group.a]\nweight = 2\n[group.z]\nweight = 3";
        assert_eq!(parse(order, "rules.toml").unwrap().of("x").weight, 3, "the first group of [groups] precedes");
    }

    #[test]
    fn errors_name_place_value_and_remedy() {
        for (text, expected) in [
            (
                "[everybdy]\n",
                "r.toml:1:2: unknown key 'everybdy' in file; it has: groups, everybody, group, user, link; did you mean 'everybody'?",
            ),
            ("[everybody]\nslot = 4\n", "r.toml:2:1: unknown key 'slot' in [everybody]; it has: functions, run-code,"),
            (
                "[everybody]\nslots = 0\n",
                "r.toml:2:9: 'slots': '0' is not a number of slots; use 1 to 4096, or a percentage",
            ),
            ("[everybody]\nslots = \"0%\"\n", "r.toml:2:9: 'slots' is '0%'; use a whole percentage from 1% to 100%"),
            ("[everybody]\nslots = [1]\n", "'slots' must be a string or a number, not of type array"),
            ("[everybody]\nmemory = \"lots\"\n", "r.toml:2:10: 'memory': 'lots' is not a size; write one such as 8GiB"),
            ("[everybody]\nmemory = 8\n", "has no unit and is below 1 MiB"),
            ("[everybody]\ndisk = \"lots\"\n", "r.toml:2:8: 'disk': 'lots' is not a size; write one such as 8GiB"),
            ("[everybody]\ndisk = \"101%\"\n", "r.toml:2:8: 'disk' is '101%'; use a whole percentage from 1% to 100%"),
            ("[everybody]\nweight = 0\n", "r.toml:2:10: 'weight' is 0; use a whole number from 1 to 1000"),
            ("[everybody]\nweight = 1.5\n", "'weight' must be a whole number, not of type float"),
            ("[everybody]\nqueue = -1\n", "'queue' is -1; use a whole number from 1 to"),
            ("[everybody]\nrun-code = \"no\"\n", "'run-code' must be true or false, not of type string"),
            (
                "[everybody]\nfunctions = [\"linalg\"]\n",
                "'linalg' is not a pattern of functions: expected '*', 'MODULE/FUNCTION'",
            ),
            (
                "[everybody]\nfunctions = [\"python/*\"]\n",
                "r.toml:2:14: 'python/*' runs functions that programs send; write run-code",
            ),
            (
                "[everybody]\nwrite-names = [\"climate/*\"]\n",
                "r.toml:2:16: 'climate/*' is not a pattern of shared names: it states no user; use the form ~USER/NAME",
            ),
            ("[everybody]\nread-names = 7\n", "'read-names' must be an array"),
            ("[link.wan]\n", "link 'wan' has no 'between'; write between ="),
            ("[link.wan]\nbetween = [\"a\"]\n", "r.toml:2:11: 'between' has 1 patterns; write 2"),
            (
                "[link.wan]\nbetween = [\"a\", \"b\"]\n[everybody]\nlinks = { wam = \"1GiB\" }\n",
                "unknown link 'wam'; define it in [link.wam]",
            ),
            (
                "[link.wan]\nbetween = [\"a\", \"b\"]\n[everybody]\nlinks = { wan = \"much\" }\n",
                "'wan': 'much' is not a size; write one such as 8GiB",
            ),
            ("[everybody]\ncancel = [\"group:x\"]\n", "unknown group 'x'; define it in [groups]"),
            (
                "[groups]\nstudents = ['a']\n[group.student]\n",
                "unknown group 'student'; define it in [groups], which has: students; did you mean 'students'?",
            ),
            (
                "[groups]\nstudents = [\"a\\nb\"]\n",
                "cannot be the name of a user: the control character '\\n' is not allowed",
            ),
            ("[groups]\nstudents = [\" a\"]\n", "' a' cannot be the name of a user: it begins or ends with a blank"),
            ("[groups]\nstudents = 7\n", "'students' must be an array"),
            (
                "[user.\"guest-*\"]\n",
                "'guest-*' is a pattern, and a section is for one user; name the pattern in [groups]",
            ),
            ("[user]\nanna = 1\n", "'anna' must be a table"),
            ("[user.anna]\nweight = 1\nweight = 2\n", "r.toml:3:1: malformed TOML"),
            ("everybody", "r.toml:1:"),
        ] {
            let error = parse(text, "r.toml").unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
        let long = "#".repeat(RULES_BYTES_MAX as usize + 1);
        assert!(parse(&long, "r.toml").unwrap_err().to_string().ends_with("bytes, and the limit is 262144"));
    }
}

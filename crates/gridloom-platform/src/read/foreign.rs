//! Distinguishes Gridloom's properties of hosts in XML files from those of other programs: Batsim and WRENCH have their own
//! properties `role`, `memory` and `name`.
//!
//! A property with the prefix `gridloom:` or `gridloom-` always belongs to Gridloom. If no property in a file has a prefix,
//! a property with one of Gridloom's names is used if its value is valid. All others with these names are ignored and
//! counted.

use gridloom_base::size::parse_size;

use super::tree::Element;
use crate::units;

/// The prefixes of Gridloom's properties.
const PREFIXES: [&str; 2] = ["gridloom:", "gridloom-"];
/// Names of Gridloom's properties that other programs may use, too. Properties with other names are always kept.
const SHARED: [&str; 11] = [
    "role",
    "slots",
    "functions",
    "memory",
    "swap",
    "disk_limit",
    "disk",
    "upload_limit",
    "program_start",
    "plain",
    "name",
];

/// True if a property in the element or its descendants has one of the prefixes.
pub(crate) fn has_prefixes(element: &Element) -> bool {
    let is_ours = element.name == "prop" && element.get("id").is_some_and(|id| without_prefix(id).is_some());
    is_ours || element.children.iter().any(has_prefixes)
}

/// Returns the name of a property without Gridloom's prefix, if it has one.
pub(crate) fn without_prefix(id: &str) -> Option<&str> {
    PREFIXES.iter().find_map(|prefix| id.strip_prefix(prefix))
}

/// Returns the property's name without prefix, or `None` if the property belongs to another program. `is_prefixed` is true
/// if a property of the file has a prefix.
pub(crate) fn own<'a>(id: &'a str, value: &str, is_prefixed: bool) -> Option<&'a str> {
    let is_ours = |id: &str| !SHARED.contains(&id) || (!is_prefixed && has_meaning(id, value));
    without_prefix(id).or_else(|| is_ours(id).then_some(id))
}

/// True if the value of a property without prefix is valid for Gridloom.
fn has_meaning(id: &str, value: &str) -> bool {
    let has_unit = value.ends_with(|letter: char| letter.is_ascii_alphabetic());
    match id {
        "role" => value.split(',').all(|role| ["agent", "server", "client", "none"].contains(&role.trim())),
        "slots" => value.parse::<u32>().is_ok_and(|slots| slots > 0),
        "memory" | "disk_limit" => parse_size(value).is_ok(),
        "disk" | "swap" | "upload_limit" => has_unit && units::bandwidth(value).is_ok_and(|rate| rate > 0.0),
        "program_start" => units::time(value).is_ok_and(|start_s| start_s >= 0.0),
        "plain" => ["yes", "no", "true", "false"].contains(&value),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_other_programs_are_not_valid() {
        let ours = [("role", "client, agent"), ("memory", "8GiB"), ("slots", "4"), ("plain", "yes"), ("note", "mine")];
        for (id, value) in ours {
            assert_eq!(own(id, value, false), Some(id));
        }
        let others = [
            ("role", "master"),
            ("role", "compute_node"),
            ("memory", "250"),
            ("memory", "lots"),
            ("slots", "0"),
            ("plain", "?"),
            ("disk", "500"),
            ("swap", "8GiB"),
        ];
        for (id, value) in others {
            assert_eq!(own(id, value, false), None, "{id} = {value}");
        }
    }

    #[test]
    fn if_a_property_has_the_prefix_those_without_it_belong_to_other_programs() {
        assert_eq!(own("role", "server", true), None);
        assert_eq!(own("gridloom:role", "wrong", true), Some("role"));
        assert_eq!(own("gridloom-memory", "8", false), Some("memory"));
        assert_eq!(own("watt_off", "9.75", true), Some("watt_off"));
    }
}

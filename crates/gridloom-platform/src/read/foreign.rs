//! Properties of hosts in XML files, which also belong to other programs: Batsim and WRENCH have a `role`, `memory` or
//! `name` of their own.
//!
//! A property with the prefix `gridloom:` or `gridloom-` is Gridloom's. In a file without the prefix, a property with a
//! name of Gridloom's counts if its value has a meaning here. Others of that name are ignored; the platform counts them.

use super::tree::Element;
use crate::units;

/// The prefixes of Gridloom's properties.
const PREFIXES: [&str; 2] = ["gridloom:", "gridloom-"];
/// Without its prefix, a size without a unit counts from here on: other programs count in MB.
const BARE_SIZE_MIN: f64 = 1_048_576.0;
/// Gridloom's properties that other programs have, too, or may have. All other names are kept as they are.
const SHARED: [&str; 10] =
    ["role", "slots", "functions", "memory", "disk_limit", "disk", "upload_limit", "program_start", "plain", "name"];

/// True if a property in the file has a prefix of Gridloom's.
pub(crate) fn has_prefixes(element: &Element) -> bool {
    let is_ours = element.name == "prop" && element.get("id").is_some_and(|id| without_prefix(id).is_some());
    is_ours || element.children.iter().any(has_prefixes)
}

/// Returns the name of a property without Gridloom's prefix, if it has one.
pub(crate) fn without_prefix(id: &str) -> Option<&str> {
    PREFIXES.iter().find_map(|prefix| id.strip_prefix(prefix))
}

/// Returns the property under its name here, or `None` if it is another program's. `is_prefixed`: the file has prefixes.
pub(crate) fn own<'a>(id: &'a str, value: &str, is_prefixed: bool) -> Option<&'a str> {
    let is_ours = |id: &str| !SHARED.contains(&id) || (!is_prefixed && has_meaning(id, value));
    without_prefix(id).or_else(|| is_ours(id).then_some(id))
}

/// True if a property without prefix has a meaning here.
fn has_meaning(id: &str, value: &str) -> bool {
    let has_unit = value.ends_with(|letter: char| letter.is_ascii_alphabetic());
    match id {
        "role" => value.split(',').all(|role| ["agent", "server", "client", "none"].contains(&role.trim())),
        "slots" => value.parse::<u32>().is_ok_and(|slots| slots > 0),
        "memory" | "disk_limit" => {
            units::size(value).is_ok_and(|size| size >= if has_unit { 1.0 } else { BARE_SIZE_MIN })
        }
        "disk" | "upload_limit" => has_unit && units::bandwidth(value).is_ok_and(|rate| rate > 0.0),
        "program_start" => units::time(value).is_ok_and(|start_s| start_s >= 0.0),
        "plain" => ["yes", "no", "true", "false"].contains(&value),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_of_another_program_has_no_meaning() {
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
        ];
        for (id, value) in others {
            assert_eq!(own(id, value, false), None, "{id} = {value}");
        }
    }

    #[test]
    fn beside_properties_with_prefix_those_without_it_are_another_programs() {
        assert_eq!(own("role", "server", true), None);
        assert_eq!(own("gridloom:role", "wrong", true), Some("role"));
        assert_eq!(own("gridloom-memory", "8", false), Some("memory"));
        assert_eq!(own("watt_off", "9.75", true), Some("watt_off"));
    }
}

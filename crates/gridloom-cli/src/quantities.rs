//! Quantities and names as text, for lists, charts and graphs.

use std::collections::{BTreeMap, BTreeSet};

use gridloom_platform::{Host, HostId, Link, LinkId, Platform};

/// Formats a number with a prefix: `6.25 MB/s`.
pub fn scaled(value: f64, unit: &str) -> String {
    const PREFIXES: [(f64, &str); 8] =
        [(1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""), (1e-3, "m"), (1e-6, "µ")];
    let fits = |(scale, _): &&(f64, &str)| value.abs() >= scale * 0.9995;
    let (scale, prefix) = match value == 0.0 {
        true => (1.0, ""),
        false => PREFIXES.iter().find(fits).copied().unwrap_or((1e-9, "n")),
    };
    let digits = value / scale;
    let places = if digits.abs() >= 100.0 { 0 } else { 2 };
    let text = format!("{digits:.places$}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text} {prefix}{unit}")
}

/// Formats a count with separators and its noun: `1,000 hosts`.
pub fn counted(count: usize, noun: &str) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    format!("{text} {noun}{}", if count == 1 { "" } else { "s" })
}

/// Formats the range from the minimum to the maximum, or the one value that all have.
fn range(values: impl Iterator<Item = f64>, unit: &str) -> String {
    let (least, most) = values.fold((f64::MAX, f64::MIN), |(a, b), value| (a.min(value), b.max(value)));
    match least == most {
        true => scaled(least, unit),
        false => format!("{} … {}", scaled(least, unit), scaled(most, unit)),
    }
}

/// Describes speed and cores of hosts.
pub fn power<'a>(hosts: impl Iterator<Item = &'a Host> + Clone) -> String {
    let speed = range(hosts.clone().map(|host| host.speed_flops), "flop/s");
    let (least, most) = hosts.fold((u32::MAX, 0), |(least, most), host| (least.min(host.cores), most.max(host.cores)));
    match (least, most) {
        (1, 1) => speed,
        _ if least == most => format!("{speed} × {}", counted(most as usize, "core")),
        _ => format!("{speed} × {least} … {most} cores"),
    }
}

/// Describes bandwidth and latency of links.
pub fn capacity<'a>(links: impl Iterator<Item = &'a Link> + Clone) -> String {
    let bandwidth = range(links.clone().map(|link| link.bandwidth), "B/s");
    format!("{bandwidth} · {}", range(links.map(|link| link.latency_s), "s"))
}

/// Returns the roles that the file assigns to a host.
pub fn roles(host: &Host) -> &str {
    host.properties.get("role").map_or("", String::as_str)
}

/// Returns the first and the last name.
pub fn from_to<'a>(mut names: impl DoubleEndedIterator<Item = &'a str>) -> String {
    match (names.next(), names.next_back()) {
        (Some(first), Some(last)) => format!("{first} … {last}"),
        (first, _) => first.unwrap_or_default().to_owned(),
    }
}

/// Groups hosts with the same speed, cores and roles; groups are in the order of their first hosts. If that makes more
/// than `most` groups, groups by roles only.
pub fn alike(platform: &Platform, hosts: &[HostId], most: usize) -> Vec<Vec<HostId>> {
    for is_coarse in [false, true] {
        let mut groups: Vec<Vec<HostId>> = Vec::new();
        let mut of_key: BTreeMap<(u64, u32, &str), usize> = BTreeMap::new();
        for id in hosts {
            let host = &platform.hosts()[id.0 as usize];
            let (speed, cores) = if is_coarse { (0, 0) } else { (host.speed_flops.to_bits(), host.cores) };
            let group = *of_key.entry((speed, cores, roles(host))).or_insert(groups.len());
            if group == groups.len() {
                groups.push(Vec::new());
            }
            groups[group].push(*id);
        }
        if groups.len() <= most || is_coarse {
            return groups;
        }
    }
    Vec::new()
}

/// Returns distinct links in order, with their names in the platform file (both directions of a split-duplex link are one).
pub fn cables<'a>(platform: &'a Platform, links: &[LinkId]) -> Vec<(&'a str, LinkId)> {
    let mut known = BTreeSet::new();
    let named = links.iter().map(|link| (platform.cable_name(*link), *link));
    named.filter(|(name, _)| known.insert(*name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_have_prefixes() {
        assert_eq!(scaled(6.25e6, "B/s"), "6.25 MB/s");
        assert_eq!(scaled(1e9, "flop/s"), "1 Gflop/s");
        assert_eq!(scaled(5e-5, "s"), "50 µs");
        assert_eq!(scaled(0.0, "s"), "0 s");
        assert_eq!(scaled(999.9e6, "B/s"), "1 GB/s");
        assert_eq!(counted(1_234_567, "host"), "1,234,567 hosts");
        assert_eq!(counted(1, "host"), "1 host");
    }
}

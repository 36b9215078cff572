//! Checks that an argument can be copied, before the copy is made.
//!
//! It must fit into the largest store among the servers that offer the function, and into this machine's free memory, for the
//! copy. Totals over several arguments are checked by servers and the mapper, not here.

use std::fs;

use crate::Error;
use crate::plan::bytes;
use crate::session::Session;

/// Below this size free memory is not checked: the check would cost as much as the copy.
const ASK_BYTES_MIN: u64 = 64 << 20;

/// Rejects an argument that is too large to be sent.
///
/// # Errors
/// [`Error::TooLarge`], with the size, the limit and the remedy.
pub(crate) fn admit_argument(session: &Session, function: &str, argument: &str, size_bytes: u64) -> Result<(), Error> {
    let refuse = |bound: String| {
        let (function, argument) = (function.to_string(), argument.to_string());
        Err(Error::TooLarge { function, argument, size: bytes(size_bytes), bound })
    };
    if size_bytes < ASK_BYTES_MIN {
        return Ok(());
    }
    let servers = session.servers();
    let offering = servers.servers.iter().filter(|server| server.functions.contains_key(function));
    if let Some(largest) = offering.max_by_key(|server| server.memory_bytes)
        && size_bytes > largest.memory_bytes
    {
        let (store, name) = (bytes(largest.memory_bytes), &largest.name);
        return refuse(format!(
            "the {store} of the largest store that could take it, on server '{name}'; pass less at a time, or start a \
             server with a larger --memory"
        ));
    }
    match available_bytes() {
        Some(left) if size_bytes > left => refuse(format!(
            "the {} of memory left on this machine, where it is copied; pass less at a time",
            bytes(left)
        )),
        Some(_) | None => Ok(()),
    }
}
/// Returns the memory that this process can still allocate, if the system reports it: the minimum of the machine's
/// available memory and of the rest of the control group's limit.
fn available_bytes() -> Option<u64> {
    let all = fs::read_to_string("/proc/meminfo").ok().and_then(|text| field(&text, "MemAvailable:"));
    let all = all.map(|kibibytes| kibibytes.saturating_mul(1024));
    match (all, group_left_bytes()) {
        (Some(all), Some(group)) => Some(all.min(group)),
        (all, group) => all.or(group),
    }
}

/// Returns the rest of the control group's limit, after memory that cannot be reclaimed (control groups version 2).
fn group_left_bytes() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    let folder = format!("/sys/fs/cgroup{}", path.trim_end_matches('/'));
    let limit: u64 = fs::read_to_string(format!("{folder}/memory.max")).ok()?.trim().parse().ok()?;
    let held = fs::read_to_string(format!("{folder}/memory.stat")).ok()?;
    let held = field(&held, "anon").unwrap_or(0).saturating_add(field(&held, "shmem").unwrap_or(0));
    Some(limit.saturating_sub(held))
}

/// Returns the number after a name at the beginning of a line.
fn field(text: &str, name: &str) -> Option<u64> {
    let mut words = text.lines().map(str::split_whitespace).find_map(|mut words| {
        let is_it = words.next() == Some(name);
        is_it.then_some(words)
    })?;
    words.next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_reports_how_much_memory_is_left() {
        assert!(available_bytes().is_some_and(|left| left > 0));
    }

    #[test]
    fn a_field_is_found_by_its_whole_name() {
        let text = "MemAvailableHigh: 1 kB\nMemAvailable:    42 kB\nanon 7\n";
        assert_eq!((field(text, "MemAvailable:"), field(text, "anon"), field(text, "an")), (Some(42), Some(7), None));
    }
}

//! The memory that a process may use.

use rustix::process::{Resource, getrlimit};

use crate::groups::{Group, groups};
use crate::{Root, field};

/// A larger limit in version 1 means no limit, for which the kernel writes the largest multiple of a page.
const NO_LIMIT_BYTES: u64 = 1 << 60;
/// Size of a page in `/proc/self/statm`.
fn page_bytes() -> u64 {
    rustix::param::page_size() as u64
}

/// The memory that this process may use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Memory {
    /// Memory of the machine or the smallest limit; `None` if neither is known.
    pub total_bytes: Option<u64>,
    /// Memory that this process can still allocate.
    pub available_bytes: Option<u64>,
}

impl Memory {
    /// Reads the limits and the use.
    pub fn find() -> Memory {
        Memory::find_in(&Root::system(), getrlimit(Resource::As).current)
    }

    pub(crate) fn find_in(root: &Root, address_space_bytes: Option<u64>) -> Memory {
        let machine = root.text("/proc/meminfo");
        let kib = |name| Some(field(machine.as_deref()?, name)?.saturating_mul(1024));
        let mut memory = Memory { total_bytes: kib("MemTotal:"), available_bytes: kib("MemAvailable:") };
        for (limit, held) in groups(root, "memory").iter().filter_map(|group| limit_of(root, group)) {
            memory.limit(limit, held);
        }
        if let Some(limit) = address_space_bytes {
            let pages = root.text("/proc/self/statm").and_then(|text| text.split(' ').next()?.parse::<u64>().ok());
            memory.limit(limit, pages.unwrap_or(0).saturating_mul(page_bytes()));
        }
        memory
    }

    fn limit(&mut self, limit_bytes: u64, held_bytes: u64) {
        let least = |known: Option<u64>, other: u64| Some(known.map_or(other, |known| known.min(other)));
        self.total_bytes = least(self.total_bytes, limit_bytes);
        self.available_bytes = least(self.available_bytes, limit_bytes.saturating_sub(held_bytes));
    }
}

/// Returns the limit of a group, and the used bytes that cannot be reclaimed.
fn limit_of(root: &Root, group: &Group) -> Option<(u64, u64)> {
    let (limit, stat, names) = match group {
        Group::V1(folder) => {
            (folder.join("memory.limit_in_bytes"), folder.join("memory.stat"), ["total_rss", "total_shmem"])
        }
        Group::V2(folder) => (folder.join("memory.max"), folder.join("memory.stat"), ["anon", "shmem"]),
    };
    // Without a limit, version 2 has the word "max".
    let limit = root.number(limit).filter(|limit| *limit < NO_LIMIT_BYTES)?;
    let stat = root.text(stat).unwrap_or_default();
    let held = names.iter().filter_map(|name| field(&stat, name)).fold(0, u64::saturating_add);
    Some((limit, held))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake_root::FakeRoot;

    const MACHINE: (&str, &str) = ("proc/meminfo", "MemTotal: 1000 kB\nMemFree: 1 kB\nMemAvailable: 800 kB\n");
    const V2: (&str, &str) = ("proc/self/mountinfo", "30 1 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");

    fn found(files: &[(&str, &str)], address_space_bytes: Option<u64>) -> (Option<u64>, Option<u64>) {
        let memory = Memory::find_in(&FakeRoot::new(files).root(), address_space_bytes);
        (memory.total_bytes, memory.available_bytes)
    }

    #[test]
    fn the_smallest_limit_of_machine_groups_and_address_space_counts() {
        assert_eq!(found(&[MACHINE], None), (Some(1_024_000), Some(819_200)));
        let own = ("proc/self/cgroup", "0::/a/b\n");
        let nested = [
            MACHINE,
            V2,
            own,
            ("sys/fs/cgroup/a/memory.max", "500000\n"),
            ("sys/fs/cgroup/a/memory.stat", "anon 100000\nfile 300000\nshmem 50000\n"),
            ("sys/fs/cgroup/a/b/memory.max", "max\n"),
        ];
        assert_eq!(found(&nested, None), (Some(500_000), Some(350_000)));
        let statm = ("proc/self/statm", "10 5 3 1 0 4 0\n");
        let held = 10 * page_bytes();
        assert_eq!(found(&[MACHINE, statm], Some(held + 7)), (Some(held + 7), Some(7)));
        assert_eq!(found(&[MACHINE, statm], Some(held - 7)), (Some(held - 7), Some(0)));
    }

    #[test]
    fn limits_of_version_1_are_found_and_no_limit_is_a_large_number() {
        let mounts = ("proc/self/mountinfo", "33 24 0:30 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n");
        let own = ("proc/self/cgroup", "4:memory:/a\n");
        let outer = ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
        let inner = ("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "600000\n");
        let stat = ("sys/fs/cgroup/memory/a/memory.stat", "rss 1\ntotal_rss 200000\ntotal_shmem 1000\n");
        assert_eq!(found(&[MACHINE, mounts, own, outer, inner, stat], None), (Some(600_000), Some(399_000)));
        assert_eq!(found(&[MACHINE, mounts, own, outer], None), (Some(1_024_000), Some(819_200)));
    }

    #[test]
    fn missing_and_damaged_files_limit_nothing() {
        assert_eq!(found(&[], None), (None, None));
        let own = ("proc/self/cgroup", "0::/a\n");
        for text in ["", "garbage", "-1\n", "1.5\n", "99999999999999999999999\n"] {
            let files = [MACHINE, V2, own, ("sys/fs/cgroup/a/memory.max", text)];
            assert_eq!(found(&files, None), (Some(1_024_000), Some(819_200)), "{text:?}");
        }
        assert_eq!(found(&[("proc/meminfo", "MemTotal: much\n")], None), (None, None));
    }

    #[test]
    fn the_system_reports_how_much_memory_is_left() {
        assert!(Memory::find().available_bytes.is_some_and(|left| left > 0));
    }
}

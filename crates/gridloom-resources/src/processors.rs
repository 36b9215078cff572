//! The processors that a process may use.

use std::fmt;

use crate::Root;
use crate::groups::{Group, groups};

/// The number of processors that this process may use, and its limits.
#[derive(Clone, PartialEq, Debug)]
pub struct Processors {
    /// Number of processors of the machine.
    pub machine: usize,
    /// Number of processors in the affinity of the thread.
    pub affinity: usize,
    /// Smallest quota of the control groups, in processors.
    pub quota: Option<f64>,
}

impl Processors {
    /// Counts the processors for this thread and the threads that it starts.
    pub fn find() -> Processors {
        let own = rustix::thread::sched_getaffinity(None).map_or(0, |all| all.count() as usize);
        Processors::find_in(&Root::system(), own)
    }

    pub(crate) fn find_in(root: &Root, affinity: usize) -> Processors {
        let online = root.text("/sys/devices/system/cpu/online").and_then(|text| list_length(&text));
        // Neither can be less than one: this code runs on one.
        let machine = online.unwrap_or(affinity).max(affinity).max(1);
        let affinity = if affinity == 0 { machine } else { affinity };
        let quotas = groups(root, "cpu").into_iter().filter_map(|group| quota(root, &group));
        Processors { machine, affinity, quota: quotas.reduce(f64::min) }
    }

    /// Returns the number of processors that can be busy at the same time. A fraction of a processor counts as one.
    pub fn count(&self) -> usize {
        let by_quota = self.quota.map_or(usize::MAX, |quota| quota.ceil() as usize);
        self.affinity.min(by_quota).max(1)
    }
}

impl fmt::Display for Processors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Processors { machine, affinity, quota } = self;
        let plural = if *affinity == 1 { "" } else { "s" };
        write!(f, "{affinity} core{plural} by affinity, {machine} on the machine, ")?;
        match quota {
            Some(quota) => write!(f, "quota {}", (quota * 100.0).round() / 100.0),
            None => f.write_str("no quota"),
        }
    }
}

/// Returns the quota of a group, in processors.
fn quota(root: &Root, group: &Group) -> Option<f64> {
    let (quota_us, period_us): (u64, u64) = match group {
        Group::V1(folder) => {
            // Without a quota, the file contains -1, which is not a `u64`.
            (root.number(folder.join("cpu.cfs_quota_us"))?, root.number(folder.join("cpu.cfs_period_us"))?)
        }
        Group::V2(folder) => {
            let text = root.text(folder.join("cpu.max"))?;
            let mut words = text.split_whitespace();
            // Without a quota the first word is "max".
            (words.next()?.parse().ok()?, words.next()?.parse().ok()?)
        }
    };
    (quota_us > 0 && period_us > 0).then(|| quota_us as f64 / period_us as f64)
}

/// Returns the number of processors in a list such as `0-3,7`.
fn list_length(text: &str) -> Option<usize> {
    let lengths = text.trim().split(',').map(|part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        last.checked_sub(first)?.checked_add(1)
    });
    lengths.sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake_root::FakeRoot;

    fn found(files: &[(&str, &str)], affinity: usize) -> Processors {
        Processors::find_in(&FakeRoot::new(files).root(), affinity)
    }

    const V2: (&str, &str) = ("proc/self/mountinfo", "30 1 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
    const V1: (&str, &str) =
        ("proc/self/mountinfo", "33 24 0:30 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n");
    const ONLINE: (&str, &str) = ("sys/devices/system/cpu/online", "0-5,7,9\n");

    #[test]
    fn the_smallest_quota_of_nested_groups_counts() {
        let own = ("proc/self/cgroup", "0::/a/b\n");
        let outer = ("sys/fs/cgroup/a/cpu.max", "350000 100000\n");
        let wider = found(&[V2, own, ONLINE, outer, ("sys/fs/cgroup/a/b/cpu.max", "800000 100000\n")], 4);
        assert_eq!((wider.machine, wider.affinity, wider.quota, wider.count()), (8, 4, Some(3.5), 4));
        let none = found(&[V2, own, ONLINE, outer, ("sys/fs/cgroup/a/b/cpu.max", "max 100000\n")], 8);
        assert_eq!((none.quota, none.count()), (Some(3.5), 4));
        let tighter = found(&[V2, own, outer, ("sys/fs/cgroup/a/b/cpu.max", "20000 100000\n")], 8);
        assert_eq!((tighter.quota, tighter.count()), (Some(0.2), 1));
        assert_eq!(wider.to_string(), "4 cores by affinity, 8 on the machine, quota 3.5");
    }

    #[test]
    fn quotas_of_version_1_are_found_by_their_controller() {
        let own = ("proc/self/cgroup", "5:cpuset:/other\n4:cpu,cpuacct:/docker/1/b\n0::/\n");
        let period = |at: &'static str| (at, "100000\n");
        let files = [
            V1,
            own,
            ("sys/fs/cgroup/cpu,cpuacct/docker/1/cpu.cfs_quota_us", "150000\n"),
            period("sys/fs/cgroup/cpu,cpuacct/docker/1/cpu.cfs_period_us"),
            ("sys/fs/cgroup/cpu,cpuacct/docker/1/b/cpu.cfs_quota_us", "-1\n"),
            period("sys/fs/cgroup/cpu,cpuacct/docker/1/b/cpu.cfs_period_us"),
        ];
        assert_eq!((found(&files, 8).quota, found(&files, 8).count()), (Some(1.5), 2));
        // In a container, the mount is the container's group, and the path is that of the machine.
        let mounted = "33 24 0:30 /docker/1 /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n";
        let inside = [
            ("proc/self/mountinfo", mounted),
            ("proc/self/cgroup", "4:cpu:/docker/1\n"),
            ("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "200000\n"),
            period("sys/fs/cgroup/cpu/cpu.cfs_period_us"),
        ];
        assert_eq!(found(&inside, 8).quota, Some(2.0));
    }

    #[test]
    fn missing_and_damaged_files_limit_nothing() {
        let nothing = found(&[], 3);
        assert_eq!((nothing.machine, nothing.affinity, nothing.quota, nothing.count()), (3, 3, None, 3));
        assert_eq!(found(&[ONLINE], 0).count(), 8, "the affinity is not known");
        assert_eq!(found(&[], 0).count(), 1);
        let own = ("proc/self/cgroup", "0::/a\n");
        for text in ["", "garbage\n", "0 100000\n", "100000 0\n", "-5 100000\n", "100000\n", "max\n", "1e5 100000\n"] {
            assert_eq!(found(&[V2, own, ("sys/fs/cgroup/a/cpu.max", text)], 2).quota, None, "{text:?}");
        }
        for (mounts, groups) in [("x - y\n - \n", "0::/a\n"), (V2.1, "::\nx\n0:/a\n"), (V2.1, "")] {
            let files = [("proc/self/mountinfo", mounts), ("proc/self/cgroup", groups)];
            assert_eq!(found(&files, 2).count(), 2);
        }
        for online in ["", "garbage", "3-1", "0-99999999999999999999"] {
            assert_eq!(found(&[("sys/devices/system/cpu/online", online)], 2).machine, 2, "{online:?}");
        }
    }

    #[test]
    fn the_affinity_of_this_thread_counts() {
        use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
        let first = sched_getaffinity(None).map(|all| (0..CpuSet::MAX_CPU).find(|one| all.is_set(*one))).unwrap();
        // The affinity belongs to the thread, so other tests keep theirs.
        let count = std::thread::spawn(move || {
            let mut one = CpuSet::new();
            one.set(first.expect("this thread runs somewhere"));
            sched_setaffinity(None, &one).unwrap();
            let found = Processors::find();
            assert!(found.machine >= 1);
            (found.affinity, found.count())
        });
        assert_eq!(count.join().unwrap(), (1, 1));
    }
}

//! Emulates processor speeds by quota: one control group per host, of version 1 or 2, where this user may create groups.
//!
//! A host whose platform speed is a quarter of a core gets a quarter of the time: bursts of full speed followed by
//! pauses, within a period of at least [`PERIOD_US_MIN`]. Work that is shorter than that runs at full speed or not at
//! all. Time that a group could not use in a period, because other processes had the processor, is added to the next
//! period.
//!
//! Groups are listed in the testbed's folder, so that removing the folder removes them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Minimum period: shorter ones cost more in context switches than they gain in smoothness.
pub const PERIOD_US_MIN: f64 = 10_000.0;
/// The kernel's limits.
const PERIOD_US_MAX: f64 = 1_000_000.0;
const QUOTA_US_MIN: f64 = 1_000.0;
/// Smallest assignable fraction of a core.
pub const CORES_MIN: f64 = QUOTA_US_MIN / PERIOD_US_MAX;

/// A place where this user can create groups with a quota of processor time.
#[derive(Clone, Debug, PartialEq)]
pub enum CgroupRoot {
    /// A folder of the `cpu` controller, version 1.
    V1(PathBuf),
    /// A folder of the unified hierarchy; its children have the `cpu` controller.
    V2(PathBuf),
}

/// Finds a place for groups, by creating one. Each group is recorded before it is created, here and in [`make`],
/// because the process that creates groups may be killed at any moment.
///
/// # Errors
/// The reason why there is none, and what to do about it.
pub fn place(note: impl Fn(&Path) -> io::Result<()>) -> Result<CgroupRoot, String> {
    let read = |name: &str| fs::read_to_string(name).map_err(|error| format!("{name}: {error}"));
    let (mounts, own) = (read("/proc/self/mountinfo")?, read("/proc/self/cgroup")?);
    let candidates = candidates(&mounts, &own);
    for place in &candidates {
        let probe = place.folder().join(format!("gridloom-probe-{}", std::process::id()));
        let made = note(&probe).and_then(|()| fs::create_dir(&probe));
        let has_quota = probe.join(place.quota_file()).exists();
        // The probe was just created and is empty, or does not exist.
        let _ = fs::remove_dir(&probe);
        if made.is_ok() && has_quota {
            return Ok(place.clone());
        }
    }
    Err("this user may not set quotas of processor time; on a system with systemd, start it with 'systemd-run --user \
         --scope -p Delegate=yes', or run it as root"
        .into())
}

/// Returns the `cpu` control groups listed in `/proc/self/mountinfo` and `/proc/self/cgroup`, the process's own first.
fn candidates(mounts: &str, own: &str) -> Vec<CgroupRoot> {
    let mut found = Vec::new();
    for line in mounts.lines() {
        let Some((before, after)) = line.split_once(" - ") else { continue };
        let (before, after): (Vec<&str>, Vec<&str>) = (before.split(' ').collect(), after.split(' ').collect());
        let (Some(mount), &[kind, _, options]) = (before.get(4), &after[..]) else { continue };
        let is_one = kind == "cgroup" && options.split(',').any(|option| option == "cpu");
        if !is_one && kind != "cgroup2" {
            continue;
        }
        // Lines are `number:controllers:path`; the unified hierarchy has no controllers there.
        let path = own.lines().find_map(|line| {
            let mut parts = line.splitn(3, ':').skip(1);
            let (controllers, path) = (parts.next()?, parts.next()?);
            let is_it = if is_one { controllers.split(',').any(|one| one == "cpu") } else { controllers.is_empty() };
            is_it.then_some(path)
        });
        let folder = Path::new(mount).join(path.unwrap_or("/").trim_start_matches('/'));
        found.push(if is_one { CgroupRoot::V1(folder) } else { CgroupRoot::V2(folder) });
    }
    found
}

/// Creates a group with the time of `cores` cores, and returns its folder.
///
/// # Errors
/// If the system refuses.
pub fn make(place: &CgroupRoot, name: &str, cores: f64, note: impl Fn(&Path) -> io::Result<()>) -> io::Result<PathBuf> {
    let folder = place.folder().join(name);
    note(&folder)?;
    fs::create_dir(&folder)?;
    if let Err(error) = set(&folder, cores) {
        // The group is still empty.
        let _ = fs::remove_dir(&folder);
        return Err(error);
    }
    Ok(folder)
}

/// Sets the quota of a group to the time of `cores` cores.
///
/// # Errors
/// If the system refuses.
pub fn set(group: &Path, cores: f64) -> io::Result<()> {
    let (quota, period) = quota(cores);
    let one = group.join("cpu.cfs_quota_us");
    let is_one = one.exists();
    let burst = group.join(if is_one { "cpu.cfs_burst_us" } else { "cpu.max.burst" });
    // Kernels before 5.14 have no burst; it must never exceed the quota.
    let _ = fs::write(&burst, "0");
    if is_one {
        // Without a quota any period is valid.
        fs::write(&one, "-1")?;
        fs::write(group.join("cpu.cfs_period_us"), period.to_string())?;
        fs::write(one, quota.to_string())?;
    } else {
        fs::write(group.join("cpu.max"), format!("{quota} {period}"))?;
    }
    let _ = fs::write(burst, quota.to_string());
    Ok(())
}

/// Returns the file to which pids are written.
pub fn members(folder: &Path) -> PathBuf {
    folder.join("cgroup.procs")
}

/// Returns quota and period in microseconds, for this many cores.
fn quota(cores: f64) -> (u64, u64) {
    let period = (QUOTA_US_MIN / cores).clamp(PERIOD_US_MIN, PERIOD_US_MAX);
    ((cores * period).max(QUOTA_US_MIN).round() as u64, period.round() as u64)
}

impl CgroupRoot {
    fn folder(&self) -> &Path {
        match self {
            CgroupRoot::V1(folder) | CgroupRoot::V2(folder) => folder,
        }
    }

    fn quota_file(&self) -> &'static str {
        match self {
            CgroupRoot::V1(_) => "cpu.cfs_quota_us",
            CgroupRoot::V2(_) => "cpu.max",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas_have_the_ratio_and_keep_the_limits() {
        for cores in [0.001, 0.01, 0.05, 0.1, 0.5, 1.0, 3.7, 16.0] {
            let (quota, period) = quota(cores);
            assert!((10_000..=1_000_000).contains(&period) && quota >= 1_000, "{cores}: {quota} {period}");
            assert!((quota as f64 / period as f64 / cores - 1.0).abs() < 1e-3, "{cores}: {quota} {period}");
        }
    }

    #[test]
    fn both_versions_are_found() {
        let mounts = "33 24 0:30 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                      34 24 0:31 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n\
                      35 24 0:32 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let own = "3:cpuset:/\n1:cpu:/a\n0::/user/b\n";
        assert_eq!(
            candidates(mounts, own),
            [CgroupRoot::V1("/sys/fs/cgroup/cpu/a".into()), CgroupRoot::V2("/sys/fs/cgroup/unified/user/b".into())]
        );
    }
}

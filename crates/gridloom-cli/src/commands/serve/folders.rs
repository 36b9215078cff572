//! Folders in which a server stores data.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use gridloom_base::size::size_text;
use gridloom_net::durable::Durable;
use gridloom_net::jobs::store_bytes_default;
use gridloom_net::segment::Disk;
use gridloom_net::storage::Storage;

use super::Options;
use crate::commands::absolute;

/// Checks that each folder in the options is a folder or does not exist yet.
pub(super) fn check_folders(options: &Options) -> Result<()> {
    let server = &options.server;
    let models = server.models.as_deref().filter(|folder| folder.as_os_str() != "none");
    let folders = [
        ("--checkpoints", options.checkpoints.as_deref()),
        ("--disk", server.disk.as_deref()),
        ("--durable", server.durable.as_deref()),
        ("--models", models),
        ("--storage", server.storage.as_deref()),
    ];
    for (option, folder) in folders {
        let Some(folder) = folder else { continue };
        ensure!(folder.is_dir() || !folder.exists(), "{option}: '{}' is not a folder; name a folder", folder.display());
    }
    Ok(())
}

/// Checks that the file is the list of processes of a control group, and that this process may write to it. The server
/// writes the process id of each worker to the file.
pub(super) fn check_worker_group(file: &Path) -> Result<()> {
    const CONTROL_GROUPS: [i64; 2] = [0x27_e0eb, 0x6367_7270];
    const REMEDY: &str = "name the file cgroup.procs of a control group, such as /sys/fs/cgroup/NAME/cgroup.procs";
    let name = || format!("--worker-group: '{}'", file.display());
    let system = rustix::fs::statfs(file).with_context(name)?;
    let is_list = file.file_name().is_some_and(|name| name == "cgroup.procs" || name == "tasks");
    let is_in_group = CONTROL_GROUPS.contains(&(system.f_type as i64));
    ensure!(is_list && is_in_group, "{} is not the list of processes of a control group; {REMEDY}", name());
    std::fs::OpenOptions::new().write(true).open(file).with_context(name)?;
    Ok(())
}

/// Returns the limit of the store in memory.
pub(super) fn store_bytes(given: Option<u64>) -> u64 {
    given.unwrap_or_else(|| store_bytes_default(1))
}

/// Returns how many bytes of data the server accepts, how many of them are on disk, and the folder for these.
pub(super) fn places(options: &Options) -> Result<(u64, u64, Option<Disk>)> {
    let memory_bytes = store_bytes(options.server.memory);
    let Some(folder) = &options.server.disk else { return Ok((memory_bytes, 0, None)) };
    let folder = absolute(folder)?;
    let disk = Disk::open(&folder, memory_bytes).with_context(|| format!("--disk: '{}'", folder.display()))?;
    let space = rustix::fs::statvfs(&folder).with_context(|| format!("--disk: '{}'", folder.display()))?;
    let free_bytes = space.f_bavail.saturating_mul(space.f_frsize);
    let disk_bytes = match options.server.disk_limit {
        Some(limit) if limit > free_bytes => {
            let free = size_text(free_bytes);
            bail!("--disk-limit: '{}' has {free} free; give a lower limit", folder.display());
        }
        limit => limit.unwrap_or(free_bytes / 2),
    };
    Ok((memory_bytes.saturating_add(disk_bytes), disk_bytes, Some(disk)))
}

/// Opens the folder for durable data, if there is one.
pub(super) fn open_durable(options: &Options, memory_bytes: u64) -> Result<Option<Durable>> {
    let Some(folder) = &options.server.durable else { return Ok(None) };
    let folder = absolute(folder)?;
    let durable = Durable::open(&folder).with_context(|| format!("--durable: '{}'", folder.display()))?;
    for damaged in durable.damaged() {
        gridloom_base::stderr_line!("gridloom: the durable data '{}' are lost: {}", damaged.named.name, damaged.why);
    }
    let sizes = durable.named().into_iter().map(|named| named.meta.size_bytes());
    let found_bytes = sizes.fold(0, u64::saturating_add);
    if found_bytes > memory_bytes {
        let (found, limit) = (size_text(found_bytes), size_text(memory_bytes));
        bail!(
            "--durable: '{}' has {found} of data, and the server stores {limit}: give more --memory",
            folder.display()
        );
    }
    Ok(Some(durable))
}

/// Opens the folder that servers share, if there is one.
pub(super) fn open_storage(options: &Options) -> Result<Option<Storage>> {
    let Some(folder) = &options.server.storage else { return Ok(None) };
    let folder = absolute(folder)?;
    Storage::open(&folder).map(Some).with_context(|| format!("--storage: '{}'", folder.display()))
}

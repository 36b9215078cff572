//! Folders in which a server stores data.

use anyhow::{Context, Result, bail};
use gridloom_base::size::size_text;
use gridloom_net::durable::Durable;
use gridloom_net::jobs::store_bytes_default;
use gridloom_net::segment::Disk;
use gridloom_net::storage::Storage;

use super::Options;
use crate::commands::absolute;

/// Returns the limit of the store in memory.
pub(super) fn store_bytes(given: Option<u64>) -> u64 {
    given.unwrap_or_else(|| store_bytes_default(1))
}

/// Returns how many bytes of data the server accepts, and the folder for those that do not fit into memory.
pub(super) fn places(options: &Options) -> Result<(u64, Option<Disk>)> {
    let memory_bytes = store_bytes(options.server.memory);
    let Some(folder) = &options.server.disk else { return Ok((memory_bytes, None)) };
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
    Ok((memory_bytes.saturating_add(disk_bytes), Some(disk)))
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

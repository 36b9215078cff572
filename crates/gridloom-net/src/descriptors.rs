//! The descriptor limit of this process, and its division: each segment, connection and worker takes descriptors.

use std::{fs, io};

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Divisor of the descriptor limit: one in 8 descriptors is for memory kept for reuse.
const KEPT_DIVISOR: u64 = 8;
/// Descriptors that a server opens at its start, including connections of a few peers.
const SERVER: u64 = 28;
/// Descriptors of a server per worker: its memory, its socket, its pipes.
const WORKER: u64 = 6;
/// Minimum number of data at a time; with fewer, some functions cannot run.
const DATA_MIN: u64 = 4;

/// Raises the descriptor limit of this process to its maximum: the usual default is 1024.
pub fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    // If this fails, the limit stays as it is; running out of descriptors is reported later by its own error.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}

/// Returns the descriptor limit of this process.
pub fn descriptor_limit() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// True if a system call failed because this process, or the machine, has no descriptor left.
pub fn have_run_out(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE))
}

/// Returns a text with the limit of this process and the remedy, for an error that another process shows.
pub fn remedy() -> String {
    limit_text("that")
}

/// Returns the text of an error; if no descriptor is left, with the limit of this process and the remedy.
pub fn describe(error: &io::Error) -> String {
    if have_run_out(error) { format!("{error}: {}", limit_text("this")) } else { error.to_string() }
}

fn limit_text(which: &str) -> String {
    let limit = descriptor_limit();
    format!("the limit of {which} process is {limit}; raise it with 'ulimit -n' before the process starts")
}

/// Returns the maximum number of segments that a pool keeps for reuse.
pub fn kept_segments_max() -> u64 {
    descriptor_limit() / KEPT_DIVISOR
}

/// Returns the maximum number of segments used by a peer that are kept for later reuse, so that segments that the peer
/// keeps for long do not take all descriptors.
pub fn grants_max() -> usize {
    usize::try_from(descriptor_limit() / (2 * KEPT_DIVISOR)).unwrap_or(usize::MAX).max(1)
}

/// Returns the number of data at a time for which the descriptors of a server with `slots` slots suffice.
///
/// # Errors
/// If that is too few to run anything.
pub fn data_max(slots: u32) -> io::Result<u64> {
    raise_descriptor_limit();
    let limit = descriptor_limit();
    let taken = SERVER + WORKER * u64::from(slots);
    data_with(limit, taken).ok_or_else(|| {
        let needed = (taken + DATA_MIN) * KEPT_DIVISOR / (KEPT_DIVISOR - 1) + 1;
        let why = format!(
            "{slots} slots need at least {needed} descriptors, but the limit of this process is {limit}: raise the \
             limit (ulimit -Hn), or use fewer slots"
        );
        io::Error::new(io::ErrorKind::QuotaExceeded, why)
    })
}

/// A limit that is too low even after it was raised to its maximum.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TooFewDescriptors {
    /// Number of descriptors needed, including those already open.
    pub needed: u64,
    /// The limit of this process.
    pub limit: u64,
}

/// Ensures that this process can open this many descriptors in addition to the open ones. If the limit is too low,
/// raises it to its maximum.
///
/// # Errors
/// If the maximum is too low, too.
pub fn ensure_descriptors(further: usize) -> Result<(), TooFewDescriptors> {
    let open = fs::read_dir("/proc/self/fd").map_or(0, |all| all.count());
    let needed = (open + further) as u64;
    if needed > descriptor_limit() {
        raise_descriptor_limit();
    }
    let limit = descriptor_limit();
    if needed <= limit { Ok(()) } else { Err(TooFewDescriptors { needed, limit }) }
}

fn data_with(limit: u64, taken: u64) -> Option<u64> {
    (limit - limit / KEPT_DIVISOR).checked_sub(taken).filter(|data| *data >= DATA_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_by_server_and_workers_is_for_data() {
        assert_eq!(data_with(64, SERVER + WORKER), Some(22));
        assert_eq!(data_with(64, SERVER + 4 * WORKER), Some(4));
        assert_eq!(data_with(64, SERVER + 5 * WORKER), None);
        assert_eq!(data_with(u64::MAX, SERVER), Some(u64::MAX - u64::MAX / 8 - SERVER));
    }
}

//! How many descriptors this process may have, and for how many data they suffice: each segment takes one.

use std::{fs, io};

use crate::process::PENDING_MAX;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// One in so many descriptors is for memory that is kept warm.
pub(super) const KEPT_PART: u64 = 8;
/// What a server opens at its start, and connections of a few peers.
const SERVER: u64 = 28;
/// What a worker takes of its server's: its memory, its socket, its pipes.
const WORKER: u64 = 6;
/// With fewer data at a time, some functions cannot run.
const DATA_MIN: u64 = 4;

/// Lets this process have as many descriptors as it may: the usual default is 1024.
pub fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    // A refusal leaves the limit as it is; running out is an error with its own words later.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}

/// How many descriptors this process may have.
pub fn descriptor_limit() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// How much memory that a peer uses is kept for use after it: what the peer keeps for long is not to take all descriptors.
pub fn grants_max() -> usize {
    usize::try_from(descriptor_limit() / (2 * KEPT_PART)).unwrap_or(usize::MAX).max(1)
}

/// For how many data at a time the descriptors of a server of so many slots suffice.
///
/// # Errors
/// If that is too little to run anything.
pub fn data_max(slots: u32) -> io::Result<u64> {
    raise_descriptor_limit();
    let limit = descriptor_limit();
    let taken = SERVER + WORKER * u64::from(slots);
    data_with(limit, taken).ok_or_else(|| {
        let needed = (taken + DATA_MIN) * KEPT_PART / (KEPT_PART - 1) + 1;
        let why = format!(
            "{slots} slots need {needed} descriptors at least, and this process may have {limit}: raise the limit (ulimit -Hn), or \
             give it fewer slots"
        );
        io::Error::new(io::ErrorKind::QuotaExceeded, why)
    })
}

/// Room for so many connections of this process by so many listeners, beside what it has open. If there is too little, it takes as much
/// as it may.
///
/// # Errors
/// If that is too little, too.
pub fn room_for(connections: usize, listeners: usize) -> io::Result<()> {
    let open = fs::read_dir("/proc/self/fd").map_or(0, |all| all.count());
    // A connection takes two until it is admitted.
    let pending = connections.min(listeners * PENDING_MAX);
    let needed = (open + listeners + connections + pending) as u64;
    if needed > descriptor_limit() {
        raise_descriptor_limit();
    }
    let limit = descriptor_limit();
    if needed <= limit {
        return Ok(());
    }
    let why = format!(
        "{connections} connections need {needed} descriptors with those that are open, and this process may have {limit}: raise the \
         limit (ulimit -Hn)"
    );
    Err(io::Error::new(io::ErrorKind::QuotaExceeded, why))
}

fn data_with(limit: u64, taken: u64) -> Option<u64> {
    (limit - limit / KEPT_PART).checked_sub(taken).filter(|data| *data >= DATA_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_connections_than_descriptors_are_refused_with_both_numbers() {
        room_for(10, 1).unwrap();
        let limit = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
        let told = room_for(usize::try_from(limit).unwrap(), 1).unwrap_err().to_string();
        assert!(told.starts_with(&format!("{limit} connections need ")), "{told}");
        assert!(told.ends_with(&format!("may have {limit}: raise the limit (ulimit -Hn)")), "{told}");
    }

    #[test]
    fn what_is_left_by_server_and_workers_is_for_data() {
        assert_eq!(data_with(64, SERVER + WORKER), Some(22));
        assert_eq!(data_with(64, SERVER + 4 * WORKER), Some(4));
        assert_eq!(data_with(64, SERVER + 5 * WORKER), None);
        assert_eq!(data_with(u64::MAX, SERVER), Some(u64::MAX - u64::MAX / 8 - SERVER));
    }
}

//! Moves data of the store from memory to disk when memory use exceeds its limit. These are results of functions, and
//! data that nodes of this host have passed in memory. Data received over the network while the limit is exceeded go
//! to disk directly ([`Pool::allocate_for_data`]).
//!
//! The least recently used data are moved first, except those of users who have no more room on disk
//! ([`Store::limit_disk`]). They are never moved back: the system's page cache keeps recently read file data in memory.
//!
//! [`Pool::allocate_for_data`]: crate::segment::Pool::allocate_for_data

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use crate::store::Store;
use crate::threads;
use crate::transport::notice::{Inbox, Notice};

/// Interval for checking whether data that were in use can be moved now, or whether the disk has room again.
const PAUSE: Duration = Duration::from_secs(1);

/// Starts the thread that moves data, and reports to `inbox` how many bytes are on disk; it ends with the store. Does nothing without a
/// disk.
///
/// # Errors
/// If the system cannot start a thread.
pub(crate) fn start(store: &Arc<Store>, inbox: &Arc<Inbox>) -> io::Result<()> {
    if store.pool().memory_bytes_max().is_none() {
        return Ok(());
    }
    let (store, inbox) = (Arc::downgrade(store), Arc::downgrade(inbox));
    threads::spawn(thread::Builder::new().name("spilling".into()), move || run(&store, &inbox)).map(drop)
}

fn run(store: &Weak<Store>, inbox: &Weak<Inbox>) {
    let (mut has_failed, mut reported) = (false, BTreeMap::new());
    while let Some(store) = store.upgrade() {
        let moved = loop {
            match move_one(&store) {
                Ok(true) => {}
                Ok(false) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        match moved {
            Ok(()) => has_failed = false,
            Err(error) if !has_failed => {
                has_failed = true;
                gridloom_base::stderr_line!("gridloom: data cannot be moved to disk and stay in memory: {error}");
            }
            Err(_) => {}
        }
        let on_disk = store.on_disk();
        if let Some(inbox) = inbox.upgrade().filter(|_| on_disk != reported) {
            inbox.post(Notice::OnDisk { clients: on_disk.iter().map(|(client, bytes)| (*client, *bytes)).collect() });
            reported = on_disk;
        }
        store.wait_for_more(PAUSE);
    }
}

/// Moves one datum to disk if memory use exceeds the limit and a datum can be moved.
///
/// # Errors
/// If the disk is full or fails. The datum then stays where it is.
pub(crate) fn move_one(store: &Store) -> io::Result<bool> {
    let (memory_bytes, _) = store.placed_bytes();
    if store.pool().memory_bytes_max().is_none_or(|limit| memory_bytes <= limit) {
        return Ok(false);
    }
    let Some((datum, payload, room)) = store.coldest() else { return Ok(false) };
    let mut place = store.pool().allocate_on_disk(payload.size_bytes())?.in_room(room);
    place.bytes_mut().copy_from_slice(payload.bytes());
    store.set_location(&datum, &payload, place.freeze());
    Ok(true)
}

#[cfg(test)]
mod tests {
    use gridloom_base::{DatumId, Dtype, Meta, NodeId};
    use gridloom_core::node::DiskLimit;

    use super::*;
    use crate::cold_data::MOVED_BYTES_MIN;
    use crate::payload::Payload;
    use crate::segment::{Disk, ON_DISK_BYTES_MIN, Pool};

    #[test]
    fn small_data_move_where_nothing_larger_can() {
        let size = MOVED_BYTES_MIN;
        let disk = Disk::open(&std::env::temp_dir(), 2 * size).unwrap();
        let store = Store::new(Pool::with_disk(0, Some(disk)));
        for (serial, size) in (1..).zip([size - 1, size, size, size]) {
            let memory = store.pool().allocate(size).unwrap();
            let datum = DatumId { client: NodeId(1), serial };
            store.put(datum, Meta::array(Dtype::Uint8, &[size]), Payload::segment(memory.freeze()));
        }
        while move_one(&store).unwrap() {}
        assert_eq!(store.placed_bytes(), (2 * size - 1, 2 * size));
    }

    #[test]
    fn data_of_users_without_room_on_disk_stay_in_memory() {
        let size = ON_DISK_BYTES_MIN;
        let disk = Disk::open(&std::env::temp_dir(), 0).unwrap();
        let store = Store::new(Pool::with_disk(0, Some(disk)));
        let put = |client, serial| {
            let memory = store.pool().allocate(size).unwrap();
            let datum = DatumId { client: NodeId(client), serial };
            store.put(datum, Meta::array(Dtype::Uint8, &[size]), Payload::segment(memory.freeze()));
        };
        // The clients 1 and 2 belong to one user.
        for (client, serial) in [(1, 1), (2, 2), (1, 3), (3, 4)] {
            put(client, serial);
        }
        let limit = |bytes| DiskLimit { clients: vec![NodeId(1), NodeId(2)], bytes };
        store.limit_disk(&[limit(2 * size - 1)]);
        while move_one(&store).unwrap() {}
        assert_eq!(store.on_disk(), BTreeMap::from([(NodeId(1), size), (NodeId(3), size)]));
        let is_on_disk = |client| store.allocate_for(NodeId(client), size).unwrap().freeze().is_on_disk();
        assert!(!is_on_disk(2) && is_on_disk(3));
        store.limit_disk(&[limit(2 * size)]);
        while move_one(&store).unwrap() {}
        assert_eq!(store.placed_bytes(), (size, 3 * size));
        assert!(is_on_disk(3) && !is_on_disk(1));
        store.limit_disk(&[]);
        while move_one(&store).unwrap() {}
        assert_eq!(store.placed_bytes(), (0, 4 * size));
    }

    #[test]
    fn simultaneous_transfers_of_one_user_do_not_exceed_the_users_limit() {
        let size = ON_DISK_BYTES_MIN;
        let disk = Disk::open(&std::env::temp_dir(), 0).unwrap();
        let store = Store::new(Pool::with_disk(0, Some(disk)));
        store.limit_disk(&[DiskLimit { clients: vec![NodeId(1), NodeId(2)], bytes: 2 * size }]);
        let begin = |client| store.allocate_for(NodeId(client), size).unwrap();
        // None of them has ended.
        let mut transfers = [1, 2, 1, 2].map(begin).map(Some);
        let are_on_disk = transfers.each_ref().map(|memory| memory.as_ref().unwrap().segment().is_on_disk());
        assert_eq!(are_on_disk, [true, true, false, false]);
        // One is stored, and one is broken off.
        let datum = DatumId { client: NodeId(1), serial: 1 };
        let payload = Payload::segment(transfers[0].take().unwrap().freeze());
        store.put(datum, Meta::array(Dtype::Uint8, &[size]), payload);
        assert_eq!(store.on_disk(), BTreeMap::from([(NodeId(1), size)]));
        assert!(!begin(2).segment().is_on_disk());
        transfers[1] = None;
        let last = begin(2);
        assert!(last.segment().is_on_disk() && !begin(1).segment().is_on_disk());
        drop(last);
        assert!(store.remove(&datum) && store.on_disk().is_empty());
        let both = [1, 2].map(begin);
        assert!(both.iter().all(|memory| memory.segment().is_on_disk()));
    }

    /// Earlier, each move walked over all data of the store, and the first ones of a user without room on disk are always the coldest.
    #[test]
    fn many_data_of_a_user_without_room_do_not_slow_down_the_moves_of_others() {
        const DATA: u64 = 20_000;
        let size = MOVED_BYTES_MIN;
        let disk = Disk::open(&std::env::temp_dir(), 0).unwrap();
        let store = Store::new(Pool::with_disk(0, Some(disk)));
        store.limit_disk(&[DiskLimit { clients: vec![NodeId(1)], bytes: 0 }]);
        let memory = store.pool().allocate(DATA * size).unwrap().freeze();
        for serial in 0..DATA {
            let payload = Payload::Segment { segment: memory.clone(), offset: serial * size, size_bytes: size };
            let datum = DatumId { client: NodeId(1), serial };
            store.put(datum, Meta::array(Dtype::Uint8, &[size]), payload);
        }
        for serial in 0..100 {
            let memory = store.pool().allocate(size).unwrap();
            let datum = DatumId { client: NodeId(2), serial };
            store.put(datum, Meta::array(Dtype::Uint8, &[size]), Payload::segment(memory.freeze()));
        }
        while move_one(&store).unwrap() {}
        assert_eq!(store.on_disk(), BTreeMap::from([(NodeId(2), 100 * size)]));
    }

    #[test]
    fn what_was_used_longest_ago_moves_and_keeps_its_bytes() {
        let size = 2u64 << 20;
        let disk = Disk::open(&std::env::temp_dir(), 2 * size).unwrap();
        let store = Store::new(Pool::with_disk(0, Some(disk)));
        let datum = |serial| DatumId { client: NodeId(1), serial };
        let meta = Meta::array(Dtype::Uint8, &[size]);
        for serial in 1..=4u64 {
            let mut memory = store.pool().allocate(size).unwrap();
            memory.bytes_mut().fill(serial as u8);
            store.put(datum(serial), meta.clone(), Payload::segment(memory.freeze()));
        }
        // One datum in use, one recently used.
        let in_use = store.get(&datum(2)).unwrap();
        store.get(&datum(1)).unwrap();
        while move_one(&store).unwrap() {}
        assert_eq!(store.placed_bytes(), (2 * size, 2 * size));
        for serial in 1..=4u64 {
            let (_, payload) = store.get(&datum(serial)).unwrap();
            assert!(payload.bytes().iter().all(|byte| u64::from(*byte) == serial));
            let Payload::Segment { segment, .. } = payload else { panic!("it was in shared memory") };
            assert_eq!(segment.is_on_disk(), [3, 4].contains(&serial));
        }
        drop(in_use);
        assert!(store.remove(&datum(3)) && store.held_bytes() == 3 * size);
    }
}

//! Tests of which data stay in a store, which are evicted, and which answers peers get.

use super::*;

fn datum(serial: u64) -> DatumId {
    DatumId { client: NodeId(9), serial }
}

fn asker(peer: u64) -> Requester {
    Requester { peer: NodeId(peer), hops: 1 }
}

#[test]
fn a_released_datum_stays_for_its_readers_and_fetchers() {
    let mut replicas = Replicas::new(100, u64::MAX);
    replicas.reserve(datum(1), 10, Origin::Made, Time(0));
    replicas.add_reader(datum(1), false);
    assert_eq!(replicas.fetch(datum(1), asker(2), Time(0)), FetchAnswer::Later);
    assert!(!replicas.release(datum(1)));
    assert_eq!(replicas.arrived(datum(1), 10, Origin::Made, Time(1)), [NodeId(2)]);
    assert!(replicas.remove_reader(datum(1), Time(2)));
    assert_eq!(replicas.used_bytes(), 0);
    assert_eq!(replicas.fetch(datum(1), asker(3), Time(3)), FetchAnswer::Dropped);
}

#[test]
fn a_request_may_arrive_before_the_datum_is_known() {
    let mut replicas = Replicas::new(100, u64::MAX);
    assert_eq!(replicas.fetch(datum(1), asker(2), Time(0)), FetchAnswer::Later);
    replicas.reserve(datum(1), 10, Origin::Made, Time(1));
    assert_eq!(replicas.arrived(datum(1), 10, Origin::Made, Time(2)), [NodeId(2)]);
    assert!(replicas.expire(Time(100), 1, |_| false).is_empty());
}

#[test]
fn only_unneeded_copies_are_evicted_oldest_first() {
    let mut replicas = Replicas::new(100, u64::MAX);
    replicas.arrived(datum(1), 30, Origin::Copied, Time(2));
    replicas.arrived(datum(2), 30, Origin::Copied, Time(1));
    replicas.arrived(datum(3), 30, Origin::Made, Time(0));
    assert!(!replicas.fits(20));
    assert_eq!(
        replicas.evict(20, |_| false, |_| false),
        [Evicted { datum: datum(2), origin: Origin::Copied, size_bytes: 30 }]
    );
    assert!(replicas.fits(20));
    replicas.add_reader(datum(1), false);
    assert!(replicas.evict(90, |_| false, |_| false).is_empty());
    assert!(!replicas.remove_reader(datum(1), Time(3)));
    assert!(replicas.evict(90, |known| known == datum(1), |_| false).is_empty());
}

#[test]
fn a_kept_copy_is_not_evicted_and_goes_when_it_is_released() {
    let mut replicas = Replicas::new(60, u64::MAX);
    replicas.arrived(datum(1), 30, Origin::Copied, Time(1));
    replicas.arrived(datum(2), 30, Origin::Copied, Time(2));
    replicas.keep(datum(1));
    let evicted = replicas.evict(60, |_| false, |_| false);
    assert_eq!(evicted.iter().map(|e| e.datum).collect::<Vec<_>>(), [datum(2)]);
    assert!(replicas.is_here(datum(1)) && replicas.release(datum(1)) && replicas.is_empty());
}

#[test]
fn what_a_held_task_reads_is_evicted_last() {
    let mut replicas = Replicas::new(60, u64::MAX);
    replicas.arrived(datum(1), 30, Origin::Argument, Time(1));
    replicas.arrived(datum(2), 30, Origin::Copied, Time(2));
    let evicted = replicas.evict(50, |_| false, |known| known == datum(1));
    assert_eq!(
        evicted.iter().map(|e| (e.datum, e.origin)).collect::<Vec<_>>(),
        [(datum(2), Origin::Copied), (datum(1), Origin::Argument)]
    );
}

#[test]
fn no_more_data_are_let_in_than_there_are_descriptors_for() {
    let mut replicas = Replicas::new(1 << 20, 4);
    for serial in 0..4 {
        assert!(replicas.fits(replicas.lacks_bytes(datum(serial), 2000)), "datum {serial}");
        replicas.reserve(datum(serial), 2000, Origin::Copied, Time(0));
    }
    assert!(!replicas.fits(replicas.lacks_bytes(datum(4), 2000)), "it would take a fifth descriptor");
    assert!(!replicas.fits(replicas.lacks_bytes(datum(4), 1000)), "what takes none needs bytes");
    assert!(replicas.unreserve(datum(0), Time(0)));
    assert!(replicas.fits(replicas.lacks_bytes(datum(4), 2000)));
}

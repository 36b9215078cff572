//! Tests of flows over links, and of transfers that break off.

use super::super::two_hosts::two_hosts;
use super::*;
use crate::kernel::{KernelEvent, Purpose};
use gridloom_base::limits::PARTS;

const A: (NodeId, HostId) = (NodeId(1), HostId(0));
const B: (NodeId, HostId) = (NodeId(2), HostId(1));
const PAIR: (NodeId, NodeId) = (A.0, B.0);

fn connected() -> (Kernel, Routes, Links) {
    let (_, kernel, routes) = two_hosts();
    let mut links = Links::new(PARTS);
    links.connect(A, B);
    (kernel, routes, links)
}

fn probe(size_bytes: u64) -> Cargo {
    Cargo::Probe { size_bytes }
}

#[test]
fn frames_leave_one_behind_the_other() {
    let (mut kernel, mut routes, mut links) = connected();
    for _ in 0..2 {
        links.send_small(&mut kernel, &mut routes, PAIR, probe(1000));
    }
    for at in [2_000_000, 3_000_000] {
        let Some(KernelEvent::Due(_, ScheduledEvent::Arrive { connection, parcel, .. })) = kernel.next() else {
            panic!()
        };
        assert_eq!(kernel.now(), Time(at));
        assert!(links.arrive(&mut kernel, &mut routes, PAIR, connection, parcel).is_some());
    }
    links.check(&kernel);
}

#[test]
fn bulk_cargo_that_a_loss_stops_restarts() {
    let (mut kernel, mut routes, mut links) = connected();
    links.send_bulk(&mut kernel, &mut routes, PAIR, probe(1_000_000), (false, false));
    kernel.advance_clock(Time(500_000_000));
    links.check(&kernel);
    let way = (A.1, B.1);
    routes.lose(way);
    links.stop_bulk(&mut kernel, |moving| moving == way);
    assert!(kernel.next().is_none());
    routes.restore(way);
    links.start_waiting(&mut kernel, &mut routes, |waiting| waiting == way);
    // The latency phase ends first.
    let mut last = None;
    while let Some(KernelEvent::Ended(ended)) = kernel.next() {
        ended.into_iter().for_each(|action| last = kernel.take_purpose(action));
    }
    let Some(Purpose::Bulk { pair, transfer }) = last else { panic!("{last:?}") };
    assert_eq!(kernel.now(), Time(1_501_000_000));
    let Some(Progress::Landed(landed)) = links.bulk_done(&mut kernel, &mut routes, (pair, transfer)) else { panic!() };
    assert_eq!((landed.cargo.size_bytes(), landed.started), (1_000_000, Time(500_000_000)));
}

#[test]
fn the_peer_loses_a_connection_behind_what_was_sent() {
    let (mut kernel, mut routes, mut links) = connected();
    links.send_small(&mut kernel, &mut routes, PAIR, probe(1000));
    links.hang_up(&mut kernel, &mut routes, PAIR, "enough");
    assert!(!links.is_connected(A.0, B.0) && links.is_connected(B.0, A.0));
    assert!(matches!(kernel.next(), Some(KernelEvent::Due(_, ScheduledEvent::Arrive { .. }))));
    let Some(KernelEvent::Due(_, ScheduledEvent::Lost { connection, why, .. })) = kernel.next() else { panic!() };
    let why = links.lost(&mut kernel, &mut routes, (B.0, A.0), connection, why);
    assert_eq!(why.as_deref(), Some("enough"));
    assert!(!links.is_connected(B.0, A.0));
}

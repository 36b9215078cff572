//! Which tasks are let in, and when.

use super::*;
use crate::graph::{Argument, Output as Made};
use crate::node::message::Supply;
use crate::node::server::tests::offering_nothing;
use gridloom_base::{Dtype, Meta};

const CLIENT: NodeId = NodeId(7);

fn datum(serial: u64) -> DatumId {
    DatumId { client: CLIENT, serial }
}

fn task(serial: u64, reads: &[u64], makes: u64, elements: u64) -> Task {
    Task {
        id: TaskId { client: CLIENT, serial },
        kind: TaskKind::call("m/f", 0),
        args: reads.iter().map(|serial| Argument::Datum(datum(*serial))).collect(),
        outputs: vec![Made { datum: datum(makes), meta: Meta::array(Dtype::Float64, &[elements]) }],
        work_flops: None,
        terms: Default::default(),
    }
}

#[test]
fn what_finds_room_is_let_in_in_order_and_what_never_will_is_refused() {
    let mut admission = Admission::new(Arc::new(offering_nothing()));
    let (members, mut out) = (Members::default(), Vec::new());
    let whole = offering_nothing().memory_bytes / 8;
    for task in [task(1, &[], 11, whole), task(2, &[], 12, 1), task(3, &[], 13, whole + 1)] {
        assert!(admission.add(Time(0), task, false));
    }
    assert_eq!(admission.admit(Time(0), &members, &mut out), None, "the second waits for the first");
    let first = admission.next_start(|_| false).unwrap();
    assert_eq!((first.id.serial, admission.next_start(|_| false)), (1, None));
    let entry = admission.take_ended(Time(1), first.id).unwrap();
    admission.not_made(Time(1), &entry.task, &mut out);
    admission.check().unwrap();
    assert_eq!(admission.admit(Time(1), &members, &mut out), None);
    let second = admission.next_start(|_| false).unwrap();
    let entry = admission.take_ended(Time(2), second.id).unwrap();
    admission.not_made(Time(2), &entry.task, &mut out);
    let refused = admission.admit(Time(2), &members, &mut out);
    assert!(matches!(refused, Some((id, TaskError::StoreFull { .. })) if id.serial == 3));
}

#[test]
fn a_task_runs_when_what_was_asked_for_is_here() {
    let mut admission = Admission::new(Arc::new(offering_nothing()));
    let (mut members, mut out) = (Members::default(), Vec::new());
    members.up(Time(0), CLIENT, Role::Client);
    admission.add(Time(0), task(1, &[5], 11, 1), false);
    let meta = Meta::array(Dtype::Float64, &[1]);
    let supply = Supply { datum: datum(5), meta, from: CLIENT, address: String::new() };
    admission.expect(CLIENT, vec![supply], false);
    assert_eq!(admission.admit(Time(0), &members, &mut out), None);
    assert!(admission.fetches.is_asked(CLIENT) && admission.next_start(|_| false).is_none());
    admission.check().unwrap();
    let origin = admission.take_arrived(Time(1), datum(5), 8, &mut out).unwrap();
    admission.datum_here(Time(1), datum(5), 8, origin, &mut out);
    admission.check().unwrap();
    assert!(admission.next_start(|_| false).is_some());
}

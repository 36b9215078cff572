//! Tests of which tasks are admitted, and when.

use super::*;
use crate::data::Requester;
use crate::graph::{Argument, Output as Made};
use crate::node::message::{DataMessage, Supply, SupplyFault};
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
        options: Default::default(),
    }
}

#[test]
fn tasks_are_admitted_in_order_and_refused_if_they_never_fit() {
    let mut admission = Admission::new(Arc::new(offering_nothing()));
    let (members, mut out) = (Members::default(), Vec::new());
    let whole = offering_nothing().memory_bytes / 8;
    for task in [task(1, &[], 11, whole), task(2, &[], 12, 1), task(3, &[], 13, whole + 1)] {
        assert!(admission.add(Time(0), task, &"user".into(), false));
    }
    assert_eq!(admission.admit(Time(0), &members, &mut out), None, "the second waits for the first");
    let first = admission.next_start(|_| false).unwrap();
    assert_eq!((first.id.serial, admission.next_start(|_| false)), (1, None));
    let entry = admission.take_ended(Time(1), first.id).unwrap();
    admission.results_not_made(Time(1), &entry.task, &mut out);
    admission.check().unwrap();
    assert_eq!(admission.admit(Time(1), &members, &mut out), None);
    let second = admission.next_start(|_| false).unwrap();
    let entry = admission.take_ended(Time(2), second.id).unwrap();
    admission.results_not_made(Time(2), &entry.task, &mut out);
    let refused = admission.admit(Time(2), &members, &mut out);
    assert!(matches!(refused, Some((id, TaskError::StoreFull { .. })) if id.serial == 3));
}

#[test]
fn a_task_runs_when_its_inputs_have_arrived() {
    let mut admission = Admission::new(Arc::new(offering_nothing()));
    let (mut members, mut out) = (Members::default(), Vec::new());
    members.add(Time(0), CLIENT, Role::Client);
    admission.add(Time(0), task(1, &[5], 11, 1), &"user".into(), false);
    let meta = Meta::array(Dtype::Float64, &[1]);
    let supply = Supply::direct(datum(5), meta, CLIENT, String::new(), 1);
    admission.expect(CLIENT, vec![supply], false);
    assert_eq!(admission.admit(Time(0), &members, &mut out), None);
    assert!(admission.fetches.is_requested_from(CLIENT) && admission.next_start(|_| false).is_none());
    admission.check().unwrap();
    let (origin, _) = admission.take_arrived(Time(1), datum(5), 8, &mut out).unwrap();
    admission.datum_available(Time(1), datum(5), 8, origin, &mut out);
    admission.check().unwrap();
    assert!(admission.next_start(|_| false).is_some());
}

/// Returns a server 1 that awaits datum 5 from a holder, over two sends.
fn waiting(out: &mut Vec<AdmissionOutput>) -> Admission {
    let mut admission = Admission::new(Arc::new(offering_nothing()));
    let mut members = Members::default();
    members.add(Time(0), HOLDER, Role::Server);
    admission.add(Time(0), task(1, &[5], 11, 1), &"user".into(), false);
    let meta = Meta::array(Dtype::Float64, &[1]);
    let supply = Supply::direct(datum(5), meta, HOLDER, "there:1".into(), 2);
    admission.expect(CLIENT, vec![supply], false);
    assert_eq!(admission.admit(Time(0), &members, out), None);
    admission
}

const HOLDER: NodeId = NodeId(3);

fn asker(peer: u64, hops: u16) -> Requester {
    Requester { peer: NodeId(peer), hops }
}

/// Returns the peers that are refused, and the peers that receive a datum.
fn answered(out: &mut Vec<AdmissionOutput>) -> (Vec<u64>, Vec<u64>) {
    let (mut refused, mut sent) = (Vec::new(), Vec::new());
    for output in out.drain(..) {
        match output {
            AdmissionOutput::Effect(Effect::Send { to, message: Message::Data(DataMessage::FetchRefused { .. }) }) => {
                refused.push(to.0);
            }
            AdmissionOutput::Effect(Effect::SendDatum { to, .. }) => sent.push(to.0),
            _ => {}
        }
    }
    (refused, sent)
}

#[test]
fn peers_with_more_hops_wait_and_others_are_refused() {
    let mut out = Vec::new();
    let mut admission = waiting(&mut out);
    out.clear();
    for asker in [asker(21, 1), asker(22, 2), asker(23, 3), asker(HOLDER.0, 9)] {
        admission.fetch(Time(1), datum(5), (asker, false), &mut out);
    }
    assert_eq!(answered(&mut out), (vec![21, 22, HOLDER.0], vec![]));
    admission.transfer_begun(datum(5), NodeId(99), &mut out);
    assert_eq!(answered(&mut out), (vec![], vec![]), "it is awaited from another node");
    admission.transfer_begun(datum(5), HOLDER, &mut out);
    assert_eq!(answered(&mut out), (vec![], vec![23]));
    admission.fetch(Time(2), datum(5), (asker(24, 1), false), &mut out);
    assert_eq!(answered(&mut out), (vec![], vec![24]), "it is arriving, so there is no cycle of waiting servers");
    admission.fetches.transfer_broke(HOLDER, datum(5), SupplyFault::Broken, "it broke", &mut out);
    admission.fetch(Time(3), datum(5), (asker(25, 3), false), &mut out);
    assert_eq!(answered(&mut out), (vec![], vec![]), "it is no longer arriving");
    // The owner names a source that has the datum.
    let meta = Meta::array(Dtype::Float64, &[1]);
    let supply = Supply::direct(datum(5), meta, CLIENT, String::new(), 3);
    admission.resupply(Time(4), CLIENT, vec![supply], &Members::default(), &mut out);
    assert_eq!(answered(&mut out), (vec![25], vec![]), "this server no longer has fewer hops");
    admission.check().unwrap();
}

#[test]
fn a_datum_that_did_not_fit_is_no_longer_arriving() {
    let mut out = Vec::new();
    let mut admission = waiting(&mut out);
    admission.transfer_begun(datum(5), HOLDER, &mut out);
    // Its task is requeued, and another datum takes the memory.
    admission.requeue(Time(1), vec![TaskId { client: CLIENT, serial: 1 }], &mut out);
    let whole = offering_nothing().memory_bytes;
    admission.replicas.reserve(datum(9), whole, Origin::Made, Time(1));
    assert_eq!(admission.take_arrived(Time(2), datum(5), 8, &mut out), None);
    assert!(admission.replicas.unreserve(datum(9), Time(3)));
    assert_eq!(admission.admit(Time(3), &Members::default(), &mut out), None);
    out.clear();
    admission.fetch(Time(3), datum(5), (asker(23, 3), false), &mut out);
    assert_eq!(answered(&mut out), (vec![], vec![]));
    admission.check().unwrap();
}

#[test]
fn peers_that_wait_for_a_removed_task_are_refused() {
    let mut out = Vec::new();
    let mut admission = waiting(&mut out);
    admission.fetch(Time(1), datum(5), (asker(23, 3), false), &mut out);
    out.clear();
    admission.remove_task(Time(2), TaskId { client: CLIENT, serial: 1 }, &mut out);
    assert_eq!(answered(&mut out), (vec![23], vec![]));
    admission.check().unwrap();
}

/// A group's task reads the result of a plain call, which is sent only to the call's client.
#[test]
fn a_task_that_reads_the_result_of_a_call_waits_for_a_source() {
    let mut admission = Admission::new(Arc::new(offering_nothing()));
    let (mut members, mut out) = (Members::default(), Vec::new());
    members.add(Time(0), CLIENT, Role::Client);
    assert!(admission.add(Time(0), task(1, &[], 11, 1), &"user".into(), true));
    assert!(admission.add(Time(0), task(2, &[11], 12, 1), &"user".into(), false));
    assert_eq!(admission.admit(Time(0), &members, &mut out), None);
    let call = admission.next_start(|_| false).unwrap();
    let entry = admission.take_ended(Time(1), call.id).unwrap();
    let result = (datum(11), Meta::array(Dtype::Float64, &[1]));
    admission.results_made(Time(1), &entry, &[result], Some(CLIENT), &mut out);
    admission.check().unwrap();
    out.clear();
    assert_eq!(admission.admit(Time(1), &members, &mut out), None);
    admission.check().unwrap();
    assert!(
        matches!(out[..], [AdmissionOutput::Effect(Effect::Send { to: CLIENT, .. })]),
        "its source is requested: {out:?}"
    );
}

/// A client puts a name on a copy that was on the server before. It may be the last copy.
#[test]
fn an_earlier_copy_stays_when_it_gets_a_name() {
    let named = DatumId { client: NodeId::CATALOG, serial: 1 };
    for was_here in [true, false] {
        let mut admission = Admission::new(Arc::new(offering_nothing()));
        let (mut members, mut out) = (Members::default(), Vec::new());
        members.add(Time(0), CLIENT, Role::Client);
        if was_here {
            admission.datum_available(Time(0), datum(5), 8, Origin::Copied, &mut out);
        }
        let meta = Meta::array(Dtype::Float64, &[1]);
        let kind = TaskKind::Publish(Box::new(gridloom_base::NamedDatum {
            datum: named,
            name: "mesh".into(),
            version: 1,
            meta: meta.clone(),
            replicas: 1,
            is_durable: false,
            method: gridloom_base::Method::Auto,
            put_by: None,
            readers: Default::default(),
        }));
        let publish = Task { kind, outputs: Vec::new(), ..task(1, &[5], 11, 1) };
        assert!(admission.add(Time(0), publish.clone(), &"user".into(), false));
        let supply = Supply::direct(datum(5), meta, CLIENT, String::new(), 1);
        admission.expect(CLIENT, vec![supply], false);
        assert_eq!(admission.admit(Time(0), &members, &mut out), None);
        if !was_here {
            let (origin, _) = admission.take_arrived(Time(1), datum(5), 8, &mut out).unwrap();
            admission.datum_available(Time(1), datum(5), 8, origin, &mut out);
        }
        assert!(admission.take_replicated().is_some());
        admission.name_datum(Time(1), &publish, datum(5), (named, 8), &mut out).unwrap();
        assert_eq!((admission.is_here(named), admission.is_here(datum(5))), (true, was_here));
    }
}

/// Found by the soak test (seeds 11792, 12000, 19362): the client assumed that this server has a copy. No source was
/// named, and the agent was lost before it named one.
#[test]
fn a_new_agent_is_queried_for_sources_that_are_still_unknown() {
    let mut admission = Admission::new(Arc::new(offering_nothing()));
    let (members, mut out) = (Members::default(), Vec::new());
    let shared = DatumId { client: NodeId::CATALOG, serial: 1 };
    let reads = Task { args: vec![Argument::Datum(shared)], ..task(1, &[], 11, 1) };
    admission.add(Time(0), reads, &"user".into(), false);
    assert_eq!(admission.admit(Time(0), &members, &mut out), None);
    let asked = std::mem::take(&mut out);
    admission.request_shared_sources(&mut out);
    assert!(matches!(out[..], [AdmissionOutput::Effect(Effect::Send { to: NodeId::CATALOG, .. })]), "{out:?}");
    assert_eq!(out, asked);
    // Once the datum is here, it is no longer requested.
    admission.datum_available(Time(1), shared, 8, Origin::Copied, &mut out);
    assert_eq!(admission.unrequested_shared(), []);
}

/// Found by the soak test (seed 35688): the task that makes a datum was requeued, and the number of waiting readers
/// was lost with its reservation. The datum was released, and dropped before they read it.
#[test]
fn a_reader_gets_the_result_of_a_requeued_task() {
    let mut admission = Admission::new(Arc::new(offering_nothing()));
    let (members, mut out) = (Members::default(), Vec::new());
    let id = |serial| TaskId { client: CLIENT, serial };
    // Task 1 waits for a datum, and task 2 for the result of task 1.
    admission.add(Time(0), task(1, &[5], 11, 1), &"user".into(), false);
    admission.add(Time(0), task(2, &[11], 12, 1), &"user".into(), false);
    assert_eq!(admission.admit(Time(0), &members, &mut out), None);
    admission.requeue(Time(1), vec![id(1)], &mut out);
    assert_eq!(admission.admit(Time(1), &members, &mut out), None);
    assert_eq!((admission.state(id(1)), admission.state(id(2))), (Some(State::Waiting), Some(State::Waiting)));
    admission.check().unwrap();
    admission.datum_available(Time(2), datum(5), 8, Origin::Copied, &mut out);
    let maker = admission.next_start(|_| false).unwrap();
    let entry = admission.take_ended(Time(3), maker.id).unwrap();
    let result = (datum(11), Meta::array(Dtype::Float64, &[1]));
    admission.results_made(Time(3), &entry, &[result], Some(CLIENT), &mut out);
    admission.release(datum(11), &mut out);
    assert!(admission.is_here(datum(11)), "the reader has not ended");
    assert_eq!(admission.next_start(|_| false).map(|task| task.id), Some(id(2)));
    admission.check().unwrap();
}

/// Found by the soak test (seed 42681): a task was admitted without memory for a shared datum of unknown size,
/// requeued when the datum was to arrive in slices, and admitted again in the same way, forever.
#[test]
fn the_size_of_a_sliced_datum_is_known_when_its_task_is_admitted_again() {
    let mut admission = Admission::new(Arc::new(offering_nothing()));
    let (members, mut out) = (Members::default(), Vec::new());
    let shared = DatumId { client: NodeId::CATALOG, serial: 8 };
    let slice = shared.slices()[0];
    admission.datum_available(Time(0), datum(9), offering_nothing().memory_bytes - 100, Origin::Made, &mut out);
    let reads = Task { args: vec![Argument::Datum(shared)], ..task(1, &[], 11, 1) };
    let id = reads.id;
    admission.add(Time(0), reads, &"user".into(), false);
    assert_eq!(admission.admit(Time(0), &members, &mut out), None);
    assert_eq!(admission.state(id), Some(State::Waiting));
    let supply = Supply::direct(slice, Meta::array(Dtype::Float64, &[100]), HOLDER, "there:1".into(), 1);
    admission.resupply(Time(1), NodeId::CATALOG, vec![supply], &members, &mut out);
    assert_eq!(admission.state(id), Some(State::Held));
    out.clear();
    assert_eq!(admission.admit(Time(1), &members, &mut out), None);
    assert_eq!(admission.state(id), Some(State::Held), "a result is written back first: {out:?}");
    admission.check().unwrap();
}

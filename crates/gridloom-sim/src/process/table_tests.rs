//! Tests of the process table in isolation.

use gridloom_flow::{FlowEngine, NetworkModel, Resources, Timeline};

use super::*;
use crate::instruments::Instruments;
use crate::kernel::KernelEvent;

fn started() -> (Kernel, Processes, ProcessId) {
    let mut resources = Resources::new();
    resources.add_host(1e9, 1);
    let engine = FlowEngine::new(resources, NetworkModel::default());
    let mut kernel = Kernel::new(engine, Timeline::new(), Instruments::new(0, 0));
    let mut processes = Processes::new(1e9);
    let spec = ProcessSpec { function: "f".into(), host: "h".into(), arguments: Vec::new() };
    let id = processes.add(&mut kernel, HostId(0), spec, Time::ZERO);
    due(&mut kernel, &mut processes);
    assert_eq!(processes.take_ready(), Some(id));
    (kernel, processes, id)
}

fn due(kernel: &mut Kernel, processes: &mut Processes) {
    let Some(KernelEvent::Due(_, ScheduledEvent::ProcessDue { process, turn })) = kernel.next() else { panic!() };
    processes.on_time_limit(kernel, process, turn, false);
}

#[test]
fn a_limit_that_arrives_late_wakes_nothing() {
    let (mut kernel, mut processes, id) = started();
    processes.wait(&mut kernel, id, Wait::Incoming, "a message");
    processes.limit_wait(&mut kernel, id, Time(5));
    processes.wake_if(&mut kernel, id, |wait| matches!(wait, Wait::Incoming));
    assert_eq!(processes.take_ready(), Some(id));
    processes.wait(&mut kernel, id, Wait::Incoming, "a message");
    due(&mut kernel, &mut processes);
    assert_eq!((processes.first_ready(), processes.idle().limits), (None, 0));
    processes.check();
}

#[test]
fn what_arrives_at_a_stopped_process_waits_until_it_continues() {
    let (mut kernel, mut processes, id) = started();
    processes.wait(&mut kernel, id, Wait::Incoming, "a message");
    processes.stop(id);
    processes.wake_if(&mut kernel, id, |_| true);
    assert_eq!(processes.first_ready(), None);
    processes.check();
    processes.resume(&mut kernel, id);
    assert_eq!(processes.first_ready(), Some(id));
}

#[test]
fn a_process_that_must_end_leaves_its_computation() {
    let (mut kernel, mut processes, id) = started();
    processes.compute(&mut kernel, id, None, 1e9);
    processes.end(&mut kernel, id, "enough");
    assert_eq!((processes.take_ready(), processes.call(id)), (Some(id), Some(("enough".into(), 1))));
    assert!(kernel.next().is_none());
    processes.check();
}

#[test]
fn a_process_restarts_with_its_host_if_it_was_configured_to() {
    let (mut kernel, mut processes, id) = started();
    assert_eq!(processes.end_with_host(HostId(0)), [id]);
    assert!(processes.start_with_host(&mut kernel, id).is_none());
    processes.set_restarts(id, true);
    processes.end_with_host(HostId(0));
    assert!(processes.restart_with_host(|_| true));
    assert!(processes.start_with_host(&mut kernel, id).is_some());
}

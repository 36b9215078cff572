use super::*;
use gridloom_base::time::SECOND_NS;

const SERVER: NodeId = NodeId(2);

fn task(serial: u64) -> TaskId {
    TaskId { client: NodeId(9), serial }
}

fn measured(run_s: f64) -> ExpectedRun {
    ExpectedRun { run_s, is_measured: true, may_move: true }
}

#[test]
fn tasks_beyond_the_slots_wait_for_those_before_them() {
    let mut queues = Queues::default();
    for serial in 1..=3 {
        queues.sent(Time(0), SERVER, 1, task(serial), measured(2.0));
    }
    queues.check();
    assert_eq!((queues.take_search_due(Time(0)), queues.take_search_due(Time(0))), (Ok(true), Ok(false)));
    assert_eq!(queues.with_surplus(Time(0)), [SERVER]);
    let (waiting, count) = queues.waiting(SERVER, Time(SECOND_NS));
    let last = MoveCandidate { task: task(3), wait_s: 3.0, running_s: 1.0, run_s: 2.0, model_s: 2.0 };
    assert_eq!((waiting[0], waiting[1].wait_s, count), (last, 1.0, 2));
    queues.remove(Time(SECOND_NS), task(1));
    queues.check();
    assert_eq!(queues.waiting(SERVER, Time(SECOND_NS)).0, [MoveCandidate { wait_s: 2.0, running_s: 2.0, ..last }]);
    queues.remove(Time(SECOND_NS), task(2));
    queues.remove(Time(SECOND_NS), task(3));
    assert_eq!((queues.len(), queues.servers.len()), (0, 0));
}

#[test]
fn a_task_waits_for_its_data_and_then_for_a_slot() {
    let mut queues = Queues::default();
    queues.sent(Time(0), SERVER, 1, task(1), measured(2.0));
    queues.wait_for(Time(0), WaitReason::Data, SERVER, 1, task(2));
    queues.check();
    assert_eq!((queues.len(), queues.idle_slots(SERVER, 3, 0)), (2, 1));
    assert!(queues.waiting(SERVER, Time(0)).0.is_empty() && queues.waits_for_data(task(2), SERVER));
    queues.sent(Time(0), SERVER, 1, task(2), measured(1.0));
    queues.check();
    assert_eq!(queues.waiting(SERVER, Time(0)).0[0].wait_s, 2.0);
    queues.wait_for(Time(0), WaitReason::Results, SERVER, 1, task(3));
    assert!(queues.has_planned(SERVER));
    for serial in 1..=3 {
        queues.remove(Time(0), task(serial));
    }
    queues.check();
    assert_eq!((queues.len(), queues.servers.len()), (0, 0));
}

#[test]
fn a_server_knows_better_what_runs() {
    let mut queues = Queues::default();
    for serial in 1..=3 {
        queues.sent(Time(0), SERVER, 1, task(serial), measured(1.0));
    }
    queues.begun(Time(SECOND_NS), SERVER, task(3), SECOND_NS / 2);
    queues.check();
    let waiting: Vec<TaskId> = queues.waiting(SERVER, Time(SECOND_NS)).0.iter().map(|one| one.task).collect();
    assert_eq!(waiting, [task(1), task(2)]);
    queues.begun(Time(SECOND_NS), SERVER, task(3), SECOND_NS / 2);
    queues.remove(Time(SECOND_NS), task(3));
    queues.check();
    assert_eq!(queues.waiting(SERVER, Time(SECOND_NS)).1, 1);
}

#[test]
fn what_runs_longer_than_expected_is_expected_to_run_as_long_again() {
    let mut queues = Queues::default();
    let guessed = ExpectedRun { is_measured: false, ..measured(1e-6) };
    queues.sent(Time(0), SERVER, 1, task(1), guessed);
    queues.sent(Time(0), SERVER, 1, task(2), guessed);
    let (waiting, _) = queues.waiting(SERVER, Time(4 * SECOND_NS));
    assert_eq!(waiting, [MoveCandidate { task: task(2), wait_s: 4.0, running_s: 4.0, run_s: 4.0, model_s: 1e-6 }]);
}

#[test]
fn an_idle_server_is_promised_what_is_asked_back_for_it() {
    let (mut queues, idle) = (Queues::default(), NodeId(3));
    queues.sent(Time(0), SERVER, 1, task(1), measured(1.0));
    queues.sent(Time(0), SERVER, 1, task(2), measured(1.0));
    assert_eq!(queues.idle_slots(idle, 2, 0), 2);
    queues.recalled(SERVER, BTreeSet::from([task(2)]), idle);
    assert_eq!(queues.promised(), BTreeSet::from([idle]));
    assert!(queues.with_surplus(Time(0)).is_empty());
    assert_eq!((queues.answered(SERVER), queues.answered(SERVER)), (Some(idle), None));
    queues.others(Time(0), idle, 2, 1);
    assert_eq!(queues.idle_slots(idle, 2, 0), 1);
    queues.forget_server(SERVER);
    queues.check();
    assert_eq!((queues.len(), queues.servers.len()), (0, 1));
}

#[test]
fn tasks_of_others_keep_slots_until_the_server_reports_otherwise() {
    let mut queues = Queues::default();
    queues.sent(Time(0), SERVER, 2, task(1), measured(1.0));
    queues.sent(Time(0), SERVER, 2, task(2), measured(1.0));
    let now = Time(SECOND_NS / 2);
    queues.set_others_elapsed(now, SERVER, &[SECOND_NS / 4, SECOND_NS / 8, 1]);
    queues.check();
    let (waiting, count) = queues.waiting(SERVER, now);
    assert_eq!((count, waiting[0].task, waiting[0].wait_s), (2, task(2), (0.25 + 0.125 + 1.0) / 2.0));
    queues.begun(now, SERVER, task(1), SECOND_NS / 8);
    queues.check();
    assert_eq!(queues.waiting(SERVER, now).1, 1, "one of the others has ended");
    queues.set_others_elapsed(now, SERVER, &[]);
    queues.check();
    assert_eq!(queues.waiting(SERVER, now).1, 0);
    queues.others(now, SERVER, 2, 0);
    queues.remove(now, task(1));
    queues.remove(now, task(2));
    assert_eq!((queues.len(), queues.servers.len()), (0, 0));
}

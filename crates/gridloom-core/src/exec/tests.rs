//! Tests of how tasks wait, become ready, run and end.

use super::*;
use crate::graph::{Argument, CallOptions, Output, TaskKind};
use gridloom_base::Meta;

fn datum(serial: u64) -> DatumId {
    DatumId { client: NodeId(1), serial }
}

fn task(serial: u64, inputs: &[u64], output: u64) -> Arc<Task> {
    Arc::new(Task {
        id: TaskId { client: NodeId(1), serial },
        kind: TaskKind::call("m/f", 0),
        args: inputs.iter().map(|i| Argument::Datum(datum(*i))).collect(),
        outputs: vec![Output { datum: datum(output), meta: Meta::Bytes { size_bytes: 0 } }],
        work_flops: None,
        options: Default::default(),
    })
}

fn method(serial: u64, object: u64, inputs: &[u64]) -> Arc<Task> {
    let kind = TaskKind::method("m/c.f", ObjectId { client: NodeId(1), serial: object }, 0);
    Arc::new(Task { kind, outputs: vec![], ..(*task(serial, inputs, 0)).clone() })
}

fn admit_first(executor: &mut Executor, is_here: impl Fn(DatumId) -> bool) {
    let first = executor.first_held().expect("one is held").task.id;
    executor.admit(first, is_here);
}

#[test]
fn methods_of_an_object_run_one_at_a_time_in_order() {
    let id = |serial| TaskId { client: NodeId(1), serial };
    let mut executor = Executor::new(4);
    // The first method waits for an input. A method of another object overtakes it, one of its own object does not.
    for task in [method(1, 7, &[10]), method(2, 7, &[]), method(3, 8, &[]), method(4, 7, &[])] {
        executor.add(task, &"user".into(), true);
        admit_first(&mut executor, |_| false);
    }
    assert_eq!(executor.next_start(|_| 1).unwrap().id, id(3));
    assert!(executor.next_start(|_| 1).is_none());
    executor.datum_arrived(datum(10));
    assert_eq!(executor.next_start(|_| 1).unwrap().id, id(1));
    assert!(executor.next_start(|_| 1).is_none());
    // Removing a method from the middle does not affect those behind it.
    executor.remove(id(2));
    assert!(executor.next_start(|_| 1).is_none());
    executor.remove(id(1));
    assert_eq!(executor.next_start(|_| 1).unwrap().id, id(4));
    executor.remove(id(4));
    executor.remove(id(3));
    assert!(executor.is_empty() && executor.check().is_ok());
}

fn gang(serial: u64, gang: u32) -> Arc<Task> {
    Arc::new(Task {
        options: CallOptions { gang, ..CallOptions::default() },
        ..(*task(serial, &[], 20 + serial)).clone()
    })
}

#[test]
fn a_gang_takes_all_its_slots_or_none_and_keeps_them_while_it_asks() {
    let id = |serial| TaskId { client: NodeId(1), serial };
    assert!(
        gang(2, 3).is_unpredictable() && !task(1, &[], 21).is_unpredictable(),
        "its time has the wait for other servers"
    );
    let mut executor = Executor::new(3);
    for task in [task(1, &[], 21), gang(2, 3), gang(3, 2), task(4, &[], 24), task(5, &[], 25)] {
        executor.add(task, &"user".into(), true);
        admit_first(&mut executor, |_| true);
    }
    // Short calls may be queued in a worker. A gang never is, and nothing overtakes it.
    assert_eq!(executor.next_start(|_| 9).unwrap().id, id(1));
    assert!(executor.next_start(|_| 9).is_none());
    executor.remove(id(1));
    assert_eq!(executor.next_start(|_| 9).unwrap().id, id(2));
    executor.begin_callback_wait(id(2));
    assert!(executor.next_start(|_| 9).is_none(), "it keeps its slots");
    executor.end_callback_wait(id(2));
    executor.check().unwrap();
    executor.remove(id(2));
    assert_eq!(executor.next_start(|_| 9).unwrap().id, id(3));
    assert_eq!(executor.next_start(|_| 9).unwrap().id, id(4));
    assert!(executor.next_start(|_| 9).is_none(), "two slots are the gang's, and one the other's");
    executor.check().unwrap();
    executor.remove(id(3));
    assert_eq!(executor.next_start(|_| 9).unwrap().id, id(5));
    executor.remove(id(4));
    executor.remove(id(5));
    assert!(executor.is_empty() && executor.check().is_ok());
}

#[test]
fn a_gang_does_not_wait_for_those_that_ask() {
    let id = |serial| TaskId { client: NodeId(1), serial };
    let mut executor = Executor::new(2);
    for serial in [1, 2, 3] {
        executor.add(task(serial, &[], 20 + serial), &"user".into(), true);
        admit_first(&mut executor, |_| true);
        assert_eq!(executor.next_start(|_| 1).unwrap().id, id(serial));
        executor.begin_callback_wait(id(serial));
    }
    // The fourth task is needed for an answer.
    for task in [gang(4, 2), task(5, &[], 25)] {
        executor.add(task, &"user".into(), true);
        admit_first(&mut executor, |_| true);
    }
    assert_eq!(executor.next_start(|_| 1).unwrap().id, id(4));
    assert!(executor.next_start(|_| 1).is_none(), "all slots are the gang's");
    executor.remove(id(4));
    assert_eq!(executor.next_start(|_| 1).unwrap().id, id(5));
    executor.check().unwrap();
}

#[test]
fn no_short_call_is_queued_behind_a_gang_of_one() {
    let id = |serial| TaskId { client: NodeId(1), serial };
    let mut executor = Executor::new(2);
    for task in [gang(1, 1), task(2, &[], 22), task(3, &[], 23)] {
        executor.add(task, &"user".into(), true);
        admit_first(&mut executor, |_| true);
    }
    assert_eq!(executor.next_start(|_| 9).unwrap().id, id(1));
    assert_eq!(executor.next_start(|_| 9).unwrap().id, id(2));
    assert!(executor.next_start(|_| 9).is_none(), "one slot is the gang's, and one the other's");
    executor.check().unwrap();
    executor.remove(id(1));
    assert_eq!(executor.next_start(|_| 9).unwrap().id, id(3));
    executor.check().unwrap();
}

#[test]
fn who_waits_for_its_program_keeps_no_slot_from_others() {
    let id = |serial| TaskId { client: NodeId(1), serial };
    let mut executor = Executor::new(1);
    for task in [task(1, &[], 20), task(2, &[], 21), task(3, &[], 22)] {
        executor.add(task, &"user".into(), true);
        admit_first(&mut executor, |_| true);
    }
    executor.begin_callback_wait(id(1)); // Ignored: the task is not running yet.
    assert_eq!(executor.next_start(|_| 1).unwrap().id, id(1));
    assert!(executor.next_start(|_| 1).is_none());
    executor.begin_callback_wait(id(1));
    assert_eq!(executor.next_start(|_| 1).unwrap().id, id(2));
    assert!(executor.next_start(|_| 1).is_none());
    executor.end_callback_wait(id(1));
    executor.remove(id(2));
    assert!(executor.next_start(|_| 1).is_none(), "the first runs again");
    executor.begin_callback_wait(id(1));
    assert_eq!(executor.next_start(|_| 1).unwrap().id, id(3));
    executor.add(task(4, &[], 23), &"user".into(), true);
    admit_first(&mut executor, |_| true);
    executor.begin_callback_wait(id(3));
    assert!(executor.next_start(|_| 1).is_none(), "as many as there are slots leave theirs");
    executor.remove(id(1));
    assert_eq!(executor.next_start(|_| 1).unwrap().id, id(4));
    executor.remove(id(3));
    assert!(executor.next_start(|_| 1).is_none() && executor.asking() == 0);
}

#[test]
fn tasks_that_wait_for_their_own_calls_all_leave_their_slots_and_nested_calls_go_first() {
    let id = |serial| TaskId { client: NodeId(1), serial };
    let mut executor = Executor::new(1);
    let add = |executor: &mut Executor, serial: u64, depth: u16| {
        executor.add(
            Arc::new(Task {
                options: CallOptions { depth, ..CallOptions::default() },
                ..(*task(serial, &[], 20 + serial)).clone()
            }),
            &"user".into(),
            true,
        );
        admit_first(executor, |_| true);
    };
    (1..=3).for_each(|serial| add(&mut executor, serial, 0));
    assert_eq!(executor.next_start(|_| 1).unwrap().id, id(1));
    executor.begin_calling(id(2)); // Ignored: the task is not running yet.
    executor.begin_calling(id(1));
    add(&mut executor, 4, 1);
    add(&mut executor, 5, 2);
    assert_eq!(executor.next_start(|_| 1).unwrap().id, id(5), "the deepest call runs first");
    executor.begin_calling(id(5));
    assert_eq!(executor.next_start(|_| 1).unwrap().id, id(4), "two have left the one slot");
    executor.begin_calling(id(4));
    assert_eq!(executor.next_start(|_| 1).unwrap().id, id(2));
    assert_eq!((executor.paused(), executor.check()), (3, Ok(())));
    executor.end_calling(id(4));
    executor.remove(id(4));
    assert!(executor.next_start(|_| 1).is_none(), "the second runs");
    executor.remove(id(2));
    // A task that ends while it is marked as waiting leaves no state behind.
    executor.remove(id(5));
    executor.remove(id(1));
    assert_eq!(executor.next_start(|_| 1).unwrap().id, id(3));
    executor.remove(id(3));
    assert!(executor.is_empty() && executor.check().is_ok());
}

#[test]
fn methods_do_not_queue_behind_short_calls() {
    let mut executor = Executor::new(1);
    for task in [task(1, &[], 20), method(2, 7, &[]), task(3, &[], 21)] {
        executor.add(task, &"user".into(), true);
        admit_first(&mut executor, |_| true);
    }
    assert_eq!(executor.next_start(|_| 8).unwrap().id.serial, 1);
    assert!(executor.next_start(|_| 8).is_none());
    executor.remove(TaskId { client: NodeId(1), serial: 1 });
    assert_eq!(executor.next_start(|_| 8).unwrap().id.serial, 2);
}

#[test]
fn methods_release_their_slot_to_those_that_they_wait_for() {
    let id = |serial| TaskId { client: NodeId(1), serial };
    let mut executor = Executor::new(1);
    for task in [method(1, 7, &[10]), method(2, 7, &[])] {
        executor.add(task, &"user".into(), true);
        admit_first(&mut executor, |_| false);
    }
    assert_eq!(executor.waiting(true), []);
    executor.put_back(id(1));
    assert_eq!(executor.waiting(true), [id(2)]);
    executor.put_back(id(2));
    admit_first(&mut executor, |_| true);
    admit_first(&mut executor, |_| true);
    assert_eq!(executor.next_start(|_| 2).unwrap().id, id(1));
    assert!(executor.next_start(|_| 2).is_none());
}

#[test]
fn a_task_runs_when_its_last_input_is_here_and_a_slot_is_free() {
    let mut executor = Executor::new(1);
    executor.add(task(1, &[10, 11, 10], 20), &"user".into(), false);
    executor.add(task(2, &[], 21), &"user".into(), false);
    admit_first(&mut executor, |_| false);
    admit_first(&mut executor, |_| false);
    assert_eq!(executor.next_start(|_| 1).unwrap().id.serial, 2);
    executor.datum_arrived(datum(10));
    executor.datum_arrived(datum(11));
    assert!(executor.next_start(|_| 1).is_none());
    executor.remove(TaskId { client: NodeId(1), serial: 2 });
    assert_eq!(executor.next_start(|_| 1).unwrap().id.serial, 1);
}

#[test]
fn earlier_tasks_start_first_and_short_ones_may_queue() {
    let mut executor = Executor::new(1);
    for serial in 1..=3 {
        executor.add(task(serial, &[], serial), &"user".into(), false);
        admit_first(&mut executor, |_| true);
    }
    assert_eq!(executor.next_start(|_| 2).unwrap().id.serial, 1);
    assert_eq!(executor.next_start(|_| 2).unwrap().id.serial, 2);
    assert!(executor.next_start(|_| 2).is_none());
}

#[test]
fn a_cancelled_waiter_is_forgotten() {
    let mut executor = Executor::new(1);
    executor.add(task(1, &[10], 20), &"user".into(), false);
    admit_first(&mut executor, |_| false);
    assert!(executor.waits_for(datum(10)));
    executor.remove(TaskId { client: NodeId(1), serial: 1 });
    assert!(!executor.waits_for(datum(10)));
    executor.datum_arrived(datum(10));
    assert!(executor.is_empty());
}

#[test]
fn short_calls_of_different_users_do_not_queue_in_one_worker() {
    let id = |serial| TaskId { client: NodeId(1), serial };
    let sent =
        |serial| Arc::new(Task { kind: TaskKind::call("python/run", 0), ..(*task(serial, &[], 20 + serial)).clone() });
    let started = |executor: &mut Executor| {
        let started =
            std::iter::from_fn(|| executor.next_start(|_| 9)).map(|task| task.id.serial).collect::<Vec<u64>>();
        executor.check().unwrap();
        started
    };
    for (make, queues) in
        [(&sent as &dyn Fn(u64) -> Arc<Task>, false), (&|serial| task(serial, &[], 20 + serial), true)]
    {
        let mut executor = Executor::new(1);
        for (serial, user) in [(1, "anna"), (2, "anna"), (3, "bert")] {
            executor.add(make(serial), &user.into(), true);
            admit_first(&mut executor, |_| true);
        }
        // The users take turns.
        let first = started(&mut executor);
        assert_eq!(first, if queues { vec![1, 3, 2] } else { vec![1] });
        if !queues {
            executor.remove(id(1));
            assert_eq!(started(&mut executor), [3]);
            executor.remove(id(3));
            executor.add(make(4), &"anna".into(), true);
            admit_first(&mut executor, |_| true);
            assert_eq!(started(&mut executor), [2, 4], "those of one user do");
        }
    }
}

#[test]
fn a_short_call_does_not_queue_where_the_workers_have_run_code_of_another_user() {
    let id = |serial| TaskId { client: NodeId(1), serial };
    let mut executor = Executor::new(1);
    let sent = Task { kind: TaskKind::call("python/run", 0), ..(*task(1, &[], 21)).clone() };
    let add = |executor: &mut Executor, task: Arc<Task>, user: &str| {
        executor.add(task, &user.into(), true);
        admit_first(executor, |_| true);
    };
    add(&mut executor, Arc::new(sent), "anna");
    assert_eq!(executor.next_start(|_| 9).unwrap().id, id(1));
    executor.remove(id(1));
    // The worker of Anna's code is still there, and runs her other calls.
    for (serial, user) in [(2, "anna"), (3, "bert"), (4, "anna")] {
        add(&mut executor, task(serial, &[], 20 + serial), user);
    }
    assert_eq!(executor.next_start(|_| 9).unwrap().id, id(2));
    assert_eq!(executor.next_start(|_| 9), None);
    // A task that waits for an answer keeps its worker.
    executor.begin_callback_wait(id(2));
    assert_eq!(executor.next_start(|_| 9).unwrap().id, id(3));
    executor.remove(id(3));
    assert_eq!(executor.next_start(|_| 9).unwrap().id, id(4), "that of its own user");
    executor.end_callback_wait(id(2));
    executor.check().unwrap();
}

#[test]
fn a_short_call_does_not_queue_behind_one_of_another_user_that_waits_for_an_answer() {
    let id = |serial| TaskId { client: NodeId(1), serial };
    let mut executor = Executor::new(1).with_separation(Separation::AllFunctions);
    for (serial, user) in [(1, "anna"), (2, "bert"), (3, "bert")] {
        executor.add(task(serial, &[], 20 + serial), &user.into(), true);
        admit_first(&mut executor, |_| true);
    }
    assert_eq!(executor.next_start(|_| 9).unwrap().id, id(1));
    executor.begin_callback_wait(id(1));
    assert_eq!(executor.next_start(|_| 9).unwrap().id, id(2));
    assert_eq!(executor.next_start(|_| 9), None);
    executor.remove(id(1));
    assert_eq!(executor.next_start(|_| 9).unwrap().id, id(3));
    executor.check().unwrap();
}

#[test]
fn tasks_that_wait_are_ordered_by_their_admission_and_not_by_their_arrival() {
    let id = |serial| TaskId { client: NodeId(1), serial };
    let with = |serial: u64, number: i32| {
        let options = CallOptions { priority: gridloom_base::Priority(number), ..CallOptions::default() };
        Arc::new(Task { options, ..(*task(serial, &[50 + serial], 20 + serial)).clone() })
    };
    let mut executor = Executor::new(1);
    for task in [with(1, 3), with(2, 0), with(3, -1)] {
        executor.add(task, &"user".into(), true);
    }
    let admissions = [3, 2, 1].map(|serial| {
        assert_eq!(executor.first_held().unwrap().task.id, id(serial));
        admit_first(&mut executor, |_| false);
        id(serial)
    });
    assert_eq!(executor.tasks().map(|entry| entry.task.id).collect::<Vec<_>>(), admissions);
    assert_eq!(executor.waiting_for(datum(53)), (vec![id(3)], vec![id(1), id(2)]));
    assert_eq!(executor.waiting_for(datum(52)), (vec![id(2)], vec![id(1)]));
    assert_eq!(executor.waiting_for(datum(51)), (vec![id(1)], vec![]));
    // A held task is listed last, whatever its number.
    executor.put_back(id(3));
    assert_eq!(executor.tasks().last().unwrap().task.id, id(3));
    admit_first(&mut executor, |_| false);
    assert_eq!(executor.waiting_for(datum(53)), (vec![id(3)], vec![]));
}

/// Earlier, each start walked over all ready tasks while slots were lent.
#[test]
fn nested_calls_start_at_once_beside_many_tasks_that_may_not_have_lent_slots() {
    const TASKS: u64 = 30_000;
    let mut executor = Executor::new(2);
    executor.add(gang(1, 2), &"user".into(), true);
    admit_first(&mut executor, |_| true);
    let first = executor.next_start(|_| 1).unwrap().id;
    executor.begin_calling(first);
    let of = |serial: u64, client: u64| {
        let id = TaskId { client: NodeId(client), serial };
        Arc::new(Task { id, outputs: Vec::new(), ..(*task(serial, &[], 0)).clone() })
    };
    // Each start takes a turn of many programs.
    for serial in 2..TASKS {
        executor.add(of(serial, serial), &"user".into(), true);
    }
    for serial in TASKS..TASKS + 1000 {
        executor.add(nested(of(serial, 1)), &"user".into(), true);
    }
    while executor.first_held().is_some() {
        admit_first(&mut executor, |_| true);
    }
    for _ in 0..1000 {
        let id = executor.next_start(|_| 1).expect("it has lent slots").id;
        assert!(id.serial >= TASKS, "{id}");
        executor.remove(id);
    }
    assert_eq!(executor.next_start(|_| 1), None);
    executor.check().unwrap();
}

/// Returns rules that allow each user that many slots.
fn slots_allowed(slots: u64) -> Arc<Rules> {
    let everybody =
        gridloom_base::RulesSection { slots: Some(gridloom_base::Quota::Amount(slots)), ..Default::default() };
    Arc::new(Rules { everybody, ..Rules::default() })
}

#[test]
fn a_task_beyond_its_users_slots_waits_and_tasks_of_others_pass_it() {
    let id = |serial| TaskId { client: NodeId(1), serial };
    let mut executor = Executor::new(4);
    executor.set_rules(slots_allowed(2));
    let users = [(1, "anna"), (2, "anna"), (3, "anna"), (4, "bert"), (5, "anna")];
    for (serial, user) in users {
        executor.add(task(serial, &[], 20 + serial), &user.into(), true);
        admit_first(&mut executor, |_| true);
    }
    let mut started: Vec<u64> = std::iter::from_fn(|| executor.next_start(|_| 9)).map(|task| task.id.serial).collect();
    started.sort_unstable();
    assert_eq!(started, [1, 2, 4], "short calls do not queue beyond the slots either");
    assert_eq!((executor.slots_of("anna"), executor.waiting_of("anna")), (2, 2));
    executor.remove(id(4));
    assert!(executor.next_start(|_| 9).is_none());
    executor.remove(id(1));
    assert_eq!(executor.next_start(|_| 9).unwrap().id, id(3));
    executor.check().unwrap();
    executor.set_rules(Arc::default());
    assert_eq!(executor.next_start(|_| 9).unwrap().id, id(5));
    executor.check().unwrap();
}

#[test]
fn calls_of_a_paused_task_start_within_its_users_slots() {
    let id = |serial| TaskId { client: NodeId(1), serial };
    let mut executor = Executor::new(4);
    executor.set_rules(slots_allowed(1));
    let nested = |serial, depth| {
        let options = CallOptions { depth, ..CallOptions::default() };
        Arc::new(Task { options, ..(*task(serial, &[], 20 + serial)).clone() })
    };
    for (serial, depth) in [(1, 0), (2, 0), (3, 1), (4, 2)] {
        executor.add(nested(serial, depth), &"anna".into(), true);
        if serial == 1 {
            admit_first(&mut executor, |_| true);
            assert_eq!(executor.next_start(|_| 1).unwrap().id, id(1));
        }
    }
    while executor.first_held().is_some() {
        admit_first(&mut executor, |_| true);
    }
    // Each call waits for the next deeper one.
    for deeper in [4, 3] {
        assert!(executor.next_start(|_| 1).is_none());
        executor.begin_calling(id(if deeper == 4 { 1 } else { 4 }));
        assert_eq!(executor.next_start(|_| 1).unwrap().id, id(deeper));
        executor.check().unwrap();
    }
    executor.remove(id(3));
    executor.end_calling(id(4));
    executor.end_calling(id(1));
    // Both run until one ends. Nothing new starts.
    assert!(executor.next_start(|_| 1).is_none());
    executor.remove(id(4));
    assert!(executor.next_start(|_| 1).is_none());
    executor.remove(id(1));
    assert_eq!(executor.next_start(|_| 1).unwrap().id, id(2));
    executor.check().unwrap();
}

#[test]
fn a_gang_waits_for_the_slots_of_its_user_and_is_not_passed_by_them() {
    let id = |serial| TaskId { client: NodeId(1), serial };
    let mut executor = Executor::new(4);
    executor.set_rules(slots_allowed(2));
    for (task, user) in
        [(task(1, &[], 21), "anna"), (gang(2, 2), "anna"), (task(3, &[], 23), "anna"), (gang(4, 2), "bert")]
    {
        executor.add(task, &user.into(), true);
        admit_first(&mut executor, |_| true);
    }
    let started: BTreeSet<TaskId> = std::iter::from_fn(|| executor.next_start(|_| 1)).map(|task| task.id).collect();
    assert_eq!(started, BTreeSet::from([id(1), id(4)]));
    executor.remove(id(1));
    assert_eq!(executor.next_start(|_| 1).unwrap().id, id(2));
    executor.begin_callback_wait(id(2));
    assert!(executor.next_start(|_| 1).is_none(), "it keeps its slots");
    executor.remove(id(2));
    assert_eq!(executor.next_start(|_| 1).unwrap().id, id(3));
    executor.check().unwrap();
}

/// Options of a call that a function makes.
fn nested(task: Arc<Task>) -> Arc<Task> {
    Arc::new(Task { options: CallOptions { depth: 1, ..task.options.clone() }, ..(*task).clone() })
}

#[test]
fn a_gang_that_waits_for_its_calls_lends_its_slots_to_nested_calls_only() {
    let id = |serial| TaskId { client: NodeId(1), serial };
    let mut executor = Executor::new(3);
    executor.add(gang(1, 3), &"user".into(), true);
    admit_first(&mut executor, |_| true);
    assert_eq!(executor.next_start(|_| 1).unwrap().id, id(1));
    for task in [task(2, &[], 22), nested(task(3, &[], 23)), nested(gang(4, 3))] {
        executor.add(task, &"user".into(), true);
        admit_first(&mut executor, |_| true);
    }
    assert!(executor.next_start(|_| 1).is_none());
    executor.begin_calling(id(1));
    executor.check().unwrap();
    assert_eq!((executor.running(), executor.paused(), executor.is_busy()), (0, 1, true));
    assert_eq!(executor.next_start(|_| 9).unwrap().id, id(3));
    assert!(
        executor.next_start(|_| 9).is_none(),
        "the nested gang needs all slots, and the other task may not have one"
    );
    executor.remove(id(3));
    assert_eq!(executor.next_start(|_| 9).unwrap().id, id(4));
    // The first one resumes, with more slots in use than there are.
    executor.end_calling(id(1));
    executor.check().unwrap();
    executor.remove(id(4));
    assert!(executor.next_start(|_| 9).is_none());
    executor.remove(id(1));
    assert_eq!(executor.next_start(|_| 9).unwrap().id, id(2));
    executor.remove(id(2));
    assert!(executor.is_empty() && executor.check().is_ok());
}

#[test]
fn nested_calls_are_found_behind_those_that_may_not_have_lent_slots() {
    let id = |client, serial| TaskId { client: NodeId(client), serial };
    let of = |client, serial| {
        let task = task(serial, &[], 20 + serial);
        Arc::new(Task { id: id(client, serial), outputs: Vec::new(), ..(*task).clone() })
    };
    let mut executor = Executor::new(2);
    executor.add(gang(1, 2), &"anna".into(), true);
    admit_first(&mut executor, |_| true);
    assert_eq!(executor.next_start(|_| 1).unwrap().id, id(1, 1));
    executor.begin_calling(id(1, 1));
    // Other users and other programs of the user are first in the order of turns.
    for client in 2..6 {
        let user = if client == 2 { "anna" } else { "bert" };
        executor.add(of(client, 7), &user.into(), true);
    }
    executor.add(nested(of(1, 8)), &"anna".into(), true);
    while executor.first_held().is_some() {
        admit_first(&mut executor, |_| true);
    }
    assert_eq!(executor.next_start(|_| 1).unwrap().id, id(1, 8));
    assert!(executor.next_start(|_| 1).is_none());
    executor.check().unwrap();
}

#[test]
fn a_task_that_is_put_back_is_behind_those_of_every_priority_and_keeps_its_own() {
    let id = |serial| TaskId { client: NodeId(1), serial };
    let with = |serial: u64, inputs: &[u64], number: i32| {
        let options = CallOptions { priority: gridloom_base::Priority(number), ..CallOptions::default() };
        Arc::new(Task { options, ..(*task(serial, inputs, 20 + serial)).clone() })
    };
    let mut executor = Executor::new(1);
    executor.add(with(1, &[50], -5), &"user".into(), true);
    admit_first(&mut executor, |_| false);
    for task in [with(2, &[], 3), with(3, &[], 0)] {
        executor.add(task, &"user".into(), true);
    }
    executor.put_back(id(1));
    let order: Vec<TaskId> = executor.held().map(|entry| entry.task.id).collect();
    assert_eq!(order, [id(3), id(2), id(1)]);
    while executor.first_held().is_some() {
        admit_first(&mut executor, |_| true);
    }
    // Among those that can run, its own priority counts.
    for serial in [1, 3, 2] {
        assert_eq!(executor.next_start(|_| 1).unwrap().id, id(serial));
        executor.remove(id(serial));
    }
}

use super::*;
use crate::graph::{Task, TaskKind};

fn id(serial: u64) -> TaskId {
    TaskId { client: NodeId(1), serial }
}

fn request(serial: u64, deadline: Option<Time>) -> Request {
    let kind = TaskKind::call("m/f", 0);
    let (args, outputs) = (Vec::new(), Vec::new());
    let task = Task { id: id(serial), kind, args, outputs, work_flops: None, options: Default::default() };
    Request { deadline, ..Request::new(Time(0), task, Vec::new(), None.into()) }
}

fn with_calls(serials: impl IntoIterator<Item = u64>) -> Backlog {
    let mut backlog = Backlog::default();
    serials.into_iter().for_each(|serial| backlog.add(request(serial, None), false));
    backlog
}

/// Sends all calls that can be sent to servers with that many slots, and returns their serial numbers.
fn sent(backlog: &mut Backlog, now: Time, slots: usize) -> Vec<u64> {
    let next = || backlog.take_next(now, |_| Target::Any { slots }).map(|request| request.task.id.serial);
    let all = std::iter::from_fn(next).collect();
    backlog.check();
    all
}

#[test]
fn as_many_calls_are_sent_as_there_are_slots() {
    let mut backlog = with_calls(1..=5);
    assert_eq!(sent(&mut backlog, Time(0), 2), [1, 2]);
    assert!(sent(&mut backlog, Time(0), 2).is_empty());
    backlog.ended(Time(SECOND_NS), id(1));
    assert_eq!(sent(&mut backlog, Time(SECOND_NS), 2), [3]);
    // A call that waits for others occupies no slot. When it resumes, it occupies one again.
    backlog.paused(id(2), true);
    assert_eq!(sent(&mut backlog, Time(SECOND_NS), 2), [4]);
    backlog.paused(id(2), false);
    backlog.ended(Time(2 * SECOND_NS), id(3));
    assert!(sent(&mut backlog, Time(2 * SECOND_NS), 2).is_empty());
    backlog.ended(Time(2 * SECOND_NS), id(2));
    assert_eq!(sent(&mut backlog, Time(2 * SECOND_NS), 2), [5]);
    assert_eq!(backlog.len(), (0, 2));
}

#[test]
fn a_refused_call_is_sent_again_when_another_has_ended_or_after_a_heartbeat() {
    let mut backlog = with_calls(1..=4);
    assert_eq!(sent(&mut backlog, Time(0), 2), [1, 2]);
    assert!(backlog.take_back(request(2, None)).is_ok() && backlog.take_back(request(9, None)).is_err());
    assert!(sent(&mut backlog, Time(0), 2).is_empty(), "its user has too many calls at the server");
    backlog.ended(Time(SECOND_NS), id(1));
    assert_eq!(sent(&mut backlog, Time(SECOND_NS), 2), [2, 3]);
    assert!(backlog.was_refused(id(2)) && !backlog.was_refused(id(2)) && !backlog.was_refused(id(3)));
    for serial in [3, 2] {
        assert!(backlog.take_back(request(serial, None)).is_ok());
    }
    assert!(sent(&mut backlog, Time(SECOND_NS), 2).is_empty());
    backlog.resume();
    assert_eq!(sent(&mut backlog, Time(SECOND_NS), 1), [2]);
    // One that is cancelled meanwhile is forgotten.
    assert!(backlog.take(id(3)).is_some() && !backlog.was_refused(id(3)));
    assert_eq!(backlog.len(), (1, 1));
}

#[test]
fn one_call_is_sent_where_no_server_has_a_slot() {
    assert_eq!(sent(&mut with_calls(1..=2), Time(0), 0), [1]);
}

#[test]
fn more_short_calls_are_sent_than_there_are_slots() {
    let mut backlog = with_calls(1..=60);
    let mut now = Time(0);
    for serial in 1..=40 {
        assert!(!sent(&mut backlog, now, 1).is_empty() || serial > 1);
        now = now + MILLISECOND_NS / 10;
        backlog.ended(now, id(serial));
    }
    assert_eq!(backlog.len().1, 2, "two wait at the server behind the one that has ended");
    assert_eq!(sent(&mut backlog, now, 1).len(), 1);
    // After a pause, nothing is known about the next calls.
    for serial in 41..=43 {
        backlog.ended(now, id(serial));
    }
    assert_eq!(sent(&mut backlog, now + RECENT_NS, 1).len(), 1);
}

#[test]
fn a_call_for_a_busy_server_is_overtaken() {
    let mut backlog = with_calls(1..=3);
    let target = |request: &Request| match request.task.id.serial {
        1 | 2 => Target::Only { server: NodeId(7), slots: 1 },
        _ => Target::Any { slots: 4 },
    };
    let next = |backlog: &mut Backlog| backlog.take_next(Time(0), target).map(|request| request.task.id.serial);
    assert_eq!([next(&mut backlog), next(&mut backlog), next(&mut backlog)], [Some(1), Some(3), None]);
    backlog.ended(Time(SECOND_NS), id(1));
    assert_eq!(next(&mut backlog), Some(2));
    backlog.check();
}

#[test]
fn calls_are_held_back_and_sent_in_order_later() {
    let mut backlog = with_calls(1..=6);
    backlog.hold(&[id(2), id(3), id(4)], true);
    assert_eq!(sent(&mut backlog, Time(0), 2), [1, 5]);
    backlog.hold(&[id(2), id(3)], false);
    assert!(backlog.take(id(4)).is_some() && backlog.take(id(4)).is_none(), "a held call can be cancelled");
    // A call that was sent cannot be held.
    backlog.hold(&[id(1)], true);
    assert_eq!(sent(&mut backlog, Time(0), 5), [2, 3, 6]);
    assert_eq!(backlog.len(), (0, 5));
}

#[test]
fn a_call_that_goes_first_overtakes_the_others() {
    let mut backlog = with_calls(1..=2);
    backlog.add(request(9, None), true);
    assert_eq!(sent(&mut backlog, Time(0), 3), [9, 1, 2]);
}

#[test]
fn limits_expire_in_the_backlog() {
    let mut backlog = Backlog::default();
    backlog.add(request(1, Some(Time(20))), false);
    backlog.add(request(2, Some(Time(10))), false);
    backlog.hold(&[id(2)], true);
    assert_eq!(backlog.next_deadline(), Some(Time(10)));
    assert_eq!(backlog.take_expired(Time(10)).len(), 1);
    assert_eq!(sent(&mut backlog, Time(11), 1), [1]);
    assert_eq!(backlog.next_deadline(), None);
}

#[test]
fn calls_of_a_higher_priority_are_sent_first() {
    let with_priority = |serial, number| {
        let mut request = request(serial, None);
        std::sync::Arc::make_mut(&mut request.task).options.priority = Priority(number);
        request
    };
    let mut backlog = Backlog::default();
    for (serial, number) in [(1, 0), (2, 5), (3, -1), (4, 0), (5, -1)] {
        backlog.add(with_priority(serial, number), false);
    }
    backlog.add(with_priority(6, 0), true);
    assert_eq!(sent(&mut backlog, Time(0), 4), [3, 5, 6, 1]);
    // A refused call is the next one of its priority.
    assert!(backlog.take_back(with_priority(6, 0)).is_ok());
    backlog.resume();
    assert_eq!(sent(&mut backlog, Time(0), 6), [6, 4, 2]);
}

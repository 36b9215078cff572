//! Tests that the simulated world keeps each promise of the world's contract (`gridloom_core::node::protocol`).
//! Scripted machines perform actions at given times and record what they receive.

use crate::scripted;
use crate::scripted::*;
use gridloom_base::{Meta, Origin, TaskError, Time};
use gridloom_core::node::version::VERSIONS;
use gridloom_core::node::{Effect, Input, Role, Timer};

#[test]
fn promise_1_time_never_goes_back_and_starts_with_start() {
    let mut grid = Grid::new();
    let b = grid.node("b", vec![]);
    let a = grid.node("a", vec![(0, dial("b", b)), (5, ping(b, 1)), (5, ping(b, 2))]);
    grid.run();
    for node in [a, b] {
        let heard = grid.heard(node);
        assert_eq!(heard[0], (Time::ZERO, Input::Start));
        assert!(heard.is_sorted_by_key(|(at, _)| *at));
    }
}

#[test]
fn promise_2_messages_and_small_data_keep_their_order_and_large_data_may_be_overtaken() {
    let mut grid = Grid::new();
    let b = grid.node("b", vec![]);
    let a = grid.node(
        "a",
        vec![
            (0, dial("b", b)),
            (5, send_datum(b, datum(1))),
            (5, long_message(b)),
            (5, send_datum(b, datum(2))),
            (5, ping(b, 3)),
        ],
    );
    grid.put(a, datum(1), 100_000);
    grid.put(a, datum(2), 32 << 10);
    grid.run();
    let order: Vec<String> = grid.heard(b).iter().map(|(_, input)| short(input)).collect();
    assert_eq!(order, ["start", "up", "refused", "d2", "ping 3", "d1"]);
}

#[test]
fn promise_2_a_message_takes_its_latency_and_its_bytes() {
    let mut grid = Grid::new();
    let b = grid.node("b", vec![]);
    let a = grid.node("a", vec![(0, dial("b", b)), (5, send_datum(b, datum(1)))]);
    grid.put(a, datum(1), 10_000);
    grid.run();
    // 1 ms of latency, 10 064 bytes at 1 MB/s.
    assert_eq!(grid.when(b, "d1"), [ms(5) + ms(1) + 10_064_000]);
}

#[test]
fn promise_6_a_client_sends_its_own_data_alone() {
    for size_bytes in [100, 100_000] {
        let mut grid = Grid::new();
        let b = grid.node("b", vec![]);
        let other = datum(1);
        let a = grid.node_of(Role::Client, "a", vec![(0, dial("b", b)), (5, send_datum(b, other))]);
        grid.put(a, other, size_bytes);
        assert_ne!(other.client, a);
        grid.run();
        let heard: Vec<String> = grid.heard(b).iter().map(|(_, input)| short(input)).collect();
        assert!(!heard.iter().any(|input| input == "d1"), "{heard:?}");
        let lost = |input: &Input| matches!(input, Input::PeerLost { why, .. } if why.contains("another client's"));
        assert!(grid.heard(b).iter().any(|(_, input)| lost(input)), "{heard:?}");
    }
}

#[test]
fn promise_3_peer_up_comes_at_both_ends_after_a_round_trip_and_only_once() {
    let mut grid = Grid::new();
    let b = grid.node("b", vec![(0, dial("a", scripted::second()))]);
    let a = grid.node("a", vec![(0, dial("b", b)), (9, dial("b", b))]);
    grid.run();
    assert_eq!(grid.when(a, "up"), [ms(2)]);
    assert_eq!(grid.when(b, "up"), [ms(2)]);
    let up = |peer, name: &str, address: &str| {
        let (name, address) = (name.to_string(), address.to_string());
        let origin = Origin { host: name.clone(), ..Origin::default() };
        Input::PeerUp { peer, role: Role::Server, name, origin, address, version: VERSIONS.1 }
    };
    assert!(grid.heard(a).contains(&(Time(ms(2)), up(b, "b", "sim://b:1"))));
    assert!(grid.heard(b).contains(&(Time(ms(2)), up(a, "a", "sim://a:2"))));
}

#[test]
fn promise_3_a_dial_that_finds_nobody_fails() {
    let mut grid = Grid::new();
    let b = grid.node("b", vec![(1, exit())]);
    let hung = grid.node("b", vec![]);
    grid.sim.hang(hung);
    let nowhere = Effect::Dial { address: "sim://b:77".into() };
    let lonely = grid.node("island", vec![]);
    let script = vec![(3, dial("b", b)), (3, nowhere), (3, dial("island", lonely)), (3, dial("b", hung))];
    let a = grid.node("a", script);
    grid.run();
    assert_eq!(grid.when(a, "failed"), [ms(3), ms(3), ms(5), ms(5003)]);
}

#[test]
fn promise_3_a_peer_is_lost_after_its_last_message() {
    let mut grid = Grid::new();
    let b = grid.node("b", vec![]);
    let script = vec![(0, dial("b", b)), (5, long_message(b)), (5, ping(b, 1)), (5, hang_up(b)), (5, ping(b, 2))];
    let a = grid.node("a", script);
    grid.run();
    let order: Vec<String> = grid.heard(b).iter().map(|(_, input)| short(input)).collect();
    assert_eq!(order, ["start", "up", "refused", "ping 1", "lost"]);
    assert!(grid.when(a, "lost").is_empty(), "the node that hangs up is not notified");
}

#[test]
fn promise_3_a_peer_that_hung_up_can_dial_again() {
    let mut grid = Grid::new();
    let b = grid.node("b", vec![]);
    // The dial overtakes the notification, which is queued behind a message that takes 20 ms.
    let script = vec![(0, dial("b", b)), (5, long_message(b)), (5, hang_up(b)), (5, dial("b", b)), (9, ping(b, 1))];
    grid.node("a", script);
    grid.run();
    let order: Vec<String> = grid.heard(b).iter().map(|(_, input)| short(input)).collect();
    assert_eq!(order, ["start", "up", "lost", "up", "ping 1"]);
}

#[test]
fn promise_4_what_is_sent_to_a_peer_that_is_not_up_vanishes() {
    let mut grid = Grid::new();
    let b = grid.node("b", vec![]);
    let a = grid.node("a", vec![(0, ping(b, 1)), (0, send_datum(b, datum(1))), (0, send_datum(b, datum(2)))]);
    grid.put(a, datum(1), 10);
    grid.put(a, datum(2), 100_000);
    grid.run();
    assert_eq!(grid.heard(b).len(), 1);
}

#[test]
fn promise_5_a_task_ends_once_with_its_results_in_the_store() {
    let mut grid = Grid::new();
    let a = grid.node("a", vec![(1, start(1, 5e6)), (2, start(2, 5e6)), (3, stop(2)), (4, stop(2)), (20, stop(1))]);
    grid.run();
    let made = Ok(vec![(datum(101), Meta::Bytes { size_bytes: 8 })]);
    let ended = |serial, outcome, run_ns| Input::TaskEnded { task: task_id(serial), outcome, run_ns };
    let ends: Vec<(Time, Input)> =
        grid.heard(a).into_iter().filter(|(_, input)| matches!(input, Input::TaskEnded { .. })).collect();
    let expected = [
        (Time(ms(3)), ended(2, Err(TaskError::Cancelled), ms(1))),
        // Both tasks shared the one core of 1 Gflop/s for 1 ms.
        (Time(ms(1) + 5_500_000), ended(1, made, 5_500_000)),
    ];
    assert_eq!(ends, expected);
    assert_eq!(grid.sim.value(a, datum(101)), Some((Meta::Bytes { size_bytes: 8 }, None)));
    assert_eq!(grid.sim.value(a, datum(102)), None);
}

#[test]
fn promise_6_a_datum_is_in_the_store_when_it_arrives_and_is_not_replaced() {
    let mut grid = Grid::new();
    let b = grid.node("b", vec![]);
    let script = vec![(0, dial("b", b)), (5, send_datum(b, datum(1))), (5, send_datum(b, datum(2)))];
    let a = grid.node("a", script);
    let meta = Meta::Bytes { size_bytes: 2 };
    for serial in [1, 2] {
        grid.sim.put(a, datum(serial), meta.clone(), Some([1, 2].into()));
    }
    grid.sim.put(b, datum(2), meta.clone(), Some([7, 7].into()));
    grid.run();
    let bytes = |serial| grid.sim.value(b, datum(serial)).unwrap().1.unwrap().to_vec();
    assert_eq!((bytes(1), bytes(2)), (vec![1, 2], vec![7, 7]));
    assert_eq!((grid.when(b, "d1").len(), grid.when(b, "d2").len()), (1, 1));
}

#[test]
fn promise_7_timers_fire_once_when_due_unless_moved_or_cancelled() {
    let set = |timer, at| Effect::SetTimer { timer: Timer::Numbered(timer), at: Time(ms(at)) };
    let mut grid = Grid::new();
    let script = vec![
        (0, set(1, 10)),
        (0, set(2, 10)),
        (0, set(3, 10)),
        (1, set(2, 20)),
        (1, Effect::CancelTimer { timer: Timer::Numbered(3) }),
        (15, set(4, 3)),
    ];
    let a = grid.node("a", script);
    grid.run();
    assert_eq!(grid.when(a, "timer 1"), [ms(10)]);
    assert_eq!(grid.when(a, "timer 2"), [ms(20)]);
    assert!(grid.when(a, "timer 3").is_empty());
    assert_eq!(grid.when(a, "timer 4"), [ms(15)]);
}

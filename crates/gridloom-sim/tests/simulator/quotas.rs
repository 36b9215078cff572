//! Tests of quotas that the rules of a grid set: of disk, and of slots for calls that wait for calls of their own.

use gridloom_base::time::SECOND_NS;
use gridloom_base::{NameError, NodeId, Quota, Rules, RulesLink, RulesSection, TaskError, TaskId};
use gridloom_core::graph::CallOptions;
use gridloom_core::node::message::CatalogAnswer;
use gridloom_core::node::{Command, Event};

use crate::rules::{none, rules};
use crate::usage::{REPORTED_NS, administrator, query};
use crate::users::{Stage, user};

const MB: u64 = 1_000_000;

/// Functions of a stage.
const GETS: usize = 3;
const PUTS: usize = 4;

fn gang(gang: u32) -> CallOptions {
    CallOptions { gang, ..CallOptions::default() }
}

/// Options of a call that the calls of a program make.
fn nested(program: NodeId, gang: u32) -> CallOptions {
    CallOptions { depth: 1, program: Some(program), gang, ..CallOptions::default() }
}

/// Waits until all of these calls have ended, in virtual time.
fn await_ends(stage: &mut Stage, calls: &[TaskId]) {
    let mut left: Vec<TaskId> = calls.to_vec();
    for _ in 0..200 {
        stage.sim.advance(SECOND_NS);
        for client in calls.iter().map(|call| call.client) {
            while let Some(event) = stage.sim.take_event(client) {
                if let Event::TaskEnded { report, .. } = event {
                    assert_eq!(report.outcome.map(drop), Ok(()), "{}", report.task);
                    left.retain(|call| *call != report.task);
                }
            }
        }
        if left.is_empty() {
            return;
        }
    }
    let status = stage.status(calls[0].client);
    panic!("{left:?} have not ended: {:?}", status.tasks);
}

#[test]
fn a_gang_at_the_quota_of_its_user_gets_the_results_of_its_own_calls() {
    for (slots, quota, size) in [(4, Some(2), 2), (4, Some(3), 2), (2, None, 2), (8, Some(8), 8), (1, None, 1)] {
        let mut stage = Stage::with_slots(slots);
        let section = RulesSection { slots: quota.map(Quota::Amount), ..none() };
        stage.set_rules(rules(none(), [("anna", section)]));
        let (anna, bert) = (stage.program("train.py", user("anna")), stage.program("sweep", user("bert")));
        let waits = stage.call_with(anna, GETS, gang(size));
        stage.sim.advance(SECOND_NS);
        // Others, of both users, wait for slots, too, and were there first.
        let others: Vec<TaskId> = (0..8).flat_map(|_| [stage.call(anna, 0), stage.call(bert, 0)]).collect();
        stage.sim.advance(SECOND_NS);
        let nested = stage.call_with(anna, PUTS, nested(anna, 0));
        await_ends(&mut stage, &[&[waits, nested], &*others].concat());
    }
}

#[test]
fn gangs_of_two_users_do_not_wait_for_each_others_slots() {
    let mut stage = Stage::with_slots(4);
    let programs = ["anna", "bert"].map(|name| stage.program("train.py", user(name)));
    let mut calls: Vec<TaskId> = programs.map(|program| stage.call_with(program, GETS, gang(2))).to_vec();
    stage.sim.advance(SECOND_NS);
    // Each needs the slots of both waiting gangs.
    calls.extend(programs.map(|program| stage.call_with(program, PUTS, nested(program, 4))));
    await_ends(&mut stage, &calls);
}

#[test]
fn slots_of_a_waiting_gang_are_for_nested_calls_only() {
    let mut stage = Stage::with_slots(2);
    let (anna, bert) = (stage.program("train.py", user("anna")), stage.program("sweep", user("bert")));
    let waits = stage.call_with(anna, GETS, gang(2));
    stage.sim.advance(SECOND_NS);
    let other = stage.call(bert, 0);
    stage.sim.advance(20 * SECOND_NS);
    let status = stage.status(bert);
    let begun: Vec<TaskId> = status.tasks.iter().filter(|task| task.run_ns > 0).map(|task| task.task).collect();
    assert_eq!(begun, [waits]);
    let nested = stage.call_with(anna, PUTS, nested(anna, 0));
    await_ends(&mut stage, &[waits, nested, other]);
}

#[test]
fn a_call_that_needs_more_than_a_quota_fails_at_once() {
    let mut stage = Stage::with_slots(1);
    let section = RulesSection { memory: Some(Quota::Amount(100 * MB)), slots: Some(Quota::Amount(1)), ..none() };
    stage.set_rules(rules(none(), [("anna", section)]));
    let anna = stage.program("train.py", user("anna"));
    // One runs, and the others wait for memory.
    (0..5).for_each(|_| _ = stage.call_making(anna, 10_000_000));
    stage.sim.advance(SECOND_NS / 10);
    let began = stage.sim.now();
    let too_large = stage.call_making(anna, 20_000_000);
    let Err(TaskError::QuotaExceeded { why, is_temporary: false, .. }) = stage.end_of(too_large) else {
        panic!("it ran")
    };
    assert!(
        why.starts_with("its arguments and results take 152.59 MiB (160000000 bytes), the data of 'anna'"),
        "{why}"
    );
    assert!(stage.sim.now().since(began) < SECOND_NS / 10);
}

#[test]
fn a_user_who_has_used_up_a_link_receives_no_more_data_over_it_until_the_next_day() {
    let mut stage = Stage::with_slots(4);
    let section = RulesSection { links: [("wan".to_string(), 10 * MB)].into(), ..none() };
    let between = ["host-*", "server"].map(String::from);
    let link = RulesLink { name: "wan".into(), between };
    stage.set_rules(Rules { links: vec![link], ..rules(none(), [("anna", section)]) });
    let (anna, bert) = (stage.program("train.py", user("anna")), stage.program("sweep", user("bert")));
    let carol = administrator(&mut stage);
    // 8 MB each. The second call begins below the quota.
    for _ in 0..2 {
        let call = stage.call_reading(anna, 1_000_000);
        assert_eq!(stage.end_of(call), Ok(()));
    }
    let other = stage.call_reading(bert, 1_000_000);
    assert_eq!(stage.end_of(other), Ok(()));
    stage.sim.advance(REPORTED_NS);
    let call = stage.call_reading(anna, 1_000_000);
    let Err(TaskError::QuotaExceeded { why, is_temporary: false, .. }) = stage.end_of(call) else { panic!("it ran") };
    for part in [
        "the data of 'anna' took 15.26 MiB (16000000 bytes) over the link 'wan' today",
        "the rules of the grid allow 9.54 MiB (10000000 bytes) a day",
        "when the next day begins in UTC",
    ] {
        assert!(why.contains(part), "{why}");
    }
    // Calls without data, and those of others, run.
    let calls = [stage.call(anna, 0), stage.call_reading(bert, 1_000_000)];
    assert_eq!(calls.map(|call| stage.end_of(call)), [Ok(()), Ok(())]);
    stage.sim.advance(REPORTED_NS);
    let links = |stage: &mut Stage, client| {
        let uses = query(stage, client, None).unwrap().links;
        uses.into_iter().map(|one| (one.user, one.link, one.bytes / MB)).collect::<Vec<_>>()
    };
    let of = |user: &str, bytes| (user.to_string(), "wan".to_string(), bytes);
    assert_eq!(links(&mut stage, carol), [of("anna", 16), of("bert", 16)]);
    assert_eq!(links(&mut stage, bert), [of("bert", 16)]);
    // Other rules apply at once, and so does the next day.
    stage.set_rules(rules(none(), []));
    let call = stage.call_reading(anna, 1_000_000);
    assert_eq!(stage.end_of(call), Ok(()));
}

fn disk(quota: Quota) -> RulesSection {
    RulesSection { disk: Some(quota), ..none() }
}

/// Returns the bytes that each user has on disk, as the agent knows.
fn on_disk(stage: &mut Stage, administrator: NodeId) -> Vec<(String, u64)> {
    stage.sim.advance(REPORTED_NS);
    query(stage, administrator, None).unwrap().disk_bytes
}

#[test]
fn data_of_a_user_beyond_the_quota_of_disk_wait_for_memory() {
    let mut stage = Stage::with_store(4, 100 * MB, 1000 * MB);
    stage.set_rules(rules(none(), [("anna", disk(Quota::Amount(200 * MB)))]));
    let carol = administrator(&mut stage);
    let (anna, bert) = (stage.program("train.py", user("anna")), stage.program("sweep", user("bert")));
    // Six results of anna's, of 48 MB each, fit into the memory and 200 MB of the disk.
    let mut kept = Vec::new();
    for _ in 0..6 {
        let (call, datum) = stage.call_keeping(anna, 6_000_000);
        assert_eq!(stage.end_of(call), Ok(()));
        kept.push(datum);
    }
    assert_eq!(on_disk(&mut stage, carol), [("anna".to_string(), 192 * MB)]);
    // Bert has no quota. His data are moved to disk, so anna's stay where they are.
    for _ in 0..4 {
        let (call, _) = stage.call_keeping(bert, 6_000_000);
        assert_eq!(stage.end_of(call), Ok(()));
    }
    let disk_of = |found: &[(String, u64)], name: &str| found.iter().find(|one| one.0 == name).map_or(0, |one| one.1);
    let found = on_disk(&mut stage, carol);
    assert!(disk_of(&found, "anna") <= 200 * MB && disk_of(&found, "bert") == 192 * MB, "{found:?}");
    // The next result fits if one of them is released.
    let (waits, _) = stage.call_keeping(anna, 6_000_000);
    stage.sim.advance(SECOND_NS / 10);
    stage.sim.command(anna, Command::Release { data: vec![kept[0]] });
    assert_eq!(stage.end_of(waits), Ok(()));
    assert!(disk_of(&on_disk(&mut stage, carol), "anna") <= 200 * MB);
    // A call whose data alone exceed memory and quota fails at once.
    let (too_large, _) = stage.call_keeping(anna, 40_000_000);
    let Err(TaskError::QuotaExceeded { why, .. }) = stage.end_of(too_large) else { panic!("it ran") };
    for part in [
        "take 305.18 MiB",
        "the memory of the server has 95.37 MiB",
        "allow 190.73 MiB",
        "on the server's disk; release",
    ] {
        assert!(why.contains(part), "{part}: {why}");
    }
    // Without rules it runs.
    stage.set_rules(rules(none(), []));
    let (large, _) = stage.call_keeping(anna, 40_000_000);
    assert_eq!(stage.end_of(large), Ok(()));
}

#[test]
fn users_without_room_on_disk_share_the_memory_and_all_calls_end() {
    let mut stage = Stage::with_store(4, 100 * MB, 1000 * MB);
    stage.set_rules(rules(disk(Quota::Amount(1)), [("carol", none())]));
    let programs = ["anna", "bert"].map(|name| stage.program("train.py", user(name)));
    let carol = stage.program("usage", user("carol"));
    // Results that are kept are written back to their programs when others need the memory.
    let calls: Vec<TaskId> =
        (0..6).flat_map(|_| programs.map(|program| stage.call_keeping(program, 3_000_000).0)).collect();
    await_ends(&mut stage, &calls);
    let _ = stage.status(carol);
}

#[test]
fn durable_data_count_for_the_quota_of_disk_of_their_owner() {
    let mut stage = Stage::with_store(1, 100 * MB, 1000 * MB);
    stage.set_rules(rules(none(), [("anna", disk(Quota::Amount(2500)))]));
    let carol = administrator(&mut stage);
    let (anna, bert) = (stage.program("train.py", user("anna")), stage.program("sweep", user("bert")));
    for name in ["a", "b"] {
        assert_eq!(stage.put_as(anna, name, true), Ok(CatalogAnswer::Put));
    }
    let Err(error @ NameError::QuotaExceeded { .. }) = stage.put_as(anna, "c", true) else { panic!("it was put") };
    let error = error.to_string();
    for part in [
        "it takes 1000 bytes, the data of 'anna' already take",
        "(2000 bytes) of the server's disk",
        "; delete durable data",
        "or ask",
    ] {
        assert!(error.contains(part), "{part}: {error}");
    }
    assert_eq!(on_disk(&mut stage, carol), [("anna".to_string(), 2000)]);
    // Data that are not durable do not count, nor do those of others.
    assert_eq!(stage.put_as(anna, "c", false), Ok(CatalogAnswer::Put));
    assert_eq!(stage.put_as(bert, "c", true), Ok(CatalogAnswer::Put));
    assert_eq!(stage.delete(anna, "a"), Ok(CatalogAnswer::Deleted));
    assert_eq!(stage.put_as(anna, "d", true), Ok(CatalogAnswer::Put));
    assert_eq!(on_disk(&mut stage, carol), [("anna".to_string(), 2000), ("bert".to_string(), 1000)]);
    // They still count after a restart of the server.
    stage.fault("at 0s restart server");
    stage.sim.advance(30 * SECOND_NS);
    stage.find_server();
    assert!(matches!(stage.put_as(anna, "e", true), Err(NameError::QuotaExceeded { .. })));
    assert_eq!(on_disk(&mut stage, carol), [("anna".to_string(), 2000), ("bert".to_string(), 1000)]);
}

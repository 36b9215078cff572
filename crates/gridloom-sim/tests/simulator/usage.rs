//! The usage of users is exact: whatever restarts or is disconnected, the agent reports what ran. The audit log has who did what.

use gridloom_base::time::SECOND_NS;
use gridloom_base::{NodeId, Origin, TaskError, TaskId};
use gridloom_core::node::message::{AuditEvent, AuditOutcome, AuditRecord, Usage, UsagePage, UsageQuery};
use gridloom_core::node::{Command, Event, NameCommand};

use crate::lan::wait_for;
use crate::users::{Stage, user};

/// Longer than the interval between two reports of a server.
pub(crate) const REPORTED_NS: u64 = 12 * SECOND_NS;

/// What ran, by user, according to the programs.
#[derive(Default)]
struct Expected {
    anna: Usage,
    bert: Usage,
}

pub(crate) fn administrator(stage: &mut Stage) -> NodeId {
    stage.program("usage", Origin { is_administrator: true, ..user("carol") })
}

pub(crate) fn query(stage: &mut Stage, client: NodeId, of: Option<&str>) -> Result<UsagePage, String> {
    let query = UsageQuery { days: (0, u32::MAX), user: of.map(str::to_string), after: None };
    stage.sim.command(client, Command::Usage(query));
    match wait_for(&mut stage.sim, client, |event| matches!(event, Event::Usage { .. })) {
        Event::Usage { answer, .. } => answer,
        _ => unreachable!("waited for"),
    }
}

/// Adds the end of a call to the usage of its user.
fn add_end(stage: &mut Stage, task: TaskId, usage: &mut Usage) {
    let is_it = |event: &Event| matches!(event, Event::TaskEnded { report, .. } if report.task == task);
    let Event::TaskEnded { report, .. } = wait_for(&mut stage.sim, task.client, is_it) else { unreachable!() };
    usage.slot_ns += report.timing.run_ns;
    match report.outcome {
        Ok(_) => usage.succeeded += 1,
        Err(TaskError::Cancelled) => usage.cancelled += 1,
        Err(_) => usage.failed += 1,
    }
}

/// Runs calls of both users, of which an administrator cancels one.
fn run_calls(stage: &mut Stage, [anna, bert, carol]: [NodeId; 3], expected: &mut Expected) {
    let calls = [stage.call(anna, 0), stage.call(anna, 0), stage.call(bert, 1), stage.call(bert, 0)];
    stage.sim.advance(SECOND_NS / 2);
    assert_eq!(stage.end_task(carol, calls[3]), Ok(()));
    // The cancelled call ends first, and waiting for the end of one call skips earlier events.
    for call in [calls[0], calls[1], calls[3], calls[2]] {
        let usage = if call.client == anna { &mut expected.anna } else { &mut expected.bert };
        add_end(stage, call, usage);
    }
}

fn check(stage: &mut Stage, carol: NodeId, expected: &Expected) {
    let page = query(stage, carol, None).unwrap();
    let found: Vec<(&str, Usage)> = page.entries.iter().map(|one| (one.user.as_str(), one.usage)).collect();
    assert_eq!(found, [("anna", expected.anna), ("bert", expected.bert)]);
}

#[test]
fn usage_is_exact_whatever_restarts() {
    let mut stage = Stage::new();
    let programs @ [_, _, carol] =
        [stage.program("train.py", user("anna")), stage.program("sweep", user("bert")), administrator(&mut stage)];
    let mut expected = Expected::default();
    run_calls(&mut stage, programs, &mut expected);
    assert!(query(&mut stage, carol, None).unwrap().entries.is_empty(), "servers report every ten seconds");
    stage.sim.advance(REPORTED_NS);
    check(&mut stage, carol, &expected);
    assert_eq!((expected.anna.succeeded, expected.bert.succeeded, expected.bert.cancelled), (2, 1, 1));
    assert!((2.0..2.1).contains(&(expected.anna.slot_ns as f64 / SECOND_NS as f64)), "two calls of one second");

    // The connection to the agent is lost, with the reports of that time.
    stage.fault("at 0s cut host-0 host-1 for 30s");
    run_calls(&mut stage, programs, &mut expected);
    stage.sim.advance(60 * SECOND_NS);
    check(&mut stage, carol, &expected);

    // The agent restarts while the server has something to report.
    run_calls(&mut stage, programs, &mut expected);
    stage.fault("at 0s restart agent");
    stage.sim.advance(30 * SECOND_NS);
    check(&mut stage, carol, &expected);
    stage.fault("at 0s restart agent");
    stage.sim.advance(30 * SECOND_NS);
    check(&mut stage, carol, &expected);

    // The totals of a server that restarts begin at 0.
    run_calls(&mut stage, programs, &mut expected);
    stage.sim.advance(REPORTED_NS);
    stage.fault("at 0s restart server");
    stage.sim.advance(30 * SECOND_NS);
    stage.find_server();
    run_calls(&mut stage, programs, &mut expected);
    stage.sim.advance(REPORTED_NS);
    check(&mut stage, carol, &expected);
}

#[test]
fn usage_counts_for_the_day_of_its_report() {
    let mut stage = Stage::new();
    let programs @ [_, _, carol] =
        [stage.program("train.py", user("anna")), stage.program("sweep", user("bert")), administrator(&mut stage)];
    let mut expected = Expected::default();
    run_calls(&mut stage, programs, &mut expected);
    stage.sim.advance(24 * 3600 * SECOND_NS);
    run_calls(&mut stage, programs, &mut expected);
    stage.sim.advance(REPORTED_NS);
    let page = query(&mut stage, carol, Some("anna")).unwrap();
    let days: Vec<(u32, u64)> = page.entries.iter().map(|one| (one.day, one.usage.succeeded)).collect();
    assert_eq!(days, [(0, 2), (1, 2)]);
}

#[test]
fn users_see_their_own_usage_and_administrators_everybodys() {
    let mut stage = Stage::new();
    let programs @ [anna, bert, carol] =
        [stage.program("train.py", user("anna")), stage.program("sweep", user("bert")), administrator(&mut stage)];
    let mut expected = Expected::default();
    run_calls(&mut stage, programs, &mut expected);
    stage.put(anna, "mesh").unwrap();
    stage.sim.advance(REPORTED_NS);
    let users = |page: UsagePage| page.entries.into_iter().map(|one| one.user).collect::<Vec<_>>();
    let own = query(&mut stage, anna, None).unwrap();
    assert_eq!(own.stored_bytes, [("anna".to_string(), 1000)]);
    assert_eq!(own.entries[0].usage.received_bytes, 1000, "its data arrived from the program");
    assert_eq!(users(own), ["anna"]);
    assert_eq!(users(query(&mut stage, bert, Some("bert")).unwrap()), ["bert"]);
    let why = query(&mut stage, bert, Some("anna")).unwrap_err();
    assert!(why.starts_with("'bert' may see only the usage of 'bert', not that of 'anna'; an administrator"), "{why}");
    assert_eq!(users(query(&mut stage, carol, None).unwrap()), ["anna", "bert"]);
    assert_eq!(query(&mut stage, bert, None).unwrap().stored_bytes, []);
}

#[test]
fn the_audit_log_has_who_did_what_and_who_was_refused() {
    let mut stage = Stage::new();
    let anna = stage.program("train.py", user("anna"));
    let bert = stage.program("sweep", Origin { functions: vec!["t/work".parse().unwrap()], ..user("bert") });
    let call = stage.call(anna, 0);
    let denied = stage.call(bert, 1);
    let (mut done, mut refused) = Default::default();
    add_end(&mut stage, denied, &mut refused);
    assert!(stage.end_task(bert, call).is_err());
    add_end(&mut stage, call, &mut done);
    stage.put(anna, "mesh").unwrap();
    let find = || NameCommand::Find { name: "~anna/mesh".into(), waits: false };
    assert!(stage.name(bert, find()).is_err());
    stage.share(anna, "mesh", &["bert"]).unwrap();
    stage.name(bert, find()).unwrap();
    assert!(stage.delete(bert, "~anna/mesh").is_err() && stage.delete(anna, "mesh").is_ok());
    stage.sim.kill(bert);
    stage.sim.advance(REPORTED_NS);
    let log = stage.sim.log();
    let records: Vec<&AuditRecord> = log
        .iter()
        .filter_map(|(_, _, event)| match event {
            Event::Audit(record) => Some(&**record),
            _ => None,
        })
        .collect();
    let of = |user: &str| -> Vec<(AuditEvent, &str, AuditOutcome, u64)> {
        let own = records.iter().filter(|one| one.by.user == user);
        let mut own: Vec<_> = own.map(|one| (one.event, one.what.as_str(), one.outcome, one.count)).collect();
        own.sort();
        own
    };
    use AuditEvent::{Call, Cancel, Delete, Find, Join, Leave, Put, Share};
    use AuditOutcome::{Done, Refused};
    assert_eq!(
        of("anna"),
        [
            (Join, "client", Done, 1),
            (Call, "t/work", Done, 1),
            (Put, "~anna/mesh", Done, 1),
            (Share, "~anna/mesh", Done, 1),
            (Delete, "~anna/mesh", Done, 1)
        ]
    );
    let call = call.to_string();
    let expected = [
        (Join, "client", Done, 1),
        (Leave, "client", Done, 1),
        (Call, "t/other", Refused, 1),
        (Cancel, &*call, Refused, 1),
        (Find, "~anna/mesh", Done, 1),
        (Find, "~anna/mesh", Refused, 1),
        (Delete, "~anna/mesh", Refused, 1),
    ];
    assert_eq!(of("bert"), expected);
    let cancel = records.iter().find(|one| one.event == Cancel).unwrap();
    assert_eq!((&*cancel.server, &*cancel.by.name, &*cancel.by.host), ("server", "sweep", "host-2"));
    assert!(cancel.why.contains("belongs to 'anna'"), "{cancel:?}");
    assert!(records.iter().any(|one| one.event == Join && one.what == "server"));
}

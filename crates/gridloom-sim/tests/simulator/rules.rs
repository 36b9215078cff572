//! Tests of the rules of a grid: what users may do, and what they get when they compete.

use std::collections::BTreeMap;

use crate::users::{Stage, next_answer, user};
use gridloom_base::time::SECOND_NS;
use gridloom_base::{
    NameError, NodeId, Origin, Quota, Rules, RulesGroup, RulesSection, SplitMix64, TaskError, TaskId, Users,
};
use gridloom_core::graph::CallOptions;
use gridloom_core::node::message::{CatalogAnswer, Stage as CallStage};
use gridloom_core::node::{Command, Event, NameCommand};

/// Returns rules with these sections of users.
pub(crate) fn rules(everybody: RulesSection, users: impl IntoIterator<Item = (&'static str, RulesSection)>) -> Rules {
    let users = users.into_iter().map(|(name, section)| (name.to_string(), section)).collect();
    Rules { everybody, users, ..Rules::default() }
}

pub(crate) fn none() -> RulesSection {
    RulesSection::default()
}

fn weight(weight: u32) -> RulesSection {
    RulesSection { weight: Some(weight), ..none() }
}

fn slots(quota: Quota) -> RulesSection {
    RulesSection { slots: Some(quota), ..none() }
}

impl Stage {
    pub(crate) fn set_rules(&mut self, rules: Rules) {
        self.sim.set_rules(self.agent, rules);
        self.sim.advance(SECOND_NS / 10);
    }

    /// Takes the events of a program. Returns how many of its calls have ended, all of them without an error.
    fn take_ended(&mut self, client: NodeId) -> usize {
        let mut ended = 0;
        while let Some(event) = self.sim.take_event(client) {
            if let Event::TaskEnded { report, .. } = event {
                assert_eq!(report.outcome.map(drop), Ok(()));
                ended += 1;
            }
        }
        ended
    }

    fn calls(&mut self, client: NodeId, count: usize) -> Vec<TaskId> {
        (0..count).map(|_| self.call(client, 0)).collect()
    }

    /// Returns how many calls of each user run.
    fn running(&mut self, observer: NodeId) -> BTreeMap<String, usize> {
        let status = self.status(observer);
        let mut running = BTreeMap::new();
        for task in status.tasks.iter().filter(|task| task.stage == CallStage::Running) {
            *running.entry(status.program_of(task).unwrap().user.clone()).or_default() += 1;
        }
        running
    }
}

fn counts<const N: usize>(of: [(&str, usize); N]) -> BTreeMap<String, usize> {
    of.into_iter().map(|(user, count)| (user.to_string(), count)).collect()
}

#[test]
fn users_get_slots_by_their_weights() {
    let mut stage = Stage::with_slots(4);
    stage.set_rules(rules(none(), [("anna", weight(2))]));
    let (anna, bert) = (stage.program("train.py", user("anna")), stage.program("sweep", user("bert")));
    for program in [anna, bert] {
        stage.calls(program, 1500);
    }
    stage.sim.advance(900 * SECOND_NS);
    let ended = [anna, bert].map(|program| stage.take_ended(program) as f64);
    // All calls take the same time.
    assert!(ended[1] > 100.0 && (1.9..2.1).contains(&(ended[0] / ended[1])), "{ended:?}");
    // A changed weight applies to the calls that wait.
    stage.set_rules(rules(weight(3), [("anna", weight(1))]));
    stage.sim.advance(900 * SECOND_NS);
    let ended = [anna, bert].map(|program| stage.take_ended(program) as f64);
    assert!(ended[0] > 100.0 && (2.85..3.15).contains(&(ended[1] / ended[0])), "{ended:?}");
}

#[test]
fn a_user_with_many_programs_and_one_with_few_calls_do_not_starve_each_other() {
    let mut stage = Stage::with_slots(4);
    stage.set_rules(rules(none(), [("anna", weight(2)), ("bert", weight(1))]));
    let annas: Vec<NodeId> = (0..100).map(|number| stage.program(&format!("train-{number}"), user("anna"))).collect();
    let bert = stage.program("sweep", user("bert"));
    for anna in &annas {
        stage.calls(*anna, 100);
    }
    stage.sim.advance(10 * SECOND_NS);
    annas.iter().for_each(|anna| _ = stage.take_ended(*anna));
    let berts = stage.calls(bert, 10);
    for call in berts {
        assert_eq!(stage.end_of(call), Ok(()));
    }
    // Anna gets two turns for each of bert's, and those of her programs differ by one at most.
    let ended: Vec<usize> = annas.iter().map(|anna| stage.take_ended(*anna)).collect();
    let sum: usize = ended.iter().sum();
    assert!((17..=24).contains(&sum), "{ended:?}");
    stage.sim.advance(2000 * SECOND_NS);
    let ended: Vec<usize> = annas.iter().map(|anna| stage.take_ended(*anna)).collect();
    let (least, most) = (ended.iter().min().unwrap(), ended.iter().max().unwrap());
    assert!(*least > 5 && most - least <= 2, "{ended:?}");
}

#[test]
fn a_quota_of_slots_leaves_the_others_free_and_others_use_them() {
    let mut stage = Stage::with_slots(8);
    stage.set_rules(rules(none(), [("anna", slots(Quota::Percent(50)))]));
    let (anna, bert) = (stage.program("train.py", user("anna")), stage.program("sweep", user("bert")));
    let again = stage.program("again.py", user("anna"));
    stage.calls(anna, 300);
    stage.calls(again, 300);
    stage.sim.advance(20 * SECOND_NS);
    assert_eq!(stage.running(bert), counts([("anna", 4)]), "nobody else needs the other half");
    // A user without a quota begins at once, and gets all that the other one may not use.
    let calls = stage.calls(bert, 4);
    stage.sim.advance(SECOND_NS / 10);
    assert_eq!(stage.running(bert), counts([("anna", 4), ("bert", 4)]));
    for call in calls {
        assert_eq!(stage.end_of(call), Ok(()));
    }
    // The quota applies to users, who may have several programs; a change to calls that wait.
    stage.set_rules(rules(none(), [("anna", slots(Quota::Amount(6)))]));
    assert_eq!(stage.running(bert), counts([("anna", 6)]));
    stage.set_rules(Rules::default());
    assert_eq!(stage.running(bert), counts([("anna", 8)]));
    // Running calls are not disturbed by a smaller quota, but no new ones start.
    stage.set_rules(rules(slots(Quota::Amount(1)), []));
    assert_eq!(stage.running(bert), counts([("anna", 8)]));
    stage.sim.advance(20 * SECOND_NS);
    assert_eq!(stage.running(bert), counts([("anna", 1)]));
}

#[test]
fn a_user_who_was_limited_gets_no_more_turns_for_that_time() {
    let mut stage = Stage::with_slots(2);
    stage.set_rules(rules(none(), [("anna", slots(Quota::Amount(1)))]));
    let (anna, bert) = (stage.program("train.py", user("anna")), stage.program("sweep", user("bert")));
    let carol = stage.program("list", user("carol"));
    [anna, bert, carol].into_iter().for_each(|program| _ = stage.calls(program, 2000));
    stage.sim.advance(200 * SECOND_NS);
    [anna, bert, carol].into_iter().for_each(|program| _ = stage.take_ended(program));
    stage.set_rules(Rules::default());
    stage.sim.advance(60 * SECOND_NS);
    let ended = [anna, bert, carol].map(|program| stage.take_ended(program));
    let (least, most) = (ended.iter().min().unwrap(), ended.iter().max().unwrap());
    assert!(*least > 10 && most - least <= 2, "{ended:?}");
}

#[test]
fn random_users_stay_within_their_slots_and_all_calls_end() {
    for seed in 0..40 {
        let mut random = SplitMix64::new(seed);
        let slot_count = random.below(8) as u32 + 1;
        let mut stage = Stage::with_slots(slot_count);
        let names = ["anna", "bert", "carol"];
        let draw = |random: &mut SplitMix64| {
            let quota = |random: &mut SplitMix64| match random.below(3) {
                0 => None,
                1 => Some(Quota::Amount(random.below(8) + 1)),
                _ => Some(Quota::Percent(random.below(100) as u8 + 1)),
            };
            let section = |random: &mut SplitMix64| RulesSection {
                slots: quota(random),
                weight: (random.below(2) == 0).then(|| random.below(5) as u32 + 1),
                ..none()
            };
            rules(section(random), [("anna", section(random)), ("bert", section(random))])
        };
        let mut now = draw(&mut random);
        stage.set_rules(now.clone());
        let observer = stage.program("observer", user("observer"));
        let programs: Vec<NodeId> = (0..6).map(|number| stage.program("p", user(names[number % 3]))).collect();
        let (mut made, mut ended) = (0, 0);
        for _ in 0..30 {
            let program = programs[random.below(6) as usize];
            let count = random.below(6) as usize;
            for _ in 0..count {
                let gang = if random.below(6) == 0 { 1 } else { 0 };
                stage.call_with(program, 0, CallOptions { gang, ..CallOptions::default() });
            }
            made += count;
            if random.below(8) == 0 {
                // Let those that run end, so that the new quotas hold.
                now = draw(&mut random);
                stage.set_rules(now.clone());
                stage.sim.advance(20 * SECOND_NS);
            }
            stage.sim.advance(random.below(3 * SECOND_NS));
            for (name, running) in stage.running(observer) {
                let quota = now.of(&name).slots.map_or(u64::from(slot_count), |quota| quota.of(u64::from(slot_count)));
                assert!(running as u64 <= quota, "seed {seed}: {name} runs {running}, and the quota is {quota}");
            }
        }
        stage.sim.advance(1000 * SECOND_NS);
        programs.iter().for_each(|program| ended += stage.take_ended(*program));
        assert_eq!(ended, made, "seed {seed}");
    }
}

#[test]
fn rules_refuse_what_a_certificate_permits_and_permit_cancelling() {
    let mut stage = Stage::with_slots(4);
    let work = Some(vec!["t/work".parse().unwrap()]);
    let cancels = Some(vec![Users::Matching("anna".parse().unwrap())]);
    let everybody = RulesSection { functions: work, queue: Some(2), slots: Some(Quota::Amount(2)), ..none() };
    stage.set_rules(rules(everybody, [("bert", RulesSection { cancels, ..none() })]));
    let (anna, bert) = (stage.program("train.py", user("anna")), stage.program("sweep", user("bert")));
    let carol = stage.program("sweep", Origin { is_administrator: true, ..user("carol") });
    let refused = stage.call(anna, 1);
    let Err(TaskError::NotPermitted { why, .. }) = stage.end_of(refused) else { panic!("it ran") };
    assert!(why.starts_with("the rules of the grid permit 'anna' to call t/work; ask an administrator"), "{why}");
    // Administrators have quotas, but may call what their certificate permits.
    let permitted = stage.call(carol, 1);
    assert_eq!(stage.end_of(permitted), Ok(()));
    let gang = stage.call_with(carol, 0, CallOptions { gang: 3, ..CallOptions::default() });
    let Err(TaskError::QuotaExceeded { why, .. }) = stage.end_of(gang) else { panic!("it ran") };
    assert!(
        why.starts_with("it requests 3 slots at once, and the rules of the grid allow 'carol' 2 of the 4"),
        "{why}"
    );
    // Two calls run, and two wait.
    let calls = stage.calls(anna, 5);
    let Err(TaskError::QuotaExceeded { why, .. }) = stage.end_of(calls[4]) else { panic!("it ran") };
    assert!(why.starts_with("2 calls of 'anna' wait there, and the rules of the grid allow 2; make fewer"), "{why}");
    let why = stage.end_task(anna, refused).unwrap_err();
    assert_eq!(why, "the call is not on this server; it may have ended");
    let berts = stage.call(bert, 0);
    stage.sim.advance(SECOND_NS / 10);
    let why = stage.end_task(anna, berts).unwrap_err();
    assert!(why.ends_with("'anna' is not an administrator of the grid, nor do its rules permit it"), "{why}");
    assert_eq!(stage.end_task(bert, calls[3]), Ok(()));
    assert_eq!(stage.end_of(calls[3]), Err(TaskError::Cancelled));
    assert_eq!(stage.end_of(calls[2]), Ok(()));
}

#[test]
fn servers_keep_the_rules_while_the_agent_is_away_and_get_those_of_a_restarted_one() {
    let mut stage = Stage::with_slots(4);
    stage.set_rules(rules(slots(Quota::Amount(2)), []));
    let anna = stage.program("train.py", user("anna"));
    stage.calls(anna, 300);
    stage.fault("at 0s kill agent");
    stage.sim.advance(10 * SECOND_NS);
    assert_eq!(stage.running(anna), counts([("anna", 2)]));
    stage.fault("at 0s restart agent");
    stage.sim.advance(10 * SECOND_NS);
    assert_eq!(stage.running(anna), counts([("anna", 2)]));
    // A server that starts later gets them, too.
    stage.fault("at 0s restart server");
    stage.sim.advance(20 * SECOND_NS);
    let bert = stage.program("sweep", user("bert"));
    stage.calls(bert, 20);
    stage.sim.advance(2 * SECOND_NS);
    stage.server = stage.sim.node_named("server").unwrap();
    assert_eq!(stage.running(bert), counts([("anna", 2), ("bert", 2)]));
}

#[test]
fn a_program_with_many_calls_holds_them_back_when_its_queue_is_full() {
    let mut stage = Stage::with_slots(4);
    stage.set_rules(rules(RulesSection { queue: Some(1), slots: Some(Quota::Amount(1)), ..none() }, []));
    // The calls of two programs of the user compete for the place in the queue.
    let programs = [stage.program("train.py", user("anna")), stage.program("again.py", user("anna"))];
    for program in programs {
        (0..40).for_each(|_| _ = stage.deferred_call(program));
    }
    stage.sim.advance(400 * SECOND_NS);
    assert_eq!(programs.map(|program| stage.take_ended(program)), [40, 40]);
}

#[test]
fn a_quota_of_memory_leaves_the_rest_of_the_store_to_others() {
    let mut stage = Stage::with_slots(4);
    let memory = RulesSection { memory: Some(Quota::Amount(100_000_000)), ..none() };
    stage.set_rules(rules(none(), [("anna", memory)]));
    let (anna, bert) = (stage.program("train.py", user("anna")), stage.program("sweep", user("bert")));
    let again = stage.program("again.py", user("anna"));
    let too_large = stage.call_making(anna, 20_000_000);
    let Err(TaskError::QuotaExceeded { why, .. }) = stage.end_of(too_large) else { panic!("it ran") };
    let said = "the data of 'anna' take 0 bytes of the store, and the rules of the grid allow 95.37 MiB";
    assert!(why.contains("its arguments and results take 152.59 MiB") && why.contains(said), "{why}");
    // Two of these fit.
    for program in [anna, again, bert] {
        (0..10).for_each(|_| _ = stage.call_making(program, 5_000_000));
    }
    let (mut most, mut both) = (0, 0);
    for _ in 0..200 {
        stage.sim.advance(SECOND_NS / 10);
        let running = stage.running(bert);
        let of = |user: &str| running.get(user).copied().unwrap_or(0);
        most = most.max(of("anna"));
        both += usize::from(of("anna") == 2 && of("bert") == 2);
    }
    assert!(most == 2 && both > 0, "{most} {both}");
    stage.sim.advance(1000 * SECOND_NS);
    // The status has taken the events of bert's program so far.
    assert_eq!([anna, again].map(|program| stage.take_ended(program)), [10, 10]);
    assert_eq!(stage.running(bert), counts([]));
}

/// Returns rules of a group `climate` with these members and this section.
fn climate(members: &[&str], section: RulesSection) -> Rules {
    let members = members.iter().map(|member| member.parse().unwrap()).collect();
    Rules { groups: vec![RulesGroup { name: "climate".into(), members, section }], ..Rules::default() }
}

fn writing(names: &[&str]) -> RulesSection {
    RulesSection { write_names: names.iter().map(|name| name.parse().unwrap()).collect(), ..none() }
}

#[test]
fn a_group_has_names_of_its_own() {
    let mut stage = Stage::new();
    let [anna, bert, carol] = ["anna", "bert", "carol"].map(|name| stage.program("train.py", user(name)));
    let refused = |stage: &mut Stage, program| {
        let name = "~climate/mesh";
        assert!(matches!(stage.find(program, name), Err(NameError::NotShared { .. })));
        for answer in [stage.put(program, name), stage.share(program, name, &["*"]), stage.delete(program, name)] {
            assert!(matches!(answer, Err(NameError::NotOwner { .. })), "{answer:?}");
        }
        assert!(stage.list(program, "").is_empty() && stage.list(program, "~climate/").is_empty());
    };
    refused(&mut stage, anna);
    stage.set_rules(climate(&["anna", "bert"], writing(&["~climate/*"])));
    assert_eq!(stage.put(anna, "~climate/mesh"), Ok(CatalogAnswer::Put));
    assert_eq!(stage.find(bert, "~climate/mesh"), Ok((1, "~climate/mesh".into())));
    assert_eq!(stage.put(bert, "~climate/mesh"), Ok(CatalogAnswer::Put));
    assert_eq!(stage.find(anna, "~climate/mesh"), Ok((2, "~climate/mesh".into())));
    assert_eq!(
        (stage.list(anna, ""), stage.list(anna, "~climate/m")),
        (vec!["~climate/mesh".into()], vec!["~climate/mesh".into()])
    );
    assert!(matches!(stage.find(anna, "~climate/mush"), Err(NameError::Unknown { .. })));
    assert!(matches!(stage.put(anna, "~climate2/mesh"), Err(NameError::NotOwner { .. })));
    refused(&mut stage, carol);
    // A restarted agent has the names and the rules.
    stage.fault("at 0s restart agent");
    stage.sim.advance(20 * SECOND_NS);
    stage.agent = stage.sim.node_named("agent").unwrap();
    assert_eq!(stage.find(bert, "~climate/mesh"), Ok((2, "~climate/mesh".into())));
    refused(&mut stage, carol);
    // A user who leaves the group loses access, also as the one who has put the data.
    stage.set_rules(climate(&["anna", "carol"], writing(&["~climate/*"])));
    refused(&mut stage, bert);
    assert_eq!(stage.find(carol, "~climate/mesh"), Ok((2, "~climate/mesh".into())));
    assert_eq!(stage.share(carol, "~climate/mesh", &["bert"]), Ok(CatalogAnswer::Shared));
    assert_eq!(stage.find(bert, "~climate/mesh"), Ok((2, "~climate/mesh".into())));
    assert!(matches!(stage.put(bert, "~climate/mesh"), Err(NameError::NotOwner { .. })));
    assert_eq!(stage.delete(carol, "~climate/mesh"), Ok(CatalogAnswer::Deleted));
}

#[test]
fn rules_permit_to_read_names_of_others() {
    let mut stage = Stage::new();
    let [anna, bert] = ["anna", "bert"].map(|name| stage.program("train.py", user(name)));
    for name in ["mesh", "public/mesh"] {
        assert_eq!(stage.put(anna, name), Ok(CatalogAnswer::Put));
    }
    let read_names = vec!["~*/public/*".parse().unwrap()];
    stage.set_rules(rules(RulesSection { read_names, ..none() }, []));
    assert_eq!(stage.find(bert, "~anna/public/mesh"), Ok((1, "~anna/public/mesh".into())));
    assert_eq!(stage.list(bert, ""), ["~anna/public/mesh"]);
    assert_eq!(stage.list(anna, ""), ["mesh", "public/mesh"], "the own names are listed once");
    assert!(matches!(stage.find(bert, "~anna/mesh"), Err(NameError::NotShared { .. })));
    let changes = [stage.put(bert, "~anna/public/mesh"), stage.delete(bert, "~anna/public/mesh")];
    assert!(changes.iter().all(|answer| matches!(answer, Err(NameError::NotOwner { .. }))), "{changes:?}");
}

#[test]
fn a_name_is_shared_with_those_who_belong_to_a_group_now() {
    let mut stage = Stage::new();
    let [anna, bert, carol] = ["anna", "bert", "carol"].map(|name| stage.program("train.py", user(name)));
    // A certificate may have any name.
    let mallory = stage.program("train.py", user("group:climate"));
    assert_eq!(stage.put(anna, "mesh"), Ok(CatalogAnswer::Put));
    let error = stage.share(anna, "mesh", &["group:climate"]).unwrap_err().to_string();
    assert!(error.contains("the rules of the grid define no group 'climate'; ask an administrator"), "{error}");
    stage.set_rules(climate(&["bert"], none()));
    let error = stage.share(anna, "mesh", &["carol", "group:climat"]).unwrap_err().to_string();
    assert!(error.contains("define no group 'climat'; did you mean 'climate'?"), "{error}");
    let is_refused = |stage: &mut Stage, program| {
        let found = stage.find(program, "~anna/mesh");
        matches!(found, Err(NameError::NotShared { .. })) && stage.list(program, "").is_empty()
    };
    assert!(is_refused(&mut stage, carol), "a refused request changes nothing");

    let found = Ok((1, "~anna/mesh".to_string()));
    assert_eq!(stage.share(anna, "mesh", &["group:climate"]), Ok(CatalogAnswer::Shared));
    assert_eq!((stage.find(bert, "~anna/mesh"), stage.list(bert, "")), (found.clone(), vec!["~anna/mesh".to_string()]));
    assert!(is_refused(&mut stage, carol) && is_refused(&mut stage, mallory));
    // A request of a user waits until the user belongs to the group.
    let request = stage.serial();
    let command = NameCommand::Find { name: "~anna/mesh".into(), waits: true };
    stage.sim.command(carol, Command::Name { request, command });
    stage.set_rules(climate(&["carol"], none()));
    assert_eq!(next_answer(&mut stage.sim, carol), (request, true));
    assert!(is_refused(&mut stage, bert));
    // The group may be gone for a while.
    stage.set_rules(Rules::default());
    assert!(is_refused(&mut stage, bert) && is_refused(&mut stage, carol));
    stage.set_rules(climate(&["bert"], none()));
    assert_eq!(stage.find(bert, "~anna/mesh"), found);
    assert_eq!(stage.share(anna, "mesh", &[]), Ok(CatalogAnswer::Shared));
    assert!(is_refused(&mut stage, bert));
}

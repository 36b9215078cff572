//! Tests of shared data on servers that cannot keep them because their disks are full.

use crate::lan;
use crate::lan::wait_for;
use gridloom_base::limits::{KEEPER_RETRY_NS_MAX, KEEPER_RETRY_NS_MIN};
use gridloom_base::time::{MILLISECOND_NS, SECOND_NS};
use gridloom_base::{DatumId, Dtype, GroupId, Meta, Method, NameError, NodeId, SplitMix64, TaskId};
use gridloom_core::node::message::CatalogAnswer;
use gridloom_core::node::world::ServerSpec;
use gridloom_core::node::{Command, Event, NameCommand};
use gridloom_platform::HostId;
use gridloom_sim::Simulation;
use gridloom_sim::faults::Scenario;

/// Size of a datum, bytes.
const SIZE: u64 = 1 << 20;

/// An agent, servers, and a client that knows them.
struct Stage {
    sim: Simulation,
    servers: Vec<NodeId>,
    client: NodeId,
    next: u64,
}

impl Stage {
    fn new(servers: u32) -> Stage {
        let mut sim = lan::hosts(1);
        sim.keep_records();
        sim.add_agent(HostId(0), "agent");
        let servers: Vec<NodeId> = (1..=servers)
            .map(|host| {
                let name = format!("server-{host}");
                let spec = ServerSpec {
                    name,
                    slots: 1,
                    is_stateless: false,
                    memory_bytes: 1 << 26,
                    disk_bytes: 0,
                    functions: Vec::new(),
                };
                sim.add_server(HostId(host), spec)
            })
            .collect();
        let client = sim.add_client(HostId(4), "client");
        let count = servers.len();
        wait_for(
            &mut sim,
            client,
            |event| matches!(event, Event::Directory { grid, .. } if grid.servers.len() == count),
        );
        Stage { sim, servers, client, next: 0 }
    }

    fn serial(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn put(&mut self, name: &str, replicas: u16) -> Result<CatalogAnswer, NameError> {
        self.put_as(name, replicas, true)
    }

    fn put_as(&mut self, name: &str, replicas: u16, is_durable: bool) -> Result<CatalogAnswer, NameError> {
        self.put_with(name, replicas, is_durable, false)
    }

    fn put_with(
        &mut self,
        name: &str,
        replicas: u16,
        is_durable: bool,
        replaces: bool,
    ) -> Result<CatalogAnswer, NameError> {
        let (client, serial, ask) = (self.client, self.serial(), self.serial());
        let (datum, task, group) = (DatumId { client, serial }, TaskId { client, serial }, GroupId { client, serial });
        let (name, meta) = (name.to_string(), Meta::array(Dtype::Uint8, &[SIZE]));
        self.sim.put(client, datum, meta.clone(), None);
        let (made_by, method) = (None, Method::Auto);
        let command =
            NameCommand::Put { name, datum, meta, replaces, replicas, is_durable, method, made_by, task, group };
        self.sim.command(client, Command::Name { request: ask, command });
        let event = wait_for(
            &mut self.sim,
            client,
            |event| matches!(event, Event::NameResult { request: answered, .. } if *answered == ask),
        );
        let Event::NameResult { answer, .. } = event else { unreachable!("it was waited for") };
        answer
    }

    /// Schedules faults; their times count from now.
    fn fault(&mut self, faults: &str) {
        let scenario = Scenario::parse(faults, "faults").unwrap();
        let strikes = scenario.strikes(&Default::default(), &mut SplitMix64::new(0), self.sim.now());
        self.sim.schedule(strikes);
        self.sim.advance(1);
    }

    /// Returns the running servers that keep a name.
    fn holders(&mut self, name: &str) -> Vec<NodeId> {
        match self.find(name, false) {
            Ok(CatalogAnswer::Found { holders, .. }) => holders.into_iter().map(|(server, _)| server).collect(),
            other => panic!("{other:?}"),
        }
    }

    fn find(&mut self, name: &str, waits: bool) -> Result<CatalogAnswer, NameError> {
        let ask = self.serial();
        let command = NameCommand::Find { name: name.into(), waits };
        self.sim.command(self.client, Command::Name { request: ask, command });
        let is_it = |event: &Event| matches!(event, Event::NameResult { request: answered, .. } if *answered == ask);
        let Event::NameResult { answer, .. } = wait_for(&mut self.sim, self.client, is_it) else { unreachable!() };
        answer
    }

    /// Returns how often each server has failed to write a datum.
    fn failures(&self) -> Vec<usize> {
        let is_one = |what: &str| what.contains("MadeDurable") && what.contains("Err(");
        let of = |server: &NodeId| {
            self.sim.records().iter().filter(|record| record.node == *server && is_one(&record.what)).count()
        };
        self.servers.iter().map(of).collect()
    }
}

/// Earlier, the error said that all servers were stateless.
#[test]
fn the_error_of_a_put_in_a_grid_without_servers_says_so() {
    for is_durable in [false, true] {
        let mut stage = Stage::new(0);
        let Err(NameError::NoRoom { why, .. }) = stage.put_as("mesh", 1, is_durable) else { panic!("no server") };
        assert!(why.contains("no server has registered with the agent"), "{why}");
        let late = ServerSpec {
            name: "late".into(),
            slots: 1,
            is_stateless: true,
            memory_bytes: 1,
            disk_bytes: 0,
            functions: Vec::new(),
        };
        stage.sim.add_server(HostId(1), late);
        stage.sim.advance(20 * SECOND_NS);
        let Err(NameError::NoRoom { why, .. }) = stage.put_as("mesh", 1, is_durable) else { panic!("it is stateless") };
        assert!(why.contains("all servers are stateless"), "{why}");
    }
}

/// The agent restarts, and its servers connect to it one after the other.
#[test]
fn a_put_waits_until_the_servers_of_a_restarted_agent_are_back() {
    for is_asleep in [false, true] {
        let mut stage = Stage::new(3);
        assert_eq!(stage.put("mesh", 1), Ok(CatalogAnswer::Put));
        let keeper = stage.holders("mesh")[0];
        let at = stage.servers.iter().position(|server| *server == keeper).unwrap() + 1;
        let others = (1..=3).filter(|host| *host != at);
        let mut faults: String = others.map(|host| format!("at 0s cut host-0 host-{host} for 4s\n")).collect();
        // The name is reported last.
        faults += &format!("at 0s cut host-0 host-{at} for 7s\n");
        faults += if is_asleep { "at 0s pause agent for 30s\n" } else { "at 0.1s restart agent\n" };
        if is_asleep {
            faults = faults.replace("4s", "34s").replace("7s", "37s");
        }
        stage.fault(&faults);
        stage.sim.advance(if is_asleep { 31 } else { 2 } * SECOND_NS);
        let newcomer = stage.sim.add_client(HostId(4), "newcomer");
        stage.sim.advance(SECOND_NS / 2);
        for client in [stage.client, newcomer] {
            stage.client = client;
            let name = format!("of {client}");
            assert_eq!(stage.put(&name, 3), Ok(CatalogAnswer::Put), "asleep: {is_asleep}");
        }
        assert_eq!(stage.holders("mesh"), [keeper]);
    }
}

#[test]
fn a_request_waits_for_the_server_of_its_name_after_a_restart() {
    let mut stage = Stage::new(2);
    assert_eq!(stage.put("mesh", 1), Ok(CatalogAnswer::Put));
    let keeper = stage.holders("mesh")[0];
    let at = stage.servers.iter().position(|server| *server == keeper).unwrap() + 1;
    stage.fault(&format!("at 0s cut host-0 host-{at} for 6s\nat 0.1s restart agent\n"));
    stage.sim.advance(3 * SECOND_NS);
    assert_eq!(stage.holders("mesh"), [keeper]);
}

/// Returns the error of a request that waits for a name without a limit, and the seconds until the error.
fn lost(stage: &mut Stage, name: &str) -> (String, f64) {
    let began = stage.sim.now();
    let error = stage.find(name, true).unwrap_err();
    (error.to_string(), stage.sim.now().since(began) as f64 * 1e-9)
}

#[test]
fn a_request_that_waits_for_lost_data_is_answered() {
    let mut stage = Stage::new(2);
    assert_eq!(stage.put_as("mesh", 1, false), Ok(CatalogAnswer::Put));
    let keeper = stage.holders("mesh")[0];
    stage.sim.kill(keeper);
    // Its server may return.
    stage.sim.advance(3 * SECOND_NS);
    let (why, seconds) = lost(&mut stage, "mesh");
    assert!(why.contains("'mesh'") && why.contains("is gone") && (6.0..9.0).contains(&seconds), "{why}: {seconds} s");
    let (_, seconds) = lost(&mut stage, "mesh");
    assert!(seconds < 0.1, "{seconds} s");
}

#[test]
fn data_damaged_on_disk_are_named_with_the_damage_until_they_are_put_again() {
    for waits_before in [false, true] {
        let mut stage = Stage::new(2);
        assert_eq!(stage.put("mesh", 1), Ok(CatalogAnswer::Put));
        let keeper = stage.holders("mesh")[0];
        let name = format!("server-{}", stage.servers.iter().position(|server| *server == keeper).unwrap() + 1);
        stage.sim.damage_disk(keeper);
        stage.fault(&format!("at 0s kill {name}\nat 20s restart {name}\nat 60s restart agent"));
        if !waits_before {
            stage.sim.advance(21 * SECOND_NS);
        }
        let damage = format!("server '{name}' found it damaged: it was changed");
        let (why, seconds) = lost(&mut stage, "mesh");
        assert!(why.contains("'mesh'") && why.contains(&damage) && seconds < 32.0, "{why}: {seconds} s");
        // A restarted agent, which did not know the datum, reports the same.
        stage.sim.advance(65 * SECOND_NS);
        let (why, seconds) = lost(&mut stage, "mesh");
        assert!(why.contains(&damage) && seconds < 11.0, "{why}: {seconds} s");
        assert_eq!(stage.put("mesh", 1), Ok(CatalogAnswer::Put));
        let new = stage.holders("mesh");
        stage.fault(&format!("at 0s restart {name}"));
        stage.sim.advance(15 * SECOND_NS);
        assert_eq!(stage.holders("mesh").len(), new.len(), "the damage is forgotten");
        let command = NameCommand::Delete { name: "mesh".into() };
        let ask = stage.serial();
        stage.sim.command(stage.client, Command::Name { request: ask, command });
        stage.sim.advance(SECOND_NS);
        stage.fault("at 0s restart agent");
        stage.sim.advance(15 * SECOND_NS);
        let why = stage.find("mesh", false).unwrap_err();
        assert!(matches!(why, NameError::Unknown { .. }), "{why}");
    }
}

/// Earlier, the waits of a client were only in its own log.
#[test]
fn an_agent_knows_what_programs_wait_for_and_since_when() {
    let mut stage = Stage::new(1);
    let other = stage.sim.add_client(HostId(4), "operator");
    stage.sim.advance(20 * SECOND_NS);
    let waits = |stage: &mut Stage| {
        stage.sim.command(other, Command::Waits);
        match lan::wait_for(&mut stage.sim, other, |event| matches!(event, Event::Waits { .. })) {
            Event::Waits { programs } => programs,
            _ => unreachable!("waited for"),
        }
    };
    assert_eq!(waits(&mut stage), []);
    let ask = stage.serial();
    let command = NameCommand::Find { name: "nowhere".into(), waits: true };
    stage.sim.command(stage.client, Command::Name { request: ask, command });
    stage.sim.advance(10 * SECOND_NS);
    let known = waits(&mut stage);
    assert_eq!((known.len(), known[0].program.client, &*known[0].program.name), (1, stage.client, "client"));
    assert_eq!(known[0].waits, ["requests at the agent (1): for 'nowhere'"]);
    assert!((9..=11).contains(&(known[0].waited_ns / SECOND_NS)), "{known:?}");
    // The client reports again to an agent that has restarted or lost the connection.
    for (fault, least_s) in [("at 0s restart agent", 14), ("at 0s reset client agent", 19)] {
        stage.fault(fault);
        stage.sim.advance(5 * SECOND_NS);
        let known = waits(&mut stage);
        assert!(known.len() == 1 && known[0].waited_ns / SECOND_NS >= least_s, "{fault}: {known:?}");
    }
    // The wait ends.
    let command = NameCommand::CancelWait;
    stage.sim.command(stage.client, Command::Name { request: ask, command });
    stage.sim.advance(3 * SECOND_NS);
    assert_eq!(waits(&mut stage), []);
}

#[test]
fn a_client_logs_what_its_program_waits_for() {
    let mut stage = Stage::new(1);
    stage.sim.advance(100 * SECOND_NS);
    let ask = stage.serial();
    let command = NameCommand::Find { name: "nowhere".into(), waits: true };
    stage.sim.command(stage.client, Command::Name { request: ask, command });
    stage.sim.advance(95 * SECOND_NS);
    let is_one = |what: &str| what.contains("the program has waited for");
    let records = stage.sim.records();
    let lines: Vec<&str> =
        records.iter().filter(|one| one.node == stage.client && is_one(&one.what)).map(|one| &one.what[..]).collect();
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[0].contains("requests at the agent (1): for 'nowhere'"), "{lines:?}");
    assert!(lines[0].contains("for 30 s") && lines[1].contains("for 60 s"), "{lines:?}");
}

#[test]
fn one_damaged_copy_of_two_is_replaced() {
    let mut stage = Stage::new(3);
    assert_eq!(stage.put("mesh", 2), Ok(CatalogAnswer::Put));
    let keeper = stage.holders("mesh")[0];
    let at = stage.servers.iter().position(|server| *server == keeper).unwrap() + 1;
    stage.sim.damage_disk(keeper);
    stage.fault(&format!("at 0s restart server-{at}"));
    stage.sim.advance(30 * SECOND_NS);
    assert_eq!(stage.holders("mesh").len(), 2);
}

#[test]
fn a_put_on_a_new_grid_is_refused_at_once() {
    let mut stage = Stage::new(2);
    let began = stage.sim.now();
    let Err(error) = stage.put("mesh", 3) else { panic!("there are two servers") };
    assert!(error.to_string().contains("only 2 servers have room"), "{error}");
    assert!(stage.sim.now().since(began) < SECOND_NS);
}

const FULL: &str = "at 0s full-disk server-1 for 100000s\n";
const ALL_FULL: &str = "at 0s full-disk server-1 for 100000s\nat 0s full-disk server-2 for 100000s\n\
                        at 0s full-disk server-3 for 100000s";

#[test]
fn a_datum_goes_to_a_server_whose_disk_is_not_full() {
    let mut stage = Stage::new(3);
    stage.fault(FULL);
    for number in 0..6 {
        assert_eq!(stage.put(&format!("one/{number}"), 1), Ok(CatalogAnswer::Put));
        assert_eq!(stage.put(&format!("two/{number}"), 2), Ok(CatalogAnswer::Put));
    }
    assert_eq!(stage.failures(), [1, 0, 0], "after the first it is asked last");
}

#[test]
fn each_server_is_tried_once_and_the_putter_receives_the_reasons() {
    for replicas in [1, 2] {
        let mut stage = Stage::new(3);
        stage.fault(ALL_FULL);
        let Err(error) = stage.put("mesh", replicas) else { panic!("no disk has room") };
        // For two replicas, the last server alone is not enough.
        assert_eq!(stage.failures(), if replicas == 1 { [1, 1, 1] } else { [1, 1, 0] });
        let text = error.to_string();
        let named = ["the 1048576 bytes of 'mesh'", "server 'server-1': the disk of host 1 is full"];
        assert!(named.iter().all(|word| text.contains(word)) && text.contains("make room on these disks"), "{text}");
        assert!(matches!(error, NameError::NoRoom { .. }));
    }
}

#[test]
fn a_second_replica_is_sent_to_a_third_server_or_the_putter_is_notified() {
    let mut stage = Stage::new(2);
    stage.fault(FULL);
    let Err(error) = stage.put("mesh", 2) else { panic!("one disk of two is full") };
    assert!(error.to_string().contains("server 'server-1': the disk of host 1 is full"), "{error}");
    assert_eq!(stage.put("mesh", 1), Ok(CatalogAnswer::Put));
}

#[test]
fn a_server_that_cannot_keep_a_replica_is_asked_at_growing_pauses() {
    const FULL_S: u64 = 200;
    let mut stage = Stage::new(3);
    assert_eq!(stage.put("mesh", 2), Ok(CatalogAnswer::Put));
    let kept = stage.holders("mesh");
    assert_eq!(kept.len(), 2);
    // One of the two keepers is lost. The third server must keep the datum, and cannot.
    stage.fault(&ALL_FULL.replace("100000s", &format!("{FULL_S}s")));
    stage.sim.kill(kept[0]);
    stage.sim.advance((FULL_S - 5) * SECOND_NS);
    let tries: usize = stage.failures().into_iter().sum();
    let most = (FULL_S * SECOND_NS / KEEPER_RETRY_NS_MIN).ilog2() as usize + 1;
    assert!((2..=most).contains(&tries), "{tries} tries, and at most {most} with pauses that double");
    assert_eq!(stage.holders("mesh").len(), 1);
    // By then the disks have room again.
    stage.sim.advance(KEEPER_RETRY_NS_MAX);
    assert_eq!(stage.holders("mesh").len(), 2);
}

/// Agent, servers and client are killed at a random time after a delete. Found in the real world: the agent answered
/// before the servers had removed the datum from their disks, and the datum returned after the kill.
#[test]
fn a_deleted_datum_does_not_return_after_a_kill_of_all_nodes() {
    let (mut answered, mut returned, mut was_read) = (0, 0, 0);
    for seed in 0..120 {
        let mut random = SplitMix64::new(seed);
        let mut stage = Stage::new(3);
        let replicas = 1 + random.below(2) as u16;
        assert_eq!(stage.put("kept", 1), Ok(CatalogAnswer::Put));
        assert_eq!(stage.put("mesh", replicas), Ok(CatalogAnswer::Put));
        // Former versions on other servers are not found again, either.
        for _ in 0..random.below(3) {
            assert_eq!(stage.put_with("mesh", replicas, true, true), Ok(CatalogAnswer::Put));
        }
        // A client that reads the datum keeps it in memory, but not on the disks.
        if random.below(2) == 0 {
            stage.holders("mesh");
            was_read += 1;
        }
        let ask = stage.serial();
        let command = NameCommand::Delete { name: "mesh".into() };
        stage.sim.command(stage.client, Command::Name { request: ask, command });
        stage.sim.advance(random.below(16) * MILLISECOND_NS / 2);
        let mut is_answered = false;
        while let Some(event) = stage.sim.take_event(stage.client) {
            let deleted = Ok(CatalogAnswer::Deleted);
            is_answered |=
                matches!(event, Event::NameResult { request, answer } if request == ask && answer == deleted);
        }
        let agent = stage.sim.node_named("agent").unwrap();
        let nodes: Vec<NodeId> = [agent].into_iter().chain(stage.servers.clone()).collect();
        [stage.client].iter().chain(&nodes).for_each(|node| stage.sim.kill(*node));
        nodes.iter().for_each(|node| _ = stage.sim.restart(*node).unwrap());
        stage.client = stage.sim.add_client(HostId(4), "second");
        stage.sim.advance(30 * SECOND_NS);
        assert_eq!(stage.holders("kept").len(), 1, "seed {seed}");
        let found = stage.find("mesh", false);
        match found {
            Err(NameError::Unknown { .. }) => {}
            Ok(CatalogAnswer::Found { .. }) if !is_answered => returned += 1,
            other => panic!("seed {seed}, answered: {is_answered}: {other:?}"),
        }
        answered += u32::from(is_answered);
    }
    assert!(
        answered > 20 && returned > 5 && was_read > 20,
        "{answered} answered, {returned} returned, {was_read} read"
    );
}

/// The delete waits for a server that is lost meanwhile, and is answered when it returns, or when it may no longer.
#[test]
fn a_delete_waits_for_a_server_that_is_lost_meanwhile() {
    for returns in [false, true] {
        let mut stage = Stage::new(2);
        assert_eq!(stage.put("mesh", 1), Ok(CatalogAnswer::Put));
        let keeper = stage.holders("mesh")[0];
        let at = stage.servers.iter().position(|server| *server == keeper).unwrap() + 1;
        let lasts = if returns { 3 } else { 100 };
        stage.fault(&format!("at 0s cut host-0 host-{at} for {lasts}s"));
        let (began, ask) = (stage.sim.now(), stage.serial());
        let command = NameCommand::Delete { name: "mesh".into() };
        stage.sim.command(stage.client, Command::Name { request: ask, command });
        let is_it = |event: &Event| matches!(event, Event::NameResult { request, .. } if *request == ask);
        let Event::NameResult { answer, .. } = wait_for(&mut stage.sim, stage.client, is_it) else { unreachable!() };
        assert_eq!(answer, Ok(CatalogAnswer::Deleted));
        let seconds = stage.sim.now().since(began) / SECOND_NS;
        // An agent notices after 10 s that it receives nothing, and a server may return for 10 s.
        let expected = if returns { 2..=9 } else { 15..=25 };
        assert!(expected.contains(&seconds), "returns: {returns}, after {seconds} s");
    }
}

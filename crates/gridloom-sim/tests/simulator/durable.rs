//! Tests of shared data on servers that cannot keep them because their disks are full.

use crate::lan;
use crate::lan::wait_for;
use gridloom_base::limits::{KEEPER_RETRY_NS_MAX, KEEPER_RETRY_NS_MIN};
use gridloom_base::time::SECOND_NS;
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
                let spec =
                    ServerSpec { name, slots: 1, is_stateless: false, memory_bytes: 1 << 26, functions: Vec::new() };
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
        let (client, serial, ask) = (self.client, self.serial(), self.serial());
        let (datum, task, group) = (DatumId { client, serial }, TaskId { client, serial }, GroupId { client, serial });
        let (name, meta) = (name.to_string(), Meta::array(Dtype::Uint8, &[SIZE]));
        self.sim.put(client, datum, meta.clone(), None);
        let (replaces, is_durable, made_by) = (false, true, None);
        let method = Method::Auto;
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
        let ask = self.serial();
        let command = NameCommand::Find { name: name.into(), waits: false };
        self.sim.command(self.client, Command::Name { request: ask, command });
        let is_it = |event: &Event| matches!(event, Event::NameResult { request: answered, .. } if *answered == ask);
        match wait_for(&mut self.sim, self.client, is_it) {
            Event::NameResult { answer: Ok(CatalogAnswer::Found { holders, .. }), .. } => {
                holders.into_iter().map(|(server, _)| server).collect()
            }
            other => panic!("{other:?}"),
        }
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

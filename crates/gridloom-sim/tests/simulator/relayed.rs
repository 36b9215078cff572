//! Hosts behind firewalls, whose data pass through a relay.

use crate::lan;
use gridloom_base::time::SECOND_NS;
use gridloom_base::{DatumId, Dtype, GroupId, Meta, NodeId, TaskId};
use gridloom_core::graph::{Argument, CallOptions, Group, Output, Task, TaskKind};
use gridloom_core::node::world::ServerSpec;
use gridloom_core::node::{Command, Event};
use gridloom_idl::{ActualArgument, Definition};
use gridloom_perf::LinkReport;
use gridloom_platform::{HostId, Platform};
use gridloom_sim::{SimConfig, Simulation};

const IDL: &str = "Module t;\n\
    Define makes(IN int n, OUT double x[n]) CalcOrder 1e7 Calls \"C\" p(n, x);\n\
    Define reads(IN int n, IN double x[n], OUT double s[1]) CalcOrder 1e7 Calls \"C\" p(n, x, s);\n";
/// 10 MB, which take 0.8 s through the relay.
const ELEMENTS: i32 = 1_250_000;
/// Hosts of servers, each behind a firewall of its own.
const SERVERS: u32 = 6;

/// Returns a platform of fast hosts and a relay with 100 Mb/s, where each server is behind a firewall if `is_hidden`.
fn platform(is_hidden: bool) -> Platform {
    let mut text = String::from(
        "[[host]]\nname = 'head'\nspeed = '1Gf'\n[[host]]\nname = 'relay'\nspeed = '1Gf'\n\
         [[link]]\nname = 'slow'\nbandwidth = '100Mbps'\nlatency = '1ms'\nsharing = 'splitduplex'\n",
    );
    text += "[[router]]\nname = 'net'\n[[route]]\nfrom = 'relay'\nto = 'net'\nlinks = ['slow:up']\n";
    for name in (0..SERVERS).map(|n| format!("s{n}")).chain(["head".into(), "client".into()]) {
        if name != "head" {
            text += &format!("[[host]]\nname = '{name}'\nspeed = '1Gf'\n");
        }
        text += &format!(
            "[[link]]\nname = 'l{name}'\nbandwidth = '1Gbps'\nlatency = '1ms'\nsharing = 'splitduplex'\n\
             [[route]]\nfrom = '{name}'\nto = 'net'\nlinks = ['l{name}:up']\n"
        );
    }
    for name in (0..SERVERS).map(|n| format!("s{n}")).filter(|_| is_hidden) {
        text += &format!("[[firewall]]\nhosts = '{name}'\nrelay = 'relay'\n");
    }
    Platform::parse(&format!("routing = 'shortest'\n{text}"), "hidden.toml", &mut |_| unreachable!()).unwrap()
}

struct Stage {
    sim: Simulation,
    client: NodeId,
    servers: Vec<NodeId>,
    functions: Vec<Definition>,
    next: u64,
}

impl Stage {
    fn new(is_hidden: bool) -> Stage {
        let functions = gridloom_idl::parse(IDL, "t.idl").unwrap();
        let platform = platform(is_hidden);
        let host = |name: &str| platform.host(name).unwrap();
        let (head, client) = (host("head"), host("client"));
        let hosts: Vec<HostId> = (0..SERVERS).map(|n| host(&format!("s{n}"))).collect();
        let mut sim = Simulation::new(platform.into(), SimConfig::default());
        sim.add_agent(head, "agent");
        let spec = |number: usize| ServerSpec {
            name: format!("s{number}"),
            slots: 1,
            is_stateless: false,
            memory_bytes: 1 << 30,
            disk_bytes: 0,
            functions: functions.clone(),
        };
        let servers = hosts.iter().enumerate().map(|(number, host)| sim.add_server(*host, spec(number))).collect();
        let client = sim.add_client(client, "client");
        let all =
            |event: &Event| matches!(event, Event::Directory { grid, .. } if grid.servers.len() == SERVERS as usize);
        lan::wait_for(&mut sim, client, all);
        sim.advance(30 * SECOND_NS);
        Stage { sim, client, servers, functions, next: 0 }
    }

    fn task(&mut self, function: &str, on: usize, input: Option<DatumId>) -> (Task, DatumId) {
        self.next += 1;
        let (client, serial) = (self.client, self.next);
        let found = self.functions.iter().find(|definition| definition.signature.name == function).unwrap();
        let (count, array) = (Meta::scalar(Dtype::Int32), Meta::array(Dtype::Float64, &[ELEMENTS as u64]));
        let bytes = ELEMENTS.to_ne_bytes().to_vec();
        let given = ActualArgument { meta: count.clone(), inline: Some(bytes.clone()) };
        let value = input.map(|_| ActualArgument { meta: array.clone(), inline: None });
        let actual: Vec<ActualArgument> = [given].into_iter().chain(value).collect();
        let uses = found.signature.bind(&actual, &[]).unwrap().uses;
        let meta = if input.is_some() { Meta::array(Dtype::Float64, &[1]) } else { array };
        let output = Output { datum: DatumId { client, serial: 1000 + serial }, meta };
        let datum = output.datum;
        let args = [Argument::Inline { meta: count, bytes }].into_iter().chain(input.map(Argument::Datum));
        let task = Task {
            id: TaskId { client, serial },
            kind: TaskKind::call(function, found.signature.hash()),
            args: args.collect(),
            outputs: vec![output],
            work_flops: Some(1e7),
            options: CallOptions { bound_to: Some(self.servers[on]), uses: uses.into(), ..CallOptions::default() },
        };
        (task, datum)
    }

    /// Runs a group in which three servers make arrays that three others read. Returns the predicted and the actual time,
    /// seconds.
    fn run(&mut self) -> (f64, f64) {
        let mut tasks = Vec::new();
        for pair in 0..3 {
            let (makes, made) = self.task("t/makes", pair, None);
            let (reads, _) = self.task("t/reads", 3 + pair, Some(made));
            tasks.extend([makes, reads]);
        }
        self.next += 1;
        let id = GroupId { client: self.client, serial: self.next };
        let group = Group { id, tasks, sources: Default::default(), wanted: Vec::new() };
        self.sim.command(self.client, Command::Run { group, heuristic: "auto".into() });
        let planned = lan::wait_for(&mut self.sim, self.client, |event| matches!(event, Event::GroupPlanned { .. }));
        let Event::GroupPlanned { plan, .. } = planned else { unreachable!("looked for above") };
        let began = self.sim.now();
        lan::wait_for(&mut self.sim, self.client, |event| matches!(event, Event::GroupEnded { .. }));
        (plan.makespan_s, self.sim.now().since(began) as f64 / SECOND_NS as f64)
    }

    fn links(&mut self) -> Vec<LinkReport> {
        self.sim.command(self.client, Command::Links);
        match lan::wait_for(&mut self.sim, self.client, |event| matches!(event, Event::Links { .. })) {
            Event::Links { links } => links,
            _ => unreachable!("looked for above"),
        }
    }
}

#[test]
fn plans_know_that_paths_share_a_relay() {
    let mut stage = Stage::new(true);
    let relays: Vec<Option<String>> = stage.links().into_iter().map(|link| link.relay).collect();
    assert_eq!(relays, vec![Some("relay".to_string()); 15], "each pair of servers was measured once");
    // 30 MB through 12.5 MB/s, not three times 10 MB at one time.
    let (predicted_s, actual_s) = stage.run();
    assert!((2.4..2.8).contains(&actual_s), "{actual_s}");
    assert!((0.85..1.15).contains(&(predicted_s / actual_s)), "predicted {predicted_s} s, took {actual_s} s");
}

#[test]
fn hosts_without_firewalls_exchange_data_directly() {
    let mut stage = Stage::new(false);
    assert!(stage.links().iter().all(|link| link.relay.is_none()));
    let (predicted_s, actual_s) = stage.run();
    assert!(predicted_s < 0.4 && actual_s < 0.4, "predicted {predicted_s} s, took {actual_s} s");
}

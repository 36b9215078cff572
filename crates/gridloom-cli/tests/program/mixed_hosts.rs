//! Load balancers in simulation, on hosts of different speed. The simulated program is this test binary.

use gridloom::Message;
use gridloom::chares::{self, Callback, Chare, Context, Contribution, Migrate, Placement};
use serde_json::Value;

use crate::support::{file, gridloom, succeeds};

/// Environment variable that is set for the program below.
const CASE: &str = "GRIDLOOM_TEST_MIXED_HOSTS";

const CHARES: usize = 64;
const ROUNDS: u32 = 500;
const ROUND_FLOPS: f64 = 1e6;

#[derive(Clone, Message)]
enum Ask {
    Begin { rounds: u32 },
}

/// Computes once in each round, which ends when all have computed.
struct Worker {
    left: u32,
}

impl Migrate for Worker {
    type State = u32;

    fn pack(&self) -> u32 {
        self.left
    }
}

impl Worker {
    fn compute(&mut self, cx: &mut Context<'_, Worker>) {
        cx.compute(ROUND_FLOPS);
        self.left -= 1;
        let next = if self.left == 0 { Callback::exit() } else { Callback::to(cx.array().all()) };
        cx.contribute(Contribution::barrier(), next);
    }
}

impl Chare for Worker {
    type Message = Ask;

    fn entry(&mut self, Ask::Begin { rounds }: Ask, cx: &mut Context<'_, Worker>) {
        self.left = rounds;
        self.compute(cx);
    }

    fn on_result(&mut self, _: u32, _: chares::Value, cx: &mut Context<'_, Worker>) {
        self.compute(cx);
    }
}

/// Run by `gridloom simulate`, like all elements.
#[test]
#[ignore = "a process of another test"]
fn a_program_of_chares() {
    if std::env::var_os(CASE).is_none() {
        return;
    }
    let ended = chares::run(|job| {
        let workers = job.migratable_array(CHARES, Placement::Blocks, |_, left| Worker { left: left.unwrap_or(0) })?;
        job.start(|cx| cx.send(workers.all(), Ask::Begin { rounds: ROUNDS }));
        Ok(())
    });
    ended.unwrap();
}

#[test]
fn a_slow_host_gets_fewer_chares() {
    let host = |name: &str, speed: u32| format!("[[host]]\nname = \"{name}\"\nspeed = \"{speed}Gf\"\n");
    let wire = "[[link]]\nname = \"wire\"\nbandwidth = \"10Gbps\"\nlatency = \"5us\"\n";
    let route = "[[route]]\nfrom = \"slow\"\nto = \"fast\"\nlinks = [\"wire\"]\n";
    let platform = file("unlike-hosts.toml", &[&host("slow", 1), &host("fast", 3), wire, route].concat());
    let own = std::env::current_exe().unwrap().display().to_string();
    let simulated_s = |balancer: &str| {
        let deployment = succeeds(gridloom(&["chares", "deployment", "-p", &platform, "--balance", balancer]));
        let deployment = file(&format!("unlike-hosts-{balancer}.toml"), &deployment);
        let words = ["--", &own, "--exact", "--ignored", "mixed_hosts::a_program_of_chares"];
        let mut command = gridloom(&[&["simulate", "-p", &platform, "-d", &deployment, "--json"], &words[..]].concat());
        command.env(CASE, "yes");
        let report: Value = serde_json::from_str(&succeeds(command)).unwrap();
        report["seconds"].as_f64().unwrap()
    };
    let work_s = CHARES as f64 * f64::from(ROUNDS) * ROUND_FLOPS / 1e9;
    // Without a balancer, half of the work is on the slow host.
    let alone_s = simulated_s("none");
    assert!((work_s / 2.0..work_s / 2.0 + 0.1).contains(&alone_s), "{alone_s}");
    for balancer in ["greedy", "refine", "hierarchical", "grid-aware"] {
        // At least a quarter of it stays there; more is done there before the first moves.
        let balanced_s = simulated_s(balancer);
        assert!((work_s / 4.0..work_s / 4.0 * 1.15).contains(&balanced_s), "{balancer}: {balanced_s} of {alone_s}");
    }
}

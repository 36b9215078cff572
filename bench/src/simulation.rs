//! The simulator's models under load, one process per case: CPU seconds, events per second, peak memory.
//!
//! `sim` runs the cases that SimGrid 4.1 was measured with, in the same shapes: transfers of random sizes between random
//! pairs of hosts, all at once or a fixed number at a time, and a master that sends tasks to workers. `sim-long` starts 30,000 and
//! 100,000 at once, `sim-big` has 100,000 hosts and 1,000,000 transfers. An event is the end of a latency, a transfer or an
//! execution. SimGrid's seconds are its CPU time on the same machine, with the same platforms and sizes, in separate
//! runs; 10,000 at once and the master with its workers are from another run on a similar machine.

use std::process::Command;

use gridloom_flow::{
    ActionId, Completion, Execution, FlowEngine, HostIndex, LinkIndex, NetworkModel, Policy, Resources, Transfer,
};
use gridloom_platform::{HostId, LinkId, Platform, Sharing};
use serde_json::{Value, json};

use super::Figure;
use super::stats::Samples;

const HOST_FLOPS: f64 = 1e9;
const ROUNDS: usize = 3;

struct Case {
    name: &'static str,
    /// The selection that it belongs to.
    part: &'static str,
    /// A platform file.
    platform: fn() -> String,
    load: Load,
    /// CPU seconds of SimGrid 4.1, where known.
    simgrid_s: Option<f64>,
    aim: &'static str,
}

#[derive(Clone, Copy)]
enum Load {
    /// `count` transfers, `at_a_time` of them concurrently.
    Transfers { count: usize, at_a_time: usize },
    /// A master sends `count` tasks to the workers in turn.
    Tasks { count: usize },
}

const fn transfers(count: usize, at_a_time: usize) -> Load {
    Load::Transfers { count, at_a_time }
}

const CASES: &[Case] = &[
    Case {
        name: "star of 1,000, 1,000 transfers at once",
        part: "sim",
        platform: star_1000,
        load: transfers(1_000, 1_000),
        simgrid_s: Some(0.206),
        aim: "at least 10",
    },
    Case {
        name: "star of 1,000, 3,000 transfers at once",
        part: "sim",
        platform: star_1000,
        load: transfers(3_000, 3_000),
        simgrid_s: Some(5.05),
        aim: "at least 10",
    },
    Case {
        name: "star of 1,000, 10,000 transfers at once",
        part: "sim",
        platform: star_1000,
        load: transfers(10_000, 10_000),
        simgrid_s: Some(55.0),
        aim: "at least 10",
    },
    Case {
        name: "star of 1,000, 100,000 transfers, 100 at a time",
        part: "sim",
        platform: star_1000,
        load: transfers(100_000, 100),
        simgrid_s: Some(0.977),
        aim: "at least 2",
    },
    Case {
        name: "star of 1,000, 100,000 transfers, 1,000 at a time",
        part: "sim",
        platform: star_1000,
        load: transfers(100_000, 1_000),
        simgrid_s: None,
        aim: "",
    },
    Case {
        name: "fat tree of 1,024, 1,000 transfers at once",
        part: "sim",
        platform: fat_tree_1024,
        load: transfers(1_000, 1_000),
        simgrid_s: None,
        aim: "",
    },
    Case {
        name: "fat tree of 1,024, 3,000 transfers at once",
        part: "sim",
        platform: fat_tree_1024,
        load: transfers(3_000, 3_000),
        simgrid_s: None,
        aim: "",
    },
    Case {
        name: "fat tree of 1,024, 10,000 transfers at once",
        part: "sim",
        platform: fat_tree_1024,
        load: transfers(10_000, 10_000),
        simgrid_s: None,
        aim: "",
    },
    Case {
        name: "fat tree of 1,024, 100,000 transfers, 100 at a time",
        part: "sim",
        platform: fat_tree_1024,
        load: transfers(100_000, 100),
        simgrid_s: Some(1.31),
        aim: "at least 2",
    },
    Case {
        name: "fat tree of 1,024, 100,000 transfers, 1,000 at a time",
        part: "sim",
        platform: fat_tree_1024,
        load: transfers(100_000, 1_000),
        simgrid_s: None,
        aim: "",
    },
    Case {
        name: "master and 1,000 workers, 100,000 tasks",
        part: "sim",
        platform: star_1000,
        load: Load::Tasks { count: 100_000 },
        simgrid_s: Some(1.64),
        aim: "at least 2",
    },
    Case {
        name: "star of 1,000, 30,000 transfers at once",
        part: "sim-long",
        platform: star_1000,
        load: transfers(30_000, 30_000),
        simgrid_s: None,
        aim: "",
    },
    Case {
        name: "star of 1,000, 100,000 transfers at once",
        part: "sim-long",
        platform: star_1000,
        load: transfers(100_000, 100_000),
        simgrid_s: None,
        aim: "",
    },
    Case {
        name: "fat tree of 1,024, 100,000 transfers at once",
        part: "sim-long",
        platform: fat_tree_1024,
        load: transfers(100_000, 100_000),
        simgrid_s: None,
        aim: "",
    },
    Case {
        name: "star cluster of 100,000, 1,000,000 transfers, 10,000 at a time",
        part: "sim-big",
        platform: star_100000,
        load: transfers(1_000_000, 10_000),
        simgrid_s: None,
        aim: "",
    },
    Case {
        name: "fat tree of 98,304, 1,000,000 transfers, 1,000 at a time",
        part: "sim-big",
        platform: fat_tree_98304,
        load: transfers(1_000_000, 1_000),
        simgrid_s: None,
        aim: "",
    },
];

fn star_1000() -> String {
    cluster(1_000, "")
}

fn star_100000() -> String {
    cluster(100_000, "")
}

/// 32 switches of 32 hosts each, under 32 more.
fn fat_tree_1024() -> String {
    cluster(1_024, r#"topology="FAT_TREE" topo_parameters="2;32,32;1,32;1,1""#)
}

/// Three levels of switches: 48 hosts per switch, 64 of these under 8, 32 of those under 8.
fn fat_tree_98304() -> String {
    cluster(98_304, r#"topology="FAT_TREE" topo_parameters="3;48,64,32;1,8,8;1,1,1""#)
}

fn cluster(hosts: usize, more: &str) -> String {
    format!(
        r#"<platform version="4.1"><cluster id="c" prefix="h" suffix="" radical="0-{}" speed="1Gf" bw="125MBps"
           lat="50us" {more}/></platform>"#,
        hosts - 1
    )
}

/// The figures of the wanted parts.
pub(super) fn figures(wanted: impl Fn(&str) -> bool) -> Vec<Figure> {
    let wanted = CASES.iter().enumerate().filter(|(_, case)| wanted(case.part));
    wanted.map(|(number, case)| figure(number, case)).collect()
}

fn figure(number: usize, case: &Case) -> Figure {
    let rounds = if case.part == "sim" { ROUNDS } else { 1 };
    let runs: Vec<Value> = (0..rounds).map(|_| in_a_process(number)).collect();
    let of = |key: &str| Samples::new(runs.iter().map(|run| run[key].as_f64().expect("a number")).collect());
    let (seconds, memory_mib) = (of("cpu_s"), of("peak_kib").median() / 1024.0);
    let rate = of("events").median() / seconds.median() / 1e3;
    eprintln!("{}: {:.3} s, {rate:.1} thousand events/s, {memory_mib:.0} MiB", case.name, seconds.median());
    let ratio = |seconds: f64| case.simgrid_s.map_or(f64::NAN, |simgrid_s| simgrid_s / seconds);
    Figure {
        name: case.name,
        ours: format!("{:.3} s, {rate:.1} k/s, {memory_mib:.0} MiB", seconds.median()),
        limit: case.simgrid_s.map_or(String::new(), |seconds| format!("{seconds} s (SimGrid 4.1)")),
        ratios: runs.iter().map(|run| ratio(run["cpu_s"].as_f64().expect("a number"))).collect(),
        aim: case.aim,
    }
}

fn in_a_process(number: usize) -> Value {
    let program = std::env::current_exe().expect("this program");
    let output = Command::new(program).args(["--simulation", &number.to_string()]).output().expect("this program runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("the child's figures")
}

/// Runs one case and prints its figures, in the child process.
pub(super) fn child(number: &str) {
    let case = &CASES[number.parse::<usize>().expect("the number of a case")];
    let mut grid = Grid::new(&(case.platform)());
    let events = match case.load {
        Load::Transfers { count, at_a_time } => grid.transfers(count, at_a_time),
        Load::Tasks { count } => grid.tasks(count),
    };
    let end_s = grid.engine.now_s();
    println!("{}", json!({"events": events, "cpu_s": cpu_s(), "peak_kib": peak_kib(), "simulated_s": end_s}));
}

struct Grid {
    platform: Platform,
    engine: FlowEngine,
    links: Vec<LinkIndex>,
    return_links: Vec<LinkIndex>,
    random: u64,
}

impl Grid {
    fn new(text: &str) -> Grid {
        let platform = Platform::parse(text, "bench", &mut |name| Err(name.into())).expect("a good platform");
        let mut resources = Resources::new();
        for link in platform.links() {
            let policy = match link.sharing {
                Sharing::Shared => Policy::Shared,
                Sharing::Fatpipe => Policy::FatPipe,
            };
            resources.add_link(link.bandwidth, link.latency_s, policy);
        }
        for host in platform.hosts() {
            resources.add_host(host.speed_flops, host.cores);
        }
        let engine = FlowEngine::new(resources, NetworkModel::LV08);
        Grid { platform, engine, links: Vec::new(), return_links: Vec::new(), random: 42 }
    }

    /// Runs the transfers; returns the number of events.
    fn transfers(&mut self, count: usize, at_a_time: usize) -> usize {
        let mut started = 0;
        let mut completed: Vec<Completion> = Vec::new();
        let next = |grid: &mut Grid| {
            let hosts = grid.platform.hosts().len() as u64;
            let src = grid.draw(hosts);
            let dst = (src + 1 + grid.draw(hosts - 1)) % hosts;
            let size_bytes = 1_000_000 + grid.draw(9_000_000);
            grid.start_transfer(HostId(src as u32), HostId(dst as u32), size_bytes as f64);
        };
        while started < at_a_time.min(count) {
            next(self);
            started += 1;
        }
        let mut ended = 0;
        while let Some(date_s) = self.engine.next_event_s() {
            self.engine.advance_to(date_s, &mut completed);
            for _ in completed.drain(..) {
                ended += 1;
                if started < count {
                    next(self);
                    started += 1;
                }
            }
        }
        assert_eq!(ended, count);
        2 * count
    }

    /// The first host sends tasks to the others in turn, one after another, each when its worker is idle. Returns the
    /// number of events.
    fn tasks(&mut self, count: usize) -> usize {
        let workers = self.platform.hosts().len() - 1;
        let (mut sent, mut done) = (0, 0);
        let mut sending: Option<(ActionId, usize)> = None;
        let mut busy = vec![false; workers];
        let mut worker_of: Vec<usize> = Vec::new();
        let mut completed = Vec::new();
        loop {
            let worker = sent % workers;
            if sent < count && sending.is_none() && !busy[worker] {
                sending = Some((self.start_transfer(HostId(0), HostId(worker as u32 + 1), 1e6), worker));
                sent += 1;
            }
            let Some(date_s) = self.engine.next_event_s() else { break };
            self.engine.advance_to(date_s, &mut completed);
            let mut arrived = None;
            for Completion { action, .. } in completed.drain(..) {
                match sending {
                    Some((sent, worker)) if sent == action => arrived = Some(worker),
                    Some(_) | None => {
                        busy[worker_of[action.slot()]] = false;
                        done += 1;
                    }
                }
            }
            if let Some(worker) = arrived {
                let work_flops = HOST_FLOPS * (8.0 + self.draw(4_000) as f64 / 1000.0);
                let action = self.engine.start_execution(&Execution::new(HostIndex(worker as u32 + 1), work_flops));
                worker_of.resize(worker_of.len().max(action.slot() + 1), 0);
                worker_of[action.slot()] = worker;
                busy[worker] = true;
                sending = None;
            }
        }
        assert_eq!(done, count);
        3 * count
    }

    fn start_transfer(&mut self, src: HostId, dst: HostId, size_bytes: f64) -> ActionId {
        let route = self.platform.route(src, dst).expect("all hosts are joined");
        let back = self.platform.route(dst, src).expect("all hosts are joined");
        let indices = |links: &[LinkId], into: &mut Vec<LinkIndex>| {
            into.clear();
            into.extend(links.iter().map(|link| LinkIndex(link.0)));
        };
        indices(&route.links, &mut self.links);
        indices(&back.links, &mut self.return_links);
        let transfer = Transfer::new(&self.links, route.latency_s, size_bytes);
        self.engine.start_transfer(&Transfer { return_links: &self.return_links, ..transfer })
    }

    /// Draws a number below `end` (SplitMix64).
    fn draw(&mut self, end: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }
}

fn cpu_s() -> f64 {
    let spent = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    spent.tv_sec as f64 + spent.tv_nsec as f64 * 1e-9
}

/// The peak memory of this process.
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("Linux reports it");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

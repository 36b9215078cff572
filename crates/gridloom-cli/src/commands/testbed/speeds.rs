//! Whether and how a testbed's hosts get the speeds of the platform, said in words.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use gridloom_core::platform::Platform;
use gridloom_net::jobs::measure_speed;
use gridloom_testbed::capacity::Capacity;
use gridloom_testbed::kernel::groups::{self, Place};
use gridloom_testbed::model::topology::Topology;
use gridloom_testbed::spec::{Launch, Quota, Spec};

/// How processor speeds are emulated.
#[derive(Clone, Copy, Debug, PartialEq, clap::ValueEnum)]
pub enum Speeds {
    /// By quota where that is permitted, else by slowing calls down, if the machine is fast enough.
    Auto,
    /// By quota, or the testbed is refused.
    Quota,
    /// By letting calls of servers take as long as they would, or the testbed is refused.
    Slowdown,
    /// Not at all.
    None,
}

/// Control groups that were made; removed unless the testbed has taken them over.
pub struct Made(Vec<PathBuf>);

impl Made {
    /// From now on they are removed with the testbed's folder.
    pub fn keep(mut self) {
        self.0.clear();
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        for folder in &self.0 {
            // Nothing has been put into it.
            let _ = std::fs::remove_dir(folder);
        }
    }
}

impl Speeds {
    /// Gives the processes their hosts' speeds, and says what is emulated and what this machine cannot carry.
    ///
    /// # Errors
    /// If quotas are wanted and cannot be had.
    pub fn apply(self, spec: &mut Spec, platform: &Platform, name: &str, quiet: bool) -> Result<Made> {
        let say = |line: &str| {
            if !quiet {
                gridloom_core::say!("gridloom: testbed: {line}");
            }
        };
        let topology = Topology::new(platform, &spec.tuning)?;
        let slower = spec.tuning.slower;
        let mut computing: Vec<usize> = spec.services.iter().filter(|one| one.computes).map(|one| one.host).collect();
        computing.sort_unstable();
        computing.dedup();
        let mut needed = Capacity::of_platform(platform, &topology, &computing);
        needed.speed /= slower;
        needed.core_speed /= slower;
        let machine = Capacity::of_machine(measure_speed()).context("what this machine can carry")?;
        let times = machine.slower_for_rate(&needed) * slower;
        if times > slower {
            say(&format!(
                "the widest way carries {:.0} MB/s, this machine about {:.0} MB/s in all: transfers that fill it are \
                 slower than they should be; --slower {:.1} keeps proportions",
                needed.rate / 1e6,
                machine.rate / 1e6,
                times
            ));
        }
        if computing.is_empty() {
            return Ok(Made(Vec::new()));
        }
        if self == Speeds::None {
            say("processor speeds are not emulated");
            return Ok(Made(Vec::new()));
        }
        let times = machine.slower_for_speed(&needed) * slower;
        if times > slower {
            let why = format!(
                "the hosts together have {:.1} Gflop/s and the fastest core {:.1}, this machine {:.1} and {:.1}; \
                 --slower {:.1} keeps proportions",
                needed.speed / 1e9,
                needed.core_speed / 1e9,
                machine.speed / 1e9,
                machine.core_speed / 1e9,
                times * 1.05
            );
            if self != Speeds::Auto {
                bail!("processor speeds cannot be emulated: {why}");
            }
            say(&format!("processor speeds are not emulated: {why}"));
            return Ok(Made(Vec::new()));
        }
        let core_speed = machine.core_speed * slower;
        let core = machine.core_speed / 1e9;
        let place = match self {
            Speeds::Slowdown => Err(None),
            _ => groups::place().map_err(Some),
        };
        match place {
            Ok(place) => {
                let made = limit(spec, platform, &place, name, &computing, core_speed)?;
                say(&format!("processor speeds are emulated by quota: a core here counts as {core:.1} Gflop/s"));
                Ok(made)
            }
            Err(Some(why)) if self == Speeds::Quota => bail!("processor speeds cannot be emulated by quota: {why}"),
            Err(why) => {
                slow_down(spec, platform, core_speed);
                let why = why.map(|why| format!(" (no quota: {why})")).unwrap_or_default();
                say(&format!(
                    "processor speeds are emulated by slowing calls down: a core here counts as {core:.1} Gflop/s{why}"
                ));
                Ok(Made(Vec::new()))
            }
        }
    }
}

/// Servers whose calls take as long as they would on their hosts.
fn slow_down(spec: &mut Spec, platform: &Platform, core_speed: f64) {
    for launch in spec.services.iter_mut().filter(|launch| launch.computes) {
        let speed = platform.hosts()[launch.host].speed_flops;
        // The speed that was measured may be a little below another measurement's.
        let times = (core_speed / speed).max(1.0);
        launch.command.extend(["--slowdown".into(), times.to_string(), "--speed".into(), speed.to_string()]);
    }
}

/// A group for each host, and in it the workers of its servers: what computes. Servers themselves, agents and programs
/// run at full speed, as in simulation: what they do with data is the links' time. `core_speed` is what a whole core
/// here stands for.
fn limit(
    spec: &mut Spec,
    platform: &Platform,
    place: &Place,
    name: &str,
    computing: &[usize],
    core_speed: f64,
) -> Result<Made> {
    let mut made = Made(Vec::new());
    for host in computing {
        let described = &platform.hosts()[*host];
        let cores = described.speed_flops * f64::from(described.cores) / core_speed;
        let folder = groups::make(place, &format!("gridloom-testbed-{name}-{host}"), cores)
            .with_context(|| format!("a control group for host '{}'", described.name))?;
        made.0.push(folder.clone());
        let is_here = |launch: &&mut Launch| launch.host == *host && launch.computes;
        for launch in spec.services.iter_mut().filter(is_here) {
            // What it would measure is the processor's, which its workers have for a part of the time only.
            launch.command.extend(["--speed".to_string(), described.speed_flops.to_string()]);
            launch.command.extend(["--worker-group".to_string(), groups::members(&folder).display().to_string()]);
        }
        spec.quotas.push(Quota { host: *host, group: folder.clone(), cores });
        spec.groups.push(folder);
    }
    Ok(made)
}

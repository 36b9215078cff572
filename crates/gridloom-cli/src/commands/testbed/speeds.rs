//! Decides whether and how a testbed's hosts get the speeds of the platform.

use std::io;
use std::path::Path;

use anyhow::{Context, Result, bail};
use gridloom_net::jobs::measure_speed;
use gridloom_platform::Platform;
use gridloom_testbed::capacity::{self, Capacity};
use gridloom_testbed::kernel::groups::{self, CgroupRoot};
use gridloom_testbed::model::topology::Topology;
use gridloom_testbed::profiles;
use gridloom_testbed::spec::{Launch, Quota, Spec};

/// How processor speeds are emulated.
#[derive(Clone, Copy, Debug, PartialEq, clap::ValueEnum)]
pub enum Speeds {
    /// Processor quotas if they are permitted, else slower calls if the machine is fast enough.
    Auto,
    /// Processor quotas; if they are not possible, the testbed is refused.
    Quota,
    /// Slower calls of the servers; if they are not possible, the testbed is refused.
    Slowdown,
    /// Speeds are not emulated.
    None,
}

/// Options of the command that starts a testbed.
pub struct SpeedOptions<'a> {
    pub speeds: Speeds,
    /// True to run a platform even if this machine cannot carry it.
    pub overload: bool,
    pub name: &'a str,
    pub quiet: bool,
}

impl SpeedOptions<'_> {
    fn print(&self, line: &str) {
        if !self.quiet {
            gridloom_base::stderr_line!("gridloom: testbed: {line}");
        }
    }
}

/// Applies the hosts' speeds to the processes, and prints how, and what this machine cannot carry. Each control group
/// is recorded before it is created.
///
/// # Errors
/// If the platform exceeds what this machine can carry, or if quotas are required but not available.
pub fn apply(
    asked: &SpeedOptions<'_>,
    spec: &mut Spec,
    platform: &Platform,
    note: impl Fn(&Path) -> io::Result<()>,
) -> Result<()> {
    let topology = Topology::new(platform, &spec.tuning)?;
    let slower = spec.tuning.slower;
    let mut computing: Vec<usize> = spec.services.iter().filter(|one| one.computes).map(|one| one.host).collect();
    computing.sort_unstable();
    computing.dedup();
    let mut needed = Capacity::of_platform(platform, &topology, &computing);
    needed.speed /= slower;
    needed.core_speed /= slower;
    let machine = Capacity::of_machine(measure_speed()).context("what this machine can carry")?;
    check_rate(asked, &needed, &machine, slower)?;
    if !computing.is_empty() {
        emulate(asked, spec, platform, &computing, &needed, &machine, note)?;
    }
    let quotas = &spec.quotas;
    let dropped = profiles::not_followed(platform, |host| quotas.iter().any(|quota| quota.host == host));
    if !dropped.is_empty() {
        asked.print(&format!(
            "warning: these profiles of the platform are not followed: {}; only those of links are, and speeds of \
             hosts with servers if they are emulated by quota",
            dropped.join(", ")
        ));
    }
    Ok(())
}

/// Refuses a platform that the network cannot carry, or warns about it.
fn check_rate(asked: &SpeedOptions<'_>, needed: &Capacity, machine: &Capacity, slower: f64) -> Result<()> {
    let times = machine.slower_for_rate(needed);
    if times <= 1.0 {
        return Ok(());
    }
    let both = format!(
        "the widest route between two hosts carries {:.0} MB/s, this machine about {:.0} MB/s in all",
        needed.rate / 1e6,
        machine.rate / 1e6
    );
    let fits = capacity::with_margin(times * slower);
    if times > capacity::OVERLOAD_MAX && !asked.overload {
        bail!(
            "{both}, which is less than 1/{} of that: slow the platform down with --slower {fits}, simulate it \
             ('gridloom simulate'), or run it nevertheless with --overload",
            capacity::OVERLOAD_MAX
        );
    }
    asked.print(&format!(
        "warning: {both}: transfers that fill it are slower than they should be; --slower {fits} keeps proportions"
    ));
    Ok(())
}

/// Sets the speeds of the hosts that compute.
fn emulate(
    asked: &SpeedOptions<'_>,
    spec: &mut Spec,
    platform: &Platform,
    computing: &[usize],
    needed: &Capacity,
    machine: &Capacity,
    note: impl Fn(&Path) -> io::Result<()>,
) -> Result<()> {
    let slower = spec.tuning.slower;
    if asked.speeds == Speeds::None {
        asked.print("processor speeds are not emulated");
        return Ok(());
    }
    let times = machine.slower_for_speed(needed) * slower;
    if times > slower {
        let why = format!(
            "the hosts together have {:.1} Gflop/s and the fastest core {:.1}, this machine {:.1} and {:.1}; --slower {:.1} \
             keeps proportions",
            needed.speed / 1e9,
            needed.core_speed / 1e9,
            machine.speed / 1e9,
            machine.core_speed / 1e9,
            capacity::with_margin(times)
        );
        if asked.speeds != Speeds::Auto {
            bail!("processor speeds cannot be emulated: {why}");
        }
        asked.print(&format!("warning: processor speeds are not emulated: {why}"));
        return Ok(());
    }
    let core_speed = machine.core_speed * slower;
    let core = machine.core_speed / 1e9;
    let place = match asked.speeds {
        Speeds::Slowdown => Err(None),
        _ => groups::place(&note).map_err(Some),
    };
    match place {
        Ok(place) => {
            limit(spec, platform, &place, asked.name, computing, core_speed, note)?;
            asked.print(&format!("processor speeds are emulated by quota: a core here counts as {core:.1} Gflop/s"));
        }
        Err(Some(why)) if asked.speeds == Speeds::Quota => {
            bail!("processor speeds cannot be emulated by quota: {why}")
        }
        Err(why) => {
            slow_down(spec, platform, core_speed);
            let why = why.map(|why| format!(" (no quota: {why})")).unwrap_or_default();
            asked.print(&format!(
                "processor speeds are emulated by slowing calls down: a core here counts as {core:.1} Gflop/s{why}"
            ));
        }
    }
    Ok(())
}

/// Slows servers down so that their calls take as long as they would on their hosts.
fn slow_down(spec: &mut Spec, platform: &Platform, core_speed: f64) {
    for launch in spec.services.iter_mut().filter(|launch| launch.computes) {
        let speed = platform.hosts()[launch.host].speed_flops;
        // The measured speed may be slightly below that of another measurement.
        let times = (core_speed / speed).max(1.0);
        launch.command.extend([
            "--slowdown".into(),
            times.to_string().into(),
            "--speed".into(),
            speed.to_string().into(),
        ]);
    }
}

/// Creates a control group for each host with the workers of its servers. Servers themselves, agents and programs run
/// at full speed, as in simulation: the time for data is determined by the links. `core_speed` is the speed of a whole
/// core here.
fn limit(
    spec: &mut Spec,
    platform: &Platform,
    place: &CgroupRoot,
    name: &str,
    computing: &[usize],
    core_speed: f64,
    note: impl Fn(&Path) -> io::Result<()>,
) -> Result<()> {
    for host in computing {
        let described = &platform.hosts()[*host];
        let cores = described.speed_flops * f64::from(described.cores) / core_speed;
        let folder = groups::make(place, &format!("gridloom-testbed-{name}-{host}"), cores, &note)
            .with_context(|| format!("a control group for host '{}'", described.name))?;
        let is_here = |launch: &&mut Launch| launch.host == *host && launch.computes;
        for launch in spec.services.iter_mut().filter(is_here) {
            // A server would measure the whole processor, but its workers get only a part of the time.
            launch.command.extend(["--speed".into(), described.speed_flops.to_string().into()]);
            launch.command.extend(["--worker-group".into(), groups::members(&folder).into_os_string()]);
        }
        spec.quotas.push(Quota { host: *host, group: folder, cores });
    }
    Ok(())
}

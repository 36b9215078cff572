//! `gridloom chares advise`.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use gridloom::chares::ELEMENT_FUNCTION;
use gridloom::chares::ElementPlacement;
use gridloom::{SimulateConfig, SimulationReport};
use gridloom_base::limits::CHARES_MAX;
use gridloom_base::stderr_line;
use gridloom_platform::{HostId, Platform, deployment};
use serde_json::json;

use super::super::simulate::{Output, run_simulated};
use super::super::{OwnFolder, absolute, count, digits, platform, print_json, print_line, read_text};
use super::{balancer, deployment_text, site_of};

/// Find the best number of chares per processing element for a program on a platform.
///
/// The command simulates the program on the platform once for each number of chares per element, and again with links
/// between sites that have no latency. In each run {chares} in the program's arguments is replaced by the number of
/// all chares. The best number is the smallest one whose run takes at most 1 % longer than the shortest run. The time
/// is that of the whole run, so let the program do enough steps. The program's output goes to standard error.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  gridloom chares advise -p two-sites.toml -n 8 -- target/release/examples/stencil --chares {chares}"
)]
pub struct Options {
    /// Platform file: TOML, or SimGrid's XML
    #[arg(short, long, value_name = "FILE")]
    platform: PathBuf,
    /// Number of processing elements [default: one for each host]
    #[arg(short, long, value_name = "NUMBER")]
    number: Option<usize>,
    /// Deployment file with the processing elements, as printed by 'gridloom chares deployment'
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["number", "balance"])]
    deployment: Option<PathBuf>,
    /// Numbers of chares per element to try, separated by commas
    #[arg(
        long,
        value_name = "NUMBERS",
        value_delimiter = ',',
        default_value = "1,4,16,64",
        value_parser = clap::value_parser!(u32).range(1..)
    )]
    per_element: Vec<u32>,
    /// Load balancer that moves chares to other elements: none, greedy, refine, hierarchical or grid-aware [default: the
    /// program's]
    #[arg(long, value_name = "NAME", value_parser = balancer)]
    balance: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// The program and its arguments; {chares} is replaced by the number of chares
    #[arg(last = true, required = true)]
    program: Vec<OsString>,
}

/// Placeholder for the number of chares in the program's arguments.
const PLACEHOLDER: &str = "{chares}";

/// Runs that take at most this many times the shortest time count as equally good.
const EQUALLY_GOOD_FACTOR: f64 = 1.01;

/// Results of the simulations with one number of chares.
struct Row {
    per_element: u32,
    chares: usize,
    run_s: f64,
    /// Time without latency between sites, if there are several sites.
    no_latency_s: Option<f64>,
}

pub fn run(options: &Options) -> Result<ExitCode> {
    ensure!(
        options.program.iter().skip(1).any(|word| with_number(word, "") != *word),
        "no argument of the program has {PLACEHOLDER}, the placeholder for the number of chares, as in: \
         -- stencil --chares {PLACEHOLDER}"
    );
    let platform = platform::read(&options.platform)?;
    let folder = OwnFolder::new("advise")?;
    let file = match &options.deployment {
        Some(file) => absolute(file)?,
        None => {
            let places = ElementPlacement { balance: options.balance.clone(), ..ElementPlacement::default() };
            let text = deployment_text(&platform, &options.platform, options.number, places)?;
            let file = folder.0.join("elements.toml");
            std::fs::write(&file, text).with_context(|| file.display().to_string())?;
            file
        }
    };
    let config = SimulateConfig {
        platform: absolute(&options.platform)?,
        report: Some(folder.0.join("report.json")),
        deployment: Some(file.clone()),
        program: std::env::current_exe().ok(),
        ..SimulateConfig::default()
    };
    config.check()?;
    let hosts = hosts_of_elements(options.deployment.as_deref().unwrap_or(&file), &platform)?;
    let far = links_between_sites(&platform, &hosts);
    let near = SimulateConfig { without_latency: far, ..config.clone() };
    let mut numbers = options.per_element.clone();
    numbers.sort_unstable();
    numbers.dedup();
    let mut rows = Vec::new();
    for per_element in numbers {
        let chares = per_element as usize * hosts.len();
        ensure!(
            chares <= CHARES_MAX,
            "{per_element} chares on each of {} elements are {chares}; an array has at most {CHARES_MAX}",
            hosts.len()
        );
        let program = Program { words: &options.program, per_element, chares };
        let run_s = program.simulated_s(&config)?;
        let is_apart = !near.without_latency.is_empty();
        let near_s = is_apart.then(|| program.simulated_s(&near)).transpose()?;
        rows.push(Row { per_element, chares, run_s, no_latency_s: near_s });
    }
    print(&rows, hosts.len(), options.json)?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the host of each element.
fn hosts_of_elements(file: &Path, platform: &Platform) -> Result<Vec<HostId>> {
    let processes = deployment::parse(&read_text(file)?, &file.display().to_string())?;
    let elements = processes.iter().filter(|process| process.function == ELEMENT_FUNCTION);
    let hosts: Vec<HostId> = elements.map(|process| platform.host(&process.host).expect("hosts are checked")).collect();
    ensure!(
        !hosts.is_empty(),
        "{}: no process has the function '{ELEMENT_FUNCTION}'; 'gridloom chares deployment' prints a deployment of elements",
        file.display()
    );
    Ok(hosts)
}

/// Returns the links that only messages between sites cross.
fn links_between_sites(platform: &Platform, hosts: &[HostId]) -> BTreeSet<String> {
    let hosts: BTreeSet<HostId> = hosts.iter().copied().collect();
    let site = |host: &HostId| site_of(&platform.hosts()[host.0 as usize]);
    let (mut far, mut near) = (BTreeSet::new(), BTreeSet::new());
    for from in &hosts {
        for to in &hosts {
            // If there is no route, the simulation fails and reports it.
            let Ok(route) = platform.route(*from, *to) else { continue };
            let kind = if site(from) == site(to) { &mut near } else { &mut far };
            kind.extend(route.links);
        }
    }
    far.difference(&near).map(|link| platform.links()[link.0 as usize].name.clone()).collect()
}

/// Returns a word of the command line with the number in place of each [`PLACEHOLDER`].
fn with_number(word: &OsStr, number: &str) -> OsString {
    let mut replaced = Vec::new();
    let mut rest = word.as_bytes();
    while let Some(at) = rest.windows(PLACEHOLDER.len()).position(|part| part == PLACEHOLDER.as_bytes()) {
        replaced.extend_from_slice(&rest[..at]);
        replaced.extend_from_slice(number.as_bytes());
        rest = &rest[at + PLACEHOLDER.len()..];
    }
    replaced.extend_from_slice(rest);
    OsString::from_vec(replaced)
}

/// The program with one number of chares.
struct Program<'a> {
    words: &'a [OsString],
    per_element: u32,
    chares: usize,
}

impl Program<'_> {
    /// Simulates the program and returns its virtual time.
    fn simulated_s(&self, config: &SimulateConfig) -> Result<f64> {
        let Program { words, per_element, chares } = self;
        let number = chares.to_string();
        let words: Vec<OsString> = words.iter().map(|word| with_number(word, &number)).collect();
        let with = format!("with {} ({per_element} an element)", count(*chares, "chare"));
        let near = if config.without_latency.is_empty() { "" } else { ", no latency between sites" };
        stderr_line!("gridloom: simulating {with}{near}");
        let report = config.report.as_deref().expect("it has a report");
        // The report of the previous run must not be taken for this one's.
        if report.exists() {
            std::fs::remove_file(report).with_context(|| report.display().to_string())?;
        }
        let status = run_simulated(&words, config, &[], Output::ToStandardError)?;
        ensure!(
            status.success(),
            "{with} the program has failed: {status}; --per-element chooses the numbers of chares that it is run with"
        );
        ensure!(report.exists(), "{with} the program has run no chares; nothing was simulated");
        let report: SimulationReport = serde_json::from_str(&read_text(report)?).context("the simulation's report")?;
        if let Some(failure) = report.failure {
            bail!("{with} the simulation has failed: {failure}");
        }
        Ok(report.seconds)
    }
}

/// Returns the first row that is as good as the shortest run.
fn best(rows: &[Row]) -> (&Row, f64) {
    let least_s = rows.iter().map(|row| row.run_s).min_by(f64::total_cmp).expect("there is a number to try");
    let best =
        rows.iter().find(|row| row.run_s <= least_s * EQUALLY_GOOD_FACTOR).expect("the shortest is as good as itself");
    (best, least_s)
}

fn print(rows: &[Row], elements: usize, json: bool) -> Result<()> {
    let (best, least_s) = best(rows);
    let ratio = |row: &Row| if least_s > 0.0 { row.run_s / least_s } else { 1.0 };
    if json {
        let runs = rows.iter().map(|row| {
            json!({
                "per_element": row.per_element, "chares": row.chares, "seconds": row.run_s, "ratio": ratio(row),
                "seconds_without_latency": row.no_latency_s,
            })
        });
        return print_json(&json!({
            "elements": elements, "runs": runs.collect::<Vec<_>>(), "best_per_element": best.per_element,
            "best_chares": best.chares,
        }));
    }
    let near = |text: String| if best.no_latency_s.is_some() { format!(" {text:>32}") } else { String::new() };
    print_line(&format!(
        "{:>17} {:>10} {:>12} {:>15}{}",
        "chares an element",
        "chares",
        "run, s",
        "times the least",
        near("without latency between sites, s".into())
    ))?;
    for row in rows {
        print_line(&format!(
            "{:>17} {:>10} {:>12} {:>15.3}{}",
            row.per_element,
            row.chares,
            digits(row.run_s),
            ratio(row),
            near(row.no_latency_s.map(digits).unwrap_or_default())
        ))?;
    }
    print_line(&format!("best: {} an element, {} in all", count(best.per_element as usize, "chare"), best.chares))
}

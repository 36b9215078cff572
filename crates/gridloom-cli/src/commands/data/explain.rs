//! `gridloom data explain`.

use std::fmt::Write;
use std::process::ExitCode;

use anyhow::Result;
use gridloom::SharedDataReport;
use gridloom_base::{Method, NodeId};
use gridloom_core::data::{Verdict, VersionReport, VersionState};
use gridloom_core::node::message::{CandidateReport, CopyReport, LinkBasis};
use gridloom_perf::LinkEstimate;
use serde_json::{Value, json};

use crate::commands::{GridOption, count, print_json, print_text};
use crate::quantities::scaled;

/// Show where a name's versions are, and from which server each other server would get it, how fast, and why.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  gridloom data explain mesh")]
pub struct Options {
    /// A name, as 'gridloom data' lists it
    name: String,
    #[command(flatten)]
    grid: GridOption,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn run(options: &Options) -> Result<ExitCode> {
    let grid = options.grid.connect()?;
    let explained = grid.shared().explain(&options.name)?;
    match options.json {
        true => print_json(&to_json(&options.name, &explained))?,
        false => print_text(&page(&options.name, &explained))?,
    }
    Ok(ExitCode::SUCCESS)
}

fn to_json(name: &str, explained: &SharedDataReport) -> Value {
    let names = |nodes: &[NodeId]| -> Vec<String> { nodes.iter().map(|node| explained.name_of(*node)).collect() };
    let versions = explained.versions.iter().map(|one| {
        json!({
            "version": one.named.version,
            "state": state(one.standing),
            "kind": one.named.meta.to_string(),
            "size_bytes": one.named.meta.size_bytes(),
            "replicas": one.named.replicas,
            "durable": one.named.is_durable,
            "method": one.named.method.to_string(),
            "servers": names(&one.holders),
            "keepers": names(&one.keepers),
            "transferring_to": names(&one.assigned),
            "readers": one.readers,
            "lost": one.lost,
        })
    });
    let copies = explained.copies.iter().map(|one| {
        let sources = one.candidates.iter().map(|source| source_json(explained, source));
        json!({
            "server": explained.name_of(one.server),
            "is_in_transfer": one.is_in_transfer,
            "source_count": one.count,
            "sources": sources.collect::<Vec<_>>(),
        })
    });
    let (versions, copies): (Vec<Value>, Vec<Value>) = (versions.collect(), copies.collect());
    json!({ "name": name, "versions": versions, "servers_without": copies })
}

fn source_json(explained: &SharedDataReport, source: &CandidateReport) -> Value {
    json!({
        "server": explained.name_of(source.from),
        "seconds": source.seconds,
        "sends": source.hops,
        "sends_to_others": source.sends,
        "latency_seconds": source.link.latency_s,
        // JSON has no infinity, and within a host the bandwidth is infinite.
        "bandwidth_bytes_per_second": source.link.bandwidth,
        "link": basis(source.basis),
        "verdict": match source.verdict {
            Verdict::Taken => "taken",
            Verdict::NotBest => "behind",
            Verdict::Busier => "busier",
            Verdict::Narrower => "narrower",
            Verdict::Farther => "farther",
            Verdict::Later => "later",
        },
    })
}

fn state(standing: VersionState) -> &'static str {
    match standing {
        VersionState::BeingPut => "being put",
        VersionState::Current => "current",
        VersionState::Superseded => "superseded",
    }
}

fn basis(basis: LinkBasis) -> &'static str {
    match basis {
        LinkBasis::SameHost => "same host",
        LinkBasis::Measured => "measured",
        LinkBasis::Others => "as others",
        LinkBasis::Unknown => "not measured",
        LinkBasis::Broken => "broken",
    }
}

fn page(name: &str, explained: &SharedDataReport) -> String {
    let mut text = format!("{}\n", name);
    explained.versions.iter().for_each(|version| text += &version_lines(explained, version));
    if explained.copies.is_empty() {
        return text;
    }
    let row = |one: &CopyReport| copy_row(explained, one);
    let rows: Vec<[String; 5]> = explained.copies.iter().map(row).collect();
    let heads = ["server", "from", "takes", "link", "why"].map(str::to_string);
    let widths: [usize; 4] = std::array::from_fn(|column| {
        let all = rows.iter().chain([&heads]);
        all.map(|row| row[column].chars().count()).max().unwrap_or(0)
    });
    text.push('\n');
    for [server, from, takes, link, why] in [&heads].into_iter().chain(&rows) {
        let [a, b, c, d] = widths;
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{server:<a$}  {from:<b$}  {takes:>c$}  {link:<d$}  {why}");
    }
    text
}

fn version_lines(explained: &SharedDataReport, version: &VersionReport) -> String {
    let names = |nodes: &mut dyn Iterator<Item = &NodeId>| {
        nodes.map(|node| explained.name_of(*node)).collect::<Vec<_>>().join(", ")
    };
    let (number, meta, standing) = (version.named.version, &version.named.meta, state(version.standing));
    let size = scaled(meta.size_bytes() as f64, "B");
    let durable = if version.named.is_durable { ", durable" } else { "" };
    let method = match version.named.method {
        Method::Auto => String::new(),
        method => format!(", method {method}"),
    };
    let mut text = format!("version {number}, {standing}{durable}{method}: {meta}, {size}\n");
    let wanted = version.named.replicas;
    let kept = if version.keepers.is_empty() { "none".to_string() } else { names(&mut version.keepers.iter()) };
    text += &format!("  kept by {kept}{}\n", if wanted > 1 { format!(" ({wanted} required)") } else { String::new() });
    if !version.assigned.is_empty() {
        text += &format!("  to be kept by {}\n", names(&mut version.assigned.iter()));
    }
    let mut copies = version.holders.iter().filter(|node| !version.keepers.contains(node)).peekable();
    if copies.peek().is_some() {
        text += &format!("  copies on {}\n", names(&mut copies));
    }
    if version.readers > 0 {
        text += &format!("  read by {}\n", count(version.readers as usize, "program"));
    }
    if let Some(why) = &version.lost {
        text += &format!("  lost: {}\n", why);
    }
    text
}

fn copy_row(explained: &SharedDataReport, copy: &CopyReport) -> [String; 5] {
    let server = explained.name_of(copy.server);
    let Some(best) = copy.candidates.first() else {
        return [server, "-".into(), "-".into(), "-".into(), "no server that it can reach has it".into()];
    };
    let takes = scaled(best.seconds, "s");
    [server, explained.name_of(best.from), takes, link_text(best.link, best.basis), why(explained, copy)]
}

fn link_text(link: LinkEstimate, of: LinkBasis) -> String {
    match of {
        LinkBasis::SameHost | LinkBasis::Broken => basis(of).to_string(),
        _ => format!("{}, {}, {}", scaled(link.bandwidth, "B/s"), scaled(link.latency_s, "s"), basis(of)),
    }
}

/// Explains why the first source is chosen: the disadvantage of the second one.
fn why(explained: &SharedDataReport, copy: &CopyReport) -> String {
    let best = &copy.candidates[0];
    let mut text = match (copy.is_in_transfer, copy.candidates.get(1)) {
        (true, None) => "it is being sent".to_string(),
        (true, Some(next)) => format!("it is being sent in slices, also from {}", explained.name_of(next.from)),
        (false, None) => "the only source".to_string(),
        (false, Some(next)) => {
            let name = explained.name_of(next.from);
            let against = match next.verdict {
                Verdict::Taken | Verdict::NotBest => format!("{name} would do as well"),
                Verdict::Busier => format!("{name} sends it to {} already", count(next.sends as usize, "server")),
                Verdict::Narrower => format!("the link from {name} is narrow, {}", scaled(next.link.bandwidth, "B/s")),
                Verdict::Farther => format!("{name} is farther, {}", scaled(next.link.latency_s, "s")),
                Verdict::Later => format!("from {name} it takes {}", scaled(next.seconds, "s")),
            };
            format!("of {} sources; {against}", copy.count)
        }
    };
    if best.hops > 1 {
        text += &format!("; {} gets it itself", explained.name_of(best.from));
    }
    text
}

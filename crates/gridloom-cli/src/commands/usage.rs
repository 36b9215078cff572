//! `gridloom usage`.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Result;
use gridloom::UsageReport;
use gridloom_base::EscapedLine;
use gridloom_base::time::ns_to_seconds;
use gridloom_core::node::message::{DayUsage, OTHER_USERS, Usage};
use serde_json::{Value, json};

use super::{GridOption, print_json, print_line};

/// How long to wait for the agent.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// Show what each user has used: calls, hours of slots, and bytes, by day.
///
/// Users see their own usage, administrators that of all users. Servers report every ten seconds.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  gridloom usage --since 2026-11-01 --by user")]
pub struct Options {
    #[command(flatten)]
    grid: GridOption,
    /// Show only this user
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// First day, in UTC [default: the first that the agent has]
    #[arg(long, value_name = "YYYY-MM-DD", value_parser = parse_day)]
    since: Option<u32>,
    /// Last day, in UTC [default: today]
    #[arg(long, value_name = "YYYY-MM-DD", value_parser = parse_day)]
    until: Option<u32>,
    /// Sums for each day and user, or for each user
    #[arg(long, value_enum, default_value_t = By::Day)]
    by: By,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(clap::ValueEnum, Clone, Copy, PartialEq)]
enum By {
    Day,
    User,
}

pub fn run(options: &Options) -> Result<ExitCode> {
    let days = (options.since.unwrap_or(0), options.until.unwrap_or(u32::MAX));
    if days.0 > days.1 {
        anyhow::bail!("--since {} is later than --until {}; exchange them", day_text(days.0), day_text(days.1));
    }
    let grid = options.grid.connect()?;
    let UsageReport { days: entries, stored_bytes: stored, disk_bytes: on_disk, links } =
        grid.usage(days, options.user.clone(), ANSWER_LIMIT)?;
    let entries = if options.by == By::User { by_user(entries) } else { entries.into_iter().map(of_day).collect() };
    if options.json {
        let list: Vec<Value> = entries.iter().map(entry_json).collect();
        let by_name = |bytes: &[(String, u64)]| -> BTreeMap<String, u64> {
            bytes.iter().map(|(user, bytes)| (shown(user).to_string(), *bytes)).collect()
        };
        let links: Vec<Value> =
            links.iter().map(|one| json!({ "user": shown(&one.user), "link": one.link, "bytes": one.bytes })).collect();
        print_json(&json!({
            "usage": list, "stored_bytes": by_name(&stored), "disk_bytes": by_name(&on_disk), "links": links,
        }))?;
        return Ok(ExitCode::SUCCESS);
    }
    if entries.is_empty() {
        print_line("no usage in these days")?;
    } else {
        let day = if options.by == By::Day { format!("{:<10}  ", "day") } else { String::new() };
        print_line(&format!(
            "{day}{:<20} {:>9} {:>8} {:>9} {:>11} {:>10} {:>10}",
            "user", "calls", "failed", "cancelled", "slot hours", "GB in", "GB out"
        ))?;
    }
    for (day, user, usage) in &entries {
        let day = day.map_or_else(String::new, |day| format!("{:<10}  ", day_text(day)));
        let gigabytes = |bytes: u64| bytes as f64 / 1e9;
        print_line(&format!(
            "{day}{:<20} {:>9} {:>8} {:>9} {:>11.3} {:>10.3} {:>10.3}",
            shown(user),
            usage.succeeded,
            usage.failed,
            usage.cancelled,
            ns_to_seconds(usage.slot_ns) / 3600.0,
            gigabytes(usage.received_bytes),
            gigabytes(usage.sent_bytes)
        ))?;
    }
    for (user, bytes) in stored.iter().filter(|(_, bytes)| *bytes > 0) {
        print_line(&format!("{} stores {bytes} bytes of shared data now, in all copies", shown(user)))?;
    }
    for (user, bytes) in on_disk.iter().filter(|(_, bytes)| *bytes > 0) {
        print_line(&format!("{} has {bytes} bytes on the disks of servers now", shown(user)))?;
    }
    for one in &links {
        let (user, link) = (shown(&one.user), EscapedLine(&one.link));
        print_line(&format!("{user} has received {} bytes over the link '{link}' today", one.bytes))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The usage of a user, on one day or on all of them.
type Entry = (Option<u32>, String, Usage);

fn of_day(DayUsage { day, user, usage }: DayUsage) -> Entry {
    (Some(day), user, usage)
}

fn by_user(entries: Vec<DayUsage>) -> Vec<Entry> {
    let mut users: BTreeMap<String, Usage> = BTreeMap::new();
    entries.into_iter().for_each(|entry| users.entry(entry.user).or_default().add(&entry.usage));
    users.into_iter().map(|(user, usage)| (None, user, usage)).collect()
}

fn entry_json((day, user, usage): &Entry) -> Value {
    let mut value = json!({
        "user": shown(user),
        "succeeded": usage.succeeded,
        "failed": usage.failed,
        "cancelled": usage.cancelled,
        "slot_seconds": ns_to_seconds(usage.slot_ns),
        "received_bytes": usage.received_bytes,
        "sent_bytes": usage.sent_bytes,
    });
    if let Some(day) = day {
        value["day"] = day_text(*day).into();
    }
    value
}

fn shown(user: &str) -> &str {
    match user {
        "" => "-",
        OTHER_USERS => "(other users)",
        user => user,
    }
}

const DAY: Duration = Duration::from_secs(24 * 3600);

/// Writes a day as `2026-11-29`.
fn day_text(day: u32) -> String {
    // The last day that RFC 3339 can write, in the year 9999.
    let at: SystemTime = UNIX_EPOCH + DAY * day.min(2_932_896);
    humantime::format_rfc3339_seconds(at).to_string()[..10].to_string()
}

/// Parses a day, such as `2026-11-29`.
fn parse_day(text: &str) -> Result<u32, String> {
    let at = humantime::parse_rfc3339(&format!("{text}T00:00:00Z"));
    let since = at.ok().filter(|_| text.len() == 10).and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    let day = since.map(|since| (since.as_secs() / DAY.as_secs()) as u32);
    day.ok_or_else(|| format!("'{text}' is not a day since 1970, such as 2026-11-29"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_written_and_parsed() {
        assert_eq!((day_text(0), day_text(20_786)), ("1970-01-01".to_string(), "2026-11-29".to_string()));
        assert_eq!((parse_day("1970-01-02"), parse_day("2026-11-29")), (Ok(1), Ok(20_786)));
        assert_eq!(day_text(u32::MAX), "9999-12-31");
        for wrong in ["", "2026-11", "2026-13-01", "2026-02-30", "1969-12-31", "29.11.2026", "2026-11-29T"] {
            assert!(parse_day(wrong).unwrap_err().contains("is not a day since 1970, such as"), "{wrong}");
        }
    }
}

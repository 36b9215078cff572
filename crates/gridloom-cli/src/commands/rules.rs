//! `gridloom rules`, and the file of rules that an agent reads and watches.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use gridloom_base::limits::RULES_BYTES_MAX;
use gridloom_base::size::size_text;
use gridloom_base::{EscapedBytes, NamePattern, Quota, Rules, UserRules};
use gridloom_core::node::Command;
use gridloom_keys::{KeysFolder, Role, default_name};
use gridloom_net::driver::NetNode;
use gridloom_net::identity::Keys;
use serde_json::{Value, json};

use super::{count, print_json, print_line, print_text, read_text};

/// Name of the file of rules in the folder of a grid's keys.
const FILE_NAME: &str = "rules.toml";

/// How often the file is checked for changes.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// Check and show the rules of a grid: what its users may do, and how much of each server they get.
///
/// The agent reads the rules from the file that its option --rules names, else from rules.toml in the folder of the grid's
/// keys, and again when the file changes.
#[derive(clap::Subcommand)]
#[command(after_help = "Examples:\n  gridloom rules check rules.toml\n  gridloom rules show rules.toml --user anna")]
pub enum Options {
    Check(Check),
    Show(Show),
}

/// Check a file of rules.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  gridloom rules check rules.toml")]
pub struct Check {
    /// File of rules [default: rules.toml in the folder of the grid's keys]
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Show the rules that apply to a user, as the file states them now.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  gridloom rules show\n  gridloom rules show rules.toml --user anna --json")]
pub struct Show {
    /// File of rules [default: rules.toml in the folder of the grid's keys]
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// Name of the user, as in the certificate [default: the user's name]
    #[arg(long)]
    user: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn run(options: &Options) -> Result<ExitCode> {
    match options {
        Options::Check(options) => check(options)?,
        Options::Show(options) => show(options)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn check(options: &Check) -> Result<()> {
    let path = file_or_default(options.file.as_deref())?;
    let rules = read(&path)?;
    let (groups, users) = (rules.groups.len(), rules.users.len());
    match options.json {
        true => print_json(&json!({ "file": path.to_string_lossy(), "groups": groups, "users": users })),
        false => print_line(&format!(
            "{}: no mistakes; it has rules for {} and {}",
            EscapedBytes::of(&path),
            count(groups, "group"),
            count(users, "user")
        )),
    }
}

fn show(options: &Show) -> Result<()> {
    let rules = read(&file_or_default(options.file.as_deref())?)?;
    let user = options.user.clone().unwrap_or_else(|| default_name(Role::Client));
    let groups: Vec<&str> = rules.groups_of(&user).map(|group| group.name.as_str()).collect();
    let of_user = rules.of(&user);
    if options.json {
        return print_json(&as_json(&user, &groups, &of_user));
    }
    let groups = if groups.is_empty() { String::new() } else { format!(" ({})", groups.join(", ")) };
    let lines = as_text(&of_user).map(|(setting, value)| format!("  {setting:<11} {value}\n"));
    print_text(&format!("user '{user}'{groups}\n{}", lines.concat()))
}

fn as_text(rules: &UserRules) -> [(&'static str, String); 11] {
    let UserRules { functions, runs_code, weight, slots, memory, disk, queue, cancels, read_names, write_names, links } =
        rules;
    let of_link = |(link, bytes): (&String, &u64)| format!("{} a day over '{link}'", size_text(*bytes));
    let of_links = links.iter().map(of_link).collect::<Vec<_>>().join(", ");
    let joined = |patterns: Vec<&str>| if patterns.is_empty() { "none".into() } else { patterns.join(", ") };
    let quota = |quota: &Option<Quota>, amount: fn(u64) -> String| match quota {
        None => "no limit".to_string(),
        Some(Quota::Percent(percent)) => format!("{percent} % of each server"),
        Some(Quota::Amount(some)) => format!("{} of each server", amount(*some)),
    };
    let of_certificate = || "as the certificate states".to_string();
    [
        (
            "functions",
            functions
                .as_ref()
                .map_or_else(of_certificate, |some| joined(some.iter().map(|one| one.as_str()).collect())),
        ),
        ("run-code", runs_code.map_or_else(of_certificate, |may| if may { of_certificate() } else { "no".into() })),
        ("weight", weight.to_string()),
        ("slots", quota(slots, |slots| slots.to_string())),
        ("memory", quota(memory, size_text)),
        ("disk", quota(disk, size_text)),
        ("links", if links.is_empty() { "no limit".into() } else { of_links }),
        ("queue", queue.map_or("no limit".into(), |calls| format!("{calls} calls at each server"))),
        ("cancel", joined(cancels.iter().map(|one| one.as_str()).collect())),
        ("read-names", joined(read_names.iter().map(NamePattern::as_str).collect())),
        ("write-names", joined(write_names.iter().map(NamePattern::as_str).collect())),
    ]
}

fn as_json(user: &str, groups: &[&str], rules: &UserRules) -> Value {
    let UserRules { functions, runs_code, weight, slots, memory, disk, queue, cancels, read_names, write_names, links } =
        rules;
    let quota = |quota: &Option<Quota>| match quota {
        None => Value::Null,
        Some(Quota::Percent(percent)) => json!(format!("{percent}%")),
        Some(Quota::Amount(amount)) => json!(amount),
    };
    json!({
        "user": user, "groups": groups, "functions": functions, "run-code": runs_code, "weight": weight,
        "slots": quota(slots), "memory": quota(memory), "disk": quota(disk), "links": links, "queue": queue, "cancel": cancels,
        "read-names": read_names, "write-names": write_names,
    })
}

fn file_or_default(file: Option<&Path>) -> Result<PathBuf> {
    match file {
        Some(file) => Ok(file.to_path_buf()),
        None => Ok(KeysFolder::find()?.existing(gridloom_keys::chosen_grid().as_deref())?.path().join(FILE_NAME)),
    }
}

/// Reads a file of rules.
fn read(path: &Path) -> Result<Rules> {
    let status = std::fs::metadata(path).with_context(|| EscapedBytes::of(path).to_string())?;
    check_file(path, &status)?;
    Ok(gridloom_platform::rules::parse(&read_text(path)?, &path.to_string_lossy())?)
}

/// Refuses a file that other users can change, or that is too large.
fn check_file(path: &Path, status: &Metadata) -> Result<()> {
    let (shown, mode) = (EscapedBytes::of(path), status.mode() & 0o777);
    let own = rustix::process::geteuid().as_raw();
    if status.uid() != own && status.uid() != 0 {
        bail!("{shown}: the file belongs to another user, who could change the rules; make it your own");
    }
    if mode & 0o022 != 0 {
        bail!("{shown}: other users can change the file (mode {mode:04o}); run: chmod go-w '{shown}'");
    }
    if status.len() > RULES_BYTES_MAX {
        bail!("{shown}: the file has {} bytes, and the limit is {RULES_BYTES_MAX}", status.len());
    }
    Ok(())
}

/// The file of rules of an agent.
pub struct RulesFile {
    path: PathBuf,
    /// The version that was read last; `None` if the file was missing.
    version: Option<FileVersion>,
}

/// Identifies a version of a file: it differs whenever the content has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct FileVersion {
    inode: u64,
    modified: (i64, i64),
    changed: (i64, i64),
    size: u64,
}

impl FileVersion {
    fn of(path: &Path) -> Option<FileVersion> {
        let status = std::fs::metadata(path).ok()?;
        let modified = (status.mtime(), status.mtime_nsec());
        Some(FileVersion {
            inode: status.ino(),
            modified,
            changed: (status.ctime(), status.ctime_nsec()),
            size: status.len(),
        })
    }
}

impl RulesFile {
    /// Returns the file that an agent with these keys reads, and its rules. An agent whose parent passes the keys reads only a
    /// file that is named.
    pub fn open(named: Option<PathBuf>, keys: &Keys, has_folder: bool) -> Result<(Option<RulesFile>, Rules)> {
        let is_named = named.is_some();
        let path = match named {
            Some(path) => super::absolute(&path)?,
            None if !has_folder => return Ok((None, Rules::default())),
            None => {
                let identity = keys.identity().ok_or_else(|| anyhow!("the agent has no keys"))?;
                KeysFolder::find()?.grid(identity.grid())?.path().join(FILE_NAME)
            }
        };
        let version = FileVersion::of(&path);
        let rules = if version.is_some() || is_named { read(&path)? } else { Rules::default() };
        Ok((Some(RulesFile { path, version }), rules))
    }

    /// Gives the node the rules whenever the file changes. A file that cannot be used changes nothing.
    pub fn watch(mut self, node: Arc<NetNode>) {
        std::thread::spawn(move || {
            loop {
                std::thread::sleep(LOOK_INTERVAL);
                if node.is_closed() {
                    return;
                }
                let version = FileVersion::of(&self.path);
                if version == self.version {
                    continue;
                }
                self.version = version;
                match read(&self.path) {
                    Ok(rules) => {
                        tracing::info!(target: "gridloom.agent", "read the rules in {}", EscapedBytes::of(&self.path));
                        node.command(Command::SetRules { rules: Box::new(rules) });
                    }
                    Err(error) => tracing::error!(
                        target: "gridloom.agent",
                        "the rules of the grid remain as they were, because the file cannot be used: {error:#}"
                    ),
                }
            }
        });
    }
}

//! `gridloom keys`.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use gridloom_base::{EscapedLine, stderr_line};
use gridloom_keys::{
    Certificate, DAY, Fingerprint, Grant, GridFolder, Identity, Issued, KeysFolder, Pattern, Patterns, Record, Refusal,
    Request, Revoked, Role, Serial, UnixTime, date, default_grid, default_name,
};
use gridloom_resources::private_file::read_at_most;
use serde_json::{Value, json};

use super::{print_json, print_text};

/// Make and manage the keys and certificates of a grid.
///
/// Each grid has an authority, which certifies agents, servers, clients and administrators. Keys are in one folder per
/// grid, below the folder that GRIDLOOM_KEYS names, else below gridloom/keys in the user's configuration folder
/// (XDG_CONFIG_HOME, or ~/.config).
#[derive(clap::Subcommand)]
#[command(
    after_help = "Examples:\n  gridloom keys init lab\n  gridloom keys request lab --role server > request.pem\n  \
gridloom keys approve request.pem > certificate.pem\n  gridloom keys install certificate.pem"
)]
pub enum Options {
    Init(Init),
    Request(RequestOptions),
    Approve(Approve),
    Install(Install),
    List(List),
    Revoke(Revoke),
    Renew(Renew),
}

/// Make a grid: its authority, and a certificate of its administrator.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  gridloom keys init\n  gridloom keys init lab --name carol")]
pub struct Init {
    /// Name of the grid [default: the name of this host]
    #[arg(value_parser = parse_grid)]
    grid: Option<String>,
    /// Name of the administrator [default: the user's name]
    #[arg(long)]
    name: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Make a key and a request for a certificate, and print the request.
///
/// Send the request to the administrator of the grid, who approves it. The private key stays on this machine.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  gridloom keys request lab > request.pem\n  gridloom keys request lab --role server --functions 'linalg/*' > request.pem"
)]
pub struct RequestOptions {
    /// Name of the grid
    #[arg(value_parser = parse_grid)]
    grid: String,
    /// Role: agent, server, client, administrator or relay
    #[arg(long, default_value = "client", value_parser = parse_role)]
    role: Role,
    /// Name in the grid [default: of a server or agent, the name of this host; otherwise the user's name]
    #[arg(long)]
    name: Option<String>,
    /// Functions that a server offers, or a client calls: patterns such as 'linalg/*', separated by commas
    #[arg(long, value_name = "PATTERN", value_delimiter = ',', default_value = "*")]
    functions: Vec<Pattern>,
    /// Also run the program's own functions on servers ('python/*', which '*' does not include)
    #[arg(long)]
    run_code: bool,
    /// Replace a request that waits for approval
    #[arg(long)]
    replace: bool,
}

/// Approve a request: issue the certificate and print it.
///
/// Compare the fingerprint with the one that the requester sees. The requester installs the printed certificate with
/// 'gridloom keys install'.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  gridloom keys approve request.pem --show\n  \
gridloom keys approve request.pem --functions 'linalg/*' --days 30 > certificate.pem")]
pub struct Approve {
    /// File with the request; '-' is standard input. Or the fingerprint of a request that 'gridloom keys list' shows
    #[arg(value_name = "FILE")]
    request: PathBuf,
    /// Show the request and do not approve it
    #[arg(long)]
    show: bool,
    /// Approve only a request with this fingerprint
    #[arg(long)]
    fingerprint: Option<Fingerprint>,
    /// Role to give [default: the requested one]
    #[arg(long, value_parser = parse_role)]
    role: Option<Role>,
    /// Name to give [default: the requested one]
    #[arg(long)]
    name: Option<String>,
    /// Functions to permit: patterns, separated by commas [default: the requested ones]
    #[arg(long, value_name = "PATTERN", value_delimiter = ',')]
    functions: Option<Vec<Pattern>>,
    /// Also permit programs to run their own functions on servers ('python/*', which '*' does not include)
    #[arg(long)]
    run_code: bool,
    /// Lifetime of the certificate
    #[arg(long, default_value_t = 90, value_parser = clap::value_parser!(u32).range(1..=3650))]
    days: u32,
    /// Issue another certificate for a name that has one for another key
    #[arg(long)]
    again: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Install the certificate that an administrator has sent.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  gridloom keys install certificate.pem")]
pub struct Install {
    /// File with the certificate; '-' is standard input
    #[arg(value_name = "FILE")]
    certificate: PathBuf,
    /// Install only if the grid's authority has this fingerprint
    #[arg(long, value_name = "FINGERPRINT")]
    authority: Option<Fingerprint>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// List the grids, your certificates, and the certificates that an authority has issued.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  gridloom keys list\n  gridloom keys list --grid lab --json")]
pub struct List {
    #[command(flatten)]
    grid: GridName,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Revoke certificates, by name or serial number.
///
/// A name selects all certificates that it has now. A new request of the same name can be approved.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  gridloom keys revoke alice --reason 'left the group'\n  \
gridloom keys revoke 5f7c0d7a40e84b40a5b7b2f8a6a9e3d1")]
pub struct Revoke {
    /// Names, or serial numbers as 'gridloom keys list' shows them
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
    /// Role of the names, where several roles have one name
    #[arg(long)]
    role: Option<Role>,
    /// Reason, which the holder and the log see
    #[arg(long, default_value = "revoked by the administrator")]
    reason: String,
    #[command(flatten)]
    grid: GridName,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Renew your certificate.
///
/// Where the grid's authority is, the certificate is replaced at once. Elsewhere the command prints a request for the same
/// role, name and functions; the present certificate is used until the new one is installed.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  gridloom keys renew\n  gridloom keys renew --grid lab > request.pem")]
pub struct Renew {
    #[command(flatten)]
    grid: GridName,
    /// Lifetime of the certificate, where the authority is
    #[arg(long, default_value_t = 90, value_parser = clap::value_parser!(u32).range(1..=3650))]
    days: u32,
    /// Replace a request that waits for approval
    #[arg(long)]
    replace: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct GridName {
    /// Name of the grid [default: the only one]
    #[arg(long, value_parser = parse_grid)]
    grid: Option<String>,
}

pub fn run(options: &Options) -> Result<ExitCode> {
    let (keys, now) = (KeysFolder::find()?, UnixTime::now());
    match options {
        Options::Init(options) => init(&keys, options, now),
        Options::Request(options) => request(&keys, options, now),
        Options::Approve(options) => approve(&keys, options, now),
        Options::Install(options) => install(&keys, options, now),
        Options::List(options) => list(&keys, options, now),
        Options::Revoke(options) => revoke(&keys, options, now),
        Options::Renew(options) => renew(&keys, options, now),
    }?;
    Ok(ExitCode::SUCCESS)
}

fn init(keys: &KeysFolder, options: &Init, now: UnixTime) -> Result<()> {
    let grid = options.grid.clone().unwrap_or_else(default_grid);
    let name = options.name.clone().unwrap_or_else(|| default_name(Role::Administrator));
    let made = keys.create(&Identity::new(&grid, Role::Administrator, &name)?, now)?;
    let own = made.own()?.issued.certificate;
    let fingerprint = made.trust()?.fingerprint();
    if options.json {
        return print_json(&json!({
            "grid": grid,
            "folder": made.path(),
            "authority": fingerprint,
            "certificate": certificate_json(&own),
        }));
    }
    print_text(&format!(
        "made the grid '{grid}' in {}\nauthority: {fingerprint}\nown certificate: {}\n",
        made.path().display(),
        in_words(&own)
    ))
}

fn request(keys: &KeysFolder, options: &RequestOptions, now: UnixTime) -> Result<()> {
    let name = options.name.clone().unwrap_or_else(|| default_name(options.role));
    let functions = Patterns::new(with_code(&options.functions, options.run_code))?;
    let folder = keys.grid(&options.grid)?;
    let made = folder.request(options.role, &name, &functions, options.replace, now)?;
    print_text(&made.to_pem())
}

fn approve(keys: &KeysFolder, options: &Approve, now: UnixTime) -> Result<()> {
    let file = &options.request;
    let request = match file.to_str().and_then(|text| text.parse().ok()) {
        Some(fingerprint) => waiting(keys, fingerprint, now)?,
        None => Request::from_pem(&read(file)?, now).with_context(|| shown(file))?,
    };
    let asked = request.identity();
    let (role, name) = (options.role.unwrap_or(asked.role()), options.name.as_deref().unwrap_or(asked.name()));
    let requested = || request.functions().iter().cloned().collect();
    let functions: Vec<Pattern> = options.functions.clone().unwrap_or_else(requested);
    let functions = Patterns::new(with_code(&functions, options.run_code))?;
    let lifetime = Duration::from_secs(u64::from(options.days) * DAY.as_secs());
    let grant = Grant { identity: Identity::new(asked.grid(), role, name)?, user: None, functions, lifetime };
    let fingerprint = request.fingerprint();
    if options.show {
        return match options.json {
            true => print_json(&json!({
                "role": asked.role().name(), "name": asked.name(), "grid": asked.grid(),
                "functions": request.functions(), "fingerprint": fingerprint,
            })),
            false => print_text(&format!(
                "request of: {asked}\nfunctions: {}\nfingerprint: {fingerprint}\n",
                request.functions()
            )),
        };
    }
    if let Some(expected) = options.fingerprint.filter(|expected| *expected != fingerprint) {
        bail!("{}: the fingerprint is {fingerprint}, and {expected} was expected; ask the requester", shown(file));
    }
    let folder = keys.existing(Some(asked.grid()))?;
    let issued = folder.approve(&request, &grant, options.again, now)?;
    let certificate = &issued.certificate;
    if options.json {
        let mut value = certificate_json(certificate);
        value["pem"] = issued.to_pem().into();
        return print_json(&value);
    }
    // Standard output is the certificate.
    stderr_line!("approved: {}", EscapedLine(&in_words(certificate)));
    stderr_line!("fingerprint of the key: {fingerprint}");
    print_text(&issued.to_pem())
}

/// Returns the request with that fingerprint that waits for approval.
fn waiting(keys: &KeysFolder, fingerprint: Fingerprint, now: UnixTime) -> Result<Request> {
    for grid in keys.grids()? {
        if let Some(found) = grid.pending(now)?.into_iter().find(|request| request.fingerprint() == fingerprint) {
            return Ok(found);
        }
    }
    bail!("no request with the fingerprint {fingerprint} waits for approval; 'gridloom keys list' shows them")
}

fn install(keys: &KeysFolder, options: &Install, now: UnixTime) -> Result<()> {
    let file = &options.certificate;
    let text = read(file)?;
    let issued = Issued::from_pem(&text).with_context(|| shown(file))?;
    let folder = keys.existing(Some(issued.certificate.identity.grid()))?;
    let installed = folder.install(&text, options.authority, now).with_context(|| shown(file))?;
    let authority = folder.trust()?.fingerprint();
    if options.json {
        let mut value = certificate_json(&installed);
        value["authority"] = json!(authority);
        return print_json(&value);
    }
    print_text(&format!("installed: {}\nauthority: {authority}\n", in_words(&installed)))
}

fn list(keys: &KeysFolder, options: &List, now: UnixTime) -> Result<()> {
    let grids = match &options.grid.grid {
        Some(grid) => vec![keys.existing(Some(grid))?],
        None => keys.grids()?,
    };
    if options.json {
        let all: Result<Vec<Value>> = grids.iter().map(|grid| grid_json(grid, now)).collect();
        return print_json(&json!({ "folder": keys.path(), "grids": all? }));
    }
    if grids.is_empty() {
        return print_text(&format!("no keys in {}\n", keys.path().display()));
    }
    grids.iter().try_for_each(|grid| print_text(&grid_in_words(grid, now)?))
}

fn revoke(keys: &KeysFolder, options: &Revoke, now: UnixTime) -> Result<()> {
    let folder = keys.existing(options.grid.grid.as_deref())?;
    folder.authority()?;
    let issued = folder.issued()?;
    let (mut revoked, mut unrecorded) = (Vec::new(), Vec::new());
    for name in &options.names {
        if let Ok(serial) = name.parse::<Serial>() {
            if !issued.iter().any(|record| record.serial == serial) {
                bail!("no certificate has the serial number {serial}; 'gridloom keys list' shows them");
            }
            revoked.push(Revoked::Certificate(serial));
            continue;
        }
        let is_it = |record: &&Record| {
            record.identity.name() == name && options.role.is_none_or(|role| record.identity.role() == role)
        };
        let mut found: Vec<&Identity> = issued.iter().filter(is_it).map(|record| &record.identity).collect();
        found.sort();
        found.dedup();
        match (&found[..], options.role) {
            // Nodes beside the authority issue their certificates themselves, and these are not recorded.
            ([], Some(role)) => {
                let identity = Identity::new(folder.grid(), role, name)?;
                unrecorded.push(identity.clone());
                revoked.push(Revoked::Identity(identity));
            }
            ([], None) => bail!(
                "no recorded certificate has the name '{}'; 'gridloom keys list' shows the names. Agents, servers and jobs of the \
                 administrator are not listed: name them with --role, such as --role server",
                EscapedLine(name)
            ),
            ([identity], _) => revoked.push(Revoked::Identity((*identity).clone())),
            _ => {
                let roles = found.iter().map(|identity| identity.role().name()).collect::<Vec<_>>().join(", ");
                bail!("several roles have the name '{}': {roles}; choose one with --role", EscapedLine(name))
            }
        }
    }
    // The functions of a server have certificates of their own, which are not recorded.
    for identity in servers_among(&revoked, &issued) {
        let functions = Identity::new(folder.grid(), Role::Functions, identity.name())?;
        unrecorded.push(functions.clone());
        revoked.push(Revoked::Identity(functions));
    }
    folder.revoke(&revoked, &options.reason, now)?;
    let now_revoked = folder.revocations()?;
    let all = issued.iter().filter(|record| record.revocation(&now_revoked).is_some_and(|found| found.at == now));
    let all: Vec<&Record> = all.collect();
    if options.json {
        let certificates: Vec<Value> =
            all.iter().map(|record| json!({ "serial": record.serial, "identity": record.identity })).collect();
        let unrecorded: Vec<Value> = unrecorded.iter().map(|identity| json!({ "identity": identity })).collect();
        let certificates = [certificates, unrecorded].concat();
        return print_json(&json!({ "revoked": certificates }));
    }
    let line = |record: &&Record| format!("revoked: {}, serial number {}\n", record.identity, record.serial);
    let of_unrecorded = |identity: &Identity| format!("revoked: {identity}, all certificates up to now\n");
    print_text(&all.iter().map(line).chain(unrecorded.iter().map(of_unrecorded)).collect::<String>())
}

fn renew(keys: &KeysFolder, options: &Renew, now: UnixTime) -> Result<()> {
    let folder = keys.existing(options.grid.grid.as_deref())?;
    let own = folder.own()?.issued.certificate;
    if folder.has_authority() {
        let new = folder.renew(Duration::from_secs(u64::from(options.days) * DAY.as_secs()), now)?;
        return match options.json {
            true => print_json(&certificate_json(&new)),
            false => print_text(&format!("renewed: {}\n", in_words(&new))),
        };
    }
    let made = folder.request(own.identity.role(), own.identity.name(), &own.functions, options.replace, now)?;
    match options.json {
        true => print_json(&json!({ "request": made.to_pem(), "fingerprint": made.fingerprint() })),
        false => print_text(&made.to_pem()),
    }
}

fn grid_in_words(grid: &GridFolder, now: UnixTime) -> Result<String> {
    let mut text = format!("grid '{}' in {}\n", grid.grid(), grid.path().display());
    if grid.knows_authority() {
        let (trust, here) = (grid.trust()?, if grid.has_authority() { ", on this machine" } else { "" });
        text += &format!("  authority: {}{here}, until {}\n", trust.fingerprint(), date(trust.not_after()));
    }
    match grid.has_own() {
        true => {
            text += &format!("  own certificate: {}{}\n", in_words(&grid.own()?.issued.certificate), state(grid, now)?)
        }
        false => text += "  own certificate: none\n",
    }
    if let Some(request) = grid.requested(now)? {
        text += &format!("  requested: {}, fingerprint {}\n", request.identity(), request.fingerprint());
    }
    for request in grid.pending(now)? {
        text += &format!("  waits for approval: {}, fingerprint {}\n", request.identity(), request.fingerprint());
    }
    let revocations = grid.revocations()?;
    for record in grid.issued()? {
        let state = match record.revocation(&revocations) {
            Some(found) => format!("revoked at {}: {}", date(found.at), found.reason),
            None if record.expires < now => format!("expired at {}", date(record.expires)),
            None => format!("until {}", date(record.expires)),
        };
        let (identity, serial) = (&record.identity, record.serial);
        text += &format!(
            "  issued: {serial}  {} '{}', functions {}, {state}\n",
            identity.role(),
            identity.name(),
            record.functions
        );
    }
    Ok(text)
}

/// Returns a note if this user's certificate is refused or should be renewed.
fn state(grid: &GridFolder, now: UnixTime) -> Result<&'static str> {
    let membership = grid.membership()?;
    Ok(match membership.trust.check(&membership.credentials.certificate(), now) {
        Err(Refusal::Expired { .. }) => " (expired: gridloom keys renew)",
        Err(Refusal::Revoked { .. }) => " (revoked)",
        Err(_) => " (not valid: compare the clock of this machine)",
        Ok(()) if membership.credentials.due_for_renewal(now) => " (due for renewal: gridloom keys renew)",
        Ok(()) => "",
    })
}

fn grid_json(grid: &GridFolder, now: UnixTime) -> Result<Value> {
    let own = if grid.has_own() { Some(certificate_json(&grid.own()?.issued.certificate)) } else { None };
    let trust = if grid.knows_authority() { Some(grid.trust()?) } else { None };
    let revocations = grid.revocations()?;
    let request = |request: &Request| json!({ "identity": request.identity(), "fingerprint": request.fingerprint() });
    let record = |record: Record| {
        let revoked = record.revocation(&revocations);
        json!({
            "serial": record.serial, "identity": record.identity, "role": record.identity.role().name(),
            "name": record.identity.name(), "functions": record.functions, "issued": record.issued.as_secs(),
            "expires": record.expires.as_secs(), "fingerprint": record.key, "pem": record.pem,
            "revoked": revoked.map(|found| json!({ "at": found.at.as_secs(), "reason": found.reason })),
        })
    };
    Ok(json!({
        "grid": grid.grid(),
        "folder": grid.path(),
        "authority": trust.as_ref().map(|trust| trust.fingerprint()),
        "has_authority_key": grid.has_authority(),
        "certificate": own,
        "requested": grid.requested(now)?.as_ref().map(request),
        "pending": grid.pending(now)?.iter().map(request).collect::<Vec<_>>(),
        "issued": grid.issued()?.into_iter().map(record).collect::<Vec<_>>(),
    }))
}

fn in_words(certificate: &Certificate) -> String {
    let Certificate { identity, user, functions, not_after, .. } = certificate;
    let user = user.as_ref().map(|user| format!(", only for the user '{user}'")).unwrap_or_default();
    format!("{identity}{user}, functions {functions}, until {}", date(*not_after))
}

fn certificate_json(certificate: &Certificate) -> Value {
    json!({
        "identity": certificate.identity,
        "role": certificate.identity.role().name(),
        "name": certificate.identity.name(),
        "grid": certificate.identity.grid(),
        "user": certificate.user,
        "functions": certificate.functions,
        "serial": certificate.serial,
        "fingerprint": certificate.public_key.fingerprint(),
        "expires": certificate.not_after.as_secs(),
    })
}

/// Reads a file that another machine has sent, or standard input.
fn read(file: &Path) -> Result<Vec<u8>> {
    if file == Path::new("-") {
        return read_at_most(std::io::stdin().lock(), SENT_BYTES_MAX).context("standard input");
    }
    let open = || {
        if std::fs::metadata(file)?.is_dir() {
            return Err(std::io::Error::new(ErrorKind::IsADirectory, "it is a folder; name a file in it"));
        }
        read_at_most(std::fs::File::open(file)?, SENT_BYTES_MAX)
    };
    open().with_context(|| shown(file))
}

fn shown(file: &Path) -> String {
    match file == Path::new("-") {
        true => "standard input".into(),
        false => gridloom_base::EscapedBytes::of(file).to_string(),
    }
}

pub fn parse_grid(text: &str) -> Result<String, String> {
    KeysFolder::at("/").grid(text).map(|_| text.to_string()).map_err(|error| error.to_string())
}

/// Maximum size of a request or certificate that is read.
const SENT_BYTES_MAX: u64 = 64 << 10;

/// Returns the servers among the holders of revoked certificates, each once.
fn servers_among(revoked: &[Revoked], issued: &[Record]) -> BTreeSet<Identity> {
    let holder = |one: &Revoked| match one {
        Revoked::Identity(identity) => Some(identity.clone()),
        Revoked::Certificate(serial) => {
            issued.iter().find(|record| record.serial == *serial).map(|record| record.identity.clone())
        }
    };
    revoked.iter().filter_map(holder).filter(|identity| identity.role() == Role::Server).collect()
}

/// Returns the patterns, with the one for programs that run functions of their own.
fn with_code(functions: &[Pattern], has_code: bool) -> Vec<Pattern> {
    functions.iter().cloned().chain(has_code.then(Pattern::of_code)).collect()
}

/// Parses the role of a request. Servers issue the certificates of functions themselves.
fn parse_role(text: &str) -> Result<Role, String> {
    match text.parse() {
        Ok(Role::Functions) => Err("a server issues the certificate of its functions itself".into()),
        Ok(role) => Ok(role),
        Err(error) => Err(error.to_string()),
    }
}

//! Configuration of a program of processes, in any language: a file, the environment, the command line; later ones take
//! precedence. It is read once and applies to all processes of the program.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use gridloom_base::{EscapedBytes, Level, LogLevels};

use crate::Error;

/// Environment variable with the configuration file, if the command line names none.
const FILE_VARIABLE: &str = "GRIDLOOM_CONFIG";
const LOG_VARIABLE: &str = "GRIDLOOM_LOG";
/// Prefix of environment variables that set values.
const PREFIX: &str = "GRIDLOOM_SET_";

/// The configuration read at the start.
#[derive(Debug)]
struct Settings {
    file: BTreeMap<String, String>,
    command_line: BTreeMap<String, String>,
    levels: LogLevels,
    are_read: bool,
}

static SETTINGS: Mutex<Settings> = Mutex::new(Settings {
    file: BTreeMap::new(),
    command_line: BTreeMap::new(),
    levels: LogLevels::DEFAULT,
    are_read: false,
});

fn with_settings<R>(call: impl FnOnce(&mut Settings) -> R) -> R {
    call(&mut SETTINGS.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Reads the configuration: the words `--set NAME=VALUE`, `--config FILE` and `--log LEVELS` up to a `--`, the
/// environment, and the file that either of them names. Returns the other words, which are the program's own.
///
/// [`run`](fn@super::run) does this with the program's command line, unless it was done before.
///
/// # Errors
/// If one of the options lacks its value, the file cannot be read, or a log level is unknown.
pub fn read_settings(words: &[OsString]) -> Result<Vec<OsString>, Error> {
    read(words).map_err(Error::Input)
}

/// Like [`read_settings`] with the command line, if nothing was read yet.
pub(super) fn read_once() -> Result<(), Error> {
    if with_settings(|settings| settings.are_read) {
        return Ok(());
    }
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    read_settings(&words).map(drop)
}

fn read(words: &[OsString]) -> Result<Vec<OsString>, String> {
    let options = Options::read(words)?;
    let file = match options.file.or_else(|| std::env::var_os(FILE_VARIABLE)) {
        None => BTreeMap::new(),
        Some(name) => {
            let text = crate::read_text(Path::new(&name)).map_err(|error| error.to_string())?;
            read_file(&text).map_err(|error| format!("{}: {error}", EscapedBytes::of(&name)))?
        }
    };
    with_settings(|settings| {
        settings.file = file;
        settings.command_line = options.set;
        settings.are_read = true;
    });
    let named = with_settings(|settings| settings.command_line.get("log").cloned());
    let levels = options.log.or(named).or_else(|| std::env::var(LOG_VARIABLE).ok()).or_else(|| setting("log"));
    let levels = levels.map_or_else(|| Ok(LogLevels::default()), |text| LogLevels::read(&text))?;
    with_settings(|settings| settings.levels = levels);
    Ok(options.others)
}

/// Returns the configured value of that name: from the command line, else the environment, else the file.
pub fn setting(name: &str) -> Option<String> {
    if let Some(value) = with_settings(|settings| settings.command_line.get(name).cloned()) {
        return Some(value);
    }
    let word = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
    let variable = PREFIX.to_string() + &name.chars().map(word).collect::<String>();
    std::env::var(variable).ok().or_else(|| with_settings(|settings| settings.file.get(name).cloned()))
}

/// True if the log accepts lines of that level and category.
pub fn log_accepts(level: Level, category: &str) -> bool {
    with_settings(|settings| settings.levels.enables(level, category))
}

/// Options from the command line.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Options {
    file: Option<OsString>,
    log: Option<String>,
    set: BTreeMap<String, String>,
    others: Vec<OsString>,
}

impl Options {
    fn read(words: &[OsString]) -> Result<Options, String> {
        let mut options = Options::default();
        let mut rest = words.iter();
        while let Some(word) = rest.next() {
            let bytes = word.as_bytes();
            let (option, value) = match bytes.iter().position(|byte| *byte == b'=') {
                Some(at) if bytes.starts_with(b"--") => {
                    (&bytes[..at], Some(OsStr::from_bytes(&bytes[at + 1..]).to_owned()))
                }
                _ => (bytes, None),
            };
            let options_of_run = ["--set", "--config", "--log"];
            let Some(option) = options_of_run.into_iter().find(|one| one.as_bytes() == option) else {
                options.others.push(word.clone());
                if word == "--" {
                    options.others.extend(rest.cloned());
                    break;
                }
                continue;
            };
            let value = value.or_else(|| rest.next().cloned());
            let value = value
                .ok_or_else(|| format!("'{option}' needs a value: --set NAME=VALUE, --config FILE, --log LEVELS"))?;
            match option {
                "--config" => options.file = Some(value),
                "--log" => options.log = Some(text_of(option, &value)?),
                _ => {
                    let value = text_of(option, &value)?;
                    let (name, value) = value
                        .split_once('=')
                        .ok_or_else(|| format!("'--set {value}' sets nothing; write NAME=VALUE"))?;
                    options.set.insert(name.to_string(), value.to_string());
                }
            }
        }
        Ok(options)
    }
}

/// Returns the value of an option that is a text.
fn text_of(option: &str, value: &OsStr) -> Result<String, String> {
    let text = value.to_str().map(str::to_string);
    text.ok_or_else(|| format!("'{option} {}': the value is not UTF-8", EscapedBytes::of(&value)))
}

/// Reads the values of a TOML file, with the names of tables as prefixes.
fn read_file(text: &str) -> Result<BTreeMap<String, String>, String> {
    let table: toml::Table = text.parse().map_err(|error: toml::de::Error| error.to_string())?;
    let mut values = BTreeMap::new();
    let mut open: Vec<(String, toml::Value)> = table.into_iter().collect();
    while let Some((name, value)) = open.pop() {
        let text = match value {
            toml::Value::Table(table) => {
                open.extend(table.into_iter().map(|(inner, value)| (format!("{name}.{inner}"), value)));
                continue;
            }
            toml::Value::Array(_) => return Err(format!("'{name}' is an array; values are texts and numbers")),
            toml::Value::String(text) => text,
            other => other.to_string(),
        };
        values.insert(name, text);
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use super::*;

    fn options(words: &str) -> Result<Options, String> {
        Options::read(&words.split(' ').map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn options_are_read_and_others_left() {
        let read = options("-v --set a.b=1 --log=debug x --set=c=x=y --config f.toml -- --log").unwrap();
        assert_eq!(
            (read.file.as_deref().and_then(OsStr::to_str), read.log.as_deref()),
            (Some("f.toml"), Some("debug"))
        );
        assert_eq!(read.set, BTreeMap::from([("a.b".into(), "1".into()), ("c".into(), "x=y".into())]));
        assert_eq!(read.others, ["-v", "x", "--", "--log"]);
        let odd = || OsString::from_vec(b"caf\xe9=1".to_vec());
        assert_eq!(Options::read(&[odd()]).unwrap().others, [odd()]);
        assert!(Options::read(&["--set".into(), odd()]).unwrap_err().contains("caf\\xe9=1': the value is not UTF-8"));
        for (wrong, why) in [("--set", "needs a value"), ("--set a", "NAME=VALUE")] {
            assert!(options(wrong).unwrap_err().contains(why), "{wrong}");
        }
    }

    #[test]
    fn files_have_tables() {
        let values = read_file("log = 'debug'\n[matrix]\nsize = 64\nscale = 0.5\n[matrix.inner]\non = true\n").unwrap();
        let expected = [("log", "debug"), ("matrix.inner.on", "true"), ("matrix.scale", "0.5"), ("matrix.size", "64")];
        assert_eq!(values, expected.into_iter().map(|(name, value)| (name.into(), value.into())).collect());
        assert!(read_file("a = [1]").unwrap_err().contains("'a' is an array"));
        assert!(read_file("a = ").is_err());
    }
}

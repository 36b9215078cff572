//! Configuration: a file, the environment, the command line; the last that names a value counts.

use std::collections::BTreeMap;
use std::ffi::{c_char, c_int};
use std::sync::{Mutex, PoisonError};

use crate::code::Failure;
use crate::connections::given;
use crate::current::{to_c, with};
use crate::log::Levels;

/// Names a file, if the command line does not.
const FILE_VARIABLE: &str = "GRIDLOOM_CONFIG";
/// Levels of the log.
const LOG_VARIABLE: &str = "GRIDLOOM_LOG";
/// Begins the variable of a value.
const PREFIX: &str = "GRIDLOOM_SET_";

/// What was read at the beginning.
#[derive(Debug)]
struct Config {
    file: BTreeMap<String, String>,
    command_line: BTreeMap<String, String>,
    levels: Option<Levels>,
}

static CONFIG: Mutex<Config> =
    Mutex::new(Config { file: BTreeMap::new(), command_line: BTreeMap::new(), levels: None });

fn with_config<R>(call: impl FnOnce(&mut Config) -> R) -> R {
    call(&mut CONFIG.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Reads the command line, and the file that it or the environment names.
pub(crate) fn read(arguments: &[String]) -> Result<(), String> {
    let options = Options::read(arguments)?;
    let file = match options.file.or_else(|| std::env::var(FILE_VARIABLE).ok()) {
        None => BTreeMap::new(),
        Some(name) => {
            let text = std::fs::read_to_string(&name).map_err(|error| format!("{name}: {error}"))?;
            read_file(&text).map_err(|error| format!("{name}: {error}"))?
        }
    };
    let levels = options.log.or_else(|| std::env::var(LOG_VARIABLE).ok());
    with_config(|config| {
        config.file = file;
        config.command_line = options.set;
    });
    let levels = levels.or_else(|| value("log")).map_or_else(|| Ok(Levels::default()), |text| Levels::read(&text))?;
    with_config(|config| config.levels = Some(levels));
    Ok(())
}

pub(crate) fn with_levels<R>(call: impl FnOnce(&Levels) -> R) -> R {
    with_config(|config| call(config.levels.get_or_insert_default()))
}

/// Whether each simulated process has its own copy of the program's variables.
pub(crate) fn own_globals() -> Result<bool, String> {
    match value("gridloom.globals").as_deref() {
        None | Some("own") => Ok(true),
        Some("shared") => Ok(false),
        Some(other) => Err(format!("gridloom.globals is '{other}'; it may be 'own' or 'shared'")),
    }
}

/// The command line.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Options {
    file: Option<String>,
    log: Option<String>,
    set: BTreeMap<String, String>,
}

impl Options {
    fn read(arguments: &[String]) -> Result<Options, String> {
        const KNOWN: &str = "options are --set NAME=VALUE, --config FILE and --log LEVELS; arguments of processes stand in \
                             the deployment";
        let mut options = Options::default();
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            let (option, value) = match argument.split_once('=') {
                Some((option, value)) if option.starts_with("--") => (option, Some(value.to_string())),
                _ => (argument.as_str(), None),
            };
            if !["--set", "--config", "--log"].contains(&option) {
                return Err(format!("'{argument}' is no option of this program; {KNOWN}"));
            }
            let value = value.or_else(|| rest.next().cloned());
            let value = value.ok_or_else(|| format!("'{option}' needs a value; {KNOWN}"))?;
            match option {
                "--config" => options.file = Some(value),
                "--log" => options.log = Some(value),
                _ => {
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

/// A TOML file's values, with the names of tables before theirs.
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

/// The value of that name.
fn value(name: &str) -> Option<String> {
    if let Some(value) = with_config(|config| config.command_line.get(name).cloned()) {
        return Some(value);
    }
    let word = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
    let variable = PREFIX.to_string() + &name.chars().map(word).collect::<String>();
    std::env::var(variable).ok().or_else(|| with_config(|config| config.file.get(name).cloned()))
}

/// See `gridloom.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn gridloom_config(name: *const c_char, otherwise: *const c_char) -> *const c_char {
    let found = with(|_, context| {
        // SAFETY: a text, as the header asks.
        let name = unsafe { given(name, "the value's name") }?;
        let Some(value) = value(&name) else { return Ok(otherwise) };
        let mut texts = context.texts.borrow_mut();
        Ok(texts.entry(name).or_insert_with(|| to_c(&value)).as_ptr())
    });
    found.unwrap_or(otherwise)
}

/// Writes a value to `place`, if there is one; as the functions of the header do.
unsafe fn number<T: std::str::FromStr>(name: *const c_char, place: *mut T, what: &str) -> c_int {
    let found = with(|_, _| {
        // SAFETY: a text, as the header asks.
        let name = unsafe { given(name, "the value's name") }?;
        let Some(text) = value(&name) else { return Ok(0) };
        let wrong = |_| Failure::usage(format!("the configuration's '{name}' is '{text}'; it has to be {what}"));
        let number = text.trim().parse().map_err(wrong)?;
        // SAFETY: a place for a number, as the header asks.
        unsafe { *place = number };
        Ok(1)
    });
    found.unwrap_or_else(|code| code)
}

/// See `gridloom.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn gridloom_config_integer(name: *const c_char, place: *mut i64) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { number(name, place, "an integer") }
}

/// See `gridloom.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn gridloom_config_number(name: *const c_char, place: *mut f64) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { number(name, place, "a number") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(words: &str) -> Result<Options, String> {
        Options::read(&words.split(' ').map(String::from).collect::<Vec<_>>())
    }

    #[test]
    fn options_are_read_and_others_refused() {
        let read = options("--set a.b=1 --log=debug --set=c=x=y --config f.toml").unwrap();
        assert_eq!((read.file.as_deref(), read.log.as_deref()), (Some("f.toml"), Some("debug")));
        assert_eq!(read.set, BTreeMap::from([("a.b".into(), "1".into()), ("c".into(), "x=y".into())]));
        for (wrong, why) in [("-v", "'-v' is no option"), ("--set", "needs a value"), ("--set a", "NAME=VALUE")] {
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

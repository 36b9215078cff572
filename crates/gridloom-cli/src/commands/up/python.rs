//! The Python of a host: its version and those of packages, and where hosts differ from this machine.

use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::code::{PYTHON_PATH, python_path};
use super::fault::last_line;
use super::pipe_reader::PipeReader;
use super::process::{Process, stop, wait_for};

/// The Python that a server uses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PythonSpec {
    /// An interpreter, or the folder of a virtual environment; `None` for the default one of the host.
    pub interpreter: Option<String>,
    /// Packages that functions need, as pip names them.
    pub packages: Vec<String>,
}

/// The environment of an interpreter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Environment {
    /// Path of its file.
    pub executable: String,
    /// Version, such as `3.12.4`.
    pub python: String,
    /// Versions of packages: empty if a module has none, and `None` if there is no such package.
    pub packages: BTreeMap<String, Option<String>>,
}

/// This program's version, which the package must have.
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The package that all Python functions need.
const GRIDLOOM_PACKAGE: &str = "gridloom";

/// Time limit for an answer of a Python. On a file system that many nodes share, the first start takes a while.
pub const INSPECT_TIMEOUT: Duration = Duration::from_secs(60);
/// Time limit for its last output after it has ended: a process that it has started may hold the output open.
const LAST_OUTPUT_LIMIT: Duration = Duration::from_secs(1);

/// Python versions since 2015 can run it.
const SCRIPT: &str = r#"
import json, sys
def version(name):
    try:
        from importlib import metadata, util
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            return "" if util.find_spec(name.replace("-", "_")) else None
    except ImportError:
        return None
packages = {name: version(name) for name in sys.argv[1:]}
print(json.dumps({"executable": sys.executable, "python": "%d.%d.%d" % sys.version_info[:3], "packages": packages}))
"#;

impl PythonSpec {
    /// Returns the interpreter's file on this machine. Paths are relative to `folder`.
    pub fn file(&self, folder: &Path) -> Result<PathBuf> {
        let Some(named) = &self.interpreter else { return Ok(default_interpreter()) };
        let path = match named.strip_prefix("~/") {
            Some(rest) => std::env::home_dir().context("this user has no home folder")?.join(rest),
            None if named.contains('/') => folder.join(named),
            // A program on the search path.
            None if !folder.join(named).is_dir() => return Ok(named.into()),
            None => folder.join(named),
        };
        Ok(if path.is_dir() { path.join("bin/python") } else { path })
    }

    /// Returns which of the packages that interpreter has. It looks in the folder of the program first.
    ///
    /// # Errors
    /// [`PythonError`] if there is no such interpreter, or if it does not run or answer.
    pub fn inspect(&self, file: &Path, code: Option<&Path>) -> Result<Environment> {
        self.inspect_within(file, code, INSPECT_TIMEOUT)
    }

    fn inspect_within(&self, file: &Path, code: Option<&Path>, within: Duration) -> Result<Environment> {
        let names = std::iter::once(GRIDLOOM_PACKAGE).chain(self.packages.iter().map(String::as_str));
        let mut command = Command::new(file);
        // The current folder must not affect the result.
        command.args(["-c", SCRIPT]).args(names).current_dir("/").stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        if let Some(code) = code {
            command.env(PYTHON_PATH, python_path(code)?);
        }
        let unfit = |why: String| PythonError {
            why: format!("its Python '{}' does not run: {why}", file.display()),
            remedy: "install it, or name an interpreter or a virtual environment there with the property 'python'"
                .into(),
        };
        let mut child = command.spawn().map_err(|error| unfit(error.to_string()))?;
        let said = PipeReader::of(child.stdout.take().expect("a pipe"), |_| false);
        let errors = PipeReader::of(child.stderr.take().expect("a pipe"), |_| false);
        let mut left = vec![Process::of(child.id())?];
        wait_for(&mut left, Instant::now() + within)?;
        if !left.is_empty() {
            stop(&mut child);
            return Err(unfit(format!("it has not answered within {} s", within.as_secs_f64())).into());
        }
        let status = child.wait()?;
        [&said, &errors].into_iter().for_each(|heard| heard.wait(Some(LAST_OUTPUT_LIMIT)));
        match said.text().lines().last().and_then(|line| serde_json::from_str(line).ok()) {
            Some(found) if status.success() => Ok(found),
            _ => Err(unfit(last_line(&errors.text())).into()),
        }
    }
}

/// Returns the interpreter of servers that name none.
pub fn default_interpreter() -> PathBuf {
    std::env::var_os("GRIDLOOM_PYTHON").filter(|file| !file.is_empty()).map_or("python3".into(), PathBuf::from)
}

/// A Python that cannot run a server.
#[derive(Debug)]
pub struct PythonError {
    pub why: String,
    pub remedy: String,
}

impl std::error::Error for PythonError {}

impl std::fmt::Display for PythonError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.why)
    }
}

impl Environment {
    /// Refuses an environment that lacks a package that functions need.
    pub fn check(&self) -> Result<(), PythonError> {
        let missing: Vec<&str> =
            self.packages.iter().filter(|(_, version)| version.is_none()).map(|(name, _)| name.as_str()).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let (python, version, packages) = (&self.executable, &self.python, missing.join(" "));
        Err(PythonError {
            why: format!("its Python '{python}' ({version}) has no package {}", missing.join(", ")),
            remedy: format!(
                "run '{python} -m pip install {packages}' there, or name another Python with the property 'python'"
            ),
        })
    }

    pub fn json(&self) -> Value {
        json!({ "executable": self.executable, "version": self.python, "packages": self.packages })
    }

    /// Returns the part of the version on which code depends: `3.12`.
    fn minor(&self) -> &str {
        self.python.rsplit_once('.').map_or(&self.python, |(minor, _)| minor)
    }

    fn version(&self, package: &str) -> Option<&str> {
        self.packages.get(package)?.as_deref().filter(|version| !version.is_empty())
    }
}

/// A difference between hosts and this machine, or among hosts.
#[derive(Debug, PartialEq, Eq)]
pub struct VersionSkew {
    pub hosts: Vec<String>,
    /// `Python`, or a package.
    pub package: String,
    pub there: String,
    /// The expected version, and where it is: `here`, or a host.
    pub expected: (String, String),
    pub remedy: String,
}

impl VersionSkew {
    pub fn json(&self) -> Value {
        let (expected, at) = &self.expected;
        json!({ "skew": self.package, "hosts": self.hosts, "version": self.there, "expected": expected, "expected_by": at,
                "remedy": self.remedy })
    }
}

impl std::fmt::Display for VersionSkew {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (expected, at) = &self.expected;
        write!(
            f,
            "{}: {} is {} there and {expected} {at}\n  remedy: {}",
            self.hosts.join(", "),
            self.package,
            self.there,
            self.remedy
        )
    }
}

/// Returns the versions in which `hosts` differ from this machine. Packages that this machine lacks are compared with
/// the first host.
pub fn skews(here: Option<&Environment>, hosts: &BTreeMap<String, Environment>) -> Vec<VersionSkew> {
    let mut skews: Vec<VersionSkew> = Vec::new();
    let mut tell = |host: &str, of: &str, there: &str, expected: (String, String), remedy: String| {
        let same = skews.iter_mut().find(|skew| skew.package == of && skew.there == there && skew.remedy == remedy);
        match same {
            Some(skew) => skew.hosts.push(host.into()),
            None => skews.push(VersionSkew {
                hosts: vec![host.into()],
                package: of.into(),
                there: there.into(),
                expected,
                remedy,
            }),
        }
    };
    let first = hosts.iter().next();
    for (host, there) in hosts {
        let reference = |of: &dyn Fn(&Environment) -> Option<String>| {
            let here = here.and_then(of).map(|version| (version, "here".to_string()));
            here.or_else(|| first.and_then(|(name, first)| Some((of(first)?, format!("on {name}")))))
        };
        if let Some(expected) =
            reference(&|one| Some(one.minor().to_string())).filter(|(minor, _)| minor != there.minor())
        {
            let remedy = format!(
                "name a Python {} of that host with the property 'python': code that a program sends runs only on \
                 the program's own version",
                expected.0
            );
            tell(host, "Python", &there.python, expected, remedy);
        }
        for package in there.packages.keys() {
            let Some(version) = there.version(package) else { continue };
            let expected = match package == GRIDLOOM_PACKAGE {
                // The program there has this version, too.
                true => Some((VERSION.to_string(), "for this program".to_string())),
                false => reference(&|one| one.version(package).map(str::to_string)),
            };
            if let Some(expected) = expected.filter(|(expected, _)| expected != version) {
                let remedy = format!("run '{} -m pip install {package}=={}' there", there.executable, expected.0);
                tell(host, package, version, expected, remedy);
            }
        }
    }
    skews
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(python: &str, packages: &[(&str, Option<&str>)]) -> Environment {
        let packages = packages.iter().map(|(name, version)| (name.to_string(), version.map(str::to_string)));
        Environment { executable: "/venv/bin/python".into(), python: python.into(), packages: packages.collect() }
    }

    #[test]
    fn differences_name_hosts_values_and_remedies() {
        let here = environment("3.12.4", &[("gridloom", Some(VERSION)), ("numpy", Some("2.3.1")), ("scipy", None)]);
        let old =
            environment("3.10.1", &[("gridloom", Some("0.0.1")), ("numpy", Some("1.26.4")), ("scipy", Some("1.15"))]);
        let same = environment("3.12.9", &[("gridloom", Some("")), ("numpy", Some("2.3.1")), ("scipy", Some("1.16"))]);
        let hosts: BTreeMap<_, _> =
            [("a", &old), ("b", &same), ("c", &old)].map(|(name, one)| (name.to_string(), one.clone())).into();
        let lines: Vec<String> = skews(Some(&here), &hosts).iter().map(VersionSkew::to_string).collect();
        let expected = [
            "a, c: Python is 3.10.1 there and 3.12 here\n  remedy: name a Python 3.12 of that host with".to_string(),
            format!("a, c: gridloom is 0.0.1 there and {VERSION} for this program\n  remedy: run '/venv/bin/python -m pip install gridloom=="),
            "a, c: numpy is 1.26.4 there and 2.3.1 here\n  remedy: run '/venv/bin/python -m pip install numpy==2.3.1' there".into(),
            "b: scipy is 1.16 there and 1.15 on a\n  remedy: ".into(),
        ];
        assert_eq!(lines.len(), expected.len(), "{lines:#?}");
        for (line, expected) in lines.iter().zip(expected) {
            assert!(line.starts_with(&expected), "{line}");
        }
        assert_eq!(skews(None, &hosts).len(), 4, "three of b, which is compared with a, and that of gridloom");
    }

    #[test]
    fn what_is_missing_is_named_with_the_command_that_installs_it() {
        let why = environment("3.11.2", &[("gridloom", Some("1")), ("numpy", None), ("scipy", None)]).check();
        let PythonError { why, remedy } = why.unwrap_err();
        assert_eq!(why, "its Python '/venv/bin/python' (3.11.2) has no package numpy, scipy");
        assert!(remedy.starts_with("run '/venv/bin/python -m pip install numpy scipy' there"), "{remedy}");
    }

    #[test]
    fn an_interpreter_that_does_not_answer_is_ended() {
        let file = std::env::temp_dir().join(format!("gridloom-silent-{}", std::process::id()));
        // Written by a child: a process that another test starts meanwhile could inherit a descriptor that writes to the file.
        let write = r#"printf '#!/bin/sh\nsleep 1000\n' > "$0" && chmod 755 "$0""#;
        assert!(Command::new("sh").args(["-c", write]).arg(&file).status().unwrap().success());
        let asked = PythonSpec { interpreter: None, packages: Vec::new() };
        let why = asked.inspect_within(&file, None, Duration::from_millis(50)).unwrap_err();
        assert!(
            why.is::<PythonError>() && why.to_string().ends_with("does not run: it has not answered within 0.05 s"),
            "{why}"
        );
        std::fs::remove_file(&file).unwrap();
    }

    #[test]
    fn the_interpreter_may_be_a_folder() {
        let folder = std::env::temp_dir().join(format!("gridloom-python-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("venv/bin")).unwrap();
        let file =
            |named: &str| PythonSpec { interpreter: Some(named.into()), packages: Vec::new() }.file(&folder).unwrap();
        assert_eq!(file("venv"), folder.join("venv/bin/python"));
        assert_eq!(file("python3.12"), Path::new("python3.12"));
        assert_eq!(file("venv/bin/python3"), folder.join("venv/bin/python3"));
        assert_eq!(file("~/x/python"), std::env::home_dir().unwrap().join("x/python"));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}

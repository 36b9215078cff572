//! Models of functions, kept on disk from run to run of a server.
//!
//! One file for each server: `DIR/NAME.json`, or `DIR/HOST.json` for a server without a name of its own.
//!
//! ```text
//! {"format": "gridloom models", "version": 2, "models": [
//!   {"function": "linalg/dgemm", "signature": "9f…", "processors": 8, "model": {"by_work": {"points": […]}, …}}]}
//! ```
//!
//! A model is of one version of its function (its signature, complexity included) and one number of processors of the host; it
//! is used again when both are as they were, and stays in the file meanwhile. A file that cannot be read is put aside
//! (`.unreadable`) and said so: nothing is lost, and the server starts.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use gridloom_core::idl::Signature;
use gridloom_core::perf::FunctionModel;
use serde_json::{Value, json};

const FORMAT: &str = "gridloom models";
const VERSION: u64 = 2;
/// Pause between two writings.
const PAUSE: Duration = Duration::from_secs(5);
/// A longer file is no file of ours.
const FILE_BYTES_MAX: u64 = 64 << 20;
/// Models of one function that are kept besides the one in use: the last ones.
const OTHERS_MAX: usize = 16;

/// The file of one server.
#[derive(Debug)]
pub struct KeptModels {
    file: PathBuf,
    processors: usize,
    /// By function: its signature's hash.
    signatures: BTreeMap<String, u64>,
    models: BTreeMap<String, FunctionModel>,
    /// By function: of other versions, other numbers of processors, or not offered now; as they were in the file, oldest first.
    others: BTreeMap<String, Vec<Value>>,
    written: Instant,
    is_changed: bool,
    has_failed: bool,
}

/// The usual folder, `None` if there is no home.
pub fn usual_folder() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let state = set("XDG_STATE_HOME").or_else(|| set("HOME").map(|home| home.join(".local/state")))?;
    Some(state.join("gridloom/models"))
}

impl KeptModels {
    /// What was kept in that folder for a server of that name, and a word if something is wrong with it.
    pub fn open(folder: &Path, name: &str, functions: &[Signature]) -> (KeptModels, Option<String>) {
        let plain: String =
            name.chars().map(|c| if c.is_alphanumeric() || "-_.".contains(c) { c } else { '_' }).collect();
        let mut kept = KeptModels {
            file: folder.join(format!("{plain}.json")),
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            signatures: functions.iter().map(|s| (s.name.clone(), s.hash())).collect(),
            models: BTreeMap::new(),
            others: BTreeMap::new(),
            written: Instant::now(),
            is_changed: false,
            has_failed: false,
        };
        let said = kept.read().err().map(|error| {
            let aside = kept.file.with_extension("json.unreadable");
            let moved = match std::fs::rename(&kept.file, &aside) {
                Ok(()) => format!("it is now {}", aside.display()),
                Err(error) => format!("it cannot be put aside either: {error}"),
            };
            format!("kept models are not used: {error:#}; {moved}")
        });
        (kept, said)
    }

    /// The models, by function.
    pub fn models(&self) -> BTreeMap<String, FunctionModel> {
        self.models.clone()
    }

    /// A model is now this. It is written with what else has changed, after a while.
    pub fn learned(&mut self, function: String, model: FunctionModel) -> Option<String> {
        self.models.insert(function, model);
        self.is_changed = true;
        if self.written.elapsed() < PAUSE { None } else { self.write() }
    }

    /// Writes what has changed; gives a word if that fails, the first time.
    pub fn write(&mut self) -> Option<String> {
        if !std::mem::take(&mut self.is_changed) {
            return None;
        }
        self.written = Instant::now();
        match self.try_write() {
            Ok(()) => {
                self.has_failed = false;
                None
            }
            Err(error) => {
                self.is_changed = true;
                let is_first = !std::mem::replace(&mut self.has_failed, true);
                is_first.then(|| format!("models cannot be kept: {error:#}"))
            }
        }
    }

    fn read(&mut self) -> Result<()> {
        let shown = self.file.display().to_string();
        let size = match std::fs::metadata(&self.file) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            other => other.with_context(|| shown.clone())?.len(),
        };
        if size > FILE_BYTES_MAX {
            bail!("{shown}: {size} bytes; the limit is {FILE_BYTES_MAX}");
        }
        let text = std::fs::read_to_string(&self.file).with_context(|| shown.clone())?;
        let value: Value = serde_json::from_str(&text).with_context(|| shown.clone())?;
        if value["format"] != FORMAT {
            bail!("{shown}: no file of models: its \"format\" is {}, not \"{FORMAT}\"", value["format"]);
        }
        if value["version"] != VERSION {
            bail!("{shown}: its version is {}, this program reads {VERSION}", value["version"]);
        }
        let Some(entries) = value["models"].as_array() else { bail!("{shown}: it has no list of \"models\"") };
        for entry in entries {
            let Some(function) = entry["function"].as_str() else {
                bail!("{shown}: a model names no function: {entry}")
            };
            let model: FunctionModel =
                serde_json::from_value(entry["model"].clone()).with_context(|| format!("{shown}: '{function}'"))?;
            if !model.is_sane() {
                bail!("{shown}: the model of '{function}' is no curve that ascends");
            }
            let hash = self.signatures.get(function).copied();
            if hash.is_some_and(|hash| entry["signature"] == signature_text(hash))
                && entry["processors"] == self.processors
            {
                self.models.insert(function.into(), model);
            } else {
                self.others.entry(function.into()).or_default().push(entry.clone());
            }
        }
        Ok(())
    }

    fn try_write(&self) -> Result<()> {
        let known = self.models.iter().filter_map(|(function, model)| {
            let signature = signature_text(*self.signatures.get(function)?);
            let processors = self.processors;
            Some(json!({ "function": function, "signature": signature, "processors": processors, "model": model }))
        });
        let last = |of_one: &Vec<Value>| of_one[of_one.len().saturating_sub(OTHERS_MAX)..].to_vec();
        let models: Vec<Value> = self.others.values().flat_map(last).chain(known).collect();
        let value = json!({ "format": FORMAT, "version": VERSION, "models": models });
        let folder = self.file.parent().expect("made by joining");
        std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        // Whole or not at all, whatever happens meanwhile.
        let new = self.file.with_extension(format!("json.{}", std::process::id()));
        let written = std::fs::write(&new, serde_json::to_string_pretty(&value)? + "\n")
            .and_then(|()| std::fs::rename(&new, &self.file));
        if written.is_err() {
            let _ = std::fs::remove_file(&new);
        }
        written.with_context(|| self.file.display().to_string())
    }
}

fn signature_text(hash: u64) -> String {
    format!("{hash:016x}")
}

#[cfg(test)]
mod tests {
    use gridloom_core::idl;
    use gridloom_core::perf::{Learner, Size};

    use super::*;

    fn signatures(complexity: &str) -> Vec<Signature> {
        let text =
            format!("Module m;\nDefine f(IN int n, OUT double x[n])\nCalcOrder {complexity}\nCalls \"C\" f(n, x);\n");
        idl::parse(&text, "m.idl").unwrap().into_iter().map(|definition| definition.signature).collect()
    }

    fn model() -> FunctionModel {
        let mut learner = Learner::default();
        learner.learn(Size::Work(10.0), 0.125, 1.0, false);
        learner.model()
    }

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("gridloom-kept-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        folder
    }

    #[test]
    fn what_is_kept_is_there_again_for_the_same_function_only() {
        let folder = folder("again");
        let (mut kept, said) = KeptModels::open(&folder, "a/b", &signatures("2*n"));
        assert_eq!((kept.models().len(), said), (0, None));
        kept.learned("m/f".into(), model());
        assert_eq!(kept.write(), None);
        let (again, said) = KeptModels::open(&folder, "a/b", &signatures("2*n"));
        assert_eq!((again.models().get("m/f"), said), (Some(&model()), None));
        assert!(KeptModels::open(&folder, "other", &signatures("2*n")).0.models().is_empty(), "another server");
        let (mut other, _) = KeptModels::open(&folder, "a/b", &signatures("3*n"));
        assert!(other.models().is_empty(), "another complexity");
        other.learned("m/f".into(), FunctionModel::default());
        other.write();
        let file = folder.join("a_b.json");
        let text = std::fs::read_to_string(&file).unwrap();
        let processors = |number: usize| format!("\"processors\": {number}");
        std::fs::write(&file, text.replace(&processors(other.processors), &processors(7777))).unwrap();
        let (mut third, _) = KeptModels::open(&folder, "a/b", &signatures("3*n"));
        assert!(third.models().is_empty(), "another number of processors");
        third.learned("m/f".into(), FunctionModel::default());
        third.write();
        // What was known of the others is still there.
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, text.replace(&processors(7777), &processors(third.processors))).unwrap();
        assert_eq!(KeptModels::open(&folder, "a/b", &signatures("2*n")).0.models().get("m/f"), Some(&model()));
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn what_cannot_be_read_is_put_aside() {
        let folder = folder("aside");
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("s.json");
        let bad = [
            ("{\"format\": \"gridloom mo", "line 1 column"),
            ("{}", "no file of models"),
            (r#"{"format": "gridloom models", "version": 7}"#, "its version is 7, this program reads 2"),
            (
                r#"{"format": "gridloom models", "version": 1, "functions": {}}"#,
                "its version is 1, this program reads 2",
            ),
        ];
        for (text, why) in bad {
            std::fs::write(&file, text).unwrap();
            let (mut kept, said) = KeptModels::open(&folder, "s", &signatures("n"));
            let said = said.unwrap();
            assert!(said.contains("s.json") && said.contains(why) && said.contains("s.json.unreadable"), "{said}");
            assert_eq!(std::fs::read_to_string(folder.join("s.json.unreadable")).unwrap(), text);
            kept.learned("m/f".into(), model());
            assert_eq!(kept.write(), None);
            assert_eq!(KeptModels::open(&folder, "s", &signatures("n")).0.models().len(), 1);
        }
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_said_once() {
        let (mut kept, _) = KeptModels::open(Path::new("/proc/none"), "s", &signatures("n"));
        kept.learned("m/f".into(), model());
        assert!(kept.write().unwrap().starts_with("models cannot be kept: /proc/none"));
        assert_eq!(kept.write(), None);
    }
}

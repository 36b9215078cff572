//! Models of functions, stored on disk between runs of a server.
//!
//! There is one file for each server, `DIR/NAME.json`, or `DIR/HOST.json` for all servers of a host that have no name
//! of their own. [`file_stem`] replaces characters that not every file system allows.
//!
//! ```text
//! {"format": "gridloom models", "version": 2, "models": [
//!   {"function": "linalg/dgemm", "signature": "9f…", "processors": 8, "slowdown": 1.0,
//!    "model": {"by_work": {"points": […]}, …}}]}
//! ```
//!
//! A model applies to one version of its function (its signature, including the complexity), one number of processors
//! and one slowdown. It is used again when all three match, and remains in the file meanwhile. Several servers may
//! write one file: each replaces only models of the same function, version, processors and slowdown. A file that
//! cannot be parsed is renamed to `.unreadable` and reported: nothing is lost, and the server starts.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use gridloom_base::{Fnv, is_identifier_character};
use gridloom_idl::Signature;
use gridloom_perf::FunctionModel;
use rustix::fs::{FlockOperation, flock};
use serde_json::{Value, json};

const FORMAT: &str = "gridloom models";
const VERSION: u64 = 2;
/// Pause between two writes.
const PAUSE: Duration = Duration::from_secs(5);
/// A larger file was not written by Gridloom.
const FILE_BYTES_MAX: u64 = 64 << 20;
/// Maximum length of the part of a file's name that is taken from the server's name. File systems allow names of 255 bytes.
const STEM_BYTES_MAX: usize = 200;
/// Number of other models of one function that are kept in addition to the one in use; the oldest are dropped.
const OTHERS_MAX: usize = 16;

/// The file of one server.
#[derive(Debug)]
pub struct ModelStore {
    file: PathBuf,
    processors: usize,
    slowdown: f64,
    /// Hash of each function's signature, by function.
    signatures: BTreeMap<String, u64>,
    models: BTreeMap<String, FunctionModel>,
    written: Instant,
    is_changed: bool,
    has_failed: bool,
}

/// Returns the default folder of models, or `None` if there is no home.
pub fn usual_folder() -> Option<PathBuf> {
    Some(state_folder()?.join("models"))
}

/// Returns the folder for what the program stores between runs, or `None` if there is no home.
pub fn state_folder() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let state = set("XDG_STATE_HOME").or_else(|| set("HOME").map(|home| home.join(".local/state")))?;
    Some(state.join("gridloom"))
}

impl ModelStore {
    /// Opens the models in that folder for a server of that name and slowdown. Returns a message too if something is
    /// wrong with them.
    pub fn open(folder: &Path, name: &str, functions: &[Signature], slowdown: f64) -> (ModelStore, Option<String>) {
        let mut kept = ModelStore {
            file: folder.join(format!("{}.json", file_stem(name))),
            processors: gridloom_resources::processors(),
            slowdown,
            signatures: functions.iter().map(|s| (s.name.clone(), s.hash())).collect(),
            models: BTreeMap::new(),
            written: Instant::now(),
            is_changed: false,
            has_failed: false,
        };
        let said = match kept.read() {
            Ok(entries) => {
                kept.models =
                    entries.into_iter().filter(|entry| kept.is_own(entry)).map(|e| (e.function, e.model)).collect();
                None
            }
            Err(error) => Some(format!("stored models are not used: {error:#}; {}", kept.rename_unreadable())),
        };
        (kept, said)
    }

    /// Returns the models, by function.
    pub fn models(&self) -> BTreeMap<String, FunctionModel> {
        self.models.clone()
    }

    /// Takes a changed model. It is written after a while, together with all other changed models.
    pub fn record(&mut self, function: String, model: FunctionModel) -> Option<String> {
        self.models.insert(function, model);
        self.is_changed = true;
        if self.written.elapsed() < PAUSE { None } else { self.write() }
    }

    /// Writes the changed models; returns a message the first time that this fails.
    pub fn write(&mut self) -> Option<String> {
        if !std::mem::take(&mut self.is_changed) {
            return None;
        }
        self.written = Instant::now();
        match self.try_write() {
            Ok(said) => {
                self.has_failed = false;
                said
            }
            Err(error) => {
                self.is_changed = true;
                let is_first = !std::mem::replace(&mut self.has_failed, true);
                is_first.then(|| format!("models cannot be stored: {error:#}"))
            }
        }
    }

    /// Reads the models of the file, oldest first.
    fn read(&self) -> Result<Vec<Entry>> {
        let shown = self.file.display().to_string();
        let size = match std::fs::metadata(&self.file) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            other => other.with_context(|| shown.clone())?.len(),
        };
        if size > FILE_BYTES_MAX {
            bail!("{shown}: {size} bytes; the limit is {FILE_BYTES_MAX}");
        }
        let text = std::fs::read_to_string(&self.file).with_context(|| shown.clone())?;
        let value: Value = serde_json::from_str(&text).with_context(|| shown.clone())?;
        if value["format"] != FORMAT {
            bail!("{shown}: not a file of models: its \"format\" is {}, not \"{FORMAT}\"", value["format"]);
        }
        if value["version"] != VERSION {
            bail!("{shown}: its version is {}, this program reads {VERSION}", value["version"]);
        }
        let Some(entries) = value["models"].as_array() else { bail!("{shown}: it has no list of \"models\"") };
        entries.iter().map(|entry| Entry::read(entry, &shown)).collect()
    }

    fn rename_unreadable(&self) -> String {
        let aside = self.file.with_extension("json.unreadable");
        match std::fs::rename(&self.file, &aside) {
            Ok(()) => format!("it is now {}", aside.display()),
            Err(error) => format!("it cannot be renamed either: {error}"),
        }
    }

    /// True if a model matches the function and the server.
    fn is_own(&self, entry: &Entry) -> bool {
        let signature = self.signatures.get(&entry.function).map(|hash| signature_text(*hash));
        // A model without a slowdown may have been learned with any slowdown.
        let is_same = |what: &str, own: Value| entry.kept[what] == own;
        signature.is_some_and(|own| is_same("signature", own.into()))
            && is_same("processors", self.processors.into())
            && is_same("slowdown", self.slowdown.into())
    }

    /// Merges these models into the file, which other servers without a name write, too. Returns a message if the file
    /// had become unreadable.
    fn try_write(&self) -> Result<Option<String>> {
        let folder = self.file.parent().expect("made by joining");
        std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        // Locked until the end. If locks are not supported, one of two servers that write at the same time writes again later.
        let lock = File::open(folder).with_context(|| folder.display().to_string())?;
        let _ = flock(&lock, FlockOperation::LockExclusive);
        let (entries, said) = match self.read() {
            Ok(entries) => (entries, None),
            Err(error) => {
                (Vec::new(), Some(format!("models in the file are lost: {error:#}; {}", self.rename_unreadable())))
            }
        };
        let mut others: BTreeMap<String, Vec<Value>> = BTreeMap::new();
        for entry in entries {
            if !(self.models.contains_key(&entry.function) && self.is_own(&entry)) {
                others.entry(entry.function).or_default().push(entry.kept);
            }
        }
        let known = self.models.iter().filter_map(|(function, model)| {
            let signature = signature_text(*self.signatures.get(function)?);
            let ModelStore { processors, slowdown, .. } = self;
            Some(json!({ "function": function, "signature": signature, "processors": processors,
                         "slowdown": slowdown, "model": model }))
        });
        let last = |of_one: &Vec<Value>| of_one[of_one.len().saturating_sub(OTHERS_MAX)..].to_vec();
        let models: Vec<Value> = others.values().flat_map(last).chain(known).collect();
        let value = json!({ "format": FORMAT, "version": VERSION, "models": models });
        // The file is replaced atomically.
        let new = self.file.with_extension(format!("json.{}", std::process::id()));
        let written = std::fs::write(&new, serde_json::to_string_pretty(&value)? + "\n")
            .and_then(|()| std::fs::rename(&new, &self.file));
        if written.is_err() {
            let _ = std::fs::remove_file(&new);
        }
        written.with_context(|| self.file.display().to_string())?;
        Ok(said)
    }
}

/// One model of a file.
#[derive(Debug)]
struct Entry {
    function: String,
    model: FunctionModel,
    /// The model as it is in the file.
    kept: Value,
}

impl Entry {
    fn read(kept: &Value, shown: &str) -> Result<Entry> {
        let Some(function) = kept["function"].as_str() else { bail!("{shown}: a model names no function: {kept}") };
        let model: FunctionModel =
            serde_json::from_value(kept["model"].clone()).with_context(|| format!("{shown}: '{function}'"))?;
        if !model.is_sane() {
            bail!("{shown}: the model of '{function}' is not an ascending curve");
        }
        Ok(Entry { function: function.into(), model, kept: kept.clone() })
    }
}

fn signature_text(hash: u64) -> String {
    format!("{hash:016x}")
}

/// Returns the name of a server's file. If the server's name contains other characters than those of words, or is too long for
/// a file, a hash of the name distinguishes it from others.
fn file_stem(name: &str) -> String {
    let is_plain = |c: char| is_identifier_character(c) || "-.".contains(c);
    let mut stem: String = name.chars().map(|c| if is_plain(c) { c } else { '_' }).collect();
    while stem.len() > STEM_BYTES_MAX {
        stem.pop();
    }
    if stem != name {
        let mut hash = Fnv::default();
        hash.text(name);
        stem += &format!("-{:016x}", hash.0);
    }
    stem
}

#[cfg(test)]
mod tests {

    use gridloom_perf::{ConcurrencyPoint, Learner, Perturbation, Size};

    use super::*;

    fn signatures(complexity: &str) -> Vec<Signature> {
        let text =
            format!("Module m;\nDefine f(IN int n, OUT double x[n])\nCalcOrder {complexity}\nCalls \"C\" f(n, x);\n");
        gridloom_idl::parse(&text, "m.idl").unwrap().into_iter().map(|definition| definition.signature).collect()
    }

    fn model() -> FunctionModel {
        let mut learner = Learner::default();
        learner.learn(Size::Work(10.0), 0.125, 1.0, false);
        let model = learner.model();
        // A file has all names of a model.
        let perturbation = Perturbation::new(vec![ConcurrencyPoint { tasks: 2, factor: 1.5, calls: 4 }]);
        FunctionModel { by_bytes: model.by_work.clone(), perturbation, ..model }
    }

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("gridloom-kept-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        folder
    }

    /// Earlier, servers with such names had the same file, and a long name none.
    #[test]
    fn each_name_of_a_server_has_its_own_file() {
        let names = ["node 7", "node/7", "node_7", "\u{915}\u{93e}", "\u{915}\u{93f}", "\u{915}_"];
        let stems: std::collections::BTreeSet<String> = names.iter().map(|name| file_stem(name)).collect();
        assert_eq!(stems.len(), names.len(), "{stems:?}");
        assert_eq!((&*file_stem("node_7"), &*file_stem(names[3])), ("node_7", names[3]));
        assert!(file_stem(&"\u{915}".repeat(85)).len() < 230);
    }

    #[test]
    fn what_is_kept_is_there_again_for_the_same_function_only() {
        let folder = folder("again");
        let (mut kept, said) = ModelStore::open(&folder, "a/b", &signatures("2*n"), 1.0);
        assert_eq!((kept.models().len(), said), (0, None));
        kept.record("m/f".into(), model());
        assert_eq!(kept.write(), None);
        let file = folder.join(format!("{}.json", file_stem("a/b")));
        let text = std::fs::read_to_string(&file).unwrap();
        assert_eq!(crate::key_paths::key_paths(&text), include_str!("../tests/formats/models.keys"));
        let (again, said) = ModelStore::open(&folder, "a/b", &signatures("2*n"), 1.0);
        assert_eq!((again.models().get("m/f"), said), (Some(&model()), None));
        assert!(ModelStore::open(&folder, "other", &signatures("2*n"), 1.0).0.models().is_empty(), "another server");
        let (mut other, _) = ModelStore::open(&folder, "a/b", &signatures("3*n"), 1.0);
        assert!(other.models().is_empty(), "another complexity");
        other.record("m/f".into(), FunctionModel::default());
        other.write();
        let text = std::fs::read_to_string(&file).unwrap();
        let processors = |number: usize| format!("\"processors\": {number}");
        std::fs::write(&file, text.replace(&processors(other.processors), &processors(7777))).unwrap();
        let (mut third, _) = ModelStore::open(&folder, "a/b", &signatures("3*n"), 1.0);
        assert!(third.models().is_empty(), "another number of processors");
        third.record("m/f".into(), FunctionModel::default());
        third.write();
        // The models of the others are still there.
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, text.replace(&processors(7777), &processors(third.processors))).unwrap();
        assert_eq!(ModelStore::open(&folder, "a/b", &signatures("2*n"), 1.0).0.models().get("m/f"), Some(&model()));
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_slowed_server_and_a_plain_one_have_models_of_their_own_in_one_file() {
        let folder = folder("slowdown");
        let open = |slowdown| ModelStore::open(&folder, "host", &signatures("n"), slowdown).0;
        // Both run at the same time, and have no models yet.
        let (mut plain, mut slowed) = (open(1.0), open(8.0));
        let model_of = |seconds| {
            let mut learner = Learner::default();
            learner.learn(Size::Work(10.0), seconds, 1.0, false);
            learner.model()
        };
        plain.record("m/f".into(), model_of(0.125));
        assert_eq!(plain.write(), None);
        assert!(open(8.0).models().is_empty(), "what a plain server learned");
        slowed.record("m/f".into(), model_of(1.0));
        assert_eq!(slowed.write(), None);
        plain.record("m/f".into(), model_of(0.25));
        assert_eq!(plain.write(), None);
        for (slowdown, seconds) in [(1.0, 0.25), (8.0, 1.0)] {
            assert_eq!(open(slowdown).models().get("m/f"), Some(&model_of(seconds)), "{slowdown}");
        }
        assert!(open(2.0).models().is_empty());
        // A model without a slowdown fits no server.
        let file = folder.join("host.json");
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, text.replace("\"slowdown\"", "\"other\"")).unwrap();
        assert!(open(1.0).models().is_empty() && open(8.0).models().is_empty());
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn what_another_server_has_written_meanwhile_stays() {
        let folder = folder("joined");
        let other = gridloom_idl::parse("Module o;\nDefine g(IN int n)\nCalls \"C\" g(n);\n", "o.idl").unwrap();
        let other: Vec<Signature> = other.into_iter().map(|definition| definition.signature).collect();
        let (mut one, _) = ModelStore::open(&folder, "host", &signatures("n"), 1.0);
        let (mut two, _) = ModelStore::open(&folder, "host", &other, 1.0);
        one.record("m/f".into(), model());
        two.record("o/g".into(), model());
        assert_eq!((one.write(), two.write()), (None, None));
        assert_eq!(ModelStore::open(&folder, "host", &signatures("n"), 1.0).0.models().len(), 1);
        assert_eq!(ModelStore::open(&folder, "host", &other, 1.0).0.models().len(), 1);
        // A file that became invalid meanwhile is renamed, and the models of this server are written.
        std::fs::write(folder.join("host.json"), "{").unwrap();
        one.record("m/f".into(), model());
        let said = one.write().unwrap();
        assert!(said.contains("host.json.unreadable"), "{said}");
        assert_eq!(ModelStore::open(&folder, "host", &signatures("n"), 1.0).0.models().len(), 1);
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn what_cannot_be_read_is_renamed() {
        let folder = folder("aside");
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("s.json");
        let bad = [
            ("{\"format\": \"gridloom mo", "line 1 column"),
            ("{}", "not a file of models"),
            (r#"{"format": "gridloom models", "version": 7}"#, "its version is 7, this program reads 2"),
            (
                r#"{"format": "gridloom models", "version": 1, "functions": {}}"#,
                "its version is 1, this program reads 2",
            ),
        ];
        for (text, why) in bad {
            std::fs::write(&file, text).unwrap();
            let (mut kept, said) = ModelStore::open(&folder, "s", &signatures("n"), 1.0);
            let said = said.unwrap();
            assert!(said.contains("s.json") && said.contains(why) && said.contains("s.json.unreadable"), "{said}");
            assert_eq!(std::fs::read_to_string(folder.join("s.json.unreadable")).unwrap(), text);
            kept.record("m/f".into(), model());
            assert_eq!(kept.write(), None);
            assert_eq!(ModelStore::open(&folder, "s", &signatures("n"), 1.0).0.models().len(), 1);
        }
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_reported_once() {
        let (mut kept, _) = ModelStore::open(Path::new("/proc/none"), "s", &signatures("n"), 1.0);
        kept.record("m/f".into(), model());
        assert!(kept.write().unwrap().starts_with("models cannot be stored: /proc/none"));
        assert_eq!(kept.write(), None);
    }
}

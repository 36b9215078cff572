//! What the elements of a run and the command that started them tell one another, in the files of a folder.
//!
//! | file | written by | what it says |
//! |---|---|---|
//! | `run` | the command | its program, and how many elements there can be |
//! | `epoch` | the command; elements when the program has ended | the generation that runs, or that no process comes any more |
//! | `wanted` | `gridloom chares resize` | with how many elements the program is to go on |
//! | `refused` | the first element | why it cannot |
//! | `request` | the first element | all have saved: others are to begin |
//! | `complete-N` | the first element | a checkpoint in memory was complete in the generation that began with epoch N |
//! | `parts` | each element | what it has saved for another number of elements |
//! | `bell` | all | a named pipe: it wakes the command |
//!
//! **Promise:** a file is there whole or not at all.

use std::fs;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use gridloom_chare::Pe;
use rustix::fs::{Mode, OFlags, open};
use serde::{Deserialize, Serialize};

use super::checkpoints::CheckpointFolder;
use super::places::Restart;
use crate::Error;

/// Elements from one loss, or one change of their number, to the next.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Generation {
    pub epoch: u64,
    /// The epoch in which the elements began to be so many.
    pub since: u64,
    /// The host and the site of each.
    pub elements: Vec<(String, u32)>,
    /// Where the program goes on if it has no later checkpoint.
    pub restart: Option<Restart>,
    /// How many elements each epoch had, up to this one.
    #[serde(default)]
    pub counts: Vec<u32>,
}

impl Generation {
    /// Whether an element of that epoch has left since, even if there is another one of its number now.
    pub(super) fn is_without(&self, element: Pe, epoch: u64) -> bool {
        let mut since = self.counts.iter().skip(epoch as usize + 1);
        element.0 as usize >= self.elements.len() || since.any(|count| *count <= element.0)
    }
}

/// How many elements a run can have, and why not others.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Bounds {
    pub least: u32,
    pub most: u32,
    pub why_least: String,
    pub why_most: String,
}

impl Bounds {
    /// # Errors
    /// If so many are too few or too many.
    pub fn check(&self, elements: u32) -> Result<(), String> {
        if elements < self.least {
            return Err(format!("{} or more are possible, since {}", self.least, self.why_least));
        }
        if elements > self.most {
            return Err(format!("{} or fewer are possible, since {}", self.most, self.why_most));
        }
        Ok(())
    }
}

/// Where the command and the elements tell one another what changes.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Changing {
    pub folder: String,
    pub bounds: Bounds,
}

/// What the first element asks of the command, once all have saved.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Request {
    pub epoch: u64,
    pub elements: u32,
    pub restart: Restart,
}

/// What others read of a run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct RunFile {
    pub program: Vec<String>,
    /// With how many it began.
    pub elements: u32,
    pub bounds: Bounds,
}

/// The files of a run.
#[derive(Clone, Debug)]
pub struct Epochs(PathBuf);

/// What comes of a loss or a request.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Verdict {
    Goes(Generation),
    /// No other process comes: the program has ended, or fails. That is final.
    Over,
}

fn cannot(what: &str, path: &Path, error: impl std::fmt::Display) -> Error {
    Error::Input(format!("the elements of a run: cannot {what} {}: {error}", path.display()))
}

impl Epochs {
    pub fn new(folder: impl Into<PathBuf>) -> Epochs {
        Epochs(folder.into())
    }

    /// The named pipe by which the command is told that a request is there.
    pub fn bell(&self) -> PathBuf {
        self.0.join("bell")
    }

    /// Rings it: whether the command is there.
    ///
    /// # Errors
    /// If the pipe cannot be written to.
    pub fn ring(&self) -> Result<bool, Error> {
        match open(self.bell(), OFlags::WRONLY | OFlags::NONBLOCK, Mode::empty()) {
            // If it is full, it rings already.
            Ok(bell) => Ok(!matches!(rustix::io::write(&bell, b"!"), Err(error) if error != rustix::io::Errno::AGAIN)),
            Err(rustix::io::Errno::NXIO | rustix::io::Errno::NOENT) => Ok(false),
            Err(error) => Err(cannot("ring", &self.bell(), error)),
        }
    }

    /// # Errors
    /// If it cannot be written.
    pub fn describe(&self, run: &RunFile) -> Result<(), Error> {
        self.write("run", &json(run))
    }

    /// What the command says of its run.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn description(&self) -> Result<Option<RunFile>, Error> {
        self.parsed("run")
    }

    /// A generation begins.
    ///
    /// # Errors
    /// If that cannot be written.
    pub fn begin(&self, generation: &Generation) -> Result<(), Error> {
        self.write("epoch", &json(generation))
    }

    /// From now on no process comes any more.
    ///
    /// # Errors
    /// If that cannot be written.
    pub fn end(&self) -> Result<(), Error> {
        self.write("epoch", "over")
    }

    /// All elements are started anew: nothing of those before is left, but what was asked from outside.
    ///
    /// # Errors
    /// If a file cannot be deleted.
    pub fn clear(&self) -> Result<(), Error> {
        ["epoch", "request"].into_iter().try_for_each(|name| self.delete(name))
    }

    /// Whether no process comes any more.
    ///
    /// # Errors
    /// If that cannot be read.
    pub fn is_over(&self) -> Result<bool, Error> {
        Ok(self.verdict()? == Some(Verdict::Over))
    }

    /// The generation that runs; none if the run has ended, or is at its beginning.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn generation(&self) -> Result<Option<Generation>, Error> {
        Ok(self
            .verdict()?
            .and_then(|verdict| if let Verdict::Goes(generation) = verdict { Some(generation) } else { None }))
    }

    pub(super) fn verdict(&self) -> Result<Option<Verdict>, Error> {
        let Some(text) = self.read("epoch")? else { return Ok(None) };
        Ok(Some(serde_json::from_str(&text).map_or(Verdict::Over, Verdict::Goes)))
    }

    /// Asks the run to go on with so many elements: whether nothing else was asked before.
    ///
    /// # Errors
    /// If that cannot be written.
    pub fn want(&self, elements: u32) -> Result<bool, Error> {
        self.delete("refused")?;
        let (path, new) = (self.0.join("wanted"), self.new_file("wanted"));
        fs::write(&new, elements.to_string()).map_err(|error| cannot("write", &new, error))?;
        // A link is there whole or not at all, and takes no other's place.
        let linked = fs::hard_link(&new, &path);
        let _ = fs::remove_file(&new);
        match linked {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(cannot("write", &path, error)),
        }
    }

    /// With how many elements the run was asked to go on.
    ///
    /// # Errors
    /// If that cannot be read.
    pub fn wanted(&self) -> Result<Option<u32>, Error> {
        Ok(self.read("wanted")?.and_then(|text| text.parse().ok()))
    }

    /// What was asked has come about, or is not asked any more.
    ///
    /// # Errors
    /// If the file cannot be deleted.
    pub fn settle(&self) -> Result<(), Error> {
        self.delete("wanted")
    }

    pub(super) fn refuse(&self, why: &str) -> Result<(), Error> {
        self.write("refused", why)?;
        self.settle()
    }

    /// Why what was asked last cannot be.
    ///
    /// # Errors
    /// If that cannot be read.
    pub fn refused(&self) -> Result<Option<String>, Error> {
        self.read("refused")
    }

    pub(super) fn request(&self, request: &Request) -> Result<(), Error> {
        self.write("request", &json(request))?;
        match self.ring()? {
            true => Ok(()),
            false => Err(cannot("ring", &self.bell(), "the command has ended")),
        }
    }

    /// What the first element asks, once.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn take_request(&self) -> Result<Option<Request>, Error> {
        let request = self.parsed("request")?;
        if request.is_some() {
            self.delete("request")?;
        }
        Ok(request)
    }

    /// A checkpoint in memory was complete in that generation: a process that comes later cannot know it otherwise, if it comes in the place of all
    /// that did.
    pub(super) fn note_complete(&self, since: u64) -> Result<(), Error> {
        self.write(&format!("complete-{since}"), "")
    }

    pub(super) fn has_complete(&self, since: u64) -> bool {
        self.0.join(format!("complete-{since}")).exists()
    }

    /// Others have begun from what was saved in that epoch: what was saved earlier is not needed any more.
    ///
    /// # Errors
    /// If it cannot be deleted.
    pub fn delete_parts_before(&self, epoch: u64) -> Result<(), Error> {
        let folder = self.0.join("parts");
        if folder.exists() { self.parts().delete_before(epoch) } else { Ok(()) }
    }

    /// For what elements save for another number of them.
    pub(super) fn parts(&self) -> CheckpointFolder {
        CheckpointFolder::new(self.0.join("parts"))
    }

    fn new_file(&self, name: &str) -> PathBuf {
        // Several may write at once.
        self.0.join(format!("{name}-{}.new", std::process::id()))
    }

    fn write(&self, name: &str, text: &str) -> Result<(), Error> {
        let (path, new) = (self.0.join(name), self.new_file(name));
        let written = fs::File::create(&new).and_then(|mut file| file.write_all(text.as_bytes()));
        written.and_then(|()| fs::rename(&new, &path)).map_err(|error| cannot("write", &path, error))
    }

    fn read(&self, name: &str) -> Result<Option<String>, Error> {
        let path = self.0.join(name);
        match fs::read_to_string(&path) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(cannot("read", &path, error)),
        }
    }

    fn parsed<T: for<'a> Deserialize<'a>>(&self, name: &str) -> Result<Option<T>, Error> {
        let parsed = self.read(name)?.map(|text| serde_json::from_str(&text)).transpose();
        parsed.map_err(|error| cannot("understand", &self.0.join(name), error))
    }

    fn delete(&self, name: &str) -> Result<(), Error> {
        let path = self.0.join(name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(cannot("delete", &path, error)),
            _ => Ok(()),
        }
    }
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("names and numbers")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_element_that_has_left_is_none_of_the_same_number_later() {
        let elements = vec![(String::new(), 0); 4];
        let generation = Generation { epoch: 3, elements, counts: vec![4, 4, 2, 4], ..Generation::default() };
        let left = |element: u32, epoch: u64| generation.is_without(Pe(element), epoch);
        assert!(left(2, 0) && left(3, 1) && left(7, 2), "there were two of them meanwhile");
        assert!(!left(1, 0) && !left(2, 2) && !left(3, 2));
    }
}

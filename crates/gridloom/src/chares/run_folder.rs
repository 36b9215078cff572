//! Files in a folder, through which the elements of a run and the command that started them communicate.
//!
//! | file | written by | content |
//! |---|---|---|
//! | `run` | the command | its program, and the possible numbers of elements |
//! | `epoch` | the command; elements when the program has ended | the current generation, or that no further process will start |
//! | `wanted` | `gridloom chares resize` | the requested number of elements |
//! | `refused` | the first element | why the request is refused |
//! | `request` | the first element | all elements have saved, and the command may start the next generation |
//! | `complete-N` | the first element | a checkpoint in memory was complete in the generation that began with epoch N |
//! | `parts` | each element | its state, saved for another number of elements |
//! | `bell` | all | a named pipe that wakes the command |
//!
//! **Promise:** files appear atomically: a reader finds a file complete or not at all.

use std::ffi::OsString;
use std::fs;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use gridloom_base::EscapedBytes;
use gridloom_chare::Pe;
use rustix::fs::{Mode, OFlags, open};
use serde::{Deserialize, Serialize};

use super::checkpoints::CheckpointFolder;
use super::options::{ElementLimits, Restart};
use crate::Error;

/// The elements between one loss, or one change of their number, and the next.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Generation {
    pub epoch: u64,
    /// The epoch in which the number of elements became the present one.
    pub since: u64,
    /// The host and the site of each element.
    pub elements: Vec<(String, u32)>,
    /// Where the program resumes if it has no later checkpoint.
    pub restart: Option<Restart>,
    /// The number of elements in each epoch up to this one.
    #[serde(default)]
    pub counts: Vec<u32>,
}

impl Generation {
    /// True if an element of that epoch has left since, even if another element has its number now.
    pub(super) fn is_without(&self, element: Pe, epoch: u64) -> bool {
        let mut since = self.counts.iter().skip(epoch as usize + 1);
        element.0 as usize >= self.elements.len() || since.any(|count| *count <= element.0)
    }
}

/// The first element's request to the command, once all have saved.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ResizeRequest {
    pub epoch: u64,
    pub elements: u32,
    pub restart: Restart,
}

/// Description of a run for other processes.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct RunDescription {
    #[serde(with = "gridloom_base::path_bytes::list")]
    pub program: Vec<OsString>,
    /// The number of elements at the beginning.
    pub elements: u32,
    pub bounds: ElementLimits,
}

impl RunDescription {
    /// Returns the command line, for display.
    pub fn words(&self) -> String {
        let words: Vec<String> = self.program.iter().map(|word| EscapedBytes::of(&word).to_string()).collect();
        words.join(" ")
    }
}

/// The files of a run.
#[derive(Clone, Debug)]
pub struct RunFolder(PathBuf);

/// The command's decision after a loss or a request.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Decision {
    Continue(Generation),
    /// No further process will start: the program has ended, or fails. This is final.
    Over,
}

fn cannot(what: &str, path: &Path, error: impl std::fmt::Display) -> Error {
    Error::Input(format!("the elements of a run: cannot {what} {}: {error}", path.display()))
}

impl RunFolder {
    pub fn new(folder: impl Into<PathBuf>) -> RunFolder {
        RunFolder(folder.into())
    }

    /// The named pipe that notifies the command of a request.
    pub fn pipe(&self) -> PathBuf {
        self.0.join("bell")
    }

    /// Notifies the command through the named pipe. Returns whether the command is running.
    ///
    /// # Errors
    /// If the pipe cannot be written to.
    pub fn notify(&self) -> Result<bool, Error> {
        match open(self.pipe(), OFlags::WRONLY | OFlags::NONBLOCK, Mode::empty()) {
            // If the pipe is full, the command has a notification already.
            Ok(bell) => Ok(!matches!(rustix::io::write(&bell, b"!"), Err(error) if error != rustix::io::Errno::AGAIN)),
            Err(rustix::io::Errno::NXIO | rustix::io::Errno::NOENT) => Ok(false),
            Err(error) => Err(cannot("ring", &self.pipe(), error)),
        }
    }

    /// Writes the description of a run.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn describe(&self, run: &RunDescription) -> Result<(), Error> {
        self.write("run", &json(run))
    }

    /// Reads the description that the command has written.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn description(&self) -> Result<Option<RunDescription>, Error> {
        self.parsed("run")
    }

    /// Announces a generation.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn begin(&self, generation: &Generation) -> Result<(), Error> {
        self.write("epoch", &json(generation))
    }

    /// Announces that no further process will start.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn end(&self) -> Result<(), Error> {
        self.write("epoch", "over")
    }

    /// Prepares a restart of all elements: deletes the files of the previous ones, except for requests from outside.
    ///
    /// # Errors
    /// If a file cannot be deleted.
    pub fn clear(&self) -> Result<(), Error> {
        ["epoch", "request"].into_iter().try_for_each(|name| self.delete(name))
    }

    /// True if no further process will start.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn is_over(&self) -> Result<bool, Error> {
        Ok(self.verdict()? == Some(Decision::Over))
    }

    /// Returns the current generation; `None` if the run has ended, or has only begun.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn generation(&self) -> Result<Option<Generation>, Error> {
        Ok(self
            .verdict()?
            .and_then(|verdict| if let Decision::Continue(generation) = verdict { Some(generation) } else { None }))
    }

    pub(super) fn verdict(&self) -> Result<Option<Decision>, Error> {
        let Some(text) = self.read("epoch")? else { return Ok(None) };
        Ok(Some(serde_json::from_str(&text).map_or(Decision::Over, Decision::Continue)))
    }

    /// Requests that the run continue with `elements` elements. Returns false if another request is pending.
    ///
    /// # Errors
    /// If the request cannot be written.
    pub fn request_elements(&self, elements: u32) -> Result<bool, Error> {
        self.delete("refused")?;
        let (path, new) = (self.0.join("wanted"), self.new_file("wanted"));
        fs::write(&new, elements.to_string()).map_err(|error| cannot("write", &new, error))?;
        // Creating a hard link is atomic and never replaces a file.
        let linked = fs::hard_link(&new, &path);
        let _ = fs::remove_file(&new);
        match linked {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(cannot("write", &path, error)),
        }
    }

    /// Returns the requested number of elements.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn requested_elements(&self) -> Result<Option<u32>, Error> {
        Ok(self.read("wanted")?.and_then(|text| text.parse().ok()))
    }

    /// Deletes the request, which has been fulfilled or is withdrawn.
    ///
    /// # Errors
    /// If the file cannot be deleted.
    pub fn clear_request(&self) -> Result<(), Error> {
        self.delete("wanted")
    }

    pub(super) fn refuse(&self, why: &str) -> Result<(), Error> {
        self.write("refused", why)?;
        self.clear_request()
    }

    /// Returns why the last request was refused.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn refusal(&self) -> Result<Option<String>, Error> {
        self.read("refused")
    }

    pub(super) fn request(&self, request: &ResizeRequest) -> Result<(), Error> {
        self.write("request", &json(request))?;
        match self.notify()? {
            true => Ok(()),
            false => Err(cannot("ring", &self.pipe(), "the command has ended")),
        }
    }

    /// Reads and deletes the first element's request.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn take_request(&self) -> Result<Option<ResizeRequest>, Error> {
        let request = self.parsed("request")?;
        if request.is_some() {
            self.delete("request")?;
        }
        Ok(request)
    }

    /// Notes that a checkpoint in memory was complete in that generation. If all processes that had it are replaced,
    /// their successors have no other way to know.
    pub(super) fn note_complete(&self, since: u64) -> Result<(), Error> {
        self.write(&format!("complete-{since}"), "")
    }

    pub(super) fn has_complete(&self, since: u64) -> bool {
        self.0.join(format!("complete-{since}")).exists()
    }

    /// Deletes the parts saved before that epoch: the elements have resumed from the parts of that epoch, so earlier
    /// ones are not needed.
    ///
    /// # Errors
    /// If they cannot be deleted.
    pub fn delete_parts_before(&self, epoch: u64) -> Result<(), Error> {
        let folder = self.0.join("parts");
        if folder.exists() { self.parts().delete_before(epoch) } else { Ok(()) }
    }

    /// The folder for the parts that elements save for a change of their number.
    pub(super) fn parts(&self) -> CheckpointFolder {
        CheckpointFolder::new(self.0.join("parts"))
    }

    fn new_file(&self, name: &str) -> PathBuf {
        // Several processes may write at the same time.
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
#[path = "../../tests/support/key_paths.rs"]
mod key_paths;

#[cfg(test)]
mod tests {
    use super::key_paths::key_paths;
    use super::*;

    /// Processes of one run may be of different releases.
    #[test]
    fn the_names_in_the_files_of_a_run_are_fixed() {
        let restart = Restart { folder: "f".into(), number: Some(1) };
        let elements = vec![("host".to_string(), 0)];
        let generation =
            Generation { elements, restart: Some(restart.clone()), counts: vec![1], ..Generation::default() };
        let bounds = ElementLimits { least: 1, most: 2, why_least: "l".into(), why_most: "m".into() };
        let description = RunDescription { program: vec!["p".into()], elements: 1, bounds };
        let request = ResizeRequest { epoch: 1, elements: 2, restart };
        let found = [json(&generation), json(&request), json(&description)].map(|text| key_paths(&text));
        assert_eq!(found.concat(), include_str!("../../tests/formats/run_folder.keys"));
    }

    #[test]
    fn an_element_that_has_left_is_none_of_the_same_number_later() {
        let elements = vec![(String::new(), 0); 4];
        let generation = Generation { epoch: 3, elements, counts: vec![4, 4, 2, 4], ..Generation::default() };
        let left = |element: u32, epoch: u64| generation.is_without(Pe(element), epoch);
        assert!(left(2, 0) && left(3, 1) && left(7, 2), "there were two of them meanwhile");
        assert!(!left(1, 0) && !left(2, 2) && !left(3, 2));
    }
}

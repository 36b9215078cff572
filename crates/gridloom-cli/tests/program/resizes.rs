//! Programs whose number of elements changes while they run. The program is that of [`checkpoints`](super::checkpoints).

use std::process::{Child, Command, Output, Stdio};

use crate::checkpoints::{ABORT_FILE, Folder, HOLD, HOLD_LATER, RESIZES, chares_run, ends_with};
use crate::support::bounds::{ends, until_true};
use crate::support::{gridloom, status_and_stderr};

/// Counts the element processes that began.
fn began(out: &str) -> usize {
    out.lines().filter(|line| line.contains("a process began")).count()
}

#[test]
fn a_program_grows_and_shrinks_with_any_kind_of_checkpoints() {
    let folder = Folder::new("resized");
    let (kept, trace) = (folder.path("kept"), folder.path("trace.json"));
    for kind in [&[][..], &["--checkpoint", &kept], &["--checkpoint", &kept, "--every", "3"], &["--trace", &trace]] {
        let mut command = chares_run(9, &[&["-n", "2"], kind].concat());
        command.env(RESIZES, "2:4,3:4,5:1,6:3,7:2");
        // First the third and the fourth element start, then the second and the third.
        assert_eq!(began(&ends_with(command, 9)), 2 + 2 + 2, "{kind:?}");
    }
    let text = std::fs::read_to_string(&trace).unwrap();
    let counts = text.lines().filter(|line| line.contains("Counter.Count") && line.contains("\"(6)\"")).count();
    assert_eq!(counts, 9, "the timeline has all rounds of the last chare");
    let mut command = chares_run(9, &["-n", "3", "--checkpoint", "memory", "--sites", "2", "--latency", "1ms"]);
    command.env(RESIZES, "2:5,5:2");
    assert_eq!(began(&ends_with(command, 9)), 3 + 2);
}

#[test]
fn an_element_is_killed_after_the_program_has_grown() {
    let folder = Folder::new("resized-killed");
    let (kept, fell) = (folder.path("kept"), folder.path("fell"));
    // After the third round, neither the folder nor any memory has a later checkpoint than that of the change.
    for kind in [
        &["--checkpoint", &kept, "--every", "9"][..],
        &["--checkpoint", "memory", "--every", "9"],
        &["--checkpoint", "memory"],
    ] {
        let mut command = chares_run(6, &[&["-n", "2", "--restarts", "1"], kind].concat());
        command.env(RESIZES, "3:4,5:2").env(ABORT_FILE, &fell);
        ends_with(command, 6);
        std::fs::remove_file(&fell).expect("the element has fallen");
        let _ = std::fs::remove_dir_all(&kept);
    }
}

/// A run in which the first chare waits in the fourth round.
struct HeldRun {
    run: Child,
    folder: Folder,
}

impl HeldRun {
    fn start(name: &str, options: &[&str]) -> HeldRun {
        let folder = Folder::new(name);
        let mut command = chares_run(6, options);
        command.env(HOLD, folder.path("go")).env(HOLD_LATER, folder.path("later")).env("TMPDIR", &folder.0);
        let run = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut held = HeldRun { run, folder };
        let file = held.folder.0.join("go.held");
        until_true("the first chare waits", || {
            assert!(held.run.try_wait().unwrap().is_none(), "the run has ended before");
            file.exists()
        });
        held
    }

    fn run_folder(&self) -> std::path::PathBuf {
        self.folder.0.join(format!("gridloom-chares-run-{}", self.run.id()))
    }

    fn resize(&self, words: &[&str]) -> Command {
        let mut command = gridloom(&[&["chares", "resize"], words].concat());
        command.env("TMPDIR", &self.folder.0);
        command
    }

    /// Starts a resize that waits for the checkpoint.
    fn wants(&self, words: &[&str]) -> Child {
        let mut command = self.resize(words);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let file = self.run_folder().join("wanted");
        until_true("the resize has asked", || {
            assert!(child.try_wait().unwrap().is_none(), "the resize has ended before");
            file.exists()
        });
        child
    }

    fn go(&self) {
        std::fs::write(self.folder.path("go"), "").unwrap();
    }

    /// Makes the first chare wait again, in the next round.
    fn waits_later(&mut self) {
        let file = self.folder.0.join("later.held");
        until_true("the first chare waits in the next round", || {
            assert!(self.run.try_wait().unwrap().is_none(), "the run has ended before");
            file.exists()
        });
    }

    fn go_later(&self) {
        std::fs::write(self.folder.path("later"), "").unwrap();
    }

    fn end(self) -> (Output, Folder) {
        (ends("the run", self.run), self.folder)
    }
}

fn text(output: &Output) -> String {
    let [out, error] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    format!("{out}{error}")
}

#[test]
fn a_running_program_grows_on_request() {
    let mut held = HeldRun::start("told", &["-n", "2"]);
    let run = held.run.id().to_string();
    for (words, why) in [
        (&["0"][..], "1 or more are possible, since a program needs an element"),
        (&["5000"], "1024 or fewer are possible, since that is the limit of a run"),
        (&["--run", "1", "4"], "--run 1: this process runs no chare program; these runs exist: --run"),
    ] {
        let (status, error) = status_and_stderr(held.resize(words));
        assert!(status != 0 && error.contains(why), "{error}");
    }
    let resize = held.wants(&["4"]);
    let (status, error) = status_and_stderr(held.resize(&["3"]));
    let why = format!("run {run} will already continue with 4 elements at its next checkpoint: wait for that");
    assert!(status != 0 && error.contains(&why), "{error}");
    held.go();
    held.waits_later();
    let told = ends("the resize", resize);
    assert!(told.status.success(), "{}", text(&told));
    assert!(text(&told).contains(&format!("run {run} continues with 4 elements")), "{}", text(&told));
    held.go_later();
    let (output, folder) = held.end();
    let out = text(&output);
    assert!(output.status.success() && began(&out) == 4, "{out}");
    assert!(out.contains("the program continues with 4 elements instead of 2, "), "{out}");
    let (_, error) = status_and_stderr({
        let mut command = gridloom(&["chares", "resize", "2"]);
        command.env("TMPDIR", &folder.0);
        command
    });
    let at = format!("is running here with the temporary folder {} (TMPDIR", folder.0.display());
    assert!(error.contains("no chare program of user") && error.contains(&at), "{error}");
}

#[test]
fn what_was_asked_is_taken_back_by_the_number_that_there_is() {
    let held = HeldRun::start("back", &["-n", "2"]);
    let resize = held.wants(&["1"]);
    assert!(text(&held.resize(&["2"]).output().unwrap()).contains("has 2 elements"));
    let told = text(&ends("the resize", resize));
    assert!(told.contains("another resize has replaced this one"), "{told}");
    held.go();
    held.go_later();
    let (output, _) = held.end();
    assert!(output.status.success() && !text(&output).contains("instead of"), "{}", text(&output));
}

#[test]
fn threads_of_processes_and_a_number_that_cannot_be_are_errors() {
    let held = HeldRun::start("threads", &["-n", "2", "--ppn", "2"]);
    let (_, error) = status_and_stderr(held.resize(&["4"]));
    assert!(
        error.contains("with --ppn 2 elements are threads of processes, which cannot be replaced: leave --ppn out"),
        "{error}"
    );
    held.go();
    held.go_later();
    assert!(held.end().0.status.success());
    let mut command = chares_run(6, &["-n", "2"]);
    let output = command.env(RESIZES, "3:0").output().unwrap();
    let why = "failed: the program cannot continue with 0 elements: at least one element is needed";
    assert!(!output.status.success() && text(&output).contains(why), "{}", text(&output));
}

#[test]
fn a_program_whose_chares_cannot_be_stored_keeps_its_size() {
    for (name, options) in [("kept", &["-n", "2"][..]), ("kept-memory", &["-n", "2", "--checkpoint", "memory"])] {
        let mut held = HeldRun::start(name, options);
        // A file is in the place of the folder.
        let parts = held.run_folder().join("parts");
        std::fs::write(&parts, "").unwrap();
        let resize = held.wants(&["3"]);
        held.go();
        held.waits_later();
        let told = ends("the resize", resize);
        let why = "cannot continue with 3 elements: element ";
        assert!(!told.status.success() && text(&told).contains(why), "{}", text(&told));
        assert!(text(&told).contains("cannot save its chares: "), "{}", text(&told));
        // Later the folder can be created.
        std::fs::remove_file(parts).unwrap();
        let resize = held.wants(&["3"]);
        held.go_later();
        let (output, _) = held.end();
        let out = text(&output);
        assert!(output.status.success() && began(&out) == 3, "{out}");
        ends("the resize", resize);
    }
}

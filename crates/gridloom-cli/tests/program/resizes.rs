//! Programs that go on with another number of elements while they run. The program is that of [`checkpoints`](super::checkpoints).

use std::process::{Child, Command, Output, Stdio};

use crate::checkpoints::{FALL, Folder, HOLD, RESIZES, chares_run, ends_with};
use crate::support::{gridloom, said};

/// How many processes of elements began.
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
        // The third and the fourth, the second and the third.
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
    // After the third round the folder has no later checkpoint than that of the change, and no memory has one.
    for kind in [
        &["--checkpoint", &kept, "--every", "9"][..],
        &["--checkpoint", "memory", "--every", "9"],
        &["--checkpoint", "memory"],
    ] {
        let mut command = chares_run(6, &[&["-n", "2", "--restarts", "1"], kind].concat());
        command.env(RESIZES, "3:4,5:2").env(FALL, &fell);
        ends_with(command, 6);
        std::fs::remove_file(&fell).expect("the element has fallen");
        let _ = std::fs::remove_dir_all(&kept);
    }
}

/// A run in which the first chare waits in the fourth round.
struct Held {
    run: Child,
    folder: Folder,
}

impl Held {
    fn start(name: &str, options: &[&str]) -> Held {
        let folder = Folder::new(name);
        let mut command = chares_run(6, options);
        command.env(HOLD, folder.path("go")).env("TMPDIR", &folder.0);
        let run = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let held = Held { run, folder };
        while !held.folder.0.join("go.held").exists() {
            std::thread::yield_now();
        }
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

    /// A resize that waits for the checkpoint.
    fn wants(&self, words: &[&str]) -> Child {
        let mut command = self.resize(words);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        while !self.run_folder().join("wanted").exists() {
            std::thread::yield_now();
        }
        child
    }

    fn go(&self) {
        std::fs::write(self.folder.path("go"), "").unwrap();
    }

    fn end(self) -> (Output, Folder) {
        (self.run.wait_with_output().unwrap(), self.folder)
    }
}

fn text(output: &Output) -> String {
    let [out, error] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    format!("{out}{error}")
}

#[test]
fn a_running_program_is_told_to_grow() {
    let held = Held::start("told", &["-n", "2"]);
    let run = held.run.id().to_string();
    for (words, why) in [
        (&["0"][..], "1 or more are possible, since a program needs an element"),
        (&["5000"], "1024 or fewer are possible, since that is the limit of a run"),
        (&["--run", "1", "4"], "--run 1: it runs no program of chares; there are --run"),
    ] {
        let (status, error) = said(held.resize(words));
        assert!(status != 0 && error.contains(why), "{error}");
    }
    let resize = held.wants(&["4"]);
    let (status, error) = said(held.resize(&["3"]));
    let why = format!("run {run} is to go on with 4 elements at its next checkpoint already: wait for that");
    assert!(status != 0 && error.contains(&why), "{error}");
    held.go();
    let told = resize.wait_with_output().unwrap();
    let (output, folder) = held.end();
    let out = text(&output);
    assert!(output.status.success() && began(&out) == 4, "{out}");
    assert!(out.contains("the program goes on with 4 elements in place of 2, "), "{out}");
    // The run may have ended before the other command saw it.
    let told = text(&told);
    assert!(told.contains(&format!("run {run} goes on with 4 elements")) || told.contains("has ended"), "{told}");
    let (_, error) = said({
        let mut command = gridloom(&["chares", "resize", "2"]);
        command.env("TMPDIR", &folder.0);
        command
    });
    assert!(error.contains("no program of chares runs here: 'gridloom chares run'"), "{error}");
}

#[test]
fn what_was_asked_is_taken_back_by_the_number_that_there_is() {
    let held = Held::start("back", &["-n", "2"]);
    let resize = held.wants(&["1"]);
    assert!(text(&held.resize(&["2"]).output().unwrap()).contains("has 2 elements"));
    let told = text(&resize.wait_with_output().unwrap());
    assert!(told.contains("another resize has said so"), "{told}");
    held.go();
    let (output, _) = held.end();
    assert!(output.status.success() && !text(&output).contains("in place of"), "{}", text(&output));
}

#[test]
fn threads_of_processes_and_a_number_that_cannot_be_are_errors() {
    let held = Held::start("threads", &["-n", "2", "--ppn", "2"]);
    let (_, error) = said(held.resize(&["4"]));
    assert!(error.contains("with --ppn 2 elements are threads of processes, which stay: leave --ppn out"), "{error}");
    held.go();
    assert!(held.end().0.status.success());
    let mut command = chares_run(6, &["-n", "2"]);
    let output = command.env(RESIZES, "3:0").output().unwrap();
    let why = "failed: the program cannot go on with 0 elements: at least one is needed";
    assert!(!output.status.success() && text(&output).contains(why), "{}", text(&output));
}

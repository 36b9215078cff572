//! `gridloom chares run --checkpoint`: programs that restart, on the same or another number of elements. The program
//! is this test binary.

use std::path::{Path, PathBuf};
use std::process::Command;

use gridloom::Message;
use gridloom::chares::{self, Callback, Chare, Context, Contribution, Ended, Job, Migrate, Pe, Placement, Value};
use gridloom::process::DEPLOY_VARIABLE;

use crate::support::bounds::until_true;
use crate::support::{gridloom, succeeds};

/// While this file is absent, element 1 aborts in round [`ABORT_ROUND`].
pub(crate) const ABORT_FILE: &str = "GRIDLOOM_TEST_ABORT";
/// File in which element 2 writes its process number, so that element 1 can kill it when it aborts.
const ABORT_TOGETHER_FILE: &str = "GRIDLOOM_TEST_ABORT_WITH";
/// File in which element 1 writes its process number once the program has ended, before it aborts. Element 0 waits for that.
const ABORT_AFTER_FILE: &str = "GRIDLOOM_TEST_ABORT_AFTER";
/// Number of rounds.
pub(crate) const ROUNDS: &str = "GRIDLOOM_TEST_ROUNDS";
const ABORT_ROUND: i64 = 4;
/// Numbers of elements after given rounds: `3:4,6:1`.
pub(crate) const RESIZES: &str = "GRIDLOOM_TEST_RESIZES";
/// In round [`ABORT_ROUND`] the first chare waits until this file exists. Meanwhile a file with the extension `held` exists.
pub(crate) const HOLD: &str = "GRIDLOOM_TEST_HOLD";

/// The same in the next round.
pub(crate) const HOLD_LATER: &str = "GRIDLOOM_TEST_HOLD_LATER";

/// Tags of results.
const COUNTED: u32 = 0;
const SAVED: u32 = 1;

#[derive(Clone, Message)]
enum Ask {
    Count { round: i64 },
    Stop,
}

/// Its count.
struct Counter {
    round: i64,
    sum: i64,
}

impl Migrate for Counter {
    type State = (i64, i64);

    fn pack(&self) -> (i64, i64) {
        (self.round, self.sum)
    }
}

impl Chare for Counter {
    type Message = Ask;

    fn entry(&mut self, message: Ask, cx: &mut Context<'_, Counter>) {
        let index = i64::from(cx.index()[0]);
        let Ask::Count { round } = message else {
            return cx.contribute(Contribution::sum(self.sum), Callback::exit());
        };
        if let Some(file) = std::env::var_os(ABORT_FILE)
            && (round, cx.element()) == (ABORT_ROUND, Pe(1))
            && !Path::new(&file).exists()
        {
            std::fs::write(file, "").unwrap();
            if let Some(other) = std::env::var_os(ABORT_TOGETHER_FILE) {
                let pid = std::fs::read_to_string(other).unwrap();
                assert!(Command::new("kill").args(["-9", &pid]).status().unwrap().success());
            }
            std::process::abort();
        }
        if let Some(file) = std::env::var_os(ABORT_TOGETHER_FILE)
            && (round, cx.element()) == (1, Pe(2))
        {
            std::fs::write(file, std::process::id().to_string()).unwrap();
        }
        for (variable, at) in [(HOLD, ABORT_ROUND), (HOLD_LATER, ABORT_ROUND + 1)] {
            if let Some(file) = std::env::var_os(variable)
                && (round, index) == (at, 0)
            {
                std::fs::write(Path::new(&file).with_extension("held"), "").unwrap();
                until_true("the test lets the chare go on", || Path::new(&file).exists());
            }
        }
        (self.round, self.sum) = (round, 3 * self.sum + round * (index + 1));
        cx.contribute(Contribution::barrier(), Callback::to(cx.array().at(0)).tagged(COUNTED));
    }

    fn on_result(&mut self, tag: u32, _: Value, cx: &mut Context<'_, Counter>) {
        let rounds: i64 = std::env::var(ROUNDS).unwrap().parse().unwrap();
        match tag {
            COUNTED => {
                let resizes = std::env::var(RESIZES).unwrap_or_default();
                let resizes = resizes.split(',').filter_map(|resize| resize.split_once(':'));
                let now = resizes.filter(|(round, _)| round.parse() == Ok(self.round));
                now.for_each(|(_, elements)| cx.resize(elements.parse().unwrap()));
                cx.checkpoint(Callback::to(cx.this()).tagged(SAVED));
            }
            _ if self.round == rounds => cx.send(cx.array().all(), Ask::Stop),
            _ => cx.send(cx.array().all(), Ask::Count { round: self.round + 1 }),
        }
    }
}

fn program(job: &mut Job<'_>) -> Result<(), gridloom::Error> {
    let counters = job.migratable_array(7, Placement::RoundRobin, |_, state| {
        let (round, sum) = state.unwrap_or_default();
        Counter { round, sum }
    })?;
    job.start(|cx| cx.send(counters.all(), Ask::Count { round: 1 }));
    Ok(())
}

/// Run by the other tests as an element.
#[test]
#[ignore = "a process of another test"]
fn a_program_with_checkpoints() {
    if std::env::var_os(DEPLOY_VARIABLE).is_some() {
        println!("a process began");
        let ended = chares::run(program);
        if let (Ok(ended), Some(file)) = (&ended, std::env::var_os(ABORT_AFTER_FILE)) {
            fall_after(ended, Path::new(&file));
        }
        match ended {
            Ok(ended) if ended.is_first => println!("ended with {:?}", ended.value),
            Ok(_) => {}
            Err(error) => {
                eprintln!("failed: {error}");
                std::process::exit(3);
            }
        }
    }
}

fn fall_after(ended: &Ended, file: &Path) {
    if !ended.is_first {
        let new = file.with_extension("new");
        std::fs::write(&new, std::process::id().to_string()).unwrap();
        std::fs::rename(&new, file).unwrap();
        std::process::abort();
    }
    while !file.exists() {
        std::thread::yield_now();
    }
    // The entry exists until the command has noticed the end of the process.
    let other = Path::new("/proc").join(std::fs::read_to_string(file).unwrap());
    while other.exists() {
        std::thread::yield_now();
    }
}

pub(crate) fn chares_run(rounds: i64, options: &[&str]) -> Command {
    let own = std::env::current_exe().unwrap().display().to_string();
    let words = ["--", &own, "--exact", "--ignored", "--nocapture", "checkpoints::a_program_with_checkpoints"];
    let mut command = gridloom(&[&["chares", "run"], options, &words].concat());
    command.env(ROUNDS, rounds.to_string()).env_remove("GRIDLOOM_TESTBED_HOST").env_remove(ABORT_FILE);
    command
}

pub(crate) fn ends_with(command: Command, rounds: i64) -> String {
    let out = succeeds(command);
    let sum = |index: i64| (1..=rounds).fold(0, |sum, round| 3 * sum + round * (index + 1));
    let all: i64 = (0..7).map(sum).sum();
    let told: Vec<&str> = out.lines().filter(|line| line.contains("ended with")).collect();
    assert_eq!(told, [format!("element@0| ended with Integers([{all}])")], "{out}");
    out
}

/// A folder of a test, initially empty, and removed after the test.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("gridloom-{name}-{}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Folder(path)
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // If this fails, the failure of the test is more informative.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_program_continues_from_its_last_checkpoint_on_any_number_of_elements() {
    let folder = Folder::new("kept");
    let path = folder.path("kept");
    ends_with(chares_run(5, &["-n", "3", "--checkpoint", &path]), 5);
    for elements in ["1", "2", "3", "5"] {
        ends_with(chares_run(9, &["-n", elements, "--restart", &path]), 9);
    }
    // Of the rounds 6 to 8, every second one of this run is kept: 6 is the first, 7 the second.
    ends_with(chares_run(8, &["-n", "2", "--restart", &path, "--checkpoint", &path, "--every", "2"]), 8);
    let numbers: Vec<_> = std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(numbers.len(), 1, "only the last one stays: {numbers:?}");
    ends_with(chares_run(7, &["-n", "2", "--restart", &path]), 7);
}

#[test]
fn a_killed_element_is_started_again_with_the_others() {
    let folder = Folder::new("fallen");
    let [kept, fell] = ["kept", "fell"].map(|name| folder.path(name));
    let mut command = chares_run(6, &["-n", "3", "--checkpoint", &kept, "--restarts", "1"]);
    command.env(ABORT_FILE, &fell);
    ends_with(command, 6);
    assert!(Path::new(&fell).exists(), "the element has fallen");
}

#[test]
fn a_folder_without_a_checkpoint_is_refused() {
    let folder = Folder::new("empty");
    let output = chares_run(5, &["-n", "1", "--restart", &folder.path("none")]).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && error.contains("it has no complete checkpoint"), "{error}");
}

#[test]
fn in_memory_only_the_killed_element_is_started_again() {
    let folder = Folder::new("memory");
    let fell = folder.path("fell");
    let trace = folder.path("trace.json");
    for elements in ["2", "3", "5"] {
        let mut command =
            chares_run(6, &["-n", elements, "--checkpoint", "memory", "--restarts", "1", "--trace", &trace]);
        command.env(ABORT_FILE, &fell);
        let out = ends_with(command, 6);
        let began = out.lines().filter(|line| line.contains("a process began")).count();
        assert_eq!(began, elements.parse::<usize>().unwrap() + 1, "{out}");
        std::fs::remove_file(&fell).expect("the element has fallen");
        // Rounds before and after the loss, on an element that was not lost: six, and the fourth may occur twice.
        let text = std::fs::read_to_string(&trace).unwrap();
        let counts = text.lines().filter(|line| line.contains("Counter.Count") && line.contains("\"(0)\"")).count();
        assert!((6..=7).contains(&counts), "{counts} rounds of the first chare");
    }
}

#[test]
fn in_memory_two_buddies_that_are_killed_together_are_an_error() {
    let folder = Folder::new("buddies");
    let mut command = chares_run(6, &["-n", "3", "--checkpoint", "memory", "--restarts", "9"]);
    command.env(ABORT_FILE, folder.path("fell")).env(ABORT_TOGETHER_FILE, folder.path("with"));
    let output = command.output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    let why = "the last in-memory checkpoint is lost, because elements were lost at the same time: element 1 and element 2 with the copy";
    assert!(!output.status.success() && error.contains(why), "{error}");
}

#[test]
fn in_memory_an_element_that_is_killed_after_the_program_has_ended_gets_no_successor() {
    let folder = Folder::new("after");
    let mut command = chares_run(6, &["-n", "2", "--checkpoint", "memory", "--restarts", "9"]);
    let output = command.env(ABORT_AFTER_FILE, folder.path("after")).output().unwrap();
    let [out, error] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    assert_eq!(output.status.code(), Some(128 + 6), "{error}");
    assert!(out.contains("element@0| ended with"), "{out}");
    assert_eq!(out.lines().filter(|line| line.contains("a process began")).count(), 2, "{out}{error}");
}

#[test]
fn in_memory_a_killed_element_without_a_successor_ends_the_others() {
    let folder = Folder::new("none-left");
    let mut command = chares_run(6, &["-n", "3", "--checkpoint", "memory"]);
    command.env(ABORT_FILE, folder.path("fell"));
    let output = command.output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && error.contains("failed: element 1 was lost before the program ended"),
        "{error}"
    );
    for options in [&["-n", "1", "--checkpoint", "memory"][..], &["--checkpoint", "memory", "--restart", "kept"]] {
        let output = chares_run(6, options).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && error.contains("--checkpoint"), "{error}");
    }
}

//! `gridloom chares advise`. The program that it runs is this test binary.

use std::process::Command;

use gridloom::Message;
use gridloom::chares::{self, Callback, Chare, Context, Contribution, Placement};
use serde_json::Value;

use crate::support::{file, gridloom, succeeds};

/// Environment variable with the number of chares for the program below.
const CHARES: &str = "GRIDLOOM_TEST_ADVISE_CHARES";

/// Work of each of the two elements in a step, whatever the number of chares.
const STEP_FLOPS: f64 = 20e6;
const STEPS: u32 = 20;

#[derive(Clone, Message)]
enum Ask {
    Begin,
    Step { number: u32 },
}

/// Computes a step when its partner on the other element has finished the previous one.
struct Partner {
    count: i32,
    /// Number of steps that the partner has finished.
    there: u32,
    step: u32,
}

impl Partner {
    fn go_on(&mut self, cx: &mut Context<'_, Partner>) {
        while self.step < STEPS && self.step <= self.there {
            cx.compute(2.0 * STEP_FLOPS / f64::from(self.count));
            self.step += 1;
            let partner = (cx.index()[0] + self.count / 2) % self.count;
            cx.send(cx.array().at(partner), Ask::Step { number: self.step });
            if self.step == STEPS {
                cx.contribute(Contribution::barrier(), Callback::exit());
            }
        }
    }
}

impl Chare for Partner {
    type Message = Ask;

    fn entry(&mut self, message: Ask, cx: &mut Context<'_, Partner>) {
        // A fixed cost for each message, so that many chares have a price.
        cx.compute(100e3);
        if let Ask::Step { number } = message {
            self.there = number;
        }
        self.go_on(cx);
    }
}

/// Run by `gridloom chares advise`, like all elements in simulation.
#[test]
#[ignore = "a process of another test"]
fn a_program_of_chares() {
    let Ok(count) = std::env::var(CHARES) else { return };
    let count: i32 = count.parse().unwrap();
    let ended = chares::run(move |job| {
        let partners = job.array(count as usize, Placement::Blocks, |_| Partner { count, there: 0, step: 0 })?;
        job.start(|cx| cx.send(partners.all(), Ask::Begin));
        Ok(())
    });
    ended.unwrap();
    println!("{count} chares have ended");
}

/// Returns a platform of two sites with that latency between them, in milliseconds.
fn two_sites(name: &str, latency_ms: f64) -> String {
    let site =
        |site: &str| format!("[[host]]\nname = \"{site}\"\nspeed = \"1Gf\"\nproperties = {{ site = \"{site}\" }}\n");
    let wan = format!("[[link]]\nname = \"wan\"\nbandwidth = \"10Gbps\"\nlatency = \"{latency_ms}ms\"\n");
    let route = "[[route]]\nfrom = \"east\"\nto = \"west\"\nlinks = [\"wan\"]\n";
    file(name, &[&site("east"), &site("west"), &wan, route].concat())
}

fn advise(options: &[&str]) -> Command {
    let own = std::env::current_exe().unwrap().display().to_string();
    let number = format!("{CHARES}={{chares}}");
    let words = ["--", "env", &number, &own, "--exact", "--ignored", "--nocapture", "advise::a_program_of_chares"];
    gridloom(&[&["chares", "advise"], options, &words].concat())
}

#[test]
fn more_chares_are_advised_where_sites_are_far_apart() {
    let advised = |latency_ms: f64| {
        let platform = two_sites(&format!("advise-{latency_ms}.toml"), latency_ms);
        let text = succeeds(advise(&["-p", &platform, "--json"]));
        serde_json::from_str::<Value>(&text).unwrap()
    };
    let far = advised(10.0);
    assert_eq!((&far["elements"], &far["best_per_element"], &far["best_chares"]), (&2.into(), &4.into(), &8.into()));
    let runs = far["runs"].as_array().unwrap();
    let numbers = |key: &str| runs.iter().map(|run| run[key].as_f64().unwrap()).collect::<Vec<_>>();
    assert_eq!(numbers("per_element"), [1.0, 4.0, 16.0, 64.0]);
    assert_eq!(numbers("chares"), [2.0, 8.0, 32.0, 128.0]);
    let (seconds, without, ratio) = (numbers("seconds"), numbers("seconds_without_latency"), numbers("ratio"));
    // One chare waits 10 ms for each step of 20 ms; four hide this wait.
    assert!((1.3..1.6).contains(&ratio[0]) && ratio[1] == 1.0, "{ratio:?}");
    assert!(seconds[0] > without[0] + 0.9 * 0.010 * f64::from(STEPS - 1), "{seconds:?} {without:?}");
    assert!(seconds[1] < without[1] + 0.1, "{seconds:?} {without:?}");
    assert!(seconds[3] > seconds[2] && seconds[2] > seconds[1], "each message takes time: {seconds:?}");
    let near = &advised(0.01)["runs"][0]["ratio"];
    assert!(near.as_f64().unwrap() < 1.05, "nothing is to be hidden where sites are near: {near}");
}

#[test]
fn the_table_names_the_best_number_and_the_program_prints_beside_it() {
    let platform = two_sites("advise-table.toml", 10.0);
    let output = advise(&["-p", &platform, "-n", "2", "--per-element", "2,1,2"]).output().unwrap();
    let (table, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{error}");
    let lines: Vec<&str> = table.lines().collect();
    assert!(
        lines[0]
            .ends_with("chares an element     chares       run, s times the least without latency between sites, s")
    );
    let columns = |line: &str| line.split_whitespace().map(str::to_string).collect::<Vec<_>>();
    assert_eq!([&columns(lines[1])[..2], &columns(lines[2])[..2]], [["1", "2"], ["2", "4"]]);
    assert_eq!(lines[3..], ["best: 2 chares an element, 4 in all"]);
    assert!(error.contains("4 chares have ended"), "{error}");
    assert!(error.contains("gridloom: simulating with 4 chares (2 an element), no latency between sites"), "{error}");
}

#[test]
fn what_cannot_be_advised_on_is_reported() {
    let platform = two_sites("advise-wrong.toml", 1.0);
    let no_elements = file("advise-client.toml", "[[process]]\nhost = \"east\"\nfunction = \"client\"\n");
    let fails = |options: &[&str], words: &[&str], why: &str| {
        let all = [&["chares", "advise"], options, &["--"], words].concat();
        let output = gridloom(&all).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && error.contains(why), "{all:?}: {error}");
        assert!(output.stdout.is_empty(), "{all:?}");
    };
    let of = ["-p", &platform];
    fails(&of, &["stencil", "16"], "no argument of the program has {chares}, the placeholder for the number of chares");
    fails(&["-p", "no.toml"], &["a", "{chares}"], "no.toml: No such file");
    fails(&[&of[..], &["-n", "0"]].concat(), &["a", "{chares}"], "-n 0: from 1 to 1024 elements");
    fails(&[&of[..], &["--per-element", "0"]].concat(), &["a", "{chares}"], "0 is not in 1..");
    let many = [&of[..], &["--per-element", "1000000000"]].concat();
    fails(&many, &["a", "{chares}"], "are 2000000000; an array has at most 268435456");
    fails(&of, &["/no/program", "{chares}"], "cannot run '/no/program'");
    let status = "with 2 chares (1 an element) the program has failed: exit status: 2; --per-element chooses";
    fails(&of, &["sh", "-c", "exit {chares}"], status);
    fails(&of, &["true", "{chares}"], "with 2 chares (1 an element) the program has run no chares");
    let deployed = [&of[..], &["-d", &no_elements]].concat();
    fails(&deployed, &["true", "{chares}"], "advise-client.toml: no process has the function 'element'");
}

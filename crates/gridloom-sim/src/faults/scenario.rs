//! Reads faults from a file, one per line. Text after `#` is a comment.
//!
//! ```text
//! at 1.5s kill server-2
//! at 3s restart server-2
//! at 2s cut host-1 host-2 for 2s      # heals afterwards
//! at 1s lose host-1 -> host-2
//! at 1s corrupt host-1 host-2 0.1 for 2s
//! at 1s slow host-3 0.1
//! at 1s full server-3 for 2s
//! random 3 within 2s                  # 3 faults drawn from the seed
//! ```
//! Times use SimGrid's units; the default unit is seconds.

use std::collections::BTreeMap;
use std::fmt;

use gridloom_base::near::{did_you_mean, near_names};
use gridloom_base::time::seconds_to_ns;
use gridloom_base::{Escaped, SplitMix64, Time};
use gridloom_platform::units;

use super::fault::{Fault, Kind, ScheduledFault};
use super::random::FaultTargets;

/// Latest time of a fault, seconds: a thousand days. Longer runs would take too long, because each heartbeat is simulated.
const TIME_S_MAX: f64 = 1000.0 * 24.0 * 3600.0;
/// Maximum number of random faults per line: no grid survives more.
const RANDOM_MAX: u64 = 1000;
/// Maximum factor of a host's speed and of a disk's rate.
const FACTOR_MAX: f64 = 1000.0;

/// The contents of a scenario file.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Scenario {
    file: String,
    /// Scheduled faults, each with its line number.
    strikes: Vec<(u32, ScheduledFault)>,
    /// The text of their lines.
    lines: BTreeMap<u32, String>,
    /// Random faults: pairs of a count and a period in nanoseconds.
    random: Vec<(u64, u64)>,
}

/// An error in a scenario, with its position.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScenarioError {
    /// The file name as given by the caller.
    pub file: String,
    /// Line number, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
    /// The error message, with the value and the remedy.
    pub message: String,
}

impl fmt::Display for ScenarioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}: {}", Escaped(&self.file), self.line, self.column, Escaped(&self.message))
    }
}

impl std::error::Error for ScenarioError {}

impl Scenario {
    /// Parses the text of a scenario.
    ///
    /// # Errors
    /// Returns the first error.
    pub fn parse(text: &str, file: &str) -> Result<Scenario, ScenarioError> {
        let mut scenario = Scenario { file: file.to_string(), ..Scenario::default() };
        for (number, line) in (1..).zip(text.lines()) {
            let mut words = Words::new(line);
            let read = scenario.line(number, &mut words);
            scenario.lines.insert(number, line.to_owned());
            read.map_err(|(column, message)| ScenarioError { file: file.to_string(), line: number, column, message })?;
        }
        Ok(scenario)
    }

    /// Checks that all names are among these nodes and hosts. Link names are passed to explain that links cannot be named here.
    ///
    /// # Errors
    /// Returns the first unknown name, with its line and similar names.
    pub fn check(&self, nodes: &[&str], hosts: &[&str], links: &[&str]) -> Result<(), ScenarioError> {
        for (line, strike) in &self.strikes {
            let named = strike.fault.named_nodes().into_iter().map(|name| (name, "node", nodes.contains(&name)));
            let on = |name| hosts.contains(&name) || nodes.contains(&name);
            let hosts_named = strike.fault.hosts().into_iter().map(|name| (name, "host", on(name)));
            for (name, what, is_known) in named.chain(hosts_named) {
                if !is_known {
                    let known = if what == "node" { nodes } else { hosts };
                    let message = match links.contains(&name) {
                        true => {
                            format!("'{name}' is a link, and a {what} is expected; a profile of its state cuts a link")
                        }
                        false => format!("no {what} is called '{name}'; there are {}", known.join(", ")),
                    };
                    let column = self.column(*line, name);
                    return Err(ScenarioError { file: self.file.clone(), line: *line, column, message });
                }
            }
        }
        Ok(())
    }

    /// Reports whether the scenario names one of these nodes other than by its host's name.
    pub fn names(&self, nodes: &[&str], hosts: &[&str]) -> bool {
        let names_node = |fault: &Fault| {
            fault.named_nodes().iter().any(|name| nodes.contains(name))
                || fault.hosts().iter().any(|name| nodes.contains(name) && !hosts.contains(name))
        };
        self.strikes.iter().any(|(_, strike)| names_node(&strike.fault))
    }

    /// Returns the column of a name in a line, behind `at TIME FAULT`.
    fn column(&self, line: u32, name: &str) -> u32 {
        let words = self.lines.get(&line).map(|line| Words::new(line).rest).into_iter().flatten();
        words.skip(3).find(|(_, word)| *word == name).map_or(1, |(column, _)| column)
    }

    /// Returns the nodes that the lines name.
    pub fn nodes(&self) -> impl Iterator<Item = &str> {
        self.strikes.iter().flat_map(|(_, strike)| strike.fault.named_nodes())
    }

    /// Reports whether the scenario draws random faults.
    pub fn has_random_faults(&self) -> bool {
        !self.random.is_empty()
    }

    /// Returns the faults in time order, including the random ones. Times count from `from`.
    pub fn strikes(&self, field: &FaultTargets, random: &mut SplitMix64, from: Time) -> Vec<ScheduledFault> {
        let given = self.strikes.iter().map(|(_, strike)| ScheduledFault { at: from + strike.at.0, ..strike.clone() });
        let mut all: Vec<ScheduledFault> = given.collect();
        for (count, within_ns) in &self.random {
            all.extend(field.draw(random, *count, from, *within_ns));
        }
        all.sort_by_key(|strike| strike.at);
        all
    }

    fn line(&mut self, number: u32, words: &mut Words<'_>) -> Result<(), ColumnError> {
        let Some((column, word)) = words.next() else { return Ok(()) };
        match word {
            "at" => {
                let at = Time(words.time("a time, such as 1.5s")?);
                let (fault, mend) = words.fault(at)?;
                self.strikes.push((number, ScheduledFault { at, fault }));
                self.strikes.extend(mend.map(|strike| (number, strike)));
            }
            "random" => {
                let count = words.number("how many", |count: &u64| (1..=RANDOM_MAX).contains(count))?;
                words.word("within")?;
                let within_ns = words.time("a time, such as 2s")?;
                self.random.push((count, within_ns));
            }
            other => return Err((column, format!("'{other}': expected 'at TIME FAULT' or 'random N within TIME'"))),
        }
        words.end()
    }
}

/// Column and message of an error.
type ColumnError = (u32, String);

/// The words of a line, each with its column.
struct Words<'a> {
    rest: std::vec::IntoIter<(u32, &'a str)>,
    /// The column at which more words were expected.
    end_column: u32,
}

impl<'a> Words<'a> {
    fn new(line: &'a str) -> Words<'a> {
        let line = line.split('#').next().unwrap_or_default().trim_end();
        let mut words = Vec::new();
        let mut start: Option<(u32, usize)> = None;
        for (column, (offset, character)) in (1..).zip(line.char_indices()) {
            match (character.is_whitespace(), start) {
                (true, Some((begun, from))) => {
                    words.push((begun, &line[from..offset]));
                    start = None;
                }
                (false, None) => start = Some((column, offset)),
                (true, None) | (false, Some(_)) => {}
            }
        }
        words.extend(start.map(|(begun, from)| (begun, &line[from..])));
        Words { rest: words.into_iter(), end_column: line.chars().count() as u32 + 1 }
    }

    fn next(&mut self) -> Option<(u32, &'a str)> {
        self.rest.next()
    }

    fn expect(&mut self, what: &str) -> Result<(u32, &'a str), ColumnError> {
        let end_column = self.end_column;
        self.next().ok_or_else(|| (end_column, format!("the line ends; expected {what}")))
    }

    fn word(&mut self, wanted: &str) -> Result<(), ColumnError> {
        let (column, word) = self.expect(&format!("'{wanted}'"))?;
        if word == wanted { Ok(()) } else { Err((column, format!("'{word}': expected '{wanted}'"))) }
    }

    fn end(&mut self) -> Result<(), ColumnError> {
        match self.next() {
            None => Ok(()),
            Some((column, word)) => {
                Err((column, format!("'{word}': nothing more is expected; write one fault per line")))
            }
        }
    }

    fn name(&mut self, what: &str) -> Result<String, ColumnError> {
        self.expect(what).map(|(_, word)| word.to_string())
    }

    fn time(&mut self, what: &str) -> Result<u64, ColumnError> {
        let (column, word) = self.expect(what)?;
        match units::time(word) {
            Ok(seconds) if seconds > TIME_S_MAX => {
                Err((column, format!("'{word}': expected a time of at most {TIME_S_MAX} s (1000 days)")))
            }
            Ok(seconds) if seconds >= 0.0 => Ok(seconds_to_ns(seconds)),
            Ok(_) => Err((column, format!("'{word}': expected a time that is not negative, such as 1.5s"))),
            Err(why) => Err((column, why)),
        }
    }

    fn number<T: std::str::FromStr>(&mut self, what: &str, is_valid: impl Fn(&T) -> bool) -> Result<T, ColumnError> {
        let (column, word) = self.expect(what)?;
        let number = word.parse().ok().filter(is_valid);
        number.ok_or_else(|| (column, format!("'{word}': expected {what}, a positive number of at most {RANDOM_MAX}")))
    }

    /// Parses `for TIME`, if the line continues with it.
    fn duration(&mut self) -> Result<Option<u64>, ColumnError> {
        match self.rest.as_slice() {
            [] => Ok(None),
            _ => self.word("for").and_then(|()| self.time("a time, such as 2s")).map(Some),
        }
    }

    fn two(&mut self, what: &str, between: Option<&str>) -> Result<(String, String), ColumnError> {
        let first = self.name(what)?;
        between.map_or(Ok(()), |word| self.word(word))?;
        let (column, second) = self.expect(&format!("another {what}"))?;
        if second == "for" {
            return Err((column, format!("'for': expected another {what} first, beside '{first}'")));
        }
        match first == second {
            false => Ok((first, second.to_string())),
            true => Err((column, format!("'{second}' twice; expected two different ones"))),
        }
    }

    /// Parses a host and its slowdown factor.
    fn slowed(&mut self) -> Result<(String, f64), ColumnError> {
        let host = self.name("a host")?;
        let factor = self.number("a factor", |factor: &f64| *factor > 0.0 && *factor <= FACTOR_MAX)?;
        Ok((host, factor))
    }

    /// Parses a fraction from 0 to 1.
    fn fraction(&mut self) -> Result<f64, ColumnError> {
        let (column, word) = self.expect("a fraction, such as 0.1")?;
        let fraction = word.parse().ok().filter(|fraction| (0.0..=1.0).contains(fraction));
        fraction.ok_or_else(|| (column, format!("'{word}': expected a fraction from 0 to 1, such as 0.1")))
    }

    /// Parses a fault at a time, and its repair if the line gives a duration.
    fn fault(&mut self, at: Time) -> Result<(Fault, Option<ScheduledFault>), ColumnError> {
        let (column, word) = self.expect("a fault, such as kill")?;
        let Some((kind, ..)) = Kind::ALL.iter().find(|(_, name, ..)| *name == word) else {
            if units::time(&format!("1{word}")).is_ok() {
                return Err((
                    column,
                    format!("unknown fault '{word}': write a time and its unit as one word, such as 1.5{word}"),
                ));
            }
            let names: Vec<&str> = Kind::ALL.iter().map(|(_, name, ..)| *name).collect();
            let near = did_you_mean(&near_names(word, names.iter().copied()));
            return Err((column, format!("unknown fault '{word}'{near}; known: {}", names.join(", "))));
        };
        let (fault, mend) = match kind {
            Kind::Kill => (Fault::Kill(self.name("a node")?), None),
            Kind::Restart => (Fault::Restart(self.name("a node")?), None),
            Kind::Hang => (Fault::Hang(self.name("a node")?), None),
            Kind::Pause => {
                let node = self.name("a node")?;
                (Fault::Pause(node.clone()), Some(Fault::Resume(node)))
            }
            Kind::Resume => (Fault::Resume(self.name("a node")?), None),
            Kind::Cut => {
                let (a, b) = self.two("host", None)?;
                (Fault::Cut(a.clone(), b.clone()), Some(Fault::Heal(a, b)))
            }
            Kind::Heal => {
                let (a, b) = self.two("host", None)?;
                (Fault::Heal(a, b), None)
            }
            Kind::Lose => {
                let (from, to) = self.two("host", Some("->"))?;
                (Fault::Lose { from: from.clone(), to: to.clone() }, Some(Fault::Heal(from, to)))
            }
            Kind::Corrupt => {
                let (a, b) = self.two("host", None)?;
                let fraction = self.fraction()?;
                let mend = Fault::Corrupt { a: a.clone(), b: b.clone(), fraction: 0.0 };
                (Fault::Corrupt { a, b, fraction }, Some(mend))
            }
            Kind::Reset => {
                let (a, b) = self.two("node", None)?;
                (Fault::Reset(a, b), None)
            }
            Kind::HalfOpen => {
                let (forgets, keeps) = self.two("node", None)?;
                (Fault::HalfOpen { forgets, keeps }, None)
            }
            Kind::Off => {
                let host = self.name("a host")?;
                (Fault::Off(host.clone()), Some(Fault::On(host)))
            }
            Kind::On => (Fault::On(self.name("a host")?), None),
            Kind::SlowDisk => {
                let (host, factor) = self.slowed()?;
                (Fault::SlowDisk { host: host.clone(), factor }, Some(Fault::SlowDisk { host, factor: 1.0 }))
            }
            Kind::Slow => {
                let (host, factor) = self.slowed()?;
                (Fault::Slow { host: host.clone(), factor }, Some(Fault::Slow { host, factor: 1.0 }))
            }
            Kind::Full => {
                let node = self.name("a node")?;
                self.word("for")?;
                (Fault::Full { node, for_ns: self.time("a time, such as 2s")? }, None)
            }
            Kind::FullDisk => {
                let server = self.name("a server")?;
                self.word("for")?;
                (Fault::FullDisk { server, for_ns: self.time("a time, such as 2s")? }, None)
            }
        };
        let mend = match mend {
            None => None,
            Some(fault) => self.duration()?.map(|for_ns| ScheduledFault { at: at + for_ns, fault }),
        };
        Ok((fault, mend))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strikes(text: &str) -> Vec<String> {
        let scenario = Scenario::parse(text, "f").unwrap();
        let all = scenario.strikes(&FaultTargets::default(), &mut SplitMix64::new(1), Time(0));
        all.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn every_fault_is_read_and_printed_in_order_of_time() {
        let text = "at 2s kill a # gone\nat 1500ms restart a\n\nat 0.5 hang b\nat 3s pause a for 1s\nat 3s cut h g for 2s\n\
                    at 1s heal h g\nat 1s lose h -> g\nat 1s reset a b\nat 1s half-open a b\nat 1s slow h 0.1 for 9s\n\
                    at 1s full a for 2s\nat 1s corrupt h g 0.25 for 8s\nat 9s resume a\nat 1s slow-disk h 0.5\n\
                    at 1s on g\nat 8s off g for 3s\nat 1s full-disk a for 2s";
        let expected = [
            "at 0.5s hang b",
            "at 1s heal h g",
            "at 1s lose h -> g",
            "at 1s reset a b",
            "at 1s half-open a b",
            "at 1s slow h 0.1",
            "at 1s full a for 2s",
            "at 1s corrupt h g 0.25",
            "at 1s slow-disk h 0.5",
            "at 1s on g",
            "at 1s full-disk a for 2s",
            "at 1.5s restart a",
            "at 2s kill a",
            "at 3s pause a",
            "at 3s cut h g",
            "at 4s resume a",
            "at 5s heal h g",
            "at 8s off g",
            "at 9s corrupt h g 0",
            "at 9s resume a",
            "at 10s slow h 1",
            "at 11s on g",
        ];
        assert_eq!(strikes(text), expected);
    }

    #[test]
    fn mistakes_are_reported_with_their_place_and_remedy() {
        let wrong = |text: &str| Scenario::parse(text, "f").unwrap_err().to_string();
        assert!(
            wrong("\nat 1s kil a").starts_with("f:2:7: unknown fault 'kil'; did you mean 'kill'?"),
            "{}",
            wrong("at 1s kil a")
        );
        assert!(wrong("at soon kill a").starts_with("f:1:4: "));
        let expected = "f:1:4: '1e30s': expected a time of at most 86400000 s (1000 days)";
        assert_eq!(wrong("at 1e30s kill a"), expected);
        assert_eq!(wrong("at 1s pause a for 1e30s"), expected.replace(":4:", ":19:"));
        assert_eq!(wrong("at 1s kill"), "f:1:11: the line ends; expected a node");
        assert_eq!(wrong("at 1s cut h h"), "f:1:13: 'h' twice; expected two different ones");
        assert_eq!(wrong("at 1s kill a b"), "f:1:14: 'b': nothing more is expected; write one fault per line");
        assert_eq!(wrong("at 1s lose h g"), "f:1:14: 'g': expected '->'");
        assert_eq!(wrong("at 1s full a"), "f:1:13: the line ends; expected 'for'");
        assert_eq!(wrong("at 1s slow h 0"), "f:1:14: '0': expected a factor, a positive number of at most 1000");
        assert_eq!(wrong("random 0 within 2s"), "f:1:8: '0': expected how many, a positive number of at most 1000");
        assert_eq!(wrong("at 1s corrupt h g 2"), "f:1:19: '2': expected a fraction from 0 to 1, such as 0.1");
        assert_eq!(wrong("kill a"), "f:1:1: 'kill': expected 'at TIME FAULT' or 'random N within TIME'");
        let scenario = Scenario::parse("at 1s slow h 1\nat 1s kill c", "f").unwrap();
        let unknown = scenario.check(&["a", "b"], &["h"], &[]).unwrap_err().to_string();
        assert_eq!(unknown, "f:2:12: no node is called 'c'; there are a, b");
        let names = |text: &str| Scenario::parse(text, "f").unwrap().names(&["a", "h"], &["h", "g"]);
        assert!(names("at 1s kill h") && names("at 1s cut a g"));
        assert!(!names("") && !names("at 1s cut h g") && !names("at 1s kill b") && !names("random 1 within 1s"));
        let link = Scenario::parse("at 1s cut h wire", "f").unwrap().check(&["a"], &["h"], &["wire"]).unwrap_err();
        assert_eq!(
            link.to_string(),
            "f:1:13: 'wire' is a link, and a host is expected; a profile of its state cuts a link"
        );
        let wrong = |text: &str| Scenario::parse(text, "f").unwrap_err().to_string();
        assert_eq!(wrong("at 1s cut h for 2s"), "f:1:13: 'for': expected another host first, beside 'h'");
        assert_eq!(
            wrong("at 0.6 ms kill a"),
            "f:1:8: unknown fault 'ms': write a time and its unit as one word, such as 1.5ms"
        );
    }

    #[test]
    fn without_a_grid_processes_are_struck_and_the_first_ones_host_stays() {
        let named = |name: &str, host: &str| (format!("{name}@{host}"), host.to_string());
        let clients = vec![named("master", "a"), named("worker", "b"), named("worker", "c")];
        let field = FaultTargets { clients, ..FaultTargets::default() };
        let scenario = Scenario::parse("random 200 within 2s", "f").unwrap();
        let drawn = scenario.strikes(&field, &mut SplitMix64::new(1), Time(0));
        for ScheduledFault { fault, .. } in &drawn {
            let ends = matches!(fault, Fault::Kill(_) | Fault::Restart(_) | Fault::Off(_));
            assert!(!ends || !["a", "master@a"].contains(&[fault.named_nodes(), fault.hosts()].concat()[0]), "{fault}");
        }
        let drawn: std::collections::BTreeSet<Kind> = drawn.iter().map(|strike| strike.fault.kind()).collect();
        assert!(
            [Kind::Kill, Kind::Restart, Kind::Off, Kind::On, Kind::Cut, Kind::Lose, Kind::Pause, Kind::Slow]
                .iter()
                .all(|kind| drawn.contains(kind)),
            "{drawn:?}"
        );
    }

    #[test]
    fn random_faults_are_the_seeds_and_spare_the_last_server() {
        let named = |name: &str| (name.to_string(), format!("host-of-{name}"));
        let field = FaultTargets {
            agent: named("agent"),
            servers: vec![named("s1"), named("s2"), named("s3")],
            clients: vec![named("c1"), named("c2")],
        };
        let scenario = Scenario::parse("random 500 within 2s", "f").unwrap();
        let draw = |seed| scenario.strikes(&field, &mut SplitMix64::new(seed), Time(0));
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
        let drawn = draw(1);
        for (kind, name, ..) in Kind::ALL {
            assert!(drawn.iter().any(|strike| strike.fault.kind() == *kind), "{name} is never drawn");
        }
        for ScheduledFault { fault, .. } in &drawn {
            let spared = match fault {
                Fault::Kill(node) | Fault::Hang(node) | Fault::Restart(node) => node != "s3" && node != "c1",
                Fault::Pause(node) => node != "s3",
                Fault::Cut(a, b) | Fault::Lose { from: a, to: b } => {
                    let ends = [a.as_str(), b.as_str()];
                    !ends.contains(&"host-of-s3") || ends.iter().all(|host| host.starts_with("host-of-s"))
                }
                _ => true,
            };
            assert!(spared, "{fault}");
        }
    }
}

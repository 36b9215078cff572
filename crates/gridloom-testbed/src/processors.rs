//! Determines whether the machine's processors were the limit of a run: how busy all of them were, and whether hosts
//! got less time than their quota.
//!
//! Time is divided into windows. In a window in which all processors were busy, a host has missed part of its quota if
//! one of its processes was ready to run, the kernel did not throttle it, and it still got less than the quota.

use std::fs;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::spec::Quota;

/// Minimum window length: it contains enough clock ticks of 10 ms.
pub const WINDOW: Duration = Duration::from_millis(500);
/// A shorter window at the end of a run is ignored.
const WINDOW_S_MIN: f64 = 0.1;
/// Busy fraction from which all processors count as fully busy.
const FULL_PART: f64 = 0.95;
/// A host that got less than this fraction of its quota has missed some of it.
const QUOTA_PART: f64 = 0.9;
/// Fraction of fully busy time above which a run was limited by the processors.
pub const LIMITED_PART_MAX: f64 = 0.1;
const TICK_S: f64 = 0.01;

/// Load of the machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessorLoad {
    /// Observed time since the program started, in seconds.
    pub watched_s: f64,
    /// Part of that time in which all processors of the machine were busy, with any process, in seconds.
    pub full_s: f64,
    /// Average busy fraction of the processors.
    pub busy_part: f64,
    /// Hosts that got less time than their quota meanwhile: number in the platform, seconds of the run.
    pub missed_s: Vec<(usize, f64)>,
}

impl ProcessorLoad {
    /// Reports whether the processors, not the platform, were the limit.
    pub fn are_limit(&self) -> bool {
        self.full_s > LIMITED_PART_MAX * self.watched_s
    }
}

/// Observes the processors.
#[derive(Debug)]
pub struct ProcessorMonitor {
    seen: ProcessorLoad,
    quotas: Vec<Quota>,
    last: Option<Sample>,
    at: Instant,
}

/// Ticks and counters since the machine started.
#[derive(Debug)]
struct Sample {
    busy: f64,
    all: f64,
    groups: Vec<Group>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Group {
    used_ticks: f64,
    throttled: f64,
    is_ready: bool,
}

impl ProcessorMonitor {
    /// Starts observing.
    pub fn new(quotas: &[Quota]) -> ProcessorMonitor {
        let quotas = quotas.to_vec();
        let last = sample(&quotas);
        ProcessorMonitor { seen: ProcessorLoad::default(), quotas, last, at: Instant::now() }
    }

    /// Ends a window and starts the next, unless the window is too short.
    pub fn end_window(&mut self) {
        let window_s = self.at.elapsed().as_secs_f64();
        if window_s < WINDOW_S_MIN {
            return;
        }
        let now = sample(&self.quotas);
        if let (Some(last), Some(now)) = (&self.last, &now) {
            self.seen.add(window_s, last, now, &self.quotas);
        }
        (self.last, self.at) = (now, Instant::now());
    }

    /// Returns the sums so far.
    pub fn seen(&self) -> ProcessorLoad {
        self.seen.clone()
    }
}

impl ProcessorLoad {
    fn add(&mut self, window_s: f64, last: &Sample, now: &Sample, quotas: &[Quota]) {
        let busy = (now.busy - last.busy) / (now.all - last.all).max(1.0);
        let before_s = self.watched_s;
        self.watched_s += window_s;
        self.busy_part = (self.busy_part * before_s + busy * window_s) / self.watched_s;
        if busy < FULL_PART {
            return;
        }
        self.full_s += window_s;
        for ((quota, last), now) in quotas.iter().zip(&last.groups).zip(&now.groups) {
            let used_s = (now.used_ticks - last.used_ticks) * TICK_S;
            // A server has one computing process per slot; a single process uses one core at most.
            let due_s = quota.cores.min(1.0) * window_s;
            if now.is_ready && now.throttled == last.throttled && used_s < QUOTA_PART * due_s {
                match self.missed_s.iter_mut().find(|(host, _)| *host == quota.host) {
                    Some((_, missed_s)) => *missed_s += window_s,
                    None => self.missed_s.push((quota.host, window_s)),
                }
            }
        }
    }
}

fn sample(quotas: &[Quota]) -> Option<Sample> {
    let text = fs::read_to_string("/proc/stat").ok()?;
    // Fields: user nice system idle iowait irq softirq steal. Guest time is included in user.
    let ticks: Vec<f64> =
        text.lines().next()?.split_whitespace().skip(1).take(8).map_while(|w| w.parse().ok()).collect();
    let all: f64 = ticks.iter().sum();
    let idle = ticks.get(3)? + ticks.get(4)?;
    Some(Sample { busy: all - idle, all, groups: quotas.iter().map(group).collect() })
}

fn group(quota: &Quota) -> Group {
    let read = |name: &str| fs::read_to_string(quota.group.join(name)).unwrap_or_default();
    let throttled = read("cpu.stat").lines().find_map(|line| line.strip_prefix("nr_throttled ")?.parse().ok());
    let mut group = Group { throttled: throttled.unwrap_or(0.0), ..Group::default() };
    for pid in read("cgroup.procs").lines() {
        // After the name, which may contain spaces: state, then 10 numbers, then user and system ticks.
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let Some((_, rest)) = stat.rsplit_once(") ") else { continue };
        let words: Vec<&str> = rest.split(' ').collect();
        group.is_ready |= words.first() == Some(&"R");
        group.used_ticks += words.iter().skip(11).take(2).filter_map(|word| word.parse::<f64>().ok()).sum::<f64>();
    }
    group
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_full_and_its_quotas_missed_only_if_both_are_so() {
        let quotas = [Quota { host: 3, group: "/none".into(), cores: 0.5 }];
        let sample = |busy, all, used_ticks, throttled, is_ready| Sample {
            busy,
            all,
            groups: vec![Group { used_ticks, throttled, is_ready }],
        };
        let start = sample(0.0, 0.0, 0.0, 0.0, true);
        let of = |now: Sample| {
            let mut seen = ProcessorLoad::default();
            seen.add(0.5, &start, &now, &quotas);
            (seen.full_s, seen.missed_s)
        };
        let missed = vec![(3, 0.5)];
        assert_eq!(of(sample(90.0, 100.0, 0.0, 0.0, true)), (0.0, vec![]), "not all were busy");
        assert_eq!(of(sample(100.0, 100.0, 10.0, 0.0, true)), (0.5, missed), "10 of 25 ticks");
        assert_eq!(of(sample(100.0, 100.0, 24.0, 0.0, true)), (0.5, vec![]));
        assert_eq!(of(sample(100.0, 100.0, 10.0, 1.0, true)), (0.5, vec![]), "it had its quota");
        assert_eq!(of(sample(100.0, 100.0, 10.0, 0.0, false)), (0.5, vec![]), "it wanted no more");
    }

    #[test]
    fn a_run_is_limited_by_more_than_a_moment() {
        let seen = |full_s| ProcessorLoad { watched_s: 10.0, full_s, ..ProcessorLoad::default() };
        assert!(!seen(1.0).are_limit() && seen(1.5).are_limit());
        let mut watch = ProcessorMonitor::new(&[]);
        watch.end_window();
        assert!(watch.seen().busy_part <= 1.0);
    }
}

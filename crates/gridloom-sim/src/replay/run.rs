//! Runs a scenario through time.
//!
//! **Order at one date**, as in SimGrid: profile changes; then everything that ends within a nanosecond; then starts,
//! in scenario order. After these come activities that fail immediately, and those that waited for them.
//!
//! As in SimGrid, an activity of several threads has neither a priority nor a bound.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use gridloom_flow::engine::TIMING_S;
use gridloom_flow::{Completion, Execution, FlowEngine, LinkIndex, Outcome, Reach, Timeline, Transfer};

use super::scenario::{Activity, Kind, Scenario};

/// Activities that make no progress for this long, seconds, while profiles change, are considered stalled forever: 30
/// days, as in simulations of programs.
pub const STALL_S: f64 = 30.0 * 24.0 * 3600.0;
/// Activities that make no progress over this many profile changes are also considered stalled. Profiles with short
/// loops reach this first.
pub const CHANGES_MAX: u64 = 10_000_000;

/// The result of an activity.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ActivityResult {
    /// Start time, seconds.
    pub start_s: f64,
    /// End time, seconds. Infinite if it never ends, because a resource that it needs has no speed any more, or none
    /// for [`STALL_S`].
    pub end_s: f64,
    /// True if it failed at that time.
    pub failed: bool,
}

/// Runs a scenario to its end. `reach` sets how far changes propagate. Returns the results of the activities, in scenario order.
pub fn run(scenario: &Scenario, reach: Reach) -> Vec<ActivityResult> {
    let (engine, timeline) = super::engine::build(scenario, reach);
    let never = ActivityResult { start_s: f64::INFINITY, end_s: f64::INFINITY, failed: false };
    let count = scenario.activities.len();
    let mut run = Run {
        scenario,
        engine,
        timeline,
        ended: vec![never; count],
        waits: scenario.activities.iter().map(|activity| activity.after.len()).collect(),
        followers: vec![Vec::new(); count],
        starts: BinaryHeap::new(),
        activity_of: Vec::new(),
    };
    for (number, activity) in scenario.activities.iter().enumerate() {
        activity.after.iter().for_each(|before| run.followers[*before].push(number));
        if activity.after.is_empty() {
            run.starts.push(Reverse(ActivityStart { date_s: activity.start_s, number }));
        }
    }
    run.finish();
    run.ended
}

struct Run<'a> {
    scenario: &'a Scenario,
    engine: FlowEngine,
    timeline: Timeline,
    ended: Vec<ActivityResult>,
    /// Number of activities for which each one waits, and the activities that wait for each.
    waits: Vec<usize>,
    followers: Vec<Vec<usize>>,
    starts: BinaryHeap<Reverse<ActivityStart>>,
    /// Number of the activity that each action executes, by slot.
    activity_of: Vec<usize>,
}

impl Run<'_> {
    fn finish(&mut self) {
        let mut completed = Vec::new();
        // The time since which nothing makes progress, and the number of changes since then.
        let (mut still_since_s, mut changes) = (0.0, 0);
        loop {
            let start_s = self.starts.peek().map(|Reverse(start)| start.date_s);
            // Changes while nothing runs or is scheduled do not matter, unless an activity is stalled.
            let next_s = [start_s, self.engine.next_event_s()].into_iter().flatten().min_by(f64::total_cmp);
            let change_s = self.timeline.next_s();
            let moves = next_s.is_some();
            let Some(next_s) = next_s.or(change_s.filter(|_| self.is_stalled())) else { return };
            if moves {
                (still_since_s, changes) = (self.engine.now_s(), 0);
            } else if next_s - still_since_s > STALL_S || changes >= CHANGES_MAX {
                return;
            }
            changes += 1;
            let now_s = next_s.min(change_s.unwrap_or(f64::INFINITY)).max(self.engine.now_s());
            self.engine.wait_until(now_s);
            self.timeline.apply_due(&mut self.engine);
            self.engine.fire_due(&mut completed);
            self.take(&mut completed);
            self.start_due(&mut completed);
        }
    }

    /// Reports whether an activity is running that has no end date, and may get one by a profile change.
    fn is_stalled(&self) -> bool {
        self.timeline.next_s().is_some()
            && self.ended.iter().any(|one| one.start_s.is_finite() && one.end_s.is_infinite())
    }

    fn take(&mut self, completed: &mut Vec<Completion>) {
        for Completion { date_s, action, outcome } in completed.drain(..) {
            let number = self.activity_of[action.slot()];
            let ended = &mut self.ended[number];
            (ended.end_s, ended.failed) = (date_s, outcome == Outcome::Failed);
            for at in 0..self.followers[number].len() {
                let follower = self.followers[number][at];
                self.waits[follower] -= 1;
                if self.waits[follower] == 0 {
                    let date_s = self.scenario.activities[follower].start_s.max(date_s);
                    self.starts.push(Reverse(ActivityStart { date_s, number: follower }));
                }
            }
        }
    }

    /// Starts the activities that are due, until no more can start.
    fn start_due(&mut self, completed: &mut Vec<Completion>) {
        let mut due = Vec::new();
        loop {
            let now_s = self.engine.now_s();
            while let Some(Reverse(start)) = self.starts.peek().filter(|start| start.0.date_s - now_s < TIMING_S) {
                due.push(start.number);
                self.starts.pop();
            }
            if due.is_empty() {
                return;
            }
            due.sort_unstable();
            for number in due.drain(..) {
                self.start(number, &self.scenario.activities[number]);
                // Taken immediately, so that no other action reuses the slot first.
                self.engine.take_failures(completed);
                self.take(completed);
            }
        }
    }

    fn start(&mut self, number: usize, activity: &Activity) {
        let scenario = self.scenario;
        self.ended[number].start_s = self.engine.now_s();
        let action = match activity.kind {
            Kind::Transfer { src, dst, size_bytes, rate_max } => {
                let route = |from, to| match scenario.routes.get(&(from, to)) {
                    Some(links) => &links[..],
                    None if from == to => &[LinkIndex(0)],
                    None => &[],
                };
                let links = route(src, dst);
                let latency_s = links.iter().fold(0.0, |sum, link| sum + self.engine.latency_s(*link));
                let way_back = route(dst, src);
                self.engine.start_transfer(&Transfer {
                    return_links: way_back,
                    rate_max,
                    ..Transfer::new(links, latency_s, size_bytes)
                })
            }
            Kind::Execution { host, work_flops, priority, bound_flops, threads } => {
                let own = threads == 1;
                self.engine.start_execution(&Execution {
                    host,
                    work_flops,
                    priority: if own { priority } else { 1.0 },
                    bound_flops: if own { bound_flops } else { f64::INFINITY },
                    threads,
                })
            }
        };
        if self.activity_of.len() <= action.slot() {
            self.activity_of.resize(action.slot() + 1, 0);
        }
        self.activity_of[action.slot()] = number;
    }
}

#[derive(Clone, Copy, PartialEq, Debug)]
struct ActivityStart {
    date_s: f64,
    number: usize,
}

impl Eq for ActivityStart {}

impl PartialOrd for ActivityStart {
    fn partial_cmp(&self, other: &ActivityStart) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ActivityStart {
    fn cmp(&self, other: &ActivityStart) -> std::cmp::Ordering {
        self.date_s.total_cmp(&other.date_s).then(self.number.cmp(&other.number))
    }
}

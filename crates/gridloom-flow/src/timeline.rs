//! Speed profiles: a schedule of changes over all links and hosts.
//!
//! **Invariants.** Changes are returned in date order; changes at one date are returned in the order in which their
//! profiles were added. A profile that loops restarts, with its date 0, `loop_after_s` after its last event.
//!
//! Source: SimGrid 4.1's future event set. As there, dates are accumulated from one event to the next.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::engine::FlowEngine;
use super::resources::{HostIndex, LinkIndex};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Quantity {
    /// The factor that multiplies a host's speed.
    Speed(HostIndex),
    /// A link's bandwidth, bytes per second.
    Bandwidth(LinkIndex),
    /// A link's latency, seconds.
    Latency(LinkIndex),
    /// A host is on if the value is above 0.
    HostState(HostIndex),
    /// A link is on if the value is above 0.
    LinkState(LinkIndex),
}

/// All profiles, and the next change of each.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    profiles: Vec<Profile>,
    next_changes: BinaryHeap<Reverse<Due>>,
}

#[derive(Clone, Debug)]
struct Profile {
    quantity: Quantity,
    events: Vec<(f64, f64)>,
    loop_after_s: Option<f64>,
}

#[derive(Clone, Copy, PartialEq, Debug)]
struct Due {
    date_s: f64,
    course: usize,
    event: usize,
}

impl Timeline {
    /// Creates a timeline without changes.
    pub fn new() -> Timeline {
        Timeline::default()
    }

    /// Adds the profile of a quantity: non-decreasing dates in seconds, each with the value from then on.
    ///
    /// # Panics
    /// If the dates decrease, or a loop takes no time.
    pub fn add(&mut self, quantity: Quantity, events: Vec<(f64, f64)>, loop_after_s: Option<f64>) {
        assert!(events.windows(2).all(|pair| pair[0].0 <= pair[1].0), "the dates of a profile must not decrease");
        let Some(&(date_s, _)) = events.first() else { return };
        let span_s = events[events.len() - 1].0 + loop_after_s.unwrap_or(f64::INFINITY);
        assert!(span_s > 0.0, "a loop of a profile must take some time");
        self.next_changes.push(Reverse(Due { date_s, course: self.profiles.len(), event: 0 }));
        self.profiles.push(Profile { quantity, events, loop_after_s });
    }

    /// Returns the date of the next change.
    pub fn next_s(&self) -> Option<f64> {
        self.next_changes.peek().map(|Reverse(due)| due.date_s)
    }

    /// Reports whether a host's state will be *on* at some future date.
    pub fn will_turn_on(&self, host: HostIndex) -> bool {
        self.next_changes.iter().any(|Reverse(due)| {
            let course = &self.profiles[due.course];
            let to_come = if course.loop_after_s.is_some() { &course.events[..] } else { &course.events[due.event..] };
            course.quantity == Quantity::HostState(host) && to_come.iter().any(|(_, value)| *value > 0.0)
        })
    }

    /// Removes and returns the next change that is due at `now_s`. For callers that need to do more than [`Timeline::apply_due`].
    pub fn take_due(&mut self, now_s: f64) -> Option<(Quantity, f64)> {
        let Reverse(due) = self.next_changes.peek().copied().filter(|due| due.0.date_s <= now_s)?;
        self.next_changes.pop();
        let Profile { quantity, events, loop_after_s } = &self.profiles[due.course];
        let (own_s, value) = events[due.event];
        let step = match (events.get(due.event + 1), loop_after_s) {
            (Some((next_s, _)), _) => Some((next_s - own_s, due.event + 1)),
            (None, Some(pause_s)) => Some((pause_s + events[0].0, 0)),
            (None, None) => None,
        };
        if let Some((step_s, event)) = step {
            self.next_changes.push(Reverse(Due { date_s: due.date_s + step_s, event, ..due }));
        }
        Some((*quantity, value))
    }

    /// Applies all changes that are due at the engine's time.
    pub fn apply_due(&mut self, engine: &mut FlowEngine) {
        while let Some((quantity, value)) = self.take_due(engine.now_s()) {
            match quantity {
                Quantity::Speed(host) => engine.set_speed_scale(host, value),
                Quantity::Bandwidth(link) => engine.set_bandwidth(link, value),
                Quantity::Latency(link) => engine.set_latency(link, value),
                Quantity::HostState(host) => engine.set_host_on(host, value > 0.0),
                Quantity::LinkState(link) => engine.set_link_on(link, value > 0.0),
            }
        }
    }
}

impl Eq for Due {}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Due) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Due {
    fn cmp(&self, other: &Due) -> std::cmp::Ordering {
        self.date_s.total_cmp(&other.date_s).then(self.course.cmp(&other.course)).then(self.event.cmp(&other.event))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{NetworkModel, Resources};
    use super::*;

    #[test]
    fn profiles_loop_and_are_ordered_by_date() {
        let mut resources = Resources::new();
        let host = resources.add_host(1e9, 1);
        let mut engine = FlowEngine::new(resources, NetworkModel::WARM_TCP);
        let mut timeline = Timeline::new();
        timeline.add(Quantity::Speed(host), vec![(1.0, 0.5), (2.0, 1.0)], Some(3.0));
        timeline.add(Quantity::HostState(host), vec![(4.0, 1.0)], None);
        let mut dates = Vec::new();
        while let Some(date_s) = timeline.next_s().filter(|date_s| *date_s < 12.0) {
            dates.push(date_s);
            engine.wait_until(date_s);
            timeline.apply_due(&mut engine);
        }
        // The second round starts at 2 + 3, the third at 7 + 3.
        assert_eq!(dates, [1.0, 2.0, 4.0, 6.0, 7.0, 11.0]);
    }
}

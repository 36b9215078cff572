//! Detects that virtual time stands still because events that take no time cause each other endlessly.

use std::collections::BTreeMap;

use gridloom_base::Time;

/// Number of events beyond the limit that are sampled to describe the loop.
const SAMPLED: u64 = 1000;
/// Number of the most frequent kinds of events in the description.
const NAMED: usize = 4;

/// The events at the current instant.
#[derive(Debug)]
pub(crate) struct Standstill {
    at: Time,
    count: u64,
    max: u64,
    /// Number of sampled events by description.
    sampled: BTreeMap<String, u64>,
    failure: Option<String>,
}

impl Standstill {
    /// Creates a counter that allows this number of events at one instant.
    pub(crate) fn new(max: u64) -> Standstill {
        Standstill { at: Time::ZERO, count: 0, max, sampled: BTreeMap::new(), failure: None }
    }

    /// Returns the description of the loop if time stands still.
    pub(crate) fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// Counts an event at `now`. Returns true once time stands still.
    pub(crate) fn count(&mut self, now: Time, describe: impl FnOnce() -> String) -> bool {
        if now != self.at {
            (self.at, self.count) = (now, 0);
            self.sampled.clear();
        }
        self.count += 1;
        if self.count > self.max {
            *self.sampled.entry(describe()).or_default() += 1;
        }
        let stands = self.count >= self.max + SAMPLED;
        if stands {
            self.failure = Some(self.text());
        }
        stands
    }

    fn text(&self) -> String {
        let mut kinds: Vec<(&String, &u64)> = self.sampled.iter().collect();
        kinds.sort_by_key(|(text, count)| (u64::MAX - **count, *text));
        let named: Vec<String> =
            kinds.iter().take(NAMED).map(|(text, count)| format!("{text} ({count} of {SAMPLED})")).collect();
        format!(
            "virtual time stands still: more than {} events happened at this time; the most frequent of them: {}. Give the \
             links between these hosts a latency and a bandwidth; a program that sends messages or polls in a loop must \
             wait or compute between them",
            self.max,
            named.join(", ")
        )
    }
}

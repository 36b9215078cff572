//! When a program does something of a kind that not all programs do: most of it soon, some of it late.

use gridloom_base::{SplitMix64, Time};

/// How much there is to do, and when.
pub(super) struct Habits {
    /// One client of so many has nothing to do.
    pub(super) one_without_of: u64,
    /// A client does fewer things than that.
    pub(super) acts_max: u64,
    /// Most acts are within the first time, the others within the second.
    pub(super) soon_ns: u64,
    pub(super) late_ns: u64,
}

/// Draws what a client does, in order of time; `None` for a client that does nothing of the kind. An act is as likely as it stands often
/// in `acts`.
pub(super) fn draw<A: Copy + Ord>(
    now: Time,
    random: &mut SplitMix64,
    acts: &[A],
    habits: &Habits,
) -> Option<Vec<(Time, A)>> {
    if random.below(habits.one_without_of) == 0 {
        return None;
    }
    let mut agenda = Vec::new();
    for _ in 0..random.below(habits.acts_max) {
        let within_ns = if random.below(4) == 0 { habits.late_ns } else { habits.soon_ns };
        agenda.push((now + random.below(within_ns), acts[random.below(acts.len() as u64) as usize]));
    }
    agenda.sort();
    Some(agenda)
}

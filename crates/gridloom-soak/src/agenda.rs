//! When a program performs optional actions: most of them early, some late.

use gridloom_base::{SplitMix64, Time};

/// Number and times of actions.
pub(crate) struct ActionRates {
    /// One in this many clients performs no such action.
    pub(crate) one_without_of: u64,
    /// Exclusive upper limit of a client's number of actions.
    pub(crate) actions_max: u64,
    /// Most actions are within `soon_ns`, the others within `late_ns`.
    pub(crate) soon_ns: u64,
    pub(crate) late_ns: u64,
}

/// Draws a client's actions in time order; `None` for a client without such actions. The probability of an action is
/// proportional to how often it occurs in `acts`.
pub(crate) fn draw<A: Copy + Ord>(
    now: Time,
    random: &mut SplitMix64,
    acts: &[A],
    habits: &ActionRates,
) -> Option<Vec<(Time, A)>> {
    if random.below(habits.one_without_of) == 0 {
        return None;
    }
    let mut agenda = Vec::new();
    for _ in 0..random.below(habits.actions_max) {
        let within_ns = if random.below(4) == 0 { habits.late_ns } else { habits.soon_ns };
        agenda.push((now + random.below(within_ns), acts[random.below(acts.len() as u64) as usize]));
    }
    agenda.sort();
    Some(agenda)
}

//! Detects activities of a scenario that wait for each other.

use super::scenario::Activity;

/// Returns an error that shows one cycle if activities wait for each other.
pub(super) fn cycle(activities: &[Activity]) -> Option<String> {
    let mut waits: Vec<usize> = activities.iter().map(|activity| activity.after.len()).collect();
    let mut followers = vec![Vec::new(); waits.len()];
    for (number, activity) in activities.iter().enumerate() {
        activity.after.iter().for_each(|before| followers[*before].push(number));
    }
    let mut ready: Vec<usize> = (0..waits.len()).filter(|number| waits[*number] == 0).collect();
    while let Some(number) = ready.pop() {
        for follower in &followers[number] {
            waits[*follower] -= 1;
            if waits[*follower] == 0 {
                ready.push(*follower);
            }
        }
    }
    let start = waits.iter().position(|waits| *waits > 0)?;
    // An activity that still waits, waits for another that still waits, so following these must end in a cycle.
    let before = |number: usize| activities[number].after.iter().copied().find(|other| waits[*other] > 0);
    let mut at = start;
    for _ in 0..waits.len() {
        at = before(at).expect("an activity that waits forever waits for another such activity");
    }
    let mut circle = vec![at];
    let mut next = before(at).expect("as above");
    while next != at {
        circle.push(next);
        next = before(next).expect("as above");
    }
    circle.reverse();
    circle.push(circle[0]);
    let names: Vec<&str> = circle.iter().map(|number| activities[*number].name.as_str()).collect();
    let first = circle[0];
    Some(format!("activities[{first}] '{}'.after: a cycle: {}", names[0], names.join(" before ")))
}
